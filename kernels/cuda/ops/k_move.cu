/* SPDX-License-Identifier: Apache-2.0
 *
 * Moving elements: transposition through a tile of shared memory, so that reads
 * and writes are both along rows; columns of a matrix; shortcuts by gathering.
 * See k_move.h.
 * Test: tests/unit/test_cuda_ops.c
 */
#include "kernels/cuda/ops/k_move.h"

#include "kernels/cuda/runtime/gpk_window.h"

#define TILE        32
#define TILE_ROWS   8
#define THREADS     256
#define MOST_BLOCKS 2048
#define MOST_TILES  65536
#define WIDE        64 /* vectors of a pixel that a block has, at most */

/* Tiles of all matrices, one after another: fewer than 2^31. */
struct tiling {
	uint32_t tiles;
	struct gpk_divisor matrix, across; /* tiles to matrices, and to rows of tiles */
};

template <typename T>
GPK_KERNEL GPK_BOUNDS(TILE *TILE_ROWS)
	transpose(T *GPK_RESTRICT out, const T *GPK_RESTRICT in, int64_t rows, int64_t columns, struct tiling w)
{
	GPK_SHARED(float, tile, [TILE][TILE + 1]); /* + 1: columns in different banks */
	for (uint32_t t = blockIdx.x; t < w.tiles; t += gridDim.x) {
		uint32_t across = t;
		const int64_t matrix = (int64_t)gpk_split(&across, w.matrix) * rows * columns;
		const int64_t r0 = (int64_t)gpk_split(&across, w.across) * TILE, c0 = (int64_t)across * TILE;
		const T *from = in + matrix;
		T *to = out + matrix;
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
	const int64_t across = gpk_div_up(columns, TILE), each = across * gpk_div_up(rows, TILE);
	const int64_t most = INT32_MAX / each,
		      size = rows * columns; /* matrices of a launch; one with 2^41 elements is none */
	const dim3 block(TILE, TILE_ROWS);
	for (int64_t first = 0; first < count; first += most) {
		const int64_t some = count - first < most ? count - first : most;
		const struct tiling w = {(uint32_t)(some * each), gpk_divisor_of(each), gpk_divisor_of(across)};
		GPK_BY_TYPE(type, T,
			    GPK_LAUNCH(s, transpose<T>, gpk_blocks(w.tiles, 1, MOST_TILES), block, 0,
				       (T *)out + first * size, (const T *)in + first * size, rows, columns, w));
	}
}

/* --- columns ------------------------------------------------------------------------------------------------------ */

template <typename T, int V>
GPK_KERNEL GPK_BOUNDS(THREADS) copy_columns(T *GPK_RESTRICT to, int64_t to_stride, const T *GPK_RESTRICT from,
					    int64_t from_stride, int64_t rows, int64_t width)
{
	const int64_t column = gpk_first_channel(V), step = gpk_row_step();
	if (column >= width)
		return;
	for (int64_t r = gpk_first_row(); r < rows; r += step)
		if (from)
			gpk_move<T, V>(to + r * to_stride + column, from + r * from_stride + column);
		else
			gpk_clear<T, V>(to + r * to_stride + column);
}

/* A number that is a multiple of a vector's elements where rows of the matrix begin and end at whole vectors. */
static int64_t steps_of(enum gp_rt_type type, const void *at, int64_t stride, int64_t width)
{
	return stride | width | (int64_t)((uintptr_t)at / gp_rt_type_bytes(type));
}

extern "C" void gpk_copy_columns(struct gp_rt_stream *s, enum gp_rt_type type, void *to, int64_t to_stride,
				 const void *from, int64_t from_stride, int64_t rows, int64_t width)
{
	const int64_t steps = steps_of(type, to, to_stride, width) | steps_of(type, from, from_stride, width);
	GPK_BY_TYPE(type, T, GPK_BY_WIDTH(steps, T, V, {
			    const struct gpk_tile t = gpk_tile_of(width / V, WIDE, THREADS);
			    GPK_LAUNCH(s, (copy_columns<T, V>), t.grid(rows, 2, MOST_BLOCKS), t.block(), 0, (T *)to,
				       to_stride, (const T *)from, from_stride, rows, width);
		    }));
}

/* --- shortcuts ---------------------------------------------------------------------------------------------------- */

/* A row of threads for a pixel of one side, lanes along its channels; `places`: that side's pixels. */
template <typename T, int V>
GPK_KERNEL GPK_BOUNDS(THREADS)
	shortcut(T *GPK_RESTRICT out, const T *GPK_RESTRICT in, struct gpk_shortcut g, struct gpk_places places)
{
	const int64_t channel = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V, from = channel - g.before;
	const int64_t step = (int64_t)gridDim.y * blockDim.y;
	if (channel >= g.out_c)
		return;
	for (int64_t i = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; i < places.count; i += step) {
		const struct gpk_place p = gpk_place_of(places, i);
		const int64_t pixel = (p.image * g.h + p.row * g.stride) * g.w + p.column * g.stride;
		if (from >= 0 && from < g.c)
			gpk_move<T, V>(out + i * g.out_c + channel, in + pixel * g.c + from);
		else
			gpk_clear<T, V>(out + i * g.out_c + channel);
	}
}

/* Pixels that were left out get zeros. */
template <typename T, int V>
GPK_KERNEL GPK_BOUNDS(THREADS) shortcut_grad(T *GPK_RESTRICT dx, const T *GPK_RESTRICT dout, struct gpk_shortcut g,
					     struct gpk_places places, struct gpk_divisor stride)
{
	const int64_t channel = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
	const int64_t out_h = gpk_div_up(g.h, g.stride), out_w = gpk_div_up(g.w, g.stride);
	const int64_t step = (int64_t)gridDim.y * blockDim.y;
	if (channel >= g.c)
		return;
	for (int64_t i = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; i < places.count; i += step) {
		const struct gpk_place p = gpk_place_of(places, i);
		uint32_t y = (uint32_t)p.row, x = (uint32_t)p.column;
		const int64_t pixel = (p.image * out_h + gpk_split(&y, stride)) * out_w + gpk_split(&x, stride);
		if (y == 0 && x == 0)
			gpk_move<T, V>(dx + i * g.c + channel, dout + pixel * g.out_c + g.before + channel);
		else
			gpk_clear<T, V>(dx + i * g.c + channel);
	}
}

/* Several channels at once where all that counts channels is a multiple of that. */
static int64_t widths_of(const struct gpk_shortcut *g)
{
	return g->c | g->out_c | g->before;
}

extern "C" void gpk_shortcut_forward(struct gp_rt_stream *s, enum gp_rt_type type, void *out, const void *in,
				     const struct gpk_shortcut *g)
{
	const struct gpk_places places = gpk_places_of(g->n, gpk_div_up(g->h, g->stride), gpk_div_up(g->w, g->stride));
	GPK_BY_TYPE(type, T, GPK_BY_WIDTH(widths_of(g), T, V, {
			    const struct gpk_tile t = gpk_tile_of(g->out_c / V, WIDE, THREADS);
			    GPK_LAUNCH(s, (shortcut<T, V>), t.grid(places.count, 2, MOST_BLOCKS), t.block(), 0,
				       (T *)out, (const T *)in, *g, places);
		    }));
}

extern "C" void gpk_shortcut_backward(struct gp_rt_stream *s, enum gp_rt_type type, void *dx, const void *dout,
				      const struct gpk_shortcut *g)
{
	const struct gpk_places places = gpk_places_of(g->n, g->h, g->w);
	GPK_BY_TYPE(type, T, GPK_BY_WIDTH(widths_of(g), T, V, {
			    const struct gpk_tile t = gpk_tile_of(g->c / V, WIDE, THREADS);
			    GPK_LAUNCH(s, (shortcut_grad<T, V>), t.grid(places.count, 2, MOST_BLOCKS), t.block(), 0,
				       (T *)dx, (const T *)dout, *g, places, gpk_divisor_of(g->stride));
		    }));
}
