/* SPDX-License-Identifier: Apache-2.0
 *
 * Figures of a measured link (client/measure/link_figures.h): statistics of round trips,
 * and what was not measured is null in JSON. And the machine's processor time
 * (client/measure/machine_time.h).
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "client/measure/link_figures.h"
#include "client/measure/machine_time.h"

static void round_trips_have_a_median_and_a_jitter(void **state)
{
	(void)state;
	const struct gp_trips t = {.count = 5, .s = {0.010, 0.012, 0.010, 0.030, 0.011}};
	const struct gp_trip_figures f = gp_trips_figures(&t);
	assert_true(f.least == 0.010 && f.median == 0.011 && f.most == 0.030 && f.count == 5);
	assert_true(fabs(f.jitter - (0.002 + 0.002 + 0.020 + 0.019) / 4) < 1e-12);
}

static void one_round_trip_has_no_jitter_and_none_has_nothing(void **state)
{
	(void)state;
	const struct gp_trips one = {.count = 1, .s = {0.5}}, none = {0};
	assert_true(gp_trips_figures(&one).median == 0.5 && isnan(gp_trips_figures(&one).jitter));
	assert_true(isnan(gp_trips_figures(&none).median) && gp_trips_figures(&none).count == 0);
}

static void what_was_not_measured_is_null(void **state)
{
	(void)state;
	const struct gp_trips none = {0};
	struct gp_link_figures f = {
		.server = "host:1", .agent = "a", .seconds = 1, .sizes = 1, .idle = gp_trips_figures(&none)};
	for (int way = 0; way < GP_WAYS; way++)
		f.way[way] = (struct gp_way_figures){.bytes_per_s = NAN, .loaded = f.idle};
	f.size[0] = (struct gp_size_figures){1 << 20, {NAN, 5.0}};
	json_t *o = gp_link_figures_json(&f);
	assert_non_null(o);
	assert_true(json_is_null(json_object_get(json_object_get(o, "idle"), "median_s")));
	assert_true(json_is_null(json_object_get(json_object_get(o, "up"), "bytes_per_s")));
	assert_true(json_is_null(json_object_get(json_object_get(o, "down"), "tcp_bytes")));
	assert_true(json_is_null(json_object_get(json_object_get(o, "up"), "byte_s")));
	assert_true(json_is_null(json_object_get(json_object_get(o, "up"), "machine_byte_s")));
	json_t *size = json_array_get(json_object_get(o, "sizes"), 0);
	assert_true(json_is_null(json_object_get(size, "up_bytes_per_s")));
	assert_true(json_real_value(json_object_get(size, "down_bytes_per_s")) == 5.0);
	json_decref(o);
}

static void a_number_that_json_cannot_have_is_null(void **state)
{
	(void)state;
	const struct gp_trips none = {0};
	struct gp_link_figures f = {.server = "host:1", .agent = "a", .idle = gp_trips_figures(&none)};
	f.way[GP_WAY_UP] = f.way[GP_WAY_DOWN] = (struct gp_way_figures){
		.kernel = true, .bytes = UINT64_MAX, .retransmitted_bytes = INT64_MAX, .loaded = f.idle};
	json_t *o = gp_link_figures_json(&f);
	const json_t *down = json_object_get(o, "down");
	assert_true(json_is_null(json_object_get(down, "tcp_bytes"))); /* not -1 */
	assert_true(json_integer_value(json_object_get(down, "tcp_retransmitted_bytes")) == INT64_MAX);
	json_decref(o);
}

static void the_text_says_what_was_sent_again(void **state)
{
	(void)state;
	char text[4096] = "";
	struct gp_trips trips = {.count = 2, .s = {0.1, 0.1}};
	struct gp_link_figures f = {.server = "host:1", .agent = "a", .idle = gp_trips_figures(&trips)};
	f.way[GP_WAY_UP] = (struct gp_way_figures){
		.bytes_per_s = 1e8, .bytes = 1000000, .retransmitted_bytes = 10000, .kernel = true, .loaded = f.idle};
	f.way[GP_WAY_DOWN] = (struct gp_way_figures){.bytes_per_s = NAN};
	f.send_buffer_bytes = f.receive_buffer_bytes = 4 << 20;
	FILE *to = fmemopen(text, sizeof text, "w");
	assert_non_null(to);
	gp_link_figures_print(&f, to);
	fclose(to);
	assert_non_null(strstr(text, "800.0 Mbit/s, sent again 1 % of 1.0 MB"));
	assert_non_null(strstr(text, "rate times round trip is 10.00 MB")); /* more than the buffers hold */
	assert_non_null(strstr(text, "raise net.ipv4.tcp_wmem"));
}

static double busy_of(const char *text)
{
	char name[] = "/tmp/gp_machine_time_XXXXXX";
	const int fd = mkstemp(name);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	const double seconds = gp_machine_busy_s(name);
	unlink(name);
	return seconds;
}

static void a_machine_is_busy_with_everything_but_idling_and_waiting(void **state)
{
	(void)state;
	const double tick = 1.0 / (double)sysconf(_SC_CLK_TCK);
	assert_true(fabs(busy_of("cpu  100 20 3 10000 5000 1 2 40 7 8\ncpu0 9 9\n") - 126 * tick) < 1e-9);
	assert_true(isnan(busy_of("")) && isnan(busy_of("cpu 1 2 3 4\n")) && isnan(busy_of("intr 1 2 3 4 5 6 7\n")));
	assert_true(isnan(gp_machine_busy_s("/nonexistent/stat")));
	assert_true(gp_machine_busy_s(GP_MACHINE_TIME_FILE) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trips_have_a_median_and_a_jitter),
		cmocka_unit_test(one_round_trip_has_no_jitter_and_none_has_nothing),
		cmocka_unit_test(what_was_not_measured_is_null),
		cmocka_unit_test(a_number_that_json_cannot_have_is_null),
		cmocka_unit_test(the_text_says_what_was_sent_again),
		cmocka_unit_test(a_machine_is_busy_with_everything_but_idling_and_waiting),
	};
	return cmocka_run_group_tests_name("link figures", tests, NULL, NULL);
}
