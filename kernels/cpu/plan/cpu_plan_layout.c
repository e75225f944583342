/* SPDX-License-Identifier: Apache-2.0
 *
 * Where every value, gradient and working room of a plan lies. One walk
 * through the step in execution order notes from when to when each buffer is
 * in use: moment i is node i forward, moment 2*nodes - i is node i backward.
 * Then buffers whose lifetimes are apart share scratch memory (placement.h).
 *
 * - A value that some backward reads is kept in its slot's arena, everything else lies in the scratch memory that all
 *   slots share. All kept values are alive between forward and backward, so the arena is their plain sum.
 * - An op that may work in place takes over its input's buffer when it is the last reader and nobody keeps it.
 * - Addition and views hand their gradient on without copying, so several values may share one gradient buffer. A
 *   second contribution never writes into a shared buffer: it is computed into a new one, to which the old is added.
 *
 * Test: tests/unit/test_cpu_plan.c
 */
#include "common/base/mem.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/plan/placement.h"

#define NONE (-1)

struct walk {
	struct cpu_plan *p;
	const struct gp_graph *g;
	bool train;
	int *grad_of;      /* by node: buffer of its value's gradient so far */
	int *first_reader; /* by node: its earliest reader, which contributes to its gradient last */
};

static enum gp_status new_buf(struct cpu_plan *p, enum cpu_place place, uint64_t bytes, int moment, int *index,
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
		(struct cpu_buf){.place = place, .bytes = gp_cpu_align(bytes), .first = moment, .last = moment};
	*index = p->bufs++;
	return GP_OK;
}

static enum gp_status new_io(struct cpu_plan *p, enum gp_plan_buf io, const struct cpu_node *n, int *index,
			     struct gp_err *err)
{
	GP_TRY(new_buf(p, CPU_AT_IO, (uint64_t)gp_cpu_elements(p, n) * sizeof(float), 0, index, err));
	p->buf[*index].io = io;
	p->io_bytes[io] = p->buf[*index].bytes;
	return GP_OK;
}

/* --- forward ---------------------------------------------------------------------------------------------------- */

static bool may_take_over(const struct walk *w, const struct cpu_node *n, int buf)
{
	const struct cpu_buf *b = &w->p->buf[buf];
	if (!n->op->in_place || b->place == CPU_AT_IO || b->saved || b->pending != 1)
		return false;
	return !(w->train && n->op->saves_input);
}

/* A view of the part's own input may not become its output: those two buffers belong to different people. */
static bool is_view(const struct walk *w, const struct cpu_node *n)
{
	bool last = n->index == w->g->nodes - 1;
	return n->view && !(last && w->p->buf[gp_cpu_input(w->p, n, 0)->out].place == CPU_AT_IO);
}

static enum gp_status choose_output(struct walk *w, struct cpu_node *n, struct gp_err *err)
{
	struct cpu_plan *p = w->p;
	int in = gp_cpu_input(p, n, 0)->out;
	n->view = is_view(w, n);
	if (n->view || n->lazy || may_take_over(w, n, in)) {
		n->out = in;
		return GP_OK;
	}
	if (n->g->inputs > 1 && may_take_over(w, n, gp_cpu_input(p, n, 1)->out)) {
		n->out = gp_cpu_input(p, n, 1)->out;
		return GP_OK;
	}
	return new_buf(p, CPU_AT_SCRATCH, (uint64_t)gp_cpu_elements(p, n) * sizeof(float), n->index, &n->out, err);
}

/* Room for a batch norm's sums, from when its neighbour begins to write them until it has read them. */
static enum gp_status new_sums(struct cpu_plan *p, const struct cpu_node *n, int first, int last, int *index,
			       struct gp_err *err)
{
	GP_TRY(new_buf(p, CPU_AT_SCRATCH, n->sums_bytes, first, index, err));
	p->buf[*index].last = last;
	return GP_OK;
}

