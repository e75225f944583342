/* SPDX-License-Identifier: Apache-2.0
 *
 * mxfp8, mxfp6, mxfp4 and nvfp4 on a GPU: the payloads are the host's byte for
 * byte. See common/codec/stages/mx.c. Test: tests/unit/test_cuda_codec.c,
 * tests/unit/test_cuda_codec_block.c
 */
#include <math.h>

#include "kernels/cuda/codec/cuda_codec.h"
#include "kernels/cuda/codec/cuda_codec_table.h"
#include "kernels/cuda/codec/k_codec_mx.h"

enum { NV_HEAD = 4, NV_WIDTH = 4 };

struct mx {
	struct gp_codec_site *site;
	uint64_t n;
	enum gp_mx_format format;
	size_t codes_at; /* bytes before the codes */
	size_t bytes;
};

/* What the kernels of nvfp4 tell. */
struct nv_note {
	struct gpk_range range;
	float whole;
};

static enum gp_status open_as(enum gp_mx_format format, int width, size_t codes_at, const struct gp_codec_setup *setup,
			      void **state, struct gp_err *err)
{
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct mx), err));
	*(struct mx *)p = (struct mx){.site = setup->site,
				      .n = setup->n,
				      .format = format,
				      .codes_at = codes_at,
				      .bytes = codes_at + (setup->n * (uint64_t)width + 7) / 8};
	*state = p;
	return GP_OK;
}

static enum gp_status open_mx(enum gp_mx_format format, const struct gp_codec_setup *setup, void **state,
			      struct gp_err *err)
{
	const size_t scales = (setup->n + GP_MX_BLOCK - 1) / GP_MX_BLOCK;
	return open_as(format, gp_mx_width(format), scales, setup, state, err);
}

static enum gp_status open_mxfp8(const double *value, const struct gp_codec_setup *setup, void **state,
				 struct gp_err *err)
{
	return open_mx(value[0] > 0 ? GP_MX_E5M2 : GP_MX_E4M3, setup, state, err);
}

static enum gp_status open_mxfp6(const double *value, const struct gp_codec_setup *setup, void **state,
				 struct gp_err *err)
{
	return open_mx(value[0] > 0 ? GP_MX_E2M3 : GP_MX_E3M2, setup, state, err);
}

static enum gp_status open_mxfp4(const double *value, const struct gp_codec_setup *setup, void **state,
				 struct gp_err *err)
{
	(void)value;
	return open_mx(GP_MX_E2M1, setup, state, err);
}

static enum gp_status open_nvfp4(const double *value, const struct gp_codec_setup *setup, void **state,
				 struct gp_err *err)
{
	const size_t scales = (setup->n + GP_NVFP4_BLOCK - 1) / GP_NVFP4_BLOCK;
	(void)value;
	return open_as(GP_MX_E2M1, NV_WIDTH, NV_HEAD + scales, setup, state, err);
}

/* Where a payload begins in the payload room, so that its codes are aligned. */
static uint8_t *body_of(const struct mx *m)
{
	return gp_cuda_codec_body(m->site, m->codes_at % 256);
}

/* Lengths, and what is behind the last code. */
static enum gp_status check_length(const struct mx *m, struct gp_span in, struct gp_err *err)
{
	const int used = (int)(m->n * (uint64_t)gp_mx_width(m->format) % 8);
	if (in.len != m->bytes)
		GP_FAIL(err, GP_PROTO, "payload of scaled blocks has %zu bytes instead of %zu", in.len, m->bytes);
	if (used && in.data[in.len - 1] >> used)
		GP_FAIL(err, GP_PROTO, "payload of scaled blocks has bits set behind its last code");
	return GP_OK;
}

/* What the kernel found wrong with a payload that it has decoded. */
static enum gp_status verdict(struct gp_codec_site *p, struct gp_err *err)
{
	gp_cuda_codec_tell(p, sizeof(uint32_t));
	if (!gp_cuda_codec_wait(p))
		GP_FAIL(err, GP_DEVICE, "%s", p->why.text);
	if (*(const uint32_t *)p->told)
		GP_FAIL(err, GP_PROTO, "payload of scaled blocks holds a scale or a value that is out of range");
	return GP_OK;
}

