/* SPDX-License-Identifier: Apache-2.0
 *
 * ReLU, ReLU6 and addition, where they stand alone (behind a batch norm an
 * activation is part of cpu_batch_norm.c, with the same arithmetic). The
 * activations' masks come from their own output. Test: tests/unit/test_cpu_ops.c
 */
#include "kernels/cpu/plan/parallel.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/loops/simd.h"

#define GRAIN 16

/* out may be in. A NaN stays a NaN. */
GP_INLINE void relu_range_body(float *out, const float *in, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		out[i] = in[i] < 0.0f ? 0.0f : in[i];
}
GP_CPU_CLONES(relu_range, (float *out, const float *in, int64_t n), (out, in, n))

GP_INLINE void relu6_range_body(float *out, const float *in, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		float v = in[i] < 0.0f ? 0.0f : in[i];
		out[i] = v > 6.0f ? 6.0f : v;
	}
}
GP_CPU_CLONES(relu6_range, (float *out, const float *in, int64_t n), (out, in, n))

/* dx may be dout. */
GP_INLINE void relu_grad_range_body(float *dx, const float *dout, const float *restrict out, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		dx[i] = out[i] > 0.0f ? dout[i] : 0.0f;
}
GP_CPU_CLONES(relu_grad_range, (float *dx, const float *dout, const float *out, int64_t n), (dx, dout, out, n))

GP_INLINE void relu6_grad_range_body(float *dx, const float *dout, const float *restrict out, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		dx[i] = out[i] > 0.0f && out[i] < 6.0f ? dout[i] : 0.0f;
}
GP_CPU_CLONES(relu6_grad_range, (float *dx, const float *dout, const float *out, int64_t n), (dx, dout, out, n))

struct unary_job {
	float *out;
	const float *in, *value; /* value: the activation's output, backward only */
	int64_t n;
	bool six;
};

static void forward_part(void *arg, int part, int parts)
{
	const struct unary_job *job = arg;
	struct gp_cpu_range r = gp_cpu_share(job->n, GRAIN, part, parts);
	(job->six ? relu6_range : relu_range)(job->out + r.from, job->in + r.from, r.to - r.from);
}

static void backward_part(void *arg, int part, int parts)
{
	const struct unary_job *job = arg;
	struct gp_cpu_range r = gp_cpu_share(job->n, GRAIN, part, parts);
	(job->six ? relu6_grad_range : relu_grad_range)(job->out + r.from, job->in + r.from, job->value + r.from,
							r.to - r.from);
}

static enum gp_status act_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	int64_t n = gp_cpu_elements(c->plan, c->node);
	struct unary_job job = {c->out, c->in[0], NULL, n, c->node->g->op == GP_OP_RELU6};
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, n), forward_part, &job);
	return GP_OK;
}

static enum gp_status act_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	int64_t n = gp_cpu_elements(c->plan, c->node);
	struct unary_job job = {c->dx, c->dout, c->out, n, c->node->g->op == GP_OP_RELU6};
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, n), backward_part, &job);
	return GP_OK;
}

static enum gp_status add_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	gp_cpu_add(c->plan->threads, c->out, c->in[0], c->in[1], gp_cpu_elements(c->plan, c->node));
	return GP_OK;
}

const struct cpu_op gp_cpu_relu = {
	.name = "relu",
	.saves_output = true,
	.in_place = true,
	.in_place_backward = true,
	.forward = act_forward,
	.backward = act_backward,
};

const struct cpu_op gp_cpu_relu6 = {
	.name = "relu6",
	.saves_output = true,
	.in_place = true,
	.in_place_backward = true,
	.forward = act_forward,
	.backward = act_backward,
};

const struct cpu_op gp_cpu_add_op = {
	.name = "add",
	.in_place = true,
	.passes_gradient = true,
	.forward = add_forward,
};
