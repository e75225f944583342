/* SPDX-License-Identifier: Apache-2.0
 *
 * From a graph to the nodes of a CUDA plan: which op runs each node, which
 * sums and activations a batch norm takes over, which gradients are needed,
 * where each parameter lies in its block. Takes no device memory. See cuda_plan.h.
 * Test: tests/unit/test_cuda_plan.c
 */
#include "kernels/cuda/plan/cuda_plan.h"

#include <string.h>

#include "common/base/mem.h"
#include "kernels/cuda/plan/cuda_plan_impl.h"
#include "kernels/plan/plan_check.h"

/* The one table of ops. */
static const struct cuda_op *const ops[GP_OP_COUNT] = {
	[GP_OP_CONV2D] = &gp_cuda_conv,
	[GP_OP_CONV2D_TRANSPOSE] = &gp_cuda_conv_transpose,
	[GP_OP_RELU] = &gp_cuda_relu,
	[GP_OP_RELU6] = &gp_cuda_relu6,
	[GP_OP_ADD] = &gp_cuda_add_op,
	[GP_OP_GLOBAL_AVG_POOL] = &gp_cuda_global_avg_pool,
	[GP_OP_AVG_POOL] = &gp_cuda_avg_pool,
	[GP_OP_MAX_POOL] = &gp_cuda_max_pool,
	[GP_OP_LINEAR] = &gp_cuda_linear,
	[GP_OP_FLATTEN] = &gp_cuda_flatten,
	[GP_OP_DROPOUT] = &gp_cuda_dropout,
	[GP_OP_SHORTCUT_PAD] = &gp_cuda_shortcut_pad,
	[GP_OP_BATCH_NORM] = &gp_cuda_batch_norm,
};

static enum gp_status check_spec(const struct cuda_plan *p, struct gp_err *err)
{
	const struct gp_plan_spec *spec = &p->base.spec;
	if (!gp_device_supports(&p->dev->base, spec->precision))
		GP_FAIL(err, GP_DEVICE, "%s cannot compute in %s (compute capability %d.%d, 8.0 is needed); use fp32",
			p->dev->info.name, gp_precision_name(spec->precision), p->dev->info.major, p->dev->info.minor);
	return gp_plan_check_spec(spec, err);
}

static enum gp_status make_nodes(struct cuda_plan *p, struct gp_err *err)
{
	const struct gp_graph *g = p->base.spec.graph;
	void *node;
	GP_TRY(gp_alloc_array(&node, (size_t)g->nodes, sizeof *p->node, err));
	p->node = node;
	for (int i = 0; i < g->nodes; i++) {
		struct cuda_node *n = &p->node[i];
		*n = (struct cuda_node){.g = &g->node[i], .index = i, .in = {-1, -1}};
		for (int k = 0; k < g->node[i].inputs && k < 2; k++)
			n->in[k] = g->node[i].in[k];
		n->out = n->saved = n->tmp_forward = n->tmp_backward = n->tmp_weight = n->dout = -1;
		n->dx[0] = n->dx[1] = n->dx_add[0] = n->dx_add[1] = -1;
		if (i == 0) {
			n->in[0] = n->in[1] = -1;
			continue;
		}
		n->op = (unsigned)g->node[i].op < GP_OP_COUNT ? ops[g->node[i].op] : NULL;
		if (!n->op)
			GP_FAIL(err, GP_UNSUPPORTED, "the CUDA device cannot run %s (%s)", gp_op_name(g->node[i].op),
				g->node[i].name);
	}
	return GP_OK;
}

/* --- folding ------------------------------------------------------------------------------------------------------ */

/* The only reader of a node's value; NULL if there are more or none. */
static struct cuda_node *only_reader(const struct cuda_plan *p, const struct cuda_node *n)
{
	const struct gp_graph *g = p->base.spec.graph;
	struct cuda_node *reader = NULL;
	for (int i = n->index + 1; i < g->nodes; i++)
		for (int k = 0; k < 2; k++) {
			if (g->node[i].in[k] != n->index)
				continue;
			if (reader)
				return NULL;
			reader = &p->node[i];
		}
	return reader;
}

