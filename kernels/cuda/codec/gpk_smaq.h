/* SPDX-License-Identifier: Apache-2.0
 *
 * Elements of `smaq` on the device: what a mean and a deviation come to, an
 * element's code, a code's value. Arithmetic is that of
 * kernels/loops/smaq_loops_portable.c, operation by operation. Only for
 * k_codec_*.cu and gpk_*.h.
 *
 * Threads: those of a kernel, on the device. Tests: tests/unit/test_cuda_codec.c,
 * tests/unit/test_cuda_stored.c
 */
#ifndef GPK_SMAQ_H
#define GPK_SMAQ_H

#include "kernels/cuda/codec/gpk_codec.h"
#include "kernels/cuda/codec/k_codec_smaq.h"

/* From the sums of the differences to `origin`, and of their squares, over `count` elements. */
GPK_DEVICE void gpk_smaq_put_head(struct gpk_smaq_head *head, float reach, float origin, double sum, double squares,
				  int64_t count)
{
	const double n = (double)count, rest = fmax(squares - sum * sum / n, 0.0);
	const double variance = count > 1 ? rest / (n - 1) : 0;
	const float mean = (float)((double)origin + sum / n), std = (float)sqrt(variance);
	const bool finite = gpk_finite(origin) && gpk_finite((float)(squares - squares));
	head->mean = mean;
	head->std = std;
	head->bad = !(finite && std >= 0 && gpk_finite(fabsf(mean) + reach * std));
}

struct number {
	unsigned code, extra;
	bool outlier;
};

/* What round=stochastic adds to an element's number of levels before it is truncated: 1/2 for 0, so that zeros stay equal,
 * else `draw`, between 0 and 1 (gpk_draw_of). */
GPK_DEVICE float drawn_part(float x, float draw)
{
	return x == 0 ? 0.5f : draw;
}

/* Code of an element, from its distance from the mean and that distance in standard deviations; `added`: to its number of
 * levels before that is truncated, 1/2 for the nearest level. */
GPK_DEVICE struct number number_of(const struct gpk_smaq &q, float distance, float z, float added)
{
	const float a = fabsf(z);
	const unsigned flag = a > 1, sign = __float_as_uint(distance) >> 31;
	const float scaled = (flag ? (a - 1) * q.outlier_scale : a * q.main_scale) + added;
	const float most = flag ? q.top : q.main_scale;
	const unsigned m = (unsigned)(scaled < most ? scaled : most);
	struct number r;
	r.code = (flag << 1 | sign) << q.low_bits | (m & ((1u << q.low_bits) - 1));
	r.extra = m >> q.low_bits;
	r.outlier = flag;
	return r;
}

/* `signs`: the code without its magnitude m. */
GPK_DEVICE float value_of(const struct gpk_smaq &q, unsigned signs, unsigned m, float mean, float std)
{
	const bool flag = signs >> 1;
	const float share =
		gpk_quotient((float)m, flag ? q.outlier_scale : q.main_scale, flag ? q.outlier_step : q.main_step);
	const float a = (flag ? 1.0f : 0.0f) + share;
	return (signs & 1u ? -a : a) * std + mean;
}

#endif
