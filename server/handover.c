/* SPDX-License-Identifier: Apache-2.0
 *
 * See handover.h. Test: tests/unit/test_server_sharing.c, tests/e2e/shared_state.sh
 */
#include "server/handover.h"

#include "server/link.h"
#include "server/session_status.h"
#include "server/state_dir.h"

/*
 * Another server asks once for each time that the client tries there. A client that has tried there, and come back here
 * since, must not lose its session for that: one that is connected is asked for twice. The other one's client tries again.
 */
#define WANTS_PARKED 1
#define WANTS_LINKED 2

#define LOST   "this server could not renew its lease of the run in --state-dir in time: another server may go on with it"
#define WANTED "another client has taken this run over, at another server that shares --state-dir"

static void end(struct gp_server_session *s, enum gp_status status, const char *text)
{
	char title[GP_SESSION_TITLE];
	if (s->link)
		gp_server_link_stop(s->link, status, text);
	if (s->ending)
		return;
	s->end_reason = status;
	gp_server_session_event(s, GP_LOG_WARN, "session_ended", gp_status_name(status), "%s, parked, ends: %s",
				gp_server_session_title(s, title), text);
	gp_server_session_end(s);
}

static bool is_wanted(const struct gp_server_session *s)
{
	const bool linked = s->link && s->link->state != GP_LINK_CLOSED;
	const uint64_t wants = gp_state_dir_wants(s->srv->state, s->stored_as);
	return !s->successor && wants >= (linked ? WANTS_LINKED : WANTS_PARKED);
}

bool gp_server_handover_lost(struct gp_server_session *s)
{
	if (!s->using || !gp_state_dir_is_lost(s->srv->state, s->stored_as, s->lease))
		return false;
	end(s, GP_CANCELED, LOST);
	return true;
}

static void look_at(struct gp_server_session *s)
{
	if (gp_server_handover_lost(s) || !is_wanted(s))
		return;
	s->handed_over = true;
	end(s, GP_DENIED, WANTED);
}

void gp_server_handover_look(struct gp_server *srv)
{
	const bool reason = srv->state && (gp_state_dir_has_news(srv->state) || srv->runs_unsettled);
	if (!reason)
		return;
	srv->runs_unsettled = false;
	for (struct gp_server_session *s = srv->sessions, *next; s; s = next) {
		next = s->next;
		if (!s->using || s->ending)
			continue;
		const bool locking = s->disk.pending > 0; /* the lease is the disk's thread's to write */
		if (!locking)
			look_at(s);
		srv->runs_unsettled |= !s->ending && (locking || gp_state_dir_wants(srv->state, s->stored_as) > 0);
	}
}
