/* SPDX-License-Identifier: Apache-2.0
 *
 * Selection of many ranks, behind its first digit: 8 bits more, whose counters
 * a block has in its own memory for as many cells as fit, then 12, which only
 * elements come to that agree with a wanted rank in 20 bits: a few of a hundred
 * where a tensor is spread, and counted in the device's memory. Counting all of
 * them there is ten times as slow as reading them. See gpk_select.h.
 * Test: tests/unit/test_cuda_codec_select.c
 */
#include "kernels/cuda/codec/gpk_select.h"

#define THREADS     1024
#define WARPS       (THREADS / GPK_WARP)
#define VECTOR      4
#define MIDDLE_BITS 8
#define MIDDLE      (1 << MIDDLE_BITS)
#define LOW_BITS    (GPK_SELECT_REST - MIDDLE_BITS)
#define LOW         (1 << LOW_BITS)
#define WORDS       (MIDDLE / 32) /* of marks, of a row */
#define TURNS       2             /* different keys of which a warp counts equal ones together */
#define A_BLOCK     65536         /* elements that pay for a block's counters */

/* Rows of counters in a block's memory: what any card has, and what a card may be asked for. */
#ifdef __CUDACC__
#define ROWS_ALWAYS 32
#define ROWS_ASKED  128
#else
#define ROWS_ALWAYS 3 /* tests see rows that do not fit */
#endif

static size_t shared_bytes(int rows)
{
	return GPK_SELECT_TOP * sizeof(uint16_t) + (size_t)rows * MIDDLE * sizeof(uint32_t);
}

/* --- keys ------------------------------------------------------------------------------------------------------- */

/* Elements that are looked at: those set aside, or all. */
GPK_DEVICE int64_t count_of(const struct gpk_select_rooms &r)
{
	return r.state->over_all ? r.n : (int64_t)min(r.state->chosen, r.chosen_room);
}

/* Four of them from `at` on; returns which there are, as bits. Zeros are counted already. */
template <bool Magnitudes>
GPK_DEVICE unsigned load_keys(const struct gpk_select_rooms &r, const float *x, bool over_all, int64_t at, int64_t n,
			      uint32_t key[VECTOR])
{
	unsigned there = 0;
	if (over_all) {
		float v[VECTOR];
		const int have = gpk_load_four(x, at, n, v);
		for (int k = 0; k < VECTOR; k++) {
			key[k] = gpk_select_key<Magnitudes>(v[k]);
			there |= (unsigned)(k < have && v[k] != 0) << k;
		}
		return there;
	}
	for (int k = 0; k < VECTOR; k++) {
		key[k] = at + k < n ? r.chosen[at + k] : 0;
		there |= (unsigned)(at + k < n) << k;
	}
	return there;
}

/* The block: a row of counters, or 0, for each cell, into shared memory. */
GPK_DEVICE void load_rows(const struct gpk_select_rooms &r, uint16_t *row)
{
	for (int i = (int)threadIdx.x; i < GPK_SELECT_TOP; i += THREADS)
		row[i] = (uint16_t)r.state->row[i];
}

GPK_DEVICE uint32_t middle_of(uint32_t key)
{
	return key >> LOW_BITS & (MIDDLE - 1);
}

/* --- the middle digit ------------------------------------------------------------------------------------------- */

/* Rows from `own` on are counted in the device's memory. */
template <bool Magnitudes>
GPK_KERNEL GPK_BOUNDS(THREADS) count_middle(const float *x, struct gpk_select_rooms r, int own)
{
	GPK_SHARED_DYNAMIC(uint32_t, room);
	uint16_t *const row = reinterpret_cast<uint16_t *>(room);
	uint32_t *const bins = room + GPK_SELECT_TOP / 2;
	const bool over_all = r.state->over_all;
	const int64_t n = count_of(r), step = (int64_t)gridDim.x * THREADS * VECTOR;
	if (r.state->bad)
		return;
	load_rows(r, row);
	for (int i = (int)threadIdx.x; i < own * MIDDLE; i += THREADS)
		bins[i] = 0;
	__syncthreads();
	for (int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * VECTOR; at < n; at += step) {
		uint32_t key[VECTOR];
		const unsigned there = load_keys<Magnitudes>(r, x, over_all, at, n, key);
		for (int k = 0; k < VECTOR; k++) {
			const int number = there >> k & 1 ? (int)row[key[k] >> GPK_SELECT_REST] - 1 : -1;
			const uint32_t counter = (uint32_t)number * MIDDLE + middle_of(key[k]);
			if (number >= own)
				atomicAdd(&r.middle[counter], 1u);
			else if (number >= 0)
				atomicAdd(&bins[counter], 1u);
		}
	}
	__syncthreads();
	for (int i = (int)threadIdx.x; i < own * MIDDLE; i += THREADS)
		if (bins[i])
			atomicAdd(&r.middle[i], bins[i]);
}

/* A warp has a rank. */
template <bool Magnitudes, bool Last> GPK_KERNEL descend(struct gpk_select_rooms r)
{
	const int i = (int)(blockIdx.x * (THREADS / GPK_WARP) + threadIdx.x / GPK_WARP);
	if (r.state->bad || i >= r.ranks)
		return;
	gpk_select_next<Magnitudes, Last, false>(r, &r.found[i]);
}

