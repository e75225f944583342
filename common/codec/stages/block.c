/* SPDX-License-Identifier: Apache-2.0
 *
 * `block`: integers of 2 to 8 bits with a scale, and perhaps a zero point, for
 * each block of neighbouring elements or for each channel. Formulas and layout:
 * CODECS.md. The loops: kernels/loops/block_loops.h. Test: tests/unit/test_codec_block.c
 */
#include <math.h>

#include "common/base/rng.h"
#include "common/codec/codec_impl.h"
#include "common/codec/stages/block_budget.h"
#include "kernels/loops/block_loops.h"
#include "kernels/loops/codec_loops.h"
#include "kernels/loops/draw_loops.h"

enum { BITS, SIZE, ZERO, SCALE, CLIP, DIM, ROUND, BUDGET };
enum { SMALLEST = 16, LARGEST = 1024, TILE = 8 * LARGEST, SAMPLED = 64, PART = 1 << 22 };
enum { BITS_USUAL = 4, WIDTH_BITS = 3 }; /* of a code, where nothing is said; of a block's width on the wire */
enum { UNIT_LOW = 27, UNIT_HIGH = 250, UNIT_BELOW = 4 }; /* exponents of the unit */

struct block {
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
	uint16_t codes[TILE];
	float room[TILE]; /* for what a source makes */
	union {
		uint32_t word[TILE / 2];
		uint16_t half[TILE];
	} draws;
};

/* --- sizes ------------------------------------------------------------------------------------------------------ */

static size_t scale_bytes(const struct gp_block_form *f)
{
	return f->e8m0 ? 1 : 2;
}

static size_t unit_bytes(const struct gp_block_form *f)
{
	return f->e8m0 ? 0 : 4;
}

/* With fewer than 16 elements to a channel, scales would take too much: blocks have them then. */
static bool by_channel(const struct block *b)
{
	return b->channels && b->n / SMALLEST >= b->channels;
}

static uint64_t scales_of(const struct block *b)
{
	return by_channel(b) ? b->channels : (b->n + b->form.size - 1) / b->form.size;
}

static uint64_t code_bytes(int bits, uint64_t n)
{
	return (n * (uint64_t)bits + 7) / 8;
}

static uint64_t width_bytes(const struct block *b)
{
	return b->budget > 0 ? code_bytes(WIDTH_BITS, scales_of(b)) : 0;
}

/* Where the widths of the blocks lie, behind scales and zero points. */
static uint64_t widths_at(const struct block *b)
{
	return unit_bytes(&b->form) + scales_of(b) * (scale_bytes(&b->form) + b->form.asym);
}

static uint64_t head_bytes(const struct block *b)
{
	return widths_at(b) + width_bytes(b);
}

static uint64_t bound(const double *value, uint64_t n)
{
	const uint64_t size = value[DIM] > 0 ? SMALLEST : (uint64_t)value[SIZE];
	const uint64_t each = (value[SCALE] > 0 ? 1 : 2) + (value[ZERO] > 0 ? 1 : 0);
	const uint64_t count = (n + size - 1) / size;
	if (value[BUDGET] > 0)
		return 4 + each * count + code_bytes(WIDTH_BITS, count) + (gp_budget_bits(value[BUDGET], n) + 7) / 8;
	return 4 + each * count + code_bytes((int)value[BITS], n);
}

static enum gp_status check(const double *value, struct gp_err *err)
{
	if (value[BUDGET] == 0)
		return GP_OK;
	if (value[BUDGET] < GP_BUDGET_LEAST)
		GP_FAIL(err, GP_USAGE, "budget=%g is not allowed; it is from 2 to 8 bits per element, or 0 for bits=%g",
			value[BUDGET], value[BITS]);
	if (value[BITS] != BITS_USUAL)
		GP_FAIL(err, GP_USAGE,
			"bits=%g and budget=%g exclude each other: a budget gives each block bits of its own",
			value[BITS], value[BUDGET]);
	if (value[DIM] > 0)
		GP_FAIL(err, GP_USAGE, "budget=%g needs blocks, and dim=channel has none", value[BUDGET]);
	if ((int)value[SIZE] % 8)
		GP_FAIL(err, GP_USAGE, "budget=%g needs blocks whose codes fill bytes: size=%g is not a multiple of 8",
			value[BUDGET], value[SIZE]);
	return GP_OK;
}

/* --- open ------------------------------------------------------------------------------------------------------- */

static size_t channels_of(const double *value, const struct gp_shape *shape)
{
	const int last = shape->ndim - 1;
	return value[DIM] > 0 && last > 0 ? (size_t)shape->dim[last] : 0;
}

