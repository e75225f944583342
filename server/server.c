/* SPDX-License-Identifier: Apache-2.0
 *
 * The daemon's listener and what links and sessions share. See server.h.
 * Test: tests/unit/test_server.c
 */
#include "server/server.h"

#include <string.h>
#include <sys/resource.h>

#include "common/http/http_server.h"
#include "common/net/conn_tls.h"
#include "common/base/log.h"
#include "common/base/threads.h"
#include "common/net/conn.h"
#include "server/measure.h"
#include "server/metrics_snapshot.h"
#include "server/metrics_http.h"
#include "server/session.h"
#include "server/usage.h"
#include "server/watch.h"

#define LISTEN_BACKLOG 128
#define BUILD_THREADS  2  /* one client's large graph does not keep the next one from opening */
#define BUILD_NICE     10 /* whoever opens sessions without end takes next to no time from those that compute */
#define SLOW_CODEC_NICE                                                                                                \
	5 /* a codec of many milliseconds is paid for by who chose it; the others share what it leaves */
#define STRANGER_LINES       50.0 /* of the log, at once */
#define STRANGER_LINES_PER_S 1.0
#define FILES_KEPT           64 /* descriptors that are no connections */
#define GPU_CODEC_THREADS    4
#define STATE_SHARES         4 /* of --state-max, for names */
#define CODEC_THREADS_MOST   16

/* What this process may use: of the machine, or of its control group. */
static uint64_t physical_memory_bytes(void)
{
	uint64_t total = uv_get_total_memory(), group = uv_get_constrained_memory();
	return group > 0 && group < total ? group : total;
}

/* Before anything is computed for it. */
static bool may_shake_hands(struct gp_server *srv, struct gp_conn *conn)
{
	if (gp_visitors_handshake(srv->log.visitors, gp_visitor_of_address(conn->peer), gp_now_ns()))
		return true;
	const struct gp_log_event e = {.name = "connection_refused", .reason = "handshakes", .address = conn->peer};
	srv->tally.turned_away++;
	if (gp_server_tells_stranger(srv))
		gp_log_write_event(GP_LOG_AREA_session, GP_LOG_WARN, &e,
				   "a connection of %s is turned away: too many TLS handshakes of its address "
				   "(--handshakes, --handshake-rate)",
				   conn->peer);
	conn->ops->close(conn, NULL, NULL);
	return false;
}

static void on_accepted_for_tls(struct gp_server *srv, struct gp_conn *conn)
{
	struct gp_err err;
	struct gp_conn *secure;
	const struct gp_visitor_key address = gp_visitor_of_address(conn->peer);
	if (!may_shake_hands(srv, conn))
		return;
	if (gp_tls_wrap(srv->loop, conn, srv->credentials.tls, NULL, &secure, &err) == GP_OK) {
		gp_server_link_new(srv, secure);
		return;
	}
	gp_visitors_handshake_over(srv->log.visitors, address);
	gp_log(session, GP_LOG_ERROR, "a client is turned away: %s", err.text);
}

static void on_accepted(void *arg, struct gp_conn *conn)
{
	struct gp_server *srv = arg;
	if (srv->credentials.tls)
		on_accepted_for_tls(srv, conn);
	else
		gp_server_link_new(srv, conn);
}

static enum gp_status open_listener(struct gp_server *srv, struct gp_err *err)
{
	char host[256];
	uint16_t port;
	GP_TRY(gp_addr_parse(srv->set.listen, host, &port, err));
	GP_TRY(gp_server_credentials_check(&srv->set, host, err));
	GP_TRY(gp_server_credentials_load(&srv->credentials, &srv->set, err));
	if (srv->set.listen_fd > 0)
		return gp_tcp_listen_on(srv->loop, srv->set.listen_fd, on_accepted, srv, &srv->listener, err);
	return gp_tcp_listen(srv->loop, host, port, LISTEN_BACKLOG, on_accepted, srv, &srv->listener, err);
}

/* Those of a GPU's codecs wait for it most of the time. */
static int codec_threads(const struct gp_server *srv)
{
	const int several = GPU_CODEC_THREADS * srv->devices.count;
	if (srv->set.codec_threads > 0)
		return (int)srv->set.codec_threads;
	if (!gp_server_devices_apart(&srv->devices))
		return 1;
	return several < CODEC_THREADS_MOST ? several : CODEC_THREADS_MOST;
}

static void check_device_limit(const struct gp_server *srv)
{
	char text[GP_SERVER_DEVICES_TEXT];
	if (srv->set.session_device_bytes > 0 && !gp_server_devices_apart(&srv->devices))
		gp_log(main, GP_LOG_WARN,
		       "--session-device-memory is of GPUs and limits nothing here: %s has no memory of its own, "
		       "--session-memory limits a session",
		       gp_server_devices_text(&srv->devices, text));
}

