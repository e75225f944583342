/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions by matrix products over slices of columns; where precision and
 * numbers of channels let tensor cores do it, without columns. See conv_ways.h.
 * A slice is as many images as SLICE_BYTES of columns hold, so that what
 * im2col writes is still in L2 (40 MB on an A100, 50 MB on an H200) when the
 * product reads it; of one image that is larger, a band of rows.
 * Test: tests/unit/test_cuda_ops.c
 */
#include "kernels/cuda/ops/conv_ways.h"

#include "common/base/mem.h"
#include "kernels/cuda/ops/k_conv.h"
#include "kernels/cuda/ops/k_conv_tiles.h"
#include "kernels/cuda/ops/k_conv_weight.h"
#include "common/graph/ops/op_conv.h"

#define SLICE_BYTES ((int64_t)16 << 20)
#define MOST_PIXELS ((int64_t)1 << 30) /* at once; k_conv.h */

/* --- geometry ----------------------------------------------------------------------------------------------------- */

static struct gpk_window window_of(const struct gp_conv_attr *a, struct cuda_image larger, struct cuda_image smaller)
{
	return (struct gpk_window){
		.images = larger.n,
		.h = larger.h,
		.w = larger.w,
		.channels = larger.c,
		.out_h = smaller.h,
		.out_w = smaller.w,
		.kernel_h = a->kernel_h,
		.kernel_w = a->kernel_w,
		.stride_h = a->stride_h,
		.stride_w = a->stride_w,
		.pad_top = a->pad_top,
		.pad_left = a->pad_left,
	};
}

static bool columns_are_rows(const struct gpk_window *w)
{
	return gpk_window_taps(w) == 1 && w->stride_h == 1 && w->stride_w == 1 && w->h == w->out_h &&
	       w->w == w->out_w && w->pad_top == 0 && w->pad_left == 0;
}

struct gpk_window gp_cuda_conv_window(const struct cuda_plan *p, const struct cuda_node *n)
{
	const struct gp_conv_attr a = gp_conv_attr(n->base.g);
	return window_of(&a, gp_cuda_in_image(p, n, 0), gp_cuda_image(p, n));
}

enum gp_status gp_cuda_conv_new(struct cuda_plan *p, struct cuda_node *n, bool transposed, struct cuda_conv **out,
				struct gp_err *err)
{
	const struct gp_conv_attr attr = gp_conv_attr(n->base.g), *const a = &attr;
	const struct cuda_image in = gp_cuda_in_image(p, n, 0), made = gp_cuda_image(p, n);
	struct cuda_conv *v = gp_calloc(1, sizeof *v);
	if (!v)
		GP_FAIL(err, GP_NOMEM, "out of memory for convolution %s", n->base.g->name);
	n->state = v;
	v->w = transposed ? window_of(a, made, in) : window_of(a, in, made);
	v->small = transposed ? in.c : made.c;
	v->groups = a->groups;
	v->transposed = transposed;
	v->rows = columns_are_rows(&v->w);
	*out = v;
	return GP_OK;
}

bool gp_cuda_conv_is_depthwise(const struct cuda_conv *v)
{
	return v->groups > 1 && v->groups == v->small && v->groups == v->w.channels;
}

/* --- tiles -------------------------------------------------------------------------------------------------------- */

static void choose_tiles(struct cuda_conv *v, enum gp_rt_type type, enum gp_precision precision)
{
	if (precision == GP_PRECISION_FP32 || v->groups > 1 || v->rows)
		return;
	v->gathers_by_tiles = gpk_conv_tiles_fits(type, &v->w, v->small);
	v->scatters_by_tiles = gpk_conv_back_fits(type, &v->w, v->small);
	v->weighs_by_tiles = gpk_conv_weight_fits(type, &v->w, v->small);
}

uint64_t gp_cuda_conv_pack_bytes(const struct cuda_conv *v, enum gp_rt_type type)
{
	const uint64_t elements = (uint64_t)(v->small * gpk_window_taps(&v->w) * v->w.channels);
	return v->scatters_by_tiles ? elements * gp_rt_type_bytes(type) : 0;
}

void gp_cuda_conv_pack(const struct cuda_call *c, const struct cuda_conv *v)
{
	if (v->scatters_by_tiles)
		gpk_conv_turn_weight(c->stream, c->type, &v->w, v->small, gp_cuda_weight(c->plan, c->node), c->pack);
}

/* --- slices ------------------------------------------------------------------------------------------------------- */

static int64_t at_least_1(int64_t n)
{
	return n < 1 ? 1 : n;
}

