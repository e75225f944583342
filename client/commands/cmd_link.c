/* SPDX-License-Identifier: Apache-2.0
 *
 * gpclient link: a link simulated between a client and a server, or the one to a
 * server measured. Options, signals and the report; what happens to bytes is
 * link_relay.h, how a link is measured link_measure.h.
 * Test: tests/e2e/link_emulator.sh, tests/unit/test_link_relay.c, tests/e2e/measure.sh
 */
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "client/commands/commands.h"
#include "client/job/job.h"
#include "client/measure/link_measure.h"
#include "client/link/link_relay.h"
#include "common/base/log.h"
#include "common/base/loop.h"
#include "common/base/port_file.h"

#define PROGRAM "gpclient link"

struct settings {
	struct gp_job_settings job; /* only its rows of TLS and tokens are used; it has to be the first member */
	const char *listen, *to, *port_file, *log;
	double time, rate, rate_up, rate_down, delay, jitter, queue, stall, connect_timeout;
	int64_t stall_after, drop_after, drop_every, corrupt_byte, times, seed;
	int direction, drop_mode;
	bool trickle, json, insecure;
};

#define FIELD(name) offsetof(struct settings, name)

static const struct gp_opt own_rows[] = {
	{.name = "time",
	 .type = GP_OPT_TIME,
	 .offset = FIELD(time),
	 .value = "TIME",
	 .initial = "9s",
	 .min = 0.5,
	 .max = 300,
	 .group = "Measuring (HOST:PORT)",
	 .help = "measure for about this long: a tenth for round trips over the idle link, a quarter for each way "
		 "full, the rest for single frames, of which those that would take longer are left out (-). Frames "
		 "that are under way when it is over are waited for, so that a slow link or a busy machine takes "
		 "longer, eight times at most. It ends earlier when the time or the bytes that the server allows are "
		 "used up (gpserverd "
		 "--measure, --measure-bytes)"},
	{.name = "listen",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(listen),
	 .value = "ADDR:PORT",
	 .group = "Simulating: the ends",
	 .help = "where clients connect; port 0 takes a free one"},
	{.name = "to",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(to),
	 .value = "HOST:PORT",
	 .help = "the server that every connection is passed on to"},
	{.name = "port-file",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(port_file),
	 .value = "FILE",
	 .help = "write the port number there once connections are accepted"},
	{.name = "insecure",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(insecure),
	 .help = "listen on an address other than loopback; everyone who reaches it reaches the server"},
	{.name = "rate",
	 .type = GP_OPT_RATE,
	 .offset = FIELD(rate),
	 .value = "RATE",
	 .initial = "0",
	 .min = 0,
	 .max = 1e11,
	 .group = "Simulating: the link",
	 .help = "rate of each direction, such as 100mbit; 0 = as fast as it goes"},
	{.name = "rate-up",
	 .type = GP_OPT_RATE,
	 .offset = FIELD(rate_up),
	 .value = "RATE",
	 .min = 0,
	 .max = 1e11,
	 .help = "the same, from client to server, where it differs"},
	{.name = "rate-down",
	 .type = GP_OPT_RATE,
	 .offset = FIELD(rate_down),
	 .value = "RATE",
	 .min = 0,
	 .max = 1e11,
	 .help = "the same, from server to client, where it differs"},
	{.name = "delay",
	 .type = GP_OPT_TIME,
	 .offset = FIELD(delay),
	 .value = "TIME",
	 .initial = "0",
	 .min = 0,
	 .max = 60,
	 .help = "of each direction: a round trip takes twice as long"},
	{.name = "jitter",
	 .type = GP_OPT_TIME,
	 .offset = FIELD(jitter),
	 .value = "TIME",
	 .initial = "0",
	 .min = 0,
	 .max = 60,
	 .help = "up to so much more delay, at random; the order of the bytes is kept"},
	{.name = "queue",
	 .type = GP_OPT_TIME,
	 .offset = FIELD(queue),
	 .value = "TIME",
	 .initial = "2ms",
	 .min = 0,
	 .max = 10,
	 .help = "what waits at the link's beginning, by its rate, before the sender is held back"},
	{.name = "stall-after",
	 .type = GP_OPT_SIZE,
	 .offset = FIELD(stall_after),
	 .value = "BYTES",
	 .min = 0,
	 .max = 0x1p62,
	 .group = "Simulating: faults (after BYTES of a direction of a connection)",
	 .help = "after so many bytes both directions fall silent"},
	{.name = "stall",
	 .type = GP_OPT_TIME,
	 .offset = FIELD(stall),
	 .value = "TIME",
	 .initial = "0",
	 .min = 0,
	 .max = 86400,
	 .help = "how long --stall-after lasts; 0 = for ever"},
	{.name = "drop-after",
	 .type = GP_OPT_SIZE,
	 .offset = FIELD(drop_after),
	 .value = "BYTES",
	 .min = 0,
	 .max = 0x1p62,
	 .help = "after so many bytes the connection is dropped"},
	{.name = "drop-every",
	 .type = GP_OPT_SIZE,
	 .offset = FIELD(drop_every),
	 .value = "BYTES",
	 .initial = "0",
	 .min = 0,
	 .max = 0x1p50,
	 .help = "every connection is dropped after a random number of bytes, BYTES on average"},
	{.name = "drop-mode",
	 .type = GP_OPT_CHOICE,
	 .offset = FIELD(drop_mode),
	 .value = "MODE",
	 .initial = "reset",
	 .choices = "reset|fin|half",
	 .help = "reset; fin: an orderly end of both directions; half: bytes are swallowed silently"},
	{.name = "corrupt-byte",
	 .type = GP_OPT_SIZE,
	 .offset = FIELD(corrupt_byte),
	 .value = "N",
	 .min = 0,
	 .max = 0x1p62,
	 .help = "flip a bit of byte N, counted from 0"},
	{.name = "trickle", .type = GP_OPT_FLAG, .offset = FIELD(trickle), .help = "one byte per write"},
	{.name = "direction",
	 .type = GP_OPT_CHOICE,
	 .offset = FIELD(direction),
	 .value = "WAY",
	 .initial = "both",
	 .choices = "up|down|both",
	 .help = "whose bytes count: up, down, or both: whichever gets there first"},
	{.name = "times",
	 .type = GP_OPT_INT,
	 .offset = FIELD(times),
	 .value = "N",
	 .initial = "0",
	 .min = 0,
	 .max = 1e9,
	 .help = "only the first N connections are disturbed; 0 = all"},
	{.name = "seed",
	 .type = GP_OPT_INT,
	 .offset = FIELD(seed),
	 .value = "N",
	 .initial = "1",
	 .min = 0,
	 .max = 0x1p62,
	 .help = "decides what happens at random: with the same seed links are cut after the same bytes"},
	{.name = "connect-timeout",
	 .like = &gp_job_where_rows,
	 .offset = FIELD(connect_timeout),
	 .group = "Measuring and simulating",
	 .help = "give up reaching the server after this time"},
	{.name = "json",
	 .type = GP_OPT_FLAG,
	 .offset = FIELD(json),
	 .help = "at the end, print the figures as JSON on standard output (keys of a measurement: client/JSON.md)"},
	{.name = "log",
	 .type = GP_OPT_TEXT,
	 .offset = FIELD(log),
	 .value = "SPEC",
	 .initial = "all=info",
	 .help = "log levels; info tells of faults, net=debug of connections"},
};

