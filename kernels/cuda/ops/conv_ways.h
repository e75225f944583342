/* SPDX-License-Identifier: Apache-2.0
 *
 * A convolution as the CUDA device sees it, whichever way it runs: a larger
 * image (h, w, channels), the windows on it, and a smaller image (out_h, out_w,
 * small) of what came out of them. A convolution goes from the larger to the
 * smaller one; a transposed convolution goes back, and its gradient forth.
 *
 *   gather   smaller = columns(larger) W'      larger's windows times the weight
 *   scatter  larger = spread(smaller W)        the transpose of that
 *   weight   W += smaller' columns(larger)     gradient of both
 *
 * The weight is (small, KH, KW, channels / groups), the order {0,2,3,1} of
 * PyTorch's axes both for a convolution and for a transposed one; of a
 * depthwise one (KH, KW, channels). Used by cuda_conv.c and cuda_depthwise.c.
 *
 * Threads: any (pure functions). Test: tests/unit/test_cuda_ops.c
 */
#ifndef GP_CONV_CUDA_H
#define GP_CONV_CUDA_H

#include "kernels/cuda/plan/cuda_plan.h"
#include "kernels/cuda/runtime/window.h"

/* A node's state. */
struct cuda_conv {
	struct gpk_window w;
	int64_t small; /* channels of the smaller image */
	int groups;
	bool transposed;
	bool rows;                     /* 1x1, stride 1, no padding: an image's rows are its columns */
	bool gathers_by_tiles;         /* on tensor cores, without columns (k_conv_tiles.h) */
	bool scatters_by_tiles;        /* the same, by the turned weight in node->pack */
	bool weighs_by_tiles;          /* the weight's gradient (k_conv_weight.h) */
	int64_t images;                /* whole images at once, or 0: one image in bands of */
	int64_t band_rows, band_lines; /* rows of windows (gather, weight), rows of the larger image (scatter) */
};

/* The windows of a convolution, from its graph's node alone. */
struct gpk_window gp_cuda_conv_window(const struct cuda_plan *p, const struct cuda_node *n);
/* GP_NOMEM. Fills n->state; geometry alone. */
enum gp_status gp_cuda_conv_new(struct cuda_plan *p, struct cuda_node *n, bool transposed, struct cuda_conv **out,
				struct gp_err *err);
/* One filter for each channel, of both images. */
bool gp_cuda_conv_is_depthwise(const struct cuda_conv *v);
/* Decides how it runs, and how much at once; returns the room that each of the three works in. */
struct cuda_conv_rooms {
	uint64_t gather, scatter, weight; /* bytes */
};
struct cuda_conv_rooms gp_cuda_conv_rooms(struct cuda_conv *v, enum gp_rt_type type, enum gp_precision precision);
/* Bytes of the turned weight; 0 where it is not needed. Makes it, in c->pack. */
uint64_t gp_cuda_conv_pack_bytes(const struct cuda_conv *v, enum gp_rt_type type);
void gp_cuda_conv_pack(const struct cuda_call *c, const struct cuda_conv *v);

/* `room`: as gp_cuda_conv_rooms said. add: the image is added to, not overwritten. */
void gp_cuda_conv_gather(const struct cuda_call *c, const struct cuda_conv *v, const void *larger, void *room, bool add,
			 void *smaller);
void gp_cuda_conv_scatter(const struct cuda_call *c, const struct cuda_conv *v, const void *smaller, void *room,
			  bool add, void *larger);
void gp_cuda_conv_weight(const struct cuda_call *c, const struct cuda_conv *v, const void *larger, const void *smaller,
			 void *room, float *grad);

#endif
