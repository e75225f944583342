/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes to bit planes and back: the inner loop of bitshuffle. Each instruction
 * set gives the same bytes. Layout: common/CODECS.md.
 *
 * Threads: any; the functions touch only memory that the caller hands them. Test:
 * tests/unit/test_codec_bytes.c
 */
#ifndef GP_BIT_LOOPS_H
#define GP_BIT_LOOPS_H

#include <stddef.h>
#include <stdint.h>

/* n a multiple of 8. Plane k, k = 0..7, is n / 8 bytes at planes + k * (n / 8): bit i % 8 of its byte i / 8 is bit k of
 * bytes[i]. */
struct gp_bit_loops {
	void (*split)(const uint8_t *bytes, size_t n, uint8_t *planes);
	void (*join)(const uint8_t *planes, size_t n, uint8_t *bytes);
};

extern const struct gp_bit_loops gp_bit_loops_portable, gp_bit_loops_avx2, gp_bit_loops_avx512;
const struct gp_bit_loops *gp_bit_loops_choose(void);

/* The same for the bytes from..n-1 only, in plain C: what is left over of a vector. `from` a multiple of 8. */
void gp_bit_split_rest(const uint8_t *bytes, size_t from, size_t n, uint8_t *planes);
void gp_bit_join_rest(const uint8_t *planes, size_t from, size_t n, uint8_t *bytes);

#endif
