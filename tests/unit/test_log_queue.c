/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue of log lines (common/base/log_queue.h) before a reader that reads late, or never.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/base/log_queue.h"
#include "common/base/mem.h"

#define LINES 20000

static size_t left_out(uint64_t lines, char *out, size_t size)
{
	return (size_t)snprintf(out, size, "left out %llu\n", (unsigned long long)lines);
}

static struct gp_log_queue *queue_to(int fd)
{
	struct gp_log_queue *q;
	struct gp_err err;
	if (gp_log_queue_new(fd, left_out, &q, &err) != GP_OK)
		fail_msg("%s", err.text);
	return q;
}

static void put_lines(struct gp_log_queue *q, int first, int count)
{
	for (int i = first; i < first + count; i++) {
		char line[64];
		const int n = snprintf(line, sizeof line, "line %d, which is as long as it is\n", i);
		gp_log_queue_put(q, line, (size_t)n);
	}
}

/* Reads until `lines` lines were there in their order, or counted in their place; returns how many were counted. */
static uint64_t expect_all(FILE *in, int lines)
{
	char line[128];
	int next = 0, number;
	uint64_t counted = 0;
	unsigned long long missing;
	while (next < lines && fgets(line, sizeof line, in)) {
		assert_non_null(strchr(line, '\n'));
		if (sscanf(line, "left out %llu", &missing) == 1) {
			next += (int)missing;
			counted += missing;
		} else if (sscanf(line, "line %d,", &number) != 1 || number != next++) {
			fail_msg("line %d is wanted, but there is: %s", next, line);
		}
	}
	assert_int_equal(next, lines);
	return counted;
}

static void lines_come_in_order_and_all_of_them_where_somebody_reads(void **state)
{
	(void)state;
	FILE *file = tmpfile();
	assert_non_null(file);
	struct gp_log_queue *q = queue_to(fileno(file));
	for (int i = 0; i < LINES; i += 100) {
		put_lines(q, i, 100);
		usleep(100);
	}
	const uint64_t dropped = gp_log_queue_dropped(q);
	assert_true(gp_log_queue_stop(q, 600));
	gp_log_queue_free(q);
	rewind(file);
	assert_int_equal(expect_all(file, LINES), dropped);
	fclose(file);
}

/* Nobody reads until everything was put: that it was put at all shows that nobody waited. */
static void a_reader_that_comes_late_finds_what_fitted_and_how_much_did_not(void **state)
{
	(void)state;
	int ends[2];
	assert_int_equal(pipe(ends), 0);
	struct gp_log_queue *q = queue_to(ends[1]);
	put_lines(q, 0, LINES);
	const uint64_t dropped = gp_log_queue_dropped(q);
	assert_true(dropped > 0);
	FILE *in = fdopen(ends[0], "r");
	char line[128];
	assert_int_equal(expect_all(in, LINES), dropped);
	put_lines(q, LINES, 1); /* from here on there is room again */
	assert_non_null(fgets(line, sizeof line, in));
	assert_non_null(strstr(line, "line 20000,"));
	assert_true(gp_log_queue_stop(q, 600));
	gp_log_queue_free(q);
	close(ends[1]);
	fclose(in);
}

static void the_end_does_not_wait_for_a_reader_that_never_comes(void **state)
{
	(void)state;
	int ends[2];
	assert_int_equal(pipe(ends), 0);
	struct gp_log_queue *q = queue_to(ends[1]);
	put_lines(q, 0, LINES);
	assert_false(gp_log_queue_stop(q, 0.05));
	close(ends[0]); /* the write that hangs fails, and the thread ends */
	assert_true(gp_log_queue_stop(q, 600));
	gp_log_queue_free(q);
	close(ends[1]);
}

/* As a thread does that the program's end does not wait for. */
static void a_line_behind_the_end_is_written_by_whoever_puts_it(void **state)
{
	(void)state;
	FILE *file = tmpfile();
	assert_non_null(file);
	struct gp_log_queue *q = queue_to(fileno(file));
	put_lines(q, 0, 2);
	assert_true(gp_log_queue_stop(q, 600));
	put_lines(q, 2, 1);
	gp_log_queue_free(q);
	rewind(file);
	assert_int_equal(expect_all(file, 3), 0);
	fclose(file);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_come_in_order_and_all_of_them_where_somebody_reads),
		cmocka_unit_test(a_reader_that_comes_late_finds_what_fitted_and_how_much_did_not),
		cmocka_unit_test(the_end_does_not_wait_for_a_reader_that_never_comes),
		cmocka_unit_test(a_line_behind_the_end_is_written_by_whoever_puts_it),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
