/* SPDX-License-Identifier: Apache-2.0
 *
 * Which server a session asks next (client/session/server_list.h): order, addresses of a name, servers that have no room
 * or are of no use, pauses between rounds, servers that others have named.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "client/session/server_list.h"

#define S        UINT64_C(1000000000)
#define PAUSE_MS 100

static struct gp_server_list list_of(const char *text)
{
	struct gp_server_list l;
	struct gp_err err;
	if (gp_server_list_parse(&l, text, &err) != GP_OK)
		fail_msg("%s", err.text);
	return l;
}

static void expect_at(const struct gp_server_list *l, const char *text)
{
	assert_string_equal(gp_server_list_at(l)->text, text);
}

static void a_list_is_taken_apart(void **state)
{
	(void)state;
	const struct gp_server_list one = list_of("gpu:4400"), three = list_of("a:1, [::1]:2,c.example:3");
	assert_int_equal(one.count, 1);
	expect_at(&one, "gpu:4400");
	assert_string_equal(gp_server_list_place(&one).host, "gpu");
	assert_int_equal(three.count, 3);
	assert_string_equal(three.entry[1].host, "::1");
	assert_int_equal(three.entry[2].port, 3);
	assert_string_equal(three.entry[2].text, "c.example:3");
}

static void what_is_wrong_with_a_list_is_said(void **state)
{
	(void)state;
	char many[GP_SERVERS_OWN * 8 + 8] = "", long_one[400];
	for (int i = 0; i <= GP_SERVERS_OWN; i++)
		snprintf(many + strlen(many), sizeof many - strlen(many), "%sh:%d", i ? "," : "", i + 1);
	memset(long_one, 'a', sizeof long_one);
	strcpy(long_one + sizeof long_one - 3, ":1");
	const struct {
		const char *text, *says;
	} cases[] = {
		{"", "has no port"},
		{",a:1", "has a comma with no HOST:PORT"},
		{"a:1,", "has a comma with no HOST:PORT"},
		{"a:1,,b:1", "has a comma with no HOST:PORT"},
		{"a:1,b", "'b' has no port"},
		{"a:1, b:1,b:70000", "not '70000'"},
		{"a:1,A:1", "'A:1' is in the list twice"},
		{many, "may have 16 servers at most"},
		{long_one, "is too long"},
		{"srv:", "write srv:NAME"},
		{"srv:gpu:4400", "write srv:NAME, without a port"},
		{"a:1,srv:a b", "write srv:NAME"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct gp_server_list l;
		struct gp_err err;
		assert_int_equal(gp_server_list_parse(&l, cases[i].text, &err), GP_USAGE);
		if (!strstr(err.text, cases[i].says) || strncmp(err.text, "--server", 8) != 0)
			fail_msg("'%s': %s", cases[i].text, err.text);
	}
}

static void a_round_asks_each_once_and_then_comes_a_pause(void **state)
{
	(void)state;
	struct gp_server_list l = list_of("a:1,b:1,c:1");
	for (uint32_t round = 0; round < 3; round++) {
		assert_int_equal(l.rounds, round);
		expect_at(&l, "a:1");
		assert_true(gp_server_list_has_more(&l));
		assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), 0);
		expect_at(&l, "b:1");
		assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), 0);
		expect_at(&l, "c:1");
		assert_false(gp_server_list_has_more(&l));
		assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), PAUSE_MS);
	}
}

/* A pause of 0 would be a loop that turns without end. */
static void one_server_alone_is_never_asked_again_at_once(void **state)
{
	(void)state;
	struct gp_server_list l = list_of("a:1");
	assert_false(gp_server_list_has_more(&l));
	assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), PAUSE_MS);
	assert_true(gp_server_list_next(&l, S, 0) > 0);
}

static void a_search_begins_where_the_session_was(void **state)
{
	(void)state;
	struct gp_server_list l = list_of("a:1,b:1,c:1");
	gp_server_list_next(&l, S, PAUSE_MS);
	gp_server_list_found(&l);
	gp_server_list_search(&l, false);
	expect_at(&l, "b:1");
	assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), 0);
	expect_at(&l, "c:1");
	assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), 0);
	expect_at(&l, "a:1");
	assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), PAUSE_MS);
	expect_at(&l, "b:1");
}

static void one_that_sends_the_session_away_is_asked_last(void **state)
{
	(void)state;
	struct gp_server_list l = list_of("a:1,b:1");
	gp_server_list_found(&l);
	gp_server_list_search(&l, true);
	assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), 0);
	expect_at(&l, "b:1");
	assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), PAUSE_MS);
	expect_at(&l, "a:1");
}

