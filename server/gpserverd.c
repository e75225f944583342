/* SPDX-License-Identifier: Apache-2.0
 *
 * gpserverd: command line, signals, the loop. The daemon itself is server.c.
 */
#include <malloc.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/environment.h"
#include "common/base/log.h"
#include "common/base/loop.h"
#include "common/wire/control.h"
#include "common/base/mem.h"
#include "common/options/options.h"
#include "common/base/port_file.h"
#include "common/base/threads.h"
#include "common/net/conn.h"
#include "server/lease_keeper.h"
#include "server/metrics_http.h"
#include "server/server.h"
#include "server/service.h"
#include "server/session_status.h"

#define PROGRAM           "gpserverd"
#define LARGE_BLOCK_BYTES (256 << 10)
#define LOG_PATIENCE_S    5.0 /* with a slow reader of the log, at the end */
#define STEPS_SHARE       0.5 /* of --drain-for: then steps under way are given up, and states are written */

struct settings {
	struct gp_server_settings server;
	double drain_for_s;
	const char *log, *log_format, *config, *port_file;
	bool version;
	bool served; /* set by serve: what ends the server from here on is a line of the log */
};

#define FIELD(name) offsetof(struct settings, name)

static const struct gp_opt options[] = {
	{.name = "listen",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(server.listen),
	 .value = "ADDR:PORT",
	 .initial = "127.0.0.1:4400",
	 .group = "Network",
	 .help = "address to serve on; port 0 takes a free one"},
	{.name = "advertise",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(server.advertise),
	 .value = "HOST:PORT,...",
	 .help = "other gpserverd, 8 at most, as clients reach them: a client that finds no room here, or whose "
		 "session ends because this server stops or has more sessions than others, is told of them"},
	{.name = "insecure",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(server.insecure),
	 .help = "allow an address other than loopback without TLS or credentials, on a network you trust"},
	{.name = "tls-cert",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(server.tls_cert),
	 .value = "FILE",
	 .help = "speak TLS 1.3 with this certificate (PEM, intermediate ones behind it)"},
	{.name = "tls-key",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(server.tls_key),
	 .value = "FILE",
	 .help = "the certificate's key (PEM, no passphrase)"},
	{.name = "tls-client-ca",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(server.tls_client_ca),
	 .value = "FILE",
	 .help = "clients must have a certificate of this CA (PEM)"},
	{.name = "tokens",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(server.tokens),
	 .value = "FILE",
	 .help = "clients must send a token of this file, which has lines of NAME TOKEN; # begins a comment"},
	{.name = "metrics",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(server.metrics),
	 .value = "ADDR:PORT",
	 .help = "serve figures for Prometheus (/metrics), health (/healthz, /readyz) and a live page (/) there over "
		 "HTTP; an address other than loopback needs TLS and the credential of a client, as for --listen"},
	{.name = "port-file",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(port_file),
	 .value = "FILE",
	 .help = "write the port number there once connections are accepted"},
	{.name = "handshake-timeout",
	 .type = GP_OPT_TIME,
	 .offset = FIELD(server.handshake_timeout_s),
	 .value = "TIME",
	 .initial = "10s",
	 .min = 0.1,
	 .max = 3600,
	 .help = "hang up on a client that has not opened a session after this time"},
	{.name = "idle-timeout",
	 .type = GP_OPT_TIME,
	 .offset = FIELD(server.idle_timeout_s),
	 .value = "TIME",
	 .initial = "15s",
	 .min = 1,
	 .max = 86400,
	 .help = "take the link for broken when a client has sent nothing for this long, not even heartbeats"},
	{.name = "step-timeout",
	 .type = GP_OPT_TIME,
	 .offset = FIELD(server.step_timeout_s),
	 .value = "TIME",
	 .initial = "10m",
	 .min = 1,
	 .max = GP_STEP_TIMEOUT_MS_MAX / 1000,
	 .help = "end a session in which a step makes no progress for this long"},
	{.name = "resume-window",
	 .type = GP_OPT_TIME,
	 .offset = FIELD(server.resume_window_s),
	 .value = "TIME",
	 .initial = "60s",
	 .min = 0,
	 .max = 86400,
	 .help = "how long a session whose link broke waits for its client to come back; less when all of "
		 "--max-sessions are taken and its client has most of those that wait; 0 = it ends at once"},
	{.name = "drain-for",
	 .type = GP_OPT_TIME,
	 .offset = FIELD(drain_for_s),
	 .value = "TIME",
	 .initial = "30s",
	 .min = 0.1,
	 .max = 86400,
	 .help = "after SIGTERM or SIGINT: half of this time is for steps under way to end, the rest for writing the "
		 "states of runs"},
	{.name = "device",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(server.device),
	 .value = "auto|cpu|cuda[:N],...",
	 .initial = "auto",
	 .group = "Computing",
	 .help = "where bodies run; several GPUs share the sessions: cuda:0,cuda:1. GPUs count in CUDA's order, which "
		 "is nvidia-smi's with CUDA_DEVICE_ORDER=PCI_BUS_ID"},
	{.name = "threads",
	 .type = GP_OPT_INT,
	 .offset = FIELD(server.threads),
	 .value = "N",
	 .initial = "0",
	 .min = 0,
	 .max = 1024,
	 .help = "compute threads of the CPU, at most 32 for each processor; 0 = one for each"},
	{.name = "codec-threads",
	 .type = GP_OPT_INT,
	 .offset = FIELD(server.codec_threads),
	 .value = "N",
	 .initial = "0",
	 .min = 0,
	 .max = 64,
	 .help = "threads that encode and decode; 0 = 1, or 4 for each GPU and 16 at most"},
	{.name = "max-sessions",
	 .type = GP_OPT_INT,
	 .offset = FIELD(server.max_sessions),
	 .value = "N",
	 .initial = "64",
	 .min = 1,
	 .max = 100000,
	 .group = "Limits",
	 .help = "clients at once; more are turned away, or take the place of one that waits (--resume-window)"},
	{.name = "max-unopened",
	 .type = GP_OPT_INT,
	 .offset = FIELD(server.max_unopened),
	 .value = "N",
	 .initial = "1024",
	 .min = 1,
	 .max = 100000,
	 .help = "connections that have not said yet who they are; for one more, the oldest is dropped"},
	{.name = "handshakes",
	 .type = GP_OPT_INT,
	 .offset = FIELD(server.visitors.handshakes),
	 .value = "N",
	 .initial = "128",
	 .min = 0,
	 .max = 100000,
	 .help = "TLS handshakes of one address at the same time (an IPv6 address counts with its /64); 0 = any "
		 "number"},
	{.name = "handshake-rate",
	 .type = GP_OPT_INT,
	 .offset = FIELD(server.visitors.handshake_rate),
	 .value = "N",
	 .initial = "1200",
	 .min = 0,
	 .max = 10000000,
	 .help = "TLS handshakes of one address in a minute; 0 = any number"},
	{.name = "wrong-tokens",
	 .type = GP_OPT_INT,
	 .offset = FIELD(server.visitors.wrong_tokens),
	 .value = "N",
	 .initial = "60",
	 .min = 0,
	 .max = 10000000,
	 .help = "wrong tokens of one address in a minute; above that, all tokens from there are answered with "
		 "\"busy\" until part of the minute has passed; 0 = any number"},
	{.name = "client-lines",
	 .type = GP_OPT_INT,
	 .offset = FIELD(server.visitors.lines),
	 .value = "N",
	 .initial = "120",
	 .min = 0,
	 .max = 10000000,
	 .help = "lines of the log about one client in a minute; one line counts those that are left out; 0 = "
		 "any number"},
	{.name = "limits",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(server.limits),
	 .value = "FILE",
	 .help = "what each name may take (sessions, memory, checkpoints, links, measures, share): lines of NAME "
		 "key=value ..."},
	{.name = "session-memory",
	 .type = GP_OPT_SIZE,
	 .offset = FIELD(server.session_memory_bytes),
	 .value = "BYTES",
	 .initial = "0",
	 .min = 0,
	 .max = 0x1p50,
	 .help = "most memory that one session may take; 0 = half of the machine's"},
	{.name = "session-device-memory",
	 .type = GP_OPT_SIZE,
	 .offset = FIELD(server.session_device_bytes),
	 .value = "BYTES",
	 .initial = "0",
	 .min = 0,
	 .max = 0x1p50,
	 .help = "most of a GPU's own memory that one session may take; 0 = all that is free when the server "
		 "starts"},
	{.name = "window",
	 .type = GP_OPT_INT,
	 .offset = FIELD(server.window),
	 .value = "N",
	 .initial = "64",
	 .min = 1,
	 .max = 4096,
	 .help = "most chunks in flight that a session may ask for"},
	{.name = "measure",
	 .type = GP_OPT_TIME,
	 .offset = FIELD(server.measure_s),
	 .value = "TIME",
	 .initial = "20s",
	 .min = 0,
	 .max = 300,
	 .help = "longest time that a client may measure its link for (gpclient link HOST:PORT); 0 = not at all"},
	{.name = "measure-bytes",
	 .type = GP_OPT_SIZE,
	 .offset = FIELD(server.measure_bytes),
	 .value = "BYTES",
	 .initial = "2G",
	 .min = 1 << 20,
	 .max = 0x1p50,
	 .help = "most bytes of one such measurement, both ways together"},
	{.name = "measure-rate",
	 .type = GP_OPT_INT,
	 .offset = FIELD(server.measure_rate),
	 .value = "N",
	 .initial = "12",
	 .min = 0,
	 .max = 10000000,
	 .help = "such measurements of one client in a minute; 0 = any number"},
	{.name = "task-time",
	 .type = GP_OPT_TIME,
	 .offset = FIELD(server.task_time_s),
	 .value = "TIME",
	 .initial = "10s",
	 .min = 0.001,
	 .max = 86400,
	 .help = "refuse a session if one pass over a chunk (forward, backward, or by a codec), or one update through "
		 "codecs, would take longer than this by the server's estimate"},
	{.name = "state-dir",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(server.state_dir),
	 .value = "DIR",
	 .group = "Checkpoints",
	 .help = "write there the checkpoints that clients ask for (gpclient train --checkpoint)"},
	{.name = "lease",
	 .type = GP_OPT_TIME,
	 .offset = FIELD(server.lease_s),
	 .value = "TIME",
	 .initial = "30s",
	 .min = 2,
	 .max = GP_LEASE_S_MAX,
	 .help = "for servers that share --state-dir: one that has not been heard of there for this long counts as "
		 "dead, and others go on with its runs"},
	{.name = "rebalance",
	 .type = GP_OPT_TIME,
	 .offset = FIELD(server.rebalance_s),
	 .value = "TIME",
	 .initial = "10s",
	 .min = 0,
	 .max = 86400,
	 .help = "servers that share --state-dir even out their sessions: one that has clearly more than another sends "
		 "one "
		 "client after the other away, at the end of a step, with at least this time and half of --lease "
		 "between; 0 = never"},
	{.name = "state-max",
	 .type = GP_OPT_SIZE,
	 .offset = FIELD(server.state_max_bytes),
	 .value = "BYTES",
	 .initial = "16G",
	 .min = 1,
	 .max = 0x1p50,
	 .help = "most bytes of all checkpoints together; when they are used up, the client's oldest run that no "
		 "session uses is removed first"},
	{.name = "state-max-per-client",
	 .type = GP_OPT_SIZE,
	 .offset = FIELD(server.state_max_client_bytes),
	 .value = "BYTES",
	 .initial = "0",
	 .min = 0,
	 .max = 0x1p50,
	 .help = "most bytes of the checkpoints of one client, which is the name that it has proved; 0 = a "
		 "quarter of --state-max, or all where clients have no names; --limits may say otherwise for a name"},
	{.name = "state-runs-per-client",
	 .type = GP_OPT_INT,
	 .offset = FIELD(server.state_client_runs),
	 .value = "N",
	 .initial = "0",
	 .min = 0,
	 .max = 1000,
	 .help = "most runs of one client that have checkpoints; 0 = 250, or 1000 where clients have no names"},
	{.name = "log",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(log),
	 .value = "SPEC",
	 .initial = "all=info",
	 .group = "Other",
	 .help = "what is logged: AREA=LEVEL,...; areas: all, main, net, session, codec, data, model; "
		 "levels: error, warn, info, debug, trace"},
	{.name = "log-format",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(log_format),
	 .value = GP_LOG_FORMATS,
	 .initial = "text",
	 .help = "lines of text, or one JSON object a line"},
	{.name = "config",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(config),
	 .value = "FILE",
	 .help = "read options from FILE (name = value lines); the command line wins"},
	{.name = "version", .type = GP_OPT_FLAG, .offset = FIELD(version), .help = "print the version and exit"},
};

