/* SPDX-License-Identifier: Apache-2.0
 *
 * fp16, bf16, fp8 and s2fp8 on a GPU. See common/codec/stages/half.c, fp8.c.
 * Test: tests/unit/test_cuda_codec.c
 */
#include <math.h>

#include "common/codec/stages/fp8.h"
#include "kernels/cuda/codec/cuda_codec.h"
#include "kernels/cuda/codec/cuda_codec_table.h"
#include "kernels/cuda/codec/k_codec_format.h"

struct format {
	struct gp_codec_site *site;
	uint64_t n;
	enum gpk_format format;
	int bytes;                /* of an element */
	struct gpk_log_sum *room; /* s2fp8's encoder */
};

static void close_format(void *state)
{
	struct format *f = state;
	if (!f)
		return;
	gp_cuda_codec_free(f->site, f->room);
	gp_free(f);
}

static enum gp_status open_as(enum gpk_format format, const struct gp_codec_setup *setup, struct format **out,
			      struct gp_err *err)
{
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof **out, err));
	*out = p;
	**out = (struct format){.site = setup->site,
				.n = setup->n,
				.format = format,
				.bytes = format == GPK_FP16 || format == GPK_BF16 ? 2 : 1};
	return GP_OK;
}

static enum gp_status open_fp16(const double *value, const struct gp_codec_setup *setup, void **state,
				struct gp_err *err)
{
	(void)value;
	return open_as(GPK_FP16, setup, (struct format **)state, err);
}

static enum gp_status open_bf16(const double *value, const struct gp_codec_setup *setup, void **state,
				struct gp_err *err)
{
	(void)value;
	return open_as(GPK_BF16, setup, (struct format **)state, err);
}

static enum gp_status open_fp8(const double *value, const struct gp_codec_setup *setup, void **state,
			       struct gp_err *err)
{
	return open_as(value[0] == GP_FP8_E4M3 ? GPK_E4M3 : GPK_E5M2, setup, (struct format **)state, err);
}

static bool encode(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	const struct format *f = state;
	struct gp_codec_site *const p = f->site;
	uint8_t *const body = gp_cuda_codec_body(p, 0);
	(void)pass;
	*len = f->n * (uint64_t)f->bytes;
	gp_rt_fill(p->stream, p->note, 0, sizeof(uint32_t));
	gpk_format_encode(p->stream, f->format, x, (int64_t)f->n, body, p->note);
	gp_rt_copy_down(p->stream, out, body, *len);
	gp_cuda_codec_tell(p, sizeof(uint32_t));
	return gp_cuda_codec_wait(p) && !*(const uint32_t *)p->told;
}

/* What the kernel found wrong with a payload that it has decoded. */
static enum gp_status verdict(struct gp_codec_site *p, struct gp_err *err)
{
	gp_cuda_codec_tell(p, sizeof(uint32_t));
	if (!gp_cuda_codec_wait(p))
		GP_FAIL(err, GP_DEVICE, "%s", p->why.text);
	if (*(const uint32_t *)p->told)
		GP_FAIL(err, GP_PROTO, "payload holds a value that is not finite");
	return GP_OK;
}

static enum gp_status decode(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
			     struct gp_err *err)
{
	const struct format *f = state;
	struct gp_codec_site *const p = f->site;
	(void)pass;
	if (in.len != f->n * (uint64_t)f->bytes)
		GP_FAIL(err, GP_PROTO, "payload has %zu bytes instead of %llu", in.len,
			(unsigned long long)(f->n * (uint64_t)f->bytes));
	const uint8_t *const body = gp_cuda_codec_up(p, in, 0);
	gp_rt_fill(p->stream, p->note, 0, sizeof(uint32_t));
	gpk_format_decode(p->stream, f->format, body, (int64_t)f->n, x, p->note);
	return verdict(p, err);
}

const struct gp_codec_ops gp_cuda_codec_fp16 = {
	.open = open_fp16, .close = close_format, .encode = encode, .decode = decode};
const struct gp_codec_ops gp_cuda_codec_bf16 = {
	.open = open_bf16, .close = close_format, .encode = encode, .decode = decode};
const struct gp_codec_ops gp_cuda_codec_fp8 = {
	.open = open_fp8, .close = close_format, .encode = encode, .decode = decode};

/* --- s2fp8 ------------------------------------------------------------------------------------------------------ */

enum { ROOM = GPK_LOG_PARTS * sizeof(struct gpk_log_sum) };

static uint64_t memory_s2fp8(const double *value, const struct gp_codec_setup *setup)
{
	(void)value;
	return 4096 + (setup->encodes ? ROOM : 0);
}

static enum gp_status open_s2fp8(const double *value, const struct gp_codec_setup *setup, void **state,
				 struct gp_err *err)
{
	struct format *f;
	void *room = NULL;
	(void)value;
	GP_TRY(open_as(GPK_E5M2, setup, &f, err));
	const enum gp_status status = setup->encodes ? gp_cuda_codec_alloc(f->site, ROOM, &room, err) : GP_OK;
	f->room = room;
	if (status != GP_OK) {
		close_format(f);
		return status;
	}
	*state = f;
	return GP_OK;
}

static bool encode_s2fp8(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	const struct format *f = state;
	struct gp_codec_site *const p = f->site;
	uint8_t *const body = gp_cuda_codec_body(p, GP_S2FP8_HEAD);
	float *const head = (float *)(void *)body;
	(void)pass;
	*len = GP_S2FP8_HEAD + f->n;
	gp_rt_fill(p->stream, p->note, 0, sizeof(uint32_t));
	gpk_s2fp8_measure(p->stream, x, (int64_t)f->n, f->room, head, p->note);
	gpk_s2fp8_encode(p->stream, x, (int64_t)f->n, head, body + GP_S2FP8_HEAD);
	gp_rt_copy_down(p->stream, out, body, *len);
	gp_cuda_codec_tell(p, sizeof(uint32_t));
	return gp_cuda_codec_wait(p) && !*(const uint32_t *)p->told;
}

static enum gp_status decode_s2fp8(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
				   struct gp_err *err)
{
	const struct format *f = state;
	struct gp_codec_site *const p = f->site;
	float table[128];
	(void)pass;
	GP_TRY(gp_s2fp8_read_head(in, f->n, table, err));
	const uint8_t *const body = gp_cuda_codec_up(p, in, GP_S2FP8_HEAD);
	gp_rt_fill(p->stream, p->note, 0, sizeof(uint32_t));
	gpk_s2fp8_decode(p->stream, body + GP_S2FP8_HEAD, (int64_t)f->n, table, x, p->note);
	return verdict(p, err);
}

const struct gp_codec_ops gp_cuda_codec_s2fp8 = {
	.open = open_s2fp8,
	.close = close_format,
	.bytes = memory_s2fp8,
	.encode = encode_s2fp8,
	.decode = decode_s2fp8,
};