static enum gp_status open_devices(struct gp_server *srv, struct gp_err *err)
{
	const int threads = gp_threads_count(srv->set.threads);
	GP_TRY(gp_threads_check(srv->set.threads, err));
	GP_TRY(gp_server_devices_open(&srv->devices, srv->loop, srv->set.device, threads, err));
	srv->devices.session_bytes = (uint64_t)srv->set.session_device_bytes;
	check_device_limit(srv);
	return GP_OK;
}

/* Where clients have no names they are one, which has all. */
struct gp_state_limits gp_server_state_limits(const struct gp_server_settings *set)
{
	const bool names = set->tokens || set->tls_client_ca;
	const int part = names ? STATE_SHARES : 1;
	struct gp_state_limits l = {.bytes = (uint64_t)set->state_max_bytes,
				    .client_bytes = (uint64_t)set->state_max_client_bytes,
				    .client_runs = (int)set->state_client_runs,
				    .names = names,
				    .lease = {.lease_s = set->lease_s, .name = set->listen}};
	if (l.client_bytes == 0)
		l.client_bytes = l.bytes / (uint64_t)part;
	if (l.client_runs == 0)
		l.client_runs = GP_STATE_RUNS_MAX / part;
	return l;
}

static void tell_owner(struct gp_state_dir *state)
{
	struct gp_state_figures f;
	gp_state_dir_figures(state, &f);
	gp_log(main, GP_LOG_INFO, "--state-dir: this server is %s for others that share it", f.owner);
}

static enum gp_status open_workers(struct gp_server *srv, struct gp_err *err)
{
	if (srv->set.state_dir) {
		const struct gp_state_limits limits = gp_server_state_limits(&srv->set);
		GP_TRY(gp_state_dir_open(srv->set.state_dir, &limits, &srv->state, err));
		tell_owner(srv->state);
		GP_TRY(gp_worker_new(srv->loop, "gp-disk", 1, &srv->disk, err));
	}
	GP_TRY(gp_worker_new(srv->loop, "gp-build", BUILD_THREADS, &srv->build, err));
	srv->openings = (struct gp_lane_user){0};
	gp_worker_set_nice(srv->build, BUILD_NICE);
	GP_TRY(gp_worker_new(srv->loop, "gp-codec", codec_threads(srv), &srv->codec, err));
	GP_TRY(gp_worker_new(srv->loop, "gp-slow-codec", 1, &srv->slow_codec, err));
	gp_worker_set_nice(srv->slow_codec, SLOW_CODEC_NICE);
	return GP_OK;
}

/* Connections that nobody answers for must leave descriptors for those of sessions. */
static void fit_descriptors(struct gp_server_settings *set)
{
	struct rlimit files;
	if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY)
		return;
	const int64_t http = set->metrics ? GP_HTTP_CONNECTIONS : 0;
	const int64_t room = (int64_t)files.rlim_cur - 2 * set->max_sessions - FILES_KEPT - http;
	if (set->max_unopened <= room)
		return;
	set->max_unopened = room > 1 ? room : 1;
	gp_log(main, GP_LOG_WARN, "with a limit of %llu open files, %lld connections may wait to be opened",
	       (unsigned long long)files.rlim_cur, (long long)set->max_unopened);
}

/* What is wrong in the command line is told before devices are opened and measured. */
static enum gp_status check_settings(const struct gp_server_settings *set, struct gp_err *err)
{
	char host[256];
	uint16_t port;
	GP_TRY(gp_addr_parse(set->listen, host, &port, err));
	GP_TRY(gp_server_credentials_check(set, host, err));
	return gp_metrics_http_check(set, err);
}

/* Behind everything that is told there. */
static enum gp_status open_metrics(struct gp_server *srv, struct gp_err *err)
{
	if (!srv->set.metrics)
		return GP_OK;
	GP_TRY(gp_metrics_new(srv, &srv->metrics, err));
	return gp_metrics_http_start(srv->metrics, &srv->set, &srv->metrics_http, err);
}

enum gp_status gp_server_start(struct gp_server *srv, uv_loop_t *loop, const struct gp_server_settings *set,
			       struct gp_err *err)
{
	memset(srv, 0, sizeof *srv);
	srv->loop = loop;
	srv->set = *set;
	srv->stranger_lines = STRANGER_LINES;
	srv->stranger_lines_ns = gp_now_ns();
	fit_descriptors(&srv->set);
	srv->memory_limit_bytes = physical_memory_bytes() / 10 * 9;
	srv->session_memory_bytes =
		set->session_memory_bytes > 0 ? (uint64_t)set->session_memory_bytes : physical_memory_bytes() / 2;
	GP_TRY(check_settings(set, err));
	GP_TRY(gp_advertise_parse(&srv->elsewhere, set->advertise, err));
	enum gp_status status = gp_client_log_init(&srv->log, loop, &srv->set.visitors, err);
	if (status == GP_OK)
		status = open_devices(srv, err);
	if (status == GP_OK)
		status = open_workers(srv, err);
	if (status == GP_OK)
		status = open_listener(srv, err);
	if (status == GP_OK)
		status = gp_usage_load_limits(srv, err);
	if (status == GP_OK)
		status = open_metrics(srv, err);
	if (status == GP_OK)
		gp_server_watch_start(srv);
	else
		gp_server_deinit(srv);
	return status;
}

