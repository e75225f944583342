/* SPDX-License-Identifier: Apache-2.0
 *
 * Which codec loops run: the best that the processor has, or what GP_SIMD
 * asks for. See codec_loops.h. Test: tests/unit/test_codec_loops.c
 */
#include "kernels/cpu/codec_loops.h"

#include <cpuid.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Not a name that every compiler's __builtin_cpu_supports knows. */
static bool has_f16c(void)
{
	unsigned a, b, c, d;
	return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

/* Best first. */
static const struct gp_codec_loops *const known[] = {&gp_codec_loops_avx512, &gp_codec_loops_avx2,
						     &gp_codec_loops_portable};
enum { AVX512, AVX2, PORTABLE, KNOWN };

static bool runs[KNOWN];
static pthread_once_t asked = PTHREAD_ONCE_INIT;

/* Once: in a virtual machine CPUID is a trap of microseconds. */
static void ask_processor(void)
{
	runs[AVX512] = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
	runs[AVX2] = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c() &&
		     __builtin_cpu_supports("bmi2");
	runs[PORTABLE] = true;
}

static bool can_run(int index)
{
	pthread_once(&asked, ask_processor);
	return runs[index];
}

const struct gp_codec_loops *gp_codec_loops_named(const char *name)
{
	for (int i = 0; i < KNOWN; i++)
		if (strcmp(known[i]->name, name) == 0)
			return can_run(i) ? known[i] : NULL;
	return NULL;
}

const struct gp_codec_loops *gp_codec_loops_choose(void)
{
	const char *wanted = getenv("GP_SIMD");
	const struct gp_codec_loops *loops = wanted ? gp_codec_loops_named(wanted) : NULL;
	for (int i = 0; !loops; i++)
		if (can_run(i))
			loops = known[i];
	return loops;
}

enum gp_simd gp_simd_choose(void)
{
	const struct gp_codec_loops *loops = gp_codec_loops_choose();
	return loops == &gp_codec_loops_avx512 ? GP_SIMD_AVX512
	       : loops == &gp_codec_loops_avx2 ? GP_SIMD_AVX2
					       : GP_SIMD_PORTABLE;
}
