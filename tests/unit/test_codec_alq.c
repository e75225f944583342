/* SPDX-License-Identifier: Apache-2.0
 *
 * `alq` and `amq` through the public interface: unbiased, better than fixed
 * levels, refitted when they should be, remembered per chunk. The fits
 * themselves: test_level_fit.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <string.h>

#include "common/codec/codec.h"
#include "common/codec/codec_impl.h"
#include "common/codec/stages/level_fit.h"
#include "common/base/rng.h"

enum { N = 4096, CHUNKS = 2 };

static struct gp_codec *open_codec(const char *text, uint64_t n)
{
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	struct gp_codec *c = NULL;
	const struct gp_shape shape = {.ndim = 1, .dim = {(int64_t)n}};
	const struct gp_codec_options options = {.seed = 5, .chunks = CHUNKS};
	assert_int_equal(gp_codec_spec_parse(text, &spec, &err), GP_OK);
	assert_int_equal(gp_codec_open(&spec, &shape, &options, &c, &err), GP_OK);
	return c;
}

static size_t send(struct gp_codec *c, struct gp_codec_pass pass, const float *x, float *y, uint8_t *payload)
{
	struct gp_err err = {0};
	size_t len;
	static uint8_t scratch[8 * N];
	payload = payload ? payload : scratch;
	assert_true(gp_codec_bound(c) <= sizeof scratch);
	assert_int_equal(gp_codec_encode_pass(c, &pass, x, payload, gp_codec_bound(c), &len, &err), GP_OK);
	assert_int_equal(gp_codec_decode_pass(c, &pass, (struct gp_span){payload, len}, y, &err), GP_OK);
	return len;
}

/* Eight scales in turn, each `spread` times the one before, for 256 elements each. */
static void fill(float *x, float spread, uint64_t stream)
{
	for (uint64_t i = 0; i < N; i++)
		x[i] = gp_rng_normal(6, stream, i) * powf(spread, (float)(i / 256 % 8));
}

static void rounding_is_unbiased(void **state)
{
	(void)state;
	static const char *const specs[] = {"alq:bits=3,bucket=256", "alq:bits=4,bucket=256,fit=normbased,update=7",
					    "amq:bits=3,bucket=256", "alq:bits=8,bucket=256"};
	static float x[N], y[N];
	fill(x, 1, 1);
	for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++) {
		struct gp_codec *c = open_codec(specs[s], N);
		double sum = 0, square = 0;
		for (uint64_t pass = 0; pass < 1000000 / N + 1; pass++) {
			send(c, (struct gp_codec_pass){.draw = pass}, x, y, NULL);
			for (int i = 0; i < N; i++) {
				const double e = (double)y[i] - (double)x[i];
				sum += e;
				square += e * e;
			}
		}
		print_message("%s: mean error %.2f standard errors from 0\n", specs[s], sum / sqrt(square));
		assert_true(fabs(sum) <= 4 * sqrt(square));
		gp_codec_free(c);
	}
}

static double squared_error(const char *spec, const float *x)
{
	static float y[N];
	struct gp_codec *c = open_codec(spec, N);
	double sum = 0;
	for (uint64_t draw = 0; draw < 50; draw++) {
		send(c, (struct gp_codec_pass){.draw = draw}, x, y, NULL);
		for (int i = 0; i < N; i++)
			sum += ((double)y[i] - (double)x[i]) * ((double)y[i] - (double)x[i]);
	}
	gp_codec_free(c);
	return sum;
}

static void fitted_levels_lose_less_than_fixed_ones(void **state)
{
	(void)state;
	static float x[N];
	fill(x, 1, 2);
	const double alq = squared_error("alq:bits=3,bucket=256", x), amq = squared_error("amq:bits=3,bucket=256", x);
	const double qsgd = squared_error("qsgd:bits=3,bucket=256", x);
	const double nuqsgd = squared_error("nuqsgd:bits=3,bucket=256", x);
	print_message("squared errors: alq %.4g, amq %.4g, nuqsgd %.4g, qsgd %.4g\n", alq, amq, nuqsgd, qsgd);
	assert_true(alq < amq && amq < nuqsgd && nuqsgd < qsgd);
}

/* The largest buckets are constant but for noise, the others normal: their levels differ. */
static void fits_by_norm_serve_the_large_buckets(void **state)
{
	(void)state;
	static float x[N];
	for (uint64_t i = 0; i < N; i++)
		x[i] = i / 256 % 2 ? gp_rng_normal(6, 3, i) : 100 + gp_rng_normal(6, 3, i) * 5;
	const double even = squared_error("alq:bits=3,bucket=256", x);
	const double by_norm = squared_error("alq:bits=3,bucket=256,fit=normbased", x);
	print_message("squared errors: normless %.4g, normbased %.4g\n", even, by_norm);
	assert_true(by_norm < 0.8 * even);
}

