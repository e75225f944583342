/* SPDX-License-Identifier: Apache-2.0
 *
 * Split training: head and tail here, body on the server. One-forward-one-
 * backward: up to `window` chunks are under way; as soon as
 * a chunk's activation comes back its loss is computed and its gradient goes
 * up, so that both directions of the link carry tensors at the same time.
 *
 *   head forward -> ACT_UP -> (server) -> ACT_DOWN -> tail forward, loss,
 *   tail backward -> GRAD_UP -> (server) -> GRAD_DOWN -> head backward
 *
 * Gradients add up in chunk order on every part, as in a local run. The tail
 * and the head's backward run before further head forwards where both wait.
 *
 * A link that breaks: a training step is taken back (gp_split_undo) and begun
 * again, from the same batch. Of an evaluation nothing is taken back: what was
 * not answered is sent again, from the frames that lie in the slots.
 *
 * Threads: loop (this one: runs while a call waits), compute, codec.
 * Test: tests/e2e/parity.sh, tests/unit/test_engine.c, tests/unit/test_resume.c
 */
#include "client/engine_split.h"

#include <math.h>
#include <string.h>

#include "client/run_state.h"
#include "common/graph/clip.h"

/* Without a link a step will be taken back, but an evaluation goes on. */
static bool goes_on(const struct split_engine *e)
{
	return e->session.status == GP_OK && (e->session.linked || !e->train);
}

/* False: the task's chunk goes no further. */
static bool task_ok(struct split_engine *e, struct gp_task *t)
{
	if (t->status != GP_OK)
		gp_client_session_fail(&e->session, t->status, t->err.text);
	return goes_on(e);
}

/* Without a link the frame stays in its slot until there is one. */
static void send_frame(struct split_engine *e, struct gp_transfer *t)
{
	t->frame.head.session = e->session.id;
	if (e->session.linked)
		gp_transfer_send(t, e->session.ch);
}

static struct gp_frame_head out_head(const struct split_engine *e, const struct split_slot *s)
{
	return (struct gp_frame_head){.flags = e->train ? 0 : GP_FRAME_FLAG_EVAL,
				      .chunk = s->chunk,
				      .session = e->session.id,
				      .step = e->step};
}

/* Where the chunk's samples lie in the data set. An evaluation does not tell: its batch may be gone before the codec. */
static const uint32_t *chunk_numbers(const struct split_engine *e, const struct split_slot *s)
{
	return e->train ? e->batch->samples + (size_t)(s->chunk - e->batch_base) * (size_t)gp_split_chunk_samples(e)
			: NULL;
}

static uint64_t chunk_draw(const struct split_engine *e, uint32_t chunk)
{
	return e->step * (uint64_t)e->base.spec.session.chunks + chunk;
}

static void account_compute(struct split_engine *e, bool sent, enum gp_frame_type type, const struct gp_task *t)
{
	struct gp_account *a = &e->session.account;
	struct gp_dir_account *d = sent ? &a->sent : &a->received;
	uint64_t ns = t->end_ns - t->start_ns;
	d->kind[type].stage_ns[GP_STAGE_COMPUTE] += ns;
	e->compute_ns += ns;
}

/* What the device does by itself is waited for when it has the next chunk, too. */
static void finish_head(struct gp_task *task)
{
	struct split_slot *s = task->arg;
	task->status = s->e->device->ops->wait(s->e->head_plan, s->index, &task->err);
}

static void finish_tail(struct gp_task *task)
{
	struct split_slot *s = task->arg;
	task->status = s->e->device->ops->wait(s->e->tail_plan, s->index, &task->err);
}

static void submit(struct split_slot *s, void (*run)(struct gp_task *), void (*finish)(struct gp_task *),
		   void (*done)(struct gp_task *), int priority)
{
	s->compute.run = run;
	s->compute.finish = s->e->device->ops->wait ? finish : NULL;
	s->compute.done = done;
	s->compute.arg = s;
	gp_worker_submit(&s->e->compute, &s->compute, priority);
}

static void pump(struct split_engine *e);
static void chunks_done(struct split_engine *e);

