/* SPDX-License-Identifier: Apache-2.0
 *
 * The body of one session: chunks in flight and commits. See body.h; how it is
 * made is in body_life.c, frames that come in body_frame.c, weights in body_params.c.
 * Test: tests/unit/test_server.c
 */
#include "server/body.h"

#include <string.h>

#include "common/graph/clip.h"
#include "common/wire/chunk_order.h"
#include "server/body_impl.h"
#include "server/body_intervals.h"

void gp_body_fail(struct gp_body *b, enum gp_status status, struct gp_err *err)
{
	if (!b->stopping)
		b->cbs.failed(b->arg, status, err);
}

static void note_broken(struct gp_body *b, const struct gp_task *t)
{
	const bool asked_to = b->stopping && t->status == GP_CANCELED;
	const bool passes = t->status == GP_DAMAGED; /* what the link has damaged comes again over another */
	if (t->status == GP_OK || asked_to || passes || b->broken != GP_OK)
		return;
	b->broken = t->status;
	b->broken_err = t->err;
}

bool gp_body_task_ok(struct gp_body *b, struct gp_task *t)
{
	note_broken(b, t);
	if (t->status == GP_OK && !b->stopping)
		return true;
	if (b->stopping || !b->ch)
		b->cbs.idle(b->arg);
	else
		gp_body_fail(b, t->status, &t->err);
	return false;
}

void gp_body_rest(struct gp_body *b)
{
	if (!b->ch)
		b->cbs.idle(b->arg);
}

/* --- one chunk -------------------------------------------------------------------------------------------------- */

/* Chunks of training are counted over all steps; so are the random draws of dropout and of codecs. */
uint64_t gp_body_chunk_number(const struct gp_body *b, const struct gp_frame_head *head)
{
	return head->step * (uint64_t)b->spec.session.chunks + head->chunk;
}

uint64_t gp_body_first_of_step(const struct gp_body *b)
{
	return b->step * (uint64_t)b->spec.session.chunks;
}

static struct gp_frame_head out_head(const struct gp_body *b, const struct body_slot *s)
{
	return (struct gp_frame_head){
		.flags = s->flags, .chunk = s->chunk, .session = b->spec.id, .step = s->step, .length = s->length};
}

static void account_compute(struct gp_body *b, enum gp_frame_type made, const struct gp_task *t)
{
	if (!b->ch)
		return;
	struct gp_account *a = gp_channel_account_mut(b->ch);
	a->sent.kind[made].stage_ns[GP_STAGE_COMPUTE] += t->end_ns - t->start_ns;
}

/* A pass begins, or is handed to a device that works by itself: it is counted from here to its end. Not while stopping. */
static enum gp_status begin_pass(struct body_slot *s, struct gp_err *err)
{
	GP_TRY(gp_body_check_stop(s->body, err));
	atomic_store(&s->computing_ns, gp_now_ns());
	return GP_OK;
}

static void end_pass(struct body_slot *s)
{
	atomic_store(&s->computing_ns, 0);
}

/* Waits for what the device does by itself; by then the next chunk, if there is one, has been queued, too. What was queued
 * before has been waited for: from here on the device is this pass's. */
static void finish_chunk(struct gp_task *task)
{
	struct body_slot *s = task->arg;
	atomic_store(&s->computing_ns, gp_now_ns());
	task->status = s->body->dev->ops->wait(s->body->plan, s->index, &task->err);
	end_pass(s);
}

static void submit_chunk(struct body_slot *s, void (*run)(struct gp_task *), void (*done)(struct gp_task *),
			 int priority)
{
	struct gp_body *b = s->body;
	s->compute.run = run;
	s->compute.finish = b->dev->ops->wait ? finish_chunk : NULL;
	s->compute.done = done;
	gp_worker_submit(&b->compute, &s->compute, priority);
}

/* Encodes every tensor of one direction of the chunk; the last one that is ready calls `encoded`. */
static void encode_all(struct body_slot *s, enum gp_direction d, enum gp_plan_buf buffer,
		       void (*encoded)(struct gp_transfer *))
{
	struct gp_body *b = s->body;
	const struct gp_frame_head head = out_head(b, s);
	s->pending = b->flows.used[d];
	for (int i = 0; i < b->flows.tensors[d]; i++) {
		struct gp_flow *flow = &b->flows.flow[d][i];
		if (!flow->codec)
			continue;
		if (s->length > 0)
			gp_transfer_set_rows(&flow->slot[s->index], s->rows);
		gp_transfer_encode(&flow->slot[s->index], &head, b->dev->ops->buffer(b->plan, s->index, buffer, i),
				   s->number, encoded);
	}
}

