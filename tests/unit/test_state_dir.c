/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the server keeps checkpoints (server/state_dir.h): found by the run's
 * id and by what both sides have, bounded, and not at the cost of runs in use.
 */
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/fault.h"
#include "server/limits.h"
#include "server/state_dir.h"
#include "server/state_dir_impl.h"
#include "tests/unit/ok.h"

#define NO_LIMIT UINT64_MAX

static char root[64];
static struct gp_pairs spec;
static const uint8_t run_a[GP_RUN_ID_BYTES] = {0xaa, 1}, run_b[GP_RUN_ID_BYTES] = {0xbb, 2},
		     run_c[GP_RUN_ID_BYTES] = {0xcc, 3};

static int setup(void **state)
{
	(void)state;
	strcpy(root, "/tmp/gp_state_XXXXXX");
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

static struct gp_state_dir *open_with(uint64_t bytes, uint64_t client_bytes, int client_runs)
{
	const struct gp_state_limits limits = {
		.bytes = bytes, .client_bytes = client_bytes, .client_runs = client_runs, .names = true};
	struct gp_state_dir *d;
	OK(gp_state_dir_open(root, &limits, &d, &err));
	return d;
}

static struct gp_state_dir *open_dir(uint64_t max_bytes)
{
	return open_with(max_bytes, max_bytes, GP_STATE_RUNS_MAX);
}

static uint64_t still_clock(void *arg)
{
	(void)arg;
	return UINT64_C(1000000000);
}

/* No other thread touches the disk, so that the nth write is the test's own, and no lease ends however slow the disk is. */
static struct gp_state_dir *open_by_hand(void)
{
	const struct gp_state_limits limits = {.bytes = NO_LIMIT,
					       .client_bytes = NO_LIMIT,
					       .client_runs = GP_STATE_RUNS_MAX,
					       .names = true,
					       .lease = {.now_ns = still_clock},
					       .keep_by_hand = true};
	struct gp_state_dir *d;
	OK(gp_state_dir_open(root, &limits, &d, &err));
	return d;
}

/* 4000 bytes of state and a few hundred around them. */
static enum gp_status write_step(struct gp_state_dir *d, const uint8_t *run, uint64_t step)
{
	static float value[1000];
	const struct gp_st_item item = {"param.a", {.ndim = 1, .dim = {1000}}, value, GP_ST_F32};
	value[0] = (float)step;
	return gp_state_dir_write(d, run, step, &spec, &item, 1, GP_CHECKPOINTS_STAY, &err);
}

static uint64_t common(struct gp_state_dir *d, const uint8_t *run, const uint64_t *step, size_t count)
{
	uint64_t found;
	OK(gp_state_dir_common(d, run, step, count, &found, &err));
	return found;
}

static uint64_t newest(struct gp_state_dir *d, const uint8_t *run)
{
	static const uint64_t all[] = {0, 10, 70, 20, 60, 30, 50, 40};
	return common(d, run, all, sizeof all / sizeof all[0]);
}

static void newest_step_that_both_sides_have_is_found(void **state)
{
	(void)state;
	struct gp_state_dir *d = open_dir(NO_LIMIT);
	assert_int_equal(newest(d, run_a), 0);
	for (uint64_t s = 10; s <= 50; s += 10)
		OK(write_step(d, run_a, s));
	OK(write_step(d, run_b, 70));
	assert_int_equal(common(d, run_a, (uint64_t[]){60, 40, 10, 0}, 4), 40);
	assert_int_equal(common(d, run_a, (uint64_t[]){20, 10}, 2), 0);
	assert_int_equal(newest(d, run_a), 50);
	assert_int_equal(newest(d, run_b), 70);
	assert_int_equal(newest(d, run_c), 0);
	uint64_t step[GP_CHECKPOINTS_MAX];
	assert_int_equal(gp_state_dir_list(d, run_a, step), 3);
	assert_true(step[0] == 50 && step[1] == 40 && step[2] == 30);
	assert_int_equal(gp_state_dir_list(d, run_c, step), 0);
	gp_state_dir_close(d);
	d = open_dir(NO_LIMIT);
	assert_int_equal(newest(d, run_a), 50);
	gp_state_dir_close(d);
}

static void run_begun_again_loses_its_later_checkpoints(void **state)
{
	(void)state;
	struct gp_state_dir *d = open_dir(NO_LIMIT);
	for (uint64_t s = 30; s <= 50; s += 10)
		OK(write_step(d, run_a, s));
	OK(write_step(d, run_a, 20));
	assert_int_equal(newest(d, run_a), 20);
	gp_state_dir_close(d);
}

static void what_is_loaded_is_checked(void **state)
{
	(void)state;
	struct gp_state_dir *d = open_dir(NO_LIMIT);
	struct gp_checkpoint *c;
	float first;
	OK(write_step(d, run_a, 10));
	OK(gp_state_dir_check(d, run_a, 10, &spec, &err));
	OK(gp_state_dir_load(d, run_a, 10, &c, &err));
	memcpy(&first, gp_st_find(c->state, "param.a")->data, sizeof first);
	assert_true(first == 10);
	gp_checkpoint_close(c);
	assert_int_equal(gp_state_dir_check(d, run_a, 20, &spec, &err), GP_INVALID);
	spec.pair[0].value = "8";
	assert_int_equal(gp_state_dir_check(d, run_a, 10, &spec, &err), GP_INVALID);
	assert_string_equal(err.text, "seed is '8', but the run has it at '7'");
	gp_state_dir_close(d);
}

static void damaged_checkpoint_is_removed_and_an_older_one_serves(void **state)
{
	(void)state;
	static const char *const damages[] = {
		"cd '%s/%s/step-000000000030' && printf x | dd of=state.safetensors bs=1 seek=900 conv=notrunc "
		"status=none",
		"cd '%s/%s/step-000000000030' && tr ':' ';' <state.safetensors >a && mv a state.safetensors",
		"cd '%s/%s/step-000000000030' && rm state.safetensors",
		"cd '%s/%s/step-000000000030' && echo >manifest.json",
	};
	struct gp_state_dir *d = open_dir(NO_LIMIT);
	char command[256];
	struct gp_checkpoint *c;
	for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
		OK(write_step(d, run_a, 20));
		OK(write_step(d, run_a, 30));
		snprintf(command, sizeof command, damages[i], root, "aa010000000000000000000000000000");
		assert_int_equal(system(command), 0);
		assert_int_equal(gp_state_dir_load(d, run_a, 30, &c, &err), GP_CANCELED);
		assert_null(strstr(err.text, root));
		assert_int_equal(newest(d, run_a), 20);
		OK(gp_state_dir_load(d, run_a, 20, &c, &err));
		gp_checkpoint_close(c);
	}
	gp_state_dir_close(d);
}

