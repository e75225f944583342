/* SPDX-License-Identifier: Apache-2.0
 *
 * im2col and its reverse. See k_conv.h. All of it is
 * bound by memory: what counts are 16 bytes a thread and few divisions.
 * Test: tests/unit/test_cuda_conv.c
 */
#include "kernels/cuda/ops/k_conv.h"

#include "kernels/cuda/runtime/gpk_window.h"

#define THREADS 256
#define WIDE    64

/* A slice of windows, and how to tell what a thread is at. */
struct places {
	struct gpk_window w;
	struct gpk_slice slice;
	int64_t count; /* pixels or windows that rows of blocks go through */
	int64_t groups, group_channels;
	int64_t windows;                            /* of the slice */
	struct gpk_divisor across, down;            /* pixels to columns, rows, images */
	struct gpk_divisor group_vectors, kernel_w; /* a window's vectors to taps, taps to kernel rows */
};

static struct places places_of(const struct gpk_window *w, int groups, const struct gpk_slice *slice, int width)
{
	struct places p = {};
	p.w = *w;
	p.slice = *slice;
	p.groups = groups;
	p.group_channels = w->channels / groups;
	p.windows = gpk_slice_windows(w, slice);
	p.group_vectors = gpk_divisor_of(p.group_channels / width);
	p.kernel_w = gpk_divisor_of(w->kernel_w);
	return p;
}

/* --- windows to columns ------------------------------------------------------------------------------------------- */

/* What of the image lies under tap `tap` of a window at (top, left): channel 0; NULL in the padding. */
template <typename T>
GPK_DEVICE const T *under_tap(const struct places &p, const T *image, int64_t top, int64_t left, uint32_t tap)
{
	const int64_t ih = top + gpk_split(&tap, p.kernel_w), iw = left + tap;
	const bool inside = ih >= 0 && ih < p.w.h && iw >= 0 && iw < p.w.w;
	return inside ? image + (ih * p.w.w + iw) * p.w.channels : nullptr;
}

/* A row of threads for a window, lanes along it; blockIdx.z walks groups, blockIdx.y is a part of the window. */
template <typename T, int V>
GPK_KERNEL GPK_BOUNDS(THREADS) to_columns(struct places p, const T *GPK_RESTRICT x, T *GPK_RESTRICT columns)
{
	const uint32_t vectors = (uint32_t)(p.w.kernel_h * p.w.kernel_w) * p.group_vectors.by;
	const uint32_t stride = gridDim.y * blockDim.x, first = blockIdx.y * blockDim.x + threadIdx.x;
	const int64_t window = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
	if (window >= p.count)
		return;
	uint32_t ow = (uint32_t)window, oh = gpk_split(&ow, p.across);
	const int64_t n = p.slice.image + gpk_split(&oh, p.down);
	const int64_t top = (p.slice.from + oh) * p.w.stride_h - p.w.pad_top,
		      left = (int64_t)ow * p.w.stride_w - p.w.pad_left;
	for (int64_t group = blockIdx.z; group < p.groups; group += gridDim.z) {
		const T *image = x + n * p.w.h * p.w.w * p.w.channels + group * p.group_channels;
		T *to = columns + (group * p.windows + window) * (int64_t)vectors * V;
		for (uint32_t v = first; v < vectors; v += stride) {
			uint32_t channel = v;
			const uint32_t tap = gpk_split(&channel, p.group_vectors);
			const T *from = under_tap(p, image, top, left, tap);
			if (from)
				gpk_move<T, V>(to + (int64_t)v * V, from + (int64_t)channel * V);
			else
				gpk_clear<T, V>(to + (int64_t)v * V);
		}
	}
}

extern "C" void gpk_im2col(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w, int groups,
			   const struct gpk_slice *slice, const void *x, void *columns)
{
	GPK_BY_TYPE(type, T, GPK_BY_WIDTH(w->channels / groups, T, V, {
			    struct places p = places_of(w, groups, slice, V);
			    p.count = p.windows;
			    p.across = gpk_divisor_of(w->out_w);
			    p.down = gpk_divisor_of(slice->rows);
			    const int64_t vectors = gpk_window_taps(w) * p.group_vectors.by;
			    const struct gpk_tile t = gpk_tile_of(vectors, WIDE, THREADS);
			    const dim3 grid((unsigned)gpk_div_up(p.count, t.deep), t.tiles < 4 ? 1 : 2,
					    groups < GPK_GRID_HIGH ? groups : GPK_GRID_HIGH);
			    GPK_LAUNCH(s, (to_columns<T, V>), grid, t.block(), 0, p, (const T *)x, (T *)columns);
		    }));
}

