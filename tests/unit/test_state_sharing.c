/* SPDX-License-Identifier: Apache-2.0
 *
 * One --state-dir of several servers (server/state_dir.h), each with a clock of its own that the test sets: a run is
 * written by one of them at a time, whatever becomes of the others.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/fault.h"
#include "server/state_dir.h"
#include "server/state_dir_impl.h"
#include "tests/unit/ok.h"

#define LEASE_S 30.0

static char root[64];
static struct gp_pairs spec;
static const uint8_t run_a[GP_RUN_ID_BYTES] = {0xaa, 1}, run_b[GP_RUN_ID_BYTES] = {0xbb, 2};

struct server {
	double clock_s;
	struct gp_state_dir *d;
};

static uint64_t read_clock(void *arg)
{
	return (uint64_t)(((const struct server *)arg)->clock_s * 1e9);
}

static void start_with(struct server *s, double clock_s, uint64_t bytes)
{
	const struct gp_state_limits limits = {
		.bytes = bytes,
		.client_bytes = bytes,
		.client_runs = GP_STATE_RUNS_MAX,
		.lease = {.lease_s = LEASE_S, .name = "127.0.0.1:1", .now_ns = read_clock, .arg = s},
		.keep_by_hand = true};
	s->clock_s = clock_s;
	OK(gp_state_dir_open(root, &limits, &s->d, &err));
}

static void start(struct server *s, double clock_s)
{
	start_with(s, clock_s, UINT64_MAX);
}

/* Its thread runs, seconds pass. */
static void live(struct server *s, double seconds)
{
	for (double t = 0; t < seconds; t += 2) {
		s->clock_s += 2;
		do /* a pass over the folder stops where it takes long */
			gp_state_dir_tick(s->d);
		while (s->d->refresh.dir);
	}
}

static int setup(void **state)
{
	(void)state;
	strcpy(root, "/tmp/gp_sharing_XXXXXX");
	spec.count = 0;
	gp_pairs_add(&spec, "seed", "7");
	return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	char command[128];
	snprintf(command, sizeof command, "rm -rf '%s'", root);
	return system(command);
}

static enum gp_status write_leased(struct server *s, const uint8_t *run, uint64_t lease, uint64_t step)
{
	static float value[1000];
	const struct gp_st_item item = {"param.a", {.ndim = 1, .dim = {1000}}, value, GP_ST_F32};
	value[0] = (float)step;
	return gp_state_dir_write_leased(s->d, run, lease, step, &spec, &item, 1, GP_CHECKPOINTS_STAY, &err);
}

/* A session of that server begins. */
static enum gp_status begin(struct server *s, const uint8_t *run, uint64_t *lease)
{
	OK(gp_state_dir_use(s->d, run, "", &err));
	const enum gp_status status = gp_state_dir_hold(s->d, run, lease, &err);
	if (status != GP_OK)
		gp_state_dir_release(s->d, run);
	return status;
}

static uint64_t newest(struct server *s, const uint8_t *run)
{
	static const uint64_t all[] = {10, 20, 30, 40, 50, 60};
	uint64_t found;
	OK(gp_state_dir_common(s->d, run, all, sizeof all / sizeof all[0], &found, &err));
	return found;
}

/* Everything that stands in the folder of the run, for comparing. */
static void list_run(const char *run_hex, char out[2048])
{
	char command[256];
	snprintf(command, sizeof command, "cd '%s/%s' && find . -type f | sort | xargs sha256sum", root, run_hex);
	FILE *f = popen(command, "r");
	assert_non_null(f);
	out[fread(out, 1, 2047, f)] = '\0';
	assert_int_equal(pclose(f), 0);
}

