/* SPDX-License-Identifier: Apache-2.0
 *
 * The lock of one run (server/run_lease.h): one of several gets it, whoever comes late is held off by the file system, and
 * dying at any point does no harm.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/store/checkpoint.h"
#include "server/run_lease.h"
#include "tests/unit/ok.h"

static const char anna[] = "00000000000000aa", bert[] = "00000000000000bb", carl[] = "00000000000000cc";
static char root[64], run[96], prepared[96];

static int setup(void **state)
{
	(void)state;
	strcpy(root, "/tmp/gp_lease_XXXXXX");
	if (!mkdtemp(root))
		return -1;
	snprintf(run, sizeof run, "%s/run", root);
	snprintf(prepared, sizeof prepared, "%s/prepared", root);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	char command[128];
	snprintf(command, sizeof command, "rm -rf '%s'", root);
	return system(command);
}

static bool is_there(const char *name)
{
	char path[256];
	snprintf(path, sizeof path, "%s/%s", run, name);
	return access(path, F_OK) == 0;
}

static void make_entry(const char *name, bool folder)
{
	char path[256];
	snprintf(path, sizeof path, "%s/%s", run, name);
	const int fd = folder ? mkdir(path, 0700) : open(path, O_CREAT | O_WRONLY, 0600);
	assert_true(fd >= 0);
	if (!folder)
		close(fd);
}

static struct gp_lease_sight look(void)
{
	struct gp_lease_sight s;
	OK(gp_run_lease_look(run, &s, &err));
	return s;
}

static void expect_holder(const char *owner, uint64_t generation)
{
	const struct gp_lease_sight s = look();
	assert_true(s.there);
	assert_string_equal(s.owner, owner);
	assert_int_equal(s.generation, generation);
}

/* As its holder does: through its work folder. */
static enum gp_status write_step(const char *owner, uint64_t generation, uint64_t step)
{
	static const float value[8] = {1};
	char work[PATH_MAX];
	const struct gp_st_item item = {"param.a", {.ndim = 1, .dim = {8}}, value, GP_ST_F32};
	const struct gp_manifest m = {.role = GP_MANIFEST_SERVER, .step = step, .run_id = {1}};
	OK(gp_run_lease_work(run, generation, owner, work, &err));
	return gp_checkpoint_write_via(run, work, &m, &item, 1, NULL, &err);
}

static int steps_of_run(void)
{
	uint64_t step[GP_CHECKPOINTS_MAX];
	int count;
	OK(gp_checkpoint_list(run, step, &count, &err));
	return count;
}

static void a_run_is_made_by_one_of_two(void **state)
{
	(void)state;
	assert_false(look().there);
	OK(gp_run_lease_make(run, prepared, anna, &err));
	expect_holder(anna, 1);
	assert_true(look().bare);
	assert_int_equal(gp_run_lease_make(run, prepared, bert, &err), GP_CANCELED);
	expect_holder(anna, 1);
	assert_int_not_equal(access(prepared, F_OK), 0);
}

static enum gp_status take(const struct gp_lease_sight *seen, const char *owner, struct gp_err *e)
{
	GP_TRY(gp_run_lease_take(run, seen, owner, e));
	return gp_run_lease_settle(run, seen->generation + 1, owner, e);
}

/* The other one has removed the run in the moment between two of its steps. */
static void an_empty_folder_is_as_good_as_none(void **state)
{
	(void)state;
	assert_int_equal(mkdir(run, 0700), 0);
	assert_false(look().there);
	OK(gp_run_lease_make(run, prepared, anna, &err));
	expect_holder(anna, 1);
}

static void of_two_that_saw_the_same_one_gets_the_run(void **state)
{
	(void)state;
	OK(gp_run_lease_make(run, prepared, anna, &err));
	OK(write_step(anna, 1, 10));
	const struct gp_lease_sight seen = look();
	OK(take(&seen, bert, &err));
	assert_int_equal(take(&seen, carl, &err), GP_CANCELED);
	expect_holder(bert, 2);
	OK(gp_run_lease_check(run, 2, bert, &err));
	assert_int_equal(gp_run_lease_check(run, 1, anna, &err), GP_CANCELED);
	assert_int_equal(gp_run_lease_give(run, 1, anna, &err), GP_CANCELED);
	expect_holder(bert, 2);
}

