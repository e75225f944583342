/* SPDX-License-Identifier: Apache-2.0
 *
 * Which servers of a shared folder live (server/lease_keeper.h, server/server_beat.h), with clocks that the test sets:
 * nobody counts as dead who still believes in its leases, whatever the clocks show.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/lease_keeper.h"
#include "tests/unit/ok.h"

#define LEASE_S 30.0

static char root[64];

/* Shows a time, and may jump when it has been read so often. */
struct clock {
	double s, jump_s;
	int reads_until_jump; /* 0: it does not */
};

static uint64_t read_clock(void *arg)
{
	struct clock *c = arg;
	if (c->reads_until_jump > 0 && --c->reads_until_jump == 0)
		c->s += c->jump_s;
	return (uint64_t)(c->s * 1e9);
}

struct server {
	struct clock clock;
	struct gp_keeper *k;
	char owner[GP_OWNER_TEXT];
	uint64_t epoch;
};

static void start(struct server *s, double clock_s, double lease_s)
{
	*s = (struct server){.clock = {.s = clock_s}};
	const struct gp_keeper_settings set = {
		.lease_s = lease_s, .name = "127.0.0.1:1", .now_ns = read_clock, .arg = &s->clock};
	OK(gp_keeper_new(root, &set, &s->k, &err));
	s->epoch = gp_keeper_epoch(s->k, s->owner);
	assert_true(s->epoch > 0);
}