/* Levels are the first bytes behind the stage's head. */
static bool same_levels(const uint8_t *a, const uint8_t *b, bool multiplier)
{
	return memcmp(a + 4, b + 4, multiplier ? 4 : 4 * 6) == 0;
}

static void levels_are_fitted_again_every_update_passes_of_their_chunk(void **state)
{
	(void)state;
	static float x[N], y[N];
	static uint8_t first[8 * N], next[8 * N];
	for (int k = 0; k < 2; k++) {
		struct gp_codec *c = open_codec(k ? "amq:bits=3,update=3" : "alq:bits=3,update=3", N);
		uint64_t draw = 0;
		for (int round = 0; round < 3; round++) {
			fill(x, 1, 10 + draw);
			send(c, (struct gp_codec_pass){.draw = draw++}, x, y, first);
			for (int pass = 1; pass < 3; pass++) {
				fill(x, 1, 10 + draw);
				send(c, (struct gp_codec_pass){.draw = draw++}, x, y, next);
				assert_true(same_levels(first, next, k));
				send(c, (struct gp_codec_pass){.draw = draw++, .chunk = 1}, x, y, NULL);
			}
			fill(x, 1, 10 + draw);
			send(c, (struct gp_codec_pass){.draw = draw, .eval = true}, x, y, next);
			assert_false(same_levels(first, next, k));
		}
		gp_codec_free(c);
	}
}

static void evaluations_and_raw_tensors_leave_memory_alone(void **state)
{
	(void)state;
	static float x[N], y[N];
	static uint8_t before[8 * N], after[8 * N];
	struct gp_codec *c = open_codec("alq:bits=3,update=5", N);
	fill(x, 2, 1);
	const size_t len = send(c, (struct gp_codec_pass){.draw = 3, .eval = true}, x, y, before);
	send(c, (struct gp_codec_pass){.draw = 1}, x, y, NULL);
	const uint64_t hash = gp_codec_state_hash(c);
	fill(x, 2, 2);
	send(c, (struct gp_codec_pass){.draw = 2, .eval = true}, x, y, NULL);
	x[N - 1] = NAN;
	send(c, (struct gp_codec_pass){.draw = 4}, x, y, NULL);
	assert_true(gp_codec_state_hash(c) == hash);
	fill(x, 2, 1);
	assert_int_equal(send(c, (struct gp_codec_pass){.draw = 3, .eval = true}, x, y, after), len);
	assert_memory_equal(before, after, len);
	send(c, (struct gp_codec_pass){.draw = 5}, x, y, NULL);
	assert_true(gp_codec_state_hash(c) != hash);
	gp_codec_free(c);
}

static void a_run_goes_on_from_saved_memory(void **state)
{
	(void)state;
	static const char *const specs[] = {"alq:bits=3,update=4", "amq:bits=5,update=3"};
	static float x[N], y[N];
	static uint8_t expected[8 * N], got[8 * N];
	for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++) {
		struct gp_err err = {0};
		struct gp_codec *a = open_codec(specs[s], N), *b = open_codec(specs[s], N);
		fill(x, 2, 1);
		send(a, (struct gp_codec_pass){.draw = 1}, x, y, NULL);
		const size_t bytes = gp_codec_state_bytes(a);
		uint8_t *saved = malloc(bytes);
		assert_int_equal(gp_codec_state_save(a, saved, NULL), GP_OK);
		assert_int_equal(gp_codec_state_load(b, (struct gp_span){saved, bytes}, &err), GP_OK);
		assert_true(gp_codec_state_hash(a) == gp_codec_state_hash(b));
		for (uint64_t draw = 2; draw < 9; draw++) {
			const struct gp_codec_pass pass = {.draw = draw, .chunk = draw % 3 == 0};
			fill(x, 3, draw);
			const size_t len = send(a, pass, x, y, expected);
			assert_int_equal(send(b, pass, x, y, got), len);
			assert_memory_equal(expected, got, len);
		}
		free(saved);
		gp_codec_free(a);
		gp_codec_free(b);
	}
}

