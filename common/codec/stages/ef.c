/* SPDX-License-Identifier: Apache-2.0
 *
 * `ef`: error feedback (Seide et al., "1-bit stochastic gradient descent",
 * Interspeech 2014; Karimireddy et al., ICML 2019). What the rest of the chain
 * lost of a chunk is added to that chunk's next tensor. Only the encoder
 * remembers. Before a `topk` that chooses what its activation did, the elements
 * that are not chosen have no gradient: nothing is lost there, and what is
 * remembered waits. Layout: CODECS.md. Test: tests/unit/test_codec_state.c
 */
#include "common/codec/codec_impl.h"

struct ef {
	uint64_t n;
	uint32_t chunks;
	float *residual; /* chunks * n; NULL on an end that only decodes */
	float *backup;   /* as many; NULL without undo */
	bool backs_up;   /* the next pass fills it */
	const struct gp_codec_mask *activation;
	uint64_t chosen; /* elements that the next stage chooses, where it reuses that mask */
};

enum { BLOCK = 4096, WORD = 64 }; /* elements that stay in the cache; and that a word of a mask is of */

static enum gp_status shapes(const double *value, const struct gp_shape *shape, struct gp_codec_parts *out,
			     struct gp_err *err)
{
	(void)value;
	(void)err;
	*out = (struct gp_codec_parts){.count = 1, .shape = {*shape}};
	return GP_OK;
}

static uint64_t state_bytes(const double *value, const struct gp_codec_setup *setup)
{
	(void)value;
	return sizeof(struct ef) + (setup->encodes ? (setup->undo ? 8 : 4) * setup->n * setup->chunks : 0);
}

static void close_ef(void *state)
{
	struct ef *e = state;
	if (!e)
		return;
	gp_free(e->residual);
	gp_free(e->backup);
	gp_free(e);
}

static enum gp_status allocate(struct ef *e, const struct gp_codec_setup *setup, struct gp_err *err)
{
	void *p;
	if (!setup->encodes)
		return GP_OK;
	GP_TRY(gp_alloc_array(&p, setup->n * setup->chunks, sizeof *e->residual, err));
	e->residual = p;
	if (!setup->undo)
		return GP_OK;
	GP_TRY(gp_alloc_array(&p, setup->n * setup->chunks, sizeof *e->backup, err));
	e->backup = p;
	return GP_OK;
}

static enum gp_status open_ef(const double *value, const struct gp_codec_setup *setup, void **state, struct gp_err *err)
{
	(void)value;
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct ef), err));
	struct ef *e = p;
	*e = (struct ef){
		.n = setup->n, .chunks = setup->chunks, .activation = setup->activation_mask, .chosen = setup->chosen};
	const enum gp_status status = allocate(e, setup, err);
	if (status != GP_OK) {
		close_ef(e);
		return status;
	}
	*state = e;
	return GP_OK;
}

static int regions(void *state, struct gp_codec_region *out)
{
	const struct ef *e = state;
	if (!e->residual)
		return 0;
	out[0] = (struct gp_codec_region){
		.data = e->residual, .bytes = e->n * e->chunks * sizeof(float), .backup = e->backup};
	return 1;
}

static void back_up(void *state)
{
	struct ef *e = state;
	e->backs_up = e->backup != NULL;
}

/* y = x + r, which is r's, too; false when some y is not finite. */
static bool add_residual(const float *restrict x, float *restrict r, uint64_t n, float *restrict y)
{
	uint32_t odd = 0;
#pragma omp simd reduction(| : odd)
	for (uint64_t i = 0; i < n; i++) {
		y[i] = r[i] = x[i] + r[i];
		odd |= gp_not_finite(y[i]);
	}
	return !odd;
}

/* The same for the elements whose bits are set; the others' r stays as it is. */
static bool add_masked(const float *restrict x, float *restrict r, uint64_t n, const uint64_t *bits, float *restrict y)
{
	uint32_t odd = 0;
	for (uint64_t at = 0; at < n; at += WORD) {
		const uint64_t word = bits[at / WORD], end = n - at < WORD ? n : at + WORD;
#pragma omp simd reduction(| : odd)
		for (uint64_t i = at; i < end; i++) {
			y[i] = x[i] + r[i];
			r[i] = word >> (i - at) & 1 ? y[i] : r[i];
			odd |= gp_not_finite(y[i]);
		}
	}
	return !odd;
}

/* In an evaluation a tensor goes as it is, and the next stage finds what is not finite. In training `passed` follows
 * when a tensor is not finite, and forgets what was added here. */
static bool split(void *state, const struct gp_codec_pass *pass, const float *x, float *const *tensor, uint8_t *side,
		  size_t *side_len)
{
	(void)side;
	struct ef *e = state;
	*side_len = 0;
	if (pass->eval) {
		memcpy(tensor[0], x, e->n * sizeof *x);
		return true;
	}
	const uint64_t first = pass->chunk * e->n;
	const uint64_t *const bits = gp_codec_mask_bits(e->activation, pass, e->chosen, e->n);
	bool finite = true;
	for (uint64_t at = 0; at < e->n; at += BLOCK) {
		const uint64_t n = e->n - at < BLOCK ? e->n - at : BLOCK;
		float *r = e->residual + first + at;
		if (e->backs_up)
			memcpy(e->backup + first + at, r, n * sizeof *r);
		finite &= bits ? add_masked(x + at, r, n, bits + at / WORD, tensor[0] + at)
			       : add_residual(x + at, r, n, tensor[0] + at);
	}
	e->backs_up = false;
	return finite;
}

/* Since split, r holds what should arrive; what has arrived is subtracted from it: 0 where a mask left one out. */
static void learn(void *state, const struct gp_codec_pass *pass, const float *const *tensor)
{
	const struct ef *e = state;
	float *restrict r = e->residual + pass->chunk * e->n;
	const float *restrict arrived = tensor[0];
#pragma omp simd
	for (uint64_t i = 0; i < e->n; i++)
		r[i] -= arrived[i];
}

/* What travels raw is exact. Forgetting also gets rid of a residual that has grown out of range. Under a stage that has
 * refused the tensor there was no `split` before. */
static void passed(void *state, const struct gp_codec_pass *pass)
{
	struct ef *e = state;
	if (!e->residual || pass->eval)
		return;
	float *r = e->residual + pass->chunk * e->n;
	if (e->backs_up)
		memcpy(e->backup + pass->chunk * e->n, r, e->n * sizeof *r);
	e->backs_up = false;
	memset(r, 0, e->n * sizeof *r);
}

static enum gp_status join(void *state, const struct gp_codec_pass *pass, struct gp_span side,
			   const float *const *tensor, float *x, struct gp_err *err)
{
	(void)pass;
	(void)side; /* none: the driver has checked it against the bound */
	(void)err;
	memcpy(x, tensor[0], ((const struct ef *)state)->n * sizeof *x);
	return GP_OK;
}

const struct gp_codec_ops gp_codec_ef = {
	.id = GP_CODEC_ID_ef,
	.kind = GP_CODEC_WRAPPER,
	.info = {.name = "ef",
		 .summary = "error feedback: what a chunk's tensor lost is added to its next one",
		 .examples = GP_EXAMPLES("ef+uniform:bits=2", "ef+sortquant:bits=2,split=1+zstd", "ef+uniform:bits=4",
					 "ef+uniform:bits=8")},
	.shapes = shapes,
	.bytes = state_bytes,
	.open = open_ef,
	.close = close_ef,
	.regions = regions,
	.back_up = back_up,
	.split = split,
	.learn = learn,
	.passed = passed,
	.join = join,
};
