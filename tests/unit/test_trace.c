/* SPDX-License-Identifier: Apache-2.0
 *
 * The file of --trace (client/trace/trace.h): always an array of events, with what was asked for in it and no more.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/trace/trace.h"
#include "common/base/clock.h"
#include "tests/unit/ok.h"

enum { CHUNKS = 4 };

static char folder[] = "/tmp/gp-trace-XXXXXX", file[64], second[64];

static int make_folder(void **state)
{
	(void)state;
	if (!mkdtemp(folder))
		return -1;
	snprintf(file, sizeof file, "%s/t.json", folder);
	snprintf(second, sizeof second, "%s/t.json.2", folder);
	return 0;
}

static int remove_folder(void **state)
{
	(void)state;
	unlink(file);
	unlink(second);
	return rmdir(folder);
}

static int remove_files(void **state)
{
	(void)state;
	unlink(file);
	unlink(second);
	return 0;
}

static struct gp_trace *open_trace(const struct gp_trace_spec *more)
{
	struct gp_trace_spec spec = *more;
	struct gp_trace *t;
	spec.path = file;
	spec.split = true;
	spec.first = spec.first ? spec.first : 1;
	spec.limit_bytes = spec.limit_bytes ? spec.limit_bytes : 1 << 20;
	OK(gp_trace_open(&spec, &t, &err));
	return t;
}

static void put(struct gp_trace *t, enum gp_interval_stage stage, uint64_t number)
{
	static uint64_t now; /* one after the other */
	now = now ? now + 10000 : gp_now_ns();
	const struct gp_interval i = {.stage = stage,
				      .number = number,
				      .queued_ns = now,
				      .begin_ns = now + 1000,
				      .end_ns = now + 3000,
				      .bytes = 123};
	gp_trace_put(t, &i, CHUNKS);
}

static json_t *load(void)
{
	json_error_t why;
	json_t *events = json_load_file(file, 0, &why);
	if (!json_is_array(events))
		fail_msg("%s: line %d: %s", file, why.line, why.text);
	return events;
}

static json_int_t number_of(const json_t *event, const char *key)
{
	return json_integer_value(json_object_get(event, key));
}

/* Events of this name and kind; the last one of them comes back, too. */
static int events_of(const json_t *events, const char *name, const char *ph, const json_t **last)
{
	size_t i;
	json_t *e;
	int n = 0;
	json_array_foreach(events, i, e)
	{
		if (strcmp(json_string_value(json_object_get(e, "name")), name) != 0 ||
		    strcmp(json_string_value(json_object_get(e, "ph")), ph) != 0)
			continue;
		n++;
		if (last)
			*last = e;
	}
	return n;
}

static void every_stage_is_an_event_of_its_end(void **state)
{
	(void)state;
	const json_t *e = NULL;
	struct gp_trace *t = open_trace(&(struct gp_trace_spec){.resumed = false});
	for (int s = 0; s < GP_AT_STAGES; s++)
		put(t, (enum gp_interval_stage)s, 6);
	OK(gp_trace_close(t, &err));
	json_t *events = load();
	for (int s = 0; s < GP_AT_STAGES; s++) {
		const char *name = gp_interval_stage_name((enum gp_interval_stage)s);
		const bool server = gp_interval_of_server((enum gp_interval_stage)s);
		if (s == GP_AT_CHUNK_DONE)
			continue;
		assert_in_range(events_of(events, name, "X", &e), 1, 2); /* "loss" is of two engines */
		assert_int_equal(number_of(e, "pid"), server ? 2 : 1);
		assert_int_equal(number_of(json_object_get(e, "args"), "step"), 2);
		assert_int_equal(number_of(json_object_get(e, "args"), "bytes"), 123);
		assert_true(json_number_value(json_object_get(e, "dur")) > 1.9);
	}
	assert_int_equal(events_of(events, "act_up", "s", NULL), 1);
	assert_int_equal(events_of(events, "act_up", "f", NULL), 1);
	assert_int_equal(events_of(events, "act_up decode: queued", "b", NULL), 1);
	assert_int_equal(events_of(events, "process_name", "M", NULL), 2);
	events_of(events, "body forward", "X", &e);
	assert_int_equal(number_of(json_object_get(e, "args"), "chunk"), 2);
	json_decref(events);
}

