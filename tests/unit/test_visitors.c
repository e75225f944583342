/* SPDX-License-Identifier: Apache-2.0
 *
 * What one address or one name may do in a while, a table of addresses that never
 * grows, and one of names that remembers each for as long as its budget is not full.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "common/net/visitors.h"

#define SECOND UINT64_C(1000000000)
#define START  (1000 * SECOND)

static struct {
	int calls;
	uint64_t lines;
	char name[64];
} told;

static void on_left_out(void *arg, const char *name, uint64_t lines)
{
	(void)arg;
	told.calls++;
	told.lines += lines;
	snprintf(told.name, sizeof told.name, "%s", name);
}

static struct gp_visitors *make(struct gp_visitor_limits limits)
{
	struct gp_visitors *v;
	struct gp_err err;
	memset(&told, 0, sizeof told);
	assert_int_equal(gp_visitors_new(&limits, on_left_out, NULL, &v, &err), GP_OK);
	return v;
}

static bool same(const char *a, const char *b)
{
	const struct gp_visitor_key x = gp_visitor_of_address(a), y = gp_visitor_of_address(b);
	return memcmp(&x, &y, sizeof x) == 0;
}

static void an_address_is_one_of_ipv4_or_a_64_of_ipv6(void **state)
{
	(void)state;
	assert_true(same("192.0.2.7:1", "192.0.2.7:65535"));
	assert_false(same("192.0.2.7:1", "192.0.2.8:1"));
	assert_true(same("[2001:db8:1:2::3]:1", "[2001:db8:1:2:ffff:ffff:ffff:ffff]:2"));
	assert_false(same("[2001:db8:1:2::3]:1", "[2001:db8:1:3::3]:1"));
	assert_true(same("[::ffff:192.0.2.7]:1", "192.0.2.7:1"));
	assert_true(same("[fe80::1%eth0]:1", "[fe80::2%eth1]:1"));
	assert_false(same("[::]:1", "0.0.0.0:1"));
	assert_true(same("memory:a", "what is this"));
	assert_false(same("memory:a", "0.0.0.0:1"));
	const struct gp_visitor_key a = gp_visitor_of_name("token:a"), b = gp_visitor_of_name("token:b");
	assert_memory_not_equal(&a, &b, sizeof a);
}

static void handshakes_under_way_are_limited_for_each_address(void **state)
{
	(void)state;
	struct gp_visitors *v = make((struct gp_visitor_limits){.handshakes = 2});
	const struct gp_visitor_key a = gp_visitor_of_address("192.0.2.7:1"), b = gp_visitor_of_address("[::1]:1");
	assert_true(gp_visitors_handshake(v, a, START));
	assert_true(gp_visitors_handshake(v, a, START));
	assert_false(gp_visitors_handshake(v, a, START + 3600 * SECOND)); /* time does not help */
	assert_true(gp_visitors_handshake(v, b, START));
	gp_visitors_handshake_over(v, a);
	assert_true(gp_visitors_handshake(v, a, START));
	assert_false(gp_visitors_handshake(v, a, START));
	gp_visitors_free(v);
}

static void handshakes_in_a_minute_are_limited_and_come_back_with_time(void **state)
{
	(void)state;
	struct gp_visitors *v = make((struct gp_visitor_limits){.handshake_rate = 60});
	const struct gp_visitor_key a = gp_visitor_of_address("192.0.2.7:1");
	for (int i = 0; i < 60; i++) {
		assert_true(gp_visitors_handshake(v, a, START));
		gp_visitors_handshake_over(v, a);
	}
	assert_false(gp_visitors_handshake(v, a, START));
	assert_true(gp_visitors_handshake(v, a, START + 2 * SECOND));
	assert_true(gp_visitors_handshake(v, a, START + 2 * SECOND));
	assert_false(gp_visitors_handshake(v, a, START + 2 * SECOND));
	gp_visitors_free(v);
}

static void who_has_begun_too_many_links_is_told_how_long_to_wait(void **state)
{
	(void)state;
	struct gp_visitors *v = make((struct gp_visitor_limits){0});
	const struct gp_visitor_key a = gp_visitor_of_name("token:a"), b = gp_visitor_of_name("token:b");
	for (int i = 0; i < 20; i++)
		assert_int_equal(gp_visitors_link(v, a, 20, START), 0);
	const uint64_t wait = gp_visitors_link(v, a, 20, START);
	assert_in_range(wait, 3 * SECOND, 3 * SECOND + 10);
	assert_in_range(gp_visitors_link(v, a, 20, START + SECOND), 2 * SECOND, 2 * SECOND + 10);
	assert_int_equal(gp_visitors_link(v, b, 20, START + SECOND), 0);
	assert_int_equal(gp_visitors_link(v, a, 20, START + wait), 0); /* as it was told */
	assert_true(gp_visitors_link(v, a, 20, START + wait) > 0);
	assert_true(gp_visitors_link(v, a, 1, START + wait) > 50 * SECOND); /* the limit was lowered, or raised */
	assert_in_range(gp_visitors_link(v, a, 6000, START + wait), 1, SECOND);
	gp_visitors_free(v);
}

