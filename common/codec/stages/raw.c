/* SPDX-License-Identifier: Apache-2.0
 *
 * `raw`: the fp32 elements themselves. Lossless, every bit pattern included.
 * Layout: CODECS.md. Test: tests/unit/test_codec.c
 */
#include "common/codec/codec_impl.h"

static uint64_t bound(const double *value, uint64_t n)
{
	(void)value;
	return 4 * n;
}

/* The state is the element count. */
static enum gp_status open_raw(const double *value, const struct gp_codec_setup *setup, void **state,
			       struct gp_err *err)
{
	(void)value;
	void *s;
	GP_TRY(gp_alloc_array(&s, 1, sizeof setup->n, err));
	memcpy(s, &setup->n, sizeof setup->n);
	*state = s;
	return GP_OK;
}

static int unit(const double *value)
{
	(void)value;
	return 4;
}

static bool encode(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	(void)pass;
	*len = 4 * *(const uint64_t *)state;
	gp_put_f32s(out, x, *len / 4);
	return true;
}

static enum gp_status decode(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
			     struct gp_err *err)
{
	(void)pass;
	uint64_t n = *(const uint64_t *)state;
	if (in.len != 4 * n)
		GP_FAIL(err, GP_PROTO, "raw payload has %zu bytes instead of %llu", in.len,
			(unsigned long long)(4 * n));
	gp_get_f32s(x, in.data, n);
	return GP_OK;
}

static void resize(void *state, const double *value, uint64_t n)
{
	(void)value;
	memcpy(state, &n, sizeof n);
}

const struct gp_codec_ops gp_codec_raw = {
	.id = GP_CODEC_ID_raw,
	.kind = GP_CODEC_QUANTIZER,
	.info = {.name = "raw",
		 .summary = "fp32 as it is: 4 bytes per element",
		 .lossless = true,
		 .examples = GP_EXAMPLES("raw")},
	.resize = resize,
	.bound = bound,
	.open = open_raw,
	.close = gp_free,
	.encode = encode,
	.decode = decode,
	.unit = unit,
};