static struct gp_opt rows[GP_OPT_MAX];
static struct gp_opt_table table = {
	.command = PROGRAM,
	.synopsis =
		"(HOST:PORT [--time TIME] | --listen ADDR:PORT --to HOST:PORT [--rate RATE] [--delay TIME] [FAULT...])",
	.about = "With HOST:PORT, measures the link to a gpserverd: rate each way, round trips over the idle\n"
		 "and the full link, what the kernels sent again, and how fast single frames of each size are.\n"
		 "With --listen and --to, simulates a link in user space: takes connections, passes their\n"
		 "bytes on to a server and back at a rate and with a delay, and lets them fail where you\n"
		 "say. Runs until SIGINT or SIGTERM, then prints what passed.",
	.examples =
		"  gpclient link 192.0.2.7:4400 --tls-ca ca.pem --token-file token\n"
		"  gpclient link --listen 127.0.0.1:4500 --to 127.0.0.1:4400 --rate 100mbit --delay 10ms\n"
		"  gpclient link --listen 127.0.0.1:4500 --to 127.0.0.1:4400 --drop-every 2M --seed 7\n"
		"  gpclient link --listen 127.0.0.1:4500 --to 127.0.0.1:4400 --corrupt-byte 5000 --direction down\n",
	.positional = "HOST:PORT",
	.positional_max = 1,
	.opt = rows,
};

static void make_table(void)
{
	const struct gp_opt_rows parts[] = {GP_OPT_ROWS(own_rows), gp_job_security_rows};
	table.count = gp_opt_join(parts, sizeof parts / sizeof parts[0], rows);
}

struct command {
	uv_loop_t loop;
	uv_signal_t signal[2];
	struct gp_link_relay relay;
};

