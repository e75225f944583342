/* SPDX-License-Identifier: Apache-2.0
 *
 * Codes of feature maps, foretold. See rans_map.h. Test: tests/unit/test_codec_rans_map.c
 */
#include "common/codec/stages/rans_map.h"

#include "kernels/loops/map_loops.h"

enum {
	ROW_MOST = 1 << 16, /* codes of a row, so that lines take 400 KiB at most */
	COUNT_EACH = 4,     /* of so many rows one is counted */
	SYMBOL_BITS = 8,    /* of a symbol that is coded, at most: as many codes as have room */
	ALIGN = 64
};

static size_t line_bytes(size_t row)
{
	return (row + ALIGN - 1) / ALIGN * ALIGN;
}

/* Rows of the tensor that begin at whole bytes, whatever the width of their codes is. */
static void measure(struct gp_rans_map *m, const struct gp_shape *shape)
{
	*m = (struct gp_rans_map){0};
	if (shape->ndim != 4)
		return;
	const uint64_t row = (uint64_t)shape->dim[2] * (uint64_t)shape->dim[3];
	if (row % 8 != 0 || row > ROW_MOST)
		return;
	m->row = (size_t)row;
	m->channels = (size_t)shape->dim[3];
	m->image = (uint64_t)shape->dim[1];
	m->rows = (uint64_t)shape->dim[0] * m->image;
}

static size_t room_bytes(const struct gp_rans_map *m, const struct gp_codec_setup *setup)
{
	return 5 * line_bytes(m->row) + (setup->encodes ? (size_t)setup->n : 0);
}

uint64_t gp_rans_map_bytes(const struct gp_codec_setup *setup)
{
	struct gp_rans_map m;
	measure(&m, &setup->shape);
	return m.rows > 0 ? room_bytes(&m, setup) : 0;
}

enum gp_status gp_rans_map_open(struct gp_rans_map *m, const struct gp_codec_setup *setup, struct gp_err *err)
{
	measure(m, &setup->shape);
	m->loops = gp_rans_loops_choose();
	m->packing = gp_codec_loops_choose();
	if (m->rows == 0)
		return GP_OK;
	uint8_t *room = gp_alloc_aligned(room_bytes(m, setup));
	if (!room)
		GP_FAIL(err, GP_NOMEM, "out of memory for rans");
	const size_t line = line_bytes(m->row);
	m->unpacked = (uint16_t *)(void *)room;
	for (size_t i = 0; i < 3; i++)
		m->line[i] = room + (2 + i) * line;
	m->residuals = setup->encodes ? room + 5 * line : NULL;
	return GP_OK;
}

void gp_rans_map_close(struct gp_rans_map *m)
{
	gp_free_aligned(m->unpacked);
}

uint64_t gp_rans_map_codes(const struct gp_rans_map *m)
{
	return m->rows * m->row;
}

static size_t packed_row(const struct gp_rans_map *m, int width)
{
	return m->row / 8 * (size_t)width;
}

/* Callers leave codes of 8 bits where they are. */
static uint8_t *unpack(const struct gp_rans_map *m, const uint8_t *in, int width, uint8_t *line)
{
	m->packing->unpack(in, m->row, width, m->unpacked);
	m->loops->narrow(m->unpacked, m->row, line);
	return line;
}

static void pack(const struct gp_rans_map *m, const uint8_t *line, int width, uint8_t *out)
{
	m->loops->widen(line, m->row, m->unpacked);
	m->packing->pack(m->unpacked, m->row, width, out);
}

/* Codes of a row, packed and not, as the symbols that are coded of them. */
static void count(struct gp_rans_map *m, const uint8_t *line, const uint8_t *packed, int width,
		  struct gp_rans_counts *counts)
{
	uint8_t *pairs = (uint8_t *)(void *)m->unpacked;
	if (width > SYMBOL_BITS / 2) {
		gp_rans_count(line, m->row, counts);
	} else if (SYMBOL_BITS % width == 0) {
		gp_rans_count(packed, packed_row(m, width), counts);
	} else { /* 3 bits */
		for (size_t i = 0; i < m->row / 2; i++)
			pairs[i] = (uint8_t)(line[2 * i] | line[2 * i + 1] << width);
		gp_rans_count(pairs, m->row / 2, counts);
	}
}

static uint64_t cost(struct gp_rans_map *m, const struct gp_rans_counts *parts, int width)
{
	uint32_t counts[GP_RANS_SYMBOLS];
	uint64_t total = 0;
	gp_rans_counts_add(parts, counts);
	for (int i = 0; i < GP_RANS_SYMBOLS; i++)
		total += counts[i];
	gp_rans_table_fit(&m->fit, counts, total, SYMBOL_BITS / width * width);
	return gp_rans_table_cost(&m->fit, counts);
}

/* Not the same row of all images, so that no height hides the others; the first is one of them. */
static bool is_counted(uint64_t row)
{
	return (row + row / 4 + row / 16) % COUNT_EACH == 0;
}

/* All rows. False: stopped. */
static bool make_residuals(struct gp_rans_map *m, const struct gp_codec_pass *pass, int width, const uint8_t *in,
			   uint8_t *out)
{
	const size_t bytes = packed_row(m, width);
	const uint8_t mask = (uint8_t)((1u << width) - 1);
	const uint8_t *up = NULL;
	for (uint64_t r = 0; r < m->rows; r++, in += bytes, out += bytes) {
		if (gp_codec_stopped(pass))
			return false;
		const uint8_t *row = width == 8 ? in : unpack(m, in, width, m->line[r % 2]);
		uint8_t *residuals = width == 8 ? out : m->line[2];
		gp_map_residuals(row, r % m->image ? up : NULL, m->row, m->channels, mask, residuals);
		if (width < 8)
			pack(m, residuals, width, out);
		if (is_counted(r)) {
			count(m, row, in, width, &m->of_codes);
			count(m, residuals, out, width, &m->of_residuals);
		}
		up = row;
	}
	return true;
}

bool gp_rans_map_foretell(struct gp_rans_map *m, const struct gp_codec_pass *pass, const struct gp_codec_codes *codes,
			  struct gp_span in, struct gp_span *out)
{
	const size_t at = (size_t)codes->at, end = at + (size_t)m->rows * packed_row(m, codes->width);
	m->of_codes = m->of_residuals = (struct gp_rans_counts){0};
	if (!make_residuals(m, pass, codes->width, in.data + at, m->residuals + at))
		return false;
	if (cost(m, &m->of_residuals, codes->width) >= cost(m, &m->of_codes, codes->width))
		return false;
	memcpy(m->residuals, in.data, at);
	memcpy(m->residuals + end, in.data + end, in.len - end);
	*out = (struct gp_span){m->residuals, in.len};
	return true;
}

enum gp_status gp_rans_map_restore(struct gp_rans_map *m, const struct gp_codec_pass *pass, int width, uint8_t *bytes,
				   struct gp_err *err)
{
	const size_t step = packed_row(m, width);
	const uint8_t mask = (uint8_t)((1u << width) - 1);
	const uint8_t *up = NULL;
	for (uint64_t r = 0; r < m->rows; r++, bytes += step) {
		GP_TRY(gp_codec_check_stop(pass, err));
		uint8_t *row = width == 8 ? bytes : unpack(m, bytes, width, m->line[r % 2]);
		gp_map_restore(row, r % m->image ? up : NULL, m->row, m->channels, mask);
		if (width < 8)
			pack(m, row, width, bytes);
		up = row;
	}
	return GP_OK;
}
