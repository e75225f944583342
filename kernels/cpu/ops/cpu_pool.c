/* SPDX-License-Identifier: Apache-2.0
 *
 * Average, maximum and global average pooling, channels innermost. Backward
 * gathers: every input row collects from the windows over it, in a fixed
 * order, so that threads never write one row together. Maximum keeps the place
 * within the window of each maximum (the first of equals; a NaN wins), as
 * PyTorch does, in as few bits as the window needs (saved_bits.h); pixels begin
 * on a word. Test: tests/unit/test_cpu_ops.c, tests/unit/test_plan_masks.c
 */
#include <string.h>

#include "common/base/mem.h"
#include "kernels/cpu/math/saved_bits.h"
#include "kernels/cpu/plan/parallel.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/loops/simd.h"
#include "common/graph/ops/op_pool.h"

#define STRIP 256 /* channels of a pixel whose places are unpacked at a time: whole words, whatever their bits */

struct pool_state {
	int64_t batch, h, w, out_h, out_w, channels;
	struct gp_pool_attr a;
	bool max;
	int bits;      /* of a place */
	int64_t words; /* of a pixel's places */
};

struct pool_job {
	const struct pool_state *s;
	const float *in;
	float *out;
	uint32_t *
		place; /* of output pixels, by channel: kh * kernel_w + kw, packed; NULL: not maximum, or nobody asks */
};

/* --- loops over channels ---------------------------------------------------------------------------------------- */

/* acc += scale * x */
GP_INLINE void add_scaled_body(float *restrict acc, const float *restrict x, float scale, int64_t n)
{
#pragma omp simd
	for (int64_t c = 0; c < n; c++)
		acc[c] += scale * x[c];
}
GP_CPU_CLONES(add_scaled, (float *acc, const float *x, float scale, int64_t n), (acc, x, scale, n))

GP_INLINE void scale_body(float *acc, float scale, int64_t n)
{
#pragma omp simd
	for (int64_t c = 0; c < n; c++)
		acc[c] *= scale;
}
GP_CPU_CLONES(scale, (float *acc, float scale, int64_t n), (acc, scale, n))

GP_INLINE void take_max_body(float *restrict best, int32_t *restrict place, const float *restrict x, int32_t here,
			     int64_t n)
{
#pragma omp simd
	for (int64_t c = 0; c < n; c++) {
		bool better = x[c] > best[c] || x[c] != x[c];
		best[c] = better ? x[c] : best[c];
		place[c] = better ? here : place[c];
	}
}
GP_CPU_CLONES(take_max, (float *best, int32_t *place, const float *x, int32_t here, int64_t n),
	      (best, place, x, here, n))

GP_INLINE void add_where_body(float *restrict acc, const float *restrict x, const int32_t *restrict place, int32_t here,
			      int64_t n)
{
#pragma omp simd
	for (int64_t c = 0; c < n; c++)
		acc[c] += place[c] == here ? x[c] : 0.0f;
}
GP_CPU_CLONES(add_where, (float *acc, const float *x, const int32_t *place, int32_t here, int64_t n),
	      (acc, x, place, here, n))

/* --- windows ---------------------------------------------------------------------------------------------------- */

/* The part of a window along one axis that lies in the image. */
static struct gp_cpu_range window(int64_t out, int32_t kernel, int32_t stride, int32_t pad, int64_t size)
{
	int64_t from = out * stride - pad, to = from + kernel;
	return (struct gp_cpu_range){from < 0 ? 0 : from, to > size ? size : to};
}

/* Outputs along one axis whose window holds `in`. */
static struct gp_cpu_range windows_over(int64_t in, int32_t kernel, int32_t stride, int32_t pad, int64_t outs)
{
	int64_t low = in + pad - kernel + 1, to = (in + pad) / stride + 1;
	int64_t from = low <= 0 ? 0 : (low + stride - 1) / stride;
	return (struct gp_cpu_range){from, to > outs ? outs : to};
}

static float average_scale(const struct pool_state *s, int64_t oh, int64_t ow)
{
	if (s->a.count_include_pad)
		return 1.0f / (float)(s->a.kernel_h * s->a.kernel_w);
	struct gp_cpu_range h = window(oh, s->a.kernel_h, s->a.stride_h, s->a.pad_top, s->h);
	struct gp_cpu_range w = window(ow, s->a.kernel_w, s->a.stride_w, s->a.pad_left, s->w);
	return 1.0f / (float)((h.to - h.from) * (w.to - w.from));
}