static void a_run_is_one_servers_until_it_is_given_back(void **state)
{
	(void)state;
	struct server a, b;
	uint64_t lease_a, lease_b;
	start(&a, 100);
	start(&b, 7);
	OK(begin(&a, run_a, &lease_a));
	OK(write_leased(&a, run_a, lease_a, 10));
	assert_int_equal(begin(&b, run_a, &lease_b), GP_BUSY);
	assert_int_equal(write_leased(&b, run_a, 0, 20), GP_BUSY);
	OK(begin(&b, run_b, &lease_b)); /* another run is */
	gp_state_dir_release(a.d, run_a);
	live(&a, 2);
	OK(begin(&b, run_a, &lease_b));
	assert_int_equal(newest(&b, run_a), 10);
	OK(write_leased(&b, run_a, lease_b, 20));
	assert_int_equal(begin(&a, run_a, &lease_a), GP_BUSY);
	gp_state_dir_close(b.d); /* gives back what it has */
	OK(begin(&a, run_a, &lease_a));
	assert_int_equal(newest(&a, run_a), 20);
	gp_state_dir_close(a.d);
}

static void a_run_of_a_dead_server_is_taken_over_and_the_dead_writes_nothing(void **state)
{
	(void)state;
	struct server a, b;
	struct gp_state_figures f;
	uint64_t lease_a, lease_b;
	char before[2048], after[2048];
	start(&a, 100);
	start(&b, 7);
	OK(begin(&a, run_a, &lease_a));
	OK(write_leased(&a, run_a, lease_a, 10));
	OK(write_leased(&a, run_a, lease_a, 20));
	assert_int_equal(begin(&b, run_a, &lease_b), GP_BUSY);
	live(&b, LEASE_S - 4);
	assert_int_equal(begin(&b, run_a, &lease_b), GP_BUSY);
	assert_false(gp_state_dir_has_news(a.d)); /* its clock stood still */
	live(&b, 6);
	OK(begin(&b, run_a, &lease_b));
	assert_int_equal(newest(&b, run_a), 20);
	OK(write_leased(&b, run_a, lease_b, 30));
	gp_state_dir_figures(b.d, &f);
	assert_int_equal(f.taken_over, 1);
	assert_int_equal(f.held, 1);
	list_run("aa010000000000000000000000000000", before);
	/* Its own clock has not even moved: what holds it off stands on the disk. */
	assert_int_equal(write_leased(&a, run_a, lease_a, 40), GP_CANCELED);
	err.code = GP_INVALID; /* as it comes to this */
	assert_int_equal(gp_state_dir_discard(a.d, run_a, 20, "does not fit", &err), GP_INVALID);
	list_run("aa010000000000000000000000000000", after);
	assert_string_equal(before, after);
	a.clock_s += 40;
	live(&b, 40);
	assert_true(gp_state_dir_has_news(a.d));
	assert_false(gp_state_dir_has_news(a.d));
	assert_true(gp_state_dir_is_lost(a.d, run_a, lease_a));
	live(&a, 4);
	assert_true(gp_state_dir_is_lost(a.d, run_a, lease_a));
	assert_int_equal(write_leased(&a, run_a, lease_a, 40), GP_CANCELED);
	gp_state_dir_release(a.d, run_a);
	live(&a, 4);
	list_run("aa010000000000000000000000000000", after);
	assert_string_equal(before, after);
	OK(write_leased(&b, run_a, lease_b, 40));
	gp_state_dir_figures(a.d, &f);
	assert_int_equal(f.losses, 1);
	gp_state_dir_close(a.d);
	gp_state_dir_close(b.d);
}

static void of_two_takers_one_gets_the_run(void **state)
{
	(void)state;
	struct server a, b, c;
	uint64_t lease;
	start(&a, 100);
	OK(begin(&a, run_a, &lease));
	OK(write_leased(&a, run_a, lease, 10));
	start(&b, 7);
	start(&c, 7000);
	assert_int_equal(begin(&b, run_a, &lease), GP_BUSY);
	assert_int_equal(begin(&c, run_a, &lease), GP_BUSY);
	for (int i = 0; i < 20; i++) {
		live(&b, 2);
		live(&c, 2);
	}
	OK(begin(&c, run_a, &lease));
	assert_int_equal(begin(&b, run_a, &lease), GP_BUSY);
	assert_int_equal(newest(&c, run_a), 10);
	gp_state_dir_close(c.d);
	gp_state_dir_close(b.d);
	gp_state_dir_close(a.d);
}

