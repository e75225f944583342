/* SPDX-License-Identifier: Apache-2.0
 *
 * INTERVALS (common/wire/interval.h): any message gives intervals whose times are in order, or an error.
 */
#include <string.h>

#include "common/wire/interval.h"
#include "tests/unit/ok.h"

static struct gp_interval out[GP_INTERVALS_MAX];
static int count;

static Gpsplit__Intervals message(int64_t *number, size_t n)
{
	Gpsplit__Intervals m = GPSPLIT__INTERVALS__INIT;
	m.step = 3;
	m.base_ns = 1000;
	m.number = number;
	m.n_number = n;
	return m;
}

static void an_interval_is_six_numbers(void **state)
{
	(void)state;
	int64_t number[] = {GP_AT_BODY_FORWARD, 0, 1, 20, 5, 30, GP_AT_GRAD_DOWN_SENT, 2, -1, -400, 0, 7};
	const Gpsplit__Intervals m = message(number, 12);
	OK(gp_intervals_read(&m, 4, out, &count, &err));
	assert_int_equal(count, 2);
	assert_int_equal(out[0].stage, GP_AT_BODY_FORWARD);
	assert_int_equal(out[0].number, 13);
	assert_int_equal(out[0].queued_ns, 1020);
	assert_int_equal(out[0].begin_ns, 1025);
	assert_int_equal(out[0].end_ns, 1055);
	assert_int_equal(out[1].tensor, 2);
	assert_int_equal(out[1].number, 11);
	assert_int_equal(out[1].queued_ns, 600);
	assert_int_equal(out[1].end_ns, 607);
}

static void refuse(int64_t *number, size_t n)
{
	const Gpsplit__Intervals m = message(number, n);
	count = 77;
	assert_int_equal(gp_intervals_read(&m, 4, out, &count, &err), GP_PROTO);
	assert_int_equal(count, 77);
}

static void what_no_server_measures_is_refused(void **state)
{
	(void)state;
	refuse((int64_t[]){GP_AT_BODY_FORWARD, 0, 1, 20, 5}, 5);
	refuse((int64_t[]){GP_AT_HEAD_FORWARD, 0, 1, 20, 5, 6}, 6);
	refuse((int64_t[]){GP_AT_TAIL, 0, 1, 20, 5, 6}, 6);
	refuse((int64_t[]){GP_AT_STAGES, 0, 1, 20, 5, 6}, 6);
	refuse((int64_t[]){-1, 0, 1, 20, 5, 6}, 6);
	refuse((int64_t[]){INT64_MAX, 0, 1, 20, 5, 6}, 6);
	refuse((int64_t[]){GP_AT_BODY_FORWARD, 64, 1, 20, 5, 6}, 6);
	refuse((int64_t[]){GP_AT_BODY_FORWARD, -1, 1, 20, 5, 6}, 6);
	refuse((int64_t[]){GP_AT_BODY_FORWARD, 0, 1, 20, -5, 6}, 6);
	refuse((int64_t[]){GP_AT_BODY_FORWARD, 0, 1, 20, 5, INT64_MIN}, 6);
}

static void too_many_are_refused(void **state)
{
	(void)state;
	static int64_t number[(GP_INTERVALS_MAX + 1) * 6];
	for (int i = 0; i <= GP_INTERVALS_MAX; i++)
		number[i * 6] = GP_AT_BODY_FORWARD;
	const Gpsplit__Intervals m = message(number, GP_INTERVALS_MAX * 6);
	OK(gp_intervals_read(&m, 4, out, &count, &err));
	assert_int_equal(count, GP_INTERVALS_MAX);
	refuse(number, (GP_INTERVALS_MAX + 1) * 6);
	Gpsplit__Intervals far = message(number, 6);
	far.step = UINT64_MAX / 2;
	assert_int_equal(gp_intervals_read(&far, 4, out, &count, &err), GP_PROTO);
}

static void times_beyond_all_clocks_stop_at_their_end(void **state)
{
	(void)state;
	int64_t number[] = {GP_AT_BODY_FORWARD, 0, INT64_MIN, INT64_MIN, INT64_MAX, INT64_MAX};
	Gpsplit__Intervals m = message(number, 6);
	OK(gp_intervals_read(&m, 4, out, &count, &err));
	assert_int_equal(out[0].number, 0);
	assert_int_equal(out[0].queued_ns, 0);
	m.base_ns = UINT64_MAX;
	number[3] = INT64_MAX;
	OK(gp_intervals_read(&m, 4, out, &count, &err));
	assert_true(out[0].queued_ns == UINT64_MAX && out[0].begin_ns == UINT64_MAX && out[0].end_ns == UINT64_MAX);
}

/* Random bytes as a control message: whatever is an INTERVALS reads as above. */
static void any_bytes_are_an_error_or_in_order(void **state)
{
	(void)state;
	struct gp_control_arena arena;
	uint64_t x = 88172645463325252u, read = 0;
	gp_control_arena_init(&arena, 1 << 20);
	for (int round = 0; round < 20000; round++) {
		uint8_t bytes[80];
		for (size_t i = 0; i < sizeof bytes; i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			bytes[i] = (uint8_t)x;
		}
		/* Control.intervals { step: 7, number: six of one byte each }, or of many bytes */
		const uint8_t one[] = {0x82, 0x01, 10, 0x08, 7, 0x1a, 6}, many[] = {0x82, 0x01, 77, 0x08, 7, 0x1a, 73};
		const size_t len = round % 2 ? 13 : sizeof bytes;
		memcpy(bytes, round % 2 ? one : many, round % 4 ? sizeof one : 2);
		for (size_t i = sizeof one; round % 2 && i < len; i++)
			bytes[i] &= 127;
		const Gpsplit__Control *m;
		if (gp_control_unpack(&arena, (struct gp_span){bytes, len}, &m, &err) != GP_OK ||
		    m->body_case != GPSPLIT__CONTROL__BODY_INTERVALS ||
		    gp_intervals_read(m->intervals, 4, out, &count, &err) != GP_OK)
			continue;
		read += count > 0;
		for (int i = 0; i < count; i++)
			assert_true(out[i].queued_ns <= out[i].begin_ns && out[i].begin_ns <= out[i].end_ns &&
				    gp_interval_of_server(out[i].stage));
	}
	gp_control_arena_deinit(&arena);
	assert_true(read > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_interval_is_six_numbers),
		cmocka_unit_test(what_no_server_measures_is_refused),
		cmocka_unit_test(too_many_are_refused),
		cmocka_unit_test(times_beyond_all_clocks_stop_at_their_end),
		cmocka_unit_test(any_bytes_are_an_error_or_in_order),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
