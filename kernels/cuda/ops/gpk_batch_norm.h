/* SPDX-License-Identifier: Apache-2.0
 *
 * What both ways of batch normalization share: the arithmetic of one element
 * and of one channel. Only for k_batch_norm*.cu, whose results are the same
 * formulas over sums of different orders.
 *
 * Threads: those of a kernel, on the device. Test: tests/unit/test_cuda_batch_norm.c,
 * tests/unit/test_cuda_launches.c
 */
#ifndef GPK_BATCH_NORM_H
#define GPK_BATCH_NORM_H

#include <math.h>

#include "kernels/cuda/runtime/gpk_sums.h"
#include "kernels/cuda/ops/k_batch_norm.h"

/* Few rows: few enough for one block's registers. By shape alone. k_batch_norm_rows.cu */
bool gpk_bn_at_once(int64_t rows, int64_t channels);
void gpk_bn_forward_at_once(struct gp_rt_stream *s, const struct gpk_bn *n, const void *x, const void *residual,
			    void *y);
void gpk_bn_backward_at_once(struct gp_rt_stream *s, const struct gpk_bn *n, const void *x, const void *y,
			     const void *dy, void *dresidual, void *dx, float *dgamma, float *dbeta);

#define THREADS GPK_SUMS_THREADS
enum { SAVED_MEAN, SAVED_INVSTD, SAVED_A, SAVED_B };

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

/* --- forward ------------------------------------------------------------------------------------------------------ */

/* What a channel's statistics make of it. */
struct affine {
	float a, b;
};

GPK_DEVICE struct affine affine_of(float gamma, float beta, double mean, double invstd)
{
	const double a = (double)gamma * invstd;
	return {(float)a, (float)((double)beta - mean * a)};
}

/* Read before sums are there: the way to memory and back is long beside what a launch of few rows does. */
struct of_channel {
	float gamma, beta, running_mean, running_var;
};

GPK_DEVICE struct of_channel channel_of(const struct gpk_bn &n, int64_t channel)
{
	if (channel < 0)
		return {};
	return {n.gamma[channel], n.beta[channel], n.running_mean[channel], n.running_var[channel]};
}

GPK_DEVICE float moved(float from, float momentum, double to)
{
	const double m = (double)momentum;
	return (float)(m * to + (1.0 - m) * (double)from);
}

/* From a channel's sums of x - shift and of its square: keeps what backward reads, moves the running statistics. */
GPK_DEVICE struct affine finish_values(const struct gpk_bn &n, int64_t channel, const struct of_channel &of,
				       double shift, double away_sum, double square_sum)
{
	const double rows = (double)n.rows, away = away_sum / rows;
	const double mean = shift + away, spread = square_sum / rows - away * away;
	const double var = spread < 0 ? 0 : spread, invstd = 1.0 / sqrt(var + (double)n.eps);
	const struct affine f = affine_of(of.gamma, of.beta, mean, invstd);
	n.saved[SAVED_MEAN * n.channels + channel] = (float)mean;
	n.saved[SAVED_INVSTD * n.channels + channel] = (float)invstd;
	n.saved[SAVED_A * n.channels + channel] = f.a;
	n.saved[SAVED_B * n.channels + channel] = f.b;
	n.running_mean[channel] = moved(of.running_mean, n.momentum, mean);
	n.running_var[channel] = moved(of.running_var, n.momentum, n.rows > 1 ? var * rows / (rows - 1) : var);
	return f;
}

/* The shift, row 0, keeps the square's digits when the mean is far from zero. */
template <int V> GPK_DEVICE void add_values(float (&sums)[2 * V], const float (&v)[V], const float (&shift)[V])
{
	GPK_UNROLL
	for (int i = 0; i < V; i++) {
		const float d = v[i] - shift[i];
		sums[i] += d;
		sums[V + i] += d * d;
	}
}

template <typename T, bool RESIDUAL> GPK_DEVICE float output_of(float a, float b, float x, float add, struct limits l)
{
	const float affine = gpk_rounded<T>(__fmaf_rn(a, x, b));
	return limited(RESIDUAL ? gpk_rounded<T>(__fadd_rn(affine, add)) : affine, l);
}

