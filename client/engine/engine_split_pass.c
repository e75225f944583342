/* SPDX-License-Identifier: Apache-2.0
 *
 * Split training: which chunks there are. A training step and its commit,
 * evaluation and prediction. How one chunk goes is in engine_split.c, what
 * becomes of them when the link breaks in engine_split_link.c.
 *
 * Where the head is frozen, a step that knows its successor's batch also begins
 * the successor's chunks: nothing that their head forwards read changes, and the
 * way up is never idle. The server holds them until COMMIT.
 *
 * Threads: see engine_split.h. Tests: tests/unit/test_engine.c, tests/unit/test_resume.c
 */
#include "client/engine/engine_split.h"

#include <math.h>
#include <string.h>

#include "client/engine/batch_labels.h"
#include "client/engine/eval_metrics.h"
#include "client/train/run_state.h"
#include "client/log/value_log.h"
#include "common/base/loop.h"
#include "common/graph/clip.h"

uint64_t gp_split_first_of_step(const struct split_engine *e)
{
	return e->step * (uint64_t)e->base.spec.session.chunks;
}

/* --- passes ------------------------------------------------------------------------------------------------------ */

void gp_split_reset_chunks(struct split_engine *e, uint64_t first)
{
	e->batch[0] = e->batch[1] = (struct split_batch){.first = first, .end = first};
	e->next = e->end = e->forwarded = e->done = first;
	e->again = e->again_end = first;
	for (int i = 0; i < GP_GRAPH_MAX_PORTS; i++)
		e->next_act[i] = e->next_grad[i] = first;
}

static void reset_result(struct split_engine *e)
{
	e->own_squares = e->body_squares = e->step_ready = false;
	e->result = (struct gp_step_result){.grad_norm = NAN};
}

static void begin_pass(struct split_engine *e, bool train)
{
	e->train = train;
	e->calibrates = false;
	e->session.evaluating = !train;
	e->outputs = NULL;
	gp_split_reset_chunks(e, train ? gp_split_first_of_step(e) : 0);
	reset_result(e);
}

/* A short last batch of an evaluation has fewer chunks. */
void gp_split_set_batch(struct split_engine *e, int which, const struct gp_batch *batch, uint64_t first)
{
	const int samples = gp_split_chunk_samples(e);
	const uint64_t chunks = (uint64_t)((batch->valid + samples - 1) / samples);
	const float scale = gp_batch_gradient_scale(batch, gp_session_batch(&e->base.spec.session));
	e->batch[which] = (struct split_batch){.batch = batch, .scale = scale, .first = first, .end = first + chunks};
	e->end = first + chunks;
	e->forwards_idle = e->pass_idle = false;
}

/* A forward may still read the batch when the session has failed. */
static void drain_compute(struct split_engine *e)
{
	while (e->session.status != GP_OK && e->compute.pending > 0)
		gp_loop_turn(&e->loop);
}

static void chunks_done(struct split_engine *e);

void gp_split_chunk_done(struct split_slot *s)
{
	struct split_engine *e = s->e;
	const uint64_t now = gp_now_ns();
	s->state = SLOT_FREE;
	if (e->train)
		gp_timeline_note_times(e->base.timeline, GP_AT_CHUNK_DONE, s->number, now, now);
	if (!e->train && !e->calibrates && !e->outputs && e->base.metrics)
		gp_metrics_add(e->base.metrics, e->device->ops->buffer(e->tail_plan, s->index, GP_BUF_OUTPUT, 0),
			       s->labels, s->valid);
	e->result.loss_sum += s->loss.loss_sum;
	e->result.correct += (uint64_t)s->loss.correct;
	e->result.samples += (uint64_t)s->loss.labelled;
	e->done++;
	e->pass_idle = e->done == e->batch[0].end;
	if (!e->train)
		gp_client_session_gain(&e->session);
	if (e->pass_idle && e->train)
		chunks_done(e);
	gp_split_pump(e);
}

/* --- the norm of all gradients, for clipping. PROTOCOL.md section 5.3 -------------------------------------------- */

/* Where gradients go up they have, by then, for every chunk; where none does, the message may overtake the last ACT_DOWN. */
static bool answered(const struct split_engine *e)
{
	if (e->flows.used[GP_GRAD_UP] == 0)
		return true;
	for (int i = 0; i < e->flows.tensors[GP_ACT_DOWN]; i++)
		if (e->next_act[i] < e->batch[0].end)
			return false;
	return true;
}