static void measuring_has_a_budget_of_its_own(void **state)
{
	(void)state;
	struct gp_visitors *v = make((struct gp_visitor_limits){0});
	const struct gp_visitor_key a = gp_visitor_of_name("token:a"), b = gp_visitor_of_address("192.0.2.7:1");
	for (int i = 0; i < 12; i++) {
		assert_int_equal(gp_visitors_measure(v, a, 12, START), 0);
		assert_int_equal(gp_visitors_measure(v, b, 12, START), 0);
	}
	const uint64_t wait = gp_visitors_measure(v, a, 12, START);
	assert_in_range(wait, 5 * SECOND, 5 * SECOND + 10);
	assert_int_equal(gp_visitors_link(v, a, 12, START), 0);
	assert_int_equal(gp_visitors_measure(v, a, 12, START + wait), 0);
	gp_visitors_free(v);
}

static void after_too_many_wrong_tokens_none_is_looked_at_for_a_while(void **state)
{
	(void)state;
	struct gp_visitors *v = make((struct gp_visitor_limits){.wrong_tokens = 3});
	const struct gp_visitor_key a = gp_visitor_of_address("192.0.2.7:1"), b = gp_visitor_of_address("192.0.2.8:1");
	for (int i = 0; i < 3; i++) {
		assert_true(gp_visitors_may_try_token(v, a, START));
		gp_visitors_wrong_token(v, a, START);
	}
	assert_false(gp_visitors_may_try_token(v, a, START));
	assert_true(gp_visitors_may_try_token(v, b, START));
	assert_true(gp_visitors_may_try_token(v, a, START + 21 * SECOND));
	gp_visitors_wrong_token(v, a, START + 21 * SECOND);
	assert_false(gp_visitors_may_try_token(v, a, START + 21 * SECOND));
	gp_visitors_free(v);
}

static void lines_beyond_the_limit_of_a_minute_are_counted(void **state)
{
	(void)state;
	struct gp_visitors *v = make((struct gp_visitor_limits){.lines = 5});
	const struct gp_visitor_key a = gp_visitor_of_name("token:a"), b = gp_visitor_of_name("token:b");
	int written = 0;
	for (int i = 0; i < 100; i++)
		written += gp_visitors_may_tell(v, a, "token:a", START + (uint64_t)i * SECOND / 10);
	assert_int_equal(written, 5);
	assert_true(gp_visitors_may_tell(v, b, "token:b", START));
	assert_int_equal(told.calls, 0);
	assert_true(gp_visitors_may_tell(v, a, "token:a", START + 60 * SECOND));
	assert_int_equal(told.calls, 1);
	assert_int_equal(told.lines, 95);
	assert_string_equal(told.name, "token:a");
	gp_visitors_sum_up(v);
	assert_int_equal(told.calls, 1); /* nothing was left out since */
	for (int i = 0; i < 7; i++)
		gp_visitors_may_tell(v, a, "token:a", START + 61 * SECOND);
	gp_visitors_sum_up(v);
	assert_int_equal(told.calls, 2);
	assert_int_equal(told.lines, 95 + 3);
	gp_visitors_free(v);
}

static void without_limits_everything_may_be_and_nothing_is_kept(void **state)
{
	(void)state;
	struct gp_visitors *v = make((struct gp_visitor_limits){0});
	const struct gp_visitor_key a = gp_visitor_of_address("192.0.2.7:1");
	for (int i = 0; i < 10000; i++) {
		assert_true(gp_visitors_handshake(v, a, START));
		gp_visitors_wrong_token(v, a, START);
		assert_true(gp_visitors_may_try_token(v, a, START));
		assert_true(gp_visitors_may_tell(v, a, "a", START));
	}
	gp_visitors_handshake_over(v, a);
	gp_visitors_free(v);
}

static struct gp_visitor_key numbered(int i)
{
	char text[32];
	snprintf(text, sizeof text, "10.%d.%d.%d:1", i >> 16 & 255, i >> 8 & 255, i & 255);
	return gp_visitor_of_address(text);
}

