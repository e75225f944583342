/* SPDX-License-Identifier: Apache-2.0
 *
 * Pooling. See k_pool.h. A thread has a few neighbouring channels of a pixel;
 * windows overlap little, so that L1 gives what they share.
 * Test: tests/unit/test_cuda_pool.c
 */
#include "kernels/cuda/ops/k_pool.h"

#include <math.h>

#include "kernels/cuda/runtime/gpk_window.h"

#define THREADS 256
#define WIDE    64

/* --- maximum ------------------------------------------------------------------------------------------------------ */

/* The largest value of one window, for each of V channels, and where it is. */
template <typename T, int V>
GPK_DEVICE void largest(const struct gpk_window &w, const T *image, const struct gpk_place &at, float (&best)[V],
			uint32_t (&where)[V])
{
	const struct gpk_span h = gpk_inside(at.row, w.kernel_h, w.stride_h, w.pad_top, w.h),
			      across = gpk_inside(at.column, w.kernel_w, w.stride_w, w.pad_left, w.w);
	const int64_t top = at.row * w.stride_h - w.pad_top, left = at.column * w.stride_w - w.pad_left;
	float v[V];
	GPK_UNROLL
	for (int i = 0; i < V; i++) {
		best[i] = -INFINITY;
		where[i] = (uint32_t)((h.from - top) * w.kernel_w + across.from - left);
	}
	for (int64_t ih = h.from; ih < h.to; ih++)
		for (int64_t iw = across.from; iw < across.to; iw++) {
			const uint32_t here = (uint32_t)((ih - top) * w.kernel_w + iw - left);
			gpk_read<T, V>(v, image + ((int64_t)ih * w.w + iw) * w.channels);
			GPK_UNROLL
			for (int i = 0; i < V; i++) {
				const bool better = v[i] > best[i] || v[i] != v[i];
				best[i] = better ? v[i] : best[i];
				where[i] = better ? here : where[i];
			}
		}
}

/* Places of V neighbours, as they are kept: numbers of a type, or four bits each (half_places). */
struct half_places;

template <typename P, int V> struct kept_places {
	GPK_DEVICE void put(void *saved, int64_t at, const uint32_t (&where)[V])
	{
		gpk_pack<P, V> places;
		GPK_UNROLL
		for (int i = 0; i < V; i++)
			places.of[i] = (P)where[i];
		*reinterpret_cast<gpk_pack<P, V> *>((P *)saved + at) = places;
	}
	GPK_DEVICE void get(const void *saved, int64_t at, uint32_t (&where)[V])
	{
		const gpk_pack<P, V> places = *reinterpret_cast<const gpk_pack<P, V> *>((const P *)saved + at);
		GPK_UNROLL
		for (int i = 0; i < V; i++)
			where[i] = places.of[i];
	}
};

template <int V> struct half_word;
template <> struct half_word<4> {
	using type = uint16_t;
};
template <> struct half_word<8> {
	using type = uint32_t;
};
/* A thread of one channel has no neighbours to share a byte with. */
template <int V> struct small_places {
	using type = half_places;
};
template <> struct small_places<1> {
	using type = uint8_t;
};

template <int V> struct kept_places<half_places, V> {
	using word_type = typename half_word<V>::type;
	GPK_DEVICE void put(void *saved, int64_t at, const uint32_t (&where)[V])
	{
		uint32_t word = 0;
		GPK_UNROLL
		for (int i = 0; i < V; i++)
			word |= where[i] << (4 * i);
		((word_type *)saved)[(uint64_t)at / V] = (word_type)word;
	}
	GPK_DEVICE void get(const void *saved, int64_t at, uint32_t (&where)[V])
	{
		const uint32_t word = ((const word_type *)saved)[(uint64_t)at / V];
		GPK_UNROLL
		for (int i = 0; i < V; i++)
			where[i] = word >> (4 * i) & 15u;
	}
};

template <typename T, int V, typename P>
GPK_KERNEL GPK_BOUNDS(THREADS) max_forward(struct gpk_window w, struct gpk_places p, const T *GPK_RESTRICT x,
					   T *GPK_RESTRICT y, void *GPK_RESTRICT saved)
{
	const int64_t channel = gpk_first_channel(V), channels = w.channels;
	if (channel >= channels)
		return;
	for (int64_t r = gpk_first_row(); r < p.count; r += gpk_row_step()) {
		const struct gpk_place at = gpk_place_of(p, r);
		float best[V];
		uint32_t where[V];
		largest<T, V>(w, x + at.image * w.h * w.w * channels + channel, at, best, where);
		gpk_write<T, V>(y + r * channels + channel, best);
		if (saved)
			kept_places<P, V>::put(saved, r * channels + channel, where);
	}
}

