/* SPDX-License-Identifier: Apache-2.0
 *
 * A body whose link breaks and comes back. See body.h; PROTOCOL.md section 5.6.
 * Test: tests/unit/test_body.c
 */
#include "server/body_impl.h"

void gp_body_account_flows(struct gp_body *b)
{
	gp_flows_account(&b->flows, gp_channel_account_mut(b->ch), false);
}

void gp_body_detach(struct gp_body *b)
{
	gp_require(b->ready);
	gp_flows_lose_account(&b->flows);
	b->fetching = false;
	b->intervals.count = 0;
	b->ch = NULL;
}

enum gp_status gp_body_broken(const struct gp_body *b, struct gp_err *err)
{
	if (b->broken != GP_OK)
		*err = b->broken_err;
	return b->broken;
}

void gp_body_undo(struct gp_body *b)
{
	gp_require(b->spec.session.undo);
	gp_flows_undo(&b->flows, b->step);
	b->dev->ops->step_undo(b->plan);
}

static void run_rewind(struct gp_task *task)
{
	struct gp_body *b = task->arg;
	if (b->rewind.undo)
		gp_body_undo(b);
	if (!gp_stop_is_set(&b->stop)) /* else nobody compares it */
		b->rewind.hash = gp_body_state_hash(b);
}

static void rewind_done(struct gp_task *task)
{
	struct gp_body *b = task->arg;
	b->cbs.idle(b->arg);
}

void gp_body_submit_rewind(struct gp_body *b)
{
	gp_require(!b->ch && !gp_body_busy(b));
	b->build = (struct gp_task){.run = run_rewind, .done = rewind_done, .arg = b};
	gp_worker_submit(&b->build_lane, &b->build, 0);
}

static void count_frames_out(struct gp_flow *flow, void *arg)
{
	for (int i = 0; i < flow->slots; i++)
		*(int *)arg += flow->slot[i].with_channel;
}

static bool frames_are_back(struct gp_body *b)
{
	int out = 0;
	gp_flows_each(&b->flows, count_frames_out, &out);
	return out == 0;
}

void gp_body_attach(struct gp_body *b, struct gp_channel *ch)
{
	gp_require(!b->ch && !gp_body_busy(b) && frames_are_back(b));
	b->ch = ch;
	gp_flows_forget_damage(&b->flows);
	gp_body_account_flows(b);
}
