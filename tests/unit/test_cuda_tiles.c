/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of dense convolutions without columns, beside a plain loop in double
 * over windows that are drawn, in TF32 and bf16. See kernels/cuda/ops/k_conv_tiles.h,
 * k_conv_weight.h.
 */
#include "kernels/cuda/ops/k_conv_tiles.h"
#include "kernels/cuda/ops/k_conv_weight.h"
#include "tests/sanitized.h"
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

/* Operands have no more bits than TF32; but a card's tensor cores cut off what they add up, instead of rounding it. */
static void check_sums(const struct tensor *t, const double *want, const char *what)
{
	check_within(t, want, what, t->type == GP_RT_BF16 ? 6e-3 : is_like_a_card() ? 1e-4 : 1e-5);
}

struct dense_case {
	const struct gpk_window *w;
	int64_t outputs;
	const float *x, *weight, *dy;
	double *y, *dx, *dweight;
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
			c->dweight[(o * taps + tap) * channels + ch] +=
				(double)c->x[pixel * channels + ch] * c->dy[window * c->outputs + o];
		}
}

static void check_back(const struct dense_case *c, const struct tensor *weight, const struct tensor *dy, bool add)
{
	const struct gpk_window *w = c->w;
	struct tensor turned = tensor_new(weight->type, weight->n),
		      dx = tensor_new(weight->type, pixels_of(w) * w->channels);
	void *const room = device_room(gpk_conv_back_room(weight->type, w, c->outputs));
	for (int64_t i = 0; add && i < dx.n; i++)
		c->dx[i] += dx.host[i];
	gpk_conv_turn_weight(stream, weight->type, w, c->outputs, weight->device, turned.device);
	gpk_conv_back(stream, weight->type, w, c->outputs, dy->device, turned.device, add, dx.device, room);
	check_sums(&dx, c->dx, shown(w));
	gp_rt_free(0, room);
	tensor_free(&turned);
	tensor_free(&dx);
}

/* Two chunks in a row: the gradient is added to what is there, and is the same again. */
static void check_weight(const struct dense_case *c, const struct tensor *x, const struct tensor *dy, int64_t n)
{
	struct tensor grad = tensor_new(GP_RT_F32, n);
	void *const room = device_room(gpk_conv_weight_room(x->type, c->w, c->outputs));
	for (int64_t i = 0; i < n; i++)
		c->dweight[i] = 2 * c->dweight[i] + grad.host[i];
	for (int chunk = 0; chunk < 2; chunk++)
		gpk_conv_weight(stream, x->type, c->w, c->outputs, x->device, dy->device, grad.device, room);
	check_sums(&grad, c->dweight, shown(c->w));
	gp_rt_free(0, room);
	tensor_free(&grad);
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
			       calloc((size_t)x.n, sizeof(double)),
			       calloc((size_t)weight.n, sizeof(double))};
	void *const room = device_room(gpk_conv_tiles_room(type, w, outputs));
	for (int64_t i = 0; add && i < y.n; i++)
		c.y[i] = y.host[i];
	each_meeting(w, meet_dense, &c);
	gpk_conv_tiles(stream, type, w, outputs, x.device, weight.device, add, y.device, room);
	check_sums(&y, c.y, shown(w));
	if (gpk_conv_back_fits(type, w, outputs))
		check_back(&c, &weight, &dy, add);
	if (gpk_conv_weight_fits(type, w, outputs))
		check_weight(&c, &x, &dy, weight.n);
	free(c.y);
	free(c.dx);
	free(c.dweight);
	gp_rt_free(0, room);
	tensor_free(&x);
	tensor_free(&y);
	tensor_free(&weight);
	tensor_free(&dy);
}

static void convolutions_by_tiles_and_their_gradients_are_right(void **state)
{
	(void)state;
	static const int64_t channels[] = {8, 16, 24, 40, 96}, outputs[] = {8, 24, 72, 136, 2, 34};
	for (int i = 0; i < CASES / 2; i++) {
		struct gpk_window w = draw_window(false);
		w.channels = channels[draw_of(0, 4)];
		const int64_t many = outputs[draw_of(0, 5)];
		const enum gp_rt_type type = i % 2 ? GP_RT_F32 : GP_RT_BF16;
		assert_true(gpk_conv_tiles_fits(type, &w, many));
		check_tiles(&w, many, type, i % 4 < 2);
	}
}

static struct gpk_window square(int64_t images, int64_t side, int64_t channels, int32_t kernel, int32_t stride,
				int32_t pad)
{
	struct gpk_window w = {.images = images, .h = side, .w = side, .channels = channels, .kernel_h = kernel};
	w.kernel_w = kernel;
	w.stride_h = w.stride_w = stride;
	w.pad_top = w.pad_left = pad;
	w.out_h = w.out_w = (side + 2 * pad - kernel) / stride + 1;
	return w;
}

