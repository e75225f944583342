/* SPDX-License-Identifier: Apache-2.0
 *
 * See usage.h. Test: tests/unit/test_limits.c, tests/unit/test_server_limits.c
 */
#include "server/usage.h"

#include <string.h>

#include "common/base/log.h"
#include "common/base/text.h"
#include "server/session.h"

#define ENDED_A_NAME 16 /* sessions that have ended and wait, however many it may have open */

static double mib(uint64_t bytes)
{
	return (double)bytes / 1048576;
}

/* --- what is taken ----------------------------------------------------------------------------------------------- */

struct gp_usage gp_usage_of(const struct gp_server *srv, const char *who, const struct gp_server_session *but)
{
	struct gp_usage u = {0, 0, 0, 0};
	for (const struct gp_server_session *s = srv->sessions; s; s = s->next) {
		if (s == but || strcmp(s->who, who) != 0)
			continue;
		u.sessions += gp_server_session_counts(s);
		u.ended += !gp_server_session_counts(s);
		u.memory_bytes += s->memory_bytes;
		u.device_bytes += s->device_bytes;
	}
	return u;
}

/* --- refusals ---------------------------------------------------------------------------------------------------- */

/* The name as the client is told it: its own. */
static const char *shown(const char *who, char text[GP_SHOWN])
{
	return who[0] ? gp_text_shown(gp_text_of(who), text) : "clients without a name";
}

enum gp_status gp_usage_check_session(const struct gp_limits *may, const struct gp_usage *has, const char *who,
				      struct gp_err *err)
{
	char name[GP_SHOWN];
	if (has->sessions < may->sessions)
		return GP_OK;
	if (may->sessions == 0)
		GP_FAIL(err, GP_DENIED, "one session is asked for, and %s may have none here (--limits)",
			shown(who, name));
	GP_FAIL(err, GP_BUSY,
		"one more session is asked for; %s may have %llu (--limits) and in use are %llu, parked ones included",
		shown(who, name), (unsigned long long)may->sessions, (unsigned long long)has->sessions);
}

/* Where clients have no names they are one, and the server's own limit is theirs. One more than sessions, so that a client that
 * begins anew need not wait for what it left behind. */
static uint64_t ended_most(const struct gp_server *srv, const struct gp_limits *may)
{
	if (!srv->set.tokens && !srv->set.tls_client_ca)
		return GP_LIMITS_ANY;
	return may->sessions < ENDED_A_NAME ? may->sessions + 1 : ENDED_A_NAME;
}

enum gp_status gp_usage_check_ended(const struct gp_server *srv, const struct gp_limits *may,
				    const struct gp_usage *has, const char *who, struct gp_err *err)
{
	char name[GP_SHOWN];
	const uint64_t most = ended_most(srv, may);
	if (has->ended >= most)
		GP_FAIL(err, GP_BUSY,
			"the server is still busy with sessions that have ended: %s has %llu of them, and may have "
			"%llu",
			shown(who, name), (unsigned long long)has->ended, (unsigned long long)most);
	return GP_OK;
}

static enum gp_status check_bytes(uint64_t may, uint64_t has, const char *what, const char *who, uint64_t bytes,
				  struct gp_err *err)
{
	char name[GP_SHOWN];
	if (bytes > may)
		GP_FAIL(err, GP_NOMEM,
			"this session needs %.1f MiB of %s, %s may have %.1f MiB in all (--limits); use smaller chunks "
			"or a smaller window",
			mib(bytes), what, shown(who, name), mib(may));
	if (bytes > 0 && (has > may || bytes > may - has))
		GP_FAIL(err, GP_BUSY,
			"this session needs %.1f MiB of %s; %s may have %.1f MiB in all (--limits) and in use are %.1f "
			"MiB",
			mib(bytes), what, shown(who, name), mib(may), mib(has));
	return GP_OK;
}

enum gp_status gp_usage_check_memory(const struct gp_limits *may, const struct gp_usage *has, const char *who,
				     uint64_t bytes, struct gp_err *err)
{
	return check_bytes(may->memory_bytes, has->memory_bytes, "memory", who, bytes, err);
}

