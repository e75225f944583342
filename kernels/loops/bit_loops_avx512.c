/* SPDX-License-Identifier: Apache-2.0
 *
 * Bit planes with AVX-512, 64 bytes at a time: a mask register is a piece of a
 * plane. See bit_loops.h. Test: tests/unit/test_codec_bytes.c
 */
#include "kernels/loops/bit_loops.h"

#include <string.h>

#include "kernels/loops/avx512.h"

/* The sign bits of all bytes make a piece of plane 7; adding a vector to itself moves the next bit there. */
static void split(const uint8_t *bytes, size_t n, uint8_t *planes)
{
	size_t i = 0;
	for (; i + 64 <= n; i += 64) {
		__m512i v = _mm512_loadu_si512(bytes + i);
		for (size_t k = 8; k-- > 0; v = _mm512_add_epi8(v, v)) {
			const uint64_t plane = _mm512_movepi8_mask(v);
			memcpy(planes + k * (n / 8) + i / 8, &plane, sizeof plane);
		}
	}
	gp_bit_split_rest(bytes, i, n, planes);
}

static void join(const uint8_t *planes, size_t n, uint8_t *bytes)
{
	size_t i = 0;
	for (; i + 64 <= n; i += 64) {
		__m512i v = _mm512_setzero_si512();
		for (size_t k = 0; k < 8; k++) {
			uint64_t plane;
			memcpy(&plane, planes + k * (n / 8) + i / 8, sizeof plane);
			v = _mm512_or_si512(v, _mm512_maskz_set1_epi8(plane, (char)(1u << k)));
		}
		_mm512_storeu_si512(bytes + i, v);
	}
	gp_bit_join_rest(planes, i, n, bytes);
}

const struct gp_bit_loops gp_bit_loops_avx512 = {.split = split, .join = join};