static const struct gp_opt_table table = {
	.command = PROGRAM,
	.synopsis = "[--listen ADDR:PORT] [--device auto|cpu|cuda[:N],...] ...",
	.about = "Serves the body of split models: each client opens a session with its own graph,\n"
		 "sends activations and gets activations and gradients back. See proto/PROTOCOL.md.\n"
		 "An address other than loopback needs TLS and a client credential (certificate or token).\n"
		 "SIGHUP reads certificate, key, CA, token and limits files again; sessions whose token is gone end. "
		 "SIGUSR1\n"
		 "writes the status of all sessions to the log: step, rates, bytes, queue, memory. SIGTERM\n"
		 "and SIGINT stop the server: it takes no new sessions, lets running steps end, writes every run's\n"
		 "state and exits with status 0. A second signal, or the end of --drain-for, ends it at once with\n"
		 "status 1, and the log says which runs fall back to an older step. A disk that hangs when all is\n"
		 "written ends it so, too, after 10 s or at the end of --drain-for.",
	.examples = "  gpserverd --listen 127.0.0.1:4400\n"
		    "  gpserverd --listen 0.0.0.0:4400 --tls-cert server.pem --tls-key server.key --tokens tokens\n"
		    "  gpserverd --listen 0.0.0.0:4400 --insecure --device cpu --threads 8\n"
		    "  gpserverd --device cuda:0,cuda:1 --session-device-memory 20G\n",
	.opt = options,
	.count = sizeof options / sizeof options[0],
};

