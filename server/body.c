/* SPDX-License-Identifier: Apache-2.0
 *
 * The body of one session: chunks in flight and commits. See body.h; how it is
 * made is in body_life.c, weights in and out in body_params.c.
 * Test: tests/unit/test_server.c
 */
#include "server/body.h"

#include "common/graph/clip.h"
#include "server/body_impl.h"

void gp_body_fail(struct gp_body *b, enum gp_status status, struct gp_err *err)
{
	if (!b->stopping)
		b->cbs.failed(b->arg, status, err);
}

static void note_broken(struct gp_body *b, const struct gp_task *t)
{
	if (t->status == GP_OK || b->broken != GP_OK)
		return;
	b->broken = t->status;
	b->broken_err = t->err;
}

bool gp_body_task_ok(struct gp_body *b, struct gp_task *t)
{
	note_broken(b, t);
	if (b->stopping || !b->ch) {
		b->cbs.idle(b->arg);
		return false;
	}
	if (t->status != GP_OK) {
		gp_body_fail(b, t->status, &t->err);
		return false;
	}
	return true;
}

static uint64_t chunk_draw(const struct gp_body *b, uint32_t chunk)
{
	return b->step * (uint64_t)b->spec.session.chunks + chunk;
}

static struct gp_frame_head out_head(const struct gp_body *b, const struct body_slot *s)
{
	return (struct gp_frame_head){.flags = s->flags, .chunk = s->chunk, .session = b->spec.id, .step = b->step};
}

static void account_compute(struct gp_body *b, enum gp_frame_type made, const struct gp_task *t)
{
	struct gp_account *a = gp_channel_account_mut(b->ch);
	a->sent.kind[made].stage_ns[GP_STAGE_COMPUTE] += t->end_ns - t->start_ns;
}

/* Waits for what the device does by itself; by then the next chunk, if there is one, has been queued, too. */
static void finish_chunk(struct gp_task *task)
{
	struct body_slot *s = task->arg;
	task->status = s->body->dev->ops->wait(s->body->plan, s->index, &task->err);
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

/* Forward: decode -> compute -> encode -> send. */

static void forward_encoded(struct gp_transfer *t)
{
	struct gp_body *b = t->arg;
	if (!gp_body_task_ok(b, &t->task))
		return;
	struct body_slot *s = &b->slot[t->slot];
	bool eval = s->flags & GP_FRAME_FLAG_EVAL;
	s->state = eval ? SLOT_EMPTY : SLOT_WAITING;
	b->eval_in_flight -= eval;
	gp_transfer_send(t, b->ch);
}

static void run_forward(struct gp_task *task)
{
	struct body_slot *s = task->arg;
	struct gp_body *b = s->body;
	enum gp_mode mode = s->flags & GP_FRAME_FLAG_EVAL ? GP_EVAL : GP_TRAIN;
	task->status = b->dev->ops->queue_forward(b->plan, s->index, mode, chunk_draw(b, s->chunk), &task->err);
}

static void forward_done(struct gp_task *task)
{
	struct body_slot *s = task->arg;
	struct gp_body *b = s->body;
	if (!gp_body_task_ok(b, task))
		return;
	account_compute(b, GP_FRAME_ACT_DOWN, task);
	struct gp_frame_head head = out_head(b, s);
	gp_transfer_encode(&b->dir[ACT_DOWN].slot[s->index], &head,
			   b->dev->ops->buffer(b->plan, s->index, GP_BUF_OUTPUT, 0), chunk_draw(b, s->chunk),
			   forward_encoded);
}

static void act_decoded(struct gp_transfer *t)
{
	struct gp_body *b = t->arg;
	if (!gp_body_task_ok(b, &t->task))
		return;
	submit_chunk(&b->slot[t->slot], run_forward, forward_done, 1);
}

/* Backward. */

static void backward_encoded(struct gp_transfer *t)
{
	struct gp_body *b = t->arg;
	if (!gp_body_task_ok(b, &t->task))
		return;
	b->slot[t->slot].state = SLOT_EMPTY;
	b->done++;
	gp_transfer_send(t, b->ch);
}

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
	b->cbs.measured(b->arg, b->step, b->squares, gp_clip_sums(b->spec.graph));
}

