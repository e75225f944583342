/* SPDX-License-Identifier: Apache-2.0
 *
 * Depthwise 3x3 convolution (one filter per channel, stride 1 or 2, no bias),
 * row by row with depthwise.h: half of MobileNetV2's memory traffic and little
 * of its arithmetic. Backward runs the weight gradient and dx together while
 * their rows are in the cache. Other depthwise convolutions, and processors
 * without AVX2 or NEON, take gp_cpu_op_conv2d. Rows are shared out over threads; the weight
 * gradient adds one partial sum per thread, in their order.
 * Test: tests/unit/test_cpu_ops.c
 */
#include <string.h>

#include "common/base/mem.h"
#include "kernels/cpu/math/depthwise.h"
#include "kernels/cpu/plan/cpu_fold.h"
#include "kernels/cpu/plan/parallel.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "common/graph/ops/op_conv.h"

#define BEHIND 2 /* rows of dout before row oy that rows of dx there may need */

struct dw_state {
	struct gp_dw g;
	int64_t images;
	int64_t row_grain, image_grain; /* borders between parts, in rows of out and in images: whole blocks of sums */
	uint64_t pack;                  /* offset in the plan's packs */
	uint64_t x_ring_bytes, room_bytes; /* of one part: GP_DW_RING rows of x, normalized, and of dout, finished */
};

struct dw_job {
	const struct cpu_call *c;
	const struct dw_state *s;
	const float *weight;
	char *room;
	float *grad, *partial; /* backward; grad: of part 0, NULL where frozen; partial: of the others */
	bool fresh;
};

/* Rows of one image as the kernels read them, those below `ready` made so far. */
struct dw_source {
	struct gp_dw_rows rows;
	int64_t ready;
};

bool gp_cpu_depthwise_fits(const struct gp_node *n, const struct gp_shape *in)
{
	const struct gp_conv_attr attr = gp_conv_attr(n), *const a = &attr;
	if (n->op != GP_OP_CONV2D || a->groups == 1 || a->groups != a->out_channels || in->dim[2] != a->groups)
		return false;
	return a->kernel_h == 3 && a->kernel_w == 3 && a->stride_h == a->stride_w && a->stride_h <= 2 &&
	       a->pad_top <= 2 && a->pad_left <= 2 && !a->bias && gp_depthwise_supported();
}

static uint64_t grad_bytes(const struct dw_state *s)
{
	return (uint64_t)(GP_DW_TAPS * s->g.lanes) * sizeof(float); /* whole cache lines */
}

static int64_t gcd(int64_t a, int64_t b)
{
	while (b) {
		int64_t t = a % b;
		a = b;
		b = t;
	}
	return a;
}

/* Parts may meet only where `block` rows of (rows of) pixels do, whether anybody sums them up here or not. */
static int64_t grain_of(int64_t pixels, int64_t block)
{
	return block / gcd(pixels, block);
}

static void plan_rooms(const struct cpu_node *n, struct dw_state *s)
{
	const uint64_t row = (uint64_t)(GP_DW_RING * s->g.channels) * sizeof(float);
	s->x_ring_bytes = n->reads ? gp_cpu_align(row * (uint64_t)s->g.w) : 0;
	s->room_bytes = s->x_ring_bytes;
	if (n->base.need_grad)
		s->room_bytes += gp_cpu_align(row * (uint64_t)s->g.out_w);
}