static void folder_of_one_run_is_not_taken_for_another(void **state)
{
	(void)state;
	char command[256];
	struct gp_state_dir *d = open_dir(NO_LIMIT);
	OK(write_step(d, run_a, 10));
	snprintf(command, sizeof command, "cd '%s' && mv aa010000000000000000000000000000 %s", root,
		 "bb020000000000000000000000000000");
	assert_int_equal(system(command), 0);
	assert_int_equal(newest(d, run_b), 0);
	assert_int_equal(gp_state_dir_check(d, run_b, 10, &spec, &err), GP_INVALID);
	gp_state_dir_close(d);
}

static void oldest_unused_runs_make_room(void **state)
{
	(void)state;
	struct gp_state_dir *d = open_dir(10000); /* two checkpoints */
	OK(gp_state_dir_use(d, run_a, "", &err));
	OK(gp_state_dir_use(d, run_a, "", &err));
	OK(write_step(d, run_a, 10));
	OK(write_step(d, run_b, 20));
	OK(write_step(d, run_c, 30));
	assert_int_equal(newest(d, run_a), 10);
	assert_int_equal(newest(d, run_b), 0);
	assert_int_equal(newest(d, run_c), 30);
	gp_state_dir_release(d, run_a);
	OK(write_step(d, run_b, 40));
	assert_int_equal(newest(d, run_a), 10);
	assert_int_equal(newest(d, run_c), 0);
	gp_state_dir_release(d, run_a);
	OK(write_step(d, run_c, 50));
	assert_int_equal(newest(d, run_a), 0);
	gp_state_dir_close(d);
}

