/* SPDX-License-Identifier: Apache-2.0
 *
 * Mathematics of the same bits everywhere (common/base/exact_math.h): near what the C library gives, at the ends of
 * its range as well, and the same on every processor, by a hash over many results that was taken on one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <xxhash.h>

#include "common/base/exact_math.h"

enum { ARGUMENTS = 20000, ULPS = 12 };

typedef double (*function)(double x);

static const struct named {
	const char *name;
	function ours, library;
	double least, most;
	uint64_t hash;
	/* clang-format off */
} table[] = {
	{"exp", gp_exact_exp, exp, -740, 709, 0x19fca39cc7f21b92},
	{"exp of small ones", gp_exact_exp, exp, -1, 1, 0xdf682b400ff07b83},
	{"log2", gp_exact_log2, log2, 0, 1e300, 0x6f98ec4bcc279185},
	{"log2 around one", gp_exact_log2, log2, 0.5, 2, 0xd1e47ebc67abf2ee},
	{"cbrt", gp_exact_cbrt, cbrt, 0, 1e5, 0xe3698d2dd44eee86},
	{"erf", gp_exact_erf, erf, -6, 6, 0xec342977c848e8aa},
	{"erfc", gp_exact_erfc, erfc, -6, 28, 0xaf48d15a56e464c8},
	{"exp of the largest", gp_exact_exp, exp, 709, 709.7827128933839, 0x86a23dc6158ec484},
};
/* clang-format on */

/* A step of a linear congruential generator: its upper 53 bits make a number from 0 to 1. */
static double draw(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (double)(*state >> 11) * 0x1p-53;
}

static double distance_ulps(double got, double want)
{
	const double size = fabs(want);
	return got == want ? 0 : fabs(got - want) / (nextafter(size, INFINITY) - size);
}

static void check(const struct named *f, double x)
{
	const double got = f->ours(x), want = f->library(x);
	if (!(distance_ulps(got, want) <= ULPS))
		fail_msg("%s of %.17g is %.17g, not %.17g", f->name, x, got, want);
}

static void results_are_near_the_librarys(void **state)
{
	(void)state;
	for (size_t k = 0; k < sizeof table / sizeof table[0]; k++) {
		uint64_t seed = k + 1;
		for (int i = 0; i < ARGUMENTS; i++) {
			const double r = draw(&seed);
			check(&table[k], table[k].least + (table[k].most - table[k].least) * r);
			if (table[k].least == 0) /* of all sizes */
				check(&table[k], ldexp(r, -i % 1000));
		}
	}
}

static void results_are_the_same_on_every_processor(void **state)
{
	(void)state;
	static double results[ARGUMENTS];
	for (size_t k = 0; k < sizeof table / sizeof table[0]; k++) {
		uint64_t seed = k + 1;
		for (int i = 0; i < ARGUMENTS; i++)
			results[i] = table[k].ours(table[k].least + (table[k].most - table[k].least) * draw(&seed));
		const uint64_t hash = XXH3_64bits(results, sizeof results);
		if (hash != table[k].hash)
			fail_msg("the hash of %s is %#llx", table[k].name, (unsigned long long)hash);
	}
}

static void ends_are_what_they_should_be(void **state)
{
	(void)state;
	assert_true(gp_exact_exp(0) == 1 && gp_exact_exp(-INFINITY) == 0 && gp_exact_exp(INFINITY) == INFINITY);
	assert_true(gp_exact_exp(-800) == 0 && gp_exact_exp(800) == INFINITY && isnan(gp_exact_exp(NAN)));
	assert_true(gp_exact_log2(1) == 0 && gp_exact_log2(8) == 3 && gp_exact_log2(0x1p-1074) == -1074);
	assert_true(gp_exact_log2(0) == -INFINITY && gp_exact_log2(INFINITY) == INFINITY);
	assert_true(isnan(gp_exact_log2(-1)) && isnan(gp_exact_log2(NAN)));
	assert_true(gp_exact_cbrt(0) == 0 && gp_exact_cbrt(27) == 3 && isfinite(gp_exact_cbrt(DBL_MAX)));
	assert_true(gp_exact_erf(0) == 0 && gp_exact_erf(40) == 1 && gp_exact_erf(-INFINITY) == -1 &&
		    isnan(gp_exact_erf(NAN)));
	assert_true(gp_exact_erfc(0) == 1 && gp_exact_erfc(INFINITY) == 0 && gp_exact_erfc(-40) == 2 &&
		    isnan(gp_exact_erfc(NAN)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(results_are_near_the_librarys),
		cmocka_unit_test(results_are_the_same_on_every_processor),
		cmocka_unit_test(ends_are_what_they_should_be),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