static int64_t smaller_of(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Windows over rows [from, from + lines) of the larger image. */
static void windows_over(const struct gpk_window *w, int64_t from, int64_t lines, struct gpk_slice *slice)
{
	const int64_t low = from + w->pad_top - w->kernel_h + 1, high = (from + lines - 1 + w->pad_top) / w->stride_h;
	const int64_t end = smaller_of(high + 1, w->out_h);
	slice->from = low <= 0 ? 0 : (low + w->stride_h - 1) / w->stride_h;
	slice->rows = end > slice->from ? end - slice->from : 0;
}

/* Rows of the larger image that at most `rows` rows of windows are over, if a line is not under more than that. */
static int64_t lines_under(const struct gpk_window *w, int64_t rows)
{
	const int64_t lines = (rows - 1) * w->stride_h - w->kernel_h + 2;
	return at_least_1(smaller_of(lines, MOST_PIXELS / w->w));
}

/* Decides how much goes at once; returns the bytes of columns that takes. */
static uint64_t slice(struct cuda_conv *v, enum gp_rt_type type)
{
	const struct gpk_window *w = &v->w;
	const int64_t window = gpk_window_taps(w) * w->channels * (int64_t)gp_rt_type_bytes(type);
	const int64_t row = w->out_w * window, image = w->out_h * w->out_w;
	const int64_t pixels = image > w->h * w->w ? image : w->h * w->w;
	if (v->rows)
		return 0;
	v->images = smaller_of(smaller_of(SLICE_BYTES / row / w->out_h, MOST_PIXELS / pixels), w->images);
	if (v->images > 0)
		return (uint64_t)(v->images * w->out_h * row);
	v->band_rows = smaller_of(at_least_1(SLICE_BYTES / row), w->out_h);
	v->band_lines = smaller_of(lines_under(w, v->band_rows), w->h);
	const int64_t under = (v->band_lines + w->kernel_h - 2) / w->stride_h + 1;
	return (uint64_t)((under > v->band_rows ? smaller_of(under, w->out_h) : v->band_rows) * row);
}

struct cuda_conv_rooms gp_cuda_conv_rooms(struct cuda_conv *v, enum gp_rt_type type, enum gp_precision precision)
{
	const uint64_t columns = slice(v, type);
	struct cuda_conv_rooms r = {columns, columns, columns};
	choose_tiles(v, type, precision);
	if (v->gathers_by_tiles)
		r.gather = gpk_conv_tiles_room(type, &v->w, v->small);
	if (v->scatters_by_tiles)
		r.scatter = gpk_conv_back_room(type, &v->w, v->small);
	if (v->weighs_by_tiles)
		r.weight = gpk_conv_weight_room(type, &v->w, v->small);
	return r;
}

/* The next slice of windows after `s`; false behind the last. */
static bool next_rows(const struct cuda_conv *v, struct gpk_slice *s)
{
	const struct gpk_window *w = &v->w;
	if (v->images > 0) {
		const int64_t image = s->image + s->images;
		*s = (struct gpk_slice){image, smaller_of(v->images, w->images - image), 0, w->out_h};
		return s->images > 0;
	}
	int64_t image = s->images ? s->image : 0, from = s->from + s->rows;
	if (from >= w->out_h) {
		image++;
		from = 0;
	}
	*s = (struct gpk_slice){image, 1, from, smaller_of(v->band_rows, w->out_h - from)};
	return image < w->images;
}

/* --- products ----------------------------------------------------------------------------------------------------- */

/* The matrices of one slice, a batch of `groups`. */
struct product {
	int64_t windows, per_group, small_per_group;
	struct gp_matrix columns, smaller, weight;
};

static const void *at_element(const void *base, int64_t element, enum gp_rt_type type)
{
	return (const char *)base + (uint64_t)element * gp_rt_type_bytes(type);
}

static struct product product_of(const struct cuda_call *c, const struct cuda_conv *v, const struct gpk_slice *s,
				 const void *columns, const void *smaller)
{
	const int64_t first = (s->image * v->w.out_h + s->from) * v->w.out_w, channels = v->w.channels / v->groups;
	struct product p = {.windows = gpk_slice_windows(&v->w, s), .per_group = gpk_window_taps(&v->w) * channels};
	p.small_per_group = v->small / v->groups;
	p.columns = (struct gp_matrix){.data = columns, .type = c->type, .stride = p.per_group};
	p.columns.between = p.windows * p.per_group;
	if (v->rows) {
		p.columns.stride = v->w.channels;
		p.columns.between = channels;
	}
	p.smaller = (struct gp_matrix){.type = c->type, .stride = v->small, .between = p.small_per_group};
	p.smaller.data = at_element(smaller, first * v->small, c->type);
	p.weight = (struct gp_matrix){.type = c->type, .stride = p.per_group};
	p.weight.between = p.small_per_group * p.per_group;
	return p;
}

static struct gpk_slice everything(const struct cuda_conv *v)
{
	return (struct gpk_slice){0, v->w.images, 0, v->w.out_h};
}

static void gather_slice(const struct cuda_call *c, const struct cuda_conv *v, const struct gpk_slice *s,
			 const void *columns, bool add, void *smaller)
{
	struct product p = product_of(c, v, s, columns, smaller);
	p.weight.data = gp_cuda_weight(c->plan, c->node);
	p.weight.transposed = true;
	gp_blas_gemm(c->blas, p.windows, p.small_per_group, p.per_group, 1, &p.columns, &p.weight, add ? 1 : 0,
		     &p.smaller, v->groups);
}

void gp_cuda_conv_gather(const struct cuda_call *c, const struct cuda_conv *v, const void *larger, void *room, bool add,
			 void *smaller)
{
	struct gpk_slice s = everything(v);
	if (v->gathers_by_tiles) {
		gpk_conv_tiles(c->stream, c->type, &v->w, v->small, larger, gp_cuda_weight(c->plan, c->node), add,
			       smaller, room);
		return;
	}
	if (v->rows) {
		gather_slice(c, v, &s, larger, add, smaller);
		return;
	}
	for (s = (struct gpk_slice){0}; next_rows(v, &s);) {
		gpk_im2col(c->stream, c->type, &v->w, v->groups, &s, larger, room);
		gather_slice(c, v, &s, room, add, smaller);
	}
}

static void scatter_slice(const struct cuda_call *c, const struct cuda_conv *v, const struct gpk_slice *s,
			  const void *smaller, bool add, void *columns)
{
	struct product p = product_of(c, v, s, columns, smaller);
	p.weight.data = gp_cuda_weight(c->plan, c->node);
	if (s->rows > 0)
		gp_blas_gemm(c->blas, p.windows, p.per_group, p.small_per_group, 1, &p.smaller, &p.weight, add ? 1 : 0,
			     &p.columns, v->groups);
}

static void scatter_lines(const struct cuda_call *c, const struct cuda_conv *v, const struct gpk_slice *s,
			  const void *smaller, void *room, int64_t from, int64_t lines, bool add, void *larger)
{
	scatter_slice(c, v, s, smaller, false, room);
	gpk_col2im(c->stream, c->type, &v->w, v->groups, s, room, from, lines, add, larger);
}

/* A band takes all windows over its rows; those at its border are computed for both bands. */
static void scatter_bands(const struct cuda_call *c, const struct cuda_conv *v, const void *smaller, void *room,
			  bool add, void *larger)
{
	for (int64_t image = 0; image < v->w.images; image++)
		for (int64_t from = 0; from < v->w.h; from += v->band_lines) {
			const int64_t lines = smaller_of(v->band_lines, v->w.h - from);
			struct gpk_slice s = {.image = image, .images = 1};
			windows_over(&v->w, from, lines, &s);
			scatter_lines(c, v, &s, smaller, room, from, lines, add, larger);
		}
}

void gp_cuda_conv_scatter(const struct cuda_call *c, const struct cuda_conv *v, const void *smaller, void *room,
			  bool add, void *larger)
{
	struct gpk_slice s = everything(v);
	if (v->scatters_by_tiles)
		gpk_conv_back(c->stream, c->type, &v->w, v->small, smaller, c->pack, add, larger, room);
	else if (v->rows)
		scatter_slice(c, v, &s, smaller, add, larger);
	else if (v->images == 0)
		scatter_bands(c, v, smaller, room, add, larger);
	else
		for (s = (struct gpk_slice){0}; next_rows(v, &s);)
			scatter_lines(c, v, &s, smaller, room, 0, v->w.h, add, larger);
}

static void weight_slice(const struct cuda_call *c, const struct cuda_conv *v, const struct gpk_slice *s,
			 const void *columns, const void *smaller, float *grad)
{
	struct product p = product_of(c, v, s, columns, smaller);
	p.smaller.transposed = true;
	p.weight.type = GP_RT_F32;
	p.weight.data = grad;
	gp_blas_gemm(c->blas, p.small_per_group, p.per_group, p.windows, 1, &p.smaller, &p.columns, 1, &p.weight,
		     v->groups);
}

void gp_cuda_conv_weight(const struct cuda_call *c, const struct cuda_conv *v, const void *larger, const void *smaller,
			 void *room, float *grad)
{
	struct gpk_slice s = everything(v);
	if (v->weighs_by_tiles) {
		gpk_conv_weight(c->stream, c->type, &v->w, v->small, larger, smaller, grad, room);
		return;
	}
	if (v->rows) {
		weight_slice(c, v, &s, larger, smaller, grad);
		return;
	}
	for (s = (struct gpk_slice){0}; next_rows(v, &s);) {
		gpk_im2col(c->stream, c->type, &v->w, v->groups, &s, larger, room);
		weight_slice(c, v, &s, room, smaller, grad);
	}
}