/* One block of a thread for each rank: rows of the last digit, for the different digits before it. */
GPK_KERNEL number_rows(struct gpk_select_rooms r)
{
	const int i = (int)threadIdx.x;
	const bool there = i < r.ranks;
	if (r.state->bad)
		return;
	const uint32_t digits = there ? r.found[i].key >> LOW_BITS : 0;
	const bool differs = there && i > 0 && digits != r.found[i - 1].key >> LOW_BITS;
	uint32_t all;
	const uint32_t row = gpk_block_before_few(differs, &all) + differs;
	if (!there)
		return;
	const uint32_t before = r.found[i].row, middle = digits & (MIDDLE - 1);
	r.low_row[before * MIDDLE + middle] = row + 1;
	atomicOr(&r.marked[before * WORDS + middle / 32], 1u << middle % 32);
	r.found[i].row = row;
}

/* --- the last digit --------------------------------------------------------------------------------------------- */

/* The warp: counts what its lanes want counted, equal ones together: a value that a tensor has very often, such as the end
 * of a ReLU6, would choose one counter busy. */
GPK_DEVICE void count_lanes(uint32_t *low, bool wants, uint32_t counter)
{
	for (int turn = 0; turn < TURNS; turn++) {
		const unsigned lanes = __ballot_sync(GPK_ALL_LANES, wants);
		if (!lanes)
			return;
		const int leader = __ffs((int)lanes) - 1;
		const uint32_t first = __shfl_sync(GPK_ALL_LANES, counter, leader);
		const bool same = wants && counter == first;
		const unsigned equal = __ballot_sync(GPK_ALL_LANES, same);
		if (gpk_lane() == leader)
			atomicAdd(&low[counter], (uint32_t)__popc(equal));
		wants &= !same;
	}
	if (wants)
		atomicAdd(&low[counter], 1u);
}

template <bool Magnitudes> GPK_KERNEL GPK_BOUNDS(THREADS) count_low(const float *x, struct gpk_select_rooms r)
{
	GPK_SHARED(uint16_t, row, [GPK_SELECT_TOP]);
	GPK_SHARED(uint32_t, marked, [GPK_SELECT_MOST * WORDS]);
	const bool over_all = r.state->over_all;
	const int64_t n = count_of(r), step = (int64_t)gridDim.x * THREADS * VECTOR;
	if (r.state->bad)
		return;
	load_rows(r, row);
	for (int i = (int)threadIdx.x; i < r.ranks * WORDS; i += THREADS)
		marked[i] = r.marked[i];
	__syncthreads();
	for (int64_t from = ((int64_t)blockIdx.x * WARPS + threadIdx.x / GPK_WARP) * GPK_WARP * VECTOR; from < n;
	     from += step) {
		uint32_t key[VECTOR];
		const unsigned there = load_keys<Magnitudes>(r, x, over_all, from + gpk_lane() * VECTOR, n, key);
		for (int k = 0; k < VECTOR; k++) {
			const uint32_t number = there >> k & 1 ? row[key[k] >> GPK_SELECT_REST] : 0,
				       middle = middle_of(key[k]);
			const bool wants = number && marked[(number - 1) * WORDS + middle / 32] >> middle % 32 & 1;
			const uint32_t low_row = wants ? r.low_row[(number - 1) * MIDDLE + middle] - 1 : 0;
			count_lanes(r.low, wants, low_row * LOW + (key[k] & (LOW - 1)));
		}
	}
}

/* --- launch ----------------------------------------------------------------------------------------------------- */

/* Rows that a block of count_middle has room for. */
template <bool Magnitudes> static int own_rows(struct gp_rt_stream *stream, int ranks)
{
#ifdef __CUDACC__
	gp_rt_native(stream); /* selects the device */
	if (ranks > ROWS_ALWAYS &&
	    cudaFuncSetAttribute(count_middle<Magnitudes>, cudaFuncAttributeMaxDynamicSharedMemorySize,
				 (int)shared_bytes(ROWS_ASKED)) == cudaSuccess)
		return ROWS_ASKED < ranks ? ROWS_ASKED : ranks;
	cudaGetLastError(); /* a smaller card counts the rest in its memory */
#else
	(void)stream;
#endif
	return ROWS_ALWAYS < ranks ? ROWS_ALWAYS : ranks;
}

template <bool Magnitudes>
static void queue(struct gp_rt_stream *stream, const struct gpk_select_rooms &r, const float *x)
{
	const int own = own_rows<Magnitudes>(stream, r.ranks);
	const unsigned blocks = gpk_blocks(r.n, A_BLOCK, 264), rank_blocks = (unsigned)gpk_div_up(r.ranks, WARPS);
	GPK_LAUNCH(stream, count_middle<Magnitudes>, blocks, THREADS, shared_bytes(own), x, r, own);
	GPK_LAUNCH(stream, (descend<Magnitudes, false>), rank_blocks, THREADS, 0, r);
	GPK_LAUNCH(stream, number_rows, 1, GPK_SELECT_MOST, 0, r);
	GPK_LAUNCH(stream, count_low<Magnitudes>, blocks, THREADS, 0, x, r);
	GPK_LAUNCH(stream, (descend<Magnitudes, true>), rank_blocks, THREADS, 0, r);
}

void gpk_select_many(struct gp_rt_stream *stream, const struct gpk_select_rooms *r, bool magnitudes, const float *x)
{
	if (magnitudes)
		queue<true>(stream, *r, x);
	else
		queue<false>(stream, *r, x);
}
