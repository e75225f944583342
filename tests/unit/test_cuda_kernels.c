/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of convolutions, depthwise convolutions, batch norm and pools, each
 * beside a plain loop in double over shapes that are drawn: odd numbers of
 * channels, strides, padding that differs by side, groups, fp32 and bf16. See
 * kernels/cuda/k_conv.h, k_conv_tiles.h, k_depthwise.h, k_batch_norm.h, k_pool.h.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef GP_CUDA_DEVICE
#include "common/rng.h"
#include "kernels/cuda/k_batch_norm.h"
#include "kernels/cuda/k_conv.h"
#include "kernels/cuda/k_conv_tiles.h"
#include "kernels/cuda/k_depthwise.h"
#include "kernels/cuda/k_fill.h"
#include "kernels/cuda/k_pool.h"
#include "kernels/cuda/rt.h"

#define OK(call) assert_int_equal((call), GP_OK)
#define CASES    60

static struct gp_err err;
static struct gp_rt_stream *stream;
static uint64_t draws;

static int open_stream(void **state)
{
	(void)state;
	struct gp_rt_info info;
	OK(gp_rt_open(0, &info, &err));
	OK(gp_rt_stream_new(0, false, &stream, &err));
	return 0;
}

static int close_stream(void **state)
{
	(void)state;
	gp_rt_stream_free(stream);
	return 0;
}

/* --- drawn numbers, and tensors on both sides --------------------------------------------------------------------- */

static float draw(void)
{
	return 2 * gp_rng_uniform(11, 0, draws++) - 1;
}

static int64_t draw_of(int64_t low, int64_t high)
{
	return low + (int64_t)(gp_rng_uniform(12, 0, draws++) * (float)(high - low + 1));
}

static float *host_room(int64_t n)
{
	float *p = malloc((size_t)n * sizeof *p);
	assert_non_null(p);
	return p;
}

static void *device_room(uint64_t bytes)
{
	void *p = NULL;
	OK(gp_rt_alloc(0, bytes ? bytes : 1, &p, &err));
	return p;
}

struct tensor {
	int64_t n;
	enum gp_rt_type type;
	float *host;
	void *device;
};

/* The device's copy becomes the host's, which is rounded to the type. */
static void tensor_up(struct tensor *t)
{
	float *const wide = device_room((uint64_t)t->n * sizeof *wide);
	gp_rt_copy_up(stream, wide, t->host, (size_t)t->n * sizeof *wide);
	gpk_convert(stream, t->type, t->device, GP_RT_F32, wide, t->n);
	gpk_convert(stream, GP_RT_F32, wide, t->type, t->device, t->n);
	gp_rt_copy_down(stream, t->host, wide, (size_t)t->n * sizeof *wide);
	OK(gp_rt_stream_wait(stream, &err));
	gp_rt_free(0, wide);
}

static struct tensor tensor_new(enum gp_rt_type type, int64_t n)
{
	struct tensor t = {.n = n, .type = type, .host = host_room(n)};
	t.device = device_room((uint64_t)n * gp_rt_type_bytes(type));
	for (int64_t i = 0; i < n; i++)
		t.host[i] = draw();
	tensor_up(&t);
	return t;
}

static void tensor_free(struct tensor *t)
{
	free(t->host);
	gp_rt_free(0, t->device);
}

/* What the device has: caller frees. */
static float *tensor_down(const struct tensor *t)
{
	float *const out = host_room(t->n), *const wide = device_room((uint64_t)t->n * sizeof *wide);
	gpk_convert(stream, GP_RT_F32, wide, t->type, t->device, t->n);
	gp_rt_copy_down(stream, out, wide, (size_t)t->n * sizeof *wide);
	OK(gp_rt_stream_wait(stream, &err));
	gp_rt_free(0, wide);
	return out;
}

static double difference(const float *got, const double *want, int64_t n)
{
	double above = 0, below = 1e-30;
	for (int64_t i = 0; i < n; i++) {
		above += (got[i] - want[i]) * (got[i] - want[i]);
		below += want[i] * want[i];
	}
	return sqrt(above / below);
}

static const char *shown(const struct gpk_window *w)
{
	static char text[200];
	snprintf(text, sizeof text, "(%d,%d,%d,%d) k %dx%d s %dx%d p %d,%d -> %dx%d", (int)w->images, (int)w->h,
		 (int)w->w, (int)w->channels, w->kernel_h, w->kernel_w, w->stride_h, w->stride_w, w->pad_top,
		 w->pad_left, (int)w->out_h, (int)w->out_w);
	return text;
}

/* bf16 has 8 bits: what was rounded once is within 2^-9 of its size; a residual makes it twice. */
static void check_close(const struct tensor *t, const double *want, const char *what)
{
	float *const got = tensor_down(t);
	const double d = difference(got, want, t->n), most = t->type == GP_RT_BF16 ? 6e-3 : 1e-5;
	if (!(d <= most))
		print_error("%s, type %d: relative difference %g\n", what, (int)t->type, d);
	assert_true(d <= most);
	free(got);
}

