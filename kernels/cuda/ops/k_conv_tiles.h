/* SPDX-License-Identifier: Apache-2.0
 *
 * Dense convolution on tensor cores without columns in memory (implicit matrix
 * product), for TF32 and bf16: forward, and the gradient of its input. Tensors
 * of `type` (fp32 is read as TF32), NHWC, bases aligned to 16 bytes. Padding may
 * be negative. The gradient of the weight: k_conv_weight.h.
 *
 *   x (images, h, w, channels)   weight (outputs, KH, KW, channels)   y (images, out_h, out_w, outputs)
 *
 * A sum may be cut into parts: `room` holds them (gpk_*_room bytes, device memory). Its order depends on the shape alone.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_tiles.c
 */
#ifndef GP_K_CONV_TILES_H
#define GP_K_CONV_TILES_H

#include "kernels/cuda/runtime/rt.h"
#include "kernels/cuda/runtime/window.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the kernel can do it: whole 16 bytes of channels, an even number of outputs. */
bool gpk_conv_tiles_fits(enum gp_rt_type type, const struct gpk_window *w, int64_t outputs);
uint64_t gpk_conv_tiles_room(enum gp_rt_type type, const struct gpk_window *w, int64_t outputs);
/* y = windows of x times weight; add: y += that. */
void gpk_conv_tiles(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w, int64_t outputs,
		    const void *x, const void *weight, bool add, void *y, void *room);

/*
 * The other way: x becomes (add: gets added) the sums of what windows have there, from y. Pixels that lie alike under
 * windows, by their row and column modulo the stride, get a convolution of stride 1 by the taps that reach them; of
 * stride 1, all do. `turned` is the weight for it, made by gpk_conv_turn_weight; it has as many elements.
 */
bool gpk_conv_back_fits(enum gp_rt_type type, const struct gpk_window *w, int64_t outputs);
uint64_t gpk_conv_back_room(enum gp_rt_type type, const struct gpk_window *w, int64_t outputs);
void gpk_conv_back(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w, int64_t outputs,
		   const void *y, const void *turned, bool add, void *x, void *room);
/*
 * For each kind of pixel, in the order of rows and columns modulo the stride: (channels, its taps in reverse order,
 * outputs).
 */
void gpk_conv_turn_weight(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w, int64_t outputs,
			  const void *weight, void *turned);

/* y (n) = sum of parts (count, n), one after another; add: y += that sum. */
void gpk_conv_add_parts(struct gp_rt_stream *s, enum gp_rt_type type, const float *parts, int64_t count, int64_t n,
			bool add, void *y);

#ifdef __cplusplus
}
#endif
#endif
