/* SPDX-License-Identifier: Apache-2.0
 *
 * Split training, one chunk at a time: head and tail here, body on the server.
 * One forward, one backward: up to `window` chunks are under way; as soon as a
 * chunk's activation comes back its loss is computed and its gradient goes up,
 * so that both directions of the link carry tensors at the same time.
 *
 *   head forward -> ACT_UP -> (server) -> ACT_DOWN -> tail forward, loss,
 *   tail backward -> GRAD_UP -> (server) -> GRAD_DOWN -> head backward
 *
 * This file reads in that order. Any number of tensors crosses each cut; a step
 * of a chunk begins when the last of them is there. Gradients add up in chunk
 * order on every part, as in a local run. The tail and the head's backward run
 * before further head forwards where both wait.
 *
 * Threads: see engine_split.h. Tests: tests/e2e/parity.sh, tests/unit/test_engine.c
 */
#include "client/engine/engine_split.h"

#include <string.h>

#include "client/log/value_log.h"
#include "common/wire/chunk_order.h"

bool gp_split_goes_on(const struct split_engine *e)
{
	return e->session.status == GP_OK && (e->session.linked || !e->train || e->session.keeps_place);
}

bool gp_split_task_ok(struct split_engine *e, struct gp_task *t)
{
	if (t->status != GP_OK)
		gp_client_session_take_failure(&e->session, t->status, t->err.text);
	return t->status == GP_OK && gp_split_goes_on(e);
}

