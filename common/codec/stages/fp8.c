/* SPDX-License-Identifier: Apache-2.0
 *
 * `fp8` (E5M2 or E4M3) and `s2fp8` (E5M2 after the logarithms of the magnitudes
 * have been shifted and squeezed: Cambier et al., "Shifted and squeezed 8-bit
 * floating point format", ICLR 2020). One byte per element. Formulas and
 * layout: CODECS.md. Test: tests/unit/test_codec_fp8.c
 */
#include <float.h>
#include <math.h>

#include "common/base/exact_math.h"
#include "common/codec/stages/fp8.h"
#include "kernels/loops/fp8_loops.h"

/* The largest alpha of s2fp8: logarithms that hardly spread, as those of a constant, are not spread any further. */
enum { ALPHA_MAX = 4096 };

struct fp8 {
	uint64_t n;
	int format;
	const struct gp_fp8_loops *loops;
};

static enum gp_status open_fp8(const double *value, const struct gp_codec_setup *setup, void **state,
			       struct gp_err *err)
{
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct fp8), err));
	struct fp8 *f = p;
	*f = (struct fp8){.n = setup->n, .format = (int)value[0], .loops = gp_fp8_loops_choose()};
	*state = f;
	return GP_OK;
}

/* --- fp8 -------------------------------------------------------------------------------------------------------- */

static uint64_t bound_fp8(const double *value, uint64_t n)
{
	(void)value;
	return n;
}

static bool encode_fp8(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	(void)pass;
	const struct fp8 *f = state;
	*len = f->n;
	return (f->format == GP_FP8_E4M3 ? f->loops->to_e4m3 : f->loops->to_e5m2)(x, f->n, out);
}

static enum gp_status decode_fp8(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
				 struct gp_err *err)
{
	(void)pass;
	const struct fp8 *f = state;
	if (in.len != f->n)
		GP_FAIL(err, GP_PROTO, "8-bit payload has %zu bytes instead of %llu", in.len, (unsigned long long)f->n);
	if (!(f->format == GP_FP8_E4M3 ? f->loops->from_e4m3 : f->loops->from_e5m2)(in.data, f->n, x))
		GP_FAIL(err, GP_PROTO, "8-bit payload holds a value that is not finite");
	return GP_OK;
}

static void resize(void *state, const double *value, uint64_t n)
{
	(void)value;
	((struct fp8 *)state)->n = n;
}

const struct gp_codec_ops gp_codec_fp8 = {
	.id = GP_CODEC_ID_fp8,
	.kind = GP_CODEC_QUANTIZER,
	.info = {.name = "fp8",
		 .summary = "8-bit floating point, saturating: 1 byte per element",
		 .examples = GP_EXAMPLES("fp8:format=e5m2", "fp8:format=e4m3")},
	.keys = 1,
	.key = {{.name = "format",
		 .max = GP_FP8_E4M3,
		 .words = "e5m2|e4m3",
		 .help = "e5m2: more range (to 57344); e4m3: more precision (to 448)"}},
	.resize = resize,
	.bound = bound_fp8,
	.open = open_fp8,
	.close = gp_free,
	.encode = encode_fp8,
	.decode = decode_fp8,
};

/* --- s2fp8 ------------------------------------------------------------------------------------------------------ */

static uint64_t bound_s2fp8(const double *value, uint64_t n)
{
	(void)value;
	return GP_S2FP8_HEAD + n;
}

static enum gp_status open_s2fp8(const double *value, const struct gp_codec_setup *setup, void **state,
				 struct gp_err *err)
{
	(void)value;
	return open_fp8((const double[]){GP_FP8_E5M2}, setup, state, err);
}

/* alpha = 15 / (max - mean), beta = -alpha * mean. False when x is not finite. */
static bool measure(const struct fp8 *f, const float *x, float *alpha, float *beta)
{
	struct gp_log_sum sum = {0};
	float top;
	f->loops->add_logs(x, f->n, &sum);
	if (sum.largest >= 0x7f800000u)
		return false;
	memcpy(&top, &sum.largest, sizeof top);
	const double mean = ((double)sum.exponents + gp_exact_log2(sum.product)) / (double)f->n;
	const double spread = gp_exact_log2((double)top) - mean;
	*alpha = (float)(15 / fmax(spread, 15.0 / ALPHA_MAX));
	*beta = (float)(-(double)*alpha * mean);
	return true;
}

static bool encode_s2fp8(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	(void)pass;
	const struct fp8 *f = state;
	float alpha, beta;
	if (!measure(f, x, &alpha, &beta))
		return false;
	gp_put_f32(out, alpha);
	gp_put_f32(out + 4, beta);
	f->loops->to_s2fp8(x, f->n, alpha, beta, out + GP_S2FP8_HEAD);
	*len = GP_S2FP8_HEAD + f->n;
	return true;
}

/* log2 of the magnitude m > 0 of E5M2: exponent, and the logarithms of 1, 1.25, 1.5 and 1.75. */
static double log2_e5m2(int m)
{
	static const double fraction[4] = {0, 0.321928094887362348, 0.584962500721156181, 0.807354922057604107};
	static const double small[4] = {0, -16, -15, -14.4150374992788438};
	return m < 4 ? small[m] : (m >> 2) - 15 + fraction[m & 3];
}

static void fill_table(float table[128], float alpha, float beta)
{
	table[0] = 0;
	for (int m = 1; m < 128; m++) {
		const double y = (log2_e5m2(m) - (double)beta) / (double)alpha;
		const double v = y > 128 ? (double)FLT_MAX : y < -160 ? 0 : gp_exact_exp2(y);
		table[m] = v < (double)FLT_MAX ? (float)v : FLT_MAX;
	}
}

enum gp_status gp_s2fp8_read_head(struct gp_span in, uint64_t n, float table[128], struct gp_err *err)
{
	if (in.len != GP_S2FP8_HEAD + n)
		GP_FAIL(err, GP_PROTO, "s2fp8 payload has %zu bytes instead of %llu", in.len,
			(unsigned long long)(GP_S2FP8_HEAD + n));
	const float alpha = gp_get_f32(in.data), beta = gp_get_f32(in.data + 4);
	if (!(alpha > 0 && alpha <= ALPHA_MAX) || !isfinite(beta))
		GP_FAIL(err, GP_PROTO, "s2fp8 payload has alpha %g and beta %g, which is out of range", (double)alpha,
			(double)beta);
	fill_table(table, alpha, beta);
	return GP_OK;
}

static enum gp_status decode_s2fp8(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
				   struct gp_err *err)
{
	(void)pass;
	const struct fp8 *f = state;
	float table[128];
	GP_TRY(gp_s2fp8_read_head(in, f->n, table, err));
	if (!f->loops->from_s2fp8(in.data + GP_S2FP8_HEAD, f->n, table, x))
		GP_FAIL(err, GP_PROTO, "s2fp8 payload holds a value that is not finite");
	return GP_OK;
}

const struct gp_codec_ops gp_codec_s2fp8 = {
	.id = GP_CODEC_ID_s2fp8,
	.kind = GP_CODEC_QUANTIZER,
	.info = {.name = "s2fp8",
		 .summary = "8-bit floating point around the tensor's own magnitudes",
		 .examples = GP_EXAMPLES("s2fp8", "s2fp8+zstd")},
	.resize = resize,
	.bound = bound_s2fp8,
	.open = open_s2fp8,
	.close = gp_free,
	.encode = encode_s2fp8,
	.decode = decode_s2fp8,
};
