/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer norm: a warp takes a row. Up to MOST_HELD features the row stays in its
 * registers from one sum to the next; of longer ones everything is made anew for
 * each. The parameters' gradients are sums over rows as in gpk_sums.h. See
 * k_layer_norm.h. Test: tests/unit/test_cuda_ops.c
 */
#include "kernels/cuda/ops/k_layer_norm.h"

#include "kernels/cuda/ops/gpk_dropout.h"
#include "kernels/cuda/runtime/gpk_sums.h"

#define WARPS       4 /* of a block */
#define MOST_BLOCKS 2112
#define HELD        32 /* elements of a row that a lane holds, at most */
#define MOST_HELD   (HELD * GPK_WARP)

/* What dropout makes of the V elements from `at` on: each times 0 or d.scale. */
template <int V> GPK_DEVICE void drop_elements(float (&x)[V], const struct gpk_dropout &d, int64_t n, int64_t at)
{
	uint32_t word[GPK_DROPOUT_WORDS];
	GPK_UNROLL
	for (int i = 0; i < V; i++) {
		if (V == 1)
			word[0] = gpk_dropout_word(d, n, at);
		else if (i % GPK_DROPOUT_WORDS == 0)
			gpk_dropout_words(d, n, at + i, word);
		x[i] = word[i % GPK_DROPOUT_WORDS] < d.threshold ? 0.0f : x[i] * d.scale;
	}
}

/* z of the V elements from `at` on. */
template <typename T, int V> GPK_DEVICE void sum_at(float (&z)[V], const struct gpk_layer_norm &n, int64_t at)
{
	float add[V];
	gpk_read<T, V>(z, (const T *)n.x + at);
	if (n.drop.threshold)
		drop_elements<V>(z, n.drop, n.rows * n.features, at);
	if (!n.residual)
		return;
	gpk_read<T, V>(add, (const T *)n.residual + at);
	GPK_UNROLL
	for (int i = 0; i < V; i++)
		z[i] += add[i];
}

/* The lane's vectors of a row: f(its number among them, first column). N: as many at most; 0: any number. */
template <int V, int N, typename F> GPK_DEVICE void each_vector(int64_t features, F f)
{
	const int64_t first = (int64_t)(threadIdx.x % GPK_WARP) * V;
	if constexpr (N > 0) {
		GPK_UNROLL
		for (int i = 0; i < N; i++)
			if (first + (int64_t)i * GPK_WARP * V < features)
				f(i, first + (int64_t)i * GPK_WARP * V);
	} else {
		for (int64_t column = first; column < features; column += GPK_WARP * V)
			f(0, column);
	}
}

GPK_DEVICE int64_t first_row(void)
{
	return (int64_t)blockIdx.x * WARPS + threadIdx.x / GPK_WARP;
}

/* z at a column: held, or made. */
template <typename T, int V, int N>
GPK_DEVICE void z_of(float (&z)[V], const float (&held)[N ? N : 1][V], int i, const struct gpk_layer_norm &n,
		     int64_t at)
{
	if constexpr (N > 0) {
		GPK_UNROLL
		for (int k = 0; k < V; k++)
			z[k] = held[i][k];
	} else {
		sum_at<T, V>(z, n, at);
	}
}

template <typename T, int V, int N> GPK_KERNEL GPK_BOUNDS(WARPS *GPK_WARP) normalize(struct gpk_layer_norm n, T *out)
{
	for (int64_t row = first_row(); row < n.rows; row += (int64_t)gridDim.x * WARPS) {
		const int64_t at = row * n.features;
		float held[N ? N : 1][V], sum = 0, squares = 0;
		each_vector<V, N>(n.features, [&](int i, int64_t column) {
			sum_at<T, V>(held[i], n, at + column);
			GPK_UNROLL
			for (int k = 0; k < V; k++)
				sum += held[i][k];
		});
		const float mean = gpk_warp_sum(sum) / (float)n.features;
		each_vector<V, N>(n.features, [&](int i, int64_t column) {
			float z[V];
			z_of<T, V, N>(z, held, i, n, at + column);
			GPK_UNROLL
			for (int k = 0; k < V; k++)
				squares += (z[k] - mean) * (z[k] - mean);
		});
		const float scale = 1.0f / sqrtf(gpk_warp_sum(squares) / (float)n.features + n.eps);
		each_vector<V, N>(n.features, [&](int i, int64_t column) {
			float z[V], weight[V], bias[V];
			z_of<T, V, N>(z, held, i, n, at + column);
			gpk_read<float, V>(weight, n.weight + column);
			gpk_read<float, V>(bias, n.bias + column);
			GPK_UNROLL
			for (int k = 0; k < V; k++)
				z[k] = (z[k] - mean) * scale * weight[k] + bias[k];
			gpk_write<T, V>(out + at + column, z);
		});
		if (n.mean && threadIdx.x % GPK_WARP == 0) {
			n.mean[row] = mean;
			n.scale[row] = scale;
		}
	}
}

/* g becomes dout * weight, and z the normalized one. */
template <typename T, int V>
GPK_DEVICE void prepare_gradient(float (&g)[V], float (&z)[V], const struct gpk_layer_norm &n, int64_t row,
				 int64_t column, const T *dout, float mean, float scale)
{
	float weight[V];
	gpk_read<T, V>(g, dout + row * n.features + column);
	gpk_read<float, V>(weight, n.weight + column);
	sum_at<T, V>(z, n, row * n.features + column);
	GPK_UNROLL
	for (int k = 0; k < V; k++) {
		g[k] *= weight[k];
		z[k] = (z[k] - mean) * scale;
	}
}

