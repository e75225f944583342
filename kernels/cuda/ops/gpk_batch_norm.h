/* SPDX-License-Identifier: Apache-2.0
 *
 * What both ways of batch normalization share: the arithmetic of one element
 * and of one channel. Results of both are the same formulas over sums of
 * different orders. Only for k_*.cu and gpk_*.h.
 *
 * Threads: those of a kernel, on the device. Test: tests/unit/test_cuda_batch_norm.c,
 * tests/unit/test_cuda_launches.c
 */
#ifndef GPK_BATCH_NORM_H
#define GPK_BATCH_NORM_H

#include <math.h>

#include "kernels/cuda/ops/gpk_strips.h"
#include "kernels/cuda/ops/k_batch_norm.h"

/* Few rows: few enough for one block's registers. By shape alone. k_batch_norm_rows.cu */
void gpk_bn_forward_at_once(struct gp_rt_stream *s, const struct gpk_bn *n, const void *x, const void *residual,
			    void *y);
void gpk_bn_backward_at_once(struct gp_rt_stream *s, const struct gpk_bn *n, const void *x, const void *y,
			     const void *dy, void *dresidual, void *dx, float *dgamma, float *dbeta);

enum { SAVED_MEAN, SAVED_INVSTD, SAVED_A, SAVED_B, SAVED_R, SAVED_D };
enum { MERGED_ROWS, MERGED_MEAN, MERGED_SQUARES };
/* Lines of `channels` floats before the sums in the room. */
#define COEFFICIENTS 3
enum { COEF_SCALE, COEF_SHIFT, COEF_SLOPE };

static inline float *coefficients_of(const struct gpk_bn *n)
{
	return (float *)n->room;
}
static inline uint64_t coefficient_bytes(int64_t channels)
{
	return (uint64_t)gpk_div_up(COEFFICIENTS * channels, 2) * sizeof(double);
}
static inline double *sums_of(const struct gpk_bn *n)
{
	return (double *)((char *)n->room + coefficient_bytes(n->channels));
}

/* The strips of its images; where their shape is not known, its rows one after another. */
static inline struct gpk_strips strips_of_norm(const struct gpk_bn *n)
{
	const int64_t pixels = n->high * n->wide;
	return pixels > 0 ? gpk_strips_of(n->rows / pixels, n->high, n->wide) : gpk_strips_of(1, 1, n->rows);
}

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

/* The normalized value times r, plus d: 1 and 0 but for renorm. */
GPK_DEVICE struct affine affine_of(float gamma, float beta, double mean, double invstd, double r, double d)
{
	const double a = (double)gamma * r * invstd;
	return {(float)a, (float)((double)beta + (double)gamma * d - mean * a)};
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
	return (float)(m < 1.0 ? m * to + (1.0 - m) * (double)from : to);
}

/* r and d of a channel: gp_bn_limits of op_batch_norm.h, then Ioffe 2017, algorithm 1. */
struct correction {
	float r, d;
};

GPK_DEVICE double within(double low, double v, double high)
{
	return v < low ? low : v > high ? high : v;
}

GPK_DEVICE struct correction correction_of(const struct gpk_bn &n, const struct of_channel &of, double mean, double var)
{
	const uint64_t updates = *n.updates, w = (uint64_t)n.warmup;
	double part = updates < w ? 0.0 : w == 0 ? 1.0 : (double)(updates - w + 1) / (double)w;
	part = part < 1.0 ? part : 1.0;
	const double most_r = 1.0 + ((double)n.r_max - 1.0) * part, most_d = (double)n.d_max * part;
	const double sigma = sqrt((double)of.running_var + (double)n.eps);
	return {(float)within(1.0 / most_r, sqrt(var + (double)n.eps) / sigma, most_r),
		(float)within(-most_d, (mean - (double)of.running_mean) / sigma, most_d)};
}

/* Chan, Golub and LeVeque's merge, as gp_bn_merge of the CPU; *mean and *squares: of all rows so far, which come back. */
GPK_DEVICE double merge(const struct gpk_bn &n, int64_t channel, double *mean, double *squares)
{
	double *const rows_at = n.merged + MERGED_ROWS * n.channels + channel;
	double *const mean_at = n.merged + MERGED_MEAN * n.channels + channel;
	double *const squares_at = n.merged + MERGED_SQUARES * n.channels + channel;
	const double before = *rows_at, more = (double)n.rows, all = before + more;
	const double away = *mean - (before > 0.0 ? *mean_at : *mean), old = before > 0.0 ? *squares_at : 0.0;
	*rows_at = all;
	*mean_at = *mean -= away * (before / all);
	*squares_at = *squares = old + (*squares + away * away * (before * more / all));
	return all;
}

/* The running statistics of a channel move towards those of so many rows. */
GPK_DEVICE void move_running(const struct gpk_bn &n, int64_t channel, float momentum, const struct of_channel &of,
			     double mean, double squares, double rows)
{
	n.running_mean[channel] = moved(of.running_mean, momentum, mean);
	n.running_var[channel] = moved(of.running_var, momentum, squares / (rows > 1 ? rows - 1 : 1));
}

GPK_DEVICE void note_statistics(const struct gpk_bn &n, int64_t channel, const struct of_channel &of, double mean,
				double var)
{
	double rows = (double)n.rows, squares = var * rows;
	if (n.use == GPK_BN_MERGE || n.use == GPK_BN_TAKE)
		rows = merge(n, channel, &mean, &squares);
	if (n.use == GPK_BN_MOVE || n.use == GPK_BN_TAKE)
		move_running(n, channel, n.use == GPK_BN_TAKE ? 1.0f : n.momentum, of, mean, squares, rows);
}

