/* SPDX-License-Identifier: Apache-2.0
 *
 * Bits for each block of a tensor on a GPU. See cuda_budget.h, and
 * common/codec/stages/block_budget.h for how they are chosen.
 * Test: tests/unit/test_cuda_codec_block.c
 */
#include "kernels/cuda/codec/cuda_budget.h"

#include <math.h>

#include "common/codec/stages/block.h"

/* --- memory ------------------------------------------------------------------------------------------------------ */

static uint64_t count_of(uint64_t n, uint64_t size)
{
	return (n + size - 1) / size;
}

uint64_t gp_cuda_budget_bytes(uint64_t n, uint64_t size)
{
	const uint64_t each = 2 * (sizeof(float) + sizeof(struct gpk_block_place)) + sizeof(uint16_t);
	return count_of(n, size) * each + GP_BUDGET_RANGES * sizeof(uint32_t) + 4 * 256;
}

static enum gp_status open_device(struct gp_cuda_budget *b, struct gp_err *err)
{
	const uint64_t count = b->blocks.count;
	void *p;
	GP_TRY(gp_cuda_codec_alloc(b->site, count * sizeof *b->reach, &p, err));
	b->reach = p;
	GP_TRY(gp_cuda_codec_alloc(b->site, count * sizeof *b->place, &p, err));
	b->place = p;
	GP_TRY(gp_cuda_codec_alloc_pinned(b->site, count * sizeof *b->held, &p, err));
	b->held = p;
	GP_TRY(gp_cuda_codec_alloc_pinned(b->site, count * sizeof *b->told, &p, err));
	b->told = p;
	return GP_OK;
}

enum gp_status gp_cuda_budget_open(struct gp_cuda_budget *b, struct gp_codec_site *site, uint64_t n, uint64_t size,
				   double budget, struct gp_err *err)
{
	void *p;
	*b = (struct gp_cuda_budget){.site = site,
				     .blocks = {.n = n, .count = count_of(n, size), .size = size},
				     .bits = gp_budget_bits(budget, n)};
	GP_TRY(gp_alloc_array(&p, b->blocks.count, sizeof *b->width, err));
	b->width = p;
	GP_TRY(gp_alloc_array(&p, GP_BUDGET_RANGES, sizeof *b->histogram, err));
	b->histogram = p;
	return open_device(b, err);
}

void gp_cuda_budget_close(struct gp_cuda_budget *b)
{
	if (!b->site)
		return;
	gp_cuda_codec_free(b->site, b->reach);
	gp_cuda_codec_free(b->site, b->place);
	gp_cuda_codec_free_pinned(b->site, b->held);
	gp_cuda_codec_free_pinned(b->site, b->told);
	gp_free(b->width);
	gp_free(b->histogram);
}

/* --- encode ------------------------------------------------------------------------------------------------------ */

static struct gp_block_form form_of(const struct gp_cuda_budget *b, const struct gp_block_form *form, uint64_t block)
{
	struct gp_block_form own = *form;
	own.bits = b->width[block];
	return own;
}

/* The unit from the largest scale that is wanted. False: some value would not be finite. */
static bool choose_unit(const struct gp_cuda_budget *b, struct gp_block_form *form)
{
	float most = 0;
	for (uint64_t i = 0; i < b->blocks.count; i++) {
		const struct gp_block_form own = form_of(b, form, i);
		most = fmaxf(most, b->held[i] / gp_block_top(&own));
	}
	form->unit = form->by_unit = 1;
	if (!form->e8m0)
		gp_block_set_unit_for(form, most);
	for (uint64_t i = 0; i < b->blocks.count; i++) {
		const struct gp_block_form own = form_of(b, form, i);
		uint32_t reach;
		memcpy(&reach, &b->held[i], sizeof reach);
		if (b->held[i] >= 0x1p126f && !gp_block_usable(&own, reach)) /* below, there is room for any scale */
			return false;
	}
	return true;
}

bool gp_cuda_budget_choose(struct gp_cuda_budget *b, struct gp_block_form *form, const float *x)
{
	struct gp_codec_site *const p = b->site;
	const struct gpk_block_answer *const told = p->told;
	gp_rt_fill(p->stream, p->note, 0, sizeof *told);
	gpk_budget_measure(p->stream, form, x, (int64_t)b->blocks.n, b->reach, p->note);
	gp_rt_copy_down(p->stream, b->held, b->reach, b->blocks.count * sizeof *b->held);
	gp_cuda_codec_tell(p, sizeof *told);
	if (!gp_cuda_codec_wait(p) || told->top >= 0x7f800000u)
		return false;
	gp_budget_choose(&b->blocks, b->held, form->asym, b->bits, b->histogram, b->width);
	gp_budget_groups(&b->blocks, b->width, &b->groups);
	return choose_unit(b, form);
}

