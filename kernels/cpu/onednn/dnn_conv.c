/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolution and transposed convolution (grouped, depthwise, asymmetric
 * padding), on oneDNN. A transposed convolution is a convolution from its
 * output to its input run backwards: x is the larger image, y the smaller, and
 * PyTorch's weight layouts (O,I/g,KH,KW) and (I,O/g,KH,KW) become one. Its bias
 * is added apart (cpu_bias.h), oneDNN's backward primitives know none. See dnn.h.
 * Test: tests/unit/test_cpu_ops.c
 */
#include <string.h>

#include "common/base/mem.h"
#include "kernels/cpu/onednn/dnn.h"
#include "kernels/cpu/ops/cpu_bias.h"
#include "common/graph/ops/op_conv.h"

#define FEWEST_CHANNELS_1X1 16

struct conv_state {
	struct dnn_state dnn;
	bool transposed;
	int64_t rows, channels; /* of the output */
	int groups;
	dnnl_memory_desc_t x, y, weight, bias; /* weight, bias: any layout */
	dnnl_dims_t strides, pad_before, pad_after;
};

/* --- geometry --------------------------------------------------------------------------------------------------- */

static dnnl_status_t image_md(dnnl_memory_desc_t *md, int batch, const struct gp_shape *s)
{
	const dnnl_dims_t dims = {batch, s->dim[2], s->dim[0], s->dim[1]};
	return dnnl_memory_desc_init_by_tag(md, 4, dims, dnnl_f32, dnnl_nhwc);
}

/* `tag` for the weight without groups or with. */
static dnnl_status_t weight_md(dnnl_memory_desc_t *md, const struct gp_shape *w, int groups, dnnl_format_tag_t tag,
			       dnnl_format_tag_t grouped_tag)
{
	const dnnl_dims_t plain = {w->dim[0], w->dim[1], w->dim[2], w->dim[3]};
	const dnnl_dims_t grouped = {groups, w->dim[0] / groups, w->dim[1], w->dim[2], w->dim[3]};
	if (groups == 1)
		return dnnl_memory_desc_init_by_tag(md, 4, plain, dnnl_f32, tag);
	return dnnl_memory_desc_init_by_tag(md, 5, grouped, dnnl_f32, grouped_tag);
}

/*
 * oneDNN 2.6's kernels for 1x1 convolutions with a stride do not stand fewer
 * than 16 channels in the larger image: wrong results, and writes behind their
 * scratchpad. A weight in hwio, which they do not take, keeps them away.
 */
static dnnl_status_t any_weight_md(dnnl_memory_desc_t *md, const struct gp_shape *w, const struct gp_conv_attr *a)
{
	bool one_by_one = a->kernel_h == 1 && a->kernel_w == 1, strided = a->stride_h > 1 || a->stride_w > 1;
	if (one_by_one && strided && w->dim[1] < FEWEST_CHANNELS_1X1)
		return weight_md(md, w, a->groups, dnnl_hwio, dnnl_hwigo);
	return weight_md(md, w, a->groups, dnnl_format_tag_any, dnnl_format_tag_any);
}

static dnnl_status_t describe_conv(const void *geometry, enum dnn_role role, union dnn_desc *out)
{
	const struct conv_state *s = geometry;
	const dnnl_memory_desc_t *bias = s->dnn.bias ? &s->bias : NULL;
	dnnl_memory_desc_t x = s->x, y = s->y, weight = s->weight;
	gp_dnn_narrow(&s->dnn, role, &x, &y, &weight);
	switch (role) {
	case DNN_FORWARD:
		return dnnl_convolution_forward_desc_init(&out->conv, dnnl_forward_training, dnnl_convolution_direct,
							  &x, &weight, bias, &y, s->strides, s->pad_before,
							  s->pad_after);
	case DNN_DATA:
		return dnnl_convolution_backward_data_desc_init(&out->conv, dnnl_convolution_direct, &x, &weight, &y,
								s->strides, s->pad_before, s->pad_after);
	default:
		return dnnl_convolution_backward_weights_desc_init(&out->conv, dnnl_convolution_direct, &x, &weight,
								   bias, &y, s->strides, s->pad_before, s->pad_after);
	}
}