static void account_compute(struct split_engine *e, enum gp_direction d, const struct gp_task *t)
{
	const struct gp_direction_info *info = &gp_direction_info[d];
	struct gp_dir_account *way = info->up ? &e->session.account.sent : &e->session.account.received;
	const uint64_t ns = t->end_ns - t->start_ns;
	way->kind[info->frame].stage_ns[GP_STAGE_COMPUTE] += ns;
	e->compute_ns += ns;
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

static void *head_buffer(const struct split_slot *s, enum gp_plan_buf which, int index)
{
	return s->e->device->ops->buffer(s->e->head_plan, s->index, which, index);
}

static void *tail_buffer(const struct split_slot *s, enum gp_plan_buf which, int index)
{
	return s->e->device->ops->buffer(s->e->tail_plan, s->index, which, index);
}

/* --- to and from the link ---------------------------------------------------------------------------------------- */

/* Without a link the frame stays in its slot until there is one. */
static void send_frame(struct split_engine *e, struct gp_transfer *t)
{
	t->frame.head.session = e->session.id;
	if (e->session.linked)
		gp_transfer_send(t, e->session.ch);
}

/* Where the chunk's samples lie in the data set. An evaluation does not tell: its batch may be gone before the codec. */
static const uint32_t *chunk_samples(const struct split_slot *s)
{
	return s->e->train ? s->batch->samples + s->first : NULL;
}

static uint8_t flags_of(const struct split_engine *e)
{
	return e->train ? 0 : GP_FRAME_FLAG_EVAL | (e->calibrates ? GP_FRAME_FLAG_CALIBRATE : 0);
}

/* Where the body has no sequences, its chunks have no length. */
static uint32_t wire_length(const struct split_slot *s)
{
	return s->e->flows.positions > 0 ? s->length : 0;
}

/* For the log: the first chunk's, before the codec or behind it. */
static void note_values(const struct split_slot *s, const struct gp_flow *flow, const void *tensor, bool sent)
{
	struct gp_value_log *v = s->e->base.values;
	if (!v || !s->e->train || s->chunk != 0 || !gp_value_log_wants(v, s->step))
		return;
	gp_value_log_add_tensor(v, s->step, flow, tensor, wire_length(s));
	if (sent)
		gp_value_log_add_error(v, s->step, flow, tensor, wire_length(s));
}

/* Where every chunk has all positions, the server is not told how many of them are padding; here it is known. */
static void tell_rows(const struct split_slot *s, struct gp_transfer *t)
{
	if (s->e->map.positions > 0)
		gp_transfer_tell_rows(t, s->rows);
}

static void encode_tensor(struct split_slot *s, struct gp_flow *flow, void *tensor,
			  void (*encoded)(struct gp_transfer *))
{
	const struct split_engine *e = s->e;
	struct gp_transfer *t = &flow->slot[s->index];
	const struct gp_frame_head head = {.flags = flags_of(e),
					   .chunk = s->chunk,
					   .length = wire_length(s),
					   .session = e->session.id,
					   .step = s->step};
	if (head.length > 0)
		gp_transfer_set_rows(t, s->rows);
	else
		tell_rows(s, t);
	t->sample = chunk_samples(s);
	note_values(s, flow, tensor, true);
	gp_transfer_encode(t, &head, tensor, s->number, encoded);
}

/* One of a chunk's tensors is encoded: it is sent. NULL: others of the chunk are not, or it goes no further. */
static struct split_slot *send_encoded(struct gp_transfer *t)
{
	struct split_engine *e = t->arg;
	struct split_slot *s = &e->slot[t->slot];
	if (!gp_split_task_ok(e, &t->task))
		return NULL;
	const bool last = --s->pending == 0;
	gp_split_note_coded(e, t);
	gp_split_privacy_encoded(e, t);
	send_frame(e, t);
	return last ? s : NULL;
}

/* One of a chunk's tensors is decoded. NULL: others of the chunk are not, or it goes no further. */
static struct split_slot *take_decoded(struct gp_transfer *t)
{
	struct split_engine *e = t->arg;
	struct split_slot *s = &e->slot[t->slot];
	if (t->task.status == GP_DAMAGED)
		gp_split_frame_lost(e, &t->frame); /* it comes again */
	if (!gp_split_task_ok(e, &t->task))
		return NULL;
	gp_split_note_crossed(e, t);
	gp_split_note_coded(e, t);
	note_values(s, t->flow, t->tensor, false);
	gp_split_privacy_decoded(e, t);
	gp_client_session_move(&e->session);
	return --s->pending == 0 ? s : NULL;
}

/* --- head forward ------------------------------------------------------------------------------------------------ */

/* Everything of the batch that some part of the model reads, so that the batch may go. */
static void copy_batch(struct split_slot *s)
{
	const struct split_engine *e = s->e;
	const struct gp_graph_parts *p = &e->cross->parts;
	const size_t samples = (size_t)gp_split_chunk_samples(e);
	gp_plan_set_length(e->head_plan, s->index, s->length);
	gp_plan_set_length(e->tail_plan, s->index, s->length);
	gp_batch_map_copy(&e->map, s->batch, s->first, samples, s->length, e->head_plan, s->index, p->head_in);
	gp_batch_map_copy(&e->map, s->batch, s->first, samples, s->length, e->tail_plan, s->index, p->tail_in);
	for (int i = 0; i < p->body->inputs; i++)
		if (p->body_in[i].from == GP_FROM_DATA)
			gp_batch_map_put(&e->map, s->batch, p->body_in[i].index, s->first, samples, s->length,
					 s->data[i]);
	if (!e->outputs)
		memcpy(s->labels, gp_batch_labels(s->batch, s->first),
		       samples * gp_tensor_bytes(&s->batch->label_info));
}

static void run_head_forward(struct gp_task *task)
{
	struct split_slot *s = task->arg;
	struct split_engine *e = s->e;
	copy_batch(s);
	task->status = e->device->ops->queue_forward(e->head_plan, s->index, gp_split_mode(e), s->number, &task->err);
}

static void act_encoded(struct gp_transfer *t)
{
	struct split_slot *s = send_encoded(t);
	if (s)
		s->state = SLOT_WAIT_ACT;
}

static void head_forward_done(struct gp_task *task)
{
	struct split_slot *s = task->arg;
	struct split_engine *e = s->e;
	if (!gp_split_task_ok(e, task))
		return;
	account_compute(e, GP_ACT_UP, task);
	gp_split_note_task(s, GP_AT_HEAD_FORWARD);
	e->forwarded++;
	e->forwards_idle = e->forwarded == e->end;
	s->pending = e->flows.used[GP_ACT_UP];
	for (int i = 0; i < e->cross->parts.body->inputs; i++) {
		const struct gp_port *from = &e->cross->parts.body_in[i];
		encode_tensor(s, &e->flows.flow[GP_ACT_UP][i],
			      from->from == GP_FROM_DATA ? s->data[i] : head_buffer(s, GP_BUF_OUTPUT, from->index),
			      act_encoded);
	}
}

void gp_split_send_again(struct split_slot *s)
{
	struct split_engine *e = s->e;
	for (int i = 0; i < e->flows.tensors[GP_ACT_UP]; i++)
		send_frame(e, &e->flows.flow[GP_ACT_UP][i].slot[s->index]);
}

/* Whether chunks have as many positions as their longest row: at the server, too, where it sees any of them. */
static bool drops_padding(const struct split_engine *e)
{
	return e->base.spec.drop_padding && e->device->ops->set_length &&
	       (gp_graph_sequence(e->cross->parts.body) == 0 || e->session.takes_lengths);
}

static void begin_chunk(struct split_engine *e, struct split_slot *s, uint64_t number)
{
	const struct split_batch *b = &e->batch[number >= e->batch[0].end];
	const int samples = gp_split_chunk_samples(e);
	const uint64_t chunks = (uint64_t)e->base.spec.session.chunks;
	s->batch = b->batch;
	s->first = (size_t)(number - b->first) * (size_t)samples;
	const int left = b->batch->valid - (int)s->first;
	s->valid = left < 0 ? 0 : left > samples ? samples : left;
	s->scale = b->scale;
	s->number = number;
	s->step = e->train ? number / chunks : e->step;
	s->chunk = (uint32_t)(e->train ? number % chunks : number);
	const uint32_t length = gp_batch_map_length(&e->map, s->batch, s->first, (size_t)samples, s->rows);
	s->length = drops_padding(e) ? length : 0;
	s->state = SLOT_FORWARD;
	submit(s, run_head_forward, finish_head, head_forward_done, GP_ORDER_FORWARD);
}

void gp_split_pump(struct split_engine *e)
{
	const uint64_t slots = (uint64_t)e->base.spec.session.window;
	const uint64_t in_flight = (uint64_t)e->session.window; /* the server may allow fewer than there are slots */
	while (gp_split_goes_on(e) && e->next < e->end && e->next - e->done < in_flight) {
		struct split_slot *s = &e->slot[e->next % slots];
		gp_require(s->state == SLOT_FREE);
		begin_chunk(e, s, e->next++);
	}
}

/* --- tail: forward, loss, backward ------------------------------------------------------------------------------- */

static void copy_outputs(struct split_slot *s)
{
	struct split_engine *e = s->e;
	const size_t row = gp_shape_elements(gp_graph_output_shape(e->cross->parts.tail));
	memcpy(e->outputs + s->first * row, tail_buffer(s, GP_BUF_OUTPUT, 0), (size_t)s->valid * row * sizeof(float));
}

static size_t head_output_bytes(const struct split_slot *s, int output)
{
	const struct gp_graph *g = s->e->cross->parts.head;
	const struct gp_graph_value *v = &g->value[g->output[output].value];
	const size_t sample = gp_shape_elements(&v->type.shape) * gp_dtype_bytes(v->type.dtype);
	const size_t positions = v->sequence && s->length > 0 ? (size_t)v->type.shape.dim[0] : 0;
	return (size_t)gp_split_chunk_samples(s->e) * (positions ? sample / positions * s->length : sample);
}

/* What the head made and the tail reads never leaves this side. */
static void copy_from_head(struct split_slot *s)
{
	const struct gp_graph_parts *p = &s->e->cross->parts;
	for (int i = 0; i < p->tail->inputs; i++)
		if (p->tail_in[i].from == GP_FROM_HEAD)
			memcpy(tail_buffer(s, GP_BUF_INPUT, i), head_buffer(s, GP_BUF_OUTPUT, p->tail_in[i].index),
			       head_output_bytes(s, p->tail_in[i].index));
}

static void run_tail(struct gp_task *task)
{
	struct split_slot *s = task->arg;
	struct split_engine *e = s->e;
	const struct gp_device_ops *ops = e->device->ops;
	copy_from_head(s);
	gp_plan_set_labels(e->tail_plan, s->index, e->outputs ? NULL : s->labels, s->valid);
	task->status = ops->forward(e->tail_plan, s->index, gp_split_mode(e), s->number, &task->err);
	s->forwarded_ns = gp_now_ns();
	if (task->status == GP_OK && e->outputs)
		copy_outputs(s);
	else if (task->status == GP_OK)
		task->status = ops->loss(e->tail_plan, s->index, s->labels, s->valid, e->train, s->scale, &s->loss,
					 &task->err);
	s->lost_ns = gp_now_ns();
	if (task->status == GP_OK && e->train)
		task->status = ops->queue_backward(e->tail_plan, s->index, &task->err);
}

static void begin_head_backward(struct split_slot *s);

static void grad_encoded(struct gp_transfer *t)
{
	struct split_slot *s = send_encoded(t);
	if (s)
		s->state = SLOT_WAIT_GRAD;
}

/* Where the body and all before it is frozen no gradient goes up, and the chunk is through here. */
static void tail_done(struct gp_task *task)
{
	struct split_slot *s = task->arg;
	struct split_engine *e = s->e;
	if (!gp_split_task_ok(e, task))
		return;
	account_compute(e, e->train ? GP_GRAD_UP : GP_ACT_DOWN, task);
	gp_split_note_tail(s);
	if (!e->train) {
		gp_split_chunk_done(s);
		return;
	}
	s->pending = e->flows.used[GP_GRAD_UP];
	if (s->pending == 0) {
		begin_head_backward(s);
		return;
	}
	for (int i = 0; i < e->cross->parts.tail->inputs; i++) {
		const struct gp_port *from = &e->cross->parts.tail_in[i];
		if (from->from == GP_FROM_BODY && e->flows.flow[GP_GRAD_UP][from->index].codec)
			encode_tensor(s, &e->flows.flow[GP_GRAD_UP][from->index], tail_buffer(s, GP_BUF_GRAD_INPUT, i),
				      grad_encoded);
	}
}

static void act_decoded(struct gp_transfer *t)
{
	struct split_slot *s = take_decoded(t);
	if (!s)
		return;
	gp_split_resend(s->e, s->number + 1);
	submit(s, run_tail, s->e->train ? finish_tail : NULL, tail_done, GP_ORDER_FIRST);
}

/* The tail's input that body output `output` is; every output of the body is read there. */
static int tail_input_of(const struct split_engine *e, int output)
{
	for (int i = 0; i < e->cross->parts.tail->inputs; i++)
		if (e->cross->parts.tail_in[i].from == GP_FROM_BODY && e->cross->parts.tail_in[i].index == output)
			return i;
	gp_require(false);
	return -1;
}

/* --- head backward ------------------------------------------------------------------------------------------------ */

static bool reaches_body(const struct split_engine *e, int output)
{
	for (int i = 0; i < e->cross->parts.body->inputs; i++)
		if (e->cross->parts.body_in[i].from == GP_FROM_HEAD && e->cross->parts.body_in[i].index == output)
			return e->cross->list.grad_inputs >> i & 1;
	return false;
}

/* The gradient of a value that the tail reads, too, is the tail's part plus the body's (graph_part.h). */
static void add_from_tail(struct split_slot *s)
{
	const struct split_engine *e = s->e;
	for (int i = 0; i < e->cross->parts.tail->inputs; i++) {
		const struct gp_port *from = &e->cross->parts.tail_in[i];
		if (from->from != GP_FROM_HEAD || !(e->cross->parts.tail_gradient >> i & 1))
			continue;
		float *to = head_buffer(s, GP_BUF_GRAD_OUTPUT, from->index);
		const float *part = tail_buffer(s, GP_BUF_GRAD_INPUT, i);
		const size_t bytes = head_output_bytes(s, from->index);
		if (!reaches_body(e, from->index))
			memcpy(to, part, bytes);
		else
			for (size_t k = 0; k < bytes / sizeof(float); k++)
				to[k] = part[k] + to[k];
	}
}

static void run_head_backward(struct gp_task *task)
{
	struct split_slot *s = task->arg;
	add_from_tail(s);
	task->status = s->e->device->ops->queue_backward(s->e->head_plan, s->index, &task->err);
}

static void head_backward_done(struct gp_task *task)
{
	struct split_slot *s = task->arg;
	if (!gp_split_task_ok(s->e, task))
		return;
	account_compute(s->e, GP_GRAD_DOWN, task);
	gp_split_note_task(s, GP_AT_HEAD_BACKWARD);
	gp_split_chunk_done(s);
}

static void begin_head_backward(struct split_slot *s)
{
	const struct split_engine *e = s->e;
	const struct gp_session_spec *session = &e->base.spec.session;
	s->state = SLOT_BACKWARD;
	if (e->cross->head_backward)
		submit(s, run_head_backward, finish_head, head_backward_done,
		       gp_order_backward(s->chunk, (uint64_t)session->chunks, (uint64_t)e->session.window, e->ahead));
	else
		gp_split_chunk_done(s);
}

static void grad_decoded(struct gp_transfer *t)
{
	struct split_slot *s = take_decoded(t);
	if (s)
		begin_head_backward(s);
}

static int head_output_of(const struct split_engine *e, int body_input)
{
	return e->cross->parts.body_in[body_input].index;
}

/* In place of GRAD_DOWN, where nothing before the cut is trained. */
enum gp_status gp_split_server_done(void *arg, uint64_t step, uint32_t chunk, struct gp_err *err)
{
	struct split_engine *e = arg;
	const uint64_t number = step * (uint64_t)e->base.spec.session.chunks + chunk;
	struct split_slot *s = &e->slot[number % (uint64_t)e->base.spec.session.window];
	if (!e->train || e->flows.used[GP_GRAD_UP] == 0 || e->flows.used[GP_GRAD_DOWN] > 0 || step != e->step ||
	    s->step != step || s->chunk != chunk || s->state != SLOT_WAIT_GRAD || number != e->next_grad[0])
		GP_FAIL(err, GP_PROTO, "the server's chunk_done of step %llu chunk %u is not expected here",
			(unsigned long long)step, chunk);
	e->next_grad[0]++; /* chunks are through in their order, as with GRAD_DOWN */
	const uint64_t now = gp_now_ns();
	gp_timeline_note_times(e->base.timeline, GP_AT_GRAD_DOWN_RECEIVED, number, now, now);
	begin_head_backward(s);
	return GP_OK;
}

/* --- frames from the server ---------------------------------------------------------------------------------------- */

static enum gp_status unexpected(const struct gp_frame_head *head, struct gp_err *err)
{
	GP_FAIL(err, GP_PROTO, "the server's %s of step %llu chunk %u is not expected here",
		gp_frame_type_name(head->type), (unsigned long long)head->step, head->chunk);
}

/* Each tensor's chunks come in order. The first tensor of a chunk moves its slot on. */
static enum gp_status take_frame(struct split_engine *e, const struct gp_frame_head *head, uint64_t number,
				 struct gp_err *err)
{
	const bool act = head->type == GP_FRAME_ACT_DOWN;
	struct split_slot *s = &e->slot[number % (uint64_t)e->base.spec.session.window];
	uint64_t *due = &(act ? e->next_act : e->next_grad)[head->tensor];
	const enum slot_state before = act ? SLOT_WAIT_ACT : SLOT_WAIT_GRAD, during = act ? SLOT_TAIL : SLOT_BACKWARD;
	const uint8_t flags = flags_of(e);
	const uint64_t bit = (uint64_t)1 << head->tensor;
	if (head->step != e->step || head->flags != flags || number != *due || s->number != number ||
	    head->length != wire_length(s) || (s->state != before && (s->state != during || s->arrived & bit)))
		return unexpected(head, err);
	if (s->state == before) {
		s->state = during;
		s->arrived = 0;
		s->pending = e->flows.used[act ? GP_ACT_DOWN : GP_GRAD_DOWN];
	}
	s->arrived |= bit;
	*due += 1;
	return GP_OK;
}

enum gp_status gp_split_frame_begin(void *arg, const struct gp_frame_head *head, struct gp_frame **out,
				    struct gp_err *err)
{
	struct split_engine *e = arg;
	struct gp_transfer *t;
	if (head->chunk >= (uint32_t)e->base.spec.session.chunks && e->train)
		return unexpected(head, err);
	const uint64_t number =
		e->train ? head->step * (uint64_t)e->base.spec.session.chunks + head->chunk : head->chunk;
	GP_TRY(gp_flows_take(&e->flows, head, (int)(number % (uint64_t)e->base.spec.session.window), &t, err));
	GP_TRY(take_frame(e, head, number, err));
	*out = &t->frame;
	return GP_OK;
}

enum gp_status gp_split_frame(void *arg, struct gp_frame *f, struct gp_err *err)
{
	(void)err;
	struct split_engine *e = arg;
	struct gp_transfer *t = gp_transfer_of(f);
	const struct split_slot *s = &e->slot[t->slot];
	const int tensor = t->flow->tensor;
	if (f->head.length == 0)
		tell_rows(s, t);
	if (f->head.type == GP_FRAME_ACT_DOWN)
		gp_transfer_decode(t, tail_buffer(s, GP_BUF_INPUT, tail_input_of(e, tensor)), act_decoded);
	else
		gp_transfer_decode(t, head_buffer(s, GP_BUF_GRAD_OUTPUT, head_output_of(e, tensor)), grad_decoded);
	return GP_OK;
}

/* An evaluation finds out by itself (forget_partial_answers). */
void gp_split_frame_lost(void *arg, const struct gp_frame *f)
{
	struct split_engine *e = arg;
	const struct gp_frame_head *head = &f->head;
	const uint64_t number = head->step * (uint64_t)e->base.spec.session.chunks + head->chunk;
	struct split_slot *s = &e->slot[number % (uint64_t)e->base.spec.session.window];
	if (!e->train || s->number != number)
		return;
	gp_place_lose(&(head->type == GP_FRAME_ACT_DOWN ? e->next_act : e->next_grad)[head->tensor], number);
	s->arrived &= ~((uint64_t)1 << head->tensor);
}

void gp_split_frame_sent(void *arg, struct gp_frame *f)
{
	struct split_engine *e = arg;
	struct gp_transfer *t = gp_transfer_of(f);
	if (!gp_split_goes_on(e))
		t->waiting = false;
	gp_split_note_crossed(e, t);
	gp_transfer_sent(t);
}
