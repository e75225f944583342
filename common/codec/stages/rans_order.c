/* SPDX-License-Identifier: Apache-2.0
 *
 * Codes of a tensor, foretold and by channels. See rans_order.h.
 * Test: tests/unit/test_codec_rans_map.c, test_codec_rans_planes.c
 */
#include "common/codec/stages/rans_order.h"

#include "kernels/loops/map_loops.h"
#include "kernels/loops/plane_loops.h"

enum {
	ROW_MOST = 1 << 16, /* codes of a row, so that lines take 400 KiB at most */
	PIXELS_MOST = 64,   /* of a row of a tensor that is no map */
	COUNT_EACH = 4,     /* of so many rows one is counted, */
	COUNT_MANY = 8,     /* of so many where there are MANY codes or more */
	MANY = 1 << 19,
	COUNT_PIXELS = 32 << 10, /* about the most that are counted of a channel, which has 16 bits to count */
	PAYS = 64,               /* planes are made where they save 1 bit in so many */
	SYMBOL_BITS = 8,         /* of a symbol that is coded, at most: as many codes as have room */
	ALIGN = 64
};

/* --- open ------------------------------------------------------------------------------------------------------- */

static size_t aligned(size_t bytes)
{
	return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Rows of a map that begin at whole bytes, whatever the width of their codes is. */
static bool measure_map(struct gp_rans_order *o, const struct gp_shape *shape)
{
	if (shape->ndim != 4)
		return false;
	const uint64_t row = (uint64_t)shape->dim[2] * o->channels;
	if (row % 8 != 0 || row > (o->room > 0 ? o->room : ROW_MOST))
		return false;
	o->row = (size_t)row;
	o->image = (uint64_t)shape->dim[1];
	o->rows = (uint64_t)shape->dim[0] * o->image;
	return true;
}

/* Any pixels that follow each other are a row. */
static void measure_pixels(struct gp_rans_order *o, uint64_t pixels)
{
	uint64_t each = PIXELS_MOST;
	while (pixels % each != 0)
		each /= 2;
	o->row = (size_t)each * o->channels;
	o->image = 1;
	o->rows = pixels / each;
}

void gp_rans_order_reshape(struct gp_rans_order *o, const struct gp_shape *shape)
{
	const uint64_t n = gp_shape_elements(shape);
	o->row = 0;
	o->rows = o->image = 0;
	o->predicts = o->by_channel = false;
	if (n == 0 || o->channels == 0 || n % o->channels != 0)
		return;
	if (shape->ndim > 1 && shape->dim[shape->ndim - 1] != (int64_t)o->channels)
		return;
	const uint64_t pixels = n / o->channels;
	o->predicts = o->predict && measure_map(o, shape);
	o->by_channel = o->tables && pixels % 8 == 0; /* planes begin at whole bytes, too */
	if (o->by_channel && !o->predicts)
		measure_pixels(o, pixels);
	gp_require(o->row <= o->room);
}

uint64_t gp_rans_order_codes(const struct gp_rans_order *o)
{
	return o->rows * o->row;
}

uint64_t gp_rans_order_pixels(const struct gp_rans_order *o)
{
	return gp_rans_order_codes(o) / o->channels;
}

/* What can be done to tensors of up to setup->shape, and the room that their rows take. */
static void prepare(struct gp_rans_order *o, const struct gp_codec_setup *setup, bool predict, bool tables)
{
	const struct gp_shape *shape = &setup->shape;
	const int64_t channels = shape->ndim > 0 ? shape->dim[shape->ndim - 1] : 0;
	*o = (struct gp_rans_order){0};
	if (gp_shape_elements(shape) == 0 || channels < 1)
		return;
	o->channels = (size_t)channels;
	o->tables = tables && channels > 1 && channels <= GP_RANS_CHANNELS_MOST &&
		    gp_shape_elements(shape) / (uint64_t)channels >= 8;
	o->predict = predict && measure_map(o, shape);
	o->room = o->row;
	if (o->tables && o->room < PIXELS_MOST * o->channels)
		o->room = PIXELS_MOST * o->channels;
	gp_rans_order_reshape(o, shape);
}

/* Where the parts of the one allocation begin. */
struct room {
	size_t lines, planes, place, arranged, bytes;
};

static struct room room_of(const struct gp_rans_order *o, const struct gp_codec_setup *setup)
{
	struct room r = {.lines = 2 * aligned(o->room)};
	r.planes = r.lines + 3 * aligned(o->room);
	r.place = r.planes + (o->tables ? aligned((size_t)gp_shape_elements(&setup->shape)) : 0);
	r.arranged = r.place + (o->tables ? aligned(o->channels * sizeof *o->place) : 0);
	r.bytes = r.arranged + (setup->encodes ? (size_t)setup->n : 0);
	return r;
}

uint64_t gp_rans_order_bytes(const struct gp_codec_setup *setup, bool predict, bool tables)
{
	struct gp_rans_order o;
	prepare(&o, setup, predict, tables);
	if (o.room == 0)
		return 0;
	const bool plans = o.tables && setup->encodes;
	return room_of(&o, setup).bytes + (plans ? gp_rans_channels_bytes(o.channels, o.predict) : 0);
}

enum gp_status gp_rans_order_open(struct gp_rans_order *o, const struct gp_codec_setup *setup, bool predict,
				  bool tables, struct gp_err *err)
{
	prepare(o, setup, predict, tables);
	o->loops = gp_rans_loops_choose();
	o->packing = gp_codec_loops_choose();
	if (o->room == 0)
		return GP_OK;
	const struct room r = room_of(o, setup);
	uint8_t *room = gp_alloc_aligned(r.bytes);
	if (!room)
		GP_FAIL(err, GP_NOMEM, "out of memory for rans");
	o->unpacked = (uint16_t *)(void *)room;
	for (size_t i = 0; i < 3; i++)
		o->line[i] = room + r.lines + i * aligned(o->room);
	o->planes = o->tables ? room + r.planes : NULL;
	o->place = o->tables ? (size_t *)(void *)(room + r.place) : NULL;
	o->arranged = setup->encodes ? room + r.arranged : NULL;
	return o->tables && setup->encodes ? gp_rans_channels_open(&o->groups, o->channels, o->predict, err) : GP_OK;
}

void gp_rans_order_close(struct gp_rans_order *o)
{
	gp_rans_channels_close(&o->groups);
	gp_free_aligned(o->unpacked);
}

/* --- rows ------------------------------------------------------------------------------------------------------- */

static size_t packed_row(const struct gp_rans_order *o, int width)
{
	return o->row / 8 * (size_t)width;
}

/* Callers leave codes of 8 bits where they are. */
static uint8_t *unpack(const struct gp_rans_order *o, const uint8_t *in, int width, uint8_t *line)
{
	o->packing->unpack(in, o->row, width, o->unpacked);
	o->loops->narrow(o->unpacked, o->row, line);
	return line;
}

static void pack(const struct gp_rans_order *o, const uint8_t *line, int width, uint8_t *out)
{
	o->loops->widen(line, o->row, o->unpacked);
	o->packing->pack(o->unpacked, o->row, width, out);
}

static const uint8_t *codes_of_row(const struct gp_rans_order *o, const uint8_t *in, uint64_t row, int width)
{
	in += row * packed_row(o, width);
	return width == 8 ? in : unpack(o, in, width, o->line[row % 2]);
}

/* --- what a sample says ----------------------------------------------------------------------------------------- */

/* Codes of a row as the symbols that are coded of them. */
static void count(struct gp_rans_order *o, const uint8_t *line, int width, struct gp_rans_counts *counts)
{
	uint8_t *symbols = (uint8_t *)(void *)o->unpacked;
	if (width > SYMBOL_BITS / 2) {
		gp_rans_count(line, o->row, counts);
		return;
	}
	const size_t joined = SYMBOL_BITS / (size_t)width;
	if (joined == 2)
#pragma omp simd
		for (size_t i = 0; i < o->row / 2; i++)
			symbols[i] = (uint8_t)(line[2 * i] | line[2 * i + 1] << width);
	for (size_t i = 0; joined > 2 && i < o->row / joined; i++) {
		unsigned symbol = 0;
		for (size_t k = 0; k < joined; k++)
			symbol |= (unsigned)line[i * joined + k] << k * (size_t)width;
		symbols[i] = (uint8_t)symbol;
	}
	gp_rans_count(symbols, o->row / joined, counts);
}

/* With one table for all. */
static uint64_t cost(struct gp_rans_order *o, int kind, int width)
{
	uint32_t counts[GP_RANS_SYMBOLS];
	uint64_t total = 0;
	gp_rans_counts_add(&o->counts[kind], counts);
	for (int i = 0; i < GP_RANS_SYMBOLS; i++)
		total += counts[i];
	gp_rans_table_fit(&o->fit, counts, total, SYMBOL_BITS / width * width);
	return gp_rans_table_cost(&o->fit, counts) * ((o->rows << 8) / o->counted) >> 8;
}

static uint64_t rows_for_each(const struct gp_rans_order *o)
{
	const uint64_t least = gp_rans_order_codes(o) < MANY ? COUNT_EACH : COUNT_MANY;
	const uint64_t each = gp_rans_order_pixels(o) / COUNT_PIXELS;
	return each > least ? each : least;
}

/* Not the same row of all images, so that no height hides the others; the first is one of them. */
static bool is_counted(uint64_t row, uint64_t each)
{
	return (row + row / each + row / each / each) % each == 0;
}

static void count_kind(struct gp_rans_order *o, int kind, const uint8_t *line, int width)
{
	count(o, line, width, &o->counts[kind]);
	if (o->by_channel)
		gp_rans_channels_count(&o->groups, kind, width, line, o->row);
}

static void count_row(struct gp_rans_order *o, const uint8_t *in, uint64_t row, int width)
{
	const uint8_t mask = (uint8_t)((1u << width) - 1);
	const uint8_t *line = codes_of_row(o, in, row, width);
	if (o->predicts) {
		const uint8_t *up = row % o->image ? codes_of_row(o, in, row - 1, width) : NULL;
		gp_map_residuals(line, up, o->row, o->channels, mask, o->line[2]);
		count_kind(o, GP_RANS_RESIDUALS, o->line[2], width);
	}
	count_kind(o, GP_RANS_AS_IS, line, width);
}

/* What will take the fewest bits: of both kinds the better one, with one table for all, or by channel where that pays. */
static int choose(struct gp_rans_order *o, int width)
{
	const uint64_t pixels = gp_rans_order_pixels(o);
	uint64_t together = UINT64_MAX, by_channel = UINT64_MAX;
	int of_together = 0, of_channels = 0;
	for (int kind = 0; kind < (o->predicts ? 2 : 1); kind++) {
		const int done = kind == GP_RANS_RESIDUALS ? GP_RANS_FORETOLD : 0;
		const uint64_t all = cost(o, kind, width);
		if (all < together) {
			of_together = done;
			together = all;
		}
		if (!o->by_channel)
			continue;
		gp_rans_channels_plan(&o->groups, kind, width, pixels);
		if (o->groups.plan[kind].cost < by_channel) {
			of_channels = done | GP_RANS_PLANES;
			by_channel = o->groups.plan[kind].cost;
		}
	}
	return by_channel < together - together / PAYS ? of_channels : of_together;
}

static int look(struct gp_rans_order *o, const struct gp_codec_pass *pass, const uint8_t *in, int width)
{
	const uint64_t each = rows_for_each(o);
	memset(o->counts, 0, sizeof o->counts);
	o->counted = 0;
	if (o->by_channel)
		gp_rans_channels_begin(&o->groups);
	for (uint64_t r = 0; r < o->rows; r++) {
		if (gp_codec_stopped(pass))
			return 0;
		if (is_counted(r, each)) {
			count_row(o, in, r, width);
			o->counted++;
		}
	}
	return choose(o, width);
}

/* --- arrange ---------------------------------------------------------------------------------------------------- */

static void place_planes(struct gp_rans_order *o, const uint16_t *order)
{
	const size_t pixels = (size_t)gp_rans_order_pixels(o);
	for (size_t i = 0; i < o->channels; i++)
		o->place[order[i]] = i * pixels;
}

/* A byte for each code, in the order in which `planes` has them, packed. False: stopped. */
static bool pack_planes(const struct gp_rans_order *o, const struct gp_codec_pass *pass, int width, uint8_t *out)
{
	for (uint64_t r = 0; r < o->rows; r++) {
		if (gp_codec_stopped(pass))
			return false;
		pack(o, o->planes + r * o->row, width, out + r * packed_row(o, width));
	}
	return true;
}

/* All rows, to `out`. False: stopped. */
static bool arrange_rows(struct gp_rans_order *o, const struct gp_codec_pass *pass, int done, int width,
			 const uint8_t *in, uint8_t *out)
{
	const size_t bytes = packed_row(o, width), pixels = o->row / o->channels;
	const uint8_t mask = (uint8_t)((1u << width) - 1);
	const bool planes = done & GP_RANS_PLANES;
	uint8_t *all = width == 8 ? out : o->planes;
	const uint8_t *up = NULL;
	for (uint64_t r = 0; r < o->rows; r++) {
		if (gp_codec_stopped(pass))
			return false;
		const uint8_t *row = codes_of_row(o, in, r, width), *line = row;
		if (done & GP_RANS_FORETOLD) {
			uint8_t *residuals = width == 8 && !planes ? out + r * bytes : o->line[2];
			gp_map_residuals(row, r % o->image ? up : NULL, o->row, o->channels, mask, residuals);
			line = residuals;
		}
		if (planes)
			gp_planes_split(line, pixels, o->channels, o->place, all + r * pixels);
		else if (width < 8)
			pack(o, line, width, out + r * bytes);
		up = row;
	}
	return !planes || width == 8 || pack_planes(o, pass, width, out);
}

int gp_rans_order_arrange(struct gp_rans_order *o, const struct gp_codec_pass *pass, const struct gp_codec_codes *codes,
			  struct gp_span in, struct gp_span *out, const struct gp_rans_plan **plan)
{
	const size_t at = (size_t)codes->at, end = at + (size_t)o->rows * packed_row(o, codes->width);
	const int done = look(o, pass, in.data + at, codes->width);
	*plan = &o->groups.plan[done & GP_RANS_FORETOLD ? GP_RANS_RESIDUALS : GP_RANS_AS_IS];
	if (done & GP_RANS_PLANES)
		place_planes(o, (*plan)->order);
	if (!done || !arrange_rows(o, pass, done, codes->width, in.data + at, o->arranged + at))
		return 0;
	memcpy(o->arranged, in.data, at);
	memcpy(o->arranged + end, in.data + end, in.len - end);
	*out = (struct gp_span){o->arranged, in.len};
	return done;
}

/* --- restore ---------------------------------------------------------------------------------------------------- */

enum gp_status gp_rans_order_read(struct gp_rans_order *o, struct gp_span *in, struct gp_err *err)
{
	const size_t pixels = (size_t)gp_rans_order_pixels(o);
	if (in->len < 2 * o->channels)
		GP_FAIL(err, GP_PROTO, "rans: the payload ends within the order of its %zu channels", o->channels);
	for (size_t i = 0; i < o->channels; i++)
		o->place[i] = SIZE_MAX;
	for (size_t i = 0; i < o->channels; i++) {
		const uint16_t channel = (uint16_t)(in->data[2 * i] | in->data[2 * i + 1] << 8);
		if (channel >= o->channels || o->place[channel] != SIZE_MAX)
			GP_FAIL(err, GP_PROTO, "rans: channel %d comes twice or is none of %zu", channel, o->channels);
		o->place[channel] = i * pixels;
	}
	*in = (struct gp_span){in->data + 2 * o->channels, in->len - 2 * o->channels};
	return GP_OK;
}

static enum gp_status unpack_planes(const struct gp_rans_order *o, const struct gp_codec_pass *pass, const uint8_t *in,
				    int width, struct gp_err *err)
{
	for (uint64_t r = 0; r < o->rows; r++, in += packed_row(o, width)) {
		GP_TRY(gp_codec_check_stop(pass, err));
		if (width == 8)
			memcpy(o->planes + r * o->row, in, o->row);
		else
			unpack(o, in, width, o->planes + r * o->row);
	}
	return GP_OK;
}

enum gp_status gp_rans_order_restore(struct gp_rans_order *o, const struct gp_codec_pass *pass, int done, int width,
				     uint8_t *bytes, struct gp_err *err)
{
	const size_t step = packed_row(o, width), pixels = o->row / o->channels;
	const uint8_t mask = (uint8_t)((1u << width) - 1);
	const uint8_t *up = NULL;
	if (done & GP_RANS_PLANES)
		GP_TRY(unpack_planes(o, pass, bytes, width, err));
	for (uint64_t r = 0; r < o->rows; r++, bytes += step) {
		GP_TRY(gp_codec_check_stop(pass, err));
		uint8_t *row = width == 8 ? bytes : o->line[r % 2];
		if (done & GP_RANS_PLANES)
			gp_planes_join(o->planes + r * pixels, pixels, o->channels, o->place, row);
		else if (width < 8)
			unpack(o, bytes, width, row);
		if (done & GP_RANS_FORETOLD)
			gp_map_restore(row, r % o->image ? up : NULL, o->row, o->channels, mask);
		if (width < 8)
			pack(o, row, width, bytes);
		up = row;
	}
	return GP_OK;
}
