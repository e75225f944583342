/* SPDX-License-Identifier: Apache-2.0
 *
 * What backward reads in place of whole maps: of a ReLU whether its gradient
 * passes, a bit for each element; of a maximum its place within the window, a
 * few bits. Packed into words of 32 bits, the first element lowest. The same
 * results, bit for bit, as from the maps.
 *
 * Only for kernels/cpu.
 *
 * Threads: any; arrays are the caller's, and two threads never write one word.
 * Test: tests/unit/test_saved_bits.c
 */
#ifndef GP_CPU_SAVED_BITS_H
#define GP_CPU_SAVED_BITS_H

#include <stdbool.h>
#include <stdint.h>

#define GP_MASK_GRAIN 32 /* elements of a word of a mask */

/* Words that `n` elements of so many bits take: 1, 2, 4, 8, 16 or 32. */
static inline int64_t gp_bits_words(int64_t n, int bits)
{
	return (n * bits + 31) / 32;
}
static inline uint64_t gp_mask_bytes(int64_t n)
{
	return (uint64_t)gp_bits_words(n, 1) * sizeof(uint32_t);
}
/* So many bits for a code below `count`. */
int gp_bits_for(int64_t count);

/* From what ReLU, or ReLU6 (`six`), has made: the gradient of an element passes where 0 < out (< 6). */
void gp_mask_of(const float *out, uint32_t *mask, int64_t n, bool six);
/* dx = dout where the mask lets it pass, else 0; dx may be dout. */
void gp_mask_gradient(float *dx, const float *dout, const uint32_t *mask, int64_t n);

/* Codes below 2^bits to gp_bits_words(n, bits) words, and back. `codes` has room up to the end of the last word. */
void gp_bits_pack(const int32_t *codes, uint32_t *words, int64_t n, int bits);
void gp_bits_unpack(const uint32_t *words, int32_t *codes, int64_t n, int bits);

#endif
