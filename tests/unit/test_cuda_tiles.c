/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of dense convolutions without columns, beside a plain loop in double
 * over windows that are drawn, in TF32 and bf16. See kernels/cuda/k_conv_tiles.h.
 */
#ifdef GP_CUDA_DEVICE
#include "kernels/cuda/k_conv_tiles.h"
#include "tests/unit/test_cuda_window.h"

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

int main(void)
{
	if (gp_rt_count() == 0) {
		puts("no GPU here: nothing to test");
		return 77;
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(convolutions_by_tiles_and_their_gradients_are_right),
		cmocka_unit_test(convolution_of_odd_numbers_of_channels_does_not_go_by_tiles),
	};
	return cmocka_run_group_tests(tests, open_stream, close_stream);
}
#else
#include <stdio.h>

int main(void)
{
	puts("this build has no CUDA device: nothing to test");
	return 77;
}
#endif
