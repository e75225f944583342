/* SPDX-License-Identifier: Apache-2.0
 *
 * Split training: how many chunks are in flight. A chunk is on its way for two
 * round trips (ACT_UP to ACT_DOWN, GRAD_UP to GRAD_DOWN), and what the link could
 * carry meanwhile has to be in flight, too: over the rate times two round trips.
 * The round trip is the time from HELLO to WELCOME. The rate is not known before
 * anything has crossed: a fast one is taken for granted, so that the window is
 * rather too large than too small, which costs memory and no time. On a
 * local network, where round trips are short, the window stays as it is.
 *
 * Memory: this side's plans and frames may grow into half of what is free; a
 * server that has none for the window is asked for half of it
 * (client_session.c).
 *
 * Threads: the engine's own. Test: tests/unit/test_window.c
 */
#include "client/engine/engine_split.h"

#include "client/session/chunk_window.h"
#include "common/base/log.h"

static void add_chunk_bytes(struct gp_flow *flow, void *arg)
{
	uint64_t *sum = arg;
	const struct gp_direction_info *way = &gp_direction_info[flow->direction];
	sum[way->up] += flow->slot[0].frame.cap;
}

/* On the wire, at most, in the direction that carries more. */
static uint64_t chunk_bytes(struct split_engine *e)
{
	uint64_t sum[2] = {0};
	gp_flows_each(&e->flows, add_chunk_bytes, sum);
	const uint64_t most = sum[0] > sum[1] ? sum[0] : sum[1];
	return most > 0 ? most : 1;
}

/* Free memory of the machine, and no more than the limit of this process's control group. */
static uint64_t free_bytes(void)
{
	const uint64_t free = uv_get_free_memory(), group = uv_get_constrained_memory();
	return group > 0 && group < free ? group : free;
}

/* Memory grows with each chunk by its part of what it is now, at most. */
static int room_for(struct split_engine *e, int now)
{
	const uint64_t each = gp_split_memory_bytes(e) / (uint64_t)now + 1;
	const uint64_t more = free_bytes() / 2 / each;
	return more < INT32_MAX / 2 ? now + (int)more : INT32_MAX;
}

static int least(int a, int b)
{
	return a < b ? a : b;
}

enum gp_status gp_split_choose_window(void *arg, double round_trip_s, int most, struct gp_err *err)
{
	struct split_engine *e = arg;
	const int now = e->base.spec.session.window;
	const int wanted = gp_window_for(now, e->base.spec.session.chunks, chunk_bytes(e), round_trip_s);
	const int window = least(wanted, least(most, room_for(e, now)));
	if (window <= now)
		return GP_OK;
	gp_log(session, GP_LOG_INFO, "a round trip of %.3g ms: up to %d chunks are in flight", round_trip_s * 1e3,
	       window);
	if (gp_split_set_window(e, window, err) == GP_OK)
		return GP_OK;
	return gp_split_set_window(e, now, err);
}