static int setup(void **state)
{
	(void)state;
	strcpy(root, "/tmp/gp_keeper_XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	char command[128];
	snprintf(command, sizeof command, "rm -rf '%s'", root);
	return system(command);
}

static void beat_of(const char *owner, char out[160])
{
	snprintf(out, 160, "%s/servers/%s/beat", root, owner);
}

static void who_renews_lives_and_holds(void **state)
{
	(void)state;
	struct server a, b;
	start(&a, 1000, LEASE_S);
	start(&b, 5, LEASE_S);
	for (int i = 0; i < 100; i++) {
		a.clock.s += 5;
		b.clock.s += 5;
		gp_keeper_tick(a.k);
		gp_keeper_tick(b.k);
		assert_true(gp_keeper_holds(a.k, a.epoch));
		assert_int_equal(gp_keeper_ask(b.k, a.owner, &err), GP_BUSY);
	}
	assert_int_equal(gp_keeper_ask(a.k, a.owner, &err), GP_OK); /* its own are its own */
	assert_int_equal(gp_keeper_losses(a.k), 0);
	gp_keeper_free(a.k);
	assert_int_equal(gp_keeper_ask(b.k, a.owner, &err), GP_OK); /* it has left in good order */
	gp_keeper_free(b.k);
}

/* `rate`: how fast the clock of the one that is stopped goes beside the watcher's. */
static void expect_loss_before_death(double rate, double offset)
{
	struct server a, b;
	start(&a, 100 + offset, LEASE_S);
	start(&b, 100, LEASE_S);
	double lost_s = 0, dead_s = 0;
	gp_keeper_ask(b.k, a.owner, &err);
	for (double s = 0; dead_s == 0; s += 0.25) {
		a.clock.s = 100 + offset + rate * s;
		b.clock.s = 100 + s;
		if (lost_s == 0 && !gp_keeper_holds(a.k, a.epoch))
			lost_s = s;
		gp_keeper_tick(b.k);
		if (gp_keeper_ask(b.k, a.owner, &err) == GP_OK)
			dead_s = s;
		assert_true(s < 2 * LEASE_S);
	}
	assert_true(lost_s > 0 && lost_s + 1 < dead_s);
	assert_true(dead_s >= LEASE_S);
	assert_false(gp_keeper_holds(a.k, a.epoch));
	gp_keeper_free(a.k);
	gp_keeper_free(b.k);
}

static void a_stopped_server_has_lost_its_leases_before_it_counts_as_dead(void **state)
{
	(void)state;
	expect_loss_before_death(1.0, 0);
	expect_loss_before_death(1.0, 100000);
	expect_loss_before_death(0.85, 3);
	expect_loss_before_death(1.2, 3);
}

/* SIGSTOP, and SIGCONT much later: it goes on with another name, and what it had is not its own any more. */
static void a_server_that_comes_back_begins_another_epoch(void **state)
{
	(void)state;
	struct server a, b;
	char owner[GP_OWNER_TEXT];
	start(&a, 0, LEASE_S);
	start(&b, 0, LEASE_S);
	gp_keeper_ask(b.k, a.owner, &err);
	for (; b.clock.s < 40; b.clock.s += 1)
		gp_keeper_tick(b.k);
	assert_int_equal(gp_keeper_ask(b.k, a.owner, &err), GP_OK);
	a.clock.s = 40;
	assert_false(gp_keeper_holds(a.k, a.epoch));
	assert_int_equal(gp_keeper_epoch(a.k, owner), 0);
	gp_keeper_tick(a.k);
	assert_false(gp_keeper_holds(a.k, a.epoch));
	const uint64_t epoch = gp_keeper_epoch(a.k, owner);
	assert_true(epoch > a.epoch && gp_keeper_holds(a.k, epoch));
	assert_string_not_equal(owner, a.owner);
	assert_int_equal(gp_keeper_losses(a.k), 1);
	assert_int_equal(gp_keeper_ask(b.k, a.owner, &err), GP_OK);
	assert_int_equal(gp_keeper_ask(b.k, owner, &err), GP_BUSY);
	gp_keeper_free(a.k);
	gp_keeper_free(b.k);
}

/* The disk hung, or the process was stopped, between the beginning of a renewal and its end. */
static void a_renewal_that_ends_too_late_renews_nothing(void **state)
{
	(void)state;
	struct server a;
	start(&a, 0, LEASE_S);
	a.clock.s = 10;
	a.clock.jump_s = 100;
	a.clock.reads_until_jump = 2; /* renew reads it before it writes, and behind that */
	gp_keeper_tick(a.k);
	assert_false(gp_keeper_holds(a.k, a.epoch));
	assert_int_equal(gp_keeper_losses(a.k), 1);
	gp_keeper_free(a.k);
}

static void who_has_no_file_any_more_is_dead_and_finds_so(void **state)
{
	(void)state;
	struct server a, b;
	start(&a, 0, LEASE_S);
	start(&b, 0, LEASE_S);
	OK(gp_beat_bury(root, a.owner, &err));
	assert_int_equal(gp_keeper_ask(b.k, a.owner, &err), GP_OK);
	a.clock.s = 6.5;
	gp_keeper_tick(a.k);
	assert_false(gp_keeper_holds(a.k, a.epoch));
	gp_keeper_free(a.k);
	gp_keeper_free(b.k);
}

/* Its --lease is longer than the watcher's. */
/* A clock of one server: at one reading, another of its threads has its turn, which looks at the same server. */
static struct {
	uint64_t now_ns;
	int reads_until_turn; /* 0: there is none */
	struct gp_keeper *k;
	const char *owner;
	enum gp_status found;
} turns;

static uint64_t read_turns(void *arg)
{
	(void)arg;
	const uint64_t now_ns = turns.now_ns;
	if (turns.reads_until_turn > 0 && --turns.reads_until_turn == 0) {
		turns.now_ns += 1000;
		turns.found = gp_keeper_ask(turns.k, turns.owner, &err);
	}
	return now_ns;
}

/* The thread that keeps leases and the one that a session's run is locked on: what the second has begun to read, the first has
 * read before it. */
static void a_living_server_that_two_threads_look_at_counts_as_living(void **state)
{
	(void)state;
	const struct gp_keeper_settings set = {.lease_s = LEASE_S, .name = "127.0.0.1:2", .now_ns = read_turns};
	struct server a;
	start(&a, 0, LEASE_S);
	turns.now_ns = UINT64_C(1000000000);
	OK(gp_keeper_new(root, &set, &turns.k, &err));
	turns.owner = a.owner;
	turns.reads_until_turn = 2; /* behind the one at which it is noted who is asked for */
	assert_int_equal(gp_keeper_ask(turns.k, a.owner, &err), GP_BUSY);
	assert_int_equal(turns.reads_until_turn, 0);
	assert_int_equal(turns.found, GP_BUSY);
	a.clock.s += 7;
	gp_keeper_tick(a.k);
	assert_true(gp_keeper_holds(a.k, a.epoch));
	gp_keeper_free(turns.k);
	gp_keeper_free(a.k);
}

static void the_lease_that_counts_is_the_owners(void **state)
{
	(void)state;
	struct server a, b;
	start(&a, 0, 100);
	start(&b, 0, 10);
	gp_keeper_ask(b.k, a.owner, &err);
	b.clock.s = 74;
	assert_int_equal(gp_keeper_ask(b.k, a.owner, &err), GP_BUSY);
	b.clock.s = 100;
	assert_int_equal(gp_keeper_ask(b.k, a.owner, &err), GP_OK);
	gp_keeper_free(a.k);
	gp_keeper_free(b.k);
}

static void a_file_that_cannot_be_read_counts_as_the_longest_lease(void **state)
{
	(void)state;
	static const char *const damages[] = {"", "x", "gpserverd 1 beat", "gpserverd 1 beat 1 lease_ms -1 boot"};
	for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
		struct server a, b;
		char path[160];
		start(&a, 0, LEASE_S);
		beat_of(a.owner, path);
		start(&b, 0, LEASE_S);
		FILE *f = fopen(path, "w");
		assert_non_null(f);
		fputs(damages[i], f);
		assert_int_equal(fclose(f), 0);
		assert_int_equal(gp_keeper_ask(b.k, a.owner, &err), GP_BUSY);
		b.clock.s = 10 * LEASE_S;
		assert_int_equal(gp_keeper_ask(b.k, a.owner, &err), GP_BUSY);
		b.clock.s = GP_LEASE_S_MAX;
		assert_int_equal(gp_keeper_ask(b.k, a.owner, &err), GP_OK);
		gp_keeper_free(a.k);
		gp_keeper_free(b.k);
	}
}

