/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions of each channel with a kernel of its own. See conv_channels.h. Test: tests/unit/test_conv_plain.c
 */
#include "kernels/cpu/math/conv_channels.h"

#include <string.h>

#include "kernels/loops/simd.h"

bool gp_conv_channels_fit(const struct gp_conv_shape *s)
{
	return s->groups > 1 && s->groups == s->x.channels && s->groups == s->y.channels;
}

void gp_conv_channels_pack(const struct gp_conv_shape *s, float *packed, const float *weight)
{
	const int64_t channels = s->x.channels, taps = s->kernel_h * s->kernel_w;
	for (int64_t c = 0; c < channels; c++)
		for (int64_t tap = 0; tap < taps; tap++)
			packed[tap * channels + c] = weight[c * taps + tap];
}

void gp_conv_channels_unpack(const struct gp_conv_shape *s, float *weight, const float *packed)
{
	const int64_t channels = s->x.channels, taps = s->kernel_h * s->kernel_w;
	for (int64_t c = 0; c < channels; c++)
		for (int64_t tap = 0; tap < taps; tap++)
			weight[c * taps + tap] = packed[tap * channels + c];
}

/* acc += a b */
GP_INLINE void add_products_body(float *restrict acc, const float *restrict a, const float *restrict b, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		acc[i] += a[i] * b[i];
}
GP_CPU_CLONES(add_products, (float *acc, const float *a, const float *b, int64_t n), (acc, a, b, n))

/* The taps of a place of the image that is written, in a row of the one that is read. */
static void add_row(const struct gp_conv_axis *across, int64_t number, const struct gp_conv_image *from, float *out,
		    const float *row, const float *kernel)
{
	int64_t x = number * across->times + across->base;
	for (int64_t tap = 0; tap < across->taps; tap++, x++)
		if (x >= 0 && x < from->w)
			add_products(out, row + x * from->channels,
				     kernel + (across->first + tap * across->stride) * from->channels, from->channels);
}

/* Place (y, x) of an image that is written. */
static void add_place(const struct gp_conv_shape *s, bool backwards, float *out, const float *image,
		      const float *packed, int64_t y, int64_t x)
{
	const struct gp_conv_image *from = backwards ? &s->y : &s->x;
	const int64_t steps_y = backwards ? s->stride_h : 1, steps_x = backwards ? s->stride_w : 1;
	const struct gp_conv_axis down = gp_conv_axis(backwards, y % steps_y, s->kernel_h, s->stride_h, s->pad_top);
	const struct gp_conv_axis across = gp_conv_axis(backwards, x % steps_x, s->kernel_w, s->stride_w, s->pad_left);
	int64_t row = y / steps_y * down.times + down.base;
	memset(out, 0, (size_t)from->channels * sizeof *out);
	for (int64_t tap = 0; tap < down.taps; tap++, row++)
		if (row >= 0 && row < from->h)
			add_row(&across, x / steps_x, from, out, image + row * from->w * from->channels,
				packed + (down.first + tap * down.stride) * s->kernel_w * from->channels);
}

void gp_conv_channels_pass(const struct gp_conv_shape *s, bool backwards, float *out, const float *in,
			   const float *packed, int64_t from, int64_t to)
{
	const struct gp_conv_image *read = backwards ? &s->y : &s->x, *written = backwards ? &s->x : &s->y;
	for (int64_t row = from; row < to; row++) {
		const float *image = in + row / written->h * read->h * read->w * read->channels;
		for (int64_t x = 0; x < written->w; x++)
			add_place(s, backwards, out + (row * written->w + x) * written->channels, image, packed,
				  row % written->h, x);
	}
}

/* What a row of y and a row of x give to a row of the kernel; both begin at the first of `n` channels. */
static void weigh_row(const struct gp_conv_shape *s, float *grad, const float *x, const float *y, int64_t n)
{
	const int64_t channels = s->x.channels;
	for (int64_t i = 0; i < s->y.w; i++)
		for (int64_t tap = 0; tap < s->kernel_w; tap++) {
			const int64_t at = i * s->stride_w - s->pad_left + tap;
			if (at >= 0 && at < s->x.w)
				add_products(grad + tap * channels, x + at * channels, y + i * channels, n);
		}
}

void gp_conv_channels_weigh(const struct gp_conv_shape *s, float *grad, const float *x, const float *y, int64_t from,
			    int64_t to, bool fresh)
{
	const int64_t channels = s->x.channels, n = to - from;
	for (int64_t tap = 0; fresh && tap < s->kernel_h * s->kernel_w; tap++)
		memset(grad + tap * channels + from, 0, (size_t)n * sizeof *grad);
	for (int64_t row = 0; row < s->images * s->y.h; row++) {
		const float *image = x + row / s->y.h * s->x.h * s->x.w * channels;
		for (int64_t tap = 0; tap < s->kernel_h; tap++) {
			const int64_t at = row % s->y.h * s->stride_h - s->pad_top + tap;
			if (at >= 0 && at < s->x.h)
				weigh_row(s, grad + tap * s->kernel_w * channels + from,
					  image + at * s->x.w * channels + from, y + row * s->y.w * channels + from, n);
		}
	}
}