/* --- forward ---------------------------------------------------------------------------------------------------- */

static void average_pixel(const struct pool_job *job, const float *image, int64_t oh, int64_t ow, float *out)
{
	const struct pool_state *s = job->s;
	struct gp_cpu_range h = window(oh, s->a.kernel_h, s->a.stride_h, s->a.pad_top, s->h);
	struct gp_cpu_range w = window(ow, s->a.kernel_w, s->a.stride_w, s->a.pad_left, s->w);
	memset(out, 0, (size_t)s->channels * sizeof *out);
	for (int64_t ih = h.from; ih < h.to; ih++)
		for (int64_t iw = w.from; iw < w.to; iw++)
			add_scaled(out, image + (ih * s->w + iw) * s->channels, 1.0f, s->channels);
	scale(out, average_scale(s, oh, ow), s->channels);
}

/* Channels [from, from + n) of one pixel of the output. */
static void max_strip(const struct pool_job *job, const float *image, int64_t oh, int64_t ow, int64_t from, int64_t n,
		      float *out, uint32_t *places)
{
	const struct pool_state *s = job->s;
	int32_t place[STRIP];
	int64_t top = oh * s->a.stride_h - s->a.pad_top, left = ow * s->a.stride_w - s->a.pad_left;
	struct gp_cpu_range h = window(oh, s->a.kernel_h, s->a.stride_h, s->a.pad_top, s->h);
	struct gp_cpu_range w = window(ow, s->a.kernel_w, s->a.stride_w, s->a.pad_left, s->w);
	int32_t first = (int32_t)((h.from - top) * s->a.kernel_w + (w.from - left));
	memcpy(out, image + (h.from * s->w + w.from) * s->channels + from, (size_t)n * sizeof *out);
	for (int64_t c = 0; c < n; c++)
		place[c] = first;
	for (int64_t ih = h.from; ih < h.to; ih++)
		for (int64_t iw = w.from; iw < w.to; iw++)
			take_max(out, place, image + (ih * s->w + iw) * s->channels + from,
				 (int32_t)((ih - top) * s->a.kernel_w + (iw - left)), n);
	if (places)
		gp_bits_pack(place, places, n, s->bits);
}

static void max_pixel(const struct pool_job *job, const float *image, int64_t oh, int64_t ow, float *out,
		      uint32_t *places)
{
	const struct pool_state *s = job->s;
	for (int64_t from = 0; from < s->channels; from += STRIP) {
		const int64_t n = s->channels - from < STRIP ? s->channels - from : STRIP;
		max_strip(job, image, oh, ow, from, n, out + from, places ? places + from * s->bits / 32 : NULL);
	}
}

static void forward_part(void *arg, int part, int parts)
{
	const struct pool_job *job = arg;
	const struct pool_state *s = job->s;
	struct gp_cpu_range r = gp_cpu_share(s->batch * s->out_h, 1, part, parts);
	for (int64_t row = r.from; row < r.to; row++) {
		const float *image = job->in + row / s->out_h * s->h * s->w * s->channels;
		for (int64_t ow = 0; ow < s->out_w; ow++) {
			const int64_t pixel = row * s->out_w + ow;
			float *out = job->out + pixel * s->channels;
			if (s->max)
				max_pixel(job, image, row % s->out_h, ow, out,
					  job->place ? job->place + pixel * s->words : NULL);
			else
				average_pixel(job, image, row % s->out_h, ow, out);
		}
	}
}

/* --- backward --------------------------------------------------------------------------------------------------- */

/* dx += what one output pixel, whose places these are, has for the input pixel at place `here` of its window. */
static void add_maxima(const struct pool_state *s, const float *dout, const uint32_t *places, int32_t here, float *dx)
{
	int32_t place[STRIP];
	for (int64_t from = 0; from < s->channels; from += STRIP) {
		const int64_t n = s->channels - from < STRIP ? s->channels - from : STRIP;
		gp_bits_unpack(places + from * s->bits / 32, place, n, s->bits);
		add_where(dx + from, dout + from, place, here, n);
	}
}

