/* SPDX-License-Identifier: Apache-2.0
 *
 * See clock_offset.h. Test: tests/unit/test_clock_offset.c
 */
#include "client/trace/clock_offset.h"

void gp_clock_offset_reset(struct gp_clock_offset *c)
{
	*c = (struct gp_clock_offset){.count = 0};
}

void gp_clock_offset_add(struct gp_clock_offset *c, uint64_t sent_ns, uint64_t answered_ns, uint64_t server_ns)
{
	if (answered_ns < sent_ns)
		return;
	const uint64_t half = (answered_ns - sent_ns) / 2;
	/* Differences of unsigned numbers, taken as signed ones: right for any two clocks, and defined for any server's. */
	c->sample[c->count++ % GP_CLOCK_SAMPLES] =
		(struct gp_clock_sample){.at_ns = answered_ns,
					 .offset_ns = (int64_t)(server_ns - (sent_ns + half)),
					 .round_trip_ns = answered_ns - sent_ns};
}

static uint64_t doubt(const struct gp_clock_sample *s, uint64_t now_ns)
{
	const uint64_t age = now_ns > s->at_ns ? now_ns - s->at_ns : 0;
	return s->round_trip_ns / 2 + age / 1000000 * GP_CLOCK_DRIFT_PPM + 1;
}

struct gp_clock_estimate gp_clock_offset_at(const struct gp_clock_offset *c, uint64_t now_ns)
{
	struct gp_clock_estimate best = {.known = false};
	for (unsigned i = 0; i < GP_CLOCK_SAMPLES && i < c->count; i++) {
		const struct gp_clock_sample *s = &c->sample[i];
		const uint64_t left = doubt(s, now_ns);
		if (!best.known || left < best.uncertainty_ns)
			best = (struct gp_clock_estimate){true, s->offset_ns, left};
	}
	return best;
}

uint64_t gp_clock_here(const struct gp_clock_estimate *e, uint64_t server_ns)
{
	const uint64_t here = server_ns - (uint64_t)e->offset_ns;
	const bool below = e->offset_ns > 0 && server_ns < (uint64_t)e->offset_ns;
	return below ? 0 : here;
}
