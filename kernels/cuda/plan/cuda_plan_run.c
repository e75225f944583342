/* SPDX-License-Identifier: Apache-2.0
 *
 * Running a CUDA plan. What a slot does in one direction is queued once by
 * hand, so that libraries load what they need, then captured as a graph and
 * launched. Everything was decided when the plan was made; here are only
 * addresses and calls.
 *
 * A slot's backward waits for its forward, by an event; else forwards and
 * backwards meet only where something else is asked of the plan. Within a
 * backward the weights' gradients are a branch that leaves the chain at each
 * node that has one, and comes back where cuda_plan_layout.c says.
 *
 * See cuda_plan.h. Test: tests/unit/test_cuda_plan.c, tests/unit/test_cuda_flight.c
 */
#include <string.h>

#include "common/base/mem.h"
#include "kernels/cuda/ops/k_elementwise.h"
#include "kernels/cuda/ops/k_fill.h"
#include "kernels/cuda/plan/cuda_code.h"
#include "kernels/cuda/plan/cuda_device.h"
#include "kernels/cuda/plan/cuda_plan_impl.h"
#include "kernels/cuda/plan/cuda_profile.h"
#include "kernels/plan/plan_again.h"

/* A graph of some hundred kernels takes about a megabyte: beyond so many slots calls are queued each time. */
#define GRAPH_SLOTS 64

void *gp_cuda_buf(const struct cuda_plan *p, int slot, int buf)
{
	if (buf < 0)
		return NULL;
	const struct gp_buf *b = &p->walk.buf[buf];
	switch (b->place) {
	case GP_AT_IO:
		return p->slot[slot].io[b->port];
	case GP_AT_SLOT:
		return p->slot[slot].arena + b->offset;
	case GP_AT_SCRATCH:
		return p->track[b->pool].scratch + b->offset;
	}
	return NULL;
}

/* `later`: in the second of two forwards, or backward (plan_again.h). */
static void *address_at(const struct cuda_plan *p, int slot, int buf, bool later)
{
	return gp_cuda_buf(p, slot, later ? gp_walk_later(&p->walk, buf) : buf);
}

static void *value_address(const struct cuda_plan *p, int slot, int value, bool later)
{
	return address_at(p, slot, p->walk.value[value], later);
}

/* A call's addresses: as many of each as the node has inputs, or outputs, and of inputs two at least. */
struct addresses {
	const void *in[GP_NODE_MAX_INPUTS], *dout[GP_NODE_MAX_OUTPUTS];
	void *out[GP_NODE_MAX_OUTPUTS], *dx[GP_NODE_MAX_INPUTS];
};

/* What a convolution and the batch norms that it works with have of each other. */
static void add_neighbours(const struct cuda_plan *p, const struct cuda_node *n, int slot, bool later,
			   struct cuda_call *c)
{
	const struct cuda_node *conv = n->before || n->behind            ? n
				       : n->fed_by && n->fed_by->chained ? n->fed_by
									 : n->conv;
	if (!conv)
		return;
	if (conv->before) {
		c->before_saved = gp_cuda_buf(p, slot, conv->before->base.saved);
		c->before_room = gp_cuda_buf(p, slot, conv->before->returned);
	}
	if (conv->behind)
		c->behind_saved = gp_cuda_buf(p, slot, conv->behind->base.saved);
	if (conv->chained) {
		c->conv_in = value_address(p, slot, conv->base.in[0], later);
		c->conv_dout = gp_cuda_buf(p, slot, p->walk.grad[conv->base.first_value]);
	}
}

static struct cuda_call call_of(struct cuda_plan *p, const struct cuda_node *n, int slot, enum cuda_track_index track,
				bool later)
{
	const struct cuda_track *t = &p->track[track];
	struct cuda_call c = {.plan = p, .node = n, .stream = t->stream, .blas = t->blas, .type = p->type};
	c.draw = p->slot[slot].draw;
	c.updates = p->slot[slot].draw + 1;
	add_neighbours(p, n, slot, later, &c);
	c.saved = address_at(p, slot, n->base.saved, later);
	if (n->pack_bytes)
		c.pack = p->packs + n->pack_offset;
	return c;
}

