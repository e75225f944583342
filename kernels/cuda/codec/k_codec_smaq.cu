/* SPDX-License-Identifier: Apache-2.0
 *
 * `smaq` on the device. Encoding: one pass for the moments; one for codes and
 * the extras of each tile; and one over the extras, which packs them where they
 * belong. Decoding counts the outliers of each tile first.
 * Sums have another order than the host's: see common/CODECS.md, "On a GPU".
 * Blocks have runs of neighbouring tiles: what comes before a tile is a sum over
 * blocks and one inside of its own. See k_codec_smaq.h. Test: tests/unit/test_cuda_codec.c
 */
#include "kernels/cuda/codec/k_codec_smaq.h"

#include <math.h>

#include "kernels/cuda/codec/gpk_scan.h"
#include "kernels/cuda/codec/gpk_smaq.h"

#define THREADS GPK_CODEC_THREADS
#define WARPS   (THREADS / GPK_WARP)
#define LISTED  1024 /* values that have room in a block's memory */

/* On an emulated device so few that tests see what comes behind a block's first tile. */
#ifdef __CUDACC__
#define BLOCKS GPK_SMAQ_BLOCKS
#else
#define BLOCKS 5
#endif

struct run {
	int64_t tile, end;
};

/* This block's tiles. */
GPK_DEVICE struct run run_of(int64_t n)
{
	const int64_t tiles = gpk_div_up(n, GPK_CODEC_TILE), each = gpk_div_up(tiles, gridDim.x);
	struct run r = {blockIdx.x * each, (blockIdx.x + 1) * each};
	r.end = r.end < tiles ? r.end : tiles;
	return r;
}

static unsigned blocks_for(int64_t n)
{
	return gpk_blocks(n, GPK_CODEC_TILE, BLOCKS);
}

extern "C" int64_t gpk_smaq_tiles(int64_t n)
{
	return gpk_codec_tiles(n);
}

/* --- moments ----------------------------------------------------------------------------------------------------- */

/* The block: both sums over its threads, in an order of their own; thread 0 gets them. */
GPK_DEVICE void sum_block(double *sum, double *squares, double *room)
{
	for (int half = GPK_WARP / 2; half > 0; half /= 2) {
		*sum += __shfl_down_sync(GPK_ALL_LANES, *sum, half);
		*squares += __shfl_down_sync(GPK_ALL_LANES, *squares, half);
	}
	if (threadIdx.x % GPK_WARP == 0) {
		room[threadIdx.x / GPK_WARP * 2] = *sum;
		room[threadIdx.x / GPK_WARP * 2 + 1] = *squares;
	}
	__syncthreads();
	for (int w = 1; w < WARPS && threadIdx.x == 0; w++) {
		*sum += room[w * 2];
		*squares += room[w * 2 + 1];
	}
}

/* Sums up the differences to the first element, and their squares, so that a constant tensor is exact. */
GPK_KERNEL add_moments(const float *x, int64_t n, double *parts)
{
	GPK_SHARED(double, room, [2 * WARPS]);
	const int64_t step = (int64_t)gridDim.x * THREADS * 4;
	const float origin = x[0];
	double sum = 0, squares = 0;
	for (int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 4; at < n; at += step) {
		float v[4];
		gpk_load4(x, at, n, origin, v);
		for (int i = 0; i < 4; i++) {
			const double d = (double)v[i] - (double)origin;
			sum += d;
			squares += d * d;
		}
	}
	sum_block(&sum, &squares, room);
	if (threadIdx.x)
		return;
	parts[2 * blockIdx.x] = sum;
	parts[2 * blockIdx.x + 1] = squares;
}

GPK_KERNEL finish_moments(const float *x, int64_t n, const double *parts, int count, float reach,
			  struct gpk_smaq_head *head)
{
	GPK_SHARED(double, room, [2 * WARPS]);
	double sum = 0, squares = 0;
	for (int i = (int)threadIdx.x; i < count; i += THREADS) {
		sum += parts[2 * i];
		squares += parts[2 * i + 1];
	}
	sum_block(&sum, &squares, room);
	if (threadIdx.x == 0)
		gpk_smaq_put_head(head, reach, x[0], sum, squares, n);
}

