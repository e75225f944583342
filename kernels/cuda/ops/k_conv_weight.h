/* SPDX-License-Identifier: Apache-2.0
 *
 * The gradient of a dense convolution's weight on tensor cores, without columns
 * in memory, for TF32 and bf16. See k_conv_tiles.h for the tensors and `room`.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_tiles.c
 */
#ifndef GP_K_CONV_WEIGHT_H
#define GP_K_CONV_WEIGHT_H

#include "kernels/cuda/runtime/rt.h"
#include "kernels/cuda/runtime/window.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the kernel can do it: whole 16 bytes of channels and of outputs. */
bool gpk_conv_weight_fits(enum gp_rt_type type, const struct gpk_window *w, int64_t outputs);
uint64_t gpk_conv_weight_room(enum gp_rt_type type, const struct gpk_window *w, int64_t outputs);
/*
 * grad (outputs, KH, KW, channels), fp32, aligned to 16 bytes, += sum over windows of dy (windows, outputs) times what x
 * has under them. Its order depends on the shape alone.
 */
void gpk_conv_weight(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w, int64_t outputs,
		     const void *x, const void *dy, float *grad, void *room);

#ifdef __cplusplus
}
#endif
#endif