static void one_that_sends_the_session_to_others_is_not_asked_soon(void **state)
{
	(void)state;
	struct gp_server_list l = list_of("a:1,b:1"), one = list_of("a:1");
	gp_server_list_search(&l, true);
	gp_server_list_leave(&l, S, 5000);
	gp_server_list_defer(&l, S, 0);
	assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), 0);
	expect_at(&l, "b:1");
	gp_server_list_defer(&l, S, 250); /* which has not got the run yet */
	assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), 250);
	expect_at(&l, "b:1");
	assert_int_equal(gp_server_list_next(&l, 5 * S, PAUSE_MS), PAUSE_MS);
	expect_at(&l, "b:1");
	assert_int_equal(gp_server_list_next(&l, 6 * S, PAUSE_MS), 0);
	expect_at(&l, "a:1");
	assert_false(gp_server_list_spares(&l));
	gp_server_list_search(&one, true);
	gp_server_list_leave(&one, S, 5000); /* where there are no others */
	assert_int_equal(gp_server_list_next(&one, S, PAUSE_MS), PAUSE_MS);
}

static void one_without_room_is_left_alone_until_its_time(void **state)
{
	(void)state;
	struct gp_server_list l = list_of("a:1,b:1");
	gp_server_list_defer(&l, S, 5000);
	assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), 0);
	expect_at(&l, "b:1");
	assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), PAUSE_MS);
	expect_at(&l, "b:1"); /* again: a has no room yet */
	assert_int_equal(gp_server_list_next(&l, 6 * S, PAUSE_MS), 0);
	expect_at(&l, "a:1");
}

static void when_none_has_room_the_first_one_that_will_is_waited_for(void **state)
{
	(void)state;
	struct gp_server_list l = list_of("a:1,b:1");
	gp_server_list_defer(&l, S, 5000);
	gp_server_list_next(&l, S, PAUSE_MS);
	gp_server_list_defer(&l, S, 2000);
	assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), 2000);
	expect_at(&l, "b:1");
	assert_int_equal(gp_server_list_next(&l, 3 * S, PAUSE_MS), PAUSE_MS);
}

static void one_of_no_use_is_not_asked_again_and_the_last_one_stays(void **state)
{
	(void)state;
	struct gp_server_list l = list_of("a:1,b:1");
	assert_true(gp_server_list_drop(&l));
	assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), 0);
	expect_at(&l, "b:1");
	assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), PAUSE_MS);
	expect_at(&l, "b:1");
	assert_false(gp_server_list_drop(&l));
	gp_server_list_search(&l, false); /* what was of no use may be so no more */
	gp_server_list_next(&l, S, PAUSE_MS);
	expect_at(&l, "a:1");
}

static void only_when_all_lack_a_run_it_is_nowhere(void **state)
{
	(void)state;
	struct gp_server_list l = list_of("a:1,b:1,c:1"), one = list_of("a:1");
	assert_true(gp_server_list_lacks(&one));
	assert_false(gp_server_list_lacks(&l));
	gp_server_list_next(&l, S, PAUSE_MS);
	gp_server_list_next(&l, S, PAUSE_MS); /* b did not answer */
	assert_false(gp_server_list_lacks(&l));
	gp_server_list_next(&l, S, PAUSE_MS);
	assert_false(gp_server_list_lacks(&l));
	gp_server_list_next(&l, S, PAUSE_MS);
	assert_true(gp_server_list_lacks(&l));
}

static void addresses(struct gp_server_list *l, int count, int at)
{
	char text[GP_SERVER_ADDRESSES][GP_TCP_NUMERIC];
	for (int i = 0; i < count; i++)
		snprintf(text[i], sizeof text[i], "10.0.0.%d", i + 1);
	gp_server_list_connected(l, text, count, at);
}

static void each_address_of_a_name_is_asked(void **state)
{
	(void)state;
	struct gp_server_list l = list_of("pods:1,b:1");
	assert_string_equal(gp_server_list_place(&l).host, "pods");
	addresses(&l, 3, 1); /* the first one did not answer */
	assert_true(gp_server_list_has_more(&l));
	assert_false(gp_server_list_lacks(&l));
	assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), 0);
	expect_at(&l, "pods:1");
	assert_string_equal(gp_server_list_place(&l).host, "10.0.0.3");
	addresses(&l, 1, 0); /* of the number, which changes nothing */
	assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), 0);
	expect_at(&l, "b:1");
	assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), PAUSE_MS);
	assert_string_equal(gp_server_list_place(&l).host, "pods"); /* looked up anew */
}

