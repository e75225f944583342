/* SPDX-License-Identifier: Apache-2.0
 *
 * Moving elements: transposition through a tile of shared memory, so that reads
 * and writes are both along rows; shortcuts by gathering. See k_move.h.
 * Test: tests/unit/test_cuda_ops.c
 */
#include "kernels/cuda/k_move.h"

#include "kernels/cuda/gpk.h"

#define TILE        32
#define TILE_ROWS   8
#define THREADS     256
#define MOST_BLOCKS 2048
#define MOST_TILES  65536

template <typename T> GPK_KERNEL transpose(T *out, const T *in, int64_t count, int64_t rows, int64_t columns)
{
	GPK_SHARED(float, tile, [TILE][TILE + 1]); /* + 1: columns in different banks */
	const int64_t across = gpk_div_up(columns, TILE), down = gpk_div_up(rows, TILE);
	for (int64_t t = blockIdx.x; t < count * across * down; t += gridDim.x) {
		const int64_t matrix = t / (across * down), r0 = t / across % down * TILE, c0 = t % across * TILE;
		const T *from = in + matrix * rows * columns;
		T *to = out + matrix * rows * columns;
		for (unsigned y = threadIdx.y; y < TILE; y += TILE_ROWS)
			if (r0 + y < rows && c0 + threadIdx.x < columns)
				tile[y][threadIdx.x] = gpk_get(from[(r0 + y) * columns + c0 + threadIdx.x]);
		__syncthreads();
		for (unsigned y = threadIdx.y; y < TILE; y += TILE_ROWS)
			if (c0 + y < columns && r0 + threadIdx.x < rows)
				gpk_put(&to[(c0 + y) * rows + r0 + threadIdx.x], tile[threadIdx.x][y]);
		__syncthreads();
	}
}

extern "C" void gpk_transpose(struct gp_rt_stream *s, enum gp_rt_type type, void *out, const void *in, int64_t count,
			      int64_t rows, int64_t columns)
{
	const unsigned tiles = gpk_blocks(count * gpk_div_up(rows, TILE) * gpk_div_up(columns, TILE), 1, MOST_TILES);
	const dim3 block(TILE, TILE_ROWS);
	GPK_BY_TYPE(type, T,
		    GPK_LAUNCH(s, transpose<T>, tiles, block, 0, (T *)out, (const T *)in, count, rows, columns));
}

/* --- shortcuts ---------------------------------------------------------------------------------------------------- */

template <typename T> GPK_KERNEL shortcut(T *out, const T *in, struct gpk_shortcut g)
{
	const int64_t out_h = gpk_div_up(g.h, g.stride), out_w = gpk_div_up(g.w, g.stride);
	const int64_t step = (int64_t)gridDim.x * blockDim.x, n = g.n * out_h * out_w * g.out_c;
	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
		const int64_t c = i % g.out_c - g.before, x = i / g.out_c % out_w;
		const int64_t y = i / g.out_c / out_w % out_h, image = i / g.out_c / out_w / out_h;
		const bool inside = c >= 0 && c < g.c;
		const int64_t at = ((image * g.h + y * g.stride) * g.w + x * g.stride) * g.c + c;
		gpk_put(&out[i], inside ? gpk_get(in[at]) : 0.0f);
	}
}

/* Pixels that were left out get zeros. */
template <typename T> GPK_KERNEL shortcut_grad(T *dx, const T *dout, struct gpk_shortcut g)
{
	const int64_t out_h = gpk_div_up(g.h, g.stride), out_w = gpk_div_up(g.w, g.stride);
	const int64_t step = (int64_t)gridDim.x * blockDim.x, n = g.n * g.h * g.w * g.c;
	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
		const int64_t c = i % g.c + g.before, x = i / g.c % g.w;
		const int64_t y = i / g.c / g.w % g.h, image = i / g.c / g.w / g.h;
		const bool taken = x % g.stride == 0 && y % g.stride == 0;
		const int64_t at = ((image * out_h + y / g.stride) * out_w + x / g.stride) * g.out_c + c;
		gpk_put(&dx[i], taken ? gpk_get(dout[at]) : 0.0f);
	}
}

extern "C" void gpk_shortcut_forward(struct gp_rt_stream *s, enum gp_rt_type type, void *out, const void *in,
				     const struct gpk_shortcut *g)
{
	const int64_t pixels = g->n * gpk_div_up(g->h, g->stride) * gpk_div_up(g->w, g->stride);
	const unsigned blocks = gpk_blocks(pixels * g->out_c, THREADS, MOST_BLOCKS);
	GPK_BY_TYPE(type, T, GPK_LAUNCH(s, shortcut<T>, blocks, THREADS, 0, (T *)out, (const T *)in, *g));
}

extern "C" void gpk_shortcut_backward(struct gp_rt_stream *s, enum gp_rt_type type, void *dx, const void *dout,
				      const struct gpk_shortcut *g)
{
	const unsigned blocks = gpk_blocks(g->n * g->h * g->w * g->c, THREADS, MOST_BLOCKS);
	GPK_BY_TYPE(type, T, GPK_LAUNCH(s, shortcut_grad<T>, blocks, THREADS, 0, (T *)dx, (const T *)dout, *g));
}
