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
#include "kernels/cuda/runtime/cuda_device.h"
#include "kernels/cuda/ops/k_elementwise.h"
#include "kernels/cuda/ops/k_fill.h"
#include "kernels/cuda/plan/cuda_plan_impl.h"
#include "kernels/cuda/plan/cuda_profile.h"

/* A graph of some hundred kernels takes about a megabyte: beyond so many slots calls are queued each time. */
#define GRAPH_SLOTS 64

static void *address(const struct cuda_plan *p, int slot, int buf)
{
	if (buf < 0)
		return NULL;
	const struct cuda_buf *b = &p->buf[buf];
	switch (b->place) {
	case CUDA_AT_IO:
		return p->slot[slot].io[b->io];
	case CUDA_AT_SLOT:
		return p->slot[slot].arena + b->offset;
	case CUDA_AT_SCRATCH:
		return p->track[b->track].scratch + b->offset;
	}
	return NULL;
}

static struct cuda_call call_of(struct cuda_plan *p, const struct cuda_node *n, int slot, enum cuda_track_index track)
{
	const struct cuda_track *t = &p->track[track];
	struct cuda_call c = {.plan = p, .node = n, .stream = t->stream, .blas = t->blas, .type = p->type};
	c.draw = p->slot[slot].draw;
	c.saved = address(p, slot, n->saved);
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

static void come_up(struct cuda_plan *p, int slot, enum gp_plan_buf io)
{
	if (!p->base.spec.device_io && p->io_bytes[io])
		gp_rt_copy_up(stream_of(p, io), p->slot[slot].io[io], p->slot[slot].host[io], p->io_bytes[io]);
}

static void go_down(struct cuda_plan *p, int slot, enum gp_plan_buf io)
{
	if (!p->base.spec.device_io && p->io_bytes[io])
		gp_rt_copy_down(stream_of(p, io), p->slot[slot].host[io], p->slot[slot].io[io], p->io_bytes[io]);
}

static bool lies_at(const struct cuda_plan *p, int buf, enum gp_plan_buf io)
{
	return p->buf[buf].place == CUDA_AT_IO && p->buf[buf].io == io;
}

/* Between an IO buffer (fp32) and where node `n`'s value or gradient lies. */
static void take_in(struct cuda_plan *p, int slot, enum gp_plan_buf io, int buf, const struct cuda_node *n)
{
	come_up(p, slot, io);
	if (!lies_at(p, buf, io))
		gpk_convert(stream_of(p, io), p->type, address(p, slot, buf), GP_RT_F32, p->slot[slot].io[io],
			    gp_cuda_elements(p, n));
}

static void give_out(struct cuda_plan *p, int slot, enum gp_plan_buf io, int buf, const struct cuda_node *n)
{
	if (!lies_at(p, buf, io))
		gpk_convert(stream_of(p, io), GP_RT_F32, p->slot[slot].io[io], p->type, address(p, slot, buf),
			    gp_cuda_elements(p, n));
	go_down(p, slot, io);
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static void forward_node(struct cuda_plan *p, const struct cuda_node *n, int slot, enum gp_mode mode)
{
	struct cuda_call c = call_of(p, n, slot, CUDA_FORWARDS);
	for (int k = 0; k < 2 && n->in[k] >= 0; k++)
		c.in[k] = address(p, slot, gp_cuda_input(p, n, k)->out);
	c.out = address(p, slot, n->out);
	c.tmp = address(p, slot, n->tmp_forward);
	c.mode = mode;
	gp_cuda_profile_start(p, n, c.stream);
	n->op->forward(&c);
	gp_cuda_profile_stop(p, n, c.stream);
}

static void queue_forward(struct cuda_plan *p, int slot, enum gp_mode mode)
{
	const int last = p->base.spec.graph->nodes - 1;
	if (p->draws && mode == GP_TRAIN)
		gp_rt_copy_up(p->stream, p->slot[slot].draw, p->slot[slot].host_draw, sizeof(uint64_t));
	take_in(p, slot, GP_BUF_INPUT, p->node[0].out, &p->node[0]);
	for (int i = 1; i <= last; i++)
		if (!p->node[i].absorbed && !p->node[i].view)
			forward_node(p, &p->node[i], slot, mode);
	give_out(p, slot, GP_BUF_OUTPUT, p->node[last].out, &p->node[last]);
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* Gradients that are handed on: only where two contributions meet, or at the plan's edge, is anything moved. */
static void pass_gradient(struct cuda_plan *p, const struct cuda_node *n, int slot, int k)
{
	struct gp_rt_stream *s = p->track[CUDA_BACKWARDS].stream;
	const void *dout = address(p, slot, n->dout);
	void *dx = address(p, slot, n->dx[k]);
	const int64_t count = gp_cuda_elements(p, gp_cuda_input(p, n, k));
	if (n->add[k])
		gpk_add(s, p->type, dx, dx, dout, count);
	else if (n->dx_add[k] >= 0)
		gpk_add(s, p->type, dx, dout, address(p, slot, n->dx_add[k]), count);
	else if (n->dx[k] != n->dout)
		gp_rt_copy(s, dx, dout, (size_t)count * gp_rt_type_bytes(p->type));
}

static struct cuda_call gradient_call(struct cuda_plan *p, const struct cuda_node *n, int slot,
				      enum cuda_track_index track)
{
	struct cuda_call c = call_of(p, n, slot, track);
	c.mode = GP_TRAIN;
	if (n->saves_input)
		c.in[0] = address(p, slot, gp_cuda_input(p, n, 0)->out);
	c.dout = address(p, slot, n->dout);
	return c;
}

static struct cuda_call backward_call(struct cuda_plan *p, const struct cuda_node *n, int slot)
{
	struct cuda_call c = gradient_call(p, n, slot, CUDA_BACKWARDS);
	if (n->saves_output)
		c.out = address(p, slot, n->out);
	c.tmp = address(p, slot, n->tmp_backward);
	for (int k = 0; k < 2; k++)
		if (n->dx[k] >= 0 && !n->pass[k]) {
			c.dx[k] = address(p, slot, n->dx[k]);
			c.add[k] = n->add[k];
		}
	return c;
}

/* A node that is measured has everything on one stream. */
static bool runs_aside(const struct cuda_plan *p)
{
	return !p->profile;
}

static void weight_gradient(struct cuda_plan *p, const struct cuda_node *n, int slot)
{
	struct cuda_call c = gradient_call(p, n, slot, runs_aside(p) ? CUDA_WEIGHTS : CUDA_BACKWARDS);
	c.tmp = address(p, slot, n->tmp_weight);
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

/* Handing on comes before: the op may work in dout's place. */
static void backward_node(struct cuda_plan *p, const struct cuda_node *n, int slot)
{
	struct gp_rt_stream *s = p->track[CUDA_BACKWARDS].stream;
	await_weight_gradient(p, n->await);
	gp_cuda_profile_start(p, n, s);
	for (int k = 0; k < 2; k++)
		if (n->dx[k] >= 0 && n->pass[k])
			pass_gradient(p, n, slot, k);
	if (n->job > 0)
		weight_gradient(p, n, slot);
	if (!n->view && !n->op->passes_gradient) {
		const struct cuda_call c = backward_call(p, n, slot);
		n->op->backward(&c);
		for (int k = 0; k < 2; k++)
			if (c.dx[k] && n->dx_add[k] >= 0)
				gpk_add(s, p->type, c.dx[k], c.dx[k], address(p, slot, n->dx_add[k]),
					gp_cuda_elements(p, gp_cuda_input(p, n, k)));
	}
	gp_cuda_profile_stop(p, n, s);
}

static void queue_backward(struct cuda_plan *p, int slot)
{
	const int last = p->base.spec.graph->nodes - 1;
	take_in(p, slot, GP_BUF_GRAD_OUTPUT, p->grad_output, &p->node[last]);
	for (int i = last; i > 0; i--)
		if (p->node[i].need_grad)
			backward_node(p, &p->node[i], slot);
	if (p->grad_input >= 0)
		give_out(p, slot, GP_BUF_GRAD_INPUT, p->grad_input, &p->node[0]);
	if (p->jobs > p->jobs_awaited)
		await_weight_gradient(p, p->jobs);
}

/* --- graphs ------------------------------------------------------------------------------------------------------- */

static void queue(struct cuda_plan *p, int slot, enum cuda_run what)
{
	if (what == CUDA_RUN_BACKWARD)
		queue_backward(p, slot);
	else
		queue_forward(p, slot, what == CUDA_RUN_TRAIN ? GP_TRAIN : GP_EVAL);
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

/* Where no graph can be made, such as for want of memory, calls are queued each time. */
static bool has_graph(struct cuda_plan *p, int slot, enum cuda_run what)
{
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
	if (has_graph(p, slot, what))
		gp_rt_graph_launch(p->slot[slot].graph[what], s);
	else
		queue(p, slot, what);
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
	gp_cuda_profile_collect(p, what == CUDA_RUN_BACKWARD ? CUDA_PROFILE_BACKWARD : CUDA_PROFILE_FORWARD);
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
	for (int i = 1; i < p->base.spec.graph->nodes; i++) {
		const struct cuda_node *n = &p->node[i];
		if (n->absorbed || n->view || !n->op->pack)
			continue;
		const struct cuda_call c = call_of(p, n, 0, CUDA_FORWARDS);
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

void gp_cuda_repack(struct cuda_plan *p)
{
	if (p->narrow && p->narrow_stale)
		gpk_convert(p->stream, p->type, p->narrow, GP_RT_F32, p->values, (int64_t)p->value_floats);
	if (p->packs_stale && p->pack_bytes > 0)
		renew_packs(p);
	p->narrow_stale = p->packs_stale = false;
}

enum gp_status gp_cuda_queue_forward(struct gp_plan *plan, int slot, enum gp_mode mode, uint64_t draw,
				     struct gp_err *err)
{
	struct cuda_plan *p = (struct cuda_plan *)plan;
	gp_require(slot >= 0 && slot < plan->spec.slots);
	if (mode == GP_TRAIN)
		GP_TRY(gp_cuda_check_training(plan, err));
	gp_cuda_repack(p);
	if (mode == GP_TRAIN)
		gp_cuda_undo_save(p);
	p->slot[slot].forwarded = mode == GP_TRAIN;
	*p->slot[slot].host_draw = draw;
	return launch_measured(p, slot, mode == GP_TRAIN ? CUDA_RUN_TRAIN : CUDA_RUN_EVAL, err);
}

enum gp_status gp_cuda_queue_backward(struct gp_plan *plan, int slot, struct gp_err *err)
{
	struct cuda_plan *p = (struct cuda_plan *)plan;
	gp_require(slot >= 0 && slot < plan->spec.slots);
	if (!p->slot[slot].forwarded)
		GP_FAIL(err, GP_INTERNAL, "backward of %s without a training forward in slot %d",
			plan->spec.graph->name, slot);
	p->slot[slot].forwarded = false;
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

static bool overwritten_later(const struct cuda_plan *p, const struct cuda_node *n)
{
	for (int i = n->index + 1; i < p->base.spec.graph->nodes; i++)
		if (p->node[i].out == n->out && !p->node[i].view)
			return true;
	return false;
}

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
	if (n->absorbed || p->buf[n->out].place == CUDA_AT_SCRATCH || overwritten_later(p, n))
		GP_FAIL(err, GP_UNSUPPORTED, "the value of %s is not kept", plan->spec.graph->node[index].name);
	return copy_value(p, address(p, slot, n->out), out, gp_cuda_elements(p, n), err);
}
