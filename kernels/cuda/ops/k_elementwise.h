/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of ops that look at one element at a time: activations and their
 * masks, GELU and tanh, sums, dropout. Tensors are device memory of `type`, n elements. Outputs may be
 * inputs.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_ops.c
 */
#ifndef GP_K_ELEMENTWISE_H
#define GP_K_ELEMENTWISE_H

#include "kernels/cuda/runtime/rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out = a + b */
void gpk_add(struct gp_rt_stream *s, enum gp_rt_type type, void *out, const void *a, const void *b, int64_t n);
/* out = in[0] + in[1] + ..., from the first to the last, rounded to `type` at the end. */
#define GPK_SUMMANDS 64
struct gpk_summands {
	const void *in[GPK_SUMMANDS];
	int count;
};
void gpk_sum(struct gp_rt_stream *s, enum gp_rt_type type, void *out, const struct gpk_summands *of, int64_t n);

/* out = max(in, 0), of six: min(that, 6); a NaN stays a NaN. dx = dout where 0 < out (< 6), else 0. */
void gpk_relu_forward(struct gp_rt_stream *s, enum gp_rt_type type, bool six, void *out, const void *in, int64_t n);
void gpk_relu_backward(struct gp_rt_stream *s, enum gp_rt_type type, bool six, void *dx, const void *dout,
		       const void *out, int64_t n);

/*
 * Where a gradient passes, a bit for each element (the first of 8 lowest), for plans that cannot tell from `out`, because it
 * lies encoded or is not kept. `mask` has gpk_mask_bytes(n). gpk_relu_mask_forward is gpk_relu_forward and gpk_mask_of of its
 * output in one pass; the gradient of gpk_mask_backward is what gpk_relu_backward gives; gpk_mask_spread makes a map from which
 * others find the same mask: 1 where the gradient passes, else 0. NaN lets none pass, infinity under ReLU does.
 */
static inline uint64_t gpk_mask_bytes(int64_t n)
{
	return (uint64_t)(n + 7) / 8;
}
void gpk_relu_mask_forward(struct gp_rt_stream *s, enum gp_rt_type type, bool six, void *out, void *mask,
			   const void *in, int64_t n);
void gpk_mask_of(struct gp_rt_stream *s, enum gp_rt_type type, bool six, void *mask, const void *out, int64_t n);
void gpk_mask_backward(struct gp_rt_stream *s, enum gp_rt_type type, void *dx, const void *dout, const void *mask,
		       int64_t n);
void gpk_mask_spread(struct gp_rt_stream *s, enum gp_rt_type type, void *map, const void *mask, int64_t n);

/*
 * GELU is x Phi(x), or x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) where `approximate`; its gradient is dx = dout times the
 * slope at `in`. That of tanh comes from its output: dx = dout (1 - out^2).
 */
void gpk_gelu_forward(struct gp_rt_stream *s, enum gp_rt_type type, bool approximate, void *out, const void *in,
		      int64_t n);
void gpk_gelu_backward(struct gp_rt_stream *s, enum gp_rt_type type, bool approximate, void *dx, const void *dout,
		       const void *in, int64_t n);
void gpk_tanh_forward(struct gp_rt_stream *s, enum gp_rt_type type, void *out, const void *in, int64_t n);
void gpk_tanh_backward(struct gp_rt_stream *s, enum gp_rt_type type, void *dx, const void *dout, const void *out,
		       int64_t n);

/*
 * Dropout's draws: element i's word is word i % 4 of block *draw * ceil(n/4) + i/4 of (seed, stream), common/base/rng.h. One
 * below `threshold` drops its element, others are times `scale`. Backward is the same on the gradient.
 *
 * Where samples have `missing` elements less than those of all positions, i and n are counted as if these were there, behind
 * each sample's own; `sample` is then a multiple of 8. So a position draws the same, whatever the chunk's length.
 */
struct gpk_dropout {
	uint64_t seed, stream;
	const uint64_t *draw; /* device memory */
	uint32_t threshold;
	float scale;
	int64_t sample, missing; /* elements of a sample; 0, 0: none are missing */
};
void gpk_dropout(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_dropout *d, void *out, const void *in,
		 int64_t n);

#ifdef __cplusplus
}
#endif
#endif
