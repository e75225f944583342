/* SPDX-License-Identifier: Apache-2.0
 *
 * swap_last: (N,A,B) to (N,B,A), a transposition for each sample. Test:
 * tests/unit/test_cpu_ops.c
 */
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cpu/plan/parallel.h"

#define TILE 16 /* rows and columns that stay in the nearest cache while they are turned */

struct swap_job {
	float *out;
	const float *in;
	int64_t rows, cols, batch;
};

static void swap_tile(float *out, const float *in, const struct swap_job *job, int64_t row, int64_t col)
{
	const int64_t rows = row + TILE < job->rows ? row + TILE : job->rows;
	const int64_t cols = col + TILE < job->cols ? col + TILE : job->cols;
	for (int64_t i = row; i < rows; i++)
		for (int64_t k = col; k < cols; k++)
			out[k * job->rows + i] = in[i * job->cols + k];
}

static void swap_part(void *arg, int part, int parts)
{
	const struct swap_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->batch, 1, part, parts);
	const int64_t size = job->rows * job->cols;
	for (int64_t b = r.from; b < r.to; b++)
		for (int64_t i = 0; i < job->rows; i += TILE)
			for (int64_t k = 0; k < job->cols; k += TILE)
				swap_tile(job->out + b * size, job->in + b * size, job, i, k);
}

static void run(const struct cpu_call *c, float *out, const float *in, bool back)
{
	const struct gp_shape *s = gp_cpu_in_shape(c->plan, c->node, 0);
	struct swap_job job = {out, in, s->dim[back], s->dim[!back], c->plan->base.spec.batch};
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, job.batch * job.rows * job.cols), swap_part, &job);
}

static enum gp_status swap_last_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	run(c, c->out[0], c->in[0], false);
	return GP_OK;
}

static enum gp_status swap_last_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	if (c->dx[0])
		run(c, c->dx[0], c->dout[0], true);
	return GP_OK;
}

const struct cpu_op gp_cpu_op_swap_last = {
	.name = "swap_last",
	.forward = swap_last_forward,
	.backward = swap_last_backward,
};
