/* SPDX-License-Identifier: Apache-2.0
 *
 * See session.h. Test: tests/unit/test_resume_tokens.c, tests/unit/test_server_checkpoints.c,
 * tests/unit/test_server_slow_resume.c
 */
#include "server/session.h"

#include <math.h>
#include <openssl/sha.h>
#include <string.h>

#include "common/base/log.h"
#include "server/opening.h"
#include "server/session_status.h"
#include "server/usage.h"

#define RATE_WINDOW_S     30.0 /* of steps, which may take long */
#define ENDING_MOST       64   /* sessions that have ended and wait for the disk or for a device */
#define ENDING_NAMED      256  /* the same, where each name has a limit of its own (usage.h) */
#define HANDOVER_RETRY_MS 250  /* a run that goes from one server to another is there soon */
#define PARKED_LEFT       1    /* a client with so many parked sessions loses none to others */

static void on_gone(uv_handle_t *h)
{
	struct gp_server_session *s = h->data;
	struct gp_server *srv = s->srv;
	gp_free(s);
	gp_server_session_gone(srv);
}

bool gp_server_session_tell_fallback(const struct gp_server_session *s)
{
	char run[GP_RUN_ID_HEX];
	if (!s->body || !gp_body_keeps_checkpoints(s->body))
		return false;
	const uint64_t at = gp_body_steps(s->body), kept = gp_body_checkpoint_step(s->body);
	const char *why = gp_body_checkpoint_failure(s->body);
	gp_run_id_text(s->stored_as, run);
	if (at == kept)
		gp_log(main, GP_LOG_WARN, "run %.*s of session %llu goes on from step %llu, which is on disk",
		       GP_RUN_DIGITS_SHOWN, run, (unsigned long long)s->id, (unsigned long long)kept);
	else
		gp_log(main, GP_LOG_WARN, "run %.*s of session %llu falls back from step %llu to step %llu, %s%s%s",
		       GP_RUN_DIGITS_SHOWN, run, (unsigned long long)s->id, (unsigned long long)at,
		       (unsigned long long)kept, kept > 0 ? "its last one on disk" : "the start: nothing is on disk",
		       *why ? ": " : "", why);
	return at != kept;
}

static bool is_kept(const struct gp_server_session *s)
{
	return !s->body || !gp_body_keeps_checkpoints(s->body) ||
	       gp_body_checkpoint_step(s->body) == gp_body_steps(s->body);
}

static void free_session(struct gp_server_session *s)
{
	struct gp_server *srv = s->srv;
	if ((srv->draining || srv->stopping) && !s->left && !is_kept(s))
		srv->fallen_back += gp_server_session_tell_fallback(s);
	gp_usage_note_end(s);
	gp_tally_gone(s);
	gp_body_free(s->body);
	if (s->disk.worker)
		gp_lane_deinit(&s->disk);
	if (s->using)
		gp_state_dir_release(srv->state, s->stored_as);
	srv->memory_used_bytes -= s->memory_bytes;
	if (s->device)
		gp_server_device_leave(s->device, s->device_bytes);
	if (s->prev)
		s->prev->next = s->next;
	else
		srv->sessions = s->next;
	if (s->next)
		s->next->prev = s->prev;
	gp_usage_share_devices(srv, s->who);
	uv_close((uv_handle_t *)&s->window, on_gone);
}

/* A server that stops writes a checkpoint of what its sessions have reached, as it does for another one that goes on with the
 * run. Returns true while that is under way. */
static bool drain(struct gp_server_session *s)
{
	if (!(s->srv->draining || s->srv->stopping || s->handed_over) || s->drained || !s->body)
		return false;
	s->drained = true;
	return gp_body_checkpoint_at_rest(s->body);
}

static bool at_rest(const struct gp_server_session *s)
{
	return !s->link && !s->opening && s->disk.pending == 0 && !(s->body && gp_body_busy(s->body));
}

