/* SPDX-License-Identifier: Apache-2.0
 *
 * `topk`: of a tensor's elements the share `ratio` with the largest magnitudes
 * goes on to the next stage, the others arrive as zeros. Of equal magnitudes
 * the first ones are chosen, so that there are always as many. The gradient of an
 * activation that was coded this way is zero where the activation is: it chooses
 * the same elements, and needs no indices. Layout: CODECS.md.
 * Test: tests/unit/test_codec_topk.c; fuzz: fuzz_codec_topk
 */
#include "common/codec/codec_impl.h"
#include "common/codec/codec_indices.h"
#include "common/codec/stages/topk_select.h"

enum { BLOCK = 8192 }; /* elements that stay in the cache between two looks at them: a multiple of 64 */

struct topk {
	uint64_t n, k;
	const struct gp_topk_loops *loops;
	const struct gp_codec_loops *codes;
	struct gp_topk_select *select; /* NULL on an end that only decodes */
	uint64_t *scratch;             /* bits of the chosen, where no mask takes them */
	struct gp_codec_mask *mask;
	const struct gp_codec_mask *activation;
};

static uint64_t chosen_of(const double *value, uint64_t n)
{
	const uint64_t k = (uint64_t)(value[0] * (double)n);
	return k < 1 ? 1 : k > n ? n : k;
}

static enum gp_status shapes(const double *value, const struct gp_shape *shape, struct gp_codec_parts *out,
			     struct gp_err *err)
{
	uint64_t n;
	GP_TRY(gp_shape_count(shape, GP_CODEC_MAX_ELEMENTS, &n, err));
	*out = (struct gp_codec_parts){.count = 1,
				       .shape = {{.ndim = 1, .dim = {(int64_t)chosen_of(value, n)}}},
				       .side_bound = gp_indices_bound(n)};
	return GP_OK;
}

static uint64_t state_bytes(const double *value, const struct gp_codec_setup *setup)
{
	(void)value;
	return sizeof(struct topk) + 8 * gp_indices_words(setup->n) +
	       (setup->encodes ? gp_topk_select_bytes(setup->n) : 0);
}

static void close_topk(void *state)
{
	struct topk *t = state;
	if (!t)
		return;
	gp_topk_select_free(t->select);
	gp_free(t->scratch);
	gp_free(t);
}

static enum gp_status allocate(struct topk *t, bool encodes, struct gp_err *err)
{
	void *p;
	GP_TRY(gp_alloc_array(&p, gp_indices_words(t->n), sizeof *t->scratch, err));
	t->scratch = p;
	return encodes ? gp_topk_select_new(t->loops, t->n, &t->select, err) : GP_OK;
}

static enum gp_status open_topk(const double *value, const struct gp_codec_setup *setup, void **state,
				struct gp_err *err)
{
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct topk), err));
	struct topk *t = p;
	*t = (struct topk){.n = setup->n,
			   .k = chosen_of(value, setup->n),
			   .loops = gp_topk_loops_choose(),
			   .codes = gp_codec_loops_choose(),
			   .mask = setup->mask,
			   .activation = setup->activation_mask};
	enum gp_status status = allocate(t, setup->encodes, err);
	if (status != GP_OK) {
		close_topk(t);
		return status;
	}
	*state = t;
	return GP_OK;
}

static void reshape(void *state, const double *value, const struct gp_shape *shape)
{
	struct topk *t = state;
	t->n = gp_shape_elements(shape);
	t->k = chosen_of(value, t->n);
	if (t->select)
		gp_topk_select_resize(t->select, t->n);
}

/* --- masks ------------------------------------------------------------------------------------------------------ */

static const uint64_t *activation_bits(const struct topk *t, const struct gp_codec_pass *pass)
{
	return gp_codec_mask_bits(t->activation, pass, t->k, t->n);
}

/* Where to put the bits of this pass: where the gradient will look for them, if it will. */
static uint64_t *place_for(const struct topk *t, const struct gp_codec_pass *pass)
{
	return t->mask && !pass->eval ? t->mask->bits + pass->chunk * t->mask->words : t->scratch;
}

static void leave_mask(const struct topk *t, const struct gp_codec_pass *pass, uint64_t chosen)
{
	if (!t->mask || pass->eval)
		return;
	t->mask->chosen[pass->chunk] = chosen;
	t->mask->among[pass->chunk] = t->n;
}

