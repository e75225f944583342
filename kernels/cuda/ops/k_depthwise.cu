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
 * Kernels of strips do their part of the batch norms beside them, where those
 * have many rows: forward reads what the one before normalizes, and adds up
 * what the one behind wants of its outputs; so does backward with gradients of
 * the one before. What is added up of a strip, and in which block, is batch
 * norm's own order (gpk_strips.h): blocks are then fewer and each has many strips.
 * Test: tests/unit/test_cuda_conv.c, tests/unit/test_cuda_depthwise_norm.c
 */
#include "kernels/cuda/ops/k_depthwise.h"

#include "kernels/cuda/ops/gpk_batch_norm.h"

#define THREADS   GPK_STRIP_THREADS
#define WIDE      32
#define STRIP     GPK_STRIP
#define VECTOR    GPK_STRIP_VECTOR
#define BY_VECTOR GPK_BY_STRIP_VECTOR

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

/* What a batch norm makes of V channels of its input. */
template <int V> struct normalizer {
	float a[V], b[V];
	struct limits l;
};

template <int V, bool READS>
GPK_DEVICE struct normalizer<V> normalizer_of(const struct gpk_bn &n, struct limits l, int64_t channel) {
	struct normalizer<V> f = {
	};
	if (READS && channel < n.channels) {
		gpk_read<float, V>(f.a, n.saved + SAVED_A * n.channels + channel);
		gpk_read<float, V>(f.b, n.saved + SAVED_B * n.channels + channel);
		f.l = l;
	}
	return f;
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

/* The same of a convolution's input, which READS: with the batch norm before it. */
template <typename T, int V, bool READS>
GPK_DEVICE void load_input(float (&v)[V], const T *row, int64_t column, int64_t width, int64_t channels,
			   const struct normalizer<V> &f)
{
	const bool inside = column >= 0 && column < width;
	load_inside<T, V>(v, row, column, width, channels);
	GPK_UNROLL
	for (int i = 0; i < V && READS; i++)
		if (inside)
			v[i] = output_of<T, false>(f.a[i], f.b[i], v[i], 0, f.l);
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
template <typename T, int V, int K, int S, bool READS>
GPK_DEVICE void strip_row(const T *row, int64_t left, int64_t width, int64_t channels, const float (&taps)[K][V],
			  const struct normalizer<V> &f, float (&sum)[STRIP][V])
{
	GPK_UNROLL
	for (int t = 0; t < (STRIP - 1) * S + K; t++) {
		float v[V];
		load_input<T, V, READS>(v, row, left + t, width, channels, f);
		GPK_UNROLL
		for (int kw = 0; kw < K; kw++)
			if (t >= kw && (t - kw) % S == 0 && (t - kw) / S < STRIP)
				multiply_add<V>(sum[(t - kw) / S], v, taps[kw]);
	}
}

template <typename T, int V>
GPK_DEVICE void store_strip(T *at, int pixels, int64_t channels, const float (&sum)[STRIP][V])
{
	GPK_UNROLL
	for (int t = 0; t < STRIP; t++)
		if (t < pixels)
			gpk_write<T, V>(at + t * channels, sum[t]);
}

/* The first output of all, as strip_row makes it: what batch norm takes for its sums' shift. */
template <typename T, int V, int K, bool READS>
GPK_DEVICE void first_output(const struct gpk_window &w, const float *weight, const T *x, const struct normalizer<V> &f,
			     float (&out)[V])
{
	float sum[V] = {}, v[V];
	GPK_UNROLL
	for (int kh = 0; kh < K; kh++) {
		float taps[K][V];
		const int64_t row = kh - w.pad_top;
		if (row < 0 || row >= w.h)
			continue;
		load_taps<K, V>(taps, weight, kh, w.channels);
		GPK_UNROLL
		for (int kw = 0; kw < K; kw++) {
			load_input<T, V, READS>(v, x + row * w.w * w.channels, kw - w.pad_left, w.w, w.channels, f);
			multiply_add<V>(sum, v, taps[kw]);
		}
	}
	GPK_UNROLL
	for (int i = 0; i < V; i++)
		out[i] = gpk_rounded<T>(sum[i]);
}

template <typename T, int V>
GPK_DEVICE void add_strip(float (&sums)[2 * V], const float (&sum)[STRIP][V], int pixels, const float (&shift)[V])
{
	GPK_UNROLL
	for (int t = 0; t < STRIP; t++) {
		float v[V];
		GPK_UNROLL
		for (int i = 0; i < V; i++)
			v[i] = gpk_rounded<T>(sum[t][i]);
		if (t < pixels)
			add_values<V>(sums, v, shift);
	}
}

/* READS: with the batch norm `before`. FEEDS: leaves the sums of `behind`, or what its last block makes of them. */
template <typename T, int V, int K, int S, bool READS, bool FEEDS>
GPK_KERNEL GPK_BOUNDS(THREADS)
	forward_strips(struct gpk_window w, struct gpk_strips strips, struct gpk_bn before, struct limits l,
		       struct gpk_bn behind, const float *GPK_RESTRICT weight, const T *GPK_RESTRICT x,
		       T *GPK_RESTRICT y, double *room, uint32_t *tickets)
{
	const int64_t channel = gpk_first_channel(V), step = gpk_row_step();
	float sums[2 * V] = {}, shift[V] = {};
	if (!FEEDS && channel >= w.channels)
		return;
	const struct normalizer<V> f = normalizer_of<V, READS>(before, l, channel);
	if (FEEDS && channel < w.channels)
		first_output<T, V, K, READS>(w, weight + channel, x + channel, f, shift);
	for (int64_t r = gpk_first_row(); r < strips.at.count && channel < w.channels; r += step) {
		const struct gpk_strip at = gpk_strip_of(strips, r);
		const int64_t top = at.row * S - w.pad_top;
		float sum[STRIP][V] = {};
		GPK_UNROLL
		for (int kh = 0; kh < K; kh++) {
			float taps[K][V];
			if (top + kh < 0 || top + kh >= w.h)
				continue;
			load_taps<K, V>(taps, weight + channel, kh, w.channels);
			strip_row<T, V, K, S, READS>(x + (at.image * w.h + top + kh) * w.w * w.channels + channel,
						     at.column * S - w.pad_left, w.w, w.channels, taps, f, sum);
		}
		store_strip<T, V>(y + at.first * w.channels + channel, at.pixels, w.channels, sum);
		if (FEEDS)
			add_strip<T, V>(sums, sum, at.pixels, shift);
	}
	if (FEEDS)
		total_values<V>(behind, shift, sums, room, tickets);
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
	const struct gpk_strips strips = gpk_strips_of(w->images, w->out_h, w->out_w);
	const struct gpk_places outputs = gpk_places_of(w->images, w->out_h, w->out_w);
	const struct gpk_bn none = {};
	GPK_BY_TYPE(type, T,
		    BY_VECTOR(w->channels, V,
			      BY_KIND(w, K, S,
				      (GPK_LAUNCH(s, (forward_strips<T, V, K, S, false, false>),
						  t.grid(strips.at.count, 1, INT32_MAX), t.block(), 0, *w, strips, none,
						  limits_of(none.act), none, weight, (const T *)x, (T *)y, nullptr,
						  nullptr)),
				      (GPK_LAUNCH(s, (forward_plain<T, V>), t.grid(outputs.count, 1, INT32_MAX),
						  t.block(), 0, *w, outputs, weight, (const T *)x, (T *)y)))));
}

extern "C" bool gpk_depthwise_norm_fits(const struct gpk_window *w)
{
	return kind_of(w) > 0 && w->channels % VECTOR == 0;
}

template <typename T, bool READS, bool FEEDS>
static void launch_forward_norm(struct gp_rt_stream *s, const struct gpk_window *w, const struct gpk_bn &before,
				const struct gpk_bn &behind, const float *weight, const T *x, T *y)
{
	const struct gpk_strips strips = gpk_strips_of(w->images, w->out_h, w->out_w);
	const struct gpk_tile t = FEEDS ? gpk_strips_tile(w->channels) : tile_of(w->channels);
	const dim3 grid =
		FEEDS ? dim3(t.tiles, gpk_strips_parts(&strips, w->channels)) : t.grid(strips.at.count, 1, INT32_MAX);
	const size_t shared = FEEDS ? gpk_sums_shared(THREADS, 2 * VECTOR) : 0;
	BY_KIND(w, K, S,
		(GPK_LAUNCH(s, (forward_strips<T, VECTOR, K, S, READS, FEEDS>), grid, t.block(), shared, *w, strips,
			    before, limits_of(before.act), behind, weight, x, y, FEEDS ? sums_of(&behind) : NULL,
			    FEEDS ? gp_rt_tickets(s) : NULL)),
		(void)0);
}

extern "C" void gpk_depthwise_forward_norm(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w,
					   const float *weight, const struct gpk_bn *before,
					   const struct gpk_bn *behind, const void *x, void *y)
{
	const struct gpk_bn none = {};
	GPK_BY_TYPE(type, T, {
		if (before && behind)
			launch_forward_norm<T, true, true>(s, w, *before, *behind, weight, (const T *)x, (T *)y);
		else if (before)
			launch_forward_norm<T, true, false>(s, w, *before, none, weight, (const T *)x, (T *)y);
		else
			launch_forward_norm<T, false, true>(s, w, none, *behind, weight, (const T *)x, (T *)y);
	});
}

/* --- gradient of the input ---------------------------------------------------------------------------------------- */

/*
 * What one kernel row gives to a strip of the input. Output column `ow` reaches padded columns ow * S to ow * S + K - 1;
 * the strip begins at padded column first * S + P. All strips of an image have the same P, as S divides STRIP.
 */
template <typename T, int V, int K, int S, int P>
GPK_DEVICE void strip_gradients(const T *row, int64_t first, int64_t out_w, int64_t channels, const float (&taps)[K][V],
				float (&sum)[STRIP][V])
{
	GPK_UNROLL
	for (int d = -((K - 1 - P) / S); d <= (STRIP - 1 + P) / S; d++) {
		float g[V];
		load_inside<T, V>(g, row, first + d, out_w, channels);
		GPK_UNROLL
		for (int kw = 0; kw < K; kw++) {
			const int t = d * S + kw - P;
			if (t >= 0 && t < STRIP)
				multiply_add<V>(sum[t >= 0 && t < STRIP ? t : 0], g, taps[kw]);
		}
	}
}

/* Gradients of a strip behind the activation's mask, as batch norm would find them in memory, and their sums. */
template <typename T, int V>
GPK_DEVICE void return_strip(float (&g)[STRIP][V], const T *x, int pixels, int64_t channels, enum gpk_act act,
			     const struct normalizer<V> &f, const float (&mean)[V], float (&sums)[2 * V])
{
	const float none[V] = {};
	float v[STRIP][V] = {};
	GPK_UNROLL
	for (int t = 0; t < STRIP; t++)
		if (t < pixels)
			gpk_read<T, V>(v[t], x + t * channels);
	GPK_UNROLL
	for (int t = 0; t < STRIP; t++) {
		GPK_UNROLL
		for (int i = 0; i < V; i++)
			g[t][i] = gpk_rounded<T>(g[t][i]);
		if (act != GPK_ACT_NONE)
			mask_gradient<T, V, MASK_FROM_X>(g[t], f.a, f.b, v[t], none, f.l);
		if (t < pixels)
			add_gradients<V>(sums, g[t], v[t], mean);
	}
}

/* RETURNS: dx is behind the mask of the batch norm `before`, whose input is x, and the last blocks make its coefficients. */
template <typename T, int V, int K, int S, int P, bool RETURNS>
GPK_KERNEL GPK_BOUNDS(THREADS) data_strips(struct gpk_window w, struct gpk_strips strips, struct gpk_bn before,
					   struct limits l, const float *GPK_RESTRICT weight, const T *GPK_RESTRICT x,
					   const T *GPK_RESTRICT dy, T *GPK_RESTRICT dx, double *room,
					   float *coefficients, float *dgamma, float *dbeta, uint32_t *tickets)
{
	const int64_t channel = gpk_first_channel(V), step = gpk_row_step();
	float sums[2 * V] = {}, mean[V] = {};
	if (!RETURNS && channel >= w.channels)
		return;
	const struct normalizer<V> f = normalizer_of<V, RETURNS>(before, l, channel);
	if (RETURNS && channel < w.channels)
		gpk_read<float, V>(mean, before.saved + SAVED_MEAN * w.channels + channel);
	for (int64_t r = gpk_first_row(); r < strips.at.count && channel < w.channels; r += step) {
		const struct gpk_strip at = gpk_strip_of(strips, r);
		const int64_t down = at.row + w.pad_top, first = (at.column + w.pad_left) / S;
		float sum[STRIP][V] = {};
		GPK_UNROLL
		for (int kh = 0; kh < K; kh++) {
			float taps[K][V];
			const int64_t oh = (down - kh) / S;
			if (down < kh || (down - kh) % S || oh >= w.out_h)
				continue;
			load_taps<K, V>(taps, weight + channel, kh, w.channels);
			strip_gradients<T, V, K, S, P>(dy + (at.image * w.out_h + oh) * w.out_w * w.channels + channel,
						       first, w.out_w, w.channels, taps, sum);
		}
		if (RETURNS)
			return_strip<T, V>(sum, x + at.first * w.channels + channel, at.pixels, w.channels, before.act,
					   f, mean, sums);
		store_strip<T, V>(dx + at.first * w.channels + channel, at.pixels, w.channels, sum);
	}
	if (RETURNS)
		total_gradients<V>(before, sums, room, coefficients, dgamma, dbeta, tickets);
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

template <typename T, int V, int K, int S, int P>
static void launch_data(struct gp_rt_stream *s, const struct gpk_window *w, const float *weight, const T *dy, T *dx)
{
	const struct gpk_tile t = tile_of(w->channels);
	const struct gpk_strips strips = gpk_strips_of(w->images, w->h, w->w);
	const struct gpk_bn none = {};
	GPK_LAUNCH(s, (data_strips<T, V, K, S, P, false>), t.grid(strips.at.count, 1, INT32_MAX), t.block(), 0, *w,
		   strips, none, limits_of(none.act), weight, nullptr, dy, dx, nullptr, nullptr, nullptr, nullptr,
		   nullptr);
}

/* The last two with the phase P that the padding gives. */
#define BY_PHASE(w, S, P, ...)                                                                                         \
	do {                                                                                                           \
		if ((w)->pad_left % (S) == 0) {                                                                        \
			constexpr int P = 0;                                                                           \
			__VA_ARGS__;                                                                                   \
		} else {                                                                                               \
			constexpr int P = (S)-1;                                                                       \
			__VA_ARGS__;                                                                                   \
		}                                                                                                      \
	} while (0)

extern "C" void gpk_depthwise_backward_data(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w,
					    const float *weight, const void *dy, void *dx)
{
	const struct gpk_tile t = tile_of(w->channels);
	const struct gpk_places pixels = gpk_places_of(w->images, w->h, w->w);
	GPK_BY_TYPE(
		type, T,
		BY_VECTOR(w->channels, V,
			  BY_KIND(w, K, S,
				  BY_PHASE(w, S, P, (launch_data<T, V, K, S, P>(s, w, weight, (const T *)dy, (T *)dx))),
				  (GPK_LAUNCH(s, (data_plain<T, V>), t.grid(pixels.count, 1, INT32_MAX), t.block(), 0,
					      *w, pixels, weight, (const T *)dy, (T *)dx)))));
}

template <typename T, int K, int S, int P>
static void launch_data_norm(struct gp_rt_stream *s, const struct gpk_window *w, const float *weight,
			     const struct gpk_bn *before, const T *x, const T *dy, T *dx, float *dgamma, float *dbeta)
{
	const struct gpk_tile t = gpk_strips_tile(w->channels);
	const struct gpk_strips strips = gpk_strips_of(w->images, w->h, w->w);
	GPK_LAUNCH(s, (data_strips<T, VECTOR, K, S, P, true>), dim3(t.tiles, gpk_strips_parts(&strips, w->channels)),
		   t.block(), gpk_sums_shared(THREADS, 2 * VECTOR), *w, strips, *before, limits_of(before->act), weight,
		   x, dy, dx, sums_of(before), coefficients_of(before), dgamma, dbeta, gp_rt_tickets(s));
}

extern "C" void gpk_depthwise_backward_data_norm(struct gp_rt_stream *s, enum gp_rt_type type,
						 const struct gpk_window *w, const float *weight,
						 const struct gpk_bn *before, const void *x, const void *dy, void *dx,
						 float *dgamma, float *dbeta)
{
	GPK_BY_TYPE(type, T,
		    BY_KIND(w, K, S,
			    BY_PHASE(w, S, P,
				     (launch_data_norm<T, K, S, P>(s, w, weight, before, (const T *)x, (const T *)dy,
								   (T *)dx, dgamma, dbeta))),
			    (void)0));
}

/* --- gradient of the weight --------------------------------------------------------------------------------------- */

/* Kernel rows whose sums a thread holds: all of 3x3, one of 5x5. The grid's z counts the groups of rows. */
#define ROWS_AT_ONCE(K) ((K) == 3 ? 3 : 1)

/* Sums of one strip of outputs over R kernel rows from `top` on. */
template <typename T, int V, int K, int S, int R, bool READS>
GPK_DEVICE void strip_weights(const struct gpk_window &w, const T *image, int64_t top, int64_t left,
			      const struct normalizer<V> &f, const float (&g)[STRIP][V], float (&sum)[R * K][V])
{
	GPK_UNROLL
	for (int j = 0; j < R; j++) {
		if (top + j < 0 || top + j >= w.h)
			continue;
		GPK_UNROLL
		for (int t = 0; t < (STRIP - 1) * S + K; t++) {
			float v[V];
			load_input<T, V, READS>(v, image + (top + j) * w.w * w.channels, left + t, w.w, w.channels, f);
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

template <typename T, int V, int K, int S, bool READS>
GPK_KERNEL GPK_BOUNDS(THREADS)
	weight_strips(struct gpk_window w, struct gpk_strips strips, struct gpk_bn before, struct limits l,
		      const T *GPK_RESTRICT x, const T *GPK_RESTRICT dy, double *room, uint32_t *tickets, float *grad)
{
	constexpr int R = ROWS_AT_ONCE(K);
	const int64_t channel = gpk_first_channel(V), step = gpk_row_step();
	const struct normalizer<V> f = normalizer_of<V, READS>(before, l, channel);
	float sum[R * K][V] = {}, flat[R * K * V];
	if (channel < w.channels)
		for (int64_t r = gpk_first_row(); r < strips.at.count; r += step) {
			const struct gpk_strip at = gpk_strip_of(strips, r);
			const T *row = dy + (at.image * w.out_h + at.row) * w.out_w * w.channels + channel;
			float g[STRIP][V];
			GPK_UNROLL
			for (int t = 0; t < STRIP; t++)
				load_inside<T, V>(g[t], row, at.column + t, w.out_w, w.channels);
			strip_weights<T, V, K, S, R, READS>(w, x + at.image * w.h * w.w * w.channels + channel,
							    at.row * S - w.pad_top + (int)blockIdx.z * R,
							    at.column * S - w.pad_left, f, g, sum);
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
GPK_KERNEL GPK_BOUNDS(THREADS) weight_plain(struct gpk_window w, struct gpk_places outputs, const T *GPK_RESTRICT x,
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

template <typename T, int V, int K, int S, bool READS>
static void launch_weight_strips(struct gp_rt_stream *s, const struct gpk_window *w, int parts,
				 const struct gpk_bn &before, const void *x, const void *dy, double *room, float *grad)
{
	constexpr int R = ROWS_AT_ONCE(K);
	const struct gpk_tile t = sums_tile_of(w->channels);
	const struct gpk_strips strips = gpk_strips_of(w->images, w->out_h, w->out_w);
	GPK_LAUNCH(s, (weight_strips<T, V, K, S, READS>), dim3(t.tiles, parts, K / R), t.block(),
		   gpk_sums_shared(THREADS, R * K * V), *w, strips, before, limits_of(before.act), (const T *)x,
		   (const T *)dy, room, gp_rt_tickets(s), grad);
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
	const struct gpk_bn none = {};
	GPK_BY_TYPE(type, T,
		    BY_VECTOR(w->channels, V,
			      BY_KIND(w, K, S,
				      (launch_weight_strips<T, V, K, S, false>(s, w, parts, none, x, dy, (double *)room,
									       grad)),
				      (launch_weight_plain<T, V>(s, w, parts, x, dy, (double *)room, grad)))));
}

extern "C" void gpk_depthwise_backward_weight_norm(struct gp_rt_stream *s, enum gp_rt_type type,
						   const struct gpk_window *w, const struct gpk_bn *before,
						   const void *x, const void *dy, void *room, float *grad)
{
	const int parts = parts_of(w);
	GPK_BY_TYPE(type, T,
		    BY_KIND(w, K, S,
			    (launch_weight_strips<T, VECTOR, K, S, true>(s, w, parts, *before, x, dy, (double *)room,
									 grad)),
			    (void)0));
}
