/* SPDX-License-Identifier: Apache-2.0
 *
 * From a graph to the nodes of a CUDA plan: which op runs each node, which
 * sums and activations a batch norm takes over, which gradients are needed, which
 * activations keep masks, where each parameter lies in its block. Takes no device
 * memory. See cuda_plan.h.
 * Test: tests/unit/test_cuda_plan.c
 */
#include "kernels/cuda/plan/cuda_plan.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/graph/ops/op_batch_norm.h"
#include "kernels/cuda/ops/k_elementwise.h"
#include "kernels/cuda/plan/cuda_code.h"
#include "kernels/cuda/plan/cuda_plan_impl.h"
#include "kernels/cuda/runtime/pinned_pool.h"
#include "kernels/plan/plan_again.h"
#include "kernels/plan/plan_check.h"
#include "kernels/plan/plan_masks.h"

static const struct cuda_op *const ops[GP_OP_COUNT] = {
#define X(id, NAME, name) [GP_OP_##NAME] = &gp_cuda_op_##name,
	GP_OPS(X)
#undef X
};

static enum gp_status check_spec(struct cuda_plan *p, struct gp_err *err)
{
	const struct gp_plan_spec *spec = &p->base.spec;
	if (!gp_device_supports(&p->dev->base, spec->precision))
		GP_FAIL(err, GP_DEVICE, "%s cannot compute in %s (compute capability %d.%d, 8.0 is needed); use fp32",
			p->dev->info.name, gp_precision_name(spec->precision), p->dev->info.major, p->dev->info.minor);
	GP_TRY(gp_plan_check_spec(spec, err));
	return gp_cuda_codecs_prepare(p, err);
}

static enum gp_status make_nodes(struct cuda_plan *p, struct gp_err *err)
{
	const struct gp_graph *g = p->base.spec.graph;
	void *node;
	GP_TRY(gp_alloc_array(&node, (size_t)g->nodes, sizeof *p->node, err));
	p->node = node;
	p->walk = (struct gp_walk){.spec = &p->base.spec, .nodes = node, .node_bytes = sizeof *p->node};
	p->walk.align = gp_cuda_align(1);
	p->walk.real_bytes = gp_rt_type_bytes(p->type);
	p->walk.pools = CUDA_TRACKS;
	GP_TRY(gp_walk_init(&p->walk, err));
	for (int i = 0; i < g->nodes; i++) {
		struct cuda_node *n = &p->node[i];
		n->tmp_weight = n->returned = -1;
		if (n->base.absent)
			continue;
		n->op = (unsigned)g->node[i].op < GP_OP_COUNT ? ops[g->node[i].op] : NULL;
		if (!n->op)
			GP_FAIL(err, GP_UNSUPPORTED, "the CUDA device cannot run %s (%s)", gp_op_name(g->node[i].op),
				g->node[i].name);
	}
	return GP_OK;
}

/* --- folding ------------------------------------------------------------------------------------------------------ */

static bool reads(const struct cuda_node *n, int value)
{
	for (int k = 0; !n->base.absent && k < n->base.inputs; k++)
		if (n->base.in[k] == value)
			return true;
	return false;
}

struct cuda_node *gp_cuda_only_reader(const struct cuda_plan *p, const struct cuda_node *n)
{
	const struct gp_graph *g = p->base.spec.graph;
	if (gp_graph_readers(g, n->base.first_value) != 1)
		return NULL;
	for (int i = n->base.index + 1; i < g->nodes; i++)
		if (reads(&p->node[i], n->base.first_value))
			return &p->node[i];
	return NULL;
}

/* Whether no node between the two reads what `from` reads: else the gradients would be added up in another order. */
static bool may_move(const struct cuda_plan *p, const struct cuda_node *from, const struct cuda_node *to)
{
	for (int i = from->base.index + 1; i < to->base.index; i++)
		for (int k = 0; k < from->base.inputs; k++)
			if (reads(&p->node[i], from->base.in[k]))
				return false;
	return true;
}

/* Node `to` becomes what `from` was, and happens in its own place: by then everything it reads is there. */
static void move_node(struct cuda_node *from, struct cuda_node *to)
{
	to->base.g = from->base.g;
	to->base.inputs = from->base.inputs;
	for (int k = 0; k < from->base.inputs; k++)
		to->base.in[k] = from->base.in[k];
	to->op = from->op;
	to->act = from->act;
	from->op = NULL;
	from->base.absent = true;
}

