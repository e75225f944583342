/* SPDX-License-Identifier: Apache-2.0
 *
 * Three steps each: warps count their tiles, one block adds the tiles up, and
 * the warps, which now know what comes before them, write. See k_codec_kept.h.
 * Test: tests/unit/test_cuda_codec_select.c
 */
#include "kernels/cuda/k_codec_kept.h"

#include "kernels/cuda/gpk_scan.h"

#define THREADS      256
#define WARPS        (THREADS / GPK_WARP)
#define ROWS         (GPK_TILE / GPK_WARP) /* of a tile: a warp's elements at a time, and words of bits */
#define SUM_THREADS  1024
#define BLOCKS       2112
#define WIDTH_MIN    2
#define WIDTH_MAX    16
#define STAGED_WORDS 64 /* of packed codes that 32 lanes put together before they are stored */

/* --- tiles ------------------------------------------------------------------------------------------------------ */

/* Runs over this warp's tiles. */
#define FOR_TILES(tile, tiles)                                                                                         \
	for (int64_t tile = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / GPK_WARP,                                  \
		     step_ = (int64_t)gridDim.x * WARPS;                                                               \
	     tile < (tiles); tile += step_)

static unsigned blocks_for(int64_t tiles)
{
	return gpk_blocks(tiles, WARPS, BLOCKS);
}

/* Counts become counts of all tiles before; the sum goes behind the last. One block. */
GPK_KERNEL sum_tiles(uint32_t *tile, int64_t tiles)
{
	uint32_t before = 0;
	for (int64_t at = 0; at < tiles; at += SUM_THREADS) {
		const int64_t i = at + threadIdx.x;
		const uint32_t count = i < tiles ? tile[i] : 0;
		uint32_t all;
		const uint32_t below = gpk_block_before(count, &all);
		if (i < tiles)
			tile[i] = gpk_add_counts(before, below);
		before = gpk_add_counts(before, all);
	}
	if (threadIdx.x == 0)
		tile[tiles] = before;
}

static void queue_sum(struct gp_rt_stream *s, uint32_t *tile, int64_t tiles)
{
	GPK_LAUNCH(s, sum_tiles, 1, SUM_THREADS, 0, tile, tiles);
}

/* --- bits ------------------------------------------------------------------------------------------------------- */

/* Words of the elements above the threshold and of those equal to it, and how many. Lane r keeps row r's word. */
GPK_KERNEL compare(struct gpk_kept b, const float *x, const struct gpk_wanted *found)
{
	const int lane = gpk_lane();
	const uint32_t threshold = found->key;
	FOR_TILES(tile, (b.n + GPK_TILE - 1) / GPK_TILE)
	{
		uint32_t above = 0, equal = 0;
		for (int row = 0; row < ROWS; row++) {
			const int64_t i = tile * GPK_TILE + row * GPK_WARP + lane;
			const uint32_t key = i < b.n ? __float_as_uint(x[i]) << 1 : 0;
			const unsigned more = __ballot_sync(GPK_ALL_LANES, i < b.n && key > threshold);
			const unsigned same = __ballot_sync(GPK_ALL_LANES, i < b.n && key == threshold);
			above = lane == row ? more : above;
			equal = lane == row ? same : equal;
		}
		b.bits[tile * ROWS + lane] = above;
		b.ties[tile * ROWS + lane] = equal;
		const uint32_t count = gpk_warp_count((uint32_t)__popc(above)),
			       ties = gpk_warp_count((uint32_t)__popc(equal));
		if (lane == 0) {
			b.tile[0][tile] = count;
			b.tile[1][tile] = ties;
		}
	}
}

/* The lowest `count` bits of `word`. */
GPK_DEVICE uint32_t lowest_bits(uint32_t word, uint32_t count)
{
	uint32_t rest = word;
	if (count >= (uint32_t)__popc(word))
		return word;
	for (; count > 0; count--)
		rest &= rest - 1;
	return word & ~rest;
}

