/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of channels: biases by vectors of channels, sums as in gpk_sums.h; for
 * means a block of 32 x 8 threads takes 32 neighbouring channels. See k_columns.h.
 * Test: tests/unit/test_cuda_ops.c
 */
#include "kernels/cuda/ops/k_columns.h"

#include "kernels/cuda/runtime/gpk_sums.h"

#define LANES       GPK_WARP
#define WARPS       8
#define THREADS     256
#define MOST_BLOCKS 2048
#define MOST_GRID_Y 65535
#define WIDE        64 /* vectors of a row that a block has, at most */

/* --- biases ------------------------------------------------------------------------------------------------------- */

template <typename T, int V>
GPK_KERNEL GPK_BOUNDS(THREADS)
	add_bias(T *GPK_RESTRICT x, const float *GPK_RESTRICT bias, int64_t rows, int64_t columns)
{
	const int64_t column = gpk_first_channel(V), step = gpk_row_step();
	float b[V], v[V];
	if (column >= columns)
		return;
	gpk_read<float, V>(b, bias + column);
	for (int64_t r = gpk_first_row(); r < rows; r += step) {
		gpk_read<T, V>(v, x + r * columns + column);
		GPK_UNROLL
		for (int i = 0; i < V; i++)
			v[i] += b[i];
		gpk_write<T, V>(x + r * columns + column, v);
	}
}

extern "C" void gpk_row_bias_forward(struct gp_rt_stream *s, enum gp_rt_type type, void *x, const float *bias,
				     int64_t rows, int64_t columns)
{
	GPK_BY_TYPE(type, T, GPK_BY_WIDTH(columns, T, V, {
			    const struct gpk_tile t = gpk_tile_of(columns / V, WIDE, THREADS);
			    GPK_LAUNCH(s, (add_bias<T, V>), t.grid(rows, 2, MOST_BLOCKS), t.block(), 0, (T *)x, bias,
				       rows, columns);
		    }));
}

template <typename T, int V>
GPK_KERNEL GPK_BOUNDS(GPK_SUMS_THREADS)
	sum_rows(float *grad, const T *GPK_RESTRICT x, int64_t rows, int64_t columns, double *room, uint32_t *tickets)
{
	const int64_t column = gpk_first_channel(V), step = gpk_row_step();
	float some[V] = {}, v[V];
	double sum[1];
	GPK_UNROLL_BY(4)
	for (int64_t r = gpk_first_row(); r < rows && column < columns; r += step) {
		gpk_read<T, V>(v, x + r * columns + column);
		GPK_UNROLL
		for (int i = 0; i < V; i++)
			some[i] += v[i];
	}
	gpk_fold_rows<1, V>(some, columns, room);
	if (!gpk_last_part(tickets, blockIdx.x))
		return;
	const int64_t mine = gpk_total_parts<1, V>(columns, room, sum);
	if (mine >= 0)
		grad[mine] += (float)sum[0];
}

/* Enough room for either type. */
extern "C" uint64_t gpk_row_bias_room(int64_t rows, int64_t columns)
{
	const uint64_t wide = gpk_sums_room(GP_RT_F32, rows, columns, 1),
		       narrow = gpk_sums_room(GP_RT_BF16, rows, columns, 1);
	return wide > narrow ? wide : narrow;
}

extern "C" void gpk_row_bias_backward(struct gp_rt_stream *s, enum gp_rt_type type, float *grad, const void *dout,
				      int64_t rows, int64_t columns, void *room)
{
	GPK_BY_TYPE(type, T, GPK_BY_WIDTH(columns, T, V, {
			    const struct gpk_tile t = gpk_tile_of(columns / V, GPK_SUMS_WIDE, GPK_SUMS_THREADS);
			    GPK_LAUNCH(s, (sum_rows<T, V>), dim3(t.tiles, gpk_sums_parts(rows, t)), t.block(),
				       gpk_sums_shared(GPK_SUMS_THREADS, V), grad, (const T *)dout, rows, columns,
				       (double *)room, gp_rt_tickets(s));
		    }));
}

/* --- means over an image ------------------------------------------------------------------------------------------ */

/* The warps of a block have partial sums of its channels; the first warp gets their sum. */
GPK_DEVICE float sum_of_warps(float v)
{
	GPK_SHARED(float, part, [WARPS][LANES]);
	part[threadIdx.y][threadIdx.x] = v;
	__syncthreads();
	float sum = 0;
	if (threadIdx.y == 0)
		for (int w = 0; w < WARPS; w++)
			sum += part[w][threadIdx.x];
	__syncthreads();
	return sum;
}

template <typename T> GPK_KERNEL mean(T *out, const T *in, int64_t images, int64_t pixels, int64_t columns, float scale)
{
	const int64_t c = (int64_t)blockIdx.x * LANES + threadIdx.x;
	for (int64_t image = blockIdx.y; image < images; image += gridDim.y) {
		const T *x = in + image * pixels * columns;
		float sum = 0;
		for (int64_t p = threadIdx.y; p < pixels && c < columns; p += WARPS)
			sum += gpk_get(x[p * columns + c]);
		sum = sum_of_warps(sum);
		if (threadIdx.y == 0 && c < columns)
			gpk_put(&out[image * columns + c], sum * scale);
	}
}

template <typename T>
GPK_KERNEL mean_grad(T *dx, const T *dout, int64_t images, int64_t pixels, int64_t columns, float scale, bool add)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x, n = images * pixels * columns;
	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
		const int64_t c = i % columns, image = i / columns / pixels;
		const float v = gpk_get(dout[image * columns + c]) * scale;
		gpk_put(&dx[i], add ? __fadd_rn(gpk_get(dx[i]), gpk_rounded<T>(v)) : v);
	}
}

extern "C" void gpk_mean_forward(struct gp_rt_stream *s, enum gp_rt_type type, void *out, const void *in,
				 int64_t images, int64_t pixels, int64_t columns)
{
	const dim3 grid((unsigned)gpk_div_up(columns, LANES), (unsigned)(images < MOST_GRID_Y ? images : MOST_GRID_Y)),
		block(LANES, WARPS);
	GPK_BY_TYPE(type, T,
		    GPK_LAUNCH(s, mean<T>, grid, block, 0, (T *)out, (const T *)in, images, pixels, columns,
			       1.0f / (float)pixels));
}

extern "C" void gpk_mean_backward(struct gp_rt_stream *s, enum gp_rt_type type, void *dx, const void *dout,
				  int64_t images, int64_t pixels, int64_t columns, bool add)
{
	const unsigned blocks = gpk_blocks(images * pixels * columns, THREADS, MOST_BLOCKS);
	GPK_BY_TYPE(type, T,
		    GPK_LAUNCH(s, mean_grad<T>, blocks, THREADS, 0, (T *)dx, (const T *)dout, images, pixels, columns,
			       1.0f / (float)pixels, add));
}
