/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions of each channel with a kernel of its own (depthwise), of any shape, in plain loops over channels. See
 * conv_shape.h, whose groups are the channels of both images. depthwise.h's are faster where they run.
 *
 * Arithmetic: an output is the sum of its taps in row-major order, each product rounded, those in the padding left out.
 *
 * Only for kernels/cpu.
 *
 * Threads: any; a call starts none, callers share rows or channels out. Test: tests/unit/test_conv_plain.c
 */
#ifndef GP_CPU_CONV_CHANNELS_H
#define GP_CPU_CONV_CHANNELS_H

#include "kernels/cpu/math/conv_shape.h"

bool gp_conv_channels_fit(const struct gp_conv_shape *s);

/* PyTorch's layout, (channels, taps), to (taps, channels), and back. */
void gp_conv_channels_pack(const struct gp_conv_shape *s, float *packed, const float *weight);
void gp_conv_channels_unpack(const struct gp_conv_shape *s, float *weight, const float *packed);

/* Rows [from, to) of the images that a pass writes, counted over all images. */
void gp_conv_channels_pass(const struct gp_conv_shape *s, bool backwards, float *out, const float *in,
			   const float *packed, int64_t from, int64_t to);
/* Channels [from, to) of the packed kernel's gradient, from all of x and y; added to what is there, or with `fresh` put
 * there. */
void gp_conv_channels_weigh(const struct gp_conv_shape *s, float *grad, const float *x, const float *y, int64_t from,
			    int64_t to, bool fresh);

#endif
