/* SPDX-License-Identifier: Apache-2.0
 *
 * The best codec at a number of bits (client/codecs/codec_best.c), by figures that can
 * be followed by hand; that every chain of the list is one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include "client/codecs/codec_best.h"
#include "common/codec/codec.h"

static void the_least_error_within_the_bits_comes_first(void **state)
{
	(void)state;
	const struct gp_best_row row[] = {{true, 4, 0.2}, {true, 8, 0.01},    {false, 0, 0}, {true, 3.9, 0.1},
					  {true, 3, 0.1}, {true, 4.01, 0.05}, {true, 2, 0.5}};
	static const int expected[] = {4, 3, 0, 6, 5, 1, 2};
	int order[7];
	assert_int_equal(gp_best_order(row, 7, 4, order), 4);
	assert_memory_equal(order, expected, sizeof order);
	assert_int_equal(gp_best_order(row, 7, 1, order), 0);
	assert_int_equal(order[0], 6);
	assert_int_equal(order[6], 2);
	assert_int_equal(gp_best_order(row, 7, 32, order), 6);
	assert_int_equal(order[0], 1);
}

static void every_chain_of_the_list_is_one_and_none_comes_twice(void **state)
{
	(void)state;
	for (int hundredths = 50; hundredths <= 3200; hundredths += 75) {
		struct gp_codec_spec spec[GP_BEST_CHAINS];
		char text[GP_CODEC_SPEC_MAX];
		int count = 0;
		for (; gp_best_chain(hundredths / 100.0, count, text, sizeof text); count++) {
			struct gp_err err = {0};
			assert_true(count < GP_BEST_CHAINS);
			if (gp_codec_spec_parse(text, &spec[count], &err) != GP_OK)
				fail_msg("%s: %s", text, err.text);
			for (int k = 0; k < count && hundredths == 425; k++)
				assert_string_not_equal(spec[count].text, spec[k].text);
		}
		assert_true(count > 250);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_least_error_within_the_bits_comes_first),
		cmocka_unit_test(every_chain_of_the_list_is_one_and_none_comes_twice),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
