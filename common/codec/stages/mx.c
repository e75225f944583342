/* SPDX-License-Identifier: Apache-2.0
 *
 * Small floating-point numbers under scales of blocks:
 *   mxfp8, mxfp6, mxfp4  32 elements share a power of two (OCP Microscaling
 *                        Formats Specification 1.0)
 *   nvfp4                16 elements share an E4M3 number, all of them an f32
 * Formulas and layouts: CODECS.md. The loops: kernels/loops/packed_loops.h.
 * Test: tests/unit/test_codec_block.c
 */
#include <math.h>

#include "common/codec/codec_impl.h"
#include "kernels/loops/level_loops.h"
#include "kernels/loops/packed_loops.h"

enum { TILE = 1024, NV_HEAD = 4, NV_WIDTH = 4, E4M3_MOST = 0x7e };

struct mx {
	uint64_t n;
	enum gp_mx_format format;
	int width;
	const struct gp_packed_loops *loops;
	const struct gp_level_loops *levels;
	uint16_t room[TILE]; /* for the loops */
};

static uint64_t blocks_of(uint64_t n, unsigned size)
{
	return (n + size - 1) / size;
}

static uint64_t code_bytes(uint64_t n, int width)
{
	return (n * (uint64_t)width + 7) / 8;
}

static uint64_t mx_bytes(uint64_t n, int width)
{
	return blocks_of(n, GP_MX_BLOCK) + code_bytes(n, width);
}

static uint64_t nv_bytes(uint64_t n)
{
	return NV_HEAD + blocks_of(n, GP_NVFP4_BLOCK) + code_bytes(n, NV_WIDTH);
}

static enum gp_status open_format(enum gp_mx_format format, const struct gp_codec_setup *setup, void **state,
				  struct gp_err *err)
{
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct mx), err));
	struct mx *m = p;
	m->n = setup->n;
	m->format = format;
	m->width = gp_mx_width(format);
	m->loops = gp_packed_loops_choose();
	m->levels = gp_level_loops_choose();
	*state = m;
	return GP_OK;
}

static void resize(void *state, const double *value, uint64_t n)
{
	(void)value;
	((struct mx *)state)->n = n;
}

static size_t tile_at(const struct mx *m, uint64_t at)
{
	return m->n - at < TILE ? (size_t)(m->n - at) : TILE;
}

static enum gp_status check_length(const struct mx *m, struct gp_span in, uint64_t expected, struct gp_err *err)
{
	const int used = (int)(m->n * (uint64_t)m->width % 8);
	if (in.len != expected)
		GP_FAIL(err, GP_PROTO, "payload of scaled blocks has %zu bytes instead of %llu", in.len,
			(unsigned long long)expected);
	if (used && in.data[in.len - 1] >> used)
		GP_FAIL(err, GP_PROTO, "payload of scaled blocks has bits set behind its last code");
	return GP_OK;
}

static uint64_t work(const double *value, const struct gp_codec_setup *setup)
{
	(void)value;
	return gp_codec_work_times(setup->n, setup->encodes ? 8 : 6);
}

/* --- MX --------------------------------------------------------------------------------------------------------- */

static bool encode_mx(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	struct mx *m = state;
	uint8_t *packed = out + blocks_of(m->n, GP_MX_BLOCK);
	uint32_t top = 0;
	for (uint64_t at = 0; at < m->n; at += TILE, packed += TILE / 8 * m->width) {
		const size_t here = tile_at(m, at);
		if (gp_codec_stopped(pass))
			return false;
		const uint32_t most =
			m->loops->mx_encode(m->format, x + at, here, out + at / GP_MX_BLOCK, m->room, packed);
		top = most > top ? most : top;
	}
	*len = mx_bytes(m->n, m->width);
	return top < 0x7f800000u;
}

static uint8_t largest_of(const uint8_t *scales, uint64_t count)
{
	uint8_t most = 0;
#pragma omp simd reduction(max : most)
	for (uint64_t i = 0; i < count; i++)
		most = scales[i] > most ? scales[i] : most;
	return most;
}

/* The largest scale is that of FLT_MAX; 255 is NaN. */
static enum gp_status check_powers(const struct mx *m, const uint8_t *scales, struct gp_err *err)
{
	const uint64_t count = blocks_of(m->n, GP_MX_BLOCK);
	const int most = 254 - gp_mx_emax(m->format);
	if (largest_of(scales, count) <= most)
		return GP_OK;
	for (uint64_t i = 0; i < count; i++)
		if (scales[i] > most)
			GP_FAIL(err, GP_PROTO, "scale %llu of an MX payload is %d; at most %d is possible",
				(unsigned long long)i, scales[i], most);
	return GP_OK;
}

