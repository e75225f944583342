/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of channels. A block of 32 x 8 threads takes 32 neighbouring channels,
 * so that a warp reads one piece of a row. See k_columns.h.
 * Test: tests/unit/test_cuda_ops.c
 */
#include "kernels/cuda/k_columns.h"

#include "kernels/cuda/gpk.h"

#define LANES       GPK_WARP
#define WARPS       8
#define THREADS     256
#define MOST_BLOCKS 2048
#define MOST_GRID_Y 65535
/* Rows that one block sums up at most, and how many of these slices there may be. */
#define SLICE_ROWS  512
#define MOST_SLICES 128

/* --- biases ------------------------------------------------------------------------------------------------------- */

template <typename T> GPK_KERNEL add_bias(T *x, const float *bias, int64_t rows, int64_t columns)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x, n = rows * columns;
	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
		gpk_put(&x[i], gpk_get(x[i]) + bias[i % columns]);
}

extern "C" void gpk_row_bias_forward(struct gp_rt_stream *s, enum gp_rt_type type, void *x, const float *bias,
				     int64_t rows, int64_t columns)
{
	const unsigned blocks = gpk_blocks(rows * columns, THREADS, MOST_BLOCKS);
	GPK_BY_TYPE(type, T, GPK_LAUNCH(s, add_bias<T>, blocks, THREADS, 0, (T *)x, bias, rows, columns));
}

static int64_t slices_of(int64_t rows)
{
	const int64_t slices = gpk_div_up(rows, SLICE_ROWS);
	return slices < MOST_SLICES ? slices : MOST_SLICES;
}

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

template <typename T>
GPK_KERNEL sum_slices(float *partials, const T *x, int64_t rows, int64_t columns, int64_t slice_rows)
{
	const int64_t c = (int64_t)blockIdx.x * LANES + threadIdx.x;
	const int64_t from = blockIdx.y * slice_rows, to = from + slice_rows < rows ? from + slice_rows : rows;
	float sum = 0;
	for (int64_t r = from + threadIdx.y; r < to && c < columns; r += WARPS)
		sum += gpk_get(x[r * columns + c]);
	sum = sum_of_warps(sum);
	if (threadIdx.y == 0 && c < columns)
		partials[blockIdx.y * columns + c] = sum;
}

GPK_KERNEL add_slices(float *grad, const float *partials, int64_t slices, int64_t columns)
{
	const int64_t c = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	float sum = 0;
	if (c >= columns)
		return;
	for (int64_t i = 0; i < slices; i++)
		sum += partials[i * columns + c];
	grad[c] += sum;
}

extern "C" uint64_t gpk_row_bias_room(int64_t rows, int64_t columns)
{
	return (uint64_t)(slices_of(rows) * columns) * sizeof(float);
}

extern "C" void gpk_row_bias_backward(struct gp_rt_stream *s, enum gp_rt_type type, float *grad, const void *dout,
				      int64_t rows, int64_t columns, void *room)
{
	const int64_t slices = slices_of(rows), slice_rows = gpk_div_up(rows, slices);
	const dim3 grid((unsigned)gpk_div_up(columns, LANES), (unsigned)slices), block(LANES, WARPS);
	GPK_BY_TYPE(type, T,
		    GPK_LAUNCH(s, sum_slices<T>, grid, block, 0, (float *)room, (const T *)dout, rows, columns,
			       slice_rows));
	GPK_LAUNCH(s, add_slices, (unsigned)gpk_div_up(columns, THREADS), THREADS, 0, grad, (const float *)room, slices,
		   columns);
}

/* --- means over an image ------------------------------------------------------------------------------------------ */

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
		gpk_put(&dx[i], add ? gpk_get(dx[i]) + v : v);
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