enum gp_status gp_split_squares_arrived(void *arg, uint64_t step, const double *sum, size_t n, struct gp_err *err)
{
	struct split_engine *e = arg;
	if (!e->train || !e->batch[0].batch || step != e->step || e->body_squares || !answered(e) ||
	    n != (size_t)e->body_sums)
		GP_FAIL(err, GP_PROTO, "grad_squares of step %llu with %zu sums is not expected (a step has %d)",
			(unsigned long long)step, n, e->body_sums);
	for (size_t i = 0; i < n; i++)
		e->squares[(size_t)e->head_sums + i] = sum[i];
	const uint64_t now = gp_now_ns();
	gp_timeline_note_times(e->base.timeline, GP_AT_SQUARES, gp_split_first_of_step(e), now, now);
	e->body_squares = true;
	e->step_ready = e->own_squares;
	return GP_OK;
}

static void run_measure(struct gp_task *task)
{
	struct split_engine *e = task->arg;
	const struct gp_device_ops *ops = e->device->ops;
	task->status = gp_tie_gradients(&e->tie, &task->err);
	if (task->status == GP_OK)
		task->status = ops->grad_squares(e->head_plan, e->squares, &task->err);
	if (task->status == GP_OK)
		task->status = ops->grad_squares(e->tail_plan, e->squares + e->head_sums + e->body_sums, &task->err);
}

static void measure_done(struct gp_task *task)
{
	struct split_engine *e = task->arg;
	if (!gp_split_task_ok(e, task))
		return;
	e->compute_ns += task->end_ns - task->start_ns;
	e->own_squares = true;
	e->step_ready = e->body_squares;
}

static void chunks_done(struct split_engine *e)
{
	e->step_ready = !e->squares;
	if (!e->squares)
		return;
	e->measure = (struct gp_task){.run = run_measure, .done = measure_done, .arg = e};
	gp_worker_submit(&e->compute, &e->measure, 0);
}

/* --- steps ------------------------------------------------------------------------------------------------------- */

static void run_optim(struct gp_task *task)
{
	struct split_engine *e = task->arg;
	task->status = gp_tie_gradients(&e->tie, &task->err);
	if (task->status == GP_OK && gp_value_log_wants(e->base.values, e->updating)) {
		gp_value_log_add_plan(e->base.values, e->updating, e->head_plan, "head");
		gp_value_log_add_plan(e->base.values, e->updating, e->tail_plan, "tail");
	}
	if (task->status == GP_OK)
		task->status = gp_clip_queue_update(e->head_plan, e->lr, e->grad_norm, &task->err);
	if (task->status == GP_OK)
		task->status = gp_clip_queue_update(e->tail_plan, e->lr, e->grad_norm, &task->err);
	if (task->status == GP_OK && !e->device->ops->wait)
		task->status = gp_tie_updated(&e->tie, &task->err);
}

static void finish_optim(struct gp_task *task)
{
	struct split_engine *e = task->arg;
	task->status = e->device->ops->wait(e->head_plan, GP_SLOT_UPDATE, &task->err);
	if (task->status == GP_OK)
		task->status = e->device->ops->wait(e->tail_plan, GP_SLOT_UPDATE, &task->err);
	if (task->status == GP_OK)
		task->status = gp_tie_updated(&e->tie, &task->err);
}

static void optim_done(struct gp_task *task)
{
	struct split_engine *e = task->arg;
	if (task->status != GP_OK)
		gp_client_session_fail(&e->session, task->status, task->err.text);
	e->compute_ns += task->end_ns - task->start_ns;
	gp_split_note_step(e, GP_AT_UPDATE, e->updating, task);
	e->optim_done = true; /* link or no link */
}

/* While COMMITTED of the step before is waited for the link may break: then this step begins again, too. */
static enum gp_status wait_for_chunks(struct split_engine *e, struct gp_err *err)
{
	while (!e->step_ready || !e->session.all_committed) {
		GP_TRY(gp_client_session_wait(&e->session, &e->step_ready, err));
		GP_TRY(gp_client_session_settle(&e->session, err));
	}
	return GP_OK;
}

static void start_update(struct split_engine *e)
{
	e->optim_done = false;
	e->optim = (struct gp_task){.run = run_optim, .done = optim_done, .arg = e};
	e->optim.finish = e->device->ops->wait ? finish_optim : NULL;
	gp_worker_submit(&e->compute, &e->optim, 0);
}

/* From here on the next step's chunks come back, as far as they have begun, whether or not the next step has been asked
 * for. */
static void move_on(struct split_engine *e)
{
	const uint64_t end = e->batch[1].end;
	e->batch[0] = e->batch[1];
	e->batch[1] = (struct split_batch){.first = end, .end = end};
	reset_result(e);
}