static enum gp_status decode_mx(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
				struct gp_err *err)
{
	struct mx *m = state;
	GP_TRY(check_length(m, in, mx_bytes(m->n, m->width), err));
	GP_TRY(check_powers(m, in.data, err));
	const uint8_t *packed = in.data + blocks_of(m->n, GP_MX_BLOCK);
	for (uint64_t at = 0; at < m->n; at += TILE, packed += TILE / 8 * m->width) {
		const size_t here = tile_at(m, at);
		GP_TRY(gp_codec_check_stop(pass, err));
		if (!m->loops->mx_decode(m->format, in.data + at / GP_MX_BLOCK, packed, m->room, here, x + at))
			GP_FAIL(err, GP_PROTO, "MX payload holds a value that is not finite");
	}
	return GP_OK;
}

static uint64_t bound_mxfp8(const double *value, uint64_t n)
{
	(void)value;
	return mx_bytes(n, 8);
}

static uint64_t bound_mxfp6(const double *value, uint64_t n)
{
	(void)value;
	return mx_bytes(n, 6);
}

static uint64_t bound_mxfp4(const double *value, uint64_t n)
{
	(void)value;
	return mx_bytes(n, 4);
}

static enum gp_status open_mxfp8(const double *value, const struct gp_codec_setup *setup, void **state,
				 struct gp_err *err)
{
	return open_format(value[0] > 0 ? GP_MX_E5M2 : GP_MX_E4M3, setup, state, err);
}

static enum gp_status open_mxfp6(const double *value, const struct gp_codec_setup *setup, void **state,
				 struct gp_err *err)
{
	return open_format(value[0] > 0 ? GP_MX_E2M3 : GP_MX_E3M2, setup, state, err);
}

static enum gp_status open_mxfp4(const double *value, const struct gp_codec_setup *setup, void **state,
				 struct gp_err *err)
{
	(void)value;
	return open_format(GP_MX_E2M1, setup, state, err);
}

static struct gp_codec_codes codes_8(const double *value, uint64_t n, size_t len)
{
	(void)value;
	return gp_codec_codes_at_end(8, n, len);
}

static struct gp_codec_codes codes_6(const double *value, uint64_t n, size_t len)
{
	(void)value;
	return gp_codec_codes_at_end(6, n, len);
}

static struct gp_codec_codes codes_4(const double *value, uint64_t n, size_t len)
{
	(void)value;
	return gp_codec_codes_at_end(4, n, len);
}

const struct gp_codec_ops gp_codec_mxfp8 = {
	.id = GP_CODEC_ID_mxfp8,
	.kind = GP_CODEC_QUANTIZER,
	.info = {.name = "mxfp8",
		 .summary = "8-bit floating point, 32 elements under a power of two (OCP MX)",
		 .examples = GP_EXAMPLES("mxfp8:format=e4m3", "mxfp8:format=e5m2")},
	.keys = 1,
	.key = {{.name = "format",
		 .max = 1,
		 .words = "e4m3|e5m2",
		 .help = "e4m3: more precision; e5m2: more range within a block"}},
	.resize = resize,
	.codes = codes_8,
	.bound = bound_mxfp8,
	.work = work,
	.open = open_mxfp8,
	.close = gp_free,
	.encode = encode_mx,
	.decode = decode_mx,
};

const struct gp_codec_ops gp_codec_mxfp6 = {
	.id = GP_CODEC_ID_mxfp6,
	.kind = GP_CODEC_QUANTIZER,
	.info = {.name = "mxfp6",
		 .summary = "6-bit floating point, 32 elements under a power of two (OCP MX)",
		 .examples = GP_EXAMPLES("mxfp6:format=e3m2", "mxfp6:format=e2m3")},
	.keys = 1,
	.key = {{.name = "format",
		 .max = 1,
		 .words = "e3m2|e2m3",
		 .help = "e3m2: more range within a block; e2m3: more precision"}},
	.resize = resize,
	.codes = codes_6,
	.bound = bound_mxfp6,
	.work = work,
	.open = open_mxfp6,
	.close = gp_free,
	.encode = encode_mx,
	.decode = decode_mx,
};

