/* SPDX-License-Identifier: Apache-2.0
 *
 * From a graph to the nodes of a CPU plan: which op runs each node, which
 * activations fold into a batch norm, which gradients are needed, where each
 * parameter lies in its block. Takes no memory for tensors. See cpu_plan.h.
 * Test: tests/unit/test_cpu_plan.c
 */
#include "common/base/mem.h"
#include "kernels/cpu/onednn/dnn_device.h"
#include "kernels/cpu/plan/cpu_code.h"
#include "kernels/cpu/plan/cpu_fold.h"
#include "kernels/cpu/plan/cpu_moments.h"
#include "kernels/plan/plan_check.h"
#include "kernels/plan/plan_store.h"

static const struct cpu_op *const ops[GP_OP_COUNT] = {
#define X(id, NAME, name) [GP_OP_##NAME] = &gp_cpu_op_##name,
	GP_OPS(X)
#undef X
};

static enum gp_status check_spec(const struct cpu_plan *p, struct gp_err *err)
{
	const struct gp_plan_spec *spec = &p->base.spec;
	GP_TRY(gp_device_check_precision(&p->dev->base, spec->precision, err));
	return gp_plan_check_spec(spec, err);
}

/* Also in bf16: depthwise convolutions wait for memory, and Winograd's, a quarter of the products, are no slower in fp32. */
static const struct cpu_op *op_of(const struct cpu_plan *p, const struct gp_node *n)
{
	const struct gp_shape *in = &p->base.spec.graph->value[n->in[0]].type.shape;
	if (!p->dev->plain && gp_cpu_pointwise_fits(n))
		return &gp_cpu_pointwise;
	if (!p->dev->plain && gp_cpu_depthwise_fits(n, in))
		return &gp_cpu_depthwise;
	if (!p->dev->plain && gp_cpu_winograd_fits(n, in))
		return &gp_cpu_winograd;
	const struct cpu_op *dnn = gp_dnn_op(p->dev, n->op);
	if (dnn)
		return dnn;
	if (!p->dev->plain && n->op == GP_OP_LINEAR && p->base.spec.precision == GP_PRECISION_BF16)
		return &gp_cpu_bf16_linear;
	return (unsigned)n->op < GP_OP_COUNT ? ops[n->op] : NULL;
}

static enum gp_status make_nodes(struct cpu_plan *p, struct gp_err *err)
{
	const struct gp_graph *g = p->base.spec.graph;
	void *node, *param;
	GP_TRY(gp_alloc_array(&node, (size_t)g->nodes, sizeof *p->node, err));
	p->node = node;
	GP_TRY(gp_alloc_array(&param, (size_t)g->params, sizeof *p->param, err));
	p->param = param;
	p->walk = (struct gp_walk){
		.spec = &p->base.spec, .nodes = node, .node_bytes = sizeof *p->node, .pools = 1, .device = p};
	p->walk.align = gp_cpu_align(1);
	p->walk.real_bytes = sizeof(float);
	GP_TRY(gp_walk_init(&p->walk, err));
	for (int i = 0; i < g->nodes; i++) {
		struct cpu_node *n = &p->node[i];
		n->sums_forward = n->sums_backward = n->vectors = -1;
		if (n->base.absent)
			continue;
		n->op = op_of(p, &g->node[i]);
		if (!n->op)
			GP_FAIL(err, GP_UNSUPPORTED, "the cpu device cannot run %s (%s)", gp_op_name(g->node[i].op),
				g->node[i].name);
	}
	return GP_OK;
}

static bool codes_gradients(const struct cpu_plan *p)
{
	return gp_cpu_codec(p, GP_STRUCT_GRAD_MAPS) != NULL;
}

