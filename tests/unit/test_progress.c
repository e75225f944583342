/* SPDX-License-Identifier: Apache-2.0
 *
 * The progress line (client/log/progress.h). The clock is a number in these tests.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "client/log/progress.h"

static const uint64_t second = 1000 * 1000 * 1000;

static void assert_written(FILE *f, const char *wanted)
{
	char text[512] = "";
	rewind(f);
	text[fread(text, 1, sizeof text - 1, f)] = '\0';
	assert_string_equal(text, wanted);
	fclose(f);
}

static struct gp_progress on_terminal(FILE *to)
{
	return (struct gp_progress){.to = to, .in_place = true, .every_ns = second / 5};
}

static void a_file_gets_whole_lines_now_and_then(void **state)
{
	struct gp_progress p;
	FILE *f = tmpfile();
	(void)state;
	gp_progress_init(&p, f, 3);
	assert_false(p.in_place);
	gp_progress_update(&p, 0, "first");
	gp_progress_update(&p, 2 * second, "too early");
	assert_false(gp_progress_due(&p, 3 * second - 1));
	gp_progress_update(&p, 3 * second, "second\nhidden");
	gp_progress_clear(&p);
	gp_progress_finish(&p, "last");
	assert_written(f, "first\nsecond\nlast\n");
}

static void a_terminal_line_is_rewritten_at_most_five_times_a_second(void **state)
{
	FILE *f = tmpfile();
	struct gp_progress p = on_terminal(f);
	(void)state;
	for (uint64_t ms = 0; ms < 401; ms += 10)
		gp_progress_update(&p, ms * 1000 * 1000, "x");
	gp_progress_finish(&p, NULL);
	assert_written(f, "\r\033[Kx\r\033[Kx\r\033[Kx\n");
}

static void clearing_makes_room_for_a_message(void **state)
{
	FILE *f = tmpfile();
	struct gp_progress p = on_terminal(f);
	(void)state;
	gp_progress_clear(&p);
	gp_progress_update(&p, 0, "x");
	gp_progress_clear(&p);
	fputs("message\n", f);
	gp_progress_finish(&p, NULL);
	assert_written(f, "\r\033[Kx\r\033[Kmessage\n");
}

static void long_text_is_cut_to_the_terminal(void **state)
{
	char text[200], wanted[100];
	FILE *f = tmpfile();
	struct gp_progress p = on_terminal(f);
	(void)state;
	memset(text, 'y', sizeof text);
	text[199] = '\0';
	gp_progress_finish(&p, text);
	snprintf(wanted, sizeof wanted, "\r\033[K%.79s\n", text);
	assert_written(f, wanted);
}

static void quiet_writes_nothing(void **state)
{
	struct gp_progress p;
	(void)state;
	gp_progress_init(&p, NULL, 1);
	assert_false(gp_progress_due(&p, 0));
	gp_progress_update(&p, 0, "x");
	gp_progress_clear(&p);
	gp_progress_finish(&p, "x");
	assert_false(p.shown);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_gets_whole_lines_now_and_then),
		cmocka_unit_test(a_terminal_line_is_rewritten_at_most_five_times_a_second),
		cmocka_unit_test(clearing_makes_room_for_a_message),
		cmocka_unit_test(long_text_is_cut_to_the_terminal),
		cmocka_unit_test(quiet_writes_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
