/* SPDX-License-Identifier: Apache-2.0
 *
 * Two steps each: warps count, and the same warps write, which then know what
 * comes before them. Each has a run of neighbouring tiles: what comes before a
 * tile is a sum over blocks, one over a block's warps, and what the warp has
 * seen itself, so that no block has to add up all tiles. See k_codec_chosen.h.
 * Test: tests/unit/test_cuda_codec_select.c
 */
#include "kernels/cuda/codec/k_codec_chosen.h"

#include "kernels/cuda/codec/gpk_scan.h"

#define THREADS      256
#define WARPS        (THREADS / GPK_WARP)
#define ROWS         (GPK_TILE / GPK_WARP) /* of a tile: a warp's elements at a time, and words of bits */
#define BATCH        8                     /* rows of which a warp asks for everything before it looks at the first */
#define WIDTH_MIN    2
#define WIDTH_MAX    16
#define STAGED_WORDS 64 /* of packed codes that 32 lanes put together before they are stored */

/* On an emulated device so few that tests see what comes behind a run's first tile. */
#ifdef __CUDACC__
#define BLOCKS 2112
#else
#define BLOCKS 2
#endif
static_assert(BLOCKS * (1 + WARPS) <= GPK_KEPT_PARTS, "parts of all blocks and warps have room");

/* --- runs of tiles ---------------------------------------------------------------------------------------------- */

struct run {
	int64_t tile, end;
};

GPK_DEVICE int64_t warp_number(void)
{
	return ((int64_t)blockIdx.x * THREADS + threadIdx.x) / GPK_WARP;
}

/* This warp's, of all tiles of `count` elements. */
GPK_DEVICE struct run run_of(int64_t count)
{
	const int64_t tiles = gpk_div_up(count, GPK_TILE), each = gpk_div_up(tiles, (int64_t)gridDim.x * WARPS);
	struct run r = {warp_number() * each, (warp_number() + 1) * each};
	r.end = r.end < tiles ? r.end : tiles;
	return r;
}

static unsigned blocks_for(int64_t count)
{
	return gpk_blocks(gpk_tiles(count), WARPS, BLOCKS);
}

/* Elements of a tile that there are. */
GPK_DEVICE int elements_of(int64_t tile, int64_t count)
{
	const int64_t left = count - tile * GPK_TILE;
	return (int)(left < GPK_TILE ? left : (int64_t)GPK_TILE);
}

/* The block: what each warp has counted in its run, the same in all its lanes, to `part`: sums of blocks, then what comes
 * before each warp inside of its block. */
GPK_DEVICE void leave_count(uint32_t *part, uint32_t mine)
{
	uint32_t all;
	const uint32_t before = gpk_block_before(gpk_lane() ? 0 : mine, &all);
	if (gpk_lane() == 0)
		part[BLOCKS + warp_number()] = before;
	if (threadIdx.x == 0)
		part[blockIdx.x] = all;
}

/* The block, of a grid as wide: what comes before this warp's run; `total` (or NULL), in the last block alone, what there
 * is in all. */
GPK_DEVICE uint32_t count_before(const uint32_t *part, uint32_t *total)
{
	uint32_t sum = 0, before;
	for (unsigned b = threadIdx.x; b < blockIdx.x; b += THREADS)
		sum = gpk_add_counts(sum, part[b]);
	gpk_block_before(sum, &before);
	if (total && blockIdx.x == gridDim.x - 1 && threadIdx.x == 0)
		*total = gpk_add_counts(before, part[blockIdx.x]);
	return gpk_add_counts(before, part[BLOCKS + warp_number()]);
}

/* --- bits ------------------------------------------------------------------------------------------------------- */

