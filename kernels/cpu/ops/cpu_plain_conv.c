/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolution and transposed convolution of any shape on own loops: for processors that oneDNN is not there for, and the
 * reference for it (kernels/cpu/onednn/dnn_conv.c). Depthwise ones go through their channels
 * (kernels/cpu/math/conv_channels.h), all others are matrix products over gathered patches (kernels/cpu/math/conv_patches.h),
 * in bf16 where the plan is and there are no groups. Rows are shared out over threads, so outputs and dx do not depend on
 * their number; the gradient of a kernel adds one partial sum per thread, in their order.
 *
 * Test: tests/unit/test_cpu_ops.c, tests/unit/test_conv_plain.c
 */
#include "common/base/mem.h"
#include "common/graph/ops/op_conv.h"
#include "kernels/cpu/math/conv_channels.h"
#include "kernels/cpu/math/conv_patches.h"
#include "kernels/cpu/ops/cpu_bias.h"
#include "kernels/cpu/plan/parallel.h"

#define GRAIN 16 /* channels of a cache line */

struct conv_state {
	struct gp_conv_shape shape;
	bool transposed, channels; /* channels: depthwise */
	uint64_t pack[2];          /* by direction, forward and backwards: where its kernel lies in the plan's packs */
	uint64_t room_bytes;       /* of one part */
};

/* --- life ------------------------------------------------------------------------------------------------------- */

static struct gp_conv_image image_of(const struct gp_shape *s)
{
	return (struct gp_conv_image){s->dim[0], s->dim[1], s->dim[2]};
}

static void fill_shape(struct cpu_plan *p, struct cpu_node *n, struct conv_state *s)
{
	const struct gp_conv_attr attr = gp_conv_attr(n->base.g), *const a = &attr;
	const struct gp_conv_image in = image_of(gp_cpu_in_shape(p, n, 0)), out = image_of(&n->base.g->shape);
	s->shape = (struct gp_conv_shape){.images = p->base.spec.batch,
					  .x = s->transposed ? out : in,
					  .y = s->transposed ? in : out,
					  .kernel_h = a->kernel_h,
					  .kernel_w = a->kernel_w,
					  .stride_h = a->stride_h,
					  .stride_w = a->stride_w,
					  .pad_top = a->pad_top,
					  .pad_left = a->pad_left,
					  .groups = a->groups};
	s->channels = gp_conv_channels_fit(&s->shape);
	s->shape.bf16 = p->base.spec.precision == GP_PRECISION_BF16 && a->groups == 1 && !p->dev->plain;
}

static uint64_t grad_bytes(const struct gp_conv_shape *s)
{
	return gp_cpu_align((uint64_t)(s->kernel_h * s->kernel_w * s->x.channels * (s->y.channels / s->groups)) *
			    sizeof(float));
}

/* Whether the node computes in that direction: forward, or backwards for its input's gradient; transposed the other way. */
static bool needs(const struct cpu_node *n, const struct conv_state *s, bool backwards)
{
	return backwards == s->transposed || n->base.want_dx;
}

static void reserve_packs(struct cpu_plan *p, const struct cpu_node *n, struct conv_state *s)
{
	for (int backwards = 0; backwards < 2; backwards++) {
		s->pack[backwards] = p->pack_bytes;
		if (s->channels && backwards)
			s->pack[1] = s->pack[0];
		else if (s->channels)
			p->pack_bytes += grad_bytes(&s->shape);
		else if (needs(n, s, backwards))
			p->pack_bytes +=
				gp_cpu_align((uint64_t)gp_conv_packed_count(&s->shape, backwards) * sizeof(float));
	}
}

