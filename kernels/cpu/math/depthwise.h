/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of depthwise 3x3 convolutions over channels-last images, for AVX2,
 * AVX-512 and NEON: one call computes one row of one image, so that a caller can
 * run several things over rows that are still in the cache. Where the processor
 * has none of them (gp_depthwise_supported) the convolution stays with oneDNN, or
 * with plain loops.
 *
 * Arithmetic, the same for all instruction sets: an output is one chain of
 * fused multiply-adds over its taps in row-major order, from zero or a bias; taps
 * in the padding are left out. To a weight gradient each row adds the left border
 * column, then, for the columns whose taps are all inside, one such chain for each
 * tile of as many columns as a tile has, and then the right border column.
 *
 * Weights and their gradient are (9, lanes): tap by tap, channels padded with
 * zeros to whole cache lines.
 *
 * Only for kernels/cpu.
 *
 * Threads: any; rooms and outputs are the caller's. Test: tests/unit/test_depthwise.c
 */
#ifndef GP_CPU_DEPTHWISE_H
#define GP_CPU_DEPTHWISE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/math/finish.h"

#define GP_DW_TAPS 9

struct gp_dw {
	int64_t h, w, out_h, out_w, channels;
	int64_t stride, pad_top, pad_left; /* stride 1 or 2, padding 0..2 */
	int64_t lanes;                     /* gp_depthwise_lanes(channels) */
};

/* Rows of an image, where they lie one after another; or only the newest `ring` of them, row r at base + r % ring. */
struct gp_dw_rows {
	const float *base;
	int64_t ring; /* 0: all of them; else a power of two of at least GP_DW_RING */
};
#define GP_DW_RING 4

bool gp_depthwise_supported(void);
int64_t gp_depthwise_lanes(int64_t channels);

/* Row oy of y, from the image x: its rows oy * stride - pad_top and the two behind. */
void gp_depthwise_forward_row(const struct gp_dw *g, float *y, struct gp_dw_rows x, const float *weight, int64_t oy);
/* The same, of sums that begin with a bias and are limited. */
void gp_depthwise_finished_row(const struct gp_dw *g, float *y, struct gp_dw_rows x, const float *weight,
			       const struct gp_finish *finish, int64_t oy);
/* Row iy of dx, from the image dy: its rows from (iy + pad_top - 2) / stride to (iy + pad_top) / stride. */
void gp_depthwise_data_row(const struct gp_dw *g, float *dx, struct gp_dw_rows dy, const float *weight, int64_t iy);
/* grad += what row oy of dy (given alone) gives with the image x. */
void gp_depthwise_weights_row(const struct gp_dw *g, float *grad, struct gp_dw_rows x, const float *dy, int64_t oy);
/* Where row r lies; `width` floats a row. */
static inline const float *gp_depthwise_row(struct gp_dw_rows rows, int64_t r, int64_t width)
{
	return rows.base + (rows.ring ? r & (rows.ring - 1) : r) * width;
}

#endif
