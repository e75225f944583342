/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of sequences by number. Backward, a thread has columns of a sample and adds
 * the rows of its numbers, one after another: nobody else writes there, and the
 * order is theirs. See k_take_rows.h.
 * Test: tests/unit/test_cuda_ops.c
 */
#include "kernels/cuda/ops/k_take_rows.h"

#include "kernels/cuda/runtime/gpk_rows.h"

#define THREADS     256
#define MOST_BLOCKS 2048
#define WIDE        64 /* vectors of a row that a block has, at most */

/* Runs the rest with T, V and the tile t of threads. */
#define BY_ROWS(type, features, T, V, t, ...)                                                                          \
	GPK_BY_TYPE(type, T, GPK_BY_WIDTH(features, T, V, {                                                            \
			    const struct gpk_tile t = gpk_tile_of((features) / V, WIDE, THREADS);                      \
			    __VA_ARGS__;                                                                               \
		    }))

template <typename T, int V>
GPK_KERNEL GPK_BOUNDS(THREADS) take_rows(struct gpk_sequences q, int64_t taken, T *GPK_RESTRICT out,
					 const T *GPK_RESTRICT in, const int32_t *GPK_RESTRICT number)
{
	const int64_t column = gpk_first_channel(V), rows = q.samples * taken, step = gpk_row_step();
	for (int64_t r = gpk_first_row(); r < rows && column < q.features; r += step) {
		const int32_t at = number[r];
		if (at >= 0 && at < q.positions)
			gpk_move<T, V>(out + r * q.features + column,
				       in + (r / taken * q.positions + at) * q.features + column);
		else
			gpk_clear<T, V>(out + r * q.features + column);
	}
}

/* dx is all zeros. */
template <typename T, int V>
GPK_KERNEL GPK_BOUNDS(THREADS) give_rows_back(struct gpk_sequences q, int64_t taken, T *GPK_RESTRICT dx,
					      const T *GPK_RESTRICT dout, const int32_t *GPK_RESTRICT number)
{
	const int64_t column = gpk_first_channel(V), step = gpk_row_step();
	float v[V], sum[V];
	for (int64_t n = gpk_first_row(); n < q.samples && column < q.features; n += step)
		for (int64_t p = n * taken; p < (n + 1) * taken; p++) {
			if (number[p] < 0 || number[p] >= q.positions)
				continue;
			T *const to = dx + (n * q.positions + number[p]) * q.features + column;
			gpk_read<T, V>(sum, to);
			gpk_read<T, V>(v, dout + p * q.features + column);
			GPK_UNROLL
			for (int i = 0; i < V; i++)
				sum[i] += v[i];
			gpk_write<T, V>(to, sum);
		}
}

extern "C" void gpk_take_rows_forward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_sequences *q,
				      int64_t taken, void *out, const void *in, const int32_t *number)
{
	BY_ROWS(type, q->features, T, V, t,
		GPK_LAUNCH(s, (take_rows<T, V>), t.grid(q->samples * taken, 1, MOST_BLOCKS), t.block(), 0, *q, taken,
			   (T *)out, (const T *)in, number));
}

extern "C" void gpk_take_rows_backward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_sequences *q,
				       int64_t taken, void *dx, const void *dout, const int32_t *number)
{
	BY_ROWS(type, q->features, T, V, t, {
		gp_rt_fill(s, dx, 0, (size_t)(q->samples * q->positions * q->features) * sizeof(T));
		GPK_LAUNCH(s, (give_rows_back<T, V>), t.grid(q->samples, 1, MOST_BLOCKS), t.block(), 0, *q, taken,
			   (T *)dx, (const T *)dout, number);
	});
}