/* The server that had lost its leases has the run again, which another one had meanwhile: its old session must not write. */
static void an_old_session_does_not_write_under_a_new_lease(void **state)
{
	(void)state;
	struct server a, b;
	uint64_t first, second, lease_b;
	start(&a, 100);
	start(&b, 7);
	OK(begin(&a, run_a, &first));
	OK(write_leased(&a, run_a, first, 10));
	a.clock_s += 25;
	live(&a, 2);
	OK(begin(&b, run_a, &lease_b));
	OK(write_leased(&b, run_a, lease_b, 20));
	gp_state_dir_close(b.d);
	OK(begin(&a, run_a, &second));
	assert_true(second > first);
	assert_int_equal(write_leased(&a, run_a, first, 30), GP_CANCELED);
	assert_true(gp_state_dir_is_lost(a.d, run_a, first));
	assert_false(gp_state_dir_is_lost(a.d, run_a, second));
	assert_int_equal(newest(&a, run_a), 20);
	OK(write_leased(&a, run_a, second, 30));
	gp_state_dir_close(a.d);
}

/* Within one server: a session that is ending when its client begins the run again. */
static void the_next_session_of_a_run_has_a_lease_of_its_own(void **state)
{
	(void)state;
	struct server a;
	uint64_t first, second;
	start(&a, 100);
	OK(begin(&a, run_a, &first));
	OK(write_leased(&a, run_a, first, 10));
	OK(begin(&a, run_a, &second));
	assert_true(second > first);
	assert_int_equal(write_leased(&a, run_a, first, 20), GP_CANCELED);
	OK(write_leased(&a, run_a, second, 30));
	gp_state_dir_release(a.d, run_a);
	live(&a, 2);
	OK(write_leased(&a, run_a, second, 40)); /* one of the two is left */
	assert_int_equal(newest(&a, run_a), 40);
	gp_state_dir_close(a.d);
}

static void a_server_hears_who_wants_its_runs(void **state)
{
	(void)state;
	struct server a, b;
	uint64_t lease_a, lease_b;
	start(&a, 100);
	start(&b, 7);
	OK(begin(&a, run_a, &lease_a));
	live(&a, 2);
	assert_false(gp_state_dir_has_news(a.d));
	assert_int_equal(begin(&b, run_a, &lease_b), GP_BUSY);
	live(&a, 2);
	assert_true(gp_state_dir_has_news(a.d));
	live(&a, 2);
	assert_int_equal(gp_state_dir_wants(a.d, run_a), 1); /* one wish counts once */
	assert_int_equal(begin(&b, run_a, &lease_b), GP_BUSY);
	live(&a, 2);
	assert_int_equal(gp_state_dir_wants(a.d, run_a), 2);
	gp_state_dir_unwant(a.d, run_a);
	live(&a, 2);
	assert_int_equal(gp_state_dir_wants(a.d, run_a), 0);
	/* A wish for a lease is none for the next one. */
	assert_int_equal(begin(&b, run_a, &lease_b), GP_BUSY);
	OK(write_leased(&a, run_a, lease_a, 10));
	gp_state_dir_release(a.d, run_a);
	live(&a, 2);
	OK(begin(&a, run_a, &lease_a));
	live(&a, 2);
	assert_int_equal(gp_state_dir_wants(a.d, run_a), 0);
	/* Nor is it one for the next session, which comes before the lease was given back. */
	assert_int_equal(begin(&b, run_a, &lease_b), GP_BUSY);
	live(&a, 2);
	assert_int_equal(gp_state_dir_wants(a.d, run_a), 1);
	gp_state_dir_release(a.d, run_a);
	OK(begin(&a, run_a, &lease_a));
	assert_int_equal(gp_state_dir_wants(a.d, run_a), 0);
	gp_state_dir_close(a.d);
	gp_state_dir_close(b.d);
}

