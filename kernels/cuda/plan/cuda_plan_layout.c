/* SPDX-License-Identifier: Apache-2.0
 *
 * Where every value, gradient and working room of a CUDA plan lies. One walk
 * through the step in execution order notes from when to when each buffer is
 * in use: moment i is node i forward, moment 2*nodes - i is node i backward.
 * Then buffers whose lifetimes are apart share scratch memory.
 *
 * - A value that some backward reads is kept in its slot's arena, everything else lies in scratch memory that all slots
 *   share: the forwards have one, of which one runs at a time, and the backwards another. Kept values are all alive
 *   between forward and backward, so the arena is their plain sum.
 * - An op that may work in place takes over its input's buffer when it is the last reader and nobody keeps it.
 * - Sums and views hand their gradient on without copying, so several values may share one gradient buffer. A second
 *   contribution is added to the first where nobody else has that buffer, by the op itself if it can; else it is
 *   computed into a new one, to which the old is added.
 * - A weight gradient runs beside the chain of gradients, behind which it may fall: what it reads (its node's dout) stays
 *   until the chain has waited for it. That is at the node CUDA_WEIGHTS_BEHIND such nodes further on, or where somebody
 *   works in that buffer's place, or at the end. Which buffers are shared does not depend on it, so values do not.
 * - In fp32 the plan's edge is where the first and last values lie; in bf16 it is apart, and cuda_plan_run.c converts.
 *
 * Test: tests/unit/test_cuda_plan.c
 */
#include "common/base/mem.h"
#include "kernels/cuda/plan/cuda_plan_impl.h"
#include "kernels/plan/placement.h"

#define NONE (-1)

struct walk {
	struct cuda_plan *p;
	const struct gp_graph *g;
	bool train;
	int *grad_of; /* by node: buffer of its value's gradient so far */
};

static enum gp_status new_buf(struct cuda_plan *p, enum cuda_place place, uint64_t bytes, int moment, int *index,
			      struct gp_err *err)
{
	if (p->bufs == p->buf_cap) {
		int cap = p->buf_cap ? p->buf_cap * 2 : 256;
		void *grown = gp_realloc(p->buf, (size_t)cap, sizeof *p->buf);
		if (!grown)
			GP_FAIL(err, GP_NOMEM, "out of memory for the plan of %s", p->base.spec.graph->name);
		p->buf = grown;
		p->buf_cap = cap;
	}
	p->buf[p->bufs] =
		(struct cuda_buf){.place = place, .bytes = gp_cuda_align(bytes), .first = moment, .last = moment};
	p->buf[p->bufs].track = moment < p->base.spec.graph->nodes ? CUDA_FORWARDS : CUDA_BACKWARDS;
	*index = p->bufs++;
	return GP_OK;
}

/* A value or its gradient. */
static enum gp_status new_value(struct cuda_plan *p, const struct cuda_node *n, int moment, int *index,
				struct gp_err *err)
{
	const uint64_t bytes = (uint64_t)gp_cuda_elements(p, n) * gp_rt_type_bytes(p->type);
	return new_buf(p, CUDA_AT_SCRATCH, bytes, moment, index, err);
}

static void move_to_io(struct cuda_plan *p, int buf, enum gp_plan_buf io)
{
	p->buf[buf].place = CUDA_AT_IO;
	p->buf[buf].io = io;
}

/* A value that comes in from outside: where it arrives, if that has the right type. */
static enum gp_status new_edge(struct cuda_plan *p, enum gp_plan_buf io, const struct cuda_node *n, int moment,
			       int *index, struct gp_err *err)
{
	GP_TRY(new_value(p, n, moment, index, err));
	if (p->type == GP_RT_F32)
		move_to_io(p, *index, io);
	return GP_OK;
}

static int count_readers(const struct cuda_plan *p, int index)
{
	int readers = 0;
	for (int i = index + 1; i < p->base.spec.graph->nodes; i++)
		if (!p->node[i].absorbed)
			readers += (p->node[i].in[0] == index) + (p->node[i].in[1] == index);
	return readers;
}

/* --- forward ---------------------------------------------------------------------------------------------------- */

/* What is kept of a batch norm's inputs is the first: a residual is only added. */
static bool keeps_input(const struct walk *w, const struct cuda_node *n, int k)
{
	return w->train && n->need_grad && n->saves_input && k == 0;
}