static uint64_t blocks_of(const double *value, uint64_t n)
{
	return (n + (uint64_t)value[SIZE] - 1) / (uint64_t)value[SIZE];
}

static uint64_t state_bytes(const double *value, const struct gp_codec_setup *setup)
{
	const uint64_t each = 7 * sizeof(float) + 2 * sizeof(double) + sizeof(uint16_t);
	uint64_t bytes = gp_codec_work_times(channels_of(value, &setup->shape), each);
	if (value[BUDGET] > 0)
		bytes = GP_BUDGET_RANGES * sizeof(uint32_t) +
			blocks_of(value, setup->n) * (sizeof(float) + sizeof(uint16_t));
	return gp_codec_work_add(sizeof(struct block), bytes);
}

static void close_block(void *state)
{
	struct block *b = state;
	if (!b)
		return;
	gp_free(b->floats);
	gp_free(b->least_error);
	gp_free(b->chosen);
	gp_free(b->reach);
	gp_free(b->width);
	gp_free(b->histogram);
	gp_free(b);
}

/* The arrays of so many channels. */
static void place_channels(struct block *b, size_t n)
{
	b->channels = n;
	b->channel = (struct gp_block_channels){.count = n,
						.least = b->floats,
						.most = b->floats + n,
						.scale = b->floats + 2 * n,
						.inverse = b->floats + 3 * n,
						.low = b->floats + 4 * n,
						.high = b->floats + 5 * n,
						.zero = b->floats + 6 * n,
						.error = b->least_error + n};
}

static enum gp_status open_channels(struct block *b, struct gp_err *err)
{
	void *p;
	const size_t n = b->most;
	GP_TRY(gp_alloc_array(&p, 7 * n, sizeof *b->floats, err));
	b->floats = p;
	GP_TRY(gp_alloc_array(&p, 2 * n, sizeof *b->least_error, err));
	b->least_error = p;
	GP_TRY(gp_alloc_array(&p, n, sizeof *b->chosen, err));
	b->chosen = p;
	place_channels(b, n);
	return GP_OK;
}

static enum gp_status open_budget(struct block *b, const double *value, struct gp_err *err)
{
	void *p;
	const uint64_t count = blocks_of(value, b->n);
	GP_TRY(gp_alloc_array(&p, count, sizeof *b->reach, err));
	b->reach = p;
	GP_TRY(gp_alloc_array(&p, count, sizeof *b->width, err));
	b->width = p;
	GP_TRY(gp_alloc_array(&p, GP_BUDGET_RANGES, sizeof *b->histogram, err));
	b->histogram = p;
	return GP_OK;
}

/* As many blocks as make some 1024 elements; where a block's codes do not fill bytes, a multiple of eight of them. */
static size_t tile_of(size_t size)
{
	const size_t blocks = LARGEST / size;
	return size * (size % 8 ? (blocks + 7) / 8 * 8 : blocks);
}

static enum gp_status open_block(const double *value, const struct gp_codec_setup *setup, void **state,
				 struct gp_err *err)
{
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct block), err));
	struct block *b = p;
	b->n = setup->n;
	b->seed = setup->seed;
	b->form = (struct gp_block_form){.bits = (int)value[BITS],
					 .size = (size_t)value[SIZE],
					 .asym = value[ZERO] > 0,
					 .e8m0 = value[SCALE] > 0,
					 .mse = value[CLIP] > 0,
					 .stochastic = value[ROUND] > 0,
					 .unit = 1,
					 .by_unit = 1};
	b->tile = tile_of(b->form.size);
	b->budget = value[BUDGET];
	b->most = channels_of(value, &setup->shape);
	b->loops = gp_block_loops_choose();
	b->packing = gp_codec_loops_choose();
	b->draw = gp_draw_words_choose();
	const enum gp_status status = b->most         ? open_channels(b, err)
				      : b->budget > 0 ? open_budget(b, value, err)
						      : GP_OK;
	if (status != GP_OK) {
		close_block(b);
		return status;
	}
	*state = b;
	return GP_OK;
}

/* Rows one after another have the channels of the whole tensor. */
static void reshape(void *state, const double *value, const struct gp_shape *shape)
{
	struct block *b = state;
	const size_t channels = channels_of(value, shape);
	b->n = gp_shape_elements(shape);
	gp_require(channels <= b->most);
	if (b->most)
		place_channels(b, channels ? channels : b->most);
}

/* --- encode ----------------------------------------------------------------------------------------------------- */

static float reach_value(uint32_t bits)
{
	float v;
	memcpy(&v, &bits, sizeof v);
	return v;
}

static float power(unsigned exponent)
{
	return reach_value(exponent << 23);
}

