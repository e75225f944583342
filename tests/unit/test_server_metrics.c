/* SPDX-License-Identifier: Apache-2.0
 *
 * A real server whose figures are asked for over HTTP while clients come and go: they are right, none that grows ever goes
 * back, and figures of a name go on from one session to the next.
 */
#include "tests/unit/site_rig.h"

#include <sys/resource.h>

#include "common/base/clock.h"
#include "server/disk_probe.h"
#include "server/metrics_snapshot.h"
#include "server/metrics_http.h"
#include "tests/unit/http_get.h"
#include "tests/unit/metric_parser.h"

/* A server, and what it told last. */
struct told {
	struct site site;
	uint16_t port;
	struct parsed now;
};

static void start(struct told *t)
{
	char url[320];
	struct gp_server_settings set = server_thread_settings();
	memset(t, 0, sizeof *t);
	write_tokens("edge-1 " ONE "\nedge-2 " TWO "\n");
	set.tokens = token_path;
	set.max_sessions = 16;
	set.metrics = "127.0.0.1:0";
	site_start(&t->site, &set);
	gp_metrics_http_url(t->site.f.server->server.metrics_http, url);
	t->port = (uint16_t)atoi(strrchr(url, ':') + 1);
	assert_true(t->port > 0);
}

static void stop(struct told *t)
{
	parsed_free(&t->now);
	site_stop(&t->site);
}

static char *fetch(const struct told *t, const char *path, int *status)
{
	return http_get(t->port, path, status);
}

static void check_growth(const struct parsed *before, const struct parsed *now)
{
	for (int i = 0; i < before->samples; i++) {
		const struct parsed_sample *s = &before->sample[i];
		const int family = parsed_family(before, s->name);
		if (family < 0 || !before->counter[family])
			continue;
		for (int k = 0; k < now->samples; k++)
			if (strcmp(now->sample[k].line, s->line) == 0 && now->sample[k].value < s->value)
				fail_msg("%s went back from %.9g to %.9g", s->line, s->value, now->sample[k].value);
	}
}

/* Every answer is read strictly and held against the one before. */
static void scrape(struct told *t)
{
	int status;
	struct parsed now;
	char *text = fetch(t, "/metrics", &status);
	assert_int_equal(status, 200);
	parse_metrics(&now, text);
	check_growth(&t->now, &now);
	parsed_free(&t->now);
	t->now = now;
	gp_free(text);
}

/* Figures are published from time to time. */
static void await_value(struct told *t, const char *line, double value)
{
	for (int i = 0; i < 6000; i++) {
		scrape(t);
		const struct parsed_sample *s = parsed_find(&t->now, line);
		if (s && s->value == value)
			return;
		usleep(10000);
	}
	const struct parsed_sample *s = parsed_find(&t->now, line);
	fail_msg("%s is %g, and never became %g", line, s ? s->value : NAN, value);
}

static void make_step(struct raw_peer *c, const struct told *t)
{
	put_step(c, &t->site.f);
	get_answers(c, 2, 0);
	put_commit(c, 0, 0.1f);
	expect_control(c, GPSPLIT__CONTROL__BODY_COMMITTED);
}

static void figures_of_a_name_go_on_from_one_session_to_the_next(void **state)
{
	(void)state;
	struct told t;
	struct raw_peer one, two;
	start(&t);
	scrape(&t);
	assert_true(parsed_value(&t.now, "gpserverd_ready") == 1);
	open_session(&one, &t.site, ONE);
	await_value(&t, "gpserverd_session_linked{name=\"token:edge-1\",seat=\"0\"}", 1);
	make_step(&one, &t);
	await_value(&t, "gpserverd_session_steps_total{name=\"token:edge-1\",seat=\"0\"}", 1);
	await_value(&t, "gpserverd_session_frames_total{name=\"token:edge-1\",seat=\"0\",kind=\"act_up\"}", 2);
	await_value(&t, "gpserverd_frames_total{kind=\"grad_down\"}", 2);
	assert_true(parsed_value(&t.now, "gpserverd_stage_seconds_total{kind=\"act_down\",stage=\"compute\"}") > 0);
	assert_true(parsed_value(&t.now, "gpserverd_device_busy_seconds_total{device=\"cpu\"}") > 0);
	open_session(&two, &t.site, ONE);
	await_value(&t, "gpserverd_session_linked{name=\"token:edge-1\",seat=\"1\"}", 1);
	await_value(&t, "gpserverd_sessions{state=\"linked\"}", 2);
	client_close(&one);
	await_value(&t, "gpserverd_sessions_ended_total{reason=\"peer\"}", 1);
	await_value(&t, "gpserverd_sessions{state=\"linked\"}", 1);
	assert_null(parsed_find(&t.now, "gpserverd_session_linked{name=\"token:edge-1\",seat=\"0\"}"));
	assert_true(parsed_value(&t.now, "gpserverd_session_steps_total{name=\"token:edge-1\",seat=\"0\"}") == 1);
	open_session(&one, &t.site, ONE);
	make_step(&one, &t);
	await_value(&t, "gpserverd_session_steps_total{name=\"token:edge-1\",seat=\"0\"}", 2);
	await_value(&t, "gpserverd_session_links_total{name=\"token:edge-1\",seat=\"0\"}", 2);
	await_value(&t, "gpserverd_steps_total", 2);
	client_close(&one);
	client_close(&two);
	await_value(&t, "gpserverd_sessions_ended_total{reason=\"peer\"}", 3);
	await_value(&t, "gpserverd_sessions{state=\"linked\"}", 0);
	await_value(&t, "gpserverd_memory_promised_bytes", 0);
	assert_true(parsed_value(&t.now, "gpserverd_steps_total") == 2);
	assert_true(parsed_value(&t.now, "gpserverd_sessions_opened_total") == 3);
	stop(&t);
}