/* Whoever was not asked for is watched for a while when a server starts, so that what the dead left behind goes. */
static void the_dead_of_long_ago_are_buried(void **state)
{
	(void)state;
	struct server a, b;
	char path[160];
	start(&a, 0, LEASE_S);
	beat_of(a.owner, path);
	start(&b, 0, LEASE_S);
	for (int i = 0; i < 20; i++) {
		b.clock.s += 4;
		gp_keeper_tick(b.k);
	}
	assert_int_not_equal(access(path, F_OK), 0);
	gp_keeper_free(b.k);
	gp_keeper_free(a.k);
}

/* A process of this machine that has ended is dead at once; as long as it is there, it is not. */
static void a_process_of_this_machine_that_has_ended_is_dead(void **state)
{
	(void)state;
	struct server b;
	int told[2], go[2];
	char owner[GP_OWNER_TEXT] = "", byte = 0;
	if (access("/proc/sys/kernel/random/boot_id", R_OK) != 0)
		skip();
	assert_int_equal(pipe(told) | pipe(go), 0);
	start(&b, 0, LEASE_S);
	const pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct server a;
		start(&a, 0, LEASE_S);
		const bool well =
			write(told[1], a.owner, sizeof a.owner) == sizeof a.owner && read(go[0], &byte, 1) == 1;
		_exit(well ? 0 : 1);
	}
	assert_int_equal(read(told[0], owner, sizeof owner), sizeof owner);
	assert_int_equal(gp_keeper_ask(b.k, owner, &err), GP_BUSY);
	assert_int_equal(write(go[1], &byte, 1), 1);
	int status = -1;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(gp_keeper_ask(b.k, owner, &err), GP_OK);
	gp_keeper_free(b.k);
	close(told[0]), close(told[1]), close(go[0]), close(go[1]);
}

