/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops of bn_rows.c that have forms of their own for AVX2, AVX-512 and
 * NEON (bn_rows_body.h). Only for those files.
 *
 * `rows` rows, `stride` (or `width`) floats apart, of which `n` columns count; vec[] as in bn_rows.h. apply's out may be
 * x, gradient's dx may be dout; gradient_sum adds to sum and dot.
 *
 * Threads: any; rooms and outputs are the caller's. Test: tests/unit/test_bn_rows.c
 */
#ifndef GP_CPU_BN_LOOPS_H
#define GP_CPU_BN_LOOPS_H

#include "kernels/cpu/math/bn_rows.h"

#define GP_BN_LOOPS(suffix)                                                                                            \
	void gp_bn_apply_##suffix(const float *x, float *out, int64_t rows, int64_t width, int64_t n, const float *a,  \
				  const float *b);                                                                     \
	void gp_bn_gradient_##suffix(const float *dout, const float *x, float *dx, int64_t rows, int64_t width,        \
				     int64_t n, float *const *vec);                                                    \
	void gp_bn_gradient_sum_##suffix(const float *dout, const float *x, int64_t rows, int64_t stride, int64_t n,   \
					 const float *a, const float *b, const float *mean, float *sum, float *dot);

GP_BN_LOOPS(none_avx2)
GP_BN_LOOPS(relu_avx2)
GP_BN_LOOPS(relu6_avx2)
GP_BN_LOOPS(none_avx512)
GP_BN_LOOPS(relu_avx512)
GP_BN_LOOPS(relu6_avx512)
GP_BN_LOOPS(none_neon)
GP_BN_LOOPS(relu_neon)
GP_BN_LOOPS(relu6_neon)

#endif
