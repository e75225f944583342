/* SPDX-License-Identifier: Apache-2.0
 *
 * See exact_math.h. Test: tests/unit/test_exact_math.c
 */
#include "common/base/exact_math.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* ln 2 / 32 in two parts: the product of the first with a whole number below 2^17 is exact. */
#define STEP_HIGH    0x1.62e42fefa0000p-6
#define STEP_LOW     0x1.cf79abc9e3b3ap-45
#define STEPS_PER_1  0x1.71547652b82fep+5 /* 32 / ln 2 */
#define LOG2_E       0x1.71547652b82fep+0
#define TO_WHOLE     0x1.8p+52 /* added and taken away again it rounds to a whole number */
#define ROOT_HALF    0x1.6a09e667f3bcdp-1
#define PER_ROOT_PI  0x1.20dd750429b6dp-1
#define EXP_MOST     0x1.62e42fefa39efp+9 /* ln DBL_MAX */
#define EXP_LEAST    -746.0               /* 0 from here on */
#define ERF_NEAR     0.46875
#define ERFC_FAR     4.0
#define ERFC_NOTHING 27.3 /* 0 from here on */

/* c[0] x^(n-1) + ... + c[n-1] */
static double polynomial(const double *c, int n, double x)
{
	double sum = c[0];
	for (int i = 1; i < n; i++)
		sum = sum * x + c[i];
	return sum;
}

/* x 2^k: from a double of that exponent, or of two where that has no finite one, or where the result may be subnormal. */
static double scale(double x, int64_t k)
{
	const int64_t first = k < -1000 ? k + 100 : k > 1000 ? k - 100 : k;
	const uint64_t bits = (uint64_t)(first + 1023) << 52;
	double power;
	memcpy(&power, &bits, sizeof power);
	return first == k ? x * power : x * power * (k < 0 ? 0x1p-100 : 0x1p100);
}

/* e^(a + b), EXP_LEAST < a + b <= EXP_MOST; b is the smaller one. With a + b = n ln 2 / 32 + r: 2^(n / 32) e^r. */
static double exp_of_sum(double a, double b)
{
	static const double root[32] = {
		/* 2^(j / 32) */
		0x1.0000000000000p+0, 0x1.059b0d3158574p+0, 0x1.0b5586cf9890fp+0, 0x1.11301d0125b51p+0,
		0x1.172b83c7d517bp+0, 0x1.1d4873168b9aap+0, 0x1.2387a6e756238p+0, 0x1.29e9df51fdee1p+0,
		0x1.306fe0a31b715p+0, 0x1.371a7373aa9cbp+0, 0x1.3dea64c123422p+0, 0x1.44e086061892dp+0,
		0x1.4bfdad5362a27p+0, 0x1.5342b569d4f82p+0, 0x1.5ab07dd485429p+0, 0x1.6247eb03a5585p+0,
		0x1.6a09e667f3bcdp+0, 0x1.71f75e8ec5f74p+0, 0x1.7a11473eb0187p+0, 0x1.82589994cce13p+0,
		0x1.8ace5422aa0dbp+0, 0x1.93737b0cdc5e5p+0, 0x1.9c49182a3f090p+0, 0x1.a5503b23e255dp+0,
		0x1.ae89f995ad3adp+0, 0x1.b7f76f2fb5e47p+0, 0x1.c199bdd85529cp+0, 0x1.cb720dcef9069p+0,
		0x1.d5818dcfba487p+0, 0x1.dfc97337b9b5fp+0, 0x1.ea4afa2a490dap+0, 0x1.f50765b6e4540p+0};
	const double n = ((a + b) * STEPS_PER_1 + TO_WHOLE) - TO_WHOLE;
	const double r = (a - n * STEP_HIGH) + (b - n * STEP_LOW), z = r * r;
	const double rest = (1 / 2.0 + r * (1 / 6.0)) + z * ((1 / 24.0 + r * (1 / 120.0)) + z * (1 / 720.0));
	const int64_t k = (int64_t)n, j = k & 31;
	return scale(root[j] + root[j] * (r + z * rest), (k - j) / 32);
}

double gp_exact_exp(double x)
{
	if (!(x > EXP_LEAST && x <= EXP_MOST))
		return isnan(x) ? x : x > 0 ? INFINITY : 0;
	return exp_of_sum(x, 0);
}

double gp_exact_exp2(double x)
{
	const double whole = floor(x), z = (x - whole) * 0.693147180559945309;
	double sum = 1;
	for (int k = 18; k > 0; k--)
		sum = 1 + z / k * sum;
	return ldexp(sum, (int)whole);
}

