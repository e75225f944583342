/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that belong to no op. See k_fill.h. Test: tests/unit/test_cuda_rt.c
 */
#include "kernels/cuda/ops/k_fill.h"

#include "kernels/cuda/runtime/gpk_block.h"
#include "kernels/cuda/runtime/gpk_rows.h"

#define THREADS 256

/* Four at a time where both begin at a vector, as tensors do; what is left over one by one. */
template <typename To, typename From> GPK_KERNEL convert(To *to, const From *from, int64_t n, int64_t whole)
{
	constexpr int W = 4;
	const int64_t step = (int64_t)gridDim.x * blockDim.x, first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	for (int64_t i = first * W; i < whole; i += step * W) {
		float v[W];
		gpk_read(v, &from[i]);
		gpk_write(&to[i], v);
	}
	for (int64_t i = whole + first; i < n; i += step)
		gpk_put(&to[i], gpk_get(from[i]));
}

static bool begins_at_vectors(const void *a, const void *b)
{
	return ((uintptr_t)a | (uintptr_t)b) % 16 == 0;
}

extern "C" void gpk_convert(struct gp_rt_stream *s, enum gp_rt_type to_type, void *to, enum gp_rt_type from_type,
			    const void *from, int64_t n)
{
	if (n < 1)
		return;
	const int64_t whole = begins_at_vectors(to, from) ? n - n % 4 : 0;
	const unsigned blocks = gpk_blocks(whole ? gpk_div_up(n, 4) : n, THREADS, 2048);
	GPK_BY_TYPE(to_type, To,
		    GPK_BY_TYPE(from_type, From,
				GPK_LAUNCH(s, (convert<To, From>), blocks, THREADS, 0, (To *)to, (const From *)from, n,
					   whole)));
}

GPK_KERNEL squares_of_parts(const float *x, int64_t n, double *room)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x;
	double sum = 0;
	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
		sum += (double)x[i] * (double)x[i];
	sum = gpk_block_sum<THREADS>(sum);
	if (threadIdx.x == 0)
		room[blockIdx.x] = sum;
}

GPK_KERNEL sum_of_parts(const double *room, int parts, double *sum)
{
	const double all = gpk_block_sum<THREADS>((int)threadIdx.x < parts ? room[threadIdx.x] : 0);
	if (threadIdx.x == 0)
		*sum = all;
}

extern "C" void gpk_squares(struct gp_rt_stream *s, const float *x, int64_t n, double *room, double *sum)
{
	const unsigned blocks = gpk_blocks(n, THREADS * 8, GPK_SQUARES_ROOM);
	GPK_LAUNCH(s, squares_of_parts, blocks, THREADS, 0, x, n, room);
	GPK_LAUNCH(s, sum_of_parts, 1, THREADS, 0, (const double *)room, (int)blocks, sum);
}
