/* SPDX-License-Identifier: Apache-2.0
 *
 * Tools for kernels over (rows, channels), channels innermost: 16 bytes of
 * neighbouring channels at once, threads of a block spread over both, and
 * division by numbers that the launch knows. Only for k_*.cu and gpk_*.h.
 *
 * Threads: those of a kernel, on the device. Test: tests/unit/test_cuda_conv.c
 */
#ifndef GPK_ROWS_H
#define GPK_ROWS_H

#include "kernels/cuda/runtime/gpk.h"

/* --- vectors of channels ------------------------------------------------------------------------------------------ */

template <typename T, int V> struct alignas(sizeof(T) * V < 16 ? sizeof(T) * V : 16) gpk_pack {
	T of[V];
};

template <typename T, int V> GPK_DEVICE void gpk_read(float (&out)[V], const T *at)
{
	const gpk_pack<T, V> p = *reinterpret_cast<const gpk_pack<T, V> *>(at);
	GPK_UNROLL
	for (int i = 0; i < V; i++)
		out[i] = gpk_get(p.of[i]);
}

template <typename T, int V> GPK_DEVICE void gpk_write(T *at, const float (&v)[V])
{
	gpk_pack<T, V> p;
	GPK_UNROLL
	for (int i = 0; i < V; i++)
		gpk_put(&p.of[i], v[i]);
	*reinterpret_cast<gpk_pack<T, V> *>(at) = p;
}

/* As it lies, without a conversion. */
template <typename T, int V> GPK_DEVICE void gpk_move(T *to, const T *from)
{
	*reinterpret_cast<gpk_pack<T, V> *>(to) = *reinterpret_cast<const gpk_pack<T, V> *>(from);
}

template <typename T, int V> GPK_DEVICE void gpk_clear(T *to)
{
	const float zero[V] = {};
	gpk_write<T, V>(to, zero);
}

/* v as a tensor of T would hold it. */
template <typename T> GPK_DEVICE float gpk_rounded(float v)
{
	T held;
	gpk_put(&held, v);
	return gpk_get(held);
}

/* Runs the rest with V: as many channels as 16 bytes hold where `channels` is a multiple of that, else one. */
#define GPK_BY_WIDTH(channels, T, V, ...)                                                                              \
	do {                                                                                                           \
		if ((channels) % (int64_t)(16 / sizeof(T)) == 0) {                                                     \
			constexpr int V = 16 / sizeof(T);                                                              \
			__VA_ARGS__;                                                                                   \
		} else {                                                                                               \
			constexpr int V = 1;                                                                           \
			__VA_ARGS__;                                                                                   \
		}                                                                                                      \
	} while (0)

#define GPK_GRID_HIGH 65535 /* of a grid's y and z */

/* --- threads over (rows, vectors) --------------------------------------------------------------------------------- */

/*
 * A block is (lanes, deep) threads: `lanes` neighbouring vectors of `deep` rows; `tiles` such blocks cover a row. In a
 * grid, x counts tiles (there may be many) and y rows, which kernels walk by the grid's height.
 */
struct gpk_tile {
	int lanes, deep, tiles;
	dim3 block() const
	{
		return dim3((unsigned)lanes, (unsigned)deep);
	}
	/* `each` rows a thread, if that takes no more than `most` blocks. */
	dim3 grid(int64_t rows, int each, int64_t most) const
	{
		const int64_t high = gpk_div_up(most, tiles);
		return dim3((unsigned)tiles,
			    gpk_blocks(rows, deep * each, high < GPK_GRID_HIGH ? high : GPK_GRID_HIGH));
	}
};

/* At most `wide` lanes, evenly, so that no block is nearly empty. */
static inline struct gpk_tile gpk_tile_of(int64_t vectors, int wide, int threads)
{
	struct gpk_tile t;
	t.tiles = (int)gpk_div_up(vectors, wide);
	t.lanes = (int)gpk_div_up(vectors, t.tiles);
	t.deep = threads / t.lanes;
	return t;
}

/* In a kernel: the first of the thread's `width` channels, its first row, and how far on the next one is. */
GPK_DEVICE int64_t gpk_first_channel(int width)
{
	return ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * width;
}
GPK_DEVICE int64_t gpk_first_row(void)
{
	return (int64_t)blockIdx.y * blockDim.y + threadIdx.y;
}
GPK_DEVICE int64_t gpk_row_step(void)
{
	return (int64_t)gridDim.y * blockDim.y;
}

/* --- division ----------------------------------------------------------------------------------------------------- */

/* By a number in 1..2^31-1, of one in 0..2^31-1, without dividing (Granlund and Montgomery 1994, figure 4.1). */
struct gpk_divisor {
	uint32_t by, factor, shift;
};

static inline struct gpk_divisor gpk_divisor_of(int64_t by)
{
	struct gpk_divisor d = {(uint32_t)by, 0, 0};
	while (((uint64_t)1 << d.shift) < (uint64_t)by)
		d.shift++;
	d.factor = (uint32_t)((((uint64_t)1 << 32) * (((uint64_t)1 << d.shift) - (uint64_t)by)) / (uint64_t)by + 1);
	return d;
}

GPK_DEVICE uint32_t gpk_divide(uint32_t n, struct gpk_divisor d)
{
	return (__umulhi(n, d.factor) + n) >> d.shift;
}

/* Quotient; *n becomes the remainder. */
GPK_DEVICE uint32_t gpk_split(uint32_t *n, struct gpk_divisor d)
{
	const uint32_t q = gpk_divide(*n, d);
	*n -= q * d.by;
	return q;
}

#endif
