/* SPDX-License-Identifier: Apache-2.0
 *
 * Histograms of values for --log-json (client/log/value_log.h): which steps are looked at, that every value is counted once,
 * whatever it is, and that a record is given once.
 */
#include <string.h>

#include "client/log/value_log.h"
#include "tests/unit/ok.h"

static double number(const json_t *o, const char *key)
{
	return json_number_value(json_object_get(o, key));
}

static double counted(const json_t *o)
{
	double sum = number(o, "below") + number(o, "above");
	const json_t *counts = json_object_get(o, "counts");
	assert_int_equal(json_array_size(counts), GP_VALUE_LOG_BINS);
	for (size_t i = 0; i < GP_VALUE_LOG_BINS; i++)
		sum += json_number_value(json_array_get(counts, i));
	return sum;
}

static void every_value_is_counted_once(void **state)
{
	(void)state;
	float x[1000];
	for (int i = 0; i < 1000; i++)
		x[i] = (float)(i % 100) - 20;
	x[7] = 1e9f; /* far above all others */
	json_t *o = gp_value_log_histogram(x, 1000);
	assert_float_equal(counted(o), 1000, 0);
	assert_float_equal(number(o, "above"), 1, 0);
	assert_float_equal(number(o, "largest"), 1e9, 0);
	assert_float_equal(number(o, "smallest"), -20, 0);
	json_decref(o);
}

static void values_that_are_all_the_same_have_a_histogram(void **state)
{
	(void)state;
	const float x[4] = {0, 0, 0, 0};
	json_t *o = gp_value_log_histogram(x, 4);
	assert_float_equal(counted(o), 4, 0);
	assert_true(number(o, "high") > number(o, "low"));
	json_decref(o);
}

static void values_that_are_not_finite_are_told_apart(void **state)
{
	(void)state;
	const float x[4] = {NAN, 1, INFINITY, 2};
	json_t *o = gp_value_log_histogram(x, 4);
	assert_float_equal(counted(o), 2, 0);
	assert_float_equal(number(o, "not_finite"), 2, 0);
	json_decref(o);
	assert_null(gp_value_log_histogram(x, 1));
}

static void the_first_step_and_every_nth_are_looked_at(void **state)
{
	(void)state;
	struct gp_value_log *v;
	char wanted[32] = "";
	OK(gp_value_log_new(4, &v, &err));
	for (uint64_t step = 1; step < 12; step++) /* as of a resumed run: 1 is done */
		if (gp_value_log_wants(v, step))
			snprintf(wanted + strlen(wanted), sizeof wanted - strlen(wanted), "%d ", (int)step + 1);
	assert_string_equal(wanted, "2 4 8 12 ");
	assert_false(gp_value_log_wants(NULL, 0));
	gp_value_log_free(v);
}

static void a_record_is_given_once_and_behind_its_step(void **state)
{
	(void)state;
	struct gp_value_log *v;
	const char *event;
	const float x[3] = {1, 2, 3};
	OK(gp_value_log_new(2, &v, &err));
	assert_true(gp_value_log_wants(v, 0));
	gp_value_log_add(v, 0, "weights", "head", x, 3, 1);
	gp_value_log_add(v, 0, "weights", "head", x, 3, 2);
	gp_value_log_add(v, 0, "weights", "tail", x, 3, 1);
	assert_null(gp_value_log_take(v, 0, &event));
	json_t *o = gp_value_log_take(v, 1, &event);
	assert_string_equal(event, "histogram");
	assert_float_equal(number(o, "step"), 1, 0);
	assert_float_equal(counted(o), 5, 0);
	assert_string_equal(json_string_value(json_object_get(o, "of")), "head");
	json_decref(o);
	o = gp_value_log_take(v, 1, &event);
	assert_string_equal(json_string_value(json_object_get(o, "of")), "tail");
	json_decref(o);
	assert_null(gp_value_log_take(v, 1, &event));
	assert_null(gp_value_log_take(NULL, 1, &event));
	gp_value_log_free(v);
}

/* As where the head is frozen: the next step's first tensor is there before the update of this one. */
static void the_next_step_may_begin_before_one_has_ended(void **state)
{
	(void)state;
	static const struct {
		uint64_t step;
		const char *what;
	} adds[] = {{3, "activations"}, {4, "activations"}, {3, "weights"}, {4, "weights"}};
	const float x[3] = {1, 2, 3};
	struct gp_value_log *v;
	const char *event;
	OK(gp_value_log_new(1, &v, &err));
	for (int i = 0; i < 4; i++) {
		assert_true(gp_value_log_wants(v, adds[i].step));
		gp_value_log_add(v, adds[i].step, adds[i].what, "head", x, 3, 1);
	}
	gp_value_log_add(v, 1, "weights", "head", x, 3, 1); /* forgotten long ago */
	for (uint64_t step = 3; step <= 4; step++) {
		for (int i = 0; i < 2; i++) {
			json_t *o = gp_value_log_take(v, step + 1, &event);
			assert_non_null(o);
			assert_float_equal(number(o, "step"), step + 1, 0);
			assert_float_equal(number(o, "values"), 3, 0);
			json_decref(o);
		}
		assert_null(gp_value_log_take(v, step + 1, &event));
	}
	gp_value_log_free(v);
}

static void more_than_there_is_room_for_is_left_out(void **state)
{
	(void)state;
	static float x[3 * GP_VALUE_LOG_SAMPLE];
	struct gp_value_log *v;
	const char *event;
	OK(gp_value_log_new(1, &v, &err));
	assert_true(gp_value_log_wants(v, 0));
	for (int i = 0; i < 40; i++) {
		char of[16];
		snprintf(of, sizeof of, "%d", i);
		gp_value_log_add(v, 0, "weights", of, x, 3 * GP_VALUE_LOG_SAMPLE, 1);
	}
	int records = 0;
	for (json_t *o; (o = gp_value_log_take(v, 1, &event)); json_decref(o), records++)
		assert_float_equal(counted(o), 2 * GP_VALUE_LOG_SAMPLE, 0);
	assert_in_range(records, 16, 39);
	gp_value_log_free(v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_value_is_counted_once),
		cmocka_unit_test(values_that_are_all_the_same_have_a_histogram),
		cmocka_unit_test(values_that_are_not_finite_are_told_apart),
		cmocka_unit_test(the_first_step_and_every_nth_are_looked_at),
		cmocka_unit_test(a_record_is_given_once_and_behind_its_step),
		cmocka_unit_test(the_next_step_may_begin_before_one_has_ended),
		cmocka_unit_test(more_than_there_is_room_for_is_left_out),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