/* One of a chunk's tensors is encoded: it is sent, or without a link kept in its slot. True: it was the last one. */
static bool send_encoded(struct gp_transfer *t)
{
	struct gp_body *b = t->arg;
	const bool last = --b->slot[t->slot].pending == 0;
	gp_body_note_encoded(b, t);
	if (last && (t->flow->direction == GP_GRAD_DOWN || b->flows.used[GP_GRAD_UP] == 0))
		gp_body_tell_intervals(b); /* ahead of the frame with which the chunk is through */
	if (b->ch)
		gp_transfer_send(t, b->ch);
	return last;
}

static void chunk_done(struct body_slot *s)
{
	s->state = SLOT_EMPTY;
	s->body->done++;
}

/* --- measuring the gradients, for clipping ----------------------------------------------------------------------- */

static bool clips_norm(const struct gp_body *b)
{
	return b->spec.session.optim.clip_norm > 0.0;
}

static void run_measure(struct gp_task *task)
{
	struct gp_body *b = task->arg;
	task->status = b->dev->ops->grad_squares(b->plan, b->squares, &task->err);
}

static void measure_done(struct gp_task *task)
{
	struct gp_body *b = task->arg;
	if (!gp_body_task_ok(b, task))
		return;
	b->measured = true;
	if (b->ch)
		b->cbs.measured(b->arg, b->step, b->squares, gp_clip_sums(b->spec.graph));
	gp_body_rest(b);
}

/* The gradients of one more chunk are complete. After the last one they are measured, while GRAD_DOWN is encoded and
 * sent. */
static void note_gradients(struct gp_body *b)
{
	if (++b->backwards < (uint32_t)b->spec.session.chunks || !clips_norm(b))
		return;
	b->measure = (struct gp_task){.run = run_measure, .done = measure_done, .arg = b};
	gp_worker_submit(&b->compute, &b->measure, 0);
}

/* --- forward: decode, compute, encode, send ---------------------------------------------------------------------- */

/* Where the body trains nothing and nothing before it does, no gradient comes: the chunk is through. */
static void forward_is_over(struct body_slot *s)
{
	struct gp_body *b = s->body;
	if (s->flags & GP_FRAME_FLAG_EVAL) {
		s->state = SLOT_EMPTY;
		b->eval_in_flight--;
		b->evaluated++;
		return;
	}
	s->state = SLOT_WAITING;
	if (b->flows.used[GP_GRAD_UP] > 0)
		return;
	chunk_done(s);
	note_gradients(b);
}

static void forward_encoded(struct gp_transfer *t)
{
	struct gp_body *b = t->arg;
	if (!gp_body_task_ok(b, &t->task))
		return;
	if (send_encoded(t))
		forward_is_over(&b->slot[t->slot]);
	gp_body_rest(b);
}

static void run_forward(struct gp_task *task)
{
	struct body_slot *s = task->arg;
	struct gp_body *b = s->body;
	const bool calibrates = s->flags & GP_FRAME_FLAG_CALIBRATE;
	enum gp_mode mode = calibrates ? GP_CALIBRATE : s->flags & GP_FRAME_FLAG_EVAL ? GP_EVAL : GP_TRAIN;
	const uint64_t draw = calibrates ? s->chunk : s->number;
	task->status = begin_pass(s, &task->err);
	if (task->status == GP_OK && b->spec.session.lengths)
		b->dev->ops->set_length(b->plan, s->index, s->length);
	if (task->status == GP_OK)
		task->status = b->dev->ops->queue_forward(b->plan, s->index, mode, draw, &task->err);
	end_pass(s);
}

static void forward_done(struct gp_task *task)
{
	struct body_slot *s = task->arg;
	if (!gp_body_task_ok(s->body, task))
		return;
	account_compute(s->body, GP_FRAME_ACT_DOWN, task);
	gp_body_note_task(s->body, GP_AT_BODY_FORWARD, s, task);
	encode_all(s, GP_ACT_DOWN, GP_BUF_OUTPUT, forward_encoded);
}