/* An activation that is the only reader of a batch norm is computed by it; the activation's own node becomes a view. */
static void fold_activations(struct cpu_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	for (int i = g->inputs; i < g->nodes; i++) {
		enum gp_op op = g->node[i].op;
		struct cpu_node *before = gp_cpu_input(p, &p->node[i], 0);
		if ((op != GP_OP_RELU && op != GP_OP_RELU6) || before->base.g->op != GP_OP_BATCH_NORM ||
		    gp_graph_readers(g, before->base.first_value) != 1 ||
		    !gp_walk_same_part(&p->walk, &before->base, &p->node[i].base))
			continue;
		before->act = op == GP_OP_RELU ? CPU_ACT_RELU : CPU_ACT_RELU6;
		before->folded = true;
		p->node[i].base.view = true;
	}
}

/* The only reader of a batch norm's value, behind the activation folded into it; NULL if there are more or none. */
static struct cpu_node *only_reader(struct cpu_plan *p, const struct cpu_node *n)
{
	const struct gp_graph *g = p->base.spec.graph;
	if (gp_graph_readers(g, n->base.first_value) != 1)
		return NULL;
	for (int i = n->base.index + 1; i < g->nodes; i++)
		if (g->node[i].in[0] == n->base.first_value)
			return n->folded ? only_reader(p, &p->node[i]) : &p->node[i];
	return NULL;
}

static bool hosts(const struct cpu_node *n)
{
	return n && n->op && !n->base.view && n->op->hosts_batch_norm;
}

/*
 * Neighbours take over passes of a batch norm: the one before it sums up what it writes, the only one behind it
 * normalizes what it reads. Results stay the same, so that it does not matter where a network is cut.
 */
static void share_batch_norms(struct cpu_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	for (int i = g->inputs; i < g->nodes; i++) {
		struct cpu_node *n = &p->node[i], *before, *reader;
		if (n->op != &gp_cpu_op_batch_norm || n->base.view)
			continue;
		before = gp_cpu_input(p, n, 0);
		reader = only_reader(p, n);
		if (hosts(before) && !before->feeds && gp_cpu_bn_takes_statistics(n)) {
			n->fed = true;
			before->feeds = n;
		}
		if (!hosts(reader) || !gp_walk_same_part(&p->walk, &n->base, &reader->base))
			reader = NULL;
		n->masks = gp_cpu_bn_may_mask(p, n, reader);
		if (reader && !n->masks) {
			n->base.unwritten = true;
			reader->reads = n;
		}
	}
}

/* Its gradient is computed where dout lies, and is all there is of its input's. */
static bool works_in_place(const struct gp_walk *w, const struct gp_walk_node *n)
{
	return n->dx[0] >= 0 && n->dx[0] == w->grad[n->first_value] && n->dx_add[0] < 0 &&
	       n->dx[0] == w->grad[n->in[0]];
}

/* The last pass of a batch norm's backward is left to the op before it where that one is the only other reader. What it gives
 * is in no memory then, and cannot be coded. */
static void defer_batch_norms(struct cpu_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	for (int i = codes_gradients(p) ? g->nodes : g->inputs; i < g->nodes; i++) {
		struct cpu_node *n = &p->node[i], *before = gp_cpu_input(p, n, 0);
		if (n->op != &gp_cpu_op_batch_norm || !works_in_place(&p->walk, &n->base) || !hosts(before) ||
		    n->masks || gp_graph_readers(g, n->base.in[0]) != 1)
			continue;
		n->deferred = true;
		before->finishes = n;
	}
}

static enum gp_status prepare_nodes(struct cpu_plan *p, struct gp_err *err)
{
	for (int i = p->base.spec.graph->inputs; i < p->base.spec.graph->nodes; i++) {
		struct cpu_node *n = &p->node[i];
		struct gp_walk_node *base = &n->base;
		GP_TRY(gp_plan_check_stop(&p->base.spec, err));
		base->in_place = n->op->in_place;
		base->in_place_backward = n->op->in_place_backward;
		base->passes = n->op->passes_gradient ? GP_WALK_ALL : 0;
		base->saves_in = n->op->saves_in;
		base->saves_out = n->op->saves_out;
		if (!base->view && n->op->prepare)
			GP_TRY(n->op->prepare(p, n, err));
		gp_cpu_pick_prepare(p, n);
		n->moves = base->view || base->passes == GP_WALK_ALL;
		/* It sums up the batch norm's gradients, with that one's input. */
		if (n->reads && n->reads->base.trains && base->want_dx)
			base->saves_in |= 1;
		base->tmp_bytes[0] = base->tmp_bytes[1] = n->tmp_bytes;
	}
	return GP_OK;
}

