/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops of the codecs whose elements share a scale block by block: `block`
 * (integers), the MX formats and NVFP4 (small floating-point numbers). Codes are
 * not packed here: packed_loops.h does both, and is what the codecs call but for
 * `dim=channel`. Every instruction set gives the same bits:
 * block_loops.c is compiled once for each. Formulas and layouts: common/CODECS.md.
 *
 * Arithmetic is fp32, each operation rounded on its own (no contraction).
 *
 * Threads: any; the functions touch only memory that the caller hands them. Test:
 * tests/unit/test_codec_block.c
 */
#ifndef GP_BLOCK_LOOPS_H
#define GP_BLOCK_LOOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GP_BLOCK_LANES      16 /* of the sums of squared errors */
#define GP_BLOCK_RATIOS     8  /* that clip=mse tries */
#define GP_BLOCK_RATIO_STEP 0.078125f
#define GP_MX_BLOCK         32
#define GP_NVFP4_BLOCK      16
#define GP_NVFP4_LEAST      0x1p-117f /* of the tensor's scale: a block's is then a normal number */
#define GP_HALF_MOST        65504.0f

/* How `block` codes. */
struct gp_block_form {
	int bits;            /* 2..8 */
	size_t size;         /* elements of a block */
	bool asym;           /* with a zero point */
	bool e8m0;           /* scales are powers of two in a byte; else halves times `unit` */
	bool mse;            /* the scale of the least squared error; else none is clipped */
	bool stochastic;     /* rounding by draws; else to nearest, ties to even */
	float unit, by_unit; /* a power of two from 2^-100 to 2^123, and 1 / unit */
};

/* How a block's elements become codes: level = x * inverse, clamped to low..high and rounded; code = level + zero. */
struct gp_block_step {
	float scale, inverse, low, high, zero;
};

/* The same for each channel. */
struct gp_block_channels {
	size_t count;
	float *least, *most; /* of each: at most 0, at least 0 */
	float *scale, *inverse, *low, *high, *zero;
	double *error;
};

enum gp_mx_format { GP_MX_E2M1, GP_MX_E2M3, GP_MX_E3M2, GP_MX_E4M3, GP_MX_E5M2, GP_MX_FORMATS };

struct gp_block_loops {
	/* x[0..n): blocks of form->size, the last what is left. A scale for each (2 bytes, e8m0: 1), a zero point (asym:
	 * 1 byte), a code for each element. `draws`: one for each element (stochastic). Returns the bits of the largest
	 * reach, 0x7f800000 and above when some x or reach is not finite; codes then mean nothing. */
	uint32_t (*encode)(const struct gp_block_form *form, const float *x, size_t n, const uint16_t *draws,
			   uint8_t *scales, uint8_t *zeros, uint16_t *codes);
	/* The bits of the largest reach alone. */
	uint32_t (*reach)(const struct gp_block_form *form, const float *x, size_t n);
	/* Scales, zero points and codes are checked by the caller. */
	void (*decode)(const struct gp_block_form *form, const uint8_t *scales, const uint8_t *zeros,
		       const uint16_t *codes, size_t n, float *x);
	/* Whether the bits `mask` of all codes are least..most; n >= 1. */
	bool (*codes_within)(const uint16_t *codes, size_t n, uint16_t mask, uint16_t least, uint16_t most);
	/* The first element is of channel 0 in these two. Widens least and most; returns the largest magnitude's bits. */
	uint32_t (*channel_range)(const struct gp_block_channels *c, const float *x, uint64_t n);
	/* Adds squared errors to c->error, by rounding to nearest. */
	void (*channel_error)(const struct gp_block_channels *c, const float *x, uint64_t n);
	/* The first element is of channel `first`. draws: NULL: to nearest. */
	void (*channel_encode)(const struct gp_block_channels *c, size_t first, const float *x, size_t n,
			       const uint16_t *draws, uint16_t *codes);
	void (*channel_decode)(const struct gp_block_channels *c, size_t first, const uint16_t *codes, size_t n,
			       float *x);
	/* Blocks of 32; a scale of one byte for each. Returns the bits of the largest magnitude. */
	uint32_t (*mx_encode)(enum gp_mx_format format, const float *x, size_t n, uint8_t *scales, uint16_t *codes);
	/* Scales and codes are checked by the caller. */
	void (*mx_decode)(enum gp_mx_format format, const uint8_t *scales, const uint16_t *codes, size_t n, float *x);
	/* Blocks of 16; `whole` is the tensor's scale. */
	void (*nv_encode)(float whole, const float *x, size_t n, uint8_t *scales, uint16_t *codes);
	void (*nv_decode)(float whole, const uint8_t *scales, const uint16_t *codes, size_t n, float *x);
};

extern const struct gp_block_loops gp_block_loops_portable, gp_block_loops_avx2, gp_block_loops_avx512;
const struct gp_block_loops *gp_block_loops_choose(void);

/* Highest level of `block`: 2^(bits - 1) - 1, asym 2^bits - 1. */
float gp_block_top(const struct gp_block_form *form);
/* Bits of the scale that a block of this reach has at least: half or exponent; and what such bits are worth. */
unsigned gp_block_scale_code(const struct gp_block_form *form, float reach);
float gp_block_scale_value(const struct gp_block_form *form, unsigned code);
/* The step of a block with this scale, reach and least element (asym). */
struct gp_block_step gp_block_step_of(const struct gp_block_form *form, float scale, float reach, float least);
/* The largest exponent of a format's numbers; how many magnitudes are numbers; the bits of a code. */
int gp_mx_emax(enum gp_mx_format format);
int gp_mx_numbers(enum gp_mx_format format);
int gp_mx_width(enum gp_mx_format format);

#endif
