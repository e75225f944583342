/* SPDX-License-Identifier: Apache-2.0
 *
 * GELU and tanh, by kernels/cpu/math/curves.h. GELU's gradient comes from its
 * input, that of tanh from its output.
 *
 * They stand alone, also behind a linear layer. Both the layer's value and GELU's are kept for backward, so that to
 * compute GELU while the product's rows are in the cache would save one of the three arrays that pass through memory
 * in forward, and one of five in backward: of a step of RoBERTa-base some 1 %, as the products take the rest.
 * oneDNN's own GELU behind a product keeps nothing for backward.
 *
 * Test: tests/unit/test_cpu_ops.c, tests/unit/test_curves.c
 */
#include "common/graph/ops/op_elementwise.h"
#include "kernels/cpu/math/curves.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cpu/plan/parallel.h"

#define GRAIN 16 /* floats of a cache line */

struct curve_job {
	enum gp_curve curve;
	float *out;
	const float *in, *dout; /* in: x of GELU; of tanh its output in backward. dout: backward only */
	int64_t n;
};

static void curve_part(void *arg, int part, int parts)
{
	const struct curve_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->n, GRAIN, part, parts);
	const int64_t at = r.from, n = r.to - r.from;
	if (job->dout)
		gp_curve_gradient(job->curve, job->out + at, job->dout + at, job->in + at, n);
	else
		gp_curve_values(job->curve, job->out + at, job->in + at, n);
}

static enum gp_curve curve_of(const struct gp_node *g)
{
	if (g->op == GP_OP_TANH)
		return GP_CURVE_TANH;
	return gp_gelu_attr(g).approximate ? GP_CURVE_GELU_TANH : GP_CURVE_GELU;
}

static enum gp_status run(const struct cpu_call *c, float *out, const float *in, const float *dout)
{
	struct curve_job job = {curve_of(c->node->base.g), out, in, dout, gp_cpu_elements(c->plan, c->node)};
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, job.n), curve_part, &job);
	return GP_OK;
}

static enum gp_status curve_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	return run(c, c->out[0], c->in[0], NULL);
}

static enum gp_status gelu_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	return run(c, c->dx[0], c->in[0], c->dout[0]);
}

static enum gp_status tanh_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	return run(c, c->dx[0], c->out[0], c->dout[0]);
}

const struct cpu_op gp_cpu_op_gelu = {
	.name = "gelu",
	.saves_in = 1,
	.in_place = true,
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