/* A page may be damaged. 2^32 more than the largest number that a process can have is no process, and says nothing of any. */
static void a_number_that_is_no_process_proves_no_death(void **state)
{
	(void)state;
	struct server a;
	struct gp_beat_page page;
	char text[GP_BEAT_BYTES + 1] = "", *pid;
	if (access("/proc/sys/kernel/random/boot_id", R_OK) != 0)
		skip();
	start(&a, 0, LEASE_S);
	OK(gp_beat_read(root, a.owner, &page, &err));
	assert_true(gp_beat_facts(&page).valid && !gp_beat_facts(&page).ended);
	memcpy(text, page.bytes, GP_BEAT_BYTES);
	pid = strstr(text, " pid ");
	assert_non_null(pid);
	snprintf(page.bytes, sizeof page.bytes, "%.*s pid 4299161600 name other\n", (int)(pid - text), text);
	assert_true(gp_beat_facts(&page).valid && !gp_beat_facts(&page).ended);
	snprintf(page.bytes, sizeof page.bytes, "%.*s pid 4194304 name other\n", (int)(pid - text), text);
	assert_true(gp_beat_facts(&page).valid && gp_beat_facts(&page).ended);
	gp_keeper_free(a.k);
}

static void wishes_reach_the_server_they_are_for(void **state)
{
	(void)state;
	struct server a;
	struct gp_want out[GP_WANTS_MAX];
	start(&a, 0, LEASE_S);
	assert_int_equal(gp_keeper_wants(a.k, out), 0);
	const struct gp_want one = {.run = {7, 1}, .generation = 3, .nonce = UINT64_MAX},
			     two = {.run = {8}, .generation = 1, .nonce = 5},
			     again = {.run = {7, 1}, .generation = 4, .nonce = 6};
	OK(gp_beat_want(root, a.owner, &one, &err));
	OK(gp_beat_want(root, a.owner, &two, &err));
	assert_int_equal(gp_keeper_wants(a.k, out), 2);
	assert_memory_equal(out[0].run, one.run, sizeof one.run);
	assert_true(out[0].generation == 3 && out[0].nonce == UINT64_MAX);
	assert_true(out[1].generation == 1 && out[1].nonce == 5);
	OK(gp_beat_want(root, a.owner, &again, &err));
	assert_int_equal(gp_keeper_wants(a.k, out), 2);
	assert_true(out[0].generation == 4 && out[0].nonce == 6);
	char path[160];
	snprintf(path, sizeof path, "%s/servers/%s/wants", root, a.owner);
	FILE *f = fopen(path, "r+");
	assert_non_null(f);
	for (int i = 0; i < 5000; i++)
		fputc(i * 37 & 0xff, f);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(gp_keeper_wants(a.k, out), 0);
	assert_int_equal(gp_beat_want(root, "00000000000000ff", &one, &err), GP_CANCELED);
	gp_keeper_free(a.k);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(who_renews_lives_and_holds),
		TEST(a_stopped_server_has_lost_its_leases_before_it_counts_as_dead),
		TEST(a_server_that_comes_back_begins_another_epoch),
		TEST(a_renewal_that_ends_too_late_renews_nothing),
		TEST(who_has_no_file_any_more_is_dead_and_finds_so),
		TEST(a_living_server_that_two_threads_look_at_counts_as_living),
		TEST(the_lease_that_counts_is_the_owners),
		TEST(a_file_that_cannot_be_read_counts_as_the_longest_lease),
		TEST(the_dead_of_long_ago_are_buried),
		TEST(a_process_of_this_machine_that_has_ended_is_dead),
		TEST(a_number_that_is_no_process_proves_no_death),
		TEST(wishes_reach_the_server_they_are_for),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