/* Returns true while the body is on its way to where the successor's client goes on. */
static bool rewind_body(struct gp_server_session *s)
{
	if (!s->successor_rewinds || (s->rewound && s->rewound_to == s->successor_steps))
		return false;
	s->rewound = true;
	s->rewound_to = s->successor_steps;
	gp_body_rewind(s->body, s->rewound_to);
	return gp_body_busy(s->body);
}

void gp_server_session_settle(struct gp_server_session *s)
{
	if (!at_rest(s))
		return;
	if (s->ending)
		gp_tally_sample(s);
	if (s->ending && (drain(s) || (s->body && gp_body_release(s->body))))
		return;
	if (s->ending) {
		free_session(s);
	} else if (s->successor && !rewind_body(s)) {
		struct gp_server_link *successor = s->successor;
		s->successor = NULL;
		gp_server_link_take(successor, s);
	}
}

static bool is_of_run(const struct gp_server_session *s, struct gp_span run_id, const char *who)
{
	return s->has_run_id && strcmp(s->who, who) == 0 && gp_secret_equal(s->run_id, run_id.data, GP_RUN_ID_BYTES);
}

/* A client that begins anew does not wait for what it left behind, but that holds once: it must not pile up. */
static bool has_left_behind(const struct gp_server *srv, struct gp_span run_id, const char *who)
{
	for (const struct gp_server_session *s = srv->sessions; s; s = s->next)
		if (s->superseded && (s->body || s->opening) && is_of_run(s, run_id, who))
			return true;
	return false;
}

/* GP_DENIED keeps two clients of one run, as of a folder of checkpoints that was copied, from taking it from each other for
 * ever. */
static void supersede(struct gp_server *srv, struct gp_span run_id, const char *who)
{
	const bool before = has_left_behind(srv, run_id, who);
	for (struct gp_server_session *s = srv->sessions, *next; s; s = next) {
		next = s->next;
		if (s->ending || !is_of_run(s, run_id, who))
			continue;
		s->superseded = !before;
		s->end_reason = GP_DENIED;
		if (s->link)
			gp_server_link_stop(s->link, GP_DENIED, "another client has taken this run over");
		gp_server_session_end(s);
	}
}

static int sessions_alive(const struct gp_server *srv)
{
	int n = 0;
	for (const struct gp_server_session *s = srv->sessions; s; s = s->next)
		n += gp_server_session_counts(s);
	return n;
}

static bool is_same_client(const struct gp_client_tag *a, const struct gp_client_tag *b)
{
	return memcmp(&a->key, &b->key, sizeof a->key) == 0;
}

static bool is_parked(const struct gp_server_session *s)
{
	return s->ready && !s->link && !s->successor && !s->ending;
}

/* Sessions of this client; parked: only those. */
static int sessions_of(const struct gp_server *srv, const struct gp_client_tag *client, bool parked)
{
	int n = 0;
	for (const struct gp_server_session *s = srv->sessions; s; s = s->next)
		n += is_same_client(&s->client, client) && (parked ? is_parked(s) : gp_server_session_counts(s));
	return n;
}

/* The session that is parked for longest, of the client that has most of them parked, and more than `most`. NULL: none. */
static struct gp_server_session *parked_to_end(const struct gp_server *srv, int most)
{
	struct gp_server_session *oldest = NULL;
	for (struct gp_server_session *s = srv->sessions; s; s = s->next) {
		if (!is_parked(s))
			continue;
		const int parked = sessions_of(srv, &s->client, true);
		if (parked < most || (parked == most && (!oldest || s->parked_ns > oldest->parked_ns)))
			continue;
		oldest = s;
		most = parked;
	}
	return oldest;
}

static bool room_is_coming(const struct gp_server *srv)
{
	for (const struct gp_server_session *s = srv->sessions; s; s = s->next)
		if (s->ending && gp_server_session_counts(s))
			return true;
	return false;
}

