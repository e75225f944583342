/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays of an optimizer's state that lie encoded (codec_store.h), in which what
 * is 0 stays 0. Codecs that have no 0, as smaq, make a small number of it, the same
 * for each 0 of a block; an element that never gets a gradient would be moved by
 * that number in every step. So a block has the place of one of its zeros beside
 * its code, and whatever decodes to what that one does is read as 0.
 *
 * Layout: for each block, 4 bytes: 0, or the place of a zero within the block + 1; zeros up to a multiple of 64 bytes; then
 * the blocks as codec_store.h has them, zeros behind each. Equal values give equal bytes.
 *
 * Threads: as codec_store.h. Test: tests/unit/test_codec_store.c
 */
#ifndef GP_MOMENT_STORE_H
#define GP_MOMENT_STORE_H

#include "common/codec/codec_store.h"

/* Room for an array of `n` elements. */
uint64_t gp_moment_bytes(const struct gp_codec_spec *spec, uint64_t n);

/* What codecs that round stochastically draw from: the same array and update give the same draws, on every device and in
 * every part of a split model. Draws differ for updates below 2^28 and arrays of up to 2^35 elements. */
struct gp_moment_draw {
	uint64_t array;  /* names it, as gp_moment_array does */
	uint64_t update; /* updates so far; with GP_MOMENT_CUT: encoded again since, because a rank has shrunk */
};
#define GP_MOMENT_CUT (UINT64_C(1) << 28)

/* Names array `which` of a parameter's state, in a training that draws from `seed`. */
uint64_t gp_moment_array(uint64_t seed, const char *parameter, int which);
/* Number of the draw, in the stream that an array's name numbers, of the array's first element in that update. */
static inline uint64_t gp_moment_first_draw(uint64_t update)
{
	return update << 35;
}

/* Block `block` of an array of `n` elements; `x`: its first element. The array's room was zeroed once. */
void gp_moment_encode(struct gp_store_coder *c, const struct gp_moment_draw *draw, const float *x, uint64_t n,
		      uint64_t block, uint8_t *array);
void gp_moment_decode(struct gp_store_coder *c, const uint8_t *array, uint64_t n, uint64_t block, float *x);

/* GP_INVALID: what lies there, gp_moment_bytes of it, is no code of `n` elements. For bytes from outside. */
enum gp_status gp_moment_accept(struct gp_store_coder *c, const uint8_t *array, uint64_t n, struct gp_err *err);

#endif
