/* SPDX-License-Identifier: Apache-2.0
 *
 * Mean over the positions that a mask keeps: a block of 32 x 8 threads takes 32
 * neighbouring features of a sample, a warp every eighth position; the warps'
 * sums are added in their order. See k_masked_mean.h.
 * Test: tests/unit/test_cuda_ops.c
 */
#include "kernels/cuda/ops/k_masked_mean.h"

#include "kernels/cuda/runtime/gpk_rows.h"

#define LANES GPK_WARP
#define WARPS 8

/* One through the positions of `mask` that count, which each warp has counted every eighth of; 0 for none. */
GPK_DEVICE float share_of(int64_t counted)
{
	GPK_SHARED(int64_t, count, [WARPS]);
	if (threadIdx.x == 0)
		count[threadIdx.y] = counted;
	__syncthreads();
	int64_t sum = 0;
	for (int w = 0; w < WARPS; w++)
		sum += count[w];
	__syncthreads();
	return sum ? 1.0f / (float)sum : 0.0f;
}

template <typename T>
GPK_KERNEL GPK_BOUNDS(LANES *WARPS) masked_mean(struct gpk_masked_mean m, T *out, const T *GPK_RESTRICT x)
{
	GPK_SHARED(float, part, [WARPS][LANES]);
	const int64_t f = (int64_t)blockIdx.x * LANES + threadIdx.x;
	for (int64_t n = blockIdx.y; n < m.samples; n += gridDim.y) {
		const int32_t *mask = m.mask + n * m.positions;
		const T *from = x + n * m.positions * m.features;
		float sum = 0;
		int64_t count = 0;
		for (int64_t s = threadIdx.y; s < m.positions; s += WARPS)
			if (mask[s] != 0) {
				count++;
				sum += f < m.features ? gpk_get(from[s * m.features + f]) : 0;
			}
		part[threadIdx.y][threadIdx.x] = sum;
		const float share = share_of(count); /* all have written their part by then */
		if (threadIdx.y == 0 && f < m.features) {
			sum = 0;
			for (int w = 0; w < WARPS; w++)
				sum += part[w][threadIdx.x];
			gpk_put(&out[n * m.features + f], sum * share);
		}
		__syncthreads();
	}
}

template <typename T>
GPK_KERNEL GPK_BOUNDS(LANES *WARPS) masked_mean_grad(struct gpk_masked_mean m, T *dx, const T *GPK_RESTRICT dout)
{
	const int64_t f = (int64_t)blockIdx.x * LANES + threadIdx.x;
	for (int64_t n = blockIdx.y; n < m.samples; n += gridDim.y) {
		const int32_t *mask = m.mask + n * m.positions;
		T *to = dx + n * m.positions * m.features;
		int64_t count = 0;
		for (int64_t s = threadIdx.y; s < m.positions; s += WARPS)
			count += mask[s] != 0;
		const float share = share_of(count);
		const float g = f < m.features ? gpk_get(dout[n * m.features + f]) * share : 0;
		for (int64_t s = threadIdx.y; s < m.positions && f < m.features; s += WARPS)
			gpk_put(&to[s * m.features + f], mask[s] != 0 ? g : 0);
	}
}

static dim3 grid_of(const struct gpk_masked_mean *m)
{
	return dim3((unsigned)gpk_div_up(m->features, LANES), gpk_blocks(m->samples, 1, GPK_GRID_HIGH));
}

extern "C" void gpk_masked_mean_forward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_masked_mean *m,
					void *out, const void *x)
{
	const dim3 block(LANES, WARPS);
	GPK_BY_TYPE(type, T, GPK_LAUNCH(s, masked_mean<T>, grid_of(m), block, 0, *m, (T *)out, (const T *)x));
}

extern "C" void gpk_masked_mean_backward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_masked_mean *m,
					 void *dx, const void *dout)
{
	const dim3 block(LANES, WARPS);
	GPK_BY_TYPE(type, T, GPK_LAUNCH(s, masked_mean_grad<T>, grid_of(m), block, 0, *m, (T *)dx, (const T *)dout));
}