/* With s = (m - 1) / (m + 1): ln m = 2 s (1 + s^2 / 3 + s^4 / 5 + ...), sqrt(1/2) <= m < sqrt(2). */
double gp_exact_log2(double x)
{
	static const double c[] = {2 / 25.0, 2 / 23.0, 2 / 21.0, 2 / 19.0, 2 / 17.0, 2 / 15.0,
				   2 / 13.0, 2 / 11.0, 2 / 9.0,  2 / 7.0,  2 / 5.0,  2 / 3.0};
	int exponent;
	if (!(x > 0 && x <= DBL_MAX))
		return x == 0 ? -INFINITY : x > 0 ? x : NAN;
	double m = frexp(x, &exponent);
	if (m < ROOT_HALF) {
		m *= 2;
		exponent--;
	}
	const double s = (m - 1) / (m + 1), z = s * s;
	const double ln = 2 * s + s * (z * polynomial(c, sizeof c / sizeof c[0], z));
	return exponent + ln * LOG2_E;
}

/* Newton's method from a straight line, which is off by less than 0.06: four steps are enough. */
double gp_exact_cbrt(double x)
{
	int exponent;
	if (!(x > 0))
		return x;
	double m = frexp(x, &exponent);
	for (; exponent % 3 != 0; exponent++)
		m /= 2;
	double y = 0.45 + 0.6 * m; /* 1/8 <= m < 1 */
	for (int i = 0; i < 5; i++)
		y -= (y - m / (y * y)) / 3;
	return ldexp(y, exponent / 3);
}

/* e^(-x^2), 0 <= x < ERFC_NOTHING: the square of what x has in steps of 1/16 is exact. */
static double exp_of_square(double x)
{
	const double steps = ((x * 16 + TO_WHOLE) - TO_WHOLE) / 16;
	return exp_of_sum(-steps * steps, (steps - x) * (steps + x));
}

/* |x| <= ERF_NEAR */
static double erf_near(double x)
{
	static const double p[] = {1.85777706184603153e-1, 3.16112374387056560e+0, 1.13864154151050156e+2,
				   3.77485237685302021e+2, 3.20937758913846947e+3};
	static const double q[] = {1.0, 2.36012909523441209e+1, 2.44024637934444173e+2, 1.28261652607737228e+3,
				   2.84423683343917062e+3};
	const double z = x * x;
	return x * (polynomial(p, 5, z) / polynomial(q, 5, z));
}

/* x > ERF_NEAR */
static double erfc_far(double x)
{
	static const double c[] = {2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e+0,
				   6.61191906371416295e+1, 2.98635138197400131e+2, 8.81952221241769090e+2,
				   1.71204761263407058e+3, 2.05107837782607147e+3, 1.23033935479799725e+3};
	static const double d[] = {1.0,
				   1.57449261107098347e+1,
				   1.17693950891312499e+2,
				   5.37181101862009858e+2,
				   1.62138957456669019e+3,
				   3.29079923573345963e+3,
				   4.36261909014324716e+3,
				   3.43936767414372164e+3,
				   1.23033935480374942e+3};
	static const double p[] = {1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1,
				   1.25781726111229246e-1, 1.60837851487422766e-2, 6.58749161529837803e-4};
	static const double q[] = {1.0,
				   2.56852019228982242e+0,
				   1.87295284992346725e+0,
				   5.27905102951428412e-1,
				   6.05183413124413191e-2,
				   2.33520497626869185e-3};
	if (x >= ERFC_NOTHING)
		return 0;
	if (x <= ERFC_FAR)
		return exp_of_square(x) * (polynomial(c, 9, x) / polynomial(d, 9, x));
	const double z = 1 / (x * x);
	const double rest = z * (polynomial(p, 6, z) / polynomial(q, 6, z));
	return exp_of_square(x) * ((PER_ROOT_PI - rest) / x);
}

double gp_exact_erf(double x)
{
	const double size = fabs(x);
	if (!(size > ERF_NEAR))
		return isnan(x) ? x : erf_near(x);
	const double value = 1 - erfc_far(size);
	return x < 0 ? -value : value;
}

double gp_exact_erfc(double x)
{
	if (!(fabs(x) > ERF_NEAR))
		return 1 - erf_near(x); /* NaN is NaN */
	return x < 0 ? 2 - erfc_far(-x) : erfc_far(x);
}
