/* SPDX-License-Identifier: Apache-2.0
 *
 * Selection by digits of 12, 10 and 10 bits; of more than ten ranks the latter two
 * are k_codec_select_many.cu's. Zeros, of which a tensor behind a
 * ReLU has mostly, are counted apart: they would all meet in one counter, and
 * their digits are known. See k_codec_select.h.
 * Test: tests/unit/test_cuda_codec_select.c
 */
#include "kernels/cuda/codec/gpk_select.h"

#define THREADS  256
#define WARPS    (THREADS / GPK_WARP)
#define TOP      GPK_SELECT_TOP
#define LOW_BITS 10 /* of few ranks: as many as the middle digit */
#define LOW      (1 << LOW_BITS)
#define STAGED   256 /* keys that a warp gathers before it stores them */
#define VECTOR   4

#define SAMPLE_BLOCKS 64
#define SAMPLE        (SAMPLE_BLOCKS * THREADS * VECTOR)
#define SAMPLE_FROM   (2 * SAMPLE) /* smaller tensors are looked at three times */
#define SAMPLE_RANKS  40           /* for more, most of a tensor would be set aside */
#define A_BLOCK       16384        /* elements that pay for a block's counters */

/* --- rooms ------------------------------------------------------------------------------------------------------ */

/* Many ranks have a short digit first, so that its counters are few, and a long one, which few elements come to. */
static int middle_bits(int ranks)
{
	return ranks <= GPK_SELECT_FEW ? GPK_SELECT_REST - LOW_BITS : 8;
}

/* Words that the counters of one rank take. */
static uint64_t counters_of(int bits)
{
	return (UINT64_C(1) << bits) + (UINT64_C(1) << (GPK_SELECT_REST - bits)) + (UINT64_C(1) << bits) +
	       (UINT64_C(1) << bits) / 32;
}

static uint64_t cleared_bytes(int ranks)
{
	return sizeof(struct gpk_select_state) + (uint64_t)ranks * counters_of(middle_bits(ranks)) * sizeof(uint32_t);
}

static uint64_t found_bytes(int ranks)
{
	return (uint64_t)ranks * sizeof(struct gpk_wanted);
}

/* Half of a tensor, if a sample is taken at all. */
static uint64_t chosen_room(int64_t n, int ranks)
{
	return n >= SAMPLE_FROM && ranks <= SAMPLE_RANKS ? (uint64_t)n / 2 : 0;
}

extern "C" uint64_t gpk_select_bytes(int64_t n, int ranks)
{
	return cleared_bytes(ranks) + found_bytes(ranks) + chosen_room(n, ranks) * sizeof(uint32_t);
}

static struct gpk_select_rooms rooms_of(const struct gpk_select *s)
{
	unsigned char *at = (unsigned char *)s->room;
	struct gpk_select_rooms r;
	r.middle_bits = middle_bits(s->ranks);
	r.low_bits = GPK_SELECT_REST - r.middle_bits;
	r.state = (struct gpk_select_state *)at;
	r.middle = (uint32_t *)(at + sizeof *r.state);
	r.low = r.middle + ((size_t)s->ranks << r.middle_bits);
	r.low_row = r.low + ((size_t)s->ranks << r.low_bits);
	r.marked = r.low_row + ((size_t)s->ranks << r.middle_bits);
	r.found = (struct gpk_wanted *)(at + cleared_bytes(s->ranks));
	r.chosen = (uint32_t *)(r.found + s->ranks);
	r.chosen_room = (uint32_t)chosen_room(s->n, s->ranks);
	r.ranks = s->ranks;
	r.n = s->n;
	r.rank = s->rank;
	return r;
}

extern "C" const struct gpk_wanted *gpk_select_found(const struct gpk_select *s)
{
	return rooms_of(s).found;
}

extern "C" const uint32_t *gpk_select_bad(const struct gpk_select *s)
{
	return &rooms_of(s).state->bad;
}

/* --- keys ------------------------------------------------------------------------------------------------------- */

/* Cells of infinities and NaNs. */
template <bool Magnitudes> GPK_DEVICE bool not_finite(int cell)
{
	return Magnitudes ? cell >= 0xff0 : cell < 8 || cell >= 0xff8;
}

/* --- first digit ------------------------------------------------------------------------------------------------ */

