/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of Winograd's minimal filtering for 3x3 convolutions with stride 1 or
 * 2 over channels-last images: transforms of images, filters and gradients, with
 * AVX2, AVX-512 or NEON. The matrix products between them are gemm.h's, the order of
 * everything is cpu_winograd.c's. gp_wino_supported tells whether this
 * processor can run them. All instruction sets give the same bits.
 *
 * Glossary: tile = square of neighbouring outputs that are computed together;
 * patch = the inputs they need; point = one of the products per tile and
 * channel that replace 9 per output; side = points per axis. Transformed
 * images are matrices (tiles, channels), one per point.
 *
 * Source: S. Winograd, Arithmetic Complexity of Computations, 1980; for
 * images A. Lavin, S. Gray, arXiv:1509.09308. Points 0, 1/2, -1/2, 3/2, -3/2
 * and infinity: half the rounding error of the usual 0, 1, -1, 2, -2.
 *
 * Only for kernels/cpu.
 *
 * Threads: any; a call starts none, callers share tiles out. Test: tests/unit/test_winograd.c
 */
#ifndef GP_CPU_WINOGRAD_H
#define GP_CPU_WINOGRAD_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/math/finish.h"

#define GP_WINO_LANES 16 /* of the widest vectors */
#define GP_WINO_TAPS  9

/*
 * By outputs per axis of a tile. GP_WINO_1 and _2 are exactly one image, whose padding takes part in no product. With
 * stride 2 every other input meets two taps, the others only the middle one: two filterings in one tile.
 */
enum gp_wino_kind {
	GP_WINO_1,       /* 1x1 images: only the filter's middle counts; 1 point for 9 products */
	GP_WINO_2,       /* 2x2 images: 9 points for 36 products */
	GP_WINO_4,       /* 36 points for 144 products */
	GP_WINO_HALF_2,  /* stride 2: 25 points for 36 products */
	GP_WINO_HALF_4,  /* stride 2: 81 points for 144 products */
	GP_WINO_TWICE_2, /* backwards: 4x4 outputs of 2x2 and their neighbours; 25 points */
	GP_WINO_TWICE_4, /* backwards: 8x8 outputs; 81 points */
};

/* A convolution as it is run: backwards, x is the gradient of the outputs. */
struct gp_wino {
	enum gp_wino_kind kind;
	int64_t images;
	int64_t h, w, in;          /* image that is read, and its channels */
	int64_t out_h, out_w, out; /* image that is written */
	int64_t pad_top, pad_left; /* 0..2; with stride 2 it is 1 */
};

/* Where the filter of one input and one output channel lies. */
struct gp_wino_filter {
	const float *weight;
	int64_t in_stride, out_stride;
	bool turned; /* by 180 degrees */
};

/* One matrix per point, the first at `at`, each `stride` floats behind the one before. */
struct gp_wino_matrices {
	float *at;
	int64_t stride;
};

bool gp_wino_supported(void);

/* The kind of tile for a convolution whose other fields are set. */
enum gp_wino_kind gp_wino_choose(const struct gp_wino *g, int64_t stride, int64_t pad_bottom, int64_t pad_right);
/* The kind that takes gradients of its outputs to gradients of its inputs. */
enum gp_wino_kind gp_wino_backwards(enum gp_wino_kind kind);
int64_t gp_wino_points(enum gp_wino_kind kind);
int64_t gp_wino_tiles(const struct gp_wino *g);
/* Channels as whole cache lines. */
static inline int64_t gp_wino_lanes(int64_t channels)
{
	return (channels + GP_WINO_LANES - 1) / GP_WINO_LANES * GP_WINO_LANES;
}
/* Stride for matrices of `floats`, an odd number of cache lines: else one place of all points is one set of the cache. */
static inline int64_t gp_wino_stride(int64_t floats)
{
	return (floats / GP_WINO_LANES | 1) * GP_WINO_LANES;
}

/* Tiles [from, to) of x to v (tiles, lanes(in)); lanes behind the channels become 0. `zeros`: lanes(in) of them. */
void gp_wino_read(const struct gp_wino *g, struct gp_wino_matrices v, const float *x, const float *zeros, int64_t from,
		  int64_t to);
/* What the outputs' gradient gives to the weights' gradient: tiles [from, to) of dy to d (tiles, lanes(out)). */
void gp_wino_read_gradient(const struct gp_wino *g, struct gp_wino_matrices d, const float *dy, const float *zeros,
			   int64_t from, int64_t to);
/* Filters from every input channel to output channels [from, from + width): u (lanes(in), width), as gp_gemm_pack packs. */
void gp_wino_filters(const struct gp_wino *g, struct gp_wino_matrices u, const struct gp_wino_filter *f, int64_t from,
		     int64_t width);
/* Channels [channel, channel + width) of tiles [from, to) of y, from m (tiles, width). */
void gp_wino_write(const struct gp_wino *g, float *y, struct gp_wino_matrices m, int64_t channel, int64_t width,
		   int64_t from, int64_t to);
/* The same, forward, of outputs that are scaled, to which a bias is added, and that are limited then. finish: of all channels. */
void gp_wino_write_finished(const struct gp_wino *g, float *y, struct gp_wino_matrices m, int64_t channel,
			    int64_t width, int64_t from, int64_t to, const struct gp_finish *finish);

/* Filters between output channels [out, out + outs) and input channels [in, in + ins). */
struct gp_wino_part {
	int64_t out, outs, in, ins;
};
/* Their gradient, in PyTorch's layout, from du (outs, lanes(ins)); added to `grad`, or put there with `fresh`. */
void gp_wino_gradient(const struct gp_wino *g, float *grad, struct gp_wino_matrices du, const struct gp_wino_part *part,
		      bool fresh);

#endif
