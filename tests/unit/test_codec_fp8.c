/* SPDX-License-Identifier: Apache-2.0
 *
 * fp8 and s2fp8 through the public interface: golden statistics, the promised
 * error, the values at the edges.
 */
#include "tests/unit/codec_rig.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "common/codec/codec_impl.h"
#include "common/base/rng.h"

static void check_golden(const char *input, const char *file)
{
	uint64_t n, two;
	float *x = read_floats(GOLDEN "inputs.safetensors", input, &n), *y = malloc(n * sizeof *y);
	float *expected = read_floats(file, "alpha_beta", &two);
	uint8_t *payload = roundtrip("s2fp8", x, n, y, NULL);
	assert_int_equal(two, 2);
	assert_int_equal(payload[0], 0);
	const double alpha = (double)gp_get_f32(payload + 4), beta = (double)gp_get_f32(payload + 8);
	print_message("%s: alpha %.9g (golden %.9g), beta %.9g (%.9g)\n", input, alpha, (double)expected[0], beta,
		      (double)expected[1]);
	assert_true(fabs(alpha / (double)expected[0] - 1) < 1e-6);
	assert_true(fabs(beta - (double)expected[1]) < 1e-6);
	/* E5M2 of y = 2^(alpha * log2|x| + beta), whose error of at most 1/8 the way back takes to its alpha-th root. */
	const double most = pow(1.126, 1 / alpha) - 1, least = exp2((-14 - beta) / alpha);
	for (uint64_t i = 0; i < n; i++)
		if (fabs((double)x[i]) >= least)
			assert_true(fabs((double)y[i] - (double)x[i]) <= most * fabs((double)x[i]));
		else
			assert_true(fabs((double)y[i]) <= 1.13 * least);
	free(payload);
	free(expected);
	free(y);
	free(x);
}

static void s2fp8_takes_the_statistics_of_the_golden_cases(void **state)
{
	(void)state;
	check_golden("act", GOLDEN "s2fp8_act.safetensors");
	check_golden("grad", GOLDEN "s2fp8_grad.safetensors");
}

static void s2fp8_keeps_constants_zeros_and_the_ends_of_the_range(void **state)
{
	(void)state;
	static const float values[] = {0.1f, -3e20f, 1e-30f, 1e-40f, FLT_MAX, FLT_TRUE_MIN, 1, 0};
	float x[50], y[50];
	for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
		for (int i = 0; i < 50; i++)
			x[i] = values[v];
		free(roundtrip("s2fp8", x, 50, y, NULL));
		for (int i = 0; i < 50; i++)
			assert_true(fabs((double)y[i] - (double)x[i]) <= 2e-4 * fabs((double)x[i]));
		free(roundtrip("s2fp8", x, 1, y, NULL));
		assert_true(fabs((double)y[0] - (double)x[0]) <= 2e-4 * fabs((double)x[0]));
	}
}

/* The product of so many mantissas close to 2 once overflowed, and the other end refused the payload. */
static void s2fp8_keeps_a_long_row_just_below_a_power_of_two(void **state)
{
	(void)state;
	enum { N = 8192 };
	static float x[N], y[N];
	for (int i = 0; i < N; i++)
		x[i] = 3.9999f;
	free(roundtrip("s2fp8", x, N, y, NULL));
	for (int i = 0; i < N; i++)
		assert_true(fabsf(y[i] - x[i]) <= 2e-4f * x[i]);
}

static void fp8_saturates_and_keeps_its_own_values(void **state)
{
	(void)state;
	const float x[] = {1e30f, -FLT_MAX, 0, -0.0f, 1.25f, -1.125f, 448, 0x1p-16f, 0x1p-9f, 1e-40f};
	const float e5m2[] = {57344, -57344, 0, -0.0f, 1.25f, -1, 448, 0x1p-16f, 0x1p-9f, 0};
	const float e4m3[] = {448, -448, 0, -0.0f, 1.25f, -1.125f, 448, 0, 0x1p-9f, 0};
	float y[10];
	free(roundtrip("fp8:format=e5m2", x, 10, y, NULL));
	assert_memory_equal(y, e5m2, sizeof y);
	free(roundtrip("fp8:format=e4m3", x, 10, y, NULL));
	assert_memory_equal(y, e4m3, sizeof y);
}

static void hostile_parameters_are_refused(void **state)
{
	(void)state;
	struct gp_err err = {0};
	static const float bad[][2] = {{0, 0}, {-1, 0}, {NAN, 0}, {INFINITY, 0}, {5000, 0}, {1, NAN}, {1, -INFINITY}};
	uint8_t payload[4 + 8 + 4] = {0};
	float y[4];
	struct gp_codec *c = row_codec("s2fp8", 4, 0);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		gp_put_f32(payload + 4, bad[i][0]);
		gp_put_f32(payload + 8, bad[i][1]);
		assert_int_equal(gp_codec_decode(c, (struct gp_span){payload, sizeof payload}, y, &err), GP_PROTO);
	}
	gp_put_f32(payload + 4, FLT_TRUE_MIN);
	gp_put_f32(payload + 8, -FLT_MAX);
	memset(payload + 12, 0x7b, 4);
	assert_int_equal(gp_codec_decode(c, (struct gp_span){payload, sizeof payload}, y, &err), GP_OK);
	assert_true(isfinite(y[0]));
	payload[15] = 0xfc;
	assert_int_equal(gp_codec_decode(c, (struct gp_span){payload, sizeof payload}, y, &err), GP_PROTO);
	gp_codec_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(s2fp8_takes_the_statistics_of_the_golden_cases),
		cmocka_unit_test(s2fp8_keeps_constants_zeros_and_the_ends_of_the_range),
		cmocka_unit_test(s2fp8_keeps_a_long_row_just_below_a_power_of_two),
		cmocka_unit_test(fp8_saturates_and_keeps_its_own_values),
		cmocka_unit_test(hostile_parameters_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
