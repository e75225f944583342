/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a sequence (S,F): add_rows adds rows of a table, take_row gives one.
 * The table's gradient is shared out so that each of its elements is one part's,
 * with all that is added to it in one order: the same on any number of threads.
 * Test: tests/unit/test_cpu_ops.c, tests/unit/test_text_ops.c
 */
#include <string.h>

#include "common/graph/ops/op_rows.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cpu/plan/parallel.h"

#define GRAIN 16 /* floats of a cache line */

struct rows_job {
	float *out;         /* add_rows forward, take_row both ways */
	const float *in;    /* the same */
	const float *table; /* add_rows forward */
	float *grad;        /* add_rows backward: of the table */
	int64_t samples, positions, features, rows, first, step;
	bool fresh;
};

static void add_part(void *arg, int part, int parts)
{
	const struct rows_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->samples * job->positions, 1, part, parts);
	for (int64_t p = r.from; p < r.to; p++) {
		const int64_t row = job->first + p % job->positions * job->step;
		gp_cpu_sum_row(job->out + p * job->features, job->in + p * job->features,
			       job->table + row * job->features, job->features);
	}
}

/* Rows that nobody has added are cleared, where they are not added to from chunk to chunk. */
static void clear_rows(const struct rows_job *job, int64_t from, int64_t to)
{
	if (job->fresh && from < to)
		memset(job->grad + from * job->features, 0, (size_t)((to - from) * job->features) * sizeof *job->grad);
}

/* Learned positions: a part has positions of its own, and of each goes through the samples in their order. */
static void position_part(void *arg, int part, int parts)
{
	const struct rows_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->positions, 1, part, parts);
	const int64_t features = job->features, sample = job->positions * features;
	if (part == 0)
		clear_rows(job, 0, job->first);
	if (part == parts - 1)
		clear_rows(job, job->first + job->positions, job->rows);
	clear_rows(job, job->first + r.from, job->first + r.to);
	for (int64_t s = r.from; s < r.to; s++)
		for (int64_t n = 0; n < job->samples; n++)
			gp_cpu_add_row(job->grad + (job->first + s) * features, job->in + n * sample + s * features,
				       features);
}

/* One row for all: a part has columns of its own, and goes through all positions in their order. */
static void one_row_part(void *arg, int part, int parts)
{
	const struct rows_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->features, GRAIN, part, parts);
	float *grad = job->grad + job->first * job->features + r.from;
	for (int64_t p = 0; p < job->samples * job->positions; p++)
		gp_cpu_add_row(grad, job->in + p * job->features + r.from, r.to - r.from);
}

static struct rows_job job_of(const struct cpu_call *c)
{
	const struct gp_shape *x = gp_cpu_in_shape(c->plan, c->node, 0);
	return (struct rows_job){.samples = c->plan->base.spec.batch, .positions = x->dim[0], .features = x->dim[1]};
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
	if (job.grad && !job.step)
		clear_rows(&job, 0, job.rows);
	if (job.grad)
		gp_cpu_parallel(gp_cpu_parts(c->plan->threads, work_of(&job)), job.step ? position_part : one_row_part,
				&job);
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

/* Samples are shared out: a row of each is all that is copied, but backward clears the others. */
static void take_part(void *arg, int part, int parts)
{
	const struct rows_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->samples, 1, part, parts);
	const int64_t sample = job->positions * job->features, at = job->first * job->features;
	for (int64_t n = r.from; n < r.to; n++)
		memcpy(job->out + n * job->features, job->in + n * sample + at, (size_t)job->features * sizeof(float));
}

static void give_back_part(void *arg, int part, int parts)
{
	const struct rows_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->samples, 1, part, parts);
	const int64_t sample = job->positions * job->features, at = job->first * job->features;
	memset(job->out + r.from * sample, 0, (size_t)((r.to - r.from) * sample) * sizeof(float));
	for (int64_t n = r.from; n < r.to; n++)
		memcpy(job->out + n * sample + at, job->in + n * job->features, (size_t)job->features * sizeof(float));
}

static struct rows_job take_job_of(const struct cpu_call *c, float *out, const float *in)
{
	struct rows_job job = job_of(c);
	job.out = out;
	job.in = in;
	job.first = gp_take_row_attr(c->node->base.g).row;
	return job;
}

static enum gp_status take_row_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct rows_job job = take_job_of(c, c->out[0], c->in[0]);
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, job.samples * job.features), take_part, &job);
	return GP_OK;
}

static enum gp_status take_row_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct rows_job job = take_job_of(c, c->dx[0], c->dout[0]);
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, work_of(&job)), give_back_part, &job);
	return GP_OK;
}

const struct cpu_op gp_cpu_op_take_row = {
	.name = "take_row",
	.forward = take_row_forward,
	.backward = take_row_backward,
};