static void chunk_done(struct split_slot *s)
{
	struct split_engine *e = s->e;
	s->state = SLOT_FREE;
	e->result.loss_sum += s->loss.loss_sum;
	e->result.correct += (uint64_t)s->loss.correct;
	e->result.samples += (uint64_t)s->valid;
	e->done++;
	e->pass_idle = e->done == e->total;
	if (e->pass_idle && e->train)
		chunks_done(e);
	pump(e);
}

/* Head backward. */

static void run_head_backward(struct gp_task *task)
{
	struct split_slot *s = task->arg;
	task->status = s->e->device->ops->queue_backward(s->e->head_plan, s->index, &task->err);
}

static void head_backward_done(struct gp_task *task)
{
	struct split_slot *s = task->arg;
	if (!task_ok(s->e, task))
		return;
	account_compute(s->e, false, GP_FRAME_GRAD_DOWN, task);
	chunk_done(s);
}

static void grad_decoded(struct gp_transfer *t)
{
	struct split_engine *e = t->arg;
	if (task_ok(e, &t->task))
		submit(&e->slot[t->slot], run_head_backward, finish_head, head_backward_done, 0);
}

/* Tail: forward, loss, backward. */

static void grad_encoded(struct gp_transfer *t)
{
	struct split_engine *e = t->arg;
	if (!task_ok(e, &t->task))
		return;
	e->slot[t->slot].state = SLOT_WAIT_GRAD;
	send_frame(e, t);
}

static void keep_outputs(struct split_slot *s)
{
	struct split_engine *e = s->e;
	size_t row = gp_shape_elements(gp_graph_output_shape(e->tail));
	size_t first = (size_t)(s->chunk - e->batch_base) * (size_t)gp_split_chunk_samples(e);
	memcpy(e->outputs + first * row, e->device->ops->buffer(e->tail_plan, s->index, GP_BUF_OUTPUT, 0),
	       (size_t)s->valid * row * sizeof(float));
}

static void run_tail(struct gp_task *task)
{
	struct split_slot *s = task->arg;
	struct split_engine *e = s->e;
	const struct gp_device_ops *ops = e->device->ops;
	float scale = 1.0f / (float)gp_session_batch(&e->base.spec.session);
	task->status = ops->forward(e->tail_plan, s->index, e->train ? GP_TRAIN : GP_EVAL, chunk_draw(e, s->chunk),
				    &task->err);
	if (task->status == GP_OK && e->outputs)
		keep_outputs(s);
	else if (task->status == GP_OK)
		task->status =
			ops->loss(e->tail_plan, s->index, s->labels, s->valid, e->train, scale, &s->loss, &task->err);
	if (task->status == GP_OK && e->train)
		task->status = ops->queue_backward(e->tail_plan, s->index, &task->err);
}

static void tail_done(struct gp_task *task)
{
	struct split_slot *s = task->arg;
	struct split_engine *e = s->e;
	if (!task_ok(e, task))
		return;
	if (!e->train) {
		account_compute(e, false, GP_FRAME_ACT_DOWN, task);
		chunk_done(s);
		return;
	}
	account_compute(e, true, GP_FRAME_GRAD_UP, task);
	struct gp_frame_head head = out_head(e, s);
	e->dir[GRAD_UP].slot[s->index].sample = chunk_numbers(e, s);
	gp_transfer_encode(&e->dir[GRAD_UP].slot[s->index], &head,
			   e->device->ops->buffer(e->tail_plan, s->index, GP_BUF_GRAD_INPUT, 0),
			   chunk_draw(e, s->chunk), grad_encoded);
}

static void act_decoded(struct gp_transfer *t)
{
	struct split_engine *e = t->arg;
	if (task_ok(e, &t->task))
		submit(&e->slot[t->slot], run_tail, e->train ? finish_tail : NULL, tail_done, 0);
}

/* Head forward. */

static void act_encoded(struct gp_transfer *t)
{
	struct split_engine *e = t->arg;
	if (!task_ok(e, &t->task))
		return;
	e->slot[t->slot].state = SLOT_WAIT_ACT;
	send_frame(e, t);
}

