/* SPDX-License-Identifier: Apache-2.0
 *
 * Depthwise convolution. See k_depthwise.h. There is little arithmetic: what
 * counts is how often a value is read again. A thread has 4 channels and makes
 * a strip of STRIP outputs along a row; it reads each input under the strip
 * once per kernel row, and L1 gives the rows that strips share. What does not
 * depend on the channel is known when compiling (KERNEL, STRIDE), so that a
 * strip's sums stay in registers. Other kernels and strides take the plain
 * kernels at the end of each part.
 *
 * L1 gives only what one block reads twice, and blocks that follow each other
 * run on different multiprocessors: so a block's strips lie below each other.
 * Eight of 3x3 then read 60 pixels for 32 outputs; side by side it is 102.
 * Test: tests/unit/test_cuda_conv.c
 */
#include "kernels/cuda/ops/k_depthwise.h"

#include "kernels/cuda/runtime/gpk_sums.h"
#include "kernels/cuda/runtime/gpk_window.h"

#define THREADS 256
#define WIDE    32
#define STRIP   4 /* a multiple of every STRIDE */
#define VECTOR  4 /* 16 bytes of float; of bf16 8, which leaves registers for more threads */

/* Runs the rest with V. */
#define BY_VECTOR(channels, V, ...)                                                                                    \
	do {                                                                                                           \
		if ((channels) % VECTOR == 0) {                                                                        \
			constexpr int V = VECTOR;                                                                      \
			__VA_ARGS__;                                                                                   \
		} else {                                                                                               \
			constexpr int V = 1;                                                                           \
			__VA_ARGS__;                                                                                   \
		}                                                                                                      \
	} while (0)

/* 10 * kernel + stride where there is code for that, else 0. */
static int kind_of(const struct gpk_window *w)
{
	const bool square = w->kernel_h == w->kernel_w && w->stride_h == w->stride_w;
	const bool known = (w->kernel_h == 3 || w->kernel_h == 5) && w->stride_h <= 2;
	return square && known ? 10 * w->kernel_h + w->stride_h : 0;
}

/* Runs `special` with K and S where there is code for them, else `general`. */
#define WITH_KIND(kernel, stride, K, S, special)                                                                       \
	case 10 * kernel + stride: {                                                                                   \
		constexpr int K = kernel, S = stride;                                                                  \
		special;                                                                                               \
	} break
#define BY_KIND(w, K, S, special, general)                                                                             \
	switch (kind_of(w)) {                                                                                          \
		WITH_KIND(3, 1, K, S, special);                                                                        \
		WITH_KIND(3, 2, K, S, special);                                                                        \
		WITH_KIND(5, 1, K, S, special);                                                                        \
		WITH_KIND(5, 2, K, S, special);                                                                        \
	default:                                                                                                       \
		general;                                                                                               \
		break;                                                                                                 \
	}

static struct gpk_tile tile_of(int64_t channels)
{
	return gpk_tile_of(channels % VECTOR ? channels : channels / VECTOR, WIDE, THREADS);
}
/* The tile of kernels that sum over rows. */
static struct gpk_tile sums_tile_of(int64_t channels)
{
	return gpk_tile_of(channels % VECTOR ? channels : channels / VECTOR, GPK_SUMS_WIDE, THREADS);
}

/* Strips of images of `down` rows, from the upper to the lower, then the next column of strips. */
static struct gpk_places strips_of(int64_t images, int64_t down, int64_t across)
{
	return gpk_places_of(images, across, down);
}

/* The r-th of them: `column` counts strips. */
GPK_DEVICE struct gpk_place strip_at(const struct gpk_places &strips, int64_t r)
{
	const struct gpk_place at = gpk_place_of(strips, r);
	return {at.image, at.column, at.row};
}

/* Zero outside [0, width). */
template <typename T, int V>
GPK_DEVICE void load_inside(float (&v)[V], const T *row, int64_t column, int64_t width, int64_t channels)
{
	if (column >= 0 && column < width) {
		gpk_read<T, V>(v, row + column * channels);
		return;
	}
	GPK_UNROLL
	for (int i = 0; i < V; i++)
		v[i] = 0;
}

template <int V> GPK_DEVICE void multiply_add(float (&sum)[V], const float (&a)[V], const float (&b)[V])
{
	GPK_UNROLL
	for (int i = 0; i < V; i++)
		sum[i] += a[i] * b[i];
}

