/* SPDX-License-Identifier: Apache-2.0
 *
 * Random words with AVX-512: 16 blocks of Philox side by side. See draw_loops.h.
 * Test: tests/unit/test_draw_loops.c
 */
#include "kernels/loops/draw_loops.h"

#include "kernels/loops/avx512.h"

enum { BLOCKS = 16 };

/* Both halves of the products of every lane with m. */
static inline void multiply(__m512i a, __m512i m, __m512i *high, __m512i *low)
{
	const __m512i even = _mm512_mul_epu32(a, m), odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), m);
	*low = _mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
	*high = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
}

/* Ten rounds over the counters c, as in common/base/rng.c. */
static inline void rounds(__m512i c[4], uint64_t seed)
{
	const __m512i m0 = _mm512_set1_epi32((int)0xD2511F53u), m1 = _mm512_set1_epi32((int)0xCD9E8D57u);
	__m512i k0 = _mm512_set1_epi32((int)(uint32_t)seed), k1 = _mm512_set1_epi32((int)(uint32_t)(seed >> 32));
	for (int round = 0; round < 10; round++) {
		__m512i high0, low0, high1, low1;
		multiply(c[0], m0, &high0, &low0);
		multiply(c[2], m1, &high1, &low1);
		c[0] = _mm512_xor_si512(_mm512_xor_si512(high1, c[1]), k0);
		c[2] = _mm512_xor_si512(_mm512_xor_si512(high0, c[3]), k1);
		c[1] = low1;
		c[3] = low0;
		k0 = _mm512_add_epi32(k0, _mm512_set1_epi32((int)0x9E3779B9u));
		k1 = _mm512_add_epi32(k1, _mm512_set1_epi32((int)0xBB67AE85u));
	}
}

/* The four words of each block next to each other. */
static inline void store(const __m512i c[4], uint32_t *out)
{
	const __m512i a = _mm512_unpacklo_epi32(c[0], c[1]), b = _mm512_unpackhi_epi32(c[0], c[1]);
	const __m512i d = _mm512_unpacklo_epi32(c[2], c[3]), e = _mm512_unpackhi_epi32(c[2], c[3]);
	_mm512_storeu_si512((void *)out, _mm512_unpacklo_epi64(a, d));
	_mm512_storeu_si512((void *)(out + BLOCKS), _mm512_unpackhi_epi64(a, d));
	_mm512_storeu_si512((void *)(out + 2 * BLOCKS), _mm512_unpacklo_epi64(b, e));
	_mm512_storeu_si512((void *)(out + 3 * BLOCKS), _mm512_unpackhi_epi64(b, e));
}

void gp_draw_words_avx512(uint64_t seed, uint64_t stream, uint64_t first, size_t blocks, uint32_t *out)
{
	/* In this order, `store` leaves the blocks in theirs. */
	const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
	size_t i = 0;
	/* The lower half of the counter must not overflow within a group: no tensor is as long as that. */
	for (; i + BLOCKS <= blocks && (uint32_t)(first + i) <= UINT32_MAX - BLOCKS; i += BLOCKS) {
		const uint64_t index = first + i;
		__m512i c[4] = {_mm512_add_epi32(_mm512_set1_epi32((int)(uint32_t)index), order),
				_mm512_set1_epi32((int)(uint32_t)(index >> 32)),
				_mm512_set1_epi32((int)(uint32_t)stream),
				_mm512_set1_epi32((int)(uint32_t)(stream >> 32))};
		rounds(c, seed);
		store(c, out + 4 * i);
	}
	gp_draw_words_portable(seed, stream, first + i, blocks - i, out + 4 * i);
}