static void a_name_lacks_a_run_when_all_its_addresses_do(void **state)
{
	(void)state;
	struct gp_server_list l = list_of("pods:1");
	addresses(&l, 2, 0);
	assert_false(gp_server_list_lacks(&l));
	gp_server_list_next(&l, S, PAUSE_MS);
	assert_true(gp_server_list_lacks(&l));
	l = list_of("pods:1");
	addresses(&l, 2, 0);
	gp_server_list_next(&l, S, PAUSE_MS); /* the first one had no room */
	assert_false(gp_server_list_lacks(&l));
}

static void records_say_where_the_servers_of_a_name_are(void **state)
{
	(void)state;
	const struct gp_server_place place[] = {{"gpu-1.example", 4400}, {"gpu-2.example", 4401}};
	struct gp_server_list l = list_of("srv:gpsplit.example,b:1");
	assert_true(gp_server_list_wants_records(&l));
	assert_string_equal(gp_server_list_at(&l)->host, "gpsplit.example"); /* whose name a certificate has to have */
	gp_server_list_looked_up(&l, place, 2);
	assert_false(gp_server_list_wants_records(&l));
	for (int i = 0; i < 2; i++) {
		const struct gp_server_place to = gp_server_list_place(&l);
		assert_string_equal(to.host, place[i].host);
		assert_int_equal(to.port, place[i].port);
		assert_string_equal(l.title, i == 0 ? "gpu-1.example:4400" : "gpu-2.example:4401");
		addresses(&l, 2, 0); /* of that host, which the connector has tried */
		assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), 0);
	}
	expect_at(&l, "b:1");
	assert_false(gp_server_list_wants_records(&l));
	assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), PAUSE_MS);
	assert_true(gp_server_list_wants_records(&l)); /* they may be others by now */
}

static void a_session_returns_to_its_address_and_then_goes_round(void **state)
{
	(void)state;
	struct gp_server_list l = list_of("pods:1");
	addresses(&l, 3, 1);
	gp_server_list_found(&l);
	gp_server_list_search(&l, false);
	static const char *const order[] = {"10.0.0.2", "10.0.0.3", "10.0.0.1"};
	for (int i = 0; i < 3; i++) {
		assert_string_equal(gp_server_list_place(&l).host, order[i]);
		assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), i < 2 ? 0 : PAUSE_MS);
	}
}

static void an_address_that_sends_the_session_to_others_is_not_asked_soon(void **state)
{
	(void)state;
	struct gp_server_list l = list_of("pods:1");
	addresses(&l, 3, 1);
	gp_server_list_found(&l);
	gp_server_list_search(&l, true);
	gp_server_list_leave(&l, S, 5000);
	for (int round = 0; round < 2; round++) {
		assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), round == 0 ? 0 : PAUSE_MS);
		assert_string_equal(gp_server_list_place(&l).host, "10.0.0.3");
		gp_server_list_reached(&l);
		assert_false(gp_server_list_lacks(&l));
		assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), 0);
		assert_string_equal(gp_server_list_place(&l).host, "10.0.0.1");
		assert_false(gp_server_list_lacks(&l)); /* the one that was left has it */
		assert_true(gp_server_list_spares(&l));
	}
	assert_int_equal(gp_server_list_next(&l, 6 * S, PAUSE_MS), PAUSE_MS);
	assert_string_equal(gp_server_list_place(&l).host, "pods");
	assert_false(gp_server_list_spares(&l));
}

/* A name with two addresses of one machine, where nobody listens at the other one. */
static void addresses_that_are_not_reached_are_no_other_servers(void **state)
{
	(void)state;
	struct gp_server_list l = list_of("localhost:1");
	addresses(&l, 2, 1);
	gp_server_list_found(&l);
	gp_server_list_search(&l, true);
	gp_server_list_leave(&l, S, 5000);
	assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), 0);
	assert_string_equal(gp_server_list_place(&l).host, "10.0.0.1");
	assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), PAUSE_MS);
	assert_string_equal(gp_server_list_place(&l).host, "localhost");
	assert_false(gp_server_list_spares(&l));
}