/* Elements of a tile whose bits are set to where they belong; `word` is row `lane`'s, `before` the kept ones before it. */
GPK_DEVICE void move_kept(const struct gpk_kept &b, int64_t tile, uint32_t word, uint32_t before, const float *x,
			  float *values, uint32_t *places)
{
	const int lane = gpk_lane();
	for (int row = 0; row < ROWS; row++) {
		const uint32_t bits = __shfl_sync(GPK_ALL_LANES, word, row);
		const uint32_t to =
			__shfl_sync(GPK_ALL_LANES, before, row) + (uint32_t)__popc(bits & gpk_lanes_below());
		const int64_t i = tile * GPK_TILE + row * GPK_WARP + lane;
		if (!(bits >> lane & 1) || to >= b.kept)
			continue;
		values[to] = x[i];
		if (places)
			places[to] = (uint32_t)i;
	}
}

/* Adds the first ties, until there are enough. `equal - before` of them belong to the kept ones. */
GPK_KERNEL settle(struct gpk_kept b, const float *x, const struct gpk_wanted *found, const uint32_t *bad, float *values,
		  uint32_t *places)
{
	const int lane = gpk_lane();
	const uint32_t ties = found->equal - found->before;
	if (*bad) {
		if (blockIdx.x == 0 && threadIdx.x == 0)
			b.told->bad = 1;
		return;
	}
	FOR_TILES(tile, (b.n + GPK_TILE - 1) / GPK_TILE)
	{
		const uint32_t equal = b.ties[tile * ROWS + lane], ties_before = b.tile[1][tile];
		const uint32_t count = (uint32_t)__popc(equal), at = ties_before + gpk_warp_prefix(count) - count;
		const uint32_t word = b.bits[tile * ROWS + lane] | lowest_bits(equal, at < ties ? ties - at : 0);
		b.bits[tile * ROWS + lane] = word;
		const uint32_t set = (uint32_t)__popc(word);
		const uint32_t before = b.tile[0][tile] + min(ties_before, ties) + gpk_warp_prefix(set) - set;
		move_kept(b, tile, word, before, x, values, places);
	}
}

extern "C" void gpk_kept_mark(struct gp_rt_stream *s, const struct gpk_kept *b, const struct gpk_select *select,
			      const float *x, float *values, uint32_t *places)
{
	const int64_t tiles = gpk_tiles(b->n);
	const struct gpk_wanted *const found = gpk_select_found(select);
	GPK_LAUNCH(s, compare, blocks_for(tiles), THREADS, 0, *b, x, found);
	queue_sum(s, b->tile[0], tiles);
	queue_sum(s, b->tile[1], tiles);
	GPK_LAUNCH(s, settle, blocks_for(tiles), THREADS, 0, *b, x, found, gpk_select_bad(select), values, places);
}

GPK_KERNEL count_bits(struct gpk_kept b)
{
	FOR_TILES(tile, (b.n + GPK_TILE - 1) / GPK_TILE)
	{
		const uint32_t count = gpk_warp_count((uint32_t)__popc(b.bits[tile * ROWS + gpk_lane()]));
		if (gpk_lane() == 0)
			b.tile[0][tile] = count;
	}
}

GPK_KERNEL tell_kept(struct gpk_kept b)
{
	b.told->kept = b.tile[0][(b.n + GPK_TILE - 1) / GPK_TILE];
}

extern "C" void gpk_kept_count(struct gp_rt_stream *s, const struct gpk_kept *b)
{
	const int64_t tiles = gpk_tiles(b->n);
	GPK_LAUNCH(s, count_bits, blocks_for(tiles), THREADS, 0, *b);
	queue_sum(s, b->tile[0], tiles);
	GPK_LAUNCH(s, tell_kept, 1, 1, 0, *b);
}

/* A lane's word of a tile, and how many are kept before it. */
GPK_DEVICE uint32_t word_of(const struct gpk_kept &b, int64_t tile, uint32_t *before)
{
	const uint32_t word = b.bits[tile * ROWS + gpk_lane()], set = (uint32_t)__popc(word);
	*before = b.tile[0][tile] + gpk_warp_prefix(set) - set;
	return word;
}