template <int K, int V> GPK_DEVICE void load_taps(float (&taps)[K][V], const float *weight, int row, int64_t channels)
{
	GPK_UNROLL
	for (int kw = 0; kw < K; kw++)
		gpk_read<float, V>(taps[kw], weight + (row * K + kw) * channels);
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

/* What one kernel row gives to a strip, whose inputs begin at `left`. */
template <typename T, int V, int K, int S>
GPK_DEVICE void strip_row(const T *row, int64_t left, int64_t width, int64_t channels, const float (&taps)[K][V],
			  float (&sum)[STRIP][V])
{
	GPK_UNROLL
	for (int t = 0; t < (STRIP - 1) * S + K; t++) {
		float v[V];
		load_inside<T, V>(v, row, left + t, width, channels);
		GPK_UNROLL
		for (int kw = 0; kw < K; kw++)
			if (t >= kw && (t - kw) % S == 0 && (t - kw) / S < STRIP)
				multiply_add<V>(sum[(t - kw) / S], v, taps[kw]);
	}
}

/* Stores those of a strip that lie in [0, width), from `column` on. */
template <typename T, int V>
GPK_DEVICE void store_strip(T *row, int64_t column, int64_t width, int64_t channels, const float (&sum)[STRIP][V])
{
	GPK_UNROLL
	for (int t = 0; t < STRIP; t++)
		if (column + t >= 0 && column + t < width)
			gpk_write<T, V>(row + (column + t) * channels, sum[t]);
}

template <typename T, int V, int K, int S>
GPK_KERNEL GPK_BOUNDS(THREADS)
	forward_strips(struct gpk_window w, struct gpk_places strips, const float *GPK_RESTRICT weight,
		       const T *GPK_RESTRICT x, T *GPK_RESTRICT y)
{
	const int64_t channel = gpk_first_channel(V), step = gpk_row_step();
	if (channel >= w.channels)
		return;
	for (int64_t r = gpk_first_row(); r < strips.count; r += step) {
		const struct gpk_place at = strip_at(strips, r);
		const int64_t top = at.row * S - w.pad_top, column = at.column * STRIP;
		float sum[STRIP][V] = {};
		GPK_UNROLL
		for (int kh = 0; kh < K; kh++) {
			float taps[K][V];
			if (top + kh < 0 || top + kh >= w.h)
				continue;
			load_taps<K, V>(taps, weight + channel, kh, w.channels);
			strip_row<T, V, K, S>(x + (at.image * w.h + top + kh) * w.w * w.channels + channel,
					      column * S - w.pad_left, w.w, w.channels, taps, sum);
		}
		store_strip<T, V>(y + (at.image * w.out_h + at.row) * w.out_w * w.channels + channel, column, w.out_w,
				  w.channels, sum);
	}
}

template <typename T, int V>
GPK_KERNEL GPK_BOUNDS(THREADS)
	forward_plain(struct gpk_window w, struct gpk_places outputs, const float *GPK_RESTRICT weight,
		      const T *GPK_RESTRICT x, T *GPK_RESTRICT y)
{
	const int64_t channel = gpk_first_channel(V), step = gpk_row_step();
	if (channel >= w.channels)
		return;
	for (int64_t r = gpk_first_row(); r < outputs.count; r += step) {
		const struct gpk_place at = gpk_place_of(outputs, r);
		const struct gpk_span h = gpk_inside(at.row, w.kernel_h, w.stride_h, w.pad_top, w.h),
				      across = gpk_inside(at.column, w.kernel_w, w.stride_w, w.pad_left, w.w);
		const int64_t top = at.row * w.stride_h - w.pad_top, left = at.column * w.stride_w - w.pad_left;
		float sum[V] = {}, v[V], tap[V];
		for (int64_t ih = h.from; ih < h.to; ih++)
			for (int64_t iw = across.from; iw < across.to; iw++) {
				const int64_t k = (ih - top) * w.kernel_w + iw - left;
				gpk_read<T, V>(v, x + ((at.image * w.h + ih) * w.w + iw) * w.channels + channel);
				gpk_read<float, V>(tap, weight + k * w.channels + channel);
				multiply_add<V>(sum, v, tap);
			}
		gpk_write<T, V>(y + r * w.channels + channel, sum);
	}
}

extern "C" void gpk_depthwise_forward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w,
				      const float *weight, const void *x, void *y)
{
	const struct gpk_tile t = tile_of(w->channels);
	const struct gpk_places strips = strips_of(w->images, w->out_h, gpk_div_up(w->out_w, STRIP)),
				outputs = gpk_places_of(w->images, w->out_h, w->out_w);
	GPK_BY_TYPE(type, T,
		    BY_VECTOR(w->channels, V,
			      BY_KIND(w, K, S,
				      (GPK_LAUNCH(s, (forward_strips<T, V, K, S>), t.grid(strips.count, 1, INT32_MAX),
						  t.block(), 0, *w, strips, weight, (const T *)x, (T *)y)),
				      (GPK_LAUNCH(s, (forward_plain<T, V>), t.grid(outputs.count, 1, INT32_MAX),
						  t.block(), 0, *w, outputs, weight, (const T *)x, (T *)y)))));
}

