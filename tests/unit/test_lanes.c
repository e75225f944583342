/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops over sixteen floats as any processor runs them: fused multiply-adds
 * that round once, the exponential. That the other instruction sets give the
 * same bits is for tests/unit/test_cpu_attention.c.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/rng.h"
#include "kernels/cpu/math/lanes_exp.h"

static uint32_t bits_of(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	return bits;
}

/* Any pattern of bits, NaN and infinity among them; `near`: exponents that let sums cancel. */
static float draw(uint64_t index, bool near)
{
	uint32_t bits = gp_rng_u32(3, gp_rng_stream(GP_RNG_SYNTHETIC, 1), index);
	float x;
	if (near)
		bits = (bits & 0x807fffffu) | (120u + (bits >> 24 & 7)) << 23;
	memcpy(&x, &bits, sizeof x);
	return x;
}

static void expect_fma(const float *a, const float *b, const float *c)
{
	float got[LANES];
	lanes_store(got, lanes_fma(lanes_load(a), lanes_load(b), lanes_load(c)));
	for (int i = 0; i < LANES; i++) {
		const float want = fmaf(a[i], b[i], c[i]);
		if (isnan(want) ? !isnan(got[i]) : bits_of(got[i]) != bits_of(want))
			fail_msg("fma(%a, %a, %a) is %a, not %a", (double)a[i], (double)b[i], (double)c[i],
				 (double)got[i], (double)want);
	}
}

static void fma_rounds_once(void **state)
{
	float x[3][LANES];
	(void)state;
	for (uint64_t n = 0; n < 60000; n++) {
		for (uint64_t i = 0; i < 3 * LANES; i++)
			x[i / LANES][i % LANES] = draw(n * 3 * LANES + i, n % 2 == 0);
		for (int i = 0; i < LANES && n % 3 == 0; i++) /* halfway between two floats, or nearly */
			x[2][i] = -x[0][i] * x[1][i] * 0x1p-24f;
		expect_fma(x[0], x[1], x[2]);
	}
}

static void check_exp(float from, float step)
{
	float x[LANES], y[LANES];
	for (int i = 0; i < LANES; i++)
		x[i] = from + step * (float)i;
	lanes_store(y, lanes_exp(lanes_load(x)));
	for (int i = 0; i < LANES; i++) {
		const double want = exp((double)x[i]);
		if (x[i] < LANES_EXP_LOWEST ? y[i] != 0.0f : !(fabs((double)y[i] - want) < 1e-7 * want))
			fail_msg("exp(%.9g) is %.9g, not %.9g", (double)x[i], (double)y[i], want);
	}
}

static void exp_is_right_wherever_it_is_normal(void **state)
{
	(void)state;
	for (float x = -110.0f; x < LANES_EXP_HIGHEST - 0.02f; x += 0.016f)
		check_exp(x, 0.001f);
	for (float x = 1e-30f; x < 1.0f; x *= 1.3f)
		check_exp(-x, x / LANES);
	const float edge[LANES] = {0.0f, -0.0f, -INFINITY, INFINITY, NAN, 1e30f, -1e30f, 200.0f};
	float y[LANES];
	lanes_store(y, lanes_exp(lanes_load(edge)));
	assert_true(y[0] == 1.0f && y[1] == 1.0f && y[2] == 0.0f && isnan(y[4]) && y[6] == 0.0f);
	assert_true(y[3] > 1.6e38f && y[3] == y[5] && y[3] == y[7]);
}

static void blocks_are_turned_over_and_ends_kept(void **state)
{
	float in[LANES][LANES], out[LANES + 1];
	struct lanes row[LANES];
	(void)state;
	for (int i = 0; i < LANES * LANES; i++)
		in[i / LANES][i % LANES] = (float)i;
	for (int i = 0; i < LANES; i++)
		row[i] = lanes_load(in[i]);
	assert_true(lanes_sum(row[0]) == 120.0f && lanes_largest(row[1]) == 31.0f);
	lanes_turn(row);
	for (int n = 0; n <= LANES; n++) {
		memset(out, 0, sizeof out);
		lanes_store_some(out, row[3], n);
		for (int i = 0; i <= LANES; i++)
			assert_true(out[i] == (i < n ? in[i][3] : 0.0f));
		lanes_store(out, lanes_load_some(in[2], n));
		for (int i = 0; i < LANES; i++)
			assert_true(out[i] == (i < n ? in[2][i] : 0.0f));
	}
}

static void choices_follow_limits(void **state)
{
	const uint32_t word[LANES] = {0, 1, 0x7fffffffu, 0x80000000u, 0x80000001u, 0xffffffffu};
	const float x[LANES] = {1.0f, NAN, -1.0f, INFINITY};
	float out[LANES];
	(void)state;
	lanes_store(out, lanes_unless_word_below(word, 0x80000000u, lanes_all(2.0f)));
	assert_true(out[0] == 0 && out[1] == 0 && out[2] == 0 && out[3] == 2 && out[4] == 2 && out[5] == 2);
	lanes_store(out, lanes_larger(lanes_load(x), lanes_all(0.5f)));
	assert_true(out[0] == 1.0f && out[1] == 0.5f && out[2] == 0.5f && out[3] == INFINITY);
	lanes_store(out, lanes_smaller(lanes_all(0.5f), lanes_load(x)));
	assert_true(out[0] == 0.5f && isnan(out[1]) && out[2] == -1.0f && out[3] == 0.5f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fma_rounds_once),
		cmocka_unit_test(exp_is_right_wherever_it_is_normal),
		cmocka_unit_test(blocks_are_turned_over_and_ends_kept),
		cmocka_unit_test(choices_follow_limits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