/* From a channel's sums of x - shift and of its square: keeps what backward reads, moves the running statistics. */
GPK_DEVICE struct affine finish_values(const struct gpk_bn &n, int64_t channel, const struct of_channel &of,
				       double shift, double away_sum, double square_sum)
{
	const double rows = (double)n.rows, away = away_sum / rows;
	const double mean = shift + away, spread = square_sum / rows - away * away;
	const double var = spread < 0 ? 0 : spread, invstd = 1.0 / sqrt(var + (double)n.eps);
	const struct correction fix = n.renorm ? correction_of(n, of, mean, var) : correction{1, 0};
	const struct affine f = affine_of(of.gamma, of.beta, mean, invstd, (double)fix.r, (double)fix.d);
	n.saved[SAVED_MEAN * n.channels + channel] = (float)mean;
	n.saved[SAVED_INVSTD * n.channels + channel] = (float)invstd;
	n.saved[SAVED_A * n.channels + channel] = f.a;
	n.saved[SAVED_B * n.channels + channel] = f.b;
	if (n.renorm) {
		n.saved[SAVED_R * n.channels + channel] = fix.r;
		n.saved[SAVED_D * n.channels + channel] = fix.d;
	}
	note_statistics(n, channel, of, mean, var);
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

/*
 * The end of a kernel over strips that has added up values of its channels: makes of the sums what finish_values does.
 * Every thread of the block must come; `shift` of lanes beyond the channels is of no account.
 */
template <int V>
GPK_DEVICE void total_values(const struct gpk_bn &n, const float (&shift)[V], const float (&sums)[2 * V], double *room,
			     uint32_t *tickets)
{
	GPK_SHARED(float, shifts, [GPK_SUMS_WIDE * V]);
	double sum[2];
	GPK_UNROLL
	for (int i = 0; i < V && threadIdx.y == 0; i++)
		shifts[threadIdx.x * V + i] = shift[i];
	gpk_fold_rows<2, V>(sums, n.channels, room);
	if (!gpk_last_part(tickets, blockIdx.x))
		return;
	const int64_t mine = gpk_total_parts<2, V>(n.channels, room, sum);
	if (mine >= 0)
		finish_values(n, mine, channel_of(n, mine), (double)shifts[gpk_linear_thread()], sum[0], sum[1]);
}

/* What backward, and a reader that normalizes, read of a channel's running statistics, and what those make of it. */
GPK_DEVICE struct affine running_channel(const struct gpk_bn &n, int64_t channel, bool keep)
{
	const float mean = n.running_mean[channel];
	const double invstd = 1.0 / sqrt((double)n.running_var[channel] + (double)n.eps);
	const struct affine f = affine_of(n.gamma[channel], n.beta[channel], (double)mean, invstd, 1.0, 0.0);
	if (keep) {
		n.saved[SAVED_MEAN * n.channels + channel] = mean;
		n.saved[SAVED_INVSTD * n.channels + channel] = (float)invstd;
		n.saved[SAVED_A * n.channels + channel] = f.a;
		n.saved[SAVED_B * n.channels + channel] = f.b;
	}
	return f;
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
	struct correction fix;
};

GPK_DEVICE struct grads_of_channel grads_of(const struct gpk_bn &n, int64_t channel, const float *dgamma,
					    const float *dbeta)
{
	if (channel < 0)
		return {};
	const float *const fix = n.renorm ? n.saved + channel : nullptr;
	return {n.gamma[channel],
		n.saved[SAVED_INVSTD * n.channels + channel],
		dgamma ? dgamma[channel] : 0,
		dbeta ? dbeta[channel] : 0,
		{fix ? fix[SAVED_R * n.channels] : 1, fix ? fix[SAVED_D * n.channels] : 0}};
}

/* From a channel's sums of g and of g (x - mean): adds to the parameters' gradients. */
GPK_DEVICE struct coefficients finish_gradients(const struct gpk_bn &n, int64_t channel,
						const struct grads_of_channel &of, double sum, double moment,
						float *dgamma, float *dbeta)
{
	const double invstd = (double)of.invstd, rows = (double)n.rows, r = (double)of.fix.r, d = (double)of.fix.d;
	const double by_gamma = n.renorm ? moment * invstd * r + sum * d : moment * invstd;
	if (dbeta)
		dbeta[channel] = of.dbeta + (float)sum;
	if (dgamma)
		dgamma[channel] = of.dgamma + (float)by_gamma;
	const float scale = (float)((double)of.gamma * invstd * r);
	if (n.fixed)
		return {scale, 0, 0};
	return {scale, (float)(sum / rows), (float)(moment * invstd * invstd / rows)};
}

/* As total_values, for sums of gradients: fills the coefficients. */
template <int V>
GPK_DEVICE void total_gradients(const struct gpk_bn &n, const float (&sums)[2 * V], double *room, float *coefficients,
				float *dgamma, float *dbeta, uint32_t *tickets)
{
	double sum[2];
	gpk_fold_rows<2, V>(sums, n.channels, room);
	if (!gpk_last_part(tickets, blockIdx.x))
		return;
	const int64_t mine = gpk_total_parts<2, V>(n.channels, room, sum);
	if (mine < 0)
		return;
	const struct coefficients c =
		finish_gradients(n, mine, grads_of(n, mine, dgamma, dbeta), sum[0], sum[1], dgamma, dbeta);
	coefficients[COEF_SCALE * n.channels + mine] = c.scale;
	coefficients[COEF_SHIFT * n.channels + mine] = c.shift;
	coefficients[COEF_SLOPE * n.channels + mine] = c.slope;
}

GPK_DEVICE float gradient_of(float scale, float shift, float slope, float mean, float g, float x)
{
	return scale * (g - shift - (x - mean) * slope);
}

#endif
