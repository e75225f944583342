/* SPDX-License-Identifier: Apache-2.0
 *
 * Room shared by pieces whose times are apart. See placement.h.
 * Test: tests/unit/test_placement.c
 */
#include "kernels/plan/placement.h"

#include <stdlib.h>

#include "common/base/mem.h"

/* Largest first; equal sizes in the order they came in, so that a layout is reproducible. */
static int by_size(const void *x, const void *y)
{
	const struct gp_piece *a = *(struct gp_piece *const *)x, *b = *(struct gp_piece *const *)y;
	if (a->bytes != b->bytes)
		return a->bytes < b->bytes ? 1 : -1;
	return (a > b) - (a < b);
}

static bool in_use_together(const struct gp_piece *a, const struct gp_piece *b)
{
	return a->first <= b->last && b->first <= a->last;
}

/* Lowest offset at which `b` overlaps none of placed[0..count), which is sorted by offset. */
static uint64_t find_offset(struct gp_piece *const *placed, int count, const struct gp_piece *b)
{
	uint64_t at = 0;
	for (int i = 0; i < count; i++) {
		if (!in_use_together(placed[i], b))
			continue;
		if (placed[i]->offset >= at + b->bytes)
			break;
		if (placed[i]->offset + placed[i]->bytes > at)
			at = placed[i]->offset + placed[i]->bytes;
	}
	return at;
}

static void insert_by_offset(struct gp_piece **placed, int count, struct gp_piece *b)
{
	int i = count;
	for (; i > 0 && placed[i - 1]->offset > b->offset; i--)
		placed[i] = placed[i - 1];
	placed[i] = b;
}

enum gp_status gp_place_pieces(struct gp_piece *piece, int count, uint64_t *total, struct gp_err *err)
{
	void *mem;
	GP_TRY(gp_alloc_array(&mem, 2 * (size_t)count, sizeof(struct gp_piece *), err));
	struct gp_piece **order = mem, **placed = order + count;
	uint64_t end = 0;
	for (int i = 0; i < count; i++)
		order[i] = &piece[i];
	qsort(order, (size_t)count, sizeof *order, by_size);
	for (int i = 0; i < count; i++) {
		struct gp_piece *b = order[i];
		b->offset = find_offset(placed, i, b);
		insert_by_offset(placed, i, b);
		if (b->offset + b->bytes > end)
			end = b->offset + b->bytes;
	}
	gp_free(mem);
	*total = end;
	return GP_OK;
}
