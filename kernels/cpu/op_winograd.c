/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolution 3x3 with stride 1 (no groups, no bias) by Winograd's algorithm:
 * a quarter of the multiplications, as matrix products per point between
 * transformed images and transformed filters. See winograd.h. Other 3x3
 * convolutions, and processors without AVX-512, take op_conv.c.
 *
 * Filters are kept in PyTorch's layout only, their gradient, too: they are transformed on the fly, a panel of output
 * channels at a time, which costs less than reading them transformed from memory. Images are transformed into scratch
 * memory in blocks of tiles.
 *
 * dx is the same convolution with the filters turned. Every output, input gradient and weight gradient is one chain of
 * sums in a fixed order: nothing depends on the number of threads.
 * Test: tests/unit/test_winograd.c, tests/unit/test_cpu_ops.c
 */
#include <string.h>

#include "common/mem.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/plan.h"
#include "kernels/cpu/winograd.h"

#define FEWEST_CHANNELS 16
#define MOST_CHANNELS   512 /* rounding errors grow with their root: relative L2 3.6e-6 here */
#define MOST_TILES      256
#define IMAGE_FLOATS    (1 << 20)   /* a block's transformed image: stays in L3 */
#define PANEL_FLOATS    (144 << 10) /* transformed filters of a panel: stay in L2 */
#define MOST_COLUMNS    64          /* what gemm.h takes as one panel */
#define PRODUCT_FLOATS  1024        /* per point: products that are transformed back at once */
#define GRADIENT_FLOATS (64 << 10)

/* One direction of the convolution. */
struct pass {
	struct gp_wino g;
	int64_t columns; /* of a panel */
	int64_t rows;    /* tiles whose products are transformed back at once */
};

struct wino_state {
	struct pass forward, data;
	int64_t points, tiles, block; /* block: tiles that are transformed together */
	int64_t data_tiles, data_block;
	int64_t gradient_rows; /* output channels whose gradients are transformed back at once */
	int64_t image_floats, part_floats, zero_floats;
};

struct wino_job {
	const struct wino_state *s;
	const struct pass *pass;
	struct gp_wino_filter filter;
	const float *x, *dy, *zeros;
	float *y, *grad;
	float *v, *d, *room; /* v, d: transformed x and dy; room: part_floats per part */
	int64_t from, to;    /* tiles of this block */
	int64_t stride;      /* tiles a point has room for */
	bool fresh;
};

bool gp_cpu_winograd_fits(const struct gp_node *n, const struct gp_shape *in)
{
	const struct gp_conv_attr *a = &n->u.conv;
	if (n->op != GP_OP_CONV2D || a->groups != 1 || a->bias || a->kernel_h != 3 || a->kernel_w != 3 ||
	    a->stride_h != 1 || a->stride_w != 1)
		return false;
	if (a->pad_top > 2 || a->pad_bottom > 2 || a->pad_left > 2 || a->pad_right > 2)
		return false;
	return in->dim[2] >= FEWEST_CHANNELS && in->dim[2] <= MOST_CHANNELS && a->out_channels >= FEWEST_CHANNELS &&
	       a->out_channels <= MOST_CHANNELS && gp_wino_supported();
}

/* --- sizes ------------------------------------------------------------------------------------------------------ */

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static int64_t between(int64_t v, int64_t low, int64_t high)
{
	return v < low ? low : v > high ? high : v;
}

/* Tiles per block, all blocks about equal. */
static int64_t block_of(int64_t tiles, int64_t floats_per_tile)
{
	int64_t most = between(IMAGE_FLOATS / floats_per_tile, GP_WINO_LANES, MOST_TILES);
	int64_t blocks = (tiles + most - 1) / most;
	return (tiles + blocks - 1) / blocks;
}

