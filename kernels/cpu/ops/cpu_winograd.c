/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolution 3x3 with stride 1 or 2 (no groups, no bias) by Winograd's algorithm:
 * a quarter of the multiplications, as matrix products per point between
 * transformed images and transformed filters. See winograd.h. Other 3x3
 * convolutions, and processors without AVX2 or NEON, take gp_cpu_op_conv2d.
 *
 * Filters are kept in PyTorch's layout only, their gradient, too: they are transformed on the fly, a panel of output
 * channels at a time, which costs less than reading them transformed from memory. Images are transformed into scratch
 * memory in blocks of tiles.
 *
 * dx is the same convolution with the filters turned. Neither it nor the outputs depend on the number of threads; the
 * weight gradient of few filters adds one partial sum per thread, in their order.
 * Test: tests/unit/test_winograd.c, tests/unit/test_cpu_ops.c
 */
#include <string.h>

#include "common/base/mem.h"
#include "kernels/cpu/math/gemm.h"
#include "kernels/cpu/plan/cpu_fold.h"
#include "kernels/cpu/plan/parallel.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cpu/math/winograd.h"
#include "common/graph/ops/op_conv.h"

#define FEWEST_CHANNELS        16
#define FEWEST_FILTERS_HALVING (64 * 128) /* stride 2: transforms of fewer cost more than they save */
#define MOST_CHANNELS          512        /* rounding errors grow with their root: relative L2 3.6e-6 here */
#define MOST_TILES             128
#define IMAGE_FLOATS           (1 << 20)   /* a block's transformed image: stays in L3 */
#define PANEL_FLOATS           (168 << 10) /* transformed filters of a panel: stay in L2 */
#define MOST_COLUMNS           64          /* what gemm.h takes as one panel with AVX-512 */
#define PRODUCT_FLOATS         1024        /* per point: products that are transformed back at once */
#define GRADIENT_FLOATS        (64 << 10)
#define FEW_FILTERS            (64 * 64) /* so few that every part may work with its own */

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
	int64_t image_floats, part_floats, zero_floats, grad_floats;
	bool alone; /* every part goes through tiles of its own, else all together through one block after the other */
};

struct wino_job {
	const struct wino_state *s;
	const struct pass *pass;
	struct gp_wino_filter filter;
	const struct gp_finish *finish; /* NULL: none */
	const float *x, *dy, *zeros;
	float *y, *grad;
	struct gp_wino_matrices v, d; /* transformed x and dy: image_floats, per part if they work alone */
	float *room;                  /* part_floats per part */
	float *partial;               /* gradients of parts that work alone, but for the first */
	int64_t begin, end, block;    /* tiles to go through, in blocks */
	int64_t from, to;             /* this block */
	gp_cpu_part_fn read, work;    /* what is done with a block */
	bool fresh;
};

