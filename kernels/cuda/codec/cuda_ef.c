/* SPDX-License-Identifier: Apache-2.0
 *
 * `ef` on a GPU: what was lost lies there, chunk by chunk, and so does what a
 * step that may be taken back began with. Numbers are those of
 * common/codec/stages/ef.c, bit for bit. Test: tests/unit/test_cuda_codec.c
 */
#include "kernels/cuda/runtime/carve.h"
#include "kernels/cuda/codec/cuda_codec.h"
#include "kernels/cuda/codec/cuda_codec_table.h"
#include "kernels/cuda/codec/k_codec_feedback.h"

struct ef {
	struct gp_codec_site *site;
	uint64_t n;
	uint32_t chunks;
	float *residual; /* chunks * n, on the device; NULL on an end that only decodes */
	float *backup;   /* as many; NULL without undo */
	void *room;      /* of both */
	bool backs_up;   /* the next pass fills it */
	const struct gp_codec_mask *activation;
	uint64_t chosen; /* elements that the next stage chooses, where it reuses that mask */
};

static uint64_t all_bytes(const struct ef *e)
{
	return e->n * e->chunks * sizeof(float);
}

static void carve(struct ef *e, const struct gp_codec_setup *setup, struct gp_carve *c)
{
	if (setup->encodes)
		e->residual = gp_carve(c, all_bytes(e));
	if (setup->encodes && setup->undo)
		e->backup = gp_carve(c, all_bytes(e));
}

static uint64_t state_bytes(const double *value, const struct gp_codec_setup *setup)
{
	struct ef e = {.n = setup->n, .chunks = setup->chunks};
	struct gp_carve c = {0};
	(void)value;
	carve(&e, setup, &c);
	return sizeof e + c.bytes;
}

static void close_ef(void *state)
{
	struct ef *e = state;
	if (e)
		gp_cuda_codec_free(e->site, e->room);
	gp_free(e);
}

static enum gp_status make_room(struct ef *e, const struct gp_codec_setup *setup, struct gp_err *err)
{
	struct gp_carve c = {0};
	carve(e, setup, &c);
	if (c.bytes == 0)
		return GP_OK;
	GP_TRY(gp_cuda_codec_alloc(e->site, c.bytes, &e->room, err));
	gp_rt_fill(e->site->stream, e->room, 0, c.bytes);
	c = (struct gp_carve){.base = e->room};
	carve(e, setup, &c);
	return gp_rt_stream_wait(e->site->stream, err);
}

static enum gp_status open_ef(const double *value, const struct gp_codec_setup *setup, void **state, struct gp_err *err)
{
	(void)value;
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct ef), err));
	struct ef *e = p;
	*e = (struct ef){.site = setup->site,
			 .n = setup->n,
			 .chunks = setup->chunks,
			 .activation = setup->activation_mask,
			 .chosen = setup->chosen};
	const enum gp_status status = make_room(e, setup, err);
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
		.data = e->residual, .bytes = all_bytes(e), .backup = e->backup, .on_device = true};
	return 1;
}

static void back_up(void *state)
{
	struct ef *e = state;
	e->backs_up = e->backup != NULL;
}

static float *of_chunk(const struct ef *e, float *all, const struct gp_codec_pass *pass)
{
	return all + pass->chunk * e->n;
}

/* Which elements the next stage will choose, on the device: the site's room for payloads holds a bitmap, as that stage
 * writes one. NULL: it chooses as it likes. */
static const uint32_t *queue_bits(const struct ef *e, const struct gp_codec_pass *pass)
{
	const uint64_t *const bits = gp_codec_mask_bits(e->activation, pass, e->chosen, e->n);
	const struct gp_span bitmap = {(const uint8_t *)bits, (size_t)((e->n + 7) / 8)};
	return bits ? (const uint32_t *)(const void *)gp_cuda_codec_up(e->site, bitmap, 0) : NULL;
}

static bool split(void *state, const struct gp_codec_pass *pass, const float *x, float *const *tensor, uint8_t *side,
		  size_t *side_len)
{
	struct ef *e = state;
	struct gp_codec_site *const p = e->site;
	const uint32_t *const bad = p->told;
	(void)side;
	*side_len = 0;
	if (pass->eval) {
		gp_rt_copy(p->stream, tensor[0], x, e->n * sizeof *x);
		return true;
	}
	gp_rt_fill(p->stream, p->note, 0, sizeof *bad);
	gpk_feedback_add(p->stream, x, of_chunk(e, e->residual, pass),
			 e->backs_up ? of_chunk(e, e->backup, pass) : NULL, queue_bits(e, pass), tensor[0],
			 (int64_t)e->n, p->note);
	e->backs_up = false;
	gp_cuda_codec_tell(p, sizeof *bad);
	return gp_cuda_codec_wait(p) && !*bad;
}

static void learn(void *state, const struct gp_codec_pass *pass, const float *const *tensor)
{
	const struct ef *e = state;
	gpk_feedback_take(e->site->stream, of_chunk(e, e->residual, pass), tensor[0], (int64_t)e->n);
}

static void passed(void *state, const struct gp_codec_pass *pass)
{
	struct ef *e = state;
	const size_t bytes = e->n * sizeof(float);
	if (!e->residual || pass->eval)
		return;
	float *const r = of_chunk(e, e->residual, pass);
	if (e->backs_up)
		gp_rt_copy(e->site->stream, of_chunk(e, e->backup, pass), r, bytes);
	e->backs_up = false;
	gp_rt_fill(e->site->stream, r, 0, bytes);
}

static enum gp_status join(void *state, const struct gp_codec_pass *pass, struct gp_span side,
			   const float *const *tensor, float *x, struct gp_err *err)
{
	const struct ef *e = state;
	(void)pass;
	(void)side; /* none: the driver has checked it against the bound */
	(void)err;
	gp_rt_copy(e->site->stream, x, tensor[0], e->n * sizeof *x);
	return GP_OK;
}

const struct gp_codec_ops gp_cuda_codec_ef = {
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