extern "C" void gpk_smaq_measure(struct gp_rt_stream *s, const struct gpk_smaq *q, const float *x, int64_t n,
				 const struct gpk_smaq_room *room, struct gpk_smaq_head *head)
{
	const unsigned blocks = gpk_blocks(n, GPK_CODEC_TILE * 2, GPK_SMAQ_PARTS);
	GPK_LAUNCH(s, add_moments, blocks, THREADS, 0, x, n, room->parts);
	GPK_LAUNCH(s, finish_moments, 1, THREADS, 0, x, n, room->parts, (int)blocks, q->reach, head);
}

/* --- counting ---------------------------------------------------------------------------------------------------- */

/* The block: outliers of the blocks before it; the last one tells of how many there are in all. */
GPK_DEVICE uint32_t count_before(const uint32_t *sums, struct gpk_smaq_head *head)
{
	uint32_t mine = 0, before;
	for (unsigned b = threadIdx.x; b < blockIdx.x; b += THREADS)
		mine += sums[b];
	gpk_block_before_few(mine, &before);
	if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0)
		head->outliers = before + sums[blockIdx.x];
	return before;
}

/* --- encode ------------------------------------------------------------------------------------------------------ */

template <bool DRAWN>
GPK_KERNEL quantize(struct gpk_smaq q, const float *x, int64_t n, const struct gpk_smaq_head *head,
		    struct gpk_smaq_draws draws, uint8_t *codes, struct gpk_smaq_room own)
{
	GPK_CODEC_ROOM(room);
	GPK_SHARED(uint4, found, [GPK_CODEC_TILE / 8]); /* extras of the tile, in order */
	const float mean = head->mean, divisor = head->std > 0 ? head->std : INFINITY, reciprocal = 1 / divisor;
	const bool quick = gpk_divides(divisor);
	const struct run run = run_of(n);
	uint32_t before = 0;
	if (head->bad)
		return;
	for (int64_t tile = run.tile; tile < run.end; tile++) {
		const int64_t at = tile * GPK_CODEC_TILE + threadIdx.x * GPK_CODEC_GROUP;
		struct number r[8];
		unsigned code[8];
		uint32_t mine = 0, all, words[4];
		float v[8];
		gpk_load8(x, at, n, mean, v);
		if (DRAWN)
			gpk_rng_block(draws.seed, draws.stream, (uint64_t)at / 8, words);
		for (int i = 0; i < 8; i++) {
			const float d = v[i] - mean;
			const float added = DRAWN ? drawn_part(v[i], gpk_draw_of(words[i / 2], i % 2)) : q.half;
			r[i] = number_of(q, d, quick ? gpk_quotient(d, divisor, reciprocal) : d / divisor, added);
			code[i] = at + i < n ? r[i].code : 0;
			mine += r[i].outlier;
		}
		gpk_store_codes(codes, q.width, tile, n, code, room);
		uint32_t rank = gpk_block_before_few(mine, &all);
		if (threadIdx.x == 0)
			own.counts[tile] = before;
		before += all;
		if (!own.extras)
			continue;
		for (int i = 0; i < 8; i++)
			if (r[i].outlier)
				reinterpret_cast<uint16_t *>(found)[rank++] = (uint16_t)r[i].extra;
		__syncthreads();
		if (threadIdx.x * 8 < all)
			reinterpret_cast<uint4 *>(own.extras + tile * GPK_CODEC_TILE)[threadIdx.x] = found[threadIdx.x];
		__syncthreads();
	}
	if (threadIdx.x == 0)
		own.sums[blockIdx.x] = before;
}

/* Bits `word * 32` to `word * 32 + 31` of packed codes, of which the first of `count` begins at bit `begin`. */
GPK_DEVICE uint32_t word_of(const uint16_t *code, uint32_t count, int width, int64_t begin, int64_t word)
{
	const int64_t from = word * 32 - begin;
	int64_t k = from < 0 ? 0 : from / width;
	uint32_t bits = 0;
	for (; k < count; k++) {
		const int64_t at = k * width - from;
		if (at >= 32)
			break;
		bits |= at < 0 ? (uint32_t)code[k] >> -at : (uint32_t)code[k] << at;
	}
	return bits;
}

/* A tile's extras, by one warp; `before` are in the tiles before it. The words at the ends belong to its neighbours as
 * well. */