static bool may_take_over(const struct walk *w, const struct cuda_node *n, int k)
{
	const struct cuda_buf *b = &w->p->buf[gp_cuda_input(w->p, n, k)->out];
	return n->op->in_place && b->place != CUDA_AT_IO && !b->saved && b->pending == 1 && !keeps_input(w, n, k);
}

/* A view of the part's own input may not become its output: those two buffers belong to different people. */
static bool is_view(const struct walk *w, const struct cuda_node *n)
{
	bool last = n->index == w->g->nodes - 1;
	return n->view && !(last && w->p->buf[gp_cuda_input(w->p, n, 0)->out].place == CUDA_AT_IO);
}

static enum gp_status choose_output(struct walk *w, struct cuda_node *n, struct gp_err *err)
{
	struct cuda_plan *p = w->p;
	n->view = is_view(w, n);
	if (n->view) {
		n->out = gp_cuda_input(p, n, 0)->out;
		return GP_OK;
	}
	for (int k = 0; k < 2 && n->in[k] >= 0; k++)
		if (may_take_over(w, n, k)) {
			n->out = gp_cuda_input(p, n, k)->out;
			return GP_OK;
		}
	return new_value(p, n, n->index, &n->out, err);
}

static enum gp_status walk_forward_node(struct walk *w, struct cuda_node *n, struct gp_err *err)
{
	struct cuda_plan *p = w->p;
	GP_TRY(choose_output(w, n, err));
	for (int k = 0; k < 2 && n->in[k] >= 0; k++) {
		struct cuda_buf *in = &p->buf[gp_cuda_input(p, n, k)->out];
		in->pending--;
		in->last = n->index;
		if (!n->view && keeps_input(w, n, k))
			in->saved = true;
	}
	p->buf[n->out].pending += count_readers(p, n->index);
	p->buf[n->out].last = n->index;
	if (n->view)
		return GP_OK;
	if (w->train && n->need_grad && n->saves_output)
		p->buf[n->out].saved = true;
	if (n->saved_bytes)
		GP_TRY(new_buf(p, w->train ? CUDA_AT_SLOT : CUDA_AT_SCRATCH, n->saved_bytes, n->index, &n->saved, err));
	if (n->tmp_forward_bytes)
		GP_TRY(new_buf(p, CUDA_AT_SCRATCH, n->tmp_forward_bytes, n->index, &n->tmp_forward, err));
	return GP_OK;
}

static enum gp_status walk_forward(struct walk *w, struct gp_err *err)
{
	struct cuda_plan *p = w->p;
	const int last = w->g->nodes - 1;
	GP_TRY(new_edge(p, GP_BUF_INPUT, &p->node[0], 0, &p->node[0].out, err));
	p->buf[p->node[0].out].pending = count_readers(p, 0);
	for (int i = 1; i <= last; i++)
		if (!p->node[i].absorbed)
			GP_TRY(walk_forward_node(w, &p->node[i], err));
	if (p->type == GP_RT_F32)
		move_to_io(p, p->node[last].out, GP_BUF_OUTPUT);
	else /* it is converted after the last node */
		p->buf[p->node[last].out].last = last + 1;
	for (int b = 0; b < p->bufs; b++)
		if (p->buf[b].saved && p->buf[b].place == CUDA_AT_SCRATCH)
			p->buf[b].place = CUDA_AT_SLOT;
	return GP_OK;
}

/* --- backward --------------------------------------------------------------------------------------------------- */

static int backward_moment(const struct walk *w, const struct cuda_node *n)
{
	return 2 * w->g->nodes - n->index;
}

/* Nothing but one value's gradient lies there. */
static bool is_free(const struct cuda_plan *p, int buf)
{
	return p->buf[buf].place != CUDA_AT_IO && p->buf[buf].pending == 1;
}

static enum gp_status choose_gradient(struct walk *w, struct cuda_node *n, int k, int before, struct gp_err *err)
{
	struct cuda_plan *p = w->p;
	const bool pass = n->pass[k];
	if (before != NONE && is_free(p, before) && (pass || n->op->adds_gradient)) {
		n->dx[k] = before;
		n->add[k] = true;
		return GP_OK;
	}
	n->dx_add[k] = before;
	if (pass ? before == NONE : n->op->in_place_backward && is_free(p, n->dout)) {
		n->dx[k] = n->dout;
		return GP_OK;
	}
	return new_value(p, gp_cuda_input(p, n, k), backward_moment(w, n), &n->dx[k], err);
}

