/* SPDX-License-Identifier: Apache-2.0
 *
 * Counter-based random numbers (common/base/rng.h), known answers from the
 * Random123 distribution's kat_vectors for philox4x32-10.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "common/base/rng.h"

static void philox_matches_the_published_known_answers(void **state)
{
	(void)state;
	uint32_t w[4];
	gp_rng_block(0, 0, 0, w);
	assert_int_equal(w[0], 0x6627e8d5u);
	assert_int_equal(w[1], 0xe169c58du);
	assert_int_equal(w[2], 0xbc57ac4cu);
	assert_int_equal(w[3], 0x9b00dbd8u);
	gp_rng_block(~0ULL, ~0ULL, ~0ULL, w);
	assert_int_equal(w[0], 0x408f276du);
	assert_int_equal(w[1], 0x41c83b0eu);
	assert_int_equal(w[2], 0xa20bc7c6u);
	assert_int_equal(w[3], 0x6d5451fdu);
}

static void permutation_holds_every_index_once(void **state)
{
	(void)state;
	enum { N = 1000 };
	uint32_t perm[N];
	unsigned char seen[N] = {0};
	gp_rng_permutation(7, gp_rng_stream(GP_RNG_SHUFFLE, 3), perm, N);
	int moved = 0;
	for (uint32_t i = 0; i < N; i++) {
		assert_true(perm[i] < N);
		assert_int_equal(seen[perm[i]]++, 0);
		moved += perm[i] != i;
	}
	assert_true(moved > 900);
}

static void normal_draws_have_unit_variance(void **state)
{
	(void)state;
	double sum = 0, squares = 0;
	enum { N = 100000 };
	for (uint64_t i = 0; i < N; i++) {
		double x = gp_rng_normal(1, gp_rng_stream(GP_RNG_INIT, 5), i);
		sum += x;
		squares += x * x;
	}
	assert_true(sum / N < 0.013 && sum / N > -0.013);
	assert_true(squares / N < 1.02 && squares / N > 0.98);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	        cmocka_unit_test(philox_matches_the_published_known_answers),
	        cmocka_unit_test(permutation_holds_every_index_once),
	        cmocka_unit_test(normal_draws_have_unit_variance),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