/* Who is away keeps nobody out with many sessions. The room may not be there before the newcomer comes again. All sessions are
 * compared with each other, so whoever asks often does not make the server look as often. */
static void make_room(struct gp_server *srv, const struct gp_client_tag *newcomer)
{
	char title[GP_SESSION_TITLE];
	const uint64_t now = gp_now_ns();
	if (room_is_coming(srv) || now - srv->made_room_ns < GP_SERVER_TICK_MS * UINT64_C(1000000))
		return;
	srv->made_room_ns = now;
	const int own = sessions_of(srv, newcomer, false);
	struct gp_server_session *s = parked_to_end(srv, own > PARKED_LEFT ? own : PARKED_LEFT);
	if (!s)
		return;
	s->end_reason = GP_BUSY;
	gp_server_session_event(
		s, GP_LOG_WARN, "session_ended", gp_status_name(GP_BUSY),
		"%s, parked, ends at step %llu: all of --max-sessions are taken, and its client has most "
		"parked ones",
		gp_server_session_title(s, title), (unsigned long long)gp_body_steps(s->body));
	gp_server_session_end(s);
}

static void enlist(struct gp_server_session *s)
{
	struct gp_server *srv = s->srv;
	s->next = srv->sessions;
	if (srv->sessions)
		srv->sessions->prev = s;
	srv->sessions = s;
	srv->session_count++;
}

/* Checkpoints of a client that has proved to be somebody are found, and overwritten, by the same alone: the name of
 * their folder is the start of SHA-256(run_id, who). */
static void set_run_id(struct gp_server_session *s, const uint8_t id[GP_RUN_ID_BYTES])
{
	uint8_t text[GP_RUN_ID_BYTES + GP_SERVER_WHO_BYTES], sum[SHA256_DIGEST_LENGTH];
	memcpy(s->run_id, id, GP_RUN_ID_BYTES);
	memcpy(s->stored_as, id, GP_RUN_ID_BYTES);
	if (!s->who[0])
		return;
	memcpy(text, id, GP_RUN_ID_BYTES);
	memcpy(text + GP_RUN_ID_BYTES, s->who, strlen(s->who));
	SHA256(text, GP_RUN_ID_BYTES + strlen(s->who), sum);
	memcpy(s->stored_as, sum, GP_RUN_ID_BYTES);
}

static enum gp_status check_quota(const struct gp_server *srv, const char *who, struct gp_err *err)
{
	const struct gp_limits *may = gp_limits_find(srv->limits, who);
	const struct gp_usage has = gp_usage_of(srv, who, NULL);
	GP_TRY(gp_usage_check_session(may, &has, who, err));
	return gp_usage_check_ended(srv, may, &has, who, err);
}

static enum gp_status check_room(struct gp_server *srv, const struct gp_client_tag *client, struct gp_err *err)
{
	const bool names = srv->set.tokens || srv->set.tls_client_ca;
	if (sessions_alive(srv) >= srv->set.max_sessions)
		make_room(srv, client);
	if (sessions_alive(srv) >= srv->set.max_sessions)
		GP_FAIL(err, GP_BUSY, "the server has no room for another session");
	if (srv->session_count >= srv->set.max_sessions + (names ? ENDING_NAMED : ENDING_MOST))
		GP_FAIL(err, GP_BUSY, "the server is still busy with sessions that have ended");
	return GP_OK;
}

/* The state of a session that was sent away, or is handed over, is being written: a new one would take the lease of the run
 * from it, and find an older step. The client comes again, here or elsewhere. */
static enum gp_status check_leaving(const struct gp_server *srv, struct gp_span run_id, const char *who,
				    struct gp_err *err)
{
	for (const struct gp_server_session *s = srv->sessions; s && run_id.len > 0; s = s->next)
		if ((s->moved || (s->handed_over && s->ending)) && is_of_run(s, run_id, who))
			GP_FAIL(err, GP_BUSY, "the run goes to another server, and its state is being written");
	return GP_OK;
}

