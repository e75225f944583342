/* SPDX-License-Identifier: Apache-2.0
 *
 * A snapshot with names and texts of anybody (server/metrics_show.h), as Prometheus' text and as JSON, each read by a reader
 * that was written apart from the writer.
 */
#include "tests/unit/metric_parser.h"

#include <jansson.h>

#include "common/metrics/metric_text.h"
#include "server/metrics_show.h"

static const char *const hostile[] = {"token:\"} 1\ngpserverd_evil 2", "cert:uri:\\", "\xFF\xC3\"", "</script><b>",
				      "Z\xC3\xBCrich"};
enum { SEATS = sizeof hostile / sizeof hostile[0] };

static struct gp_metrics_seat seats[SEATS];

static struct gp_metrics_snapshot snapshot(void)
{
	struct gp_metrics_snapshot s = {.number = 7, .at_ns = 5, .device_count = 1, .seats = SEATS, .seat = seats};
	memset(seats, 0, sizeof seats);
	strcpy(s.device[0].name, "cpu");
	for (int i = 0; i < SEATS; i++) {
		strcpy(seats[i].name, hostile[i]);
		strcpy(seats[i].state, "RUN");
		seats[i].session = (uint64_t)i + 1;
		seats[i].steps_per_s = NAN;
		seats[i].up_per_s = INFINITY;
		seats[i].loss = i == 1 ? 0.25 : NAN;
		seats[i].sum.bad_losses = 3;
		seats[i].sum.steps = UINT64_C(1) << 40;
		seats[i].sum.account.received.kind[GP_FRAME_ACT_UP].payload_bytes = 12345;
		seats[i].tcp.valid = i % 2;
		seats[i].tcp.rtt_us = 1500;
	}
	s.events.count = 70; /* the ring has gone round */
	for (uint64_t n = 1; n <= s.events.count; n++) {
		struct gp_event_note *note = &s.events.note[n % GP_EVENTS_KEPT];
		note->number = n;
		note->name = "connection_refused";
		strcpy(note->text, "\xC3\x28 \x01 \"quoted\"");
	}
	return s;
}

static void prometheus_text_is_strict_whatever_the_names_are(void **state)
{
	(void)state;
	struct gp_metrics_snapshot s = snapshot();
	struct gp_metric_text t = {0};
	struct parsed p;
	gp_metrics_show_text(&s, &t);
	char *text = gp_calloc(t.length + 1, 1);
	memcpy(text, t.text, t.length);
	parse_metrics(&p, text);
	int steps = 0, rtts = 0, losses = 0;
	for (int i = 0; i < p.samples; i++) {
		const struct parsed_sample *x = &p.sample[i];
		if (strcmp(x->name, "gpserverd_session_steps_total") == 0) {
			assert_string_equal(x->label[0].value, steps == 2 ? "??\"" : hostile[steps]);
			assert_true(x->value == (double)(UINT64_C(1) << 40));
			steps++;
		}
		rtts += strcmp(x->name, "gpserverd_session_rtt_seconds") == 0 && x->value == 0.0015;
		if (strcmp(x->name, "gpserverd_session_loss") == 0) {
			assert_true(x->value == 0.25);
			losses++;
		}
	}
	assert_int_equal(losses, 1); /* who tells none has no sample: NaN would spoil means over sessions */
	assert_int_equal(steps, SEATS);
	assert_int_equal(rtts, SEATS / 2);
	assert_int_equal(parsed_family(&p, "gpserverd_evil"), -1);
	parsed_free(&p);
	gp_free(text);
	gp_metric_text_deinit(&t);
}

static void json_is_json_whatever_the_names_are(void **state)
{
	(void)state;
	struct gp_metrics_snapshot s = snapshot();
	size_t length;
	char *text = gp_metrics_show_json(&s, 6, &length);
	assert_non_null(text);
	assert_int_equal(text[length - 1], '\n'); /* a line, for terminals */
	json_t *o = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(o);
	const json_t *list = json_object_get(o, "sessions"), *events = json_object_get(o, "events");
	assert_int_equal(json_array_size(list), SEATS);
	assert_string_equal(json_string_value(json_object_get(json_array_get(list, 0), "name")), hostile[0]);
	assert_string_equal(json_string_value(json_object_get(json_array_get(list, 2), "name")), "??\"");
	assert_true(json_is_null(json_object_get(json_array_get(list, 0), "steps_per_s")));
	assert_true(json_is_null(json_object_get(json_array_get(list, 0), "up_per_s")));
	assert_true(json_is_null(json_object_get(json_array_get(list, 0), "loss")));
	assert_true(json_real_value(json_object_get(json_array_get(list, 1), "loss")) == 0.25);
	assert_int_equal(json_integer_value(json_object_get(json_array_get(list, 0), "bad_losses")), 3);
	assert_int_equal(json_array_size(events), GP_EVENTS_KEPT);
	assert_int_equal(json_integer_value(json_object_get(json_array_get(events, 0), "number")), 7);
	assert_int_equal(json_integer_value(json_object_get(json_array_get(events, GP_EVENTS_KEPT - 1), "number")), 70);
	assert_true(json_is_true(json_object_get(o, "alive")));
	json_decref(o);
	gp_free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(prometheus_text_is_strict_whatever_the_names_are),
		cmocka_unit_test(json_is_json_whatever_the_names_are),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