const struct gp_codec_ops gp_codec_mxfp4 = {
	.id = GP_CODEC_ID_mxfp4,
	.kind = GP_CODEC_QUANTIZER,
	.info = {.name = "mxfp4",
		 .summary = "4-bit floating point, 32 elements under a power of two (OCP MX)",
		 .examples = GP_EXAMPLES("mxfp4")},
	.resize = resize,
	.codes = codes_4,
	.bound = bound_mxfp4,
	.work = work,
	.open = open_mxfp4,
	.close = gp_free,
	.encode = encode_mx,
	.decode = decode_mx,
};

/* --- NVFP4 ------------------------------------------------------------------------------------------------------ */

/* Whether every value under this scale of the tensor is finite. */
static bool whole_fine(float whole)
{
	return whole >= GP_NVFP4_LEAST && isfinite(448 * whole * 6);
}

static bool encode_nv(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	struct mx *m = state;
	uint32_t top = 0;
	float most;
	for (uint64_t at = 0; at < m->n; at += TILE) {
		const uint32_t here = m->levels->largest(x + at, tile_at(m, at));
		top = here > top ? here : top;
	}
	memcpy(&most, &top, sizeof most);
	const float whole = fmaxf(most / (6 * 448), GP_NVFP4_LEAST);
	if (top >= 0x7f800000u || !whole_fine(whole))
		return false;
	gp_put_f32(out, whole);
	uint8_t *scales = out + NV_HEAD, *packed = scales + blocks_of(m->n, GP_NVFP4_BLOCK);
	for (uint64_t at = 0; at < m->n; at += TILE, packed += TILE / 8 * NV_WIDTH) {
		const size_t here = tile_at(m, at);
		if (gp_codec_stopped(pass))
			return false;
		m->loops->nv_encode(whole, x + at, here, scales + at / GP_NVFP4_BLOCK, m->room, packed);
	}
	*len = nv_bytes(m->n);
	return true;
}

static enum gp_status check_nv(const struct mx *m, struct gp_span in, struct gp_err *err)
{
	GP_TRY(check_length(m, in, nv_bytes(m->n), err));
	const uint64_t count = blocks_of(m->n, GP_NVFP4_BLOCK);
	if (!whole_fine(gp_get_f32(in.data)))
		GP_FAIL(err, GP_PROTO, "nvfp4 payload has the scale %g, which is out of range",
			(double)gp_get_f32(in.data));
	if (largest_of(in.data + NV_HEAD, count) <= E4M3_MOST)
		return GP_OK;
	for (uint64_t i = 0; i < count; i++)
		if (in.data[NV_HEAD + i] > E4M3_MOST)
			GP_FAIL(err, GP_PROTO, "scale %llu of an nvfp4 payload is %#x, which is no positive number",
				(unsigned long long)i, in.data[NV_HEAD + i]);
	return GP_OK;
}

static enum gp_status decode_nv(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
				struct gp_err *err)
{
	struct mx *m = state;
	GP_TRY(check_nv(m, in, err));
	const float whole = gp_get_f32(in.data);
	const uint8_t *scales = in.data + NV_HEAD, *packed = scales + blocks_of(m->n, GP_NVFP4_BLOCK);
	for (uint64_t at = 0; at < m->n; at += TILE, packed += TILE / 8 * NV_WIDTH) {
		const size_t here = tile_at(m, at);
		GP_TRY(gp_codec_check_stop(pass, err));
		m->loops->nv_decode(whole, scales + at / GP_NVFP4_BLOCK, packed, m->room, here, x + at);
	}
	return GP_OK;
}

static uint64_t bound_nvfp4(const double *value, uint64_t n)
{
	(void)value;
	return nv_bytes(n);
}

const struct gp_codec_ops gp_codec_nvfp4 = {
	.id = GP_CODEC_ID_nvfp4,
	.kind = GP_CODEC_QUANTIZER,
	.info = {.name = "nvfp4",
		 .summary = "4-bit floating point, 16 elements under an E4M3 scale (NVFP4)",
		 .examples = GP_EXAMPLES("nvfp4")},
	.resize = resize,
	.codes = codes_4,
	.bound = bound_nvfp4,
	.work = work,
	.open = open_mxfp4,
	.close = gp_free,
	.encode = encode_nv,
	.decode = decode_nv,
};
