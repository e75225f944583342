/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops of top-k with AVX-512. See topk_loops.h for what each gives,
 * topk_loops_portable.c for the reference and the elements behind the last
 * full word. Test: tests/unit/test_topk_loops.c
 */
#include "kernels/loops/topk_loops.h"

#include "kernels/loops/avx512.h"

#define REST gp_topk_loops_portable

enum { LANES = 16 };

GP_INLINE __m512i load_keys(const float *x)
{
	return _mm512_and_si512(_mm512_loadu_si512(x), word(0x7fffffffu));
}

GP_INLINE __m512i count(__m512i sum, __mmask16 lanes)
{
	return _mm512_mask_add_epi32(sum, lanes, sum, word(1));
}

static size_t sift(const float *x, size_t n, struct gp_topk_window *w, uint32_t *chosen)
{
	const __m512i lo = word(w->lo), hi = word(w->hi);
	__m512i above = _mm512_setzero_si512(), from_hi = above, from_lo = above, largest = word(w->largest);
	size_t used = 0, i = 0;
	for (; i + LANES <= n; i += LANES) {
		const __m512i key = load_keys(x + i);
		const __mmask16 over = _mm512_cmpge_epu32_mask(key, hi);
		const __mmask16 inside = (__mmask16)(_mm512_cmpgt_epu32_mask(key, lo) & ~over);
		above = count(above, _mm512_cmpgt_epu32_mask(key, hi));
		from_hi = count(from_hi, over);
		from_lo = count(from_lo, _mm512_cmpge_epu32_mask(key, lo));
		largest = _mm512_max_epu32(largest, key);
		if (inside == 0)
			continue;
		/* Compressed in a register: to memory it is microcoded on some processors. */
		_mm512_storeu_si512(chosen + used, _mm512_maskz_compress_epi32(inside, key));
		used += (size_t)_mm_popcnt_u32(inside);
	}
	w->above += (uint64_t)_mm512_reduce_add_epi32(above);
	w->from_hi += (uint64_t)_mm512_reduce_add_epi32(from_hi);
	w->from_lo += (uint64_t)_mm512_reduce_add_epi32(from_lo);
	w->largest = _mm512_reduce_max_epu32(largest);
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
	const __m512i t = word(threshold);
	size_t i = 0;
	for (; i + 64 <= n; i += 64) {
		uint64_t over = 0, equal = 0;
		for (int k = 0; k < 4; k++) {
			const __m512i key = load_keys(x + i + LANES * k);
			over |= (uint64_t)_mm512_cmpgt_epu32_mask(key, t) << LANES * k;
			equal |= (uint64_t)_mm512_cmpeq_epu32_mask(key, t) << LANES * k;
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
		for (int k = 0; word && k < 4; k++) {
			const __mmask16 lanes = (__mmask16)(word >> LANES * k);
			const __m512 v = _mm512_loadu_ps(x + i + LANES * k);
			_mm512_storeu_ps(chosen + used, _mm512_maskz_compress_ps(lanes, v));
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
		for (int k = 0; k < 4; k++) {
			const __mmask16 lanes = (__mmask16)(word >> LANES * k);
			const __m512 v = _mm512_loadu_ps(chosen + used);
			_mm512_storeu_ps(x + i + LANES * k, _mm512_maskz_expand_ps(lanes, v));
			used += (size_t)_mm_popcnt_u32(lanes);
		}
	}
	REST.scatter(bits + i / 64, n - i, chosen + used, count - used, x + i);
}

const struct gp_topk_loops gp_topk_loops_avx512 = {
	.sift = sift,
	.mark = mark,
	.gather = gather,
	.scatter = scatter,
};
