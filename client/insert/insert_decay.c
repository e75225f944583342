/* SPDX-License-Identifier: Apache-2.0
 *
 * Decaying insertions. See insert_decay.h. Test: tests/unit/test_insert_decay.c
 */
#include "client/insert/insert_decay.h"

#include <stdio.h>

static struct gp_decay decay_of(const struct gp_insert_set *s)
{
	return (struct gp_decay){
		.rate = s->rate, .every = (uint32_t)s->every, .times = (uint32_t)s->times, .l1 = s->l1};
}

void gp_insert_settle_decay(struct gp_insert_set *set, int64_t most)
{
	const struct gp_decay d = decay_of(set);
	const int64_t rank = set->settled ? gp_decay_rank(&d, most, set->steps) : most;
	if (set->settled)
		*set = (struct gp_insert_set){.kind = GP_INSERT_LINEAR, .dim = set->dim, .start = GP_INSERT_IDENTITY};
	set->rank = (int)(rank < 1 ? 1 : rank);
}

void gp_insert_settle(struct gp_insert_spec *spec, uint64_t steps)
{
	for (int i = 0; i < spec->sets; i++) {
		spec->set[i].settled = spec->set[i].kind == GP_INSERT_DECAY;
		spec->set[i].steps = steps;
	}
}

static void add_end(const struct gp_insert_spec *spec, const char *end, struct gp_decays *out)
{
	for (int i = 0; i < spec->sets; i++) {
		if (spec->set[i].kind != GP_INSERT_DECAY)
			continue;
		struct gp_decay *d = &out->decay[out->count++];
		*d = decay_of(&spec->set[i]);
		snprintf(d->encoder, sizeof d->encoder, GP_INSERT_PREFIX "%s.encoder.%d", end, i);
		snprintf(d->decoder, sizeof d->decoder, GP_INSERT_PREFIX "%s.decoder.%d", end, spec->sets - 1 - i);
	}
}

_Static_assert(GP_INSERT_ENDS *GP_INSERT_SETS <= GP_DECAYS_MAX, "more decays than an engine takes");

void gp_insertion_decays(const struct gp_insertion *ins, struct gp_decays *out)
{
	out->count = 0;
	for (int e = 0; e < GP_INSERT_ENDS; e++)
		add_end(&ins->end[e].spec, gp_insert_end_name[e], out);
}
