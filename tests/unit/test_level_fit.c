/* SPDX-License-Identifier: Apache-2.0
 *
 * The fits of ALQ and AMQ (common/codec/stages/level_fit.h) against the golden cases, against
 * plain numerical integration, and at the ends of what may be asked of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <glob.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/codec/stages/level_fit.h"
#include "common/store/safetensors.h"

static struct gp_level_mix normal(double mean, double sigma)
{
	return (struct gp_level_mix){.count = 1, .part = {{.mean = mean, .sigma = sigma, .weight = 1}}};
}

static double number(const struct gp_st_file *f, const char *key)
{
	const char *text = gp_st_metadata(f, key);
	assert_non_null(text);
	return strtod(text, NULL);
}

static void exponential(double *level, int bits, double p)
{
	const int half = 1 << (bits - 1);
	for (int j = 0; j < half; j++) {
		level[half + j] = pow(p, half - 1 - j);
		level[half - 1 - j] = -level[half + j];
	}
}

static void assert_close(double x, double y, double relative)
{
	assert_true(fabs(x - y) <= relative * fabs(y));
}

static void check_variances_of_fixed_levels(const struct gp_st_file *f, const struct gp_level_mix *m, int bits)
{
	double level[256];
	const int count = 1 << bits;
	for (int i = 0; i < count; i++)
		level[i] = (2.0 * i - (count - 1)) / (count - 1);
	assert_close(gp_level_variance(m, level, count), number(f, "qsgd_variance"), 1e-6);
	exponential(level, bits, 0.5);
	assert_close(gp_level_variance(m, level, count), number(f, "nuqsgd_variance"), 1e-6);
	exponential(level, bits, number(f, "amq_multiplier"));
	assert_close(gp_level_variance(m, level + count / 2, count / 2), number(f, "amq_half_variance"), 1e-6);
}

static void check_golden(const char *path)
{
	struct gp_err err = {0};
	struct gp_st_file *f;
	double level[256];
	assert_int_equal(gp_st_open(path, &f, &err), GP_OK);
	const int bits = (int)number(f, "bits");
	const struct gp_level_mix m = normal(number(f, "mean"), number(f, "sigma"));
	gp_level_fit_alq(&m, bits, NULL, level);
	const double variance = gp_level_variance(&m, level, 1 << bits),
		     multiplier = gp_level_fit_amq(&m, bits, 0, NULL);
	print_message("%s: ALQ's variance %.9g (golden %.9g), AMQ's multiplier %.9g (%.9g)\n", path, variance,
		      number(f, "alq_variance"), multiplier, number(f, "amq_multiplier"));
	assert_true(variance <= 1.01 * number(f, "alq_variance"));
	assert_true(fabs(multiplier - number(f, "amq_multiplier")) <= 1e-3);
	check_variances_of_fixed_levels(f, &m, bits);
	gp_st_close(f);
}

static void fits_are_as_good_as_the_golden_ones(void **state)
{
	(void)state;
	glob_t found;
	assert_int_equal(glob("tests/golden/codec/alq_*.safetensors", 0, NULL, &found), 0);
	for (size_t i = 0; i < found.gl_pathc; i++)
		check_golden(found.gl_pathv[i]);
	assert_true(found.gl_pathc >= 3);
	globfree(&found);
}

static double density(const struct gp_level_mix *m, double x)
{
	double sum = 0;
	for (int k = 0; k < m->count; k++) {
		const struct gp_level_part *p = &m->part[k];
		const double root = p->sigma * sqrt(2), z = (x - p->mean) / root;
		const double inside = (erf((1 - p->mean) / root) + erf((1 + p->mean) / root)) / 2;
		sum += p->weight * exp(-z * z) / (root * sqrt(acos(-1)) * inside);
	}
	return sum;
}

/* Simpson's rule. */
static double integrated(const struct gp_level_mix *m, const double *level, int count)
{
	enum { STEPS = 2000 };
	double sum = 0;
	for (int i = 0; i + 1 < count; i++) {
		const double l = level[i], u = level[i + 1], h = (u - l) / STEPS;
		for (int k = 0; k <= STEPS; k++) {
			const double x = l + k * h, weight = k == 0 || k == STEPS ? 1 : k % 2 ? 4 : 2;
			sum += weight * h / 3 * (x - l) * (u - x) * density(m, x);
		}
	}
	return sum;
}

static struct gp_level_mix three_parts(void)
{
	return (struct gp_level_mix){.count = 3,
				     .part = {{.mean = 0.02, .sigma = 0.05, .weight = 0.5},
					      {.mean = -0.1, .sigma = 0.2, .weight = 0.3},
					      {.mean = 0.3, .sigma = 0.01, .weight = 0.2}}};
}

static void variances_are_the_integrals(void **state)
{
	(void)state;
	const struct gp_level_mix m = three_parts();
	static const double level[] = {-1, -0.3, -0.1, 0, 0.05, 0.29, 0.33, 1};
	assert_close(gp_level_variance(&m, level, 8), integrated(&m, level, 8), 1e-9);
}

