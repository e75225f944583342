/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows over an image, as convolutions and pools have them. (h, w, channels)
 * is the side that windows lie on, (out_h, out_w) counts windows; output
 * (oh, ow) reads rows oh * stride_h - pad_top + kh. Rows and columns outside
 * are padding, on any side and of any width. For a transposed convolution the
 * sides change roles.
 *
 * Threads: any (pure functions). Test: tests/unit/test_cuda_conv.c
 */
#ifndef GP_CUDA_WINDOW_H
#define GP_CUDA_WINDOW_H

#include <stdint.h>

struct gpk_window {
	int64_t images, h, w, channels;
	int64_t out_h, out_w;
	int32_t kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_left;
};

/* Rows [from, from + rows) of the windows of `images` images; parts of an image (rows < out_h) only of one. */
struct gpk_slice {
	int64_t image, images, from, rows;
};

static inline int64_t gpk_window_taps(const struct gpk_window *w)
{
	return (int64_t)w->kernel_h * w->kernel_w;
}
static inline int64_t gpk_slice_windows(const struct gpk_window *w, const struct gpk_slice *s)
{
	return s->images * s->rows * w->out_w;
}

#endif