/* Tensors whose bytes the kernel has had at once, and a server whose clock was found to be another. */
static void events_of_a_row_do_not_overlap(void **state)
{
	(void)state;
	const json_t *e = NULL;
	struct gp_trace *t = open_trace(&(struct gp_trace_spec){.resumed = false});
	const uint64_t now = gp_now_ns();
	for (uint64_t n = 0; n < 2; n++) {
		struct gp_interval i = {
			.number = n, .queued_ns = now, .begin_ns = now + n * 6000, .end_ns = now + n * 6000 + 10000};
		i.stage = GP_AT_ACT_UP_SENT;
		gp_trace_put(t, &i, CHUNKS);
		i.stage = GP_AT_BODY_FORWARD;
		gp_trace_put(t, &i, CHUNKS);
	}
	OK(gp_trace_close(t, &err));
	json_t *events = load();
	assert_int_equal(events_of(events, "act_up sent", "X", &e), 2);
	assert_int_equal(number_of(e, "tid") % 2, 1); /* a row of its own */
	assert_int_equal(events_of(events, "body forward", "X", &e), 2);
	const double dur = json_real_value(json_object_get(e, "dur"));
	assert_true(dur > 5.9 && dur < 6.1);
	json_decref(events);
}

/* As of a run that finds no server, which is then tried again. */
static void a_file_without_an_event_is_removed(void **state)
{
	(void)state;
	struct gp_trace *t = open_trace(&(struct gp_trace_spec){.resumed = false});
	assert_int_equal(access(file, F_OK), 0);
	OK(gp_trace_close(t, &err));
	assert_int_not_equal(access(file, F_OK), 0);
}

/* What a process that is killed leaves: no end, and no half of an event. */
static void what_was_put_is_soon_in_the_file(void **state)
{
	(void)state;
	char text[4096] = "";
	struct gp_trace *t = open_trace(&(struct gp_trace_spec){.resumed = false});
	put(t, GP_AT_STEP, 0);
	for (int tries = 0; tries < 6000 && !strstr(text, "\"step\":1,\"bytes\":123}}"); tries++) {
		FILE *f = fopen(file, "r");
		assert_non_null(f);
		text[fread(text, 1, sizeof text - 1, f)] = '\0';
		fclose(f);
		usleep(10000);
	}
	assert_non_null(strstr(text, "\"step\":1,\"bytes\":123}}"));
	assert_null(strstr(text, "]"));
	OK(gp_trace_close(t, &err));
	json_decref(load());
}

static void clocks_are_stated(void **state)
{
	(void)state;
	const json_t *e = NULL;
	struct gp_trace *t = open_trace(&(struct gp_trace_spec){.resumed = false});
	gp_trace_put_clock(t, &(struct gp_clock_estimate){true, -1500, 700}, gp_now_ns(), 1);
	OK(gp_trace_close(t, &err));
	json_t *events = load();
	assert_int_equal(events_of(events, "server_clock", "i", &e), 1);
	const json_t *args = json_object_get(e, "args");
	assert_true(json_real_value(json_object_get(args, "offset_us")) == -1.5);
	assert_true(json_real_value(json_object_get(args, "uncertainty_us")) == 0.7);
	json_decref(events);
}

static void only_the_steps_asked_for_are_traced(void **state)
{
	(void)state;
	struct gp_trace *t = open_trace(&(struct gp_trace_spec){.first = 2, .last = 3});
	for (uint64_t step = 0; step < 5; step++)
		put(t, GP_AT_STEP, step * CHUNKS);
	OK(gp_trace_close(t, &err));
	json_t *events = load();
	assert_int_equal(events_of(events, "step", "X", NULL), 2);
	json_decref(events);
}

