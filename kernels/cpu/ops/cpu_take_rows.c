/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a sequence by number. Positions come from data, and so from anywhere:
 * one outside the sequence gives zeros and gets no gradient.
 *
 * Samples are shared out. Backward goes through the positions of each in their order, so that what a row gets that is
 * taken several times is the same on any number of threads. Test: tests/unit/test_cpu_ops.c, tests/unit/test_take_rows.c
 */
#include <string.h>

#include "common/graph/ops/op_take_rows.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cpu/plan/parallel.h"

struct take_job {
	const int32_t *position; /* (samples, taken) */
	const float *in;         /* forward: (samples, rows, features); backward: (samples, taken, features) */
	float *out;              /* the other of the two */
	int64_t samples, rows, taken, features;
};

static bool is_there(const struct take_job *job, int32_t position)
{
	return position >= 0 && position < job->rows;
}

static void forward_part(void *arg, int part, int parts)
{
	const struct take_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->samples * job->taken, 1, part, parts);
	const size_t bytes = (size_t)job->features * sizeof(float);
	for (int64_t p = r.from; p < r.to; p++) {
		const float *sample = job->in + p / job->taken * job->rows * job->features;
		float *out = job->out + p * job->features;
		if (is_there(job, job->position[p]))
			memcpy(out, sample + job->position[p] * job->features, bytes);
		else
			memset(out, 0, bytes);
	}
}

static void give_back(const struct take_job *job, int64_t n)
{
	float *dx = job->out + n * job->rows * job->features;
	memset(dx, 0, (size_t)(job->rows * job->features) * sizeof *dx);
	for (int64_t p = n * job->taken; p < (n + 1) * job->taken; p++)
		if (is_there(job, job->position[p]))
			gp_cpu_add_row(dx + job->position[p] * job->features, job->in + p * job->features,
				       job->features);
}

static void backward_part(void *arg, int part, int parts)
{
	const struct take_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->samples, 1, part, parts);
	for (int64_t n = r.from; n < r.to; n++)
		give_back(job, n);
}

static struct take_job job_of(const struct cpu_call *c, const float *in, float *out)
{
	const struct gp_shape *x = gp_cpu_in_shape(c->plan, c->node, 0);
	return (struct take_job){.position = gp_cpu_integers(c, 1),
				 .in = in,
				 .out = out,
				 .samples = c->plan->base.spec.batch,
				 .rows = x->dim[0],
				 .taken = gp_cpu_in_shape(c->plan, c->node, 1)->dim[0],
				 .features = x->dim[1]};
}

static enum gp_status take_rows_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct take_job job = job_of(c, c->in[0], c->out[0]);
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, job.samples * job.taken * job.features), forward_part, &job);
	return GP_OK;
}

static enum gp_status take_rows_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct take_job job = job_of(c, c->dout[0], c->dx[0]);
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, job.samples * (job.rows + job.taken) * job.features),
			backward_part, &job);
	return GP_OK;
}

const struct cpu_op gp_cpu_op_take_rows = {
	.name = "take_rows",
	.saves_in = 1 << 1,
	.forward = take_rows_forward,
	.backward = take_rows_backward,
};