struct daemon {
	uv_loop_t loop;
	uv_signal_t sigint, sigterm, sighup, sigusr1;
	uv_timer_t patience; /* with what is under way when the daemon has to stop */
	struct gp_server server;
	struct gp_service service;
	double drain_for_s;
	uint64_t stopping_ns; /* when it was asked to stop; 0: it was not */
	const char *port_file;
	bool stopping;
};

/* For all threads to end and the runs of --state-dir to be given back, whatever --drain-for says. */
#define LEAVE_S_LEAST 10

static const char *left_port_file; /* what a signal's handler may still take away */

static void leave_at_once(int number)
{
	static const char text[] =
		PROGRAM ": something that was under way does not end, such as a disk that does not answer: "
			"leaving without it\n";
	(void)number;
	const ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
	(void)ignored;
	if (left_port_file)
		unlink(left_port_file);
	_exit(EXIT_FAILURE);
}

/* A disk that hangs would hold the thread that joins the one at the disk, and no loop runs any more that could end it. */
static void bound_leaving(const struct daemon *d)
{
	const double passed = d->stopping_ns > 0 ? (double)(gp_now_ns() - d->stopping_ns) * 1e-9 : 0;
	const double left = d->drain_for_s - passed;
	left_port_file = d->port_file;
	signal(SIGALRM, leave_at_once);
	alarm(left > LEAVE_S_LEAST ? (unsigned)left + 1 : LEAVE_S_LEAST);
}

