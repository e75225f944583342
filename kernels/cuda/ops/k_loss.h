/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of softmax cross-entropy and of the squared error. Device memory.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_train.c
 */
#ifndef GP_K_LOSS_H
#define GP_K_LOSS_H

#include "kernels/cuda/runtime/rt.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gpk_loss_row {
	double loss;  /* -log softmax(x)[label], or (x - label)^2; not set of a row without a label */
	int64_t best; /* first of the largest; 0 of one value; the same */
};

/* x (rows,k); labels of the first `valid` rows, below 0 for those without one. grad = scale * (softmax - onehot), rows past
 * `valid` and those without a label zero; may be NULL. */
void gpk_cross_entropy(struct gp_rt_stream *s, const float *x, const int32_t *label, int rows, int valid, int64_t k,
		       float scale, float *grad, struct gpk_loss_row *out);
/* x (rows,1); values of the first `valid` rows. grad = scale * 2 (x - label), rows past `valid` zero; may be NULL. */
void gpk_squared_error(struct gp_rt_stream *s, const float *x, const float *label, int rows, int valid, float scale,
		       float *grad, struct gpk_loss_row *out);

#ifdef __cplusplus
}
#endif
#endif
