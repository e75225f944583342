/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolution and transposed convolution.
 *
 * Threads: any, one at a time for a graph. Test: tests/unit/test_graph.c
 */
#ifndef GP_OP_CONV_H
#define GP_OP_CONV_H

#include "common/graph/op.h"

/* Also transposed convolution, where padding is cropped from the output and out_pad adds rows at the bottom/right. */
struct gp_conv_attr {
	int32_t out_channels;
	int32_t kernel_h, kernel_w;
	int32_t stride_h, stride_w;
	int32_t pad_top, pad_bottom, pad_left, pad_right;
	int32_t out_pad_h, out_pad_w; /* transposed only */
	int32_t groups;
	int32_t bias; /* 0 or 1 */
};
GP_OP_ATTRIBUTES(conv)

/* Square kernel, the same padding on all sides. */
int gp_graph_conv(struct gp_graph *g, const char *name, int in, int out_channels, int kernel, int stride, int pad,
		  int groups, bool bias, struct gp_err *err);

#endif
