/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.h's products of floats with AVX2. Test: tests/unit/test_gemm.c
 */
#include "kernels/cpu/math/gemm_body.h"

const struct gp_gemm_kernels gp_gemm_avx2 = GP_GEMM_KERNELS;