static enum gp_status commit(struct split_engine *e, bool checkpoint, struct gp_err *err)
{
	const struct gp_commit c = {
		.step = e->step,
		.lr = e->lr,
		.grad_norm = e->squares ? e->grad_norm : 0.0,
		.checkpoint = checkpoint,
		.tells_loss = e->base.spec.shares_loss && e->result.samples > 0,
		.loss = e->result.samples > 0 ? e->result.loss_sum / (double)e->result.samples : 0.0,
		.rungs = e->rungs,
		.ranks = gp_decays_ranks_at(&e->base.spec.session.decays, e->base.spec.graph, e->step + 1)};
	GP_TRY(gp_client_session_commit(&e->session, &c, err));
	e->calibrated = false;
	e->base.steps = ++e->step; /* a link that breaks from here on takes nothing of the committed step back */
	move_on(e);
	return GP_OK;
}

static bool changes_ranks(const struct split_engine *e)
{
	return gp_decays_change_at(&e->base.spec.session.decays, e->step + 1);
}

/*
 * This side's checkpoint comes first: the server drops old checkpoints when it has a new one, and this side must have that one,
 * too. A change of ranks or codecs comes before the checkpoint, which has the new ones; nothing of the next step is sent until
 * the server has changed them as well.
 */
static enum gp_status update_and_commit(struct split_engine *e, struct gp_err *err)
{
	const bool ranks = changes_ranks(e), codecs = e->rungs.count > 0;
	bool written = false;
	start_update(e);
	GP_TRY(gp_client_session_wait_here(&e->session, &e->optim_done, err));
	if (codecs)
		gp_split_take_codecs(e);
	if (ranks)
		GP_TRY(gp_split_change_ranks(e, e->step + 1, err));
	else if (codecs)
		GP_TRY(gp_split_change_codecs(e, err));
	if (gp_run_state_due(e->base.spec.run, e->step + 1))
		GP_TRY(gp_split_write_checkpoint(e, e->step + 1, &written, err));
	GP_TRY(commit(e, written, err));
	return ranks || codecs ? gp_client_session_settle(&e->session, err) : GP_OK;
}

static enum gp_status update(struct split_engine *e, float lr, struct gp_step_result *out, struct gp_err *err)
{
	if (e->squares)
		e->result.grad_norm = sqrt(gp_clip_add(0.0, e->squares, e->head_sums + e->body_sums + e->tail_sums));
	*out = e->result;
	e->grad_norm = e->result.grad_norm;
	e->lr = lr;
	e->updating = e->step;
	e->rungs = gp_split_decide_codecs(e);
	if (gp_run_state_due(e->base.spec.run, e->step + 1) || changes_ranks(e) || e->rungs.count > 0)
		return update_and_commit(e, err);
	GP_TRY(commit(e, false, err));
	start_update(e);
	return gp_client_session_wait_here(&e->session, &e->optim_done, err);
}

void gp_split_begin_anew(struct split_engine *e)
{
	begin_pass(e, true);
	gp_split_set_batch(e, 0, e->current, gp_split_first_of_step(e));
}

/* Some of this step's chunks may have begun while the last step was under way, and may even be through. */
static void begin_step(struct split_engine *e)
{
	const bool begun =
		e->train && e->batch[0].batch == e->current && e->batch[0].first == gp_split_first_of_step(e);
	if (!begun)
		gp_split_begin_anew(e);
	e->stepping = true;
	if (e->following)
		gp_split_set_batch(e, 1, e->following, e->batch[0].end);
}

enum gp_status gp_split_step(struct gp_engine *base, const struct gp_batch *batch, const struct gp_batch *next,
			     float lr, struct gp_step_result *out, struct gp_err *err)
{
	struct split_engine *e = (struct split_engine *)base;
	GP_TRY(gp_batch_map_of(e->base.spec.graph, batch, &e->map, err));
	GP_TRY(gp_batch_labels_check(e->base.spec.graph, batch, err));
	e->current = batch;
	e->following = e->ahead ? next : NULL;
	gp_client_session_ping(&e->session);
	gp_split_codecs_begin_step(e);
	begin_step(e);
	gp_split_pump(e);
	enum gp_status status = wait_for_chunks(e, err);
	e->stepping = false;
	if (status != GP_OK) {
		drain_compute(e);
		return status;
	}
	return update(e, lr, out, err);
}

/* --- batches ----------------------------------------------------------------------------------------------------- */

static void run_fetch(struct gp_task *task)
{
	struct split_engine *e = task->arg;
	task->status = gp_loader_next(e->loader, &e->fetched_batch, &task->err);
}

static void fetch_done(struct gp_task *task)
{
	struct split_engine *e = task->arg;
	e->fetched = true;
	if (task->status != GP_OK)
		gp_client_session_fail(&e->session, task->status, task->err.text);
}

