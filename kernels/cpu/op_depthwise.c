/* SPDX-License-Identifier: Apache-2.0
 *
 * Depthwise 3x3 convolution (one filter per channel, stride 1 or 2, no bias),
 * row by row with depthwise.h: half of MobileNetV2's memory traffic and little
 * of its arithmetic. Backward runs the weight gradient and dx together while
 * their rows are in the cache. Other depthwise convolutions, and processors
 * without AVX-512, take op_conv.c. Rows are shared out over threads; the weight
 * gradient adds one partial sum per thread, in their order.
 * Test: tests/unit/test_cpu_ops.c
 */
#include <string.h>

#include "common/mem.h"
#include "kernels/cpu/depthwise.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/plan.h"

#define AHEAD 2

struct dw_state {
	struct gp_dw g;
	int64_t images;
	uint64_t pack; /* offset in the plan's packs */
};

struct dw_job {
	const struct cpu_call *c;
	const struct dw_state *s;
	const float *x, *weight, *dout;
	float *y, *dx;
	float *grad, *partial; /* grad: of part 0; partial: of the others, one after another */
	bool fresh;
};

bool gp_cpu_depthwise_fits(const struct gp_node *n, const struct gp_shape *in)
{
	const struct gp_conv_attr *a = &n->u.conv;
	if (n->op != GP_OP_CONV2D || a->groups == 1 || a->groups != a->out_channels || in->dim[2] != a->groups)
		return false;
	return a->kernel_h == 3 && a->kernel_w == 3 && a->stride_h == a->stride_w && a->stride_h <= 2 &&
	       a->pad_top <= 2 && a->pad_left <= 2 && !a->bias && gp_depthwise_supported();
}

static uint64_t grad_bytes(const struct dw_state *s)
{
	return (uint64_t)(GP_DW_TAPS * s->g.lanes) * sizeof(float); /* whole cache lines */
}

static enum gp_status dw_prepare(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	const struct gp_conv_attr *a = &n->g->u.conv;
	const struct gp_shape *in = &gp_cpu_input(p, n, 0)->g->shape, *out = &n->g->shape;
	struct dw_state *s = gp_calloc(1, sizeof *s);
	if (!s)
		GP_FAIL(err, GP_NOMEM, "out of memory for convolution %s", n->g->name);
	n->state = s;
	s->g = (struct gp_dw){.h = in->dim[0], .w = in->dim[1], .out_h = out->dim[0], .out_w = out->dim[1]};
	s->g.channels = in->dim[2];
	s->g.stride = a->stride_h;
	s->g.pad_top = a->pad_top;
	s->g.pad_left = a->pad_left;
	s->g.lanes = gp_depthwise_lanes(s->g.channels);
	s->images = p->base.spec.batch;
	s->pack = p->pack_bytes;
	p->pack_bytes += grad_bytes(s);
	if (p->base.spec.train) {
		n->tmp_bytes = (uint64_t)(p->threads - 1) * grad_bytes(s);
		p->param[gp_cpu_param_index(p, n, GP_PARAM_WEIGHT)].grad_count = grad_bytes(s) / sizeof(float);
	}
	return GP_OK;
}

static void dw_release(struct cpu_node *n)
{
	gp_free(n->state);
	n->state = NULL;
}

/* (channels, 9) to (9, lanes); what lies behind the channels stays zero. */
static enum gp_status dw_repack(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	(void)err;
	const struct dw_state *s = n->state;
	const float *weight = gp_cpu_param_value(p, n, GP_PARAM_WEIGHT);
	float *pack = (float *)(p->packs + s->pack);
	for (int64_t c = 0; c < s->g.channels; c++)
		for (int64_t t = 0; t < GP_DW_TAPS; t++)
			pack[t * s->g.lanes + c] = weight[c * GP_DW_TAPS + t];
	return GP_OK;
}

static enum gp_status dw_grad_dense(struct cpu_plan *p, struct cpu_node *n, float *out, struct gp_err *err)
{
	(void)err;
	const struct dw_state *s = n->state;
	const float *grad = gp_cpu_param_grad(p, n, GP_PARAM_WEIGHT);
	for (int64_t c = 0; c < s->g.channels; c++)
		for (int64_t t = 0; t < GP_DW_TAPS; t++)
			out[c * GP_DW_TAPS + t] = grad[t * s->g.lanes + c];
	return GP_OK;
}

/* Floats of one image before and behind the convolution. */
static int64_t in_image(const struct gp_dw *g)
{
	return g->h * g->w * g->channels;
}

static int64_t out_image(const struct gp_dw *g)
{
	return g->out_h * g->out_w * g->channels;
}

static void forward_part(void *arg, int part, int parts)
{
	const struct dw_job *job = arg;
	const struct gp_dw *g = &job->s->g;
	struct gp_cpu_range r = gp_cpu_share(job->s->images * g->out_h, 1, part, parts);
	for (int64_t row = r.from; row < r.to; row++)
		gp_depthwise_forward_row(g, job->y + row * g->out_w * g->channels,
					 job->x + row / g->out_h * in_image(g), job->weight, row % g->out_h);
}

