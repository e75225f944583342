/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch normalization of few rows, such as 14x14 pixels of 8 images: one launch
 * forward and one backward. A block has eight channels of every row; its
 * threads read their rows once, hold them in registers while the block adds up,
 * and write. What a launch costs beside so little is why (tests/bench/GPU.md).
 * Formulas and what else there is: gpk_batch_norm.h, k_batch_norm.cu.
 * Test: tests/unit/test_cuda_batch_norm.c, tests/unit/test_cuda_launches.c
 */
#include "kernels/cuda/ops/gpk_bn_rows.h"

extern "C" bool gpk_bn_at_once(int64_t rows, int64_t channels)
{
	return rows <= MOST_ROWS && channels % VECTOR == 0;
}

template <typename T, int N, bool RESIDUAL>
GPK_KERNEL GPK_BOUNDS(THREADS) values_at_once(struct gpk_bn n, struct limits l, const T *x, const T *residual, T *y)
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

template <typename T, int N, enum mask M>
GPK_KERNEL GPK_BOUNDS(THREADS) gradients_at_once(struct gpk_bn n, struct limits l, const T *x, const T *y, const T *dy,
						 T *dresidual, T *dx, float *dgamma, float *dbeta)
{
	GPK_SHARED(struct coefficients, of, [WIDE]);
	gpk_pack<T, VECTOR> held[N], gradient[N];
	load_rows<T, N>(held, n, x);
	load_rows<T, N>(gradient, n, dy);
	gradients_of_held<T, N, M>(n, l, y, held, gradient, of, dresidual, dx, dgamma, dbeta);
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
