/* SPDX-License-Identifier: Apache-2.0
 *
 * `block` with a budget: blocks whose codes have bits of their own, in groups of
 * equal width. Which block gets how many bits: block_budget.h. Layout: CODECS.md.
 * Test: tests/unit/test_codec_budget.c, test_codec_block.c
 */
#include <math.h>

#include "common/codec/stages/block.h"

enum gp_status gp_block_open_budget(struct gp_block *b, struct gp_err *err)
{
	void *p;
	const uint64_t count = gp_block_scales(b);
	GP_TRY(gp_alloc_array(&p, count, sizeof *b->reach, err));
	b->reach = p;
	GP_TRY(gp_alloc_array(&p, count, sizeof *b->width, err));
	b->width = p;
	GP_TRY(gp_alloc_array(&p, GP_BUDGET_RANGES, sizeof *b->histogram, err));
	b->histogram = p;
	return GP_OK;
}

static struct gp_budget_blocks blocks_in(const struct gp_block *b)
{
	return (struct gp_budget_blocks){.n = b->n, .count = gp_block_scales(b), .size = b->form.size};
}

static struct gp_block_form form_of(const struct gp_block *b, uint64_t block)
{
	struct gp_block_form form = b->form;
	form.bits = b->width[block];
	return form;
}

/* --- encode ----------------------------------------------------------------------------------------------------- */

/* False: not finite, or stopped. */
static bool measure_blocks(struct gp_block *b, const struct gp_codec_pass *pass, const struct gp_codec_source *source)
{
	uint32_t top = 0;
	for (uint64_t at = 0; at < b->n; at += b->tile) {
		const size_t here = gp_block_tile_at(b, at, b->tile);
		const float *x = gp_codec_stopped(pass) ? NULL : gp_codec_source_at(source, at, here, b->room);
		for (size_t i = 0; x && i < here; i += b->form.size) {
			const size_t n = here - i < b->form.size ? here - i : b->form.size;
			const uint32_t reach = b->loops->reach(&b->form, x + i, n);
			b->reach[(at + i) / b->form.size] = gp_block_reach_value(reach);
			top = reach > top ? reach : top;
		}
		if (!x)
			return false;
	}
	return top < 0x7f800000u;
}

/* The unit from the largest scale that is wanted. False: some value would not be finite. */
static bool set_budget_unit(struct gp_block *b)
{
	float most = 0;
	for (uint64_t i = 0; i < gp_block_scales(b); i++) {
		const struct gp_block_form form = form_of(b, i);
		most = fmaxf(most, b->reach[i] / gp_block_top(&form));
	}
	if (!b->form.e8m0)
		gp_block_set_unit_for(&b->form, most);
	for (uint64_t i = 0; i < gp_block_scales(b); i++) {
		const struct gp_block_form form = form_of(b, i);
		uint32_t reach;
		memcpy(&reach, &b->reach[i], sizeof reach);
		if (b->reach[i] >= 0x1p126f && !gp_block_usable(&form, reach)) /* below, there is room for any scale */
			return false;
	}
	return true;
}

/* Elements from the block at `at` on that are coded alike: of blocks of the same width, before `end`. */
static size_t run_at(const struct gp_block *b, uint64_t at, uint64_t end)
{
	const uint64_t block = at / b->form.size;
	size_t run = b->form.size;
	while (at + run < end && b->width[block] == b->width[block + run / b->form.size])
		run += b->form.size;
	return at + run < end ? run : (size_t)(end - at);
}

/* Copies of the places where the next codes of each width go, or come from. */
struct places {
	uint64_t at[GP_BUDGET_MOST + 2];
};

static struct places first_places(const struct gp_block *b)
{
	struct places p;
	memcpy(p.at, b->groups.at, sizeof p.at);
	return p;
}

/* Where the parts of a payload are written. */
struct parts {
	uint8_t *scales, *zeros, *packed;
	struct places place;
};

/* x: the `n` elements from `at` on, whole blocks. */
static void write_tile(struct gp_block *b, const struct gp_codec_pass *pass, const float *x, uint64_t at, size_t n,
		       struct parts *out)
{
	const uint64_t end = at + n;
	for (size_t here; at < end; at += here, x += here) {
		const uint64_t block = at / b->form.size;
		const struct gp_block_form form = form_of(b, block);
		here = run_at(b, at, end);
		b->packed->encode(&form, x, here, gp_block_draws_at(b, pass, at, here),
				  out->scales + block * gp_block_scale_bytes(&form),
				  out->zeros + (form.asym ? block : 0), b->codes,
				  out->packed + out->place.at[form.bits]);
		out->place.at[form.bits] += here * (uint64_t)form.bits / 8;
	}
}