static enum gp_status dw_prepare(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	const struct gp_conv_attr attr = gp_conv_attr(n->base.g), *const a = &attr;
	const struct gp_shape *in = gp_cpu_in_shape(p, n, 0), *out = &n->base.g->shape;
	struct dw_state *s = gp_calloc(1, sizeof *s);
	if (!s)
		GP_FAIL(err, GP_NOMEM, "out of memory for convolution %s", n->base.g->name);
	n->state = s;
	s->g = (struct gp_dw){.h = in->dim[0], .w = in->dim[1], .out_h = out->dim[0], .out_w = out->dim[1]};
	s->g.channels = in->dim[2];
	s->g.stride = a->stride_h;
	s->g.pad_top = a->pad_top;
	s->g.pad_left = a->pad_left;
	s->g.lanes = gp_depthwise_lanes(s->g.channels);
	s->images = p->base.spec.batch;
	s->row_grain = grain_of(s->g.out_w, gp_bn_block(s->g.out_h * s->g.out_w));
	s->image_grain = grain_of(s->g.h * s->g.w, gp_bn_block(s->g.h * s->g.w));
	plan_rooms(n, s);
	s->pack = p->pack_bytes;
	p->pack_bytes += grad_bytes(s);
	n->tmp_bytes = 1; /* at least an address to count from */
	n->tmp_bytes += (uint64_t)p->threads * s->room_bytes;
	n->base.saves_in = n->base.trains;
	if (n->base.trains) {
		n->tmp_bytes += (uint64_t)(p->threads - 1) * grad_bytes(s);
		p->param[gp_cpu_param_index(p, n, GP_PARAM_WEIGHT)].grad_count = grad_bytes(s) / sizeof(float);
	}
	gp_cpu_fold_reserve(p, n, true);
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
	const float *weight = gp_cpu_fold_weight(p, n);
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

/* --- rows of x and dout as they are read -------------------------------------------------------------------------- */

static char *room_of(const struct dw_job *job, int part)
{
	return job->room + (uint64_t)part * job->s->room_bytes;
}

static struct dw_source x_source(const struct dw_job *job, int part, int64_t image, int64_t first)
{
	const struct gp_dw *g = &job->s->g;
	if (job->c->node->reads)
		return (struct dw_source){{(const float *)room_of(job, part), GP_DW_RING}, first < 0 ? 0 : first};
	return (struct dw_source){{job->c->in[0] + image * g->h * g->w * g->channels, 0}, g->h};
}

/* Rows of x below `until` are there, and the three before. */
static void x_ready(const struct dw_job *job, struct dw_source *x, int64_t image, int64_t until)
{
	const struct gp_dw *g = &job->s->g;
	until = until < g->h ? until : g->h;
	for (; x->ready < until; x->ready++) {
		int64_t row = image * g->h + x->ready;
		gp_cpu_bn_input(job->c, row * g->w, (row + 1) * g->w,
				(float *)gp_depthwise_row(x->rows, x->ready, g->w * g->channels));
	}
}

static struct dw_source dout_source(const struct dw_job *job, int part, int64_t image)
{
	const struct gp_dw *g = &job->s->g;
	if (job->c->node->finishes)
		return (struct dw_source){{(const float *)(room_of(job, part) + job->s->x_ring_bytes), GP_DW_RING}, 0};
	return (struct dw_source){{job->c->dout[0] + image * g->out_h * g->out_w * g->channels, 0}, g->out_h};
}

static void dout_ready(const struct dw_job *job, struct dw_source *dout, int64_t image, int64_t until)
{
	const struct gp_dw *g = &job->s->g;
	until = until < g->out_h ? until : g->out_h;
	for (; dout->ready < until; dout->ready++) {
		int64_t row = image * g->out_h + dout->ready;
		gp_cpu_bn_dout(job->c, row * g->out_w, (row + 1) * g->out_w,
			       (float *)gp_depthwise_row(dout->rows, dout->ready, g->out_w * g->channels));
	}
}

/* Rows of dout behind row oy that the rows of dx there need. */
static int64_t ahead_of(const struct gp_dw *g)
{
	return (g->stride - 1 + g->pad_top) / g->stride;
}

/* First row of x that row oy of out meets; may be above the image. */
static int64_t top_of(const struct gp_dw *g, int64_t oy)
{
	return oy * g->stride - g->pad_top;
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static void forward_row(const struct dw_job *job, float *out, struct gp_dw_rows x, int64_t oy)
{
	const struct cpu_call *c = job->c;
	if (!c->node->folds) {
		gp_depthwise_forward_row(&job->s->g, out, x, job->weight, oy);
		return;
	}
	const struct gp_finish finish = gp_cpu_fold_finish(c->plan, c->node);
	gp_depthwise_finished_row(&job->s->g, out, x, job->weight, &finish, oy);
}

static void forward_part(void *arg, int part, int parts)
{
	const struct dw_job *job = arg;
	const struct gp_dw *g = &job->s->g;
	struct gp_cpu_range r = gp_cpu_share(job->s->images * g->out_h, job->s->row_grain, part, parts);
	int64_t summed = r.from * g->out_w;
	struct dw_source x = {.ready = 0};
	for (int64_t row = r.from; row < r.to; row++) {
		const int64_t image = row / g->out_h, oy = row % g->out_h;
		if (row == r.from || oy == 0)
			x = x_source(job, part, image, top_of(g, oy));
		x_ready(job, &x, image, top_of(g, oy) + 3);
		forward_row(job, job->c->out[0] + row * g->out_w * g->channels, x.rows, oy);
		summed = gp_cpu_bn_feed(job->c, summed, (row + 1) * g->out_w);
	}
}

static int parts_of(const struct cpu_call *c, const struct dw_state *s)
{
	return gp_cpu_parts(c->plan->threads, s->images * s->g.h * s->g.w * s->g.channels);
}

static struct dw_job job_of(const struct cpu_call *c)
{
	const struct dw_state *s = c->node->state;
	struct dw_job job = {.c = c, .s = s, .room = c->tmp};
	job.weight = (const float *)(c->plan->packs + s->pack);
	job.partial = (float *)(job.room + (uint64_t)c->plan->threads * s->room_bytes);
	return job;
}

static enum gp_status dw_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct dw_job job = job_of(c);
	gp_cpu_parallel(parts_of(c, job.s), forward_part, &job);
	return GP_OK;
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

static float *grad_of(const struct dw_job *job, int part)
{
	return part ? job->partial + (part - 1) * GP_DW_TAPS * job->s->g.lanes : job->grad;
}

static void clear_grad(const struct dw_job *job, int part)
{
	if (job->grad && (part > 0 || job->fresh))
		memset(grad_of(job, part), 0, grad_bytes(job->s));
}

/* The rows of dx that go with row oy of dout: every row of dx goes with exactly one. Returns the next row of dx. */
static int64_t data_rows(const struct dw_job *job, struct gp_dw_rows dout, int64_t image, int64_t oy)
{
	const struct gp_dw *g = &job->s->g;
	int64_t iy = oy * g->stride, to = oy == g->out_h - 1 || iy + g->stride > g->h ? g->h : iy + g->stride;
	for (; iy < to; iy++)
		gp_depthwise_data_row(g, job->c->dx[0] + (image * g->h + iy) * g->w * g->channels, dout, job->weight,
				      iy);
	return image * g->h + to;
}

/* Rows [from, to) of dout that belong to one image. */
static void backward_rows(const struct dw_job *job, int part, int64_t image, int64_t from, int64_t to, int64_t *summed)
{
	const struct gp_dw *g = &job->s->g;
	struct dw_source x = x_source(job, part, image, top_of(g, from)), dout = dout_source(job, part, image);
	dout.ready = dout.rows.ring && from > BEHIND ? from - BEHIND : dout.ready;
	for (int64_t oy = from; oy < to; oy++) {
		dout_ready(job, &dout, image, oy + ahead_of(g) + 1);
		if (job->grad) {
			x_ready(job, &x, image, top_of(g, oy) + 3);
			gp_depthwise_weights_row(g, grad_of(job, part), x.rows,
						 gp_depthwise_row(dout.rows, oy, g->out_w * g->channels), oy);
		}
		if (!job->c->dx[0])
			continue;
		int64_t written = data_rows(job, dout.rows, image, oy);
		if (summed)
			*summed = gp_cpu_bn_return(job->c, *summed, written * g->w);
	}
}

static void images_part(void *arg, int part, int parts)
{
	const struct dw_job *job = arg;
	const struct gp_dw *g = &job->s->g;
	struct gp_cpu_range r = gp_cpu_share(job->s->images, job->s->image_grain, part, parts);
	int64_t summed = r.from * g->h * g->w;
	clear_grad(job, part);
	for (int64_t image = r.from; image < r.to; image++)
		backward_rows(job, part, image, 0, g->out_h, &summed);
}

static void rows_part(void *arg, int part, int parts)
{
	const struct dw_job *job = arg;
	const int64_t out_h = job->s->g.out_h;
	struct gp_cpu_range r = gp_cpu_share(job->s->images * out_h, 1, part, parts);
	clear_grad(job, part);
	for (int64_t row = r.from, next; row < r.to; row = next) {
		next = (row / out_h + 1) * out_h < r.to ? (row / out_h + 1) * out_h : r.to;
		backward_rows(job, part, row / out_h, row % out_h, row % out_h + next - row, NULL);
	}
}

static void return_part(void *arg, int part, int parts)
{
	const struct dw_job *job = arg;
	const int64_t pixels = job->s->g.h * job->s->g.w;
	struct gp_cpu_range r = gp_cpu_share(job->s->images * pixels, gp_bn_block(pixels), part, parts);
	(void)gp_cpu_bn_return(job->c, r.from, r.to);
}

/* Whole images per part where that is fair: only then are sums of dx made while it is in the cache. */
static bool by_image(const struct dw_state *s, int parts)
{
	return s->images % (s->image_grain * parts) == 0 || s->images >= 4 * s->image_grain * (int64_t)parts;
}

static enum gp_status dw_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct dw_job job = job_of(c);
	int parts = parts_of(c, job.s);
	job.grad = gp_cpu_param_grad(c->plan, c->node, GP_PARAM_WEIGHT);
	job.fresh = !c->accumulate;
	if (parts == 1 || by_image(job.s, parts)) {
		gp_cpu_parallel(parts, images_part, &job);
	} else {
		gp_cpu_parallel(parts, rows_part, &job);
		gp_cpu_parallel(parts, return_part, &job);
	}
	for (int part = 1; job.grad && part < parts; part++)
		gp_cpu_add_into(c->plan->threads, job.grad, grad_of(&job, part), GP_DW_TAPS * job.s->g.lanes);
	return GP_OK;
}

const struct cpu_op gp_cpu_depthwise = {
	.name = "conv2d",
	.saves_in = 1,
	.hosts_batch_norm = true,
	.folds_batch_norm = true,
	.prepare = dw_prepare,
	.release = dw_release,
	.repack = dw_repack,
	.grad_dense = dw_grad_dense,
	.forward = dw_forward,
	.backward = dw_backward,
};