static void what_others_write_counts_and_what_they_use_makes_no_room(void **state)
{
	(void)state;
	struct server a, b;
	uint64_t lease;
	start_with(&a, 100, 10000); /* two checkpoints */
	start_with(&b, 7, 10000);
	OK(begin(&a, run_a, &lease));
	OK(write_leased(&a, run_a, lease, 10));
	OK(write_leased(&a, run_b, 0, 10)); /* of one that has ended */
	live(&a, 2);
	live(&b, 2);
	static const uint8_t run_c[GP_RUN_ID_BYTES] = {0xcc}, run_d[GP_RUN_ID_BYTES] = {0xdd};
	OK(begin(&b, run_c, &lease));
	OK(write_leased(&b, run_c, lease, 10));
	assert_int_equal(newest(&b, run_a), 10);
	assert_int_equal(newest(&b, run_b), 0);
	assert_int_equal(write_leased(&b, run_d, 0, 10), GP_NOMEM);
	assert_int_equal(newest(&b, run_a), 10);
	gp_state_dir_release(a.d, run_a);
	live(&a, 2);
	live(&b, 2); /* sees that it is free now */
	OK(write_leased(&b, run_d, 0, 10));
	assert_int_equal(newest(&b, run_a), 0);
	live(&a, 2); /* a pass finds what is gone, and what is new */
	live(&b, 2);
	OK(begin(&a, run_a, &lease));
	gp_state_dir_release(b.d, run_c);
	live(&b, 2);
	live(&a, 2);
	OK(write_leased(&a, run_a, lease, 20));
	gp_state_dir_close(a.d);
	gp_state_dir_close(b.d);
}

/* What it was writing goes, and its runs are free, also those that nobody comes back for. */
static void what_a_dead_server_has_left_is_cleaned(void **state)
{
	(void)state;
	struct server a, b;
	uint64_t lease;
	char path[256];
	start(&a, 100);
	OK(begin(&a, run_a, &lease));
	OK(write_leased(&a, run_a, lease, 10));
	OK(begin(&a, run_b, &lease)); /* without a checkpoint */
	snprintf(path, sizeof path,
		 "cd '%s'/aa01*/work-* && mkdir tmp-step-000000000020 && echo >tmp-step-000000000020/manifest.json",
		 root);
	assert_int_equal(system(path), 0);
	start(&b, 7);
	live(&b, 40);
	snprintf(path, sizeof path,
		 "cd '%s' && test -e aa01*/lease-*-free && test ! -e aa01*/work-* && test ! -e bb02*", root);
	assert_int_equal(system(path), 0);
	gp_state_dir_close(b.d);
	gp_state_dir_close(a.d);
}

static void a_damaged_run_is_refused_and_the_others_are_served(void **state)
{
	(void)state;
	struct server a;
	uint64_t lease;
	char command[256];
	start(&a, 100);
	OK(write_leased(&a, run_a, 0, 10));
	live(&a, 2);
	snprintf(command, sizeof command, "rm '%s'/aa01*/lease-*", root);
	assert_int_equal(system(command), 0);
	assert_int_equal(begin(&a, run_a, &lease), GP_INVALID);
	assert_non_null(strstr(err.text, "has no lease"));
	assert_null(strstr(err.text, root));
	OK(begin(&a, run_b, &lease));
	gp_state_dir_close(a.d);
	start(&a, 200); /* alone, it makes one */
	OK(begin(&a, run_a, &lease));
	assert_int_equal(newest(&a, run_a), 10);
	gp_state_dir_close(a.d);
}

/* A session that could not lock its run goes on; when it can, nobody may have had the run since. */
static void a_run_that_could_not_be_locked_is_locked_later_if_nobody_had_it(void **state)
{
	(void)state;
#ifndef GP_FAULTS
	skip();
#endif
	struct server a, b;
	uint64_t lease = 0;
	start(&a, 100);
	start(&b, 7);
	OK(gp_state_dir_use(a.d, run_a, "", &err));
	gp_fault_arm(GP_FAULT_FSYNC, 1);
	assert_int_equal(gp_state_dir_hold(a.d, run_a, &lease, &err), GP_IO);
	assert_int_equal(lease, 0);
	OK(write_leased(&a, run_a, 0, 10));
	gp_state_dir_release(a.d, run_a);
	live(&a, 2);
	OK(gp_state_dir_use(a.d, run_b, "", &err));
	gp_fault_arm(GP_FAULT_FSYNC, 1);
	assert_int_equal(gp_state_dir_hold(a.d, run_b, &lease, &err), GP_IO);
	OK(write_leased(&b, run_b, 0, 50));
	live(&b, 2);
	assert_int_equal(write_leased(&a, run_b, 0, 10), GP_CANCELED);
	assert_int_equal(newest(&b, run_b), 50);
	gp_state_dir_close(a.d);
	gp_state_dir_close(b.d);
}

