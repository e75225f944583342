/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops that are compiled three times from one source: portable, AVX2 and
 * AVX-512, chosen at run time. Floating-point contraction is off and every
 * loop keeps one order of additions per element, so all three agree bit for
 * bit (tests/unit/test_cpu_ops.c compares them). For kernels/loops and kernels/cpu.
 *
 * A loop is an always-inline function NAME_body whose innermost loop carries
 * `#pragma omp simd`; GP_CPU_CLONES(NAME, (parameters), (arguments)) makes the
 * three clones and NAME, which picks one. With GP_CPU_PORTABLE_CLONE other files have NAME_avx2, NAME_avx512 and NAME_neon.
 *
 * Threads: any; the functions touch only memory that the caller hands them. Test:
 * tests/unit/test_cpu_ops.c
 */
#ifndef GP_CPU_SIMD_H
#define GP_CPU_SIMD_H

#include <stdint.h>

#include "common/base/isa.h"
#include "kernels/loops/inline.h"

#ifdef __clang__ /* does not know prefer-vector-width here; only fuzz targets are built with it */
#define GP_CPU_AVX512_TARGET "avx512f,avx512vl,avx512bw,avx512dq"
#else
#define GP_CPU_AVX512_TARGET "avx512f,avx512vl,avx512bw,avx512dq,prefer-vector-width=512"
#endif

#if defined(__x86_64__)
#define GP_CPU_CLONES(name, params, args)                                                                              \
	static void name##_portable params                                                                             \
	{                                                                                                              \
		name##_body args;                                                                                      \
	}                                                                                                              \
	__attribute__((target("avx2"))) static void name##_avx2 params                                                 \
	{                                                                                                              \
		name##_body args;                                                                                      \
	}                                                                                                              \
	__attribute__((target(GP_CPU_AVX512_TARGET))) static void name##_avx512 params                                 \
	{                                                                                                              \
		name##_body args;                                                                                      \
	}                                                                                                              \
	static void name params                                                                                        \
	{                                                                                                              \
		switch (gp_isa()) {                                                                                    \
		case GP_ISA_AVX512:                                                                                    \
			name##_avx512 args;                                                                            \
			return;                                                                                        \
		case GP_ISA_AVX2:                                                                                      \
			name##_avx2 args;                                                                              \
			return;                                                                                        \
		case GP_ISA_PORTABLE:                                                                                  \
			name##_portable args;                                                                          \
			return;                                                                                        \
		}                                                                                                      \
	}
#define GP_CPU_PORTABLE_CLONE(name, params, args)                                                                      \
	static void name##_portable params                                                                             \
	{                                                                                                              \
		name##_body args;                                                                                      \
	}                                                                                                              \
	static void name params                                                                                        \
	{                                                                                                              \
		switch (gp_isa()) {                                                                                    \
		case GP_ISA_AVX512:                                                                                    \
			name##_avx512 args;                                                                            \
			return;                                                                                        \
		case GP_ISA_AVX2:                                                                                      \
			name##_avx2 args;                                                                              \
			return;                                                                                        \
		case GP_ISA_PORTABLE:                                                                                  \
			name##_portable args;                                                                          \
			return;                                                                                        \
		}                                                                                                      \
	}
#else /* compilers take NEON for what is portable */
#define GP_CPU_CLONES(name, params, args)                                                                              \
	static void name params                                                                                        \
	{                                                                                                              \
		name##_body args;                                                                                      \
	}
#if defined(__aarch64__)
#define GP_CPU_PORTABLE_CLONE(name, params, args)                                                                      \
	static void name##_portable params                                                                             \
	{                                                                                                              \
		name##_body args;                                                                                      \
	}                                                                                                              \
	static void name params                                                                                        \
	{                                                                                                              \
		if (gp_isa() == GP_ISA_NEON)                                                                           \
			name##_neon args;                                                                              \
		else                                                                                                   \
			name##_portable args;                                                                          \
	}
#else
#define GP_CPU_PORTABLE_CLONE(name, params, args) GP_CPU_CLONES(name, params, args)
#endif
#endif

#endif
