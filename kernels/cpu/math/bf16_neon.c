/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounding to bfloat16 with FEAT_BF16 of ARM64. See bf16.h. Test: tests/unit/test_gemm_bf16.c
 */
#include "kernels/cpu/math/bf16.h"

#include <string.h>

#include "kernels/cpu/math/narrow_neon.h"

/* Up to eight. */
GP_INLINE uint16x8_t round_first(const float *in, int64_t n)
{
	const gp_vec low = vec_load_first(vec_first(n), in);
	return vreinterpretq_u16_bf16(narrow(low, vec_load_first(vec_first(n - VEC_LANES), in + VEC_LANES)));
}

void gp_bf16_round(uint16_t *out, const float *in, int64_t n)
{
	int64_t i = 0;
	for (; i + 2 * VEC_LANES <= n; i += 2 * VEC_LANES)
		vst1q_u16(out + i, round_first(in + i, 2 * VEC_LANES));
	if (i < n) {
		const uint16x8_t last = round_first(in + i, n - i);
		memcpy(out + i, &last, (size_t)(n - i) * sizeof *out);
	}
}