/* One server has a session that could not lock its run, and the next one of the run, which could. */
static void a_session_without_a_lease_does_not_write_under_the_next_ones(void **state)
{
	(void)state;
#ifndef GP_FAULTS
	skip();
#endif
	struct server a;
	uint64_t first = 0, second;
	start(&a, 100);
	OK(gp_state_dir_use(a.d, run_a, "", &err));
	gp_fault_arm(GP_FAULT_FSYNC, 1);
	assert_int_equal(gp_state_dir_hold(a.d, run_a, &first, &err), GP_IO);
	OK(begin(&a, run_a, &second));
	OK(write_leased(&a, run_a, second, 20));
	assert_int_equal(write_leased(&a, run_a, first, 10), GP_CANCELED);
	assert_int_equal(newest(&a, run_a), 20);
	OK(write_leased(&a, run_a, second, 30));
	gp_state_dir_close(a.d);
}

/* The folder that a server makes for itself when it takes run_a for that generation cannot be made: a file is in its place. */
static void block_work(const struct server *s, unsigned generation, char path[PATH_MAX])
{
	struct gp_state_figures figures;
	char hex[GP_RUN_ID_HEX];
	gp_state_dir_figures(s->d, &figures);
	gp_run_id_text(run_a, hex);
	snprintf(path, PATH_MAX, "%s/%s/work-%012u-%s", root, hex, generation, figures.owner);
	const int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
	assert_true(fd >= 0);
	close(fd);
}

/* Twice the disk lets a server take a run by half. The names that this leaves are its own doing, and it goes on. */
static void a_run_that_was_taken_by_half_is_taken_again(void **state)
{
	(void)state;
	struct server a;
	uint64_t lease;
	char path[PATH_MAX];
	start(&a, 100);
	OK(begin(&a, run_a, &lease));
	OK(write_leased(&a, run_a, lease, 10));
	gp_state_dir_release(a.d, run_a);
	live(&a, 2);
	OK(gp_state_dir_use(a.d, run_a, "", &err));
	block_work(&a, 2, path);
	assert_int_equal(gp_state_dir_hold(a.d, run_a, &lease, &err), GP_IO);
	assert_int_equal(unlink(path), 0);
	block_work(&a, 3, path);
	assert_int_equal(write_leased(&a, run_a, 0, 20), GP_IO);
	assert_int_equal(unlink(path), 0);
	OK(write_leased(&a, run_a, 0, 30));
	assert_int_equal(newest(&a, run_a), 30);
	gp_state_dir_release(a.d, run_a);
	gp_state_dir_close(a.d);
}

/* The same where it is a new session that takes the run from an older one of the same server. */
static void a_session_that_takes_its_predecessors_run_by_half_writes_later(void **state)
{
	(void)state;
	struct server a;
	uint64_t first, second = 0;
	char path[PATH_MAX];
	start(&a, 100);
	OK(begin(&a, run_a, &first));
	OK(write_leased(&a, run_a, first, 10));
	OK(gp_state_dir_use(a.d, run_a, "", &err));
	block_work(&a, 2, path);
	assert_int_equal(gp_state_dir_hold(a.d, run_a, &second, &err), GP_IO);
	assert_int_equal(unlink(path), 0);
	gp_state_dir_release(a.d, run_a); /* the older one */
	OK(write_leased(&a, run_a, second, 20));
	assert_int_equal(write_leased(&a, run_a, first, 30), GP_CANCELED);
	assert_int_equal(newest(&a, run_a), 20);
	gp_state_dir_close(a.d);
}

