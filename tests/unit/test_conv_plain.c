/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions of any shape on own loops, forward, backwards and the kernel's gradient, beside sums in double precision over
 * all places (kernels/cpu/math/conv_patches.h, conv_channels.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/rng.h"
#include "kernels/cpu/math/conv_channels.h"
#include "kernels/cpu/math/conv_patches.h"

static float *numbers(int64_t n, uint64_t seed)
{
	float *x = malloc((size_t)n * sizeof *x);
	assert_non_null(x);
	for (int64_t i = 0; i < n; i++)
		x[i] = (float)(int32_t)gp_rng_u32(5, gp_rng_stream(GP_RNG_SYNTHETIC, 3), seed + (uint64_t)i) * 0x1p-31f;
	return x;
}

static int64_t floats_of(const struct gp_conv_shape *s, const struct gp_conv_image *image)
{
	return s->images * image->h * image->w * image->channels;
}

static int64_t weights_of(const struct gp_conv_shape *s)
{
	return s->y.channels * (s->x.channels / s->groups) * s->kernel_h * s->kernel_w;
}

static int64_t at(const struct gp_conv_image *image, int64_t n, int64_t y, int64_t x, int64_t channel)
{
	return ((n * image->h + y) * image->w + x) * image->channels + channel;
}

/* Calls fn for every product that there is: elements of x, y and the weight. */
static void each_product(const struct gp_conv_shape *s, void (*fn)(void *arg, int64_t x, int64_t y, int64_t weight),
			 void *arg)
{
	const int64_t in = s->x.channels / s->groups, out = s->y.channels / s->groups;
	for (int64_t i = 0; i < s->images * s->y.h * s->y.w * s->kernel_h * s->kernel_w; i++) {
		const int64_t kx = i % s->kernel_w, ky = i / s->kernel_w % s->kernel_h;
		const int64_t place = i / s->kernel_w / s->kernel_h, ox = place % s->y.w, oy = place / s->y.w % s->y.h;
		const int64_t n = place / s->y.w / s->y.h, ix = ox * s->stride_w - s->pad_left + kx;
		const int64_t iy = oy * s->stride_h - s->pad_top + ky;
		if (ix < 0 || ix >= s->x.w || iy < 0 || iy >= s->x.h)
			continue;
		for (int64_t o = 0; o < s->y.channels; o++)
			for (int64_t c = 0; c < in; c++)
				fn(arg, at(&s->x, n, iy, ix, o / out * in + c), at(&s->y, n, oy, ox, o),
				   ((o * in + c) * s->kernel_h + ky) * s->kernel_w + kx);
	}
}

struct sums {
	const float *x, *y, *weight;
	double *to_x, *to_y, *to_weight;
};

static void add(void *arg, int64_t x, int64_t y, int64_t weight)
{
	struct sums *s = arg;
	s->to_y[y] += (double)s->x[x] * (double)s->weight[weight];
	s->to_x[x] += (double)s->y[y] * (double)s->weight[weight];
	s->to_weight[weight] += (double)s->x[x] * (double)s->y[y];
}

static void expect(const char *what, const float *got, const double *want, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		if (!(fabs((double)got[i] - want[i]) <= 1e-4))
			fail_msg("%s: element %lld is %g, not %g", what, (long long)i, (double)got[i], want[i]);
}

/* A pass in three parts. */
static void run_pass(const struct gp_conv_shape *s, bool channels, bool backwards, float *out, const float *in,
		     const float *weight)
{
	const int64_t rows = s->images * (backwards ? s->x.h : s->y.h);
	float *packed = malloc((size_t)(weights_of(s) + gp_conv_packed_count(s, backwards)) * sizeof *packed);
	float *room = malloc((size_t)gp_conv_room(s) * sizeof *room);
	if (channels)
		gp_conv_channels_pack(s, packed, weight);
	else
		gp_conv_pack(s, backwards, packed, weight, NULL);
	for (int part = 0; part < 3; part++)
		if (channels)
			gp_conv_channels_pass(s, backwards, out, in, packed, rows * part / 3, rows * (part + 1) / 3);
		else
			gp_conv_pass(s, backwards, out, in, packed, rows * part / 3, rows * (part + 1) / 3, room);
	free(packed);
	free(room);
}

/* The kernel's gradient, twice: the second time added to the first. */
static void weigh(const struct gp_conv_shape *s, bool channels, float *weight, const float *x, const float *y)
{
	const int64_t rows = s->images * s->y.h;
	float *grad = numbers(weights_of(s), 5), *room = malloc((size_t)gp_conv_room(s) * sizeof *room);
	for (int part = 0; part < 4; part++)
		if (channels) {
			const int64_t half = s->x.channels / 2;
			gp_conv_channels_weigh(s, grad, x, y, part % 2 ? half : 0, part % 2 ? s->x.channels : half,
					       part < 2);
		} else {
			gp_conv_weigh(s, grad, x, y, part % 2 ? rows / 2 : 0, part % 2 ? rows : rows / 2, part == 0,
				      room);
		}
	if (channels)
		gp_conv_channels_unpack(s, weight, grad);
	else
		gp_conv_unpack(s, weight, grad);
	for (int64_t i = 0; i < weights_of(s); i++)
		weight[i] *= 0.5f;
	free(grad);
	free(room);
}

static void check(const struct gp_conv_shape *s, bool channels)
{
	const int64_t nx = floats_of(s, &s->x), ny = floats_of(s, &s->y), nw = weights_of(s);
	float *x = numbers(nx, 1), *y = numbers(ny, 1000000), *weight = numbers(nw, 2000000);
	float *got = numbers(nx + ny + nw, 3);
	struct sums sums = {x,
			    y,
			    weight,
			    calloc((size_t)nx, sizeof(double)),
			    calloc((size_t)ny, sizeof(double)),
			    calloc((size_t)nw, sizeof(double))};
	each_product(s, add, &sums);
	run_pass(s, channels, false, got, x, weight);
	expect("forward", got, sums.to_y, ny);
	run_pass(s, channels, true, got, y, weight);
	expect("backwards", got, sums.to_x, nx);
	weigh(s, channels, got, x, y);
	expect("gradient", got, sums.to_weight, nw);
	free(x), free(y), free(weight), free(got), free(sums.to_x), free(sums.to_y), free(sums.to_weight);
}

/* y's size is that of a convolution with `after` rows and columns of padding behind the image. */
static struct gp_conv_shape shape_of(int64_t side, int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t pad,
				     int64_t after, int64_t groups)
{
	const int64_t places = (side + pad + after - kernel) / stride + 1;
	const int64_t wide = (side + 2 + pad + after - kernel) / stride + 1;
	return (struct gp_conv_shape){.images = 3,
				      .x = {side, side + 2, in},
				      .y = {places, wide, out},
				      .kernel_h = kernel,
				      .kernel_w = kernel,
				      .stride_h = stride,
				      .stride_w = stride,
				      .pad_top = pad,
				      .pad_left = pad,
				      .groups = groups};
}

static const struct gp_conv_shape *shapes(int *count)
{
	static struct gp_conv_shape list[16];
	int n = 0;
	list[n++] = shape_of(7, 3, 5, 3, 1, 1, 1, 1);
	list[n++] = shape_of(9, 16, 33, 3, 1, 1, 1, 1);
	list[n++] = shape_of(8, 6, 17, 3, 2, 1, 0, 1);
	list[n++] = shape_of(11, 5, 4, 7, 3, 2, 3, 1);
	list[n++] = shape_of(6, 20, 18, 1, 1, 0, 0, 1); /* pointwise */
	list[n++] = shape_of(7, 12, 20, 1, 2, 0, 0, 1);
	list[n++] = shape_of(5, 4, 4, 2, 4, 0, 0, 1); /* taps that some places never meet */
	list[n++] = shape_of(6, 12, 8, 3, 1, 1, 1, 4);
	list[n++] = shape_of(6, 6, 18, 3, 2, 0, 1, 6);
	list[n++] = shape_of(4, 3, 2, 6, 1, 5, 4, 1); /* a kernel larger than the image */
	list[n] = shape_of(5, 4, 6, 3, 2, 1, 1, 2);
	list[n].kernel_h = 1; /* not square */
	list[n].stride_w = 1;
	list[n].pad_top = 0;
	list[n].y = (struct gp_conv_image){3, 7, 6};
	n++;
	*count = n;
	return list;
}

static void every_shape_agrees_with_double_precision(void **state)
{
	(void)state;
	int count;
	const struct gp_conv_shape *list = shapes(&count);
	for (int i = 0; i < count; i++)
		check(&list[i], false);
}

static void channels_of_their_own_agree_with_double_precision(void **state)
{
	(void)state;
	for (int i = 0; i < 24; i++) {
		const struct gp_conv_shape s = shape_of(5 + i % 3, 4 + 15 * (i % 2), 4 + 15 * (i % 2), 2 + i % 4,
							1 + i / 4 % 3, i % 2, 3, 4 + 15 * (i % 2));
		assert_true(gp_conv_channels_fit(&s));
		check(&s, true);
		check(&s, false);
	}
}

/* A phase for each of the places, most of which meet no tap. */
static void strides_may_be_longer_than_the_image(void **state)
{
	(void)state;
	const struct gp_conv_shape s = {.images = 1,
					.x = {512, 512, 1},
					.y = {1, 1, 1},
					.kernel_h = 1,
					.kernel_w = 1,
					.stride_h = 4096,
					.stride_w = 4096,
					.groups = 1};
	const float weight = 2, y = 3;
	float *x = numbers(floats_of(&s, &s.x), 1);
	run_pass(&s, false, true, x, &y, &weight);
	assert_true(x[0] == 6);
	for (int64_t i = 1; i < floats_of(&s, &s.x); i++)
		assert_true(x[i] == 0);
	free(x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_shape_agrees_with_double_precision),
		cmocka_unit_test(channels_of_their_own_agree_with_double_precision),
		cmocka_unit_test(strides_may_be_longer_than_the_image),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
