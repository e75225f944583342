/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON lines (client/log/json_log.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/base/fault.h"
#include "client/log/json_log.h"

static char path[64];

static int make_path(void **state)
{
	(void)state;
	strcpy(path, "/tmp/gpsplit-test-XXXXXX");
	int fd = mkstemp(path);
	return fd < 0 ? -1 : close(fd);
}

static int remove_path(void **state)
{
	(void)state;
	return unlink(path);
}

/* Checks the stamp of a line, {"time":"2026-01-02T03:04:05.678Z","elapsed_s":0.25,REST, and returns {REST. */
static char *without_stamp(char *line)
{
	int year, month, day, hour, minute, second, ms, end = 0;
	double elapsed;
	const int fields = sscanf(line, "{\"time\":\"%4d-%2d-%2dT%2d:%2d:%2d.%3dZ\",\"elapsed_s\":%lf,%n", &year,
				  &month, &day, &hour, &minute, &second, &ms, &elapsed, &end);
	assert_true(fields == 8 && end > 0);
	assert_true(year >= 2024 && month >= 1 && month <= 12 && day >= 1 && day <= 31 && hour < 24 && minute < 60);
	assert_true(elapsed >= 0 && elapsed < 3600);
	line[end - 1] = '{';
	return line + end - 1;
}

static void assert_content(const char *wanted)
{
	char line[512], text[512] = "";
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof line, f))
		strcat(text, without_stamp(line));
	fclose(f);
	assert_string_equal(text, wanted);
}

static struct gp_json_log *open_log(void)
{
	struct gp_json_log *l = NULL;
	struct gp_err err;
	assert_int_equal(truncate(path, 0), 0);
	assert_int_equal(gp_json_log_open(path, false, &l, &err), GP_OK);
	return l;
}

static void every_object_is_a_line_at_once(void **state)
{
	struct gp_err err;
	(void)state;
	gp_json_log_close(open_log(), &err);
	struct gp_json_log *l = open_log();
	assert_int_equal(gp_json_log_write(l, "x", json_pack("{s:i,s:f}", "step", 1, "loss", 2.5), &err), GP_OK);
	assert_content("{\"event\":\"x\",\"step\":1,\"loss\":2.5}\n");
	assert_int_equal(gp_json_log_write(l, "x", json_pack("{s:s}", "text", "a\nb"), &err), GP_OK);
	assert_content("{\"event\":\"x\",\"step\":1,\"loss\":2.5}\n{\"event\":\"x\",\"text\":\"a\\nb\"}\n");
	assert_int_equal(gp_json_log_close(l, &err), GP_OK);
}

static void log_that_is_gone_on_with_keeps_its_lines(void **state)
{
	struct gp_err err;
	struct gp_json_log *l = open_log();
	(void)state;
	gp_json_log_write(l, "x", json_pack("{s:i}", "step", 1), &err);
	gp_json_log_close(l, &err);
	assert_int_equal(gp_json_log_open(path, true, &l, &err), GP_OK);
	gp_json_log_write(l, "x", json_pack("{s:i}", "step", 2), &err);
	assert_int_equal(gp_json_log_close(l, &err), GP_OK);
	assert_content("{\"event\":\"x\",\"step\":1}\n{\"event\":\"x\",\"step\":2}\n");
}

/* As of a training and of `gpclient attack`, which adds to its log. */
static void two_processes_write_behind_each_other(void **state)
{
	struct gp_err err;
	struct gp_json_log *l = open_log(), *other;
	(void)state;
	gp_json_log_write(l, "x", json_pack("{s:i}", "step", 1), &err);
	assert_int_equal(gp_json_log_open(path, true, &other, &err), GP_OK);
	gp_json_log_write(other, "y", json_pack("{s:i}", "step", 2), &err);
	gp_json_log_write(l, "x", json_pack("{s:i}", "step", 3), &err);
	gp_json_log_write(other, "y", json_pack("{s:i}", "step", 4), &err);
	assert_int_equal(gp_json_log_close(l, &err), GP_OK);
	assert_int_equal(gp_json_log_close(other, &err), GP_OK);
	assert_content("{\"event\":\"x\",\"step\":1}\n{\"event\":\"y\",\"step\":2}\n"
		       "{\"event\":\"x\",\"step\":3}\n{\"event\":\"y\",\"step\":4}\n");
}

static void half_a_line_stays_by_itself(void **state)
{
	struct gp_err err;
	struct gp_json_log *l = open_log();
	char text[256];
	(void)state;
	gp_json_log_write(l, "x", json_object(), &err);
	gp_json_log_close(l, &err);
	assert_int_equal(truncate(path, 10), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(gp_json_log_open(path, true, &l, &err), GP_OK);
		gp_json_log_write(l, "x", json_object(), &err);
		assert_int_equal(gp_json_log_close(l, &err), GP_OK);
	}
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	assert_non_null(fgets(text, sizeof text, f));
	assert_int_equal(strlen(text), 11);
	for (int i = 0; i < 2; i++) {
		assert_non_null(fgets(text, sizeof text, f));
		assert_string_equal(without_stamp(text), "{\"event\":\"x\"}\n");
	}
	assert_null(fgets(text, sizeof text, f));
	fclose(f);
}

static void a_log_is_not_written_over_and_failures_name_the_file(void **state)
{
	struct gp_err err;
	struct gp_json_log *l = open_log();
	(void)state;
	gp_json_log_write(l, "x", json_object(), &err);
	gp_json_log_close(l, &err);
	assert_int_equal(gp_json_log_open(path, false, &l, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "--log-json: /tmp/gpsplit-test-"));
	assert_non_null(strstr(err.text, "another name"));
	assert_non_null(strstr(err.text, "--resume"));
	assert_content("{\"event\":\"x\"}\n");
	assert_int_equal(gp_json_log_close(open_log(), &err), GP_OK); /* an empty file serves */
	assert_int_equal(gp_json_log_open("no/such/folder/x", false, &l, &err), GP_INVALID);
	assert_string_equal(err.text, "cannot create JSON log no/such/folder/x: No such file or directory");
}