bool gp_cpu_winograd_fits(const struct gp_node *n, const struct gp_shape *in)
{
	const struct gp_conv_attr attr = gp_conv_attr(n), *const a = &attr;
	if (n->op != GP_OP_CONV2D || a->groups != 1 || a->bias || a->kernel_h != 3 || a->kernel_w != 3 ||
	    a->stride_h != a->stride_w || a->stride_h > 2)
		return false;
	if (a->stride_h == 2 &&
	    (a->pad_top != 1 || a->pad_left != 1 || in->dim[2] * a->out_channels < FEWEST_FILTERS_HALVING))
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

/* A panel of filters, and its products. */
static int64_t panel_stride(const struct pass *pass, int64_t columns)
{
	return gp_wino_stride(gp_wino_lanes(pass->g.in) * columns);
}

static int64_t product_stride(const struct pass *pass)
{
	return gp_wino_stride(pass->rows * pass->columns);
}

/* Block of tiles of an image with so many channels. */
static int64_t image_stride(int64_t block, int64_t channels)
{
	return gp_wino_stride(block * gp_wino_lanes(channels));
}

static int64_t gradient_stride(int64_t rows)
{
	return gp_wino_stride(rows * MOST_COLUMNS);
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
	s->image_floats = image_stride(s->block, g->in) + (train ? image_stride(s->block, g->out) : 0);
	int64_t room = panel_stride(&s->forward, s->forward.columns) + product_stride(&s->forward);
	if (want_dx) {
		s->image_floats = larger(s->image_floats, image_stride(s->data_block, g->out));
		room = larger(room, panel_stride(&s->data, s->data.columns) + product_stride(&s->data));
	}
	if (train)
		room = larger(room, gradient_stride(s->gradient_rows));
	s->image_floats *= s->points;
	s->part_floats = s->points * room;
	s->zero_floats = larger(in, out);
	s->alone = in * out <= FEW_FILTERS;
	s->grad_floats = train ? GP_WINO_TAPS * in * out : 0;
}

/* Bytes that images, zeros, rooms and gradients take, in this order. */
static uint64_t working_bytes(const struct wino_state *s, int64_t threads)
{
	int64_t floats = s->zero_floats + threads * s->part_floats;
	if (s->alone)
		floats += threads * s->image_floats + (threads - 1) * s->grad_floats;
	else
		floats += s->image_floats;
	return (uint64_t)floats * sizeof(float);
}

static void set_geometry(struct cpu_plan *p, struct cpu_node *n, struct wino_state *s)
{
	const struct gp_conv_attr attr = gp_conv_attr(n->base.g), *const a = &attr;
	const struct gp_shape *in = gp_cpu_in_shape(p, n, 0), *out = &n->base.g->shape;
	struct gp_wino *f = &s->forward.g, *d = &s->data.g;
	*f = (struct gp_wino){.images = p->base.spec.batch, .h = in->dim[0], .w = in->dim[1], .in = in->dim[2]};
	f->out_h = out->dim[0];
	f->out_w = out->dim[1];
	f->out = out->dim[2];
	f->pad_top = a->pad_top;
	f->pad_left = a->pad_left;
	f->kind = gp_wino_choose(f, a->stride_h, a->pad_bottom, a->pad_right);
	*d = (struct gp_wino){.kind = gp_wino_backwards(f->kind), .images = f->images, .in = f->out};
	d->h = f->out_h;
	d->w = f->out_w;
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
		GP_FAIL(err, GP_NOMEM, "out of memory for convolution %s", n->base.g->name);
	n->state = s;
	set_geometry(p, n, s);
	size_state(s, n->base.want_dx, n->base.trains);
	n->base.saves_in = n->base.trains;
	n->tmp_bytes = working_bytes(s, p->threads);
	gp_cpu_fold_reserve(p, n, false);
	return GP_OK;
}

static enum gp_status wino_repack(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	(void)err;
	gp_cpu_fold_fill(p, n);
	return GP_OK;
}

static void wino_release(struct cpu_node *n)
{
	gp_free(n->state);
	n->state = NULL;
}

/* --- y or dx ---------------------------------------------------------------------------------------------------- */

/* The same matrices without their first `floats`. */
static struct gp_wino_matrices rows_from(struct gp_wino_matrices m, int64_t floats)
{
	return (struct gp_wino_matrices){m.at + floats, m.stride};
}

static void read_part(void *arg, int part, int parts)
{
	const struct wino_job *job = arg;
	const struct gp_wino *g = &job->pass->g;
	struct gp_cpu_range r = gp_cpu_share(job->to - job->from, 1, part, parts);
	gp_wino_read(g, rows_from(job->v, r.from * gp_wino_lanes(g->in)), job->x, job->zeros, job->from + r.from,
		     job->from + r.to);
}

/* Channels of the outputs that are computed together: their filters, and room for their products. */
struct panel {
	int64_t channel, width;
	struct gp_wino_matrices u, m;
};

static void multiply_tiles(const struct wino_job *job, const struct panel *panel, int64_t from, int64_t to)
{
	const struct gp_wino *g = &job->pass->g;
	const int64_t lanes = gp_wino_lanes(g->in);
	const float *v = job->v.at + (from - job->from) * lanes;
	for (int64_t p = 0; p < job->s->points; p++)
		gp_gemm(panel->m.at + p * panel->m.stride, v + p * job->v.stride, panel->u.at + p * panel->u.stride,
			to - from, lanes, panel->width);
	if (job->finish)
		gp_wino_write_finished(g, job->y, panel->m, panel->channel, panel->width, from, to, job->finish);
	else
		gp_wino_write(g, job->y, panel->m, panel->channel, panel->width, from, to);
}

static void multiply_panel(const struct wino_job *job, struct panel *panel, float *room, int64_t from, int64_t to)
{
	const struct pass *pass = job->pass;
	panel->u = (struct gp_wino_matrices){room, panel_stride(pass, panel->width)};
	panel->m = (struct gp_wino_matrices){room + job->s->points * panel->u.stride, product_stride(pass)};
	gp_wino_filters(&pass->g, panel->u, &job->filter, panel->channel, panel->width);
	for (int64_t t = from; t < to; t += pass->rows)
		multiply_tiles(job, panel, t, to - t < pass->rows ? to : t + pass->rows);
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
		struct panel panel = {.channel = c};
		panel.width = channels.to - c < pass->columns ? channels.to - c : pass->columns;
		multiply_panel(job, &panel, job->room + part * job->s->part_floats, job->from + tiles.from,
			       job->from + tiles.to);
	}
}

