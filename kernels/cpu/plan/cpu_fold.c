/* SPDX-License-Identifier: Apache-2.0
 *
 * See cpu_fold.h. Test: tests/unit/test_fold.c
 */
#include "kernels/cpu/plan/cpu_fold.h"

#include <math.h>

static bool may_fold(const struct cpu_plan *p, const struct cpu_node *norm)
{
	const struct gp_graph *g = p->base.spec.graph;
	const struct cpu_node *before = gp_cpu_input(p, norm, 0);
	return before->op && before->op->folds_batch_norm && gp_graph_readers(g, norm->base.in[0]) == 1 &&
	       gp_graph_block_of(g, before->base.index) == gp_graph_block_of(g, norm->base.index);
}

void gp_cpu_fold_batch_norms(struct cpu_plan *p)
{
	const struct gp_plan_spec *spec = &p->base.spec;
	if (spec->train || spec->calibrate || spec->precision != GP_PRECISION_FP32)
		return;
	for (int i = spec->graph->inputs; i < spec->graph->nodes; i++) {
		struct cpu_node *norm = &p->node[i], *before = gp_cpu_input(p, norm, 0);
		if (norm->op != &gp_cpu_op_batch_norm || !may_fold(p, norm))
			continue;
		before->folds = norm;
		before->folded = true;
		norm->base.view = true;
	}
}

static uint64_t weights_of(const struct cpu_plan *p, const struct cpu_node *n)
{
	return p->base.spec.graph->param[gp_cpu_param_index(p, n, GP_PARAM_WEIGHT)].count;
}

static int64_t channels_of(const struct cpu_node *n)
{
	const struct gp_shape *shape = &n->base.g->shape;
	return shape->dim[shape->ndim - 1];
}

static uint64_t reserve_vector(struct cpu_plan *p, const struct cpu_node *n)
{
	const uint64_t offset = p->pack_bytes;
	p->pack_bytes += gp_cpu_align((uint64_t)channels_of(n) * sizeof(float));
	return offset;
}

void gp_cpu_fold_reserve(struct cpu_plan *p, struct cpu_node *n, bool scales)
{
	if (!n->folds)
		return;
	const uint64_t scaled = scales ? weights_of(p, n) * sizeof(float) : 0;
	n->fold_scale = reserve_vector(p, n);
	n->fold_bias = reserve_vector(p, n);
	if (n->tmp_bytes < scaled)
		n->tmp_bytes = scaled;
}

void gp_cpu_fold_fill(const struct cpu_plan *p, const struct cpu_node *n)
{
	float *scale = (float *)(p->packs + n->fold_scale), *bias = (float *)(p->packs + n->fold_bias);
	for (int64_t ch = 0; n->folds && ch < channels_of(n); ch++) {
		const struct gp_cpu_affine norm = gp_cpu_bn_affine(p, n->folds, ch);
		scale[ch] = (float)norm.a;
		bias[ch] = (float)norm.b;
	}
}

const float *gp_cpu_fold_weight(const struct cpu_plan *p, const struct cpu_node *n)
{
	const float *weight = gp_cpu_param_value(p, n, GP_PARAM_WEIGHT);
	if (!n->folds)
		return weight;
	gp_cpu_fold_fill(p, n);
	const int64_t channels = channels_of(n), each = (int64_t)weights_of(p, n) / channels;
	const float *scale = (const float *)(p->packs + n->fold_scale);
	float *scaled = gp_cpu_buf(p, 0, n->base.tmp[0]);
	for (int64_t ch = 0; ch < channels; ch++)
		for (int64_t i = ch * each; i < (ch + 1) * each; i++)
			scaled[i] = scale[ch] * weight[i];
	return scaled;
}

struct gp_finish gp_cpu_fold_finish(const struct cpu_plan *p, const struct cpu_node *n)
{
	const enum cpu_act act = n->folds->act;
	return (struct gp_finish){.scale = (const float *)(p->packs + n->fold_scale),
				  .bias = (const float *)(p->packs + n->fold_bias),
				  .low = act == CPU_ACT_NONE ? -INFINITY : 0.0f,
				  .high = act == CPU_ACT_RELU6 ? 6.0f : INFINITY};
}
