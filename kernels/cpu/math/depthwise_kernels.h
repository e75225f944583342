/* SPDX-License-Identifier: Apache-2.0
 *
 * The versions of depthwise.h's rows, one for each instruction set. Only for depthwise.c, which chooses, and for
 * depthwise_body.h, of which they are made.
 *
 * Threads: any; constants. Test: tests/unit/test_depthwise.c
 */
#ifndef GP_CPU_DEPTHWISE_KERNELS_H
#define GP_CPU_DEPTHWISE_KERNELS_H

#include "kernels/cpu/math/depthwise.h"

/* What depthwise.h says of gp_depthwise_NAME. */
struct gp_depthwise_kernels {
	void (*forward_row)(const struct gp_dw *g, float *y, struct gp_dw_rows x, const float *weight, int64_t oy);
	void (*finished_row)(const struct gp_dw *g, float *y, struct gp_dw_rows x, const float *weight,
			     const struct gp_finish *finish, int64_t oy);
	void (*data_row)(const struct gp_dw *g, float *dx, struct gp_dw_rows dy, const float *weight, int64_t iy);
	void (*weights_row)(const struct gp_dw *g, float *grad, struct gp_dw_rows x, const float *dy, int64_t oy);
};

extern const struct gp_depthwise_kernels gp_depthwise_avx2, gp_depthwise_avx512, gp_depthwise_neon;

/* The functions of depthwise_body.h, in this order. */
#define GP_DEPTHWISE_KERNELS                                                                                           \
	{                                                                                                              \
		forward_row, finished_row, data_row, weights_row                                                       \
	}

#endif
