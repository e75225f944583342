/* SPDX-License-Identifier: Apache-2.0
 *
 * bfloat16: the upper half of a float. Rounding to it, to nearest and even, as
 * the operands of products with AVX512_BF16, or with FEAT_BF16 of ARM64, need
 * them; values too small to be normal become zero. The same bits on both, and
 * only for processors that have it. Codecs have loops of their own
 * (codec_loops.h), for any processor, and keep what is not normal. Only for
 * kernels/cpu.
 *
 * Threads: any; rooms and outputs are the caller's. Test: tests/unit/test_gemm_bf16.c
 */
#ifndef GP_CPU_BF16_H
#define GP_CPU_BF16_H

#include <stdbool.h>
#include <stdint.h>

/* What a processor of this kind has to have, for messages. */
#if defined(__x86_64__)
#define GP_BF16_FEATURE "AVX512_BF16"
#elif defined(__aarch64__)
#define GP_BF16_FEATURE "FEAT_BF16"
#else
#define GP_BF16_FEATURE "a processor with bfloat16 instructions"
#endif

#if defined(__x86_64__) || defined(__aarch64__)
bool gp_bf16_supported(void);

void gp_bf16_round(uint16_t *out, const float *in, int64_t n);
#else
static inline bool gp_bf16_supported(void)
{
	return false;
}
#endif

#endif