/* --- windows ------------------------------------------------------------------------------------------------------ */

/* Some side: kernel, stride, padding before, and outputs for a padding after of its own. */
static void draw_axis(int64_t size, bool pool, int32_t *kernel, int32_t *stride, int32_t *pad, int64_t *out)
{
	do {
		*kernel = (int32_t)draw_of(1, 5);
		*stride = (int32_t)draw_of(1, 3);
		*pad = (int32_t)draw_of(0, pool ? *kernel - 1 : *kernel + 1);
		const int64_t after = draw_of(0, pool ? *kernel - 1 : *kernel + 1);
		*out = (size + *pad + after - *kernel) / *stride + 1;
		if (size + *pad + after < *kernel)
			*out = 0;
	} while (*out < 1);
}

static struct gpk_window draw_window(bool pool)
{
	static const int64_t channels[] = {1, 3, 4, 8, 12, 24, 40, 129, 136};
	struct gpk_window w = {.images = draw_of(1, 3), .h = draw_of(1, 13), .w = draw_of(1, 13)};
	w.channels = channels[draw_of(0, 8)];
	draw_axis(w.h, pool, &w.kernel_h, &w.stride_h, &w.pad_top, &w.out_h);
	draw_axis(w.w, pool, &w.kernel_w, &w.stride_w, &w.pad_left, &w.out_w);
	return w;
}

/* Those with code of their own: half of the cases. */
static struct gpk_window draw_depthwise(int i)
{
	static const int64_t channels[] = {3, 8, 12, 40, 132, 260};
	struct gpk_window w = draw_window(false);
	if (i % 2)
		return w;
	w.channels = channels[draw_of(0, 5)];
	w.kernel_h = w.kernel_w = i % 4 ? 3 : 5;
	w.stride_h = w.stride_w = i % 8 < 4 ? 1 : 2;
	w.h = draw_of(5, 20);
	w.w = draw_of(5, 20);
	w.out_h = (w.h + w.pad_top + draw_of(0, 3) - w.kernel_h) / w.stride_h + 1;
	w.out_w = (w.w + w.pad_left + draw_of(0, 3) - w.kernel_w) / w.stride_w + 1;
	return w;
}

static int64_t pixels_of(const struct gpk_window *w)
{
	return w->images * w->h * w->w;
}
static int64_t windows_of(const struct gpk_window *w)
{
	return w->images * w->out_h * w->out_w;
}

/* Index of the pixel under tap (kh, kw) of a window, or -1 in the padding. */
static int64_t pixel_under(const struct gpk_window *w, int64_t n, int64_t oh, int64_t ow, int64_t kh, int64_t kw)
{
	const int64_t ih = oh * w->stride_h - w->pad_top + kh, iw = ow * w->stride_w - w->pad_left + kw;
	if (ih < 0 || ih >= w->h || iw < 0 || iw >= w->w)
		return -1;
	return (n * w->h + ih) * w->w + iw;
}

/* Calls body with every (window, tap, pixel) that meet. */
typedef void (*meet_fn)(void *arg, int64_t window, int64_t tap, int64_t pixel);
static void each_meeting(const struct gpk_window *w, meet_fn meet, void *arg)
{
	for (int64_t o = 0; o < windows_of(w); o++)
		for (int64_t k = 0; k < gpk_window_taps(w); k++) {
			const int64_t oh = o / w->out_w % w->out_h, n = o / w->out_w / w->out_h;
			const int64_t p = pixel_under(w, n, oh, o % w->out_w, k / w->kernel_w, k % w->kernel_w);
			if (p >= 0)
				meet(arg, o, k, p);
		}
}

/* --- columns ------------------------------------------------------------------------------------------------------ */

struct columns_case {
	const struct gpk_window *w;
	int groups;
	const float *x;
	double *columns;
	const float *grads;
	double *dx;
};

/* Where (window, tap, channel) lies in the columns of all windows. */
static int64_t column_at(const struct columns_case *c, int64_t window, int64_t tap, int64_t channel)
{
	const int64_t per_group = c->w->channels / c->groups, group = channel / per_group;
	return ((group * windows_of(c->w) + window) * gpk_window_taps(c->w) + tap) * per_group + channel % per_group;
}

static void meet_columns(void *arg, int64_t window, int64_t tap, int64_t pixel)
{
	const struct columns_case *c = arg;
	for (int64_t ch = 0; ch < c->w->channels; ch++) {
		const int64_t at = column_at(c, window, tap, ch);
		if (c->columns)
			c->columns[at] = c->x[pixel * c->w->channels + ch];
		if (c->dx)
			c->dx[pixel * c->w->channels + ch] += c->grads[at];
	}
}