static void checkpoint_that_finds_no_room_is_an_error_and_is_not_kept(void **state)
{
	(void)state;
	struct gp_state_dir *d = open_dir(6000);
	OK(gp_state_dir_use(d, run_a, "", &err));
	OK(write_step(d, run_a, 10));
	assert_int_equal(write_step(d, run_b, 20), GP_NOMEM);
	assert_non_null(strstr(err.text, "--state-max"));
	assert_int_equal(newest(d, run_a), 10);
	assert_int_equal(newest(d, run_b), 0);
	assert_int_equal(write_step(d, run_a, 20), GP_NOMEM);
	assert_int_equal(newest(d, run_a), 10);
	gp_state_dir_close(d);
}

/* --- owners ------------------------------------------------------------------------------------------------------- */

/* As a session does that writes one checkpoint and ends. */
static enum gp_status write_of(struct gp_state_dir *d, const char *owner, const uint8_t *run, uint64_t step)
{
	OK(gp_state_dir_use(d, run, owner, &err));
	const enum gp_status status = write_step(d, run, step);
	gp_state_dir_release(d, run);
	return status;
}

/* A run of its own for each n. */
static const uint8_t *run_number(int n)
{
	static uint8_t run[GP_RUN_ID_BYTES] = {0xdd};
	run[14] = (uint8_t)(n >> 8);
	run[15] = (uint8_t)n;
	return run;
}

static void many_runs_of_one_client_remove_none_of_an_absent_one(void **state)
{
	(void)state;
	struct gp_state_dir *d = open_with(20000, 10000, GP_STATE_RUNS_MAX); /* four checkpoints, two of one client */
	OK(write_of(d, "anna", run_a, 10));
	for (int i = 0; i < 20; i++)
		OK(write_of(d, "bert", run_number(i), 20));
	assert_int_equal(newest(d, run_a), 10);
	assert_int_equal(newest(d, run_number(0)), 0);
	assert_int_equal(newest(d, run_number(17)), 0);
	assert_int_equal(newest(d, run_number(18)), 20);
	assert_int_equal(newest(d, run_number(19)), 20);
	gp_state_dir_close(d);
}

static void number_of_runs_of_one_client_is_bounded(void **state)
{
	(void)state;
	struct gp_state_dir *d = open_with(NO_LIMIT, NO_LIMIT, 2);
	OK(write_of(d, "anna", run_a, 10));
	OK(gp_state_dir_use(d, run_number(0), "bert", &err));
	OK(gp_state_dir_use(d, run_number(1), "bert", &err));
	OK(write_step(d, run_number(0), 20));
	OK(write_step(d, run_number(1), 20));
	assert_int_equal(write_of(d, "bert", run_number(2), 20), GP_NOMEM);
	assert_non_null(strstr(err.text, "--state-runs-per-client"));
	gp_state_dir_release(d, run_number(0));
	OK(write_of(d, "bert", run_number(2), 20));
	assert_int_equal(newest(d, run_number(0)), 0);
	assert_int_equal(newest(d, run_number(1)), 20);
	assert_int_equal(newest(d, run_a), 10);
	gp_state_dir_release(d, run_number(1));
	gp_state_dir_close(d);
}

