/* SPDX-License-Identifier: Apache-2.0
 *
 * Instruction sets: what this processor has, and what of it is used. All loops
 * that exist in several versions ask here; every version gives the same bits.
 *
 * AVX2 stands for AVX2 with FMA, F16C and BMI2; AVX-512 for F, BW, DQ and VL
 * besides. On ARM64 there is NEON, in AVX2's place: loops that are written for
 * AVX2 are compiled for it (kernels/loops/avx2.h). GP_SIMD=portable|avx2|avx512,
 * on ARM64 portable|neon, in the environment asks for a lesser set than the
 * processor has.
 *
 * Threads: any. Test: tests/unit/test_codec_loops.c
 */
#ifndef GP_ISA_H
#define GP_ISA_H

#include <stdbool.h>

enum gp_isa { GP_ISA_PORTABLE, GP_ISA_AVX2, GP_ISA_NEON = GP_ISA_AVX2, GP_ISA_AVX512 };

/* The sets that programs for this kind of processor may have, as in "portable, avx2, avx512". */
#if defined(__x86_64__)
#define GP_ISA_NAMES "portable, avx2, avx512"
#elif defined(__aarch64__)
#define GP_ISA_NAMES "portable, neon"
#else
#define GP_ISA_NAMES "portable"
#endif

/* The best that this processor has. */
enum gp_isa gp_isa_best(void);
const char *gp_isa_name(enum gp_isa isa);
/* "avx2" -> *isa. False when the name is unknown, or this processor lacks the set. */
bool gp_isa_named(const char *name, enum gp_isa *isa);
/* What GP_SIMD asks for now, or the best where it is not set or of no use. For choices made when something is opened. */
enum gp_isa gp_isa_wanted(void);
/* What gp_isa_wanted said at the first call, but never above gp_isa_limit: cheap enough for hot loops. */
enum gp_isa gp_isa(void);
/* Tests: gp_isa is at most `isa` from now on. Not while a plan runs. */
void gp_isa_limit(enum gp_isa isa);

#endif
