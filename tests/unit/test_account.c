/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums and the JSON form of link accounts (common/wire/account.h). That the channel
 * counts right is in test_channel_life.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "common/wire/account.h"

/* Every counter different, so that a field that is forgotten or mixed up shows. */
static struct gp_account numbered(uint64_t factor)
{
	struct gp_account a;
	uint64_t words[sizeof a / sizeof(uint64_t)];
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		words[i] = (i + 1) * factor;
	memcpy(&a, words, sizeof a);
	return a;
}

static void adding_and_subtracting_cover_every_field(void **state)
{
	(void)state;
	struct gp_account a = numbered(1), b = numbered(10), sum = numbered(11);
	gp_account_add(&a, &b);
	assert_memory_equal(&a, &sum, sizeof a);
	struct gp_account one = numbered(1);
	gp_account_subtract(&a, &b);
	assert_memory_equal(&a, &one, sizeof a);
}

static void the_kernel_difference_is_relative_and_per_direction(void **state)
{
	(void)state;
	const struct gp_account a = {.sent.wire_bytes = 1000, .received.wire_bytes = 2000};
	struct gp_tcp_figures k = {.valid = true, .bytes_acked = 1010, .bytes_received = 1900};
	double up, down;
	gp_account_kernel_diff(&a, &k, &up, &down);
	assert_true(up > 0.0099 && up < 0.0101);
	assert_true(down < -0.0499 && down > -0.0501);
	k.valid = false;
	gp_account_kernel_diff(&a, &k, &up, &down);
	assert_true(up == 0 && down == 0);
}

static json_int_t integer_at(json_t *o, const char *outer, const char *inner)
{
	json_t *v = json_object_get(json_object_get(o, outer), inner);
	assert_true(json_is_integer(v));
	return json_integer_value(v);
}

static double real_at(json_t *o, const char *outer, const char *inner)
{
	json_t *v = json_object_get(json_object_get(o, outer), inner);
	assert_true(json_is_real(v));
	return json_real_value(v);
}

static void json_names_every_kind_and_both_directions(void **state)
{
	(void)state;
	struct gp_account a = {0};
	a.sent.kind[GP_FRAME_ACT_UP] =
		(struct gp_kind_account){.frames = 2, .tensor_bytes = 800, .payload_bytes = 200, .wire_bytes = 360};
	a.sent.kind[GP_FRAME_ACT_UP].stage_ns[GP_STAGE_ENCODE] = 1500000000;
	a.received.kind[GP_FRAME_ACT_DOWN] = (struct gp_kind_account){
		.frames = 1, .wire_bytes = 5000, .timed_bytes = 3000, .stage_ns[GP_STAGE_WIRE] = 1500000000};
	a.received.kind[GP_FRAME_GRAD_DOWN].payload_bytes = 77;
	a.received.kind[GP_FRAME_GRAD_DOWN].frames = 1; /* in one read: its first byte came with the last */
	a.received.wire_bytes = 99;
	a.received.timed_bytes = 4500; /* frames of two kinds overlap in this time */
	a.received.timed_ns = 1500000000;
	json_t *o = gp_account_json(&a);
	assert_int_equal(integer_at(o, "act_up", "frames"), 2);
	assert_int_equal(integer_at(o, "act_up", "tensor_bytes"), 800);
	assert_int_equal(integer_at(o, "act_up", "payload_bytes"), 200);
	assert_int_equal(integer_at(o, "act_up", "wire_bytes"), 360);
	assert_true(json_real_value(json_object_get(json_object_get(o, "act_up"), "encode_s")) == 1.5);
	assert_true(
		json_is_null(json_object_get(json_object_get(o, "act_up"), "decode_s"))); /* the other end does it */
	assert_int_equal(integer_at(o, "grad_down", "payload_bytes"), 77);
	json_t *down = json_object_get(o, "grad_down"), *none = json_object_get(o, "param_up");
	assert_true(json_is_real(json_object_get(down, "wire_s")) &&
		    json_real_value(json_object_get(down, "wire_s")) == 0); /* zero is a measure */
	assert_true(json_is_null(json_object_get(down, "encode_s")) && json_is_null(json_object_get(none, "wire_s")));
	assert_true(real_at(o, "act_down", "bandwidth_bytes_per_s") ==
		    2000); /* what came behind the first read, by its time */
	assert_true(real_at(o, "received", "bandwidth_bytes_per_s") == 3000);
	assert_true(json_is_null(json_object_get(down, "bandwidth_bytes_per_s"))); /* no time, no rate */
	assert_true(json_is_null(json_object_get(json_object_get(o, "sent"), "bandwidth_bytes_per_s")));
	assert_int_equal(integer_at(o, "param_up", "frames"), 0);
	assert_int_equal(integer_at(o, "received", "wire_bytes"), 99);
	assert_int_equal(integer_at(o, "sent", "control_bytes"), 0);
	json_decref(o);
}

static void the_clock_never_goes_back(void **state)
{
	(void)state;
	uint64_t last = 0;
	for (int i = 0; i < 1000; i++) {
		const uint64_t now = gp_now_ns();
		assert_true(now >= last);
		last = now;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(adding_and_subtracting_cover_every_field),
		cmocka_unit_test(the_kernel_difference_is_relative_and_per_direction),
		cmocka_unit_test(json_names_every_kind_and_both_directions),
		cmocka_unit_test(the_clock_never_goes_back),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