/* Words of the elements above the threshold and of those equal to it, and how many. Lane r holds row r's word. */
GPK_KERNEL compare(struct gpk_chosen b, const float *x, const struct gpk_wanted *found)
{
	const int lane = gpk_lane();
	const uint32_t threshold = found->key;
	uint32_t count = 0, ties = 0;
	const struct run run = run_of(b.n);
	for (int64_t tile = run.tile; tile < run.end; tile++) {
		const float *const from = x + tile * GPK_TILE + lane;
		const int here = elements_of(tile, b.n) - lane;
		uint32_t above = 0, equal = 0;
		for (int first = 0; first < ROWS; first += BATCH) {
			uint32_t key[BATCH];
			GPK_UNROLL
			for (int k = 0; k < BATCH; k++) {
				const int at = (first + k) * GPK_WARP;
				key[k] = at < here ? __float_as_uint(from[at]) << 1 : 0;
			}
			GPK_UNROLL
			for (int k = 0; k < BATCH; k++) {
				const bool there = (first + k) * GPK_WARP < here;
				const unsigned more = __ballot_sync(GPK_ALL_LANES, key[k] > threshold);
				const unsigned same = __ballot_sync(GPK_ALL_LANES, there && key[k] == threshold);
				above = lane == first + k ? more : above;
				equal = lane == first + k ? same : equal;
			}
		}
		b.bits[tile * ROWS + lane] = above;
		b.ties[tile * ROWS + lane] = equal;
		count += (uint32_t)__popc(above);
		ties += (uint32_t)__popc(equal);
	}
	leave_count(b.part[0], gpk_warp_count(count));
	leave_count(b.part[1], gpk_warp_count(ties));
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

/* Where an element whose bit is set belongs, of a row whose word is `bits` and whose first goes to `first`. */
GPK_DEVICE uint32_t place_in(uint32_t bits, uint32_t first)
{
	return first + (uint32_t)__popc(bits & gpk_lanes_below());
}

/* Elements of a tile whose bits are set to where they belong; `word` is row `lane`'s, `before` the chosen ones before it.
 * With All every element is looked at: true when one is not finite. */
template <bool All>
GPK_DEVICE bool move_chosen(const struct gpk_chosen &b, int64_t tile, uint32_t word, uint32_t before, const float *x,
			    float *values, uint32_t *places)
{
	const int lane = gpk_lane(), here = elements_of(tile, b.n) - lane;
	const int64_t begin = tile * GPK_TILE + lane;
	bool bad = false;
	for (int first = 0; first < ROWS; first += BATCH) {
		float v[BATCH];
		GPK_UNROLL
		for (int k = 0; k < BATCH; k++) {
			const uint32_t bits = __shfl_sync(GPK_ALL_LANES, word, first + k);
			const int at = (first + k) * GPK_WARP;
			v[k] = at < here && (All || bits >> lane & 1) ? x[begin + at] : 0;
		}
		GPK_UNROLL
		for (int k = 0; k < BATCH; k++) {
			const uint32_t bits = __shfl_sync(GPK_ALL_LANES, word, first + k);
			bad |= All && !gpk_finite(v[k]);
			if (!bits) /* the whole warp: few elements are chosen */
				continue;
			const uint32_t to = place_in(bits, __shfl_sync(GPK_ALL_LANES, before, first + k));
			if (!(bits >> lane & 1) || to >= b.chosen)
				continue;
			values[to] = v[k];
			if (places)
				places[to] = (uint32_t)(begin + (first + k) * GPK_WARP);
		}
	}
	return bad;
}

/* Adds the first ties, until there are enough. `equal - before` of them belong to the chosen ones. */
GPK_KERNEL settle(struct gpk_chosen b, const float *x, const struct gpk_wanted *found, const uint32_t *bad,
		  float *values, uint32_t *places)
{
	const int lane = gpk_lane();
	const uint32_t wanted = found->equal - found->before;
	if (*bad) {
		if (blockIdx.x == 0 && threadIdx.x == 0)
			b.told->bad = 1;
		return;
	}
	uint32_t chosen = count_before(b.part[0], NULL), ties = count_before(b.part[1], NULL);
	chosen += min(ties, wanted);
	const struct run run = run_of(b.n);
	for (int64_t tile = run.tile; tile < run.end; tile++) {
		const uint32_t equal = b.ties[tile * ROWS + lane], count = (uint32_t)__popc(equal),
			       ties_upto = gpk_warp_prefix(count), at = ties + ties_upto - count;
		const uint32_t word = b.bits[tile * ROWS + lane] | lowest_bits(equal, at < wanted ? wanted - at : 0);
		const uint32_t set = (uint32_t)__popc(word), upto = gpk_warp_prefix(set);
		b.bits[tile * ROWS + lane] = word;
		move_chosen<false>(b, tile, word, chosen + upto - set, x, values, places);
		chosen += __shfl_sync(GPK_ALL_LANES, upto, GPK_WARP - 1);
		ties += __shfl_sync(GPK_ALL_LANES, ties_upto, GPK_WARP - 1);
	}
}

extern "C" void gpk_chosen_mark(struct gp_rt_stream *s, const struct gpk_chosen *b, const struct gpk_select *select,
				const float *x, float *values, uint32_t *places)
{
	const unsigned blocks = blocks_for(b->n);
	const struct gpk_wanted *const found = gpk_select_found(select);
	GPK_LAUNCH(s, compare, blocks, THREADS, 0, *b, x, found);
	GPK_LAUNCH(s, settle, blocks, THREADS, 0, *b, x, found, gpk_select_bad(select), values, places);
}

GPK_KERNEL count_bits(struct gpk_chosen b)
{
	uint32_t count = 0;
	const struct run run = run_of(b.n);
	for (int64_t tile = run.tile; tile < run.end; tile++)
		count += (uint32_t)__popc(b.bits[tile * ROWS + gpk_lane()]);
	leave_count(b.part[0], gpk_warp_count(count));
}

extern "C" void gpk_chosen_count(struct gp_rt_stream *s, const struct gpk_chosen *b)
{
	GPK_LAUNCH(s, count_bits, blocks_for(b->n), THREADS, 0, *b);
}

/* A lane's word of a tile; `upto`: those that the tile chooses up to it. */
GPK_DEVICE uint32_t word_of(const struct gpk_chosen &b, int64_t tile, uint32_t *upto)
{
	const uint32_t word = b.bits[tile * ROWS + gpk_lane()];
	*upto = gpk_warp_prefix((uint32_t)__popc(word));
	return word;
}

GPK_KERNEL gather(struct gpk_chosen b, const float *x, float *values)
{
	uint32_t chosen = count_before(b.part[0], &b.told->chosen);
	bool bad = false;
	const struct run run = run_of(b.n);
	for (int64_t tile = run.tile; tile < run.end; tile++) {
		uint32_t upto;
		const uint32_t word = word_of(b, tile, &upto);
		bad |= move_chosen<true>(b, tile, word, chosen + upto - (uint32_t)__popc(word), x, values, NULL);
		chosen += __shfl_sync(GPK_ALL_LANES, upto, GPK_WARP - 1);
	}
	if (bad)
		b.told->bad = 1;
}

extern "C" void gpk_chosen_gather(struct gp_rt_stream *s, const struct gpk_chosen *b, const float *x, float *values)
{
	GPK_LAUNCH(s, gather, blocks_for(b->n), THREADS, 0, *b, x, values);
}

/* A tile of x; arguments as move_kept's. */
GPK_DEVICE void spread_chosen(const struct gpk_chosen &b, int64_t tile, uint32_t word, uint32_t before,
			      const float *values, float *x)
{
	const int lane = gpk_lane(), here = elements_of(tile, b.n) - lane;
	float *const to = x + tile * GPK_TILE + lane;
	for (int first = 0; first < ROWS; first += BATCH) {
		float v[BATCH];
		GPK_UNROLL
		for (int k = 0; k < BATCH; k++) {
			const uint32_t bits = __shfl_sync(GPK_ALL_LANES, word, first + k);
			v[k] = 0;
			if (!bits) /* the whole warp: few elements are chosen */
				continue;
			const uint32_t from = place_in(bits, __shfl_sync(GPK_ALL_LANES, before, first + k));
			if ((bits >> lane & 1) && from < b.chosen)
				v[k] = values[from];
		}
		GPK_UNROLL
		for (int k = 0; k < BATCH; k++)
			if ((first + k) * GPK_WARP < here)
				to[(first + k) * GPK_WARP] = v[k];
	}
}

/* Counted: by count_bits; else by read_codes, which has left what comes before each tile that chooses something. */
template <bool Counted> GPK_KERNEL scatter(struct gpk_chosen b, const float *values, float *x)
{
	uint32_t chosen = 0;
	if (Counted)
		chosen = count_before(b.part[0], &b.told->chosen);
	const struct run run = run_of(b.n);
	for (int64_t tile = run.tile; tile < run.end; tile++) {
		uint32_t upto;
		const uint32_t word = word_of(b, tile, &upto);
		if (!Counted)
			chosen = b.first[tile];
		spread_chosen(b, tile, word, chosen + upto - (uint32_t)__popc(word), values, x);
		chosen += __shfl_sync(GPK_ALL_LANES, upto, GPK_WARP - 1);
	}
}

extern "C" void gpk_chosen_scatter(struct gp_rt_stream *s, const struct gpk_chosen *b, const float *values, float *x)
{
	GPK_LAUNCH(s, scatter<true>, blocks_for(b->n), THREADS, 0, *b, values, x);
}

extern "C" void gpk_distances_scatter(struct gp_rt_stream *s, const struct gpk_chosen *b, const float *values, float *x)
{
	GPK_LAUNCH(s, scatter<false>, blocks_for(b->n), THREADS, 0, *b, values, x);
}

/* --- distances: write ------------------------------------------------------------------------------------------- */

/* How many elements are left out before chosen one i. */
GPK_DEVICE uint32_t skipped_before(const uint32_t *places, int64_t i)
{
	return i ? places[i] - places[i - 1] - 1 : places[0];
}

GPK_DEVICE uint32_t escape_of(int width)
{
	return (1u << width) - 1;
}

/* How many codes more than one each the distances take, for every width. A block adds once to each sum. */
GPK_KERNEL count_longer(struct gpk_chosen b, const uint32_t *places)
{
	GPK_SHARED(uint32_t, sums, [WIDTH_MAX + 1]);
	const int64_t step = (int64_t)gridDim.x * THREADS;
	uint32_t longer[WIDTH_MAX + 1] = {0};
	if (b.told->bad)
		return;
	if (threadIdx.x <= WIDTH_MAX)
		sums[threadIdx.x] = 0;
	__syncthreads();
	GPK_UNROLL_BY(4)
	for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < b.chosen; i += step) {
		const uint32_t skipped = skipped_before(places, i);
		GPK_UNROLL
		for (int w = WIDTH_MIN; w <= WIDTH_MAX; w++) {
			if (skipped < escape_of(w)) /* as for all wider ones */
				break;
			longer[w] += skipped / escape_of(w);
		}
	}
	GPK_UNROLL
	for (int w = WIDTH_MIN; w <= WIDTH_MAX; w++) {
		const uint32_t sum = gpk_warp_count(longer[w]);
		if (gpk_lane() == 0 && sum)
			atomicAdd(&sums[w], sum);
	}
	__syncthreads();
	if (threadIdx.x <= WIDTH_MAX && sums[threadIdx.x])
		atomicAdd(&b.told->longer[threadIdx.x], sums[threadIdx.x]);
}