static void passed(void *state, const struct gp_codec_pass *pass)
{
	leave_mask(state, pass, 0);
}

/* --- split and join --------------------------------------------------------------------------------------------- */

static size_t block_at(const struct topk *t, uint64_t at)
{
	return t->n - at < BLOCK ? t->n - at : BLOCK;
}

static void take_largest(const struct topk *t, const float *x, uint32_t threshold, uint64_t ties, uint64_t *bits,
			 float *chosen)
{
	size_t used = 0;
	for (uint64_t at = 0; at < t->n; at += BLOCK) {
		const size_t length = block_at(t, at);
		t->loops->mark(x + at, length, threshold, &ties, bits + at / 64);
		used += t->loops->gather(x + at, length, bits + at / 64, chosen + used, t->k - used);
	}
	gp_require(used == t->k);
}

/* False when some element of x, taken or not, is not finite. */
static bool take_marked(const struct topk *t, const float *x, const uint64_t *bits, float *chosen)
{
	size_t used = 0;
	for (uint64_t at = 0; at < t->n; at += BLOCK) {
		const size_t length = block_at(t, at);
		float min, max;
		if (!t->codes->range(x + at, length, &min, &max))
			return false;
		used += t->loops->gather(x + at, length, bits + at / 64, chosen + used, t->k - used);
	}
	return true;
}

static bool split(void *state, const struct gp_codec_pass *pass, const float *x, float *const *tensor, uint8_t *side,
		  size_t *side_len)
{
	const struct topk *t = state;
	const uint64_t *given = activation_bits(t, pass);
	uint32_t threshold;
	uint64_t ties;
	*side_len = 0;
	if (given)
		return take_marked(t, x, given, tensor[0]);
	if (!gp_topk_threshold(t->select, x, t->k, &threshold, &ties))
		return false;
	uint64_t *bits = place_for(t, pass);
	take_largest(t, x, threshold, ties, bits, tensor[0]);
	*side_len = gp_indices_write(t->codes, bits, t->n, t->k, side);
	leave_mask(t, pass, t->k);
	return true;
}

static enum gp_status join(void *state, const struct gp_codec_pass *pass, struct gp_span side,
			   const float *const *tensor, float *x, struct gp_err *err)
{
	const struct topk *t = state;
	const uint64_t *given = activation_bits(t, pass);
	uint64_t *bits = place_for(t, pass);
	if (given && side.len > 0)
		GP_FAIL(err, GP_PROTO, "%zu bytes of indices where the activation's are to be used", side.len);
	if (!given) {
		leave_mask(t, pass, 0); /* bits are in pieces until all is read */
		GP_TRY(gp_indices_read(t->codes, side, t->n, t->k, bits, err));
		leave_mask(t, pass, t->k);
	}
	t->loops->scatter(given ? given : bits, t->n, tensor[0], t->k, x);
	return GP_OK;
}

/* A histogram, a selection, and the widths of the indices. */
static uint64_t work(const double *value, const struct gp_codec_setup *setup)
{
	(void)value;
	return gp_codec_work_times(setup->n, setup->encodes ? 12 : 6);
}

const struct gp_codec_ops gp_codec_topk = {
	.id = GP_CODEC_ID_topk,
	.kind = GP_CODEC_TRANSFORM,
	.info = {.name = "topk",
		 .summary = "the largest magnitudes, and where they are",
		 .examples = GP_EXAMPLES("topk:ratio=0.1", "topk:ratio=0.5", "topk:ratio=0.2+uniform:bits=8",
					 "ef+topk:ratio=0.01", "topk:ratio=0.01")},
	.keys = 1,
	.key = {{.name = "ratio",
		 .min = 0.0001,
		 .max = 1,
		 .initial = 0.1,
		 .decimals = 4,
		 .help = "share of the elements that is chosen"}},
	.last_because = "the elements that it has chosen are a list, without places, and are all to stay",
	.shapes = shapes,
	.bytes = state_bytes,
	.work = work,
	.open = open_topk,
	.close = close_topk,
	.masks = true,
	.reshape = reshape,
	.split = split,
	.join = join,
	.passed = passed,
};