static void on_stopped(void *arg)
{
	struct daemon *d = arg;
	uv_close((uv_handle_t *)&d->sigint, NULL);
	uv_close((uv_handle_t *)&d->sigterm, NULL);
	uv_close((uv_handle_t *)&d->sighup, NULL);
	uv_close((uv_handle_t *)&d->sigusr1, NULL);
	uv_close((uv_handle_t *)&d->patience, NULL);
	gp_service_close(&d->service);
	signal(SIGINT, SIG_IGN); /* all is written: one more signal must not make a failure of it */
	signal(SIGTERM, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGUSR1, SIG_IGN);
	bound_leaving(d);
	gp_server_deinit(&d->server);
	alarm(0);
}

/* The threads of what is under way cannot be joined. */
static void leave_unfinished(const struct daemon *d, const char *why)
{
	gp_log(main, GP_LOG_ERROR, "%s: leaving without what is under way", why);
	gp_server_tell_unfinished(&d->server);
	if (d->port_file)
		unlink(d->port_file);
	gp_log_stop(LOG_PATIENCE_S);
	_exit(EXIT_FAILURE);
}

static void on_time_over(uv_timer_t *timer)
{
	char why[64];
	const struct daemon *d = timer->data;
	snprintf(why, sizeof why, "the %g s of --drain-for are over", d->drain_for_s);
	leave_unfinished(d, why);
}

