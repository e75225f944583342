/* SPDX-License-Identifier: Apache-2.0
 *
 * What is the CPU's own in the layout of a plan (kernels/plan/plan_walk.h has
 * the rest): the memory that a batch norm shares with the neighbours which do
 * some of its passes, and room to unpack gradients.
 * Test: tests/unit/test_cpu_plan.c
 */
#include "kernels/cpu/plan/cpu_moments.h"

/* Room for a batch norm's sums, from when its neighbour begins to write them until it has read them. */
static enum gp_status new_sums(struct gp_walk *w, const struct cpu_node *n, int first, int last, int *index,
			       struct gp_err *err)
{
	GP_TRY(gp_walk_new_buf(w, n->sums_bytes, first, index, err));
	w->buf[*index].last = last;
	return GP_OK;
}

/* A reader that normalizes needs the batch norm's vectors, in backward too if it has one. */
static void read_vectors(struct gp_walk *w, const struct cpu_node *n)
{
	struct gp_buf *vectors = &w->buf[n->reads->base.saved];
	vectors->last = n->base.index;
	vectors->saved = vectors->saved || (w->spec->train && n->base.need_grad);
}

static enum gp_status place_forward(struct gp_walk *w, struct gp_walk_node *base, struct gp_err *err)
{
	struct cpu_node *n = (struct cpu_node *)base;
	if (n->reads)
		read_vectors(w, n);
	if (n->feeds)
		GP_TRY(new_sums(w, n->feeds, base->index, n->feeds->base.index, &n->feeds->sums_forward, err));
	if (n->sums_in_forward && !n->fed)
		GP_TRY(new_sums(w, n, base->index, base->index, &n->sums_forward, err));
	return GP_OK;
}

/* A batch norm's vectors of backward: the op before it may still read them (cpu_node.finishes, found after this). */
static enum gp_status place_vectors(struct gp_walk *w, struct cpu_node *n, int moment, struct gp_err *err)
{
	GP_TRY(gp_walk_new_buf(w, n->vector_bytes, moment, &n->vectors, err));
	w->buf[n->vectors].last = gp_walk_backward_moment(w, &gp_cpu_input(w->device, n, 0)->base);
	return GP_OK;
}

static enum gp_status place_backward(struct gp_walk *w, struct gp_walk_node *base, struct gp_err *err)
{
	struct cpu_node *n = (struct cpu_node *)base;
	const int moment = gp_walk_backward_moment(w, base);
	if (n->vector_bytes)
		GP_TRY(place_vectors(w, n, moment, err));
	if (n->reads && n->reads->base.trains && n->reads->sums_bytes && base->want_dx)
		GP_TRY(new_sums(w, n->reads, moment, gp_walk_backward_moment(w, &n->reads->base),
				&n->reads->sums_backward, err));
	if (base->trains && n->sums_bytes && n->sums_backward < 0)
		GP_TRY(new_sums(w, n, moment, moment, &n->sums_backward, err));
	return GP_OK;
}

static const struct gp_walk_hooks hooks = {.forward = place_forward, .backward = place_backward};

/* The optimizer unpacks one gradient at a time into scratch memory, and decodes what it remembers behind it. */
static void reserve_unpacking(struct cpu_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	for (int i = 0; p->base.spec.train && i < g->params; i++) {
		uint64_t bytes = gp_cpu_align(g->param[i].count * sizeof(float));
		if (g->param[i].trained && bytes > p->unpack_bytes)
			p->unpack_bytes = bytes;
	}
	const uint64_t bytes = p->unpack_bytes + gp_cpu_moments_room(p);
	if (bytes > p->scratch_bytes)
		p->scratch_bytes = bytes;
}

enum gp_status gp_cpu_plan_layout(struct cpu_plan *p, struct gp_err *err)
{
	p->walk.hooks = &hooks;
	GP_TRY(gp_walk_layout(&p->walk, err));
	p->scratch_bytes = p->walk.scratch_bytes[0];
	reserve_unpacking(p);
	return GP_OK;
}