/* As a process that is stopped, or cut off from the folder, and comes back when it has long been taken for dead. */
static void who_stood_still_while_taking_a_run_leaves_the_next_ones_work(void **state)
{
	(void)state;
	char from[256], to[256], theirs[PATH_MAX], late[PATH_MAX];
	OK(gp_run_lease_make(run, prepared, anna, &err));
	OK(write_step(anna, 1, 10));
	snprintf(from, sizeof from, "%s/lease-000000000001-%s", run, anna);
	snprintf(to, sizeof to, "%s/lease-000000000002-%s", run, bert);
	assert_int_equal(rename(from, to), 0); /* bert's first half */
	const struct gp_lease_sight seen = look();
	OK(take(&seen, carl, &err));
	OK(write_step(carl, 3, 20));
	assert_int_equal(gp_run_lease_settle(run, 2, bert, &err), GP_CANCELED);
	OK(gp_run_lease_work(run, 3, carl, theirs, &err));
	OK(gp_run_lease_work(run, 2, bert, late, &err));
	assert_int_equal(access(theirs, F_OK), 0);
	assert_int_not_equal(access(late, F_OK), 0);
	OK(write_step(carl, 3, 30));
	expect_holder(carl, 3);
	OK(gp_run_lease_give(run, 3, carl, &err));
}

/* The other half of the same: it had removed what was before it, and is late with a folder of its own. */
static void a_work_folder_made_too_late_goes_again(void **state)
{
	(void)state;
	char work[PATH_MAX];
	OK(gp_run_lease_make(run, prepared, anna, &err));
	const struct gp_lease_sight seen = look();
	OK(take(&seen, bert, &err));
	const struct gp_lease_sight next = look();
	OK(take(&next, carl, &err));
	OK(gp_run_lease_work(run, 2, bert, work, &err));
	assert_int_equal(gp_run_lease_settle(run, 2, bert, &err), GP_CANCELED);
	assert_int_not_equal(access(work, F_OK), 0);
	OK(gp_run_lease_check(run, 3, carl, &err));
}

static void who_has_lost_a_run_changes_nothing_of_it(void **state)
{
	(void)state;
	char work[PATH_MAX];
	OK(gp_run_lease_make(run, prepared, anna, &err));
	OK(write_step(anna, 1, 10));
	OK(gp_run_lease_work(run, 1, anna, work, &err));
	const struct gp_lease_sight seen = look();
	OK(take(&seen, bert, &err));
	OK(write_step(bert, 2, 20));
	assert_int_not_equal(write_step(anna, 1, 30), GP_OK);
	assert_int_not_equal(write_step(anna, 1, 20), GP_OK);
	assert_int_not_equal(gp_checkpoint_drop_after_via(run, work, 10, &err), GP_OK);
	assert_int_not_equal(gp_checkpoint_prune_via(run, work, 1, &err), GP_OK);
	assert_int_not_equal(gp_checkpoint_remove_via(run, work, 20, &err), GP_OK);
	assert_int_equal(steps_of_run(), 2);
	assert_true(is_there("step-000000000020/manifest.json"));
	assert_int_not_equal(access(work, F_OK), 0);
}

/* It had written all and was stopped before the rename that puts it into place. */
static void what_was_half_written_is_gone_before_the_taker_looks(void **state)
{
	(void)state;
	char from[PATH_MAX], to[PATH_MAX];
	OK(gp_run_lease_make(run, prepared, anna, &err));
	OK(write_step(anna, 1, 10));
	make_entry("work-000000000001-00000000000000aa/tmp-step-000000000020", true);
	make_entry("work-000000000001-00000000000000aa/tmp-step-000000000020/state.safetensors", false);
	const struct gp_lease_sight seen = look();
	OK(take(&seen, bert, &err));
	snprintf(from, sizeof from, "%s/work-000000000001-00000000000000aa/tmp-step-000000000020", run);
	snprintf(to, sizeof to, "%s/step-000000000020", run);
	assert_int_not_equal(rename(from, to), 0);
	assert_int_equal(steps_of_run(), 1);
}

/* The taker died behind the rename, or behind the removal too, before it had a work folder of its own. */
static void expect_made_good(bool removed)
{
	char before[160], after[160], work[160];
	OK(gp_run_lease_make(run, prepared, anna, &err));
	OK(write_step(anna, 1, 10));
	snprintf(before, sizeof before, "%s/lease-000000000001-%s", run, anna);
	snprintf(after, sizeof after, "%s/lease-000000000002-%s", run, bert);
	snprintf(work, sizeof work, "%s/work-000000000001-%s", run, anna);
	assert_int_equal(rename(before, after), 0);
	if (removed)
		assert_int_equal(rmdir(work), 0);
	const struct gp_lease_sight seen = look();
	OK(take(&seen, carl, &err));
	expect_holder(carl, 3);
	assert_int_not_equal(access(work, F_OK), 0);
	OK(write_step(carl, 3, 20));
	assert_int_not_equal(write_step(anna, 1, 30), GP_OK);
	assert_int_not_equal(write_step(bert, 2, 30), GP_OK);
	assert_int_equal(steps_of_run(), 2);
}