static void wait_on(struct daemon *d, void (*over)(uv_timer_t *), double seconds)
{
	uv_update_time(&d->loop);
	uv_timer_start(&d->patience, over, (uint64_t)(seconds * 1000), 0);
}

/* What was committed is worth more than a step that does not end, and it takes time to write. */
static void on_steps_over(uv_timer_t *timer)
{
	struct daemon *d = timer->data;
	gp_log(main, GP_LOG_WARN, "half of --drain-for has passed: a step that is still under way is given up");
	wait_on(d, on_time_over, d->drain_for_s * (1.0 - STEPS_SHARE));
	gp_server_stop(&d->server, on_stopped, d);
}

static void on_signal(uv_signal_t *signal, int number)
{
	struct daemon *d = signal->data;
	(void)number;
	if (d->stopping)
		leave_unfinished(d, "asked to stop a second time");
	d->stopping = true;
	d->stopping_ns = gp_now_ns();
	const struct gp_log_event e = {.name = "stopping"};
	if (gp_log_enabled(GP_LOG_AREA_main, GP_LOG_INFO))
		gp_log_write_event(GP_LOG_AREA_main, GP_LOG_INFO, &e,
				   "stopping within %g s (--drain-for); a second signal ends the server at once",
				   d->drain_for_s);
	gp_service_stopping(&d->service, d->drain_for_s);
	wait_on(d, on_steps_over, d->drain_for_s * STEPS_SHARE);
	gp_server_drain(&d->server, on_stopped, d);
}

static void on_hangup(uv_signal_t *signal, int number)
{
	struct daemon *d = signal->data;
	struct gp_err err;
	(void)number;
	if (d->stopping)
		return;
	gp_service_reloading(&d->service);
	if (gp_server_reload(&d->server, &err) != GP_OK)
		gp_log(main, GP_LOG_ERROR, "the old certificates and tokens stay in use: %s", err.text);
	else if (gp_server_reload_metrics(&d->server, &err) != GP_OK)
		gp_log(main, GP_LOG_ERROR, "certificates and tokens read again, but not for --metrics: %s", err.text);
	else
		gp_log(main, GP_LOG_INFO, "certificates and tokens read again");
	if (gp_server_reload_limits(&d->server, &err) != GP_OK) /* one broken file does not keep the others from use */
		gp_log(main, GP_LOG_ERROR, "the old limits stay in use: %s", err.text);
	else if (d->server.set.limits)
		gp_log(main, GP_LOG_INFO, "limits read again");
	gp_service_reloaded(&d->service);
}

static void on_status(uv_signal_t *signal, int number)
{
	struct daemon *d = signal->data;
	(void)number;
	gp_server_tell_status(&d->server);
}

static void watch_signals(struct daemon *d)
{
	signal(SIGPIPE, SIG_IGN);
	uv_signal_init(&d->loop, &d->sigint);
	uv_signal_init(&d->loop, &d->sigterm);
	uv_signal_init(&d->loop, &d->sighup);
	uv_signal_init(&d->loop, &d->sigusr1);
	uv_timer_init(&d->loop, &d->patience);
	d->sigint.data = d->sigterm.data = d->sighup.data = d->sigusr1.data = d->patience.data = d;
	uv_signal_start(&d->sigint, on_signal, SIGINT);
	uv_signal_start(&d->sigterm, on_signal, SIGTERM);
	uv_signal_start(&d->sighup, on_hangup, SIGHUP);
	uv_signal_start(&d->sigusr1, on_status, SIGUSR1);
}