static void begin_forward(struct body_slot *s)
{
	s->state = SLOT_FORWARD;
	submit_chunk(s, run_forward, forward_done, GP_ORDER_FORWARD);
}

/* A frame that was damaged comes again. */
static bool decoded(struct gp_transfer *t)
{
	struct gp_body *b = t->arg;
	if (t->task.status == GP_DAMAGED)
		gp_body_frame_lost(b, &t->frame);
	else
		gp_body_note_decoded(b, t);
	return gp_body_task_ok(b, &t->task);
}

/* How many positions each sample has itself: the most that a tensor of the chunk has brought. Where none leaves any out, all
 * of the chunk's. */
static void note_rows(struct body_slot *s, const struct gp_transfer *t)
{
	for (int64_t n = 0; s->length > 0 && t->rows && n < t->flow->samples; n++)
		s->rows[n] = t->rows[n] > s->rows[n] ? t->rows[n] : s->rows[n];
}

/* A chunk of the next step is computed with the parameters that COMMIT makes: it waits for that. */
void gp_body_act_decoded(struct gp_transfer *t)
{
	struct gp_body *b = t->arg;
	struct body_slot *s = &b->slot[t->slot];
	if (!decoded(t))
		return;
	note_rows(s, t);
	if (--s->pending == 0 && s->step == b->step)
		begin_forward(s);
	else if (s->pending == 0)
		s->state = SLOT_AHEAD;
	gp_body_rest(b);
}

/* In the order of their chunks, which is that of their slots from the first on. */
static void begin_held_forwards(struct gp_body *b)
{
	const uint64_t first = gp_body_first_of_step(b), window = (uint64_t)b->spec.session.window;
	for (uint64_t n = first; n < first + window; n++) {
		struct body_slot *s = &b->slot[n % window];
		if (s->state == SLOT_AHEAD && s->number == n)
			begin_forward(s);
	}
}

/* --- backward ---------------------------------------------------------------------------------------------------- */

static void backward_encoded(struct gp_transfer *t)
{
	struct gp_body *b = t->arg;
	if (!gp_body_task_ok(b, &t->task))
		return;
	if (send_encoded(t))
		chunk_done(&b->slot[t->slot]);
	gp_body_rest(b);
}

static void run_backward(struct gp_task *task)
{
	struct body_slot *s = task->arg;
	task->status = begin_pass(s, &task->err);
	if (task->status == GP_OK)
		task->status = s->body->dev->ops->queue_backward(s->body->plan, s->index, &task->err);
	end_pass(s);
}

static void backward_done(struct gp_task *task)
{
	struct body_slot *s = task->arg;
	struct gp_body *b = s->body;
	if (!gp_body_task_ok(b, task))
		return;
	account_compute(b, GP_FRAME_GRAD_DOWN, task);
	gp_body_note_task(b, GP_AT_BODY_BACKWARD, s, task);
	note_gradients(b);
	if (b->flows.used[GP_GRAD_DOWN] > 0) {
		encode_all(s, GP_GRAD_DOWN, GP_BUF_GRAD_INPUT, backward_encoded);
		return;
	}
	chunk_done(s);
	gp_body_tell_intervals(b);
	if (b->ch)
		b->cbs.chunk_done(b->arg, s->step, s->chunk);
	gp_body_rest(b);
}

static int backward_order(const struct body_slot *s)
{
	const struct gp_session_spec *session = &s->body->spec.session;
	return gp_order_backward(s->chunk, (uint64_t)session->chunks, (uint64_t)session->window, s->body->ahead);
}

void gp_body_grad_decoded(struct gp_transfer *t)
{
	struct gp_body *b = t->arg;
	struct body_slot *s = &b->slot[t->slot];
	if (!decoded(t))
		return;
	if (--s->pending == 0)
		submit_chunk(s, run_backward, backward_done, backward_order(s));
	gp_body_rest(b);
}

bool gp_body_in_step(const struct gp_body *b)
{
	return b->begun > gp_body_first_of_step(b) || b->eval_in_flight > 0;
}

/* Nothing of the step under way, or of the next, has been. */
void gp_body_reset_chunks(struct gp_body *b)
{
	const uint64_t first = gp_body_first_of_step(b);
	for (int i = 0; i < b->spec.session.window; i++)
		b->slot[i].state = SLOT_EMPTY;
	for (int i = 0; i < GP_GRAPH_MAX_PORTS; i++)
		b->next_act[i] = b->next_grad[i] = first;
	b->begun = first;
	b->done = b->backwards = 0;
	b->eval_in_flight = 0;
	b->measured = false;
}

