/* SPDX-License-Identifier: Apache-2.0
 *
 * ReLU, ReLU6, addition of two values or more, and identity, where they stand
 * alone (behind a batch norm an activation is part of cpu_batch_norm.c, with the
 * same arithmetic). The activations' masks come from their own output. An
 * identity is a view but where input and output of a plan are apart.
 * Test: tests/unit/test_cpu_ops.c
 */
#include <string.h>

#include "kernels/cpu/plan/parallel.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/loops/simd.h"

#define GRAIN 16
#define PIECE 256 /* floats that are summed up at once */

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
	struct unary_job job = {c->out[0], c->in[0], NULL, n, c->node->base.g->op == GP_OP_RELU6};
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, n), forward_part, &job);
	return GP_OK;
}

static enum gp_status act_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	int64_t n = gp_cpu_elements(c->plan, c->node);
	struct unary_job job = {c->dx[0], c->dout[0], c->out[0], n, c->node->base.g->op == GP_OP_RELU6};
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, n), backward_part, &job);
	return GP_OK;
}

struct sum_job {
	float *out;
	const float *const *in;
	int inputs;
	int64_t n;
};

/* From the first to the last. out may be any of them: a piece is read of all before it is written. */
GP_INLINE void sum_range_body(const struct sum_job *job, int64_t from, int64_t to)
{
	float sum[PIECE];
	for (int64_t at = from; at < to; at += PIECE) {
		const int64_t n = to - at < PIECE ? to - at : PIECE;
		memcpy(sum, job->in[0] + at, (size_t)n * sizeof *sum);
		for (int k = 1; k < job->inputs; k++) {
			const float *x = job->in[k] + at;
#pragma omp simd
			for (int64_t i = 0; i < n; i++)
				sum[i] += x[i];
		}
		memcpy(job->out + at, sum, (size_t)n * sizeof *sum);
	}
}
GP_CPU_CLONES(sum_range, (const struct sum_job *job, int64_t from, int64_t to), (job, from, to))

static void sum_part(void *arg, int part, int parts)
{
	const struct sum_job *job = arg;
	struct gp_cpu_range r = gp_cpu_share(job->n, GRAIN, part, parts);
	sum_range(job, r.from, r.to);
}

static enum gp_status add_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct sum_job job = {c->out[0], c->in, c->node->base.inputs, gp_cpu_elements(c->plan, c->node)};
	if (job.inputs == 2)
		gp_cpu_add(c->plan->threads, job.out, job.in[0], job.in[1], job.n);
	else
		gp_cpu_parallel(gp_cpu_parts(c->plan->threads, job.n), sum_part, &job);
	return GP_OK;
}

static enum gp_status identity_prepare(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	(void)p;
	(void)err;
	n->base.view = true;
	return GP_OK;
}

/* Moves bytes, of real numbers or of integers. */
static enum gp_status identity_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	gp_cpu_copy(c->plan->threads, c->out[0], c->in[0], gp_cpu_elements(c->plan, c->node));
	return GP_OK;
}

const struct cpu_op gp_cpu_op_relu = {
	.name = "relu",
	.saves_out = 1,
	.in_place = true,
	.in_place_backward = true,
	.forward = act_forward,
	.backward = act_backward,
};

const struct cpu_op gp_cpu_op_relu6 = {
	.name = "relu6",
	.saves_out = 1,
	.in_place = true,
	.in_place_backward = true,
	.forward = act_forward,
	.backward = act_backward,
};

const struct cpu_op gp_cpu_op_add = {
	.name = "add",
	.in_place = true,
	.passes_gradient = true,
	.forward = add_forward,
};

const struct cpu_op gp_cpu_op_identity = {
	.name = "identity",
	.passes_gradient = true,
	.prepare = identity_prepare,
	.forward = identity_forward,
};
