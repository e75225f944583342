/* SPDX-License-Identifier: Apache-2.0
 *
 * A CUDA plan's profile: times between events, work as the graph says it. See
 * cuda_profile.h; printing is common/graph/plan_profile.c.
 * Test: tests/unit/test_cuda_plan.c
 */
#include "kernels/cuda/plan/cuda_profile.h"

#include "common/wire/account.h"
#include "common/base/mem.h"
#include "kernels/cuda/plan/cuda_plan_impl.h"

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
		gp_rt_event_record(p->profile->event[2 * n->index], s);
}

void gp_cuda_profile_stop(struct cuda_plan *p, const struct cuda_node *n, struct gp_rt_stream *s)
{
	if (!p->profile)
		return;
	gp_rt_event_record(p->profile->event[2 * n->index + 1], s);
	p->profile->ran[n->index] = true;
}

static uint64_t value_bytes(const struct cuda_plan *p, const struct cuda_node *n)
{
	return (uint64_t)gp_cuda_elements(p, n) * gp_rt_type_bytes(p->type);
}

static uint64_t param_bytes(const struct cuda_plan *p, const struct cuda_node *n)
{
	uint64_t count = 0;
	for (int k = 0; k < n->g->params; k++)
		count += p->base.spec.graph->param[n->g->first_param + k].count;
	return count * sizeof(float);
}

static uint64_t moved_bytes(const struct cuda_plan *p, const struct cuda_node *n, int way)
{
	const uint64_t in = value_bytes(p, gp_cuda_input(p, n, 0)), out = value_bytes(p, n), params = param_bytes(p, n);
	const uint64_t second = n->in[1] >= 0 ? value_bytes(p, gp_cuda_input(p, n, 1)) : 0;
	if (way == CUDA_PROFILE_FORWARD)
		return in + second + out + params;
	if (n->view || n->op->passes_gradient)
		return 0;
	return out + (n->saves_input ? in : 0) + (n->saves_output ? out : 0) + (n->want_dx ? in : 0) + 2 * params;
}

static double flops(const struct cuda_plan *p, const struct cuda_node *n, int way)
{
	const double one = 2.0 * (double)n->g->macs * (double)p->base.spec.batch;
	return way == CUDA_PROFILE_FORWARD || !n->want_dx ? one : 2.0 * one;
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
	return &p->profile->row[n->g - p->base.spec.graph->node];
}

static void collect_node(struct cuda_plan *p, const struct cuda_node *n, int way)
{
	struct cuda_profile *profile = p->profile;
	struct gp_node_profile *row = row_of(p, n);
	struct gp_err ignored; /* events that did not happen measure nothing */
	uint64_t ns;
	profile->ran[n->index] = false;
	if (gp_rt_event_ns(profile->event[2 * n->index], profile->event[2 * n->index + 1], &ns, &ignored) != GP_OK)
		return;
	add_call(row, way, ns);
	row->bytes[way] += moved_bytes(p, n, way);
	row->flops[way] += flops(p, n, way);
}

void gp_cuda_profile_collect(struct cuda_plan *p, int way)
{
	for (int i = 1; p->profile && i < p->base.spec.graph->nodes; i++)
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
