/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of ops over the rows of sequences (samples, positions, features):
 * rows of a table are added to them, or one of them is taken. Values and their
 * gradients are of `type`, the table and its gradient are fp32, all in device
 * memory.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_ops.c
 */
#ifndef GP_K_ROWS_H
#define GP_K_ROWS_H

#include "kernels/cuda/runtime/rt.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gpk_sequences {
	int64_t samples, positions, features;
};

/* out at position s = in + row s of the table, or with `same` its first row at all positions. `out` may be `in`. */
void gpk_add_rows_forward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_sequences *q, bool same,
			  void *out, const void *in, const float *table);
/* grad of row s += sum of dout at position s over the samples, from the first to the last. */
void gpk_add_rows_backward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_sequences *q, float *grad,
			   const void *dout);

/* out (samples, features) = in at position `row`; dx is its gradient, zeros at the other positions. */
void gpk_take_row_forward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_sequences *q, int64_t row,
			  void *out, const void *in);
void gpk_take_row_backward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_sequences *q, int64_t row,
			   void *dx, const void *dout);

#ifdef __cplusplus
}
#endif
#endif
