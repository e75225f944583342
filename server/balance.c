/* SPDX-License-Identifier: Apache-2.0
 *
 * See balance.h. Test: tests/unit/test_balance.c
 */
#include "server/balance.h"

#include <stdlib.h>
#include <string.h>

#define LEAST_DIFFERENCE 2   /* in sessions: with one less, the move would only turn the two around */
#define DIFFERENCE_PART  8   /* of its own sessions, for servers that have many */
#define PAUSE_LEASES     0.5 /* a beat is written and read within two fifths; the rest is for the client's way */

static double seconds(uint64_t from_ns, uint64_t to_ns)
{
	return to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0.0;
}

double gp_balance_pause_s(const struct gp_balance *b, const struct gp_fleet_view *others)
{
	const double beats = others->lease_s * PAUSE_LEASES;
	return b->pause_s > beats ? b->pause_s : beats;
}

/* --- who sends ------------------------------------------------------------------------------------------------------ */

static bool takes(const struct gp_beat_load *l)
{
	return l->room > 0 && !l->drains;
}

static bool gives(const struct gp_beat_load *l)
{
	return l->movable > 0 && !l->drains;
}

/* All servers put each other into the same order, so ties are broken alike. */
static int by_sessions(const struct gp_fleet_server *x, const struct gp_fleet_server *y)
{
	if (x->load.sessions != y->load.sessions)
		return x->load.sessions < y->load.sessions ? -1 : 1;
	return strcmp(x->owner, y->owner);
}

static int compare(const void *x, const void *y)
{
	return by_sessions(x, y);
}

/* How many of those that could send have more. */
static int rank_from_above(const struct gp_fleet_server *self, const struct gp_fleet_view *others)
{
	int rank = 0;
	for (int i = 0; i < others->count; i++)
		rank += gives(&others->other[i].load) && by_sessions(&others->other[i], self) > 0;
	return rank;
}

/* False: there is none in that place. */
static bool find_counterpart(const struct gp_fleet_server *self, const struct gp_fleet_view *others,
			     struct gp_fleet_server *out)
{
	struct gp_fleet_server taker[GP_FLEET_SEEN + 1];
	int n = 0;
	if (takes(&self->load))
		taker[n++] = *self;
	for (int i = 0; i < others->count; i++)
		if (takes(&others->other[i].load))
			taker[n++] = others->other[i];
	qsort(taker, (size_t)n, sizeof taker[0], compare);
	const int rank = rank_from_above(self, others);
	if (rank >= n)
		return false;
	*out = taker[rank];
	return true;
}

static uint32_t difference_for(uint32_t sessions)
{
	const uint32_t part = (sessions + DIFFERENCE_PART - 1) / DIFFERENCE_PART;
	return part > LEAST_DIFFERENCE ? part : LEAST_DIFFERENCE;
}

static bool has_too_many(const struct gp_fleet_server *self, const struct gp_fleet_server *counterpart)
{
	return self->load.sessions >= counterpart->load.sessions + difference_for(self->load.sessions);
}

/* --- how often ------------------------------------------------------------------------------------------------------ */

/* A server that is gone says nothing about it. */
static bool has_helped(const struct gp_balance *b, const struct gp_fleet_view *now)
{
	int64_t more = 0;
	for (int i = 0; i < b->emptier_count; i++)
		for (int k = 0; k < now->count; k++)
			if (strcmp(now->other[k].owner, b->emptier[i].owner) == 0)
				more += (int64_t)now->other[k].load.sessions - (int64_t)b->emptier[i].load.sessions;
	return more > 0;
}

static void judge(struct gp_balance *b, const struct gp_fleet_view *others)
{
	b->unjudged = false;
	if (has_helped(b, others))
		b->useless = 0;
	else if (b->useless < GP_BALANCE_USELESS_MAX)
		b->useless++;
}

/* Whether the pause after the last move is over. */
static bool may_send(struct gp_balance *b, const struct gp_fleet_view *others, uint64_t now_ns)
{
	const double pause_s = gp_balance_pause_s(b, others), since_s = seconds(b->moved_ns, now_ns);
	if (b->moved_ns == 0)
		return true;
	if (since_s < pause_s)
		return false;
	if (b->unjudged)
		judge(b, others);
	return since_s >= pause_s * (double)(1u << b->useless);
}

static struct gp_fleet_server as_server(const struct gp_balance_self *self)
{
	struct gp_fleet_server s = {.load = self->load};
	memcpy(s.owner, self->owner, sizeof s.owner);
	return s;
}

bool gp_balance_wants(struct gp_balance *b, const struct gp_balance_self *self, const struct gp_fleet_view *others,
		      uint64_t now_ns, struct gp_fleet_server *counterpart)
{
	const struct gp_fleet_server own = as_server(self);
	struct gp_fleet_server found;
	if (!may_send(b, others, now_ns) || !gives(&own.load) || !find_counterpart(&own, others, &found) ||
	    !has_too_many(&own, &found))
		return false;
	if (counterpart)
		*counterpart = found;
	return true;
}

void gp_balance_moved(struct gp_balance *b, const struct gp_balance_self *self, const struct gp_fleet_view *others,
		      uint64_t now_ns)
{
	b->moved_ns = now_ns;
	b->unjudged = true;
	b->emptier_count = 0;
	for (int i = 0; i < others->count; i++)
		if (others->other[i].load.sessions + LEAST_DIFFERENCE <= self->load.sessions)
			b->emptier[b->emptier_count++] = others->other[i];
}
