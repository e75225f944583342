/* SPDX-License-Identifier: Apache-2.0
 *
 * Dropout. The mask is never stored: it is drawn from (plan seed, node name,
 * draw, element) in forward and again in backward, so it is the same on any
 * number of threads and wherever the model is cut. Scaled by 1/(1-p) in
 * training, nothing in evaluation, as torch.nn.Dropout.
 * Test: tests/unit/test_cpu_ops.c
 */
#include "common/base/rng.h"
#include "kernels/cpu/math/drop.h"
#include "kernels/cpu/plan/parallel.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "common/graph/ops/op_elementwise.h"

#define GRAIN 16 /* floats of a cache line */

struct dropout_job {
	struct gp_drop drop;
	float *out;
	const float *in;
	int64_t n;
	int64_t sample, missing; /* elements from one gap in the draws to the next, and the draws that a gap has */
};

static void dropout_part(void *arg, int part, int parts)
{
	const struct dropout_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->n, GRAIN, part, parts);
	for (int64_t i = r.from, end; i < r.to; i = end) {
		const int64_t sample = i / job->sample, next = (sample + 1) * job->sample;
		end = next < r.to ? next : r.to;
		gp_drop_values(&job->drop, i + sample * job->missing, job->out + i, job->in + i, NULL, end - i);
	}
}

static void run(const struct cpu_call *c, float *out, const float *in)
{
	const struct gp_node *g = c->node->base.g;
	const int64_t n = gp_cpu_elements(c->plan, c->node), batch = c->plan->base.spec.batch;
	const int64_t full = gp_cpu_full_sample(c->plan, c->node) * batch;
	const uint64_t stream = gp_rng_stream(GP_RNG_DROPOUT, gp_rng_name_id(g->name));
	struct dropout_job job = {.out = out, .in = in, .n = n};
	job.missing = gp_cpu_missing_in_sample(c->plan, c->node);
	job.sample = job.missing > 0 ? n / batch : n;
	job.drop = gp_drop_of(gp_dropout_attr(g).p, c->plan->base.spec.seed, stream, c->draw, full);
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, n), dropout_part, &job);
}

static enum gp_status dropout_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	if (c->mode == GP_TRAIN)
		run(c, c->out[0], c->in[0]);
	else if (c->out[0] != c->in[0])
		gp_cpu_copy(c->plan->threads, c->out[0], c->in[0], gp_cpu_elements(c->plan, c->node));
	return GP_OK;
}

static enum gp_status dropout_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	run(c, c->dx[0], c->dout[0]);
	return GP_OK;
}

static enum gp_status dropout_prepare(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	(void)err;
	n->base.view = gp_dropout_attr(n->base.g).p == 0.0f || !p->base.spec.train;
	return GP_OK;
}

const struct cpu_op gp_cpu_op_dropout = {
	.name = "dropout",
	.in_place = true,
	.in_place_backward = true,
	.prepare = dropout_prepare,
	.forward = dropout_forward,
	.backward = dropout_backward,
};
