/* SPDX-License-Identifier: Apache-2.0
 *
 * gpserverd: command line, signals, the loop. The daemon itself is server.c.
 */
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/mem.h"
#include "common/options.h"
#include "common/threads.h"
#include "server/server.h"

#define PROGRAM "gpserverd"

struct settings {
	struct gp_server_settings server;
	const char *log, *config, *port_file;
	bool version;
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
	{.name = "insecure",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(server.insecure),
	 .help = "allow an address other than loopback; everyone who reaches it can use the server"},
	{.name = "port-file",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(port_file),
	 .value = "FILE",
	 .help = "write the port number there once connections are taken"},
	{.name = "handshake-timeout",
	 .type = GP_OPT_TIME,
	 .offset = FIELD(server.handshake_timeout_s),
	 .value = "TIME",
	 .initial = "10s",
	 .min = 0.1,
	 .max = 3600,
	 .help = "a client has so long to open a session"},
	{.name = "idle-timeout",
	 .type = GP_OPT_TIME,
	 .offset = FIELD(server.idle_timeout_s),
	 .value = "TIME",
	 .initial = "15s",
	 .min = 1,
	 .max = 86400,
	 .help = "a client that sends nothing, not even heartbeats, is gone"},
	{.name = "step-timeout",
	 .type = GP_OPT_TIME,
	 .offset = FIELD(server.step_timeout_s),
	 .value = "TIME",
	 .initial = "10m",
	 .min = 1,
	 .max = 86400,
	 .help = "a step without progress for so long ends the session"},
	{.name = "device",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(server.device),
	 .value = "auto|cpu|cuda[:N]",
	 .initial = "auto",
	 .group = "Computing",
	 .help = "where bodies run"},
	{.name = "threads",
	 .type = GP_OPT_INT,
	 .offset = FIELD(server.threads),
	 .value = "N",
	 .initial = "0",
	 .min = 0,
	 .max = 1024,
	 .help = "compute threads; 0 = one per processor"},
	{.name = "codec-threads",
	 .type = GP_OPT_INT,
	 .offset = FIELD(server.codec_threads),
	 .value = "N",
	 .initial = "1",
	 .min = 1,
	 .max = 64,
	 .help = "threads that compress and decompress"},
	{.name = "max-sessions",
	 .type = GP_OPT_INT,
	 .offset = FIELD(server.max_sessions),
	 .value = "N",
	 .initial = "64",
	 .min = 1,
	 .max = 100000,
	 .group = "Limits",
	 .help = "clients at once; more are turned away"},
	{.name = "session-memory",
	 .type = GP_OPT_SIZE,
	 .offset = FIELD(server.session_memory_bytes),
	 .value = "BYTES",
	 .initial = "0",
	 .min = 0,
	 .max = 0x1p50,
	 .help = "most memory of one session; 0 = half of the machine's"},
	{.name = "window",
	 .type = GP_OPT_INT,
	 .offset = FIELD(server.window),
	 .value = "N",
	 .initial = "64",
	 .min = 1,
	 .max = 4096,
	 .help = "most chunks in flight a session may ask for"},
	{.name = "log",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(log),
	 .value = "SPEC",
	 .initial = "all=info",
	 .group = "Other",
	 .help = "log levels, for example all=info,net=debug"},
	{.name = "config",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(config),
	 .value = "FILE",
	 .help = "read options from FILE (name = value lines); the command line wins"},
	{.name = "version", .type = GP_OPT_FLAG, .offset = FIELD(version), .help = "print the version and exit"},
};

static const struct gp_opt_table table = {
	.command = PROGRAM,
	.synopsis = "[--listen ADDR:PORT] [--device auto|cpu|cuda[:N]] ...",
	.about = "Serves the body of split models: each client opens a session with its own graph,\n"
		 "sends activations and gets activations and gradients back. See proto/PROTOCOL.md.",
	.examples = "  gpserverd --listen 127.0.0.1:4400\n"
		    "  gpserverd --listen 0.0.0.0:4400 --insecure --device cpu --threads 8\n",
	.opt = options,
	.count = sizeof options / sizeof options[0],
};

