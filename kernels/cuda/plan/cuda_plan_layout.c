/* SPDX-License-Identifier: Apache-2.0
 *
 * What is the CUDA device's own in the layout of a plan
 * (kernels/plan/plan_walk.h has the rest): weight gradients beside the chain.
 *
 * The forwards have one scratch memory, of which one runs at a time, the backwards another, and weight gradients a third.
 * A weight gradient runs beside the chain of gradients, behind which it may fall: what it reads (its node's dout) stays
 * until the chain has waited for it. That is at the node CUDA_WEIGHTS_BEHIND such nodes further on, or where somebody
 * works in that piece's place, or at the end. Which pieces are shared does not depend on it, so values do not. What else it
 * reads is kept, or lies in the backwards' scratch memory where it is decoded, or computed a second time: that stays as long.
 *
 * What batch norms and the convolutions beside them do for each other (cuda_share.c) reaches across their moments: `saved` and
 * room of a batch norm are there while either of the two works, and so is what a chain's first kernel reads until its last.
 *
 * Test: tests/unit/test_cuda_plan.c
 */
#include "kernels/cuda/plan/cuda_code.h"
#include "kernels/cuda/plan/cuda_plan_impl.h"

/* Whoever comes at `moment` has waited for everything up to `job`: what those read was in use until then. */
static void await_jobs(struct gp_walk *w, int job, int moment)
{
	for (int b = 0; b < w->bufs; b++) {
		struct gp_buf *buf = &w->buf[b];
		if (buf->job == 0 || buf->job > job)
			continue;
		buf->job = 0;
		if (buf->last < moment - 1)
			buf->last = moment - 1;
	}
}

/* The last weight gradient that reads what this node's backward writes: more than handing dout on as it is. */
static int reader_of_dx(const struct gp_walk *w, const struct gp_walk_node *n)
{
	int job = 0;
	for (int k = 0; k < n->inputs; k++) {
		const bool writes = n->dx[k] >= 0 && !(gp_walk_passes(n, k) && n->dx[k] == w->grad[n->first_value]);
		if (writes && w->buf[n->dx[k]].job > job)
			job = w->buf[n->dx[k]].job;
	}
	return job;
}

/* --- batch norms and their neighbours ----------------------------------------------------------------------------- */

static void keep_until(struct gp_buf *b, int moment)
{
	if (b->last < moment)
		b->last = moment;
}

static void keep_saved(struct gp_walk *w, const struct cuda_node *norm, const struct cuda_node *user)
{
	struct gp_buf *saved = &w->buf[norm->base.saved];
	keep_until(saved, user->base.index);
	if (saved->first > user->base.index)
		saved->first = user->base.index;
	saved->saved = saved->saved || (w->spec->train && user->base.need_grad);
}

static enum gp_status place_neighbours(struct gp_walk *w, struct gp_walk_node *base, struct gp_err *err)
{
	struct cuda_node *n = (struct cuda_node *)base;
	(void)err;
	if (n->before)
		keep_saved(w, n->before, n);
	if (!n->fed_by)
		return GP_OK;
	if (base->saved >= 0)
		keep_saved(w, n, n->fed_by);
	if (n->fed_by->chained) {
		keep_saved(w, n->fed_by->before, n);
		keep_until(&w->buf[w->value[n->fed_by->base.in[0]]], base->index);
	}
	return GP_OK;
}

static enum gp_status place_returned(struct gp_walk *w, struct cuda_node *n, int moment, struct gp_err *err)
{
	if (n->returns) {
		const struct gp_walk_node *norm = &n->before->base;
		GP_TRY(gp_walk_new_buf(w, n->before->returned_bytes, moment, &n->before->returned, err));
		keep_until(&w->buf[n->before->returned], gp_walk_backward_moment(w, norm));
	}
	if (n->conv && n->conv->leaves_dx)
		keep_until(&w->buf[w->grad[n->conv->base.first_value]], moment);
	return GP_OK;
}

/* --- weight gradients --------------------------------------------------------------------------------------------- */

static enum gp_status place_job(struct gp_walk *w, struct gp_walk_node *base, struct gp_err *err)
{
	struct cuda_plan *p = w->device;
	struct cuda_node *n = (struct cuda_node *)base;
	const int moment = gp_walk_backward_moment(w, base);
	GP_TRY(place_returned(w, n, moment, err));
	const bool has_job = gp_walk_works_backward(base) && n->op->backward_weight && base->trains;
	const int behind = has_job ? p->jobs + 1 - CUDA_WEIGHTS_BEHIND : 0, reader = reader_of_dx(w, base);
	const int await = reader > behind ? reader : behind;
	if (await > p->jobs_awaited) {
		n->await = p->jobs_awaited = await;
		await_jobs(w, await, moment);
	}
	if (!has_job)
		return GP_OK;
	n->job = ++p->jobs;
	w->buf[w->grad[base->first_value]].job = n->job;
	if (n->tmp_weight_bytes) {
		GP_TRY(gp_walk_new_buf(w, n->tmp_weight_bytes, moment, &n->tmp_weight, err));
		w->buf[n->tmp_weight].pool = CUDA_WEIGHTS;
	}
	return GP_OK;
}

/* The last moment at which the chain of gradients has not yet waited for a node's job. */
static int outstanding_until(const struct cuda_plan *p, const struct cuda_node *n)
{
	for (int i = n->base.index - 1; i >= 0; i--)
		if (p->node[i].await >= n->job)
			return gp_walk_backward_moment(&p->walk, &p->node[i].base) - 1;
	return 2 * p->base.spec.graph->nodes;
}

static void read_by_job(struct gp_walk *w, int buf, int until)
{
	if (buf >= 0 && w->buf[buf].read_until < until)
		w->buf[buf].read_until = until;
}

static void note_job(struct gp_walk *w, const struct cuda_node *n)
{
	const int until = outstanding_until(w->device, n);
	for (int k = 0; k < n->base.inputs; k++)
		if (n->base.saves_in >> k & 1)
			read_by_job(w, w->value[n->base.in[k]], until);
	for (int j = 0; j < n->base.outputs; j++)
		if (n->base.saves_out >> j & 1)
			read_by_job(w, w->value[n->base.first_value + j], until);
	read_by_job(w, n->base.saved, until);
}

static void end_jobs(struct gp_walk *w)
{
	const struct cuda_plan *p = w->device;
	await_jobs(w, p->jobs, 2 * w->spec->graph->nodes + 1);
	for (int i = w->spec->graph->inputs; i < w->spec->graph->nodes; i++)
		if (p->node[i].job > 0)
			note_job(w, &p->node[i]);
}

static const struct gp_walk_hooks hooks = {.forward = place_neighbours, .backward = place_job, .end = end_jobs};

enum gp_status gp_cuda_plan_layout(struct cuda_plan *p, struct gp_err *err)
{
	p->walk.hooks = &hooks;
	p->walk.device = p;
	GP_TRY(gp_walk_layout(&p->walk, err));
	for (int t = 0; t < CUDA_TRACKS; t++)
		p->track[t].scratch_bytes = p->walk.scratch_bytes[t];
	if (gp_cuda_update_room(p) > p->track[CUDA_FORWARDS].scratch_bytes)
		p->track[CUDA_FORWARDS].scratch_bytes = gp_cuda_update_room(p);
	return GP_OK;
}