static void a_takeover_that_was_cut_short_is_made_good_by_the_next(void **state)
{
	(void)state;
	expect_made_good(false);
}

static void a_takeover_that_was_cut_short_later_is_made_good_as_well(void **state)
{
	(void)state;
	expect_made_good(true);
}

static void what_is_given_back_is_free_and_counts_on(void **state)
{
	(void)state;
	OK(gp_run_lease_make(run, prepared, anna, &err));
	OK(write_step(anna, 1, 10));
	OK(gp_run_lease_give(run, 1, anna, &err));
	expect_holder("", 1);
	assert_int_not_equal(write_step(anna, 1, 20), GP_OK);
	const struct gp_lease_sight seen = look();
	OK(take(&seen, anna, &err));
	expect_holder(anna, 2);
	assert_int_not_equal(write_step(anna, 1, 20), GP_OK); /* of the first time */
	OK(write_step(anna, 2, 20));
}

static void a_run_without_a_checkpoint_goes_with_its_lease(void **state)
{
	(void)state;
	OK(gp_run_lease_make(run, prepared, anna, &err));
	OK(gp_run_lease_give(run, 1, anna, &err));
	assert_int_not_equal(access(run, F_OK), 0);
}

static void a_folder_that_is_not_as_it_should_be_is_told(void **state)
{
	(void)state;
	struct gp_lease_sight s;
	assert_int_equal(mkdir(run, 0700), 0);
	make_entry("step-000000000010", true);
	assert_int_equal(gp_run_lease_look(run, &s, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "has no lease"));
	static const char *const odd[] = {"lease-",
					  "lease-000000000001",
					  "lease-000000000001-",
					  "lease-1-free",
					  "lease-000000000001-0000000000000000",
					  "lease-000000000001-00000000000000AA",
					  "lease-000000000001-00000000000000aa0",
					  "lease-00000000000x-free"};
	for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
		make_entry(odd[i], false);
	assert_int_equal(gp_run_lease_look(run, &s, &err), GP_INVALID);
	make_entry("lease-000000000003-free", false);
	expect_holder("", 3);
	make_entry("lease-000000000004-00000000000000aa", false);
	assert_int_equal(gp_run_lease_look(run, &s, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "has 2 leases"));
}

/* As programs leave them that copy folders. In what order a folder names its files, nobody knows. */
static void copies_of_a_lease_change_nothing_of_whose_it_is(void **state)
{
	(void)state;
	char name[96];
	OK(gp_run_lease_make(run, prepared, anna, &err));
	OK(write_step(anna, 1, 10));
	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof name, "lease-000000000001-%s (copy %d)", anna, i);
		make_entry(name, false);
		expect_holder(anna, 1);
	}
	OK(gp_run_lease_give(run, 1, anna, &err));
	expect_holder("", 1);
}

static void a_run_of_an_older_version_gets_a_lease_and_loses_what_was_half_written(void **state)
{
	(void)state;
	assert_int_equal(mkdir(run, 0700), 0);
	make_entry("step-000000000010", true);
	make_entry("tmp-step-000000000020", true);
	OK(gp_run_lease_introduce(run, &err));
	OK(gp_run_lease_introduce(run, &err));
	expect_holder("", 0);
	const struct gp_lease_sight seen = look();
	OK(take(&seen, anna, &err));
	expect_holder(anna, 1);
	assert_false(is_there("tmp-step-000000000020"));
	assert_true(is_there("step-000000000010"));
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_run_is_made_by_one_of_two),
		TEST(an_empty_folder_is_as_good_as_none),
		TEST(of_two_that_saw_the_same_one_gets_the_run),
		TEST(who_stood_still_while_taking_a_run_leaves_the_next_ones_work),
		TEST(a_work_folder_made_too_late_goes_again),
		TEST(who_has_lost_a_run_changes_nothing_of_it),
		TEST(what_was_half_written_is_gone_before_the_taker_looks),
		TEST(a_takeover_that_was_cut_short_is_made_good_by_the_next),
		TEST(a_takeover_that_was_cut_short_later_is_made_good_as_well),
		TEST(what_is_given_back_is_free_and_counts_on),
		TEST(a_run_without_a_checkpoint_goes_with_its_lease),
		TEST(a_folder_that_is_not_as_it_should_be_is_told),
		TEST(copies_of_a_lease_change_nothing_of_whose_it_is),
		TEST(a_run_of_an_older_version_gets_a_lease_and_loses_what_was_half_written),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
