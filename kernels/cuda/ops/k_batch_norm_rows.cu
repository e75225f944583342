/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch normalization of few rows, such as 14x14 pixels of 8 images: one launch
 * forward and one backward. A block has eight channels of every row; its
 * threads read their rows once, hold them in registers while the block adds up,
 * and write. What a launch costs beside so little is why (tests/bench/GPU.md).
 * Formulas and what else there is: gpk_batch_norm.h, k_batch_norm.cu.
 * Test: tests/unit/test_cuda_batch_norm.c, tests/unit/test_cuda_launches.c
 */
#include "kernels/cuda/ops/gpk_batch_norm.h"

#define THREADS   GPK_SUMS_THREADS
#define VECTOR    4
#define LANES     2    /* of a block, at most: in fp32 32 bytes of a row, what memory gives at once */
#define WIDE      (LANES * VECTOR)
#define MOST_HELD 7    /* rows of a thread; they fit in its registers, gradients beside them */
#define FEW_HELD  2    /* with code of their own: more blocks on a multiprocessor */
#define MOST_ROWS (MOST_HELD * THREADS / LANES)

static struct gpk_tile tile_of(const struct gpk_bn *n)
{
	return gpk_tile_of(n->channels / VECTOR, LANES, THREADS);
}

extern "C" bool gpk_bn_at_once(int64_t rows, int64_t channels)
{
	return rows <= MOST_ROWS && channels % VECTOR == 0;
}

/* Runs the rest with N: the rows of a thread, as far as there is code for so many. */
#define BY_HELD(rows, deep, N, ...)                                                                                    \
	do {                                                                                                           \
		if ((rows) <= (int64_t)(deep) * FEW_HELD) {                                                            \
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
			held[i] = *reinterpret_cast<const gpk_pack<T, VECTOR> *>(from + row_of(i) * n.channels +
										 channel);
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

template <typename T, int N, bool RESIDUAL>
GPK_KERNEL GPK_BOUNDS(THREADS)
	values_at_once(struct gpk_bn n, struct limits l, const T *x, const T *residual, T *y)
{
	GPK_SHARED(struct affine, of, [WIDE]);
	const int64_t channel = gpk_first_channel(VECTOR);
	gpk_pack<T, VECTOR> held[N], more[N];
	float sums[2 * VECTOR] = {}, shift[VECTOR] = {}, v[VECTOR], add[VECTOR] = {};
	unsigned c;
	load_rows<T, N>(held, n, x);
	if (RESIDUAL)
		load_rows<T, N>(more, n, residual);
	const int64_t mine = channel_to_finish(n.channels, &c);
	const struct of_channel own = channel_of(n, mine);
	if (channel < n.channels)
		gpk_read<T, VECTOR>(shift, x + channel);
	GPK_UNROLL
	for (int i = 0; i < N; i++)
		if (channel < n.channels && row_of(i) < n.rows) {
			unpack<T>(v, held[i]);
			add_values<VECTOR>(sums, v, shift);
		}
	const double *const sum = gpk_fold_block<2, VECTOR>(sums);
	if (mine >= 0)
		of[c] = finish_values(n, mine, own, (double)gpk_get(x[mine]), sum[folded_at(0, c)],
				      sum[folded_at(1, c)]);
	__syncthreads(); /* from here on y is written, which may be x */
	GPK_UNROLL
	for (int i = 0; i < N; i++) {
		unpack<T>(v, held[i]);
		if (RESIDUAL)
			unpack<T>(add, more[i]);
		GPK_UNROLL
		for (int k = 0; k < VECTOR; k++) {
			const struct affine f = of[threadIdx.x * VECTOR + k];
			v[k] = output_of<T, RESIDUAL>(f.a, f.b, v[k], add[k], l);
		}
		pack<T>(held[i], v);
	}
	store_rows<T, N>(y, n, held);
}

void gpk_bn_forward_at_once(struct gp_rt_stream *s, const struct gpk_bn *n, const void *x, const void *residual,
			    void *y)
{
	const struct gpk_tile t = tile_of(n);
	GPK_BY_TYPE(n->type, T, BY_RESIDUAL(residual, R, BY_HELD(n->rows, t.deep, N, {
						    GPK_LAUNCH(s, (values_at_once<T, N, R>), (unsigned)t.tiles,
							       t.block(), gpk_sums_shared(THREADS, 2 * VECTOR), *n,
							       limits_of(n->act), (const T *)x, (const T *)residual,
							       (T *)y);
					    })));
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

template <typename T, int N, enum mask M>
GPK_KERNEL GPK_BOUNDS(THREADS) gradients_at_once(struct gpk_bn n, struct limits l, const T *x, const T *y, const T *dy,
						 T *dresidual, T *dx, float *dgamma, float *dbeta)
{
	GPK_SHARED(struct coefficients, of, [WIDE]);
	const int64_t channel = gpk_first_channel(VECTOR);
	gpk_pack<T, VECTOR> held[N], gradient[N];
	float sums[2 * VECTOR] = {}, mean[VECTOR] = {}, v[VECTOR], g[VECTOR];
	unsigned c;
	load_rows<T, N>(held, n, x);
	load_rows<T, N>(gradient, n, dy);
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

void gpk_bn_backward_at_once(struct gp_rt_stream *s, const struct gpk_bn *n, const void *x, const void *y,
			     const void *dy, void *dresidual, void *dx, float *dgamma, float *dbeta)
{
	const struct gpk_tile t = tile_of(n);
	GPK_BY_TYPE(n->type, T, BY_MASK(mask_of(n, y), M, BY_HELD(n->rows, t.deep, N, {
						GPK_LAUNCH(s, (gradients_at_once<T, N, M>), (unsigned)t.tiles,
							   t.block(), gpk_sums_shared(THREADS, 2 * VECTOR), *n,
							   limits_of(n->act), (const T *)x, (const T *)y, (const T *)dy,
							   (T *)dresidual, (T *)dx, dgamma, dbeta);
					})));
}