static enum gp_status await_batch(struct split_engine *e, struct gp_err *err)
{
	GP_TRY(gp_client_session_wait_here(&e->session, &e->fetched, err));
	return gp_batch_map_of(e->base.spec.graph, e->fetched_batch, &e->map, err);
}

/* Off the loop's thread: heartbeats go on while pictures are decoded. */
static enum gp_status fetch_batch(struct split_engine *e, struct gp_loader *loader, struct gp_err *err)
{
	if (e->session.status != GP_OK) {
		*err = e->session.err;
		return e->session.status;
	}
	e->loader = loader;
	e->fetched = false;
	e->fetched_batch = NULL;
	e->fetch = (struct gp_task){.run = run_fetch, .done = fetch_done, .arg = e};
	gp_worker_submit(&e->data, &e->fetch, 0);
	const enum gp_status status = await_batch(e, err);
	if (status == GP_OK)
		return GP_OK;
	while (e->data.pending > 0) /* the loader must not be left to a task that nobody waits for */
		gp_loop_turn(&e->loop);
	if (e->fetched_batch)
		gp_loader_give_back(e->loader, e->fetched_batch);
	return status;
}

enum gp_status gp_split_next(struct gp_engine *base, struct gp_loader *loader, struct gp_batch **out,
			     struct gp_err *err)
{
	struct split_engine *e = (struct split_engine *)base;
	GP_TRY(fetch_batch(e, loader, err));
	*out = e->fetched_batch;
	return GP_OK;
}

/* --- evaluation: the next batch's chunks start while the last ones of this batch are under way -------------------- */

/* Chunks of the last batch may still be under way, but no forward of theirs, and their batch may go. */
static void add_batch(struct split_engine *e, const struct gp_batch *batch)
{
	gp_split_set_batch(e, 0, batch, e->end);
	gp_split_pump(e);
}

static enum gp_status evaluate_batch(struct split_engine *e, struct gp_loader *loader, struct gp_err *err)
{
	GP_TRY(fetch_batch(e, loader, err));
	enum gp_status status = gp_batch_labels_check(e->base.spec.graph, e->fetched_batch, err);
	if (status == GP_OK) {
		add_batch(e, e->fetched_batch);
		status = gp_client_session_wait(&e->session, &e->forwards_idle, err);
	}
	drain_compute(e);
	gp_loader_give_back(e->loader, e->fetched_batch);
	return status;
}

static enum gp_status evaluate_batches(struct split_engine *e, struct gp_loader *loader, uint32_t batches,
				       const struct gp_engine_watch *watch, struct gp_err *err)
{
	e->pass_idle = true;
	for (uint32_t i = 0; i < batches && !e->calibrates_anew && (i == 0 || gp_engine_goes_on(watch, i)); i++)
		GP_TRY(evaluate_batch(e, loader, err));
	return gp_client_session_wait(&e->session, &e->pass_idle, err);
}

enum gp_status gp_split_evaluate(struct gp_engine *base, struct gp_loader *loader, uint32_t batches,
				 struct gp_step_result *out, struct gp_err *err)
{
	struct split_engine *e = (struct split_engine *)base;
	begin_pass(e, false);
	GP_TRY(evaluate_batches(e, loader, batches, NULL, err));
	*out = e->result;
	return GP_OK;
}

/* In all parts: an evaluation whose chunks are normalized otherwise. */
enum gp_status gp_split_calibrate(struct gp_engine *base, struct gp_loader *loader, uint32_t batches,
				  const struct gp_engine_watch *watch, struct gp_err *err)
{
	struct split_engine *e = (struct split_engine *)base;
	e->calibrated_most = 0;
	e->calibrations_lost = 0;
	for (;;) {
		begin_pass(e, false);
		e->calibrates = e->calibrated = true;
		e->calibrates_anew = false;
		GP_TRY(evaluate_batches(e, loader, batches, watch, err));
		if (!e->calibrates_anew)
			return GP_OK;
		GP_TRY(gp_loader_seek(loader, 0, 0, err));
	}
}

enum gp_status gp_split_predict(struct gp_engine *base, struct gp_loader *loader, float *out, struct gp_batch **batch,
				struct gp_err *err)
{
	struct split_engine *e = (struct split_engine *)base;
	begin_pass(e, false);
	e->outputs = out;
	GP_TRY(fetch_batch(e, loader, err));
	add_batch(e, e->fetched_batch);
	enum gp_status status = gp_client_session_wait(&e->session, &e->pass_idle, err);
	drain_compute(e);
	if (status == GP_OK)
		*batch = e->fetched_batch;
	else
		gp_loader_give_back(loader, e->fetched_batch);
	return status;
}
