/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over the rows of (rows, channels), channel by channel, in one launch
 * without float atomics: every block adds its rows (threads in float, the block
 * in double) and leaves one line per sum in `room`; the block that comes last
 * of those over the same channels adds the lines. The order depends on the
 * sizes and the element type alone, not on the card nor on who comes last.
 * Only for k_*.cu and gpk_*.h.
 *
 * Threads: those of a kernel, on the device; all of a block call together.
 * Test: tests/unit/test_cuda_launches.c
 *
 *   float v[S * V];                                  the thread's sums of its rows
 *   gpk_fold_rows<S, V>(v, channels, room);
 *   if (!gpk_last_part(tickets, blockIdx.x)) return;
 *   channel = gpk_total_parts<S, V>(channels, room, sum);
 *   if (channel >= 0) ... sum[S], this thread's alone ...
 */
#ifndef GPK_SUMS_H
#define GPK_SUMS_H

#include "kernels/cuda/runtime/gpk_rows.h"

/*
 * One block for each multiprocessor of a large card. A block has few channels: what the last one of them adds up, alone,
 * is all parts' sums of those.
 */
#define GPK_SUMS_BLOCKS   132
#define GPK_SUMS_WIDE     4 /* lanes of a block, at most */
#define GPK_SUMS_THREADS  512
#define GPK_ROWS_A_THREAD 4 /* at least */

/* Blocks over the same channels share a ticket; where there are more tiles than blocks each is alone. */
static_assert(GPK_SUMS_BLOCKS < GP_RT_TICKETS, "every tile of several blocks has a ticket");

/* Blocks over the rows, at most what `tiles` has left of a busy card; `each` rows a thread, or more. */
static inline int gpk_parts_of(int64_t rows, int deep, int64_t tiles, int each)
{
	return (int)gpk_blocks(rows, deep * each, gpk_div_up(GPK_SUMS_BLOCKS, tiles));
}

static inline int gpk_sums_parts(int64_t rows, struct gpk_tile tile)
{
	return gpk_parts_of(rows, tile.deep, tile.tiles, GPK_ROWS_A_THREAD);
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

/* Bytes of dynamic shared memory where each of `threads` has `values` sums. */
static inline size_t gpk_sums_shared(int threads, int values)
{
	return (size_t)threads * (sizeof(double) + (size_t)values * sizeof(float));
}

GPK_DEVICE unsigned gpk_linear_thread(void)
{
	return threadIdx.y * blockDim.x + threadIdx.x;
}

/* held[g * wide + c], for `groups` of them: group 0's become the sums over all. Every thread must come. */
GPK_DEVICE void gpk_fold_groups(double *held, unsigned wide, unsigned groups)
{
	const unsigned me = gpk_linear_thread();
	while (groups > 1) {
		const unsigned half = (groups + 1) / 2;
		__syncthreads();
		if (me < (groups - half) * wide)
			held[me] += held[me + half * wide];
		groups = half;
	}
	__syncthreads();
}

/*
 * The block's sums of S * V values of every lane, value i of lane x at [i * lanes + x] of what is returned (shared
 * memory). No more columns than threads. Every thread must come.
 */
template <int S, int V> GPK_DEVICE const double *gpk_fold_block(const float (&v)[S * V])
{
	GPK_SHARED_DYNAMIC(double, folded);
	const unsigned lanes = blockDim.x, threads = lanes * blockDim.y, columns = lanes * S * V;
	const unsigned me = gpk_linear_thread(), groups = threads / columns, group = me / columns;
	float *const held = reinterpret_cast<float *>(folded + threads);
	double sum = 0;
	GPK_UNROLL
	for (int i = 0; i < S * V; i++)
		held[threadIdx.y * columns + i * lanes + threadIdx.x] = v[i];
	__syncthreads();
	GPK_UNROLL_BY(4)
	for (unsigned y = group; y < blockDim.y && group < groups; y += groups)
		sum += (double)held[y * columns + me % columns];
	folded[me] = sum;
	gpk_fold_groups(folded, columns, groups);
	return folded;
}

/* Column `at` of a block's sums, as above, is part blockIdx.y's of a channel. */
template <int S, int V> GPK_DEVICE void gpk_leave(unsigned at, double sum, int64_t channels, double *room)
{
	const unsigned lanes = blockDim.x, i = at / lanes;
	const int64_t channel = ((int64_t)blockIdx.x * lanes + at % lanes) * V + i % V;
	if (channel < channels)
		room[((int64_t)blockIdx.y * S + i / V) * channels + channel] = sum;
}

/*
 * `v` holds S sums of each of the thread's V channels. Block (x, y) of the grid is part y of the rows of tile x of the
 * channels. Every thread of the block must come. Dynamic shared memory: gpk_sums_shared of S * V.
 */
template <int S, int V> GPK_DEVICE void gpk_fold_rows(const float (&v)[S * V], int64_t channels, double *room)
{
	const unsigned me = gpk_linear_thread(), columns = blockDim.x * S * V;
	const double *const sums = gpk_fold_block<S, V>(v);
	if (me < columns)
		gpk_leave<S, V>(me, sums[me], channels, room);
}

/*
 * Whether the block is the last of those over tile `tile` to have left its sums; then it reads what all have left.
 * Every thread of the block must come.
 */
GPK_DEVICE bool gpk_last_part(uint32_t *tickets, unsigned tile)
{
	GPK_SHARED(unsigned, before, [1]);
	const unsigned parts = gridDim.y;
	__threadfence(); /* a thread's sums are there for others before its block is counted */
	__syncthreads();
	if (gpk_linear_thread() == 0)
		before[0] = parts > 1 ? atomicInc(&tickets[tile], parts - 1) : 0; /* the last one's is 0 again */
	__syncthreads();
	const bool last = before[0] == parts - 1;
	__threadfence();
	return last;
}

/*
 * Adds up all parts. Returns the channel whose S sums this thread got, -1 for threads that got none. Every thread of the
 * block must come. Not by way of L1, which may hold what was there before.
 */
template <int S, int V> GPK_DEVICE int64_t gpk_total_parts(int64_t channels, const double *room, double (&sum)[S])
{
	GPK_SHARED_DYNAMIC(double, held);
	const unsigned wide = blockDim.x * V, groups = blockDim.x * blockDim.y / wide;
	const unsigned me = gpk_linear_thread(), group = me / wide;
	const int64_t channel = (int64_t)blockIdx.x * wide + me % wide;
	const unsigned end = group < groups && channel < channels ? gridDim.y : 0;
	double some[S] = {};
	GPK_UNROLL_BY(4) /* reads of several parts and of all sums are under way at once: each takes as long as all */
	for (unsigned part = group; part < end; part += groups)
		GPK_UNROLL
		for (int i = 0; i < S; i++)
			some[i] += __ldcg(&room[((int64_t)part * S + i) * channels + channel]);
	GPK_UNROLL
	for (int i = 0; i < S; i++) {
		held[me] = some[i];
		gpk_fold_groups(held, wide, groups);
		sum[i] = held[me];
		__syncthreads();
	}
	return me < wide && channel < channels ? channel : -1;
}

#endif
