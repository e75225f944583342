/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch normalization on the GPU over all but the last dimension, with the sum
 * and the activation behind it where the plan has folded them in. Backward has
 * to know what the activation let pass. It finds that again from the input; but
 * where a residual was added before the activation, the input alone does not
 * tell, and the output is kept. A batch norm of which nothing is trained uses the
 * running statistics in training, too, and leaves them alone; the modes of others
 * are told in op_batch_norm.h. See k_batch_norm.h.
 * Test: tests/unit/test_cuda_ops.c
 */
#include "kernels/cuda/ops/k_batch_norm.h"
#include "kernels/cuda/plan/cuda_plan.h"
#include "common/graph/ops/op_batch_norm.h"

static struct gpk_bn shape_of(const struct cuda_plan *p, const struct cuda_node *n)
{
	const struct cuda_image image = gp_cuda_image(p, n);
	return (struct gpk_bn){
		.type = p->type,
		.rows = image.n * image.h * image.w,
		.channels = image.c,
		.eps = gp_bn_attr(n->base.g).eps,
		.momentum = gp_bn_attr(n->base.g).momentum,
		.act = n->act == CUDA_ACT_NONE   ? GPK_ACT_NONE
		       : n->act == CUDA_ACT_RELU ? GPK_ACT_RELU
						 : GPK_ACT_RELU6,
	};
}

/* Whether a training forward takes the chunk's statistics; whether GP_CALIBRATE does; and whether any are merged. */
static bool takes_statistics(const struct cuda_node *n)
{
	return n->base.trains && gp_bn_attr(n->base.g).mode != GP_BN_RUNNING;
}

static bool is_calibrated(const struct cuda_plan *p, const struct cuda_node *n)
{
	return p->base.spec.calibrate && gp_graph_is_trained(p->base.spec.graph, n->base.g);
}

static bool is_deferred(const struct cuda_node *n)
{
	return n->base.trains && gp_bn_is_deferred(n->base.g);
}

static struct gpk_bn batch_norm_in(const struct cuda_plan *p, const struct cuda_node *n)
{
	const struct gp_bn_attr attr = gp_bn_attr(n->base.g);
	struct gpk_bn b = shape_of(p, n);
	b.gamma = gp_cuda_param(p, n, GP_PARAM_WEIGHT);
	b.beta = gp_cuda_param(p, n, GP_PARAM_BIAS);
	b.running_mean = gp_cuda_param(p, n, GP_PARAM_RUNNING_MEAN);
	b.running_var = gp_cuda_param(p, n, GP_PARAM_RUNNING_VAR);
	b.merged = p->merged ? p->merged + n->merged_offset : NULL;
	b.fixed = n->base.trains && attr.mode == GP_BN_RUNNING;
	b.r_max = attr.r_max;
	b.d_max = attr.d_max;
	b.warmup = attr.warmup;
	return b;
}

static enum gpk_bn_use use_of(const struct cuda_call *c)
{
	if (c->mode == GP_CALIBRATE)
		return c->plan->calibrates ? GPK_BN_TAKE : GPK_BN_LEAVE;
	return is_deferred(c->node) ? GPK_BN_MERGE : GPK_BN_MOVE;
}

static struct gpk_bn batch_norm_of(const struct cuda_call *c)
{
	struct gpk_bn n = batch_norm_in(c->plan, c->node);
	n.saved = c->saved;
	n.room = c->tmp;
	n.use = use_of(c);
	n.renorm = c->mode == GP_TRAIN && gp_bn_attr(c->node->base.g).mode == GP_BN_RENORM;
	n.updates = c->updates;
	return n;
}

static enum gp_status bn_prepare(struct cuda_plan *p, struct cuda_node *n, struct gp_err *err)
{
	(void)err;
	const struct gpk_bn shape = shape_of(p, n);
	n->base.saves_out = shape.act != GPK_ACT_NONE && n->base.inputs > 1;
	if (!n->base.trains && !is_calibrated(p, n))
		return GP_OK;
	const bool renorm = gp_bn_attr(n->base.g).mode == GP_BN_RENORM;
	n->base.saved_bytes =
		(uint64_t)((renorm ? GPK_BN_SAVED_RENORM : GPK_BN_SAVED) * shape.channels) * sizeof(float);
	n->base.tmp_bytes[0] = n->base.tmp_bytes[1] = gpk_bn_room(shape.rows, shape.channels);
	p->draws = p->draws || (renorm && n->base.trains);
	if (is_deferred(n) || is_calibrated(p, n)) {
		n->merged_offset = p->merged_doubles;
		p->merged_doubles += (uint64_t)(GPK_BN_MERGED * shape.channels);
	}
	return GP_OK;
}

void gp_cuda_bn_end_step(struct cuda_plan *p)
{
	for (int i = p->base.spec.graph->inputs; i < p->base.spec.graph->nodes; i++) {
		const struct cuda_node *n = &p->node[i];
		if (n->op != &gp_cuda_op_batch_norm || n->base.absent || !is_deferred(n))
			continue;
		const struct gpk_bn b = batch_norm_in(p, n);
		gpk_bn_end_step(p->stream, &b);
	}
}

/* Whether this call normalizes by the chunk's own statistics. */
static bool is_by_chunk(const struct cuda_call *c)
{
	if (c->mode == GP_CALIBRATE)
		return is_calibrated(c->plan, c->node);
	return c->mode == GP_TRAIN && takes_statistics(c->node);
}

static void bn_forward(const struct cuda_call *c)
{
	const struct gpk_bn n = batch_norm_of(c);
	if (is_by_chunk(c))
		gpk_bn_forward(c->stream, &n, c->in[0], c->in[1], c->out[0]);
	else if (c->mode == GP_TRAIN && n.fixed)
		gpk_bn_forward_running(c->stream, &n, c->in[0], c->in[1], c->out[0]);
	else
		gpk_bn_forward_eval(c->stream, &n, c->in[0], c->in[1], c->out[0]);
}

static void bn_backward(const struct cuda_call *c)
{
	const struct gpk_bn n = batch_norm_of(c);
	const void *y = c->node->base.saves_out ? c->out[0] : NULL;
	if (!c->node->base.trains) {
		gpk_bn_backward_frozen(c->stream, &n, c->in[0], y, c->dout[0], c->dx[1], c->dx[0]);
		return;
	}
	gpk_bn_backward(c->stream, &n, c->in[0], y, c->dout[0], c->dx[1], c->dx[0],
			gp_cuda_grad(c->plan, c->node, GP_PARAM_WEIGHT), gp_cuda_grad(c->plan, c->node, GP_PARAM_BIAS));
}

const struct cuda_op gp_cuda_op_batch_norm = {
	.name = "batch_norm",
	.saves_in = 1,
	.in_place = true,
	.in_place_backward = true,
	.prepare = bn_prepare,
	.forward = bn_forward,
	.backward = bn_backward,
};