/* --- commit ------------------------------------------------------------------------------------------------------ */

static void run_optim(struct gp_task *task)
{
	struct gp_body *b = task->arg;
	task->status = gp_clip_queue_update(b->plan, b->lr, b->grad_norm, &task->err);
}

static void finish_optim(struct gp_task *task)
{
	struct gp_body *b = task->arg;
	task->status = b->dev->ops->wait(b->plan, GP_SLOT_UPDATE, &task->err);
}

static void optim_done(struct gp_task *task)
{
	struct gp_body *b = task->arg;
	const bool refused = b->checkpoint.refused;
	b->checkpoint.refused = false;
	b->optim_pending =
		b->checkpoint.asked || b->changing; /* until COMMITTED, so that no other COMMIT comes between */
	gp_body_note_step(b, GP_AT_BODY_UPDATE, task);
	if (!gp_body_task_ok(b, task) || b->checkpoint.asked)
		return;
	gp_body_tell_intervals(b);
	if (b->changing) {
		gp_body_change(b);
		return;
	}
	if (refused)
		gp_body_checkpoint_refuse(b);
	else if (b->ch)
		b->cbs.committed(b->arg, b->step - 1);
	else
		gp_body_rest(b);
}

/* A norm that is not finite is no error: PyTorch goes on with it (clip.h), and so do both sides here. */
static enum gp_status check_norm(const struct gp_body *b, double norm, struct gp_err *err)
{
	if (!clips_norm(b) && norm != 0.0)
		GP_FAIL(err, GP_PROTO, "commit with a gradient norm in a session without clip_norm");
	if (clips_norm(b) && !b->measured)
		GP_FAIL(err, GP_PROTO, "commit before the gradients' squares were sent");
	if (norm < 0.0)
		GP_FAIL(err, GP_PROTO, "commit with a gradient norm of %g", norm);
	return GP_OK;
}

enum gp_status gp_body_commit(struct gp_body *b, const struct gp_body_commit *c, struct gp_err *err)
{
	if (!b->ready || b->spec.session.eval_only || c->step != b->step ||
	    b->done != (uint32_t)b->spec.session.chunks || b->optim_pending)
		GP_FAIL(err, GP_PROTO, "commit of step %llu after %u of %d chunks of step %llu",
			(unsigned long long)c->step, b->done, b->spec.session.chunks, (unsigned long long)b->step);
	if (!(c->lr >= 0 && c->lr < 1e9f))
		GP_FAIL(err, GP_PROTO, "commit with a learning rate of %g", (double)c->lr);
	GP_TRY(check_norm(b, c->grad_norm, err));
	GP_TRY(gp_body_check_ranks(b, c->step, c->rank, c->ranks, err));
	GP_TRY(gp_body_check_rungs(b, c, err));
	gp_body_take_rungs(b, c);
	b->changing = c->ranks > 0 || c->rungs > 0;
	b->checkpoint_follows = c->checkpoint && b->changing;
	b->step++;
	b->done = b->backwards = 0;
	gp_body_note_committed(b, c);
	b->measured = false;
	b->lr = c->lr;
	b->grad_norm = c->grad_norm;
	b->optim_pending = true;
	b->optim = (struct gp_task){.run = run_optim, .done = optim_done, .arg = b};
	b->optim.finish = b->dev->ops->wait ? finish_optim : NULL;
	gp_worker_submit(&b->compute, &b->optim, 0);
	if (c->checkpoint && !b->changing)
		gp_body_checkpoint(b); /* of what those forwards, which change running statistics, have not seen */
	begin_held_forwards(b);
	return GP_OK;
}

/* --- coming back; see also body_link.c --------------------------------------------------------------------------- */

/* What had come of the next step comes again. */
static void drop_ahead(struct gp_body *b)
{
	const uint64_t next = gp_body_first_of_step(b) + (uint64_t)b->spec.session.chunks;
	for (int i = 0; i < b->spec.session.window; i++)
		b->slot[i].state = SLOT_EMPTY;
	for (int i = 0; i < GP_GRAPH_MAX_PORTS; i++)
		b->next_act[i] = next;
	b->begun = next;
}

