/* SPDX-License-Identifier: Apache-2.0
 *
 * GELU and tanh: the portable reference. GELU's gradient comes from its input,
 * that of tanh from its output. Test: tests/unit/test_cpu_ops.c
 */
#include <math.h>

#include "common/graph/ops/op_elementwise.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cpu/plan/parallel.h"

#define GRAIN 16

struct curve_job {
	float *out;
	const float *in, *dout; /* in: x of GELU; of tanh its output in backward */
	int64_t n;
};

/* sqrt(2 / pi) and the factor of x^3 in GELU's approximation; 1 / sqrt(2 pi), 1 / sqrt(2) */
#define SLOPE   0.7978845608028654f
#define CUBE    0.044715f
#define DENSITY 0.3989422804014327f
#define ROOT    0.7071067811865476f

static float gelu(float x)
{
	return 0.5f * x * (1.0f + erff(x * ROOT));
}

static float gelu_slope(float x)
{
	return 0.5f * (1.0f + erff(x * ROOT)) + x * DENSITY * expf(-0.5f * x * x);
}

static float gelu_approximate(float x)
{
	return 0.5f * x * (1.0f + tanhf(SLOPE * (x + CUBE * x * x * x)));
}

static float gelu_approximate_slope(float x)
{
	const float t = tanhf(SLOPE * (x + CUBE * x * x * x));
	return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * SLOPE * (1.0f + 3.0f * CUBE * x * x);
}

static float tanh_slope(float y)
{
	return 1.0f - y * y;
}

#define CURVE_PARTS(curve, slope)                                                                                      \
	static void curve##_part(void *arg, int part, int parts)                                                       \
	{                                                                                                              \
		const struct curve_job *job = arg;                                                                     \
		const struct gp_cpu_range r = gp_cpu_share(job->n, GRAIN, part, parts);                                \
		for (int64_t i = r.from; i < r.to; i++)                                                                \
			job->out[i] = job->dout ? job->dout[i] * slope(job->in[i]) : curve(job->in[i]);                \
	}
CURVE_PARTS(gelu, gelu_slope)
CURVE_PARTS(gelu_approximate, gelu_approximate_slope)
CURVE_PARTS(tanhf, tanh_slope)

static void run(const struct cpu_call *c, float *out, const float *in, const float *dout)
{
	const struct gp_node *g = c->node->base.g;
	struct curve_job job = {out, in, dout, gp_cpu_elements(c->plan, c->node)};
	const gp_cpu_part_fn part = g->op == GP_OP_TANH                   ? tanhf_part :
				    gp_gelu_attr(g).approximate == 0 ? gelu_part :
								       gelu_approximate_part;
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, job.n), part, &job);
}

static enum gp_status curve_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	run(c, c->out[0], c->in[0], NULL);
	return GP_OK;
}

static enum gp_status gelu_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	run(c, c->dx[0], c->in[0], c->dout[0]);
	return GP_OK;
}

static enum gp_status tanh_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	run(c, c->dx[0], c->out[0], c->dout[0]);
	return GP_OK;
}

const struct cpu_op gp_cpu_op_gelu = {
	.name = "gelu",
	.saves_in = 1,
	.in_place_backward = true,
	.forward = curve_forward,
	.backward = gelu_backward,
};

const struct cpu_op gp_cpu_op_tanh = {
	.name = "tanh",
	.saves_out = 1,
	.in_place = true,
	.in_place_backward = true,
	.forward = curve_forward,
	.backward = tanh_backward,
};