static void one_client_that_uses_all_it_may_keeps_no_other_from_writing(void **state)
{
	(void)state;
	struct gp_state_dir *d = open_with(20000, 10000, GP_STATE_RUNS_MAX);
	for (int i = 0; i < 3; i++)
		OK(gp_state_dir_use(d, run_number(i), "bert", &err));
	OK(write_step(d, run_number(0), 10));
	OK(write_step(d, run_number(1), 10));
	assert_int_equal(write_step(d, run_number(2), 10), GP_NOMEM);
	assert_non_null(strstr(err.text, "--state-max-per-client"));
	OK(write_of(d, "anna", run_a, 10));
	OK(write_of(d, "anna", run_b, 10));
	assert_int_equal(newest(d, run_number(0)), 10); /* in use */
	assert_int_equal(newest(d, run_number(1)), 10);
	assert_int_equal(newest(d, run_number(2)), 0);
	assert_int_equal(newest(d, run_a), 10);
	for (int i = 0; i < 3; i++)
		gp_state_dir_release(d, run_number(i));
	gp_state_dir_close(d);
}

static struct gp_limits_table *shares_of(const char *text)
{
	const struct gp_limits base = {.checkpoint_bytes = NO_LIMIT, .runs = GP_LIMITS_ANY};
	struct gp_limits_table *t;
	char path[96];
	snprintf(path, sizeof path, "%s/limits", root);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
	OK(gp_limits_load(path, &base, &t, &err));
	assert_int_equal(unlink(path), 0);
	return t;
}

/* Two checkpoints for names of A, one for the others, with a name that a manifest has in another form. */
static void each_name_has_the_share_of_its_line(void **state)
{
	(void)state;
	static const char odd[] = "cert:uri:urn:50%25 off";
	struct gp_state_dir *d = open_with(NO_LIMIT, 1, 0);
	struct gp_limits_table *t = shares_of("default checkpoints=6000\ntoken:a* checkpoints=10000 runs=2\n"
					      "cert:uri:urn:50%25* checkpoints=10000\ntoken:none checkpoints=100\n");
	gp_state_dir_set_shares(d, t);
	OK(gp_state_dir_use(d, run_number(0), "token:bert", &err));
	OK(gp_state_dir_use(d, run_number(1), "token:bert", &err));
	OK(write_step(d, run_number(0), 10));
	assert_int_equal(write_step(d, run_number(1), 10), GP_NOMEM);
	assert_non_null(strstr(err.text, "it may have 0.0 MiB (--limits)"));
	OK(write_of(d, "token:anna", run_a, 10));
	OK(write_of(d, "token:anna", run_b, 10));
	OK(write_of(d, odd, run_number(5), 10));
	OK(write_of(d, odd, run_number(6), 10));
	assert_int_equal(newest(d, run_a), 10);
	assert_int_equal(newest(d, run_number(5)), 10);
	assert_int_equal(newest(d, run_number(6)), 10);
	assert_int_equal(write_of(d, "token:none", run_c, 10), GP_NOMEM);
	assert_non_null(strstr(err.text, "this checkpoint takes 0.0 MiB; this client may have 0.0 MiB and"));
	struct gp_limits_table *fewer =
		shares_of("default checkpoints=any\ntoken:anna runs=1\n"); /* lowered while it runs */
	gp_state_dir_set_shares(d, fewer);
	gp_limits_free(t);
	OK(write_step(d, run_number(1), 10));
	OK(write_of(d, "token:anna", run_c, 20));
	assert_int_equal(newest(d, run_a), 0);
	assert_int_equal(newest(d, run_b), 0);
	assert_int_equal(newest(d, run_c), 20);
	gp_state_dir_release(d, run_number(0));
	gp_state_dir_release(d, run_number(1));
	gp_state_dir_close(d);
	gp_limits_free(fewer);
}

