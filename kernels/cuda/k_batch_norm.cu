/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch normalization with residual and activation. See k_batch_norm.h. Every
 * pass over the rows is bound by memory: forward reads x twice (the second
 * time from L2 where a chunk fits), backward x and dy.
 * Test: tests/unit/test_cuda_batch_norm.c
 */
#include "kernels/cuda/k_batch_norm.h"

#include <math.h>

#include "kernels/cuda/gpk_sums.h"

#define THREADS      GPK_SUMS_THREADS
#define WIDE         64
/* Lines of `channels` floats before the sums in the room. */
#define COEFFICIENTS 3
enum { COEF_SCALE, COEF_MEAN, COEF_SLOPE };
enum { KEPT_MEAN, KEPT_INVSTD, KEPT_A, KEPT_B };

struct limits {
	float low, high;
};

static struct limits limits_of(enum gpk_act act)
{
	const float most = INFINITY;
	return {act == GPK_ACT_NONE ? -most : 0, act == GPK_ACT_RELU6 ? 6 : most};
}

/* NaN passes, as PyTorch's do. */
GPK_DEVICE float limited(float v, struct limits l)
{
	return v < l.low ? l.low : v > l.high ? l.high : v;
}
GPK_DEVICE float passed(float g, float v, struct limits l)
{
	return v <= l.low || v >= l.high ? 0 : g;
}

/* The first of the thread's channels, and its rows. */
GPK_DEVICE int64_t first_channel(int width)
{
	return ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * width;
}
GPK_DEVICE int64_t first_row(void)
{
	return (int64_t)blockIdx.y * blockDim.y + threadIdx.y;
}
GPK_DEVICE int64_t row_step(void)
{
	return (int64_t)gridDim.y * blockDim.y;
}

static float *coefficients_of(const struct gpk_bn *n)
{
	return (float *)n->room;
}
static uint64_t coefficient_bytes(int64_t channels)
{
	return (uint64_t)gpk_div_up(COEFFICIENTS * channels, 2) * sizeof(double);
}
static double *sums_of(const struct gpk_bn *n)
{
	return (double *)((char *)n->room + coefficient_bytes(n->channels));
}