GPK_DEVICE void pack_tile(const uint4 *from, uint4 *found, uint32_t before, uint32_t count, int width, uint32_t *packed)
{
	const int lane = gpk_lane();
	const int64_t begin = (int64_t)before * width, end = begin + (int64_t)count * width;
	GPK_UNROLL_BY(4)
	for (uint32_t i = (uint32_t)lane; i * 8 < count; i += GPK_WARP)
		found[i] = from[i];
	__syncwarp();
	for (int64_t w = begin / 32 + lane; w * 32 < end; w += GPK_WARP) {
		const uint32_t bits = word_of(reinterpret_cast<const uint16_t *>(found), count, width, begin, w);
		if (w * 32 < begin || w * 32 + 32 > end)
			atomicOr(&packed[w], bits);
		else
			packed[w] = bits;
	}
	__syncwarp();
}

/* Counts that a launch which failed has left undefined are not followed. */
GPK_KERNEL pack_extras(struct gpk_smaq_room own, int64_t n, struct gpk_smaq_head *head, int width, uint32_t *packed)
{
	GPK_SHARED(uint4, found, [WARPS][GPK_CODEC_TILE / 8]);
	const int warp = (int)threadIdx.x / GPK_WARP;
	if (head->bad)
		return;
	const struct run run = run_of(n);
	const uint32_t first = count_before(own.sums, head);
	for (int64_t tile = run.tile + warp; width && tile < run.end; tile += WARPS) {
		const uint32_t behind = tile + 1 < run.end ? own.counts[tile + 1] : own.sums[blockIdx.x],
			       before = first + own.counts[tile], count = behind - own.counts[tile];
		if (count <= GPK_CODEC_TILE && (int64_t)before + count <= n)
			pack_tile(reinterpret_cast<const uint4 *>(own.extras + tile * GPK_CODEC_TILE), found[warp],
				  before, count, width, packed);
	}
}

extern "C" void gpk_smaq_encode(struct gp_rt_stream *s, const struct gpk_smaq *q, const float *x, int64_t n,
				const struct gpk_smaq_room *room, struct gpk_smaq_head *head,
				struct gpk_smaq_draws draws, uint8_t *codes, uint8_t *extras)
{
	const unsigned blocks = blocks_for(n);
	if (q->drawn)
		GPK_LAUNCH(s, quantize<true>, blocks, THREADS, 0, *q, x, n, head, draws, codes, *room);
	else
		GPK_LAUNCH(s, quantize<false>, blocks, THREADS, 0, *q, x, n, head, draws, codes, *room);
	GPK_LAUNCH(s, pack_extras, blocks, THREADS, 0, *room, n, head, q->extra_width, (uint32_t *)extras);
}

/* --- decode ------------------------------------------------------------------------------------------------------ */

GPK_DEVICE bool is_outlier(const struct gpk_smaq &q, unsigned code)
{
	return code >> (q.low_bits + 1) & 1u;
}

/* The outliers' flags of as many codes side by side as there are from `at` on, four at most. */
GPK_DEVICE uint64_t flags_of(const struct gpk_smaq &q, int64_t at, int64_t n)
{
	uint64_t flags = 0;
	for (int i = 0; i < 4; i++)
		flags |= (uint64_t)(at + i < n) << (i * q.width + q.low_bits + 1);
	return flags;
}

/* Outliers among four codes of the tile in `room`; `flags`: of four that there are. */
GPK_DEVICE uint32_t outliers4(const struct gpk_smaq &q, const uint4 *room, int64_t tile, int local, int64_t n,
			      uint64_t flags)
{
	const int64_t at = tile * GPK_CODEC_TILE + local;
	return (uint32_t)__popcll(gpk_packed4(room, q.width, local) & (at + 4 <= n ? flags : flags_of(q, at, n)));
}

/* Only what a block has in all is asked for: threads add up their own. */
GPK_KERNEL count_outliers(struct gpk_smaq q, const uint8_t *codes, int64_t n, uint32_t *sums)
{
	GPK_CODEC_ROOM(room);
	const struct run run = run_of(n);
	const uint64_t flags = flags_of(q, 0, 4);
	const int local = (int)threadIdx.x * 4;
	uint32_t mine = 0, all;
	for (int64_t tile = run.tile; tile < run.end; tile++) {
		gpk_load_codes(codes, q.width, tile, n, room);
		mine += outliers4(q, room, tile, local, n, flags);
		mine += outliers4(q, room, tile, local + GPK_CODEC_TILE / 2, n, flags);
		__syncthreads();
	}
	gpk_block_before_few(mine, &all);
	if (threadIdx.x == 0)
		sums[blockIdx.x] = all;
}

