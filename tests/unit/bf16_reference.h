/* SPDX-License-Identifier: Apache-2.0
 *
 * Portable reference of bfloat16 arithmetic, for tests: rounding of operands to
 * the nearest, ties to even, values too small to be normal to zero. A product
 * of two rounded values is exact in fp32, so sums alone round; in which order
 * vdpbf16ps adds its two products is not said here, hence a tolerance. BFDOT of
 * ARM64 has a reference of its bits, for sums that are normal numbers.
 */
#ifndef GP_TEST_BF16_REFERENCE_H
#define GP_TEST_BF16_REFERENCE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "common/base/isa.h"

/* For gp_isa_limit: the most that no kind of processor has bfloat16 products with. */
#if defined(__x86_64__)
#define ISA_WITHOUT_BF16 GP_ISA_AVX2
#else
#define ISA_WITHOUT_BF16 GP_ISA_PORTABLE
#endif

static inline uint16_t bf16_round(float x)
{
	uint32_t bits;
	if (fpclassify(x) == FP_SUBNORMAL)
		x = copysignf(0.0f, x);
	memcpy(&bits, &x, sizeof bits);
	if (isnan(x))
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float bf16_value(uint16_t half)
{
	uint32_t bits = (uint32_t)half << 16;
	float x;
	memcpy(&x, &bits, sizeof x);
	return x;
}

static inline float bf16_rounded(float x)
{
	return bf16_value(bf16_round(x));
}

/* s + e, of which e is smaller than the last bit of s, rounded to odd: what is no double becomes that of its two neighbours
 * whose last bit is 1. */
static inline double odd_double(double s, double e)
{
	uint64_t bits;
	memcpy(&bits, &s, sizeof bits);
	if (e != 0.0 && bits % 2 == 0)
		bits = (e > 0.0) == (s > 0.0) ? bits + 1 : bits - 1;
	memcpy(&s, &bits, sizeof s);
	return s;
}

/* a + b rounded to odd. */
static inline float bf16_add_odd(float a, float b)
{
	const double x = (double)a, y = (double)b, near = x + y, part = near - x;
	const double s = odd_double(near, (x - (near - part)) + (y - part));
	float sum = (float)s;
	uint32_t bits;
	memcpy(&bits, &sum, sizeof bits);
	if ((double)sum != s && bits % 2 == 0)
		bits = fabs(s) > fabs((double)sum) ? bits + 1 : bits - 1;
	memcpy(&sum, &bits, sizeof sum);
	return sum;
}

/* BFDOT: sum + (a0 b0 + a1 b1), of values that have been rounded. */
static inline float bf16_dot_odd(float sum, const float a[2], const float b[2])
{
	return bf16_add_odd(sum, bf16_add_odd(a[0] * b[0], a[1] * b[1]));
}

#endif
