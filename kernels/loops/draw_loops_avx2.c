/* SPDX-License-Identifier: Apache-2.0
 *
 * Random words with AVX2: 8 blocks of Philox side by side. See draw_loops.h.
 * Test: tests/unit/test_draw_loops.c
 */
#include "kernels/loops/draw_loops.h"

#include "kernels/loops/avx2.h"

enum { BLOCKS = 8 };

/* Both halves of the products of every lane with m. */
static inline void multiply(__m256i a, __m256i m, __m256i *high, __m256i *low)
{
	const __m256i even = _mm256_mul_epu32(a, m), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), m);
	*low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
	*high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
}

/* Ten rounds over the counters c, as in common/base/rng.c. */
static inline void rounds(__m256i c[4], uint64_t seed)
{
	const __m256i m0 = _mm256_set1_epi32((int)0xD2511F53u), m1 = _mm256_set1_epi32((int)0xCD9E8D57u);
	__m256i k0 = _mm256_set1_epi32((int)(uint32_t)seed), k1 = _mm256_set1_epi32((int)(uint32_t)(seed >> 32));
	for (int round = 0; round < 10; round++) {
		__m256i high0, low0, high1, low1;
		multiply(c[0], m0, &high0, &low0);
		multiply(c[2], m1, &high1, &low1);
		c[0] = _mm256_xor_si256(_mm256_xor_si256(high1, c[1]), k0);
		c[2] = _mm256_xor_si256(_mm256_xor_si256(high0, c[3]), k1);
		c[1] = low1;
		c[3] = low0;
		k0 = _mm256_add_epi32(k0, _mm256_set1_epi32((int)0x9E3779B9u));
		k1 = _mm256_add_epi32(k1, _mm256_set1_epi32((int)0xBB67AE85u));
	}
}

/* The four words of each block next to each other. */
static inline void store(const __m256i c[4], uint32_t *out)
{
	const __m256i a = _mm256_unpacklo_epi32(c[0], c[1]), b = _mm256_unpackhi_epi32(c[0], c[1]);
	const __m256i d = _mm256_unpacklo_epi32(c[2], c[3]), e = _mm256_unpackhi_epi32(c[2], c[3]);
	_mm256_storeu_si256((void *)out, _mm256_unpacklo_epi64(a, d));
	_mm256_storeu_si256((void *)(out + BLOCKS), _mm256_unpackhi_epi64(a, d));
	_mm256_storeu_si256((void *)(out + 2 * BLOCKS), _mm256_unpacklo_epi64(b, e));
	_mm256_storeu_si256((void *)(out + 3 * BLOCKS), _mm256_unpackhi_epi64(b, e));
}

void gp_draw_words_avx2(uint64_t seed, uint64_t stream, uint64_t first, size_t blocks, uint32_t *out)
{
	/* In this order, `store` leaves the blocks in theirs. */
	const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
	size_t i = 0;
	/* The lower half of the counter must not overflow within a group: no tensor is as long as that. */
	for (; i + BLOCKS <= blocks && (uint32_t)(first + i) <= UINT32_MAX - BLOCKS; i += BLOCKS) {
		const uint64_t index = first + i;
		__m256i c[4] = {_mm256_add_epi32(_mm256_set1_epi32((int)(uint32_t)index), order),
				_mm256_set1_epi32((int)(uint32_t)(index >> 32)),
				_mm256_set1_epi32((int)(uint32_t)stream),
				_mm256_set1_epi32((int)(uint32_t)(stream >> 32))};
		rounds(c, seed);
		store(c, out + 4 * i);
	}
	gp_draw_words_portable(seed, stream, first + i, blocks - i, out + 4 * i);
}