static enum gp_status prepare(struct cpu_plan *p, struct cpu_node *n, bool transposed, struct gp_err *err)
{
	struct conv_state *s = gp_calloc(1, sizeof *s);
	if (!s)
		GP_FAIL(err, GP_NOMEM, "out of memory for convolution %s", n->base.g->name);
	n->state = s;
	s->transposed = transposed;
	fill_shape(p, n, s);
	reserve_packs(p, n, s);
	s->room_bytes = s->channels ? 0 : gp_cpu_align((uint64_t)gp_conv_room(&s->shape) * sizeof(float));
	n->tmp_bytes = 1; /* at least an address to count from */
	n->tmp_bytes += (uint64_t)p->threads * s->room_bytes;
	if (n->base.trains && !s->channels)
		n->tmp_bytes += (uint64_t)(p->threads - 1) * grad_bytes(&s->shape);
	if (s->shape.bf16 && n->tmp_bytes < grad_bytes(&s->shape)) /* where kernels are packed */
		n->tmp_bytes = grad_bytes(&s->shape);
	if (!n->base.trains)
		n->base.saves_in = 0;
	return GP_OK;
}

static enum gp_status conv_prepare(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	return prepare(p, n, false, err);
}

static enum gp_status transpose_prepare(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	return prepare(p, n, true, err);
}

static void conv_release(struct cpu_node *n)
{
	gp_free(n->state);
	n->state = NULL;
}

static float *packed_at(struct cpu_plan *p, const struct conv_state *s, bool backwards)
{
	return (float *)(p->packs + s->pack[backwards]);
}

static enum gp_status conv_repack(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	(void)err;
	const struct conv_state *s = n->state;
	const float *weight = gp_cpu_param_value(p, n, GP_PARAM_WEIGHT);
	if (s->channels)
		gp_conv_channels_pack(&s->shape, packed_at(p, s, false), weight);
	for (int backwards = 0; !s->channels && backwards < 2; backwards++)
		if (needs(n, s, backwards))
			gp_conv_pack(&s->shape, backwards, packed_at(p, s, backwards), weight,
				     s->shape.bf16 ? gp_cpu_buf(p, 0, n->base.tmp[0]) : NULL);
	return GP_OK;
}

static enum gp_status conv_grad_dense(struct cpu_plan *p, struct cpu_node *n, float *out, struct gp_err *err)
{
	(void)err;
	const struct conv_state *s = n->state;
	const float *grad = gp_cpu_param_grad(p, n, GP_PARAM_WEIGHT);
	if (s->channels)
		gp_conv_channels_unpack(&s->shape, out, grad);
	else
		gp_conv_unpack(&s->shape, out, grad);
	return GP_OK;
}

/* --- a pass ----------------------------------------------------------------------------------------------------- */

struct conv_job {
	const struct conv_state *s;
	bool backwards, fresh;
	float *out;
	const float *in, *packed; /* weigh: in is x */
	const float *y;           /* weigh */
	float *grad, *partial;    /* weigh; grad: of part 0; partial: of the others */
	char *room;
};

static float *room_of(const struct conv_job *job, int part)
{
	return (float *)(job->room + (uint64_t)part * job->s->room_bytes);
}

static void pass_part(void *arg, int part, int parts)
{
	const struct conv_job *job = arg;
	const struct gp_conv_shape *s = &job->s->shape;
	const int64_t rows = s->images * (job->backwards ? s->x.h : s->y.h);
	const struct gp_cpu_range r = gp_cpu_share(rows, 1, part, parts);
	if (job->s->channels)
		gp_conv_channels_pass(s, job->backwards, job->out, job->in, job->packed, r.from, r.to);
	else
		gp_conv_pass(s, job->backwards, job->out, job->in, job->packed, r.from, r.to, room_of(job, part));
}

static int parts_of(const struct cpu_call *c, const struct gp_conv_shape *s)
{
	return gp_cpu_parts(c->plan->threads,
			    s->images * (s->x.h * s->x.w * s->x.channels + s->y.h * s->y.w * s->y.channels));
}