/* What a damaged file could bring past its checksum. */
static void memory_that_no_pass_leaves_behind_is_refused(void **state)
{
	(void)state;
	const double value[] = {3, 512, 10, 0};
	const struct gp_codec_setup setup = {
		.shape = {.ndim = 1, .dim = {64}}, .n = 64, .chunks = 1, .encodes = true, .decodes = true};
	for (int k = 0; k < 2; k++) {
		const struct gp_codec_ops *ops = gp_codec_ops_by_name(k ? "amq" : "alq");
		struct gp_codec_region region[GP_CODEC_MAX_REGIONS];
		struct gp_err err = {0};
		void *s;
		assert_int_equal(ops->open(value, &setup, &s, &err), GP_OK);
		assert_int_equal(ops->regions(s, region), 2);
		uint32_t *age = region[0].data;
		float *fitted = region[1].data;
		assert_true(ops->loaded(s)); /* nothing yet */
		*age = 1;
		assert_false(ops->loaded(s));
		if (k)
			fitted[0] = 0.5f;
		for (int i = 0; i < 8 && !k; i++)
			fitted[i] = (float)(2 * i - 7) / 7;
		assert_true(ops->loaded(s));
		*age = 10;
		assert_false(ops->loaded(s));
		*age = 9;
		assert_true(ops->loaded(s));
		const float bad[] = {NAN, INFINITY, -2, 1.5f};
		for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
			fitted[k ? 0 : 4] = bad[i];
			assert_false(ops->loaded(s));
		}
		ops->close(s);
	}
}

static enum gp_status try_levels(struct gp_codec *c, const float *level, int count)
{
	struct gp_err err = {0};
	uint8_t payload[4 + 8 + 4 + 2] = {0};
	float y[8];
	gp_put_f32s(payload + 4, level, (size_t)count);
	gp_put_f32(payload + 4 + 4 * count, FLT_MAX);
	const size_t len = 4 + 4 * (size_t)count + 4 + 2;
	const enum gp_status status = gp_codec_decode(c, (struct gp_span){payload, len}, y, &err);
	for (int i = 0; i < 8 && status == GP_OK; i++)
		assert_true(isfinite(y[i]));
	return status;
}

static void levels_that_do_not_ascend_within_the_ends_are_refused(void **state)
{
	(void)state;
	static const float good[][2] = {{-1, 1}, {0, 0}, {-0.5f, 0.25f}},
			   bad[][2] = {{0.5f, 0.25f}, {-1.5f, 0}, {0, 2}, {NAN, 0}, {0, NAN}, {-INFINITY, 0}};
	static const float fine[] = {FLT_TRUE_MIN, 0.5f, 0.999f}, wrong[] = {0, -0.5f, 1, 2, NAN, INFINITY};
	struct gp_codec *alq = open_codec("alq:bits=2", 8), *amq = open_codec("amq:bits=2", 8);
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
		assert_int_equal(try_levels(alq, good[i], 2), GP_OK);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		assert_int_equal(try_levels(alq, bad[i], 2), GP_PROTO);
	for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++)
		assert_int_equal(try_levels(amq, &fine[i], 1), GP_OK);
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		assert_int_equal(try_levels(amq, &wrong[i], 1), GP_PROTO);
	gp_codec_free(alq);
	gp_codec_free(amq);
}

/* Nothing to fit to: zeros, single elements, constants, the smallest numbers. */
static void tensors_without_statistics_are_coded_all_the_same(void **state)
{
	(void)state;
	static const char *const specs[] = {"alq:bits=8,bucket=1", "alq:bits=2,fit=normbased", "alq:bits=5",
					    "amq:bits=8,bucket=1", "amq:bits=2,fit=normbased", "amq:bits=5"};
	static const float values[] = {0, 3e37f, -1e-40f, FLT_TRUE_MIN};
	for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++)
		for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
			float x[40], y[40];
			for (int i = 0; i < 40; i++)
				x[i] = values[v];
			struct gp_codec *one = open_codec(specs[s], 1), *many = open_codec(specs[s], 40);
			send(one, (struct gp_codec_pass){0}, x, y, NULL);
			assert_true(x[0] == y[0]);
			for (uint64_t draw = 0; draw < 3; draw++)
				send(many, (struct gp_codec_pass){.draw = draw}, x, y, NULL);
			for (int i = 0; i < 40; i++)
				assert_true(isfinite(y[i]) && (values[v] != 0 || y[i] == 0));
			gp_codec_free(one);
			gp_codec_free(many);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rounding_is_unbiased),
		cmocka_unit_test(fitted_levels_lose_less_than_fixed_ones),
		cmocka_unit_test(fits_by_norm_serve_the_large_buckets),
		cmocka_unit_test(levels_are_fitted_again_every_update_passes_of_their_chunk),
		cmocka_unit_test(evaluations_and_raw_tensors_leave_memory_alone),
		cmocka_unit_test(a_run_goes_on_from_saved_memory),
		cmocka_unit_test(memory_that_no_pass_leaves_behind_is_refused),
		cmocka_unit_test(levels_that_do_not_ascend_within_the_ends_are_refused),
		cmocka_unit_test(tensors_without_statistics_are_coded_all_the_same),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
