/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of sequences, bound by memory: a thread has neighbouring features, 16
 * bytes where there are as many, and walks rows. See k_rows.h.
 * Test: tests/unit/test_cuda_ops.c
 */
#include "kernels/cuda/ops/k_rows.h"

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
GPK_KERNEL GPK_BOUNDS(THREADS)
	add_table(struct gpk_sequences q, bool same, T *out, const T *in, const float *GPK_RESTRICT table)
{
	const int64_t column = gpk_first_channel(V), rows = q.samples * q.positions, step = gpk_row_step();
	float v[V], add[V];
	if (column >= q.features)
		return;
	for (int64_t r = gpk_first_row(); r < rows; r += step) {
		gpk_read<T, V>(v, in + r * q.features + column);
		gpk_read<float, V>(add, table + (same ? 0 : r % q.positions) * q.features + column);
		GPK_UNROLL
		for (int i = 0; i < V; i++)
			v[i] += add[i];
		gpk_write<T, V>(out + r * q.features + column, v);
	}
}

extern "C" void gpk_add_rows_forward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_sequences *q,
				     bool same, void *out, const void *in, const float *table)
{
	BY_ROWS(type, q->features, T, V, t,
		GPK_LAUNCH(s, (add_table<T, V>), t.grid(q->samples * q->positions, 2, MOST_BLOCKS), t.block(), 0, *q,
			   same, (T *)out, (const T *)in, table));
}

template <typename T, int V>
GPK_KERNEL GPK_BOUNDS(THREADS) sum_samples(struct gpk_sequences q, float *grad, const T *GPK_RESTRICT dout)
{
	const int64_t column = gpk_first_channel(V), step = gpk_row_step();
	float v[V], sum[V];
	if (column >= q.features)
		return;
	for (int64_t p = gpk_first_row(); p < q.positions; p += step) {
		gpk_read<float, V>(sum, grad + p * q.features + column);
		GPK_UNROLL_BY(4)
		for (int64_t n = 0; n < q.samples; n++) {
			gpk_read<T, V>(v, dout + (n * q.positions + p) * q.features + column);
			GPK_UNROLL
			for (int i = 0; i < V; i++)
				sum[i] += v[i];
		}
		gpk_write<float, V>(grad + p * q.features + column, sum);
	}
}

extern "C" void gpk_add_rows_backward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_sequences *q,
				      float *grad, const void *dout)
{
	BY_ROWS(type, q->features, T, V, t,
		GPK_LAUNCH(s, (sum_samples<T, V>), t.grid(q->positions, 1, MOST_BLOCKS), t.block(), 0, *q, grad,
			   (const T *)dout));
}

template <typename T, int V>
GPK_KERNEL GPK_BOUNDS(THREADS) take(struct gpk_sequences q, int64_t row, T *GPK_RESTRICT out, const T *GPK_RESTRICT in)
{
	const int64_t column = gpk_first_channel(V), step = gpk_row_step();
	for (int64_t n = gpk_first_row(); n < q.samples && column < q.features; n += step)
		gpk_move<T, V>(out + n * q.features + column, in + (n * q.positions + row) * q.features + column);
}

template <typename T, int V>
GPK_KERNEL GPK_BOUNDS(THREADS)
	take_grad(struct gpk_sequences q, int64_t row, T *GPK_RESTRICT dx, const T *GPK_RESTRICT dout)
{
	const int64_t column = gpk_first_channel(V), rows = q.samples * q.positions, step = gpk_row_step();
	for (int64_t r = gpk_first_row(); r < rows && column < q.features; r += step)
		if (r % q.positions == row)
			gpk_move<T, V>(dx + r * q.features + column, dout + r / q.positions * q.features + column);
		else
			gpk_clear<T, V>(dx + r * q.features + column);
}

extern "C" void gpk_take_row_forward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_sequences *q,
				     int64_t row, void *out, const void *in)
{
	BY_ROWS(type, q->features, T, V, t,
		GPK_LAUNCH(s, (take<T, V>), t.grid(q->samples, 1, MOST_BLOCKS), t.block(), 0, *q, row, (T *)out,
			   (const T *)in));
}

extern "C" void gpk_take_row_backward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_sequences *q,
				      int64_t row, void *dx, const void *dout)
{
	BY_ROWS(type, q->features, T, V, t,
		GPK_LAUNCH(s, (take_grad<T, V>), t.grid(q->samples * q->positions, 2, MOST_BLOCKS), t.block(), 0, *q,
			   row, (T *)dx, (const T *)dout));
}
