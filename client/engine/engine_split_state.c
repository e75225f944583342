/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints of a split engine: head, tail and this end's codecs; written
 * when a step is decided, before its COMMIT, and loaded when the server begins
 * anew. See run_state.h; PROTOCOL.md section 5.7.
 * Test: tests/e2e/checkpoint.sh, tests/e2e/killed.sh
 */
#include <string.h>

#include "client/engine/engine_split.h"
#include "client/train/run_state.h"

/* Writing. All chunks are done: nobody else uses plans and codecs. */

struct copying {
	struct gp_snapshot *snapshot;
	enum gp_status status;
	struct gp_err *err;
};

static void copy_codec(struct gp_flow *flow, void *arg)
{
	struct copying *c = arg;
	char name[24];
	if (c->status == GP_OK)
		c->status = gp_snapshot_add_codec(c->snapshot, gp_flow_name(flow, name), flow->codec, c->err);
}

static enum gp_status take_copy(struct split_engine *e, struct gp_snapshot *s, struct gp_err *err)
{
	GP_TRY(gp_snapshot_add_plan(s, e->head_plan, err));
	GP_TRY(gp_snapshot_add_plan(s, e->tail_plan, err));
	struct copying c = {s, GP_OK, err};
	gp_flows_each(&e->flows, copy_codec, &c);
	return c.status;
}

static void run_write(struct gp_task *task)
{
	struct split_engine *e = task->arg;
	struct gp_snapshot s = {0};
	const struct gp_run_progress step = {e->result.loss_sum, e->result.correct, e->result.samples};
	task->status = take_copy(e, &s, &task->err);
	if (task->status == GP_OK)
		task->status = gp_run_state_write(e->base.spec.run, e->step + 1, &s, &step, &task->err);
	gp_snapshot_deinit(&s);
}

static void write_done(struct gp_task *task)
{
	struct split_engine *e = task->arg;
	gp_split_note_step(e, GP_AT_CHECKPOINT, e->step, task);
	e->written = true;
}

enum gp_status gp_split_write_checkpoint(struct split_engine *e, uint64_t steps, bool *written, struct gp_err *err)
{
	e->written = false;
	e->write = (struct gp_task){.run = run_write, .done = write_done, .arg = e};
	gp_worker_submit(&e->compute, &e->write, 0);
	GP_TRY(gp_client_session_wait_here(&e->session, &e->written, err));
	*written = e->write.status == GP_OK;
	if (*written)
		return GP_OK;
	*err = e->write.err;
	return gp_run_state_failed(e->base.spec.run, steps, err);
}

enum gp_status gp_split_checkpointed(void *arg, uint64_t step, const char *why, struct gp_err *err)
{
	struct split_engine *e = arg;
	struct gp_run_state *run = e->base.spec.run;
	if (!why) {
		gp_run_state_confirm(run, step + 1);
		return GP_OK;
	}
	gp_run_state_take_back(run, step + 1);
	gp_err_set(err, GP_PEER, 0, __FILE__, __LINE__, "server %s: %s", gp_client_session_server(&e->session), why);
	return gp_run_state_failed(run, step + 1, err);
}

/* Going back. */

struct loading {
	const struct gp_st_file *state;
	enum gp_status status;
	struct gp_err *err;
};

static void load_codec(struct gp_flow *flow, void *arg)
{
	struct loading *l = arg;
	char name[24];
	if (l->status == GP_OK)
		l->status = gp_snapshot_load_codec(l->state, gp_flow_name(flow, name), flow->codec, l->err);
}

static enum gp_status load_state(struct split_engine *e, const struct gp_checkpoint *c, struct gp_err *err)
{
	const uint64_t step = c->manifest.step;
	GP_TRY(gp_snapshot_load_plan(c->state, step, e->head_plan, err));
	GP_TRY(gp_snapshot_load_plan(c->state, step, e->tail_plan, err));
	GP_TRY(gp_tie_values(&e->tie, err));
	struct loading l = {c->state, GP_OK, err};
	gp_flows_each(&e->flows, load_codec, &l);
	return l.status;
}

static enum gp_status load(struct split_engine *e, uint64_t step, struct gp_err *err)
{
	struct gp_checkpoint *c;
	GP_TRY(gp_run_state_load(e->base.spec.run, step, &c, err));
	enum gp_status status = load_state(e, c, err);
	if (status == GP_OK)
		gp_run_state_begin(e->base.spec.run, c);
	gp_checkpoint_close(c);
	return status;
}

/* As the engine was made. Codecs have no other way back to the start than to be new. */
static enum gp_status begin_again(struct split_engine *e, struct gp_err *err)
{
	const struct gp_weights *init = e->base.spec.init;
	GP_TRY(gp_snapshot_begin_plan(e->head_plan, init, err));
	GP_TRY(gp_snapshot_begin_plan(e->tail_plan, init, err));
	GP_TRY(gp_tie_values(&e->tie, err));
	GP_TRY(gp_split_renew_flows(e, err));
	gp_run_state_begin(e->base.spec.run, NULL);
	return GP_OK;
}

static enum gp_status go_to(struct split_engine *e, uint64_t step, struct gp_err *err)
{
	if (e->in_place)
		gp_split_undo(e);
	if (step == e->step)
		return GP_OK;                 /* it is in memory */
	if (e->base.spec.reconnect_for_s > 0) /* else this is the first opening, and nothing is begun */
		gp_split_undo(e);
	GP_TRY(gp_split_renew_ranks(e, step, err));
	GP_TRY(gp_split_codecs_renew(e, step, err));
	GP_TRY(step > 0 ? load(e, step, err) : begin_again(e, err));
	e->base.rewound = e->session_open;
	return GP_OK;
}

/* Where running statistics were taken anew behind this step, a server that begins anew may not have them. They do not
 * depend on those before, so that it is enough to take them once more. */
static bool calibrate_again(struct split_engine *e, uint64_t step)
{
	if (!e->calibrated || !e->session_open || step != e->step)
		return false;
	gp_split_undo(e);
	return e->base.rewound = true;
}

enum gp_status gp_split_restart(void *arg, uint64_t step, struct gp_err *err)
{
	struct split_engine *e = arg;
	if (step == 0) {
		const struct gp_client_session *s = &e->session;
		GP_TRY(gp_run_state_check_start(e->base.spec.run, e->base.spec.server, s->stored, s->stored_count, NULL,
						err));
	}
	const bool again = calibrate_again(e, step);
	GP_TRY(go_to(e, step, err));
	e->calibrated = false;
	e->base.steps = e->step = step;
	gp_split_begin_at_step(e);
	e->state_hash = gp_flows_state_hash(&e->flows);
	gp_client_session_rewind(&e->session, step, again);
	gp_run_state_found(e->base.spec.run, step);
	if (!e->session_open)
		gp_run_state_tell(e->base.spec.run, step);
	return GP_OK;
}
