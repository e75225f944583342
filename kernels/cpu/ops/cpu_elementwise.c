/* SPDX-License-Identifier: Apache-2.0
 *
 * Addition of two values or more, and identity, which is a view but where
 * input and output of a plan are apart. Test: tests/unit/test_cpu_ops.c
 */
#include <string.h>

#include "kernels/cpu/plan/parallel.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/loops/simd.h"

#define GRAIN 16
#define PIECE 256 /* floats that are summed up at once */

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
