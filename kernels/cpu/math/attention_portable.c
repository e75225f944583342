/* SPDX-License-Identifier: Apache-2.0
 *
 * attention.h in plain C, the choice between the versions, and what they share:
 * how their room is laid out. Test: tests/unit/test_cpu_attention.c
 */
#define GP_LANES_PORTABLE

#include "kernels/cpu/math/attention.h"

#include "common/base/isa.h"
#include "kernels/cpu/math/attention_body.h"

void gp_attention_forward_portable(const struct gp_attention *a, const struct gp_attention_head *h, float *room)
{
	forward_head(a, h, room);
}

void gp_attention_backward_portable(const struct gp_attention *a, const struct gp_attention_head *h, float *room)
{
	backward_head(a, h, room);
}

gp_attention_forward *gp_attention_forward_choose(void)
{
	static gp_attention_forward *const versions[] = GP_CPU_VERSIONS(gp_attention_forward);
	return versions[gp_isa()];
}

gp_attention_backward *gp_attention_backward_choose(void)
{
	static gp_attention_backward *const versions[] = GP_CPU_VERSIONS(gp_attention_backward);
	return versions[gp_isa()];
}

/* The next `floats` of the room, whole cache lines. */
static float *next_floats(struct attention_room *r, float *room, int64_t floats)
{
	float *at = room ? room + r->floats : NULL;
	r->floats += (uint64_t)lanes_whole(floats);
	return at;
}

/* Rows of scores do not lie a power of two apart: columns of them would share few sets of a cache. */
void gp_attention_lay_out(struct attention_room *r, int64_t positions, int64_t width, float *room, bool backward)
{
	const int64_t all = lanes_whole(positions), wide = lanes_whole(width), rows = GP_ATTENTION_ROWS;
	const int64_t words = (int64_t)gp_attention_whole_blocks(positions, DRAWN_ROWS) * 4 + LANES;
	*r = (struct attention_room){.wide = wide, .ld = all + LANES};
	r->keys = next_floats(r, room, all * width);
	r->values = next_floats(r, room, all * wide);
	r->queries = next_floats(r, room, rows * wide);
	r->scores = next_floats(r, room, rows * r->ld);
	r->block = next_floats(r, room, rows * wide);
	r->words = (uint32_t *)next_floats(r, room, words);
	if (!backward)
		return;
	r->dout = next_floats(r, room, rows * wide);
	r->grads = next_floats(r, room, rows * r->ld);
	r->key_rows = next_floats(r, room, all * wide);
	r->dkeys = next_floats(r, room, all * wide);
	r->dvalues = next_floats(r, room, all * wide);
}

static uint64_t room_of(int64_t positions, int64_t width, bool backward)
{
	struct attention_room r;
	gp_attention_lay_out(&r, positions, width, NULL, backward);
	return r.floats;
}

uint64_t gp_attention_forward_room(int64_t positions, int64_t width)
{
	return room_of(positions, width, false);
}

uint64_t gp_attention_backward_room(int64_t positions, int64_t width)
{
	return room_of(positions, width, true);
}