struct daemon {
	uv_loop_t loop;
	uv_signal_t sigint, sigterm;
	struct gp_server server;
	bool stopping;
};

static void on_stopped(void *arg)
{
	struct daemon *d = arg;
	uv_close((uv_handle_t *)&d->sigint, NULL);
	uv_close((uv_handle_t *)&d->sigterm, NULL);
	gp_server_deinit(&d->server);
}

static void on_signal(uv_signal_t *signal, int number)
{
	struct daemon *d = signal->data;
	if (d->stopping)
		_exit(128 + number); /* asked twice */
	d->stopping = true;
	gp_log(main, GP_LOG_INFO, "stopping");
	gp_server_stop(&d->server, on_stopped, d);
}

static enum gp_status write_port_file(const char *path, uint16_t port, struct gp_err *err)
{
	char temporary[4096];
	snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid());
	FILE *f = fopen(temporary, "w");
	if (!f)
		GP_FAIL(err, GP_IO, "--port-file %s: %s", path, strerror(errno));
	bool ok = fprintf(f, "%u\n", port) > 0;
	ok = fclose(f) == 0 && ok;
	if (!ok || rename(temporary, path) != 0) {
		unlink(temporary);
		GP_FAIL(err, GP_IO, "--port-file %s: cannot be written", path);
	}
	return GP_OK;
}

static void watch_signals(struct daemon *d)
{
	signal(SIGPIPE, SIG_IGN);
	uv_signal_init(&d->loop, &d->sigint);
	uv_signal_init(&d->loop, &d->sigterm);
	d->sigint.data = d->sigterm.data = d;
	uv_signal_start(&d->sigint, on_signal, SIGINT);
	uv_signal_start(&d->sigterm, on_signal, SIGTERM);
}

static void announce(const struct daemon *d, const struct settings *set)
{
	char host[256];
	uint16_t port;
	struct gp_err err;
	if (gp_addr_parse(set->server.listen, host, &port, &err) != GP_OK)
		return;
	fprintf(stderr,
		strchr(host, ':') ? PROGRAM ": listening on [%s]:%u (device %s, %d threads)\n"
				  : PROGRAM ": listening on %s:%u (device %s, %d threads)\n",
		host, gp_server_port(&d->server), d->server.device->ops->name, d->server.device->threads);
}

static enum gp_status serve(const struct settings *set, struct gp_err *err)
{
	static struct daemon d;
	GP_TRY(gp_log_configure(set->log, err));
	uv_loop_init(&d.loop);
	enum gp_status status = gp_server_start(&d.server, &d.loop, &set->server, err);
	if (status == GP_OK && set->port_file) {
		status = write_port_file(set->port_file, gp_server_port(&d.server), err);
		if (status != GP_OK)
			gp_server_deinit(&d.server);
	}
	if (status == GP_OK) {
		watch_signals(&d);
		announce(&d, set);
	}
	uv_run(&d.loop, UV_RUN_DEFAULT);
	uv_loop_close(&d.loop);
	if (set->port_file && status == GP_OK)
		unlink(set->port_file);
	return status;
}

int main(int argc, char **argv)
{
	struct settings set = {0};
	struct gp_options_result given;
	struct gp_err err = {0};
	gp_threads_prepare(argv);
	enum gp_status status = gp_options_parse(&table, argc - 1, argv + 1, &set, &given, &err);
	if (status == GP_OK && set.version)
		printf(PROGRAM " " GP_VERSION "\n");
	else if (status == GP_OK && !given.help)
		status = serve(&set, &err);
	if (status != GP_OK)
		gp_err_print(&err, PROGRAM);
	gp_options_free(&given);
	return gp_status_exit(status);
}