/* Runs the rest with R: whether there is a residual. */
#define BY_RESIDUAL(residual, R, ...)                                                                                  \
	do {                                                                                                           \
		if (residual) {                                                                                        \
			constexpr bool R = true;                                                                       \
			__VA_ARGS__;                                                                                   \
		} else {                                                                                               \
			constexpr bool R = false;                                                                      \
			__VA_ARGS__;                                                                                   \
		}                                                                                                      \
	} while (0)

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* Where a pass finds whether the activation let a gradient through. */
enum mask { MASK_NONE, MASK_FROM_X, MASK_FROM_Y };

static inline enum mask mask_of(const struct gpk_bn *n, const void *y)
{
	return n->act == GPK_ACT_NONE ? MASK_NONE : y ? MASK_FROM_Y : MASK_FROM_X;
}

#define BY_MASK(which, M, ...)                                                                                         \
	do {                                                                                                           \
		if ((which) == MASK_NONE) {                                                                            \
			constexpr enum mask M = MASK_NONE;                                                             \
			__VA_ARGS__;                                                                                   \
		} else if ((which) == MASK_FROM_X) {                                                                   \
			constexpr enum mask M = MASK_FROM_X;                                                           \
			__VA_ARGS__;                                                                                   \
		} else {                                                                                               \
			constexpr enum mask M = MASK_FROM_Y;                                                           \
			__VA_ARGS__;                                                                                   \
		}                                                                                                      \
	} while (0)

/* g of V channels: dy, in g, behind the mask; `y` for MASK_FROM_Y. */
template <typename T, int V, enum mask M>
GPK_DEVICE void mask_gradient(float (&g)[V], const float (&a)[V], const float (&b)[V], const float (&x)[V],
			      const float (&y)[V], struct limits l)
{
	GPK_UNROLL
	for (int i = 0; i < V && M != MASK_NONE; i++) {
		const float out = M == MASK_FROM_Y ? y[i] : gpk_rounded<T>(__fmaf_rn(a[i], x[i], b[i]));
		g[i] = passed(g[i], out, l);
	}
}

template <int V>
GPK_DEVICE void add_gradients(float (&sums)[2 * V], const float (&g)[V], const float (&x)[V], const float (&mean)[V])
{
	GPK_UNROLL
	for (int i = 0; i < V; i++) {
		sums[i] += g[i];
		sums[V + i] += g[i] * (x[i] - mean[i]);
	}
}

/* dx = scale (g - shift - (x - mean) slope) */
struct coefficients {
	float scale, shift, slope;
};

/* As of_channel. */
struct grads_of_channel {
	float gamma, invstd, dgamma, dbeta;
};

GPK_DEVICE struct grads_of_channel grads_of(const struct gpk_bn &n, int64_t channel, const float *dgamma,
					    const float *dbeta)
{
	if (channel < 0)
		return {};
	return {n.gamma[channel], n.saved[SAVED_INVSTD * n.channels + channel], dgamma ? dgamma[channel] : 0,
		dbeta ? dbeta[channel] : 0};
}

/* From a channel's sums of g and of g (x - mean): adds to the parameters' gradients. */
GPK_DEVICE struct coefficients finish_gradients(const struct gpk_bn &n, int64_t channel,
						const struct grads_of_channel &of, double sum, double moment,
						float *dgamma, float *dbeta)
{
	const double invstd = (double)of.invstd, rows = (double)n.rows;
	if (dbeta)
		dbeta[channel] = of.dbeta + (float)sum;
	if (dgamma)
		dgamma[channel] = of.dgamma + (float)(moment * invstd);
	return {(float)((double)of.gamma * invstd), (float)(sum / rows), (float)(moment * invstd * invstd / rows)};
}

GPK_DEVICE float gradient_of(float scale, float shift, float slope, float mean, float g, float x)
{
	return scale * (g - shift - (x - mean) * slope);
}

#endif
