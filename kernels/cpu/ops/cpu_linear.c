/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear layer over the last dimension, on oneDNN's inner product. See dnn.h.
 * Test: tests/unit/test_cpu_ops.c
 */
#include "common/base/mem.h"
#include "kernels/cpu/plan/dnn.h"
#include "common/graph/ops/op_linear.h"

struct linear_state {
	struct dnn_state dnn;
	dnnl_memory_desc_t x, y, weight, bias; /* weight: any layout */
};

static dnnl_status_t describe_linear(const void *geometry, enum dnn_role role, union dnn_desc *out)
{
	const struct linear_state *s = geometry;
	const dnnl_memory_desc_t *bias = s->dnn.bias ? &s->bias : NULL;
	dnnl_memory_desc_t x = s->x, y = s->y, weight = s->weight;
	gp_dnn_narrow(&s->dnn, role, &x, &y, &weight);
	switch (role) {
	case DNN_FORWARD:
		return dnnl_inner_product_forward_desc_init(&out->product, dnnl_forward_training, &x, &weight, bias,
							    &y);
	case DNN_DATA:
		return dnnl_inner_product_backward_data_desc_init(&out->product, &x, &weight, &y);
	default:
		return dnnl_inner_product_backward_weights_desc_init(&out->product, &x, &weight, bias, &y);
	}
}

static enum gp_status fill_geometry(struct cpu_plan *p, struct cpu_node *n, struct linear_state *s, struct gp_err *err)
{
	const struct gp_shape *w = &p->base.spec.graph->param[gp_cpu_param_index(p, n, GP_PARAM_WEIGHT)].shape;
	int64_t rows = gp_cpu_elements(p, n) / w->dim[0];
	const dnnl_dims_t x = {rows, w->dim[1]}, y = {rows, w->dim[0]}, weight = {w->dim[0], w->dim[1]};
	s->dnn.bias = gp_linear_attr(n->base.g).bias;
	dnnl_status_t st = dnnl_memory_desc_init_by_tag(&s->x, 2, x, dnnl_f32, dnnl_nc);
	if (st == dnnl_success)
		st = dnnl_memory_desc_init_by_tag(&s->y, 2, y, dnnl_f32, dnnl_nc);
	if (st == dnnl_success)
		st = dnnl_memory_desc_init_by_tag(&s->weight, 2, weight, dnnl_f32, dnnl_format_tag_any);
	if (st == dnnl_success)
		st = dnnl_memory_desc_init_by_tag(&s->dnn.dense_md, 2, weight, dnnl_f32, dnnl_oi);
	if (st == dnnl_success)
		st = dnnl_memory_desc_init_by_tag(&s->bias, 1, weight, dnnl_f32, dnnl_x);
	return gp_dnn_check(st, n, "describe", err);
}

static enum gp_status linear_prepare(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	struct linear_state *s = gp_calloc(1, sizeof *s);
	if (!s)
		GP_FAIL(err, GP_NOMEM, "out of memory for linear layer %s", n->base.g->name);
	n->state = s;
	s->dnn.bf16 = p->base.spec.precision == GP_PRECISION_BF16;
	GP_TRY(fill_geometry(p, n, s, err));
	unsigned roles = 1u << DNN_FORWARD;
	if (n->base.want_dx)
		roles |= 1u << DNN_DATA;
	if (n->base.trains)
		roles |= 1u << DNN_WEIGHTS;
	else
		n->base.saves_in = 0;
	return gp_dnn_prepare(p, n, &s->dnn, roles, describe_linear, s, err);
}

static enum gp_status linear_create(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	struct linear_state *s = n->state;
	return gp_dnn_create(p, n, &s->dnn, err);
}

static void linear_release(struct cpu_node *n)
{
	struct linear_state *s = n->state;
	if (s)
		gp_dnn_release(&s->dnn);
	gp_free(s);
	n->state = NULL;
}

static enum gp_status linear_repack(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	struct linear_state *s = n->state;
	return gp_dnn_repack(p, n, &s->dnn, err);
}

static enum gp_status linear_grad_dense(struct cpu_plan *p, struct cpu_node *n, float *out, struct gp_err *err)
{
	struct linear_state *s = n->state;
	return gp_dnn_grad_dense(p, n, &s->dnn, out, err);
}

static enum gp_status linear_forward(const struct cpu_call *c, struct gp_err *err)
{
	struct linear_state *s = c->node->state;
	return gp_dnn_run(c, &s->dnn, DNN_FORWARD, c->in[0], c->out[0], err);
}

static enum gp_status linear_backward(const struct cpu_call *c, struct gp_err *err)
{
	struct linear_state *s = c->node->state;
	return gp_dnn_backward(c, &s->dnn, DNN_DATA, c->in[0], c->dout[0], err);
}

const struct cpu_op gp_cpu_op_linear = {
	.name = "linear",
	.saves_in = 1,
	.prepare = linear_prepare,
	.create = linear_create,
	.release = linear_release,
	.repack = linear_repack,
	.grad_dense = linear_grad_dense,
	.forward = linear_forward,
	.backward = linear_backward,
};