static enum gp_status check_client_steps(const struct gp_body *b, uint64_t client_steps, struct gp_err *err)
{
	if (client_steps == b->step || (client_steps == b->step + 1 && gp_body_awaits_commit(b)))
		return GP_OK;
	GP_FAIL(err, GP_PROTO, "a client at step %llu cannot go on with a session at step %llu (%u of %d chunks)",
		(unsigned long long)client_steps, (unsigned long long)b->step, b->done, b->spec.session.chunks);
}

static bool says_chunk_done(const struct gp_body *b)
{
	return b->flows.used[GP_GRAD_UP] > 0 && b->flows.used[GP_GRAD_DOWN] == 0;
}

enum gp_status gp_body_check_place(const struct gp_body *b, uint64_t client_steps, const struct gp_place *client,
				   struct gp_err *err)
{
	const uint64_t first = gp_body_first_of_step(b);
	GP_TRY(gp_body_broken(b, err));
	GP_TRY(check_client_steps(b, client_steps, err));
	if (b->eval_in_flight > 0)
		GP_FAIL(err, GP_PROTO, "a client that goes on within a step left an evaluation");
	if (says_chunk_done(b) && (client->grad[0] < first || client->grad[0] > first + b->done))
		GP_FAIL(err, GP_PROTO, "the client waits for chunk_done of chunk %llu, after %llu",
			(unsigned long long)client->grad[0], (unsigned long long)(first + b->done));
	GP_TRY(gp_flows_check_due(&b->flows, GP_ACT_DOWN, client->act, first, err));
	return gp_flows_check_due(&b->flows, GP_GRAD_DOWN, client->grad, first, err);
}

void gp_body_place(const struct gp_body *b, struct gp_place *out)
{
	*out = (struct gp_place){.squares = false};
	memcpy(out->act, b->next_act, sizeof out->act);
	memcpy(out->grad, b->next_grad, sizeof out->grad);
}

void gp_body_tensors(const struct gp_body *b, int *up, int *down)
{
	*up = b->flows.tensors[GP_ACT_UP];
	*down = b->flows.tensors[GP_ACT_DOWN];
}

void gp_body_go_on(struct gp_body *b, uint64_t client_steps, const struct gp_place *client)
{
	const uint64_t first = gp_body_first_of_step(b);
	gp_flows_send_again(&b->flows, GP_ACT_DOWN, client->act, b->spec.id, b->ch);
	gp_flows_send_again(&b->flows, GP_GRAD_DOWN, client->grad, b->spec.id, b->ch);
	for (uint64_t n = client->grad[0]; b->ch && says_chunk_done(b) && n < first + b->done; n++)
		b->cbs.chunk_done(b->arg, b->step, (uint32_t)(n - first));
	if (b->ch && b->measured && client_steps == b->step && !client->squares)
		b->cbs.measured(b->arg, b->step, b->squares, gp_clip_sums(b->spec.graph));
}

bool gp_body_awaits_commit(const struct gp_body *b)
{
	return b->done == (uint32_t)b->spec.session.chunks && (b->measured || !clips_norm(b));
}

/* The chunks alone; what plan and codecs have of them is undone by a task. */
static enum gp_status rewind_chunks(struct gp_body *b, uint64_t client_steps, bool *undo, struct gp_err *err)
{
	GP_TRY(gp_body_broken(b, err));
	GP_TRY(check_client_steps(b, client_steps, err));
	*undo = client_steps == b->step;
	if (*undo)
		gp_body_reset_chunks(b);
	else
		drop_ahead(b);
	return GP_OK;
}

void gp_body_rewind(struct gp_body *b, uint64_t client_steps)
{
	struct gp_body_rewind *r = &b->rewind;
	r->status = rewind_chunks(b, client_steps, &r->undo, &r->err);
	if (r->status == GP_OK)
		gp_body_submit_rewind(b);
}

enum gp_status gp_body_rewound(const struct gp_body *b, uint64_t *hash, struct gp_err *err)
{
	gp_require(!gp_body_busy(b));
	if (b->rewind.status == GP_OK)
		*hash = b->rewind.hash;
	else
		*err = b->rewind.err;
	return b->rewind.status;
}

uint64_t gp_body_state_hash(const struct gp_body *b)
{
	return gp_flows_state_hash(&b->flows);
}
