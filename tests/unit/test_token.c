/* SPDX-License-Identifier: Apache-2.0
 *
 * Random bytes and their comparison (common/net/token.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "common/net/token.h"

static void random_bytes_are_other_bytes_every_time(void **state)
{
	(void)state;
	struct gp_err err;
	uint8_t a[GP_TOKEN_BYTES] = {0}, b[GP_TOKEN_BYTES] = {0}, none[GP_TOKEN_BYTES] = {0};
	assert_int_equal(gp_random_bytes(a, sizeof a, &err), GP_OK);
	assert_int_equal(gp_random_bytes(b, sizeof b, &err), GP_OK);
	assert_memory_not_equal(a, b, sizeof a);
	assert_memory_not_equal(a, none, sizeof a);
}

static void equal_means_every_byte(void **state)
{
	(void)state;
	uint8_t a[GP_TOKEN_BYTES], b[GP_TOKEN_BYTES];
	memset(a, 5, sizeof a);
	for (size_t i = 0; i < sizeof b; i++) {
		memcpy(b, a, sizeof b);
		assert_true(gp_secret_equal(a, b, sizeof a));
		b[i] ^= 1;
		assert_false(gp_secret_equal(a, b, sizeof a));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_bytes_are_other_bytes_every_time),
		cmocka_unit_test(equal_means_every_byte),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
