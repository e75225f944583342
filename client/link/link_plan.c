/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes wrong on an emulated link, and where. See link_plan.h.
 * Test: tests/unit/test_link_plan.c
 */
#include "client/link/link_plan.h"

#include <math.h>

#include "common/base/rng.h"

#define FARTHEST 20.0 /* a drop lies within so many mean distances */

static bool concerns(enum gp_link_direction wanted, int direction)
{
	return wanted == GP_LINK_BOTH || (int)wanted == direction;
}

static uint64_t position(int64_t at)
{
	return at < 0 ? UINT64_MAX : (uint64_t)at;
}

/* Exponential: as likely in any byte as in the next, like a link that fails at random. */
static uint64_t draw_distance(const uint32_t word[4], int64_t mean)
{
	const double u = ((double)word[0] + 0.5) * 0x1p-32;
	const double d = -log(u) * (double)mean;
	return d < FARTHEST * (double)mean ? (uint64_t)d : (uint64_t)(FARTHEST * (double)mean);
}

static void draw_drop(const struct gp_link_faults *f, uint64_t connection, struct gp_link_plan *out)
{
	uint32_t word[4];
	gp_rng_block(f->seed, gp_rng_stream(GP_RNG_LINK, 0), connection, word);
	const int direction = f->direction == GP_LINK_BOTH ? (int)(word[1] & 1) : (int)f->direction;
	const uint64_t at = draw_distance(word, f->drop_every);
	if (at < out->drop_at[direction])
		out->drop_at[direction] = at;
}

void gp_link_plan_draw(const struct gp_link_faults *f, uint64_t connection, struct gp_link_plan *out)
{
	const bool disturbed = f->times == 0 || connection < (uint64_t)f->times;
	for (int d = 0; d < 2; d++) {
		const bool here = disturbed && concerns(f->direction, d);
		out->stall_at[d] = here ? position(f->stall_after) : UINT64_MAX;
		out->drop_at[d] = here ? position(f->drop_after) : UINT64_MAX;
		out->corrupt_at[d] = here ? position(f->corrupt_byte) : UINT64_MAX;
		out->trickle[d] = here && f->trickle;
	}
	if (disturbed && f->drop_every > 0)
		draw_drop(f, connection, out);
}
