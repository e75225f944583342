/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows that are drawn: odd numbers of channels, strides, padding that differs
 * by side; and the plain walk over all that meets in them, from which the tests of
 * convolutions and pools make their references. Not a test by itself. See
 * kernels/cuda/runtime/gpk_window.h.
 */
#ifndef GP_TEST_CUDA_WINDOW_H
#define GP_TEST_CUDA_WINDOW_H

#include "kernels/cuda/runtime/window.h"
#include "tests/unit/test_cuda.h"

static inline const char *shown(const struct gpk_window *w)
{
	static char text[200];
	snprintf(text, sizeof text, "(%d,%d,%d,%d) k %dx%d s %dx%d p %d,%d -> %dx%d", (int)w->images, (int)w->h,
		 (int)w->w, (int)w->channels, w->kernel_h, w->kernel_w, w->stride_h, w->stride_w, w->pad_top,
		 w->pad_left, (int)w->out_h, (int)w->out_w);
	return text;
}

/* Some side: kernel, stride, padding before, and outputs for a padding after of its own. */
static inline void draw_axis(int64_t size, bool pool, int32_t *kernel, int32_t *stride, int32_t *pad, int64_t *out)
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

static inline struct gpk_window draw_window(bool pool)
{
	static const int64_t channels[] = {1, 3, 4, 8, 12, 24, 40, 129, 136};
	struct gpk_window w = {.images = draw_of(1, 3), .h = draw_of(1, 13), .w = draw_of(1, 13)};
	w.channels = channels[draw_of(0, 8)];
	draw_axis(w.h, pool, &w.kernel_h, &w.stride_h, &w.pad_top, &w.out_h);
	draw_axis(w.w, pool, &w.kernel_w, &w.stride_w, &w.pad_left, &w.out_w);
	return w;
}

static inline int64_t pixels_of(const struct gpk_window *w)
{
	return w->images * w->h * w->w;
}

static inline int64_t windows_of(const struct gpk_window *w)
{
	return w->images * w->out_h * w->out_w;
}

/* Index of the pixel under tap (kh, kw) of a window, or -1 in the padding. */
static inline int64_t pixel_under(const struct gpk_window *w, int64_t n, int64_t oh, int64_t ow, int64_t kh, int64_t kw)
{
	const int64_t ih = oh * w->stride_h - w->pad_top + kh, iw = ow * w->stride_w - w->pad_left + kw;
	if (ih < 0 || ih >= w->h || iw < 0 || iw >= w->w)
		return -1;
	return (n * w->h + ih) * w->w + iw;
}

/* Calls meet with every (window, tap, pixel) that meet. */
typedef void (*meet_fn)(void *arg, int64_t window, int64_t tap, int64_t pixel);
static inline void each_meeting(const struct gpk_window *w, meet_fn meet, void *arg)
{
	for (int64_t o = 0; o < windows_of(w); o++)
		for (int64_t k = 0; k < gpk_window_taps(w); k++) {
			const int64_t oh = o / w->out_w % w->out_h, n = o / w->out_w / w->out_h;
			const int64_t p = pixel_under(w, n, oh, o % w->out_w, k / w->kernel_w, k % w->kernel_w);
			if (p >= 0)
				meet(arg, o, k, p);
		}
}

#endif
