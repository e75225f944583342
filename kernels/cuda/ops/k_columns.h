/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers that look at a tensor as rows of `columns` channels: biases, sums
 * over rows, means over an image. Device memory; `type` is the tensor's,
 * per-channel vectors are fp32.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_ops.c
 */
#ifndef GP_K_COLUMNS_H
#define GP_K_COLUMNS_H

#include "kernels/cuda/runtime/rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* x[r][c] += bias[c] */
void gpk_row_bias_forward(struct gp_rt_stream *s, enum gp_rt_type type, void *x, const float *bias, int64_t rows,
			  int64_t columns);
/* grad[c] += sum of dout[r][c] over r, in an order that depends on the sizes alone. room: gpk_row_bias_room bytes. */
void gpk_row_bias_backward(struct gp_rt_stream *s, enum gp_rt_type type, float *grad, const void *dout, int64_t rows,
			   int64_t columns, void *room);
uint64_t gpk_row_bias_room(int64_t rows, int64_t columns);

/* out (images, columns) = mean over the pixels of in (images, pixels, columns); dx is its gradient, dx += with `add`. */
void gpk_mean_forward(struct gp_rt_stream *s, enum gp_rt_type type, void *out, const void *in, int64_t images,
		      int64_t pixels, int64_t columns);
void gpk_mean_backward(struct gp_rt_stream *s, enum gp_rt_type type, void *dx, const void *dout, int64_t images,
		       int64_t pixels, int64_t columns, bool add);

#ifdef __cplusplus
}
#endif
#endif
