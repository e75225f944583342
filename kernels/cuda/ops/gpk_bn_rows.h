/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norm of few rows within a kernel: a block has up to WIDE channels of
 * every row, a thread holds its rows in registers. For kernels that do this
 * and no more (k_batch_norm_rows.cu), and for those that do it before and
 * behind a depthwise convolution of such rows (k_depthwise_rows.cu), with the same bits.
 *
 * Threads: those of a kernel, on the device. Test: tests/unit/test_cuda_batch_norm.c,
 * tests/unit/test_cuda_depthwise_norm.c
 */
#ifndef GPK_BN_ROWS_H
#define GPK_BN_ROWS_H

#include "kernels/cuda/ops/gpk_batch_norm.h"

#define THREADS   GPK_SUMS_THREADS
#define VECTOR    4
#define LANES     2 /* of a block, at most: in fp32 32 bytes of a row, what memory gives at once */
#define WIDE      (LANES * VECTOR)
#define MOST_HELD 7 /* rows of a thread; they fit in its registers, gradients beside them */
#define FEW_HELD  2 /* with code of their own: more blocks on a multiprocessor */
#define MOST_ROWS (MOST_HELD * THREADS / LANES)

static struct gpk_tile tile_of(const struct gpk_bn *n)
{
	return gpk_tile_of(n->channels / VECTOR, LANES, THREADS);
}

/* Runs the rest with N: the rows of a thread, as far as there is code for so many. */
#define BY_HELD(rows, deep, N, ...)                                                                                    \
	do {                                                                                                           \
		if ((rows) <= (int64_t)(deep)*FEW_HELD) {                                                              \
			constexpr int N = FEW_HELD;                                                                    \
			__VA_ARGS__;                                                                                   \
		} else {                                                                                               \
			constexpr int N = MOST_HELD;                                                                   \
			__VA_ARGS__;                                                                                   \
		}                                                                                                      \
	} while (0)

GPK_DEVICE int64_t row_of(int i)
{
	return threadIdx.y + (int64_t)i * blockDim.y;
}

template <typename T, int N>
GPK_DEVICE void load_rows(gpk_pack<T, VECTOR> (&held)[N], const struct gpk_bn &n, const T *from)
{
	const int64_t channel = gpk_first_channel(VECTOR);
	GPK_UNROLL
	for (int i = 0; i < N; i++)
		if (channel < n.channels && row_of(i) < n.rows)
			held[i] =
				*reinterpret_cast<const gpk_pack<T, VECTOR> *>(from + row_of(i) * n.channels + channel);
}

template <typename T, int N>
GPK_DEVICE void store_rows(T *to, const struct gpk_bn &n, const gpk_pack<T, VECTOR> (&held)[N])
{
	const int64_t channel = gpk_first_channel(VECTOR);
	GPK_UNROLL
	for (int i = 0; i < N; i++)
		if (channel < n.channels && row_of(i) < n.rows)
			*reinterpret_cast<gpk_pack<T, VECTOR> *>(to + row_of(i) * n.channels + channel) = held[i];
}

template <typename T> GPK_DEVICE void unpack(float (&v)[VECTOR], const gpk_pack<T, VECTOR> &p)
{
	GPK_UNROLL
	for (int i = 0; i < VECTOR; i++)
		v[i] = gpk_get(p.of[i]);
}

template <typename T> GPK_DEVICE void pack(gpk_pack<T, VECTOR> &p, const float (&v)[VECTOR])
{
	GPK_UNROLL
	for (int i = 0; i < VECTOR; i++)
		gpk_put(&p.of[i], v[i]);
}

/* Where gpk_fold_block leaves sum `which` of the block's channel `c`. */
GPK_DEVICE unsigned folded_at(int which, unsigned c)
{
	return (which * VECTOR + c % VECTOR) * blockDim.x + c / VECTOR;
}

/* The channel that this thread finishes, of the block's `*c`-th; -1: none. */
GPK_DEVICE int64_t channel_to_finish(int64_t channels, unsigned *c)
{
	*c = gpk_linear_thread();
	const int64_t channel = (int64_t)blockIdx.x * blockDim.x * VECTOR + *c;
	return *c < blockDim.x * VECTOR && channel < channels ? channel : -1;
}

/* g of the thread's rows, in the place of dy, and their sums. */
template <typename T, int N, enum mask M>
GPK_DEVICE void mask_rows(const struct gpk_bn &n, struct limits l, const T *y, const gpk_pack<T, VECTOR> (&x)[N],
			  gpk_pack<T, VECTOR> (&gradient)[N], const float (&mean)[VECTOR], float (&sums)[2 * VECTOR])
{
	const int64_t channel = gpk_first_channel(VECTOR);
	float a[VECTOR] = {}, b[VECTOR] = {}, v[VECTOR], g[VECTOR], out[VECTOR] = {};
	if (channel >= n.channels)
		return;
	if (M == MASK_FROM_X) {
		gpk_read<float, VECTOR>(a, n.saved + SAVED_A * n.channels + channel);
		gpk_read<float, VECTOR>(b, n.saved + SAVED_B * n.channels + channel);
	}
	GPK_UNROLL
	for (int i = 0; i < N; i++) {
		if (row_of(i) >= n.rows)
			continue;
		unpack<T>(v, x[i]);
		unpack<T>(g, gradient[i]);
		if (M == MASK_FROM_Y)
			gpk_read<T, VECTOR>(out, y + row_of(i) * n.channels + channel);
		mask_gradient<T, VECTOR, M>(g, a, b, v, out, l);
		if (M != MASK_NONE)
			pack<T>(gradient[i], g);
		add_gradients<VECTOR>(sums, g, v, mean);
	}
}

/* From the thread's rows of x, in `held`, and of dy, in `gradient`, to dx. Every thread of the block must come. */
template <typename T, int N, enum mask M>
GPK_DEVICE void gradients_of_held(const struct gpk_bn &n, struct limits l, const T *y, gpk_pack<T, VECTOR> (&held)[N],
				  gpk_pack<T, VECTOR> (&gradient)[N], struct coefficients *of, T *dresidual, T *dx,
				  float *dgamma, float *dbeta)
{
	const int64_t channel = gpk_first_channel(VECTOR);
	float sums[2 * VECTOR] = {}, mean[VECTOR] = {}, v[VECTOR], g[VECTOR];
	unsigned c;
	const int64_t mine = channel_to_finish(n.channels, &c);
	const struct grads_of_channel own = grads_of(n, mine, dgamma, dbeta);
	if (channel < n.channels)
		gpk_read<float, VECTOR>(mean, n.saved + SAVED_MEAN * n.channels + channel);
	mask_rows<T, N, M>(n, l, y, held, gradient, mean, sums);
	if (dresidual)
		store_rows<T, N>(dresidual, n, gradient);
	const double *const sum = gpk_fold_block<2, VECTOR>(sums);
	if (mine >= 0)
		of[c] = finish_gradients(n, mine, own, sum[folded_at(0, c)], sum[folded_at(1, c)], dgamma, dbeta);
	__syncthreads();
	if (!dx)
		return;
	GPK_UNROLL
	for (int i = 0; i < N; i++) {
		unpack<T>(v, held[i]);
		unpack<T>(g, gradient[i]);
		GPK_UNROLL
		for (int k = 0; k < VECTOR; k++) {
			const struct coefficients f = of[threadIdx.x * VECTOR + k];
			g[k] = gradient_of(f.scale, f.shift, f.slope, mean[k], g[k], v[k]);
		}
		pack<T>(held[i], g);
	}
	store_rows<T, N>(dx, n, held);
}

#endif
