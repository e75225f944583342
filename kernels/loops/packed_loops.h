/* SPDX-License-Identifier: Apache-2.0
 *
 * What block_loops.h does, with packed codes: scales and codes of whole tiles
 * in one go, where the instruction set has such loops, so that codes do not
 * travel through memory between coding and packing. Every instruction set gives
 * the same bits. Formulas and layouts: common/CODECS.md.
 *
 * Codes of w bits are packed as codec_loops.h does it: n of them take exactly
 * (n * w + 7) / 8 bytes, which are written and read, and no others. `room`: n codes, for
 * what has no loop of its own: it is coded first and packed then.
 *
 * Threads: any; the functions touch only memory that the caller hands them. Test:
 * tests/unit/test_packed_loops.c
 */
#ifndef GP_PACKED_LOOPS_H
#define GP_PACKED_LOOPS_H

#include "kernels/loops/block_loops.h"

struct gp_packed_loops {
	/* As `encode` and `decode` of struct gp_block_loops. x[0..n) are whole blocks, the last what is left. decode:
	 * false, where a code has no level (the lowest one without zero points); x is then unspecified. */
	uint32_t (*encode)(const struct gp_block_form *form, const float *x, size_t n, const uint16_t *draws,
			   uint8_t *scales, uint8_t *zeros, uint16_t *room, uint8_t *packed);
	bool (*decode)(const struct gp_block_form *form, const uint8_t *scales, const uint8_t *zeros,
		       const uint8_t *packed, uint16_t *room, size_t n, float *x);
	/* As `mx_encode` and `mx_decode`. decode: false, where a code is no finite number; x is then unspecified. */
	uint32_t (*mx_encode)(enum gp_mx_format format, const float *x, size_t n, uint8_t *scales, uint16_t *room,
			      uint8_t *packed);
	bool (*mx_decode)(enum gp_mx_format format, const uint8_t *scales, const uint8_t *packed, uint16_t *room,
			  size_t n, float *x);
	/* As `nv_encode` and `nv_decode`. No magnitude is above 2688 times `whole`, but for rounding. */
	void (*nv_encode)(float whole, const float *x, size_t n, uint8_t *scales, uint16_t *room, uint8_t *packed);
	void (*nv_decode)(float whole, const uint8_t *scales, const uint8_t *packed, uint16_t *room, size_t n,
			  float *x);
};

extern const struct gp_packed_loops gp_packed_loops_portable, gp_packed_loops_avx2, gp_packed_loops_avx512;
const struct gp_packed_loops *gp_packed_loops_choose(void);

/* --- for the tables above: the loops of block_loops.h and codec_loops.h one after the other ---------------------- */

struct gp_codec_loops;

/* The loops of one instruction set. */
struct gp_packed_parts {
	const struct gp_block_loops *code;
	const struct gp_codec_loops *pack;
};

uint32_t gp_packed_encode(const struct gp_packed_parts *p, const struct gp_block_form *form, const float *x, size_t n,
			  const uint16_t *draws, uint8_t *scales, uint8_t *zeros, uint16_t *room, uint8_t *packed);
bool gp_packed_decode(const struct gp_packed_parts *p, const struct gp_block_form *form, const uint8_t *scales,
		      const uint8_t *zeros, const uint8_t *packed, uint16_t *room, size_t n, float *x);
uint32_t gp_packed_mx_encode(const struct gp_packed_parts *p, enum gp_mx_format format, const float *x, size_t n,
			     uint8_t *scales, uint16_t *room, uint8_t *packed);
bool gp_packed_mx_decode(const struct gp_packed_parts *p, enum gp_mx_format format, const uint8_t *scales,
			 const uint8_t *packed, uint16_t *room, size_t n, float *x);
void gp_packed_nv_encode(const struct gp_packed_parts *p, float whole, const float *x, size_t n, uint8_t *scales,
			 uint16_t *room, uint8_t *packed);
void gp_packed_nv_decode(const struct gp_packed_parts *p, float whole, const uint8_t *scales, const uint8_t *packed,
			 uint16_t *room, size_t n, float *x);

#endif