static int draw_groups(const struct gpk_window *w)
{
	const int groups = (int)draw_of(1, 4);
	return w->channels % groups ? 1 : groups;
}

static void windows_become_columns_and_come_back(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		const struct gpk_window w = draw_window(false);
		const int groups = draw_groups(&w);
		const enum gp_rt_type type = i % 3 ? GP_RT_F32 : GP_RT_BF16;
		const struct gpk_slice all = {0, w.images, 0, w.out_h};
		const int64_t count = windows_of(&w) * gpk_window_taps(&w) * w.channels;
		struct tensor x = tensor_new(type, pixels_of(&w) * w.channels), columns = tensor_new(type, count);
		struct tensor dx = tensor_new(type, x.n);
		struct columns_case c = {&w,           groups,
					 x.host,       calloc((size_t)count, sizeof(double)),
					 columns.host, calloc((size_t)x.n, sizeof(double))};
		const bool add = i % 2;
		for (int64_t j = 0; add && j < x.n; j++)
			c.dx[j] = dx.host[j];
		each_meeting(&w, meet_columns, &c);
		gpk_col2im(stream, type, &w, groups, &all, columns.device, 0, w.h, add, dx.device);
		check_close(&dx, c.dx, shown(&w));
		gpk_im2col(stream, type, &w, groups, &all, x.device, columns.device);
		check_close(&columns, c.columns, shown(&w));
		free(c.columns);
		free(c.dx);
		tensor_free(&x);
		tensor_free(&columns);
		tensor_free(&dx);
	}
}

/* Rows of one image at a time, with all windows over them, give what the whole gives. */
static void bands_of_an_image_give_the_same_as_the_whole(void **state)
{
	(void)state;
	const struct gpk_window w = {.images = 2,
				     .h = 11,
				     .w = 7,
				     .channels = 12,
				     .out_h = 6,
				     .out_w = 7,
				     .kernel_h = 3,
				     .kernel_w = 3,
				     .stride_h = 2,
				     .stride_w = 1,
				     .pad_top = 1,
				     .pad_left = 1};
	const int64_t row = w.out_w * 9 * w.channels;
	struct tensor columns = tensor_new(GP_RT_F32, windows_of(&w) * 9 * w.channels);
	struct tensor part = tensor_new(GP_RT_F32, columns.n);
	struct tensor x = tensor_new(GP_RT_F32, pixels_of(&w) * w.channels), dx = tensor_new(GP_RT_F32, x.n);
	struct columns_case c = {&w,           1,
				 x.host,       calloc((size_t)columns.n, sizeof(double)),
				 columns.host, calloc((size_t)x.n, sizeof(double))};
	each_meeting(&w, meet_columns, &c);
	for (int64_t n = 0; n < w.images; n++)
		for (int64_t from = 0; from < w.h; from += 4) {
			const int64_t rows = from + 4 < w.h ? 4 : w.h - from;
			const int64_t first = from / 2, end = (from + rows) / 2 + 1 < 6 ? (from + rows) / 2 + 1 : 6;
			const struct gpk_slice slice = {n, 1, first, end - first};
			gpk_col2im(stream, GP_RT_F32, &w, 1, &slice, (float *)columns.device + (n * 6 + first) * row,
				   from, rows, false, dx.device);
		}
	check_close(&dx, c.dx, "bands");
	for (int64_t n = 0; n < w.images; n++)
		for (int64_t from = 0; from < w.out_h; from += 4) {
			const struct gpk_slice slice = {n, 1, from, from + 4 < w.out_h ? 4 : w.out_h - from};
			gpk_im2col(stream, GP_RT_F32, &w, 1, &slice, x.device,
				   (float *)part.device + (n * 6 + from) * row);
		}
	check_close(&part, c.columns, "bands");
	free(c.columns);
	free(c.dx);
	tensor_free(&x);
	tensor_free(&dx);
	tensor_free(&columns);
	tensor_free(&part);
}

/* --- convolution by tiles ----------------------------------------------------------------------------------------- */

/* As tensor cores read a float: nearest, ties away. */
static float in_tf32(float v)
{
	uint32_t bits;
	memcpy(&bits, &v, sizeof bits);
	bits = (bits + 0x1000u) & 0xffffe000u;
	memcpy(&v, &bits, sizeof v);
	return v;
}

static struct tensor operand_new(enum gp_rt_type type, int64_t n)
{
	struct tensor t = tensor_new(type, n);
	for (int64_t i = 0; type == GP_RT_F32 && i < n; i++)
		t.host[i] = in_tf32(t.host[i]);
	return t;
}

struct dense_case {
	const struct gpk_window *w;
	int64_t outputs;
	const float *x, *weight, *dy;
	double *y, *dx;
};