static void run_head_forward(struct gp_task *task)
{
	struct split_slot *s = task->arg;
	struct split_engine *e = s->e;
	size_t samples = (size_t)gp_split_chunk_samples(e), first = (s->chunk - e->batch_base) * samples;
	gp_batch_map_copy(&e->map, e->batch, first, samples, e->head_plan, s->index, NULL);
	memcpy(s->labels, gp_batch_classes(e->batch) + first, samples * sizeof *s->labels);
	task->status = e->device->ops->queue_forward(e->head_plan, s->index, e->train ? GP_TRAIN : GP_EVAL,
						     chunk_draw(e, s->chunk), &task->err);
}

static void head_forward_done(struct gp_task *task)
{
	struct split_slot *s = task->arg;
	struct split_engine *e = s->e;
	if (!task_ok(e, task))
		return;
	account_compute(e, true, GP_FRAME_ACT_UP, task);
	e->forwarded++;
	e->forwards_idle = e->forwarded == e->total;
	struct gp_frame_head head = out_head(e, s);
	e->dir[ACT_UP].slot[s->index].sample = chunk_numbers(e, s);
	gp_transfer_encode(&e->dir[ACT_UP].slot[s->index], &head,
			   e->device->ops->buffer(e->head_plan, s->index, GP_BUF_OUTPUT, 0), chunk_draw(e, s->chunk),
			   act_encoded);
}

/* Starts as many chunks as the window allows. */
static void pump(struct split_engine *e)
{
	uint32_t window = (uint32_t)e->base.spec.session.window;
	int samples = gp_split_chunk_samples(e);
	const uint32_t in_flight = (uint32_t)e->session.window; /* the server may allow fewer than there are slots */
	while (goes_on(e) && e->next < e->total && e->next - e->done < in_flight) {
		struct split_slot *s = &e->slot[e->next % window];
		gp_require(s->state == SLOT_FREE);
		int left = e->batch->valid - (int)(e->next - e->batch_base) * samples;
		s->valid = left < 0 ? 0 : left > samples ? samples : left;
		s->chunk = e->next++;
		s->state = SLOT_FORWARD;
		s->arrived = false;
		submit(s, run_head_forward, finish_head, head_forward_done, 1);
	}
}

/* Frames from the server. */

static enum gp_status check_frame(struct split_engine *e, const struct gp_frame_head *head, enum slot_state expected,
				  uint32_t next, struct gp_err *err)
{
	uint8_t flags = e->train ? 0 : GP_FRAME_FLAG_EVAL;
	const struct split_slot *s = &e->slot[head->chunk % (uint32_t)e->base.spec.session.window];
	if (head->step != e->step || head->flags != flags || head->chunk != next || s->chunk != head->chunk ||
	    s->state != expected)
		GP_FAIL(err, GP_PROTO, "the server's %s of step %llu chunk %u is not expected here",
			gp_frame_type_name(head->type), (unsigned long long)head->step, head->chunk);
	return GP_OK;
}

static enum gp_status frame_begin(void *arg, const struct gp_frame_head *head, struct gp_frame **out,
				  struct gp_err *err)
{
	struct split_engine *e = arg;
	int d;
	uint32_t slot = head->chunk % (uint32_t)e->base.spec.session.window;
	if (head->type == GP_FRAME_ACT_DOWN) {
		GP_TRY(check_frame(e, head, SLOT_WAIT_ACT, e->acts, err));
		d = ACT_DOWN;
	} else if (head->type == GP_FRAME_GRAD_DOWN && e->train) {
		GP_TRY(check_frame(e, head, SLOT_WAIT_GRAD, e->grads, err));
		d = GRAD_DOWN;
	} else {
		GP_FAIL(err, GP_PROTO, "a server must not send %s now", gp_frame_type_name(head->type));
	}
	struct gp_transfer *t = &e->dir[d].slot[slot];
	if (head->codec != e->dir[d].codec_id)
		GP_FAIL(err, GP_PROTO, "%s names codec %u, not the %u agreed on", gp_frame_type_name(head->type),
			head->codec, e->dir[d].codec_id);
	if (head->payload_len > t->frame.cap)
		GP_FAIL(err, GP_PROTO, "%s of %llu bytes is over the %zu its codec can need",
			gp_frame_type_name(head->type), (unsigned long long)head->payload_len, t->frame.cap);
	e->slot[slot].state = d == ACT_DOWN ? SLOT_TAIL : SLOT_BACKWARD;
	*(d == ACT_DOWN ? &e->acts : &e->grads) += 1;
	*out = &t->frame;
	return GP_OK;
}

