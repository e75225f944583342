/* SPDX-License-Identifier: Apache-2.0
 *
 * Dense convolution on tensor cores without columns in memory (implicit matrix
 * product), for TF32 and bf16. Test: tests/unit/test_cuda_tiles.c
 */
#ifndef GP_K_CONV_TILES_H
#define GP_K_CONV_TILES_H

#include "kernels/cuda/rt.h"
#include "kernels/cuda/window.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the kernel can do it: whole 16 bytes of channels, an even number of outputs. */
bool gpk_conv_tiles_fits(enum gp_rt_type type, const struct gpk_window *w, int64_t outputs);
/*
 * y (images, out_h, out_w, outputs) = windows of x (images, h, w, channels) times weight (outputs, KH, KW, channels);
 * add: y += that. fp32 is read as TF32. All of `type`, bases aligned to 16 bytes. Padding may be negative.
 */
void gpk_conv_tiles(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w, int64_t outputs,
		    const void *x, const void *weight, bool add, void *y);
/*
 * The weight (outputs, KH, KW, channels) as (channels, KH, KW, outputs) with its taps in reverse order: with that, and
 * padding KH - 1 - pad_top, KW - 1 - pad_left, the gradient of a convolution of stride 1 is a convolution.
 */
void gpk_conv_turn_weight(struct gp_rt_stream *s, enum gp_rt_type type, int64_t outputs, int64_t taps, int64_t channels,
			  const void *weight, void *turned);

#ifdef __cplusplus
}
#endif
#endif
