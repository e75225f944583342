/* SPDX-License-Identifier: Apache-2.0
 *
 * smaq through the public interface: golden cases, the width per element, the
 * tensors at the edges, payloads that lie. Sizes, instruction sets, truncation
 * and flips: test_codec.c.
 */
#include "tests/unit/codec_rig.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "common/codec/codec_impl.h"
#include "common/base/rng.h"

/* The case does not clamp: beyond 2.5 standard deviations we give 2.5. */
static void check_golden(const char *input)
{
	char file[96];
	uint64_t n, count;
	size_t len;
	snprintf(file, sizeof file, GOLDEN "smaq_%s_m6o8.safetensors", input);
	float *x = read_floats(GOLDEN "inputs.safetensors", input, &n), *y = malloc(n * sizeof *y);
	float *expected = read_floats(file, "recon_unclamped", &count);
	float *mean = read_floats(file, "mean", &count), *std = read_floats(file, "std", &count);
	uint8_t *payload = roundtrip("smaq:main=6,outlier=8", x, n, y, &len);
	const double m = (double)mean[0], s = (double)std[0];
	assert_true(fabs((double)gp_get_f32(payload + 4) - m) < 1e-7 * s);
	assert_true(fabs((double)gp_get_f32(payload + 8) / s - 1) < 1e-6);
	uint64_t outliers = 0, beyond = 0;
	double worst = 0;
	for (uint64_t i = 0; i < n; i++) {
		const double z = ((double)x[i] - m) / s;
		const double want = fabs(z) > 2.5 ? m + copysign(2.5, z) * s : (double)expected[i];
		outliers += fabs(z) > 1;
		beyond += fabs(z) > 2.5;
		worst = fmax(worst, fabs((double)y[i] - want) / s);
	}
	print_message("smaq %s: largest difference %.3g standard deviations, %llu outliers, %llu beyond\n", input,
		      worst, (unsigned long long)outliers, (unsigned long long)beyond);
	assert_true(worst < 1e-6 && beyond > 0);
	assert_int_equal(gp_get_u32(payload + 12), outliers);
	assert_int_equal(len, 4 + 12 + (6 * n + 7) / 8 + (2 * outliers + 7) / 8);
	free(payload);
	free(std);
	free(mean);
	free(expected);
	free(y);
	free(x);
}

static void smaq_reconstructs_the_golden_cases(void **state)
{
	(void)state;
	check_golden("act");
	check_golden("grad");
	check_golden("hidden");
}

static void constants_and_single_elements_are_exact(void **state)
{
	(void)state;
	static const float values[] = {0, 0.1f, -3e20f, 1e-40f, FLT_TRUE_MIN, -FLT_MAX};
	float x[333], y[333];
	size_t len;
	for (size_t v = 0; v < sizeof values / sizeof values[0]; v++)
		for (uint64_t n = 1; n <= 333; n += 332) {
			for (uint64_t i = 0; i < n; i++)
				x[i] = values[v];
			free(roundtrip("smaq", x, n, y, &len));
			assert_memory_equal(x, y, n * sizeof *x);
			assert_int_equal(len, 4 + 12 + (6 * n + 7) / 8);
		}
}

/* Everything within 2.5 standard deviations, at any scale down to where numbers themselves are coarse. */
static void the_error_does_not_depend_on_the_scale(void **state)
{
	(void)state;
	static float x[4000], y[4000];
	size_t len;
	for (int exponent = -130; exponent <= 120; exponent += 25) {
		for (uint64_t i = 0; i < 4000; i++)
			x[i] = ldexpf(gp_rng_uniform(3, 1, i) - 0.5f, exponent);
		free(roundtrip("smaq", x, 4000, y, &len));
		for (int i = 0; i < 4000; i++)
			assert_true(fabs((double)x[i] - (double)y[i]) <= ldexp(0.3 / 15, exponent) + 1e-44);
	}
}

/* One element far from the others: clamped at 2.5 standard deviations, or within half a step of where it is. */
static void a_longer_reach_keeps_what_lies_far_out(void **state)
{
	(void)state;
	static float x[4000], y[4000];
	double squares = 0;
	size_t len;
	for (uint64_t i = 0; i < 4000; i++)
		x[i] = gp_rng_uniform(3, 1, i) - 0.5f;
	x[1234] = 3;
	for (int i = 0; i < 4000; i++)
		squares += (double)x[i] * (double)x[i];
	const double std = sqrt(squares / 4000);
	free(roundtrip("smaq:round=nearest", x, 4000, y, &len));
	assert_true(y[1234] < 2.6 * std);
	free(roundtrip("smaq:round=nearest,reach=12", x, 4000, y, &len));
	assert_true(fabs((double)y[1234] - 3) < 0.51 * std * 11 / 63);
}