enum gp_status gp_server_session_new(struct gp_server *srv, struct gp_server_link *link, struct gp_span run_id,
				     const char *who, const struct gp_client_tag *client,
				     struct gp_server_session **out, struct gp_err *err)
{
	if (check_leaving(srv, run_id, who, err) != GP_OK) {
		gp_server_link_retry_after(link, HANDOVER_RETRY_MS);
		return err->code;
	}
	if (run_id.len > 0)
		supersede(srv, run_id, who);
	GP_TRY(check_quota(srv, who, err));
	GP_TRY(check_room(srv, client, err));
	struct gp_server_session *s = gp_calloc(1, sizeof *s);
	if (!s)
		GP_FAIL(err, GP_NOMEM, "out of memory for a session");
	enum gp_status status = gp_random_bytes(s->token[0], GP_TOKEN_BYTES, err);
	if (status != GP_OK) {
		gp_free(s);
		return status;
	}
	s->tokens = 1;
	s->end_reason = GP_CANCELED; /* the server stops, unless somebody says otherwise */
	s->srv = srv;
	s->link = link;
	snprintf(s->who, sizeof s->who, "%s", who);
	s->id = ++srv->next_session;
	s->began_ns = gp_now_ns();
	gp_rate_init(&s->rate, RATE_WINDOW_S);
	s->loss = NAN;
	gp_rate_note(&s->rate, s->began_ns, (const uint64_t[GP_RATE_SERIES]){0});
	s->has_run_id = run_id.len > 0;
	if (s->has_run_id)
		set_run_id(s, run_id.data);
	uv_timer_init(srv->loop, &s->window);
	s->window.data = s;
	enlist(s);
	*out = s;
	return GP_OK;
}

void gp_server_session_prove(struct gp_server_session *s, const struct gp_server_proof *proof,
			     const struct gp_client_tag *client, const char *address)
{
	s->proof = *proof;
	s->client = *client;
	snprintf(s->address, sizeof s->address, "%s", address);
}

void gp_server_sessions_revoke(struct gp_server *srv)
{
	char title[GP_SESSION_TITLE];
	for (struct gp_server_session *s = srv->sessions, *next; s; s = next) {
		next = s->next;
		if (s->ending || !gp_server_revoked(&srv->credentials, &s->proof))
			continue;
		s->end_reason = GP_DENIED;
		gp_server_session_event(s, GP_LOG_WARN, "session_ended", gp_status_name(GP_DENIED),
					"%s, parked, ends: %s", gp_server_session_title(s, title), GP_SERVER_REVOKED);
		gp_server_session_end(s);
	}
}

enum gp_status gp_server_session_choose_device(struct gp_server_session *s, struct gp_err *err)
{
	struct gp_server_device *at;
	GP_TRY(gp_server_devices_choose(&s->srv->devices, s->precision, s->tried, &at, err));
	if (s->device)
		gp_server_device_leave(s->device, s->device_bytes);
	s->device = at;
	s->device_bytes = 0;
	s->tried |= gp_server_device_bit(&s->srv->devices, at);
	gp_usage_share_devices(s->srv, s->who);
	return GP_OK;
}

struct gp_server_session *gp_server_session_find(struct gp_server *srv, struct gp_span token)
{
	if (token.len != GP_TOKEN_BYTES)
		return NULL;
	for (struct gp_server_session *s = srv->sessions; s; s = s->next)
		for (int i = 0; i < s->tokens; i++)
			if (!s->ending && gp_secret_equal(s->token[i], token.data, GP_TOKEN_BYTES)) {
				s->presented = i;
				return s;
			}
	return NULL;
}