static uint64_t whole_lines(uint64_t floats)
{
	return gp_cpu_align(floats * sizeof(float)) / sizeof(float);
}

static void place_trained(struct cpu_plan *p, int index)
{
	const struct gp_param *param = &p->base.spec.graph->param[index];
	struct cpu_param *q = &p->param[index];
	q->decoded_offset = p->decoded_floats;
	if (gp_cpu_keeps_decoded(p))
		p->decoded_floats += whole_lines(param->count);
	q->state_offset = p->state_bytes;
	if (!param->follows)
		p->state_bytes += gp_cpu_moment_bytes(p, index);
	q->grad_offset = p->grad_floats;
	p->grad_floats += whole_lines(q->grad_count);
}

/* Every parameter begins on a cache line. An op's prepare may have asked for padded gradients. */
static void place_params(struct cpu_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	for (int i = 0; i < g->params; i++) {
		struct cpu_param *q = &p->param[i];
		if (q->grad_count < g->param[i].count)
			q->grad_count = g->param[i].count;
		q->value_offset = p->value_floats;
		p->value_floats += whole_lines(g->param[i].count);
		if (p->base.spec.train && g->param[i].trained)
			place_trained(p, i);
	}
}

static void add_up_memory(struct cpu_plan *p)
{
	struct gp_plan_memory *m = &p->memory;
	const struct gp_plan_spec *spec = &p->base.spec;
	m->params = (p->value_floats + p->decoded_floats + p->undo_floats) * sizeof(float) +
		    p->merged_doubles * sizeof(double) + p->pack_bytes;
	m->grads = p->grad_floats * sizeof(float);
	m->optim = (uint64_t)gp_cpu_optim_states(&p->base) * p->state_bytes;
	m->activations = (uint64_t)spec->slots * p->walk.slot_bytes;
	m->scratch = p->scratch_bytes + gp_cpu_coders_bytes(p);
	m->io = (uint64_t)spec->slots * (p->walk.all_io_bytes + (uint64_t)gp_cpu_pick_most(p) * sizeof(int64_t));
	m->total = m->params + m->grads + m->optim + m->activations + m->scratch + m->io;
}

enum gp_status gp_cpu_plan_build(struct cpu_plan *p, struct gp_err *err)
{
	GP_TRY(check_spec(p, err));
	GP_TRY(make_nodes(p, err));
	fold_activations(p);
	gp_cpu_fold_batch_norms(p);
	gp_walk_find_gradients(&p->walk);
	share_batch_norms(p);
	GP_TRY(prepare_nodes(p, err));
	gp_cpu_choose_masks(p);
	place_params(p);
	p->undo_floats = gp_cpu_undo_floats(p);
	GP_TRY(gp_cpu_plan_layout(p, err));
	defer_batch_norms(p);
	add_up_memory(p);
	return GP_OK;
}

int gp_cpu_param_index(const struct cpu_plan *p, const struct cpu_node *n, enum gp_param_role role)
{
	return gp_graph_param_of(p->base.spec.graph, n->base.g, role);
}

float *gp_cpu_param_value(const struct cpu_plan *p, const struct cpu_node *n, enum gp_param_role role)
{
	int i = gp_cpu_param_index(p, n, role);
	if (i < 0)
		return NULL;
	if (p->decoded && p->base.spec.graph->param[i].trained)
		return p->decoded + p->param[i].decoded_offset;
	return p->values + p->param[i].value_offset;
}

float *gp_cpu_param_grad(const struct cpu_plan *p, const struct cpu_node *n, enum gp_param_role role)
{
	int i = gp_cpu_param_index(p, n, role);
	if (i < 0 || !p->base.spec.train || !p->base.spec.graph->param[i].trained)
		return NULL;
	return p->grads + p->param[i].grad_offset;
}
