/* SPDX-License-Identifier: Apache-2.0
 *
 * The results file of gpclient bench (client/bench/bench_results.h): what was kept is there again, what is somebody else's or
 * damaged stays as it is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "client/bench/bench_results.h"
#include "common/base/fault.h"

static char path[64];
static struct gp_err err;
static json_t *settings;

static int make(void **state)
{
	(void)state;
	strcpy(path, "/tmp/gpsplit-test-XXXXXX");
	const int fd = mkstemp(path);
	settings = json_pack("{s:s, s:s}", "--batch", "64", "--model", "cnn");
	return fd < 0 ? -1 : close(fd);
}

static int clear(void **state)
{
	(void)state;
	json_decref(settings);
	return unlink(path);
}

static struct gp_bench_run run_of(const char *codec, int round, double time)
{
	struct gp_bench_run r = {.key = {.link = "as-is", .cut = "1:-1", .chunks = 8}, .round = round, .steps = 10};
	snprintf(r.key.codec, sizeof r.key.codec, "%s", codec);
	for (int f = 0; f < GP_BENCH_FIGURES; f++)
		r.figure[f] = 0.25 * f;
	r.figure[GP_BENCH_TIME] = r.figure[GP_BENCH_LOWEST] = time;
	r.figure[GP_BENCH_ACCURACY] = NAN;
	strcpy(r.bound_by, "up_wire");
	return r;
}

static struct gp_bench_results open_results(void)
{
	struct gp_bench_results r;
	if (gp_bench_results_open(&r, path, settings, &err) != GP_OK)
		fail_msg("%s", err.text);
	return r;
}

static void fill(void)
{
	struct gp_bench_results r = open_results();
	struct gp_bench_run run = run_of("raw", 1, 1.5), failed = run_of("topk:ratio=0.1", 1, 1);
	struct gp_bench_prediction p = {.key = run.key, .time_s = 1.25, .bound_by = "body"};
	strcpy(failed.why, "the server said \"no\"");
	assert_int_equal(gp_bench_results_add_prediction(&r, &p, &err), GP_OK);
	assert_int_equal(gp_bench_results_add_run(&r, &run, &err), GP_OK);
	assert_int_equal(gp_bench_results_add_run(&r, &failed, &err), GP_OK);
	gp_bench_results_close(&r);
}

static off_t bytes_of(void)
{
	struct stat st;
	assert_int_equal(stat(path, &st), 0);
	return st.st_size;
}

static void append(const char *text)
{
	FILE *f = fopen(path, "a");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

/* Refused in one line that says `part`, and no byte of the file is another. */
static void expect_refusal(const char *part)
{
	struct gp_bench_results r;
	const off_t before = bytes_of();
	assert_int_equal(gp_bench_results_open(&r, path, settings, &err), GP_INVALID);
	if (!strstr(err.text, part))
		fail_msg("'%s' does not say '%s'", err.text, part);
	assert_null(strchr(err.text, '\n'));
	assert_int_equal(bytes_of(), before);
}

static void what_was_kept_is_there_again(void **state)
{
	(void)state;
	fill();
	struct gp_bench_results r = open_results();
	const struct gp_bench_run wanted = run_of("raw", 1, 1.5), failed = run_of("topk:ratio=0.1", 1, 1);
	const struct gp_bench_run *got = gp_bench_results_done(&r, &wanted.key, 1);
	assert_non_null(got);
	for (int f = 0; f < GP_BENCH_FIGURES; f++)
		assert_true(got->figure[f] == wanted.figure[f] || (isnan(got->figure[f]) && isnan(wanted.figure[f])));
	assert_int_equal(got->steps, 10);
	assert_string_equal(got->bound_by, "up_wire");
	assert_null(gp_bench_results_done(&r, &wanted.key, 2));
	assert_null(gp_bench_results_done(&r, &failed.key, 1)); /* it is run again */
	assert_string_equal(gp_bench_results_failed(&r, &failed.key, 1)->why, "the server said \"no\"");
	assert_true(gp_bench_results_predicted(&r, &wanted.key)->time_s == 1.25);
	assert_null(gp_bench_results_predicted(&r, &failed.key));
	gp_bench_results_close(&r);
}

