/* SPDX-License-Identifier: Apache-2.0
 *
 * What a training tells (client/monitor/run_monitor.h) and Prometheus reads: the text is strict, figures that are not
 * known are not there, counters do not go back, and a thread that stands still is told from a slow one.
 */
#include "tests/unit/http_get.h"

#include <math.h>
#include <stdlib.h>

#include "client/monitor/run_monitor.h"
#include "tests/unit/metric_parser.h"

static struct gp_run_monitor *open_monitor(uint16_t *port)
{
	struct gp_run_monitor *m;
	struct gp_err err;
	char url[GP_METRICS_SITE_URL];
	const struct gp_metrics_site_settings set = {.address = "127.0.0.1:0"};
	if (gp_run_monitor_new(&set, &m, &err) != GP_OK)
		fail_msg("%s", err.text);
	*port = (uint16_t)atoi(strrchr(gp_run_monitor_url(m, url), ':') + 1);
	return m;
}

static void scrape(uint16_t port, struct parsed *out)
{
	int status;
	char *text = http_get(port, "/metrics", &status);
	assert_int_equal(status, 200);
	parse_metrics(out, text);
	gp_free(text);
}

static struct gp_run_step step_of(uint64_t n)
{
	return (struct gp_run_step){.step = n,
				    .epoch = 1,
				    .loss = 1.5,
				    .acc = NAN, /* values to predict are neither right nor wrong */
				    .epoch_loss = 2.0,
				    .epoch_acc = NAN,
				    .lr = 0.125,
				    .grad_norm = NAN,
				    .seconds = 0.25,
				    .bound_by = {.ns = {[GP_BOUND_BODY] = n * 1000000000}, .steps = 1},
				    .compute_ns = n * 500000000,
				    .raw_fallbacks = n == 1 ? 2 : 0}; /* a codec has changed */
}

static void a_local_run_tells_its_steps_and_nothing_of_a_link(void **state)
{
	uint16_t port;
	struct parsed p;
	struct gp_run_monitor *m = open_monitor(&port);
	(void)state;
	scrape(port, &p);
	assert_null(parsed_find(&p, "gpclient_loss"));
	assert_true(parsed_value(&p, "gpclient_stage{stage=\"prepares\"}") == 1);
	parsed_free(&p);
	gp_run_monitor_plan(m, 20, 2, false);
	gp_run_monitor_stage(m, GP_RUN_TRAINS);
	for (uint64_t n = 1; n <= 3; n++) {
		const struct gp_run_step step = step_of(n);
		gp_run_monitor_step(m, &step);
	}
	gp_run_monitor_evaluated(m, 0.5, 0.75, 2.0);
	scrape(port, &p);
	assert_true(parsed_value(&p, "gpclient_step") == 3);
	assert_true(parsed_value(&p, "gpclient_steps_total") == 3);
	assert_true(parsed_value(&p, "gpclient_steps_planned") == 20);
	assert_true(parsed_value(&p, "gpclient_loss") == 1.5);
	assert_null(parsed_find(&p, "gpclient_accuracy"));
	assert_null(parsed_find(&p, "gpclient_gradient_norm"));
	assert_true(parsed_value(&p, "gpclient_validation_accuracy") == 0.75);
	assert_true(parsed_value(&p, "gpclient_evaluation_seconds_total") == 2);
	assert_true(parsed_value(&p, "gpclient_bound_seconds_total{by=\"body\"}") == 3);
	assert_true(parsed_value(&p, "gpclient_stage{stage=\"trains\"}") == 1);
	assert_int_equal(parsed_family(&p, "gpclient_linked"), -1);
	parsed_free(&p);
	gp_run_monitor_free(m);
}