/* The width that takes fewest bytes; 0: no less than a bitmap takes. As codec_indices.c. */
GPK_DEVICE int best_width(const struct gpk_chosen &b)
{
	uint64_t least = ((uint64_t)b.n + 7) / 8;
	int best = 0;
	if (b.told->bad || b.chosen >= b.n / 2)
		return 0;
	for (int w = WIDTH_MIN; w <= WIDTH_MAX; w++) {
		const uint64_t bytes = (((uint64_t)b.chosen + b.told->longer[w]) * (uint64_t)w + 7) / 8;
		if (bytes < least) {
			least = bytes;
			best = w;
		}
	}
	return best;
}

/* A lane's distances of BATCH rows from `first` on, and the codes that each takes: none behind the last. */
GPK_DEVICE void take_rows(const struct gpk_chosen &b, const uint32_t *places, int64_t first, uint32_t escape,
			  uint32_t skipped[BATCH], uint32_t codes[BATCH])
{
	GPK_UNROLL
	for (int k = 0; k < BATCH; k++) {
		const int64_t i = first + k * GPK_WARP + gpk_lane();
		skipped[k] = i < b.chosen ? skipped_before(places, i) : 0;
		codes[k] = i < b.chosen ? 1 + skipped[k] / escape : 0;
	}
}

