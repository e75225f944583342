/* SPDX-License-Identifier: Apache-2.0
 *
 * The versions of winograd.h's transforms, one for each instruction set. Only for winograd.c, which chooses, and
 * for winograd_kinds.h, whose users they are made of.
 *
 * Threads: any; constants. Test: tests/unit/test_winograd.c
 */
#ifndef GP_CPU_WINOGRAD_KERNELS_H
#define GP_CPU_WINOGRAD_KERNELS_H

#include "kernels/cpu/math/winograd.h"

/* What winograd.h says of gp_wino_NAME. */
struct gp_wino_image_kernels {
	void (*read)(const struct gp_wino *g, struct gp_wino_matrices v, const float *x, const float *zeros,
		     int64_t from, int64_t to);
	void (*read_gradient)(const struct gp_wino *g, struct gp_wino_matrices d, const float *dy, const float *zeros,
			      int64_t from, int64_t to);
	void (*write)(const struct gp_wino *g, float *y, struct gp_wino_matrices m, int64_t channel, int64_t width,
		      int64_t from, int64_t to);
	void (*write_finished)(const struct gp_wino *g, float *y, struct gp_wino_matrices m, int64_t channel,
			       int64_t width, int64_t from, int64_t to, const struct gp_finish *finish);
};

struct gp_wino_filter_kernels {
	void (*filters)(const struct gp_wino *g, struct gp_wino_matrices u, const struct gp_wino_filter *f,
			int64_t from, int64_t width);
	void (*gradient)(const struct gp_wino *g, float *grad, struct gp_wino_matrices du,
			 const struct gp_wino_part *part, bool fresh);
};

extern const struct gp_wino_image_kernels gp_wino_images_avx2, gp_wino_images_avx512, gp_wino_images_neon;
extern const struct gp_wino_filter_kernels gp_wino_filters_avx2, gp_wino_filters_avx512, gp_wino_filters_neon;

/* The functions of winograd_body.h and winograd_filter_body.h, in this order. */
#define GP_WINO_IMAGE_KERNELS                                                                                          \
	{                                                                                                              \
		read_images, read_image_gradients, write_images, write_finished                                        \
	}
#define GP_WINO_FILTER_KERNELS                                                                                         \
	{                                                                                                              \
		make_filters, make_gradient                                                                            \
	}

#endif