/* No level of a fit can be moved to advantage. */
static void each_level_is_best_between_its_neighbours(void **state)
{
	(void)state;
	const struct gp_level_mix mixes[] = {three_parts(), normal(0, 0.1), normal(0.9, 0.3)};
	for (size_t k = 0; k < sizeof mixes / sizeof mixes[0]; k++) {
		double level[8];
		gp_level_fit_alq(&mixes[k], 3, NULL, level);
		const double variance = integrated(&mixes[k], level, 8);
		assert_true(level[0] == -1 && level[7] == 1);
		for (int i = 1; i < 7; i++)
			for (int sign = -1; sign <= 1; sign += 2) {
				const double kept = level[i];
				level[i] += sign * 0.02 * (sign > 0 ? level[i + 1] - kept : kept - level[i - 1]);
				assert_true(integrated(&mixes[k], level, 8) > variance * (1 - 1e-4));
				level[i] = kept;
			}
	}
}

static void fitted_levels_beat_even_ones_and_powers_of_two(void **state)
{
	(void)state;
	const struct gp_level_mix m = three_parts();
	for (int bits = 2; bits <= 8; bits++) {
		double fitted[256], other[256];
		const int count = 1 << bits;
		gp_level_fit_alq(&m, bits, NULL, fitted);
		const double variance = gp_level_variance(&m, fitted, count);
		for (int i = 0; i < count; i++)
			other[i] = (2.0 * i - (count - 1)) / (count - 1);
		assert_true(variance < gp_level_variance(&m, other, count));
		exponential(other, bits, 0.5);
		const double powers = gp_level_variance(&m, other, count);
		assert_true(variance < powers);
		exponential(other, bits, gp_level_fit_amq(&m, bits, 0, NULL));
		assert_true(gp_level_variance(&m, other, count) <= powers * 1.01);
	}
}

/* Constants, single elements, far tails. */
static void whatever_is_asked_levels_ascend_from_end_to_end(void **state)
{
	(void)state;
	static const double means[] = {0, 1, -1, 0.03, 0.7071, -0.999999}, sigmas[] = {1e-6, 1e-4, 0.01, 0.5, 3, 1e6};
	for (size_t a = 0; a < sizeof means / sizeof means[0]; a++)
		for (size_t b = 0; b < sizeof sigmas / sizeof sigmas[0]; b++)
			for (int bits = 2; bits <= 8; bits++) {
				const struct gp_level_mix m = normal(means[a], sigmas[b]);
				double level[256];
				gp_level_fit_alq(&m, bits, NULL, level);
				assert_true(level[0] == -1 && level[(1 << bits) - 1] == 1);
				for (int i = 1; i < 1 << bits; i++)
					assert_true(level[i] >= level[i - 1]);
				const double first = gp_level_fit_amq(&m, bits, 0, NULL);
				const double next = gp_level_fit_amq(&m, bits, first, NULL);
				assert_true(first > 0 && first < 1 && next > 0 && next < 1);
			}
}

/* Seen to differ with erf and exp of two C libraries: what decides there is the last bit of both. */
static void levels_are_the_same_on_every_processor(void **state)
{
	(void)state;
	const struct gp_level_mix m = normal(0x1.8553606e16bfcp-5, 0x1.48d0668a74b95p-4);
	double level[4];
	gp_level_fit_alq(&m, 2, NULL, level);
	assert_true(level[1] == -0x1.e6aec700e9714p-5);
	assert_true(level[2] == 0x1.303058b248c95p-3);
}

static double variance_fitted(const struct gp_level_mix *m, int bits, const struct gp_stop *stop)
{
	double level[256];
	gp_level_fit_alq(m, bits, stop, level);
	return gp_level_variance(m, level, 1 << bits);
}

static void a_fit_that_is_stopped_has_levels_that_ascend(void **state)
{
	(void)state;
	struct gp_stop stop = {0};
	gp_stop_set(&stop);
	for (int bits = 2; bits <= 8; bits++) {
		const struct gp_level_mix m = normal(0.3, 1e-6);
		double level[256];
		gp_level_fit_alq(&m, bits, &stop, level);
		assert_true(level[0] == -1 && level[(1 << bits) - 1] == 1);
		for (int i = 1; i < 1 << bits; i++)
			assert_true(level[i] >= level[i - 1]);
		assert_true(gp_level_fit_amq(&m, bits, 0, &stop) == 0.5); /* no start was tried */
	}
	const struct gp_level_mix m = normal(0.3, 0.1);
	assert_true(variance_fitted(&m, 4, &stop) > 1.01 * variance_fitted(&m, 4, NULL)); /* no sweep was made */
	assert_true(gp_level_fit_amq(&m, 4, 0, NULL) != 0.5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fits_are_as_good_as_the_golden_ones),
		cmocka_unit_test(variances_are_the_integrals),
		cmocka_unit_test(each_level_is_best_between_its_neighbours),
		cmocka_unit_test(fitted_levels_beat_even_ones_and_powers_of_two),
		cmocka_unit_test(whatever_is_asked_levels_ascend_from_end_to_end),
		cmocka_unit_test(levels_are_the_same_on_every_processor),
		cmocka_unit_test(a_fit_that_is_stopped_has_levels_that_ascend),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
