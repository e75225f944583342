/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions of any shape as matrix products: for some places at a time, what the kernel sees there is gathered as the rows
 * of a matrix (im2col), which is multiplied with the kernel as another. See conv_shape.h and product.h.
 *
 * Arithmetic: an output is one chain of fused multiply-adds over its taps, those in the padding included, and over the
 * channels of each; it depends neither on the places computed with it nor on the instruction set. In bf16 the chain is that
 * of gemm.h's products of pairs.
 *
 * Only for kernels/cpu.
 *
 * Threads: any; a call starts none, callers share rows out. Test: tests/unit/test_conv_plain.c
 */
#ifndef GP_CPU_CONV_PATCHES_H
#define GP_CPU_CONV_PATCHES_H

#include "kernels/cpu/math/conv_shape.h"

/* Floats of the packed kernel of a pass; what it is packed from has PyTorch's layout. */
int64_t gp_conv_packed_count(const struct gp_conv_shape *s, bool backwards);
/* room: in bf16, for as many floats as `weight` has; else NULL. */
void gp_conv_pack(const struct gp_conv_shape *s, bool backwards, float *packed, const float *weight, float *room);

/* Floats of the room that each of the functions below works in. */
int64_t gp_conv_room(const struct gp_conv_shape *s);

/* Rows [from, to) of the images that a pass writes, counted over all images. */
void gp_conv_pass(const struct gp_conv_shape *s, bool backwards, float *out, const float *in, const float *packed,
		  int64_t from, int64_t to, float *room);

/*
 * The kernel's gradient from rows [from, to) of y, counted over all images, and from x: as (groups, kernel_h, kernel_w,
 * x.channels / groups, y.channels / groups), added to what is there, or with `fresh` put there.
 */
void gp_conv_weigh(const struct gp_conv_shape *s, float *grad, const float *x, const float *y, int64_t from, int64_t to,
		   bool fresh, float *room);
/* Such a gradient in PyTorch's layout. */
void gp_conv_unpack(const struct gp_conv_shape *s, float *weight, const float *grad);

#endif
