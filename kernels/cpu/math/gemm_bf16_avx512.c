/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.h's products of bfloat16 pairs with AVX512_BF16. Test: tests/unit/test_gemm_bf16.c
 */
#include "kernels/cpu/math/vec.h"

typedef __m512bh gp_pairs;

GP_INLINE gp_vec pairs_of_neighbours(const float *in, int64_t left)
{
	const __m512 low = vec_load_first(vec_first(left), in);
	return (__m512)_mm512_cvtne2ps_pbh(vec_load_first(vec_first(left - VEC_LANES), in + VEC_LANES), low);
}

GP_INLINE gp_vec pairs_of_rows(gp_vec low, gp_vec high)
{
	const __m512i zip = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
					     21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
	return (__m512)_mm512_permutexvar_epi16(zip, (__m512i)_mm512_cvtne2ps_pbh(high, low));
}

GP_INLINE void pairs_store(uint32_t *at, gp_vec_mask lanes, gp_vec bits)
{
	_mm512_mask_storeu_epi32(at, lanes, (__m512i)bits);
}

GP_INLINE gp_pairs pairs_load(const uint32_t *at)
{
	return (__m512bh)_mm512_loadu_si512(at);
}

GP_INLINE gp_pairs pairs_load_first(gp_vec_mask lanes, const uint32_t *at)
{
	return (__m512bh)_mm512_maskz_loadu_epi32(lanes, at);
}

GP_INLINE gp_pairs pairs_all(uint32_t pair)
{
	return (__m512bh)_mm512_set1_epi32((int)pair);
}

GP_INLINE gp_pairs pairs_scalars(const uint32_t *at)
{
	return pairs_all(*at);
}

GP_INLINE gp_vec pairs_dot(gp_pairs left, const int i, gp_pairs b, gp_vec sum)
{
	(void)i;
	return _mm512_dpbf16_ps(sum, left, b);
}

#include "kernels/cpu/math/gemm_bf16_body.h"

const struct gp_gemm_bf16_kernels gp_gemm_bf16_avx512 = GP_GEMM_BF16_KERNELS;