static void put_told_commit(struct raw_peer *c, double loss)
{
	Gpsplit__Commit commit = GPSPLIT__COMMIT__INIT;
	Gpsplit__Told told = GPSPLIT__TOLD__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	commit.lr = 0.1f;
	commit.told = &told;
	told.loss = loss;
	m.body_case = GPSPLIT__CONTROL__BODY_COMMIT;
	m.commit = &commit;
	put_control(c, &m);
}

/* What is told is anybody's word: it neither ends the session nor spoils what is shown. */
static void a_loss_is_shown_where_its_client_tells_one_that_can_be(void **state)
{
	(void)state;
	static const char *const line = "gpserverd_session_loss{name=\"token:edge-1\",seat=\"0\"}";
	static const char *const bad = "gpserverd_session_bad_losses_total{name=\"token:edge-1\",seat=\"0\"}";
	const double told[] = {0.0, 2.5, -1.0, NAN, INFINITY, -INFINITY, 1e300};
	struct told t;
	struct raw_peer c;
	int bad_ones = 0;
	start(&t);
	open_session(&c, &t.site, ONE);
	make_step(&c, &t);
	await_value(&t, "gpserverd_session_steps_total{name=\"token:edge-1\",seat=\"0\"}", 1);
	assert_null(parsed_find(&t.now, line)); /* it tells none */
	client_close(&c);
	for (int i = 0; i < (int)(sizeof told / sizeof told[0]); i++) {
		await_value(&t, "gpserverd_sessions{state=\"linked\"}", 0);
		open_session(&c, &t.site, ONE);
		put_step(&c, &t.site.f);
		get_answers(&c, 2, 0);
		put_told_commit(&c, told[i]);
		expect_control(&c, GPSPLIT__CONTROL__BODY_COMMITTED);
		await_value(&t, "gpserverd_session_steps_total{name=\"token:edge-1\",seat=\"0\"}", i + 2);
		bad_ones += i >= 2;
		await_value(&t, bad, bad_ones);
		if (i < 2)
			assert_true(parsed_value(&t.now, line) == told[i]);
		else
			assert_null(parsed_find(&t.now, line));
		client_close(&c);
	}
	assert_true(parsed_value(&t.now, "gpserverd_bad_losses_total") == bad_ones);
	stop(&t);
}

static void who_is_refused_counts_by_reason_and_who_leaves_apart(void **state)
{
	(void)state;
	struct told t;
	struct raw_peer c;
	start(&t);
	say_hello(&c, &t.site, "0123456789abcdef-wrong");
	expect_code(&c, GP_DENIED, "not one of this server's");
	await_value(&t, "gpserverd_refused_total{reason=\"denied\"}", 1);
	client_connect(&c, &t.site.f);
	put(&c, "GET / HTTP/1.1\r\n\r\n", 18);
	await_value(&t, "gpserverd_refused_total{reason=\"protocol\"}", 1);
	client_close(&c);
	client_connect(&c, &t.site.f);
	client_close(&c);
	await_value(&t, "gpserverd_connections_left_total", 1);
	await_value(&t, "gpserverd_connections_accepted_total", 3);
	await_value(&t, "gpserverd_connections", 0);
	assert_true(parsed_value(&t.now, "gpserverd_sessions_opened_total") == 0);
	assert_true(parsed_value(&t.now, "gpserverd_wire_bytes_total{way=\"up\"}") > 0);
	int status;
	char *json = fetch(&t, "/sessions", &status);
	assert_non_null(strstr(json, "\"event\":\"connection_refused\",\"reason\":\"denied\""));
	gp_free(json);
	stop(&t);
}