static enum gp_status walk_forward_memory(struct walk *w, struct cpu_node *n, struct gp_err *err)
{
	struct cpu_plan *p = w->p;
	if (n->saved_bytes)
		GP_TRY(new_buf(p, w->train ? CPU_AT_SLOT : CPU_AT_SCRATCH, n->saved_bytes, n->index, &n->saved, err));
	if (n->reads)
		p->buf[n->reads->saved].last = n->index;
	if (n->tmp_bytes)
		GP_TRY(new_buf(p, CPU_AT_SCRATCH, n->tmp_bytes, n->index, &n->tmp_forward, err));
	if (n->feeds)
		GP_TRY(new_sums(p, n->feeds, n->index, n->feeds->index, &n->feeds->sums_forward, err));
	if (n->sums_bytes && !n->fed && w->train)
		GP_TRY(new_sums(p, n, n->index, n->index, &n->sums_forward, err));
	return GP_OK;
}

static enum gp_status walk_forward_node(struct walk *w, struct cpu_node *n, struct gp_err *err)
{
	struct cpu_plan *p = w->p;
	GP_TRY(choose_output(w, n, err));
	for (int k = 0; k < n->g->inputs; k++) {
		struct cpu_buf *in = &p->buf[gp_cpu_input(p, n, k)->out];
		in->pending--;
		in->last = n->index;
		if (!n->view && w->train && n->need_grad && n->op->saves_input)
			in->saved = true;
	}
	p->buf[n->out].pending += gp_graph_readers(w->g, n->index);
	p->buf[n->out].last = n->index;
	if (n->view)
		return GP_OK;
	if (w->train && n->need_grad && n->op->saves_output)
		p->buf[n->out].saved = true;
	return walk_forward_memory(w, n, err);
}

/* The buffer that ends up holding the last node's value is the plan's OUTPUT itself. */
static void output_in_place(struct walk *w)
{
	struct cpu_buf *b = &w->p->buf[w->p->node[w->g->nodes - 1].out];
	b->place = CPU_AT_IO;
	b->io = GP_BUF_OUTPUT;
	w->p->io_bytes[GP_BUF_OUTPUT] = b->bytes;
}

static enum gp_status walk_forward(struct walk *w, struct gp_err *err)
{
	struct cpu_plan *p = w->p;
	GP_TRY(new_io(p, GP_BUF_INPUT, &p->node[0], &p->node[0].out, err));
	p->buf[p->node[0].out].pending = gp_graph_readers(w->g, 0);
	for (int i = 1; i < w->g->nodes; i++)
		GP_TRY(walk_forward_node(w, &p->node[i], err));
	output_in_place(w);
	for (int b = 0; b < p->bufs; b++)
		if (p->buf[b].saved && p->buf[b].place == CPU_AT_SCRATCH)
			p->buf[b].place = CPU_AT_SLOT;
	return GP_OK;
}

/* --- backward --------------------------------------------------------------------------------------------------- */

static int backward_moment(const struct walk *w, const struct cpu_node *n)
{
	return 2 * w->g->nodes - n->index;
}

static bool last_contribution(const struct walk *w, const struct cpu_node *n, int k)
{
	if (w->first_reader[n->g->in[k]] != n->index)
		return false;
	return k == 1 || (n->g->inputs < 2 || n->g->in[1] != n->g->in[0]); /* x + x contributes twice */
}

/* Where node n's contribution to the gradient of its k-th input goes. `pass` is n's own gradient, or NONE. */
static enum gp_status contribute(struct walk *w, struct cpu_node *n, int k, bool pass, struct gp_err *err)
{
	struct cpu_plan *p = w->p;
	int v = n->g->in[k], moment = backward_moment(w, n);
	const struct cpu_node *input = &p->node[v];
	int before = w->grad_of[v];
	bool to_io = v == 0 && last_contribution(w, n, k);
	bool dout_free = p->buf[n->dout].place != CPU_AT_IO && p->buf[n->dout].pending == 1;
	if (to_io)
		GP_TRY(new_io(p, GP_BUF_GRAD_INPUT, input, &n->dx[k], err));
	else if (pass ? before == NONE : n->op->in_place_backward && dout_free)
		n->dx[k] = n->dout;
	else
		GP_TRY(new_buf(p, CPU_AT_SCRATCH, (uint64_t)gp_cpu_elements(p, input) * sizeof(float), moment,
			       &n->dx[k], err));
	n->dx_add[k] = before;
	if (before != NONE) {
		p->buf[before].last = moment;
		p->buf[before].pending--;
	}
	w->grad_of[v] = n->dx[k];
	p->buf[n->dx[k]].last = moment;
	p->buf[n->dx[k]].pending++; /* values whose gradient lies here and waits */
	return GP_OK;
}

