/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns a block of 16 x 16 floats over, in registers of AVX-512. For files of
 * kernels/cpu/math that are compiled for it.
 *
 * Threads: any; a pure function. Test: tests/unit/test_gemm.c, tests/unit/test_lanes.c
 */
#ifndef GP_CPU_TURN_AVX512_H
#define GP_CPU_TURN_AVX512_H

#include <immintrin.h>

/* Row i of the result has the i-th float of every row. */
static inline void gp_turn(__m512 row[16])
{
	__m512 t[16];
#pragma GCC unroll 8
	for (int i = 0; i < 16; i += 2) {
		t[i] = _mm512_unpacklo_ps(row[i], row[i + 1]);
		t[i + 1] = _mm512_unpackhi_ps(row[i], row[i + 1]);
	}
#pragma GCC unroll 4
	for (int i = 0; i < 16; i += 4) {
#pragma GCC unroll 2
		for (int j = 0; j < 2; j++) {
			const __m512d low = _mm512_castps_pd(t[i + j]), high = _mm512_castps_pd(t[i + j + 2]);
			row[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
			row[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
		}
	}
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) { /* 4x4 blocks of four floats: two rounds of halves */
		t[i] = _mm512_shuffle_f32x4(row[i], row[i + 4], 0x88);
		t[i + 4] = _mm512_shuffle_f32x4(row[i], row[i + 4], 0xdd);
		t[i + 8] = _mm512_shuffle_f32x4(row[i + 8], row[i + 12], 0x88);
		t[i + 12] = _mm512_shuffle_f32x4(row[i + 8], row[i + 12], 0xdd);
	}
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		row[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
		row[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
		row[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
		row[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
	}
}

#endif