template <typename T, int V, typename P>
GPK_KERNEL GPK_BOUNDS(THREADS) max_backward(struct gpk_window w, struct gpk_places p, const T *GPK_RESTRICT dy,
					    const void *GPK_RESTRICT saved, T *GPK_RESTRICT dx)
{
	const int64_t channel = gpk_first_channel(V), channels = w.channels;
	if (channel >= channels)
		return;
	for (int64_t r = gpk_first_row(); r < p.count; r += gpk_row_step()) {
		const struct gpk_place at = gpk_place_of(p, r);
		const struct gpk_span h = gpk_windows_over(at.row + w.pad_top, w.kernel_h, w.stride_h, 0, w.out_h),
				      across = gpk_windows_over(at.column + w.pad_left, w.kernel_w, w.stride_w, 0,
								w.out_w);
		float sum[V] = {}, g[V];
		for (int64_t oh = h.from; oh < h.to; oh++)
			for (int64_t ow = across.from; ow < across.to; ow++) {
				const int64_t o = ((at.image * w.out_h + oh) * w.out_w + ow) * channels + channel;
				const int64_t kh = at.row + w.pad_top - oh * w.stride_h,
					      kw = at.column + w.pad_left - ow * w.stride_w;
				const uint32_t here = (uint32_t)(kh * w.kernel_w + kw);
				uint32_t where[V];
				kept_places<P, V>::get(saved, o, where);
				gpk_read<T, V>(g, dy + o);
				GPK_UNROLL
				for (int i = 0; i < V; i++)
					sum[i] += where[i] == here ? g[i] : 0;
			}
		gpk_write<T, V>(dx + r * channels + channel, sum);
	}
}

#define BY_PLACE(window, type, V, P, ...)                                                                              \
	do {                                                                                                           \
		if (gpk_place_bits(window, type) == 4) {                                                               \
			using P = typename small_places<V>::type;                                                      \
			__VA_ARGS__;                                                                                   \
		} else if (gpk_place_bits(window, type) == 8) {                                                        \
			using P = uint8_t;                                                                             \
			__VA_ARGS__;                                                                                   \
		} else {                                                                                               \
			using P = uint32_t;                                                                            \
			__VA_ARGS__;                                                                                   \
		}                                                                                                      \
	} while (0)

extern "C" void gpk_max_pool_forward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w,
				     const void *x, void *y, void *places)
{
	const struct gpk_places p = gpk_places_of(w->images, w->out_h, w->out_w);
	GPK_BY_TYPE(type, T, GPK_BY_WIDTH(w->channels, T, V, BY_PLACE(w, type, V, P, {
						  const struct gpk_tile t = gpk_tile_of(w->channels / V, WIDE, THREADS);
						  GPK_LAUNCH(s, (max_forward<T, V, P>), t.grid(p.count, 1, INT32_MAX),
							     t.block(), 0, *w, p, (const T *)x, (T *)y, places);
					  })));
}

extern "C" void gpk_max_pool_backward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w,
				      const void *dy, const void *places, void *dx)
{
	const struct gpk_places p = gpk_places_of(w->images, w->h, w->w);
	GPK_BY_TYPE(type, T, GPK_BY_WIDTH(w->channels, T, V, BY_PLACE(w, type, V, P, {
						  const struct gpk_tile t = gpk_tile_of(w->channels / V, WIDE, THREADS);
						  GPK_LAUNCH(s, (max_backward<T, V, P>), t.grid(p.count, 1, INT32_MAX),
							     t.block(), 0, *w, p, (const T *)dy, places, (T *)dx);
					  })));
}

/* --- average ------------------------------------------------------------------------------------------------------ */

GPK_DEVICE float share_of(const struct gpk_window &w, bool count_padding, struct gpk_span h, struct gpk_span across)
{
	if (count_padding)
		return 1.0f / (float)(w.kernel_h * w.kernel_w);
	return 1.0f / ((float)(h.to - h.from) * (float)(across.to - across.from));
}

