/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the codec `block` share: the state of an instance, where
 * what lies in a payload, and the three ways to code: blocks of equal width
 * (block.c), a scale for each channel (block_channel.c), blocks with a budget
 * (block_width.c).
 *
 * Threads: one at a time, as for the codec (common/codec/codec.h). Test: tests/unit/test_codec_block.c
 */
#ifndef GP_CODEC_BLOCK_H
#define GP_CODEC_BLOCK_H

#include "common/codec/codec_impl.h"
#include "common/codec/stages/block_budget.h"
#include "kernels/loops/block_loops.h"
#include "kernels/loops/codec_loops.h"
#include "kernels/loops/draw_loops.h"

enum {
	GP_BLOCK_SMALLEST = 16,
	GP_BLOCK_LARGEST = 1024,
	GP_BLOCK_TILE = 8 * GP_BLOCK_LARGEST,
	GP_BLOCK_WIDTH_BITS = 3 /* of a block's width on the wire */
};

struct gp_block {
	uint64_t n;
	uint64_t seed;
	struct gp_block_form form;
	size_t tile;     /* elements coded at a time: whole blocks, and whole bytes of codes */
	size_t channels; /* dim=channel: of the tensor that comes; else 0 */
	size_t most;     /* of the one that it was opened for */
	struct gp_block_channels channel;
	float *floats; /* the arrays of `channel` */
	double *least_error;
	uint16_t *chosen; /* scales of the least error */
	double budget;    /* bits per element; 0: as many as `form` says */
	float *reach;     /* budget: of each block */
	uint16_t *width;  /* budget: bits of each block's codes */
	uint32_t *histogram;
	struct gp_budget_groups groups; /* of the last payload */
	const struct gp_block_loops *loops;
	const struct gp_codec_loops *packing;
	gp_draw_words *draw;
	uint16_t codes[GP_BLOCK_TILE];
	float room[GP_BLOCK_TILE]; /* for what a source makes */
	union {
		uint32_t word[GP_BLOCK_TILE / 2];
		uint16_t half[GP_BLOCK_TILE];
	} draws;
};

static inline size_t gp_block_scale_bytes(const struct gp_block_form *f)
{
	return f->e8m0 ? 1 : 2;
}

static inline size_t gp_block_unit_bytes(const struct gp_block_form *f)
{
	return f->e8m0 ? 0 : 4;
}

/* With fewer than 16 elements to a channel, scales would take too much: blocks have them then. */
static inline bool gp_block_by_channel(const struct gp_block *b)
{
	return b->channels && b->n / GP_BLOCK_SMALLEST >= b->channels;
}

static inline uint64_t gp_block_scales(const struct gp_block *b)
{
	return gp_block_by_channel(b) ? b->channels : (b->n + b->form.size - 1) / b->form.size;
}

static inline uint64_t gp_block_code_bytes(int bits, uint64_t n)
{
	return (n * (uint64_t)bits + 7) / 8;
}

static inline uint64_t gp_block_width_bytes(const struct gp_block *b)
{
	return b->budget > 0 ? gp_block_code_bytes(GP_BLOCK_WIDTH_BITS, gp_block_scales(b)) : 0;
}

/* Where the widths of the blocks lie, behind scales and zero points. */
static inline uint64_t gp_block_widths_at(const struct gp_block *b)
{
	return gp_block_unit_bytes(&b->form) + gp_block_scales(b) * (gp_block_scale_bytes(&b->form) + b->form.asym);
}

static inline uint64_t gp_block_head_bytes(const struct gp_block *b)
{
	return gp_block_widths_at(b) + gp_block_width_bytes(b);
}

static inline size_t gp_block_tile_at(const struct gp_block *b, uint64_t at, size_t tile)
{
	return b->n - at < tile ? (size_t)(b->n - at) : tile;
}

static inline float gp_block_reach_value(uint32_t bits)
{
	float v;
	memcpy(&v, &bits, sizeof v);
	return v;
}

/* block.c. Random bits for the elements from `at` on, a multiple of 8; unspecified without stochastic rounding. */
const uint16_t *gp_block_draws_at(struct gp_block *b, const struct gp_codec_pass *pass, uint64_t at, size_t n);
/* The unit with which this scale becomes a half between 16 and 32, so that those of blocks 2^11 times larger and 2^18
 * times smaller are normal halves, too; and with which the scale of this reach does. */
void gp_block_set_unit_for(struct gp_block_form *f, float scale);
void gp_block_set_unit(struct gp_block_form *f, float reach);
/* Whether every value that a block of this reach, the largest, gives is finite. */
bool gp_block_usable(const struct gp_block_form *f, uint32_t reach);
/* A scale's bits. */
unsigned gp_block_code_at(const struct gp_block_form *f, const uint8_t *scales, uint64_t i);
/* False where one of the n unpacked codes is the lowest, which has no level without a zero point. */
bool gp_block_codes_fine(const struct gp_block *b, size_t n);
/* GP_PROTO where the payload has not just so many bytes of codes behind all else. */
enum gp_status gp_block_check_length(const struct gp_block *b, struct gp_span in, uint64_t codes, struct gp_err *err);
/* GP_PROTO where bits are set behind `bits` of codes, which end with the byte before `end`. */
enum gp_status gp_block_check_filling(uint64_t bits, const uint8_t *end, struct gp_err *err);

/* block_channel.c. The arrays of b->most channels; of n, when a smaller tensor comes. */
enum gp_status gp_block_open_channels(struct gp_block *b, struct gp_err *err);
void gp_block_place_channels(struct gp_block *b, size_t n);
/* False: not to be represented, or stopped. */
bool gp_block_encode_channels(struct gp_block *b, const struct gp_codec_pass *pass, const float *x, uint8_t *out);
/* Scales and zero points that were checked, for the loops. */
void gp_block_read_channels(struct gp_block *b, const uint8_t *scales, const uint8_t *zeros);

/* block_width.c */
enum gp_status gp_block_open_budget(struct gp_block *b, struct gp_err *err);
/* False: not to be represented, or stopped. */
bool gp_block_encode_budget(struct gp_block *b, const struct gp_codec_pass *pass, const struct gp_codec_source *source,
			    uint8_t *out, size_t *len);
int gp_block_codes_written(void *state, struct gp_codec_codes *out);
/* Reads the widths, and checks that they keep to the budget and that the payload has the length that they need. */
enum gp_status gp_block_read_widths(struct gp_block *b, struct gp_span in, struct gp_err *err);
/* The codes. Scales and zero points have been checked. */
enum gp_status gp_block_read_budget(struct gp_block *b, const struct gp_codec_pass *pass, const uint8_t *scales,
				    const uint8_t *zeros, const uint8_t *packed, struct gp_codec_sink *sink,
				    struct gp_err *err);

#endif
