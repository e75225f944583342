/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops of the 8-bit floating-point codecs: E5M2 and E4M3 (OCP 8-bit floating
 * point, 1.0), and S2FP8, which shifts and squeezes the logarithms of the
 * magnitudes into E5M2's range first. fp8_loops_portable.c is the reference;
 * the others give the same bits. Formulas and layout: common/CODECS.md.
 * Test: tests/unit/test_fp8_loops.c
 *
 * E5M2: exponent bias 15, largest 57344, 0x7c..0x7f are infinity and NaN.
 * E4M3: exponent bias 7, largest 448, only 0x7f is NaN. Rounded to nearest
 * even; magnitudes over the largest become the largest.
 *
 * Logarithms, in fp32, each product and sum a fused multiply-add:
 *   |x| = 2^e * (1 + z)    log2|x| ~ e + z * P(z)           off by at most 1.2e-4
 *   t = floor(t) + f       2^t ~ 2^floor(t) * (1 + f * Q(f))      relative 1.5e-4
 * S2FP8 rounds 2^t to half precision first, to nearest even, and the half's
 * upper byte then to nearest, up: the processor has the first in one step, and
 * what two roundings can do wrong is less than the polynomials' error.
 *
 * Threads: any; the functions touch only memory that the caller hands them.
 */
#ifndef GP_FP8_LOOPS_H
#define GP_FP8_LOOPS_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GP_LOG_LANES 16
#define GP_LOG_BLOCK 1024 /* elements between two times that a lane's product is taken off: below 2^64 */

/* Sum and largest of log2|x|, zeros counting as log2 1. Zeroed before the first call. */
struct gp_log_sum {
	int64_t exponents; /* the sum is exponents + log2(product) */
	double product;    /* 0 before the first; then in [1, 2) */
	uint32_t largest;  /* bits of the largest magnitude; 0x7f800000 and above: x is not finite */
};

/* Multiplies a block's lanes, each below 2^64, into the product. Its exponent is taken off twice, which changes no bit
 * but those of an overflow: sixteen lanes of mantissas close to 2 reach 2^1024. */
static inline void gp_log_sum_take(struct gp_log_sum *sum, const float lane[GP_LOG_LANES])
{
	for (int k = 0; k < GP_LOG_LANES; k++) {
		int exponent = 1;
		sum->product *= (double)lane[k];
		if (k % 8 == 7)
			sum->product = 2 * frexp(sum->product, &exponent);
		sum->exponents += exponent - 1;
	}
}

struct gp_fp8_loops {
	/* False when some x is not finite; then `out` is unspecified. */
	bool (*to_e5m2)(const float *x, size_t n, uint8_t *out);
	bool (*to_e4m3)(const float *x, size_t n, uint8_t *out);
	/* False when some byte is not a number; then x is unspecified. */
	bool (*from_e5m2)(const uint8_t *in, size_t n, float *x);
	bool (*from_e4m3)(const uint8_t *in, size_t n, float *x);
	/* n a multiple of GP_LOG_BLOCK but for the last call. */
	void (*add_logs)(const float *x, size_t n, struct gp_log_sum *sum);
	/* x finite: E5M2 of +-2^(alpha * log2|x| + beta); 0 for 0. */
	void (*to_s2fp8)(const float *x, size_t n, float alpha, float beta, uint8_t *out);
	/* E5M2 to +-table[magnitude]. False as above. */
	bool (*from_s2fp8)(const uint8_t *in, size_t n, const float table[128], float *x);
};

extern const struct gp_fp8_loops gp_fp8_loops_portable, gp_fp8_loops_avx2, gp_fp8_loops_avx512;
const struct gp_fp8_loops *gp_fp8_loops_choose(void);

/* z * (P0 + z * (P1 + ...)) is log2(1 + z), f * (Q0 + f * (Q1 + f * Q2)) is 2^f - 1, on [0, 1]: least largest error. */
#define GP_LOG2_P0    1.43872573f
#define GP_LOG2_P1    -0.67778394f
#define GP_LOG2_P2    0.32118887f
#define GP_LOG2_P3    -0.08213066f
#define GP_EXP2_Q0    0.69589012f
#define GP_EXP2_Q1    0.22486495f
#define GP_EXP2_Q2    0.07924493f
/* Exponents of 2 below round to 0 (also that of 0), those above to E5M2's largest number. */
#define GP_S2FP8_LOW  -20.0f
#define GP_S2FP8_HIGH 15.75f

#endif
