/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of layer norm over the last dimension, with the dropout and the
 * residual sum before it: of z = dropout(x) + residual,
 *
 *   out = (z - mean(z)) * scale * weight + bias,  scale = 1 / sqrt(variance(z) + eps)
 *
 * row by row. Values and their gradients are of `type`, the rest is fp32, all in device memory. Backward makes z anew.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_ops.c
 */
#ifndef GP_K_LAYER_NORM_H
#define GP_K_LAYER_NORM_H

#include "kernels/cuda/ops/k_elementwise.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gpk_layer_norm {
	int64_t rows, features;
	float eps;
	const void *x, *residual;   /* (rows, features); residual: NULL for none */
	const float *weight, *bias; /* (features) */
	float *mean, *scale;        /* (rows): forward leaves them for backward; NULL: it does not */
	struct gpk_dropout drop;    /* of x, over all its elements; threshold 0: none */
};

void gpk_layer_norm_forward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_layer_norm *n, void *out);
/* Gradients of x and of the residual; NULL where nobody wants it. */
void gpk_layer_norm_backward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_layer_norm *n, void *dx,
			     void *dresidual, const void *dout);
/*
 * dweight += sum of dout * normalized z over the rows, dbias += that of dout, in an order that depends on the sizes and the
 * type alone; NULL where nobody wants it. room: gpk_layer_norm_room bytes.
 */
void gpk_layer_norm_backward_weight(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_layer_norm *n,
				    float *dweight, float *dbias, const void *dout, void *room);
uint64_t gpk_layer_norm_room(enum gp_rt_type type, int64_t rows, int64_t features);

#ifdef __cplusplus
}
#endif
#endif
