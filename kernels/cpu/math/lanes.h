/* SPDX-License-Identifier: Apache-2.0
 *
 * Sixteen floats side by side: one register of AVX-512, two of AVX2, four of
 * NEON or of anything else (also where a file defines GP_LANES_PORTABLE), by
 * the flags that a file is compiled with. So one source gives loops for every
 * instruction set (attention_body.h shows how), and their bits are the same:
 * every operation rounds once, sums of the sixteen are taken in one order, and
 * lanes_fma is exact before it rounds, also where the processor has no such
 * instruction (there it takes several times as long).
 *
 * Only for kernels/cpu/math.
 *
 * Threads: any; pure functions of what they are given. Test:
 * tests/unit/test_lanes.c, tests/unit/test_cpu_attention.c
 */
#ifndef GP_CPU_LANES_H
#define GP_CPU_LANES_H

#include <stdint.h>
#include <string.h>

#include "kernels/loops/simd.h"

#define LANES 16

/* The versions of a function over lanes, by gp_isa. */
#if defined(__x86_64__)
#define GP_CPU_VERSIONS(name)                                                                                          \
	{                                                                                                              \
		[GP_ISA_PORTABLE] = name##_portable, [GP_ISA_AVX2] = name##_avx2, [GP_ISA_AVX512] = name##_avx512      \
	}
#elif defined(__aarch64__)
#define GP_CPU_VERSIONS(name)                                                                                          \
	{                                                                                                              \
		[GP_ISA_PORTABLE] = name##_portable, [GP_ISA_NEON] = name##_neon                                       \
	}
#else
#define GP_CPU_VERSIONS(name)                                                                                          \
	{                                                                                                              \
		[GP_ISA_PORTABLE] = name##_portable                                                                    \
	}
#endif

static inline int64_t lanes_whole(int64_t n)
{
	return (n + LANES - 1) / LANES * LANES;
}

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#include "kernels/cpu/math/lanes_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__)
#include "kernels/cpu/math/lanes_avx2.h"
#include "kernels/cpu/math/lanes_some.h"
#elif defined(__aarch64__) && !defined(GP_LANES_PORTABLE)
#include "kernels/cpu/math/lanes_neon.h"
#include "kernels/cpu/math/lanes_some.h"
#else
#include "kernels/cpu/math/lanes_portable.h"
#include "kernels/cpu/math/lanes_some.h"
#endif

#endif
