/* SPDX-License-Identifier: Apache-2.0
 *
 * GELU and tanh, by kernels/cpu/math/curves.h. GELU keeps its slopes, not its
 * input: forward has all that they are made of, and backward then is a product.
 * So its value may lie where its input does. Tanh's slope comes from its output.
 *
 * They stand alone, also behind a linear layer. To compute GELU while the product's rows are in the cache would save one
 * of the four arrays that pass through memory in forward, and in backward one of three; the arithmetic stays. In a step of
 * RoBERTa-base that is less than 1 %, as its products take the rest. oneDNN's own GELU behind a product keeps nothing for
 * backward.
 *
 * Test: tests/unit/test_cpu_ops.c, tests/unit/test_text_ops.c, tests/unit/test_curves.c
 */
#include "common/graph/ops/op_elementwise.h"
#include "kernels/cpu/math/curves.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cpu/plan/parallel.h"

#define GRAIN 16 /* floats of a cache line */

struct curve_job {
	enum gp_curve curve;
	float *out, *slope; /* slope: of GELU in training, else NULL */
	const float *in;
	int64_t n;
};

static void values_part(void *arg, int part, int parts)
{
	const struct curve_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->n, GRAIN, part, parts);
	float *out = job->out + r.from;
	const float *in = job->in + r.from;
	if (job->slope)
		gp_curve_values_and_slopes(job->curve, out, job->slope + r.from, in, r.to - r.from);
	else
		gp_curve_values(job->curve, out, in, r.to - r.from);
}

struct gradient_job {
	float *dx;
	const float *dout, *at; /* at: the slopes; of tanh its output */
	int64_t n;
	bool tanh;
};

static void gradient_part(void *arg, int part, int parts)
{
	const struct gradient_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->n, GRAIN, part, parts);
	(job->tanh ? gp_curve_tanh_gradient : gp_curve_gradient)(job->dx + r.from, job->dout + r.from, job->at + r.from,
								 r.to - r.from);
}

static enum gp_curve curve_of(const struct gp_node *g)
{
	if (g->op == GP_OP_TANH)
		return GP_CURVE_TANH;
	return gp_gelu_attr(g).approximate ? GP_CURVE_GELU_TANH : GP_CURVE_GELU;
}

static enum gp_status curve_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	const struct gp_node *g = c->node->base.g;
	const int64_t n = gp_cpu_elements(c->plan, c->node);
	struct curve_job job = {curve_of(g), c->out[0], c->mode == GP_TRAIN ? c->saved : NULL, c->in[0], n};
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, n), values_part, &job);
	return GP_OK;
}

static enum gp_status curve_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	const bool tanh = c->node->base.g->op == GP_OP_TANH;
	const int64_t n = gp_cpu_elements(c->plan, c->node);
	struct gradient_job job = {c->dx[0], c->dout[0], tanh ? c->out[0] : c->saved, n, tanh};
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, n), gradient_part, &job);
	return GP_OK;
}

static enum gp_status gelu_prepare(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	(void)err;
	if (p->base.spec.train && n->base.need_grad)
		n->base.saved_bytes = (uint64_t)gp_cpu_elements(p, n) * sizeof(float);
	n->base.saves_map = n->base.saved_bytes > 0;
	return GP_OK;
}

const struct cpu_op gp_cpu_op_gelu = {
	.name = "gelu",
	.in_place = true,
	.in_place_backward = true,
	.prepare = gelu_prepare,
	.forward = curve_forward,
	.backward = curve_backward,
};

const struct cpu_op gp_cpu_op_tanh = {
	.name = "tanh",
	.saves_out = 1,
	.in_place = true,
	.in_place_backward = true,
	.forward = curve_forward,
	.backward = curve_backward,
};