/* A full disk: the oldest run is another server's by now, so that it frees nothing, and the next one goes. */
static void what_another_server_has_taken_frees_nothing(void **state)
{
	(void)state;
#ifndef GP_FAULTS
	skip();
#endif
	static const uint8_t run_c[GP_RUN_ID_BYTES] = {0xcc, 3};
	struct server a, b;
	uint64_t lease;
	start(&a, 100);
	start(&b, 7);
	OK(begin(&a, run_a, &lease));
	OK(write_leased(&a, run_a, lease, 10));
	OK(begin(&a, run_b, &lease));
	OK(write_leased(&a, run_b, lease, 10));
	gp_state_dir_release(a.d, run_a);
	gp_state_dir_release(a.d, run_b);
	for (int i = 0; i < 3; i++) /* gives both back, and looks at nothing else */
		gp_state_dir_tick(a.d);
	OK(begin(&b, run_a, &lease));
	OK(begin(&a, run_c, &lease));
	gp_fault_arm(GP_FAULT_WRITE, 3); /* ENOSPC */
	OK(write_leased(&a, run_c, lease, 10));
	assert_int_equal(newest(&b, run_a), 10);
	assert_int_equal(newest(&b, run_b), 0);
	assert_int_equal(newest(&a, run_c), 10);
	gp_state_dir_close(a.d);
	gp_state_dir_close(b.d);
}

/* Whatever the order in which a server comes upon the runs of others, the oldest makes room first. */
static void runs_that_others_wrote_go_by_their_age(void **state)
{
	(void)state;
	enum { RUNS = 8 };
	struct server a, b;
	uint64_t lease;
	uint8_t run[2 * RUNS][GP_RUN_ID_BYTES] = {{0}};
	start(&b, 7);
	for (int i = 0; i < 2 * RUNS; i++) {
		run[i][0] = (uint8_t)(37 * (i + 1));
		run[i][1] = (uint8_t)(i + 1);
	}
	for (int i = 0; i < RUNS; i++) {
		OK(begin(&b, run[i], &lease));
		OK(write_leased(&b, run[i], lease, 10));
		usleep(20000); /* more than a tick of the clock that files have */
	}
	for (int i = RUNS - 1; i >= 0; i--)
		gp_state_dir_release(b.d, run[i]);
	start_with(&a, 100, RUNS * 4600); /* room for as many */
	live(&b, 2);
	live(&a, 2);
	for (int i = RUNS; i < 2 * RUNS - 1; i++) {
		OK(begin(&a, run[i], &lease));
		OK(write_leased(&a, run[i], lease, 10));
		assert_int_equal(newest(&a, run[i - RUNS]), 0);
		assert_int_equal(newest(&a, run[i - RUNS + 1]), 10);
	}
	gp_state_dir_close(a.d);
	gp_state_dir_close(b.d);
}

/* Where a run could not even be looked at, nobody can say later whether another server has had it. */
static void a_run_that_could_not_be_looked_at_is_not_locked_later(void **state)
{
	(void)state;
	struct server a, b;
	uint64_t lease_a = 0, lease_b;
	char hex[GP_RUN_ID_HEX], path[PATH_MAX];
	start(&a, 100);
	start(&b, 7);
	gp_run_id_text(run_a, hex);
	snprintf(path, sizeof path, "%s/%s", root, hex);
	const int fd = open(path, O_CREAT | O_WRONLY, 0600); /* in the place of the run's folder */
	assert_true(fd >= 0);
	close(fd);
	OK(gp_state_dir_use(a.d, run_a, "", &err));
	assert_int_equal(gp_state_dir_hold(a.d, run_a, &lease_a, &err), GP_IO);
	assert_int_equal(unlink(path), 0);
	OK(begin(&b, run_a, &lease_b));
	OK(write_leased(&b, run_a, lease_b, 20));
	gp_state_dir_release(b.d, run_a);
	live(&b, 2);
	assert_int_equal(write_leased(&a, run_a, lease_a, 10), GP_CANCELED);
	assert_int_equal(newest(&b, run_a), 20);
	gp_state_dir_close(a.d);
	gp_state_dir_close(b.d);
}

/* What the other one has given back has the generation that was seen, and another owner. */
static void a_run_that_was_seen_in_other_hands_is_not_locked_later(void **state)
{
	(void)state;
	struct server a, b;
	uint64_t lease_a = 0, lease_b;
	start(&a, 100);
	start(&b, 7);
	OK(begin(&b, run_a, &lease_b));
	OK(write_leased(&b, run_a, lease_b, 10));
	a.clock_s += 25; /* it can lock nothing until it has looked at its disk again */
	OK(gp_state_dir_use(a.d, run_a, "", &err));
	assert_int_equal(gp_state_dir_hold(a.d, run_a, &lease_a, &err), GP_IO);
	OK(write_leased(&b, run_a, lease_b, 20));
	gp_state_dir_release(b.d, run_a);
	live(&b, 2);
	live(&a, 2);
	assert_int_equal(write_leased(&a, run_a, lease_a, 15), GP_CANCELED);
	assert_int_equal(newest(&b, run_a), 20);
	gp_state_dir_release(a.d, run_a);
	OK(write_leased(&a, run_a, 0, 50)); /* what that session had seen matters to no other */
	gp_state_dir_close(a.d);
	gp_state_dir_close(b.d);
}