static void meet_dense(void *arg, int64_t window, int64_t tap, int64_t pixel)
{
	const struct dense_case *c = arg;
	const int64_t channels = c->w->channels, taps = gpk_window_taps(c->w);
	for (int64_t o = 0; o < c->outputs; o++)
		for (int64_t ch = 0; ch < channels; ch++) {
			const double weight = c->weight[(o * taps + tap) * channels + ch];
			c->y[window * c->outputs + o] += weight * c->x[pixel * channels + ch];
			c->dx[pixel * channels + ch] += weight * c->dy[window * c->outputs + o];
		}
}

/* Stride 1: the gradient as a convolution of dy by the turned weight. */
static void check_turned(const struct dense_case *c, const struct tensor *weight, const struct tensor *dy)
{
	const struct gpk_window *w = c->w;
	struct gpk_window back = *w;
	struct tensor turned = tensor_new(weight->type, weight->n),
		      dx = tensor_new(weight->type, pixels_of(w) * w->channels);
	back.h = w->out_h;
	back.w = w->out_w;
	back.channels = c->outputs;
	back.out_h = w->h;
	back.out_w = w->w;
	back.pad_top = w->kernel_h - 1 - w->pad_top;
	back.pad_left = w->kernel_w - 1 - w->pad_left;
	gpk_conv_turn_weight(stream, weight->type, c->outputs, gpk_window_taps(w), w->channels, weight->device,
			     turned.device);
	gpk_conv_tiles(stream, weight->type, &back, w->channels, dy->device, turned.device, false, dx.device);
	check_close(&dx, c->dx, shown(w));
	tensor_free(&turned);
	tensor_free(&dx);
}

static void check_tiles(const struct gpk_window *w, int64_t outputs, enum gp_rt_type type, bool add)
{
	struct tensor x = operand_new(type, pixels_of(w) * w->channels), y = tensor_new(type, windows_of(w) * outputs);
	struct tensor weight = operand_new(type, outputs * gpk_window_taps(w) * w->channels);
	struct tensor dy = operand_new(type, y.n);
	struct dense_case c = {w,
			       outputs,
			       x.host,
			       weight.host,
			       dy.host,
			       calloc((size_t)y.n, sizeof(double)),
			       calloc((size_t)x.n, sizeof(double))};
	for (int64_t i = 0; add && i < y.n; i++)
		c.y[i] = y.host[i];
	each_meeting(w, meet_dense, &c);
	gpk_conv_tiles(stream, type, w, outputs, x.device, weight.device, add, y.device);
	check_close(&y, c.y, shown(w));
	if (w->stride_h == 1 && w->stride_w == 1 && outputs % 8 == 0)
		check_turned(&c, &weight, &dy);
	free(c.y);
	free(c.dx);
	tensor_free(&x);
	tensor_free(&y);
	tensor_free(&weight);
	tensor_free(&dy);
}

static void convolutions_by_tiles_and_their_gradients_are_right(void **state)
{
	(void)state;
	static const int64_t channels[] = {8, 16, 24, 40}, outputs[] = {8, 24, 72, 136};
	for (int i = 0; i < CASES / 2; i++) {
		struct gpk_window w = draw_window(false);
		w.channels = channels[draw_of(0, 3)];
		const int64_t many = outputs[draw_of(0, 3)];
		const enum gp_rt_type type = i % 2 ? GP_RT_F32 : GP_RT_BF16;
		assert_true(gpk_conv_tiles_fits(type, &w, many));
		check_tiles(&w, many, type, i % 4 < 2);
	}
	/* Enough windows for the larger tiles. */
	const struct gpk_window large = {.images = 5,
					 .h = 60,
					 .w = 60,
					 .channels = 8,
					 .out_h = 60,
					 .out_w = 60,
					 .kernel_h = 1,
					 .kernel_w = 2,
					 .stride_h = 1,
					 .stride_w = 1};
	check_tiles(&large, 66, GP_RT_BF16, false);
	check_tiles(&large, 66, GP_RT_F32, false);
}

static void convolution_of_odd_numbers_of_channels_does_not_go_by_tiles(void **state)
{
	(void)state;
	struct gpk_window w = draw_window(false);
	w.channels = 12;
	assert_true(gpk_conv_tiles_fits(GP_RT_F32, &w, 6));
	assert_false(gpk_conv_tiles_fits(GP_RT_BF16, &w, 6));
	assert_false(gpk_conv_tiles_fits(GP_RT_F32, &w, 7));
}

/* --- depthwise ---------------------------------------------------------------------------------------------------- */

struct depthwise_case {
	const struct gpk_window *w;
	const float *weight, *x, *dy;
	double *y, *dx, *grad;
};

static void meet_depthwise(void *arg, int64_t window, int64_t tap, int64_t pixel)
{
	const struct depthwise_case *c = arg;
	const int64_t channels = c->w->channels;
	for (int64_t ch = 0; ch < channels; ch++) {
		const int64_t o = window * channels + ch, i = pixel * channels + ch, k = tap * channels + ch;
		c->y[o] += (double)c->weight[k] * c->x[i];
		c->dx[i] += (double)c->weight[k] * c->dy[o];
		c->grad[k] += (double)c->x[i] * c->dy[o];
	}
}

