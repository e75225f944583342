/* SPDX-License-Identifier: Apache-2.0
 *
 * What the stages of `poweriter` share, the host's (poweriter.c) and a
 * GPU's (kernels/cuda/codec/cuda_poweriter.c): sizes, and the numbers that
 * decide how a sample is treated.
 *
 * Threads: any (pure functions). Test: tests/unit/test_codec_poweriter.c
 */
#ifndef GP_CODEC_POWERITER_H
#define GP_CODEC_POWERITER_H

#include "common/codec/codec_impl.h"

/* Steps more, where there is nothing to start from. */
#define GP_POWERITER_COLD_STEPS   8
/* A sample of a larger norm travels raw: whatever the next stage does to its factors, their product stays finite. The
 * level quantizers, which are the worst, give an element at most the norm of its bucket. That is at most 2^15.5 times the
 * largest element, of one factor at most the sample's norm, of the other 1; and a product has at most 256 = 2^8 terms:
 * 2^(80 + 15.5 + 15.5 + 8) = 2^119. */
#define GP_POWERITER_LARGEST_NORM 0x1p80
/* The rest's share of the squared norm, and the mean square, below which T'T is computed in fp64. */
#define GP_POWERITER_EXACT_SHARE  1e-6
#define GP_POWERITER_EXACT_MEAN   1e-24
/* The share of a vector's length below which nothing is left of it once the others' directions were taken out. */
#define GP_POWERITER_NOTHING_LEFT 1e-10

/* batch matrices (rows, cols) of rank r; tall is the longer side, small the other. */
struct gp_poweriter_sizes {
	int64_t batch, rows, cols, r, tall, small, padded; /* padded: small, in whole vectors */
};

/* GP_INVALID: the shape has neither 3 nor 4 dimensions. */
enum gp_status gp_poweriter_sizes_of(const double *value, const struct gp_shape *shape, struct gp_poweriter_sizes *out,
				     struct gp_err *err);

#endif
