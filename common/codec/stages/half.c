/* SPDX-License-Identifier: Apache-2.0
 *
 * `fp16` and `bf16`: two bytes per element, rounded to nearest even. A value
 * that would become infinite makes the tensor travel as raw. Layout:
 * CODECS.md. Test: tests/unit/test_codec.c
 */
#include "common/codec/codec_impl.h"
#include "kernels/loops/codec_loops.h"

struct half {
	uint64_t n;
	bool (*pack)(const float *x, size_t n, uint8_t *out);
	bool (*unpack)(const uint8_t *in, size_t n, float *x);
};

static uint64_t bound(const double *value, uint64_t n)
{
	(void)value;
	return 2 * n;
}

static enum gp_status open_half(uint64_t n, struct half **out, struct gp_err *err)
{
	void *s;
	GP_TRY(gp_alloc_array(&s, 1, sizeof **out, err));
	*out = s;
	(*out)->n = n;
	return GP_OK;
}

static enum gp_status open_fp16(const double *value, const struct gp_codec_setup *setup, void **state,
				struct gp_err *err)
{
	(void)value;
	struct half *h;
	GP_TRY(open_half(setup->n, &h, err));
	h->pack = gp_codec_loops_choose()->to_fp16;
	h->unpack = gp_codec_loops_choose()->from_fp16;
	*state = h;
	return GP_OK;
}

static enum gp_status open_bf16(const double *value, const struct gp_codec_setup *setup, void **state,
				struct gp_err *err)
{
	(void)value;
	struct half *h;
	GP_TRY(open_half(setup->n, &h, err));
	h->pack = gp_codec_loops_choose()->to_bf16;
	h->unpack = gp_codec_loops_choose()->from_bf16;
	*state = h;
	return GP_OK;
}

static int unit(const double *value)
{
	(void)value;
	return 2;
}

static bool encode(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	(void)pass;
	const struct half *h = state;
	*len = 2 * h->n;
	return h->pack(x, h->n, out);
}

static enum gp_status decode(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
			     struct gp_err *err)
{
	(void)pass;
	const struct half *h = state;
	if (in.len != 2 * h->n)
		GP_FAIL(err, GP_PROTO, "half-precision payload has %zu bytes instead of %llu", in.len,
			(unsigned long long)(2 * h->n));
	if (!h->unpack(in.data, h->n, x))
		GP_FAIL(err, GP_PROTO, "half-precision payload holds a value that is not finite");
	return GP_OK;
}

static void resize(void *state, const double *value, uint64_t n)
{
	(void)value;
	((struct half *)state)->n = n;
}

const struct gp_codec_ops gp_codec_fp16 = {
	.id = GP_CODEC_ID_fp16,
	.kind = GP_CODEC_QUANTIZER,
	.info = {.name = "fp16",
		 .summary = "IEEE half precision: 2 bytes per element",
		 .examples = GP_EXAMPLES("fp16")},
	.resize = resize,
	.bound = bound,
	.open = open_fp16,
	.close = gp_free,
	.encode = encode,
	.decode = decode,
	.unit = unit,
};

const struct gp_codec_ops gp_codec_bf16 = {
	.id = GP_CODEC_ID_bf16,
	.kind = GP_CODEC_QUANTIZER,
	.info = {.name = "bf16",
		 .summary = "bfloat16, the range of fp32: 2 bytes per element",
		 .examples = GP_EXAMPLES("bf16")},
	.resize = resize,
	.bound = bound,
	.open = open_bf16,
	.close = gp_free,
	.encode = encode,
	.decode = decode,
	.unit = unit,
};
