/* SPDX-License-Identifier: Apache-2.0
 *
 * Log levels per area, and what a line looks like in each format (common/base/log.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>

#include "common/base/log.h"

static void areas_take_their_own_levels(void **state)
{
	(void)state;
	struct gp_err err;
	assert_int_equal(gp_log_configure("all=error,codec=debug", &err), GP_OK);
	assert_true(gp_log_enabled(GP_LOG_AREA_codec, GP_LOG_DEBUG));
	assert_false(gp_log_enabled(GP_LOG_AREA_codec, GP_LOG_TRACE));
	assert_false(gp_log_enabled(GP_LOG_AREA_net, GP_LOG_WARN));
	assert_true(gp_log_enabled(GP_LOG_AREA_net, GP_LOG_ERROR));
}

static void wrong_specs_name_what_is_wrong(void **state)
{
	(void)state;
	struct gp_err err;
	assert_int_equal(gp_log_configure("codec", &err), GP_USAGE);
	assert_non_null(strstr(err.text, "codec"));
	assert_int_equal(gp_log_configure("codec=loud", &err), GP_USAGE);
	assert_non_null(strstr(err.text, "loud"));
	assert_int_equal(gp_log_configure("all=info,kodec=info", &err), GP_USAGE);
	assert_non_null(strstr(err.text, "kodec"));
}

static int evaluated(int *counter)
{
	return ++*counter;
}

static void arguments_of_silent_lines_are_not_evaluated(void **state)
{
	(void)state;
	struct gp_err err;
	int counter = 0;
	assert_int_equal(gp_log_configure("all=error", &err), GP_OK);
	gp_log(net, GP_LOG_DEBUG, "%d", evaluated(&counter));
	assert_int_equal(counter, 0);
}

/* What is logged between begin_capture and end_capture goes to a file; where `journald`, as if it were its stream. */
struct capture {
	FILE *file;
	int stderr_fd;
	char text[8192];
};

static void begin_capture(struct capture *c, const char *format, bool journald)
{
	struct gp_err err;
	struct stat st;
	char stream[64];
	fflush(stderr);
	c->file = tmpfile();
	c->stderr_fd = dup(STDERR_FILENO);
	assert_int_equal(dup2(fileno(c->file), STDERR_FILENO), STDERR_FILENO);
	assert_int_equal(fstat(STDERR_FILENO, &st), 0);
	snprintf(stream, sizeof stream, "%llu:%llu", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino + !journald);
	setenv("JOURNAL_STREAM", stream, 1);
	assert_int_equal(gp_log_set_format(format, &err), GP_OK);
	gp_log_start();
}

static void end_capture(struct capture *c)
{
	gp_log_stop(600);
	dup2(c->stderr_fd, STDERR_FILENO);
	close(c->stderr_fd);
	rewind(c->file);
	c->text[fread(c->text, 1, sizeof c->text - 1, c->file)] = '\0';
	fclose(c->file);
	unsetenv("JOURNAL_STREAM");
}

static void lines_of_text_are_as_they_always_were(void **state)
{
	(void)state;
	struct capture c;
	const struct gp_log_event e = {.name = "session_ended", .reason = "ok", .session = 7};
	begin_capture(&c, "text", false);
	gp_log_write(GP_LOG_AREA_net, GP_LOG_WARN, "a %s", "line");
	gp_log_write_event(GP_LOG_AREA_session, GP_LOG_INFO, &e, "session 7 ended");
	gp_log_announce(NULL, "listening");
	end_capture(&c);
	assert_string_equal(c.text + 24, strchr(c.text, ' ')); /* a stamp of 24 characters */
	assert_memory_equal(c.text + 24, " warn net: a line\n", 18);
	assert_non_null(strstr(c.text, "Z info session: session 7 ended\nlistening\n"));
}

