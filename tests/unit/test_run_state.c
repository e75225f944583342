/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run keeps on disk (client/train/run_state.h): when a checkpoint is due, what
 * is kept and taken back, and what a run that is resumed finds.
 */
#include <string.h>
#include <unistd.h>

#include "client/train/run_state.h"
#include "common/base/fault.h"
#include "tests/unit/ok.h"

static char root[64];
static volatile sig_atomic_t stop;

static int setup(void **state)
{
	(void)state;
	stop = 0;
	strcpy(root, "/tmp/gp_run_XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	char command[128];
	snprintf(command, sizeof command, "rm -rf '%s'", root);
	return system(command);
}

static struct gp_run_state_options options(const struct gp_pairs *spec, enum gp_resume resume)
{
	return (struct gp_run_state_options){
		.dir = root, .every = 10, .total_steps = 95, .resume = resume, .spec = spec, .stop = &stop};
}

static struct gp_pairs batch_of(const char *n)
{
	struct gp_pairs p = {.count = 0};
	gp_pairs_add(&p, "batch", n);
	return p;
}

static struct gp_run_state *open_run(const struct gp_pairs *spec, enum gp_resume resume)
{
	struct gp_run_state *r;
	const struct gp_run_state_options o = options(spec, resume);
	OK(gp_run_state_open(&o, &r, &err));
	return r;
}

static enum gp_status write_step(struct gp_run_state *r, uint64_t steps)
{
	static const float value[2] = {1, 2};
	struct gp_st_item item = {"param.a", {.ndim = 1, .dim = {2}}, value, GP_ST_F32};
	const struct gp_snapshot s = {.item = &item, .count = 1, .room = 1};
	const struct gp_run_progress step = {0.1, 3, 10};
	return gp_run_state_write(r, steps, &s, &step, &err);
}

static void expect_list(const struct gp_run_state *r, int count, const uint64_t *want)
{
	uint64_t step[GP_CHECKPOINTS_MAX];
	assert_int_equal(gp_run_state_list(r, step), count);
	for (int i = 0; i < count; i++)
		assert_int_equal(step[i], want[i]);
	assert_int_equal(gp_run_state_newest(r), count ? want[0] : 0);
}

static void checkpoints_are_due_every_so_often_at_the_end_and_when_asked_to_stop(void **state)
{
	(void)state;
	const struct gp_pairs spec = batch_of("64");
	struct gp_run_state *r = open_run(&spec, GP_RESUME_NO);
	assert_false(gp_run_state_due(NULL, 10));
	assert_true(gp_run_state_due(r, 10));
	assert_false(gp_run_state_due(r, 11));
	assert_true(gp_run_state_due(r, 95));
	assert_true(gp_run_state_settled(NULL, 11));
	assert_true(gp_run_state_settled(r, 0));
	assert_false(gp_run_state_settled(r, 11));
	stop = 1;
	assert_true(gp_run_state_due(r, 11));
	OK(write_step(r, 11));
	assert_true(gp_run_state_settled(r, 11));
	gp_run_state_close(r);
}

static void three_confirmed_ones_are_kept_and_later_ones_of_a_run_begun_again_go(void **state)
{
	(void)state;
	const struct gp_pairs spec = batch_of("64");
	struct gp_run_state *r = open_run(&spec, GP_RESUME_NO);
	for (uint64_t s = 10; s <= 50; s += 10) {
		OK(write_step(r, s));
		gp_run_state_confirm(r, s);
	}
	expect_list(r, 3, (uint64_t[]){50, 40, 30});
	OK(write_step(r, 35));
	gp_run_state_confirm(r, 35);
	expect_list(r, 2, (uint64_t[]){35, 30});
	OK(write_step(r, 40));
	gp_run_state_take_back(r, 40);
	expect_list(r, 2, (uint64_t[]){35, 30});
	gp_run_state_close(r);
}

static void resumed_run_has_its_id_its_checkpoints_and_its_progress(void **state)
{
	(void)state;
	uint8_t id[GP_RUN_ID_BYTES];
	struct gp_checkpoint *c;
	const struct gp_pairs spec = batch_of("64");
	struct gp_run_state *r = open_run(&spec, GP_RESUME_IF_ANY);
	memcpy(id, gp_run_state_id(r), sizeof id);
	*gp_run_state_progress(r) = (struct gp_run_progress){1.0 / 3, 5, 30};
	OK(write_step(r, 10));
	gp_run_state_close(r);
	r = open_run(&spec, GP_RESUME_MUST);
	assert_memory_equal(id, gp_run_state_id(r), sizeof id);
	expect_list(r, 1, (uint64_t[]){10});
	OK(gp_run_state_load(r, 10, &c, &err));
	gp_run_state_begin(r, c);
	gp_checkpoint_close(c);
	const struct gp_run_progress *p = gp_run_state_progress(r);
	assert_true(p->loss_sum == 1.0 / 3 + 0.1 && p->correct == 8 && p->samples == 40);
	assert_true(gp_run_state_settled(r, 10));
	gp_run_state_begin(r, NULL);
	assert_true(p->loss_sum == 0 && p->samples == 0);
	gp_run_state_close(r);
}

static void runs_draw_different_ids(void **state)
{
	(void)state;
	uint8_t id[GP_RUN_ID_BYTES];
	const struct gp_pairs spec = batch_of("64");
	struct gp_run_state *r = open_run(&spec, GP_RESUME_NO);
	memcpy(id, gp_run_state_id(r), sizeof id);
	gp_run_state_close(r);
	r = open_run(&spec, GP_RESUME_NO);
	assert_memory_not_equal(id, gp_run_state_id(r), sizeof id);
	gp_run_state_close(r);
}

static void expect_open_refused(const struct gp_run_state_options *o, const char *words)
{
	struct gp_run_state *r = NULL;
	assert_int_equal(gp_run_state_open(o, &r, &err), GP_INVALID);
	assert_null(r);
	if (!strstr(err.text, words))
		fail_msg("'%s' does not mention '%s'", err.text, words);
}

static void run_that_would_not_go_on_is_refused(void **state)
{
	(void)state;
	const struct gp_pairs spec = batch_of("64"), other = batch_of("32");
	struct gp_run_state_options o = options(&spec, GP_RESUME_NO);
	struct gp_run_state *r = open_run(&spec, GP_RESUME_NO);
	expect_open_refused(&o, "in use by another process");
	OK(write_step(r, 10));
	gp_run_state_close(r);
	expect_open_refused(&o, "holds checkpoints of a run (newest: step 10)");
	o = options(&other, GP_RESUME_MUST);
	expect_open_refused(&o, "--batch is '32', but the run has it at '64'");
	struct gp_manifest m = {.role = GP_MANIFEST_SERVER, .step = 20, .spec = spec};
	const struct gp_st_item item = {"a", {.ndim = 1, .dim = {1}}, "x", GP_ST_U8};
	OK(gp_checkpoint_write(root, &m, &item, 1, NULL, &err));
	o = options(&spec, GP_RESUME_MUST);
	expect_open_refused(&o, "checkpoints of a server");
}

static void resuming_needs_something_to_go_on_from(void **state)
{
	(void)state;
	char elsewhere[80], command[200];
	const struct gp_pairs spec = batch_of("64");
	struct gp_run_state_options o = options(&spec, GP_RESUME_MUST);
	expect_open_refused(&o, "--resume: there is no checkpoint in /tmp/gp_run_");
	snprintf(elsewhere, sizeof elsewhere, "%s/mistyped", root);
	o.dir = elsewhere;
	expect_open_refused(&o, "--resume=if-any begins a run where there is none");
	assert_int_not_equal(access(elsewhere, F_OK), 0); /* it is not made by asking */
	struct gp_run_state *r = open_run(&spec, GP_RESUME_IF_ANY);
	OK(write_step(r, 10));
	gp_run_state_close(r);
	snprintf(command, sizeof command, "echo x >>%s/step-000000000010/state.safetensors", root);
	assert_int_equal(system(command), 0);
	for (enum gp_resume how = GP_RESUME_MUST; how <= GP_RESUME_IF_ANY; how++) {
		o = options(&spec, how);
		expect_open_refused(&o, "none of the 1 checkpoints in");
	}
}

static void checkpoints_of_another_run_or_version_are_not_pushed_out(void **state)
{
	(void)state;
	char command[200];
	const struct gp_pairs spec = batch_of("64");
	struct gp_run_state *r = open_run(&spec, GP_RESUME_NO);
	OK(write_step(r, 10));
	gp_run_state_close(r);
	struct gp_manifest m = {.role = GP_MANIFEST_CLIENT, .step = 20, .spec = spec};
	const struct gp_st_item item = {"a", {.ndim = 1, .dim = {1}}, "x", GP_ST_U8};
	OK(gp_checkpoint_write(root, &m, &item, 1, NULL, &err));
	const struct gp_run_state_options o = options(&spec, GP_RESUME_IF_ANY);
	expect_open_refused(&o, "checkpoints of two runs (of steps 20 and 10)");
	snprintf(command, sizeof command, "sed -i 's/\"format\": 1/\"format\": 2/' %s/step-000000000020/manifest.json",
		 root);
	assert_int_equal(system(command), 0);
	expect_open_refused(&o, "its format is 2; this version reads format 1; resume with the version that wrote it");
}

static void expect_start_refused(const struct gp_run_state *r, size_t theirs, const char *why_none, const char *words)
{
	static const uint64_t step[] = {50, 40};
	assert_int_equal(gp_run_state_check_start(r, "host:1", step, theirs, why_none, &err), GP_INVALID);
	if (!strstr(err.text, words))
		fail_msg("'%s' does not mention '%s'", err.text, words);
}

static void run_begins_again_only_where_no_checkpoint_was_ever_on_both_sides(void **state)
{
	(void)state;
	const struct gp_pairs spec = batch_of("64");
	struct gp_run_state *r = open_run(&spec, GP_RESUME_NO);
	OK(gp_run_state_check_start(r, "host:1", NULL, 0, NULL, &err));
	OK(write_step(r, 10));
	OK(gp_run_state_check_start(r, "host:1", NULL, 0, NULL, &err));
	gp_run_state_close(r);
	r = open_run(&spec, GP_RESUME_MUST);
	expect_start_refused(r, 0, NULL,
			     "step 10; server host:1: no checkpoint of this run (it never had one: --resume=if-any");
	gp_run_state_close(r);
	r = open_run(&spec, GP_RESUME_IF_ANY);
	OK(gp_run_state_check_start(r, "host:1", NULL, 0, NULL, &err));
	expect_start_refused(r, 2, NULL, "step 10; server host:1: steps 50, 40");
	gp_run_state_confirm(r, 10);
	expect_start_refused(r, 0, "this server writes none", "step 10; server host:1: this server writes none");
	gp_run_state_close(r);
	r = open_run(&spec, GP_RESUME_IF_ANY); /* it is known in the next process, too */
	expect_start_refused(r, 0, NULL, "server host:1: no checkpoint of this run");
	OK(write_step(r, 20));
	gp_run_state_confirm(r, 20);
	expect_start_refused(r, 0, NULL, "steps 20, 10; server host:1: no checkpoint of this run");
	gp_run_state_close(r);
}

/* The answer that would have confirmed it was lost, but the server goes on from it. */
static void a_checkpoint_that_the_other_side_goes_on_from_is_confirmed(void **state)
{
	(void)state;
	const struct gp_pairs spec = batch_of("64");
	struct gp_run_state *r = open_run(&spec, GP_RESUME_NO);
	gp_run_state_found(r, 0);
	gp_run_state_found(r, 7); /* the server alone has one, and this side was there in memory */
	assert_int_equal(gp_run_state_checkpoints(r).written, 0);
	OK(gp_run_state_check_start(r, "host:1", NULL, 0, NULL, &err));
	OK(write_step(r, 10));
	gp_run_state_found(r, 10);
	gp_run_state_found(r, 10);
	expect_start_refused(r, 0, NULL, "step 10; server host:1: no checkpoint of this run");
	assert_int_equal(gp_run_state_checkpoints(r).written, 1);
	assert_int_equal(gp_run_state_checkpoints(r).newest, 10);
	gp_run_state_close(r);
	r = open_run(&spec, GP_RESUME_IF_ANY);
	expect_start_refused(r, 0, NULL, "step 10; server host:1: no checkpoint of this run");
	gp_run_state_close(r);
}

static void failure_is_a_warning_unless_checkpoints_are_required(void **state)
{
	(void)state;
	const struct gp_pairs spec = batch_of("64");
	struct gp_run_state *r = open_run(&spec, GP_RESUME_NO);
#ifndef GP_FAULTS
	gp_run_state_close(r);
	skip();
#endif
	gp_fault_arm(GP_FAULT_WRITE, 1);
	assert_int_equal(write_step(r, 10), GP_IO);
	gp_fault_arm(GP_FAULT_WRITE, 0);
	assert_int_equal(gp_run_state_failed(r, 10, &err), GP_OK);
	assert_true(gp_run_state_settled(r, 10));
	expect_list(r, 0, NULL);
	gp_run_state_close(r);
	struct gp_run_state_options o = options(&spec, GP_RESUME_NO);
	o.required = true;
	OK(gp_run_state_open(&o, &r, &err));
	gp_fault_arm(GP_FAULT_FSYNC, 1);
	assert_int_equal(write_step(r, 10), GP_IO);
	gp_fault_arm(GP_FAULT_FSYNC, 0);
	assert_int_equal(gp_run_state_failed(r, 10, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "--checkpoint-required: "));
	gp_run_state_close(r);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

static enum gp_status resume_with(const struct gp_pairs *spec, uint32_t samples, struct gp_run_state **out)
{
	struct gp_run_state_options o = options(spec, GP_RESUME_MUST);
	o.samples = samples;
	return gp_run_state_open(&o, out, &err);
}

/* They would be other samples from there on. Checkpoints of a version that did not count them are taken. */
static void a_run_does_not_go_on_with_another_number_of_samples(void **state)
{
	(void)state;
	const struct gp_pairs spec = batch_of("64");
	struct gp_run_state *r = open_run(&spec, GP_RESUME_NO);
	OK(write_step(r, 10));
	gp_run_state_confirm(r, 10);
	gp_run_state_close(r);
	OK(resume_with(&spec, 1200, &r));
	OK(write_step(r, 20));
	gp_run_state_confirm(r, 20);
	gp_run_state_close(r);
	OK(resume_with(&spec, 1200, &r));
	gp_run_state_close(r);
	assert_int_equal(resume_with(&spec, 1201, &r), GP_INVALID);
	assert_non_null(strstr(err.text, "--data has 1201 training samples now, but had 1200"));
}

/* Nothing is left out, and so nothing would be removed, where a file cannot be read just now. */
static void a_checkpoint_that_cannot_be_read_just_now_is_not_lost(void **state)
{
	(void)state;
#ifndef GP_FAULTS
	skip();
#endif
	const struct gp_pairs spec = batch_of("64");
	struct gp_run_state *r = open_run(&spec, GP_RESUME_NO);
	OK(write_step(r, 10));
	gp_run_state_confirm(r, 10);
	OK(write_step(r, 20));
	gp_run_state_confirm(r, 20);
	gp_run_state_close(r);
	gp_fault_arm(GP_FAULT_READ, 1);
	const enum gp_status status = resume_with(&spec, 0, &r);
	gp_fault_arm(GP_FAULT_READ, 0);
	assert_int_equal(status, GP_IO);
	assert_non_null(strstr(err.text, "--resume: a checkpoint cannot be read: "));
	OK(resume_with(&spec, 0, &r));
	expect_list(r, 2, (uint64_t[]){20, 10});
	gp_run_state_close(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(checkpoints_are_due_every_so_often_at_the_end_and_when_asked_to_stop),
		TEST(three_confirmed_ones_are_kept_and_later_ones_of_a_run_begun_again_go),
		TEST(resumed_run_has_its_id_its_checkpoints_and_its_progress),
		TEST(runs_draw_different_ids),
		TEST(run_that_would_not_go_on_is_refused),
		TEST(resuming_needs_something_to_go_on_from),
		TEST(checkpoints_of_another_run_or_version_are_not_pushed_out),
		TEST(run_begins_again_only_where_no_checkpoint_was_ever_on_both_sides),
		TEST(a_checkpoint_that_the_other_side_goes_on_from_is_confirmed),
		TEST(a_run_does_not_go_on_with_another_number_of_samples),
		TEST(a_checkpoint_that_cannot_be_read_just_now_is_not_lost),
		TEST(failure_is_a_warning_unless_checkpoints_are_required),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