/* A flag of the other half of this command has no meaning. */
static enum gp_status check_none_given(const struct gp_options_result *r, const char *const *name, size_t count,
				       const char *why, struct gp_err *err)
{
	for (size_t i = 0; i < count; i++)
		if (gp_options_given(&table, r, name[i]))
			GP_FAIL(err, GP_USAGE, "--%s is for %s", name[i], why);
	return GP_OK;
}

static enum gp_status check_measured(const struct gp_options_result *r, struct gp_err *err)
{
	static const char *const other[] = {"listen",       "to",        "port-file",  "insecure",   "rate",
					    "rate-up",      "rate-down", "delay",      "jitter",     "queue",
					    "stall-after",  "stall",     "drop-after", "drop-every", "drop-mode",
					    "corrupt-byte", "trickle",   "direction",  "times",      "seed"};
	char why[128];
	snprintf(why, sizeof why, "a simulated link; %.60s is to be measured", r->positional[0]);
	return check_none_given(r, other, sizeof other / sizeof other[0], why, err);
}

static enum gp_status check(const struct settings *s, const struct gp_options_result *r, struct gp_err *err)
{
	static const char *const other[] = {"time", "tls", "tls-ca", "tls-name", "tls-cert", "tls-key", "token-file"};
	char host[256];
	uint16_t port;
	if (!s->listen || !s->to)
		GP_FAIL(err, GP_USAGE,
			"give HOST:PORT to measure the link to a server, or both ends to simulate one: --listen "
			"ADDR:PORT and --to HOST:PORT");
	GP_TRY(check_none_given(r, other, sizeof other / sizeof other[0],
				"measuring a link (HOST:PORT); a simulated one passes on what it gets", err));
	if (gp_addr_parse(s->listen, host, &port, err) != GP_OK)
		return gp_err_prefix(err, "--listen");
	if (!s->insecure && !gp_addr_is_loopback(host))
		GP_FAIL(err, GP_USAGE,
			"--listen %s: anyone who reaches this address could use the server behind it; listen on "
			"127.0.0.1, or say --insecure on a network you trust",
			s->listen);
	if (gp_options_given(&table, r, "stall") && !gp_options_given(&table, r, "stall-after"))
		GP_FAIL(err, GP_USAGE, "--stall says for how long; --stall-after BYTES is missing");
	return GP_OK;
}

static int64_t position(const struct gp_options_result *r, const char *name, int64_t value)
{
	return gp_options_given(&table, r, name) ? value : GP_LINK_NEVER;
}

static struct gp_link_spec make_spec(const struct settings *s, const struct gp_options_result *r)
{
	const double up = gp_options_given(&table, r, "rate-up") ? s->rate_up : s->rate;
	const double down = gp_options_given(&table, r, "rate-down") ? s->rate_down : s->rate;
	return (struct gp_link_spec){
		.listen = s->listen,
		.to = s->to,
		.connect_timeout_s = s->connect_timeout,
		.shape = {{.rate_bps = up, .delay_s = s->delay, .jitter_s = s->jitter, .queue_s = s->queue},
			  {.rate_bps = down, .delay_s = s->delay, .jitter_s = s->jitter, .queue_s = s->queue}},
		.faults = {.direction = (enum gp_link_direction)s->direction,
			   .stall_after = position(r, "stall-after", s->stall_after),
			   .drop_after = position(r, "drop-after", s->drop_after),
			   .corrupt_byte = position(r, "corrupt-byte", s->corrupt_byte),
			   .stall_s = s->stall,
			   .drop_every = s->drop_every,
			   .drop_mode = (enum gp_link_drop_mode)s->drop_mode,
			   .trickle = s->trickle,
			   .times = s->times,
			   .seed = (uint64_t)s->seed},
	};
}

static void stop(struct command *c)
{
	gp_link_relay_stop(&c->relay);
	for (int i = 0; i < 2; i++)
		uv_close((uv_handle_t *)&c->signal[i], NULL);
}

static void on_signal(uv_signal_t *signal, int number)
{
	struct command *c = signal->data;
	(void)number;
	if (!uv_is_closing((uv_handle_t *)signal))
		stop(c);
}

static void watch_signals(struct command *c)
{
	static const int number[2] = {SIGINT, SIGTERM};
	for (int i = 0; i < 2; i++) {
		uv_signal_init(&c->loop, &c->signal[i]);
		c->signal[i].data = c;
		uv_signal_start(&c->signal[i], on_signal, number[i]);
	}
}

/* A delay of seconds, meant as milliseconds, is seen at once. */
static void print_shape(const char *way, const struct gp_link_shape *s)
{
	if (s->rate_bps > 0)
		fprintf(stderr, ", %s %.4g Mbit/s", way, s->rate_bps * 1e-6);
	if (s->delay_s > 0)
		fprintf(stderr, ", %s %.4g ms later", way, s->delay_s * 1e3);
}

