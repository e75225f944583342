/* SPDX-License-Identifier: Apache-2.0
 *
 * Instruction sets: what this processor has, and what of it is used. All loops
 * that exist in several versions ask here; every version gives the same bits.
 *
 * AVX2 stands for AVX2 with FMA, F16C and BMI2; AVX-512 for F, BW, DQ and VL
 * besides. GP_SIMD=portable|avx2|avx512 in the environment asks for a lesser
 * set than the processor has.
 *
 * Threads: any. Test: tests/unit/test_codec_loops.c
 */
#ifndef GP_ISA_H
#define GP_ISA_H

#include <stdbool.h>

enum gp_isa { GP_ISA_PORTABLE, GP_ISA_AVX2, GP_ISA_AVX512 };

/* The best that this processor has. */
enum gp_isa gp_isa_best(void);
/* "avx2" -> *isa. False when the name is unknown, or this processor lacks the set. */
bool gp_isa_named(const char *name, enum gp_isa *isa);
/* What GP_SIMD asks for now, or the best where it is not set or of no use. For choices made when something is opened. */
enum gp_isa gp_isa_wanted(void);
/* What gp_isa_wanted said at the first call, but never above gp_isa_limit: cheap enough for hot loops. */
enum gp_isa gp_isa(void);
/* Tests: gp_isa is at most `isa` from now on. Not while a plan runs. */
void gp_isa_limit(enum gp_isa isa);

#endif