template <typename T, int V>
GPK_DEVICE void give_gradients(float (&d)[V], const struct gpk_layer_norm &n, int64_t at, T *dx, T *dresidual)
{
	if (dresidual)
		gpk_write<T, V>(dresidual + at, d);
	if (dx && n.drop.threshold)
		drop_elements<V>(d, n.drop, n.rows * n.features, at);
	if (dx)
		gpk_write<T, V>(dx + at, d);
}

template <typename T, int V, int N>
GPK_KERNEL GPK_BOUNDS(WARPS *GPK_WARP)
	gradients(struct gpk_layer_norm n, T *dx, T *dresidual, const T *GPK_RESTRICT dout)
{
	for (int64_t row = first_row(); row < n.rows; row += (int64_t)gridDim.x * WARPS) {
		const float mean = n.mean[row], scale = n.scale[row];
		float g[N ? N : 1][V], z[N ? N : 1][V], sum = 0, along = 0;
		each_vector<V, N>(n.features, [&](int i, int64_t column) {
			prepare_gradient<T, V>(g[i], z[i], n, row, column, dout, mean, scale);
			GPK_UNROLL
			for (int k = 0; k < V; k++) {
				sum += g[i][k];
				along += g[i][k] * z[i][k];
			}
		});
		sum = gpk_warp_sum(sum) / (float)n.features;
		along = gpk_warp_sum(along) / (float)n.features;
		each_vector<V, N>(n.features, [&](int i, int64_t column) {
			float d[V];
			if (N == 0)
				prepare_gradient<T, V>(g[i], z[i], n, row, column, dout, mean, scale);
			GPK_UNROLL
			for (int k = 0; k < V; k++)
				d[k] = (g[i][k] - sum - z[i][k] * along) * scale;
			give_gradients<T, V>(d, n, row * n.features + column, dx, dresidual);
		});
	}
}

/* Runs the rest with T, V and N. */
#define BY_ROW(type, features, T, V, N, ...)                                                                           \
	GPK_BY_TYPE(type, T, GPK_BY_WIDTH(features, T, V, {                                                            \
			    if ((features) <= MOST_HELD) {                                                             \
				    constexpr int N = HELD / V;                                                        \
				    __VA_ARGS__;                                                                       \
			    } else {                                                                                   \
				    constexpr int N = 0;                                                               \
				    __VA_ARGS__;                                                                       \
			    }                                                                                          \
		    }))

extern "C" void gpk_layer_norm_forward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_layer_norm *n,
				       void *out)
{
	const unsigned blocks = gpk_blocks(n->rows, WARPS, MOST_BLOCKS);
	BY_ROW(type, n->features, T, V, N,
	       GPK_LAUNCH(s, (normalize<T, V, N>), blocks, WARPS * GPK_WARP, 0, *n, (T *)out));
}

extern "C" void gpk_layer_norm_backward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_layer_norm *n,
					void *dx, void *dresidual, const void *dout)
{
	const unsigned blocks = gpk_blocks(n->rows, WARPS, MOST_BLOCKS);
	BY_ROW(type, n->features, T, V, N,
	       GPK_LAUNCH(s, (gradients<T, V, N>), blocks, WARPS * GPK_WARP, 0, *n, (T *)dx, (T *)dresidual,
			  (const T *)dout));
}

/* --- gradients of the parameters ---------------------------------------------------------------------------------- */

template <typename T, int V>
GPK_KERNEL GPK_BOUNDS(GPK_SUMS_THREADS) sum_rows(struct gpk_layer_norm n, float *dweight, float *dbias,
						 const T *GPK_RESTRICT dout, double *room, uint32_t *tickets)
{
	const int64_t column = gpk_first_channel(V), step = gpk_row_step();
	float some[2 * V] = {}, g[V], z[V];
	double sum[2];
	for (int64_t row = gpk_first_row(); row < n.rows && column < n.features; row += step) {
		const float mean = n.mean[row], scale = n.scale[row];
		gpk_read<T, V>(g, dout + row * n.features + column);
		sum_at<T, V>(z, n, row * n.features + column);
		GPK_UNROLL
		for (int k = 0; k < V; k++) {
			some[k] += g[k] * ((z[k] - mean) * scale);
			some[V + k] += g[k];
		}
	}
	gpk_fold_rows<2, V>(some, n.features, room);
	if (!gpk_last_part(tickets, blockIdx.x))
		return;
	const int64_t mine = gpk_total_parts<2, V>(n.features, room, sum);
	if (mine >= 0 && dweight)
		dweight[mine] += (float)sum[0];
	if (mine >= 0 && dbias)
		dbias[mine] += (float)sum[1];
}

extern "C" uint64_t gpk_layer_norm_room(enum gp_rt_type type, int64_t rows, int64_t features)
{
	return gpk_sums_room(type, rows, features, 2);
}

extern "C" void gpk_layer_norm_backward_weight(struct gp_rt_stream *s, enum gp_rt_type type,
					       const struct gpk_layer_norm *n, float *dweight, float *dbias,
					       const void *dout, void *room)
{
	GPK_BY_TYPE(type, T, GPK_BY_WIDTH(n->features, T, V, {
			    const struct gpk_tile t = gpk_tile_of(n->features / V, GPK_SUMS_WIDE, GPK_SUMS_THREADS);
			    GPK_LAUNCH(s, (sum_rows<T, V>), dim3(t.tiles, gpk_sums_parts(n->rows, t)), t.block(),
				       gpk_sums_shared(GPK_SUMS_THREADS, 2 * V), *n, dweight, dbias, (const T *)dout,
				       (double *)room, gp_rt_tickets(s));
		    }));
}
