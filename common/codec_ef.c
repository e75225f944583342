/* SPDX-License-Identifier: Apache-2.0
 *
 * `ef`: error feedback (Seide et al., "1-bit stochastic gradient descent",
 * Interspeech 2014; Karimireddy et al., ICML 2019). What the rest of the chain
 * lost of a chunk is added to that chunk's next tensor. Only the encoder
 * remembers. Layout: CODECS.md. Test: tests/unit/test_codec_memory.c
 */
#include "common/codec_impl.h"

struct ef {
	uint64_t n;
	uint32_t chunks;
	float *residual; /* chunks * n; NULL on an end that only decodes */
};

static enum gp_status shapes(const double *value, const struct gp_shape *shape, struct gp_codec_parts *out,
			     struct gp_err *err)
{
	(void)value;
	(void)err;
	*out = (struct gp_codec_parts){.count = 1, .shape = {*shape}};
	return GP_OK;
}

static uint64_t memory(const double *value, const struct gp_codec_setup *setup)
{
	(void)value;
	return sizeof(struct ef) + (setup->encodes ? 4 * setup->n * setup->chunks : 0);
}

static void close_ef(void *state)
{
	struct ef *e = state;
	if (e)
		gp_free(e->residual);
	gp_free(e);
}

static enum gp_status open_ef(const double *value, const struct gp_codec_setup *setup, void **state, struct gp_err *err)
{
	(void)value;
	void *p, *residual = NULL;
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct ef), err));
	enum gp_status status = GP_OK;
	if (setup->encodes)
		status = gp_alloc_array(&residual, setup->n * setup->chunks, sizeof(float), err);
	if (status != GP_OK) {
		gp_free(p);
		return status;
	}
	struct ef *e = p;
	*e = (struct ef){.n = setup->n, .chunks = setup->chunks, .residual = residual};
	*state = e;
	return GP_OK;
}

static int regions(void *state, struct gp_codec_region *out)
{
	const struct ef *e = state;
	if (!e->residual)
		return 0;
	out[0] = (struct gp_codec_region){.data = e->residual, .bytes = e->n * e->chunks * sizeof(float)};
	return 1;
}

/* y = x + r; false when some y is not finite. */
static bool add_residual(const float *restrict x, const float *restrict r, uint64_t n, float *restrict y)
{
	float poison = 0; /* y * 0 is NaN exactly for NaN and infinities */
	for (uint64_t i = 0; i < n; i++) {
		y[i] = x[i] + r[i];
		poison += y[i] * 0.0f;
	}
	return poison == 0;
}

/* In an evaluation a tensor goes as it is; what is not finite is then found by the next stage. */
static bool split(void *state, const struct gp_codec_pass *pass, const float *x, float *const *tensor, uint8_t *side,
		  size_t *side_len)
{
	(void)side;
	const struct ef *e = state;
	*side_len = 0;
	if (pass->eval) {
		memcpy(tensor[0], x, e->n * sizeof *x);
		return true;
	}
	float *r = e->residual + pass->chunk * e->n;
	if (!add_residual(x, r, e->n, tensor[0]))
		return false;
	memcpy(r, tensor[0], e->n * sizeof *r);
	return true;
}

/* r holds what was meant since split; what has arrived is taken off it. */
static void learn(void *state, const struct gp_codec_pass *pass, const float *const *tensor)
{
	const struct ef *e = state;
	float *restrict r = e->residual + pass->chunk * e->n;
	const float *restrict arrived = tensor[0];
	for (uint64_t i = 0; i < e->n; i++)
		r[i] -= arrived[i];
}

/* What travels raw is exact. Forgetting also gets rid of a residual that has grown out of range. */
static void passed(void *state, const struct gp_codec_pass *pass)
{
	const struct ef *e = state;
	if (e->residual && !pass->eval)
		memset(e->residual + pass->chunk * e->n, 0, e->n * sizeof *e->residual);
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
	.id = 22,
	.kind = GP_CODEC_WRAPPER,
	.info = {.name = "ef", .summary = "error feedback: what a chunk's tensor lost is added to its next one"},
	.shapes = shapes,
	.memory = memory,
	.open = open_ef,
	.close = close_ef,
	.regions = regions,
	.split = split,
	.learn = learn,
	.passed = passed,
	.join = join,
};
