/* SPDX-License-Identifier: Apache-2.0
 *
 * `block`: integers of 2 to 8 bits with a scale, and perhaps a zero point, for
 * each block of neighbouring elements or for each channel. Formulas and layout:
 * CODECS.md. The loops: kernels/loops/block_loops.h. Test: tests/unit/test_codec_block.c
 */
#include <math.h>

#include "common/base/rng.h"
#include "common/codec/stages/block.h"

enum { BITS, SIZE, ZERO, SCALE, CLIP, DIM, ROUND, BUDGET };
enum { SAMPLED = 64, BITS_USUAL = 4 }; /* blocks that the unit is guessed from; bits of a code, where nothing is said */
enum { UNIT_LOW = 27, UNIT_HIGH = 250, UNIT_BELOW = 4 }; /* exponents of the unit */

/* --- sizes ------------------------------------------------------------------------------------------------------ */

static uint64_t bound(const double *value, uint64_t n)
{
	const uint64_t size = value[DIM] > 0 ? GP_BLOCK_SMALLEST : (uint64_t)value[SIZE];
	const uint64_t each = (value[SCALE] > 0 ? 1 : 2) + (value[ZERO] > 0 ? 1 : 0);
	const uint64_t count = (n + size - 1) / size;
	if (value[BUDGET] > 0)
		return 4 + each * count + gp_block_code_bytes(GP_BLOCK_WIDTH_BITS, count) +
		       (gp_budget_bits(value[BUDGET], n) + 7) / 8;
	return 4 + each * count + gp_block_code_bytes((int)value[BITS], n);
}

