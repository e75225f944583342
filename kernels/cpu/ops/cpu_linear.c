/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear layer over the last dimension, on oneDNN's inner product. See dnn.h.
 * Test: tests/unit/test_cpu_ops.c, tests/unit/test_linear_rows.c
 */
#include <string.h>

#include "common/base/mem.h"
#include "kernels/cpu/plan/dnn.h"
#include "kernels/cpu/plan/parallel.h"
#include "common/graph/ops/op_linear.h"

#define GRAIN         16 /* floats of a cache line */
#define MANY_ROWS     64
#define MANY_PRODUCTS ((int64_t)1 << 25)

struct linear_state {
	struct dnn_state dnn;
	dnnl_memory_desc_t x, y, weight, bias; /* weight: any layout, or as it is */
	int64_t rows, in, out;
	bool as_it_is; /* every product reads, or adds to, the weight in PyTorch's layout */
};

/*
 * Many rows of fp32 are multiplied with the weight as it is, by oneDNN's general product. In version 2.6 the kernels
 * that it chooses otherwise, with a layout of their own, take longer for gradients: of 1024 rows and a weight of
 * 768 x 3072 1.3 times for that of the rows and 1.5 to 1.9 times for that of the weight, and still 1.2 to 1.4 times in
 * all near these limits. Forward they take up to 1.2 times as long, and near these limits a twentieth less. The weight is
 * held once, not three times, and its gradient is added up where it lies.
 */
static bool fits_as_it_is(const struct linear_state *s)
{
	return !s->dnn.bf16 && s->rows >= MANY_ROWS && s->rows * s->out >= (MANY_PRODUCTS + s->in - 1) / s->in;
}

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
	s->rows = rows;
	s->in = w->dim[1];
	s->out = w->dim[0];
	s->as_it_is = fits_as_it_is(s);
	dnnl_status_t st = dnnl_memory_desc_init_by_tag(&s->x, 2, x, dnnl_f32, dnnl_nc);
	if (st == dnnl_success)
		st = dnnl_memory_desc_init_by_tag(&s->y, 2, y, dnnl_f32, dnnl_nc);
	if (st == dnnl_success)
		st = dnnl_memory_desc_init_by_tag(&s->weight, 2, weight, dnnl_f32,
						  s->as_it_is ? dnnl_oi : dnnl_format_tag_any);
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
	if (n->base.trains && !s->as_it_is)
		roles |= 1u << DNN_WEIGHTS;
	n->plain_grad = s->as_it_is;
	if (!n->base.trains)
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
	if (!s->as_it_is)
		return gp_dnn_grad_dense(p, n, &s->dnn, out, err);
	gp_cpu_copy(p->threads, out, gp_cpu_param_grad(p, n, GP_PARAM_WEIGHT), s->in * s->out);
	return GP_OK;
}

static enum gp_status linear_forward(const struct cpu_call *c, struct gp_err *err)
{
	struct linear_state *s = c->node->state;
	return gp_dnn_run(c, &s->dnn, DNN_FORWARD, c->in[0], c->out[0], err);
}

struct bias_job {
	float *grad;
	const float *dout;
	int64_t rows, width;
	bool fresh;
};

/* A part has columns of its own, and goes through the rows in their order. */
static void bias_part(void *arg, int part, int parts)
{
	const struct bias_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->width, GRAIN, part, parts);
	float *grad = job->grad + r.from;
	if (job->fresh)
		memset(grad, 0, (size_t)(r.to - r.from) * sizeof *grad);
	for (int64_t row = 0; row < job->rows; row++)
		gp_cpu_add_row(grad, job->dout + row * job->width + r.from, r.to - r.from);
}

/* dW = dout' x, or added to what earlier chunks gave. */
static enum gp_status add_gradients(const struct cpu_call *c, const struct linear_state *s, int64_t rows,
				    struct gp_err *err)
{
	float *weight = gp_cpu_param_grad(c->plan, c->node, GP_PARAM_WEIGHT);
	float *bias = gp_cpu_param_grad(c->plan, c->node, GP_PARAM_BIAS);
	struct bias_job job = {bias, c->dout[0], rows, s->out, !c->accumulate};
	if (bias)
		gp_cpu_parallel(gp_cpu_parts(c->plan->threads, rows * s->out), bias_part, &job);
	if (!weight)
		return GP_OK;
	const dnnl_status_t status = dnnl_sgemm('T', 'N', s->out, s->in, rows, 1.0f, c->dout[0], s->out, c->in[0],
						s->in, c->accumulate ? 1.0f : 0.0f, weight, s->in);
	return gp_dnn_check(status, c->node, "find the weight gradient of", err);
}

static enum gp_status linear_backward(const struct cpu_call *c, struct gp_err *err)
{
	struct linear_state *s = c->node->state;
	if (s->as_it_is) {
		if (c->node->base.trains)
			GP_TRY(add_gradients(c, s, err));
		return c->dx[0] ? gp_dnn_run(c, &s->dnn, DNN_DATA, c->dx[0], c->dout[0], err) : GP_OK;
	}
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
