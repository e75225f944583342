/* SPDX-License-Identifier: Apache-2.0
 *
 * Random words in bulk: what gp_rng_block (common/base/rng.h) gives, block after
 * block, for codecs that draw once per element. Each instruction set gives the
 * same words.
 *
 * Threads: any; the functions touch only memory that the caller hands them. Test:
 * tests/unit/test_draw_loops.c
 */
#ifndef GP_DRAW_LOOPS_H
#define GP_DRAW_LOOPS_H

#include <stddef.h>
#include <stdint.h>

/* out[4 * i .. 4 * i + 3] = gp_rng_block(seed, stream, first + i) for i in 0..blocks-1. */
typedef void gp_draw_words(uint64_t seed, uint64_t stream, uint64_t first, size_t blocks, uint32_t *out);

gp_draw_words gp_draw_words_portable, gp_draw_words_avx2, gp_draw_words_avx512;

/* The best for this processor; obeys GP_SIMD (isa.h). */
gp_draw_words *gp_draw_words_choose(void);

#endif