static enum gp_status check(const double *value, struct gp_err *err)
{
	if (value[BUDGET] == 0)
		return GP_OK;
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

/* 0: the tensor has blocks. So have all that are smaller, as none of their dimensions is larger. */
static size_t channels_of(const double *value, const struct gp_shape *shape)
{
	const int last = shape->ndim - 1;
	const uint64_t channels = value[DIM] > 0 && last > 0 ? (uint64_t)shape->dim[last] : 0;
	return channels && gp_shape_elements(shape) / GP_BLOCK_SMALLEST >= channels ? (size_t)channels : 0;
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
	return gp_codec_work_add(sizeof(struct gp_block), bytes);
}

static void close_block(void *state)
{
	struct gp_block *b = state;
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

/* As many blocks as make some 4096 elements; where a block's codes do not fill bytes, a multiple of eight of them. */
static size_t tile_of(size_t size)
{
	const size_t blocks = 4 * GP_BLOCK_LARGEST / size;
	return size * (size % 8 ? (blocks + 7) / 8 * 8 : blocks);
}

static enum gp_status open_block(const double *value, const struct gp_codec_setup *setup, void **state,
				 struct gp_err *err)
{
	void *p;
	GP_TRY(gp_alloc_array(&p, 1, sizeof(struct gp_block), err));
	struct gp_block *b = p;
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
	b->room = b->rooms + (-(uintptr_t)b->rooms / sizeof(float)) % GP_BLOCK_LINE;
	b->packed = gp_packed_loops_choose();
	b->loops = gp_block_loops_choose();
	b->packing = gp_codec_loops_choose();
	b->draw = gp_draw_words_choose();
	const enum gp_status status = b->most         ? gp_block_open_channels(b, err)
				      : b->budget > 0 ? gp_block_open_budget(b, err)
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
	struct gp_block *b = state;
	const size_t channels = channels_of(value, shape);
	b->n = gp_shape_elements(shape);
	gp_require(channels <= b->most);
	if (b->most)
		gp_block_place_channels(b, channels ? channels : b->most);
}

/* --- encode ----------------------------------------------------------------------------------------------------- */

static float power(unsigned exponent)
{
	return gp_block_reach_value(exponent << 23);
}

void gp_block_set_unit_for(struct gp_block_form *f, float scale)
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

void gp_block_set_unit(struct gp_block_form *f, float reach)
{
	gp_block_set_unit_for(f, reach / gp_block_top(f));
}

bool gp_block_usable(const struct gp_block_form *f, uint32_t reach)
{
	if (reach >= 0x7f800000u)
		return false;
	const float scale = gp_block_scale_value(f, gp_block_scale_code(f, gp_block_reach_value(reach)));
	return isfinite(gp_block_top(f) * scale);
}

const uint16_t *gp_block_draws_at(struct gp_block *b, const struct gp_codec_pass *pass, uint64_t at, size_t n)
{
	if (b->form.stochastic)
		b->draw(b->seed, gp_rng_stream(GP_RNG_ROUNDING, pass->draw), at / 8, (n + 7) / 8, b->draws.word);
	return b->draws.half;
}

/* Returns the bits of the largest reach; UINT32_MAX: stopped, or not to be represented. */
static uint32_t write_blocks(struct gp_block *b, const struct gp_codec_pass *pass, const struct gp_codec_source *source,
			     uint8_t *out)
{
	const uint64_t count = gp_block_scales(b);
	uint8_t *scales = out + gp_block_unit_bytes(&b->form), *zeros = scales + count * gp_block_scale_bytes(&b->form);
	uint8_t *packed = out + gp_block_head_bytes(b);
	uint32_t top = 0;
	for (uint64_t at = 0; at < b->n; at += b->tile) {
		const size_t here = gp_block_tile_at(b, at, b->tile);
		const uint64_t block = at / b->form.size;
		const float *x = gp_codec_stopped(pass) ? NULL : gp_codec_source_at(source, at, here, b->room);
		if (!x)
			return UINT32_MAX;
		const uint32_t reach = b->packed->encode(&b->form, x, here, gp_block_draws_at(b, pass, at, here),
							 scales + block * gp_block_scale_bytes(&b->form),
							 zeros + (b->form.asym ? block : 0), b->codes,
							 packed + at / 8 * (uint64_t)b->form.bits);
		top = reach > top ? reach : top;
	}
	return top;
}

/* From the largest reach of 64 blocks, all over the tensor. */
static void guess_unit(struct gp_block *b, const struct gp_codec_source *source)
{
	const uint64_t count = gp_block_scales(b), sampled = count < SAMPLED ? count : SAMPLED;
	uint32_t top = 0;
	for (uint64_t i = 0; i < sampled; i++) {
		const uint64_t at = i * count / sampled * b->form.size;
		const size_t here = gp_block_tile_at(b, at, b->form.size);
		const float *x = gp_codec_source_at(source, at, here, b->room);
		const uint32_t reach = x ? b->loops->reach(&b->form, x, here) : 0;
		top = reach > top ? reach : top;
	}
	gp_block_set_unit(&b->form, gp_block_reach_value(top));
}

/* Whether some scale was too large to be a half. */
static bool unit_too_small(const struct gp_block_form *f, uint32_t reach)
{
	return !f->e8m0 && reach < 0x7f800000u &&
	       gp_block_reach_value(reach) / gp_block_top(f) * f->by_unit > GP_HALF_MOST;
}

static bool encode_blocks(struct gp_block *b, const struct gp_codec_pass *pass, const struct gp_codec_source *source,
			  uint8_t *out)
{
	if (!b->form.e8m0)
		guess_unit(b, source);
	uint32_t top = write_blocks(b, pass, source, out);
	if (unit_too_small(&b->form, top)) {
		gp_block_set_unit(&b->form, gp_block_reach_value(top));
		top = write_blocks(b, pass, source, out);
	}
	if (!b->form.e8m0)
		gp_put_f32(out, b->form.unit);
	return gp_block_usable(&b->form, top);
}

/* Channels want the whole tensor. */
static bool encode_from(void *state, const struct gp_codec_pass *pass, const struct gp_codec_source *source,
			uint8_t *out, size_t *len)
{
	struct gp_block *b = state;
	if (b->budget > 0)
		return gp_block_encode_budget(b, pass, source, out, len);
	*len = gp_block_head_bytes(b) + gp_block_code_bytes(b->form.bits, b->n);
	return !gp_block_by_channel(b) && encode_blocks(b, pass, source, out);
}

static bool encode(void *state, const struct gp_codec_pass *pass, const float *x, uint8_t *out, size_t *len)
{
	struct gp_block *b = state;
	if (!gp_block_by_channel(b))
		return encode_from(b, pass, &(struct gp_codec_source){.x = x}, out, len);
	*len = gp_block_head_bytes(b) + gp_block_code_bytes(b->form.bits, b->n);
	return gp_block_encode_channels(b, pass, x, out);
}

/* --- decode ----------------------------------------------------------------------------------------------------- */

enum gp_status gp_block_check_filling(uint64_t bits, const uint8_t *end, struct gp_err *err)
{
	if (bits % 8 && end[-1] >> bits % 8)
		GP_FAIL(err, GP_PROTO, "block payload has bits set behind its last code");
	return GP_OK;
}

unsigned gp_block_code_at(const struct gp_block_form *f, const uint8_t *scales, uint64_t i)
{
	return f->e8m0 ? scales[i] : scales[2 * i] | (unsigned)scales[2 * i + 1] << 8;
}

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

static bool scale_fine(const struct gp_block_form *f, unsigned code)
{
	const bool number = f->e8m0 ? code >= 1 && code <= 254 : code < 0x7c00;
	return number && isfinite(gp_block_top(f) * gp_block_scale_value(f, code));
}

/* What decides for all: a larger scale than the largest is in none of them. */
static bool all_scales_fine(const struct gp_block_form *f, const uint8_t *scales, uint64_t count)
{
	uint16_t least = UINT16_MAX, most = 0;
#pragma omp simd reduction(min : least) reduction(max : most)
	for (uint64_t i = 0; i < (f->e8m0 ? 0 : count); i++) {
		uint16_t code;
		memcpy(&code, scales + 2 * i, sizeof code);
		least = code < least ? code : least;
		most = code > most ? code : most;
	}
#pragma omp simd reduction(min : least) reduction(max : most)
	for (uint64_t i = 0; i < (f->e8m0 ? count : 0); i++) {
		least = scales[i] < least ? scales[i] : least;
		most = scales[i] > most ? scales[i] : most;
	}
	return scale_fine(f, least) && scale_fine(f, most);
}

static bool all_zeros_fine(const struct gp_block_form *f, const uint8_t *zeros, uint64_t count)
{
	uint8_t most = 0;
#pragma omp simd reduction(max : most)
	for (uint64_t i = 0; i < (f->asym ? count : 0); i++)
		most = zeros[i] > most ? zeros[i] : most;
	return most <= (int)gp_block_top(f);
}

static enum gp_status check_scales(const struct gp_block *b, const uint8_t *scales, const uint8_t *zeros,
				   struct gp_err *err)
{
	const uint64_t count = gp_block_scales(b);
	struct gp_block_form form = b->form;
	if (b->budget == 0 && all_scales_fine(&form, scales, count) && all_zeros_fine(&form, zeros, count))
		return GP_OK;
	for (uint64_t i = 0; i < count; i++) {
		form.bits = b->budget > 0 ? b->width[i] : form.bits;
		if (!scale_fine(&form, gp_block_code_at(&form, scales, i)))
			GP_FAIL(err, GP_PROTO, "scale %llu of a block payload has the bits %#x, which is out of range",
				(unsigned long long)i, gp_block_code_at(&form, scales, i));
		if (form.asym && zeros[i] > (int)gp_block_top(&form))
			GP_FAIL(err, GP_PROTO, "zero point %llu of a block payload is %d, above its highest code",
				(unsigned long long)i, zeros[i]);
	}
	return GP_OK;
}

enum gp_status gp_block_check_length(const struct gp_block *b, struct gp_span in, uint64_t codes, struct gp_err *err)
{
	if (in.len != gp_block_head_bytes(b) + codes)
		GP_FAIL(err, GP_PROTO, "block payload has %zu bytes instead of %llu", in.len,
			(unsigned long long)(gp_block_head_bytes(b) + codes));
	return GP_OK;
}

/* False: a code without a level, the lowest where there is no zero point. */
static bool read_tile(struct gp_block *b, const uint8_t *scales, const uint8_t *zeros, const uint8_t *packed,
		      uint64_t at, size_t n, float *x)
{
	const uint64_t block = at / b->form.size;
	if (!gp_block_by_channel(b))
		return b->packed->decode(&b->form, scales + block * gp_block_scale_bytes(&b->form),
					 zeros + (b->form.asym ? block : 0), packed, b->codes, n, x);
	b->packing->unpack(packed, n, b->form.bits, b->codes);
	if (!b->form.asym && !b->loops->codes_within(b->codes, n, UINT16_MAX, 1, UINT16_MAX))
		return false;
	b->loops->channel_decode(&b->channel, (size_t)(at % b->channels), b->codes, n, x);
	return true;
}

static enum gp_status check_codes(const struct gp_block *b, struct gp_span in, struct gp_err *err)
{
	GP_TRY(gp_block_check_length(b, in, gp_block_code_bytes(b->form.bits, b->n), err));
	return gp_block_check_filling(b->n * (uint64_t)b->form.bits, in.data + in.len, err);
}

static enum gp_status decode_to(void *state, const struct gp_codec_pass *pass, struct gp_span in,
				struct gp_codec_sink *sink, struct gp_err *err)
{
	struct gp_block *b = state;
	GP_TRY(b->budget > 0 ? gp_block_read_widths(b, in, err) : check_codes(b, in, err));
	if (!b->form.e8m0)
		GP_TRY(read_unit(&b->form, in.data, err));
	const uint8_t *scales = in.data + gp_block_unit_bytes(&b->form), *packed = in.data + gp_block_head_bytes(b);
	const uint8_t *zeros = scales + gp_block_scales(b) * gp_block_scale_bytes(&b->form);
	GP_TRY(check_scales(b, scales, zeros, err));
	if (b->budget > 0)
		return gp_block_read_budget(b, pass, scales, zeros, packed, sink, err);
	if (gp_block_by_channel(b))
		gp_block_read_channels(b, scales, zeros);
	for (uint64_t at = 0; at < b->n; at += b->tile) {
		const size_t here = gp_block_tile_at(b, at, b->tile);
		GP_TRY(gp_codec_check_stop(pass, err));
		if (!read_tile(b, scales, zeros, packed + at / 8 * (uint64_t)b->form.bits, at, here, sink->x + at))
			GP_FAIL(err, GP_PROTO, "block payload has a code without a level");
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
		 .min = GP_BLOCK_SMALLEST,
		 .max = GP_BLOCK_LARGEST,
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
		 .min = GP_BUDGET_LEAST,
		 .max = 8,
		 .or_zero = true,
		 .decimals = 2,
		 .help = "bits of a code on average: each block gets 2 to 8, more if its range is large; 0: "
			 "all have `bits`"}},
	.check = check,
	.reshape = reshape,
	.codes = codes,
	.codes_written = gp_block_codes_written,
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