static bool is_sum_of_two(const struct cuda_node *n)
{
	return n && n->base.g->op == GP_OP_ADD && n->base.inputs == 2;
}

static bool is_activation(const struct cuda_node *n)
{
	return n && (n->base.g->op == GP_OP_RELU || n->base.g->op == GP_OP_RELU6);
}

static void fold_batch_norm(struct cuda_plan *p, struct cuda_node *n)
{
	struct cuda_node *reader = gp_cuda_only_reader(p, n);
	if (is_sum_of_two(reader) && may_move(p, n, reader) && gp_walk_same_part(&p->walk, &n->base, &reader->base)) {
		const int other = reader->base.in[reader->base.in[0] == n->base.first_value];
		move_node(n, reader);
		n = reader;
		n->base.in[1] = other;
		n->base.inputs = 2;
		reader = gp_cuda_only_reader(p, n);
	}
	if (is_activation(reader) && may_move(p, n, reader) && gp_walk_same_part(&p->walk, &n->base, &reader->base)) {
		n->act = reader->base.g->op == GP_OP_RELU ? CUDA_ACT_RELU : CUDA_ACT_RELU6;
		move_node(n, reader);
	}
}

/* A sum that has taken one batch norm is that batch norm from then on: of two that meet, the first goes into it. */
static void fold_batch_norms(struct cuda_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	for (int i = g->inputs; i < g->nodes; i++)
		if (g->node[i].op == GP_OP_BATCH_NORM)
			fold_batch_norm(p, &p->node[i]);
}

/* --- ops ---------------------------------------------------------------------------------------------------------- */

/* Where a batch norm has a residual and no activation behind it, the residual's gradient is its own. */
static uint64_t passes_of(const struct cuda_node *n)
{
	if (n->op->passes_gradient)
		return GP_WALK_ALL;
	return n->base.g->op == GP_OP_BATCH_NORM && n->act == CUDA_ACT_NONE ? 2 : 0;
}

static enum gp_status prepare_nodes(struct cuda_plan *p, struct gp_err *err)
{
	for (int i = 0; i < p->base.spec.graph->nodes; i++) {
		struct cuda_node *n = &p->node[i];
		GP_TRY(gp_plan_check_stop(&p->base.spec, err));
		if (n->base.absent)
			continue;
		n->base.in_place = n->op->in_place;
		n->base.in_place_backward = n->op->in_place_backward;
		n->base.adds_gradient = n->op->adds_gradient;
		n->base.saves_in = n->op->saves_in;
		n->base.saves_out = n->op->saves_out;
		n->base.passes = passes_of(n);
		if (n->op->prepare)
			GP_TRY(n->op->prepare(p, n, err));
		n->moves = n->base.view || n->base.passes == GP_WALK_ALL;
		if (gp_cuda_codec(p, GP_STRUCT_GRAD_MAPS)) /* what the node computes is coded before it is added */
			n->base.adds_gradient = false;
		n->pack_offset = p->pack_bytes;
		p->pack_bytes += gp_cuda_align(n->pack_bytes);
	}
	return GP_OK;
}