static void announce(const struct gp_link_relay *r)
{
	char host[256], where[320];
	uint16_t port;
	struct gp_err err;
	if (gp_addr_parse(r->spec.listen, host, &port, &err) != GP_OK)
		return;
	gp_addr_format(host, gp_link_relay_port(r), where, sizeof where);
	fprintf(stderr, PROGRAM ": from %s to %s", where, r->spec.to);
	print_shape("up", &r->spec.shape[GP_LINK_UP]);
	print_shape("down", &r->spec.shape[GP_LINK_DOWN]);
	fprintf(stderr, "\n");
}

static json_t *direction_json(const struct gp_link_counts *c, int d)
{
	return json_pack("{s:I, s:I, s:I}", "bytes", (json_int_t)c->bytes[d], "swallowed", (json_int_t)c->swallowed[d],
			 "corrupted", (json_int_t)c->corrupted[d]);
}

static json_t *counts_json(const struct gp_link_counts *c)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:o, s:o}", "connections", (json_int_t)c->connections, "refused",
			 (json_int_t)c->refused, "drops", (json_int_t)c->drops, "stalls", (json_int_t)c->stalls, "up",
			 direction_json(c, GP_LINK_UP), "down", direction_json(c, GP_LINK_DOWN));
}

static void print_counts(const struct gp_link_counts *c)
{
	fprintf(stderr,
		"%llu connections (%llu refused), %llu bytes up, %llu bytes down, %llu drops, %llu stalls, %llu bytes "
		"corrupted\n",
		(unsigned long long)c->connections, (unsigned long long)c->refused,
		(unsigned long long)c->bytes[GP_LINK_UP], (unsigned long long)c->bytes[GP_LINK_DOWN],
		(unsigned long long)c->drops, (unsigned long long)c->stalls,
		(unsigned long long)(c->corrupted[GP_LINK_UP] + c->corrupted[GP_LINK_DOWN]));
}

static enum gp_status relay(const struct settings *set, const struct gp_link_spec *spec, struct gp_err *err)
{
	struct command c = {0};
	GP_TRY(gp_log_configure(set->log, err));
	GP_TRY(gp_loop_init(&c.loop, err));
	watch_signals(&c); /* before the port is told: who knows it may end us */
	enum gp_status status = gp_link_relay_start(&c.relay, &c.loop, spec, err);
	if (status == GP_OK && set->port_file)
		status = gp_port_file_write(set->port_file, gp_link_relay_port(&c.relay), err);
	if (status == GP_OK)
		announce(&c.relay);
	else
		stop(&c);
	uv_run(&c.loop, UV_RUN_DEFAULT);
	uv_loop_close(&c.loop);
	if (status != GP_OK)
		return status;
	if (set->port_file)
		unlink(set->port_file);
	print_counts(&c.relay.counts);
	return set->json ? gp_job_print_json(counts_json(&c.relay.counts), err) : GP_OK;
}

static enum gp_status measure(const struct settings *set, const char *server, struct gp_err *err)
{
	struct gp_client_security security;
	struct gp_link_figures figures;
	GP_TRY(gp_log_configure(set->log, err));
	GP_TRY(gp_client_security_load(&security, &set->job.security, err));
	const struct gp_link_measure_spec spec = {.server = server,
						  .security = &security,
						  .connect_timeout_s = set->connect_timeout,
						  .seconds = set->time};
	const enum gp_status status = gp_link_measure(&spec, &figures, err);
	gp_client_security_deinit(&security);
	if (status != GP_OK)
		return status;
	if (set->json)
		return gp_job_print_json(gp_link_figures_json(&figures), err);
	gp_link_figures_print(&figures, stdout);
	return GP_OK;
}

static enum gp_status simulate(const struct settings *set, const struct gp_options_result *given, struct gp_err *err)
{
	const struct gp_link_spec spec = make_spec(set, given);
	GP_TRY(check(set, given, err));
	return relay(set, &spec, err);
}

int gp_cmd_link(int argc, char **argv)
{
	struct settings set = {0};
	struct gp_options_result given;
	struct gp_err err = {0};
	make_table();
	enum gp_status status = gp_options_parse(&table, argc, argv, &set, &given, &err);
	const bool measures = status == GP_OK && !given.help && given.positionals > 0;
	if (measures)
		status = check_measured(&given, &err);
	if (measures && status == GP_OK)
		status = measure(&set, given.positional[0], &err);
	else if (status == GP_OK && !given.help)
		status = simulate(&set, &given, &err);
	if (status != GP_OK)
		gp_err_print(&err, PROGRAM);
	gp_options_free(&given);
	return gp_status_exit(status);
}
