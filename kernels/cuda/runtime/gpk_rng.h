/* SPDX-License-Identifier: Apache-2.0
 *
 * The draws of common/base/rng.h on the device, word for word: Philox4x32-10. For
 * kernel files (gpk.h).
 *
 * Threads: those of a kernel, on the device. Test: tests/unit/test_cuda_ops.c
 */
#ifndef GPK_RNG_H
#define GPK_RNG_H

#include "kernels/cuda/runtime/gpk.h"

/* As gp_rng_block. */
GPK_DEVICE void gpk_rng_block(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4])
{
	uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
	uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
	uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
	for (int round = 0; round < 10; round++) {
		const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
		c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
		c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
		c1 = (uint32_t)p1;
		c3 = (uint32_t)p0;
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	out[0] = c0;
	out[1] = c1;
	out[2] = c2;
	out[3] = c3;
}

#endif