/* Names come and go without end; what is told of them does not grow without end. */
static void seats_that_nobody_has_are_forgotten_beyond_a_number(void **state)
{
	(void)state;
	struct gp_server *srv = gp_calloc(1, sizeof *srv);
	static struct gp_server_session s[2];
	for (int i = 0; i < 3 * GP_TALLY_IDLE_SEATS; i++) {
		memset(&s[0], 0, sizeof s[0]);
		s[0].srv = srv;
		snprintf(s[0].who, sizeof s[0].who, "token:%d", i);
		gp_tally_opened(&s[0]);
		assert_int_equal(s[0].seat->number, 0);
		gp_tally_gone(&s[0]);
	}
	assert_int_equal(srv->tally.seat_count, GP_TALLY_IDLE_SEATS);
	assert_int_equal(srv->tally.past.sessions, 3 * GP_TALLY_IDLE_SEATS);
	memset(s, 0, sizeof s);
	s[0].srv = s[1].srv = srv;
	gp_tally_opened(&s[0]);
	gp_tally_opened(&s[1]);
	assert_string_equal(s[1].seat->name, GP_TALLY_ANONYMOUS);
	assert_int_equal(s[1].seat->number, 1);
	gp_tally_gone(&s[0]);
	gp_tally_opened(&s[0]);
	assert_int_equal(s[0].seat->number, 0);
	gp_tally_deinit(&srv->tally);
	gp_free(srv);
}

static void paths_beside_the_figures_say_whether_the_server_is_well(void **state)
{
	(void)state;
	struct told t;
	int status;
	start(&t);
	char *text = fetch(&t, "/healthz", &status);
	assert_int_equal(status, 200);
	gp_free(text);
	text = fetch(&t, "/readyz", &status);
	assert_int_equal(status, 200);
	assert_string_equal(text, "ready\n");
	gp_free(text);
	text = fetch(&t, "/", &status);
	assert_int_equal(status, 200);
	assert_non_null(strstr(text, "<script>"));
	gp_free(text);
	stop(&t);
}

/* A step of its client is under way, so that there is time to ask. */
static void a_server_that_is_to_stop_is_not_ready_at_once(void **state)
{
	(void)state;
	struct told t;
	struct raw_peer c;
	int status = 0;
	start(&t);
	open_session(&c, &t.site, ONE);
	put_step(&c, &t.site.f);
	get_answers(&c, 2, 0);
	server_thread_drain(t.site.f.server);
	for (int i = 0; i < 6000 && status != 503; i++) {
		char *text = fetch(&t, "/readyz", &status);
		assert_string_equal(text, status == 503 ? "not ready: draining\n" : "ready\n");
		gp_free(text);
		usleep(10000);
	}
	assert_int_equal(status, 503);
	char *text = fetch(&t, "/healthz", &status);
	assert_int_equal(status, 200);
	gp_free(text);
	client_close(&c); /* the server's last session */
	atomic_store(&t.site.closing, true);
	uv_async_send(&t.site.reload);
	server_thread_join(t.site.f.server);
	server_thread_stop(t.site.f.server);
	gp_graph_free(t.site.f.body);
	parsed_free(&t.now);
}

static void a_snapshot_tells_whether_the_loop_lives_and_why_the_server_takes_no_sessions(void **state)
{
	(void)state;
	struct gp_metrics_snapshot s = {
		.at_ns = 1000, .device_count = 2, .device = {{.well = false}, {.well = true}}, .disk_well = true};
	assert_true(gp_metrics_is_alive(&s, 0));
	assert_true(gp_metrics_is_alive(&s, 1000 + UINT64_C(9999999999)));
	assert_false(gp_metrics_is_alive(&s, 1000 + UINT64_C(10000000000)));
	assert_null(gp_metrics_unready(&s));
	s.disk_well = false;
	assert_string_equal(gp_metrics_unready(&s), "disk");
	s.device[1].well = false;
	assert_string_equal(gp_metrics_unready(&s), "device");
	s.draining = true;
	assert_string_equal(gp_metrics_unready(&s), "draining");
}