static void print_address(const struct daemon *d, const struct settings *set)
{
	char host[256], at[300], url[320], devices[GP_SERVER_DEVICES_TEXT], threads[32] = "";
	uint16_t port;
	struct gp_err err;
	const struct gp_server_devices *all = &d->server.devices;
	if (gp_addr_parse(set->server.listen, host, &port, &err) != GP_OK)
		return;
	if (!gp_server_devices_apart(all)) /* a GPU has none */
		snprintf(threads, sizeof threads, ", %d threads", all->device[0].dev->threads);
	gp_addr_format(host, gp_server_port(&d->server), at, sizeof at);
	const struct gp_log_event e = {.name = "listening", .address = at};
	gp_log_announce(&e, PROGRAM ": listening on %s (device %s%s)", at, gp_server_devices_text(all, devices),
			threads);
	if (d->server.metrics_http)
		gp_log(main, GP_LOG_INFO, "figures and the live page are at %s (--metrics)",
		       gp_metrics_http_url(d->server.metrics_http, url));
}

/* On failure everything is closed. */
static enum gp_status announce(struct daemon *d, const struct settings *set, struct gp_err *err)
{
	if (set->port_file && gp_port_file_write(set->port_file, gp_server_port(&d->server), err) != GP_OK) {
		on_stopped(d);
		return err->code;
	}
	print_address(d, set);
	gp_service_ready(&d->service, &d->server);
	return GP_OK;
}

/* Allows as many descriptors as the administrator does: the usual 1024 are used up by a thousand clients that say
 * nothing. */
static void raise_descriptors(void)
{
	struct rlimit files;
	if (getrlimit(RLIMIT_NOFILE, &files) != 0)
		return;
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
}

/* Plans and frames go back to the system when their session ends, whichever thread took them; steps take none. */
static void return_large_blocks(void)
{
	mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES);
}

static enum gp_status serve(struct settings *set, struct gp_err *err)
{
	static struct daemon d;
	d.drain_for_s = set->drain_for_s;
	d.port_file = set->port_file;
	GP_TRY(gp_log_configure(set->log, err));
	GP_TRY(gp_log_set_format(set->log_format, err));
	gp_log_start();
	GP_TRY(gp_service_open(&d.service, &set->server, err));
	raise_descriptors();
	return_large_blocks();
	GP_TRY(gp_loop_init(&d.loop, err));
	enum gp_status status = gp_server_start(&d.server, &d.loop, &set->server, err);
	if (status == GP_OK) {
		watch_signals(&d); /* who reads the port file may send some at once */
		status = announce(&d, set, err);
		set->served = status == GP_OK;
	}
	uv_run(&d.loop, UV_RUN_DEFAULT);
	uv_loop_close(&d.loop);
	if (set->port_file && status == GP_OK)
		unlink(set->port_file);
	if (status == GP_OK && d.server.fallen_back > 0)
		GP_FAIL(err, GP_IO,
			"the state of %d runs could not be written; the log says to which step each falls back",
			d.server.fallen_back);
	return status;
}

int main(int argc, char **argv)
{
	struct settings set = {0};
	struct gp_options_result given;
	struct gp_err err = {0};
	signal(SIGUSR1, SIG_IGN); /* until there is a status to be told */
	gp_threads_prepare(argv);
	gp_environment_check(PROGRAM);
	enum gp_status status = gp_options_parse(&table, argc - 1, argv + 1, &set, &given, &err);
	if (status == GP_OK && set.version)
		printf(PROGRAM " " GP_VERSION "\n");
	else if (status == GP_OK && !given.help)
		status = serve(&set, &err);
	if (status != GP_OK && set.served)
		gp_log(main, GP_LOG_ERROR, "%s", err.text);
	gp_log_stop(LOG_PATIENCE_S);
	if (status != GP_OK && !set.served)
		gp_err_print(&err, PROGRAM);
	gp_options_free(&given);
	return gp_status_exit(status);
}