/* This scale becomes a half between 16 and 32, so that those of blocks 2^11 times larger and 2^18 times smaller are
 * normal halves, too. */
static void set_unit_for(struct gp_block_form *f, float scale)
{
	uint32_t bits;
	memcpy(&bits, &scale, sizeof bits);
	const unsigned exponent = bits >> 23;
	const unsigned unit = exponent < UNIT_LOW + UNIT_BELOW    ? UNIT_LOW
			      : exponent > UNIT_HIGH + UNIT_BELOW ? UNIT_HIGH
								  : exponent - UNIT_BELOW;
	f->unit = power(unit);
	f->by_unit = power(254 - unit);
}

static void set_unit(struct gp_block_form *f, float reach)
{
	set_unit_for(f, reach / gp_block_top(f));
}

/* Whether every value that a block of this reach, the largest, gives is finite. */
static bool usable(const struct gp_block_form *f, uint32_t reach)
{
	if (reach >= 0x7f800000u)
		return false;
	const float scale = gp_block_scale_value(f, gp_block_scale_code(f, reach_value(reach)));
	return isfinite(gp_block_top(f) * scale);
}

static const uint16_t *draws_at(struct block *b, const struct gp_codec_pass *pass, uint64_t at, size_t n)
{
	if (b->form.stochastic)
		b->draw(b->seed, gp_rng_stream(GP_RNG_ROUNDING, pass->draw), at / 8, (n + 7) / 8, b->draws.word);
	return b->draws.half;
}

static size_t tile_at(const struct block *b, uint64_t at, size_t tile)
{
	return b->n - at < tile ? (size_t)(b->n - at) : tile;
}

/* Returns the bits of the largest reach; UINT32_MAX: stopped, or not to be represented. */
static uint32_t write_blocks(struct block *b, const struct gp_codec_pass *pass, const struct gp_codec_source *source,
			     uint8_t *out)
{
	const uint64_t count = scales_of(b);
	uint8_t *scales = out + unit_bytes(&b->form), *zeros = scales + count * scale_bytes(&b->form);
	uint8_t *packed = out + head_bytes(b);
	uint32_t top = 0;
	for (uint64_t at = 0; at < b->n; at += b->tile) {
		const size_t here = tile_at(b, at, b->tile);
		const uint64_t block = at / b->form.size;
		const float *x = gp_codec_stopped(pass) ? NULL : gp_codec_source_at(source, at, here, b->room);
		if (!x)
			return UINT32_MAX;
		const uint32_t reach = b->loops->encode(&b->form, x, here, draws_at(b, pass, at, here),
							scales + block * scale_bytes(&b->form),
							zeros + (b->form.asym ? block : 0), b->codes);
		top = reach > top ? reach : top;
		b->packing->pack(b->codes, here, b->form.bits, packed + at / 8 * (uint64_t)b->form.bits);
	}
	return top;
}

/* From the largest reach of 64 blocks, all over the tensor. */
static void guess_unit(struct block *b, const struct gp_codec_source *source)
{
	const uint64_t count = scales_of(b), sampled = count < SAMPLED ? count : SAMPLED;
	uint32_t top = 0;
	for (uint64_t i = 0; i < sampled; i++) {
		const uint64_t at = i * count / sampled * b->form.size;
		const size_t here = tile_at(b, at, b->form.size);
		const float *x = gp_codec_source_at(source, at, here, b->room);
		const uint32_t reach = x ? b->loops->reach(&b->form, x, here) : 0;
		top = reach > top ? reach : top;
	}
	set_unit(&b->form, reach_value(top));
}

/* Whether some scale was too large to be a half. */
static bool unit_too_small(const struct gp_block_form *f, uint32_t reach)
{
	return !f->e8m0 && reach < 0x7f800000u && reach_value(reach) / gp_block_top(f) * f->by_unit > GP_HALF_MOST;
}

static bool encode_blocks(struct block *b, const struct gp_codec_pass *pass, const struct gp_codec_source *source,
			  uint8_t *out)
{
	if (!b->form.e8m0)
		guess_unit(b, source);
	uint32_t top = write_blocks(b, pass, source, out);
	if (unit_too_small(&b->form, top)) {
		set_unit(&b->form, reach_value(top));
		top = write_blocks(b, pass, source, out);
	}
	if (!b->form.e8m0)
		gp_put_f32(out, b->form.unit);
	return usable(&b->form, top);
}

/* --- bits for each block ---------------------------------------------------------------------------------------- */

static struct gp_budget_blocks blocks_in(const struct block *b)
{
	return (struct gp_budget_blocks){.n = b->n, .count = scales_of(b), .size = b->form.size};
}