static void a_folder_that_cannot_be_written_to_is_noticed(void **state)
{
	(void)state;
	struct gp_disk_probe *p;
	struct gp_err err;
	char folder[] = "/tmp/gp_probe_XXXXXX";
	assert_non_null(mkdtemp(folder));
	assert_int_equal(gp_disk_probe_new(folder, &p, &err), GP_OK);
	usleep(200000);
	assert_true(gp_disk_probe_is_well(p, gp_now_ns()));
	gp_disk_probe_free(p);
	assert_int_equal(rmdir(folder), 0); /* nothing was left in it */
	assert_int_equal(gp_disk_probe_new(folder, &p, &err), GP_OK);
	while (gp_disk_probe_is_well(p, gp_now_ns()))
		usleep(1000);
	gp_disk_probe_free(p);
}

/* A disk that takes a part of what is written says nothing of why; here a limit of the process does that. */
static void a_disk_that_takes_a_part_is_full(void **state)
{
	(void)state;
	struct gp_disk_probe *p;
	struct gp_err err;
	struct rlimit before, little;
	char folder[] = "/tmp/gp_probe_XXXXXX", text[512] = "";
	int ends[2];
	assert_non_null(mkdtemp(folder));
	assert_int_equal(pipe(ends), 0);
	const int kept = dup(STDERR_FILENO);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	little = (struct rlimit){.rlim_cur = 100, .rlim_max = before.rlim_max};
	assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
	setrlimit(RLIMIT_FSIZE, &little);
	const enum gp_status status = gp_disk_probe_new(folder, &p, &err);
	while (status == GP_OK && gp_disk_probe_is_well(p, gp_now_ns()))
		usleep(1000);
	const ssize_t n = status == GP_OK ? read(ends[0], text, sizeof text - 1) : 0;
	setrlimit(RLIMIT_FSIZE, &before);
	dup2(kept, STDERR_FILENO);
	close(kept);
	close(ends[0]);
	close(ends[1]);
	assert_int_equal(status, GP_OK);
	assert_true(n > 0);
	if (!strstr(text, "cannot be written to: No space left on device"))
		fail_msg("%s", text);
	gp_disk_probe_free(p);
	assert_int_equal(rmdir(folder), 0);
}

static void other_addresses_want_what_clients_have_to_show(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_server_settings set = {.metrics = "0.0.0.0:9440"};
	assert_int_equal(gp_metrics_http_check(&set, &err), GP_USAGE);
	assert_non_null(strstr(err.text, "--metrics 0.0.0.0:9440: anyone who reaches this address could read"));
	set.tls_cert = set.tls_key = "file";
	assert_int_equal(gp_metrics_http_check(&set, &err), GP_USAGE);
	assert_non_null(strstr(err.text, "give --tokens or --tls-client-ca"));
	set.tokens = "file";
	assert_int_equal(gp_metrics_http_check(&set, &err), GP_OK);
	set.tls_cert = set.tls_key = NULL;
	set.insecure = true;
	assert_int_equal(gp_metrics_http_check(&set, &err), GP_USAGE);
	assert_non_null(strstr(err.text, "in the clear"));
	set.tokens = NULL;
	assert_int_equal(gp_metrics_http_check(&set, &err), GP_OK);
	set = (struct gp_server_settings){.metrics = "[::1]:9440"};
	assert_int_equal(gp_metrics_http_check(&set, &err), GP_OK);
	set.metrics = "nonsense";
	assert_int_equal(gp_metrics_http_check(&set, &err), GP_USAGE);
	assert_non_null(strstr(err.text, "--metrics"));
}

static int set_up(void **state)
{
	(void)state;
	return mkstemp(token_path) < 0;
}

static int tear_down(void **state)
{
	(void)state;
	return unlink(token_path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(figures_of_a_name_go_on_from_one_session_to_the_next),
		cmocka_unit_test(a_loss_is_shown_where_its_client_tells_one_that_can_be),
		cmocka_unit_test(who_is_refused_counts_by_reason_and_who_leaves_apart),
		cmocka_unit_test(seats_that_nobody_has_are_forgotten_beyond_a_number),
		cmocka_unit_test(paths_beside_the_figures_say_whether_the_server_is_well),
		cmocka_unit_test(a_server_that_is_to_stop_is_not_ready_at_once),
		cmocka_unit_test(a_snapshot_tells_whether_the_loop_lives_and_why_the_server_takes_no_sessions),
		cmocka_unit_test(a_folder_that_cannot_be_written_to_is_noticed),
		cmocka_unit_test(a_disk_that_takes_a_part_is_full),
		cmocka_unit_test(other_addresses_want_what_clients_have_to_show),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
