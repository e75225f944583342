/* SPDX-License-Identifier: Apache-2.0
 *
 * What a server sees of the others' work (server/fleet.h, server/server_beat.h), with a clock that the test sets: those that
 * live, as they were told last, and none that is dead, hangs, or is of a version that tells nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/fleet.h"
#include "tests/unit/ok.h"

#define LEASE_S 30.0
#define BEAT_S  6

static char root[64];
static uint64_t clock_s;

static uint64_t read_clock(void *arg)
{
	(void)arg;
	return clock_s * 1000000000u;
}

static const struct gp_keeper_settings settings = {.lease_s = LEASE_S, .name = "127.0.0.1:1", .now_ns = read_clock};

static int setup(void **state)
{
	(void)state;
	clock_s = 1000;
	strcpy(root, "/tmp/gp_fleet_XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	char command[128];
	snprintf(command, sizeof command, "rm -rf '%s'", root);
	return system(command);
}

/* A server that beats when it is told to. */
struct server {
	struct gp_beat beat;
};

static struct server begin(uint32_t sessions)
{
	struct server s;
	OK(gp_beat_begin(&s.beat, root, settings.name, (uint64_t)(LEASE_S * 1000), &err));
	s.beat.load = (struct gp_beat_load){.known = true, .sessions = sessions, .movable = sessions, .room = 9};
	OK(gp_beat_renew(&s.beat, &err));
	return s;
}

static struct gp_fleet *new_fleet(void)
{
	struct gp_fleet *f;
	OK(gp_fleet_new(root, &settings, &f, &err));
	return f;
}

static struct gp_fleet_view look(struct gp_fleet *f, const struct server *own)
{
	struct gp_fleet_view v;
	gp_fleet_look(f, own->beat.owner);
	gp_fleet_view(f, &v);
	return v;
}

static void beat_once(struct server *s)
{
	OK(gp_beat_renew(&s->beat, &err));
}

static void others_are_seen_from_their_second_beat_on(void **state)
{
	(void)state;
	struct gp_fleet *f = new_fleet();
	struct server own = begin(1), other = begin(5);
	assert_int_equal(look(f, &own).count, 0);
	clock_s += BEAT_S;
	other.beat.load = (struct gp_beat_load){.known = true, .sessions = 6, .movable = 4, .room = 0, .drains = true};
	beat_once(&other);
	const struct gp_fleet_view v = look(f, &own);
	assert_int_equal(v.count, 1);
	assert_int_equal(v.listed, 1);
	assert_string_equal(v.other[0].owner, other.beat.owner);
	assert_int_equal(v.other[0].load.sessions, 6);
	assert_int_equal(v.other[0].load.movable, 4);
	assert_int_equal(v.other[0].load.room, 0);
	assert_true(v.other[0].load.drains);
	assert_true(v.lease_s == LEASE_S);
	gp_fleet_free(f);
}

/* As after SIGKILL on another machine: nobody has taken its folder away yet. */
/* A file stands where the servers' folder was. */
static void a_look_that_fails_forgets_nobody(void **state)
{
	(void)state;
	char command[200];
	struct server own = begin(1), other = begin(2);
	struct gp_fleet *f = new_fleet();
	look(f, &own);
	clock_s += BEAT_S;
	beat_once(&other);
	assert_int_equal(look(f, &own).count, 1);
	snprintf(command, sizeof command, "cd '%s' && mv servers aside && touch servers", root);
	assert_int_equal(system(command), 0);
	clock_s += BEAT_S;
	const struct gp_fleet_view failed = look(f, &own);
	assert_int_equal(failed.count, 1);
	assert_int_equal(failed.listed, 1);
	snprintf(command, sizeof command, "cd '%s' && rm servers && mv aside servers", root);
	assert_int_equal(system(command), 0);
	clock_s += BEAT_S;
	beat_once(&other);
	assert_int_equal(look(f, &own).count, 1);
	gp_fleet_free(f);
	gp_beat_end(&own.beat);
	gp_beat_end(&other.beat);
}

static void one_that_does_not_beat_is_not_there(void **state)
{
	(void)state;
	struct gp_fleet *f = new_fleet();
	struct server own = begin(1), other = begin(0);
	look(f, &own);
	for (int i = 0; i < 3; i++) {
		clock_s += BEAT_S;
		beat_once(&other);
		assert_int_equal(look(f, &own).count, 1);
	}
	clock_s += BEAT_S;
	assert_int_equal(look(f, &own).count, 1);
	clock_s += 2 * BEAT_S;
	assert_int_equal(look(f, &own).count, 0);
	clock_s += BEAT_S;
	beat_once(&other);
	assert_int_equal(look(f, &own).count, 1);
	gp_beat_end(&other.beat);
	clock_s += BEAT_S;
	assert_int_equal(look(f, &own).count, 0);
	gp_fleet_free(f);
}

