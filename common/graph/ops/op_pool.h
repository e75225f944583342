/* SPDX-License-Identifier: Apache-2.0
 *
 * Average and maximum pooling, and the mean over a whole image.
 *
 * Threads: any, one at a time for a graph. Test: tests/unit/test_graph.c
 */
#ifndef GP_OP_POOL_H
#define GP_OP_POOL_H

#include "common/graph/op.h"

struct gp_pool_attr {
	int32_t kernel_h, kernel_w;
	int32_t stride_h, stride_w;
	int32_t pad_top, pad_bottom, pad_left, pad_right;
	int32_t count_include_pad; /* 0 or 1; average only; PyTorch's default is 1 */
};
GP_OP_ATTRIBUTES(pool)

/* Square window, the same padding on all sides; `op`: GP_OP_AVG_POOL or GP_OP_MAX_POOL. */
int gp_graph_pool(struct gp_graph *g, enum gp_op op, const char *name, int in, int kernel, int stride, int pad,
		  struct gp_err *err);

#endif