static enum gp_status fill_geometry(struct cpu_plan *p, struct cpu_node *n, struct conv_state *s, struct gp_err *err)
{
	const struct gp_conv_attr attr = gp_conv_attr(n->base.g), *const a = &attr;
	const struct gp_shape *in = gp_cpu_in_shape(p, n, 0), *out = &n->base.g->shape;
	const struct gp_shape *w = &p->base.spec.graph->param[gp_cpu_param_index(p, n, GP_PARAM_WEIGHT)].shape;
	const dnnl_dims_t bias_dims = {a->out_channels};
	int batch = p->base.spec.batch;
	s->groups = a->groups;
	s->channels = a->out_channels;
	s->rows = gp_cpu_elements(p, n) / s->channels;
	s->dnn.bias = a->bias && !s->transposed;
	memcpy(s->strides, (const dnnl_dims_t){a->stride_h, a->stride_w}, sizeof s->strides);
	memcpy(s->pad_before, (const dnnl_dims_t){a->pad_top, a->pad_left}, sizeof s->pad_before);
	memcpy(s->pad_after, (const dnnl_dims_t){a->pad_bottom, a->pad_right}, sizeof s->pad_after);
	dnnl_status_t st = image_md(&s->x, batch, s->transposed ? out : in);
	if (st == dnnl_success)
		st = image_md(&s->y, batch, s->transposed ? in : out);
	if (st == dnnl_success)
		st = any_weight_md(&s->weight, w, a);
	if (st == dnnl_success)
		st = weight_md(&s->dnn.dense_md, w, a->groups, dnnl_oihw, dnnl_goihw);
	if (st == dnnl_success)
		st = dnnl_memory_desc_init_by_tag(&s->bias, 1, bias_dims, dnnl_f32, dnnl_x);
	return gp_dnn_check(st, n, "describe", err);
}

static enum gp_status prepare(struct cpu_plan *p, struct cpu_node *n, bool transposed, struct gp_err *err)
{
	struct conv_state *s = gp_calloc(1, sizeof *s);
	if (!s)
		GP_FAIL(err, GP_NOMEM, "out of memory for convolution %s", n->base.g->name);
	n->state = s;
	s->transposed = transposed;
	s->dnn.bf16 = p->base.spec.precision == GP_PRECISION_BF16;
	GP_TRY(fill_geometry(p, n, s, err));
	enum dnn_role forward = transposed ? DNN_DATA : DNN_FORWARD, data = transposed ? DNN_FORWARD : DNN_DATA;
	unsigned roles = 1u << forward;
	if (n->base.want_dx)
		roles |= 1u << data;
	if (n->base.trains)
		roles |= 1u << DNN_WEIGHTS;
	else
		n->base.saves_in = 0;
	return gp_dnn_prepare(p, n, &s->dnn, roles, describe_conv, s, err);
}

static enum gp_status conv_prepare(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	return prepare(p, n, false, err);
}

static enum gp_status transpose_prepare(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	return prepare(p, n, true, err);
}

static enum gp_status conv_create(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	struct conv_state *s = n->state;
	return gp_dnn_create(p, n, &s->dnn, err);
}

static void conv_release(struct cpu_node *n)
{
	struct conv_state *s = n->state;
	if (s)
		gp_dnn_release(&s->dnn);
	gp_free(s);
	n->state = NULL;
}

static enum gp_status conv_repack(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	struct conv_state *s = n->state;
	return gp_dnn_repack(p, n, &s->dnn, err);
}

static enum gp_status conv_grad_dense(struct cpu_plan *p, struct cpu_node *n, float *out, struct gp_err *err)
{
	struct conv_state *s = n->state;
	return gp_dnn_grad_dense(p, n, &s->dnn, out, err);
}

/* --- running ---------------------------------------------------------------------------------------------------- */

static enum gp_status conv_forward(const struct cpu_call *c, struct gp_err *err)
{
	struct conv_state *s = c->node->state;
	return gp_dnn_run(c, &s->dnn, DNN_FORWARD, c->in[0], c->out[0], err);
}

static enum gp_status conv_backward(const struct cpu_call *c, struct gp_err *err)
{
	struct conv_state *s = c->node->state;
	return gp_dnn_backward(c, &s->dnn, DNN_DATA, c->in[0], c->dout[0], err);
}

static enum gp_status transpose_forward(const struct cpu_call *c, struct gp_err *err)
{
	struct conv_state *s = c->node->state;
	GP_TRY(gp_dnn_run(c, &s->dnn, DNN_DATA, c->out[0], c->in[0], err));
	gp_cpu_bias_add(c, c->out[0], s->rows, s->channels);
	return GP_OK;
}

static enum gp_status transpose_backward(const struct cpu_call *c, struct gp_err *err)
{
	struct conv_state *s = c->node->state;
	gp_cpu_bias_gradient(c, c->dout[0], s->rows, s->channels);
	return gp_dnn_backward(c, &s->dnn, DNN_FORWARD, c->dout[0], c->in[0], err);
}

const struct cpu_op gp_cpu_dnn_conv2d = {
	.name = "conv2d",
	.saves_in = 1,
	.prepare = conv_prepare,
	.create = conv_create,
	.release = conv_release,
	.repack = conv_repack,
	.grad_dense = conv_grad_dense,
	.forward = conv_forward,
	.backward = conv_backward,
};

const struct cpu_op gp_cpu_dnn_conv2d_transpose = {
	.name = "conv2d_transpose",
	.saves_in = 1,
	.prepare = transpose_prepare,
	.create = conv_create,
	.release = conv_release,
	.repack = conv_repack,
	.grad_dense = conv_grad_dense,
	.forward = transpose_forward,
	.backward = transpose_backward,
};