extern "C" uint64_t gpk_bn_room(enum gp_rt_type type, int64_t rows, int64_t channels)
{
	return coefficient_bytes(channels) + gpk_sums_room(type, rows, channels, 2);
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

/* Sums of x - shift and of its square; the shift, row 0, keeps the square's digits when the mean is far from zero. */
template <typename T, int V>
GPK_KERNEL GPK_BOUNDS(THREADS)
	sum_values(int64_t rows, int64_t channels, const T *GPK_RESTRICT x, double *GPK_RESTRICT room)
{
	const int64_t channel = first_channel(V), step = row_step();
	float sums[2 * V] = {}, shift[V], v[V];
	if (channel < channels) {
		gpk_read<T, V>(shift, x + channel);
		GPK_UNROLL_BY(4)
		for (int64_t r = first_row(); r < rows; r += step) {
			gpk_read<T, V>(v, x + r * channels + channel);
			GPK_UNROLL
			for (int i = 0; i < V; i++) {
				const float d = v[i] - shift[i];
				sums[i] += d;
				sums[V + i] += d * d;
			}
		}
	}
	gpk_fold_rows<2, V>(sums, channels, room);
}

GPK_DEVICE void set_affine(const struct gpk_bn &n, int64_t channel, double mean, double invstd)
{
	const double a = (double)n.gamma[channel] * invstd;
	n.kept[KEPT_A * n.channels + channel] = (float)a;
	n.kept[KEPT_B * n.channels + channel] = (float)((double)n.beta[channel] - mean * a);
}

GPK_DEVICE void move_running(float *at, float momentum, double to)
{
	const double m = (double)momentum;
	*at = (float)(m * to + (1.0 - m) * (double)*at);
}

template <typename T>
GPK_KERNEL GPK_BOUNDS(GPK_TOTAL_THREADS)
	finish_values(struct gpk_bn n, int parts, const T *GPK_RESTRICT x, const double *GPK_RESTRICT room)
{
	double sum[2];
	const int64_t channel = gpk_total_columns<2>(parts, n.channels, room, sum);
	if (channel < 0)
		return;
	const double rows = (double)n.rows, away = sum[0] / rows;
	const double mean = (double)gpk_get(x[channel]) + away, spread = sum[1] / rows - away * away;
	const double var = spread < 0 ? 0 : spread, invstd = 1.0 / sqrt(var + (double)n.eps);
	n.kept[KEPT_MEAN * n.channels + channel] = (float)mean;
	n.kept[KEPT_INVSTD * n.channels + channel] = (float)invstd;
	set_affine(n, channel, mean, invstd);
	move_running(&n.running_mean[channel], n.momentum, mean);
	move_running(&n.running_var[channel], n.momentum, n.rows > 1 ? var * rows / (rows - 1) : var);
}

GPK_KERNEL GPK_BOUNDS(THREADS) affine_of_running(struct gpk_bn n)
{
	const int64_t channel = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	if (channel < n.channels)
		set_affine(n, channel, (double)n.running_mean[channel],
			   1.0 / sqrt((double)n.running_var[channel] + (double)n.eps));
}

template <typename T, int V, bool RESIDUAL>
GPK_KERNEL GPK_BOUNDS(THREADS) normalize(int64_t rows, int64_t channels, const float *GPK_RESTRICT kept,
					 struct limits l, const T *x, const T *residual, T *y)
{
	const int64_t channel = first_channel(V), step = row_step();
	float a[V], b[V], v[V], add[V] = {};
	if (channel >= channels)
		return;
	gpk_read<float, V>(a, kept + KEPT_A * channels + channel);
	gpk_read<float, V>(b, kept + KEPT_B * channels + channel);
	for (int64_t r = first_row(); r < rows; r += step) {
		const int64_t at = r * channels + channel;
		gpk_read<T, V>(v, x + at);
		if (RESIDUAL)
			gpk_read<T, V>(add, residual + at);
		GPK_UNROLL
		for (int i = 0; i < V; i++) {
			const float affine = gpk_rounded<T>(__fmaf_rn(a[i], v[i], b[i]));
			v[i] = limited(RESIDUAL ? gpk_rounded<T>(__fadd_rn(affine, add[i])) : affine, l);
		}
		gpk_write<T, V>(y + at, v);
	}
}

static void launch_normalize(struct gp_rt_stream *s, const struct gpk_bn *n, const void *x, const void *residual,
			     void *y)
{
	const struct limits l = limits_of(n->act);
	const int64_t rows = n->rows, channels = n->channels;
	GPK_BY_TYPE(n->type, T, GPK_BY_WIDTH(channels, T, V, {
			    const struct gpk_tile t = gpk_tile_of(channels / V, WIDE, THREADS);
			    const dim3 grid = t.grid(rows, 2, 16 * GPK_BUSY_BLOCKS);
			    if (residual)
				    GPK_LAUNCH(s, (normalize<T, V, true>), grid, t.block(), 0, rows, channels, n->kept,
					       l, (const T *)x, (const T *)residual, (T *)y);
			    else
				    GPK_LAUNCH(s, (normalize<T, V, false>), grid, t.block(), 0, rows, channels, n->kept,
					       l, (const T *)x, (const T *)nullptr, (T *)y);
		    }));
}

extern "C" void gpk_bn_forward(struct gp_rt_stream *s, const struct gpk_bn *n, const void *x, const void *residual,
			       void *y)
{
	const unsigned finishers = (unsigned)gpk_div_up(n->channels, GPK_TOTAL_WIDE);
	double *const room = sums_of(n);
	GPK_BY_TYPE(n->type, T, {
		int parts = 0;
		GPK_BY_WIDTH(n->channels, T, V, {
			const struct gpk_tile t = gpk_tile_of(n->channels / V, GPK_SUMS_WIDE, THREADS);
			parts = gpk_sums_parts(n->rows, t);
			GPK_LAUNCH(s, (sum_values<T, V>), dim3(t.tiles, parts), t.block(),
				   THREADS * 2 * V * sizeof(float), n->rows, n->channels, (const T *)x, room);
		});
		GPK_LAUNCH(s, finish_values<T>, finishers, gpk_total_block(), 0, *n, parts, (const T *)x,
			   (const double *)room);
	});
	launch_normalize(s, n, x, residual, y);
}

extern "C" void gpk_bn_forward_eval(struct gp_rt_stream *s, const struct gpk_bn *n, const void *x, const void *residual,
				    void *y)
{
	GPK_LAUNCH(s, affine_of_running, (unsigned)gpk_div_up(n->channels, THREADS), THREADS, 0, *n);
	launch_normalize(s, n, x, residual, y);
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* Where a pass finds whether the activation let a gradient through. */
enum mask { MASK_NONE, MASK_FROM_X, MASK_FROM_Y };

/* g of V channels: dy behind the mask. */
template <typename T, int V, enum mask M>
GPK_DEVICE void gradient_of(const T *dy, const T *y, int64_t at, const float (&a)[V], const float (&b)[V],
			    const float (&x)[V], struct limits l, float (&g)[V])
{
	float out[V];
	gpk_read<T, V>(g, dy + at);
	if (M == MASK_FROM_Y)
		gpk_read<T, V>(out, y + at);
	GPK_UNROLL
	for (int i = 0; i < V; i++) {
		if (M == MASK_FROM_X)
			out[i] = gpk_rounded<T>(__fmaf_rn(a[i], x[i], b[i]));
		if (M != MASK_NONE)
			g[i] = passed(g[i], out[i], l);
	}
}

template <typename T, int V, enum mask M>
GPK_KERNEL GPK_BOUNDS(THREADS) sum_gradients(int64_t rows, int64_t channels, const float *GPK_RESTRICT kept,
					     struct limits l, const T *GPK_RESTRICT x, const T *GPK_RESTRICT y,
					     const T *dy, T *dresidual, double *GPK_RESTRICT room)
{
	const int64_t channel = first_channel(V), step = row_step();
	float sums[2 * V] = {}, mean[V], a[V] = {}, b[V] = {}, v[V], g[V];
	if (channel < channels) {
		gpk_read<float, V>(mean, kept + KEPT_MEAN * channels + channel);
		if (M == MASK_FROM_X) {
			gpk_read<float, V>(a, kept + KEPT_A * channels + channel);
			gpk_read<float, V>(b, kept + KEPT_B * channels + channel);
		}
		GPK_UNROLL_BY(2)
		for (int64_t r = first_row(); r < rows; r += step) {
			const int64_t at = r * channels + channel;
			gpk_read<T, V>(v, x + at);
			gradient_of<T, V, M>(dy, y, at, a, b, v, l, g);
			if (dresidual)
				gpk_write<T, V>(dresidual + at, g);
			GPK_UNROLL
			for (int i = 0; i < V; i++) {
				sums[i] += g[i];
				sums[V + i] += g[i] * (v[i] - mean[i]);
			}
		}
	}
	gpk_fold_rows<2, V>(sums, channels, room);
}

GPK_KERNEL GPK_BOUNDS(GPK_TOTAL_THREADS) finish_gradients(struct gpk_bn n, int parts, const double *GPK_RESTRICT room,
							  float *GPK_RESTRICT coefficients, float *dgamma, float *dbeta)
{
	double sum[2];
	const int64_t channel = gpk_total_columns<2>(parts, n.channels, room, sum);
	if (channel < 0)
		return;
	const double invstd = (double)n.kept[KEPT_INVSTD * n.channels + channel], rows = (double)n.rows;
	dbeta[channel] += (float)sum[0];
	dgamma[channel] += (float)(sum[1] * invstd);
	coefficients[COEF_SCALE * n.channels + channel] = (float)((double)n.gamma[channel] * invstd);
	coefficients[COEF_MEAN * n.channels + channel] = (float)(sum[0] / rows);
	coefficients[COEF_SLOPE * n.channels + channel] = (float)(sum[1] * invstd * invstd / rows);
}

template <typename T, int V, enum mask M>
GPK_KERNEL GPK_BOUNDS(THREADS)
	gradient(int64_t rows, int64_t channels, const float *GPK_RESTRICT kept, const float *GPK_RESTRICT coefficients,
		 struct limits l, const T *GPK_RESTRICT x, const T *GPK_RESTRICT y, const T *dy, T *dx)
{
	const int64_t channel = first_channel(V), step = row_step();
	float scale[V], shift[V], slope[V], mean[V], a[V] = {}, b[V] = {}, v[V], g[V];
	if (channel >= channels)
		return;
	gpk_read<float, V>(mean, kept + KEPT_MEAN * channels + channel);
	gpk_read<float, V>(scale, coefficients + COEF_SCALE * channels + channel);
	gpk_read<float, V>(shift, coefficients + COEF_MEAN * channels + channel);
	gpk_read<float, V>(slope, coefficients + COEF_SLOPE * channels + channel);
	if (M == MASK_FROM_X) {
		gpk_read<float, V>(a, kept + KEPT_A * channels + channel);
		gpk_read<float, V>(b, kept + KEPT_B * channels + channel);
	}
	for (int64_t r = first_row(); r < rows; r += step) {
		const int64_t at = r * channels + channel;
		gpk_read<T, V>(v, x + at);
		gradient_of<T, V, M>(dy, y, at, a, b, v, l, g);
		GPK_UNROLL
		for (int i = 0; i < V; i++)
			g[i] = scale[i] * (g[i] - shift[i] - (v[i] - mean[i]) * slope[i]);
		gpk_write<T, V>(dx + at, g);
	}
}

#define BY_MASK(mask, M, ...)                                                                                          \
	do {                                                                                                           \
		if ((mask) == MASK_NONE) {                                                                             \
			constexpr enum mask M = MASK_NONE;                                                             \
			__VA_ARGS__;                                                                                   \
		} else if ((mask) == MASK_FROM_X) {                                                                    \
			constexpr enum mask M = MASK_FROM_X;                                                           \
			__VA_ARGS__;                                                                                   \
		} else {                                                                                               \
			constexpr enum mask M = MASK_FROM_Y;                                                           \
			__VA_ARGS__;                                                                                   \
		}                                                                                                      \
	} while (0)

/* Returns the number of parts. `g_out`: where g goes, or NULL. */
static int launch_sums(struct gp_rt_stream *s, const struct gpk_bn *n, enum mask mask, const void *x, const void *y,
		       const void *dy, void *g_out)
{
	const struct limits l = limits_of(n->act);
	int parts = 0;
	GPK_BY_TYPE(n->type, T,
		    GPK_BY_WIDTH(n->channels, T, V, BY_MASK(mask, M, {
					 const struct gpk_tile t = gpk_tile_of(n->channels / V, GPK_SUMS_WIDE, THREADS);
					 parts = gpk_sums_parts(n->rows, t);
					 GPK_LAUNCH(s, (sum_gradients<T, V, M>), dim3(t.tiles, parts), t.block(),
						    THREADS * 2 * V * sizeof(float), n->rows, n->channels, n->kept, l,
						    (const T *)x, (const T *)y, (const T *)dy, (T *)g_out, sums_of(n));
				 })));
	return parts;
}

static void launch_gradient(struct gp_rt_stream *s, const struct gpk_bn *n, enum mask mask, const void *x,
			    const void *y, const void *dy, void *dx)
{
	const struct limits l = limits_of(n->act);
	GPK_BY_TYPE(n->type, T,
		    GPK_BY_WIDTH(n->channels, T, V, BY_MASK(mask, M, {
					 const struct gpk_tile t = gpk_tile_of(n->channels / V, WIDE, THREADS);
					 GPK_LAUNCH(s, (gradient<T, V, M>), t.grid(n->rows, 2, 16 * GPK_BUSY_BLOCKS),
						    t.block(), 0, n->rows, n->channels, n->kept, coefficients_of(n), l,
						    (const T *)x, (const T *)y, (const T *)dy, (T *)dx);
				 })));
}

extern "C" void gpk_bn_backward(struct gp_rt_stream *s, const struct gpk_bn *n, const void *x, const void *y,
				const void *dy, void *dresidual, void *dx, float *dgamma, float *dbeta)
{
	const enum mask mask = n->act == GPK_ACT_NONE ? MASK_NONE : y ? MASK_FROM_Y : MASK_FROM_X;
	const bool same = mask == MASK_NONE && dresidual == dy;
	const int parts = launch_sums(s, n, mask, x, y, dy, same ? NULL : dresidual);
	GPK_LAUNCH(s, finish_gradients, (unsigned)gpk_div_up(n->channels, GPK_TOTAL_WIDE), gpk_total_block(), 0, *n,
		   parts, (const double *)sums_of(n), coefficients_of(n), dgamma, dbeta);
	if (dx) /* the masked gradient lies in dresidual, where that is wanted */
		launch_gradient(s, n, dresidual ? MASK_NONE : mask, x, y, dresidual ? dresidual : dy, dx);
}