uint64_t gp_cuda_budget_width_bytes(const struct gp_cuda_budget *b)
{
	return gp_block_code_bytes(GP_BLOCK_WIDTH_BITS, b->blocks.count);
}

void gp_cuda_budget_write_widths(const struct gp_cuda_budget *b, uint8_t *out)
{
	memset(out, 0, gp_cuda_budget_width_bytes(b));
	for (uint64_t i = 0; i < b->blocks.count; i++) {
		const uint64_t bit = i * GP_BLOCK_WIDTH_BITS;
		const unsigned held = (b->width[i] - GP_BUDGET_LEAST) << bit % 8;
		out[bit / 8] |= (uint8_t)held;
		if (held >> 8)
			out[bit / 8 + 1] |= (uint8_t)(held >> 8);
	}
}

int gp_cuda_budget_codes(const struct gp_cuda_budget *b, uint64_t at, struct gp_codec_codes *out)
{
	int count = 0;
	for (int w = GP_BUDGET_LEAST; w <= GP_BUDGET_MOST; w++)
		if (b->groups.elements[w])
			out[count++] = (struct gp_codec_codes){
				.at = at + b->groups.at[w], .count = b->groups.elements[w], .width = w};
	return count;
}

/* --- decode ------------------------------------------------------------------------------------------------------ */

static enum gp_status read_widths(struct gp_cuda_budget *b, const uint8_t *in, struct gp_err *err)
{
	for (uint64_t i = 0; i < b->blocks.count; i++) {
		const uint64_t bit = i * GP_BLOCK_WIDTH_BITS;
		const bool two = bit % 8 + GP_BLOCK_WIDTH_BITS > 8;
		const unsigned held = in[bit / 8] | (two ? (unsigned)in[bit / 8 + 1] << 8 : 0);
		b->width[i] = (uint16_t)((held >> bit % 8 & 7) + GP_BUDGET_LEAST);
		if (b->width[i] > GP_BUDGET_MOST)
			GP_FAIL(err, GP_PROTO, "block %llu of a block payload has %d bits; at most %d are possible",
				(unsigned long long)i, b->width[i], GP_BUDGET_MOST);
	}
	return GP_OK;
}

enum gp_status gp_cuda_budget_read(struct gp_cuda_budget *b, struct gp_span in, uint64_t at, struct gp_err *err)
{
	const uint64_t head = at + gp_cuda_budget_width_bytes(b);
	if (in.len < head)
		GP_FAIL(err, GP_PROTO, "block payload of %zu bytes ends before its codes", in.len);
	GP_TRY(read_widths(b, in.data + at, err));
	gp_budget_groups(&b->blocks, b->width, &b->groups);
	if (b->groups.bits > b->bits)
		GP_FAIL(err, GP_PROTO, "block payload has codes of %llu bits; its budget is %llu",
			(unsigned long long)b->groups.bits, (unsigned long long)b->bits);
	if (in.len != head + b->groups.at[GP_BUDGET_MOST + 1])
		GP_FAIL(err, GP_PROTO, "block payload has %zu bytes instead of %llu", in.len,
			(unsigned long long)(head + b->groups.at[GP_BUDGET_MOST + 1]));
	GP_TRY(gp_block_check_filling(b->blocks.count * GP_BLOCK_WIDTH_BITS, in.data + head, err));
	for (uint64_t w = GP_BUDGET_LEAST; w <= GP_BUDGET_MOST; w++)
		GP_TRY(gp_block_check_filling(b->groups.elements[w] * w, in.data + head + b->groups.at[w + 1], err));
	return GP_OK;
}

/* --- both ways --------------------------------------------------------------------------------------------------- */

void gp_cuda_budget_place(const struct gp_cuda_budget *b)
{
	uint64_t at[GP_BUDGET_MOST + 2];
	memcpy(at, b->groups.at, sizeof at);
	for (uint64_t i = 0; i < b->blocks.count; i++) {
		const unsigned w = b->width[i];
		b->told[i] = (struct gpk_block_place){.at = (uint32_t)at[w], .width = w};
		at[w] += b->blocks.size / 8 * w;
	}
	gp_rt_copy_up(b->site->stream, b->place, b->told, b->blocks.count * sizeof *b->place);
}