template <typename T, int V>
GPK_KERNEL GPK_BOUNDS(THREADS) avg_forward(struct gpk_window w, struct gpk_places p, bool count_padding,
					   const T *GPK_RESTRICT x, T *GPK_RESTRICT y)
{
	const int64_t channel = gpk_first_channel(V), channels = w.channels;
	if (channel >= channels)
		return;
	for (int64_t r = gpk_first_row(); r < p.count; r += gpk_row_step()) {
		const struct gpk_place at = gpk_place_of(p, r);
		const struct gpk_span h = gpk_inside(at.row, w.kernel_h, w.stride_h, w.pad_top, w.h),
				      across = gpk_inside(at.column, w.kernel_w, w.stride_w, w.pad_left, w.w);
		const float share = share_of(w, count_padding, h, across);
		const T *image = x + at.image * w.h * w.w * channels + channel;
		float sum[V] = {}, v[V];
		for (int64_t ih = h.from; ih < h.to; ih++)
			for (int64_t iw = across.from; iw < across.to; iw++) {
				gpk_read<T, V>(v, image + ((int64_t)ih * w.w + iw) * channels);
				GPK_UNROLL
				for (int i = 0; i < V; i++)
					sum[i] += v[i];
			}
		GPK_UNROLL
		for (int i = 0; i < V; i++)
			sum[i] *= share;
		gpk_write<T, V>(y + r * channels + channel, sum);
	}
}

template <typename T, int V>
GPK_KERNEL GPK_BOUNDS(THREADS) avg_backward(struct gpk_window w, struct gpk_places p, bool count_padding,
					    const T *GPK_RESTRICT dy, T *GPK_RESTRICT dx)
{
	const int64_t channel = gpk_first_channel(V), channels = w.channels;
	if (channel >= channels)
		return;
	for (int64_t r = gpk_first_row(); r < p.count; r += gpk_row_step()) {
		const struct gpk_place at = gpk_place_of(p, r);
		const struct gpk_span h = gpk_windows_over(at.row + w.pad_top, w.kernel_h, w.stride_h, 0, w.out_h),
				      across = gpk_windows_over(at.column + w.pad_left, w.kernel_w, w.stride_w, 0,
								w.out_w);
		float sum[V] = {}, g[V];
		for (int64_t oh = h.from; oh < h.to; oh++)
			for (int64_t ow = across.from; ow < across.to; ow++) {
				const int64_t o = ((at.image * w.out_h + oh) * w.out_w + ow) * channels + channel;
				const float share = share_of(w, count_padding,
							     gpk_inside(oh, w.kernel_h, w.stride_h, w.pad_top, w.h),
							     gpk_inside(ow, w.kernel_w, w.stride_w, w.pad_left, w.w));
				gpk_read<T, V>(g, dy + o);
				GPK_UNROLL
				for (int i = 0; i < V; i++)
					sum[i] += share * g[i];
			}
		gpk_write<T, V>(dx + r * channels + channel, sum);
	}
}

extern "C" void gpk_avg_pool_forward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w,
				     bool count_padding, const void *x, void *y)
{
	const struct gpk_places p = gpk_places_of(w->images, w->out_h, w->out_w);
	GPK_BY_TYPE(type, T, GPK_BY_WIDTH(w->channels, T, V, {
			    const struct gpk_tile t = gpk_tile_of(w->channels / V, WIDE, THREADS);
			    GPK_LAUNCH(s, (avg_forward<T, V>), t.grid(p.count, 1, INT32_MAX), t.block(), 0, *w, p,
				       count_padding, (const T *)x, (T *)y);
		    }));
}

extern "C" void gpk_avg_pool_backward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w,
				      bool count_padding, const void *dy, void *dx)
{
	const struct gpk_places p = gpk_places_of(w->images, w->h, w->w);
	GPK_BY_TYPE(type, T, GPK_BY_WIDTH(w->channels, T, V, {
			    const struct gpk_tile t = gpk_tile_of(w->channels / V, WIDE, THREADS);
			    GPK_LAUNCH(s, (avg_backward<T, V>), t.grid(p.count, 1, INT32_MAX), t.block(), 0, *w, p,
				       count_padding, (const T *)dy, (T *)dx);
		    }));
}