enum gp_status gp_usage_check_device(const struct gp_limits *may, const struct gp_usage *has, const char *who,
				     uint64_t bytes, struct gp_err *err)
{
	return check_bytes(may->device_bytes, has->device_bytes, "the devices' memory", who, bytes, err);
}

enum gp_status gp_usage_reserve_memory(struct gp_server_session *s, uint64_t bytes, struct gp_err *err)
{
	struct gp_server *srv = s->srv;
	const struct gp_usage others = gp_usage_of(srv, s->who, s);
	if (bytes > srv->session_memory_bytes)
		GP_FAIL(err, GP_NOMEM,
			"this session needs %.0f MiB, the server allows %.0f MiB; use smaller chunks or a smaller "
			"window",
			mib(bytes), mib(srv->session_memory_bytes));
	GP_TRY(gp_usage_check_memory(gp_limits_find(srv->limits, s->who), &others, s->who, bytes, err));
	if (bytes > srv->memory_limit_bytes - (srv->memory_used_bytes - s->memory_bytes))
		GP_FAIL(err, GP_BUSY, "this session needs %.0f MiB, but other sessions have taken the server's memory",
			mib(bytes));
	srv->memory_used_bytes += bytes - s->memory_bytes;
	s->memory_bytes = bytes;
	return GP_OK;
}

enum gp_status gp_usage_begin_link(struct gp_server *srv, const char *who, uint64_t now_ns, uint32_t *wait_ms,
				   struct gp_err *err)
{
	char name[GP_SHOWN];
	const uint64_t most = gp_limits_find(srv->limits, who)->links;
	if (most == GP_LIMITS_ANY)
		return GP_OK;
	const uint64_t wait_ns = gp_visitors_link(srv->log.visitors, gp_visitor_of_name(who), (int64_t)most, now_ns);
	if (wait_ns == 0)
		return GP_OK;
	*wait_ms = (uint32_t)(wait_ns / 1000000) + 2; /* timers count whole milliseconds */
	GP_FAIL(err, GP_BUSY,
		"one more link is asked for; %s may begin %llu in a minute (--limits), all of them are used, and the "
		"next is free in %u s",
		shown(who, name), (unsigned long long)most, (*wait_ms + 999) / 1000);
}

/* --- shares of a device ------------------------------------------------------------------------------------------ */

static bool is_placed(const struct gp_server_session *s, const char *who)
{
	return s->device && strcmp(s->who, who) == 0;
}

void gp_usage_share_devices(struct gp_server *srv, const char *who)
{
	const double share = gp_limits_find(srv->limits, who)->device_share;
	int sessions[GP_SERVER_DEVICES_MAX] = {0};
	for (const struct gp_server_session *s = srv->sessions; s; s = s->next)
		if (is_placed(s, who))
			sessions[s->device - srv->devices.device]++;
	for (struct gp_server_session *s = srv->sessions; s; s = s->next) {
		if (!is_placed(s, who))
			continue;
		s->device_share = share > 0.0 ? share / sessions[s->device - srv->devices.device] : 1.0;
		if (s->body)
			gp_body_set_share(s->body, s->device_share);
	}
}

/* --- turns on a device ------------------------------------------------------------------------------------------- */

static int device_number(const struct gp_server_session *s)
{
	return (int)(s->device - s->srv->devices.device);
}

void gp_usage_follow(struct gp_server_session *s)
{
	const struct gp_server *srv = s->srv;
	uint64_t used = gp_visitors_used(srv->log.visitors, s->client.key, device_number(s));
	for (const struct gp_server_session *other = srv->sessions; other; other = other->next) {
		const bool same = memcmp(&other->client.key, &s->client.key, sizeof s->client.key) == 0;
		if (!same || !other->ending || !other->body || other->device != s->device)
			continue;
		const uint64_t its = gp_body_share_used(other->body);
		used = its > used ? its : used;
	}
	gp_body_share_follow(s->body, used);
}