/* --- the plan's edge ---------------------------------------------------------------------------------------------- */

/* The stream on which what arrives in, or leaves from, this buffer is worked on. */
static struct gp_rt_stream *stream_of(const struct cuda_plan *p, enum gp_plan_buf io)
{
	return p->track[io == GP_BUF_INPUT || io == GP_BUF_OUTPUT ? CUDA_FORWARDS : CUDA_BACKWARDS].stream;
}

/* What a value or gradient takes in an IO buffer, as long as the chunk has it. */
static size_t edge_bytes(const struct cuda_plan *p, int value)
{
	return (size_t)gp_walk_elements(&p->walk, value) * sizeof(float); /* of integers, too */
}

/* Between an IO buffer (fp32, or i32) and where a value or gradient lies, and between it and the host's. */
static void take_in(struct cuda_plan *p, int slot, enum gp_plan_buf io, int index, int value, int buf)
{
	const int port = gp_walk_port(&p->walk, io, index);
	if (!p->base.spec.device_io)
		gp_rt_copy_up(stream_of(p, io), p->slot[slot].io[port], p->slot[slot].host[port], edge_bytes(p, value));
	if (!gp_walk_lies_at(&p->walk, buf, io, index))
		gpk_convert(stream_of(p, io), p->type, gp_cuda_buf(p, slot, buf), GP_RT_F32, p->slot[slot].io[port],
			    gp_walk_elements(&p->walk, value));
}

static void give_out(struct cuda_plan *p, int slot, enum gp_plan_buf io, int index, int value, int buf)
{
	const int port = gp_walk_port(&p->walk, io, index);
	if (!gp_walk_lies_at(&p->walk, buf, io, index))
		gpk_convert(stream_of(p, io), GP_RT_F32, p->slot[slot].io[port], p->type, gp_cuda_buf(p, slot, buf),
			    gp_walk_elements(&p->walk, value));
	if (!p->base.spec.device_io)
		gp_rt_copy_down(stream_of(p, io), p->slot[slot].host[port], p->slot[slot].io[port],
				edge_bytes(p, value));
}

/* All inputs, or all gradients of outputs; a value that has none is passed over. */
static void take_all_in(struct cuda_plan *p, int slot, enum gp_plan_buf io)
{
	const struct gp_graph *g = p->base.spec.graph;
	const bool forward = io == GP_BUF_INPUT;
	for (int i = 0; i < (forward ? g->inputs : g->outputs); i++) {
		const int value = forward ? gp_walk_input(&p->walk, i) : gp_walk_output(&p->walk, i);
		if (gp_walk_port(&p->walk, io, i) >= 0)
			take_in(p, slot, io, i, value, forward ? p->walk.value[value] : p->walk.edge_grad[i]);
	}
}