/* False: not finite, or stopped. */
static bool measure_blocks(struct block *b, const struct gp_codec_pass *pass, const struct gp_codec_source *source)
{
	uint32_t top = 0;
	for (uint64_t at = 0; at < b->n; at += b->tile) {
		const size_t here = tile_at(b, at, b->tile);
		const float *x = gp_codec_stopped(pass) ? NULL : gp_codec_source_at(source, at, here, b->room);
		for (size_t i = 0; x && i < here; i += b->form.size) {
			const size_t n = here - i < b->form.size ? here - i : b->form.size;
			const uint32_t reach = b->loops->reach(&b->form, x + i, n);
			b->reach[(at + i) / b->form.size] = reach_value(reach);
			top = reach > top ? reach : top;
		}
		if (!x)
			return false;
	}
	return top < 0x7f800000u;
}

static struct gp_block_form form_of(const struct block *b, uint64_t block)
{
	struct gp_block_form form = b->form;
	form.bits = b->width[block];
	return form;
}

/* The unit from the largest scale that is wanted. False: some value would not be finite. */
static bool set_budget_unit(struct block *b)
{
	float most = 0;
	for (uint64_t i = 0; i < scales_of(b); i++) {
		const struct gp_block_form form = form_of(b, i);
		most = fmaxf(most, b->reach[i] / gp_block_top(&form));
	}
	if (!b->form.e8m0)
		set_unit_for(&b->form, most);
	for (uint64_t i = 0; i < scales_of(b); i++) {
		const struct gp_block_form form = form_of(b, i);
		uint32_t reach;
		memcpy(&reach, &b->reach[i], sizeof reach);
		if (b->reach[i] >= 0x1p126f && !usable(&form, reach)) /* below, there is room for any scale */
			return false;
	}
	return true;
}

/* Elements from the block at `at` on that are coded alike: of blocks of the same width, at most a tile. */
static size_t run_at(const struct block *b, uint64_t at)
{
	const uint64_t block = at / b->form.size;
	size_t run = b->form.size;
	while (run < b->tile && at + run < b->n && b->width[block] == b->width[block + run / b->form.size])
		run += b->form.size;
	return tile_at(b, at, run);
}

/* Copies of the places where the next codes of each width go, or come from. */
struct places {
	uint64_t at[GP_BUDGET_MOST + 2];
};

static struct places first_places(const struct block *b)
{
	struct places p;
	memcpy(p.at, b->groups.at, sizeof p.at);
	return p;
}

static bool write_budget(struct block *b, const struct gp_codec_pass *pass, const struct gp_codec_source *source,
			 uint8_t *out)
{
	uint8_t *scales = out + unit_bytes(&b->form), *zeros = scales + scales_of(b) * scale_bytes(&b->form);
	uint8_t *packed = out + head_bytes(b);
	struct places place = first_places(b);
	for (uint64_t at = 0, here; at < b->n; at += here) {
		const uint64_t block = at / b->form.size;
		const struct gp_block_form form = form_of(b, block);
		here = run_at(b, at);
		const float *x = gp_codec_stopped(pass) ? NULL : gp_codec_source_at(source, at, (size_t)here, b->room);
		if (!x)
			return false;
		b->loops->encode(&form, x, (size_t)here, draws_at(b, pass, at, (size_t)here),
				 scales + block * scale_bytes(&form), zeros + (form.asym ? block : 0), b->codes);
		b->packing->pack(b->codes, (size_t)here, form.bits, packed + place.at[form.bits]);
		place.at[form.bits] += here * (uint64_t)form.bits / 8;
	}
	return true;
}

static void write_widths(struct block *b, uint8_t *out)
{
	const uint64_t count = scales_of(b);
	for (uint64_t at = 0; at < count; at += LARGEST, out += LARGEST / 8 * WIDTH_BITS) {
		const size_t here = (size_t)(count - at < LARGEST ? count - at : LARGEST);
		for (size_t i = 0; i < here; i++)
			b->codes[i] = (uint16_t)(b->width[at + i] - GP_BUDGET_LEAST);
		b->packing->pack(b->codes, here, WIDTH_BITS, out);
	}
}

static bool encode_budget(struct block *b, const struct gp_codec_pass *pass, const struct gp_codec_source *source,
			  uint8_t *out, size_t *len)
{
	const struct gp_budget_blocks blocks = blocks_in(b);
	if (!measure_blocks(b, pass, source))
		return false;
	gp_budget_choose(&blocks, b->reach, b->form.asym, gp_budget_bits(b->budget, b->n), b->histogram, b->width);
	gp_budget_groups(&blocks, b->width, &b->groups);
	if (!set_budget_unit(b))
		return false;
	if (!b->form.e8m0)
		gp_put_f32(out, b->form.unit);
	write_widths(b, out + widths_at(b));
	*len = head_bytes(b) + b->groups.at[GP_BUDGET_MOST + 1];
	return write_budget(b, pass, source, out);
}