/* By tiles and not by runs: a source makes all of a block of its own for each piece, also where the runs are shorter. */
static bool write_budget(struct gp_block *b, const struct gp_codec_pass *pass, const struct gp_codec_source *source,
			 uint8_t *out)
{
	uint8_t *const scales = out + gp_block_unit_bytes(&b->form);
	struct parts parts = {.scales = scales,
			      .zeros = scales + gp_block_scales(b) * gp_block_scale_bytes(&b->form),
			      .packed = out + gp_block_head_bytes(b),
			      .place = first_places(b)};
	for (uint64_t at = 0; at < b->n; at += b->tile) {
		const size_t here = gp_block_tile_at(b, at, b->tile);
		const float *x = gp_codec_stopped(pass) ? NULL : gp_codec_source_at(source, at, here, b->room);
		if (!x)
			return false;
		write_tile(b, pass, x, at, here, &parts);
	}
	return true;
}

static void write_widths(struct gp_block *b, uint8_t *out)
{
	const uint64_t count = gp_block_scales(b);
	for (uint64_t at = 0; at < count; at += GP_BLOCK_LARGEST, out += GP_BLOCK_LARGEST / 8 * GP_BLOCK_WIDTH_BITS) {
		const size_t here = (size_t)(count - at < GP_BLOCK_LARGEST ? count - at : GP_BLOCK_LARGEST);
		for (size_t i = 0; i < here; i++)
			b->codes[i] = (uint16_t)(b->width[at + i] - GP_BUDGET_LEAST);
		b->packing->pack(b->codes, here, GP_BLOCK_WIDTH_BITS, out);
	}
}

bool gp_block_encode_budget(struct gp_block *b, const struct gp_codec_pass *pass, const struct gp_codec_source *source,
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
	write_widths(b, out + gp_block_widths_at(b));
	*len = gp_block_head_bytes(b) + b->groups.at[GP_BUDGET_MOST + 1];
	return write_budget(b, pass, source, out);
}

int gp_block_codes_written(void *state, struct gp_codec_codes *out)
{
	const struct gp_block *b = state;
	int count = 0;
	for (int w = GP_BUDGET_LEAST; w <= GP_BUDGET_MOST; w++)
		if (b->groups.elements[w])
			out[count++] = (struct gp_codec_codes){.at = gp_block_head_bytes(b) + b->groups.at[w],
							       .count = b->groups.elements[w],
							       .width = w};
	return count;
}

/* --- decode ----------------------------------------------------------------------------------------------------- */

/* A group that does not fill its last byte has the last block in it. */
static enum gp_status check_groups(const struct gp_block *b, struct gp_span in, struct gp_err *err)
{
	const uint8_t *packed = in.data + gp_block_head_bytes(b);
	GP_TRY(gp_block_check_length(b, in, b->groups.at[GP_BUDGET_MOST + 1], err));
	for (uint64_t w = GP_BUDGET_LEAST; w <= GP_BUDGET_MOST; w++)
		GP_TRY(gp_block_check_filling(b->groups.elements[w] * w, packed + b->groups.at[w + 1], err));
	return GP_OK;
}

/* Nothing is read before the length is known to suffice for it. */
enum gp_status gp_block_read_widths(struct gp_block *b, struct gp_span in, struct gp_err *err)
{
	const uint64_t count = gp_block_scales(b);
	const struct gp_budget_blocks blocks = blocks_in(b);
	if (in.len < gp_block_head_bytes(b))
		GP_FAIL(err, GP_PROTO, "block payload of %zu bytes ends before its codes", in.len);
	b->packing->unpack(in.data + gp_block_widths_at(b), count, GP_BLOCK_WIDTH_BITS, b->width);
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
	GP_TRY(gp_block_check_filling(count * GP_BLOCK_WIDTH_BITS, in.data + gp_block_head_bytes(b), err));
	return check_groups(b, in, err);
}

enum gp_status gp_block_read_budget(struct gp_block *b, const struct gp_codec_pass *pass, const uint8_t *scales,
				    const uint8_t *zeros, const uint8_t *packed, struct gp_codec_sink *sink,
				    struct gp_err *err)
{
	struct places place = first_places(b);
	for (uint64_t at = 0, here; at < b->n; at += here) {
		const uint64_t block = at / b->form.size;
		const struct gp_block_form form = form_of(b, block);
		here = run_at(b, at, at + gp_block_tile_at(b, at, b->tile));
		GP_TRY(gp_codec_check_stop(pass, err));
		if (!b->packed->decode(&form, scales + block * gp_block_scale_bytes(&form),
				       zeros + (form.asym ? block : 0), packed + place.at[form.bits], b->codes,
				       (size_t)here, sink->x + at))
			GP_FAIL(err, GP_PROTO, "block payload has a code without a level");
		place.at[form.bits] += here * (uint64_t)form.bits / 8;
		GP_TRY(gp_codec_sink_ready(sink, at + here, err));
	}
	return GP_OK;
}
