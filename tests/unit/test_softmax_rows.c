/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax of long rows (kernels/cpu/math/softmax_rows.h) beside the C library in
 * double precision, for rows of every length up to a few blocks' ends, and bit for
 * bit the same with every instruction set.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "common/base/isa.h"
#include "common/base/rng.h"
#include "kernels/cpu/math/softmax_rows.h"

enum { MOST = 50265 };

static const int64_t sizes[] = {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 1000, 4095, 4096, 4097, 8192, 12353, MOST};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static float x[MOST], out[MOST];

static void draw(int64_t n, float spread)
{
	for (int64_t i = 0; i < n; i++)
		x[i] = spread * gp_rng_normal(3, (uint64_t)n, (uint64_t)i);
}

static double exact_sum(int64_t n, float most)
{
	double sum = 0.0;
	for (int64_t i = 0; i < n; i++)
		sum += exp((double)x[i] - (double)most);
	return sum;
}

static void sums_are_near_the_exact_ones(void **state)
{
	(void)state;
	for (int i = 0; i < SIZES; i++)
		for (int spread = 1; spread <= 25; spread += 8) {
			const int64_t n = sizes[i];
			draw(n, (float)spread);
			const float most = gp_softmax_largest(x, n);
			const double want = exact_sum(n, most), got = gp_softmax_exps(out, x, n, most);
			assert_true(fabs(got - want) <= 5e-7 * want);
			assert_true(gp_softmax_exps(NULL, x, n, most) == got);
			for (int64_t k = 0; k < n; k++)
				assert_true(fabs((double)out[k] - exp((double)x[k] - (double)most)) <= 2e-7);
		}
}

static void the_largest_is_found_wherever_it_stands(void **state)
{
	(void)state;
	for (int64_t n = 1; n <= 200; n++)
		for (int64_t at = 0; at < n; at++) {
			draw(n, 1.0f);
			x[at] = 9.0f;
			assert_true(gp_softmax_largest(x, n) == 9.0f);
		}
	x[0] = x[1] = -3.0f;
	assert_true(gp_softmax_largest(x, 2) == -3.0f);
}

static void what_is_no_number_makes_none(void **state)
{
	(void)state;
	for (int64_t at = 0; at < 130; at += 43) {
		draw(130, 1.0f);
		x[at] = NAN;
		const float most = gp_softmax_largest(x, 130);
		assert_true(isfinite(most));
		assert_true(isnan(gp_softmax_exps(out, x, 130, most)));
		assert_true(isnan(out[at]));
	}
	x[0] = -INFINITY;
	assert_true(gp_softmax_largest(x, 1) == -INFINITY);
}

static void scores_far_below_count_as_nothing(void **state)
{
	(void)state;
	for (int64_t i = 0; i < 100; i++)
		x[i] = i == 70 ? 0.0f : -INFINITY;
	x[5] = -200.0f;
	assert_true(gp_softmax_exps(out, x, 100, 0.0f) == 1.0);
	assert_true(out[70] == 1.0f && out[5] == 0.0f && out[0] == 0.0f);
}

static void all_instruction_sets_agree_bit_for_bit(void **state)
{
	(void)state;
	static float first[MOST];
	for (int i = 0; i < SIZES; i++) {
		double sum = 0.0;
		for (enum gp_isa isa = GP_ISA_PORTABLE; isa <= GP_ISA_AVX512; isa++) {
			gp_isa_limit(isa);
			draw(sizes[i], 4.0f);
			const float most = gp_softmax_largest(x, sizes[i]);
			const double now = gp_softmax_exps(out, x, sizes[i], most);
			gp_softmax_scale(out, sizes[i], 0.37f);
			assert_true(isa == GP_ISA_PORTABLE || now == sum);
			if (isa == GP_ISA_PORTABLE)
				memcpy(first, out, (size_t)sizes[i] * sizeof *out);
			assert_memory_equal(first, out, (size_t)sizes[i] * sizeof *out);
			sum = now;
		}
		gp_isa_limit(GP_ISA_AVX512);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sums_are_near_the_exact_ones),
		cmocka_unit_test(the_largest_is_found_wherever_it_stands),
		cmocka_unit_test(what_is_no_number_makes_none),
		cmocka_unit_test(scores_far_below_count_as_nothing),
		cmocka_unit_test(all_instruction_sets_agree_bit_for_bit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