static void a_limit_ends_the_file_as_an_array(void **state)
{
	(void)state;
	struct stat st;
	struct gp_trace *t = open_trace(&(struct gp_trace_spec){.limit_bytes = 8192});
	for (uint64_t i = 0; i < 1000; i++)
		put(t, GP_AT_HEAD_FORWARD, i);
	OK(gp_trace_close(t, &err));
	assert_int_equal(stat(file, &st), 0);
	assert_in_range(st.st_size, 7000, 8192);
	json_decref(load());
}

static void what_is_there_is_not_written_over(void **state)
{
	(void)state;
	struct gp_trace *t = open_trace(&(struct gp_trace_spec){.resumed = false});
	put(t, GP_AT_STEP, 0);
	OK(gp_trace_close(t, &err));
	const struct gp_trace_spec spec = {.path = file, .first = 1, .limit_bytes = 8192};
	assert_int_equal(gp_trace_open(&spec, &t, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "not written over"));
	t = open_trace(&(struct gp_trace_spec){.resumed = true});
	assert_string_equal(gp_trace_path(t), second);
	put(t, GP_AT_STEP, 0);
	OK(gp_trace_close(t, &err));
	json_decref(load());
}

static void a_file_that_cannot_be_made_is_an_error(void **state)
{
	(void)state;
	struct gp_trace *t;
	const struct gp_trace_spec spec = {.path = "/proc/none/t.json", .first = 1, .limit_bytes = 8192};
	assert_int_equal(gp_trace_open(&spec, &t, &err), GP_INVALID);
}

static void a_full_disk_is_told_at_the_end(void **state)
{
	(void)state;
	struct gp_trace *t;
	const struct gp_trace_spec spec = {.path = "/dev/full", .first = 1, .limit_bytes = 1 << 20};
	OK(gp_trace_open(&spec, &t, &err));
	put(t, GP_AT_STEP, 0);
	assert_int_equal(gp_trace_close(t, &err), GP_IO);
	assert_non_null(strstr(err.text, "/dev/full"));
}

static void expect_steps(const char *text, uint64_t first, uint64_t last)
{
	uint64_t a = 0, b = 0;
	OK(gp_trace_steps_read(text, &a, &b, &err));
	assert_int_equal(a, first);
	assert_int_equal(b, last);
}

static void steps_are_from_to(void **state)
{
	(void)state;
	static const char *const bad[] = {
		"", ":", "0:3", "5:4", "a", "1:2x", "-1:2", "1:0", "99999999999999999999999999:", "0"};
	uint64_t a, b;
	expect_steps("1:", 1, 0);
	expect_steps("3:7", 3, 7);
	expect_steps(":7", 1, 7);
	expect_steps("4", 4, 4);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		if (gp_trace_steps_read(bad[i], &a, &b, &err) != GP_USAGE)
			fail_msg("'%s' was taken", bad[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(every_stage_is_an_event_of_its_end, remove_files),
		cmocka_unit_test_teardown(events_of_a_row_do_not_overlap, remove_files),
		cmocka_unit_test_teardown(a_file_without_an_event_is_removed, remove_files),
		cmocka_unit_test_teardown(what_was_put_is_soon_in_the_file, remove_files),
		cmocka_unit_test_teardown(clocks_are_stated, remove_files),
		cmocka_unit_test_teardown(only_the_steps_asked_for_are_traced, remove_files),
		cmocka_unit_test_teardown(a_limit_ends_the_file_as_an_array, remove_files),
		cmocka_unit_test_teardown(what_is_there_is_not_written_over, remove_files),
		cmocka_unit_test(a_file_that_cannot_be_made_is_an_error),
		cmocka_unit_test(a_full_disk_is_told_at_the_end),
		cmocka_unit_test(steps_are_from_to),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
