/* SPDX-License-Identifier: Apache-2.0
 *
 * The shape of a convolution of channels-last images, and how places of one image meet places of the other: what
 * conv_patches.h and conv_channels.h have in common. x is the larger image, y the smaller; a transposed convolution is the
 * same with forward and backward exchanged.
 *
 * Glossary: pass = computing one image from the other: forward y from x, backwards x from y; tap = an element of the kernel;
 * phase = the places of x that are alike modulo the stride: backwards, they meet the same taps.
 *
 * Only for kernels/cpu.
 *
 * Threads: any; pure functions. Test: tests/unit/test_conv_plain.c
 */
#ifndef GP_CPU_CONV_SHAPE_H
#define GP_CPU_CONV_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

struct gp_conv_image {
	int64_t h, w, channels;
};

/* Weights are PyTorch's: (y.channels, x.channels / groups, kernel_h, kernel_w). */
struct gp_conv_shape {
	int64_t images;
	struct gp_conv_image x, y;
	int64_t kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_left, groups;
	bool bf16; /* products are of operands rounded to bfloat16 (gemm.h): of patches, and where groups is 1, alone */
};

/*
 * One axis of a pass. Place number i of its phase, at `step` i + phase in the image that is written, meets `taps` places in
 * a row of the image that is read, from `times` i + base on; the first with element `first` of the kernel, and each with the
 * one that is `stride` behind the one before.
 */
struct gp_conv_axis {
	int64_t taps, step, times, base, first, stride;
};

static inline struct gp_conv_axis gp_conv_axis(bool backwards, int64_t phase, int64_t kernel, int64_t stride,
					       int64_t pad)
{
	if (!backwards)
		return (struct gp_conv_axis){kernel, 1, stride, -pad, 0, 1};
	const int64_t nearest = (phase + pad) % stride;
	const int64_t taps = nearest < kernel ? (kernel - 1 - nearest) / stride + 1 : 0;
	return (struct gp_conv_axis){
		taps, stride, 1, (phase + pad - nearest) / stride - (taps - 1), nearest + (taps - 1) * stride, -stride};
}

/* Phases of an axis of a pass whose image is `length` long: no more than there are places. */
static inline int64_t gp_conv_phases(bool backwards, int64_t stride, int64_t length)
{
	return !backwards ? 1 : stride < length ? stride : length;
}

#endif