/* The extras of a tile's outliers. */
struct extras {
	const uint32_t *words;
	uint32_t shift, count; /* bits before the first; how many there are */
};

GPK_DEVICE struct extras extras_of(const uint8_t *packed, int width, uint32_t before, uint32_t count)
{
	const int64_t bit = (int64_t)before * width;
	const uint32_t left = before < count ? count - before : 0;
	struct extras e = {reinterpret_cast<const uint32_t *>(packed) + bit / 32, (uint32_t)(bit % 32),
			   width ? min(left, (uint32_t)GPK_CODEC_TILE) : 0};
	return e;
}

/* Number k of them; 0 behind the last. */
GPK_DEVICE unsigned extra_of(const struct extras &e, int width, uint32_t k)
{
	const uint32_t bit = e.shift + k * (uint32_t)width;
	if (k >= e.count)
		return 0;
	const uint64_t held = (uint64_t)e.words[bit / 32 + 1] << 32 | e.words[bit / 32];
	return (unsigned)(held >> bit % 32) & ((1u << width) - 1);
}

/* A thread has eight neighbours, so that one scan of the block sees a tile. Listed: all values that there are have room in
 * shared memory, by signs and magnitude. */
template <bool Listed>
GPK_KERNEL dequantize(struct gpk_smaq q, float mean, float std, const uint8_t *codes, const uint8_t *packed,
		      uint32_t count, int64_t n, const uint32_t *sums, struct gpk_smaq_head *head, float *x)
{
	GPK_CODEC_ROOM(room);
	GPK_SHARED(float, list, [Listed ? LISTED : 1]);
	const struct run run = run_of(n);
	const int local = (int)threadIdx.x * GPK_CODEC_GROUP, bits = q.low_bits + q.extra_width;
	const uint64_t flags = flags_of(q, 0, 4);
	for (int i = (int)threadIdx.x; Listed && i < 4 << bits; i += THREADS)
		list[i] = value_of(q, (unsigned)i >> bits, (unsigned)i & ((1u << bits) - 1), mean, std);
	uint32_t before = count_before(sums, head);
	for (int64_t tile = run.tile; tile < run.end; tile++) {
		const int64_t at = tile * GPK_CODEC_TILE + local;
		const struct extras extras = extras_of(packed, q.extra_width, before, count);
		unsigned code[8];
		float v[8];
		uint32_t all;
		gpk_load_codes(codes, q.width, tile, n, room);
		gpk_codes4(room, q.width, local, code);
		gpk_codes4(room, q.width, local + 4, code + 4);
		const uint32_t mine =
			outliers4(q, room, tile, local, n, flags) + outliers4(q, room, tile, local + 4, n, flags);
		uint32_t rank = gpk_block_before_few(mine, &all); /* behind it `room` is free */
		for (int i = 0; i < 8; i++) {
			const bool flag = is_outlier(q, code[i]);
			const unsigned extra = flag ? extra_of(extras, q.extra_width, rank) : 0;
			const unsigned m = (code[i] & ((1u << q.low_bits) - 1)) | extra << q.low_bits;
			const unsigned signs = code[i] >> q.low_bits;
			v[i] = Listed ? list[signs << bits | m] : value_of(q, signs, m, mean, std);
			rank += flag;
		}
		gpk_store4(x, at, n, v);
		gpk_store4(x, at + 4, n, v + 4);
		before += all;
	}
}

extern "C" void gpk_smaq_decode(struct gp_rt_stream *s, const struct gpk_smaq *q, float mean, float std,
				const uint8_t *codes, const uint8_t *extras, uint32_t count, int64_t n,
				const struct gpk_smaq_room *room, struct gpk_smaq_head *head, float *x)
{
	const unsigned blocks = blocks_for(n);
	GPK_LAUNCH(s, count_outliers, blocks, THREADS, 0, *q, codes, n, room->sums);
	if (4 << (q->low_bits + q->extra_width) <= LISTED)
		GPK_LAUNCH(s, dequantize<true>, blocks, THREADS, 0, *q, mean, std, codes, extras, count, n, room->sums,
			   head, x);
	else
		GPK_LAUNCH(s, dequantize<false>, blocks, THREADS, 0, *q, mean, std, codes, extras, count, n, room->sums,
			   head, x);
}
