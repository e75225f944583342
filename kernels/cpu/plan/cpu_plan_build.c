/* SPDX-License-Identifier: Apache-2.0
 *
 * From a graph to the nodes of a CPU plan: which op runs each node, which
 * activations fold into a batch norm, which gradients are needed, where each
 * parameter lies in its block. Takes no memory for tensors. See cpu_plan.h.
 * Test: tests/unit/test_cpu_plan.c
 */
#include "common/base/mem.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/plan/plan_check.h"

/* The one table of ops. */
static const struct cpu_op *const ops[GP_OP_COUNT] = {
	[GP_OP_CONV2D] = &gp_cpu_conv,
	[GP_OP_CONV2D_TRANSPOSE] = &gp_cpu_conv_transpose,
	[GP_OP_BATCH_NORM] = &gp_cpu_batch_norm,
	[GP_OP_RELU] = &gp_cpu_relu,
	[GP_OP_RELU6] = &gp_cpu_relu6,
	[GP_OP_ADD] = &gp_cpu_add_op,
	[GP_OP_AVG_POOL] = &gp_cpu_avg_pool,
	[GP_OP_MAX_POOL] = &gp_cpu_max_pool,
	[GP_OP_GLOBAL_AVG_POOL] = &gp_cpu_global_avg_pool,
	[GP_OP_LINEAR] = &gp_cpu_linear,
	[GP_OP_FLATTEN] = &gp_cpu_flatten,
	[GP_OP_DROPOUT] = &gp_cpu_dropout,
	[GP_OP_SHORTCUT_PAD] = &gp_cpu_shortcut_pad,
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
	const struct gp_graph *g = p->base.spec.graph;
	if (gp_cpu_pointwise_fits(n))
		return &gp_cpu_pointwise;
	if (gp_cpu_depthwise_fits(n, &g->node[n->in[0]].shape))
		return &gp_cpu_depthwise;
	if (gp_cpu_winograd_fits(n, &g->node[n->in[0]].shape))
		return &gp_cpu_winograd;
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
	for (int i = 0; i < g->nodes; i++) {
		struct cpu_node *n = &p->node[i];
		*n = (struct cpu_node){.g = &g->node[i], .index = i, .out = -1, .saved = -1};
		n->sums_forward = n->sums_backward = -1;
		n->tmp_forward = n->tmp_backward = n->dout = -1;
		n->dx[0] = n->dx[1] = n->dx_add[0] = n->dx_add[1] = -1;
		if (i == 0)
			continue;
		n->op = op_of(p, &g->node[i]);
		if (!n->op)
			GP_FAIL(err, GP_UNSUPPORTED, "the cpu device cannot run %s (%s)", gp_op_name(g->node[i].op),
				g->node[i].name);
	}
	return GP_OK;
}

/* An activation that is the only reader of a batch norm is computed by it; the activation's own node becomes a view. */
static void fold_activations(struct cpu_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	for (int i = 1; i < g->nodes; i++) {
		enum gp_op op = g->node[i].op;
		struct cpu_node *before = &p->node[g->node[i].in[0]];
		if ((op != GP_OP_RELU && op != GP_OP_RELU6) || before->g->op != GP_OP_BATCH_NORM ||
		    gp_graph_readers(g, before->index) != 1)
			continue;
		before->act = op == GP_OP_RELU ? CPU_ACT_RELU : CPU_ACT_RELU6;
		before->folded = true;
		p->node[i].view = true;
	}
}

static void find_gradients(struct cpu_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	if (!p->base.spec.train)
		return;
	p->node[0].need_grad = p->base.spec.grad_inputs;
	for (int i = 1; i < g->nodes; i++) {
		struct cpu_node *n = &p->node[i];
		for (int k = 0; k < g->node[i].inputs; k++)
			n->want_dx = n->want_dx || p->node[g->node[i].in[k]].need_grad;
		n->need_grad = n->want_dx || gp_graph_is_trained(g, &g->node[i]);
	}
}

/* The only reader of a batch norm's value, behind the activation folded into it; NULL if there are more or none. */
static struct cpu_node *only_reader(struct cpu_plan *p, const struct cpu_node *n)
{
	const struct gp_graph *g = p->base.spec.graph;
	if (gp_graph_readers(g, n->index) != 1)
		return NULL;
	for (int i = n->index + 1; i < g->nodes; i++)
		if (g->node[i].in[0] == n->index)
			return n->folded ? only_reader(p, &p->node[i]) : &p->node[i];
	return NULL;
}

