/* SPDX-License-Identifier: Apache-2.0
 *
 * Concat and split along the last dimension: one matrix on one side, its
 * columns as several matrices on the other. The gradient of each is the other;
 * a part of a split that nobody reads has a gradient of zeros.
 * Test: tests/unit/test_cpu_ops.c
 */
#include <string.h>

#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cpu/plan/parallel.h"

#define GRAIN 8 /* rows */

struct columns_job {
	float *to[GP_NODE_MAX_INPUTS]; /* of cutting: the parts, NULL where nobody wants one; of joining: to[0] */
	const float *from[GP_NODE_MAX_INPUTS]; /* of joining: the parts, NULL for zeros; of cutting: from[0] */
	int64_t width[GP_NODE_MAX_INPUTS];     /* of the parts */
	int64_t rows, whole;
	int parts;
};
_Static_assert(GP_NODE_MAX_OUTPUTS <= GP_NODE_MAX_INPUTS, "a split has as many parts as a concat");

static void join_part(void *arg, int part, int parts)
{
	const struct columns_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->rows, GRAIN, part, parts);
	for (int64_t row = r.from; row < r.to; row++) {
		float *to = job->to[0] + row * job->whole;
		for (int k = 0; k < job->parts; to += job->width[k++]) {
			const size_t bytes = (size_t)job->width[k] * sizeof *to;
			if (job->from[k])
				memcpy(to, job->from[k] + row * job->width[k], bytes);
			else
				memset(to, 0, bytes);
		}
	}
}

static void cut_part(void *arg, int part, int parts)
{
	const struct columns_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->rows, GRAIN, part, parts);
	for (int64_t row = r.from; row < r.to; row++) {
		const float *from = job->from[0] + row * job->whole;
		for (int k = 0; k < job->parts; from += job->width[k++])
			if (job->to[k])
				memcpy(job->to[k] + row * job->width[k], from, (size_t)job->width[k] * sizeof *from);
	}
}

/* `value`: the parts. */
static struct columns_job job_of(const struct cpu_call *c, const int *value, int parts, int whole)
{
	const struct gp_walk *w = &c->plan->walk;
	const struct gp_shape *shape = &gp_walk_type(w, whole)->shape;
	struct columns_job job = {.parts = parts, .whole = shape->dim[shape->ndim - 1]};
	job.rows = gp_walk_elements(w, whole) / job.whole;
	for (int k = 0; k < parts; k++) {
		const struct gp_shape *of = &gp_walk_type(w, value[k])->shape;
		job.width[k] = of->dim[of->ndim - 1];
	}
	return job;
}

static void run(const struct cpu_call *c, struct columns_job *job, bool join)
{
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, job->rows * job->whole), join ? join_part : cut_part, job);
}

static enum gp_status concat_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	const struct gp_walk_node *n = &c->node->base;
	struct columns_job job = job_of(c, n->in, n->inputs, n->first_value);
	memcpy(job.from, c->in, (size_t)n->inputs * sizeof *c->in);
	job.to[0] = c->out[0];
	run(c, &job, true);
	return GP_OK;
}

static enum gp_status concat_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	const struct gp_walk_node *n = &c->node->base;
	struct columns_job job = job_of(c, n->in, n->inputs, n->first_value);
	memcpy(job.to, c->dx, (size_t)n->inputs * sizeof *c->dx);
	job.from[0] = c->dout[0];
	run(c, &job, false);
	return GP_OK;
}

static struct columns_job split_job(const struct cpu_call *c)
{
	const struct gp_walk_node *n = &c->node->base;
	int value[GP_NODE_MAX_OUTPUTS];
	for (int j = 0; j < n->outputs; j++)
		value[j] = n->first_value + j;
	return job_of(c, value, n->outputs, n->in[0]);
}

static enum gp_status split_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct columns_job job = split_job(c);
	memcpy(job.to, c->out, (size_t)job.parts * sizeof *c->out);
	job.from[0] = c->in[0];
	run(c, &job, false);
	return GP_OK;
}

static enum gp_status split_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct columns_job job = split_job(c);
	memcpy(job.from, c->dout, (size_t)job.parts * sizeof *c->dout);
	job.to[0] = c->dx[0];
	run(c, &job, true);
	return GP_OK;
}

const struct cpu_op gp_cpu_op_concat = {
	.name = "concat",
	.forward = concat_forward,
	.backward = concat_backward,
};

const struct cpu_op gp_cpu_op_split = {
	.name = "split",
	.forward = split_forward,
	.backward = split_backward,
};
