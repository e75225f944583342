/* SPDX-License-Identifier: Apache-2.0
 *
 * GELU and tanh over arrays. See curves.h. Test: tests/unit/test_curves.c
 */
#include "kernels/cpu/math/curves.h"

#include "kernels/cpu/math/exp.h"

#define FAR        14.0f                /* from here on both tails of GELU are 0 or x in single precision */
#define DENSITY    0.3989422804014327f  /* 1 / sqrt(2 pi) */
#define STEEP      1.5957691216057308f  /* twice sqrt(2 / pi) */
#define STEEP_CUBE 0.07135481282850549f /* that times 0.044715 */
#define SMALL      0.625f               /* below it tanh is its series */

struct point {
	float value, slope;
};

/* All ones where the sign is minus. */
GP_INLINE uint32_t minus(float x)
{
	return gp_float_bits(x) >> 31 ? UINT32_MAX : 0;
}

GP_INLINE float distance(float x)
{
	const float a = gp_float_of(gp_float_bits(x) & 0x7fffffffu);
	return gp_float_choose(gp_mask_below(FAR, a), FAR, a); /* a NaN stays */
}

/* --- GELU -------------------------------------------------------------------------------------------------------- */

/* e^(-a^2 / 2) for 0 <= a <= FAR. The square is taken of a's upper half, which is exact, and of what is left. */
GP_INLINE float bell(float a)
{
	const float upper = gp_float_of(gp_float_bits(a) & 0xfffff000u), lower = a - upper;
	const float x = -0.5f * (upper * upper), rest = 0.5f * (lower * (a + upper));
	const float rounded = (x - rest) * GP_EXP_LOG2E + GP_EXP_ROUND, n = rounded - GP_EXP_ROUND;
	const float r = ((x - n * GP_EXP_LN2_HIGH) - n * GP_EXP_LN2_LOW) - rest;
	return gp_float_choose(gp_mask_below(x, GP_EXP_UNDERFLOW), 0.0f, gp_exp_of_parts(rounded, r));
}

/* Phi(-a) e^(a^2 / 2) for 0 <= a <= FAR: a fit whose relative error is 5.6e-9, all of whose terms are positive. */
GP_INLINE float mills(float a)
{
	float over = 0.004077633377f * a + 0.04037274048f, under = 0.01022098307f * a + 0.1012062654f;
	over = over * a + 0.18246242404f;
	under = under * a + 0.46743065119f;
	over = over * a + 0.43725174665f;
	under = under * a + 1.19929325581f;
	over = over * a + 0.5f;
	under = under * a + 1.67238843441f;
	return over / (under * a + 1.0f);
}

GP_INLINE struct point gelu(float x)
{
	const float a = distance(x), e = bell(a), tail = e * mills(a), rest = 1.0f - tail, steep = a * DENSITY * e;
	return (struct point){.value = x * gp_float_choose(minus(x), tail, rest),
			      .slope = gp_float_choose(minus(x), tail - steep, rest + steep)};
}

/* --- GELU by tanh: x / (1 + e^(-2 u)), u = sqrt(2/pi) (x + 0.044715 x^3) ----------------------------------------- */

GP_INLINE struct point gelu_tanh(float x)
{
	const float a = distance(x), square = a * a, e = gp_exp_negative(-a * (STEEP + STEEP_CUBE * square));
	const float share = 1.0f / (1.0f + e), tail = e * share;
	const float steep = a * (tail * share) * (STEEP + 3.0f * STEEP_CUBE * square);
	return (struct point){.value = x * gp_float_choose(minus(x), tail, share),
			      .slope = gp_float_choose(minus(x), tail - steep, share + steep)};
}

/* --- tanh -------------------------------------------------------------------------------------------------------- */

GP_INLINE struct point tanh_of(float x)
{
	const float a = gp_float_of(gp_float_bits(x) & 0x7fffffffu), square = x * x, e = gp_exp_negative(-2.0f * a);
	const float value = (1.0f - e) / (1.0f + e), far = gp_float_choose(minus(x), -value, value);
	float near = -0.00566697866f * square + 0.0206061788f;
	near = near * square + -0.0537300073f;
	near = near * square + 0.133313313f;
	near = near * square + -0.333332777f;
	near = x * (near * square + 1.0f);
	const float y = gp_float_choose(gp_mask_below(a, SMALL), near, far);
	return (struct point){.value = y, .slope = 1.0f - y * y};
}

/* --- arrays ------------------------------------------------------------------------------------------------------ */

/* A slope that nobody reads is not computed. */
#define VALUES(curve)                                                                                                  \
	_Pragma("omp simd") for (int64_t i = 0; i < n; i++) out[i] = curve(x[i]).value;                                \
	return;
#define POINTS(curve)                                                                                                  \
	_Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                                            \
	{                                                                                                              \
		const struct point p = curve(x[i]);                                                                    \
		out[i] = p.value;                                                                                      \
		slope[i] = p.slope;                                                                                    \
	}                                                                                                              \
	return;

GP_INLINE void values_body(enum gp_curve curve, float *out, const float *x, int64_t n)
{
	switch (curve) {
	case GP_CURVE_GELU:
		VALUES(gelu)
	case GP_CURVE_GELU_TANH:
		VALUES(gelu_tanh)
	case GP_CURVE_TANH:
		VALUES(tanh_of)
	}
}
GP_CPU_CLONES(values, (enum gp_curve curve, float *out, const float *x, int64_t n), (curve, out, x, n))

GP_INLINE void points_body(enum gp_curve curve, float *out, float *restrict slope, const float *x, int64_t n)
{
	switch (curve) {
	case GP_CURVE_GELU:
		POINTS(gelu)
	case GP_CURVE_GELU_TANH:
		POINTS(gelu_tanh)
	case GP_CURVE_TANH:
		POINTS(tanh_of)
	}
}
GP_CPU_CLONES(points, (enum gp_curve curve, float *out, float *slope, const float *x, int64_t n),
	      (curve, out, slope, x, n))

GP_INLINE void gradient_body(float *dx, const float *dout, const float *restrict slope, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		dx[i] = dout[i] * slope[i];
}
GP_CPU_CLONES(gradient, (float *dx, const float *dout, const float *slope, int64_t n), (dx, dout, slope, n))

GP_INLINE void tanh_gradient_body(float *dx, const float *dout, const float *restrict out, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		dx[i] = dout[i] * (1.0f - out[i] * out[i]);
}
GP_CPU_CLONES(tanh_gradient, (float *dx, const float *dout, const float *out, int64_t n), (dx, dout, out, n))

void gp_curve_values(enum gp_curve curve, float *out, const float *x, int64_t n)
{
	values(curve, out, x, n);
}

void gp_curve_values_and_slopes(enum gp_curve curve, float *out, float *slope, const float *x, int64_t n)
{
	points(curve, out, slope, x, n);
}

void gp_curve_gradient(float *dx, const float *dout, const float *slope, int64_t n)
{
	gradient(dx, dout, slope, n);
}

void gp_curve_tanh_gradient(float *dx, const float *dout, const float *out, int64_t n)
{
	tanh_gradient(dx, dout, out, n);
}
