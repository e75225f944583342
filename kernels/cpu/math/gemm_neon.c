/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.h's products of floats with NEON of ARM64. Test: tests/unit/test_gemm.c
 */
#include "kernels/cpu/math/gemm_body.h"

const struct gp_gemm_kernels gp_gemm_neon = GP_GEMM_KERNELS;
