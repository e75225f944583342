/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops of top-k: which elements have the largest magnitudes, and moving those
 * together and apart again. topk_loops_portable.c is the reference; the others
 * give the same bits. Chooses nothing itself: topk_select.c finds the
 * threshold. Test: tests/unit/test_topk_loops.c
 *
 * A key is the bit pattern of a magnitude: keys compare as unsigned integers
 * the way magnitudes compare, and 0x7f800000 and above are not finite.
 * Bits: element i is bit i % 64 of word i / 64; bits past the last are zero.
 *
 * Threads: any; the functions touch only memory that the caller hands them.
 */
#ifndef GP_TOPK_LOOPS_H
#define GP_TOPK_LOOPS_H

#include <stddef.h>
#include <stdint.h>

#define GP_KEY_INFINITY 0x7f800000u
#define GP_TOPK_SLACK   16

/* lo <= hi, and what was found so far. */
struct gp_topk_window {
	uint32_t lo, hi;
	uint64_t above, from_hi, from_lo; /* keys > hi, >= hi, >= lo */
	uint32_t largest;
};

struct gp_topk_loops {
	/* Adds the keys of x to the counts, n < 2^31, and copies those between lo and hi, both excluded, to `chosen`, in
	 * order; returns how many. Writes up to chosen[n + GP_TOPK_SLACK). */
	size_t (*sift)(const float *x, size_t n, struct gp_topk_window *w, uint32_t *chosen);
	/* Sets the bits of the keys above `threshold` and of the first *ties that equal it, and takes those off *ties;
	 * writes (n + 63) / 64 words. */
	void (*mark)(const float *x, size_t n, uint32_t threshold, uint64_t *ties, uint64_t *bits);
	/* Elements whose bits are set, in order; returns how many, at most `room`, past which nothing is written. */
	size_t (*gather)(const float *x, size_t n, const uint64_t *bits, float *chosen, size_t room);
	/* The reverse, with 0 where a bit is not set; chosen[0..count) has as many elements as there are bits. */
	void (*scatter)(const uint64_t *bits, size_t n, const float *chosen, size_t count, float *x);
};

extern const struct gp_topk_loops gp_topk_loops_portable, gp_topk_loops_avx2, gp_topk_loops_avx512;
/* The best for this processor; obeys GP_SIMD (isa.h). */
const struct gp_topk_loops *gp_topk_loops_choose(void);

#endif