GPK_DEVICE void clear_counters(uint32_t *bins, int count)
{
	for (int i = (int)threadIdx.x; i < count; i += THREADS)
		bins[i] = 0;
	__syncthreads();
}

/* A block's counters to everybody's. */
GPK_DEVICE void add_counters(uint32_t *to, const uint32_t *bins, int count)
{
	__syncthreads();
	for (int i = (int)threadIdx.x; i < count; i += THREADS)
		if (bins[i])
			atomicAdd(&to[i], bins[i]);
}

/* bins[c] becomes the number of elements in cells 0..c. */
GPK_DEVICE void sum_up(uint32_t *bins)
{
	const int each = TOP / THREADS, from = (int)threadIdx.x * each;
	uint32_t sum = 0, all;
	__syncthreads();
	for (int i = 0; i < each; i++)
		sum += bins[from + i];
	uint32_t before = gpk_block_before(sum, &all);
	for (int i = 0; i < each; i++) {
		before += bins[from + i];
		bins[from + i] = before;
	}
	__syncthreads();
}

/* Where the sample's ranks may lie that stand for the wanted ones, and which cells those are. Elements of a sample are
 * drawn four by four: a wider margin than single ones would need. */
GPK_DEVICE void predict(const struct gpk_select_rooms &r, uint32_t *bins)
{
	GPK_SHARED(float, first, [SAMPLE_RANKS]);
	GPK_SHARED(float, last, [SAMPLE_RANKS]);
	const int i = (int)threadIdx.x, each = TOP / THREADS;
	for (int c = i; c < TOP; c += THREADS)
		bins[c] = gpk_fresh(&r.state->sample[c]);
	if (i < r.ranks) {
		const float q = (float)r.rank[i] / (float)r.n, spread = 8 * sqrtf(SAMPLE * q * (1 - q)) + 32;
		first[i] = q * SAMPLE - spread;
		last[i] = q * SAMPLE + spread;
	}
	sum_up(bins);
	for (int c = i * each; c < (i + 1) * each; c++) {
		const float before = c ? (float)bins[c - 1] : 0, upto = (float)bins[c];
		bool wanted = false;
		for (int k = 0; k < r.ranks; k++)
			wanted |= upto >= first[k] && before <= last[k];
		if (!wanted)
			continue;
		atomicOr(&r.state->predicted[c / 32], 1u << c % 32);
		atomicMax(&r.state->from_end, (uint32_t)(TOP - c));
		atomicMax(&r.state->upto, (uint32_t)c + 1);
	}
}

template <bool Magnitudes> GPK_KERNEL take_sample(const float *x, struct gpk_select_rooms r)
{
	GPK_SHARED(uint32_t, bins, [TOP]);
	const uint64_t stretch = (uint64_t)r.n / VECTOR / (SAMPLE_BLOCKS * THREADS);
	const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
	const uint64_t at = i * stretch + (stretch * (i * 2654435769u) >> 32);
	float v[VECTOR];
	clear_counters(bins, TOP);
	gpk_load_four(x, (int64_t)at * VECTOR, r.n, v);
	for (int k = 0; k < VECTOR; k++)
		atomicAdd(&bins[gpk_select_key<Magnitudes>(v[k]) >> 20], 1u);
	add_counters(r.state->sample, bins, TOP);
	if (gpk_last_block(&r.state->ticket[0]))
		predict(r, bins);
}

/* A warp's staged keys to the room, as far as there is any. */
GPK_DEVICE void store_staged(const struct gpk_select_rooms &r, const uint32_t *staged, uint32_t count)
{
	uint32_t at = 0;
	__syncwarp(); /* what the other lanes staged is there */
	if (gpk_lane() == 0)
		at = atomicAdd(&r.state->chosen, count);
	at = __shfl_sync(GPK_ALL_LANES, at, 0);
	for (uint32_t i = (uint32_t)gpk_lane(); i < count && at + count <= r.chosen_room; i += GPK_WARP)
		r.chosen[at + i] = staged[i];
	__syncwarp();
}

/* The cell of a wanted rank: the first with more elements up to it. */
GPK_DEVICE int find_cell(const uint32_t *upto, uint32_t rank)
{
	int cell = 0;
	for (int half = TOP / 2; half > 0; half /= 2)
		cell += upto[cell + half - 1] <= rank ? half : 0;
	return cell;
}

