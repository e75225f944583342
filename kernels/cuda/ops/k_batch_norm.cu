/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch normalization with residual and activation. See k_batch_norm.h. Two
 * ways, chosen by shape alone:
 *
 *   few rows   one launch: a block has a few channels of all rows, reads them
 *              once and holds them in registers
 *   else       a launch that sums, whose last blocks make coefficients of the
 *              sums (gpk_sums.h), and one that reads again (from L2 where a
 *              chunk fits) and writes; a depthwise convolution beside it may
 *              do either one (k_depthwise.cu), with the same bits
 *
 * Test: tests/unit/test_cuda_batch_norm.c, tests/unit/test_cuda_launches.c
 */
#include "kernels/cuda/ops/gpk_batch_norm.h"

#define THREADS_TO_MOVE 256
#define WIDE            64 /* lanes of theirs */
#define AT_ONCE         2  /* rows that a thread reads before it writes one: what is written may be what is read */

extern "C" uint64_t gpk_bn_room(int64_t rows, int64_t channels)
{
	if (gpk_bn_at_once(rows, channels))
		return 0;
	return coefficient_bytes(channels) + gpk_strips_room(channels, 2);
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

template <typename T, int V>
GPK_KERNEL GPK_BOUNDS(GPK_STRIP_THREADS)
	sum_values(struct gpk_bn n, struct gpk_strips strips, const T *GPK_RESTRICT x, double *room, uint32_t *tickets)
{
	const int64_t channel = gpk_first_channel(V), step = gpk_row_step(), channels = n.channels;
	float sums[2 * V] = {}, shift[V] = {};
	if (channel < channels) {
		gpk_read<T, V>(shift, x + channel);
		for (int64_t r = gpk_first_row(); r < strips.at.count; r += step) {
			const struct gpk_strip strip = gpk_strip_of(strips, r);
			float v[GPK_STRIP][V] = {};
			GPK_UNROLL
			for (int t = 0; t < GPK_STRIP; t++)
				if (t < strip.pixels)
					gpk_read<T, V>(v[t], x + (strip.first + t) * channels + channel);
			GPK_UNROLL
			for (int t = 0; t < GPK_STRIP; t++)
				if (t < strip.pixels)
					add_values<V>(sums, v[t], shift);
		}
	}
	total_values<V>(n, shift, sums, room, tickets);
}

template <typename T, int V, bool RESIDUAL>
GPK_DEVICE void normalize_rows(int64_t rows, int64_t channels, const float (&a)[V], const float (&b)[V],
			       struct limits l, const T *x, const T *residual, T *y)
{
	const int64_t channel = gpk_first_channel(V), step = gpk_row_step();
	for (int64_t from = gpk_first_row(); from < rows; from += AT_ONCE * step) {
		float v[AT_ONCE][V], add[AT_ONCE][V] = {};
		GPK_UNROLL
		for (int k = 0; k < AT_ONCE; k++) {
			const int64_t r = from + k * step, at = r * channels + channel;
			if (r < rows)
				gpk_read<T, V>(v[k], x + at);
			if (RESIDUAL && r < rows)
				gpk_read<T, V>(add[k], residual + at);
		}
		GPK_UNROLL
		for (int k = 0; k < AT_ONCE; k++) {
			const int64_t r = from + k * step;
			GPK_UNROLL
			for (int i = 0; i < V; i++)
				v[k][i] = output_of<T, RESIDUAL>(a[i], b[i], v[k][i], add[k][i], l);
			if (r < rows)
				gpk_write<T, V>(y + r * channels + channel, v[k]);
		}
	}
}

template <typename T, int V, bool RESIDUAL>
GPK_KERNEL GPK_BOUNDS(THREADS_TO_MOVE) normalize(struct gpk_bn n, struct limits l, const T *x, const T *residual, T *y)
{
	const int64_t channel = gpk_first_channel(V);
	float a[V], b[V];
	if (channel >= n.channels)
		return;
	gpk_read<float, V>(a, n.saved + SAVED_A * n.channels + channel);
	gpk_read<float, V>(b, n.saved + SAVED_B * n.channels + channel);
	normalize_rows<T, V, RESIDUAL>(n.rows, n.channels, a, b, l, x, residual, y);
}

/* running_channel of the thread's channels: roots in double, once for a block. `keep`: one block fills `saved`. */
template <int V> GPK_DEVICE void running_affine(const struct gpk_bn &n, float (&a)[V], float (&b)[V], bool keep)
{
	GPK_SHARED(struct affine, of, [WIDE * V]);
	const unsigned threads = blockDim.x * blockDim.y;
	const int64_t first = (int64_t)blockIdx.x * blockDim.x * V;
	for (unsigned c = gpk_linear_thread(); c < blockDim.x * V && first + c < n.channels; c += threads)
		of[c] = running_channel(n, first + c, keep && blockIdx.y == 0);
	__syncthreads();
	GPK_UNROLL
	for (int i = 0; i < V; i++) {
		a[i] = of[threadIdx.x * V + i].a;
		b[i] = of[threadIdx.x * V + i].b;
	}
}

template <typename T, int V, bool RESIDUAL>
GPK_KERNEL GPK_BOUNDS(THREADS_TO_MOVE)
	normalize_running(struct gpk_bn n, struct limits l, const T *x, const T *residual, T *y)
{
	float a[V], b[V];
	running_affine<V>(n, a, b, n.fixed);
	if (gpk_first_channel(V) >= n.channels)
		return;
	normalize_rows<T, V, RESIDUAL>(n.rows, n.channels, a, b, l, x, residual, y);
}

/* Blocks of a tile's launch: as many as a card holds at once, of each of its tiles equally many. */
static int64_t most_blocks(const struct gpk_tile &t, int64_t resident)
{
	return resident > t.tiles ? resident / t.tiles * t.tiles : t.tiles;
}

#define LAUNCH_NORMALIZE(kernel, s, n, x, residual, y)                                                                 \
	GPK_BY_TYPE((n)->type, T,                                                                                      \
		    GPK_BY_WIDTH((n)->channels, T, V, BY_RESIDUAL(residual, R, {                                       \
					 const struct gpk_tile t =                                                     \
						 gpk_tile_of((n)->channels / V, WIDE, THREADS_TO_MOVE);                \
					 const int64_t most =                                                          \
						 most_blocks(t, GPK_RESIDENT(s, (kernel<T, V, R>), THREADS_TO_MOVE));  \
					 GPK_LAUNCH(s, (kernel<T, V, R>), t.grid((n)->rows, AT_ONCE, most), t.block(), \
						    0, *(n), limits_of((n)->act), (const T *)(x),                      \
						    (const T *)(residual), (T *)(y));                                  \
				 })))

extern "C" void gpk_bn_statistics(struct gp_rt_stream *s, const struct gpk_bn *n, const void *x)
{
	const struct gpk_tile t = gpk_strips_tile(n->channels);
	const struct gpk_strips strips = strips_of_norm(n);
	GPK_BY_TYPE(n->type, T, GPK_BY_STRIP_VECTOR(n->channels, V, {
			    GPK_LAUNCH(s, (sum_values<T, V>), dim3(t.tiles, gpk_strips_parts(&strips, n->channels)),
				       t.block(), gpk_sums_shared(GPK_STRIP_THREADS, 2 * V), *n, strips, (const T *)x,
				       sums_of(n), gp_rt_tickets(s));
		    }));
}

extern "C" void gpk_bn_apply(struct gp_rt_stream *s, const struct gpk_bn *n, const void *x, const void *residual,
			     void *y)
{
	LAUNCH_NORMALIZE(normalize, s, n, x, residual, y);
}

extern "C" void gpk_bn_forward(struct gp_rt_stream *s, const struct gpk_bn *n, const void *x, const void *residual,
			       void *y)
{
	if (gpk_bn_at_once(n->rows, n->channels)) {
		gpk_bn_forward_at_once(s, n, x, residual, y);
		return;
	}
	gpk_bn_statistics(s, n, x);
	gpk_bn_apply(s, n, x, residual, y);
}

GPK_KERNEL GPK_BOUNDS(THREADS_TO_MOVE) keep_running(struct gpk_bn n)
{
	const int64_t channel = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	if (channel < n.channels)
		running_channel(n, channel, true);
}

extern "C" void gpk_bn_keep_running(struct gp_rt_stream *s, const struct gpk_bn *n)
{
	GPK_LAUNCH(s, keep_running, (unsigned)gpk_div_up(n->channels, (int64_t)THREADS_TO_MOVE), THREADS_TO_MOVE, 0,
		   *n);
}

extern "C" void gpk_bn_forward_running(struct gp_rt_stream *s, const struct gpk_bn *n, const void *x,
				       const void *residual, void *y)
{
	LAUNCH_NORMALIZE(normalize_running, s, n, x, residual, y);
}

extern "C" void gpk_bn_forward_eval(struct gp_rt_stream *s, const struct gpk_bn *n, const void *x, const void *residual,
				    void *y)
{
	struct gpk_bn eval = *n;
	eval.fixed = false; /* nothing is kept */
	gpk_bn_forward_running(s, &eval, x, residual, y);
}

GPK_KERNEL GPK_BOUNDS(THREADS_TO_MOVE) end_step(struct gpk_bn n)
{
	const int64_t channel = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	if (channel >= n.channels)
		return;
	const double rows = n.merged[MERGED_ROWS * n.channels + channel];
	if (!(rows > 0.0))
		return;
	move_running(n, channel, n.momentum, channel_of(n, channel), n.merged[MERGED_MEAN * n.channels + channel],
		     n.merged[MERGED_SQUARES * n.channels + channel], rows);
	n.merged[MERGED_ROWS * n.channels + channel] = 0.0;
}

extern "C" void gpk_bn_end_step(struct gp_rt_stream *s, const struct gpk_bn *n)
{
	GPK_LAUNCH(s, end_step, (unsigned)gpk_div_up(n->channels, (int64_t)THREADS_TO_MOVE), THREADS_TO_MOVE, 0, *n);
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* Rows from, from + step, ... of what a pass reads; what is written is written after. */
template <typename T, int V, enum mask M>
GPK_DEVICE void read_rows(const struct gpk_bn &n, int64_t from, int64_t step, const T *x, const T *y, const T *dy,
			  float (&v)[AT_ONCE][V], float (&out)[AT_ONCE][V], float (&g)[AT_ONCE][V])
{
	GPK_UNROLL
	for (int k = 0; k < AT_ONCE; k++) {
		const int64_t r = from + k * step, at = r * n.channels + gpk_first_channel(V);
		if (r >= n.rows)
			continue;
		gpk_read<T, V>(v[k], x + at);
		gpk_read<T, V>(g[k], dy + at);
		if (M == MASK_FROM_Y)
			gpk_read<T, V>(out[k], y + at);
	}
}

template <typename T, int V, enum mask M>
GPK_KERNEL GPK_BOUNDS(GPK_STRIP_THREADS)
	sum_gradients(struct gpk_bn n, struct gpk_strips strips, struct limits l, const T *GPK_RESTRICT x,
		      const T *GPK_RESTRICT y, const T *dy, T *dresidual, double *room, float *coefficients,
		      float *dgamma, float *dbeta, uint32_t *tickets)
{
	const int64_t channel = gpk_first_channel(V), step = gpk_row_step(), channels = n.channels;
	float sums[2 * V] = {}, mean[V], a[V] = {}, b[V] = {};
	if (channel < channels) {
		gpk_read<float, V>(mean, n.saved + SAVED_MEAN * channels + channel);
		if (M == MASK_FROM_X) {
			gpk_read<float, V>(a, n.saved + SAVED_A * channels + channel);
			gpk_read<float, V>(b, n.saved + SAVED_B * channels + channel);
		}
		for (int64_t r = gpk_first_row(); r < strips.at.count; r += step) {
			const struct gpk_strip strip = gpk_strip_of(strips, r);
			const int64_t at = strip.first * channels + channel;
			float v[GPK_STRIP][V] = {}, g[GPK_STRIP][V] = {}, out[GPK_STRIP][V] = {};
			GPK_UNROLL
			for (int t = 0; t < GPK_STRIP; t++) {
				if (t >= strip.pixels)
					continue;
				gpk_read<T, V>(v[t], x + at + t * channels);
				gpk_read<T, V>(g[t], dy + at + t * channels);
				if (M == MASK_FROM_Y)
					gpk_read<T, V>(out[t], y + at + t * channels);
			}
			GPK_UNROLL
			for (int t = 0; t < GPK_STRIP; t++) {
				if (t >= strip.pixels)
					continue;
				mask_gradient<T, V, M>(g[t], a, b, v[t], out[t], l);
				if (dresidual)
					gpk_write<T, V>(dresidual + at + t * channels, g[t]);
				add_gradients<V>(sums, g[t], v[t], mean);
			}
		}
	}
	total_gradients<V>(n, sums, room, coefficients, dgamma, dbeta, tickets);
}

template <typename T, int V, enum mask M>
GPK_KERNEL GPK_BOUNDS(THREADS_TO_MOVE)
	gradient(struct gpk_bn n, struct limits l, const float *GPK_RESTRICT coefficients, const T *GPK_RESTRICT x,
		 const T *GPK_RESTRICT y, const T *dy, T *dx)
{
	const int64_t channel = gpk_first_channel(V), step = gpk_row_step(), channels = n.channels;
	float scale[V], shift[V], slope[V], mean[V], a[V] = {}, b[V] = {};
	if (channel >= channels)
		return;
	gpk_read<float, V>(mean, n.saved + SAVED_MEAN * channels + channel);
	gpk_read<float, V>(scale, coefficients + COEF_SCALE * channels + channel);
	gpk_read<float, V>(shift, coefficients + COEF_SHIFT * channels + channel);
	gpk_read<float, V>(slope, coefficients + COEF_SLOPE * channels + channel);
	if (M == MASK_FROM_X) {
		gpk_read<float, V>(a, n.saved + SAVED_A * channels + channel);
		gpk_read<float, V>(b, n.saved + SAVED_B * channels + channel);
	}
	for (int64_t from = gpk_first_row(); from < n.rows; from += AT_ONCE * step) {
		float v[AT_ONCE][V], g[AT_ONCE][V], out[AT_ONCE][V] = {};
		read_rows<T, V, M>(n, from, step, x, y, dy, v, out, g);
		GPK_UNROLL
		for (int k = 0; k < AT_ONCE; k++) {
			const int64_t r = from + k * step;
			mask_gradient<T, V, M>(g[k], a, b, v[k], out[k], l);
			GPK_UNROLL
			for (int i = 0; i < V; i++)
				g[k][i] = gradient_of(scale[i], shift[i], slope[i], mean[i], g[k][i], v[k][i]);
			if (r < n.rows)
				gpk_write<T, V>(dx + r * channels + channel, g[k]);
		}
	}
}

/* `g_out`: where g goes, or NULL. */
static void launch_sums(struct gp_rt_stream *s, const struct gpk_bn *n, enum mask mask, const void *x, const void *y,
			const void *dy, void *g_out, float *dgamma, float *dbeta)
{
	const struct gpk_tile t = gpk_strips_tile(n->channels);
	const struct gpk_strips strips = strips_of_norm(n);
	GPK_BY_TYPE(n->type, T,
		    GPK_BY_STRIP_VECTOR(n->channels, V, BY_MASK(mask, M, {
						GPK_LAUNCH(s, (sum_gradients<T, V, M>),
							   dim3(t.tiles, gpk_strips_parts(&strips, n->channels)),
							   t.block(), gpk_sums_shared(GPK_STRIP_THREADS, 2 * V), *n,
							   strips, limits_of(n->act), (const T *)x, (const T *)y,
							   (const T *)dy, (T *)g_out, sums_of(n), coefficients_of(n),
							   dgamma, dbeta, gp_rt_tickets(s));
					})));
}

static void launch_gradient(struct gp_rt_stream *s, const struct gpk_bn *n, enum mask mask, const void *x,
			    const void *y, const void *dy, void *dx)
{
	GPK_BY_TYPE(n->type, T,
		    GPK_BY_WIDTH(n->channels, T, V, BY_MASK(mask, M, {
					 const struct gpk_tile t = gpk_tile_of(n->channels / V, WIDE, THREADS_TO_MOVE);
					 const int64_t most =
						 most_blocks(t, GPK_RESIDENT(s, (gradient<T, V, M>), THREADS_TO_MOVE));
					 GPK_LAUNCH(s, (gradient<T, V, M>), t.grid(n->rows, AT_ONCE, most), t.block(),
						    0, *n, limits_of(n->act), coefficients_of(n), (const T *)x,
						    (const T *)y, (const T *)dy, (T *)dx);
				 })));
}

extern "C" void gpk_bn_backward(struct gp_rt_stream *s, const struct gpk_bn *n, const void *x, const void *y,
				const void *dy, void *dresidual, void *dx, float *dgamma, float *dbeta)
{
	const enum mask mask = mask_of(n, y);
	const bool same = mask == MASK_NONE && dresidual == dy;
	if (gpk_bn_at_once(n->rows, n->channels)) {
		gpk_bn_backward_at_once(s, n, x, y, dy, same ? NULL : dresidual, dx, dgamma, dbeta);
		return;
	}
	launch_sums(s, n, mask, x, y, dy, same ? NULL : dresidual, dgamma, dbeta);
	if (dx) /* the masked gradient lies in dresidual, where that is wanted */
		launch_gradient(s, n, dresidual ? MASK_NONE : mask, x, y, dresidual ? dresidual : dy, dx);
}

extern "C" void gpk_bn_backward_apply(struct gp_rt_stream *s, const struct gpk_bn *n, const void *x, const void *g,
				      void *dx)
{
	launch_gradient(s, n, MASK_NONE, x, NULL, g, dx);
}

/* --- backward of what the running statistics normalized ------------------------------------------------------------ */

template <typename T, int V, enum mask M>
GPK_KERNEL GPK_BOUNDS(THREADS_TO_MOVE)
	gradient_running(struct gpk_bn n, struct limits l, const T *x, const T *y, const T *dy, T *dresidual, T *dx)
{
	const int64_t channel = gpk_first_channel(V), step = gpk_row_step(), channels = n.channels;
	float a[V], b[V];
	running_affine<V>(n, a, b, false);
	if (channel >= channels)
		return;
	for (int64_t from = gpk_first_row(); from < n.rows; from += AT_ONCE * step) {
		float v[AT_ONCE][V], g[AT_ONCE][V], out[AT_ONCE][V] = {};
		read_rows<T, V, M>(n, from, step, x, y, dy, v, out, g);
		GPK_UNROLL
		for (int k = 0; k < AT_ONCE; k++) {
			const int64_t r = from + k * step;
			if (r >= n.rows)
				continue;
			mask_gradient<T, V, M>(g[k], a, b, v[k], out[k], l);
			if (dresidual)
				gpk_write<T, V>(dresidual + r * channels + channel, g[k]);
			GPK_UNROLL
			for (int i = 0; i < V; i++)
				g[k][i] *= a[i];
			if (dx)
				gpk_write<T, V>(dx + r * channels + channel, g[k]);
		}
	}
}

extern "C" void gpk_bn_backward_frozen(struct gp_rt_stream *s, const struct gpk_bn *n, const void *x, const void *y,
				       const void *dy, void *dresidual, void *dx)
{
	const enum mask mask = mask_of(n, y);
	GPK_BY_TYPE(n->type, T,
		    GPK_BY_WIDTH(n->channels, T, V, BY_MASK(mask, M, {
					 const struct gpk_tile t = gpk_tile_of(n->channels / V, WIDE, THREADS_TO_MOVE);
					 const int64_t most = most_blocks(
						 t, GPK_RESIDENT(s, (gradient_running<T, V, M>), THREADS_TO_MOVE));
					 GPK_LAUNCH(s, (gradient_running<T, V, M>), t.grid(n->rows, AT_ONCE, most),
						    t.block(), 0, *n, limits_of(n->act), (const T *)x, (const T *)y,
						    (const T *)dy, (T *)dresidual, (T *)dx);
				 })));
}