static void size_pass(struct pass *pass, int64_t points)
{
	int64_t columns = PANEL_FLOATS / (points * gp_wino_lanes(pass->g.in)) / GP_WINO_LANES * GP_WINO_LANES;
	int64_t most = gp_wino_lanes(pass->g.out) < MOST_COLUMNS ? gp_wino_lanes(pass->g.out) : MOST_COLUMNS;
	pass->columns = between(columns, GP_WINO_LANES, most);
	pass->rows = PRODUCT_FLOATS / pass->columns;
}

/* What one part works in: a panel of filters and its products. */
static int64_t pass_floats(const struct pass *pass, int64_t points)
{
	return points * pass->columns * (gp_wino_lanes(pass->g.in) + pass->rows);
}

static void size_state(struct wino_state *s, bool want_dx, bool train)
{
	const struct gp_wino *g = &s->forward.g;
	const int64_t in = gp_wino_lanes(g->in), out = gp_wino_lanes(g->out);
	s->points = gp_wino_points(g->kind);
	s->tiles = gp_wino_tiles(g);
	s->data_tiles = gp_wino_tiles(&s->data.g);
	s->block = block_of(s->tiles, s->points * larger(in, train ? out : 0));
	s->data_block = block_of(s->data_tiles, s->points * larger(in, out));
	size_pass(&s->forward, s->points);
	size_pass(&s->data, s->points);
	s->gradient_rows = between(GRADIENT_FLOATS / (s->points * MOST_COLUMNS) / 12 * 12, 12, 96);
	s->image_floats = s->points * s->block * (in + (train ? out : 0));
	s->part_floats = pass_floats(&s->forward, s->points);
	if (want_dx) {
		s->image_floats = larger(s->image_floats, s->points * s->data_block * out);
		s->part_floats = larger(s->part_floats, pass_floats(&s->data, s->points));
	}
	if (train)
		s->part_floats = larger(s->part_floats, s->points * s->gradient_rows * MOST_COLUMNS);
	s->zero_floats = larger(in, out);
}

static void set_geometry(struct cpu_plan *p, struct cpu_node *n, struct wino_state *s)
{
	const struct gp_conv_attr *a = &n->g->u.conv;
	const struct gp_shape *in = &gp_cpu_input(p, n, 0)->g->shape, *out = &n->g->shape;
	struct gp_wino *f = &s->forward.g, *d = &s->data.g;
	*f = (struct gp_wino){.images = p->base.spec.batch, .h = in->dim[0], .w = in->dim[1], .in = in->dim[2]};
	f->out_h = out->dim[0];
	f->out_w = out->dim[1];
	f->out = out->dim[2];
	f->pad_top = a->pad_top;
	f->pad_left = a->pad_left;
	f->kind = gp_wino_choose(f, a->pad_bottom, a->pad_right);
	*d = (struct gp_wino){.kind = f->kind, .images = f->images, .h = f->out_h, .w = f->out_w, .in = f->out};
	d->out_h = f->h;
	d->out_w = f->w;
	d->out = f->in;
	d->pad_top = 2 - f->pad_top;
	d->pad_left = 2 - f->pad_left;
}

static enum gp_status wino_prepare(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	struct wino_state *s = gp_calloc(1, sizeof *s);
	if (!s)
		GP_FAIL(err, GP_NOMEM, "out of memory for convolution %s", n->g->name);
	n->state = s;
	set_geometry(p, n, s);
	size_state(s, n->want_dx, p->base.spec.train);
	n->tmp_bytes = (uint64_t)(s->image_floats + s->zero_floats + p->threads * s->part_floats) * sizeof(float);
	return GP_OK;
}

static void wino_release(struct cpu_node *n)
{
	gp_free(n->state);
	n->state = NULL;
}

/* --- y or dx ---------------------------------------------------------------------------------------------------- */

static void read_part(void *arg, int part, int parts)
{
	const struct wino_job *job = arg;
	const struct gp_wino *g = &job->pass->g;
	struct gp_cpu_range r = gp_cpu_share(job->to - job->from, 1, part, parts);
	const int64_t lanes = gp_wino_lanes(g->in);
	gp_wino_read(g, job->v + r.from * lanes, job->stride * lanes, job->x, job->zeros, job->from + r.from,
		     job->from + r.to);
}