static void give_all_out(struct cuda_plan *p, int slot, enum gp_plan_buf io)
{
	const struct gp_graph *g = p->base.spec.graph;
	const bool forward = io == GP_BUF_OUTPUT;
	for (int i = 0; i < (forward ? g->outputs : g->inputs); i++) {
		const int value = forward ? gp_walk_output(&p->walk, i) : gp_walk_input(&p->walk, i);
		const int buf = forward ? p->walk.value[value] : p->walk.grad[value];
		if (gp_walk_port(&p->walk, io, i) >= 0 && buf >= 0)
			give_out(p, slot, io, i, value, buf);
	}
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static void find_inputs(const struct cuda_plan *p, const struct cuda_node *n, int slot, uint64_t mask, bool later,
			struct addresses *at)
{
	at->in[0] = at->in[1] = NULL;
	for (int k = 0; k < n->base.inputs; k++)
		at->in[k] = mask >> k & 1 ? value_address(p, slot, n->base.in[k], later) : NULL;
}

static void find_outputs(const struct cuda_plan *p, const struct cuda_node *n, int slot, uint64_t mask, bool later,
			 struct addresses *at)
{
	for (int j = 0; j < n->base.outputs; j++)
		at->out[j] = mask >> j & 1 ? value_address(p, slot, n->base.first_value + j, later) : NULL;
}

/* `again`: the second of two. */
static void run_forward(struct cuda_plan *p, const struct cuda_node *n, int slot, enum gp_mode mode, bool again)
{
	struct addresses at;
	struct cuda_call c = call_of(p, n, slot, again ? CUDA_BACKWARDS : CUDA_FORWARDS, again);
	find_inputs(p, n, slot, GP_WALK_ALL, again, &at);
	find_outputs(p, n, slot, GP_WALK_ALL, again, &at);
	c.in = at.in;
	c.out = at.out;
	c.tmp = address_at(p, slot, n->base.tmp[0], again);
	c.mode = mode;
	c.again = again;
	n->op->forward(&c);
}

/* What has had its last reader is encoded, and counts as this node's time. */
static void forward_node(struct cuda_plan *p, const struct cuda_node *n, int slot, enum gp_mode mode, int *encoded)
{
	const bool runs = !n->base.absent && !n->base.view;
	if (runs)
		gp_cuda_profile_start(p, n, p->stream);
	if (runs)
		run_forward(p, n, slot, mode, false);
	if (mode == GP_TRAIN)
		gp_cuda_store_after(p, slot, n->base.index, encoded);
	if (runs)
		gp_cuda_profile_stop(p, n, p->stream);
}

static void queue_forward(struct cuda_plan *p, int slot, enum gp_mode mode)
{
	const struct gp_graph *g = p->base.spec.graph;
	if (p->draws && mode == GP_TRAIN)
		gp_rt_copy_up(p->stream, p->slot[slot].draw, p->slot[slot].host_draw,
			      CUDA_SLOT_WORDS * sizeof(uint64_t));
	take_all_in(p, slot, GP_BUF_INPUT);
	for (int i = g->inputs, encoded = 0; i < g->nodes; i++)
		forward_node(p, &p->node[i], slot, mode, &encoded);
	give_all_out(p, slot, GP_BUF_OUTPUT);
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* Gradients that are handed on: only where two contributions meet is anything moved. */
static void pass_gradient(struct cuda_plan *p, const struct cuda_node *n, int slot, int k)
{
	struct gp_rt_stream *s = p->track[CUDA_BACKWARDS].stream;
	const int dout = p->walk.grad[n->base.first_value];
	void *dx = gp_cuda_buf(p, slot, n->base.dx[k]);
	const int64_t count = gp_cuda_in_elements(p, n, k);
	if (n->base.add >> k & 1)
		gpk_add(s, p->type, dx, dx, gp_cuda_buf(p, slot, dout), count);
	else if (n->base.dx_add[k] >= 0)
		gpk_add(s, p->type, dx, gp_cuda_buf(p, slot, dout), gp_cuda_buf(p, slot, n->base.dx_add[k]), count);
}

/* What backward reads. */
static struct cuda_call gradient_call(struct cuda_plan *p, const struct cuda_node *n, int slot,
				      enum cuda_track_index track, struct addresses *at)
{
	struct cuda_call c = call_of(p, n, slot, track, true);
	c.mode = GP_TRAIN;
	find_inputs(p, n, slot, n->base.saves_in, true, at);
	find_outputs(p, n, slot, n->base.saves_out, true, at);
	for (int j = 0; j < n->base.outputs; j++)
		at->dout[j] = gp_cuda_buf(p, slot, p->walk.grad[n->base.first_value + j]);
	c.in = at->in;
	c.out = at->out;
	c.dout = at->dout;
	return c;
}

static void run_backward(struct cuda_plan *p, const struct cuda_node *n, int slot)
{
	struct gp_rt_stream *s = p->track[CUDA_BACKWARDS].stream;
	struct addresses at;
	struct cuda_call c = gradient_call(p, n, slot, CUDA_BACKWARDS, &at);
	c.tmp = gp_cuda_buf(p, slot, n->returned >= 0 ? n->returned : n->base.tmp[1]);
	at.dx[0] = at.dx[1] = NULL;
	for (int k = 0; k < n->base.inputs; k++)
		at.dx[k] = gp_walk_passes(&n->base, k) ? NULL : gp_cuda_buf(p, slot, n->base.dx[k]);
	c.dx = at.dx;
	c.add = n->base.add;
	n->op->backward(&c);
	for (int k = 0; k < n->base.inputs; k++)
		if (at.dx[k])
			gp_cuda_gradient_code(p, n, at.dx[k], gp_cuda_in_elements(p, n, k));
	for (int k = 0; k < n->base.inputs; k++)
		if (at.dx[k] && n->base.dx_add[k] >= 0)
			gpk_add(s, p->type, at.dx[k], at.dx[k], gp_cuda_buf(p, slot, n->base.dx_add[k]),
				gp_cuda_in_elements(p, n, k));
}

/* A node that is measured has everything on one stream. */
static bool runs_aside(const struct cuda_plan *p)
{
	return !p->profile;
}

static void weight_gradient(struct cuda_plan *p, const struct cuda_node *n, int slot)
{
	struct addresses at;
	struct cuda_call c = gradient_call(p, n, slot, runs_aside(p) ? CUDA_WEIGHTS : CUDA_BACKWARDS, &at);
	c.tmp = gp_cuda_buf(p, slot, n->tmp_weight);
	if (!runs_aside(p)) {
		n->op->backward_weight(&c);
		return;
	}
	gp_rt_event_record(p->dout_done, p->track[CUDA_BACKWARDS].stream);
	gp_rt_stream_after(c.stream, p->dout_done);
	n->op->backward_weight(&c);
	gp_rt_event_record(p->job_done[n->job % CUDA_WEIGHTS_BEHIND], c.stream);
}

static void await_weight_gradient(struct cuda_plan *p, int job)
{
	if (job > 0 && runs_aside(p))
		gp_rt_stream_after(p->track[CUDA_BACKWARDS].stream, p->job_done[job % CUDA_WEIGHTS_BEHIND]);
}

/* Ahead of the backward of a block's last node: what its forward made and has not kept, a second time. */
static void run_again(struct cuda_plan *p, int node, int slot)
{
	if (!gp_walk_recomputes(&p->walk) || gp_walk_block_end(&p->walk, node) != node + 1)
		return;
	for (int i = gp_walk_block_from(&p->walk, node); i <= node; i++)
		if (p->node[i].base.again)
			run_forward(p, &p->node[i], slot, GP_TRAIN, true);
}

/* What comes before it counts as this node's time, and lies where weight gradients that have been awaited read. Handing on comes
 * first: the op may work in dout's place. */
static void backward_node(struct cuda_plan *p, const struct cuda_node *n, int slot, int *decoded)
{
	struct gp_rt_stream *s = p->track[CUDA_BACKWARDS].stream;
	await_weight_gradient(p, n->await);
	gp_cuda_profile_start(p, n, s);
	run_again(p, n->base.index, slot);
	gp_cuda_store_before(p, slot, n->base.index, decoded);
	for (int k = 0; k < n->base.inputs; k++)
		if (n->base.dx[k] >= 0 && gp_walk_passes(&n->base, k))
			pass_gradient(p, n, slot, k);
	if (n->job > 0)
		weight_gradient(p, n, slot);
	if (gp_walk_works_backward(&n->base))
		run_backward(p, n, slot);
	gp_cuda_profile_stop(p, n, s);
}

static void queue_backward(struct cuda_plan *p, int slot)
{
	const struct gp_graph *g = p->base.spec.graph;
	take_all_in(p, slot, GP_BUF_GRAD_OUTPUT);
	gp_cuda_store_edges(p, slot);
	for (int i = g->nodes - 1, decoded = 0; i >= g->inputs; i--)
		if (p->node[i].base.need_grad)
			backward_node(p, &p->node[i], slot, &decoded);
		else
			run_again(p, i, slot);
	give_all_out(p, slot, GP_BUF_GRAD_INPUT);
	if (p->jobs > p->jobs_awaited)
		await_weight_gradient(p, p->jobs);
}

/* --- graphs ------------------------------------------------------------------------------------------------------- */

static void queue(struct cuda_plan *p, int slot, enum cuda_run what)
{
	static const enum gp_mode mode[] = {
		[CUDA_RUN_TRAIN] = GP_TRAIN, [CUDA_RUN_EVAL] = GP_EVAL, [CUDA_RUN_CALIBRATE] = GP_CALIBRATE};
	if (what == CUDA_RUN_BACKWARD)
		queue_backward(p, slot);
	else
		queue_forward(p, slot, mode[what]);
}

static struct gp_rt_stream *stream_for(const struct cuda_plan *p, enum cuda_run what)
{
	return p->track[what == CUDA_RUN_BACKWARD ? CUDA_BACKWARDS : CUDA_FORWARDS].stream;
}

static enum gp_status capture(struct cuda_plan *p, int slot, enum cuda_run what, struct gp_err *err)
{
	GP_TRY(gp_rt_capture_begin(stream_for(p, what), err));
	queue(p, slot, what);
	return gp_rt_capture_end(stream_for(p, what), &p->slot[slot].graph[what], err);
}

/* Where no graph can be made, such as for want of memory, calls are queued each time; so are those of a calibration, which
 * are few, and not all alike, and those of chunks of their own length. */
static bool has_graph(struct cuda_plan *p, int slot, enum cuda_run what)
{
	if (what == CUDA_RUN_CALIBRATE || p->slot[slot].length > 0)
		return false;
	if (!p->warm[what] || p->profile || p->without_graphs || p->base.spec.slots > GRAPH_SLOTS)
		return false;
	if (!p->slot[slot].graph[what])
		p->without_graphs = capture(p, slot, what, &p->no_graph) != GP_OK;
	return !p->without_graphs;
}

const char *gp_cuda_without_graphs(const struct gp_plan *plan)
{
	const struct cuda_plan *p = (const struct cuda_plan *)plan;
	return p->without_graphs ? p->no_graph.text : NULL;
}

/* A backward comes after its forward. Whatever else it needs has happened before that, or was waited for. */
static void launch(struct cuda_plan *p, int slot, enum cuda_run what)
{
	struct gp_rt_stream *s = stream_for(p, what);
	if (what == CUDA_RUN_BACKWARD)
		gp_rt_stream_after(s, p->slot[slot].done);
	gp_walk_set_length(&p->walk, p->slot[slot].length);
	if (has_graph(p, slot, what))
		gp_rt_graph_launch(p->slot[slot].graph[what], s);
	else
		queue(p, slot, what);
	gp_walk_set_length(&p->walk, 0);
	p->warm[what] = true;
	gp_rt_event_record(p->slot[slot].done, s);
}

/* A node's events are there once: the next call would take them over. */
static enum gp_status launch_measured(struct cuda_plan *p, int slot, enum cuda_run what, struct gp_err *err)
{
	launch(p, slot, what);
	if (!p->profile)
		return GP_OK;
	GP_TRY(gp_cuda_wait_for(&p->base, slot, err));
	gp_walk_set_length(&p->walk, p->slot[slot].length);
	gp_cuda_profile_collect(p, what == CUDA_RUN_BACKWARD ? CUDA_PROFILE_BACKWARD : CUDA_PROFILE_FORWARD);
	gp_walk_set_length(&p->walk, 0);
	return GP_OK;
}

enum gp_status gp_cuda_wait_for(struct gp_plan *plan, int slot, struct gp_err *err)
{
	struct cuda_plan *p = (struct cuda_plan *)plan;
	if (slot == GP_SLOT_UPDATE)
		return gp_rt_event_wait(p->update_done, err);
	gp_require(slot >= 0 && slot < plan->spec.slots);
	const enum gp_status status = gp_rt_event_wait(p->slot[slot].done, err);
	if (status != GP_OK)
		p->slot[slot].forwarded = false;
	return status;
}

static void queue_packs(struct cuda_plan *p)
{
	for (int i = 0; i < p->base.spec.graph->nodes; i++) {
		const struct cuda_node *n = &p->node[i];
		if (n->base.absent || n->base.view || !n->op->pack)
			continue;
		const struct cuda_call c = call_of(p, n, 0, CUDA_FORWARDS, false);
		n->op->pack(&c);
	}
}

static enum gp_status capture_packs(struct cuda_plan *p, struct gp_err *err)
{
	GP_TRY(gp_rt_capture_begin(p->stream, err));
	queue_packs(p);
	return gp_rt_capture_end(p->stream, &p->packs_graph, err);
}

/* A kernel for every weight after every update: as graphs of slots, by hand the first time. */
static void renew_packs(struct cuda_plan *p)
{
	if (p->packs_warm && !p->packs_graph && !p->profile && !p->without_graphs)
		p->without_graphs = capture_packs(p, &p->no_graph) != GP_OK;
	if (p->packs_graph && !p->profile)
		gp_rt_graph_launch(p->packs_graph, p->stream);
	else
		queue_packs(p);
	p->packs_warm = true;
}

/* From what forward and backward read, which is decoded where it is trained and coded. */
static void renew_narrow(struct cuda_plan *p)
{
	const uint64_t decoded = p->decoded ? p->trained_floats : 0;
	char *const narrow = p->narrow;
	if (decoded > 0)
		gpk_convert(p->stream, p->type, narrow, GP_RT_F32, p->decoded, (int64_t)decoded);
	if (decoded < p->value_floats)
		gpk_convert(p->stream, p->type, narrow + decoded * gp_rt_type_bytes(p->type), GP_RT_F32,
			    p->values + decoded, (int64_t)(p->value_floats - decoded));
}

void gp_cuda_repack(struct cuda_plan *p)
{
	if (p->packs_stale)
		gp_cuda_weights_decode(p);
	if (p->narrow && p->narrow_stale)
		renew_narrow(p);
	if (p->packs_stale && p->pack_bytes > 0)
		renew_packs(p);
	p->narrow_stale = p->packs_stale = false;
}

/* What a step, or a calibration, has merged so far is its own: the other begins with nothing. */
static enum gp_status begin_mode(struct cuda_plan *p, enum gp_mode mode, uint64_t draw, struct gp_err *err)
{
	if (mode == GP_CALIBRATE && !p->base.spec.calibrate)
		GP_FAIL(err, GP_INTERNAL, "the plan of %s was not made to calibrate", p->base.spec.graph->name);
	if (mode == GP_TRAIN)
		GP_TRY(gp_cuda_check_training(&p->base, err));
	if ((mode == GP_TRAIN && p->calibrated > 0) || (mode == GP_CALIBRATE && draw == 0)) {
		gp_cuda_bn_forget(p);
		p->calibrated = 0;
	}
	p->calibrates = mode == GP_CALIBRATE && draw == p->calibrated;
	p->calibrated += p->calibrates;
	return GP_OK;
}

static enum cuda_run run_of(enum gp_mode mode)
{
	return mode == GP_TRAIN ? CUDA_RUN_TRAIN : mode == GP_EVAL ? CUDA_RUN_EVAL : CUDA_RUN_CALIBRATE;
}

void gp_cuda_set_length(struct gp_plan *plan, int slot, int64_t length)
{
	struct cuda_plan *p = (struct cuda_plan *)plan;
	const int64_t most = gp_graph_sequence(plan->spec.graph);
	gp_require(slot >= 0 && slot < plan->spec.slots && length >= 0);
	gp_require(gp_sequence_length_ok(most, (uint64_t)length));
	p->slot[slot].length = length < most ? length : 0;
	p->slot[slot].forwarded = false;
}

enum gp_status gp_cuda_queue_forward(struct gp_plan *plan, int slot, enum gp_mode mode, uint64_t draw,
				     struct gp_err *err)
{
	struct cuda_plan *p = (struct cuda_plan *)plan;
	gp_require(slot >= 0 && slot < plan->spec.slots);
	GP_TRY(begin_mode(p, mode, draw, err));
	gp_cuda_repack(p);
	if (mode == GP_TRAIN)
		gp_cuda_undo_save(p);
	p->slot[slot].forwarded = mode == GP_TRAIN;
	p->slot[slot].host_draw[0] = draw;
	p->slot[slot].host_draw[1] = p->optim_steps;
	return launch_measured(p, slot, run_of(mode), err);
}

enum gp_status gp_cuda_queue_backward(struct gp_plan *plan, int slot, struct gp_err *err)
{
	struct cuda_plan *p = (struct cuda_plan *)plan;
	gp_require(slot >= 0 && slot < plan->spec.slots);
	if (!p->slot[slot].forwarded)
		GP_FAIL(err, GP_INTERNAL, "backward of %s without a training forward in slot %d",
			plan->spec.graph->name, slot);
	p->slot[slot].forwarded = false;
	p->grads_coded = false;
	return launch_measured(p, slot, CUDA_RUN_BACKWARD, err);
}

enum gp_status gp_cuda_forward(struct gp_plan *plan, int slot, enum gp_mode mode, uint64_t draw, struct gp_err *err)
{
	GP_TRY(gp_cuda_queue_forward(plan, slot, mode, draw, err));
	return gp_cuda_wait_for(plan, slot, err);
}

enum gp_status gp_cuda_backward(struct gp_plan *plan, int slot, struct gp_err *err)
{
	GP_TRY(gp_cuda_queue_backward(plan, slot, err));
	return gp_cuda_wait_for(plan, slot, err);
}

/* --- values ------------------------------------------------------------------------------------------------------- */

static enum gp_status copy_value(struct cuda_plan *p, const void *value, float *out, int64_t count, struct gp_err *err)
{
	const size_t bytes = (size_t)count * gp_rt_type_bytes(p->type);
	gp_rt_copy_down(gp_cuda_behind_all(p), out, value, bytes);
	GP_TRY(gp_cuda_wait(p, err));
	if (p->type == GP_RT_F32)
		return GP_OK;
	const uint16_t *narrow = (const uint16_t *)out; /* widened from the end: the first half of `out` */
	for (int64_t i = count - 1; i >= 0; i--) {
		const uint32_t wide = (uint32_t)narrow[i] << 16;
		memcpy(&out[i], &wide, sizeof wide);
	}
	return GP_OK;
}

/* Only values that still exist: kept for backward, or the plan's own input and output. */
enum gp_status gp_cuda_node_get(struct gp_plan *plan, int slot, int index, float *out, struct gp_err *err)
{
	struct cuda_plan *p = (struct cuda_plan *)plan;
	gp_require(slot >= 0 && slot < plan->spec.slots);
	if (index < 0 || index >= plan->spec.graph->nodes)
		GP_FAIL(err, GP_INTERNAL, "%s has no node %d", plan->spec.graph->name, index);
	const struct cuda_node *n = &p->node[index];
	const char *name = plan->spec.graph->node[index].name;
	const int value = n->base.first_value, buf = p->walk.value[value];
	if (gp_walk_type(&p->walk, value)->dtype != GP_F32)
		GP_FAIL(err, GP_UNSUPPORTED, "the value of %s is not f32", name);
	if (buf < 0 || n->base.unwritten || p->walk.buf[buf].place == GP_AT_SCRATCH ||
	    gp_walk_overwritten(&p->walk, &n->base))
		GP_FAIL(err, GP_UNSUPPORTED, "the value of %s is not kept", name);
	gp_walk_set_length(&p->walk, p->slot[slot].length);
	const int64_t count = gp_cuda_elements(p, n);
	gp_walk_set_length(&p->walk, 0);
	return copy_value(p, gp_cuda_buf(p, slot, buf), out, count, err);
}