/* Where the shares of all come to more than the whole, the whole is the bound. */
static void whole_folder_is_bounded_without_taking_from_others(void **state)
{
	(void)state;
	struct gp_state_dir *d = open_with(10000, 10000, GP_STATE_RUNS_MAX);
	OK(write_of(d, "anna", run_a, 10));
	OK(write_of(d, "bert", run_b, 10));
	assert_int_equal(write_of(d, "carl", run_c, 10), GP_NOMEM);
	assert_non_null(strstr(err.text, "--state-max)"));
	OK(write_of(d, "bert", run_c, 10));
	assert_int_equal(newest(d, run_a), 10);
	assert_int_equal(newest(d, run_b), 0);
	assert_int_equal(newest(d, run_c), 10);
	gp_state_dir_close(d);
}

static void owners_are_known_after_a_restart_and_who_has_too_much_makes_room(void **state)
{
	(void)state;
	static const char name[] = "J\xc3\xb6rg 100% by\ttoken";
	struct gp_state_dir *d = open_dir(NO_LIMIT);
	OK(write_of(d, name, run_a, 10));
	OK(write_of(d, name, run_b, 10));
	OK(write_of(d, "anna", run_c, 10));
	gp_state_dir_close(d);
	d = open_with(15000, 6000, GP_STATE_RUNS_MAX); /* three checkpoints, one of one client */
	OK(write_of(d, "bert", run_number(0), 10));
	assert_int_equal(newest(d, run_a), 0);
	assert_int_equal(newest(d, run_b), 10);
	assert_int_equal(newest(d, run_c), 10);
	OK(write_of(d, name, run_number(1), 10)); /* the same name still: its own other run goes */
	assert_int_equal(newest(d, run_b), 0);
	assert_int_equal(newest(d, run_c), 10);
	gp_state_dir_close(d);
}

/* As it is after an older version, which wrote down no owners. */
static void runs_of_nobody_make_room_until_their_owner_comes_back(void **state)
{
	(void)state;
	struct gp_state_dir *d = open_with(10000, 10000, GP_STATE_RUNS_MAX); /* two checkpoints */
	OK(write_step(d, run_a, 10));
	OK(write_step(d, run_b, 10));
	OK(gp_state_dir_use(d, run_a, "anna", &err));
	gp_state_dir_release(d, run_a);
	OK(write_of(d, "bert", run_number(0), 10));
	assert_int_equal(newest(d, run_number(0)), 10);
	assert_int_equal(newest(d, run_a), 10);
	assert_int_equal(newest(d, run_b), 0);
	gp_state_dir_close(d);
}

static void full_disk_takes_from_runs_that_have_ended_by_the_same_rules(void **state)
{
	(void)state;
#ifndef GP_FAULTS
	skip();
#endif
	struct gp_state_dir *d = open_by_hand();
	OK(write_of(d, "anna", run_a, 10));
	OK(write_of(d, "bert", run_b, 10));
	gp_fault_arm(GP_FAULT_WRITE, 3); /* ENOSPC */
	OK(write_of(d, "bert", run_c, 10));
	assert_int_equal(newest(d, run_a), 10);
	assert_int_equal(newest(d, run_b), 0);
	assert_int_equal(newest(d, run_c), 10);
	OK(gp_state_dir_use(d, run_c, "bert", &err)); /* and none that is in use, or is another's */
	gp_fault_arm(GP_FAULT_WRITE, 3);
	assert_int_equal(write_of(d, "bert", run_b, 20), GP_IO);
	assert_string_equal(err.text, "No space left on device");
	assert_int_equal(newest(d, run_a), 10);
	assert_int_equal(newest(d, run_c), 10);
	gp_state_dir_release(d, run_c);
	gp_state_dir_close(d);
}

/* As the thread that keeps the leases has a run, while it gives the lease back. */
static void *have_b_for_a_moment(void *arg)
{
	usleep(50000);
	gp_state_unclaim_run(arg, run_b);
	return NULL;
}

