/* SPDX-License-Identifier: Apache-2.0
 *
 * The training loop (client/train/trainer.h) over an engine that loses its server and
 * goes back to a checkpoint: training goes on there with the batches that
 * belong to it, and the report is that of an undisturbed run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/train/run_state.h"
#include "client/train/trainer.h"

enum { STEPS = 10, PER_EPOCH = 4, BATCH = 2, ALL = 2 * STEPS };

/* Goes back once, when `fails_at` steps are done; in the step after, or in get_weights after the last. */
struct player {
	struct gp_engine base;
	uint64_t fails_at, back_to;
	bool failed;
	uint32_t seen[ALL]; /* epoch * PER_EPOCH + index of each batch */
	int count;
};

static enum gp_status go_back(struct player *p, struct gp_err *err)
{
	p->failed = true;
	p->base.rewound = true;
	p->base.steps = p->back_to;
	/* What was in the checkpoint: one of loss for every step of its epoch. */
	*gp_run_state_progress(p->base.spec.run) = (struct gp_run_progress){
		.loss_sum = (double)(p->back_to % PER_EPOCH), .samples = BATCH * (p->back_to % PER_EPOCH)};
	GP_FAIL(err, GP_CANCELED, "the server was lost");
}

static enum gp_status play_step(struct gp_engine *e, const struct gp_batch *batch, const struct gp_batch *next,
				float lr, struct gp_step_result *out, struct gp_err *err)
{
	(void)next;
	struct player *p = (struct player *)e;
	(void)lr;
	if (!p->failed && e->steps == p->fails_at)
		return go_back(p, err);
	assert_true(p->count < ALL);
	p->seen[p->count++] = batch->epoch * PER_EPOCH + batch->index;
	e->steps++;
	*out = (struct gp_step_result){.loss_sum = 1, .samples = BATCH};
	return GP_OK;
}

static enum gp_status play_next(struct gp_engine *e, struct gp_loader *loader, struct gp_batch **out,
				struct gp_err *err)
{
	(void)e;
	return gp_loader_next(loader, out, err);
}

static enum gp_status play_weights(struct gp_engine *e, struct gp_weights *w, struct gp_err *err)
{
	struct player *p = (struct player *)e;
	(void)w;
	return !p->failed && e->steps == p->fails_at ? go_back(p, err) : GP_OK;
}

static void play_figures(struct gp_engine *e, struct gp_engine_figures *out)
{
	(void)e;
	*out = (struct gp_engine_figures){0};
}

static const struct gp_engine_ops player_ops = {
	.name = "player", .next = play_next, .step = play_step, .get_weights = play_weights, .figures = play_figures};

static void train(struct player *p, struct gp_train_report *report)
{
	struct gp_err err = {0};
	struct gp_dataset *data;
	const struct gp_dataset_options options = {0};
	const struct gp_loader_spec ls = {.batch = BATCH, .drop_last = true, .prefetch = 1};
	const struct gp_pairs none = {.count = 0};
	char root[] = "/tmp/gp_rewind_XXXXXX", command[64];
	assert_non_null(mkdtemp(root));
	const struct gp_run_state_options o = {.dir = root, .every = 100, .total_steps = STEPS, .spec = &none};
	p->base.ops = &player_ops;
	p->base.spec.session.chunk_samples = BATCH;
	p->base.spec.session.chunks = 1;
	assert_int_equal(gp_run_state_open(&o, &p->base.spec.run, &err), GP_OK);
	struct gp_trainer_spec spec = {.engine = &p->base,
				       .run = p->base.spec.run,
				       .schedule.base_lr = 0.1,
				       .total_steps = STEPS,
				       .steps_per_epoch = PER_EPOCH};
	assert_int_equal(
		gp_dataset_open("synthetic:shape=1x8x8,classes=2,samples=8", GP_SPLIT_TRAIN, &options, &data, &err),
		GP_OK);
	assert_int_equal(gp_loader_new(data, &ls, &spec.train, &err), GP_OK);
	if (gp_train(&spec, report, &err) != GP_OK)
		fail_msg("%s", err.text);
	gp_loader_free(spec.train);
	gp_dataset_free(data);
	gp_run_state_close(p->base.spec.run);
	snprintf(command, sizeof command, "rm -rf '%s'", root);
	assert_int_equal(system(command), 0);
}

static void expect_run(uint64_t fails_at, uint64_t back_to)
{
	struct player p = {.fails_at = fails_at, .back_to = back_to};
	struct gp_train_report report;
	train(&p, &report);
	assert_int_equal(report.steps, STEPS);
	assert_int_equal(report.steps_here, STEPS + fails_at - back_to);
	assert_int_equal(p.count, STEPS + fails_at - back_to);
	for (uint64_t i = 0; i < (uint64_t)p.count; i++)
		assert_int_equal(p.seen[i], i < fails_at ? i : i - fails_at + back_to);
	assert_true(report.loss == 1.0 / BATCH); /* of the last epoch, every step of it once */
}

static void training_goes_on_where_the_engine_went_back_to(void **state)
{
	(void)state;
	expect_run(3, 1);
	expect_run(7, 0);
	expect_run(7, 4);
	expect_run(9, 5);
	expect_run(4, 4); /* without losing anything */
}

static void server_lost_after_the_last_step_is_made_up_for(void **state)
{
	(void)state;
	expect_run(STEPS, 9);
	expect_run(STEPS, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(training_goes_on_where_the_engine_went_back_to),
		cmocka_unit_test(server_lost_after_the_last_step_is_made_up_for),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