static void ranges_that_overflow_travel_raw(void **state)
{
	(void)state;
	const float x[4] = {FLT_MAX, -FLT_MAX, FLT_MAX, -FLT_MAX};
	float y[4];
	size_t len;
	uint8_t *payload = roundtrip("smaq", x, 4, y, &len);
	assert_int_equal(payload[0], 1);
	assert_memory_equal(x, y, sizeof x);
	free(payload);
	/* The deviation is 5.8e37: 2.5 of it are finite, 8 of it are not. */
	const float less[4] = {5e37f, -5e37f, 5e37f, -5e37f};
	free(roundtrip("smaq", less, 4, y, &len));
	assert_true(y[0] < 6e37f && y[0] > 4e37f);
	payload = roundtrip("smaq:reach=8", less, 4, y, &len);
	assert_int_equal(payload[0], 1);
	assert_memory_equal(less, y, sizeof less);
	free(payload);
}

/* What was encoded with a short reach may overflow with the long one that the decoder has. */
static void a_deviation_too_large_for_the_reach_is_refused(void **state)
{
	(void)state;
	struct gp_err err = {0};
	float x[16] = {[3] = 5, [9] = -5}, y[16];
	static const uint8_t deviation[4] = {0x81, 0x1b, 0x2f, 0x7e}; /* 5.8e37 */
	uint8_t good[128];
	size_t len;
	for (int longer = 0; longer < 2; longer++) {
		struct gp_codec *c = row_codec(longer ? "smaq:reach=8" : "smaq", 16, 0);
		assert_int_equal(gp_codec_encode(c, x, 0, good, sizeof good, &len, &err), GP_OK);
		memcpy(good + 8, deviation, 4);
		assert_int_equal(gp_codec_decode(c, (struct gp_span){good, len}, y, &err), longer ? GP_PROTO : GP_OK);
		gp_codec_free(c);
	}
}

static void refuse(struct gp_codec *c, const uint8_t *good, size_t len, size_t at, const uint8_t bytes[4])
{
	struct gp_err err = {0};
	uint8_t *copy = malloc(len);
	float y[16];
	memcpy(copy, good, len);
	memcpy(copy + at, bytes, 4);
	assert_int_equal(gp_codec_decode(c, (struct gp_span){copy, len}, y, &err), GP_PROTO);
	free(copy);
}

/* 16 elements, 2 of them outliers: 12 bytes of codes, one of extras, 4 bits of it free. */
static void payloads_that_lie_about_their_outliers_are_refused(void **state)
{
	(void)state;
	struct gp_err err = {0};
	float x[16] = {[3] = 5, [9] = -5}, y[16];
	uint8_t good[128];
	size_t len;
	struct gp_codec *c = row_codec("smaq", 16, 0);
	assert_int_equal(gp_codec_encode(c, x, 0, good, sizeof good, &len, &err), GP_OK);
	assert_int_equal(len, 4 + 12 + 12 + 1);
	static const uint8_t one[4] = {1}, three[4] = {3}, huge[4] = {0xff, 0xff, 0xff, 0xff};
	static const uint8_t nan[4] = {0, 0, 0xc0, 0x7f}, minus[4] = {0, 0, 0x80, 0xbf},
			     max[4] = {0xff, 0xff, 0x7f, 0x7f};
	refuse(c, good, len, 12, one);
	refuse(c, good, len, 12, three);
	refuse(c, good, len, 12, huge);
	refuse(c, good, len, 4, nan);
	refuse(c, good, len, 8, nan);
	refuse(c, good, len, 8, minus);
	refuse(c, good, len, 8, max);
	good[len - 1] |= 0x80;
	assert_int_equal(gp_codec_decode(c, (struct gp_span){good, len}, y, &err), GP_PROTO);
	gp_codec_free(c);
}

static void an_outlier_code_shorter_than_the_main_one_is_refused(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	assert_int_equal(gp_codec_spec_parse("smaq:main=8,outlier=6", &spec, &err), GP_USAGE);
	assert_non_null(strstr(err.text, "at least main=8"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(smaq_reconstructs_the_golden_cases),
		cmocka_unit_test(constants_and_single_elements_are_exact),
		cmocka_unit_test(the_error_does_not_depend_on_the_scale),
		cmocka_unit_test(a_longer_reach_keeps_what_lies_far_out),
		cmocka_unit_test(ranges_that_overflow_travel_raw),
		cmocka_unit_test(a_deviation_too_large_for_the_reach_is_refused),
		cmocka_unit_test(payloads_that_lie_about_their_outliers_are_refused),
		cmocka_unit_test(an_outlier_code_shorter_than_the_main_one_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
