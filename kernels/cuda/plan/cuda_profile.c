/* SPDX-License-Identifier: Apache-2.0
 *
 * A CUDA plan's profile: times between events, work as the graph says it. See
 * cuda_profile.h; printing is common/graph/plan_profile.c.
 * Test: tests/unit/test_cuda_plan.c
 */
#include "kernels/cuda/plan/cuda_profile.h"

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "kernels/cuda/plan/cuda_plan_impl.h"
#include "kernels/plan/plan_work.h"

struct cuda_profile {
	struct gp_plan_profile base;
	struct gp_node_profile *row;
	struct gp_rt_event **event; /* by node: start, stop */
	bool *ran;
	int nodes;
};

static enum gp_status make_events(struct cuda_plan *p, struct cuda_profile *profile, struct gp_err *err)
{
	const size_t nodes = (size_t)p->base.spec.graph->nodes;
	void *row, *event, *ran;
	GP_TRY(gp_alloc_array(&row, nodes, sizeof *profile->row, err));
	profile->row = row;
	GP_TRY(gp_alloc_array(&ran, nodes, sizeof *profile->ran, err));
	profile->ran = ran;
	GP_TRY(gp_alloc_array(&event, 2 * nodes, sizeof *profile->event, err));
	profile->event = event;
	for (; profile->nodes < 2 * (int)nodes; profile->nodes++)
		GP_TRY(gp_rt_event_new_timed(p->dev->index, &profile->event[profile->nodes], err));
	return GP_OK;
}

static void drop(struct cuda_profile *profile)
{
	if (!profile)
		return;
	for (int i = 0; i < profile->nodes; i++)
		gp_rt_event_free(profile->event[i]);
	gp_free(profile->event);
	gp_free(profile->row);
	gp_free(profile->ran);
	gp_free(profile);
}

enum gp_status gp_cuda_profile(struct gp_plan *plan, const struct gp_plan_profile **out, struct gp_err *err)
{
	struct cuda_plan *p = (struct cuda_plan *)plan;
	struct cuda_profile *profile = gp_calloc(1, sizeof *profile);
	if (!profile)
		GP_FAIL(err, GP_NOMEM, "out of memory for the profile of %s", plan->spec.graph->name);
	const enum gp_status status = make_events(p, profile, err);
	if (status != GP_OK) {
		drop(profile);
		return status;
	}
	profile->base.node = profile->row;
	gp_cuda_profile_free(p);
	p->profile = profile;
	*out = &profile->base;
	return GP_OK;
}

void gp_cuda_profile_free(struct cuda_plan *p)
{
	drop(p->profile);
	p->profile = NULL;
}

void gp_cuda_profile_start(struct cuda_plan *p, const struct cuda_node *n, struct gp_rt_stream *s)
{
	if (p->profile)
		gp_rt_event_record(p->profile->event[2 * n->base.index], s);
}

void gp_cuda_profile_stop(struct cuda_plan *p, const struct cuda_node *n, struct gp_rt_stream *s)
{
	if (!p->profile)
		return;
	gp_rt_event_record(p->profile->event[2 * n->base.index + 1], s);
	p->profile->ran[n->base.index] = true;
}

static void add_call(struct gp_node_profile *row, int way, uint64_t ns)
{
	if (row->calls[way]++ == 0 || ns < row->best_ns[way])
		row->best_ns[way] = ns;
	row->ns[way] += ns;
}

/* What a batch norm took over counts as the batch norm's. */
static struct gp_node_profile *row_of(const struct cuda_plan *p, const struct cuda_node *n)
{
	return &p->profile->row[n->base.g - p->base.spec.graph->node];
}

/* What a batch norm and the convolution beside it do for each other does not pass through memory between them. */
static uint64_t spared_bytes(const struct cuda_plan *p, const struct cuda_node *n, bool backward)
{
	const struct cuda_node *conv = n->conv;
	const uint64_t in = gp_walk_bytes(&p->walk, n->base.in[0]), out = gp_walk_bytes(&p->walk, n->base.first_value);
	if (backward)
		return n->leaves_dx              ? in
		       : conv && conv->leaves_dx ? out - gp_walk_bytes(&p->walk, conv->base.first_value)
						 : 0;
	const bool found = n->fed_by && (conv || n->fed_by->chained);
	return (conv ? out : 0) + (found || (conv && conv->chained) ? in : 0);
}

static void collect_node(struct cuda_plan *p, const struct cuda_node *n, int way)
{
	struct cuda_profile *profile = p->profile;
	struct gp_node_profile *row = row_of(p, n);
	struct gp_err ignored; /* events that did not happen measure nothing */
	uint64_t ns;
	profile->ran[n->base.index] = false;
	if (gp_rt_event_ns(profile->event[2 * n->base.index], profile->event[2 * n->base.index + 1], &ns, &ignored) !=
	    GP_OK)
		return;
	add_call(row, way, ns);
	row->bytes[way] += gp_plan_work_bytes(&p->walk, &n->base, way == CUDA_PROFILE_BACKWARD) -
			   spared_bytes(p, n, way == CUDA_PROFILE_BACKWARD);
	row->flops[way] += gp_plan_work_flops(&p->walk, &n->base, way == CUDA_PROFILE_BACKWARD);
}

void gp_cuda_profile_collect(struct cuda_plan *p, int way)
{
	for (int i = 0; p->profile && i < p->base.spec.graph->nodes; i++)
		if (p->profile->ran[i])
			collect_node(p, &p->node[i], way);
}

uint64_t gp_cuda_profile_clock(const struct cuda_plan *p)
{
	return p->profile ? gp_now_ns() : 0;
}

void gp_cuda_profile_other(struct cuda_plan *p, enum cuda_profile_other which, uint64_t start)
{
	if (!start || !p->profile)
		return;
	struct gp_plan_profile *base = &p->profile->base;
	struct gp_node_profile *row = which == CUDA_PROFILE_LOSS ? &base->loss : &base->update;
	add_call(row, 0, gp_now_ns() - start);
	if (which == CUDA_PROFILE_UPDATE)
		row->bytes[0] += 2 * p->trained_floats * sizeof(float) + p->memory.grads + 2 * p->memory.optim;
}