static void run_whose_lease_is_just_given_back_makes_room_all_the_same(void **state)
{
	(void)state;
#ifndef GP_FAULTS
	skip();
#endif
	pthread_t thread;
	struct gp_state_dir *d = open_by_hand();
	OK(write_of(d, "bert", run_b, 10));
	OK(write_of(d, "bert", run_a, 10));
	assert_true(gp_state_claim_run(d, run_b));
	assert_int_equal(pthread_create(&thread, NULL, have_b_for_a_moment, d), 0);
	gp_fault_arm(GP_FAULT_WRITE, 3); /* ENOSPC */
	OK(write_of(d, "bert", run_c, 10));
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(newest(d, run_b), 0);
	assert_int_equal(newest(d, run_a), 10);
	assert_int_equal(newest(d, run_c), 10);
	OK(write_of(d, "bert", run_b, 10));
	assert_true(gp_state_claim_run(d, run_b));
	assert_int_equal(pthread_create(&thread, NULL, have_b_for_a_moment, d), 0);
	struct gp_limits_table *one = shares_of("default checkpoints=any runs=1\n");
	gp_state_dir_set_shares(d, one); /* all others go, the one that is held, too */
	OK(write_of(d, "bert", run_c, 20));
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(newest(d, run_a), 0);
	assert_int_equal(newest(d, run_b), 0);
	assert_int_equal(newest(d, run_c), 20);
	gp_state_dir_close(d);
	gp_limits_free(one);
}

static void disk_that_cannot_be_read_is_an_error_and_costs_no_checkpoint(void **state)
{
	(void)state;
#ifndef GP_FAULTS
	skip();
#endif
	struct gp_state_dir *d = open_by_hand();
	struct gp_checkpoint *c;
	OK(write_step(d, run_a, 10));
	for (uint64_t nth = 1; nth <= 2; nth++) { /* the length of the header, and the rest */
		gp_fault_arm(GP_FAULT_READ, nth);
		assert_int_equal(gp_state_dir_load(d, run_a, 10, &c, &err), GP_IO);
		assert_string_equal(err.text, "Input/output error");
	}
	gp_fault_arm(GP_FAULT_READ, 1); /* what was written is read once more, for its hash */
	assert_int_equal(write_step(d, run_a, 20), GP_IO);
	OK(gp_state_dir_load(d, run_a, 10, &c, &err));
	gp_checkpoint_close(c);
	assert_int_equal(newest(d, run_a), 10);
	gp_state_dir_close(d);
}

/* No older step, and no beginning, is offered in the place of one that cannot be read at the moment. */
static void what_cannot_be_read_now_is_not_taken_for_missing(void **state)
{
	(void)state;
	struct gp_state_dir *d = open_by_hand();
	struct gp_checkpoint *c;
	uint64_t found;
	char manifest[192], aside[200];
	OK(write_step(d, run_a, 10));
	OK(write_step(d, run_a, 20));
	snprintf(manifest, sizeof manifest, "%s/aa010000000000000000000000000000/step-000000000020/manifest.json",
		 root);
	snprintf(aside, sizeof aside, "%s.aside", manifest);
	assert_int_equal(rename(manifest, aside), 0);
	assert_int_equal(newest(d, run_a), 10);
	assert_int_equal(symlink("manifest.json", manifest), 0); /* ELOOP */
	assert_int_equal(gp_state_dir_common(d, run_a, (uint64_t[]){10, 20}, 2, &found, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "cannot be read now"));
	assert_null(strstr(err.text, root));
	assert_int_not_equal(gp_state_dir_load(d, run_a, 20, &c, &err), GP_OK);
	assert_int_equal(rename(aside, manifest), 0);
	assert_int_equal(newest(d, run_a), 20);
	OK(gp_state_dir_load(d, run_a, 20, &c, &err)); /* it was not removed as damaged */
	gp_checkpoint_close(c);
	gp_state_dir_close(d);
}