/* --- MX --------------------------------------------------------------------------------------------------------- */

static bool encode_mx(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	const struct mx *m = state;
	struct gp_codec_site *const p = m->site;
	uint8_t *const body = body_of(m);
	(void)pass;
	*len = m->bytes;
	gp_rt_fill(p->stream, p->note, 0, sizeof(uint32_t));
	gpk_mx_encode(p->stream, m->format, x, (int64_t)m->n, body, body + m->codes_at, p->note);
	gp_rt_copy_down(p->stream, out, body, *len);
	gp_cuda_codec_tell(p, sizeof(uint32_t));
	return gp_cuda_codec_wait(p) && !*(const uint32_t *)p->told;
}

static enum gp_status decode_mx(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
				struct gp_err *err)
{
	const struct mx *m = state;
	struct gp_codec_site *const p = m->site;
	(void)pass;
	GP_TRY(check_length(m, in, err));
	const uint8_t *const body = gp_cuda_codec_up(p, in, m->codes_at % 256);
	gp_rt_fill(p->stream, p->note, 0, sizeof(uint32_t));
	gpk_mx_decode(p->stream, m->format, body, body + m->codes_at, (int64_t)m->n, x, p->note);
	return verdict(p, err);
}

const struct gp_codec_ops gp_cuda_codec_mxfp8 = {
	.open = open_mxfp8, .close = gp_free, .encode = encode_mx, .decode = decode_mx};
const struct gp_codec_ops gp_cuda_codec_mxfp6 = {
	.open = open_mxfp6, .close = gp_free, .encode = encode_mx, .decode = decode_mx};
const struct gp_codec_ops gp_cuda_codec_mxfp4 = {
	.open = open_mxfp4, .close = gp_free, .encode = encode_mx, .decode = decode_mx};

/* --- NVFP4 ------------------------------------------------------------------------------------------------------ */

/* Whether every value under this scale of the tensor is finite. */
static bool whole_fine(float whole)
{
	return whole >= GP_NVFP4_LEAST && isfinite(448 * whole * 6);
}

static bool encode_nv(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	const struct mx *m = state;
	struct gp_codec_site *const p = m->site;
	struct nv_note *const note = p->note;
	const struct nv_note *const told = p->told;
	uint8_t *const body = body_of(m);
	(void)pass;
	*len = m->bytes;
	gp_rt_fill(p->stream, note, 0, sizeof *note);
	gpk_range(p->stream, x, (int64_t)m->n, &note->range);
	gpk_nvfp4_encode(p->stream, x, (int64_t)m->n, &note->range, &note->whole, body + NV_HEAD, body + m->codes_at);
	gp_rt_copy_down(p->stream, out + NV_HEAD, body + NV_HEAD, *len - NV_HEAD);
	gp_cuda_codec_tell(p, sizeof *told);
	if (!gp_cuda_codec_wait(p) || told->range.bad || !whole_fine(told->whole))
		return false;
	gp_put_f32(out, told->whole);
	return true;
}

static enum gp_status decode_nv(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
				struct gp_err *err)
{
	const struct mx *m = state;
	struct gp_codec_site *const p = m->site;
	(void)pass;
	GP_TRY(check_length(m, in, err));
	const float whole = gp_get_f32(in.data);
	if (!whole_fine(whole))
		GP_FAIL(err, GP_PROTO, "nvfp4 payload has the scale %g, which is out of range", (double)whole);
	const uint8_t *const body = gp_cuda_codec_up(p, in, m->codes_at % 256);
	gp_rt_fill(p->stream, p->note, 0, sizeof(uint32_t));
	gpk_nvfp4_decode(p->stream, whole, body + NV_HEAD, body + m->codes_at, (int64_t)m->n, x, p->note);
	return verdict(p, err);
}

const struct gp_codec_ops gp_cuda_codec_nvfp4 = {
	.open = open_nvfp4, .close = gp_free, .encode = encode_nv, .decode = decode_nv};