/* Shapes for which each size of tiles is chosen, with the depth in one part and in several. */
static void every_size_of_tiles_gives_the_same_sums(void **state)
{
	(void)state;
	const struct {
		struct gpk_window w;
		int64_t outputs;
		bool parts;
	} shapes[] = {
		{square(1, 7, 96, 3, 1, 1), 34, true},   /* small, in parts */
		{square(1, 5, 8, 3, 1, 1), 34, false},   /* small */
		{square(4, 64, 8, 1, 1, 0), 64, false},  /* medium: many windows, few outputs */
		{square(4, 64, 8, 1, 1, 0), 136, false}, /* large: many of both */
		{square(2, 9, 96, 3, 2, 1), 136, true},  /* not a multiple of anything */
		{square(1, 4, 936, 3, 1, 1), 256, true}, /* large for the weight's gradient: more of it than depth */
	};
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
		for (int type = GP_RT_F32; type <= GP_RT_BF16; type++) {
			if (left_to_plain_runs(2, (int)i + type))
				continue;
			assert_int_equal(gpk_conv_tiles_room(type, &shapes[i].w, shapes[i].outputs) > 0,
					 shapes[i].parts);
			check_tiles(&shapes[i].w, shapes[i].outputs, (enum gp_rt_type)type, i % 2);
		}
}

static void gradients_of_strided_convolutions_are_right_with_every_padding(void **state)
{
	(void)state;
	for (int32_t pad = -1; pad <= 4; pad++)
		for (int32_t kernel = 1; kernel <= 4; kernel++) {
			struct gpk_window w = {.images = 1, .h = 5, .w = 7, .channels = 8, .kernel_h = kernel};
			w.kernel_w = 3;
			w.stride_h = 2;
			w.stride_w = 1 + (pad + kernel) % 3 * (kernel > 1);
			w.pad_top = pad;
			w.pad_left = 1;
			w.out_h = (w.h + 2 * pad + 2 - kernel) / w.stride_h + 1;
			w.out_w = (w.w + 2 - w.kernel_w) / w.stride_w + 1;
			assert_true(gpk_conv_back_fits(GP_RT_BF16, &w, 8));
			check_tiles(&w, 8, pad % 2 ? GP_RT_F32 : GP_RT_BF16, kernel % 2);
		}
}

/* Most pixels of the gradient are zero, or are left as they are. */
static void gradient_of_a_pointwise_convolution_with_stride_is_right(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++) {
		const struct gpk_window w = square(2, 9, 24, 1, 2, 0);
		check_tiles(&w, 40, i % 2 ? GP_RT_F32 : GP_RT_BF16, i / 2);
	}
}

static void convolution_of_odd_numbers_of_channels_does_not_go_by_tiles(void **state)
{
	(void)state;
	struct gpk_window w = draw_window(false);
	w.channels = 12;
	assert_true(gpk_conv_tiles_fits(GP_RT_F32, &w, 6));
	assert_false(gpk_conv_tiles_fits(GP_RT_BF16, &w, 6));
	assert_false(gpk_conv_tiles_fits(GP_RT_F32, &w, 7));
	w.channels = 8;
	assert_true(gpk_conv_weight_fits(GP_RT_F32, &w, 4));
	assert_false(gpk_conv_weight_fits(GP_RT_BF16, &w, 4));
	assert_true(gpk_conv_back_fits(GP_RT_F32, &w, 4));
	assert_false(gpk_conv_back_fits(GP_RT_BF16, &w, 4));
}

/* Only asked, never run: windows, elements of an image, taps, outputs. */
static void convolutions_too_large_to_count_in_31_bits_do_not_go_by_tiles(void **state)
{
	(void)state;
	const struct gpk_window fits = square(8, 56, 64, 3, 1, 1);
	struct gpk_window w = fits;
	assert_true(gpk_conv_tiles_fits(GP_RT_BF16, &fits, 64) && gpk_conv_back_fits(GP_RT_BF16, &fits, 64) &&
		    gpk_conv_weight_fits(GP_RT_BF16, &fits, 64));
	w.images = (int64_t)1 << 20;
	assert_false(gpk_conv_tiles_fits(GP_RT_BF16, &w, 64) || gpk_conv_back_fits(GP_RT_BF16, &w, 64) ||
		     gpk_conv_weight_fits(GP_RT_BF16, &w, 64));
	w = fits;
	w.channels = (int64_t)1 << 32;
	assert_false(gpk_conv_tiles_fits(GP_RT_BF16, &w, 64) || gpk_conv_back_fits(GP_RT_BF16, &w, 64) ||
		     gpk_conv_weight_fits(GP_RT_BF16, &w, 64));
	w = fits;
	w.pad_top = INT32_MAX;
	assert_false(gpk_conv_tiles_fits(GP_RT_BF16, &w, 64) || gpk_conv_back_fits(GP_RT_BF16, &w, 64) ||
		     gpk_conv_weight_fits(GP_RT_BF16, &w, 64));
	const int64_t outputs = (int64_t)1 << 32;
	assert_false(gpk_conv_tiles_fits(GP_RT_BF16, &fits, outputs) ||
		     gpk_conv_back_fits(GP_RT_BF16, &fits, outputs) ||
		     gpk_conv_weight_fits(GP_RT_BF16, &fits, outputs));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(convolutions_by_tiles_and_their_gradients_are_right),
		cmocka_unit_test(every_size_of_tiles_gives_the_same_sums),
		cmocka_unit_test(gradients_of_strided_convolutions_are_right_with_every_padding),
		cmocka_unit_test(gradient_of_a_pointwise_convolution_with_stride_is_right),
		cmocka_unit_test(convolution_of_odd_numbers_of_channels_does_not_go_by_tiles),
		cmocka_unit_test(convolutions_too_large_to_count_in_31_bits_do_not_go_by_tiles),
	};
	return run_on_gpu(tests, open_stream, close_stream);
}