/* --- a scale for each channel ----------------------------------------------------------------------------------- */

static void set_channel(struct block *b, size_t i, float scale, float reach)
{
	const struct gp_block_channels *c = &b->channel;
	const struct gp_block_step step = gp_block_step_of(&b->form, scale, reach, c->least[i]);
	c->scale[i] = step.scale;
	c->inverse[i] = step.inverse;
	c->low[i] = step.low;
	c->high[i] = step.high;
	c->zero[i] = step.zero;
}

static float channel_reach(const struct block *b, size_t i)
{
	const float least = b->channel.least[i], most = b->channel.most[i];
	return b->form.asym ? most - least : fmaxf(-least, most);
}

/* Parts of whole rows, so that a pass can be stopped between them. */
static uint64_t part_of(const struct block *b)
{
	return (PART + b->channels - 1) / b->channels * b->channels;
}

/* False: not finite, or stopped. *top: the largest reach. */
static bool measure_channels(struct block *b, const struct gp_codec_pass *pass, const float *x, float *top)
{
	const uint64_t part = part_of(b);
	memset(b->channel.least, 0, 2 * b->channels * sizeof(float));
	for (uint64_t at = 0; at < b->n; at += part)
		if (gp_codec_stopped(pass) ||
		    b->loops->channel_range(&b->channel, x + at, b->n - at < part ? b->n - at : part) >= 0x7f800000u)
			return false;
	*top = 0;
	for (size_t i = 0; i < b->channels; i++)
		*top = fmaxf(*top, channel_reach(b, i));
	return isfinite(*top);
}

/* One of the ratios for all channels; where it is better it is chosen. */
static bool try_ratio(struct block *b, const struct gp_codec_pass *pass, const float *x, int k)
{
	const float ratio = 1 - (float)k * GP_BLOCK_RATIO_STEP;
	const uint64_t part = part_of(b);
	memset(b->channel.error, 0, b->channels * sizeof *b->channel.error);
	for (size_t i = 0; i < b->channels; i++) {
		const float reach = channel_reach(b, i);
		const unsigned code = gp_block_scale_code(&b->form, reach * ratio);
		set_channel(b, i, gp_block_scale_value(&b->form, code), reach);
	}
	for (uint64_t at = 0; at < b->n; at += part) {
		if (gp_codec_stopped(pass))
			return false;
		b->loops->channel_error(&b->channel, x + at, b->n - at < part ? b->n - at : part);
	}
	for (size_t i = 0; i < b->channels; i++)
		if (k == 0 || b->channel.error[i] < b->least_error[i]) {
			b->least_error[i] = b->channel.error[i];
			b->chosen[i] = (uint16_t)gp_block_scale_code(&b->form, channel_reach(b, i) * ratio);
		}
	return true;
}

static bool choose_scales(struct block *b, const struct gp_codec_pass *pass, const float *x)
{
	for (size_t i = 0; !b->form.mse && i < b->channels; i++)
		b->chosen[i] = (uint16_t)gp_block_scale_code(&b->form, channel_reach(b, i));
	for (int k = 0; b->form.mse && k < GP_BLOCK_RATIOS; k++)
		if (!try_ratio(b, pass, x, k))
			return false;
	for (size_t i = 0; i < b->channels; i++)
		set_channel(b, i, gp_block_scale_value(&b->form, b->chosen[i]), channel_reach(b, i));
	return true;
}

static void write_scales(const struct block *b, uint8_t *out)
{
	if (!b->form.e8m0) {
		gp_put_f32(out, b->form.unit);
		out += 4;
	}
	for (size_t i = 0; i < b->channels; i++) {
		*out++ = (uint8_t)b->chosen[i];
		if (!b->form.e8m0)
			*out++ = (uint8_t)(b->chosen[i] >> 8);
	}
	for (size_t i = 0; b->form.asym && i < b->channels; i++)
		*out++ = (uint8_t)b->channel.zero[i];
}