static void write_beat(const struct server *s, const char *text)
{
	char path[160];
	snprintf(path, sizeof path, "%s/servers/%s/beat", root, s->beat.owner);
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	fprintf(file, "%-*s", GP_BEAT_BYTES, text);
	assert_int_equal(fclose(file), 0);
}

/* Older versions end the line with the name; whoever writes there may write anything. */
static void what_tells_nothing_is_not_counted(void **state)
{
	(void)state;
	static const char *const behind[] = {"",
					     " sessions",
					     " sessions 1 movable 1 room 1",
					     " sessions -1 movable 1 room 1 drains 0",
					     " sessions 1 movable 2 room 1 drains 0",
					     " sessions 99999999 movable 1 room 1 drains 0",
					     " sessions 9999999 movable 1 room 1 drains 0",
					     " sessions 1 movable 1 room 5000000 drains 0",
					     " sessions 1 movable 1 room 1 drains x"};
	struct gp_fleet *f = new_fleet();
	struct server own = begin(1), other = begin(0);
	look(f, &own);
	for (size_t i = 0; i < sizeof behind / sizeof behind[0]; i++) {
		char text[GP_BEAT_BYTES];
		snprintf(text, sizeof text, "gpserverd 1 beat %d lease_ms 30000 boot - space - pid 1 name x:1%s\n",
			 (int)i + 10, behind[i]);
		write_beat(&other, text);
		clock_s += BEAT_S;
		assert_int_equal(look(f, &own).count, 0);
	}
	write_beat(&other, "gpserverd 1 beat 9 lease_ms 30000 boot - space - pid 1 name x:1 sessions 1 movable 1 "
			   "room 1 drains 0\n");
	clock_s += BEAT_S;
	assert_int_equal(look(f, &own).count, 1);
	gp_fleet_free(f);
}

/* A version that knows nothing of loads reads the rest of the page as ever. */
static void the_name_ends_where_it_did(void **state)
{
	(void)state;
	struct gp_beat_page page;
	struct server other = begin(3);
	OK(gp_beat_read(root, other.beat.owner, &page, &err));
	const struct gp_beat_facts facts = gp_beat_facts(&page);
	assert_true(facts.valid && facts.load.known);
	assert_string_equal(facts.name, settings.name);
}

/* Always the same ones, and never more than there is room for. */
static void of_many_others_some_are_looked_at(void **state)
{
	(void)state;
	enum { OTHERS = GP_FLEET_SEEN + 20 };
	static struct server other[OTHERS];
	struct gp_fleet *f = new_fleet();
	struct server own = begin(1);
	for (int i = 0; i < OTHERS; i++)
		other[i] = begin((uint32_t)i);
	struct gp_fleet_view before = look(f, &own);
	assert_int_equal(before.count, 0);
	for (int round = 0; round < 2; round++) {
		clock_s += BEAT_S;
		for (int i = 0; i < OTHERS; i++)
			beat_once(&other[i]);
		const struct gp_fleet_view v = look(f, &own);
		assert_int_equal(v.count, GP_FLEET_SEEN);
		assert_int_equal(v.listed, OTHERS);
		for (int i = 0; round > 0 && i < v.count; i++)
			assert_string_equal(v.other[i].owner, before.other[i].owner);
		before = v;
	}
	gp_beat_end(&other[0].beat); /* another one comes in its place, if it was seen */
	for (int i = 0; i < 2; i++) {
		clock_s += BEAT_S;
		for (int k = 1; k < OTHERS; k++)
			beat_once(&other[k]);
		look(f, &own);
	}
	clock_s += BEAT_S;
	for (int k = 1; k < OTHERS; k++)
		beat_once(&other[k]);
	const struct gp_fleet_view v = look(f, &own);
	assert_int_equal(v.count, GP_FLEET_SEEN);
	for (int i = 0; i < v.count; i++)
		assert_string_not_equal(v.other[i].owner, other[0].beat.owner);
	gp_fleet_free(f);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(others_are_seen_from_their_second_beat_on),
		TEST(a_look_that_fails_forgets_nobody),
		TEST(one_that_does_not_beat_is_not_there),
		TEST(what_tells_nothing_is_not_counted),
		TEST(the_name_ends_where_it_did),
		TEST(of_many_others_some_are_looked_at),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