static void in_a_full_table_the_longest_away_makes_room_unless_it_shakes_hands(void **state)
{
	(void)state;
	struct gp_visitors *v = make((struct gp_visitor_limits){.handshakes = 1, .wrong_tokens = 1, .lines = 1});
	assert_true(gp_visitors_handshake(v, numbered(0), START));
	assert_true(gp_visitors_may_tell(v, numbered(1), "one", START + 1));
	assert_false(gp_visitors_may_tell(v, numbered(1), "one", START + 1));
	for (int i = 2; i < GP_VISITORS_MAX + 1; i++)
		gp_visitors_wrong_token(v, numbered(i), START + (uint64_t)i);
	assert_int_equal(told.calls, 1); /* the first without a handshake went, and what was left out is not lost */
	assert_false(gp_visitors_handshake(v, numbered(0), START + 10000));
	assert_false(gp_visitors_may_try_token(v, numbered(2), START + 10000));
	for (int i = 0; i < 3 * GP_VISITORS_MAX; i++) /* everybody shakes hands: newcomers are let in uncounted */
		gp_visitors_handshake(v, numbered(i), START + 20000 + (uint64_t)i);
	assert_true(gp_visitors_handshake(v, numbered(5 * GP_VISITORS_MAX), START + 90000));
	assert_true(gp_visitors_handshake(v, numbered(5 * GP_VISITORS_MAX), START + 90000));
	assert_true(gp_visitors_may_tell(v, numbered(5 * GP_VISITORS_MAX), "new", START + 90000));
	assert_false(gp_visitors_handshake(v, numbered(0), START + 90000)); /* counted still */
	gp_visitors_handshake_over(v, numbered(0));
	assert_true(gp_visitors_handshake(v, numbered(5 * GP_VISITORS_MAX), START + 90000));
	assert_false(gp_visitors_handshake(v, numbered(5 * GP_VISITORS_MAX), START + 90000));
	gp_visitors_free(v);
}

static struct gp_visitor_key numbered_name(int i)
{
	char text[32];
	snprintf(text, sizeof text, "token:%d", i);
	return gp_visitor_of_name(text);
}

static void strangers_of_many_addresses_do_not_push_out_a_name_that_has_used_up_its_links(void **state)
{
	(void)state;
	struct gp_visitors *v = make((struct gp_visitor_limits){.wrong_tokens = 1});
	assert_int_equal(gp_visitors_link(v, numbered_name(0), 1, START), 0);
	for (int i = 0; i < 2 * GP_VISITORS_MAX; i++)
		gp_visitors_wrong_token(v, numbered(i), START + 1);
	assert_true(gp_visitors_link(v, numbered_name(0), 1, START + 2) > 0);
	gp_visitors_free(v);
}

static void names_push_out_neither_an_address_nor_each_other_within_a_minute(void **state)
{
	(void)state;
	enum { NAMES = GP_VISITORS_MAX + 8 };
	struct gp_visitors *v = make((struct gp_visitor_limits){.wrong_tokens = 1, .lines = 1});
	gp_visitors_wrong_token(v, numbered(0), START);
	for (int i = 0; i < NAMES; i++)
		assert_int_equal(gp_visitors_link(v, numbered_name(i), 1, START + 1), 0);
	assert_false(gp_visitors_may_try_token(v, numbered(0), START + 2));
	for (int i = 0; i < NAMES; i++)
		assert_true(gp_visitors_link(v, numbered_name(i), 1, START + 2) > 0);
	for (int i = 0; i < NAMES; i++) /* a minute later others take their places, and no memory */
		assert_int_equal(gp_visitors_link(v, numbered_name(NAMES + i), 1, START + 61 * SECOND), 0);
	assert_int_equal(gp_visitors_link(v, numbered_name(0), 1, START + 122 * SECOND), 0);
	gp_visitors_free(v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_address_is_one_of_ipv4_or_a_64_of_ipv6),
		cmocka_unit_test(handshakes_under_way_are_limited_for_each_address),
		cmocka_unit_test(handshakes_in_a_minute_are_limited_and_come_back_with_time),
		cmocka_unit_test(who_has_begun_too_many_links_is_told_how_long_to_wait),
		cmocka_unit_test(measuring_has_a_budget_of_its_own),
		cmocka_unit_test(after_too_many_wrong_tokens_none_is_looked_at_for_a_while),
		cmocka_unit_test(lines_beyond_the_limit_of_a_minute_are_counted),
		cmocka_unit_test(without_limits_everything_may_be_and_nothing_is_kept),
		cmocka_unit_test(in_a_full_table_the_longest_away_makes_room_unless_it_shakes_hands),
		cmocka_unit_test(strangers_of_many_addresses_do_not_push_out_a_name_that_has_used_up_its_links),
		cmocka_unit_test(names_push_out_neither_an_address_nor_each_other_within_a_minute),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
