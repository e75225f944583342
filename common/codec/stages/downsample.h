/* SPDX-License-Identifier: Apache-2.0
 *
 * Which windows `downsample` averages over, for the stages that do it: the
 * host's (downsample.c) and a GPU's (kernels/cuda/codec/cuda_downsample.c).
 *
 * Threads: any (pure functions). Test: tests/unit/test_codec_downsample.c
 */
#ifndef GP_CODEC_DOWNSAMPLE_H
#define GP_CODEC_DOWNSAMPLE_H

#include "common/codec/codec_impl.h"
#include "kernels/loops/downsample_loops.h"

/* (N,H,W,C) by height and width, (N,S,F) along the sequence. False for other shapes. */
bool gp_downsample_windows(const struct gp_shape *shape, int64_t factor, struct gp_windows *out);

#endif