static bool encode_channels(struct block *b, const struct gp_codec_pass *pass, const float *x, uint8_t *out)
{
	float top;
	if (!measure_channels(b, pass, x, &top))
		return false;
	if (!b->form.e8m0)
		set_unit(&b->form, top);
	uint32_t bits;
	memcpy(&bits, &top, sizeof bits);
	if (!usable(&b->form, bits) || !choose_scales(b, pass, x))
		return false;
	write_scales(b, out);
	out += head_bytes(b);
	for (uint64_t at = 0; at < b->n; at += LARGEST, out += LARGEST / 8 * b->form.bits) {
		const size_t here = tile_at(b, at, LARGEST);
		if (gp_codec_stopped(pass))
			return false;
		const uint16_t *draws = draws_at(b, pass, at, here);
		b->loops->channel_encode(&b->channel, (size_t)(at % b->channels), x + at, here,
					 b->form.stochastic ? draws : NULL, b->codes);
		b->packing->pack(b->codes, here, b->form.bits, out);
	}
	return true;
}

/* Channels want the whole tensor. */
static bool encode_from(void *state, const struct gp_codec_pass *pass, const struct gp_codec_source *source,
			uint8_t *out, size_t *len)
{
	struct block *b = state;
	if (b->budget > 0)
		return encode_budget(b, pass, source, out, len);
	*len = head_bytes(b) + code_bytes(b->form.bits, b->n);
	return !by_channel(b) && encode_blocks(b, pass, source, out);
}

static bool encode(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	struct block *b = state;
	if (!by_channel(b))
		return encode_from(b, pass, &(struct gp_codec_source){.x = x}, out, len);
	*len = head_bytes(b) + code_bytes(b->form.bits, b->n);
	return encode_channels(b, pass, x, out);
}

/* --- decode ----------------------------------------------------------------------------------------------------- */

static enum gp_status read_unit(struct gp_block_form *f, const uint8_t *in, struct gp_err *err)
{
	const uint32_t bits = gp_get_u32(in), exponent = bits >> 23;
	if (bits & 0x7fffff || exponent < UNIT_LOW || exponent > UNIT_HIGH)
		GP_FAIL(err, GP_PROTO,
			"block payload has the unit %g, which is not a power of two from 2^-100 to 2^123",
			(double)gp_get_f32(in));
	f->unit = power(exponent);
	f->by_unit = power(254 - exponent);
	return GP_OK;
}

static unsigned code_at(const struct gp_block_form *f, const uint8_t *scales, uint64_t i)
{
	return f->e8m0 ? scales[i] : scales[2 * i] | (unsigned)scales[2 * i + 1] << 8;
}

static bool scale_fine(const struct gp_block_form *f, unsigned code)
{
	const bool number = f->e8m0 ? code >= 1 && code <= 254 : code < 0x7c00;
	return number && isfinite(gp_block_top(f) * gp_block_scale_value(f, code));
}

static enum gp_status check_scales(const struct block *b, const uint8_t *scales, const uint8_t *zeros,
				   struct gp_err *err)
{
	const uint64_t count = scales_of(b);
	struct gp_block_form form = b->form;
	for (uint64_t i = 0; i < count; i++) {
		form.bits = b->budget > 0 ? b->width[i] : form.bits;
		if (!scale_fine(&form, code_at(&form, scales, i)))
			GP_FAIL(err, GP_PROTO, "scale %llu of a block payload has the bits %#x, which is out of range",
				(unsigned long long)i, code_at(&form, scales, i));
		if (form.asym && zeros[i] > (int)gp_block_top(&form))
			GP_FAIL(err, GP_PROTO, "zero point %llu of a block payload is %d, above its highest code",
				(unsigned long long)i, zeros[i]);
	}
	return GP_OK;
}

static enum gp_status check_length(const struct block *b, struct gp_span in, struct gp_err *err)
{
	const uint64_t codes = b->budget > 0 ? b->groups.at[GP_BUDGET_MOST + 1] : code_bytes(b->form.bits, b->n);
	if (in.len != head_bytes(b) + codes)
		GP_FAIL(err, GP_PROTO, "block payload has %zu bytes instead of %llu", in.len,
			(unsigned long long)(head_bytes(b) + codes));
	return GP_OK;
}

/* `bits` of codes end with the byte before `end`. */
static enum gp_status check_filling(uint64_t bits, const uint8_t *end, struct gp_err *err)
{
	if (bits % 8 && end[-1] >> bits % 8)
		GP_FAIL(err, GP_PROTO, "block payload has bits set behind its last code");
	return GP_OK;
}

