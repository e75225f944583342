/* SPDX-License-Identifier: Apache-2.0
 *
 * Portable reference of bfloat16 arithmetic, for tests: rounding of operands to
 * the nearest, ties to even, values too small to be normal to zero. A product
 * of two rounded values is exact in fp32, so sums alone round; in which order
 * vdpbf16ps adds its two products is not said here, hence a tolerance.
 */
#ifndef GP_TEST_BF16_REFERENCE_H
#define GP_TEST_BF16_REFERENCE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

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

#endif