static void lines_of_json_are_objects_with_the_names_of_events(void **state)
{
	(void)state;
	struct capture c;
	const struct gp_log_event e = {.name = "session_ended",
				       .reason = "timeout",
				       .client = "token:edge",
				       .address = "[::1]:5",
				       .session = 7,
				       .step = 12};
	begin_capture(&c, "json", false);
	gp_log_write_event(GP_LOG_AREA_session, GP_LOG_INFO, &e, "it said \"bye\" \xff");
	gp_log_write(GP_LOG_AREA_main, GP_LOG_ERROR, "no event");
	end_capture(&c);
	char *second = strchr(c.text, '\n');
	*second++ = '\0';
	json_t *o = json_loads(c.text, 0, NULL), *p = json_loads(second, 0, NULL);
	assert_non_null(o);
	assert_non_null(p);
	assert_string_equal(json_string_value(json_object_get(o, "level")), "info");
	assert_string_equal(json_string_value(json_object_get(o, "area")), "session");
	assert_string_equal(json_string_value(json_object_get(o, "event")), "session_ended");
	assert_string_equal(json_string_value(json_object_get(o, "reason")), "timeout");
	assert_string_equal(json_string_value(json_object_get(o, "client")), "token:edge");
	assert_string_equal(json_string_value(json_object_get(o, "address")), "[::1]:5");
	assert_int_equal(json_integer_value(json_object_get(o, "session")), 7);
	assert_int_equal(json_integer_value(json_object_get(o, "step")), 12);
	assert_string_equal(json_string_value(json_object_get(o, "text")), "it said \"bye\" \xEF\xBF\xBD");
	assert_int_equal(strlen(json_string_value(json_object_get(o, "time"))), 24);
	assert_null(json_object_get(p, "event"));
	assert_string_equal(json_string_value(json_object_get(p, "text")), "no event");
	json_decref(o);
	json_decref(p);
}

static void a_stream_of_journald_gets_priorities(void **state)
{
	(void)state;
	struct capture c;
	begin_capture(&c, "text", true);
	gp_log_write(GP_LOG_AREA_main, GP_LOG_ERROR, "error");
	gp_log_write(GP_LOG_AREA_main, GP_LOG_WARN, "warn");
	gp_log_write(GP_LOG_AREA_main, GP_LOG_INFO, "info");
	gp_log_write(GP_LOG_AREA_main, GP_LOG_DEBUG, "debug");
	end_capture(&c);
	assert_memory_equal(c.text, "<3>2", 4);
	assert_non_null(strstr(c.text, "\n<4>2"));
	assert_non_null(strstr(c.text, "\n<6>2"));
	assert_non_null(strstr(c.text, "\n<7>2"));
	begin_capture(&c, "json", true);
	gp_log_write(GP_LOG_AREA_main, GP_LOG_INFO, "info");
	end_capture(&c);
	assert_memory_equal(c.text, "<6>{", 4);
	begin_capture(&c, "text", false);
	gp_log_write(GP_LOG_AREA_main, GP_LOG_INFO, "info");
	end_capture(&c);
	assert_memory_equal(c.text, "2", 1);
}

static void an_end_of_line_in_a_text_begins_no_line(void **state)
{
	(void)state;
	struct capture c;
	begin_capture(&c, "text", true);
	gp_log_write(GP_LOG_AREA_net, GP_LOG_WARN, "asks for %s",
		     "/\n<0>2026-01-02T03:04:05.678Z error main: stopping");
	end_capture(&c);
	assert_non_null(strstr(c.text, " warn net: asks for /?<0>2026"));
	assert_ptr_equal(strchr(c.text, '\n'), c.text + strlen(c.text) - 1);
}

static void *log_until_told(void *arg)
{
	atomic_bool *told = arg;
	while (!atomic_load(told))
		gp_log_write(GP_LOG_AREA_net, GP_LOG_WARN, "a line of a thread that nobody joins");
	return NULL;
}

/* As where the server is told to stop a second time: the threads of what is under way still log. */
static void the_end_of_the_log_does_not_need_the_end_of_other_threads(void **state)
{
	(void)state;
	struct capture c;
	for (int i = 0; i < 20; i++) {
		atomic_bool told = false;
		pthread_t thread;
		begin_capture(&c, "text", false);
		assert_int_equal(pthread_create(&thread, NULL, log_until_told, &told), 0);
		usleep(1000);
		gp_log_stop(600);
		usleep(1000);
		atomic_store(&told, true);
		pthread_join(thread, NULL);
		end_capture(&c);
	}
}

static void an_unknown_format_is_named(void **state)
{
	(void)state;
	struct gp_err err;
	assert_int_equal(gp_log_set_format("xml", &err), GP_USAGE);
	assert_non_null(strstr(err.text, "--log-format: 'xml' is none of text, json"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(areas_take_their_own_levels),
		cmocka_unit_test(wrong_specs_name_what_is_wrong),
		cmocka_unit_test(arguments_of_silent_lines_are_not_evaluated),
		cmocka_unit_test(lines_of_text_are_as_they_always_were),
		cmocka_unit_test(lines_of_json_are_objects_with_the_names_of_events),
		cmocka_unit_test(a_stream_of_journald_gets_priorities),
		cmocka_unit_test(an_end_of_line_in_a_text_begins_no_line),
		cmocka_unit_test(the_end_of_the_log_does_not_need_the_end_of_other_threads),
		cmocka_unit_test(an_unknown_format_is_named),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