GPK_KERNEL gather(struct gpk_kept b, const float *x, float *values)
{
	const int lane = gpk_lane();
	bool bad = false;
	FOR_TILES(tile, (b.n + GPK_TILE - 1) / GPK_TILE)
	{
		uint32_t before;
		const uint32_t word = word_of(b, tile, &before);
		for (int row = 0; row < ROWS; row++) {
			const int64_t i = tile * GPK_TILE + row * GPK_WARP + lane;
			bad |= i < b.n && __float_as_uint(x[i]) << 1 >= 0xff000000u;
		}
		move_kept(b, tile, word, before, x, values, NULL);
	}
	if (bad)
		b.told->bad = 1;
}

extern "C" void gpk_kept_gather(struct gp_rt_stream *s, const struct gpk_kept *b, const float *x, float *values)
{
	GPK_LAUNCH(s, gather, blocks_for(gpk_tiles(b->n)), THREADS, 0, *b, x, values);
}

GPK_KERNEL scatter(struct gpk_kept b, const float *values, float *x)
{
	const int lane = gpk_lane();
	FOR_TILES(tile, (b.n + GPK_TILE - 1) / GPK_TILE)
	{
		uint32_t before;
		const uint32_t word = word_of(b, tile, &before);
		for (int row = 0; row < ROWS; row++) {
			const uint32_t bits = __shfl_sync(GPK_ALL_LANES, word, row);
			const uint32_t from =
				__shfl_sync(GPK_ALL_LANES, before, row) + (uint32_t)__popc(bits & gpk_lanes_below());
			const int64_t i = tile * GPK_TILE + row * GPK_WARP + lane;
			if (i < b.n)
				x[i] = (bits >> lane & 1) && from < b.kept ? values[from] : 0;
		}
	}
}

extern "C" void gpk_kept_scatter(struct gp_rt_stream *s, const struct gpk_kept *b, const float *values, float *x)
{
	GPK_LAUNCH(s, scatter, blocks_for(gpk_tiles(b->n)), THREADS, 0, *b, values, x);
}

/* --- distances: write ------------------------------------------------------------------------------------------- */

/* How many elements are left out before kept one i. */
GPK_DEVICE uint32_t skipped_before(const uint32_t *places, int64_t i)
{
	return i ? places[i] - places[i - 1] - 1 : places[0];
}

GPK_DEVICE uint32_t escape_of(int width)
{
	return (1u << width) - 1;
}

/* How many codes more than one each the distances take, for every width. */
GPK_KERNEL count_longer(struct gpk_kept b, const uint32_t *places)
{
	const int64_t step = (int64_t)gridDim.x * THREADS;
	uint32_t longer[WIDTH_MAX + 1] = {0};
	if (b.told->bad)
		return;
	for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < b.kept; i += step) {
		const uint32_t skipped = skipped_before(places, i);
		for (int w = WIDTH_MIN; w <= WIDTH_MAX; w++)
			longer[w] += skipped / escape_of(w);
	}
	for (int w = WIDTH_MIN; w <= WIDTH_MAX; w++) {
		const uint32_t sum = gpk_warp_count(longer[w]);
		if (gpk_lane() == 0 && sum)
			atomicAdd(&b.told->longer[w], sum);
	}
}

/* The width that takes fewest bytes; 0: no less than a bitmap takes. As codec_indices.c. */
GPK_DEVICE int best_width(const struct gpk_kept &b)
{
	uint64_t least = ((uint64_t)b.n + 7) / 8;
	int best = 0;
	if (b.told->bad || b.kept >= b.n / 2)
		return 0;
	for (int w = WIDTH_MIN; w <= WIDTH_MAX; w++) {
		const uint64_t bytes = (((uint64_t)b.kept + b.told->longer[w]) * (uint64_t)w + 7) / 8;
		if (bytes < least) {
			least = bytes;
			best = w;
		}
	}
	return best;
}