static void check_depthwise(const struct gpk_window *w, enum gp_rt_type type)
{
	const int64_t channels = w->channels;
	struct tensor x = tensor_new(type, pixels_of(w) * channels), dy = tensor_new(type, windows_of(w) * channels);
	struct tensor weight = tensor_new(GP_RT_F32, gpk_window_taps(w) * channels);
	struct tensor dx = tensor_new(type, x.n), y = tensor_new(type, dy.n), grad = tensor_new(GP_RT_F32, weight.n);
	struct depthwise_case c = {w,
				   weight.host,
				   x.host,
				   dy.host,
				   calloc((size_t)y.n, sizeof(double)),
				   calloc((size_t)x.n, sizeof(double)),
				   calloc((size_t)weight.n, sizeof(double))};
	void *const room = device_room(gpk_depthwise_room(w));
	for (int64_t i = 0; i < grad.n; i++)
		c.grad[i] = grad.host[i];
	each_meeting(w, meet_depthwise, &c);
	gpk_depthwise_forward(stream, type, w, weight.device, x.device, y.device);
	gpk_depthwise_backward_data(stream, type, w, weight.device, dy.device, dx.device);
	gpk_depthwise_backward_weight(stream, type, w, x.device, dy.device, room, grad.device);
	check_close(&y, c.y, shown(w));
	check_close(&dx, c.dx, shown(w));
	check_close(&grad, c.grad, shown(w));
	gp_rt_free(0, room);
	free(c.y);
	free(c.dx);
	free(c.grad);
	struct tensor *const all[] = {&x, &dy, &weight, &dx, &y, &grad};
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		tensor_free(all[i]);
}

static void depthwise_convolutions_and_their_gradients_are_right(void **state)
{
	(void)state;
	for (int i = 0; i < 2 * CASES; i++) {
		const struct gpk_window w = draw_depthwise(i);
		check_depthwise(&w, i % 3 ? GP_RT_F32 : GP_RT_BF16);
	}
}

/* --- batch norm --------------------------------------------------------------------------------------------------- */

struct bn_case {
	enum gp_rt_type type;
	enum gpk_act act;
	bool residual;
	int64_t rows, channels;
	struct gpk_bn n;
	struct tensor x, add, y, dy, dadd, dx, gamma, beta, mean, var, dgamma, dbeta, kept;
};

static struct bn_case bn_new(int i)
{
	static const int64_t rows[] = {7, 16, 64, 392, 1000, 5000}, channels[] = {1, 3, 8, 24, 129, 264};
	struct bn_case c = {.type = i % 3 ? GP_RT_F32 : GP_RT_BF16, .act = (enum gpk_act)(i / 2 % 3)};
	c.residual = i % 2;
	c.rows = rows[draw_of(0, 5)];
	c.channels = channels[draw_of(0, 5)];
	const int64_t n = c.rows * c.channels, ch = c.channels;
	c.x = tensor_new(c.type, n);
	for (int64_t j = 0; j < n; j++)
		c.x.host[j] = 3 * c.x.host[j] + 2 + (float)(j % ch % 5);
	tensor_up(&c.x);
	struct tensor *const values[] = {&c.add, &c.y, &c.dy, &c.dadd, &c.dx};
	for (size_t k = 0; k < sizeof values / sizeof values[0]; k++)
		*values[k] = tensor_new(c.type, n);
	struct tensor *const lines[] = {&c.gamma, &c.beta, &c.mean, &c.var, &c.dgamma, &c.dbeta};
	for (size_t k = 0; k < sizeof lines / sizeof lines[0]; k++)
		*lines[k] = tensor_new(GP_RT_F32, ch);
	for (int64_t j = 0; j < ch; j++)
		c.var.host[j] += 2;
	tensor_up(&c.var);
	c.kept = tensor_new(GP_RT_F32, GPK_BN_KEPT * ch);
	c.n = (struct gpk_bn){.type = c.type, .rows = c.rows, .channels = ch, .eps = 1e-5f, .momentum = 0.1f};
	c.n.act = c.act;
	c.n.gamma = c.gamma.device;
	c.n.beta = c.beta.device;
	c.n.running_mean = c.mean.device;
	c.n.running_var = c.var.device;
	c.n.kept = c.kept.device;
	c.n.room = device_room(gpk_bn_room(c.type, c.rows, ch));
	return c;
}

static void bn_free(struct bn_case *c)
{
	struct tensor *const all[] = {&c->x,    &c->add,  &c->y,   &c->dy,     &c->dadd,  &c->dx,  &c->gamma,
				      &c->beta, &c->mean, &c->var, &c->dgamma, &c->dbeta, &c->kept};
	for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
		tensor_free(all[k]);
	gp_rt_free(0, c->n.room);
}

