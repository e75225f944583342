/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops of top-k for AVX2 (with BMI2). See topk_loops.h for what each gives,
 * topk_loops_portable.c for the reference and the elements behind the last
 * full word. Test: tests/unit/test_topk_loops.c
 */
#include "kernels/loops/topk_loops.h"

#include "kernels/loops/avx2.h"

#define REST gp_topk_loops_portable

enum { LANES = 8 };

GP_INLINE __m256i load_keys(const float *x)
{
	return _mm256_and_si256(_mm256_loadu_si256((const __m256i *)x), _mm256_set1_epi32(0x7fffffff));
}

GP_INLINE unsigned lanes_of(__m256i compared)
{
	return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(compared));
}

/* A byte of ones per lane. */
GP_INLINE uint64_t spread(unsigned lanes)
{
	return _pdep_u64(lanes, 0x0101010101010101u) * 0xff;
}

GP_INLINE __m256i order_of(uint64_t bytes)
{
	return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes));
}

/* The chosen lanes moved to the front. */
GP_INLINE __m256 compress(__m256 v, unsigned lanes)
{
	return _mm256_permutevar8x32_ps(v, order_of(_pext_u64(0x0706050403020100u, spread(lanes))));
}

/* The front moved to the chosen lanes, zero in the others. */
GP_INLINE __m256 expand(__m256 v, unsigned lanes)
{
	const uint64_t bytes = spread(lanes);
	const __m256i chosen = _mm256_cvtepi8_epi32(_mm_cvtsi64_si128((long long)bytes));
	const __m256 moved = _mm256_permutevar8x32_ps(v, order_of(_pdep_u64(0x0706050403020100u, bytes)));
	return _mm256_and_ps(moved, _mm256_castsi256_ps(chosen));
}

GP_INLINE uint64_t sum_lanes(__m256i v)
{
	uint32_t lane[LANES], sum = 0;
	_mm256_storeu_si256((__m256i *)lane, v);
	for (int i = 0; i < LANES; i++)
		sum += lane[i];
	return sum;
}

GP_INLINE uint32_t max_lane(__m256i v)
{
	uint32_t lane[LANES], max = 0;
	_mm256_storeu_si256((__m256i *)lane, v);
	for (int i = 0; i < LANES; i++)
		max = lane[i] > max ? lane[i] : max;
	return max;
}

/* Keys are below 2^31, so that signed comparisons do. A lane of a true comparison is -1. */
static size_t sift(const float *x, size_t n, struct gp_topk_window *w, uint32_t *chosen)
{
	const __m256i lo = _mm256_set1_epi32((int)w->lo), hi = _mm256_set1_epi32((int)w->hi);
	__m256i above = _mm256_setzero_si256(), below_hi = above, below_lo = above;
	__m256i largest = _mm256_set1_epi32((int)w->largest);
	size_t used = 0, i = 0;
	for (; i + LANES <= n; i += LANES) {
		const __m256i key = load_keys(x + i);
		const __m256i under_hi = _mm256_cmpgt_epi32(hi, key), over_lo = _mm256_cmpgt_epi32(key, lo);
		above = _mm256_sub_epi32(above, _mm256_cmpgt_epi32(key, hi));
		below_hi = _mm256_sub_epi32(below_hi, under_hi);
		below_lo = _mm256_sub_epi32(below_lo, _mm256_cmpgt_epi32(lo, key));
		largest = _mm256_max_epu32(largest, key);
		const unsigned inside = lanes_of(_mm256_and_si256(under_hi, over_lo));
		if (inside == 0)
			continue;
		const __m256 front = compress(_mm256_castsi256_ps(key), inside);
		_mm256_storeu_si256((__m256i *)(chosen + used), _mm256_castps_si256(front));
		used += (size_t)_mm_popcnt_u32(inside);
	}
	w->above += sum_lanes(above);
	w->from_hi += i - sum_lanes(below_hi);
	w->from_lo += i - sum_lanes(below_lo);
	w->largest = max_lane(largest);
	return used + REST.sift(x + i, n - i, w, chosen + used);
}

/* The lowest `ties` bits of those set in `equal`. */
GP_INLINE uint64_t take_ties(uint64_t equal, uint64_t *ties)
{
	const uint64_t found = (uint64_t)_mm_popcnt_u64(equal);
	if (found > *ties)
		equal = _pdep_u64((UINT64_C(1) << *ties) - 1, equal);
	*ties -= found < *ties ? found : *ties;
	return equal;
}

static void mark(const float *x, size_t n, uint32_t threshold, uint64_t *ties, uint64_t *bits)
{
	const __m256i t = _mm256_set1_epi32((int)threshold);
	size_t i = 0;
	for (; i + 64 <= n; i += 64) {
		uint64_t over = 0, equal = 0;
		for (int k = 0; k < 64 / LANES; k++) {
			const __m256i key = load_keys(x + i + LANES * k);
			over |= (uint64_t)lanes_of(_mm256_cmpgt_epi32(key, t)) << LANES * k;
			equal |= (uint64_t)lanes_of(_mm256_cmpeq_epi32(key, t)) << LANES * k;
		}
		if (equal && *ties)
			over |= take_ties(equal, ties);
		bits[i / 64] = over;
	}
	REST.mark(x + i, n - i, threshold, ties, bits + i / 64);
}

static size_t gather(const float *x, size_t n, const uint64_t *bits, float *chosen, size_t room)
{
	size_t used = 0, i = 0;
	for (; i + 64 <= n && used + 64 <= room; i += 64) {
		const uint64_t word = bits[i / 64];
		for (int k = 0; word && k < 64 / LANES; k++) {
			const unsigned lanes = (unsigned)(word >> LANES * k) & 0xff;
			_mm256_storeu_ps(chosen + used, compress(_mm256_loadu_ps(x + i + LANES * k), lanes));
			used += (size_t)_mm_popcnt_u32(lanes);
		}
	}
	return used + REST.gather(x + i, n - i, bits + i / 64, chosen + used, room - used);
}

static void scatter(const uint64_t *bits, size_t n, const float *chosen, size_t count, float *x)
{
	size_t used = 0, i = 0;
	for (; i + 64 <= n && used + 64 <= count; i += 64) {
		const uint64_t word = bits[i / 64];
		for (int k = 0; k < 64 / LANES; k++) {
			const unsigned lanes = (unsigned)(word >> LANES * k) & 0xff;
			_mm256_storeu_ps(x + i + LANES * k, expand(_mm256_loadu_ps(chosen + used), lanes));
			used += (size_t)_mm_popcnt_u32(lanes);
		}
	}
	REST.scatter(bits + i / 64, n - i, chosen + used, count - used, x + i);
}

const struct gp_topk_loops gp_topk_loops_avx2 = {
	.sift = sift,
	.mark = mark,
	.gather = gather,
	.scatter = scatter,
};