/* A session without a lease has locked its run with its first checkpoint; then its server stands still. */
static void a_run_that_was_locked_late_and_lost_is_not_locked_again(void **state)
{
	(void)state;
	struct server a, b;
	uint64_t lease_a = 0, lease_b;
	start(&a, 100);
	start(&b, 7);
	a.clock_s += 25;
	OK(gp_state_dir_use(a.d, run_a, "", &err));
	assert_int_equal(gp_state_dir_hold(a.d, run_a, &lease_a, &err), GP_IO);
	live(&a, 2);
	OK(write_leased(&a, run_a, lease_a, 10));
	a.clock_s += 25;
	live(&a, 2);
	OK(write_leased(&a, run_a, lease_a, 20)); /* nobody has had it meanwhile */
	a.clock_s += 25;
	live(&a, 2);
	OK(begin(&b, run_a, &lease_b));
	OK(write_leased(&b, run_a, lease_b, 40));
	gp_state_dir_release(b.d, run_a);
	live(&b, 2);
	assert_int_equal(write_leased(&a, run_a, lease_a, 30), GP_CANCELED);
	assert_int_equal(newest(&b, run_a), 40);
	gp_state_dir_close(a.d);
	gp_state_dir_close(b.d);
}

static void thousands_of_runs_keep_no_call_waiting(void **state)
{
	(void)state;
	struct server a, b;
	char command[400];
	start(&a, 100);
	OK(write_leased(&a, run_a, 0, 10));
	live(&a, 2);
	snprintf(command, sizeof command,
		 "cd '%s' && for i in $(seq 1000 2999); do mkdir $(printf '%%032d' $i) && "
		 ": >$(printf '%%032d' $i)/lease-000000000001-free && mkdir $(printf '%%032d' $i)/step-000000000010; "
		 "done",
		 root);
	assert_int_equal(system(command), 0);
	start(&b, 7);
	for (int i = 0; i < 70; i++)
		gp_state_dir_tick(a.d); /* two passes, of 64 runs a call */
	uint64_t lease;
	OK(begin(&a, run_a, &lease));
	OK(write_leased(&a, run_a, lease, 20));
	assert_int_equal(newest(&a, run_a), 20);
	gp_state_dir_close(a.d);
	gp_state_dir_close(b.d);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_run_is_one_servers_until_it_is_given_back),
		TEST(a_run_of_a_dead_server_is_taken_over_and_the_dead_writes_nothing),
		TEST(of_two_takers_one_gets_the_run),
		TEST(an_old_session_does_not_write_under_a_new_lease),
		TEST(the_next_session_of_a_run_has_a_lease_of_its_own),
		TEST(a_server_hears_who_wants_its_runs),
		TEST(what_others_write_counts_and_what_they_use_makes_no_room),
		TEST(what_a_dead_server_has_left_is_cleaned),
		TEST(a_damaged_run_is_refused_and_the_others_are_served),
		TEST(a_run_that_could_not_be_locked_is_locked_later_if_nobody_had_it),
		TEST(a_session_without_a_lease_does_not_write_under_the_next_ones),
		TEST(a_run_that_was_taken_by_half_is_taken_again),
		TEST(a_session_that_takes_its_predecessors_run_by_half_writes_later),
		TEST(what_another_server_has_taken_frees_nothing),
		TEST(runs_that_others_wrote_go_by_their_age),
		TEST(a_run_that_could_not_be_looked_at_is_not_locked_later),
		TEST(a_run_that_was_seen_in_other_hands_is_not_locked_later),
		TEST(a_run_that_was_locked_late_and_lost_is_not_locked_again),
		TEST(thousands_of_runs_keep_no_call_waiting),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
