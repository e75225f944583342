/* SPDX-License-Identifier: Apache-2.0
 *
 * A row of codes of a feature map against what its neighbours foretell: `left` is
 * the code of the same channel one pixel before, `up` one row above, `corner` the
 * one left of that. The median edge detector of LOCO-I (Weinberger, Seroussi and
 * Sapiro, "The LOCO-I lossless image compression algorithm", IEEE Transactions on
 * Image Processing 9, 2000) foretells the median of left, up, left + up - corner;
 * in the first row left, in the first pixel of a row up, in the very first pixel 0.
 * Everything is modulo mask + 1, so that any codes come back. Same bytes with
 * every instruction set.
 *
 * Threads: any; the functions touch only memory that the caller hands them. Test:
 * tests/unit/test_codec_rans_map.c
 */
#ifndef GP_MAP_LOOPS_H
#define GP_MAP_LOOPS_H

#include <stddef.h>
#include <stdint.h>

/* out[i] = (row[i] - foretold) & mask for the n codes of a row with `channels` to a pixel. `up`: the row above, NULL: none. */
void gp_map_residuals(const uint8_t *row, const uint8_t *up, size_t n, size_t channels, uint8_t mask, uint8_t *out);
/* The reverse, in place. */
void gp_map_restore(uint8_t *row, const uint8_t *up, size_t n, size_t channels, uint8_t mask);

#endif