/* Sends again the chunks of an evaluation that were under way when the link broke, as many at once as the new session's
 * window allows (a restarted server may have a smaller one). `answered`: chunks that have come back. */
static void send_again(struct split_engine *e, uint32_t answered)
{
	while (e->again < e->again_end && e->again - answered < (uint32_t)e->session.window)
		send_frame(e, &e->dir[ACT_UP].slot[e->again++ % (uint32_t)e->base.spec.session.window]);
}

static enum gp_status frame_arrived(void *arg, struct gp_frame *f, struct gp_err *err)
{
	(void)err;
	struct split_engine *e = arg;
	struct gp_transfer *t = gp_transfer_of(f);
	const struct gp_device_ops *ops = e->device->ops;
	e->slot[t->slot].arrived = true;
	send_again(e, f->head.chunk + 1);
	if (f->head.type == GP_FRAME_ACT_DOWN)
		gp_transfer_decode(t, ops->buffer(e->tail_plan, t->slot, GP_BUF_INPUT, 0), act_decoded);
	else
		gp_transfer_decode(t, ops->buffer(e->head_plan, t->slot, GP_BUF_GRAD_OUTPUT, 0), grad_decoded);
	return GP_OK;
}

static void frame_sent(void *arg, struct gp_frame *f)
{
	struct split_engine *e = arg;
	struct gp_transfer *t = gp_transfer_of(f);
	if (!goes_on(e))
		t->waiting = false;
	gp_transfer_sent(t);
}

/* Steps. */

static void begin_pass(struct split_engine *e, bool train)
{
	e->train = train;
	e->outputs = NULL;
	e->total = e->next = e->forwarded = e->acts = e->grads = e->done = e->again = e->again_end = 0;
	e->own_squares = e->body_squares = e->step_ready = false;
	e->result = (struct gp_step_result){.grad_norm = NAN};
}

/* A short last batch of an evaluation has fewer chunks. */
static void add_batch(struct split_engine *e, const struct gp_batch *batch)
{
	int samples = gp_split_chunk_samples(e);
	e->batch = batch;
	e->batch_base = e->total;
	e->total += (uint32_t)((batch->valid + samples - 1) / samples);
	e->forwards_idle = e->pass_idle = false;
	pump(e);
}

/* A forward may still read the batch when the session has failed. */
static void drain_compute(struct split_engine *e)
{
	while (e->session.status != GP_OK && e->compute.pending > 0)
		uv_run(&e->loop, UV_RUN_ONCE);
}

/* The norm of all gradients, for clipping. PROTOCOL.md section 5.3. */

static enum gp_status squares_arrived(void *arg, uint64_t step, const double *sum, size_t n, struct gp_err *err)
{
	struct split_engine *e = arg;
	if (!e->train || step != e->step || e->body_squares || e->acts < e->total || n != (size_t)e->body_sums)
		GP_FAIL(err, GP_PROTO, "grad_squares of step %llu with %zu sums is not expected (a step has %d)",
			(unsigned long long)step, n, e->body_sums);
	for (size_t i = 0; i < n; i++)
		e->squares[(size_t)e->head_sums + i] = sum[i];
	e->body_squares = true;
	e->step_ready = e->own_squares;
	return GP_OK;
}

static void run_measure(struct gp_task *task)
{
	struct split_engine *e = task->arg;
	const struct gp_device_ops *ops = e->device->ops;
	task->status = ops->grad_squares(e->head_plan, e->squares, &task->err);
	if (task->status == GP_OK)
		task->status = ops->grad_squares(e->tail_plan, e->squares + e->head_sums + e->body_sums, &task->err);
}