static void on_window_passed(uv_timer_t *timer)
{
	struct gp_server_session *s = timer->data;
	char title[GP_SESSION_TITLE], spent[GP_SESSION_SPENT];
	s->end_reason = GP_TIMEOUT;
	gp_server_session_event(
		s, GP_LOG_WARN, "session_ended", gp_status_name(GP_TIMEOUT),
		"nobody came for %s, parked at step %llu after %s and %llu steps: its %.0f MiB are free again",
		gp_server_session_title(s, title), (unsigned long long)gp_body_steps(s->body),
		gp_server_session_spent(s, spent), (unsigned long long)gp_server_session_steps(s),
		(double)s->memory_bytes / 1048576);
	gp_server_session_end(s);
}

static void start_window(struct gp_server_session *s)
{
	uv_timer_start(&s->window, on_window_passed, (uint64_t)(s->srv->set.resume_window_s * 1000), 0);
}

bool gp_server_session_may_park(const struct gp_server_session *s)
{
	return s->srv->set.resume_window_s > 0 && (!s->srv->draining || gp_body_awaits_commit(s->body));
}

void gp_server_session_drain(struct gp_server_session *s)
{
	if (s->ending || (s->link && gp_server_link_drain(s->link)))
		return;
	if (!s->successor && !gp_server_session_may_park(s))
		gp_server_session_end(s);
}

void gp_server_session_park(struct gp_server_session *s)
{
	gp_body_detach(s->body);
	if (s->using) /* who asked before the client was here last; a client that is elsewhere now asks again */
		gp_state_dir_unwant(s->srv->state, s->stored_as);
	s->srv->tally.parked++;
	s->parked_ns = gp_now_ns();
	start_window(s);
}

void gp_server_session_note_damage(struct gp_server_session *s)
{
	const uint64_t gains = gp_body_gains(s->body);
	if (gains != s->damaged_at)
		s->damages = 0;
	s->damaged_at = gains;
	s->damages++;
}

/* Its client hears of it when it comes back: the link that the last damage was seen on is of no use for that. */
static enum gp_status check_damages(const struct gp_server_session *s, struct gp_err *err)
{
	if (s->damages >= GP_DAMAGES_MOST && gp_body_gains(s->body) == s->damaged_at)
		GP_FAIL(err, GP_DAMAGED,
			"the link damages data: bytes came with a wrong checksum on %d links in a row, without a "
			"committed step between",
			s->damages);
	return GP_OK;
}

void gp_server_session_release(struct gp_server_session *s)
{
	s->link = NULL;
	gp_server_session_settle(s);
}

void gp_server_session_claim(struct gp_server_session *s, struct gp_server_link *successor, uint64_t client_steps,
			     bool rewind)
{
	uv_timer_stop(&s->window);
	s->successor = successor;
	s->successor_steps = client_steps;
	s->successor_rewinds = rewind;
	gp_server_session_settle(s);
}

void gp_server_session_unclaim(struct gp_server_session *s)
{
	s->successor = NULL;
	start_window(s);
	if (s->srv->draining)
		gp_server_session_drain(s);
}

enum gp_status gp_server_session_check_rewound(const struct gp_server_session *s, uint64_t client_hash,
					       struct gp_err *err)
{
	uint64_t hash;
	GP_TRY(gp_body_rewound(s->body, &hash, err));
	if (hash != client_hash)
		GP_FAIL(err, GP_PROTO,
			"the codecs of both ends remember different things at step %llu: the session cannot go on",
			(unsigned long long)s->rewound_to);
	return GP_OK;
}

enum gp_status gp_server_session_resume(struct gp_server_session *s, struct gp_err *err)
{
	uint8_t token[GP_TOKEN_BYTES];
	GP_TRY(check_damages(s, err));
	s->rewound = false; /* from here on the body goes on */
	GP_TRY(gp_random_bytes(token, sizeof token, err));
	memcpy(s->token[1], s->token[s->presented], GP_TOKEN_BYTES);
	memcpy(s->token[0], token, GP_TOKEN_BYTES);
	s->tokens = 2;
	return GP_OK;
}