static void a_name_that_was_left_waits_while_others_are_asked(void **state)
{
	(void)state;
	struct gp_server_list l = list_of("pods:1,b:1");
	addresses(&l, 2, 0);
	gp_server_list_found(&l);
	gp_server_list_search(&l, true);
	gp_server_list_leave(&l, S, 5000);
	gp_server_list_defer(&l, S, 0);
	assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), 0);
	assert_string_equal(gp_server_list_place(&l).host, "10.0.0.2");
	gp_server_list_reached(&l);
	for (int round = 0; round < 3; round++) {
		assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), round == 0 ? 0 : PAUSE_MS);
		expect_at(&l, "b:1");
		assert_true(gp_server_list_spares(&l));
	}
	assert_int_equal(gp_server_list_next(&l, 6 * S, PAUSE_MS), 0);
	expect_at(&l, "pods:1");
	assert_false(gp_server_list_spares(&l));
}

static void named_servers_come_behind_the_list_and_are_forgotten(void **state)
{
	(void)state;
	struct gp_server_list l = list_of("a:1,b:1");
	assert_true(gp_server_list_tell(&l, "x:1", false));
	assert_true(gp_server_list_tell(&l, "y:1", false));
	assert_false(gp_server_list_tell(&l, "X:1", false));
	assert_false(gp_server_list_tell(&l, "b:1", false));
	static const char *const order[] = {"a:1", "b:1", "x:1", "y:1"};
	for (int i = 0; i < 4; i++) {
		expect_at(&l, order[i]);
		assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), i < 3 ? 0 : PAUSE_MS);
	}
	while (strcmp(gp_server_list_at(&l)->text, "y:1") != 0)
		gp_server_list_next(&l, S, PAUSE_MS);
	gp_server_list_found(&l);
	assert_int_equal(l.count, 3);
	gp_server_list_search(&l, false);
	static const char *const back[] = {"y:1", "a:1", "b:1"};
	for (int i = 0; i < 3; i++) {
		expect_at(&l, back[i]);
		assert_int_equal(gp_server_list_next(&l, S, PAUSE_MS), i < 2 ? 0 : PAUSE_MS);
	}
}

static void no_more_are_named_than_there_is_room_for(void **state)
{
	(void)state;
	struct gp_server_list l = list_of("a:1");
	int taken = 0;
	for (int i = 1; i <= 100; i++) {
		char text[32];
		snprintf(text, sizeof text, "h%d:1", i);
		taken += gp_server_list_tell(&l, text, false);
	}
	assert_int_equal(taken, GP_SERVERS_TOLD);
}

static void lists_have_a_short_name(void **state)
{
	(void)state;
	char text[GP_SERVERS_TEXT];
	const struct {
		const char *list, *text;
	} cases[] = {{"a:1", "a:1"},
		     {"a:1,b:2", "a:1 and b:2"},
		     {"a:1,b:2,c:3", "a:1, b:2 and c:3"},
		     {"a:1,b:2,c:3,d:4", "a:1, b:2 and 2 others"}};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		const struct gp_server_list l = list_of(cases[i].list);
		assert_string_equal(gp_server_list_names(&l, text), cases[i].text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_list_is_taken_apart),
		cmocka_unit_test(what_is_wrong_with_a_list_is_said),
		cmocka_unit_test(a_round_asks_each_once_and_then_comes_a_pause),
		cmocka_unit_test(one_server_alone_is_never_asked_again_at_once),
		cmocka_unit_test(a_search_begins_where_the_session_was),
		cmocka_unit_test(one_that_sends_the_session_away_is_asked_last),
		cmocka_unit_test(one_that_sends_the_session_to_others_is_not_asked_soon),
		cmocka_unit_test(one_without_room_is_left_alone_until_its_time),
		cmocka_unit_test(when_none_has_room_the_first_one_that_will_is_waited_for),
		cmocka_unit_test(one_of_no_use_is_not_asked_again_and_the_last_one_stays),
		cmocka_unit_test(only_when_all_lack_a_run_it_is_nowhere),
		cmocka_unit_test(each_address_of_a_name_is_asked),
		cmocka_unit_test(a_name_lacks_a_run_when_all_its_addresses_do),
		cmocka_unit_test(records_say_where_the_servers_of_a_name_are),
		cmocka_unit_test(a_session_returns_to_its_address_and_then_goes_round),
		cmocka_unit_test(addresses_that_are_not_reached_are_no_other_servers),
		cmocka_unit_test(a_name_that_was_left_waits_while_others_are_asked),
		cmocka_unit_test(an_address_that_sends_the_session_to_others_is_not_asked_soon),
		cmocka_unit_test(named_servers_come_behind_the_list_and_are_forgotten),
		cmocka_unit_test(no_more_are_named_than_there_is_room_for),
		cmocka_unit_test(lists_have_a_short_name),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
