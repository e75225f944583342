/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of the embedding: ids to rows of a table, and the table's gradient.
 * Ids are i32, the table is fp32, values and their gradients are of `type`, all
 * in device memory. An id outside the table has a row of zeros, no gradient.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_ops.c
 */
#ifndef GP_K_EMBEDDING_H
#define GP_K_EMBEDDING_H

#include "kernels/cuda/runtime/rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out (positions, features) = table (vocab, features) at id (positions) */
void gpk_embedding_forward(struct gp_rt_stream *s, enum gp_rt_type type, void *out, const float *table,
			   const int32_t *id, int64_t positions, int64_t vocab, int64_t features);
/* grad[id] += dout, position after position: the sums of a loop, whatever the card. */
void gpk_embedding_backward(struct gp_rt_stream *s, enum gp_rt_type type, float *grad, const void *dout,
			    const int32_t *id, int64_t positions, int64_t vocab, int64_t features);

#ifdef __cplusplus
}
#endif
#endif