GPK_KERNEL count_codes(struct gpk_kept b, const uint32_t *places)
{
	const int width = best_width(b);
	FOR_TILES(tile, (b.kept + GPK_TILE - 1) / GPK_TILE)
	{
		uint32_t codes = 0;
		for (int row = 0; row < ROWS && width; row++) {
			const int64_t i = tile * GPK_TILE + row * GPK_WARP + gpk_lane();
			codes += i < b.kept ? 1 + skipped_before(places, i) / escape_of(width) : 0;
		}
		codes = gpk_warp_count(codes);
		if (gpk_lane() == 0)
			b.tile[0][tile] = codes;
	}
}

/* Where bits go: into words that 32 lanes share, or into the payload itself, where they meet those of other warps. */
GPK_DEVICE void put_bits(uint32_t *words, uint64_t bit, uint32_t value, int width)
{
	const uint64_t shifted = (uint64_t)value << bit % 32;
	atomicOr(&words[bit / 32], (uint32_t)shifted);
	if (bit % 32 + (uint64_t)width > 32 && shifted >> 32)
		atomicOr(&words[bit / 32 + 1], (uint32_t)(shifted >> 32));
}

GPK_DEVICE void put_distance(uint32_t *words, uint64_t bit, uint32_t skipped, int width)
{
	const uint32_t escape = escape_of(width);
	for (; skipped >= escape; skipped -= escape, bit += (uint64_t)width)
		put_bits(words, bit, escape, width);
	put_bits(words, bit, skipped, width);
}

/* Codes of 32 distances, `codes` in all, from bit `begin` of the payload on; this lane's begin at code `at`. There are
 * no more of them than a bitmap has bits, unless the device failed. */
GPK_DEVICE void put_row(uint32_t *staged, uint32_t *packed, int64_t n, uint64_t begin, uint32_t codes, uint32_t at,
			uint32_t skipped, bool have, int width)
{
	const uint64_t end = begin + (uint64_t)codes * (uint64_t)width, first = begin / 32,
		       words = (end + 31) / 32 - first;
	const uint64_t bit = begin % 32 + (uint64_t)at * (uint64_t)width;
	if (end > ((uint64_t)n + 7) / 8 * 8)
		return;
	if (words > STAGED_WORDS) {
		if (have)
			put_distance(packed + first, bit, skipped, width);
		return;
	}
	for (int i = gpk_lane(); i < (int)words; i += GPK_WARP)
		staged[i] = 0;
	__syncwarp();
	if (have)
		put_distance(staged, bit, skipped, width);
	__syncwarp();
	for (int i = gpk_lane(); i < (int)words; i += GPK_WARP)
		if (staged[i])
			atomicOr(&packed[first + (uint64_t)i], staged[i]);
	__syncwarp();
}

GPK_KERNEL write_codes(struct gpk_kept b, const uint32_t *places, uint32_t *packed)
{
	GPK_SHARED(uint32_t, staged, [WARPS][STAGED_WORDS]);
	const int width = best_width(b);
	const int64_t tiles = (b.kept + GPK_TILE - 1) / GPK_TILE;
	if (blockIdx.x == 0 && threadIdx.x == 0) {
		b.told->width = (uint32_t)width;
		b.told->codes = b.tile[0][tiles];
	}
	if (!width)
		return;
	FOR_TILES(tile, tiles)
	{
		uint32_t before = b.tile[0][tile];
		for (int row = 0; row < ROWS; row++) {
			const int64_t i = tile * GPK_TILE + row * GPK_WARP + gpk_lane();
			const uint32_t skipped = i < b.kept ? skipped_before(places, i) : 0;
			const uint32_t codes = i < b.kept ? 1 + skipped / escape_of(width) : 0;
			const uint32_t upto = gpk_warp_prefix(codes),
				       all = __shfl_sync(GPK_ALL_LANES, upto, GPK_WARP - 1);
			put_row(staged[threadIdx.x / GPK_WARP], packed, b.n, (uint64_t)before * (uint64_t)width, all,
				upto - codes, skipped, i < b.kept, width);
			before += all;
		}
	}
}