static void run_pass(const struct cpu_call *c, const struct conv_state *s, bool backwards, float *out, const float *in)
{
	struct conv_job job = {.s = s,
			       .backwards = backwards,
			       .out = out,
			       .in = in,
			       .packed = packed_at(c->plan, s, backwards),
			       .room = c->tmp};
	gp_cpu_parallel(parts_of(c, &s->shape), pass_part, &job);
}

/* --- the kernel's gradient --------------------------------------------------------------------------------------- */

static float *grad_of(const struct conv_job *job, int part)
{
	return part ? job->partial + (uint64_t)(part - 1) * grad_bytes(&job->s->shape) / sizeof(float) : job->grad;
}

static void weigh_part(void *arg, int part, int parts)
{
	const struct conv_job *job = arg;
	const struct gp_conv_shape *s = &job->s->shape;
	if (job->s->channels) {
		const struct gp_cpu_range r = gp_cpu_share(s->x.channels, GRAIN, part, parts);
		gp_conv_channels_weigh(s, job->grad, job->in, job->y, r.from, r.to, job->fresh);
		return;
	}
	const struct gp_cpu_range r = gp_cpu_share(s->images * s->y.h, 1, part, parts);
	gp_conv_weigh(s, grad_of(job, part), job->in, job->y, r.from, r.to, part > 0 || job->fresh, room_of(job, part));
}

/* From x and y, whichever of them is the gradient of the output. */
static void weigh(const struct cpu_call *c, const struct conv_state *s, const float *x, const float *y)
{
	const int index = gp_cpu_param_index(c->plan, c->node, GP_PARAM_WEIGHT), parts = parts_of(c, &s->shape);
	struct conv_job job = {.s = s, .in = x, .y = y, .room = c->tmp, .fresh = !c->accumulate};
	job.grad = gp_cpu_param_grad(c->plan, c->node, GP_PARAM_WEIGHT);
	job.partial = (float *)(job.room + (uint64_t)c->plan->threads * s->room_bytes);
	if (!job.grad)
		return;
	gp_cpu_parallel(parts, weigh_part, &job);
	for (int part = 1; !s->channels && part < parts; part++)
		gp_cpu_add_into(c->plan->threads, job.grad, grad_of(&job, part),
				(int64_t)c->plan->base.spec.graph->param[index].count);
}

/* --- running ---------------------------------------------------------------------------------------------------- */

static enum gp_status conv_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	const struct conv_state *s = c->node->state;
	run_pass(c, s, s->transposed, c->out[0], c->in[0]);
	gp_cpu_bias_add(c, c->out[0], gp_cpu_elements(c->plan, c->node) / gp_conv_attr(c->node->base.g).out_channels,
			gp_conv_attr(c->node->base.g).out_channels);
	return GP_OK;
}

static enum gp_status conv_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	const struct conv_state *s = c->node->state;
	const int64_t channels = gp_conv_attr(c->node->base.g).out_channels;
	gp_cpu_bias_gradient(c, c->dout[0], gp_cpu_elements(c->plan, c->node) / channels, channels);
	if (c->node->base.trains)
		weigh(c, s, s->transposed ? c->dout[0] : c->in[0], s->transposed ? c->in[0] : c->dout[0]);
	if (c->dx[0])
		run_pass(c, s, !s->transposed, c->dx[0], c->dout[0]);
	return GP_OK;
}

const struct cpu_op gp_cpu_op_conv2d = {
	.name = "conv2d",
	.saves_in = 1,
	.prepare = conv_prepare,
	.release = conv_release,
	.repack = conv_repack,
	.grad_dense = conv_grad_dense,
	.forward = conv_forward,
	.backward = conv_backward,
};

const struct cpu_op gp_cpu_op_conv2d_transpose = {
	.name = "conv2d_transpose",
	.saves_in = 1,
	.prepare = transpose_prepare,
	.release = conv_release,
	.repack = conv_repack,
	.grad_dense = conv_grad_dense,
	.forward = conv_forward,
	.backward = conv_backward,
};
