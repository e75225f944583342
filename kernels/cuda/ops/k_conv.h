/* SPDX-License-Identifier: Apache-2.0
 *
 * What convolutions need around matrix products: windows of an image laid out
 * as rows of a matrix ("columns", after im2col) and added back. A convolution
 * of G groups has G matrices, one behind another, each
 *
 *   columns (windows, KH, KW, C/G)        weights (O/G, KH, KW, C/G)
 *
 * Tensors are NHWC of `type`, in device memory, bases aligned to 16 bytes (so
 * much at once goes where C/G allows it, else channel by channel). A slice has
 * fewer than 2^31 windows, and fewer than 2^31 pixels are added to at once.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_conv.c
 */
#ifndef GP_K_CONV_H
#define GP_K_CONV_H

#include "kernels/cuda/runtime/rt.h"
#include "kernels/cuda/runtime/window.h"

#ifdef __cplusplus
extern "C" {
#endif

/* columns = the windows of a slice of x (images, h, w, channels); padding is zero. */
void gpk_im2col(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w, int groups,
		const struct gpk_slice *slice, const void *x, void *columns);
/*
 * The other way: rows [from, from + rows) of the slice's images in dx become the sums of what windows have there.
 * Each sum runs over windows in their order. `slice` must hold every window over these rows. `add`: dx += them.
 */
void gpk_col2im(struct gp_rt_stream *s, enum gp_rt_type type, const struct gpk_window *w, int groups,
		const struct gpk_slice *slice, const void *columns, int64_t from, int64_t rows, bool add, void *dx);

#ifdef __cplusplus
}
#endif
#endif
