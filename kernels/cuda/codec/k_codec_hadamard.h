/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of `hadamard`. Formula: common/CODECS.md. Pointers are device memory.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_codec_block.c
 */
#ifndef GP_K_CODEC_HADAMARD_H
#define GP_K_CODEC_HADAMARD_H

#include "kernels/cuda/runtime/rt.h"
#include "kernels/loops/hadamard_loops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What kernels get of a spec. */
struct gpk_hadamard {
	int levels;                            /* a block has 2^levels elements, 3..GP_HADAMARD_LEVELS */
	uint32_t signs[GP_HADAMARD_MOST / 32]; /* bit i: whether element i of a block is negated */
};

/* Transforms x[0..n) to y[0..n), block by block; a last block that is not full as the host cuts it, into
 * powers of two. *bad becomes 1 where the bits of a magnitude of y are `limit` or more. n < 2^31. */
void gpk_hadamard_forward(struct gp_rt_stream *s, const struct gpk_hadamard *h, const float *x, int64_t n,
			  uint32_t limit, float *y, uint32_t *bad);
void gpk_hadamard_backward(struct gp_rt_stream *s, const struct gpk_hadamard *h, const float *x, int64_t n,
			   uint32_t limit, float *y, uint32_t *bad);

#ifdef __cplusplus
}
#endif
#endif
