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

#include "kernels/cuda/ops/k_batch_norm.h"
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

/*
 * The same where a batch norm beside the convolution leaves its part to it, with the bits that both would give apart
 * (k_batch_norm.h). `before` normalizes x, by what lies in its `saved`, as x is read: x is that batch norm's input. `behind`
 * takes the chunk's statistics of y: its `saved` is filled, its running statistics move, and gpk_bn_apply is left; a room as
 * of many rows. Backward, dx is the gradient behind the activation of `before`, whose coefficients come to lie in its room,
 * and gpk_bn_backward_apply is left. One of `before` and `behind` may be NULL. Only of windows that fit.
 */
bool gpk_depthwise_norm_fits(const struct gpk_window *w);
void gpk_depthwise_forward_norm(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w,
				const float *weight, const struct gpk_bn *before, const struct gpk_bn *behind,
				const void *x, void *y);
void gpk_depthwise_backward_data_norm(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w,
				      const float *weight, const struct gpk_bn *before, const void *x, const void *dy,
				      void *dx, float *dgamma, float *dbeta);
void gpk_depthwise_backward_weight_norm(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w,
					const struct gpk_bn *before, const void *x, const void *dy, void *room,
					float *grad);

/*
 * Where rows are few on both sides: forward of `before`, convolution and `behind` in one launch. x is the input of
 * `before`; z is what the convolution makes, y what `behind` makes of it; z may be y, and is not kept then. by chunk: it
 * takes the chunk's statistics, else the running ones. backward: the gradient of the convolution's input and the backward of
 * `before`, from dz, the gradient of z, which dx must not be; dx may be NULL.
 */
bool gpk_depthwise_rows_fit(const struct gpk_window *w);
void gpk_depthwise_rows_forward(struct gp_rt_stream *s, const struct gpk_window *w, const float *weight,
				const struct gpk_bn *before, bool chunk_before, const struct gpk_bn *behind,
				bool chunk_behind, const void *x, void *z, void *y);
void gpk_depthwise_rows_backward(struct gp_rt_stream *s, const struct gpk_window *w, const float *weight,
				 const struct gpk_bn *before, const void *x, const void *dz, void *dx, float *dgamma,
				 float *dbeta);

#ifdef __cplusplus
}
#endif
#endif
