/* SPDX-License-Identifier: Apache-2.0
 *
 * From the log of a training to a line of gpclient bench's table (client/bench/bench_figures.h, client/bench/bench_table.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "client/bench/bench_figures.h"
#include "client/bench/bench_table.h"

static char path[64];
static struct gp_err err;

static int make(void **state)
{
	(void)state;
	strcpy(path, "/tmp/gpsplit-test-XXXXXX");
	const int fd = mkstemp(path);
	return fd < 0 ? -1 : close(fd);
}

static int clear(void **state)
{
	(void)state;
	return unlink(path);
}

/* --- figures ------------------------------------------------------------------------------------------------------ */

static void put(FILE *f, int step, double seconds)
{
	fprintf(f,
		"{\"event\":\"step\",\"step\":%d,\"seconds\":%g,\"compute_s\":0.1,\"up_bytes_per_s\":%g,"
		"\"down_bytes_per_s\":null,\"wire_up_bytes\":1000,\"wire_down_bytes\":500,"
		"\"bound_by\":{\"up_wire\":0.3,\"body\":0.2,\"head\":0.1},\"link\":{"
		"\"act_up\":{\"payload_bytes\":100,\"uncompressed_bytes\":400,\"encode_s\":0.01,\"wire_s\":0.2,"
		"\"decode_s\":null},"
		"\"grad_up\":{\"payload_bytes\":100,\"uncompressed_bytes\":400,\"encode_s\":0.02,\"wire_s\":0.1},"
		"\"act_down\":{\"payload_bytes\":0,\"uncompressed_bytes\":0,\"decode_s\":0.03,\"wait_s\":0.004}}}\n",
		step, seconds, 100 / seconds);
}

static void write_log(const double *seconds, int steps)
{
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fprintf(f, "{\"event\":\"header\",\"model\":\"cnn\"}\n");
	for (int i = 0; i < steps; i++)
		put(f, i + 1, seconds[i]);
	fprintf(f, "{\"event\":\"eval\",\"val_acc\":0.5,\"val_loss\":1.5}\n");
	fprintf(f, "{\"event\":\"eval\",\"val_acc\":0.75,\"val_loss\":1.25}\n");
	fclose(f);
}

#define near(got, want) assert_true(fabs((got) - (want)) < 1e-9)

static void first_steps_do_not_count_and_the_middle_one_does(void **state)
{
	static const double seconds[] = {9, 8, 1, 4, 2};
	struct gp_bench_run r = {0};
	(void)state;
	write_log(seconds, 5);
	assert_int_equal(gp_bench_figures_read(path, 2, &r, &err), GP_OK);
	assert_int_equal(r.steps, 3);
	near(r.figure[GP_BENCH_TIME], 2);
	near(r.figure[GP_BENCH_LOWEST], 1);
	near(r.figure[GP_BENCH_RATE], 0.25);
	near(r.figure[GP_BENCH_COMPUTE], 0.1);
	near(r.figure[GP_BENCH_BODY], 0.2);
	near(r.figure[GP_BENCH_ENCODE], 0.03);
	near(r.figure[GP_BENCH_WIRE], 0.3);
	near(r.figure[GP_BENCH_WAIT], 0.004);
	near(r.figure[GP_BENCH_DECODE], 0.03);
	near(r.figure[GP_BENCH_UP_BYTES_S], 50);
	assert_true(isnan(r.figure[GP_BENCH_DOWN_BYTES_S]));
	near(r.figure[GP_BENCH_ACCURACY], 0.75); /* of the last evaluation */
	assert_string_equal(r.bound_by, "up_wire");
	assert_int_equal(gp_bench_figures_read(path, 3, &r, &err), GP_OK);
	near(r.figure[GP_BENCH_TIME], 3); /* between two in the middle */
}

static void a_log_without_steps_that_count_is_an_error(void **state)
{
	static const double seconds[] = {1, 1};
	struct gp_bench_run r = {0};
	(void)state;
	write_log(seconds, 2);
	assert_int_equal(gp_bench_figures_read(path, 2, &r, &err), GP_INVALID);
	assert_int_equal(gp_bench_figures_read("/nowhere/at/all", 0, &r, &err), GP_INVALID);
	FILE *f = fopen(path, "a");
	fprintf(f, "no JSON\n");
	fclose(f);
	assert_int_equal(gp_bench_figures_read(path, 0, &r, &err), GP_INVALID);
}

/* --- table -------------------------------------------------------------------------------------------------------- */

static struct gp_bench_sweep sweep;
static struct gp_bench_results results;

static void add_run(int row, int round, double time)
{
	struct gp_bench_run r = {.round = round, .steps = 10};
	gp_bench_key_of(&sweep, row, &r.key);
	for (int f = 0; f < GP_BENCH_FIGURES; f++)
		r.figure[f] = NAN;
	r.figure[GP_BENCH_TIME] = time;
	r.figure[GP_BENCH_LOWEST] = time / 2;
	r.figure[GP_BENCH_RATE] = 0.25;
	strcpy(r.bound_by, "body");
	assert_int_equal(gp_bench_results_add_run(&results, &r, &err), GP_OK);
}

static void add_failure(int row, int round)
{
	struct gp_bench_run r = {.round = round, .why = "the server has gone"};
	gp_bench_key_of(&sweep, row, &r.key);
	assert_int_equal(gp_bench_results_add_run(&results, &r, &err), GP_OK);
}