void gp_server_session_end(struct gp_server_session *s)
{
	if (s->ending)
		return;
	s->ending = true;
	gp_stop_set(&s->stop);
	s->left = !s->srv->draining && !s->srv->stopping;
	gp_tally_sample(s);
	gp_tally_ended(s, s->end_reason);
	if (s->successor)
		gp_server_link_stop(s->successor, GP_CANCELED, "the session has ended");
	uv_timer_stop(&s->window);
	gp_server_opening_stop(s->opening);
	if (s->body)
		gp_body_stop(s->body);
	gp_server_session_settle(s);
}

/* Checkpoints. */

/* The run is another server's, or its folder is not as it should be. A disk that fails otherwise does not end a training. */
static bool is_refused(const struct gp_task *find)
{
	return find->status == GP_BUSY || find->status == GP_INVALID;
}

static void run_find(struct gp_task *task)
{
	struct gp_server_session *s = task->arg;
	if (gp_stop_is_set(&s->stop)) { /* nobody waits for it: no other server is to be asked for the run */
		task->status = gp_err_set(&task->err, GP_CANCELED, 0, __FILE__, __LINE__, "the session has ended");
		return;
	}
	task->status = gp_state_dir_hold(s->srv->state, s->stored_as, &s->lease, &task->err);
	if (is_refused(task))
		return;
	if (gp_state_dir_common(s->srv->state, s->stored_as, s->listed, s->listed_count, &s->stored, &task->err) !=
	    GP_OK) {
		task->status = GP_BUSY; /* its client comes again */
		return;
	}
	s->theirs_count = s->stored ? 0 : gp_state_dir_list(s->srv->state, s->stored_as, s->theirs);
}

/* The client may have left while the disk was read. */
static void find_done(struct gp_task *task)
{
	struct gp_server_session *s = task->arg;
	if (s->ending || !s->link) {
		gp_server_session_settle(s);
	} else if (is_refused(task)) {
		gp_server_link_retry_after(s->link,
					   HANDOVER_RETRY_MS); /* mostly another server has it, and was asked */
		gp_server_link_stop(s->link, task->status, task->err.text);
	} else {
		gp_server_link_welcome(s->link, s->stored);
	}
}

enum gp_status gp_server_session_find_stored(struct gp_server_session *s, const uint64_t *step, size_t count,
					     struct gp_err *err)
{
	struct gp_server *srv = s->srv;
	s->checkpoints = s->has_run_id && count > 0;
	if (!s->checkpoints || !srv->state) {
		gp_server_link_welcome(s->link, 0);
		return GP_OK;
	}
	GP_TRY(gp_state_dir_use(srv->state, s->stored_as, s->who, err)); /* what WELCOME names is there for OPEN */
	s->using = true;
	s->listed_count = count < GP_CHECKPOINTS_MAX ? count : GP_CHECKPOINTS_MAX;
	memcpy(s->listed, step, s->listed_count * sizeof *step);
	s->find = (struct gp_task){.run = run_find, .done = find_done, .arg = s};
	gp_lane_init(&s->disk, srv->disk, NULL);
	gp_worker_submit(&s->disk, &s->find, 0);
	return GP_OK;
}

enum gp_status gp_server_session_use_state(struct gp_server_session *s, uint64_t restore_step,
					   struct gp_body_spec *spec, struct gp_err *err)
{
	struct gp_server *srv = s->srv;
	const bool checkpoints = s->checkpoints && srv->state && !spec->session.eval_only;
	if (restore_step > 0 && (!checkpoints || spec->weights > 0))
		GP_FAIL(err, GP_INVALID, "open: restore_step %llu in a session that cannot have it",
			(unsigned long long)restore_step);
	if (!checkpoints)
		return GP_OK;
	spec->session.undo = true; /* a server that stops checkpoints the state after the last commit */
	spec->state = srv->state;
	spec->lease = s->lease;
	memcpy(spec->run_id, s->stored_as, sizeof spec->run_id);
	spec->restore_step = s->restored_step = restore_step;
	return GP_OK;
}
