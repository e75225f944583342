/* SPDX-License-Identifier: Apache-2.0
 *
 * A sum over the threads of a block, for kernels that leave one number each.
 * Only for k_*.cu and gpk_*.h.
 *
 * Threads: those of a kernel, on the device; all of a block call together.
 * Tests: tests/unit/test_cuda_rt.c, tests/unit/test_cuda_train.c
 */
#ifndef GPK_BLOCK_H
#define GPK_BLOCK_H

#include "kernels/cuda/runtime/gpk.h"

/*
 * Sum over all THREADS threads (a power of two), as a tree whose order depends on THREADS alone. Every thread calls it
 * and gets the sum. A kernel calls it once.
 */
template <unsigned THREADS> GPK_DEVICE double gpk_block_sum(double v)
{
	GPK_SHARED(double, part, [THREADS]);
	part[threadIdx.x] = v;
	for (unsigned half = THREADS / 2; half > 0; half /= 2) {
		__syncthreads();
		if (threadIdx.x < half)
			part[threadIdx.x] += part[threadIdx.x + half];
	}
	__syncthreads();
	return part[0];
}

#endif
