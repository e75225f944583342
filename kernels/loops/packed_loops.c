/* SPDX-License-Identifier: Apache-2.0
 *
 * Codes of blocks, packed: coded by the loops of block_loops.h, then packed by
 * those of codec_loops.h. The reference for the instruction sets that do it in
 * one go. See packed_loops.h. Test: tests/unit/test_packed_loops.c
 */
#include "kernels/loops/packed_loops.h"

#include "kernels/loops/codec_loops.h"
#include "kernels/loops/versions.h"

enum { NV_WIDTH = 4, MAGNITUDE_8 = 0x7f };

uint32_t gp_packed_encode(const struct gp_packed_parts *p, const struct gp_block_form *form, const float *x, size_t n,
			  const uint16_t *draws, uint8_t *scales, uint8_t *zeros, uint16_t *room, uint8_t *packed)
{
	const uint32_t top = p->code->encode(form, x, n, draws, scales, zeros, room);
	p->pack->pack(room, n, form->bits, packed);
	return top;
}

bool gp_packed_decode(const struct gp_packed_parts *p, const struct gp_block_form *form, const uint8_t *scales,
		      const uint8_t *zeros, const uint8_t *packed, uint16_t *room, size_t n, float *x)
{
	p->pack->unpack(packed, n, form->bits, room);
	if (!form->asym && !p->code->codes_within(room, n, UINT16_MAX, 1, UINT16_MAX))
		return false;
	p->code->decode(form, scales, zeros, room, n, x);
	return true;
}

uint32_t gp_packed_mx_encode(const struct gp_packed_parts *p, enum gp_mx_format format, const float *x, size_t n,
			     uint8_t *scales, uint16_t *room, uint8_t *packed)
{
	const uint32_t top = p->code->mx_encode(format, x, n, scales, room);
	p->pack->pack(room, n, gp_mx_width(format), packed);
	return top;
}

/* The formats of 6 and 4 bits have nothing but numbers. */
bool gp_packed_mx_decode(const struct gp_packed_parts *p, enum gp_mx_format format, const uint8_t *scales,
			 const uint8_t *packed, uint16_t *room, size_t n, float *x)
{
	const int width = gp_mx_width(format);
	const uint16_t most = (uint16_t)(gp_mx_numbers(format) - 1);
	p->pack->unpack(packed, n, width, room);
	if (width == 8 && !p->code->codes_within(room, n, MAGNITUDE_8, 0, most))
		return false;
	p->code->mx_decode(format, scales, room, n, x);
	return true;
}

void gp_packed_nv_encode(const struct gp_packed_parts *p, float whole, const float *x, size_t n, uint8_t *scales,
			 uint16_t *room, uint8_t *packed)
{
	p->code->nv_encode(whole, x, n, scales, room);
	p->pack->pack(room, n, NV_WIDTH, packed);
}

void gp_packed_nv_decode(const struct gp_packed_parts *p, float whole, const uint8_t *scales, const uint8_t *packed,
			 uint16_t *room, size_t n, float *x)
{
	p->pack->unpack(packed, n, NV_WIDTH, room);
	p->code->nv_decode(whole, scales, room, n, x);
}

static const struct gp_packed_parts parts = {&gp_block_loops_portable, &gp_codec_loops_portable};

static uint32_t encode(const struct gp_block_form *form, const float *x, size_t n, const uint16_t *draws,
		       uint8_t *scales, uint8_t *zeros, uint16_t *room, uint8_t *packed)
{
	return gp_packed_encode(&parts, form, x, n, draws, scales, zeros, room, packed);
}

static bool decode(const struct gp_block_form *form, const uint8_t *scales, const uint8_t *zeros, const uint8_t *packed,
		   uint16_t *room, size_t n, float *x)
{
	return gp_packed_decode(&parts, form, scales, zeros, packed, room, n, x);
}

static uint32_t mx_encode(enum gp_mx_format format, const float *x, size_t n, uint8_t *scales, uint16_t *room,
			  uint8_t *packed)
{
	return gp_packed_mx_encode(&parts, format, x, n, scales, room, packed);
}

static bool mx_decode(enum gp_mx_format format, const uint8_t *scales, const uint8_t *packed, uint16_t *room, size_t n,
		      float *x)
{
	return gp_packed_mx_decode(&parts, format, scales, packed, room, n, x);
}

static void nv_encode(float whole, const float *x, size_t n, uint8_t *scales, uint16_t *room, uint8_t *packed)
{
	gp_packed_nv_encode(&parts, whole, x, n, scales, room, packed);
}

static void nv_decode(float whole, const uint8_t *scales, const uint8_t *packed, uint16_t *room, size_t n, float *x)
{
	gp_packed_nv_decode(&parts, whole, scales, packed, room, n, x);
}

const struct gp_packed_loops gp_packed_loops_portable = {.encode = encode,
							 .decode = decode,
							 .mx_encode = mx_encode,
							 .mx_decode = mx_decode,
							 .nv_encode = nv_encode,
							 .nv_decode = nv_decode};

const struct gp_packed_loops *gp_packed_loops_choose(void)
{
	static const struct gp_packed_loops *const loops[] = GP_LOOP_VERSIONS(&gp_packed_loops);
	return loops[gp_isa_wanted()];
}
