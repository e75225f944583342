/* SPDX-License-Identifier: Apache-2.0
 *
 * Embedding. The table's gradient is shared out by id and by columns: a block
 * goes through all positions in their order and adds those of its own ids, so
 * that nobody else writes there and the order is that of the positions. What
 * one id gathers in a row of positions stays in registers. See k_embedding.h.
 * Test: tests/unit/test_cuda_ops.c
 */
#include "kernels/cuda/ops/k_embedding.h"

#include "kernels/cuda/runtime/gpk_rows.h"

#define THREADS     256
#define MOST_BLOCKS 2048
#define WIDE        64  /* vectors of a row that a block has, at most */
#define SHARES      256 /* of the ids */
#define COLUMNS     128 /* threads of a block that adds */

GPK_DEVICE bool is_known(int32_t id, int64_t vocab)
{
	return id >= 0 && id < vocab;
}

template <typename T, int V>
GPK_KERNEL GPK_BOUNDS(THREADS)
	look_up(T *GPK_RESTRICT out, const float *GPK_RESTRICT table, const int32_t *GPK_RESTRICT id, int64_t positions,
		int64_t vocab, int64_t features)
{
	const int64_t column = gpk_first_channel(V), step = gpk_row_step();
	float v[V];
	if (column >= features)
		return;
	for (int64_t p = gpk_first_row(); p < positions; p += step) {
		const int32_t mine = id[p];
		if (!is_known(mine, vocab)) {
			gpk_clear<T, V>(out + p * features + column);
			continue;
		}
		gpk_read<float, V>(v, table + mine * features + column);
		gpk_write<T, V>(out + p * features + column, v);
	}
}

extern "C" void gpk_embedding_forward(struct gp_rt_stream *s, enum gp_rt_type type, void *out, const float *table,
				      const int32_t *id, int64_t positions, int64_t vocab, int64_t features)
{
	GPK_BY_TYPE(type, T, GPK_BY_WIDTH(features, T, V, {
			    const struct gpk_tile t = gpk_tile_of(features / V, WIDE, THREADS);
			    GPK_LAUNCH(s, (look_up<T, V>), t.grid(positions, 2, MOST_BLOCKS), t.block(), 0, (T *)out,
				       table, id, positions, vocab, features);
		    }));
}

/* Block (x, y) has the ids whose remainder by the grid's width is x, and columns from y * COLUMNS on, of `width`. */
template <typename T>
GPK_KERNEL GPK_BOUNDS(COLUMNS) add_rows(float *grad, const T *GPK_RESTRICT dout, const int32_t *GPK_RESTRICT id,
					int64_t positions, int64_t vocab, int64_t features, int64_t width)
{
	GPK_SHARED(int32_t, held, [COLUMNS]); /* ids of the positions that are looked at, -1 where they are others' */
	const int64_t column = (int64_t)blockIdx.y * COLUMNS + threadIdx.x;
	const bool adds = column < width;
	int32_t current = -1;
	float sum = 0;
	for (int64_t from = 0; from < positions; from += COLUMNS) {
		const int64_t at = from + threadIdx.x;
		const int32_t mine = at < positions ? id[at] : -1;
		__syncthreads();
		held[threadIdx.x] = is_known(mine, vocab) && mine % gridDim.x == blockIdx.x ? mine : -1;
		__syncthreads();
		for (int k = 0; k < COLUMNS && adds; k++) {
			if (held[k] < 0)
				continue;
			if (held[k] != current) {
				if (current >= 0)
					grad[current * features + column] = sum;
				current = held[k];
				sum = grad[current * features + column];
			}
			sum += gpk_get(dout[(from + k) * features + column]);
		}
	}
	if (current >= 0)
		grad[current * features + column] = sum;
}

extern "C" void gpk_embedding_backward(struct gp_rt_stream *s, enum gp_rt_type type, float *grad, const void *dout,
				       const int32_t *id, int64_t positions, int64_t vocab, int64_t features)
{
	const int64_t across = GPK_GRID_HIGH * (int64_t)COLUMNS; /* columns of a launch */
	for (int64_t first = 0; first < features; first += across) {
		const int64_t some = features - first < across ? features - first : across;
		const dim3 grid((unsigned)(vocab < SHARES ? vocab : SHARES), (unsigned)gpk_div_up(some, COLUMNS));
		GPK_BY_TYPE(type, T,
			    GPK_LAUNCH(s, add_rows<T>, grid, COLUMNS, 0, grad + first, (const T *)dout + first, id,
				       positions, vocab, features, some));
	}
}
