/* SPDX-License-Identifier: Apache-2.0
 *
 * Strips: GPK_STRIP neighbouring pixels of a row of an image, GPK_STRIP_VECTOR
 * channels deep, which is what a thread of a depthwise convolution makes at
 * once. Batch norm adds its sums over the same strips in the same blocks, so
 * that a sum has the same bits whether the convolution before it (or behind it,
 * backward) has made it or batch norm itself: shape alone decides. Only for k_*.cu and gpk_*.h.
 *
 * Threads: those of a kernel, on the device. Test: tests/unit/test_cuda_depthwise_norm.c
 */
#ifndef GPK_STRIPS_H
#define GPK_STRIPS_H

#include "kernels/cuda/runtime/gpk_sums.h"
#include "kernels/cuda/runtime/gpk_window.h"

#define GPK_STRIP         4 /* a multiple of every stride that has code of its own (k_depthwise.cu) */
#define GPK_STRIP_VECTOR  4 /* 16 bytes of float; of bf16 8, which leaves registers for more threads */
#define GPK_STRIP_THREADS 256
#define GPK_STRIP_BLOCKS  264 /* of a kernel that sums: two for each multiprocessor of a large card */

static_assert(GPK_STRIP_BLOCKS < GP_RT_TICKETS, "every tile of several blocks has a ticket");

/* Runs the rest with V. */
#define GPK_BY_STRIP_VECTOR(channels, V, ...)                                                                          \
	do {                                                                                                           \
		if ((channels) % GPK_STRIP_VECTOR == 0) {                                                              \
			constexpr int V = GPK_STRIP_VECTOR;                                                            \
			__VA_ARGS__;                                                                                   \
		} else {                                                                                               \
			constexpr int V = 1;                                                                           \
			__VA_ARGS__;                                                                                   \
		}                                                                                                      \
	} while (0)

/* All strips of images of (high, wide), from the upper to the lower, then the next column of strips. */
struct gpk_strips {
	struct gpk_places at;
	int64_t high, wide;
};

struct gpk_strip {
	int64_t image, row, column;
	int64_t first; /* pixel, of all images' */
	int pixels;    /* of the strip, at most GPK_STRIP */
};

static inline struct gpk_strips gpk_strips_of(int64_t images, int64_t high, int64_t wide)
{
	return {gpk_places_of(images, gpk_div_up(wide, (int64_t)GPK_STRIP), high), high, wide};
}

GPK_DEVICE struct gpk_strip gpk_strip_of(const struct gpk_strips &s, int64_t r)
{
	const struct gpk_place at = gpk_place_of(s.at, r);
	const int64_t column = at.row * GPK_STRIP, left = s.wide - column;
	return {at.image, at.column, column, (at.image * s.high + at.column) * s.wide + column,
		left < GPK_STRIP ? (int)left : GPK_STRIP};
}

/* The tile of kernels that sum over strips, and their blocks over the same channels. */
static inline struct gpk_tile gpk_strips_tile(int64_t channels)
{
	return gpk_tile_of(channels % GPK_STRIP_VECTOR ? channels : channels / GPK_STRIP_VECTOR, GPK_SUMS_WIDE,
			   GPK_STRIP_THREADS);
}

static inline int gpk_strips_parts(const struct gpk_strips *s, int64_t channels)
{
	const struct gpk_tile t = gpk_strips_tile(channels);
	return (int)gpk_blocks(s->at.count, t.deep, gpk_div_up(GPK_STRIP_BLOCKS, t.tiles));
}

/* Bytes of the room of `sums` sums per channel, of however many strips. */
static inline uint64_t gpk_strips_room(int64_t channels, int sums)
{
	const int64_t parts = gpk_div_up(GPK_STRIP_BLOCKS, gpk_strips_tile(channels).tiles);
	return (uint64_t)(parts * channels * sums) * sizeof(double);
}

#endif
