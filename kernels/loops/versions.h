/* SPDX-License-Identifier: Apache-2.0
 *
 * Which versions of the loops of this folder there are, as a table by gp_isa: GP_LOOP_VERSIONS(&gp_topk_loops) lists
 * &gp_topk_loops_portable and the others. On ARM64 the AVX2 version is compiled for NEON (avx2.h).
 *
 * Threads: any. Test: tests/unit/test_codec_loops.c
 */
#ifndef GP_LOOP_VERSIONS_H
#define GP_LOOP_VERSIONS_H

#include "common/base/isa.h"

/* clang-format off */
#if defined(__x86_64__)
#define GP_LOOP_VERSIONS(name)                                                                                         \
	{[GP_ISA_PORTABLE] = name##_portable, [GP_ISA_AVX2] = name##_avx2, [GP_ISA_AVX512] = name##_avx512}
#elif defined(__aarch64__) && defined(GP_SIMDE)
#define GP_LOOP_VERSIONS(name) {[GP_ISA_PORTABLE] = name##_portable, [GP_ISA_NEON] = name##_avx2}
#else
#define GP_LOOP_VERSIONS(name) {[GP_ISA_PORTABLE] = name##_portable, [GP_ISA_AVX2] = name##_portable}
#endif
/* clang-format on */

#endif
