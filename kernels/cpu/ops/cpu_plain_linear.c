/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear layer over the last dimension, on own products (kernels/cpu/math/product.h): for processors that oneDNN is not
 * there for, and the reference for it (kernels/cpu/onednn/dnn_linear.c). The weight is read, and its gradient is kept, as
 * PyTorch has it. Columns of each product are shared out over threads, so that nothing depends on their number. Always
 * fp32: in bf16 it is cpu_bf16_linear.c.
 *
 * Test: tests/unit/test_cpu_ops.c, tests/unit/test_linear_rows.c, tests/unit/test_plan_length.c
 */
#include "common/base/mem.h"
#include "common/graph/ops/op_linear.h"
#include "kernels/cpu/math/product.h"
#include "kernels/cpu/ops/cpu_bias.h"
#include "kernels/cpu/plan/parallel.h"

#define GRAIN GP_PRODUCT_PANEL

struct linear_state {
	int64_t in, out;
};

/* A product whose columns are shared out. */
struct linear_job {
	struct gp_product product;
	bool b_turned;
	float *room; /* GP_PRODUCT_ROOM floats of each part */
};

static enum gp_status linear_prepare(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	const struct gp_shape *w = &p->base.spec.graph->param[gp_cpu_param_index(p, n, GP_PARAM_WEIGHT)].shape;
	struct linear_state *s = gp_calloc(1, sizeof *s);
	if (!s)
		GP_FAIL(err, GP_NOMEM, "out of memory for linear layer %s", n->base.g->name);
	n->state = s;
	s->out = w->dim[0];
	s->in = w->dim[1];
	n->tmp_bytes = (uint64_t)p->threads * GP_PRODUCT_ROOM * sizeof(float);
	if (!n->base.trains)
		n->base.saves_in = 0;
	return GP_OK;
}

static void linear_release(struct cpu_node *n)
{
	gp_free(n->state);
	n->state = NULL;
}

static void product_part(void *arg, int part, int parts)
{
	const struct linear_job *job = arg;
	struct gp_product p = job->product;
	const struct gp_cpu_range r = gp_cpu_share(p.columns, GRAIN, part, parts);
	p.columns = r.to - r.from;
	p.c += r.from;
	p.b += job->b_turned ? r.from * p.ldb : r.from;
	gp_product_large(&p, job->b_turned, job->room + (int64_t)part * GP_PRODUCT_ROOM);
}

static void multiply(const struct cpu_call *c, const struct gp_product *product, bool b_turned)
{
	struct linear_job job = {*product, b_turned, c->tmp};
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, product->rows * product->inner +
							       product->rows * product->columns +
							       product->inner * product->columns),
			product_part, &job);
}

static int64_t rows_now(const struct cpu_call *c, const struct linear_state *s)
{
	return gp_cpu_elements(c->plan, c->node) / s->out;
}

static enum gp_status linear_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	const struct linear_state *s = c->node->state;
	const int64_t rows = rows_now(c, s);
	multiply(c,
		 &(struct gp_product){.c = c->out[0],
				      .ldc = s->out,
				      .a = c->in[0],
				      .lda = s->in,
				      .b = gp_cpu_param_value(c->plan, c->node, GP_PARAM_WEIGHT),
				      .ldb = s->in,
				      .rows = rows,
				      .inner = s->in,
				      .columns = s->out},
		 true);
	gp_cpu_bias_add(c, c->out[0], rows, s->out);
	return GP_OK;
}

/* dW (out, in) = or += dout' x */
static void weigh(const struct cpu_call *c, const struct linear_state *s, int64_t rows)
{
	float *grad = gp_cpu_param_grad(c->plan, c->node, GP_PARAM_WEIGHT);
	if (grad)
		multiply(c,
			 &(struct gp_product){.c = grad,
					      .ldc = s->in,
					      .a = c->dout[0],
					      .lda = s->out,
					      .b = c->in[0],
					      .ldb = s->in,
					      .rows = s->out,
					      .inner = rows,
					      .columns = s->in,
					      .turned = true,
					      .onto = c->accumulate},
			 false);
}

static enum gp_status linear_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	const struct linear_state *s = c->node->state;
	const int64_t rows = rows_now(c, s);
	gp_cpu_bias_gradient(c, c->dout[0], rows, s->out);
	weigh(c, s, rows);
	if (c->dx[0])
		multiply(c,
			 &(struct gp_product){.c = c->dx[0],
					      .ldc = s->in,
					      .a = c->dout[0],
					      .lda = s->out,
					      .b = gp_cpu_param_value(c->plan, c->node, GP_PARAM_WEIGHT),
					      .ldb = s->in,
					      .rows = rows,
					      .inner = s->out,
					      .columns = s->in},
			 false);
	return GP_OK;
}

const struct cpu_op gp_cpu_op_linear = {
	.name = "linear",
	.saves_in = 1,
	.prepare = linear_prepare,
	.release = linear_release,
	.forward = linear_forward,
	.backward = linear_backward,
};
