/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a sequence (S,F): add_rows adds rows of a table, take_row gives one.
 * The table's gradient is shared out by columns: every part goes through all
 * positions in their order, so that sums are the same on any number of threads.
 * Test: tests/unit/test_cpu_ops.c
 */
#include <string.h>

#include "common/graph/ops/op_rows.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cpu/plan/parallel.h"
#include "kernels/loops/simd.h"

#define GRAIN 16 /* floats of a cache line */

struct rows_job {
	float *out;         /* add_rows forward, take_row both ways */
	const float *in;    /* the same */
	const float *table; /* add_rows forward */
	float *grad;        /* add_rows backward: of the table */
	int64_t samples, positions, features, rows, first, step;
	bool fresh;
};

GP_INLINE void add_two_body(float *out, const float *a, const float *b, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		out[i] = a[i] + b[i];
}
GP_CPU_CLONES(add_two, (float *out, const float *a, const float *b, int64_t n), (out, a, b, n))

static void add_part(void *arg, int part, int parts)
{
	const struct rows_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->samples * job->positions, 1, part, parts);
	for (int64_t p = r.from; p < r.to; p++) {
		const int64_t row = job->first + p % job->positions * job->step;
		add_two(job->out + p * job->features, job->in + p * job->features, job->table + row * job->features,
			job->features);
	}
}

static void table_part(void *arg, int part, int parts)
{
	const struct rows_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->features, GRAIN, part, parts);
	const int64_t width = r.to - r.from;
	for (int64_t v = 0; job->fresh && v < job->rows; v++)
		memset(job->grad + v * job->features + r.from, 0, (size_t)width * sizeof *job->grad);
	for (int64_t p = 0; p < job->samples * job->positions; p++) {
		const int64_t row = job->first + p % job->positions * job->step;
		gp_cpu_add_row(job->grad + row * job->features + r.from, job->in + p * job->features + r.from, width);
	}
}

static struct rows_job job_of(const struct cpu_call *c)
{
	const struct gp_shape *x = gp_cpu_in_shape(c->plan, c->node, 0);
	return (struct rows_job){
		.samples = c->plan->base.spec.batch, .positions = x->dim[0], .features = x->dim[1]};
}

static struct rows_job add_job_of(const struct cpu_call *c)
{
	const struct gp_add_rows_attr a = gp_add_rows_attr(c->node->base.g);
	struct rows_job job = job_of(c);
	job.rows = a.rows;
	job.first = a.first;
	job.step = a.step;
	return job;
}

static int64_t work_of(const struct rows_job *job)
{
	return job->samples * job->positions * job->features;
}

static enum gp_status add_rows_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct rows_job job = add_job_of(c);
	job.out = c->out[0];
	job.in = c->in[0];
	job.table = gp_cpu_param_value(c->plan, c->node, GP_PARAM_WEIGHT);
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, work_of(&job)), add_part, &job);
	return GP_OK;
}

static enum gp_status add_rows_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct rows_job job = add_job_of(c);
	job.in = c->dout[0];
	job.grad = gp_cpu_param_grad(c->plan, c->node, GP_PARAM_WEIGHT);
	job.fresh = !c->accumulate;
	if (job.grad)
		gp_cpu_parallel(gp_cpu_parts(c->plan->threads, work_of(&job)), table_part, &job);
	if (c->dx[0] && c->dx[0] != c->dout[0])
		gp_cpu_copy(c->plan->threads, c->dx[0], c->dout[0], work_of(&job));
	return GP_OK;
}

const struct cpu_op gp_cpu_op_add_rows = {
	.name = "add_rows",
	.in_place = true,
	.in_place_backward = true,
	.forward = add_rows_forward,
	.backward = add_rows_backward,
};

static enum gp_status take_row_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	const struct rows_job job = job_of(c);
	const float *from = c->in[0] + gp_take_row_attr(c->node->base.g).row * job.features;
	for (int64_t n = 0; n < job.samples; n++)
		memcpy(c->out[0] + n * job.features, from + n * job.positions * job.features,
		       (size_t)job.features * sizeof(float));
	return GP_OK;
}

static enum gp_status take_row_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	const struct rows_job job = job_of(c);
	float *to = c->dx[0] + gp_take_row_attr(c->node->base.g).row * job.features;
	memset(c->dx[0], 0, (size_t)work_of(&job) * sizeof(float));
	for (int64_t n = 0; n < job.samples; n++)
		memcpy(to + n * job.positions * job.features, c->dout[0] + n * job.features,
		       (size_t)job.features * sizeof(float));
	return GP_OK;
}

const struct cpu_op gp_cpu_op_take_row = {
	.name = "take_row",
	.forward = take_row_forward,
	.backward = take_row_backward,
};
