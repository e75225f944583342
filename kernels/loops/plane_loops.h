/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes of pixels, one for each channel, to planes, which have one channel each,
 * and back. Planes may lie anywhere, so that they come in any order. Same bytes with
 * every instruction set.
 *
 * Threads: any; the functions touch only memory that the caller hands them. Test:
 * tests/unit/test_codec_rans_planes.c
 */
#ifndef GP_PLANE_LOOPS_H
#define GP_PLANE_LOOPS_H

#include <stddef.h>
#include <stdint.h>

/* planes[place[c] + i] = pixels[i * channels + c] for the n pixels and each c < channels. Nothing overlaps. */
void gp_planes_split(const uint8_t *pixels, size_t n, size_t channels, const size_t *place, uint8_t *planes);
/* The reverse. */
void gp_planes_join(const uint8_t *planes, size_t n, size_t channels, const size_t *place, uint8_t *pixels);

#endif