static enum gp_status walk_backward_node(struct walk *w, struct cpu_node *n, struct gp_err *err)
{
	struct cpu_plan *p = w->p;
	int moment = backward_moment(w, n);
	bool pass = n->view || n->op->passes_gradient;
	n->dout = w->grad_of[n->index];
	p->buf[n->dout].last = moment;
	for (int k = 0; k < n->g->inputs; k++)
		if (gp_cpu_input(p, n, k)->need_grad)
			GP_TRY(contribute(w, n, k, pass, err));
	p->buf[n->dout].pending--;
	if (!pass && n->tmp_bytes)
		GP_TRY(new_buf(p, CPU_AT_SCRATCH, n->tmp_bytes, moment, &n->tmp_backward, err));
	if (n->reads && n->want_dx)
		GP_TRY(new_sums(p, n->reads, moment, backward_moment(w, n->reads), &n->reads->sums_backward, err));
	if (n->sums_bytes && n->sums_backward < 0)
		GP_TRY(new_sums(p, n, moment, moment, &n->sums_backward, err));
	return GP_OK;
}

static enum gp_status walk_backward(struct walk *w, struct gp_err *err)
{
	struct cpu_plan *p = w->p;
	int last = w->g->nodes - 1;
	for (int i = 0; i <= last; i++)
		w->grad_of[i] = w->first_reader[i] = NONE;
	for (int i = last; i > 0; i--)
		for (int k = 0; k < w->g->node[i].inputs; k++)
			w->first_reader[w->g->node[i].in[k]] = i;
	GP_TRY(new_io(p, GP_BUF_GRAD_OUTPUT, &p->node[last], &w->grad_of[last], err));
	p->buf[w->grad_of[last]].pending = 1;
	for (int i = last; i > 0; i--)
		if (p->node[i].need_grad)
			GP_TRY(walk_backward_node(w, &p->node[i], err));
	return GP_OK;
}

/* --- placing ---------------------------------------------------------------------------------------------------- */

static enum gp_status place_scratch(struct cpu_plan *p, struct gp_err *err)
{
	void *mem;
	GP_TRY(gp_alloc_array(&mem, (size_t)p->bufs, sizeof(struct gp_piece), err));
	struct gp_piece *piece = mem;
	int n = 0;
	for (int b = 0; b < p->bufs; b++)
		if (p->buf[b].place == CPU_AT_SCRATCH)
			piece[n++] = (struct gp_piece){p->buf[b].bytes, p->buf[b].first, p->buf[b].last, 0};
	const enum gp_status status = gp_place_pieces(piece, n, &p->scratch_bytes, err);
	for (int b = p->bufs; status == GP_OK && b-- > 0;)
		if (p->buf[b].place == CPU_AT_SCRATCH)
			p->buf[b].offset = piece[--n].offset;
	gp_free(mem);
	return status;
}

static void place_slots(struct cpu_plan *p)
{
	for (int b = 0; b < p->bufs; b++) {
		if (p->buf[b].place != CPU_AT_SLOT)
			continue;
		p->buf[b].offset = p->slot_bytes;
		p->slot_bytes += p->buf[b].bytes;
	}
}

/* The optimizer unpacks one gradient at a time into scratch memory. */
static void reserve_unpacking(struct cpu_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	for (int i = 0; p->base.spec.train && i < g->params; i++) {
		uint64_t bytes = gp_cpu_align(g->param[i].count * sizeof(float));
		if (g->param[i].trained && bytes > p->scratch_bytes)
			p->scratch_bytes = bytes;
	}
}

enum gp_status gp_cpu_plan_layout(struct cpu_plan *p, struct gp_err *err)
{
	struct walk w = {.p = p, .g = p->base.spec.graph, .train = p->base.spec.train};
	void *mem;
	GP_TRY(gp_alloc_array(&mem, 2 * (size_t)w.g->nodes, sizeof(int), err));
	w.grad_of = mem;
	w.first_reader = w.grad_of + w.g->nodes;
	enum gp_status status = walk_forward(&w, err);
	if (status == GP_OK && w.train)
		status = walk_backward(&w, err);
	gp_free(mem);
	GP_TRY(status);
	place_slots(p);
	GP_TRY(place_scratch(p, err));
	reserve_unpacking(p);
	return GP_OK;
}