void gp_usage_note_end(const struct gp_server_session *s)
{
	if (s->body && s->ready)
		gp_visitors_note_used(s->srv->log.visitors, s->client.key, device_number(s),
				      gp_body_share_used(s->body), gp_now_ns());
}

/* --- the file ---------------------------------------------------------------------------------------------------- */

/* Where clients have no names they are one, which has all. */
static struct gp_limits base_of(const struct gp_server *srv)
{
	const uint64_t any = GP_LIMITS_ANY;
	struct gp_limits l = {any, any, any, any, any, any, any, 0.0};
	const struct gp_state_limits state = gp_server_state_limits(&srv->set);
	l.checkpoint_bytes = state.client_bytes;
	l.runs = (uint64_t)state.client_runs;
	if (srv->set.measure_rate > 0)
		l.measures = (uint64_t)srv->set.measure_rate;
	return l;
}

struct sum {
	const struct gp_limits_table *limits;
	uint64_t most, bytes;
	size_t names;
};

static void add_share(struct sum *s, const struct gp_limits *l)
{
	s->bytes += l->checkpoint_bytes < s->most ? l->checkpoint_bytes : s->most;
	s->names++;
}

static void add_line(void *arg, const char *name, const struct gp_limits *l)
{
	(void)name;
	add_share(arg, l);
}

static void add_token(void *arg, const char *token_name)
{
	struct sum *s = arg;
	char who[GP_SERVER_WHO_BYTES];
	gp_server_write_who("", token_name, who);
	add_share(s, gp_limits_find(s->limits, who));
}

/* Sums up over the names that are known: those of the tokens, or, as nobody knows which certificates there are, those that have a
 * line. */
static void tell_shares(const struct gp_server *srv)
{
	struct sum s = {.limits = srv->limits, .most = (uint64_t)srv->set.state_max_bytes};
	struct gp_err err;
	const bool by_token = srv->credentials.tokens && !srv->set.tls_client_ca;
	if (!srv->state)
		return;
	if (!by_token)
		gp_limits_each_name(srv->limits, add_line, &s);
	else if (gp_token_file_each_name(srv->credentials.tokens, add_token, &s, &err) != GP_OK)
		return;
	if (s.names > 1 && s.bytes > s.most)
		gp_log(main, GP_LOG_WARN,
		       "the checkpoints of %zu names may come to %.1f MiB together, and --state-max is %.1f MiB: names "
		       "that use up their shares leave nothing for others (--limits, --state-max-per-client)",
		       s.names, mib(s.bytes), mib(s.most));
}

static void tell_misfit(const struct gp_server *srv)
{
	const struct gp_server_settings *set = &srv->set;
	int line;
	const char *name = gp_limits_misfit(srv->limits, set->tls_client_ca, set->tokens, &line);
	const char *have = set->tls_client_ca && set->tokens ? "cert:...,token:..."
			   : set->tls_client_ca              ? "cert:..."
			   : set->tokens                     ? "token:..."
							     : "none";
	if (name)
		gp_log(main, GP_LOG_WARN, "%s:%d: no client of this server is called %s: the names here are %s",
		       set->limits, line, name, have);
}

static void share_all(struct gp_server *srv)
{
	for (const struct gp_server_session *s = srv->sessions; s; s = s->next)
		gp_usage_share_devices(srv, s->who);
}

enum gp_status gp_usage_load_limits(struct gp_server *srv, struct gp_err *err)
{
	const struct gp_limits base = base_of(srv);
	struct gp_limits_table *fresh;
	if (gp_limits_load(srv->set.limits, &base, &fresh, err) != GP_OK)
		return gp_err_prefix(err, "--limits");
	if (srv->state && srv->set.limits)
		gp_state_dir_set_shares(srv->state, fresh);
	gp_limits_free(srv->limits);
	srv->limits = fresh;
	share_all(srv);
	tell_misfit(srv);
	tell_shares(srv);
	return GP_OK;
}

void gp_usage_free_limits(struct gp_server *srv)
{
	gp_limits_free(srv->limits);
	srv->limits = NULL;
}