/* The gradients are complete: measured while the last GRAD_DOWN is encoded and sent. */
static void measure(struct gp_body *b)
{
	b->measure = (struct gp_task){.run = run_measure, .done = measure_done, .arg = b};
	gp_worker_submit(&b->compute, &b->measure, 0);
}

static void run_backward(struct gp_task *task)
{
	struct body_slot *s = task->arg;
	task->status = s->body->dev->ops->queue_backward(s->body->plan, s->index, &task->err);
}

static void backward_done(struct gp_task *task)
{
	struct body_slot *s = task->arg;
	struct gp_body *b = s->body;
	if (!gp_body_task_ok(b, task))
		return;
	account_compute(b, GP_FRAME_GRAD_DOWN, task);
	if (++b->backwards == (uint32_t)b->spec.session.chunks && clips_norm(b))
		measure(b);
	struct gp_frame_head head = out_head(b, s);
	gp_transfer_encode(&b->dir[GRAD_DOWN].slot[s->index], &head,
			   b->dev->ops->buffer(b->plan, s->index, GP_BUF_GRAD_INPUT, 0), chunk_draw(b, s->chunk),
			   backward_encoded);
}

static void grad_decoded(struct gp_transfer *t)
{
	struct gp_body *b = t->arg;
	if (!gp_body_task_ok(b, &t->task))
		return;
	submit_chunk(&b->slot[t->slot], run_backward, backward_done, 0);
}

/* Frames. */

static enum gp_status act_begin(struct gp_body *b, const struct gp_frame_head *head, struct body_slot *s,
				struct gp_err *err)
{
	bool eval = head->flags & GP_FRAME_FLAG_EVAL;
	if (s->state != SLOT_EMPTY)
		GP_FAIL(err, GP_PROTO, "act_up of chunk %u: more than %d chunks in flight", head->chunk,
			b->spec.session.window);
	if (b->fetching)
		GP_FAIL(err, GP_PROTO, "act_up while parameters are fetched");
	if (eval && b->begun > 0)
		GP_FAIL(err, GP_PROTO, "evaluation inside a training step");
	if (!eval && (b->spec.session.eval_only || b->eval_in_flight > 0 || head->chunk != b->begun ||
		      b->begun >= (uint32_t)b->spec.session.chunks))
		GP_FAIL(err, GP_PROTO, "act_up of chunk %u is not expected (next is %u of %d)", head->chunk, b->begun,
			b->spec.session.chunks);
	if (eval)
		b->eval_in_flight++;
	else
		b->begun++;
	s->state = SLOT_FORWARD;
	s->chunk = head->chunk;
	s->flags = head->flags;
	return GP_OK;
}

static enum gp_status grad_begin(struct gp_body *b, const struct gp_frame_head *head, struct body_slot *s,
				 struct gp_err *err)
{
	/* In chunk order, so that gradients add up in the same order as in a local run. */
	if (s->state != SLOT_WAITING || s->chunk != head->chunk || head->flags || head->chunk != b->grads_begun)
		GP_FAIL(err, GP_PROTO, "grad_up of chunk %u is not expected (next is %u)", head->chunk, b->grads_begun);
	s->state = SLOT_BACKWARD;
	b->grads_begun++;
	return GP_OK;
}

static enum gp_status check_head(const struct gp_body *b, const struct gp_frame_head *head, struct gp_err *err)
{
	if (head->type == GP_FRAME_GRAD_UP && b->spec.session.eval_only)
		GP_FAIL(err, GP_PROTO, "a gradient in an evaluation session");
	if (head->step != b->step)
		GP_FAIL(err, GP_PROTO, "%s of step %llu, but %llu is under way", gp_frame_type_name(head->type),
			(unsigned long long)head->step, (unsigned long long)b->step);
	return GP_OK;
}

