/* SPDX-License-Identifier: Apache-2.0
 *
 * The processor's instruction sets. See isa.h. Test: tests/unit/test_codec_loops.c
 */
#include "common/base/isa.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

static enum gp_isa best;
static pthread_once_t asked = PTHREAD_ONCE_INIT;
static atomic_int limit = GP_ISA_AVX512;

#if defined(__x86_64__)
/* Two names that not every compiler's __builtin_cpu_supports knows. */
static bool has_f16c(void)
{
	unsigned a, b, c, d;
	return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_lzcnt(void)
{
	unsigned a, b, c, d;
	return __get_cpuid(0x80000001, &a, &b, &c, &d) && (c & bit_LZCNT);
}

/* What cmake/level.cmake compiles the files of AVX2 for. */
static bool has_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c() &&
	       __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && has_lzcnt() &&
	       __builtin_cpu_supports("popcnt");
}

static bool has_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static void ask_processor(void)
{
	best = !has_avx2() ? GP_ISA_PORTABLE : has_avx512() ? GP_ISA_AVX512 : GP_ISA_AVX2;
}
#elif defined(__aarch64__)
static void ask_processor(void)
{
	best = getauxval(AT_HWCAP) & HWCAP_ASIMD ? GP_ISA_NEON : GP_ISA_PORTABLE;
}
#else
static void ask_processor(void)
{
	best = GP_ISA_PORTABLE;
}
#endif

/* Asks once: in a virtual machine CPUID is a trap of microseconds. */
enum gp_isa gp_isa_best(void)
{
	pthread_once(&asked, ask_processor);
	return best;
}

const char *gp_isa_name(enum gp_isa isa)
{
	if (isa == GP_ISA_PORTABLE)
		return "portable";
#if defined(__aarch64__)
	return "neon";
#else
	return isa == GP_ISA_AVX2 ? "avx2" : "avx512";
#endif
}

bool gp_isa_named(const char *name, enum gp_isa *isa)
{
	for (enum gp_isa i = GP_ISA_PORTABLE; i <= gp_isa_best(); i++) {
		if (strcmp(gp_isa_name(i), name) != 0)
			continue;
		*isa = i;
		return true;
	}
	return false;
}

enum gp_isa gp_isa_wanted(void)
{
	const char *name = getenv("GP_SIMD");
	enum gp_isa isa = gp_isa_best();
	if (name)
		gp_isa_named(name, &isa);
	return isa;
}

enum gp_isa gp_isa(void)
{
	static atomic_int known = -1; /* several threads may find it at once: they find the same */
	int isa = atomic_load_explicit(&known, memory_order_relaxed);
	if (isa < 0) {
		isa = (int)gp_isa_wanted();
		atomic_store(&known, isa);
	}
	const int most = atomic_load_explicit(&limit, memory_order_relaxed);
	return (enum gp_isa)(isa < most ? isa : most);
}

void gp_isa_limit(enum gp_isa isa)
{
	atomic_store(&limit, (int)isa);
}