/* --- weight gradient -------------------------------------------------------------------------------------------- */

static void read_both_part(void *arg, int part, int parts)
{
	const struct wino_job *job = arg;
	const struct gp_wino *g = &job->pass->g;
	struct gp_cpu_range r = gp_cpu_share(job->to - job->from, 1, part, parts);
	read_part(arg, part, parts);
	gp_wino_read_gradient(g, rows_from(job->d, r.from * gp_wino_lanes(g->out)), job->dy, job->zeros,
			      job->from + r.from, job->from + r.to);
}

static void add_gradient(const struct wino_job *job, float *room, const struct gp_wino_part *part)
{
	const struct gp_wino *g = &job->pass->g;
	const int64_t in = gp_wino_lanes(g->in), out = gp_wino_lanes(g->out), width = gp_wino_lanes(part->ins);
	const struct gp_wino_matrices du = {room, gp_wino_stride(part->outs * width)};
	for (int64_t p = 0; p < job->s->points; p++) {
		const struct gp_gemm_operand d = {job->d.at + p * job->d.stride + part->out, out};
		const struct gp_gemm_operand v = {job->v.at + p * job->v.stride + part->in, in};
		gp_gemm_transposed_block(du.at + p * du.stride, d, v, job->to - job->from, part->outs, width);
	}
	gp_wino_gradient(g, job->grad, du, part, job->fresh);
}

static void gradient_part(void *arg, int part, int parts)
{
	const struct wino_job *job = arg;
	const struct gp_wino *g = &job->pass->g;
	const int64_t rows = job->s->gradient_rows;
	struct gp_cpu_range r = gp_cpu_share(g->out, 4, part, parts);
	for (int64_t i = 0; i < g->in; i += MOST_COLUMNS) {
		for (int64_t o = r.from; o < r.to; o += rows) {
			struct gp_wino_part block = {.out = o, .in = i};
			block.outs = r.to - o < rows ? r.to - o : rows;
			block.ins = g->in - i < MOST_COLUMNS ? g->in - i : MOST_COLUMNS;
			add_gradient(job, job->room + part * job->s->part_floats, &block);
		}
	}
}

/* --- all tiles -------------------------------------------------------------------------------------------------- */

static void run_blocks(struct wino_job *job, int parts)
{
	for (job->from = job->begin; job->from < job->end; job->from = job->to) {
		job->to = job->end - job->from < job->block ? job->end : job->from + job->block;
		gp_cpu_parallel(parts, job->read, job);
		gp_cpu_parallel(parts, job->work, job);
		job->fresh = false;
	}
}

static void alone_part(void *arg, int part, int parts)
{
	struct wino_job own = *(const struct wino_job *)arg;
	struct gp_cpu_range r = gp_cpu_share(own.end, 1, part, parts);
	own.begin = r.from;
	own.end = r.to;
	own.v.at += part * own.s->image_floats;
	if (own.d.at) /* it is there for the gradient of the weights alone */
		own.d.at += part * own.s->image_floats;
	own.room += part * own.s->part_floats;
	if (part > 0) {
		own.grad = own.partial + (part - 1) * own.s->grad_floats;
		own.fresh = true;
	}
	run_blocks(&own, 1);
}

