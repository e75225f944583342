/* SPDX-License-Identifier: Apache-2.0
 *
 * See session.h. Test: tests/unit/test_resume_tokens.c, tests/unit/test_server_checkpoints.c
 */
#include "server/session.h"

#include <openssl/sha.h>
#include <string.h>

#include "common/base/log.h"

static void on_gone(uv_handle_t *h)
{
	struct gp_server_run *r = h->data;
	struct gp_server *srv = r->srv;
	gp_free(r);
	gp_server_run_gone(srv);
}

static void free_run(struct gp_server_run *r)
{
	struct gp_server *srv = r->srv;
	gp_body_free(r->body);
	if (r->using)
		gp_state_dir_release(srv->state, r->kept_as);
	srv->memory_used_bytes -= r->memory_bytes;
	if (r->device)
		gp_server_device_leave(r->device, r->device_bytes);
	if (r->prev)
		r->prev->next = r->next;
	else
		srv->runs = r->next;
	if (r->next)
		r->next->prev = r->prev;
	uv_close((uv_handle_t *)&r->window, on_gone);
}

/* A server that stops keeps what its runs have reached. True: that is under way. */
static bool drain(struct gp_server_run *r)
{
	if (!r->srv->stopping || r->drained || !r->body)
		return false;
	r->drained = true;
	return gp_body_keep_at_rest(r->body);
}

void gp_server_run_settle(struct gp_server_run *r)
{
	if (r->session || (r->body && gp_body_busy(r->body)))
		return;
	struct gp_server_session *successor = r->successor;
	if (r->ending && (drain(r) || (r->body && gp_body_release(r->body))))
		return;
	if (r->ending)
		free_run(r);
	else if (successor) {
		r->successor = NULL;
		gp_server_session_take(successor, r);
	}
}

/* Denied: two clients of one run, as of a folder of checkpoints that was copied, would take it from each other for ever. */
static void supersede(struct gp_server *srv, struct gp_span id, const char *who)
{
	for (struct gp_server_run *r = srv->runs, *next; r; r = next) {
		next = r->next;
		if (r->ending || !r->named || strcmp(r->who, who) != 0 ||
		    !gp_secret_equal(r->id, id.data, GP_RUN_ID_BYTES))
			continue;
		if (r->session)
			gp_server_session_stop(r->session, GP_DENIED, "another client has taken this run over");
		gp_server_run_end(r);
	}
}

static int runs_alive(const struct gp_server *srv)
{
	int n = 0;
	for (const struct gp_server_run *r = srv->runs; r; r = r->next)
		n += !r->ending;
	return n;
}

static void link_run(struct gp_server_run *r)
{
	struct gp_server *srv = r->srv;
	r->next = srv->runs;
	if (srv->runs)
		srv->runs->prev = r;
	srv->runs = r;
	srv->run_count++;
}

/* Checkpoints of a client that has proved to be somebody are found, and overwritten, by the same alone: what they are
 * kept as is the start of SHA-256(id, who). */
static void set_id(struct gp_server_run *r, const uint8_t id[GP_RUN_ID_BYTES])
{
	uint8_t text[GP_RUN_ID_BYTES + GP_SERVER_WHO_BYTES], sum[SHA256_DIGEST_LENGTH];
	memcpy(r->id, id, GP_RUN_ID_BYTES);
	memcpy(r->kept_as, id, GP_RUN_ID_BYTES);
	if (!r->who[0])
		return;
	memcpy(text, id, GP_RUN_ID_BYTES);
	memcpy(text + GP_RUN_ID_BYTES, r->who, strlen(r->who));
	SHA256(text, GP_RUN_ID_BYTES + strlen(r->who), sum);
	memcpy(r->kept_as, sum, GP_RUN_ID_BYTES);
}

enum gp_status gp_server_run_new(struct gp_server *srv, struct gp_server_session *session, struct gp_span id,
				 const char *who, struct gp_server_run **out, struct gp_err *err)
{
	if (id.len > 0)
		supersede(srv, id, who);
	if (runs_alive(srv) >= srv->set.max_sessions)
		GP_FAIL(err, GP_BUSY, "the server has no room for another session");
	struct gp_server_run *r = gp_calloc(1, sizeof *r);
	if (!r)
		GP_FAIL(err, GP_NOMEM, "out of memory for a session");
	enum gp_status status = gp_random_bytes(r->token[0], GP_TOKEN_BYTES, err);
	if (status != GP_OK) {
		gp_free(r);
		return status;
	}
	r->tokens = 1;
	r->srv = srv;
	r->session = session;
	snprintf(r->who, sizeof r->who, "%s", who);
	r->named = id.len > 0;
	if (r->named)
		set_id(r, id.data);
	uv_timer_init(srv->loop, &r->window);
	r->window.data = r;
	link_run(r);
	*out = r;
	return GP_OK;
}