/* Numbers the different cells of the wanted ranks, which ascend. */
GPK_DEVICE uint32_t row_of(const uint32_t *cell, int i)
{
	uint32_t row = 0;
	for (int k = 1; k <= i; k++)
		row += cell[k] != cell[k - 1];
	return row;
}

template <bool Magnitudes> GPK_DEVICE void find_cells(const struct gpk_select_rooms &r, uint32_t *bins, bool sampled)
{
	GPK_SHARED(uint32_t, cell, [GPK_SELECT_MOST]);
	struct gpk_select_state *s = r.state;
	bool bad = false, missed = !sampled || gpk_fresh(&s->chosen) > r.chosen_room;
	for (int c = (int)threadIdx.x; c < TOP; c += THREADS) {
		bins[c] = gpk_fresh(&s->top[c]);
		bad |= not_finite<Magnitudes>(c) && bins[c];
		if (c == (int)(gpk_select_zero<Magnitudes>() >> 20))
			bins[c] += gpk_fresh(&s->zeros);
	}
	sum_up(bins);
	for (int i = (int)threadIdx.x; i < r.ranks; i += THREADS) {
		const int c = find_cell(bins, r.rank[i]);
		cell[i] = (uint32_t)c;
		r.found[i].key = (uint32_t)c << 20;
		r.found[i].before = r.rank[i] - (c ? bins[c - 1] : 0);
		missed |= !(s->predicted[c / 32] >> c % 32 & 1);
	}
	bad = __syncthreads_or(bad);
	missed = __syncthreads_or(missed);
	for (int i = (int)threadIdx.x; i < r.ranks; i += THREADS) {
		const uint32_t row = row_of(cell, i);
		r.found[i].row = row;
		s->row[cell[i]] = row + 1;
	}
	if (threadIdx.x == 0) {
		s->bad = bad;
		s->over_all = missed;
	}
}

template <bool Magnitudes, bool Sampled> GPK_KERNEL count_top(const float *x, struct gpk_select_rooms r)
{
	GPK_SHARED(uint32_t, bins, [TOP]);
	GPK_SHARED(uint32_t, wanted, [TOP / 32]);
	GPK_SHARED(uint32_t, staged, [WARPS][STAGED]);
	const int warp = (int)threadIdx.x / GPK_WARP, lane = gpk_lane();
	const int64_t step = (int64_t)gridDim.x * THREADS * VECTOR;
	uint32_t zeros = 0, held = 0;
	if (r.state->settled || r.state->bad)
		return;
	for (int i = (int)threadIdx.x; i < TOP / 32; i += THREADS)
		wanted[i] = r.state->predicted[i];
	clear_counters(bins, TOP);
	for (int64_t at = ((int64_t)blockIdx.x * WARPS + warp) * GPK_WARP * VECTOR; at < r.n; at += step) {
		float v[VECTOR];
		const int have = gpk_load_four(x, at + lane * VECTOR, r.n, v);
		for (int k = 0; k < VECTOR; k++) {
			const uint32_t key = gpk_select_key<Magnitudes>(v[k]), cell = key >> 20;
			const bool counts = k < have && v[k] != 0;
			zeros += k < have && v[k] == 0;
			if (counts)
				atomicAdd(&bins[cell], 1u);
			if (!Sampled)
				continue;
			const bool choose = counts && (wanted[cell / 32] >> cell % 32 & 1);
			const unsigned lanes = __ballot_sync(GPK_ALL_LANES, choose);
			if (choose)
				staged[warp][held + (uint32_t)__popc(lanes & gpk_lanes_below())] = key;
			held += (uint32_t)__popc(lanes);
		}
		if (Sampled && held >= STAGED - GPK_WARP * VECTOR) {
			store_staged(r, staged[warp], held);
			held = 0;
		}
	}
	if (Sampled && held)
		store_staged(r, staged[warp], held);
	zeros = gpk_warp_count(zeros);
	if (lane == 0 && zeros && !r.state->looked)
		atomicAdd(&r.state->zeros, zeros);
	add_counters(r.state->top, bins, TOP);
	if (gpk_last_block(&r.state->ticket[1]))
		find_cells<Magnitudes>(r, bins, Sampled);
}

/* --- first digit of one magnitude ------------------------------------------------------------------------------- */