static void gather_pixel(const struct pool_job *job, int64_t sample, int64_t ih, int64_t iw, float *dx)
{
	const struct pool_state *s = job->s;
	struct gp_cpu_range h = windows_over(ih, s->a.kernel_h, s->a.stride_h, s->a.pad_top, s->out_h);
	struct gp_cpu_range w = windows_over(iw, s->a.kernel_w, s->a.stride_w, s->a.pad_left, s->out_w);
	memset(dx, 0, (size_t)s->channels * sizeof *dx);
	for (int64_t oh = h.from; oh < h.to; oh++) {
		for (int64_t ow = w.from; ow < w.to; ow++) {
			const int64_t pixel = (sample * s->out_h + oh) * s->out_w + ow;
			const float *dout = job->in + pixel * s->channels;
			int64_t kh = ih - (oh * s->a.stride_h - s->a.pad_top);
			int64_t kw = iw - (ow * s->a.stride_w - s->a.pad_left);
			if (s->max)
				add_maxima(s, dout, job->place + pixel * s->words, (int32_t)(kh * s->a.kernel_w + kw),
					   dx);
			else
				add_scaled(dx, dout, average_scale(s, oh, ow), s->channels);
		}
	}
}

static void backward_part(void *arg, int part, int parts)
{
	const struct pool_job *job = arg;
	const struct pool_state *s = job->s;
	struct gp_cpu_range r = gp_cpu_share(s->batch * s->h, 1, part, parts);
	for (int64_t row = r.from; row < r.to; row++)
		for (int64_t iw = 0; iw < s->w; iw++)
			gather_pixel(job, row / s->h, row % s->h, iw, job->out + (row * s->w + iw) * s->channels);
}

/* --- the ops ---------------------------------------------------------------------------------------------------- */

static enum gp_status pool_prepare(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	struct pool_state *s = gp_calloc(1, sizeof *s);
	if (!s)
		GP_FAIL(err, GP_NOMEM, "out of memory for pooling %s", n->base.g->name);
	n->state = s;
	const struct gp_shape *in = gp_cpu_in_shape(p, n, 0), *out = &n->base.g->shape;
	*s = (struct pool_state){.batch = p->base.spec.batch, .h = in->dim[0], .w = in->dim[1], .out_h = out->dim[0]};
	s->out_w = out->dim[1];
	s->channels = out->dim[2];
	s->max = n->base.g->op == GP_OP_MAX_POOL;
	if (n->base.g->op == GP_OP_GLOBAL_AVG_POOL)
		s->a = (struct gp_pool_attr){
			.kernel_h = (int32_t)s->h, .kernel_w = (int32_t)s->w, .stride_h = 1, .stride_w = 1};
	else
		s->a = gp_pool_attr(n->base.g);
	if (!s->max)
		return GP_OK;
	s->bits = gp_bits_for((int64_t)s->a.kernel_h * s->a.kernel_w);
	s->words = gp_bits_words(s->channels, s->bits);
	if (p->base.spec.train && n->base.need_grad)
		n->base.saved_bytes = (uint64_t)(s->batch * s->out_h * s->out_w * s->words) * sizeof(uint32_t);
	return GP_OK;
}

static void pool_release(struct cpu_node *n)
{
	gp_free(n->state);
	n->state = NULL;
}

static enum gp_status pool_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	const struct pool_state *s = c->node->state;
	struct pool_job job = {s, c->in[0], c->out[0], c->mode == GP_TRAIN ? c->saved : NULL};
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, s->batch * s->h * s->w * s->channels), forward_part, &job);
	return GP_OK;
}

static enum gp_status pool_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	const struct pool_state *s = c->node->state;
	struct pool_job job = {s, c->dout[0], c->dx[0], c->saved};
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, s->batch * s->h * s->w * s->channels), backward_part, &job);
	return GP_OK;
}

#define POOL_OP(op_name)                                                                                               \
	{                                                                                                              \
		.name = op_name, .prepare = pool_prepare, .release = pool_release, .forward = pool_forward,            \
		.backward = pool_backward,                                                                             \
	}

const struct cpu_op gp_cpu_op_avg_pool = POOL_OP("avg_pool");
const struct cpu_op gp_cpu_op_max_pool = POOL_OP("max_pool");
const struct cpu_op gp_cpu_op_global_avg_pool = POOL_OP("global_avg_pool");