/* Where node n's contribution to the gradient of its k-th input goes. */
static enum gp_status contribute(struct walk *w, struct cuda_node *n, int k, struct gp_err *err)
{
	struct cuda_plan *p = w->p;
	const int v = n->in[k], moment = backward_moment(w, n), before = w->grad_of[v];
	GP_TRY(choose_gradient(w, n, k, before, err));
	if (before != NONE) {
		p->buf[before].last = moment;
		p->buf[before].pending--;
	}
	w->grad_of[v] = n->dx[k];
	p->buf[n->dx[k]].last = moment;
	p->buf[n->dx[k]].pending++;
	return GP_OK;
}

static bool works_backward(const struct cuda_node *n)
{
	return !n->view && !n->op->passes_gradient;
}

/* Added, with no activation behind: its gradient is dout. */
static bool is_plain_residual(const struct cuda_node *n)
{
	return n->g->op == GP_OP_BATCH_NORM && n->act == CUDA_ACT_NONE;
}

/* --- weight gradients beside the chain ---------------------------------------------------------------------------- */

/* Whoever comes at `moment` has waited for everything up to `job`: what those read was in use until then. */
static void await_jobs(struct walk *w, int job, int moment)
{
	struct cuda_plan *p = w->p;
	for (int b = 0; b < p->bufs; b++) {
		struct cuda_buf *buf = &p->buf[b];
		if (buf->job == 0 || buf->job > job)
			continue;
		buf->job = 0;
		if (buf->last < moment - 1)
			buf->last = moment - 1;
	}
	p->jobs_awaited = job;
}

/* The last weight gradient that reads what this node's backward writes: more than handing dout on as it is. */
static int reader_of_dx(const struct cuda_plan *p, const struct cuda_node *n)
{
	int job = 0;
	for (int k = 0; k < 2; k++) {
		const bool writes = n->dx[k] >= 0 && !(n->pass[k] && n->dx[k] == n->dout);
		if (writes && p->buf[n->dx[k]].job > job)
			job = p->buf[n->dx[k]].job;
	}
	return job;
}

static enum gp_status place_job(struct walk *w, struct cuda_node *n, struct gp_err *err)
{
	struct cuda_plan *p = w->p;
	const bool has_job = works_backward(n) && n->op->backward_weight && n->trains;
	const int behind = has_job ? p->jobs + 1 - CUDA_WEIGHTS_BEHIND : 0, reader = reader_of_dx(p, n);
	const int await = reader > behind ? reader : behind;
	if (await > p->jobs_awaited) {
		n->await = await;
		await_jobs(w, await, backward_moment(w, n));
	}
	if (!has_job)
		return GP_OK;
	n->job = ++p->jobs;
	p->buf[n->dout].job = n->job;
	if (n->tmp_weight_bytes) {
		GP_TRY(new_buf(p, CUDA_AT_SCRATCH, n->tmp_weight_bytes, backward_moment(w, n), &n->tmp_weight, err));
		p->buf[n->tmp_weight].track = CUDA_WEIGHTS;
	}
	return GP_OK;
}

/* What is handed on comes first: a buffer that has another owner then is not worked in. */
static enum gp_status walk_backward_node(struct walk *w, struct cuda_node *n, struct gp_err *err)
{
	struct cuda_plan *p = w->p;
	n->dout = w->grad_of[n->index];
	p->buf[n->dout].last = backward_moment(w, n);
	n->pass[0] = !works_backward(n);
	n->pass[1] = !works_backward(n) || is_plain_residual(n);
	for (int passing = 1; passing >= 0; passing--)
		for (int k = 0; k < 2 && n->in[k] >= 0; k++)
			if (n->pass[k] == passing && gp_cuda_input(p, n, k)->need_grad)
				GP_TRY(contribute(w, n, k, err));
	p->buf[n->dout].pending--;
	if (works_backward(n) && n->tmp_backward_bytes)
		GP_TRY(new_buf(p, CUDA_AT_SCRATCH, n->tmp_backward_bytes, backward_moment(w, n), &n->tmp_backward,
			       err));
	return place_job(w, n, err);
}

