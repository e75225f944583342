/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounding to bfloat16. See bf16.h. Test: tests/unit/test_gemm_bf16.c
 */
#include "kernels/cpu/math/bf16.h"

#include <immintrin.h>

#include "kernels/loops/simd.h"

void gp_bf16_round(uint16_t *out, const float *in, int64_t n)
{
	int64_t i = 0;
	for (; i + 32 <= n; i += 32) {
		__m512bh v = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(in + i + 16), _mm512_loadu_ps(in + i));
		_mm512_storeu_si512(out + i, (__m512i)v);
	}
	for (; i < n; i += 16) {
		const __mmask16 lanes = n - i >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << (n - i)) - 1);
		__m256bh v = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(lanes, in + i));
		_mm256_mask_storeu_epi16(out + i, lanes, (__m256i)v);
	}
}
