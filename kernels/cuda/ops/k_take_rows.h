/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of take_rows: rows of sequences (samples, positions, features) by
 * number. Values and their gradients are of `type`, all in device memory.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_ops.c
 */
#ifndef GP_K_TAKE_ROWS_H
#define GP_K_TAKE_ROWS_H

#include "kernels/cuda/ops/k_rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out (samples, taken, features) = the rows of in that `number` (samples, taken) says, zeros for a number that is none. */
void gpk_take_rows_forward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_sequences *q, int64_t taken,
			   void *out, const void *in, const int32_t *number);
/* dx (samples, positions, features): each row is the sum of the gradients of where it was taken, in their order. */
void gpk_take_rows_backward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_sequences *q, int64_t taken,
			    void *dx, const void *dout, const int32_t *number);

#ifdef __cplusplus
}
#endif
#endif
