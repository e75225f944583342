/* SPDX-License-Identifier: Apache-2.0
 *
 * Depthwise convolution: one filter per channel. x (images, h, w, channels)
 * and y (images, out_h, out_w, channels) are of `type`; weight and its
 * gradient (KH, KW, channels) are fp32. All in device memory, bases aligned to
 * 16 bytes. Kernels of 3x3 and 5x5 with stride 1 and 2 have code of their own,
 * any other works.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_conv.c
 */
#ifndef GP_K_DEPTHWISE_H
#define GP_K_DEPTHWISE_H

#include "kernels/cuda/runtime/rt.h"
#include "kernels/cuda/runtime/window.h"

#ifdef __cplusplus
extern "C" {
#endif

void gpk_depthwise_forward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w,
			   const float *weight, const void *x, void *y);
/* dx overwritten. */
void gpk_depthwise_backward_data(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w,
				 const float *weight, const void *dy, void *dx);
/* grad += . `room`: gpk_depthwise_room bytes. */
uint64_t gpk_depthwise_room(const struct gpk_window *w);
void gpk_depthwise_backward_weight(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w,
				   const void *x, const void *dy, void *room, float *grad);

#ifdef __cplusplus
}
#endif
#endif