/* Rows in their order: raw and fp16 in one chunk, then in eight. */
static int begin(void **state)
{
	(void)state;
	sweep = (struct gp_bench_sweep){0};
	assert_int_equal(gp_bench_read_links(&sweep, "1gbit", &err), GP_OK);
	assert_int_equal(gp_bench_read_cuts(&sweep, "1:-1", &err), GP_OK);
	assert_int_equal(gp_bench_read_chunks(&sweep, "1,8", 64, &err), GP_OK);
	assert_int_equal(gp_bench_read_codecs(&sweep, "raw,fp16", &err), GP_OK);
	return gp_bench_results_open(&results, NULL, NULL, &err) == GP_OK ? 0 : -1;
}

static int end(void **state)
{
	(void)state;
	gp_bench_results_close(&results);
	return 0;
}

static struct gp_bench_table table_of(int rounds)
{
	struct gp_bench_table t;
	assert_int_equal(gp_bench_table_make(&sweep, &results, rounds, &t, &err), GP_OK);
	assert_int_equal(t.rows, 4);
	return t;
}

static void rounds_are_taken_together_and_compared_with_raw(void **state)
{
	struct gp_bench_prediction p = {.time_s = 3, .bound_by = "head"};
	(void)state;
	add_run(0, 1, 4);
	add_run(0, 2, 2);
	add_run(0, 3, 100);
	add_run(1, 1, 2);
	gp_bench_key_of(&sweep, 0, &p.key);
	assert_int_equal(gp_bench_results_add_prediction(&results, &p, &err), GP_OK);
	struct gp_bench_table t = table_of(3);
	assert_int_equal(t.row[0].rounds, 3);
	assert_int_equal(t.row[0].steps, 30);
	near(t.row[0].figure[GP_BENCH_TIME], 4);
	near(t.row[0].figure[GP_BENCH_LOWEST], 1);
	near(t.row[0].speed_up, 1);
	near(t.row[0].off, -0.25);
	near(t.row[1].speed_up, 2);
	assert_true(isnan(t.row[1].off));
	assert_int_equal(t.row[2].rounds, 0); /* of raw in 8 chunks: fp16 there has nothing to be compared with */
	assert_true(isnan(t.row[3].speed_up));
	gp_bench_table_deinit(&t);
	t = table_of(1); /* later rounds of the file are not asked for */
	near(t.row[0].figure[GP_BENCH_LOWEST], 2);
	gp_bench_table_deinit(&t);
}

static char *text_of(const struct gp_bench_table *t, void (*print)(const struct gp_bench_table *t, FILE *to))
{
	static char text[4096];
	FILE *f = fmemopen(text, sizeof text, "w");
	assert_non_null(f);
	print(t, f);
	fclose(f);
	return text;
}

static void print_chunks(const struct gp_bench_table *t, FILE *to)
{
	gp_bench_chunks_print(&sweep, t, to);
}

static void expect_line(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("no '%s' in:\n%s", part, text);
}

static void people_read_what_failed_and_what_chunks_gain(void **state)
{
	(void)state;
	add_run(0, 1, 2);
	add_run(2, 1, 1.5);
	add_failure(1, 1);
	struct gp_bench_table t = table_of(1);
	const char *text = text_of(&t, gp_bench_table_print);
	expect_line(text, "link 1gbit, cut 1:-1\n");
	expect_line(text, "failed: the server has gone\n");
	expect_line(text, "has not run\n");
	assert_null(strstr(text, "accuracy")); /* nothing was trained */
	assert_null(strstr(text, "nan"));
	text = text_of(&t, print_chunks);
	expect_line(text, "pipelining over 1gbit: time of a batch in 8 chunks against 1: raw -25 %\n");
	expect_line(text, "-30 %");
	gp_bench_table_deinit(&t);
}

static void programs_read_the_same(void **state)
{
	(void)state;
	add_run(0, 1, 2);
	add_run(2, 1, 1.5);
	add_failure(3, 1);
	struct gp_bench_table t = table_of(1);
	json_t *o = gp_bench_table_json(&sweep, &t), *rows = json_object_get(o, "rows");
	assert_int_equal(json_array_size(rows), 4);
	json_t *first = json_array_get(rows, 0), *last = json_array_get(rows, 3);
	near(json_real_value(json_object_get(first, "time_per_batch_s")), 2);
	assert_true(json_is_null(json_object_get(first, "val_acc")));
	assert_true(json_is_null(json_object_get(first, "failed")));
	assert_string_equal(json_string_value(json_object_get(last, "failed")), "the server has gone");
	json_t *gain = json_array_get(json_object_get(o, "pipelining"), 0);
	near(json_real_value(json_object_get(gain, "less_time")), 0.25);
	assert_int_equal(json_integer_value(json_object_get(gain, "against_chunks")), 1);
	json_decref(o);
	gp_bench_table_deinit(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(first_steps_do_not_count_and_the_middle_one_does, make, clear),
		cmocka_unit_test_setup_teardown(a_log_without_steps_that_count_is_an_error, make, clear),
		cmocka_unit_test_setup_teardown(rounds_are_taken_together_and_compared_with_raw, begin, end),
		cmocka_unit_test_setup_teardown(people_read_what_failed_and_what_chunks_gain, begin, end),
		cmocka_unit_test_setup_teardown(programs_read_the_same, begin, end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
