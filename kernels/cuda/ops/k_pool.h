/* SPDX-License-Identifier: Apache-2.0
 *
 * Pooling: average and maximum (over whole images: k_columns.h). Tensors are
 * NHWC of `type`, x (images, h, w, channels), y (images, out_h, out_w,
 * channels), in device memory. Backward gathers: a pixel collects from the
 * windows over it, in their order.
 *
 * Maximum keeps the place of each within its window, kh * kernel_w + kw: the
 * first of equals, and a NaN wins, as PyTorch's. A place takes 4 bits where
 * windows have at most 16 of them and the threads several channels each, 8 where
 * they have at most 256, else 32 (gpk_place_bits).
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_pool.c
 */
#ifndef GP_K_POOL_H
#define GP_K_POOL_H

#include "kernels/cuda/runtime/rt.h"
#include "kernels/cuda/runtime/window.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bits of a place: 4 where every thread has several neighbouring channels, whose places it packs into a word of its own, so that
 * no byte is written by two threads. */
static inline int gpk_place_bits(const struct gpk_window *w, enum gp_rt_type type)
{
	const int64_t neighbours = type == GP_RT_BF16 ? 8 : 4;
	if (gpk_window_taps(w) <= 16 && w->channels % neighbours == 0)
		return 4;
	return gpk_window_taps(w) <= 256 ? 8 : 32;
}

/* `places`: gpk_place_bits for each element of y; NULL: not kept (evaluation). */
void gpk_max_pool_forward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w, const void *x,
			  void *y, void *places);
void gpk_max_pool_backward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w, const void *dy,
			   const void *places, void *dx);

/* `count_padding`: divides by the whole window's size, else by what of it lies in the image. */
void gpk_avg_pool_forward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w, bool count_padding,
			  const void *x, void *y);
void gpk_avg_pool_backward(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w, bool count_padding,
			   const void *dy, void *dx);

#ifdef __cplusplus
}
#endif
#endif