static double activated(enum gpk_act act, double v)
{
	if (act == GPK_ACT_NONE)
		return v;
	v = v < 0 ? 0 : v;
	return act == GPK_ACT_RELU6 && v > 6 ? 6 : v;
}

static void bn_output(const struct bn_case *c, const double *mean, const double *var, double *y)
{
	for (int64_t j = 0; j < c->rows * c->channels; j++) {
		const int64_t ch = j % c->channels;
		const double v =
			(c->x.host[j] - mean[ch]) / sqrt(var[ch] + 1e-5) * c->gamma.host[ch] + c->beta.host[ch];
		y[j] = activated(c->act, v + (c->residual ? c->add.host[j] : 0));
	}
}

static void bn_statistics(const struct bn_case *c, double *mean, double *var)
{
	const int64_t n = c->rows * c->channels;
	for (int64_t j = 0; j < n; j++)
		mean[j % c->channels] += c->x.host[j] / (double)c->rows;
	for (int64_t j = 0; j < n; j++)
		var[j % c->channels] += pow(c->x.host[j] - mean[j % c->channels], 2) / (double)c->rows;
}

static void bn_check_running(const struct bn_case *c, const double *mean, const double *var)
{
	double *const want = calloc((size_t)c->channels, sizeof *want);
	const double rows = (double)c->rows, m = (double)0.1f;
	for (int64_t ch = 0; ch < c->channels; ch++)
		want[ch] = (1 - m) * c->mean.host[ch] + m * mean[ch];
	check_close(&c->mean, want, "running mean");
	for (int64_t ch = 0; ch < c->channels; ch++)
		want[ch] = (1 - m) * c->var.host[ch] + m * var[ch] * rows / (rows - 1);
	check_close(&c->var, want, "running variance");
	free(want);
}

static void bn_check_eval(struct bn_case *c, double *want)
{
	double *const mean = calloc((size_t)c->channels, sizeof *mean), *const var = calloc((size_t)c->channels,
											    sizeof *var);
	for (int64_t ch = 0; ch < c->channels; ch++) {
		mean[ch] = c->mean.host[ch];
		var[ch] = c->var.host[ch];
	}
	bn_output(c, mean, var, want);
	gpk_bn_forward_eval(stream, &c->n, c->x.device, c->residual ? c->add.device : NULL, c->y.device);
	check_close(&c->y, want, "batch norm in evaluation");
	free(mean);
	free(var);
}

static void batch_norm_forward_is_right_with_residual_and_activation(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		struct bn_case c = bn_new(i);
		double *const want = calloc((size_t)c.x.n, sizeof *want),
			      *const mean = calloc((size_t)c.channels, sizeof *mean),
			      *const var = calloc((size_t)c.channels, sizeof *var);
		bn_check_eval(&c, want);
		bn_statistics(&c, mean, var);
		bn_output(&c, mean, var, want);
		gpk_bn_forward(stream, &c.n, c.x.device, c.residual ? c.add.device : NULL, c.y.device);
		check_close(&c.y, want, "batch norm");
		bn_check_running(&c, mean, var);
		free(want);
		free(mean);
		free(var);
		bn_free(&c);
	}
}

/* From the device's own output, so that a value at an activation's edge falls on the same side. */
static void bn_gradients(const struct bn_case *c, const float *y, double *g, double *dx, double *dgamma, double *dbeta)
{
	const int64_t n = c->rows * c->channels, ch = c->channels;
	double *const mean = calloc((size_t)ch, sizeof *mean), *const var = calloc((size_t)ch, sizeof *var);
	bn_statistics(c, mean, var);
	for (int64_t j = 0; j < n; j++) {
		const bool stopped = c->act != GPK_ACT_NONE && (y[j] <= 0 || (c->act == GPK_ACT_RELU6 && y[j] >= 6));
		g[j] = stopped ? 0 : c->dy.host[j];
		dbeta[j % ch] += g[j];
		dgamma[j % ch] += g[j] * (c->x.host[j] - mean[j % ch]) / sqrt(var[j % ch] + 1e-5);
	}
	for (int64_t j = 0; j < n; j++) {
		const double invstd = 1 / sqrt(var[j % ch] + 1e-5), normal = (c->x.host[j] - mean[j % ch]) * invstd;
		dx[j] = c->gamma.host[j % ch] * invstd *
			(g[j] - dbeta[j % ch] / (double)c->rows - normal * dgamma[j % ch] / (double)c->rows);
	}
	for (int64_t k = 0; k < ch; k++) {
		dgamma[k] += c->dgamma.host[k];
		dbeta[k] += c->dbeta.host[k];
	}
	free(mean);
	free(var);
}

