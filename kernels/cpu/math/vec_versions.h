/* SPDX-License-Identifier: Apache-2.0
 *
 * Which versions there are of a table of kernels over vec.h, by gp_isa: GP_VEC_VERSIONS(gp_gemm) lists &gp_gemm_avx2 and the
 * others. None is portable: who plans to call one asks gp_vec_supported, and computes in another way where it says no. In
 * that place stands the least, for plans that were made before a test lowered gp_isa_limit. Only for kernels/cpu/math.
 *
 * Threads: any. Test: tests/unit/test_gemm.c
 */
#ifndef GP_CPU_VEC_VERSIONS_H
#define GP_CPU_VEC_VERSIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/isa.h"

/* clang-format off */
#if defined(__x86_64__)
#define GP_VEC_VERSIONS(name)                                                                                          \
	{[GP_ISA_PORTABLE] = &name##_avx2, [GP_ISA_AVX2] = &name##_avx2, [GP_ISA_AVX512] = &name##_avx512}
#elif defined(__aarch64__)
#define GP_VEC_VERSIONS(name) {[GP_ISA_PORTABLE] = &name##_neon, [GP_ISA_NEON] = &name##_neon}
#else
#define GP_VEC_VERSIONS(name) {[GP_ISA_PORTABLE] = NULL}
#endif
/* clang-format on */

static inline bool gp_vec_supported(void)
{
	return gp_isa() != GP_ISA_PORTABLE;
}

#endif