enum gp_status gp_server_reload(struct gp_server *srv, struct gp_err *err)
{
	GP_TRY(gp_server_credentials_load(&srv->credentials, &srv->set, err));
	gp_server_links_revoke(srv);
	gp_server_sessions_revoke(srv);
	return GP_OK;
}

enum gp_status gp_server_reload_metrics(struct gp_server *srv, struct gp_err *err)
{
	return gp_metrics_http_reload(srv->metrics_http, err);
}

enum gp_status gp_server_reload_limits(struct gp_server *srv, struct gp_err *err)
{
	return gp_usage_load_limits(srv, err);
}

bool gp_server_tells_stranger(struct gp_server *srv)
{
	const uint64_t now = gp_now_ns();
	srv->stranger_lines += (double)(now - srv->stranger_lines_ns) * 1e-9 * STRANGER_LINES_PER_S;
	srv->stranger_lines_ns = now;
	if (srv->stranger_lines > STRANGER_LINES)
		srv->stranger_lines = STRANGER_LINES;
	if (srv->stranger_lines < 1.0) {
		srv->strangers_untold++;
		return false;
	}
	srv->stranger_lines -= 1.0;
	if (srv->strangers_untold > 0)
		gp_log(session, GP_LOG_WARN, "%llu more connections ended before they became sessions",
		       (unsigned long long)srv->strangers_untold);
	srv->strangers_untold = 0;
	return true;
}

static void end_sessions(struct gp_server *srv)
{
	for (struct gp_server_session *s = srv->sessions, *next; s; s = next) {
		next = s->next;
		gp_server_session_end(s);
	}
}

static void close_all(struct gp_server *srv)
{
	srv->stopping = true;
	if (srv->listener)
		gp_listener_close(srv->listener);
	srv->listener = NULL;
	for (struct gp_server_link *l = srv->links, *next; l; l = next) {
		next = gp_server_link_next(l);
		gp_server_link_retire(l);
	}
	end_sessions(srv);
}

static void maybe_stopped(struct gp_server *srv)
{
	if (srv->draining && !srv->stopping && srv->session_count == 0)
		close_all(srv); /* what is left are links without a session */
	if (srv->stopping && srv->link_count == 0 && srv->session_count == 0 && srv->stopped) {
		void (*stopped)(void *arg) = srv->stopped;
		srv->stopped = NULL;
		stopped(srv->arg);
	}
}

void gp_server_link_gone(struct gp_server *srv)
{
	srv->link_count--;
	maybe_stopped(srv);
}

void gp_server_session_gone(struct gp_server *srv)
{
	srv->session_count--;
	maybe_stopped(srv);
}

void gp_server_drain(struct gp_server *srv, void (*stopped)(void *arg), void *arg)
{
	srv->draining = true;
	srv->stopped = stopped;
	srv->arg = arg;
	if (srv->metrics)
		gp_metrics_publish(srv->metrics); /* whoever asks whether the server is ready hears of it at once */
	for (struct gp_server_session *s = srv->sessions, *next; s; s = next) {
		next = s->next;
		gp_server_session_drain(s);
	}
	maybe_stopped(srv);
}

void gp_server_tell_unfinished(const struct gp_server *srv)
{
	gp_log(main, GP_LOG_WARN, "%d sessions have not ended", srv->session_count);
	for (const struct gp_server_session *s = srv->sessions; s; s = s->next)
		gp_server_session_tell_fallback(s);
}

void gp_server_stop(struct gp_server *srv, void (*stopped)(void *arg), void *arg)
{
	srv->stopped = stopped;
	srv->arg = arg;
	close_all(srv);
	maybe_stopped(srv);
}

void gp_server_deinit(struct gp_server *srv)
{
	if (srv->listener)
		gp_listener_close(srv->listener);
	gp_metrics_http_stop(srv->metrics_http);
	gp_metrics_free(srv->metrics);
	srv->metrics_http = NULL;
	srv->metrics = NULL;
	gp_tally_deinit(&srv->tally);
	gp_server_credentials_deinit(&srv->credentials);
	gp_client_log_deinit(&srv->log);
	gp_worker_free(srv->build);
	gp_worker_free(srv->codec);
	gp_worker_free(srv->slow_codec);
	gp_worker_free(srv->disk);
	gp_state_dir_close(srv->state);
	gp_usage_free_limits(srv);
	gp_server_measure_deinit(srv);
	gp_server_devices_close(&srv->devices);
	gp_server_watch_stop(srv);
	srv->listener = NULL;
	srv->build = srv->codec = srv->slow_codec = srv->disk = NULL;
	srv->state = NULL;
}

uint16_t gp_server_port(const struct gp_server *srv)
{
	return gp_listener_port(srv->listener);
}