GPK_KERNEL count_codes(struct gpk_chosen b, const uint32_t *places)
{
	const int width = best_width(b);
	uint32_t sum = 0;
	if (!width)
		return;
	const struct run run = run_of(b.chosen);
	for (int64_t tile = run.tile; tile < run.end; tile++)
		for (int first = 0; first < GPK_TILE; first += BATCH * GPK_WARP) {
			uint32_t skipped[BATCH], codes[BATCH];
			take_rows(b, places, tile * GPK_TILE + first, escape_of(width), skipped, codes);
			for (int k = 0; k < BATCH; k++)
				sum += codes[k];
		}
	leave_count(b.part[0], gpk_warp_count(sum));
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

GPK_KERNEL write_codes(struct gpk_chosen b, const uint32_t *places, uint32_t *packed)
{
	GPK_SHARED(uint32_t, staged, [WARPS][STAGED_WORDS]);
	const int width = best_width(b), warp = (int)threadIdx.x / GPK_WARP;
	if (blockIdx.x == 0 && threadIdx.x == 0)
		b.told->width = (uint32_t)width;
	if (!width)
		return;
	uint32_t before = count_before(b.part[0], &b.told->codes);
	const struct run run = run_of(b.chosen);
	for (int64_t tile = run.tile; tile < run.end; tile++)
		for (int first = 0; first < GPK_TILE; first += BATCH * GPK_WARP) {
			const int64_t begin = tile * GPK_TILE + first + gpk_lane();
			uint32_t skipped[BATCH], codes[BATCH];
			take_rows(b, places, begin - gpk_lane(), escape_of(width), skipped, codes);
			GPK_UNROLL
			for (int k = 0; k < BATCH; k++) {
				const uint32_t upto = gpk_warp_prefix(codes[k]),
					       all = __shfl_sync(GPK_ALL_LANES, upto, GPK_WARP - 1);
				put_row(staged[warp], packed, b.n, (uint64_t)before * (uint64_t)width, all,
					upto - codes[k], skipped[k], begin + k * GPK_WARP < b.chosen, width);
				before += all;
			}
		}
}

extern "C" void gpk_distances_write(struct gp_rt_stream *s, const struct gpk_chosen *b, const uint32_t *places,
				    uint32_t *packed)
{
	const unsigned blocks = blocks_for(b->chosen);
	GPK_LAUNCH(s, count_longer, gpk_blocks(b->chosen, THREADS * 8, BLOCKS), THREADS, 0, *b, places);
	GPK_LAUNCH(s, count_codes, blocks, THREADS, 0, *b, places);
	GPK_LAUNCH(s, write_codes, blocks, THREADS, 0, *b, places, packed);
}

/* --- distances: read -------------------------------------------------------------------------------------------- */

/* Codes in a row. */
struct reader {
	const uint32_t *next;
	uint64_t held;
	int bits; /* of `held` */
};

/* A lane's of a tile: GPK_WARP codes, which are `width` whole words. */
GPK_DEVICE struct reader reader_of(const uint32_t *packed, int width, int64_t tile)
{
	struct reader r = {packed + (tile * GPK_WARP + gpk_lane()) * width, 0, 0};
	return r;
}

GPK_DEVICE uint32_t read_code(struct reader *r, int width)
{
	if (r->bits < width) {
		r->held |= (uint64_t)*r->next++ << r->bits;
		r->bits += 32;
	}
	const uint32_t code = (uint32_t)r->held & escape_of(width);
	r->held >>= width;
	r->bits -= width;
	return code;
}

/* Codes of this lane's in a tile. */
GPK_DEVICE int codes_here(int64_t tile, int64_t codes)
{
	const int left = elements_of(tile, codes) - gpk_lane() * GPK_WARP;
	return left < 0 ? 0 : left < GPK_WARP ? left : GPK_WARP;
}

/* How far a lane's codes of a tile go, and how many elements they choose. */
GPK_DEVICE void sum_lane(const uint32_t *packed, int width, int64_t tile, int64_t codes, uint32_t *far,
			 uint32_t *chosen)
{
	struct reader r = reader_of(packed, width, tile);
	*far = *chosen = 0;
	for (int left = codes_here(tile, codes); left > 0; left--) {
		const uint32_t code = read_code(&r, width);
		*far += code;
		*chosen += code != escape_of(width);
	}
	*far += *chosen;
}

GPK_KERNEL count_distances(struct gpk_chosen b, const uint32_t *packed, int width, int64_t codes)
{
	uint32_t far = 0, chosen = 0;
	const struct run run = run_of(codes);
	for (int64_t tile = run.tile; tile < run.end; tile++) {
		uint32_t f, k;
		sum_lane(packed, width, tile, codes, &f, &k);
		far = gpk_add_counts(far, f);
		chosen += k;
	}
	leave_count(b.part[0], __shfl_sync(GPK_ALL_LANES, gpk_warp_prefix(far), GPK_WARP - 1));
	leave_count(b.part[1], gpk_warp_count(chosen));
}

/* Bits of one word at a time; neighbours meet in it. */
struct bit_writer {
	int64_t word;
	uint32_t bits;
};

GPK_DEVICE void put_word(const struct gpk_chosen &b, const struct bit_writer *w)
{
	if (w->bits)
		atomicOr(&b.bits[w->word], w->bits);
}

GPK_DEVICE void put_bit(const struct gpk_chosen &b, struct bit_writer *w, int64_t place)
{
	if (place / 32 != w->word) {
		put_word(b, w);
		w->word = place / 32;
		w->bits = 0;
	}
	w->bits |= 1u << place % 32;
}

/* Tiles that begin at places from..upto - 1: `chosen` elements are chosen before. */
GPK_DEVICE void leave_first(const struct gpk_chosen &b, int64_t from, int64_t upto, uint32_t chosen)
{
	upto = upto < b.n ? upto : b.n;
	for (int64_t tile = (from + GPK_TILE - 1) / GPK_TILE; tile * GPK_TILE < upto; tile++)
		b.first[tile] = chosen;
}

/* A lane's codes of a tile, from `place` on and with `chosen` before; codes behind the last chosen element do not count. False:
 * one goes past the last element. */
GPK_DEVICE bool read_lane(const struct gpk_chosen &b, const uint32_t *packed, int width, int64_t tile, int64_t codes,
			  int64_t place, uint32_t chosen)
{
	struct reader r = reader_of(packed, width, tile);
	struct bit_writer w = {0, 0};
	const int count = codes_here(tile, codes);
	bool fine = true;
	for (int i = 0; i < count && chosen < b.chosen && fine; i++) {
		const uint32_t code = read_code(&r, width);
		const bool choosing = code != escape_of(width);
		leave_first(b, place, place + code + choosing, chosen);
		place += code;
		fine = place < b.n;
		if (fine && choosing)
			put_bit(b, &w, place);
		place += choosing;
		chosen += choosing;
		if (choosing && chosen == b.chosen)
			b.told->used = (uint32_t)(tile * GPK_TILE + gpk_lane() * GPK_WARP + i + 1);
	}
	put_word(b, &w);
	return fine;
}

GPK_KERNEL read_codes(struct gpk_chosen b, const uint32_t *packed, int width, int64_t codes)
{
	uint32_t far = count_before(b.part[0], NULL), chosen = count_before(b.part[1], NULL);
	bool fine = true;
	const struct run run = run_of(codes);
	for (int64_t tile = run.tile; tile < run.end; tile++) {
		uint32_t f, k;
		sum_lane(packed, width, tile, codes, &f, &k);
		const uint32_t far_upto = gpk_warp_prefix(f), chosen_upto = gpk_warp_prefix(k);
		fine &= read_lane(b, packed, width, tile, codes, (int64_t)far + (far_upto - f),
				  chosen + chosen_upto - k);
		far = gpk_add_counts(far, __shfl_sync(GPK_ALL_LANES, far_upto, GPK_WARP - 1));
		chosen += __shfl_sync(GPK_ALL_LANES, chosen_upto, GPK_WARP - 1);
	}
	if (!fine)
		b.told->bad = 1;
}

extern "C" void gpk_distances_read(struct gp_rt_stream *s, const struct gpk_chosen *b, const uint32_t *packed,
				   int width, int64_t codes)
{
	const unsigned blocks = blocks_for(codes);
	if (codes < 1)
		return;
	GPK_LAUNCH(s, count_distances, blocks, THREADS, 0, *b, packed, width, codes);
	GPK_LAUNCH(s, read_codes, blocks, THREADS, 0, *b, packed, width, codes);
}