static int parts_of(const struct cpu_call *c, const struct dw_state *s)
{
	return gp_cpu_parts(c->plan->threads, s->images * in_image(&s->g));
}

static struct dw_job job_of(const struct cpu_call *c)
{
	const struct dw_state *s = c->node->state;
	struct dw_job job = {
		.c = c, .s = s, .x = c->in[0], .dout = c->dout, .y = c->out, .dx = c->dx, .partial = c->tmp};
	job.weight = (const float *)(c->plan->packs + s->pack);
	return job;
}

static enum gp_status dw_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct dw_job job = job_of(c);
	gp_cpu_parallel(parts_of(c, job.s), forward_part, &job);
	return GP_OK;
}

static float *grad_of(const struct dw_job *job, int part)
{
	return part ? job->partial + (part - 1) * GP_DW_TAPS * job->s->g.lanes : job->grad;
}

/* The rows of dx that go with row oy of dout: every row of dx goes with exactly one. */
static void data_rows(const struct dw_job *job, int64_t image, int64_t oy)
{
	const struct gp_dw *g = &job->s->g;
	int64_t from = oy * g->stride, to = oy == g->out_h - 1 ? g->h : from + g->stride;
	for (int64_t iy = from; iy < to && iy < g->h; iy++)
		gp_depthwise_data_row(g, job->dx + image * in_image(g) + iy * g->w * g->channels,
				      job->dout + image * out_image(g), job->weight, iy);
}

/* Rows [from, to) of dout that belong to one image, all of them finished. */
static void backward_rows(const struct dw_job *job, float *grad, int64_t image, int64_t from, int64_t to)
{
	const struct gp_dw *g = &job->s->g;
	for (int64_t oy = from; oy < to; oy++) {
		gp_depthwise_weights_row(g, grad, job->x + image * in_image(g),
					 job->dout + image * out_image(g) + oy * g->out_w * g->channels, oy);
		if (job->dx)
			data_rows(job, image, oy);
	}
}

static void clear_grad(const struct dw_job *job, int part)
{
	if (part > 0 || job->fresh)
		memset(grad_of(job, part), 0, grad_bytes(job->s));
}

/* Rows of one image; a row of dx needs rows of dout up to AHEAD further. */
static void backward_image(const struct dw_job *job, float *grad, int64_t image)
{
	const struct gp_dw *g = &job->s->g;
	int64_t finished = 0, first = image * g->out_h;
	for (int64_t oy = 0; oy < g->out_h; oy++) {
		int64_t until = oy + AHEAD + 1 < g->out_h ? oy + AHEAD + 1 : g->out_h;
		gp_cpu_bn_finish(job->c, (first + finished) * g->out_w, (first + until) * g->out_w);
		finished = until;
		backward_rows(job, grad, image, oy, oy + 1);
	}
}

static void images_part(void *arg, int part, int parts)
{
	const struct dw_job *job = arg;
	struct gp_cpu_range r = gp_cpu_share(job->s->images, 1, part, parts);
	clear_grad(job, part);
	for (int64_t image = r.from; image < r.to; image++)
		backward_image(job, grad_of(job, part), image);
}

static void finish_part(void *arg, int part, int parts)
{
	const struct dw_job *job = arg;
	const struct gp_dw *g = &job->s->g;
	struct gp_cpu_range r = gp_cpu_share(job->s->images * g->out_h, 1, part, parts);
	gp_cpu_bn_finish(job->c, r.from * g->out_w, r.to * g->out_w);
}

static void rows_part(void *arg, int part, int parts)
{
	const struct dw_job *job = arg;
	const int64_t out_h = job->s->g.out_h;
	struct gp_cpu_range r = gp_cpu_share(job->s->images * out_h, 1, part, parts);
	clear_grad(job, part);
	for (int64_t row = r.from; row < r.to; row++)
		backward_rows(job, grad_of(job, part), row / out_h, row % out_h, row % out_h + 1);
}

/* Whole images per part where that is fair: only then is a row's neighbour finished by the same part. */
static bool by_image(const struct dw_state *s, int parts)
{
	return s->images % parts == 0 || s->images >= 4 * (int64_t)parts;
}

static enum gp_status dw_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct dw_job job = job_of(c);
	int parts = parts_of(c, job.s);
	job.grad = gp_cpu_param_grad(c->plan, c->node, GP_PARAM_WEIGHT);
	job.fresh = !c->accumulate;
	if (by_image(job.s, parts)) {
		gp_cpu_parallel(parts, images_part, &job);
	} else {
		gp_cpu_parallel(parts, finish_part, &job);
		gp_cpu_parallel(parts, rows_part, &job);
	}
	for (int part = 1; part < parts; part++)
		gp_cpu_add_into(c->plan->threads, job.grad, grad_of(&job, part), GP_DW_TAPS * job.s->g.lanes);
	return GP_OK;
}

const struct cpu_op gp_cpu_depthwise = {
	.name = "conv2d",
	.saves_input = true,
	.finishes = true,
	.prepare = dw_prepare,
	.release = dw_release,
	.repack = dw_repack,
	.grad_dense = dw_grad_dense,
	.forward = dw_forward,
	.backward = dw_backward,
};