/* Where the rank is, if the sample was right. */
GPK_DEVICE void find_in_window(const struct gpk_select_rooms &r, uint32_t *bins, uint32_t first, uint32_t behind)
{
	struct gpk_select_state *const s = r.state;
	const uint32_t rank = r.rank[0], zeros = gpk_fresh(&s->zeros);
	for (int c = (int)threadIdx.x; c < TOP; c += THREADS)
		bins[c] = gpk_fresh(&s->window[c]);
	__syncthreads();
	if (threadIdx.x == 0)
		bins[first ? first - 1 : 0] += zeros + gpk_fresh(&s->below);
	sum_up(bins);
	if (threadIdx.x)
		return;
	const uint32_t cell = rank < bins[TOP - 1] ? (uint32_t)find_cell(bins, rank) : TOP;
	s->looked = 1;
	s->bad = not_finite<true>((int)(gpk_fresh(&s->largest) >> 20));
	s->settled = !s->bad && cell >= first && cell < behind && gpk_fresh(&s->chosen) <= r.chosen_room;
	if (!s->settled)
		return;
	r.found[0].key = cell << 20;
	r.found[0].before = rank - (cell ? bins[cell - 1] : 0);
	r.found[0].row = 0;
	s->row[cell] = 1;
}

/* Only the cells in which the sample says that the rank is are counted, and all below at once: a counter for each element
 * would take longer than reading it. count_top comes behind, and does nothing where the sample was right. */
GPK_KERNEL count_window(const float *x, struct gpk_select_rooms r)
{
	GPK_SHARED(uint32_t, bins, [TOP]);
	GPK_SHARED(uint32_t, staged, [WARPS][STAGED]);
	const int warp = (int)threadIdx.x / GPK_WARP, lane = gpk_lane();
	const int64_t step = (int64_t)gridDim.x * THREADS * VECTOR;
	const uint32_t first = TOP - r.state->from_end, behind = r.state->upto;
	uint32_t zeros = 0, below = 0, largest = 0, held = 0;
	clear_counters(bins, TOP);
	for (int64_t at = ((int64_t)blockIdx.x * WARPS + warp) * GPK_WARP * VECTOR; at < r.n; at += step) {
		float v[VECTOR];
		const int have = gpk_load_four(x, at + lane * VECTOR, r.n, v);
		for (int k = 0; k < VECTOR; k++) {
			const uint32_t key = gpk_select_key<true>(v[k]), cell = key >> 20;
			zeros += k < have && key == 0;
			below += key != 0 && cell < first; /* what is behind the last is read as 0 */
			largest = max(largest, key);
			const bool choose = key != 0 && cell >= first && cell < behind;
			const unsigned lanes = __ballot_sync(GPK_ALL_LANES, choose);
			if (choose) {
				atomicAdd(&bins[cell], 1u);
				staged[warp][held + (uint32_t)__popc(lanes & gpk_lanes_below())] = key;
			}
			held += (uint32_t)__popc(lanes);
		}
		if (held >= STAGED - GPK_WARP * VECTOR) {
			store_staged(r, staged[warp], held);
			held = 0;
		}
	}
	if (held)
		store_staged(r, staged[warp], held);
	gpk_block_before_few(zeros, &zeros);
	gpk_block_before_few(below, &below);
	add_counters(r.state->window, bins, TOP);
	largest = gpk_block_max(largest, staged[0]);
	if (threadIdx.x == 0) {
		atomicAdd(&r.state->zeros, zeros);
		atomicAdd(&r.state->below, below);
		atomicMax(&r.state->largest, largest);
	}
	if (gpk_last_block(&r.state->ticket[4]))
		find_in_window(r, bins, first, behind);
}

/* --- the other digits ------------------------------------------------------------------------------------------- */

/* Counts a key's middle or last digit, if a wanted rank has the digits before it. */
template <bool Last> GPK_DEVICE void count_digit(const struct gpk_select_rooms &r, uint32_t *bins, uint32_t key)
{
	const uint32_t row = r.state->row[key >> 20];
	if (!row)
		return;
	const uint32_t middle = key >> LOW_BITS & (LOW - 1);
	if (!Last) {
		atomicAdd(&bins[(row - 1) * LOW + middle], 1u);
		return;
	}
	const uint32_t low_row = r.low_row[(row - 1) * LOW + middle];
	if (low_row)
		atomicAdd(&bins[(low_row - 1) * LOW + (key & (LOW - 1))], 1u);
}