static bool hosts(const struct cpu_node *n)
{
	return n && n->op && !n->view && n->op->hosts_batch_norm;
}

/*
 * Neighbours take over passes of a batch norm: the one before it sums up what it writes, the only one behind it
 * normalizes what it reads. Results stay the same, so that it does not matter where a network is cut.
 */
static void share_batch_norms(struct cpu_plan *p)
{
	for (int i = 1; i < p->base.spec.graph->nodes; i++) {
		struct cpu_node *n = &p->node[i], *before, *reader;
		if (n->op != &gp_cpu_batch_norm)
			continue;
		before = gp_cpu_input(p, n, 0);
		reader = only_reader(p, n);
		if (hosts(before) && !before->feeds && p->base.spec.train) {
			n->fed = true;
			before->feeds = n;
		}
		if (hosts(reader)) {
			n->lazy = true;
			reader->reads = n;
		}
	}
}

/* The last pass of a batch norm's backward is left to the op before it where that one is the only other reader. */
static void defer_batch_norms(struct cpu_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	for (int i = 1; i < g->nodes; i++) {
		struct cpu_node *n = &p->node[i], *before = &p->node[g->node[i].in[0]];
		bool in_place = n->dx[0] >= 0 && n->dx[0] == n->dout && n->dx_add[0] < 0;
		if (n->op != &gp_cpu_batch_norm || !in_place || !hosts(before) || before->dout != n->dx[0] ||
		    gp_graph_readers(g, before->index) != 1)
			continue;
		n->deferred = true;
		before->finishes = n;
	}
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
		p->value_floats += gp_cpu_align(g->param[i].count * sizeof(float)) / sizeof(float);
		if (!p->base.spec.train || !g->param[i].trained)
			continue;
		q->grad_offset = p->grad_floats;
		p->grad_floats += gp_cpu_align(q->grad_count * sizeof(float)) / sizeof(float);
	}
}

static void add_up_memory(struct cpu_plan *p)
{
	struct gp_plan_memory *m = &p->memory;
	const struct gp_plan_spec *spec = &p->base.spec;
	m->params = (p->value_floats + p->undo_floats) * sizeof(float) + p->pack_bytes;
	m->grads = p->grad_floats * sizeof(float);
	m->optim = (uint64_t)gp_cpu_optim_states(&p->base) * p->value_floats * sizeof(float);
	m->activations = (uint64_t)spec->slots * p->slot_bytes;
	m->scratch = p->scratch_bytes;
	for (int b = 0; b < 4; b++)
		m->io += (uint64_t)spec->slots * p->io_bytes[b];
	m->total = m->params + m->grads + m->optim + m->activations + m->scratch + m->io;
}

enum gp_status gp_cpu_plan_build(struct cpu_plan *p, struct gp_err *err)
{
	GP_TRY(check_spec(p, err));
	GP_TRY(make_nodes(p, err));
	fold_activations(p);
	find_gradients(p);
	share_batch_norms(p);
	for (int i = 1; i < p->base.spec.graph->nodes; i++)
		if (!p->node[i].view && p->node[i].op->prepare)
			GP_TRY(p->node[i].op->prepare(p, &p->node[i], err));
	place_params(p);
	p->undo_floats = gp_cpu_undo_floats(p);
	GP_TRY(gp_cpu_plan_layout(p, err));
	defer_batch_norms(p);
	add_up_memory(p);
	return GP_OK;
}

int gp_cpu_param_index(const struct cpu_plan *p, const struct cpu_node *n, enum gp_param_role role)
{
	return gp_graph_param_of(p->base.spec.graph, n->g, role);
}

float *gp_cpu_param_value(const struct cpu_plan *p, const struct cpu_node *n, enum gp_param_role role)
{
	int i = gp_cpu_param_index(p, n, role);
	return i < 0 ? NULL : p->values + p->param[i].value_offset;
}

float *gp_cpu_param_grad(const struct cpu_plan *p, const struct cpu_node *n, enum gp_param_role role)
{
	int i = gp_cpu_param_index(p, n, role);
	return i < 0 ? NULL : p->grads + p->param[i].grad_offset;
}