/* Writes these events, and opens the file once more. */
static enum gp_status open_behind(const char *const *events)
{
	struct gp_err err;
	struct gp_json_log *l = open_log();
	for (; *events; events++)
		assert_int_equal(gp_json_log_write(l, *events, json_object(), &err), GP_OK);
	gp_json_log_close(l, &err);
	const enum gp_status status = gp_json_log_open(path, false, &l, &err);
	if (status == GP_OK)
		gp_json_log_close(l, &err);
	return status;
}

static void a_log_of_failures_alone_begins_anew(void **state)
{
	(void)state;
	assert_int_equal(open_behind((const char *[]){"header", "error", NULL}), GP_OK);
	assert_content("");
	assert_int_equal(open_behind((const char *[]){"header", "error", "header", "error", NULL}), GP_OK);
	assert_content("");
	assert_int_equal(open_behind((const char *[]){"header", NULL}), GP_INVALID); /* that run may be on its way */
	assert_int_equal(open_behind((const char *[]){"header", "error", "header", NULL}), GP_INVALID);
	assert_int_equal(open_behind((const char *[]){"header", "step", "error", NULL}), GP_INVALID);
	assert_content("{\"event\":\"header\"}\n{\"event\":\"step\"}\n{\"event\":\"error\"}\n");
}

static void no_log_drops_everything(void **state)
{
	struct gp_err err;
	(void)state;
	assert_int_equal(gp_json_log_write(NULL, "x", json_object(), &err), GP_OK);
	assert_int_equal(gp_json_log_close(NULL, &err), GP_OK);
}

static void a_full_disk_is_reported_once(void **state)
{
	struct gp_err err = {0};
	struct gp_json_log *l = NULL;
	(void)state;
	assert_int_equal(gp_json_log_open("/dev/full", false, &l, &err), GP_OK);
	assert_int_equal(gp_json_log_write(l, "x", json_object(), &err), GP_IO);
	assert_string_equal(err.text, "cannot write JSON log /dev/full: No space left on device; no more lines follow");
	assert_int_equal(gp_json_log_write(l, "x", json_object(), &err), GP_OK);
	err = (struct gp_err){0};
	assert_int_equal(gp_json_log_close(l, &err), GP_IO); /* whoever closes last decides on the exit status */
	assert_string_equal(err.text, "cannot write JSON log /dev/full: No space left on device; no more lines follow");
}

/* A limit on the file's size stands for a disk with some bytes left: the kernel writes as much of the line as fits. */
static void a_line_that_does_not_fit_is_taken_back(void **state)
{
	struct gp_err err = {0};
	struct rlimit before, few;
	struct gp_json_log *l = open_log();
	(void)state;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	few = before;
	few.rlim_cur = 120;
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
	assert_int_equal(gp_json_log_write(l, "x", json_pack("{s:s}", "text", "0123456789"), &err),
			 GP_OK); /* 80 to 105 bytes */
	enum gp_status status = gp_json_log_write(l, "x", json_pack("{s:s}", "text", "0123456789"), &err);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(status, GP_IO);
	assert_int_equal(gp_json_log_write(l, "x", json_object(), &err), GP_OK);
	assert_int_equal(gp_json_log_close(l, &err), GP_IO);
	assert_content("{\"event\":\"x\",\"text\":\"0123456789\"}\n");
}

static void a_missing_object_is_an_error(void **state)
{
	struct gp_err err = {0};
	struct gp_json_log *l = open_log();
	(void)state;
	assert_int_equal(gp_json_log_write(l, "x", NULL, &err), GP_NOMEM);
	gp_json_log_close(l, &err);
	assert_content("");
}

#ifdef GP_FAULTS
static void an_injected_write_fault_silences_the_log(void **state)
{
	struct gp_err err = {0};
	struct gp_json_log *l = open_log();
	(void)state;
	gp_fault_arm(GP_FAULT_WRITE, 2);
	assert_int_equal(gp_json_log_write(l, "x", json_object(), &err), GP_OK);
	assert_int_equal(gp_json_log_write(l, "x", json_object(), &err), GP_IO);
	assert_int_equal(gp_json_log_write(l, "x", json_object(), &err), GP_OK);
	gp_fault_arm(GP_FAULT_WRITE, 0);
	assert_int_equal(gp_json_log_close(l, &err), GP_IO);
	assert_content("{\"event\":\"x\"}\n");
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_object_is_a_line_at_once),
		cmocka_unit_test(log_that_is_gone_on_with_keeps_its_lines),
		cmocka_unit_test(two_processes_write_behind_each_other),
		cmocka_unit_test(half_a_line_stays_by_itself),
		cmocka_unit_test(a_log_is_not_written_over_and_failures_name_the_file),
		cmocka_unit_test(a_log_of_failures_alone_begins_anew),
		cmocka_unit_test(no_log_drops_everything),
		cmocka_unit_test(a_full_disk_is_reported_once),
		cmocka_unit_test(a_line_that_does_not_fit_is_taken_back),
		cmocka_unit_test(a_missing_object_is_an_error),
#ifdef GP_FAULTS
		cmocka_unit_test(an_injected_write_fault_silences_the_log),
#endif
	};
	return cmocka_run_group_tests(tests, make_path, remove_path);
}
