/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of `ef`: what a chunk's tensor has lost, which stays on the device. All
 * pointers are device memory.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_codec.c
 */
#ifndef GP_K_CODEC_FEEDBACK_H
#define GP_K_CODEC_FEEDBACK_H

#include "kernels/cuda/runtime/rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* backup (or NULL) = r; then y = r = x + r, but r stays where `bits` (or NULL: all are set; element i is bit i % 32 of
 * word i / 32) has none. *bad becomes 1 where y is not finite. */
void gpk_feedback_add(struct gp_rt_stream *s, const float *x, float *r, float *backup, const uint32_t *bits, float *y,
		      int64_t n, uint32_t *bad);
/* r -= arrived. */
void gpk_feedback_take(struct gp_rt_stream *s, float *r, const float *arrived, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