static enum gp_status open_second(struct gp_state_dir **out)
{
	const struct gp_state_limits limits = {
		.bytes = NO_LIMIT, .client_bytes = NO_LIMIT, .client_runs = GP_STATE_RUNS_MAX, .names = true};
	return gp_state_dir_open(root, &limits, out, &err);
}

static void folder_is_for_servers_of_this_version_and_their_owner(void **state)
{
	(void)state;
	struct gp_state_dir *d = open_dir(NO_LIMIT), *second;
	struct stat st;
	OK(open_second(&second));
	OK(write_step(d, run_a, 10));
	char path[160];
	snprintf(path, sizeof path, "%s/aa010000000000000000000000000000", root);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	gp_state_dir_close(d);
	gp_state_dir_close(second);
	snprintf(path, sizeof path, "%s/lock", root); /* as an older version has it: for itself */
	const int fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
	assert_int_equal(open_second(&second), GP_INVALID);
	assert_non_null(strstr(err.text, "--state-dir: "));
	assert_non_null(strstr(err.text, "in use by another process"));
	close(fd);
	OK(open_second(&second));
	gp_state_dir_close(second);
}

static void runs_of_an_older_version_go_on(void **state)
{
	(void)state;
	char command[256];
	struct gp_state_dir *d = open_dir(NO_LIMIT);
	OK(write_step(d, run_a, 10));
	gp_state_dir_close(d);
	snprintf(command, sizeof command,
		 "cd '%s' && rm -r servers aa01*/lease-* && mkdir bb020000000000000000000000000000", root);
	assert_int_equal(system(command), 0);
	d = open_dir(NO_LIMIT);
	assert_int_equal(newest(d, run_a), 10);
	OK(write_step(d, run_a, 20));
	OK(write_step(d, run_b, 20));
	assert_int_equal(newest(d, run_a), 20);
	gp_state_dir_close(d);
}

static void half_written_ones_are_removed(void **state)
{
	(void)state;
	char path[160];
	struct gp_state_dir *d = open_dir(NO_LIMIT);
	OK(write_step(d, run_a, 10));
	gp_state_dir_close(d);
	snprintf(path, sizeof path, "%s/aa010000000000000000000000000000/tmp-step-000000000020", root);
	assert_int_equal(mkdir(path, 0700), 0);
	d = open_dir(NO_LIMIT);
	OK(write_step(d, run_a, 30)); /* such as an older version has left, as soon as somebody has the run */
	assert_int_not_equal(access(path, F_OK), 0);
	assert_int_equal(newest(d, run_a), 30);
	gp_state_dir_close(d);
}

static void messages_have_neither_path_nor_id_of_a_run(void **state)
{
	(void)state;
	char command[256];
	struct gp_state_dir *d = open_dir(NO_LIMIT);
	snprintf(command, sizeof command, "cd '%s' && echo >aa010000000000000000000000000000", root);
	assert_int_equal(system(command), 0); /* a file in the place of the folder */
	assert_int_not_equal(write_step(d, run_a, 10), GP_OK);
	assert_string_equal(err.text, "Not a directory");
	assert_int_not_equal(gp_state_dir_check(d, run_a, 10, &spec, &err), GP_OK);
	assert_string_equal(err.text, "Not a directory");
	gp_state_dir_close(d);
}

static void strange_entries_do_not_keep_a_server_from_starting(void **state)
{
	(void)state;
	char command[256];
	snprintf(command, sizeof command,
		 "cd '%s' && echo >aa010000000000000000000000000000 && mkdir -p "
		 "bb020000000000000000000000000000/tmp-x/y",
		 root);
	assert_int_equal(system(command), 0);
	struct gp_state_dir *d = open_dir(NO_LIMIT);
	OK(write_step(d, run_c, 10));
	assert_int_equal(newest(d, run_c), 10);
	gp_state_dir_close(d);
}