/* Nothing is read before the length is known to suffice for it. */
static enum gp_status read_widths(struct block *b, struct gp_span in, struct gp_err *err)
{
	const uint64_t count = scales_of(b);
	const struct gp_budget_blocks blocks = blocks_in(b);
	if (in.len < head_bytes(b))
		GP_FAIL(err, GP_PROTO, "block payload of %zu bytes ends before its codes", in.len);
	b->packing->unpack(in.data + widths_at(b), count, WIDTH_BITS, b->width);
	for (uint64_t i = 0; i < count; i++) {
		b->width[i] += GP_BUDGET_LEAST;
		if (b->width[i] > GP_BUDGET_MOST)
			GP_FAIL(err, GP_PROTO, "block %llu of a block payload has %d bits; at most %d are possible",
				(unsigned long long)i, b->width[i], GP_BUDGET_MOST);
	}
	gp_budget_groups(&blocks, b->width, &b->groups);
	if (b->groups.bits > gp_budget_bits(b->budget, b->n))
		GP_FAIL(err, GP_PROTO, "block payload has codes of %llu bits; its budget is %llu",
			(unsigned long long)b->groups.bits, (unsigned long long)gp_budget_bits(b->budget, b->n));
	return check_filling(count * WIDTH_BITS, in.data + head_bytes(b), err);
}

/* A group that does not fill its last byte has the last block in it. */
static enum gp_status check_fillings(const struct block *b, struct gp_span in, struct gp_err *err)
{
	const uint8_t *packed = in.data + head_bytes(b);
	if (b->budget == 0)
		return check_filling(b->n * (uint64_t)b->form.bits, in.data + in.len, err);
	for (uint64_t w = GP_BUDGET_LEAST; w <= GP_BUDGET_MOST; w++)
		GP_TRY(check_filling(b->groups.elements[w] * w, packed + b->groups.at[w + 1], err));
	return GP_OK;
}

static void set_channels(struct block *b, const uint8_t *scales, const uint8_t *zeros)
{
	for (size_t i = 0; i < b->channels; i++) {
		b->channel.scale[i] = gp_block_scale_value(&b->form, code_at(&b->form, scales, i));
		b->channel.zero[i] = b->form.asym ? (float)zeros[i] : (float)(1 << (b->form.bits - 1));
	}
}

/* Without a zero point the lowest code has no level. */
static bool codes_fine(const struct block *b, size_t n)
{
	return b->form.asym || b->loops->codes_within(b->codes, n, UINT16_MAX, 1, UINT16_MAX);
}

static void read_tile(struct block *b, const uint8_t *scales, const uint8_t *zeros, uint64_t at, size_t n, float *x)
{
	const uint64_t block = at / b->form.size;
	if (by_channel(b))
		b->loops->channel_decode(&b->channel, (size_t)(at % b->channels), b->codes, n, x);
	else
		b->loops->decode(&b->form, scales + block * scale_bytes(&b->form), zeros + (b->form.asym ? block : 0),
				 b->codes, n, x);
}

static enum gp_status read_budget(struct block *b, const struct gp_codec_pass *pass, const uint8_t *scales,
				  const uint8_t *zeros, const uint8_t *packed, struct gp_codec_sink *sink,
				  struct gp_err *err)
{
	struct places place = first_places(b);
	for (uint64_t at = 0, here; at < b->n; at += here) {
		const uint64_t block = at / b->form.size;
		const struct gp_block_form form = form_of(b, block);
		here = run_at(b, at);
		GP_TRY(gp_codec_check_stop(pass, err));
		b->packing->unpack(packed + place.at[form.bits], (size_t)here, form.bits, b->codes);
		place.at[form.bits] += here * (uint64_t)form.bits / 8;
		if (!codes_fine(b, (size_t)here))
			GP_FAIL(err, GP_PROTO, "block payload has a code without a level");
		b->loops->decode(&form, scales + block * scale_bytes(&form), zeros + (form.asym ? block : 0), b->codes,
				 (size_t)here, sink->x + at);
		GP_TRY(gp_codec_sink_ready(sink, at + here, err));
	}
	return GP_OK;
}

static enum gp_status decode_to(void *state, const struct gp_codec_pass *pass, struct gp_span in,
				struct gp_codec_sink *sink, struct gp_err *err)
{
	struct block *b = state;
	if (b->budget > 0)
		GP_TRY(read_widths(b, in, err));
	GP_TRY(check_length(b, in, err));
	GP_TRY(check_fillings(b, in, err));
	if (!b->form.e8m0)
		GP_TRY(read_unit(&b->form, in.data, err));
	const uint8_t *scales = in.data + unit_bytes(&b->form), *packed = in.data + head_bytes(b);
	const uint8_t *zeros = scales + scales_of(b) * scale_bytes(&b->form);
	GP_TRY(check_scales(b, scales, zeros, err));
	if (b->budget > 0)
		return read_budget(b, pass, scales, zeros, packed, sink, err);
	if (by_channel(b))
		set_channels(b, scales, zeros);
	for (uint64_t at = 0; at < b->n; at += b->tile) {
		const size_t here = tile_at(b, at, b->tile);
		GP_TRY(gp_codec_check_stop(pass, err));
		b->packing->unpack(packed + at / 8 * (uint64_t)b->form.bits, here, b->form.bits, b->codes);
		if (!codes_fine(b, here))
			GP_FAIL(err, GP_PROTO, "block payload has a code without a level");
		read_tile(b, scales, zeros, at, here, sink->x + at);
		GP_TRY(gp_codec_sink_ready(sink, at + here, err));
	}
	return GP_OK;
}