/* --- gradient of the input ---------------------------------------------------------------------------------------- */

/*
 * Strips lie in padded coordinates, where output column `ow` reaches columns ow * S to ow * S + K - 1: a strip that
 * begins at a multiple of S meets them in the same way everywhere. `first` is the output column that begins with it.
 */
template <typename T, int V, int K, int S>
GPK_DEVICE void strip_gradients(const T *row, int64_t first, int64_t out_w, int64_t channels, const float (&taps)[K][V],
				float (&sum)[STRIP][V])
{
	GPK_UNROLL
	for (int d = -((K - 1) / S); d < STRIP / S; d++) {
		float g[V];
		load_inside<T, V>(g, row, first + d, out_w, channels);
		GPK_UNROLL
		for (int kw = 0; kw < K; kw++)
			if (d * S + kw >= 0 && d * S + kw < STRIP)
				multiply_add<V>(sum[d * S + kw >= 0 && d * S + kw < STRIP ? d * S + kw : 0], g,
						taps[kw]);
	}
}

template <typename T, int V, int K, int S>
GPK_KERNEL GPK_BOUNDS(THREADS)
	data_strips(struct gpk_window w, struct gpk_places strips, int64_t first_strip,
		    const float *GPK_RESTRICT weight, const T *GPK_RESTRICT dy, T *GPK_RESTRICT dx)
{
	const int64_t channel = gpk_first_channel(V), step = gpk_row_step();
	if (channel >= w.channels)
		return;
	for (int64_t r = gpk_first_row(); r < strips.count; r += step) {
		const struct gpk_place at = strip_at(strips, r);
		const int64_t strip = first_strip + at.column;
		const int64_t down = at.row + w.pad_top;
		float sum[STRIP][V] = {};
		GPK_UNROLL
		for (int kh = 0; kh < K; kh++) {
			float taps[K][V];
			const int64_t oh = (down - kh) / S;
			if (down < kh || (down - kh) % S || oh >= w.out_h)
				continue;
			load_taps<K, V>(taps, weight + channel, kh, w.channels);
			strip_gradients<T, V, K, S>(dy + (at.image * w.out_h + oh) * w.out_w * w.channels + channel,
						    strip * (STRIP / S), w.out_w, w.channels, taps, sum);
		}
		store_strip<T, V>(dx + (at.image * w.h + at.row) * w.w * w.channels + channel,
				  strip * STRIP - w.pad_left, w.w, w.channels, sum);
	}
}

template <typename T, int V>
GPK_KERNEL GPK_BOUNDS(THREADS)
	data_plain(struct gpk_window w, struct gpk_places pixels, const float *GPK_RESTRICT weight,
		   const T *GPK_RESTRICT dy, T *GPK_RESTRICT dx)
{
	const int64_t channel = gpk_first_channel(V), step = gpk_row_step();
	if (channel >= w.channels)
		return;
	for (int64_t r = gpk_first_row(); r < pixels.count; r += step) {
		const struct gpk_place at = gpk_place_of(pixels, r);
		const int64_t down = at.row + w.pad_top, right = at.column + w.pad_left;
		const struct gpk_span h = gpk_windows_over(down, w.kernel_h, w.stride_h, 0, w.out_h),
				      across = gpk_windows_over(right, w.kernel_w, w.stride_w, 0, w.out_w);
		float sum[V] = {}, g[V], tap[V];
		for (int64_t oh = h.from; oh < h.to; oh++)
			for (int64_t ow = across.from; ow < across.to; ow++) {
				const int64_t k = (down - oh * w.stride_h) * w.kernel_w + right - ow * w.stride_w;
				gpk_read<T, V>(g,
					       dy + ((at.image * w.out_h + oh) * w.out_w + ow) * w.channels + channel);
				gpk_read<float, V>(tap, weight + k * w.channels + channel);
				multiply_add<V>(sum, g, tap);
			}
		gpk_write<T, V>(dx + r * w.channels + channel, sum);
	}
}

