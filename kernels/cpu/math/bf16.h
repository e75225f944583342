/* SPDX-License-Identifier: Apache-2.0
 *
 * bfloat16: the upper half of a float. Rounding to it, to nearest and even, as
 * the operands of products with AVX512_BF16 need them; values too small to be
 * normal become zero. Only for processors that have it. Codecs have loops of
 * their own (codec_loops.h), for any processor, and keep what is not normal.
 * Only for kernels/cpu.
 *
 * Threads: any; rooms and outputs are the caller's. Test: tests/unit/test_gemm_bf16.c
 */
#ifndef GP_CPU_BF16_H
#define GP_CPU_BF16_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__)
bool gp_bf16_supported(void);

void gp_bf16_round(uint16_t *out, const float *in, int64_t n);
#else
static inline bool gp_bf16_supported(void)
{
	return false;
}
#endif

#endif