enum gp_status gp_body_frame_begin(struct gp_body *b, const struct gp_frame_head *head, struct gp_frame **out,
				   struct gp_err *err)
{
	if (head->type == GP_FRAME_PARAM_UP)
		return gp_body_param_begin(b, head, out, err);
	GP_TRY(check_head(b, head, err));
	uint32_t slot = head->chunk % (uint32_t)b->spec.session.window;
	struct gp_transfer *t = &b->dir[head->type == GP_FRAME_ACT_UP ? ACT_UP : GRAD_UP].slot[slot];
	if (head->codec != t->direction->codec_id)
		GP_FAIL(err, GP_PROTO, "%s names codec %u, not the %u agreed on", gp_frame_type_name(head->type),
			head->codec, t->direction->codec_id);
	if (head->payload_len > t->frame.cap)
		GP_FAIL(err, GP_PROTO, "%s of %llu bytes is over the %zu its codec can need",
			gp_frame_type_name(head->type), (unsigned long long)head->payload_len, t->frame.cap);
	if (head->type == GP_FRAME_ACT_UP)
		GP_TRY(act_begin(b, head, &b->slot[slot], err));
	else
		GP_TRY(grad_begin(b, head, &b->slot[slot], err));
	*out = &t->frame;
	return GP_OK;
}

void gp_body_frame(struct gp_body *b, struct gp_frame *f)
{
	if (f->head.type == GP_FRAME_PARAM_UP) {
		gp_body_param_arrived(b);
		return;
	}
	struct gp_transfer *t = gp_transfer_of(f);
	if (f->head.type == GP_FRAME_ACT_UP)
		gp_transfer_decode(t, b->dev->ops->buffer(b->plan, t->slot, GP_BUF_INPUT, 0), act_decoded);
	else
		gp_transfer_decode(t, b->dev->ops->buffer(b->plan, t->slot, GP_BUF_GRAD_OUTPUT, 0), grad_decoded);
}

void gp_body_frame_sent(struct gp_body *b, struct gp_frame *f)
{
	if (f == &b->param_out)
		gp_body_param_sent(b);
	else
		gp_transfer_sent(gp_transfer_of(f));
}

/* Commit. */

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
	b->optim_pending = b->checkpoint.asked; /* until COMMITTED, so that no other COMMIT comes between */
	if (!gp_body_task_ok(b, task) || b->checkpoint.asked)
		return;
	if (refused)
		gp_body_checkpoint_refuse(b);
	else
		b->cbs.committed(b->arg, b->step - 1);
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

enum gp_status gp_body_commit(struct gp_body *b, uint64_t step, float lr, double grad_norm, struct gp_err *err)
{
	if (!b->ready || b->spec.session.eval_only || step != b->step || b->done != (uint32_t)b->spec.session.chunks ||
	    b->optim_pending)
		GP_FAIL(err, GP_PROTO, "commit of step %llu after %u of %d chunks of step %llu",
			(unsigned long long)step, b->done, b->spec.session.chunks, (unsigned long long)b->step);
	if (!(lr >= 0 && lr < 1e9f))
		GP_FAIL(err, GP_PROTO, "commit with a learning rate of %g", (double)lr);
	GP_TRY(check_norm(b, grad_norm, err));
	b->step++;
	b->begun = b->grads_begun = b->done = b->backwards = 0;
	b->measured = false;
	b->lr = lr;
	b->grad_norm = grad_norm;
	b->optim_pending = true;
	b->optim = (struct gp_task){.run = run_optim, .done = optim_done, .arg = b};
	b->optim.finish = b->dev->ops->wait ? finish_optim : NULL;
	gp_worker_submit(&b->compute, &b->optim, 0);
	return GP_OK;
}

/* Coming back; see also body_link.c. */

enum gp_status gp_body_rewind(struct gp_body *b, uint64_t client_steps, struct gp_err *err)
{
	const bool whole = b->done == (uint32_t)b->spec.session.chunks && (b->measured || !clips_norm(b));
	GP_TRY(gp_body_broken(b, err));
	if (client_steps == b->step)
		gp_body_undo(b);
	else if (client_steps != b->step + 1 || !whole)
		GP_FAIL(err, GP_PROTO,
			"a client at step %llu cannot go on with a session at step %llu (%u of %d chunks)",
			(unsigned long long)client_steps, (unsigned long long)b->step, b->done, b->spec.session.chunks);
	return GP_OK;
}

uint64_t gp_body_state_hash(const struct gp_body *b)
{
	return gp_directions_state_hash(b->dir);
}
