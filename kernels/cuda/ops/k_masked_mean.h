/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of the mean over the positions that a mask keeps: x (samples,
 * positions, features) of `type`, mask (samples, positions) i32, in device
 * memory. Zeros where a sample's mask keeps none.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_ops.c
 */
#ifndef GP_K_MASKED_MEAN_H
#define GP_K_MASKED_MEAN_H

#include "kernels/cuda/runtime/rt.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gpk_masked_mean {
	const int32_t *mask;
	int64_t samples, positions, features;
};

/* out (samples, features); dx is x's gradient. */
void gpk_masked_mean_forward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_masked_mean *m, void *out,
			     const void *x);
void gpk_masked_mean_backward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_masked_mean *m, void *dx,
			      const void *dout);

#ifdef __cplusplus
}
#endif
#endif