static void a_key_with_anything_else_is_another_row(void **state)
{
	(void)state;
	fill();
	struct gp_bench_results r = open_results();
	struct gp_bench_key key = run_of("raw", 1, 1).key;
	key.chunks = 4;
	assert_null(gp_bench_results_done(&r, &key, 1));
	key.chunks = 8;
	strcpy(key.cut, "2:-1");
	assert_null(gp_bench_results_done(&r, &key, 1));
	strcpy(key.cut, "1:-1");
	strcpy(key.link, "1gbit");
	assert_null(gp_bench_results_done(&r, &key, 1));
	gp_bench_results_close(&r);
}

static void a_line_that_a_crash_cut_short_is_taken_off(void **state)
{
	(void)state;
	fill();
	const off_t whole = bytes_of();
	append("{\"event\": \"run\", \"li");
	struct gp_bench_results r = open_results();
	assert_int_equal(r.runs, 2);
	assert_int_equal(bytes_of(), whole);
	const struct gp_bench_run more = run_of("fp16", 1, 2);
	assert_int_equal(gp_bench_results_add_run(&r, &more, &err), GP_OK);
	gp_bench_results_close(&r);
	r = open_results();
	assert_int_equal(r.runs, 3);
	gp_bench_results_close(&r);
	assert_int_equal(truncate(path, 12), 0); /* of its first line */
	r = open_results();
	assert_int_equal(r.runs, 0);
	gp_bench_results_close(&r);
}

static void another_sweep_is_refused_and_named(void **state)
{
	(void)state;
	fill();
	json_object_set_new(settings, "--batch", json_string("32"));
	expect_refusal("is of another sweep: its --batch is '64', and not '32'");
	json_object_set_new(settings, "--batch", json_string("64"));
	json_object_set_new(settings, "--new", json_string("x"));
	expect_refusal("its --new is '', and not 'x'");
	json_object_del(settings, "--new");
	json_object_del(settings, "--model");
	expect_refusal("its --model is 'cnn', and not ''");
}

static void a_sweep_that_never_had_a_row_gives_way(void **state)
{
	(void)state;
	struct gp_bench_results r = open_results();
	gp_bench_results_close(&r);
	json_object_set_new(settings, "--batch", json_string("32"));
	r = open_results();
	const struct gp_bench_run run = run_of("raw", 1, 1);
	assert_int_equal(gp_bench_results_add_run(&r, &run, &err), GP_OK);
	gp_bench_results_close(&r);
	r = open_results();
	assert_int_equal(r.runs, 1);
	gp_bench_results_close(&r);
	json_object_set_new(settings, "--batch", json_string("64"));
	expect_refusal("its --batch is '32', and not '64'");
}

static void somebodys_file_stays_as_it_is(void **state)
{
	static const char *const text[] = {"link\tcodec\n",
					   "not finished",
					   "{\"event\":\"header\"}\n",
					   "\n",
					   "{}\n",
					   "[1]\n",
					   "{\"event\": \"sweep\"}\n",
					   "{\"event\": \"sweep\", \"format\": 1, \"settings\": []}\n"};
	(void)state;
	for (size_t i = 0; i < sizeof text / sizeof text[0]; i++) {
		assert_int_equal(truncate(path, 0), 0);
		append(text[i]);
		expect_refusal("holds something else than results of gpclient bench");
	}
	assert_int_equal(truncate(path, 0), 0);
	append("{\"event\": \"sweep\", \"format\": 2, \"settings\": {}}\n");
	expect_refusal("is of a newer gpclient");
}