/* The gradient of the part's input ends up in GRAD_INPUT, or is copied there. */
static void end_at_input(struct walk *w)
{
	struct cuda_plan *p = w->p;
	const int buf = p->grad_input = w->grad_of[0];
	if (buf == NONE)
		return;
	p->buf[buf].last = 2 * w->g->nodes;
	if (p->type == GP_RT_F32 && p->buf[buf].place == CUDA_AT_SCRATCH)
		move_to_io(p, buf, GP_BUF_GRAD_INPUT);
}

static enum gp_status walk_backward(struct walk *w, struct gp_err *err)
{
	struct cuda_plan *p = w->p;
	const int last = w->g->nodes - 1;
	for (int i = 0; i <= last; i++)
		w->grad_of[i] = NONE;
	GP_TRY(new_edge(p, GP_BUF_GRAD_OUTPUT, &p->node[last], last + 1, &p->grad_output, err));
	w->grad_of[last] = p->grad_output;
	p->buf[p->grad_output].pending = 1;
	for (int i = last; i > 0; i--)
		if (p->node[i].need_grad)
			GP_TRY(walk_backward_node(w, &p->node[i], err));
	end_at_input(w);
	const int awaited = p->jobs_awaited;
	await_jobs(w, p->jobs, 2 * w->g->nodes + 1);
	p->jobs_awaited = awaited;
	return GP_OK;
}

/* --- placing ---------------------------------------------------------------------------------------------------- */

static enum gp_status place_scratch(struct cuda_plan *p, enum cuda_track_index track, struct gp_err *err)
{
	struct gp_piece *piece;
	int n = 0;
	GP_TRY(gp_alloc_array((void **)&piece, (size_t)p->bufs + 1, sizeof *piece, err));
	for (int b = 0; b < p->bufs; b++)
		if (p->buf[b].place == CUDA_AT_SCRATCH && p->buf[b].track == track)
			piece[n++] = (struct gp_piece){
				.bytes = p->buf[b].bytes, .first = p->buf[b].first, .last = p->buf[b].last};
	const enum gp_status status = gp_place_pieces(piece, n, &p->track[track].scratch_bytes, err);
	n = 0;
	for (int b = 0; status == GP_OK && b < p->bufs; b++)
		if (p->buf[b].place == CUDA_AT_SCRATCH && p->buf[b].track == track)
			p->buf[b].offset = piece[n++].offset;
	gp_free(piece);
	return status;
}

static void place_slots(struct cuda_plan *p)
{
	for (int b = 0; b < p->bufs; b++) {
		if (p->buf[b].place != CUDA_AT_SLOT)
			continue;
		p->buf[b].offset = p->slot_bytes;
		p->slot_bytes += p->buf[b].bytes;
	}
}

static void size_io(struct cuda_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	const uint64_t batch = (uint64_t)p->base.spec.batch;
	const uint64_t in = gp_cuda_align(batch * gp_shape_elements(gp_graph_input_shape(g)) * sizeof(float));
	const uint64_t out = gp_cuda_align(batch * gp_shape_elements(gp_graph_output_shape(g)) * sizeof(float));
	p->io_bytes[GP_BUF_INPUT] = in;
	p->io_bytes[GP_BUF_OUTPUT] = out;
	if (p->base.spec.train)
		p->io_bytes[GP_BUF_GRAD_OUTPUT] = out;
	if (p->base.spec.train && p->base.spec.grad_inputs)
		p->io_bytes[GP_BUF_GRAD_INPUT] = in;
}

enum gp_status gp_cuda_plan_layout(struct cuda_plan *p, struct gp_err *err)
{
	struct walk w = {.p = p, .g = p->base.spec.graph, .train = p->base.spec.train};
	void *mem;
	GP_TRY(gp_alloc_array(&mem, (size_t)w.g->nodes, sizeof(int), err));
	w.grad_of = mem;
	enum gp_status status = walk_forward(&w, err);
	if (status == GP_OK && w.train)
		status = walk_backward(&w, err);
	gp_free(mem);
	GP_TRY(status);
	size_io(p);
	place_slots(p);
	for (int t = 0; t < CUDA_TRACKS; t++)
		GP_TRY(place_scratch(p, (enum cuda_track_index)t, err));
	return GP_OK;
}