static void measure_done(struct gp_task *task)
{
	struct split_engine *e = task->arg;
	if (!task_ok(e, task))
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

static void run_optim(struct gp_task *task)
{
	struct split_engine *e = task->arg;
	double norm = e->result.grad_norm;
	task->status = gp_clip_queue_update(e->head_plan, e->lr, norm, &task->err);
	if (task->status == GP_OK)
		task->status = gp_clip_queue_update(e->tail_plan, e->lr, norm, &task->err);
}

static void finish_optim(struct gp_task *task)
{
	struct split_engine *e = task->arg;
	task->status = e->device->ops->wait(e->head_plan, GP_SLOT_UPDATE, &task->err);
	if (task->status == GP_OK)
		task->status = e->device->ops->wait(e->tail_plan, GP_SLOT_UPDATE, &task->err);
}

static void optim_done(struct gp_task *task)
{
	struct split_engine *e = task->arg;
	if (task->status != GP_OK)
		gp_client_session_fail(&e->session, task->status, task->err.text);
	e->compute_ns += task->end_ns - task->start_ns;
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

static enum gp_status commit(struct split_engine *e, bool checkpoint, struct gp_err *err)
{
	GP_TRY(gp_client_session_commit(&e->session, e->step, e->lr, e->squares ? e->result.grad_norm : 0.0, checkpoint,
					err));
	e->base.steps = ++e->step; /* a link that breaks from here on takes nothing of the committed step back */
	return GP_OK;
}

/* This side's checkpoint comes first: the server drops old ones when it has a new one, and must not be alone with that. */
static enum gp_status update_and_checkpoint(struct split_engine *e, struct gp_err *err)
{
	bool written;
	start_update(e);
	GP_TRY(gp_client_session_wait_here(&e->session, &e->optim_done, err));
	GP_TRY(gp_split_write_checkpoint(e, e->step + 1, &written, err));
	return commit(e, written, err);
}

static enum gp_status update(struct split_engine *e, float lr, struct gp_err *err)
{
	if (e->squares)
		e->result.grad_norm = sqrt(gp_clip_add(0.0, e->squares, e->head_sums + e->body_sums + e->tail_sums));
	e->lr = lr;
	if (gp_run_state_due(e->base.spec.run, e->step + 1))
		return update_and_checkpoint(e, err);
	GP_TRY(commit(e, false, err));
	start_update(e);
	return gp_client_session_wait_here(&e->session, &e->optim_done, err);
}

enum gp_status gp_split_step(struct gp_engine *base, const struct gp_batch *batch, float lr, struct gp_step_result *out,
			     struct gp_err *err)
{
	struct split_engine *e = (struct split_engine *)base;
	GP_TRY(gp_batch_map_of(e->base.spec.graph, batch, &e->map, err));
	begin_pass(e, true);
	e->stepping = true;
	add_batch(e, batch);
	enum gp_status status = wait_for_chunks(e, err);
	e->stepping = false;
	if (status != GP_OK) {
		drain_compute(e);
		return status;
	}
	GP_TRY(update(e, lr, err));
	*out = e->result;
	return GP_OK;
}

/* Evaluation: the next batch's chunks start while the last ones of this batch are under way. */

static void run_fetch(struct gp_task *task)
{
	struct split_engine *e = task->arg;
	task->status = gp_loader_next(e->loader, &e->fetched_batch, &task->err);
}

static void fetch_done(struct gp_task *task)
{
	struct split_engine *e = task->arg;
	e->fetched = task_ok(e, task);
}

/* Off the loop's thread: heartbeats go on while pictures are decoded. */
static enum gp_status fetch_batch(struct split_engine *e, struct gp_err *err)
{
	if (e->session.status != GP_OK) {
		*err = e->session.err;
		return e->session.status;
	}
	e->fetched = false;
	e->fetched_batch = NULL;
	e->fetch = (struct gp_task){.run = run_fetch, .done = fetch_done, .arg = e};
	gp_worker_submit(&e->data, &e->fetch, 0);
	enum gp_status status = gp_client_session_wait_here(&e->session, &e->fetched, err);
	if (status == GP_OK)
		status = gp_batch_map_of(e->base.spec.graph, e->fetched_batch, &e->map, err);
	if (status == GP_OK)
		return GP_OK;
	while (e->data.pending > 0) /* the loader must not be left to a task that nobody waits for */
		uv_run(&e->loop, UV_RUN_ONCE);
	if (e->fetched_batch)
		gp_loader_give_back(e->loader, e->fetched_batch);
	return status;
}

enum gp_status gp_split_next(struct gp_engine *base, struct gp_loader *loader, struct gp_batch **out,
			     struct gp_err *err)
{
	struct split_engine *e = (struct split_engine *)base;
	begin_pass(e, false);
	e->loader = loader;
	GP_TRY(fetch_batch(e, err));
	*out = e->fetched_batch;
	return GP_OK;
}

static enum gp_status evaluate_batch(struct split_engine *e, struct gp_err *err)
{
	GP_TRY(fetch_batch(e, err));
	add_batch(e, e->fetched_batch);
	enum gp_status status = gp_client_session_wait(&e->session, &e->forwards_idle, err);
	drain_compute(e);
	gp_loader_give_back(e->loader, e->fetched_batch);
	return status;
}

enum gp_status gp_split_evaluate(struct gp_engine *base, struct gp_loader *loader, uint32_t batches,
				 struct gp_step_result *out, struct gp_err *err)
{
	struct split_engine *e = (struct split_engine *)base;
	begin_pass(e, false);
	e->loader = loader;
	e->pass_idle = true;
	for (uint32_t i = 0; i < batches; i++)
		GP_TRY(evaluate_batch(e, err));
	GP_TRY(gp_client_session_wait(&e->session, &e->pass_idle, err));
	*out = e->result;
	return GP_OK;
}

enum gp_status gp_split_predict(struct gp_engine *base, struct gp_loader *loader, float *out, struct gp_batch **batch,
				struct gp_err *err)
{
	struct split_engine *e = (struct split_engine *)base;
	begin_pass(e, false);
	e->loader = loader;
	e->outputs = out;
	GP_TRY(fetch_batch(e, err));
	add_batch(e, e->fetched_batch);
	enum gp_status status = gp_client_session_wait(&e->session, &e->pass_idle, err);
	drain_compute(e);
	if (status == GP_OK)
		*batch = e->fetched_batch;
	else
		gp_loader_give_back(loader, e->fetched_batch);
	return status;
}

/* A broken link. PROTOCOL.md section 5.6. */

static bool coding_or_computing(const struct split_engine *e)
{
	int pending = e->compute.pending;
	for (int d = 0; d < DIRECTIONS; d++)
		pending += e->dir[d].lane.pending;
	return pending > 0;
}

/* The answer that had come in part. */
static void forget_partial_answer(struct split_engine *e)
{
	if (e->acts <= e->done)
		return;
	struct split_slot *s = &e->slot[(e->acts - 1) % (uint32_t)e->base.spec.session.window];
	if (s->state != SLOT_TAIL || s->arrived)
		return;
	s->state = SLOT_WAIT_ACT;
	e->acts--;
}

static void link_lost(void *arg)
{
	struct split_engine *e = arg;
	if (!e->train)
		forget_partial_answer(e);
	while (coding_or_computing(e))
		uv_run(&e->loop, UV_RUN_ONCE);
	if (e->train)
		gp_split_undo(e);
	e->state_hash = gp_directions_state_hash(e->dir);
}

static void link_resumed(void *arg)
{
	struct split_engine *e = arg;
	if (!e->train) {
		e->again = e->acts;
		e->again_end = e->next;
		send_again(e, e->acts);
	} else if (e->stepping) {
		begin_pass(e, true);
		add_batch(e, e->batch);
	}
}

static uint64_t state_hash(void *arg)
{
	return ((struct split_engine *)arg)->state_hash;
}

const struct gp_client_frames gp_split_frames = {.frame_begin = frame_begin,
						 .frame = frame_arrived,
						 .sent = frame_sent,
						 .grad_squares = squares_arrived,
						 .lost = link_lost,
						 .resumed = link_resumed,
						 .checkpointed = gp_split_checkpointed,
						 .state_hash = state_hash};
