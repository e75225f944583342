/* SPDX-License-Identifier: Apache-2.0
 *
 * Bit planes with AVX2, 32 bytes at a time. See bit_loops.h.
 * Test: tests/unit/test_codec_bytes.c
 */
#include "kernels/loops/bit_loops.h"

#include <string.h>

#include "kernels/loops/avx2.h"

/* The sign bits of all bytes make a piece of plane 7; adding a vector to itself moves the next bit there. */
static void split(const uint8_t *bytes, size_t n, uint8_t *planes)
{
	size_t i = 0;
	for (; i + 32 <= n; i += 32) {
		__m256i v = _mm256_loadu_si256((const void *)(bytes + i));
		for (size_t k = 8; k-- > 0; v = _mm256_add_epi8(v, v)) {
			const uint32_t plane = (uint32_t)_mm256_movemask_epi8(v);
			memcpy(planes + k * (n / 8) + i / 8, &plane, sizeof plane);
		}
	}
	gp_bit_split_rest(bytes, i, n, planes);
}

/* Each byte of 32 bits of a plane goes to eight bytes, of which each tests its bit. */
static void join(const uint8_t *planes, size_t n, uint8_t *bytes)
{
	const __m256i spread = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
	const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
	size_t i = 0;
	for (; i + 32 <= n; i += 32) {
		__m256i v = _mm256_setzero_si256();
		for (size_t k = 0; k < 8; k++) {
			uint32_t plane;
			memcpy(&plane, planes + k * (n / 8) + i / 8, sizeof plane);
			const __m256i wide = _mm256_shuffle_epi8(_mm256_set1_epi32((int)plane), spread);
			const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(wide, bit), bit);
			v = _mm256_or_si256(v, _mm256_and_si256(set, _mm256_set1_epi8((char)(1u << k))));
		}
		_mm256_storeu_si256((void *)(bytes + i), v);
	}
	gp_bit_join_rest(planes, i, n, bytes);
}

const struct gp_bit_loops gp_bit_loops_avx2 = {.split = split, .join = join};