enum gp_status gp_server_run_place(struct gp_server_run *r, struct gp_err *err)
{
	struct gp_server_device *at;
	GP_TRY(gp_server_devices_place(&r->srv->devices, r->precision, r->tried, &at, err));
	if (r->device)
		gp_server_device_leave(r->device, r->device_bytes);
	r->device = at;
	r->device_bytes = 0;
	r->tried |= gp_server_device_bit(&r->srv->devices, at);
	return GP_OK;
}

struct gp_server_run *gp_server_run_find(struct gp_server *srv, struct gp_span token)
{
	if (token.len != GP_TOKEN_BYTES)
		return NULL;
	for (struct gp_server_run *r = srv->runs; r; r = r->next)
		for (int i = 0; i < r->tokens; i++)
			if (!r->ending && gp_secret_equal(r->token[i], token.data, GP_TOKEN_BYTES)) {
				r->presented = i;
				return r;
			}
	return NULL;
}

static void on_window_passed(uv_timer_t *timer)
{
	struct gp_server_run *r = timer->data;
	gp_log(session, GP_LOG_WARN, "nobody came for the session kept at step %llu: its %.0f MiB are free again",
	       (unsigned long long)gp_body_steps(r->body), (double)r->memory_bytes / 1048576);
	gp_server_run_end(r);
}

static void start_window(struct gp_server_run *r)
{
	uv_timer_start(&r->window, on_window_passed, (uint64_t)(r->srv->set.resume_window_s * 1000), 0);
}

void gp_server_run_park(struct gp_server_run *r)
{
	gp_body_detach(r->body);
	start_window(r);
}

void gp_server_run_release(struct gp_server_run *r)
{
	r->session = NULL;
	gp_server_run_settle(r);
}

void gp_server_run_claim(struct gp_server_run *r, struct gp_server_session *successor)
{
	uv_timer_stop(&r->window);
	r->successor = successor;
	gp_server_run_settle(r);
}

void gp_server_run_unclaim(struct gp_server_run *r)
{
	r->successor = NULL;
	start_window(r);
}

enum gp_status gp_server_run_resume(struct gp_server_run *r, uint64_t client_steps, uint64_t client_hash,
				    struct gp_err *err)
{
	uint8_t token[GP_TOKEN_BYTES];
	GP_TRY(gp_body_rewind(r->body, client_steps, err));
	if (gp_body_state_hash(r->body) != client_hash)
		GP_FAIL(err, GP_PROTO,
			"the codecs of both ends remember different things at step %llu: the session cannot go on",
			(unsigned long long)client_steps);
	GP_TRY(gp_random_bytes(token, sizeof token, err));
	memcpy(r->token[1], r->token[r->presented], GP_TOKEN_BYTES);
	memcpy(r->token[0], token, GP_TOKEN_BYTES);
	r->tokens = 2;
	return GP_OK;
}

void gp_server_run_end(struct gp_server_run *r)
{
	if (r->ending)
		return;
	r->ending = true;
	if (r->successor)
		gp_server_session_stop(r->successor, GP_CANCELED, "the session has ended");
	uv_timer_stop(&r->window);
	if (r->body)
		gp_body_stop(r->body);
	gp_server_run_settle(r);
}

/* Checkpoints. */

enum gp_status gp_server_run_stored(struct gp_server_run *r, const uint64_t *step, size_t count, uint64_t *stored,
				    struct gp_err *err)
{
	*stored = 0;
	r->keeps = r->named && count > 0;
	if (!r->keeps || !r->srv->state)
		return GP_OK;
	GP_TRY(gp_state_dir_use(r->srv->state, r->kept_as, err)); /* what WELCOME names is there for OPEN */
	r->using = true;
	*stored = gp_state_dir_common(r->srv->state, r->kept_as, step, count);
	return GP_OK;
}

static enum gp_status check_restore(const struct gp_server_run *r, const struct gp_body_spec *spec, struct gp_err *err)
{
	struct gp_body_words *words;
	GP_TRY(gp_alloc_array((void **)&words, 1, sizeof *words, err));
	enum gp_status status = gp_body_describe(spec, words, err);
	if (status == GP_OK)
		status = gp_state_dir_check(r->srv->state, r->kept_as, spec->restore_step, &words->pairs, err);
	gp_free(words);
	return status == GP_OK ? GP_OK : gp_err_prefix(err, "open: restore_step");
}

enum gp_status gp_server_run_use_state(struct gp_server_run *r, uint64_t restore_step, struct gp_body_spec *spec,
				       struct gp_err *err)
{
	struct gp_server *srv = r->srv;
	const bool keeps = r->keeps && srv->state && !spec->eval_only;
	if (restore_step > 0 && (!keeps || spec->weights > 0))
		GP_FAIL(err, GP_INVALID, "open: restore_step %llu in a session that cannot have it",
			(unsigned long long)restore_step);
	if (!keeps)
		return GP_OK;
	spec->undo = true; /* a server that stops keeps the state as of the last commit */
	spec->state = srv->state;
	memcpy(spec->run_id, r->kept_as, sizeof spec->run_id);
	spec->restore_step = restore_step;
	return restore_step > 0 ? check_restore(r, spec, err) : GP_OK;
}
