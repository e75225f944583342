/* SPDX-License-Identifier: Apache-2.0
 *
 * Level quantizers on a GPU: qsgd, qsgdinf, nuqsgd, terngrad, alq and amq. The
 * payloads are the host's byte for byte: norms are added up in its order and
 * draws are counter-based. A fit looks at the beginnings of a few buckets, which
 * come to the host for it, and is then the host's. See common/codec/stages/qsgd.c,
 * alq.c. Test: tests/unit/test_cuda_codec.c
 */
#include "common/codec/stages/alq.h"
#include "common/base/rng.h"
#include "kernels/cuda/codec/cuda_codec.h"
#include "kernels/cuda/codec/cuda_codec_table.h"
#include "kernels/cuda/codec/k_codec_level.h"

/* --- norms and codes, whatever the levels ------------------------------------------------------------------------ */

/* Where norms and codes begin in the payload room, so that the codes are aligned, and their bytes. */
struct body {
	uint8_t *norms, *codes;
	size_t norm_bytes, bytes;
};

static struct body body_of(struct gp_codec_site *p, const struct gp_level_coder *c)
{
	struct body b = {.norm_bytes = gp_level_norm_bytes(c->bucket, c->n),
			 .bytes = gp_level_bytes(c->bits, c->bucket, c->n)};
	b.norms = gp_cuda_codec_body(p, b.norm_bytes % 256);
	b.codes = b.norms + b.norm_bytes;
	return b;
}

static struct gpk_levels levels_of(const struct gp_level_coder *c)
{
	return (struct gpk_levels){.bits = c->bits, .count = c->count, .level = c->table.level};
}

static void queue_norms(struct gp_codec_site *p, const struct gp_level_coder *c, const float *x, const struct body *b)
{
	gp_rt_fill(p->stream, p->note, 0, sizeof(uint32_t));
	gpk_level_norms(p->stream, x, (int64_t)c->n, (int64_t)c->bucket, c->norm == GP_LEVEL_L2,
			(float *)(void *)b->norms, p->note);
	gp_cuda_codec_tell(p, sizeof(uint32_t));
}

static void queue_codes(struct gp_codec_site *p, const struct gp_level_coder *c, const struct gp_codec_pass *pass,
			const float *x, const struct body *b, uint8_t *out)
{
	const struct gpk_levels levels = levels_of(c);
	gpk_level_encode(p->stream, x, (int64_t)c->n, (int64_t)c->bucket, &levels, c->seed,
			 gp_rng_stream(GP_RNG_ROUNDING, pass->draw), (const float *)(const void *)b->norms, b->codes);
	gp_rt_copy_down(p->stream, out, b->norms, b->bytes);
}

static void queue_both(struct gp_codec_site *p, const struct gp_level_coder *c, const struct gp_codec_pass *pass,
		       const float *x, const struct body *b, uint8_t *out)
{
	const struct gpk_levels levels = levels_of(c);
	gp_rt_fill(p->stream, p->note, 0, sizeof(uint32_t));
	gpk_level_quantize(p->stream, x, (int64_t)c->n, (int64_t)c->bucket, c->norm == GP_LEVEL_L2, &levels, c->seed,
			   gp_rng_stream(GP_RNG_ROUNDING, pass->draw), (float *)(void *)b->norms, b->codes, p->note);
	gp_rt_copy_down(p->stream, out, b->norms, b->bytes);
	gp_cuda_codec_tell(p, sizeof(uint32_t));
}

/* Waits. Whether all norms were finite. */
static bool norms_are_finite(struct gp_codec_site *p)
{
	return gp_cuda_codec_wait(p) && !*(const uint32_t *)p->told;
}

static enum gp_status read_levels(struct gp_codec_site *p, const struct gp_level_coder *c, struct gp_span in, float *x,
				  struct gp_err *err)
{
	const struct gpk_levels levels = levels_of(c);
	GP_TRY(gp_level_check(c, in, err));
	const struct body b = body_of(p, c);
	gp_cuda_codec_up(p, in, b.norm_bytes % 256);
	gp_rt_fill(p->stream, p->note, 0, sizeof(uint32_t));
	gpk_level_decode(p->stream, (const float *)(const void *)b.norms, b.codes, (int64_t)c->n, (int64_t)c->bucket,
			 &levels, x, p->note);
	gp_cuda_codec_tell(p, sizeof(uint32_t));
	if (!gp_cuda_codec_wait(p))
		GP_FAIL(err, GP_DEVICE, "%s", p->why.text);
	if (*(const uint32_t *)p->told)
		GP_FAIL(err, GP_PROTO, "payload has a norm that is negative or not finite, or a code without a level");
	return GP_OK;
}