/* Rows of the last digit for the different middle digits. */
GPK_DEVICE void number_low_rows(const struct gpk_select_rooms &r)
{
	GPK_SHARED(uint32_t, digits, [GPK_SELECT_MOST]);
	__syncthreads();
	for (int i = (int)threadIdx.x; i < r.ranks; i += THREADS)
		digits[i] = r.found[i].key >> LOW_BITS;
	__syncthreads();
	for (int i = (int)threadIdx.x; i < r.ranks; i += THREADS) {
		const uint32_t row = row_of(digits, i);
		r.low_row[r.found[i].row * LOW + (digits[i] & (LOW - 1))] = row + 1;
		r.found[i].row = row;
	}
}

template <bool Magnitudes, bool Last> GPK_DEVICE void descend_all(const struct gpk_select_rooms &r)
{
	for (int i = (int)threadIdx.x / GPK_WARP; i < r.ranks; i += WARPS)
		gpk_select_next<Magnitudes, Last, true>(r, &r.found[i]);
	if (!Last)
		number_low_rows(r);
}

template <bool Magnitudes, bool Last> GPK_KERNEL count_digits(const float *x, struct gpk_select_rooms r)
{
	GPK_SHARED_DYNAMIC(uint32_t, bins);
	const bool over_all = r.state->over_all;
	const int64_t n = over_all ? r.n : (int64_t)min(r.state->chosen, r.chosen_room),
		      step = (int64_t)gridDim.x * THREADS * VECTOR;
	if (r.state->bad)
		return;
	clear_counters(bins, r.ranks * LOW);
	for (int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * VECTOR; at < n; at += step) {
		float v[VECTOR];
		const int have = over_all ? gpk_load_four(x, at, n, v) : 0;
		for (int k = 0; k < have; k++)
			if (v[k] != 0)
				count_digit<Last>(r, bins, gpk_select_key<Magnitudes>(v[k]));
		for (int64_t k = at; !over_all && k < at + VECTOR && k < n; k++)
			count_digit<Last>(r, bins, r.chosen[k]);
	}
	add_counters(Last ? r.low : r.middle, bins, r.ranks * LOW);
	if (gpk_last_block(&r.state->ticket[Last ? 3 : 2]))
		descend_all<Magnitudes, Last>(r);
}

/* --- launch ----------------------------------------------------------------------------------------------------- */

template <bool Magnitudes>
static void queue_few(struct gp_rt_stream *stream, const struct gpk_select_rooms &r, const float *x)
{
	const unsigned blocks = gpk_blocks(r.n, A_BLOCK, 528);
	const size_t shared = (size_t)r.ranks * LOW * sizeof(uint32_t);
	GPK_LAUNCH(stream, (count_digits<Magnitudes, false>), blocks, THREADS, shared, x, r);
	GPK_LAUNCH(stream, (count_digits<Magnitudes, true>), blocks, THREADS, shared, x, r);
}

template <bool Magnitudes>
static void queue(struct gp_rt_stream *stream, const struct gpk_select_rooms &r, const float *x)
{
	const unsigned blocks = gpk_blocks(r.n, A_BLOCK, 1056);
	if (r.chosen_room && Magnitudes && r.ranks == 1) {
		GPK_LAUNCH(stream, take_sample<true>, SAMPLE_BLOCKS, THREADS, 0, x, r);
		GPK_LAUNCH(stream, count_window, blocks, THREADS, 0, x, r);
		GPK_LAUNCH(stream, (count_top<true, false>), blocks, THREADS, 0, x, r);
	} else if (r.chosen_room) {
		GPK_LAUNCH(stream, take_sample<Magnitudes>, SAMPLE_BLOCKS, THREADS, 0, x, r);
		GPK_LAUNCH(stream, (count_top<Magnitudes, true>), blocks, THREADS, 0, x, r);
	} else {
		GPK_LAUNCH(stream, (count_top<Magnitudes, false>), blocks, THREADS, 0, x, r);
	}
	if (r.ranks <= GPK_SELECT_FEW)
		queue_few<Magnitudes>(stream, r, x);
	else
		gpk_select_many(stream, &r, Magnitudes, x);
}

extern "C" void gpk_select_run(struct gp_rt_stream *stream, const struct gpk_select *s, const float *x)
{
	const struct gpk_select_rooms r = rooms_of(s);
	gp_rt_fill(stream, s->room, 0, cleared_bytes(s->ranks));
	if (s->magnitudes)
		queue<true>(stream, r, x);
	else
		queue<false>(stream, r, x);
}
