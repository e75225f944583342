/* SPDX-License-Identifier: Apache-2.0
 *
 * `smaq` in plain C: the reference, and what runs where there is no AVX2. See
 * smaq_loops.h. Test: tests/unit/test_smaq_loops.c
 */
#include "kernels/loops/smaq_loops.h"

#include <math.h>

#include "kernels/loops/codec_loops.h"
#include "kernels/loops/versions.h"

static void add(const float *x, size_t n, float origin, struct gp_smaq_sums *sums)
{
	for (size_t i = 0; i < n; i++) {
		const double d = (double)x[i] - (double)origin;
		sums->sum[i % GP_SMAQ_LANES] += d;
		sums->squares[i % GP_SMAQ_LANES] += d * d;
	}
}

static size_t quantize(const struct gp_smaq *s, const float *x, size_t n, const uint16_t *draws, uint16_t *codes,
		       uint16_t *extras)
{
	const unsigned low = (1u << s->low_bits) - 1;
	size_t count = 0;
	for (size_t i = 0; i < n; i++) {
		const float z = (x[i] - s->mean) / s->divisor, a = fabsf(z);
		const unsigned flag = a > 1;
		const float h = !draws ? s->half : x[i] == 0 ? 0.5f : ((float)draws[i] + 0.5f) * 0x1p-16f;
		const float q = (flag ? (a - 1) * s->outlier_scale : a * s->main_scale) + h;
		const float most = flag ? s->top : s->main_scale;
		const unsigned m = (unsigned)(q < most ? q : most);
		codes[i] = (uint16_t)((flag << 1 | (signbit(z) != 0)) << s->low_bits | (m & low));
		if (flag)
			extras[count++] = (uint16_t)(m >> s->low_bits);
	}
	return count;
}

static size_t dequantize(const struct gp_smaq *s, const uint16_t *codes, size_t n, const uint16_t *extras, float *x)
{
	const unsigned low = (1u << s->low_bits) - 1;
	size_t count = 0;
	for (size_t i = 0; i < n; i++) {
		const unsigned flag = codes[i] >> (s->low_bits + 1) & 1u;
		const unsigned m = (codes[i] & low) | (flag ? (unsigned)extras[count] << s->low_bits : 0);
		const float a = (flag ? 1.0f : 0.0f) + (float)m / (flag ? s->outlier_scale : s->main_scale);
		x[i] = (codes[i] >> s->low_bits & 1u ? -a : a) * s->std + s->mean;
		count += flag;
	}
	return count;
}

const struct gp_smaq_loops gp_smaq_loops_portable = {
	.add = add,
	.quantize = quantize,
	.dequantize = dequantize,
};

const struct gp_smaq_loops *gp_smaq_loops_choose(void)
{
	static const struct gp_smaq_loops *const loops[] = GP_LOOP_VERSIONS(&gp_smaq_loops);
	return loops[gp_isa_wanted()];
}
