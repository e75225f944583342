/* SPDX-License-Identifier: Apache-2.0
 *
 * ReLU and ReLU6 where they stand alone (behind a batch norm an activation is
 * part of cpu_batch_norm.c, with the same arithmetic). Backward needs to know
 * where the gradient passes: from the output where that is kept anyway, else
 * from a mask of bits (cpu_plan_masks.c decides). Test: tests/unit/test_cpu_ops.c,
 * tests/unit/test_plan_masks.c
 */
#include "kernels/cpu/math/saved_bits.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cpu/plan/parallel.h"
#include "kernels/loops/simd.h"

#define PIECE 1024 /* floats: several words of a mask */

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

struct act_job {
	float *out;
	const float *in, *value; /* value: the activation's output, backward without a mask */
	uint32_t *mask;          /* NULL: there is none */
	int64_t n;
	bool six;
};

static struct act_job job_of(const struct cpu_call *c)
{
	const bool masks = c->node->masks && c->mode == GP_TRAIN;
	return (struct act_job){.mask = masks ? c->saved : NULL,
				.n = gp_cpu_elements(c->plan, c->node),
				.six = c->node->base.g->op == GP_OP_RELU6};
}

/* A piece at a time: its mask is taken while it is in the cache. */
static void forward_part(void *arg, int part, int parts)
{
	const struct act_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->n, GP_MASK_GRAIN, part, parts);
	for (int64_t at = r.from; at < r.to; at += PIECE) {
		const int64_t n = r.to - at < PIECE ? r.to - at : PIECE;
		(job->six ? relu6_range : relu_range)(job->out + at, job->in + at, n);
		if (job->mask)
			gp_mask_of(job->out + at, job->mask + at / GP_MASK_GRAIN, n, job->six);
	}
}

static void backward_part(void *arg, int part, int parts)
{
	const struct act_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->n, GP_MASK_GRAIN, part, parts);
	const int64_t n = r.to - r.from;
	if (job->mask)
		gp_mask_gradient(job->out + r.from, job->in + r.from, job->mask + r.from / GP_MASK_GRAIN, n);
	else
		(job->six ? relu6_grad_range : relu_grad_range)(job->out + r.from, job->in + r.from,
								job->value + r.from, n);
}

static enum gp_status act_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct act_job job = job_of(c);
	job.out = c->out[0];
	job.in = c->in[0];
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, job.n), forward_part, &job);
	return GP_OK;
}

static enum gp_status act_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct act_job job = job_of(c);
	job.out = c->dx[0];
	job.in = c->dout[0];
	job.value = c->out[0];
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, job.n), backward_part, &job);
	return GP_OK;
}

#define ACTIVATION(op_name)                                                                                            \
	{                                                                                                              \
		.name = op_name, .saves_out = 1, .in_place = true, .in_place_backward = true, .forward = act_forward,  \
		.backward = act_backward,                                                                              \
	}

const struct cpu_op gp_cpu_op_relu = ACTIVATION("relu");
const struct cpu_op gp_cpu_op_relu6 = ACTIVATION("relu6");
