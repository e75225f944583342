/* SPDX-License-Identifier: Apache-2.0
 *
 * Resizing 8-bit images: a horizontal and a vertical pass of a triangle filter
 * in fixed point with 8-bit values between them, which is what PIL computes.
 * Test: tests/unit/test_data_resize.c (values from PIL, tests/tools/dump_resize.py)
 */
#include "client/data/data_image.h"

#include <math.h>
#include <string.h>

enum { WEIGHT_BITS = 22 };

/* For each output position the first input it reads, how many, and their weights. */
struct taps {
	int width; /* weights per output position */
	int *first, *count;
	int32_t *weight; /* (outputs, width) */
};

static double tap_scale(int in, int out)
{
	double scale = (double)in / out;
	return scale < 1 ? 1 : scale;
}

static size_t taps_bytes(int in, int out, int outputs)
{
	size_t width = (size_t)ceil(tap_scale(in, out)) * 2 + 1;
	return (size_t)outputs * (2 + width) * sizeof(int32_t);
}

static double triangle(double x)
{
	x = fabs(x);
	return x < 1 ? 1 - x : 0;
}

static void fill_position(struct taps *t, int at, double center, int in, double scale)
{
	int first = (int)(center - scale + 0.5), end = (int)(center + scale + 0.5);
	first = first < 0 ? 0 : first;
	end = end > in ? in : end;
	int32_t *weight = t->weight + (size_t)at * (size_t)t->width;
	double sum = 0;
	for (int i = first; i < end; i++)
		sum += triangle((i - center + 0.5) * (1 / scale));
	for (int i = first; i < end; i++)
		weight[i - first] =
			(int32_t)(0.5 + triangle((i - center + 0.5) * (1 / scale)) / sum * (1 << WEIGHT_BITS));
	t->first[at] = first;
	t->count[at] = end - first;
}

/* Taps for outputs [begin, begin + outputs) of `out`; memory is taps_bytes() large. */
static struct taps make_taps(int in, int out, int begin, int outputs, void *memory)
{
	double scale = tap_scale(in, out);
	struct taps t = {.width = (int)ceil(scale) * 2 + 1};
	t.first = memory;
	t.count = t.first + outputs;
	t.weight = t.count + outputs;
	for (int i = 0; i < outputs; i++)
		fill_position(&t, i, (begin + i + 0.5) * ((double)in / out), in, scale);
	return t;
}

static uint8_t rounded(int32_t sum)
{
	int32_t v = (sum + (1 << (WEIGHT_BITS - 1))) >> WEIGHT_BITS;
	return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static void resize_row_1(const struct taps *t, const uint8_t *restrict src, int width, uint8_t *restrict dst)
{
	for (int x = 0; x < width; x++) {
		const int32_t *w = t->weight + (size_t)x * (size_t)t->width;
		int32_t sum = 0;
		for (int k = 0; k < t->count[x]; k++)
			sum += w[k] * src[t->first[x] + k];
		dst[x] = rounded(sum);
	}
}

static void resize_row_3(const struct taps *t, const uint8_t *restrict src, int width, uint8_t *restrict dst)
{
	for (int x = 0; x < width; x++) {
		const int32_t *w = t->weight + (size_t)x * (size_t)t->width;
		const uint8_t *from = src + 3 * (size_t)t->first[x];
		int32_t r = 0, g = 0, b = 0;
		for (int k = 0; k < t->count[x]; k++, from += 3) {
			r += w[k] * from[0];
			g += w[k] * from[1];
			b += w[k] * from[2];
		}
		dst[3 * x] = rounded(r);
		dst[3 * x + 1] = rounded(g);
		dst[3 * x + 2] = rounded(b);
	}
}

/* One output row: the weighted sum of `count` rows of `bytes` bytes. */
static void resize_column(const int32_t *weight, int count, const uint8_t *restrict rows, size_t bytes,
			  uint8_t *restrict dst)
{
	for (size_t i = 0; i < bytes; i++) {
		int32_t sum = 0;
		for (int k = 0; k < count; k++)
			sum += weight[k] * rows[(size_t)k * bytes + i];
		dst[i] = rounded(sum);
	}
}

enum gp_status gp_image_resize(const struct gp_image *src, int full_height, int full_width,
			       const struct gp_window *window, struct gp_data_scratch *scratch, uint8_t *dst,
			       struct gp_err *err)
{
	gp_require(src->channels == 1 || src->channels == 3);
	size_t across_bytes = taps_bytes(src->width, full_width, window->width);
	size_t down_bytes = taps_bytes(src->height, full_height, window->height);
	GP_TRY(gp_bytes_reserve(&scratch->taps, across_bytes + down_bytes, err));
	struct taps across = make_taps(src->width, full_width, window->left, window->width, scratch->taps.data);
	struct taps down =
		make_taps(src->height, full_height, window->top, window->height, scratch->taps.data + across_bytes);
	int last = window->height - 1;
	int top = down.first[0], bottom = down.first[last] + down.count[last];
	size_t row_bytes = (size_t)window->width * (size_t)src->channels;
	GP_TRY(gp_bytes_reserve(&scratch->rows, (uint64_t)(bottom - top) * row_bytes, err));
	for (int y = top; y < bottom; y++)
		(src->channels == 1 ? resize_row_1 : resize_row_3)(&across, src->pixels + (size_t)y * src->stride,
								   window->width,
								   scratch->rows.data + (size_t)(y - top) * row_bytes);
	for (int y = 0; y < window->height; y++)
		resize_column(down.weight + (size_t)y * (size_t)down.width, down.count[y],
			      scratch->rows.data + (size_t)(down.first[y] - top) * row_bytes, row_bytes,
			      dst + (size_t)y * row_bytes);
	return GP_OK;
}