/* --- fixed levels ------------------------------------------------------------------------------------------------ */

struct fixed {
	struct gp_level_coder coder; /* aligned */
	struct gp_codec_site *site;
};

static enum gp_status open_fixed(const double *value, const struct gp_codec_setup *setup, enum gp_level_kind kind,
				 void **state, struct gp_err *err)
{
	struct fixed *f = gp_alloc_aligned(sizeof *f);
	if (!f)
		GP_FAIL(err, GP_NOMEM, "out of memory for a codec's levels");
	gp_level_init_fixed(&f->coder, kind, value, setup);
	f->site = setup->site;
	*state = f;
	return GP_OK;
}

static enum gp_status open_qsgd(const double *value, const struct gp_codec_setup *setup, void **state,
				struct gp_err *err)
{
	return open_fixed(value, setup, GP_LEVEL_QSGD, state, err);
}

static enum gp_status open_qsgdinf(const double *value, const struct gp_codec_setup *setup, void **state,
				   struct gp_err *err)
{
	return open_fixed(value, setup, GP_LEVEL_QSGDINF, state, err);
}

static enum gp_status open_nuqsgd(const double *value, const struct gp_codec_setup *setup, void **state,
				  struct gp_err *err)
{
	return open_fixed(value, setup, GP_LEVEL_NUQSGD, state, err);
}

static enum gp_status open_terngrad(const double *value, const struct gp_codec_setup *setup, void **state,
				    struct gp_err *err)
{
	return open_fixed(value, setup, GP_LEVEL_TERNGRAD, state, err);
}

static bool encode_fixed(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	const struct fixed *f = state;
	const struct body b = body_of(f->site, &f->coder);
	*len = b.bytes;
	queue_both(f->site, &f->coder, pass, x, &b, out);
	return norms_are_finite(f->site);
}

static enum gp_status decode_fixed(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
				   struct gp_err *err)
{
	const struct fixed *f = state;
	(void)pass;
	return read_levels(f->site, &f->coder, in, x, err);
}

const struct gp_codec_ops gp_cuda_codec_qsgd = {
	.open = open_qsgd, .close = gp_free_aligned, .encode = encode_fixed, .decode = decode_fixed};
const struct gp_codec_ops gp_cuda_codec_qsgdinf = {
	.open = open_qsgdinf, .close = gp_free_aligned, .encode = encode_fixed, .decode = decode_fixed};
const struct gp_codec_ops gp_cuda_codec_nuqsgd = {
	.open = open_nuqsgd, .close = gp_free_aligned, .encode = encode_fixed, .decode = decode_fixed};
const struct gp_codec_ops gp_cuda_codec_terngrad = {
	.open = open_terngrad, .close = gp_free_aligned, .encode = encode_fixed, .decode = decode_fixed};

/* --- fitted levels ----------------------------------------------------------------------------------------------- */

struct fitted {
	struct gp_adaptive *a;
	struct gp_codec_site *site;
	float *rows; /* pinned; of an encoder: what a fit looks at */
	uint64_t row;
};

/* Elements of a row, and bytes of all. */
static uint64_t row_elements(uint64_t bucket, uint64_t n)
{
	const uint64_t most = bucket < n ? bucket : n;
	return most < GP_ADAPTIVE_ROW ? most : GP_ADAPTIVE_ROW;
}

static uint64_t rows_bytes(uint64_t bucket, uint64_t n)
{
	return GP_ADAPTIVE_ROWS * row_elements(bucket, n) * sizeof(float);
}

static void close_fitted(void *state)
{
	struct fitted *f = state;
	if (!f)
		return;
	gp_cuda_codec_free_pinned(f->site, f->rows);
	gp_adaptive_close(f->a);
	gp_free(f);
}