/* Nothing in the folder may change: it is the other version's. */
static void folder_of_another_version_or_kind_keeps_a_server_from_starting(void **state)
{
	(void)state;
	static const struct gp_state_limits limits = {
		.bytes = NO_LIMIT, .client_bytes = NO_LIMIT, .client_runs = GP_STATE_RUNS_MAX, .names = true};
	char command[256];
	struct gp_state_dir *d = open_dir(NO_LIMIT);
	OK(write_step(d, run_a, 10));
	gp_state_dir_close(d);
	snprintf(command, sizeof command, "sed -i 's/\"format\": 1/\"format\": 2/' '%s'/aa01*/step-*/manifest.json",
		 root);
	assert_int_equal(system(command), 0);
	assert_int_equal(gp_state_dir_open(root, &limits, &d, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "--state-dir: "));
	assert_non_null(
		strstr(err.text, "its format is 2; this version reads format 1; start the version that wrote it"));
	assert_null(strstr(err.text, "aa01000000"));
	snprintf(command, sizeof command,
		 "cd '%s' && grep -q '\"format\": 2' aa01*/step-*/manifest.json && rm -r aa01* && mkdir "
		 "step-000000000010",
		 root);
	assert_int_equal(system(command), 0);
	assert_int_equal(gp_state_dir_open(root, &limits, &d, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "holds the checkpoints of a client"));
}

static void failed_write_leaves_the_older_ones(void **state)
{
	(void)state;
#ifndef GP_FAULTS
	skip();
#endif
	struct gp_state_dir *d = open_by_hand();
	OK(write_step(d, run_a, 10));
	for (int kind = 0; kind < 3; kind++) {
		const enum gp_fault_kind kinds[] = {GP_FAULT_ALLOC, GP_FAULT_WRITE, GP_FAULT_FSYNC};
		enum gp_status status = GP_IO;
		for (uint64_t n = 1; status != GP_OK; n++) {
			assert_true(n < 100);
			gp_fault_arm(kinds[kind], n);
			status = write_step(d, run_a, 20);
			gp_fault_arm(kinds[kind], 0);
			assert_int_equal(newest(d, run_a), status == GP_OK ? 20 : 10);
		}
		OK(write_step(d, run_a, 10));
	}
	gp_state_dir_close(d);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(newest_step_that_both_sides_have_is_found),
		TEST(run_begun_again_loses_its_later_checkpoints),
		TEST(what_is_loaded_is_checked),
		TEST(damaged_checkpoint_is_removed_and_an_older_one_serves),
		TEST(folder_of_one_run_is_not_taken_for_another),
		TEST(oldest_unused_runs_make_room),
		TEST(checkpoint_that_finds_no_room_is_an_error_and_is_not_kept),
		TEST(many_runs_of_one_client_remove_none_of_an_absent_one),
		TEST(number_of_runs_of_one_client_is_bounded),
		TEST(one_client_that_uses_all_it_may_keeps_no_other_from_writing),
		TEST(each_name_has_the_share_of_its_line),
		TEST(whole_folder_is_bounded_without_taking_from_others),
		TEST(owners_are_known_after_a_restart_and_who_has_too_much_makes_room),
		TEST(runs_of_nobody_make_room_until_their_owner_comes_back),
		TEST(full_disk_takes_from_runs_that_have_ended_by_the_same_rules),
		TEST(run_whose_lease_is_just_given_back_makes_room_all_the_same),
		TEST(disk_that_cannot_be_read_is_an_error_and_costs_no_checkpoint),
		TEST(what_cannot_be_read_now_is_not_taken_for_missing),
		TEST(folder_is_for_servers_of_this_version_and_their_owner),
		TEST(runs_of_an_older_version_go_on),
		TEST(half_written_ones_are_removed),
		TEST(messages_have_neither_path_nor_id_of_a_run),
		TEST(strange_entries_do_not_keep_a_server_from_starting),
		TEST(folder_of_another_version_or_kind_keeps_a_server_from_starting),
		TEST(failed_write_leaves_the_older_ones),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
