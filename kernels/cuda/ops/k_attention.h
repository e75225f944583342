/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of multi-head self-attention: of each head of a sample
 * softmax(q k' / sqrt(width)) v over the sample's tokens, with dropout of the
 * softmax's weights, and its gradients. Values and their gradients are (samples,
 * positions, heads * width) of `type`, in device memory.
 *
 * No matrix of (positions, positions) exists anywhere: forward keeps the logarithm of each row's sum, and backward makes the
 * weights anew from it (Dao et al., "FlashAttention: fast and memory-efficient exact attention with IO-awareness", 2022,
 * algorithms 1, 2 and 4). Sums have an order that depends on sizes, type and precision alone.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Tests: tests/unit/test_cuda_attention.c, tests/unit/test_cuda_ops.c
 */
#ifndef GP_K_ATTENTION_H
#define GP_K_ATTENTION_H

#include "common/graph/device.h"
#include "kernels/cuda/ops/k_elementwise.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gpk_attention {
	const void *q, *k, *v;
	/* (samples), device memory: tokens of each, as given: below 0 it counts as 0, above `positions` as that. What stands
	 * at the other positions has no influence; their output and gradients are zeros. */
	const int32_t *length;
	float *log; /* (samples, heads, positions): forward leaves the logarithms for backward; unwritten at padding */
	int64_t samples, positions, heads, width;
	int64_t most;                /* positions of the longest chunk that there may be: draws are counted over them */
	enum gp_precision precision; /* of products: fp32 operands are read as they are, or as TF32 */
	/*
	 * Drops weights; threshold 0: none. Weight (i, j) of head h of sample n has word j % 4 of block
	 * (*draw * R + (n * heads + h) * most + i) * ceil(most / 4) + j / 4, R = samples * heads * most.
	 */
	struct gpk_dropout drop;
};

void gpk_attention_forward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_attention *a, void *out);

struct gpk_attention_grads {
	const void *out, *dout;
	void *dq, *dk, *dv; /* NULL where nobody wants it */
	float *room;        /* gpk_attention_room bytes */
};
uint64_t gpk_attention_room(int64_t samples, int64_t positions, int64_t heads);
void gpk_attention_backward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_attention *a,
			    const struct gpk_attention_grads *g);

/* The same for heads of any width, and slow: those that are wider than GPK_ATTENTION_WIDEST go that way. */
#define GPK_ATTENTION_WIDEST 128
void gpk_attention_forward_plain(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_attention *a,
				 void *out);
void gpk_attention_backward_plain(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_attention *a,
				  const struct gpk_attention_grads *g);

#ifdef __cplusplus
}
#endif
#endif
