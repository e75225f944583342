/* SPDX-License-Identifier: Apache-2.0
 *
 * Prometheus' text format (common/metrics/metric_text.h), read by a reader that was written apart from it.
 */
#include "tests/unit/metric_parser.h"

#include "common/metrics/metric_row.h"

static char *finished(struct gp_metric_text *t)
{
	struct gp_err err;
	if (gp_metric_text_check(t, &err) != GP_OK)
		fail_msg("%s", err.text);
	char *text = gp_calloc(t->length + 1, 1);
	assert_non_null(text);
	memcpy(text, t->text, t->length);
	gp_metric_text_deinit(t);
	return text;
}

static void families_and_samples_are_written_as_the_format_says(void **state)
{
	(void)state;
	struct gp_metric_text t = {0};
	const struct gp_metric_label label[] = {{"name", "edge"}, {"seat", "0"}};
	gp_metric_family(&t, "gp_steps_total", GP_METRIC_COUNTER, "Steps");
	gp_metric_count(&t, label, 2, UINT64_MAX);
	gp_metric_family(&t, "gp_rate", GP_METRIC_GAUGE, "Rates");
	gp_metric_sample(&t, NULL, 0, 0.25);
	gp_metric_sample(&t, label, 1, NAN);
	gp_metric_sample(&t, label, 2, -INFINITY);
	gp_metric_family(&t, "gp_seconds_total", GP_METRIC_COUNTER, "Time");
	gp_metric_seconds(&t, NULL, 0, 12000000034);
	gp_metric_seconds(&t, NULL, 0, UINT64_MAX);
	gp_metric_seconds(&t, NULL, 0, 0);
	gp_metric_count(&t, NULL, 0, 0);
	char *text = finished(&t);
	assert_string_equal(text, "# HELP gp_steps_total Steps\n# TYPE gp_steps_total counter\n"
				  "gp_steps_total{name=\"edge\",seat=\"0\"} 18446744073709551615\n"
				  "# HELP gp_rate Rates\n# TYPE gp_rate gauge\ngp_rate 0.25\n"
				  "gp_rate{name=\"edge\"} NaN\ngp_rate{name=\"edge\",seat=\"0\"} -Inf\n"
				  "# HELP gp_seconds_total Time\n# TYPE gp_seconds_total counter\n"
				  "gp_seconds_total 12.000000034\ngp_seconds_total 18446744073.709551615\n"
				  "gp_seconds_total 0.000000000\ngp_seconds_total 0\n");
	gp_free(text);
}

static void a_row_gives_its_labels_to_all_its_samples_and_leaves_out_what_is_not_known(void **state)
{
	(void)state;
	struct gp_metric_text t = {0};
	const struct gp_metric_row row = {.text = &t, .label = {{"name", "edge"}}, .labels = 1};
	gp_metric_family(&t, "gp_rate", GP_METRIC_GAUGE, "Rates");
	gp_row_real(&row, NAN);
	gp_row_real_of(&row, "way", "up", 0.5);
	gp_row_real_of(&row, "way", "down", INFINITY);
	gp_row_count_of(&row, "way", "none", 3);
	gp_row_seconds(&row, 1500000000);
	char *text = finished(&t);
	assert_string_equal(text, "# HELP gp_rate Rates\n# TYPE gp_rate gauge\n"
				  "gp_rate{name=\"edge\",way=\"up\"} 0.5\ngp_rate{name=\"edge\",way=\"none\"} 3\n"
				  "gp_rate{name=\"edge\"} 1.500000000\n");
	gp_free(text);
}

static void check_label(const char *value, const char *wanted)
{
	struct gp_metric_text t = {0};
	struct parsed p;
	const struct gp_metric_label label[] = {{"name", value}};
	gp_metric_family(&t, "gp_x", GP_METRIC_GAUGE, "X");
	gp_metric_count(&t, label, 1, 1);
	char *text = finished(&t);
	parse_metrics(&p, text);
	assert_int_equal(p.samples, 1);
	assert_string_equal(p.sample[0].label[0].value, wanted);
	parsed_free(&p);
	gp_free(text);
}

static void labels_hold_anything_and_come_back_as_they_were(void **state)
{
	(void)state;
	check_label("", "");
	check_label("a\"b\\c\nd", "a\"b\\c\nd");
	check_label("\\\\n\"\"} 1\ngp_y 2", "\\\\n\"\"} 1\ngp_y 2");
	check_label("Z\xC3\xBCrich \xE2\x82\xAC \xF0\x9F\x98\x80", "Z\xC3\xBCrich \xE2\x82\xAC \xF0\x9F\x98\x80");
	check_label("\x01\t\x7F", "\x01\t\x7F");
}

static void bytes_that_are_not_utf8_become_question_marks(void **state)
{
	(void)state;
	check_label("a\xFF"
		    "b",
		    "a?b");
	check_label("\xC3", "?");     /* cut off */
	check_label("\xC3\"", "?\""); /* the quote is not swallowed */
	check_label("\xE2\x82\n", "??\n");
	check_label("\xC0\xAF", "??");           /* overlong */
	check_label("\xED\xA0\x80", "???");      /* a surrogate */
	check_label("\xF4\x90\x80\x80", "????"); /* beyond Unicode */
}

static void a_text_that_grows_too_long_takes_nothing_more(void **state)
{
	(void)state;
	struct gp_metric_text t = {0};
	struct gp_err err;
	char *value = gp_calloc(40 << 20, 1);
	assert_non_null(value);
	memset(value, 'x', (40 << 20) - 1);
	const struct gp_metric_label label[] = {{"name", value}};
	gp_metric_family(&t, "gp_x", GP_METRIC_GAUGE, "X");
	for (int i = 0; i < 2; i++)
		gp_metric_count(&t, label, 1, 1);
	assert_int_equal(gp_metric_text_check(&t, &err), GP_NOMEM);
	assert_true(t.length <= GP_METRIC_TEXT_MOST);
	gp_metric_text_deinit(&t);
	gp_free(value);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(families_and_samples_are_written_as_the_format_says),
		cmocka_unit_test(a_row_gives_its_labels_to_all_its_samples_and_leaves_out_what_is_not_known),
		cmocka_unit_test(labels_hold_anything_and_come_back_as_they_were),
		cmocka_unit_test(bytes_that_are_not_utf8_become_question_marks),
		cmocka_unit_test(a_text_that_grows_too_long_takes_nothing_more),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
