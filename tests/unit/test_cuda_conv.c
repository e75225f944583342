/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of columns and of depthwise convolutions, each beside a plain loop in
 * double over windows that are drawn, in groups, fp32 and bf16. See
 * kernels/cuda/ops/k_conv.h, k_depthwise.h; without columns: test_cuda_tiles.c.
 */
#include "kernels/cuda/ops/k_conv.h"
#include "kernels/cuda/ops/k_depthwise.h"
#include "tests/unit/test_cuda_window.h"

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

/* --- depthwise ---------------------------------------------------------------------------------------------------- */

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(windows_become_columns_and_come_back),
		cmocka_unit_test(bands_of_an_image_give_the_same_as_the_whole),
		cmocka_unit_test(depthwise_convolutions_and_their_gradients_are_right),
	};
	return run_on_gpu(tests, open_stream, close_stream);
}
