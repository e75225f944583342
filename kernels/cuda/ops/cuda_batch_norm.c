/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch normalization on the GPU over all but the last dimension, with the sum
 * and the activation behind it where the plan has folded them in. Backward has
 * to know what the activation let pass. It finds that again from the input; but
 * where a residual was added before the activation, the input alone does not
 * tell, and the output is kept; a mask of bits where maps lie encoded, because a
 * codec may not give zeros back as zeros. A batch norm of which nothing is trained uses the
 * running statistics in training, too, and leaves them alone; the modes of others
 * are told in op_batch_norm.h. See k_batch_norm.h.
 * Test: tests/unit/test_cuda_ops.c
 */
#include "kernels/cuda/ops/conv_ways.h"
#include "kernels/cuda/ops/k_batch_norm.h"
#include "kernels/cuda/ops/k_depthwise.h"
#include "kernels/cuda/ops/k_elementwise.h"
#include "kernels/cuda/plan/cuda_plan.h"
#include "kernels/plan/plan_store.h"
#include "common/graph/ops/op_batch_norm.h"

static struct gpk_bn shape_of(const struct cuda_plan *p, const struct cuda_node *n)
{
	const struct cuda_image image = gp_cuda_image(p, n);
	return (struct gpk_bn){
		.type = p->type,
		.rows = image.n * image.h * image.w,
		.channels = image.c,
		.high = image.h,
		.wide = image.w,
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

static enum gpk_bn_use use_of(const struct cuda_call *c, const struct cuda_node *n)
{
	if (c->mode == GP_CALIBRATE)
		return c->plan->calibrates ? GPK_BN_TAKE : GPK_BN_LEAVE;
	return is_deferred(n) ? GPK_BN_MERGE : GPK_BN_MOVE;
}

struct gpk_bn gp_cuda_bn_of(const struct cuda_call *c, const struct cuda_node *n, void *saved, void *room)
{
	struct gpk_bn b = batch_norm_in(c->plan, n);
	b.saved = saved;
	b.room = room;
	b.use = use_of(c, n);
	b.renorm = c->mode == GP_TRAIN && gp_bn_attr(n->base.g).mode == GP_BN_RENORM;
	b.updates = c->updates;
	return b;
}

static struct gpk_bn batch_norm_of(const struct cuda_call *c)
{
	return gp_cuda_bn_of(c, c->node, c->saved, c->tmp);
}

bool gp_cuda_bn_takes_statistics(const struct cuda_plan *p, const struct cuda_node *n)
{
	return takes_statistics(n) || is_calibrated(p, n);
}

bool gp_cuda_bn_is_small(const struct cuda_plan *p, const struct cuda_node *n)
{
	const struct gpk_bn shape = shape_of(p, n);
	return gpk_bn_at_once(shape.rows, shape.channels);
}

/* `saved` has the mask behind what it has else; backward spreads it into a map, behind its other room. */
static void add_mask(const struct cuda_plan *p, struct cuda_node *n)
{
	if (!n->base.saves_out || !n->base.need_grad || !gp_walk_stores(&p->walk))
		return;
	n->masks = true;
	n->base.saves_out = 0;
	n->mask_at = gp_cuda_align(n->base.saved_bytes);
	n->base.saved_bytes = n->mask_at + gpk_mask_bytes(gp_cuda_elements(p, n));
	n->base.tmp_bytes[1] = gp_cuda_align(n->returned_bytes) + gp_walk_bytes(&p->walk, n->base.first_value);
}

static void prepare_saved(struct cuda_plan *p, struct cuda_node *n)
{
	const struct gpk_bn shape = shape_of(p, n);
	n->base.saves_out = shape.act != GPK_ACT_NONE && n->base.inputs > 1;
	if (!n->base.trains && !is_calibrated(p, n) && !n->base.unwritten)
		return;
	const bool renorm = gp_bn_attr(n->base.g).mode == GP_BN_RENORM;
	n->base.saved_bytes =
		(uint64_t)((renorm ? GPK_BN_SAVED_RENORM : GPK_BN_SAVED) * shape.channels) * sizeof(float);
	n->base.keeps_saved = true;
	n->returned_bytes = gpk_bn_room(shape.rows, shape.channels);
	n->base.tmp_bytes[0] = n->fed_by ? 0 : n->returned_bytes;
	n->base.tmp_bytes[1] = n->conv && n->conv->returns ? 0 : n->returned_bytes;
	p->draws = p->draws || (renorm && n->base.trains);
	if (is_deferred(n) || is_calibrated(p, n)) {
		n->merged_offset = p->merged_doubles;
		p->merged_doubles += (uint64_t)(GPK_BN_MERGED * shape.channels);
	}
}

static enum gp_status bn_prepare(struct cuda_plan *p, struct cuda_node *n, struct gp_err *err)
{
	(void)err;
	prepare_saved(p, n);
	add_mask(p, n);
	return GP_OK;
}

static void *mask_of(const struct cuda_call *c)
{
	return (char *)c->saved + c->node->mask_at;
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

bool gp_cuda_bn_is_by_chunk(const struct cuda_call *c, const struct cuda_node *n)
{
	if (c->mode == GP_CALIBRATE)
		return is_calibrated(c->plan, n);
	return c->mode == GP_TRAIN && takes_statistics(n);
}

/* The convolution before it, and the batch norm before that, have left everything to this one. */
static void forward_of_chain(const struct cuda_call *c)
{
	const struct cuda_node *conv = c->node->fed_by, *first = conv->before;
	const struct gpk_bn before = gp_cuda_bn_of(c, first, c->before_saved, NULL), behind = batch_norm_of(c);
	const struct gpk_window w = gp_cuda_conv_window(c->plan, conv);
	gpk_depthwise_rows_forward(c->stream, &w, gp_cuda_param(c->plan, conv, GP_PARAM_WEIGHT), &before,
				   gp_cuda_bn_is_by_chunk(c, first), &behind, gp_cuda_bn_is_by_chunk(c, c->node),
				   c->conv_in, (void *)(uintptr_t)c->in[0], c->out[0]);
}

/* Its reader normalizes: here only what that reads of it is made, unless the convolution before has. */
static void forward_unwritten(const struct cuda_call *c)
{
	const struct gpk_bn n = batch_norm_of(c);
	if (c->node->conv->chained)
		return;
	if (!gp_cuda_bn_is_by_chunk(c, c->node))
		gpk_bn_keep_running(c->stream, &n);
	else if (!c->node->fed_by)
		gpk_bn_statistics(c->stream, &n, c->in[0]);
}

static void forward_alone(const struct cuda_call *c)
{
	const struct gpk_bn n = batch_norm_of(c);
	if ((c->again && c->node->base.trains) || (gp_cuda_bn_is_by_chunk(c, c->node) && c->node->fed_by))
		gpk_bn_apply(c->stream, &n, c->in[0], c->in[1], c->out[0]);
	else if (gp_cuda_bn_is_by_chunk(c, c->node))
		gpk_bn_forward(c->stream, &n, c->in[0], c->in[1], c->out[0]);
	else if (c->mode == GP_TRAIN && n.fixed)
		gpk_bn_forward_running(c->stream, &n, c->in[0], c->in[1], c->out[0]);
	else
		gpk_bn_forward_eval(c->stream, &n, c->in[0], c->in[1], c->out[0]);
}

static void bn_forward(const struct cuda_call *c)
{
	if (c->node->fed_by && c->node->fed_by->chained)
		forward_of_chain(c);
	else if (c->node->base.unwritten)
		forward_unwritten(c);
	else
		forward_alone(c);
	if (c->node->masks && c->mode == GP_TRAIN)
		gpk_mask_of(c->stream, c->type, c->node->act == CUDA_ACT_RELU6, mask_of(c), c->out[0],
			    gp_cuda_elements(c->plan, c->node));
}

/* The convolution behind it has left its input's gradient to this one, or has added its sums up. */
static bool backward_with_conv(const struct cuda_call *c, const struct gpk_bn *n)
{
	const struct cuda_node *conv = c->node->conv;
	if (conv && conv->leaves_dx) {
		const struct gpk_window w = gp_cuda_conv_window(c->plan, conv);
		gpk_depthwise_rows_backward(c->stream, &w, gp_cuda_param(c->plan, conv, GP_PARAM_WEIGHT), n, c->in[0],
					    c->conv_dout, c->dx[0], gp_cuda_grad(c->plan, c->node, GP_PARAM_WEIGHT),
					    gp_cuda_grad(c->plan, c->node, GP_PARAM_BIAS));
		return true;
	}
	if (conv && conv->returns && c->dx[0])
		gpk_bn_backward_apply(c->stream, n, c->in[0], c->dout[0], c->dx[0]);
	return conv && conv->returns;
}

/* What tells where the gradient passes the activation, behind a sum; NULL: the input tells. */
static const void *kept_output(const struct cuda_call *c)
{
	if (!c->node->masks)
		return c->node->base.saves_out ? c->out[0] : NULL;
	void *map = (char *)c->tmp + gp_cuda_align(c->node->returned_bytes);
	gpk_mask_spread(c->stream, c->type, map, mask_of(c), gp_cuda_elements(c->plan, c->node));
	return map;
}

static void bn_backward(const struct cuda_call *c)
{
	const struct gpk_bn n = batch_norm_of(c);
	if (backward_with_conv(c, &n))
		return;
	const void *y = kept_output(c);
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
