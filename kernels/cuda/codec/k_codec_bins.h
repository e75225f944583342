/* SPDX-License-Identifier: Apache-2.0
 *
 * Counting for `kmeans` on the device: the histogram of common/codec/stages/lloyd.h,
 * whose sums are integers, so that any order gives the host's.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_codec_select.c
 */
#ifndef GP_K_CODEC_BINS_H
#define GP_K_CODEC_BINS_H

#include "kernels/cuda/runtime/rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the host bins distances (GP_LLOYD_*), and device memory of 2 * side each, all 0 before; side >= 2560. */
struct gpk_bins {
	int low_bits, side, first;
	uint32_t *count; /* elements */
	uint64_t *low;   /* sums of their low bits */
};

/* drawn[i] = x[i * stretch + hash(i)], m of them: gp_lloyd_drawn. */
void gpk_bins_draw(struct gp_rt_stream *s, const float *x, int64_t n, int m, float *drawn);
/* x finite, low_bits <= 15. */
void gpk_bins_count(struct gp_rt_stream *s, const struct gpk_bins *b, const float *x, int64_t n, float center,
		    float scale);

#ifdef __cplusplus
}
#endif
#endif