static void a_split_run_tells_its_link_as_this_end_sees_it(void **state)
{
	uint16_t port;
	struct parsed p;
	struct gp_run_link link = {.tcp = {.valid = true, .retransmits = 7, .rtt_us = 1500, .bytes_acked = 1000},
				   .reconnects = 2,
				   .window = 6,
				   .linked = true};
	struct gp_run_monitor *m = open_monitor(&port);
	(void)state;
	link.account.sent.wire_bytes = 1000;
	link.account.sent.kind[GP_FRAME_ACT_UP].payload_bytes = 900;
	link.account.sent.kind[GP_FRAME_ACT_UP].stage_ns[GP_STAGE_ENCODE] = 2000000000;
	link.account.received.kind[GP_FRAME_ACT_DOWN].stage_ns[GP_STAGE_DECODE] = 3000000000;
	gp_run_monitor_plan(m, 20, 2, true);
	gp_run_monitor_stage(m, GP_RUN_TRAINS);
	for (uint64_t n = 1; n <= 2; n++) {
		const struct gp_run_step step = step_of(n);
		gp_run_monitor_step(m, &step);
	}
	gp_run_monitor_link(m, &link);
	scrape(port, &p);
	assert_true(parsed_value(&p, "gpclient_linked") == 1);
	assert_true(parsed_value(&p, "gpclient_reconnects_total") == 2);
	assert_true(parsed_value(&p, "gpclient_window") == 6);
	assert_true(parsed_value(&p, "gpclient_wire_bytes_total{way=\"up\"}") == 1000);
	assert_true(parsed_value(&p, "gpclient_frame_bytes_total{kind=\"act_up\",form=\"payload\"}") == 900);
	assert_true(parsed_value(&p, "gpclient_stage_seconds_total{kind=\"act_up\",stage=\"encode\"}") == 2);
	assert_true(parsed_value(&p, "gpclient_stage_seconds_total{kind=\"act_down\",stage=\"decode\"}") == 3);
	assert_null(
		parsed_find(&p, "gpclient_stage_seconds_total{kind=\"act_up\",stage=\"decode\"}")); /* the server's */
	assert_true(parsed_value(&p, "gpclient_retransmits_total") == 7);
	assert_true(parsed_value(&p, "gpclient_rtt_seconds") == 0.0015);
	assert_true(parsed_value(&p, "gpclient_raw_fallbacks_total") == 2); /* never goes back */
	parsed_free(&p);
	gp_run_monitor_free(m);
}

static void a_slow_training_is_alive_and_one_that_stands_still_is_not(void **state)
{
	const uint64_t second = 1000000000;
	struct gp_run_figures f = {.stage = GP_RUN_PREPARES, .told_ns = second};
	(void)state;
	assert_true(gp_run_is_alive(&f, 100000 * second)); /* data may take any time to be read */
	f.stage = GP_RUN_TRAINS;
	assert_true(gp_run_is_alive(&f, 100000 * second)); /* and so may the first step */
	f.steps_here = 1;
	f.longest_s = 1.0;
	assert_true(gp_run_is_alive(&f, 0)); /* told since the question was asked */
	assert_true(gp_run_is_alive(&f, 60 * second));
	assert_false(gp_run_is_alive(&f, 62 * second));
	f.longest_s = 30.0;
	assert_true(gp_run_is_alive(&f, 300 * second));
	assert_false(gp_run_is_alive(&f, 302 * second));
	f.stage = GP_RUN_ENDS;
	assert_true(gp_run_is_alive(&f, 302 * second));
}

static void health_is_a_path_and_nobody_has_to_be_told(void **state)
{
	uint16_t port;
	int status;
	struct gp_run_monitor *m = open_monitor(&port);
	(void)state;
	char *text = http_get(port, "/healthz", &status);
	assert_int_equal(status, 200);
	assert_string_equal(text, "alive\n");
	gp_free(text);
	text = http_get(port, "/", &status);
	assert_non_null(strstr(text, "/metrics"));
	gp_free(text);
	gp_run_monitor_free(m);
	gp_run_monitor_stage(NULL, GP_RUN_ENDS);
	gp_run_monitor_beat(NULL);
	gp_run_monitor_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_local_run_tells_its_steps_and_nothing_of_a_link),
		cmocka_unit_test(a_split_run_tells_its_link_as_this_end_sees_it),
		cmocka_unit_test(a_slow_training_is_alive_and_one_that_stands_still_is_not),
		cmocka_unit_test(health_is_a_path_and_nobody_has_to_be_told),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