/* Node `to` becomes what `from` was, and happens in its own place: by then everything it reads is there. */
static void move_node(struct cuda_node *from, struct cuda_node *to)
{
	to->g = from->g;
	to->op = from->op;
	to->act = from->act;
	to->in[0] = from->in[0];
	to->in[1] = from->in[1];
	from->op = NULL;
	from->absorbed = true;
}

static bool is_sum(const struct cuda_node *n)
{
	return n && !n->absorbed && n->g->op == GP_OP_ADD;
}

static bool is_activation(const struct cuda_node *n)
{
	return n && !n->absorbed && (n->g->op == GP_OP_RELU || n->g->op == GP_OP_RELU6);
}

static void fold_batch_norm(struct cuda_plan *p, struct cuda_node *n)
{
	struct cuda_node *reader = only_reader(p, n);
	if (is_sum(reader)) {
		const int other = reader->in[reader->in[0] == n->index];
		move_node(n, reader);
		n = reader;
		n->in[1] = other;
		reader = only_reader(p, n);
	}
	if (is_activation(reader)) {
		n->act = reader->g->op == GP_OP_RELU ? CUDA_ACT_RELU : CUDA_ACT_RELU6;
		move_node(n, reader);
	}
}

/* A sum that has taken one batch norm is that batch norm from then on: of two that meet, the first goes into it. */
static void fold_batch_norms(struct cuda_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	for (int i = 1; i < g->nodes; i++)
		if (g->node[i].op == GP_OP_BATCH_NORM)
			fold_batch_norm(p, &p->node[i]);
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

static void find_gradients(struct cuda_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	if (!p->base.spec.train)
		return;
	p->node[0].need_grad = p->base.spec.grad_inputs;
	for (int i = 1; i < g->nodes; i++) {
		struct cuda_node *n = &p->node[i];
		if (n->absorbed)
			continue;
		for (int k = 0; k < 2 && n->in[k] >= 0; k++)
			n->want_dx = n->want_dx || p->node[n->in[k]].need_grad;
		n->trains = gp_graph_is_trained(g, n->g);
		n->need_grad = n->want_dx || n->trains;
	}
}

static enum gp_status prepare_nodes(struct cuda_plan *p, struct gp_err *err)
{
	for (int i = 1; i < p->base.spec.graph->nodes; i++) {
		struct cuda_node *n = &p->node[i];
		if (n->absorbed)
			continue;
		n->saves_input = n->op->saves_input;
		n->saves_output = n->op->saves_output;
		if (n->op->prepare)
			GP_TRY(n->op->prepare(p, n, err));
		n->pack_offset = p->pack_bytes;
		p->pack_bytes += gp_cuda_align(n->pack_bytes);
	}
	return GP_OK;
}

/* --- parameters --------------------------------------------------------------------------------------------------- */

static enum gp_status make_params(struct cuda_plan *p, struct gp_err *err)
{
	const struct gp_graph *g = p->base.spec.graph;
	void *param;
	GP_TRY(gp_alloc_array(&param, (size_t)g->params, sizeof *p->param, err));
	p->param = param;
	for (int i = 0; i < g->params; i++)
		p->param[i] = (struct cuda_param){.order = {0, 1, 2, 3}};
	return GP_OK;
}

static int kind_of(const struct gp_param *q)
{
	return !q->trained ? 2 : q->decay ? 0 : 1;
}

/* One optimizer kernel walks over all trained parameters: those with weight decay lie before the others. */
static void place_params(struct cuda_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	uint64_t *const ends[] = {&p->decayed_floats, &p->trained_floats, &p->value_floats};
	uint64_t at = 0;
	for (int kind = 0; kind < 3; kind++) {
		for (int i = 0; i < g->params; i++) {
			if (kind_of(&g->param[i]) != kind)
				continue;
			p->param[i].offset = at;
			at += gp_cuda_align(g->param[i].count * sizeof(float)) / sizeof(float);
		}
		*ends[kind] = at;
	}
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static void add_up_memory(struct cuda_plan *p)
{
	const struct gp_plan_spec *spec = &p->base.spec;
	const uint64_t slots = (uint64_t)spec->slots;
	struct gp_plan_memory *m = &p->memory;
	const struct cuda_parts parts = gp_cuda_parts(p);
	m->params = parts.values + parts.narrow + parts.packs + parts.undo;
	m->grads = parts.grads;
	m->optim = parts.moment;
	m->activations = slots * p->slot_bytes;
	for (int t = 0; t < gp_cuda_tracks(p); t++)
		m->scratch += parts.scratch[t];
	m->scratch += parts.extra + gp_cuda_blas_bytes(p);
	for (int b = 0; b < 4; b++)
		m->io += slots * p->io_bytes[b];
	m->total = m->params + m->grads + m->optim + m->activations + m->scratch + m->io;
	m->host = gp_cuda_host_bytes(p);
}

enum gp_status gp_cuda_plan_build(struct cuda_plan *p, struct gp_err *err)
{
	GP_TRY(check_spec(p, err));
	p->type = p->base.spec.precision == GP_PRECISION_BF16 ? GP_RT_BF16 : GP_RT_F32;
	p->grad_output = p->grad_input = -1;
	GP_TRY(make_nodes(p, err));
	GP_TRY(make_params(p, err));
	fold_batch_norms(p);
	find_gradients(p);
	GP_TRY(prepare_nodes(p, err));
	place_params(p);
	GP_TRY(gp_cuda_plan_layout(p, err));
	gp_cuda_extra_plan(p);
	add_up_memory(p);
	return GP_OK;
}

/* --- for ops ------------------------------------------------------------------------------------------------------ */

int gp_cuda_param_index(const struct cuda_plan *p, const struct cuda_node *n, enum gp_param_role role)
{
	return gp_graph_param_of(p->base.spec.graph, n->g, role);
}

void gp_cuda_order_weight(struct cuda_plan *p, const struct cuda_node *n, const int8_t order[4])
{
	const int i = gp_cuda_param_index(p, n, GP_PARAM_WEIGHT);
	gp_require(i >= 0 && p->base.spec.graph->param[i].shape.ndim == 4);
	memcpy(p->param[i].order, order, sizeof p->param[i].order);
}

float *gp_cuda_param(const struct cuda_plan *p, const struct cuda_node *n, enum gp_param_role role)
{
	const int i = gp_cuda_param_index(p, n, role);
	return i < 0 ? NULL : p->values + p->param[i].offset;
}

float *gp_cuda_grad(const struct cuda_plan *p, const struct cuda_node *n, enum gp_param_role role)
{
	const int i = gp_cuda_param_index(p, n, role);
	if (i < 0 || !p->base.spec.train || !p->base.spec.graph->param[i].trained)
		return NULL;
	return p->grads + p->param[i].offset;
}

const void *gp_cuda_weight(const struct cuda_plan *p, const struct cuda_node *n)
{
	const int i = gp_cuda_param_index(p, n, GP_PARAM_WEIGHT);
	gp_require(i >= 0 && n->op->narrow_weight);
	if (p->type == GP_RT_F32)
		return p->values + p->param[i].offset;
	return (const char *)p->narrow + p->param[i].offset * gp_rt_type_bytes(p->type);
}

struct cuda_image gp_cuda_image(const struct cuda_plan *p, const struct cuda_node *n)
{
	const struct gp_shape *s = &p->base.spec.graph->node[n->index].shape;
	if (s->ndim == 3)
		return (struct cuda_image){p->base.spec.batch, s->dim[0], s->dim[1], s->dim[2]};
	const int64_t c = s->dim[s->ndim - 1];
	return (struct cuda_image){gp_cuda_elements(p, n) / c, 1, 1, c};
}