extern "C" void gpk_depthwise_backward_data(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w,
					    const float *weight, const void *dy, void *dx)
{
	const struct gpk_tile t = tile_of(w->channels);
	const int64_t first = w->pad_left / STRIP, last = (w->pad_left + w->w - 1) / STRIP;
	const struct gpk_places strips = strips_of(w->images, w->h, last - first + 1),
				pixels = gpk_places_of(w->images, w->h, w->w);
	GPK_BY_TYPE(type, T,
		    BY_VECTOR(w->channels, V,
			      BY_KIND(w, K, S,
				      (GPK_LAUNCH(s, (data_strips<T, V, K, S>), t.grid(strips.count, 1, INT32_MAX),
						  t.block(), 0, *w, strips, first, weight, (const T *)dy, (T *)dx)),
				      (GPK_LAUNCH(s, (data_plain<T, V>), t.grid(pixels.count, 1, INT32_MAX), t.block(),
						  0, *w, pixels, weight, (const T *)dy, (T *)dx)))));
}

/* --- gradient of the weight --------------------------------------------------------------------------------------- */

/* Kernel rows whose sums a thread holds: all of 3x3, one of 5x5. The grid's z counts the groups of rows. */
#define ROWS_AT_ONCE(K) ((K) == 3 ? 3 : 1)

/* Sums of one strip of outputs over R kernel rows from `top` on. */
template <typename T, int V, int K, int S, int R>
GPK_DEVICE void strip_weights(const struct gpk_window &w, const T *image, int64_t top, int64_t left,
			      const float (&g)[STRIP][V], float (&sum)[R * K][V])
{
	GPK_UNROLL
	for (int j = 0; j < R; j++) {
		if (top + j < 0 || top + j >= w.h)
			continue;
		GPK_UNROLL
		for (int t = 0; t < (STRIP - 1) * S + K; t++) {
			float v[V];
			load_inside<T, V>(v, image + (top + j) * w.w * w.channels, left + t, w.w, w.channels);
			GPK_UNROLL
			for (int kw = 0; kw < K; kw++)
				if (t >= kw && (t - kw) % S == 0 && (t - kw) / S < STRIP)
					multiply_add<V>(sum[j * K + kw], v, g[(t - kw) / S]);
		}
	}
}

/*
 * Leaves the block's sums of S taps from `first` on, of V channels; the last block of a tile adds them up, and to
 * grad. Every thread of the block must come. `room` and `tickets` are these taps' own.
 */
template <int S, int V>
GPK_DEVICE void sum_taps(const float (&v)[S * V], int64_t first, int64_t channels, double *room, uint32_t *tickets,
			 float *grad)
{
	double sum[S];
	gpk_fold_rows<S, V>(v, channels, room);
	if (!gpk_last_part(tickets, blockIdx.x))
		return;
	const int64_t channel = gpk_total_parts<S, V>(channels, room, sum);
	for (int i = 0; i < S && channel >= 0; i++)
		grad[(first + i) * channels + channel] += (float)sum[i];
}

/* Where the sums of taps from `first` on lie, and the tickets of a group of taps: a part that is alone needs none. */
GPK_DEVICE double *room_of(double *room, int64_t first, int64_t channels)
{
	return room + first * gridDim.y * channels;
}
GPK_DEVICE uint32_t *tickets_of(uint32_t *tickets, int64_t group)
{
	return gridDim.y > 1 ? tickets + group * gridDim.x : tickets;
}

template <typename T, int V, int K, int S>
GPK_KERNEL GPK_BOUNDS(THREADS)
	weight_strips(struct gpk_window w, struct gpk_places strips, const T *GPK_RESTRICT x,
		      const T *GPK_RESTRICT dy, double *room, uint32_t *tickets, float *grad)
{
	constexpr int R = ROWS_AT_ONCE(K);
	const int64_t channel = gpk_first_channel(V), step = gpk_row_step();
	float sum[R * K][V] = {}, flat[R * K * V];
	if (channel < w.channels)
		for (int64_t r = gpk_first_row(); r < strips.count; r += step) {
			const struct gpk_place at = strip_at(strips, r);
			const int64_t column = at.column * STRIP;
			const T *row = dy + (at.image * w.out_h + at.row) * w.out_w * w.channels + channel;
			float g[STRIP][V];
			GPK_UNROLL
			for (int t = 0; t < STRIP; t++)
				load_inside<T, V>(g[t], row, column + t, w.out_w, w.channels);
			strip_weights<T, V, K, S, R>(w, x + at.image * w.h * w.w * w.channels + channel,
						     at.row * S - w.pad_top + (int)blockIdx.z * R,
						     column * S - w.pad_left, g, sum);
		}
	GPK_UNROLL
	for (int i = 0; i < R * K * V; i++)
		flat[i] = sum[i / V][i % V];
	const int64_t first = (int64_t)blockIdx.z * (R * K);
	sum_taps<R * K, V>(flat, first, w.channels, room_of(room, first, w.channels), tickets_of(tickets, blockIdx.z),
			   grad);
}