extern "C" void gpk_distances_write(struct gp_rt_stream *s, const struct gpk_kept *b, const uint32_t *places,
				    uint32_t *packed)
{
	const int64_t tiles = gpk_tiles(b->kept);
	GPK_LAUNCH(s, count_longer, gpk_blocks(b->kept, THREADS * 8, BLOCKS), THREADS, 0, *b, places);
	GPK_LAUNCH(s, count_codes, blocks_for(tiles), THREADS, 0, *b, places);
	queue_sum(s, b->tile[0], tiles);
	GPK_LAUNCH(s, write_codes, blocks_for(tiles), THREADS, 0, *b, places, packed);
}

/* --- distances: read -------------------------------------------------------------------------------------------- */

/* Code i, and what it says: how far it goes, and whether an element is kept there. */
struct code {
	uint32_t distance;
	bool kept;
};

GPK_DEVICE struct code read_code(const uint32_t *packed, int width, int64_t i, int64_t codes)
{
	struct code c = {0, false};
	if (i >= codes)
		return c;
	const uint64_t bit = (uint64_t)i * (uint64_t)width;
	const uint64_t two = packed[bit / 32] | (uint64_t)packed[bit / 32 + 1] << 32;
	c.distance = (uint32_t)(two >> bit % 32) & escape_of(width);
	c.kept = c.distance != escape_of(width);
	return c;
}

GPK_KERNEL count_distances(struct gpk_kept b, const uint32_t *packed, int width, int64_t codes)
{
	FOR_TILES(tile, (codes + GPK_TILE - 1) / GPK_TILE)
	{
		uint32_t far = 0, kept = 0;
		for (int row = 0; row < ROWS; row++) {
			const struct code c =
				read_code(packed, width, tile * GPK_TILE + row * GPK_WARP + gpk_lane(), codes);
			far += c.distance + c.kept;
			kept += c.kept;
		}
		far = gpk_warp_count(far);
		kept = gpk_warp_count(kept);
		if (gpk_lane() == 0) {
			b.tile[0][tile] = far;
			b.tile[1][tile] = kept;
		}
	}
}

GPK_KERNEL read_codes(struct gpk_kept b, const uint32_t *packed, int width, int64_t codes)
{
	bool bad = false;
	FOR_TILES(tile, (codes + GPK_TILE - 1) / GPK_TILE)
	{
		uint32_t far = b.tile[0][tile], kept = b.tile[1][tile];
		for (int row = 0; row < ROWS; row++) {
			const int64_t i = tile * GPK_TILE + row * GPK_WARP + gpk_lane();
			const struct code c = read_code(packed, width, i, codes);
			const uint32_t step = c.distance + c.kept, far_upto = gpk_warp_prefix(step),
				       kept_upto = gpk_warp_prefix(c.kept);
			const int64_t place = (int64_t)far + far_upto - step + c.distance;
			const bool counts = i < codes && kept + kept_upto - c.kept < b.kept;
			if (counts && place >= b.n)
				bad = true;
			else if (counts && c.kept)
				atomicOr(&b.bits[place / 32], 1u << place % 32);
			if (counts && c.kept && kept + kept_upto == b.kept)
				b.told->used = (uint32_t)(i + 1);
			far += __shfl_sync(GPK_ALL_LANES, far_upto, GPK_WARP - 1);
			kept += __shfl_sync(GPK_ALL_LANES, kept_upto, GPK_WARP - 1);
		}
	}
	if (bad)
		b.told->bad = 1;
}

extern "C" void gpk_distances_read(struct gp_rt_stream *s, const struct gpk_kept *b, const uint32_t *packed, int width,
				   int64_t codes)
{
	const int64_t tiles = gpk_tiles(codes);
	if (codes < 1)
		return;
	GPK_LAUNCH(s, count_distances, blocks_for(tiles), THREADS, 0, *b, packed, width, codes);
	queue_sum(s, b->tile[0], tiles);
	queue_sum(s, b->tile[1], tiles);
	GPK_LAUNCH(s, read_codes, blocks_for(tiles), THREADS, 0, *b, packed, width, codes);
}
