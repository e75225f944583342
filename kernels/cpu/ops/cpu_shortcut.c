/* SPDX-License-Identifier: Apache-2.0
 *
 * Shortcut padding: every stride-th row and column, with channels of zeros
 * before and behind; the residual shortcut without parameters (common/graph/graph.h,
 * struct gp_shortcut_attr). Nothing is computed, pixels are copied. With stride
 * 1 and no padding the node is a view. Test: tests/unit/test_cpu_ops.c
 */
#include <string.h>

#include "kernels/cpu/plan/parallel.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "common/graph/ops/op_shape.h"

struct shortcut_job {
	float *to;
	const float *from;
	int64_t batch, h, w, channels; /* of the input */
	int64_t out_h, out_w, out_channels;
	int64_t stride, before;
};

static void forward_part(void *arg, int part, int parts)
{
	const struct shortcut_job *job = arg;
	struct gp_cpu_range r = gp_cpu_share(job->batch * job->out_h, 1, part, parts);
	size_t pixel = (size_t)job->channels * sizeof(float),
	       row_bytes = (size_t)(job->out_w * job->out_channels) * sizeof(float);
	for (int64_t row = r.from; row < r.to; row++) {
		int64_t in_row = row / job->out_h * job->h + row % job->out_h * job->stride;
		const float *in = job->from + in_row * job->w * job->channels;
		float *out = job->to + row * job->out_w * job->out_channels;
		memset(out, 0, row_bytes);
		for (int64_t x = 0; x < job->out_w; x++)
			memcpy(out + x * job->out_channels + job->before, in + x * job->stride * job->channels, pixel);
	}
}

/* Gathers by input row, so that no two threads write one: rows and columns that were left out get zeros. */
static void backward_part(void *arg, int part, int parts)
{
	const struct shortcut_job *job = arg;
	struct gp_cpu_range r = gp_cpu_share(job->batch * job->h, 1, part, parts);
	size_t pixel = (size_t)job->channels * sizeof(float),
	       row_bytes = (size_t)(job->w * job->channels) * sizeof(float);
	for (int64_t row = r.from; row < r.to; row++) {
		int64_t sample = row / job->h, y = row % job->h;
		float *dx = job->to + row * job->w * job->channels;
		memset(dx, 0, row_bytes);
		if (y % job->stride)
			continue;
		int64_t out_row = sample * job->out_h + y / job->stride;
		const float *dout = job->from + out_row * job->out_w * job->out_channels + job->before;
		for (int64_t x = 0; x < job->out_w; x++)
			memcpy(dx + x * job->stride * job->channels, dout + x * job->out_channels, pixel);
	}
}

static struct shortcut_job job_of(const struct cpu_call *c)
{
	const struct gp_shape *in = gp_cpu_in_shape(c->plan, c->node, 0), *out = &c->node->base.g->shape;
	return (struct shortcut_job){
		.batch = c->plan->base.spec.batch,
		.h = in->dim[0],
		.w = in->dim[1],
		.channels = in->dim[2],
		.out_h = out->dim[0],
		.out_w = out->dim[1],
		.out_channels = out->dim[2],
		.stride = gp_shortcut_attr(c->node->base.g).stride,
		.before = gp_shortcut_attr(c->node->base.g).before,
	};
}

static enum gp_status shortcut_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct shortcut_job job = job_of(c);
	job.to = c->out[0];
	job.from = c->in[0];
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, gp_cpu_elements(c->plan, c->node)), forward_part, &job);
	return GP_OK;
}

static enum gp_status shortcut_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct shortcut_job job = job_of(c);
	job.to = c->dx[0];
	job.from = c->dout[0];
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, gp_cpu_in_elements(c->plan, c->node, 0)), backward_part, &job);
	return GP_OK;
}

static enum gp_status shortcut_prepare(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	(void)p;
	(void)err;
	const struct gp_shortcut_attr attr = gp_shortcut_attr(n->base.g), *const a = &attr;
	n->base.view = a->stride == 1 && a->before == 0 && a->after == 0;
	return GP_OK;
}

const struct cpu_op gp_cpu_op_shortcut_pad = {
	.name = "shortcut_pad",
	.prepare = shortcut_prepare,
	.forward = shortcut_forward,
	.backward = shortcut_backward,
};