/* Each of them would be a row but for one thing. */
static void a_damaged_row_is_named_by_its_line(void **state)
{
	static const char *const key = "\"link\":\"as-is\",\"cut\":\"1:-1\",\"chunks\":8,\"codec\":\"raw\"";
	static const char *const rest[] = {
		"\"event\":\"failure\",\"round\":1",
		"\"event\":\"failure\",\"round\":0,\"why\":\"x\"",
		"\"event\":\"failure\",\"round\":1e3,\"why\":\"x\"",
		"\"event\":\"failure\",\"round\":99999999999,\"why\":\"x\"",
		"\"event\":\"failure\",\"round\":1,\"why\":[]",
		"\"event\":\"failure\",\"round\":1,\"why\":\"a\\u0000b\"",
		"\"event\":\"run\",\"round\":1,\"steps\":2,\"bound_by\":\"body\"",
		"\"event\":\"run\",\"round\":1,\"steps\":-2,\"bound_by\":\"body\",\"time_per_batch_s\":1",
		"\"event\":\"prediction\",\"time_per_batch_s\":-1,\"bound_by\":\"\",\"why\":\"\"",
		"\"event\":\"prediction\",\"time_per_batch_s\":1,\"bound_by\":\"a name that is too long for "
		"it\",\"why\":\"\"",
		"\"event\":\"other\"",
		"\"event\":7",
	};
	char line[512];
	(void)state;
	for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++) {
		assert_int_equal(truncate(path, 0), 0);
		fill();
		snprintf(line, sizeof line, "{%s,%s}\n", rest[i], key);
		append(line);
		expect_refusal(":5 ");
	}
	assert_int_equal(truncate(path, 0), 0);
	fill();
	append("{\"event\":\"failure\",\"link\":\"as-is\"\n");
	expect_refusal(":5 is damaged");
}

static void a_file_without_an_end_or_of_another_kind_is_refused(void **state)
{
	struct gp_bench_results r;
	(void)state;
	assert_int_equal(gp_bench_results_open(&r, "/dev/zero", settings, &err), GP_INVALID);
	assert_int_equal(gp_bench_results_open(&r, "/tmp", settings, &err), GP_INVALID);
	assert_int_equal(gp_bench_results_open(&r, "/nowhere/at/all", settings, &err), GP_INVALID);
	assert_int_equal(gp_bench_results_open(&r, "", settings, &err), GP_USAGE);
	assert_int_equal(truncate(path, (off_t)1 << 40), 0);
	expect_refusal("holds something else");
}

static void two_benches_do_not_write_to_one_file(void **state)
{
	struct gp_bench_results second;
	(void)state;
	struct gp_bench_results first = open_results();
	assert_int_equal(gp_bench_results_open(&second, path, settings, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "another gpclient bench is writing"));
	gp_bench_results_close(&first);
}

static void without_a_file_rows_are_kept_in_memory(void **state)
{
	struct gp_bench_results r;
	const struct gp_bench_run run = run_of("raw", 1, 1);
	(void)state;
	assert_int_equal(gp_bench_results_open(&r, NULL, settings, &err), GP_OK);
	assert_int_equal(gp_bench_results_add_run(&r, &run, &err), GP_OK);
	assert_non_null(gp_bench_results_done(&r, &run.key, 1));
	gp_bench_results_close(&r);
}

static void a_line_that_a_full_disk_cut_short_is_taken_back(void **state)
{
	(void)state;
	if (!gp_faults_built_in)
		skip();
	fill();
	const off_t before = bytes_of();
	struct gp_bench_results r = open_results();
	const struct gp_bench_run run = run_of("fp16", 1, 1);
	gp_fault_arm(GP_FAULT_WRITE, 1);
	const enum gp_status status = gp_bench_results_add_run(&r, &run, &err);
	gp_fault_arm(GP_FAULT_WRITE, 0);
	assert_int_not_equal(status, GP_OK);
	assert_null(gp_bench_results_done(&r, &run.key, 1));
	gp_bench_results_close(&r);
	assert_int_equal(bytes_of(), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_was_kept_is_there_again, make, clear),
		cmocka_unit_test_setup_teardown(a_key_with_anything_else_is_another_row, make, clear),
		cmocka_unit_test_setup_teardown(a_line_that_a_crash_cut_short_is_taken_off, make, clear),
		cmocka_unit_test_setup_teardown(another_sweep_is_refused_and_named, make, clear),
		cmocka_unit_test_setup_teardown(a_sweep_that_never_had_a_row_gives_way, make, clear),
		cmocka_unit_test_setup_teardown(somebodys_file_stays_as_it_is, make, clear),
		cmocka_unit_test_setup_teardown(a_damaged_row_is_named_by_its_line, make, clear),
		cmocka_unit_test_setup_teardown(a_file_without_an_end_or_of_another_kind_is_refused, make, clear),
		cmocka_unit_test_setup_teardown(two_benches_do_not_write_to_one_file, make, clear),
		cmocka_unit_test_setup_teardown(without_a_file_rows_are_kept_in_memory, make, clear),
		cmocka_unit_test_setup_teardown(a_line_that_a_full_disk_cut_short_is_taken_back, make, clear),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
