/* SPDX-License-Identifier: Apache-2.0
 *
 * Before there is a plan: the precisions that the device has are tried, where OPEN asks for the fastest (PROTOCOL.md section
 * 5.2). Each trial is a task of its own on the device's thread, behind what other sessions compute there. All memory for it was
 * reserved at OPEN. Tests: tests/e2e/precision.sh, tests/unit/test_session_spec.c
 */
#include "server/body_impl.h"

static void run_trial(struct gp_task *task)
{
	struct gp_body *b = task->arg;
	const struct gp_plan_spec spec = gp_body_plan_spec(b);
	task->status = gp_body_check_stop(b, &task->err);
	if (task->status == GP_OK)
		task->status = gp_precision_try(b->dev, &spec, 1, b->choice.at, &b->choice.trial, &task->err);
}

static void trial_done(struct gp_task *task);

static void submit_trial(struct gp_body *b)
{
	b->build = (struct gp_task){.run = run_trial, .done = trial_done, .arg = b};
	gp_worker_submit(&b->compute, &b->build, GP_TASK_PRIORITIES - 1);
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
	c->at = gp_precision_next(b->dev, c->at + 1);
	if (c->at == GP_PRECISIONS) {
		c->at = GP_PRECISION_FP32;
		c->round++;
	}
	if (c->round < GP_PRECISION_ROUNDS)
		submit_trial(b);
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
		submit_trial(b);
}

enum gp_precision gp_body_precision(const struct gp_body *b, const struct gp_precision_trial **trial)
{
	*trial = b->choice.made ? &b->choice.trial : NULL;
	return b->spec.session.precision;
}