/* Tiles [from, to) of the outputs of one panel; u: its filters, m: room for products. */
static void multiply_tiles(const struct wino_job *job, const float *u, float *m, int64_t channel, int64_t width,
			   int64_t from, int64_t to)
{
	const struct gp_wino *g = &job->pass->g;
	const int64_t lanes = gp_wino_lanes(g->in), rows = to - from;
	for (int64_t p = 0; p < job->s->points; p++)
		gp_gemm(m + p * rows * width, job->v + (p * job->stride + from - job->from) * lanes,
			u + p * lanes * width, rows, lanes, width);
	gp_wino_write(g, job->y, m, channel, width, from, to);
}

static void multiply_panel(const struct wino_job *job, float *room, int64_t channel, int64_t width, int64_t from,
			   int64_t to)
{
	const struct pass *pass = job->pass;
	float *m = room + job->s->points * gp_wino_lanes(pass->g.in) * width;
	gp_wino_filters(&pass->g, room, &job->filter, channel, width);
	for (int64_t t = from; t < to; t += pass->rows)
		multiply_tiles(job, room, m, channel, width, t, to - t < pass->rows ? to : t + pass->rows);
}

/* Panels are shared out where there are enough of them, else tiles. */
static void multiply_part(void *arg, int part, int parts)
{
	const struct wino_job *job = arg;
	const struct pass *pass = job->pass;
	const int64_t lanes = gp_wino_lanes(pass->g.out);
	struct gp_cpu_range tiles = {0, job->to - job->from}, channels = {0, lanes};
	if (lanes >= parts * pass->columns)
		channels = gp_cpu_share(lanes, pass->columns, part, parts);
	else
		tiles = gp_cpu_share(tiles.to, 1, part, parts);
	for (int64_t c = channels.from; c < channels.to; c += pass->columns) {
		int64_t width = channels.to - c < pass->columns ? channels.to - c : pass->columns;
		multiply_panel(job, job->room + part * job->s->part_floats, c, width, job->from + tiles.from,
			       job->from + tiles.to);
	}
}

static void convolve(struct wino_job *job, int parts, int64_t tiles, int64_t block)
{
	job->stride = block;
	for (job->from = 0; job->from < tiles; job->from = job->to) {
		job->to = tiles - job->from < block ? tiles : job->from + block;
		gp_cpu_parallel(parts, read_part, job);
		gp_cpu_parallel(parts, multiply_part, job);
	}
}

/* --- weight gradient -------------------------------------------------------------------------------------------- */

static void read_both_part(void *arg, int part, int parts)
{
	const struct wino_job *job = arg;
	const struct gp_wino *g = &job->pass->g;
	struct gp_cpu_range r = gp_cpu_share(job->to - job->from, 1, part, parts);
	const int64_t in = gp_wino_lanes(g->in), out = gp_wino_lanes(g->out);
	gp_wino_read(g, job->v + r.from * in, job->stride * in, job->x, job->zeros, job->from + r.from,
		     job->from + r.to);
	gp_wino_read_gradient(g, job->d + r.from * out, job->stride * out, job->dy, job->zeros, job->from + r.from,
			      job->from + r.to);
}

/* Output channels [out, out + outs), input channels [in, in + width). */
static void add_gradient(const struct wino_job *job, float *du, int64_t out, int64_t outs, int64_t in, int64_t width)
{
	const struct gp_wino *g = &job->pass->g;
	const int64_t ldv = gp_wino_lanes(g->in), ldd = gp_wino_lanes(g->out);
	for (int64_t p = 0; p < job->s->points; p++) {
		const struct gp_gemm_operand d = {job->d + p * job->stride * ldd + out, ldd};
		const struct gp_gemm_operand v = {job->v + p * job->stride * ldv + in, ldv};
		gp_gemm_transposed_block(du + p * outs * width, d, v, job->to - job->from, outs, width);
	}
	gp_wino_gradient(g, job->grad, du, out, outs, in, width, job->fresh);
}