static enum gp_status open_fitted(const double *value, const struct gp_codec_setup *setup, bool multiplier,
				  void **state, struct gp_err *err)
{
	void *p, *rows = NULL;
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct fitted), err));
	struct fitted *f = p;
	f->site = setup->site;
	enum gp_status status = gp_adaptive_open(value, setup, multiplier, &f->a, err);
	if (status == GP_OK && setup->encodes) {
		f->row = row_elements(f->a->coder->bucket, setup->n);
		status = gp_cuda_codec_alloc_pinned(f->site, rows_bytes(f->a->coder->bucket, setup->n), &rows, err);
		f->rows = rows;
	}
	if (status != GP_OK) {
		close_fitted(f);
		return status;
	}
	*state = f;
	return GP_OK;
}

static enum gp_status open_alq(const double *value, const struct gp_codec_setup *setup, void **state,
			       struct gp_err *err)
{
	return open_fitted(value, setup, false, state, err);
}

static enum gp_status open_amq(const double *value, const struct gp_codec_setup *setup, void **state,
			       struct gp_err *err)
{
	return open_fitted(value, setup, true, state, err);
}

static uint64_t alq_bytes(const double *value, const struct gp_codec_setup *setup)
{
	return gp_adaptive_bytes(value, setup, false) + (setup->encodes ? rows_bytes(GP_ADAPTIVE_ROW, setup->n) : 0);
}

static uint64_t amq_bytes(const double *value, const struct gp_codec_setup *setup)
{
	return gp_adaptive_bytes(value, setup, true) + (setup->encodes ? rows_bytes(GP_ADAPTIVE_ROW, setup->n) : 0);
}

static int regions(void *state, struct gp_codec_region *out)
{
	return gp_adaptive_regions(((const struct fitted *)state)->a, out);
}

static bool loaded(void *state)
{
	return gp_adaptive_loaded(((const struct fitted *)state)->a);
}

/* The norms go where the payload wants them, and tell which rows to look at. False: not finite, or the device failed. */
static bool fit(const struct fitted *f, const struct gp_codec_pass *pass, const float *x, const struct body *b,
		uint8_t *norms)
{
	struct gp_adaptive_row rows[GP_ADAPTIVE_ROWS];
	struct gp_codec_site *const p = f->site;
	gp_rt_copy_down(p->stream, norms, b->norms, b->norm_bytes);
	if (!norms_are_finite(p))
		return false;
	const int count = gp_adaptive_sample(f->a, pass, norms, rows);
	for (int i = 0; i < count; i++) {
		float *const room = f->rows + (uint64_t)i * f->row;
		gp_rt_copy_down(p->stream, room, x + rows[i].first, rows[i].n * sizeof *room);
		rows[i].x = room;
	}
	if (!gp_cuda_codec_wait(p))
		return false;
	gp_adaptive_use_fitted(f->a, pass, rows, count);
	return true;
}

static bool encode_fitted(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	const struct fitted *f = state;
	const struct body b = body_of(f->site, f->a->coder);
	const uint64_t head = gp_adaptive_head_bytes(f->a);
	*len = head + b.bytes;
	if (gp_adaptive_fits(f->a, pass)) {
		queue_norms(f->site, f->a->coder, x, &b);
		if (!fit(f, pass, x, &b, out + head))
			return false;
		queue_codes(f->site, f->a->coder, pass, x, &b, out + head);
	} else {
		gp_adaptive_use_last(f->a, pass);
		queue_both(f->site, f->a->coder, pass, x, &b, out + head);
		if (!norms_are_finite(f->site))
			return false;
		gp_adaptive_passed(f->a, pass);
	}
	gp_adaptive_write_head(f->a, out);
	return true;
}

static enum gp_status decode_fitted(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
				    struct gp_err *err)
{
	const struct fitted *f = state;
	struct gp_span rest;
	(void)pass;
	GP_TRY(gp_adaptive_read_head(f->a, in, &rest, err));
	return read_levels(f->site, f->a->coder, rest, x, err);
}

const struct gp_codec_ops gp_cuda_codec_alq = {
	.open = open_alq,
	.close = close_fitted,
	.bytes = alq_bytes,
	.regions = regions,
	.loaded = loaded,
	.encode = encode_fitted,
	.decode = decode_fitted,
};

const struct gp_codec_ops gp_cuda_codec_amq = {
	.open = open_amq,
	.close = close_fitted,
	.bytes = amq_bytes,
	.regions = regions,
	.loaded = loaded,
	.encode = encode_fitted,
	.decode = decode_fitted,
};