static void batch_norm_backward_is_right_with_residual_and_activation(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		struct bn_case c = bn_new(i);
		double *const g = calloc((size_t)c.x.n, sizeof *g), *const dx = calloc((size_t)c.x.n, sizeof *dx),
			      *const dgamma = calloc((size_t)c.channels, sizeof *dgamma),
			      *const dbeta = calloc((size_t)c.channels, sizeof *dbeta);
		gpk_bn_forward(stream, &c.n, c.x.device, c.residual ? c.add.device : NULL, c.y.device);
		float *const y = tensor_down(&c.y);
		bn_gradients(&c, y, g, dx, dgamma, dbeta);
		gpk_bn_backward(stream, &c.n, c.x.device, c.residual ? c.y.device : NULL, c.dy.device,
				c.residual && i % 4 == 1 ? c.dadd.device : NULL, c.dx.device, c.dgamma.device,
				c.dbeta.device);
		check_close(&c.dx, dx, "gradient of batch norm");
		check_close(&c.dgamma, dgamma, "gradient of gamma");
		check_close(&c.dbeta, dbeta, "gradient of beta");
		if (c.residual && i % 4 == 1)
			check_close(&c.dadd, g, "gradient of the residual");
		free(y);
		free(g);
		free(dx);
		free(dgamma);
		free(dbeta);
		bn_free(&c);
	}
}

/* Half a million values around 1000: sums of squares alone would lose the variance. */
static void variance_far_from_zero_keeps_its_digits(void **state)
{
	(void)state;
	struct bn_case c;
	do {
		c = bn_new(1);
		if (c.rows < 5000)
			bn_free(&c);
	} while (c.rows < 5000);
	for (int64_t j = 0; j < c.x.n; j++)
		c.x.host[j] = 1000 + draw();
	tensor_up(&c.x);
	double *const mean = calloc((size_t)c.channels, sizeof *mean), *const var =
									       calloc((size_t)c.channels, sizeof *var);
	bn_statistics(&c, mean, var);
	gpk_bn_forward(stream, &c.n, c.x.device, NULL, c.y.device);
	bn_check_running(&c, mean, var);
	free(mean);
	free(var);
	bn_free(&c);
}

/* --- pools -------------------------------------------------------------------------------------------------------- */

struct pool_case {
	const struct gpk_window *w;
	bool count_padding;
	const float *x, *dy;
	double *y, *dx;
	double *inside;
	int64_t *from; /* pixel of each maximum */
};

static void meet_max(void *arg, int64_t window, int64_t tap, int64_t pixel)
{
	(void)tap;
	const struct pool_case *c = arg;
	for (int64_t ch = 0; ch < c->w->channels; ch++) {
		const int64_t o = window * c->w->channels + ch;
		const double v = c->x[pixel * c->w->channels + ch];
		if (c->from[o] < 0 || v > c->y[o] || isnan(v)) {
			c->y[o] = v;
			c->from[o] = pixel;
		}
	}
}

static void meet_inside(void *arg, int64_t window, int64_t tap, int64_t pixel)
{
	(void)tap;
	(void)pixel;
	const struct pool_case *c = arg;
	c->inside[window] += 1;
}

static void meet_average(void *arg, int64_t window, int64_t tap, int64_t pixel)
{
	(void)tap;
	const struct pool_case *c = arg;
	const double share = 1 / (c->count_padding ? (double)gpk_window_taps(c->w) : c->inside[window]);
	for (int64_t ch = 0; ch < c->w->channels; ch++) {
		const int64_t o = window * c->w->channels + ch, i = pixel * c->w->channels + ch;
		c->y[o] += share * c->x[i];
		c->dx[i] += share * c->dy[o];
	}
}

struct pool_room {
	struct tensor x, y, dy, dx;
	struct pool_case c;
};

static struct pool_room pool_new(const struct gpk_window *w, enum gp_rt_type type)
{
	struct pool_room r = {.c.w = w};
	r.x = tensor_new(type, pixels_of(w) * w->channels);
	r.dx = tensor_new(type, r.x.n);
	r.y = tensor_new(type, windows_of(w) * w->channels);
	r.dy = tensor_new(type, r.y.n);
	r.c.x = r.x.host;
	r.c.dy = r.dy.host;
	r.c.y = calloc((size_t)r.y.n, sizeof(double));
	r.c.dx = calloc((size_t)r.x.n, sizeof(double));
	r.c.inside = calloc((size_t)r.y.n, sizeof(double));
	r.c.from = calloc((size_t)r.y.n, sizeof(int64_t));
	for (int64_t i = 0; i < r.y.n; i++)
		r.c.from[i] = -1;
	return r;
}

static void pool_free(struct pool_room *r)
{
	tensor_free(&r->x);
	tensor_free(&r->y);
	tensor_free(&r->dy);
	tensor_free(&r->dx);
	free(r->c.y);
	free(r->c.dx);
	free(r->c.inside);
	free(r->c.from);
}