/* --- columns to pixels -------------------------------------------------------------------------------------------- */

/* The sums of one pixel's V channels, over windows h x w. `from`: the first window's first tap of these channels. */
template <typename T, int V>
GPK_DEVICE void sum_windows(const struct places &p, const T *from, int64_t image, int64_t at_h, int64_t at_w,
			    float (&sum)[V])
{
	const int64_t first = p.slice.from, taps = (int64_t)p.w.kernel_h * p.w.kernel_w;
	const struct gpk_span h = gpk_windows_over(at_h, p.w.kernel_h, p.w.stride_h, first, first + p.slice.rows),
			      w = gpk_windows_over(at_w, p.w.kernel_w, p.w.stride_w, 0, p.w.out_w);
	for (int64_t oh = h.from; oh < h.to; oh++)
		for (int64_t ow = w.from; ow < w.to; ow++) {
			const int64_t window = (image * p.slice.rows + oh - first) * p.w.out_w + ow;
			const int64_t kh = at_h - oh * p.w.stride_h, kw = at_w - ow * p.w.stride_w;
			float v[V];
			gpk_read<T, V>(v, from + (window * taps + kh * p.w.kernel_w + kw) * p.group_channels);
			GPK_UNROLL
			for (int i = 0; i < V; i++)
				sum[i] += v[i];
		}
}

/* A row of threads for a pixel, lanes along its channels. Three blocks on a multiprocessor: for four registers spill. */
template <typename T, int V>
GPK_KERNEL GPK_BOUNDS(THREADS, 3)
	to_pixels(struct places p, const T *GPK_RESTRICT columns, int64_t in_from, bool add, T *GPK_RESTRICT dx)
{
	const uint32_t vector = blockIdx.x * blockDim.x + threadIdx.x;
	const int64_t taps = (int64_t)p.w.kernel_h * p.w.kernel_w;
	uint32_t channel = vector;
	const int64_t group = gpk_split(&channel, p.group_vectors);
	if (group >= p.groups)
		return;
	const T *from = columns + group * p.windows * taps * p.group_channels + (int64_t)channel * V;
	for (int64_t pixel = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; pixel < p.count;
	     pixel += (int64_t)gridDim.y * blockDim.y) {
		uint32_t iw = (uint32_t)pixel, row = gpk_split(&iw, p.across);
		const int64_t image = gpk_split(&row, p.down), ih = in_from + row;
		T *to = dx + (((p.slice.image + image) * p.w.h + ih) * p.w.w + iw) * p.w.channels + (int64_t)vector * V;
		float sum[V] = {}, old[V] = {};
		sum_windows<T, V>(p, from, image, ih + p.w.pad_top, (int64_t)iw + p.w.pad_left, sum);
		if (add)
			gpk_read<T, V>(old, to);
		GPK_UNROLL
		for (int i = 0; i < V; i++)
			sum[i] = add ? gpk_rounded<T>(sum[i]) + old[i] : sum[i];
		gpk_write<T, V>(to, sum);
	}
}

extern "C" void gpk_col2im(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w, int groups,
			   const struct gpk_slice *slice, const void *columns, int64_t from, int64_t rows, bool add,
			   void *dx)
{
	GPK_BY_TYPE(type, T, GPK_BY_WIDTH(w->channels / groups, T, V, {
			    struct places p = places_of(w, groups, slice, V);
			    p.count = slice->images * rows * w->w;
			    p.across = gpk_divisor_of(w->w);
			    p.down = gpk_divisor_of(rows);
			    const struct gpk_tile t = gpk_tile_of(w->channels / V, WIDE, THREADS);
			    GPK_LAUNCH(s, (to_pixels<T, V>), t.grid(p.count, 1, INT32_MAX), t.block(), 0, p,
				       (const T *)columns, from, add, (T *)dx);
		    }));
}
