/* SPDX-License-Identifier: Apache-2.0
 *
 * Flatten: (N,H,W,C) to (N, C*H*W) in PyTorch's C,H,W order, so that a linear
 * layer behind it reads a checkpoint's weights unchanged. Where H*W or C is 1,
 * or the value has no image shape, nothing moves and the node is a view.
 * Test: tests/unit/test_cpu_ops.c
 */
#include "kernels/cpu/plan/parallel.h"
#include "kernels/cpu/plan/cpu_plan.h"

struct flatten_job {
	float *out;
	const float *in;
	int64_t rows, cols, batch; /* of the matrix that is transposed for each sample */
};

static void transpose_part(void *arg, int part, int parts)
{
	const struct flatten_job *job = arg;
	struct gp_cpu_range r = gp_cpu_share(job->batch, 1, part, parts);
	for (int64_t b = r.from; b < r.to; b++) {
		const float *in = job->in + b * job->rows * job->cols;
		float *out = job->out + b * job->rows * job->cols;
		for (int64_t c = 0; c < job->cols; c++)
			for (int64_t i = 0; i < job->rows; i++)
				out[c * job->rows + i] = in[i * job->cols + c];
	}
}

static void run(const struct cpu_call *c, float *out, const float *in, bool back)
{
	const struct gp_shape *s = gp_cpu_in_shape(c->plan, c->node, 0);
	int64_t channels = s->dim[s->ndim - 1], pixels = (int64_t)gp_shape_elements(s) / channels;
	struct flatten_job job = {out, in, back ? channels : pixels, back ? pixels : channels,
				  c->plan->base.spec.batch};
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, job.batch * channels * pixels), transpose_part, &job);
}

static enum gp_status flatten_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	run(c, c->out[0], c->in[0], false);
	return GP_OK;
}

static enum gp_status flatten_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	if (c->dx[0])
		run(c, c->dx[0], c->dout[0], true);
	return GP_OK;
}

static enum gp_status flatten_prepare(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	(void)err;
	const struct gp_shape *s = gp_cpu_in_shape(p, n, 0);
	int64_t channels = s->dim[s->ndim - 1];
	n->base.view = s->ndim != 3 || channels == 1 || (int64_t)gp_shape_elements(s) == channels;
	return GP_OK;
}

const struct cpu_op gp_cpu_op_flatten = {
	.name = "flatten",
	.prepare = flatten_prepare,
	.forward = flatten_forward,
	.backward = flatten_backward,
};