static void gradient_part(void *arg, int part, int parts)
{
	const struct wino_job *job = arg;
	const struct gp_wino *g = &job->pass->g;
	const int64_t lanes = gp_wino_lanes(g->in), rows = job->s->gradient_rows;
	struct gp_cpu_range r = gp_cpu_share(g->out, 4, part, parts);
	float *du = job->room + part * job->s->part_floats;
	for (int64_t i = 0; i < lanes; i += MOST_COLUMNS) {
		int64_t width = lanes - i < MOST_COLUMNS ? lanes - i : MOST_COLUMNS;
		for (int64_t o = r.from; o < r.to; o += rows)
			add_gradient(job, du, o, r.to - o < rows ? r.to - o : rows, i, width);
	}
}

static void collect_gradient(struct wino_job *job, int parts)
{
	const struct wino_state *s = job->s;
	job->stride = s->block;
	for (job->from = 0; job->from < s->tiles; job->from = job->to) {
		job->to = s->tiles - job->from < s->block ? s->tiles : job->from + s->block;
		gp_cpu_parallel(parts, read_both_part, job);
		gp_cpu_parallel(parts, gradient_part, job);
		job->fresh = false;
	}
}

/* --- running ---------------------------------------------------------------------------------------------------- */

static struct wino_job job_of(const struct cpu_call *c, const struct pass *pass)
{
	const struct wino_state *s = c->node->state;
	float *tmp = c->tmp;
	struct wino_job job = {.s = s, .pass = pass, .v = tmp};
	memset(tmp + s->image_floats, 0, (size_t)s->zero_floats * sizeof *tmp);
	job.zeros = tmp + s->image_floats;
	job.room = tmp + s->image_floats + s->zero_floats;
	job.d = tmp + s->points * s->block * gp_wino_lanes(s->forward.g.in);
	job.filter = (struct gp_wino_filter){.weight = gp_cpu_param_value(c->plan, c->node, GP_PARAM_WEIGHT)};
	return job;
}

static int parts_of(const struct cpu_call *c)
{
	const struct gp_wino *g = &((const struct wino_state *)c->node->state)->forward.g;
	return gp_cpu_parts(c->plan->threads, g->images * g->h * g->w * g->in);
}

static enum gp_status wino_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	const struct wino_state *s = c->node->state;
	struct wino_job job = job_of(c, &s->forward);
	job.x = c->in[0];
	job.y = c->out;
	job.filter.in_stride = GP_WINO_TAPS;
	job.filter.out_stride = GP_WINO_TAPS * s->forward.g.in;
	convolve(&job, parts_of(c), s->tiles, s->block);
	return GP_OK;
}

static enum gp_status wino_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	const struct wino_state *s = c->node->state;
	struct wino_job job = job_of(c, &s->forward);
	job.x = c->in[0];
	job.dy = c->dout;
	job.grad = gp_cpu_param_grad(c->plan, c->node, GP_PARAM_WEIGHT);
	job.fresh = !c->accumulate;
	collect_gradient(&job, parts_of(c));
	if (!c->dx)
		return GP_OK;
	job = job_of(c, &s->data);
	job.x = c->dout;
	job.y = c->dx;
	job.filter.in_stride = GP_WINO_TAPS * s->forward.g.in;
	job.filter.out_stride = GP_WINO_TAPS;
	job.filter.turned = true;
	convolve(&job, parts_of(c), s->data_tiles, s->data_block);
	return GP_OK;
}

const struct cpu_op gp_cpu_winograd = {
	.name = "conv2d",
	.saves_input = true,
	.prepare = wino_prepare,
	.release = wino_release,
	.forward = wino_forward,
	.backward = wino_backward,
};