static void check_max_pool(const struct gpk_window *w, enum gp_rt_type type)
{
	struct pool_room r = pool_new(w, type);
	for (int64_t i = 0; i < r.x.n; i++)
		r.x.host[i] = roundf(2 * r.x.host[i]); /* many equal ones */
	tensor_up(&r.x);
	void *const places = device_room(gpk_place_bytes(w) * (uint64_t)r.y.n);
	each_meeting(w, meet_max, &r.c);
	for (int64_t i = 0; i < r.y.n; i++)
		r.c.dx[r.c.from[i] * w->channels + i % w->channels] += r.dy.host[i];
	gpk_max_pool_forward(stream, type, w, r.x.device, r.y.device, places);
	gpk_max_pool_backward(stream, type, w, r.dy.device, places, r.dx.device);
	check_close(&r.y, r.c.y, shown(w));
	check_close(&r.dx, r.c.dx, shown(w));
	gpk_max_pool_forward(stream, type, w, r.x.device, r.y.device, NULL);
	check_close(&r.y, r.c.y, shown(w));
	gp_rt_free(0, places);
	pool_free(&r);
}

static void maximum_is_the_first_of_equals(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		const struct gpk_window w = draw_window(true);
		check_max_pool(&w, i % 3 ? GP_RT_F32 : GP_RT_BF16);
	}
	const struct gpk_window large = {.images = 1,
					 .h = 20,
					 .w = 40,
					 .channels = 8,
					 .out_h = 2,
					 .out_w = 3,
					 .kernel_h = 17,
					 .kernel_w = 30,
					 .stride_h = 3,
					 .stride_w = 5};
	check_max_pool(&large, GP_RT_F32);
}

static void maximum_of_a_window_with_nan_is_nan(void **state)
{
	(void)state;
	const struct gpk_window w = {.images = 1,
				     .h = 4,
				     .w = 4,
				     .channels = 4,
				     .out_h = 2,
				     .out_w = 2,
				     .kernel_h = 2,
				     .kernel_w = 2,
				     .stride_h = 2,
				     .stride_w = 2};
	struct pool_room r = pool_new(&w, GP_RT_F32);
	void *const places = device_room((uint64_t)r.y.n);
	r.x.host[0] = NAN;
	tensor_up(&r.x);
	gpk_max_pool_forward(stream, GP_RT_F32, &w, r.x.device, r.y.device, places);
	gpk_max_pool_backward(stream, GP_RT_F32, &w, r.dy.device, places, r.dx.device);
	float *const y = tensor_down(&r.y), *const dx = tensor_down(&r.dx);
	assert_true(isnan(y[0]));
	for (int64_t i = 1; i < r.y.n; i++)
		assert_false(isnan(y[i]));
	assert_true(dx[0] == r.dy.host[0]);
	free(y);
	free(dx);
	gp_rt_free(0, places);
	pool_free(&r);
}

static void averages_count_padding_or_not(void **state)
{
	(void)state;
	for (int i = 0; i < CASES; i++) {
		const struct gpk_window w = draw_window(true);
		const enum gp_rt_type type = i % 3 ? GP_RT_F32 : GP_RT_BF16;
		struct pool_room r = pool_new(&w, type);
		r.c.count_padding = i % 2;
		each_meeting(&w, meet_inside, &r.c);
		each_meeting(&w, meet_average, &r.c);
		gpk_avg_pool_forward(stream, type, &w, r.c.count_padding, r.x.device, r.y.device);
		gpk_avg_pool_backward(stream, type, &w, r.c.count_padding, r.dy.device, r.dx.device);
		check_close(&r.y, r.c.y, shown(&w));
		check_close(&r.dx, r.c.dx, shown(&w));
		pool_free(&r);
	}
}

int main(void)
{
	if (gp_rt_count() == 0) {
		puts("no GPU here: nothing to test");
		return 77;
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(windows_become_columns_and_come_back),
		cmocka_unit_test(bands_of_an_image_give_the_same_as_the_whole),
		cmocka_unit_test(convolutions_by_tiles_and_their_gradients_are_right),
		cmocka_unit_test(convolution_of_odd_numbers_of_channels_does_not_go_by_tiles),
		cmocka_unit_test(depthwise_convolutions_and_their_gradients_are_right),
		cmocka_unit_test(batch_norm_forward_is_right_with_residual_and_activation),
		cmocka_unit_test(batch_norm_backward_is_right_with_residual_and_activation),
		cmocka_unit_test(variance_far_from_zero_keeps_its_digits),
		cmocka_unit_test(maximum_is_the_first_of_equals),
		cmocka_unit_test(maximum_of_a_window_with_nan_is_nan),
		cmocka_unit_test(averages_count_padding_or_not),
	};
	return cmocka_run_group_tests(tests, open_stream, close_stream);
}
#else
int main(void)
{
	puts("this build has no CUDA device: nothing to test");
	return 77;
}
#endif
