/* SPDX-License-Identifier: Apache-2.0
 *
 * Means over windows of images, and back, on the device; the host's bits
 * (kernels/loops/downsample_loops.h).
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_codec_poweriter.c
 */
#ifndef GP_K_CODEC_WINDOWS_H
#define GP_K_CODEC_WINDOWS_H

#include "kernels/cuda/runtime/rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* (n,h,w,c) in windows of fh * fw, smaller at the lower and right edge: (n, ceil(h / fh), ceil(w / fw), c). At most 2^31
 * elements. */
struct gpk_windows {
	int64_t n, h, w, c, fh, fw;
};

/* y = means; *bad, 0 before, becomes 1 when one is not finite. */
void gpk_windows_mean(struct gp_rt_stream *s, const struct gpk_windows *p, const float *x, float *y, uint32_t *bad);
/* x = each element's window's y. */
void gpk_windows_spread(struct gp_rt_stream *s, const struct gpk_windows *p, const float *y, float *x);

#ifdef __cplusplus
}
#endif
#endif