static void run_all(const struct cpu_call *c, struct wino_job *job)
{
	const struct wino_state *s = job->s;
	const struct gp_wino *g = &s->forward.g;
	int parts = gp_cpu_parts(c->plan->threads, g->images * g->h * g->w * g->in);
	parts = parts < job->end ? parts : (int)job->end;
	if (!s->alone) {
		run_blocks(job, parts);
		return;
	}
	gp_cpu_parallel(parts, alone_part, job);
	for (int part = 1; job->grad && part < parts; part++)
		gp_cpu_add_into(c->plan->threads, job->grad, job->partial + (part - 1) * s->grad_floats,
				GP_WINO_TAPS * g->in * g->out);
}

/* --- running ---------------------------------------------------------------------------------------------------- */

static struct wino_job job_of(const struct cpu_call *c, const struct pass *pass, int64_t tiles, int64_t block)
{
	const struct wino_state *s = c->node->state;
	const int64_t images = s->alone ? c->plan->threads : 1;
	struct wino_job job = {.s = s, .pass = pass, .end = tiles, .block = block};
	float *zeros = (float *)c->tmp + images * s->image_floats;
	memset(zeros, 0, (size_t)s->zero_floats * sizeof *zeros);
	job.v = (struct gp_wino_matrices){c->tmp, image_stride(block, pass->g.in)};
	job.zeros = zeros;
	job.room = zeros + s->zero_floats;
	job.partial = job.room + c->plan->threads * s->part_floats;
	return job;
}

static void convolve(const struct cpu_call *c, struct wino_job *job, float *y, const float *x)
{
	job->x = x;
	job->y = y;
	job->filter.weight = gp_cpu_param_value(c->plan, c->node, GP_PARAM_WEIGHT);
	job->read = read_part;
	job->work = multiply_part;
	run_all(c, job);
}

static void collect_gradient(const struct cpu_call *c)
{
	const struct wino_state *s = c->node->state;
	struct wino_job job = job_of(c, &s->forward, s->tiles, s->block);
	job.x = c->in[0];
	job.dy = c->dout[0];
	job.d = rows_from(job.v, s->points * job.v.stride);
	job.d.stride = image_stride(s->block, s->forward.g.out);
	job.grad = gp_cpu_param_grad(c->plan, c->node, GP_PARAM_WEIGHT);
	job.fresh = !c->accumulate;
	job.read = read_both_part;
	job.work = gradient_part;
	run_all(c, &job);
}

static enum gp_status wino_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	const struct wino_state *s = c->node->state;
	struct wino_job job = job_of(c, &s->forward, s->tiles, s->block);
	job.filter.in_stride = GP_WINO_TAPS;
	job.filter.out_stride = GP_WINO_TAPS * s->forward.g.in;
	struct gp_finish finish;
	if (c->node->folds) {
		finish = gp_cpu_fold_finish(c->plan, c->node);
		job.finish = &finish;
	}
	convolve(c, &job, c->out[0], c->in[0]);
	return GP_OK;
}

static enum gp_status wino_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	const struct wino_state *s = c->node->state;
	if (c->node->base.trains)
		collect_gradient(c);
	if (!c->dx[0])
		return GP_OK;
	struct wino_job job = job_of(c, &s->data, s->data_tiles, s->data_block);
	job.filter.in_stride = GP_WINO_TAPS * s->forward.g.in;
	job.filter.out_stride = GP_WINO_TAPS;
	job.filter.turned = true;
	convolve(c, &job, c->dx[0], c->dout[0]);
	return GP_OK;
}

const struct cpu_op gp_cpu_winograd = {
	.name = "conv2d",
	.saves_in = 1,
	.folds_batch_norm = true,
	.prepare = wino_prepare,
	.release = wino_release,
	.repack = wino_repack,
	.forward = wino_forward,
	.backward = wino_backward,
};
