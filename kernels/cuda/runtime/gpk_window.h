/* SPDX-License-Identifier: Apache-2.0
 *
 * Where windows and pixels meet, for kernels over images (window.h). Only for
 * k_*.cu and gpk_*.h.
 *
 * Threads: those of a kernel, on the device. Test: tests/unit/test_cuda_conv.c
 */
#ifndef GPK_WINDOW_H
#define GPK_WINDOW_H

#include "kernels/cuda/runtime/gpk_rows.h"
#include "kernels/cuda/runtime/window.h"

struct gpk_span {
	int64_t from, to; /* empty where to <= from */
};

/* The part of window `out` along one axis that lies in the image. */
GPK_DEVICE struct gpk_span gpk_inside(int64_t out, int32_t kernel, int32_t stride, int32_t pad, int64_t size)
{
	const int64_t at = out * stride - pad, end = at + kernel;
	return {at < 0 ? 0 : at, end > size ? size : end};
}

/* Windows along one axis, of those in [low, high), that hold padded coordinate `at` (in the image, plus padding). */
GPK_DEVICE struct gpk_span gpk_windows_over(int64_t at, int32_t kernel, int32_t stride, int64_t low, int64_t high)
{
	const uint32_t here = (uint32_t)at, wide = (uint32_t)kernel, step = (uint32_t)stride;
	const int64_t from = here < wide ? 0 : (here - wide) / step + 1, to = (int64_t)(here / step) + 1;
	return {from > low ? from : low, to < high ? to : high};
}

/* Places on images of (down, across), one after another. */
struct gpk_places {
	int64_t count;
	struct gpk_divisor across, plane;
};

struct gpk_place {
	int64_t image, row, column;
};

static inline struct gpk_places gpk_places_of(int64_t images, int64_t down, int64_t across)
{
	return {images * down * across, gpk_divisor_of(across), gpk_divisor_of(down * across)};
}

GPK_DEVICE struct gpk_place gpk_place_of(const struct gpk_places &p, int64_t at)
{
	const int64_t image = at <= INT32_MAX ? gpk_divide((uint32_t)at, p.plane) : at / p.plane.by;
	uint32_t rest = (uint32_t)(at - image * p.plane.by);
	const uint32_t row = gpk_split(&rest, p.across);
	return {image, row, rest};
}

#endif
