/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the codec `block` share: the state of an instance, the
 * places of the fields in a payload, and the three ways to code: blocks of equal
 * width (block.c), a scale for each channel (block_channel.c), blocks with a
 * budget (block_width.c). Not here: how the bits of a budget are shared out
 * (block_budget.h).
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
#include "kernels/loops/packed_loops.h"

enum {
	GP_BLOCK_SMALLEST = 16, /* elements */
	GP_BLOCK_LARGEST = 1024,
	GP_BLOCK_TILE = 8 * GP_BLOCK_LARGEST, /* no tile has more elements */
	GP_BLOCK_LINE = 16,                   /* floats of a line of the cache */
	GP_BLOCK_WIDTH_BITS = 3               /* of a block's width on the wire */
};

struct gp_block {
	uint64_t n;                /* elements of the tensor that comes */
	uint64_t seed;             /* of stochastic rounding */
	struct gp_block_form form; /* keys of the spec, and the unit of the payload at hand */
	size_t tile;               /* elements coded at a time: whole blocks, and whole bytes of codes */
	size_t channels;           /* dim=channel: of the tensor that comes; else 0 */
	size_t most;               /* channels of the tensor that the codec was opened for; 0 where that has blocks */
	struct gp_block_channels channel;
	float *floats;                  /* the arrays of `channel` */
	double *least_error;            /* clip=mse: of each channel so far */
	uint16_t *chosen;               /* the scales that had it */
	double budget;                  /* bits per element; 0: as many as `form` says */
	float *reach;                   /* budget: of each block */
	uint16_t *width;                /* budget: bits of each block's codes */
	uint32_t *histogram;            /* budget: room of gp_budget_choose */
	struct gp_budget_groups groups; /* of the last payload */
	const struct gp_packed_loops *packed;
	const struct gp_block_loops *loops;
	const struct gp_codec_loops *packing;
	gp_draw_words *draw;
	uint16_t codes[GP_BLOCK_TILE]; /* of the tile at hand, unpacked, or room for them */
	float *room;                   /* for the elements that a transform in front makes: a tile, at a line's begin */
	union {
		uint32_t word[GP_BLOCK_TILE / 2];
		uint16_t half[GP_BLOCK_TILE];
	} draws;
	float rooms[GP_BLOCK_TILE + GP_BLOCK_LINE]; /* `room` is in it */
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

/* How many scales a payload has: one for each channel or block. */
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

/* What lies in front of the codes: unit, scales, zero points, widths. */
static inline uint64_t gp_block_head_bytes(const struct gp_block *b)
{
	return gp_block_widths_at(b) + gp_block_width_bytes(b);
}

/* Elements of the tile that begins at element `at`, where tiles have `tile`. */
static inline size_t gp_block_tile_at(const struct gp_block *b, uint64_t at, size_t tile)
{
	return b->n - at < tile ? (size_t)(b->n - at) : tile;
}

/* The fp32 number with these bits: loops give reaches as bits, which compare as integers. */
static inline float gp_block_reach_value(uint32_t bits)
{
	float v;
	memcpy(&v, &bits, sizeof v);
	return v;
}

/* block.c. Random bits for the elements from `at` on, a multiple of 8; unspecified without stochastic rounding. */
const uint16_t *gp_block_draws_at(struct gp_block *b, const struct gp_codec_pass *pass, uint64_t at, size_t n);
/* Sets the unit under which `scale` becomes a half between 16 and 32, so that scales 2^11 times larger and 2^18 times
 * smaller are normal halves, too; the second one for the scale that a block of this reach has. */
void gp_block_set_unit_for(struct gp_block_form *f, float scale);
void gp_block_set_unit(struct gp_block_form *f, float reach);
/* Whether every value of a block is finite whose reach has these bits; then those of smaller reaches are, too. */
bool gp_block_usable(const struct gp_block_form *f, uint32_t reach);
/* The bits of scale i in a payload, 16 of a half or 8 of e8m0. */
unsigned gp_block_code_at(const struct gp_block_form *f, const uint8_t *scales, uint64_t i);
/* GP_PROTO where the payload has not just so many bytes of codes behind all else. */
enum gp_status gp_block_check_length(const struct gp_block *b, struct gp_span in, uint64_t codes, struct gp_err *err);
/* GP_PROTO where bits are set behind `bits` of codes, which end with the byte before `end`. */
enum gp_status gp_block_check_filling(uint64_t bits, const uint8_t *end, struct gp_err *err);

/* block_channel.c. `open` allocates the arrays for b->most channels, and GP_NOMEM leaves it to the caller to close b;
 * `place` divides them up for a tensor of n <= b->most channels. */
enum gp_status gp_block_open_channels(struct gp_block *b, struct gp_err *err);
void gp_block_place_channels(struct gp_block *b, size_t n);
/* False: the tensor cannot be represented, or the pass was stopped. */
bool gp_block_encode_channels(struct gp_block *b, const struct gp_codec_pass *pass, const float *x, uint8_t *out);
/* Unpacks scales and zero points, which have been checked, for the loops. */
void gp_block_read_channels(struct gp_block *b, const uint8_t *scales, const uint8_t *zeros);

/* block_width.c. Allocates what a budget needs; GP_NOMEM leaves it to the caller to close b. */
enum gp_status gp_block_open_budget(struct gp_block *b, struct gp_err *err);
/* False: the tensor cannot be represented, or the pass was stopped. *len: bytes that are written to `out`. */
bool gp_block_encode_budget(struct gp_block *b, const struct gp_codec_pass *pass, const struct gp_codec_source *source,
			    uint8_t *out, size_t *len);
/* The slot `codes_written` of struct gp_codec_ops: where the last payload has the codes of each width. */
int gp_block_codes_written(void *state, struct gp_codec_codes *out);
/* Reads the widths into b->width and b->groups. GP_PROTO where one is out of range, where all take more than the budget, or
 * where the payload has another length than they ask for. */
enum gp_status gp_block_read_widths(struct gp_block *b, struct gp_span in, struct gp_err *err);
/* Decodes the codes, which begin at `packed`. Scales and zero points have been checked; GP_PROTO: a code without a level. */
enum gp_status gp_block_read_budget(struct gp_block *b, const struct gp_codec_pass *pass, const uint8_t *scales,
				    const uint8_t *zeros, const uint8_t *packed, struct gp_codec_sink *sink,
				    struct gp_err *err);

#endif
