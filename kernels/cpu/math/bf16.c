/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether the processor multiplies bfloat16. See bf16.h. In a file that is compiled for any processor of its kind: the
 * loops, beside it, are compiled for those that do. Test: tests/unit/test_gemm_bf16.c
 */
#include "kernels/cpu/math/bf16.h"

#include "common/base/isa.h"

#if defined(__x86_64__)
bool gp_bf16_supported(void)
{
	return gp_isa() == GP_ISA_AVX512 && __builtin_cpu_supports("avx512bf16");
}
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

bool gp_bf16_supported(void)
{
	return gp_isa() == GP_ISA_NEON && (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
}
#endif