/* The sums of one tap after the other; the grid's z walks them. */
template <typename T, int V>
GPK_KERNEL GPK_BOUNDS(THREADS)
	weight_plain(struct gpk_window w, struct gpk_places outputs, const T *GPK_RESTRICT x,
		     const T *GPK_RESTRICT dy, double *room, uint32_t *tickets, float *grad)
{
	const int64_t channel = gpk_first_channel(V), step = gpk_row_step(), taps = (int64_t)w.kernel_h * w.kernel_w;
	for (int64_t tap = blockIdx.z; tap < taps; tap += gridDim.z) {
		float sum[V] = {}, v[V], g[V];
		for (int64_t r = gpk_first_row(); r < outputs.count && channel < w.channels; r += step) {
			const struct gpk_place at = gpk_place_of(outputs, r);
			const int64_t ih = at.row * w.stride_h - w.pad_top + tap / w.kernel_w,
				      iw = at.column * w.stride_w - w.pad_left + tap % w.kernel_w;
			if (ih < 0 || ih >= w.h || iw < 0 || iw >= w.w)
				continue;
			gpk_read<T, V>(v, x + ((at.image * w.h + ih) * w.w + iw) * w.channels + channel);
			gpk_read<T, V>(g, dy + r * w.channels + channel);
			multiply_add<V>(sum, v, g);
		}
		sum_taps<1, V>(sum, tap, w.channels, room_of(room, tap, w.channels), tickets_of(tickets, tap), grad);
		__syncthreads();
	}
}

/* Blocks over strips or outputs; by sizes alone. Long kernels are many blocks already. */
static int parts_of(const struct gpk_window *w)
{
	const struct gpk_tile t = sums_tile_of(w->channels);
	const int kind = kind_of(w);
	const int64_t lines = kind ? w->kernel_h / ROWS_AT_ONCE(w->kernel_h) : gpk_window_taps(w);
	const int64_t rows = w->images * w->out_h * (kind ? gpk_div_up(w->out_w, STRIP) : w->out_w);
	return gpk_parts_of(rows, t.deep, t.tiles * lines, 2);
}

extern "C" uint64_t gpk_depthwise_room(const struct gpk_window *w)
{
	return (uint64_t)parts_of(w) * (uint64_t)(gpk_window_taps(w) * w->channels) * sizeof(double);
}

template <typename T, int V, int K, int S>
static void launch_weight_strips(struct gp_rt_stream *s, const struct gpk_window *w, int parts, const void *x,
				 const void *dy, double *room, float *grad)
{
	constexpr int R = ROWS_AT_ONCE(K);
	const struct gpk_tile t = sums_tile_of(w->channels);
	const struct gpk_places strips = strips_of(w->images, w->out_h, gpk_div_up(w->out_w, STRIP));
	GPK_LAUNCH(s, (weight_strips<T, V, K, S>), dim3(t.tiles, parts, K / R), t.block(),
		   gpk_sums_shared(THREADS, R * K * V), *w, strips, (const T *)x, (const T *)dy, room, gp_rt_tickets(s),
		   grad);
}

template <typename T, int V>
static void launch_weight_plain(struct gp_rt_stream *s, const struct gpk_window *w, int parts, const void *x,
				const void *dy, double *room, float *grad)
{
	const struct gpk_tile t = sums_tile_of(w->channels);
	const struct gpk_places outputs = gpk_places_of(w->images, w->out_h, w->out_w);
	const int64_t taps = gpk_window_taps(w);
	const unsigned high = (unsigned)(taps < GPK_GRID_HIGH ? taps : GPK_GRID_HIGH);
	GPK_LAUNCH(s, (weight_plain<T, V>), dim3(t.tiles, parts, high), t.block(), gpk_sums_shared(THREADS, V), *w,
		   outputs, (const T *)x, (const T *)dy, room, gp_rt_tickets(s), grad);
}

extern "C" void gpk_depthwise_backward_weight(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w,
					      const void *x, const void *dy, void *room, float *grad)
{
	const int parts = parts_of(w);
	GPK_BY_TYPE(
		type, T,
		BY_VECTOR(w->channels, V,
			  BY_KIND(w, K, S, (launch_weight_strips<T, V, K, S>(s, w, parts, x, dy, (double *)room, grad)),
				  (launch_weight_plain<T, V>(s, w, parts, x, dy, (double *)room, grad)))));
}