static enum gp_status decode(void *state, const struct gp_codec_pass *pass, struct gp_span in, float *x,
			     struct gp_err *err)
{
	return decode_to(state, pass, in, &(struct gp_codec_sink){.x = x}, err);
}

/* Nine readings and eight codings where clips are tried; a random number each; twice where a scale was too large. */
static uint64_t work(const double *value, const struct gp_codec_setup *setup)
{
	if (!setup->encodes)
		return gp_codec_work_times(setup->n, GP_CODEC_ELEMENT_NS);
	return gp_codec_work_times(setup->n, (value[CLIP] > 0 ? 48 : 8) + (value[ROUND] > 0 ? 8 : 0) +
						     (value[BUDGET] > 0 ? 4 : 0));
}

static int codes_written(void *state, struct gp_codec_codes *out)
{
	const struct block *b = state;
	int count = 0;
	for (int w = GP_BUDGET_LEAST; w <= GP_BUDGET_MOST; w++)
		if (b->groups.elements[w])
			out[count++] = (struct gp_codec_codes){
				.at = head_bytes(b) + b->groups.at[w], .count = b->groups.elements[w], .width = w};
	return count;
}

/* With a budget there are several widths. */
static struct gp_codec_codes codes(const double *value, uint64_t n, size_t len)
{
	if (value[BUDGET] > 0)
		return (struct gp_codec_codes){.width = -1};
	return gp_codec_codes_at_end((int)value[BITS], n, len);
}

const struct gp_codec_ops gp_codec_block = {
	.id = GP_CODEC_ID_block,
	.kind = GP_CODEC_QUANTIZER,
	.info = {.name = "block",
		 .summary = "integers with a scale for each block of elements or each channel",
		 .examples = GP_EXAMPLES(
			 "block", "block:bits=2,size=16", "block:bits=8,size=1024,zero=asym",
			 "block:bits=3,size=17,scale=e8m0", "block:bits=4,size=32,zero=asym,clip=mse",
			 "block:bits=2,size=64,clip=mse", "block:bits=5,size=1023,zero=asym,scale=e8m0",
			 "block:bits=4,round=stochastic", "block:bits=6,size=100,zero=asym,round=stochastic",
			 "block:bits=4,dim=channel", "block:bits=7,zero=asym,scale=e8m0,dim=channel,round=stochastic",
			 "block:bits=3,clip=mse,dim=channel", "block:bits=8,scale=e8m0", "block:budget=4",
			 "block:size=16,zero=asym,budget=2.5", "block:size=64,scale=e8m0,clip=mse,budget=6.75",
			 "block:size=24,round=stochastic,budget=3")},
	.keys = 8,
	.key = {{.name = "bits", .min = 2, .max = 8, .initial = 4, .help = "bits of a code"},
		{.name = "size",
		 .min = SMALLEST,
		 .max = LARGEST,
		 .initial = 128,
		 .help = "elements in a row, along the channels, that share a scale"},
		{.name = "zero",
		 .max = 1,
		 .words = "sym|asym",
		 .help = "sym: levels around 0; asym: from the least to the largest, with a zero point"},
		{.name = "scale",
		 .max = 1,
		 .words = "fp16|e8m0",
		 .help = "fp16: half precision, 2 bytes; e8m0: a power of two, 1 byte"},
		{.name = "clip",
		 .max = 1,
		 .words = "max|mse",
		 .help = "max: nothing is clipped; mse: of 8 scales the one with the least squared error"},
		{.name = "dim",
		 .max = 1,
		 .words = "last|channel",
		 .help = "last: a scale for each block; channel: one for each channel of the tensor"},
		{.name = "round",
		 .max = 1,
		 .words = "nearest|stochastic",
		 .help = "stochastic: up or down at random, so that the mean error is 0"},
		{.name = "budget",
		 .max = 8,
		 .decimals = 2,
		 .help = "bits of a code on average: 2 to 8 for each block, more where its range is large; 0: `bits`"}},
	.check = check,
	.reshape = reshape,
	.codes = codes,
	.codes_written = codes_written,
	.bound = bound,
	.bytes = state_bytes,
	.work = work,
	.open = open_block,
	.close = close_block,
	.encode = encode,
	.decode = decode,
	.encode_from = encode_from,
	.decode_to = decode_to,
};
