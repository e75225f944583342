/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over the rows of (rows, channels), channel by channel, in two stages
 * without atomics: every block adds its rows (threads in float, the block in
 * double) and leaves one line per sum in `room`; a second kernel adds the
 * lines. The order depends on the sizes and the element type alone, not on the
 * card. Only for k_*.cu. Test: tests/unit/test_cuda_batch_norm.c
 */
#ifndef GPK_SUMS_H
#define GPK_SUMS_H

#include "kernels/cuda/gpk_rows.h"

#define GPK_BUSY_BLOCKS   528 /* blocks that keep a card of 132 multiprocessors busy */
#define GPK_SUMS_WIDE     32  /* lanes of a block of the first stage, at most */
#define GPK_SUMS_THREADS  256
#define GPK_ROWS_A_THREAD 8 /* at least, of the first stage */

/* Blocks over the rows, at most what `tile` has left of a busy card. */
static inline int gpk_sums_parts(int64_t rows, struct gpk_tile tile)
{
	return (int)gpk_blocks(rows, tile.deep * GPK_ROWS_A_THREAD, gpk_div_up(GPK_BUSY_BLOCKS, tile.tiles));
}

/* Bytes of the room of `sums` sums per channel. */
static inline uint64_t gpk_sums_room(enum gp_rt_type type, int64_t rows, int64_t channels, int sums)
{
	int parts = 0;
	GPK_BY_TYPE(type, T, GPK_BY_WIDTH(channels, T, V, {
			    parts = gpk_sums_parts(rows, gpk_tile_of(channels / V, GPK_SUMS_WIDE, GPK_SUMS_THREADS));
		    }));
	return (uint64_t)parts * (uint64_t)(channels * sums) * sizeof(double);
}

/*
 * End of the first stage: `v` holds S sums of each of the thread's V channels. Block (x, y) of the grid is part y of
 * the rows of tile x of the channels. Every thread of the block must come. Dynamic shared memory: S * V floats a thread.
 */
template <int S, int V> GPK_DEVICE void gpk_fold_rows(const float (&v)[S * V], int64_t channels, double *room)
{
	GPK_SHARED_DYNAMIC(float, held);
	const unsigned lanes = blockDim.x, columns = lanes * S * V;
	GPK_UNROLL
	for (int i = 0; i < S * V; i++)
		held[threadIdx.y * columns + i * lanes + threadIdx.x] = v[i];
	__syncthreads();
	for (unsigned at = threadIdx.y * lanes + threadIdx.x; at < columns; at += lanes * blockDim.y) {
		const unsigned i = at / lanes, lane = at % lanes;
		const int64_t channel = ((int64_t)blockIdx.x * lanes + lane) * V + i % V;
		double sum = 0;
		for (unsigned y = 0; y < blockDim.y; y++)
			sum += (double)held[y * columns + at];
		if (channel < channels)
			room[((int64_t)blockIdx.y * S + i / V) * channels + channel] = sum;
	}
}

/* The second stage: blocks of (GPK_TOTAL_WIDE channels, GPK_TOTAL_DEEP parts). */
#define GPK_TOTAL_WIDE    8
#define GPK_TOTAL_DEEP    32
#define GPK_TOTAL_THREADS (GPK_TOTAL_WIDE * GPK_TOTAL_DEEP)

static inline dim3 gpk_total_block(void)
{
	return dim3(GPK_TOTAL_WIDE, GPK_TOTAL_DEEP);
}

/* Returns the channel whose S sums this thread got, -1 for threads that got none. */
template <int S>
GPK_DEVICE int64_t gpk_total_columns(int parts, int64_t channels, const double *GPK_RESTRICT room, double (&sum)[S])
{
	GPK_SHARED(double, held, [S][GPK_TOTAL_DEEP][GPK_TOTAL_WIDE]);
	const int64_t channel = (int64_t)blockIdx.x * GPK_TOTAL_WIDE + threadIdx.x;
	const unsigned x = threadIdx.x, y = threadIdx.y;
	for (int i = 0; i < S; i++) {
		sum[i] = 0;
		if (channel < channels)
			for (int64_t part = y; part < parts; part += GPK_TOTAL_DEEP)
				sum[i] += room[(part * S + i) * channels + channel];
		held[i][y][x] = sum[i];
	}
	for (unsigned half = GPK_TOTAL_DEEP / 2; half > 0; half /= 2) {
		__syncthreads();
		if (y < half)
			for (int i = 0; i < S; i++)
				held[i][y][x] += held[i][y + half][x];
	}
	for (int i = 0; i < S; i++)
		sum[i] = held[i][y][x]; /* row 0's own */
	return y == 0 && channel < channels ? channel : -1;
}

#endif
