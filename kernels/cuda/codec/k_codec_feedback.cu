/* SPDX-License-Identifier: Apache-2.0
 *
 * One pass each, two numbers of memory at four elements a thread. See
 * k_codec_feedback.h. Test: tests/unit/test_cuda_codec.c
 */
#include "kernels/cuda/codec/k_codec_feedback.h"

#include "kernels/cuda/codec/gpk_codec.h"

#define FOUR 4

static unsigned blocks_for(int64_t n)
{
	return gpk_blocks(n, GPK_CODEC_THREADS * FOUR, GPK_CODEC_MOST_BLOCKS);
}

GPK_DEVICE int64_t first_of_thread(void)
{
	return ((int64_t)blockIdx.x * GPK_CODEC_THREADS + threadIdx.x) * FOUR;
}

GPK_DEVICE int64_t step_of_grid(void)
{
	return (int64_t)gridDim.x * GPK_CODEC_THREADS * FOUR;
}

GPK_KERNEL add(const float *x, float *r, float *backup, const uint32_t *bits, float *y, int64_t n, uint32_t *bad)
{
	bool finite = true;
	for (int64_t at = first_of_thread(); at < n; at += step_of_grid()) {
		float v[FOUR], before[FOUR];
		gpk_load4(x, at, n, 0, v);
		gpk_load4(r, at, n, 0, before);
		if (backup)
			gpk_store4(backup, at, n, before);
		const uint32_t chosen = bits ? bits[at / 32] >> at % 32 : ~0u;
		for (int i = 0; i < FOUR; i++) {
			v[i] += before[i];
			finite &= gpk_finite(v[i]);
			before[i] = chosen >> i & 1 ? v[i] : before[i];
		}
		gpk_store4(r, at, n, before);
		gpk_store4(y, at, n, v);
	}
	gpk_flag(bad, !finite);
}

extern "C" void gpk_feedback_add(struct gp_rt_stream *s, const float *x, float *r, float *backup, const uint32_t *bits,
				 float *y, int64_t n, uint32_t *bad)
{
	GPK_LAUNCH(s, add, blocks_for(n), GPK_CODEC_THREADS, 0, x, r, backup, bits, y, n, bad);
}

GPK_KERNEL take(float *r, const float *arrived, int64_t n)
{
	for (int64_t at = first_of_thread(); at < n; at += step_of_grid()) {
		float v[FOUR], lost[FOUR];
		gpk_load4(r, at, n, 0, v);
		gpk_load4(arrived, at, n, 0, lost);
		for (int i = 0; i < FOUR; i++)
			v[i] -= lost[i];
		gpk_store4(r, at, n, v);
	}
}

extern "C" void gpk_feedback_take(struct gp_rt_stream *s, float *r, const float *arrived, int64_t n)
{
	GPK_LAUNCH(s, take, blocks_for(n), GPK_CODEC_THREADS, 0, r, arrived, n);
}
