/* SPDX-License-Identifier: Apache-2.0
 *
 * Before there is a plan: the precisions that the device has are tried, where OPEN asks for the fastest (PROTOCOL.md section
 * 5.2). Others have their turns between: plans are made and freed where all plans are made, and each half of a pass is a task
 * of its own on the device's thread, watched like those of steps (gp_body_overrun). All memory for it was reserved at OPEN.
 * Tests: tests/e2e/precision.sh, tests/unit/test_body.c, tests/unit/test_session_spec.c
 */
#include "server/body_impl.h"

static void submit(struct gp_body *b, struct gp_lane *lane, int priority, void (*run)(struct gp_task *),
		   void (*done)(struct gp_task *))
{
	b->build = (struct gp_task){.run = run, .done = done, .arg = b};
	gp_worker_submit(lane, &b->build, priority);
}

static void run_make(struct gp_task *task)
{
	struct gp_body *b = task->arg;
	const struct gp_plan_spec spec = gp_body_plan_spec(b);
	task->status = gp_body_check_stop(b, &task->err);
	if (task->status == GP_OK)
		task->status = gp_precision_probe_begin(&b->choice.probe, b->dev, &spec, b->choice.at, &task->err);
}

static void run_step(struct gp_task *task)
{
	struct gp_body *b = task->arg;
	atomic_store(&b->trying_ns, gp_now_ns());
	task->status = gp_precision_probe_step(&b->choice.probe, &task->err);
	atomic_store(&b->trying_ns, 0);
}

static void run_free(struct gp_task *task)
{
	struct gp_body *b = task->arg;
	gp_precision_probe_end(&b->choice.probe);
}

static void step_done(struct gp_task *task);
static void trial_done(struct gp_task *task);

static void go_on(struct gp_body *b)
{
	if (gp_precision_probe_goes_on(&b->choice.probe))
		submit(b, &b->compute, GP_TASK_PRIORITIES - 1, run_step, step_done);
	else
		submit(b, &b->build_lane, 0, run_free, trial_done);
}

/* The plan stands, or half a pass is over. */
static void step_done(struct gp_task *task)
{
	struct gp_body *b = task->arg;
	if (gp_body_task_ok(b, task))
		go_on(b);
}

static void begin_trial(struct gp_body *b)
{
	submit(b, &b->build_lane, 0, run_make, step_done);
}

static void end_trials(struct gp_body *b)
{
	b->spec.session.precision = gp_precision_fastest(&b->choice.trial);
	b->spec.session.choose_precision = false;
	b->choice.then(b);
}

static void trial_done(struct gp_task *task)
{
	struct gp_body *b = task->arg;
	struct gp_body_choice *c = &b->choice;
	if (!gp_body_task_ok(b, task))
		return;
	gp_precision_note(&c->trial, c->at, c->probe.best_s);
	c->at = gp_precision_next(b->dev, c->at + 1);
	if (c->at == GP_PRECISIONS) {
		c->at = GP_PRECISION_FP32;
		c->round++;
	}
	if (c->round < GP_PRECISION_ROUNDS)
		begin_trial(b);
	else
		end_trials(b);
}

void gp_body_choose_precision(struct gp_body *b, void (*then)(struct gp_body *))
{
	if (!b->spec.session.choose_precision) {
		then(b);
		return;
	}
	b->choice = (struct gp_body_choice){.made = true, .then = then};
	if (gp_precision_next(b->dev, GP_PRECISION_FP32 + 1) == GP_PRECISIONS)
		end_trials(b);
	else
		begin_trial(b);
}

enum gp_precision gp_body_precision(const struct gp_body *b, const struct gp_precision_trial **trial)
{
	*trial = b->choice.made ? &b->choice.trial : NULL;
	return b->spec.session.precision;
}