/* After the nodes were prepared, as it depends on what all of them keep. */
static void choose_masks(struct cuda_plan *p)
{
	gp_walk_find_kept(&p->walk);
	for (int i = p->base.spec.graph->inputs; i < p->base.spec.graph->nodes; i++) {
		struct cuda_node *n = &p->node[i];
		if (n->base.absent || !is_activation(n) || !gp_walk_wants_mask(&p->walk, &n->base))
			continue;
		n->masks = true;
		n->base.saves_out = 0;
		n->base.saved_bytes = gpk_mask_bytes(gp_cuda_elements(p, n));
	}
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

static int kind_of(const struct gp_graph *g, const struct gp_param *q)
{
	const bool statistic = q->role == GP_PARAM_RUNNING_MEAN || q->role == GP_PARAM_RUNNING_VAR;
	if (q->trained)
		return q->decay ? 0 : 1;
	return statistic && gp_bn_moves(g, &g->node[q->node]) && !gp_bn_is_deferred(&g->node[q->node]) ? 2 : 3;
}

/* One optimizer kernel walks over all trained parameters: those with weight decay lie before the others. */
static void place_params(struct cuda_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	uint64_t *const ends[] = {&p->decayed_floats, &p->trained_floats, &p->moved_floats, &p->value_floats};
	uint64_t at = 0;
	for (int kind = 0; kind < 4; kind++) {
		for (int i = 0; i < g->params; i++) {
			if (kind_of(g, &g->param[i]) != kind)
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
	m->params = parts.values + parts.decoded + parts.narrow + parts.packs + parts.undo + parts.merged;
	m->grads = parts.grads;
	m->optim = parts.moment;
	m->activations = slots * p->walk.slot_bytes;
	for (int t = 0; t < gp_cuda_tracks(p); t++)
		m->scratch += parts.scratch[t];
	m->scratch += parts.coding + parts.extra + gp_cuda_blas_bytes(p);
	m->io = slots * p->walk.all_io_bytes;
	m->total = m->params + m->grads + m->optim + m->activations + m->scratch + m->io;
	m->host = gp_pinned_bytes(gp_cuda_host_bytes(p));
}

enum gp_status gp_cuda_plan_build(struct cuda_plan *p, struct gp_err *err)
{
	GP_TRY(check_spec(p, err));
	p->type = p->base.spec.precision == GP_PRECISION_BF16 ? GP_RT_BF16 : GP_RT_F32;
	GP_TRY(make_nodes(p, err));
	GP_TRY(make_params(p, err));
	fold_batch_norms(p);
	gp_walk_find_gradients(&p->walk);
	if (!gp_walk_recomputes(&p->walk) && !gp_cuda_codec(p, GP_STRUCT_GRAD_MAPS))
		gp_cuda_share_batch_norms(p);
	GP_TRY(prepare_nodes(p, err));
	choose_masks(p);
	place_params(p);
	gp_cuda_pieces_count(p);
	GP_TRY(gp_cuda_plan_layout(p, err));
	gp_cuda_extra_plan(p);
	add_up_memory(p);
	return GP_OK;
}

/* --- for ops ------------------------------------------------------------------------------------------------------ */

int gp_cuda_param_index(const struct cuda_plan *p, const struct cuda_node *n, enum gp_param_role role)
{
	return gp_graph_param_of(p->base.spec.graph, n->base.g, role);
}

void gp_cuda_order_weight(struct cuda_plan *p, const struct cuda_node *n, const int8_t order[4])
{
	const int i = gp_cuda_param_index(p, n, GP_PARAM_WEIGHT);
	gp_require(i >= 0 && p->base.spec.graph->param[i].shape.ndim == 4);
	memcpy(p->param[i].order, order, sizeof p->param[i].order);
}

bool gp_cuda_is_trained(const struct cuda_plan *p, const struct cuda_node *n, enum gp_param_role role)
{
	const int i = gp_cuda_param_index(p, n, role);
	return i >= 0 && p->base.spec.train && p->base.spec.graph->param[i].trained;
}

/* As forward and backward read it, and write running statistics. */
static float *value_of(const struct cuda_plan *p, int index)
{
	const bool decoded = p->decoded && p->base.spec.graph->param[index].trained;
	return (decoded ? p->decoded : p->values) + p->param[index].offset;
}

float *gp_cuda_param(const struct cuda_plan *p, const struct cuda_node *n, enum gp_param_role role)
{
	const int i = gp_cuda_param_index(p, n, role);
	return i < 0 ? NULL : value_of(p, i);
}

float *gp_cuda_grad(const struct cuda_plan *p, const struct cuda_node *n, enum gp_param_role role)
{
	if (!gp_cuda_is_trained(p, n, role))
		return NULL;
	return p->grads + p->param[gp_cuda_param_index(p, n, role)].offset;
}

const void *gp_cuda_weight(const struct cuda_plan *p, const struct cuda_node *n)
{
	const int i = gp_cuda_param_index(p, n, GP_PARAM_WEIGHT);
	gp_require(i >= 0 && n->op->narrow_weight);
	if (p->type == GP_RT_F32)
		return value_of(p, i);
	return (const char *)p->narrow + p->param[i].offset * gp_rt_type_bytes(p->type);
}

static struct cuda_image image_of(const struct cuda_plan *p, int value)
{
	const struct gp_shape *s = &gp_walk_type(&p->walk, value)->shape;
	if (s->ndim == 3)
		return (struct cuda_image){p->base.spec.batch, s->dim[0], s->dim[1], s->dim[2]};
	const int64_t c = s->dim[s->ndim - 1];
	return (struct cuda_image){gp_walk_elements(&p->walk, value) / c, 1, 1, c};
}

struct cuda_image gp_cuda_image(const struct cuda_plan *p, const struct cuda_node *n)
{
	return image_of(p, n->base.first_value);
}

struct cuda_image gp_cuda_in_image(const struct cuda_plan *p, const struct cuda_node *n, int k)
{
	return image_of(p, n->base.in[k]);
}
