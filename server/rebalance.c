/* SPDX-License-Identifier: Apache-2.0
 *
 * See rebalance.h. Test: tests/unit/test_server_rebalance.c, tests/e2e/rebalance.sh
 */
#include "server/rebalance.h"

#include <string.h>

#include "server/link.h"
#include "server/session_status.h"
#include "server/state_dir.h"

#define LOOK_NS UINT64_C(1000000000) /* beats come more seldom */

/* --- what there is to do here --------------------------------------------------------------------------------------- */

/* Its state can be written when it ends, as far as that is known: there was room for a checkpoint of it before. */
static bool is_kept(const struct gp_server_session *s)
{
	return s->using && s->lease > 0 && s->body && gp_body_keeps_checkpoints(s->body) &&
	       gp_body_checkpoint_step(s->body) > 0 && !*gp_body_checkpoint_failure(s->body);
}

static bool is_movable(const struct gp_server_session *s)
{
	return s->moves && s->ready && !s->ending && !s->successor && is_kept(s);
}

static bool device_is_well(const struct gp_server *srv)
{
	for (int i = 0; i < srv->devices.count; i++)
		if (!srv->devices.device[i].lost)
			return true;
	return false;
}

/* One whose client is away is no work now, and comes back wherever there is room; but its place is taken. */
static struct gp_beat_load load_of(const struct gp_server *srv)
{
	struct gp_beat_load l = {.known = true, .drains = srv->draining || srv->stopping};
	int64_t taken = 0;
	for (const struct gp_server_session *s = srv->sessions; s; s = s->next) {
		const bool linked = s->link && !s->ending;
		l.sessions += linked;
		l.movable += linked && is_movable(s);
		taken += gp_server_session_counts(s);
	}
	const int64_t room = device_is_well(srv) ? srv->set.max_sessions - taken : 0;
	l.room = room > 0 ? (uint32_t)room : 0;
	return l;
}

static void describe_self(const struct gp_server *srv, struct gp_balance_self *out)
{
	struct gp_state_figures f;
	gp_state_dir_figures(srv->state, &f);
	memcpy(out->owner, f.owner, sizeof out->owner);
	out->load = load_of(srv);
}

void gp_server_rebalance_look(struct gp_server *srv)
{
	struct gp_server_rebalance *r = &srv->rebalance;
	struct gp_balance_self self;
	struct gp_fleet_view others;
	const uint64_t now = gp_now_ns();
	if (!srv->state || now - r->looked_ns < LOOK_NS)
		return;
	r->looked_ns = now;
	describe_self(srv, &self);
	gp_state_dir_tell_load(srv->state, &self.load);
	r->state.pause_s = srv->set.rebalance_s;
	gp_state_dir_fleet(srv->state, &others);
	r->wanted = srv->set.rebalance_s > 0 && others.count > 0 &&
		    gp_balance_wants(&r->state, &self, &others, now, &r->counterpart);
}

/* --- sending one away ----------------------------------------------------------------------------------------------- */

static bool has_stayed(const struct gp_server_session *s, const struct gp_fleet_view *others, uint64_t now_ns)
{
	const double pause_s = gp_balance_pause_s(&s->srv->rebalance.state, others);
	return (double)(now_ns - s->began_ns) * 1e-9 >= GP_BALANCE_STAY_PAUSES * pause_s;
}

static void send_away(struct gp_server_link *l, const struct gp_balance_self *self)
{
	struct gp_server_session *s = l->session;
	const struct gp_fleet_server *to = &l->srv->rebalance.counterpart;
	char title[GP_SESSION_TITLE], run[GP_RUN_ID_HEX];
	gp_run_id_text(s->stored_as, run);
	s->moved = s->handed_over = true;
	l->srv->tally.moved++;
	gp_server_session_event(s, GP_LOG_INFO, "session_moved", NULL,
				"%s is sent to another server at step %llu (run %.*s): there are %u sessions here, and %u "
				"at server %s (--rebalance)",
				gp_server_session_title(s, title), (unsigned long long)gp_body_steps(s->body),
				GP_RUN_DIGITS_SHOWN, run, self->load.sessions, to->load.sessions, to->owner);
	gp_server_link_stop(l, GP_CANCELED, GP_SERVER_MOVES);
}

void gp_server_rebalance_stepped(struct gp_server_link *l)
{
	struct gp_server_rebalance *r = &l->srv->rebalance;
	struct gp_balance_self self;
	struct gp_fleet_view others;
	const uint64_t now = gp_now_ns();
	if (!r->wanted || l->state != GP_LINK_RUN || !is_movable(l->session))
		return;
	gp_state_dir_fleet(l->srv->state, &others);
	if (!has_stayed(l->session, &others, now))
		return;
	describe_self(l->srv, &self);
	r->wanted = false;
	gp_balance_moved(&r->state, &self, &others, now);
	send_away(l, &self);
}
