/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops of smaq (kernels/loops/smaq_loops.h): the reference against fp64, the
 * others against the reference.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/rng.h"
#include "kernels/loops/codec_loops.h"
#include "kernels/loops/smaq_loops.h"
#include "kernels/loops/versions.h"

static const struct gp_smaq_loops *const reference = &gp_smaq_loops_portable;

/* The other versions this machine can run; NULL past the end. */
static const struct gp_smaq_loops *other(int index)
{
	static const struct gp_smaq_loops *const versions[] = GP_LOOP_VERSIONS(&gp_smaq_loops);
	return index < (int)gp_isa_best() ? versions[index + 1] : NULL;
}

static struct gp_smaq values_of(float mean, float std, int width, int outlier, bool nearest)
{
	return (struct gp_smaq){.mean = mean,
				.std = std,
				.half = nearest ? 0.5f : 0,
				.divisor = std > 0 ? std : INFINITY,
				.main_scale = (float)((1 << (width - 2)) - 1),
				.outlier_scale = (float)((1 << (outlier - 2)) - 1) / (width == 5 ? 999.0f : 1.5f),
				.top = (float)((1 << (outlier - 2)) - 1),
				.low_bits = width - 2};
}

static const size_t sizes[] = {0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 1023, 1024};
enum { SIZES = sizeof sizes / sizeof sizes[0], MOST = 1024 };
static const int widths[][2] = {{6, 8},   {3, 16}, {3, 3},
				{16, 16}, {8, 9},  {5, 8}}; /* the last one with the longest reach */
enum { WIDTHS = sizeof widths / sizeof widths[0] };

/* kind 0: normal values, 1: finite bits, 2: subnormals, 3: thresholds and their neighbours. */
static void fill(float *x, size_t n, int kind)
{
	static const float edges[] = {1, -1, 2.5f, -2.5f, 0, 1.0f / 15};
	for (size_t i = 0; i < n; i++) {
		uint32_t u = gp_rng_u32(6, (uint64_t)kind, i);
		u = (u & 0x7f800000u) == 0x7f800000u ? u & 0xff7fffffu : u;
		u = kind == 2 ? u & 0x807fffffu : u;
		memcpy(&x[i], &u, sizeof x[i]);
		if (kind == 0)
			x[i] = gp_rng_normal(6, 9, i) * 1.3f;
		if (kind == 3)
			x[i] = nextafterf(edges[u % 6], (float)(u >> 8 & 3u) - 1);
	}
}

/* Half an interval is truncated away at most: an error below 1/15 within one standard deviation, 1/42 beyond. */
static void errors_stay_within_a_level_and_outliers_are_clamped(void **state)
{
	(void)state;
	static float x[MOST], y[MOST];
	static uint16_t codes[MOST], extras[MOST + GP_SMAQ_SLACK];
	const struct gp_smaq s = values_of(0.25f, 0.8f, 6, 8, false);
	fill(x, MOST, 0);
	const size_t count = reference->quantize(&s, x, MOST, NULL, codes, extras);
	assert_int_equal(reference->dequantize(&s, codes, MOST, extras, y), count);
	size_t outliers = 0;
	for (int i = 0; i < MOST; i++) {
		const double z = ((double)x[i] - 0.25) / 0.8, w = ((double)y[i] - 0.25) / 0.8;
		outliers += fabs(z) > 1;
		assert_true(fabs(w) <= 2.5 + 1e-6 && fabs(w) <= fabs(z) + 1e-6 && w * z >= -1e-6);
		if (fabs(z) <= 2.5)
			assert_true(fabs(z) - fabs(w) < (fabs(z) > 1 ? 1.0 / 42 : 1.0 / 15) + 1e-6);
		else
			assert_true(fabs(w) > 2.5 - 1e-6);
	}
	assert_int_equal(outliers, count);
	assert_true(count > 300 && count < 600);
}

/* To the nearest level: half a level at most, to either side, so that what is lost cancels out. */
static void nearest_levels_halve_the_error_and_do_not_shrink_values(void **state)
{
	(void)state;
	static float x[MOST], y[MOST];
	static uint16_t codes[MOST], extras[MOST + GP_SMAQ_SLACK];
	double lost[2] = {0}, size = 0;
	for (int nearest = 0; nearest < 2; nearest++) {
		const struct gp_smaq s = values_of(0.25f, 0.8f, 6, 8, nearest);
		fill(x, MOST, 0);
		const size_t count = reference->quantize(&s, x, MOST, NULL, codes, extras);
		assert_int_equal(reference->dequantize(&s, codes, MOST, extras, y), count);
		for (int i = 0; i < MOST; i++) {
			const double z = ((double)x[i] - 0.25) / 0.8, w = ((double)y[i] - 0.25) / 0.8;
			if (fabs(z) > 2.5)
				continue;
			lost[nearest] += fabs(z) - fabs(w);
			size += fabs(z) / 2;
			if (nearest)
				assert_true(fabs(z - w) < (fabs(z) > 1 ? 0.5 / 42 : 0.5 / 15) + 1e-6);
		}
	}
	assert_true(lost[0] > 0.02 * size && fabs(lost[1]) < 0.002 * size);
}

/* Each value often, with draws of its own: its mean is what it was, but that of 0, which is always the level next to it. */
static void drawn_levels_are_right_in_the_mean(void **state)
{
	(void)state;
	enum { DRAWS = 4096 };
	static const float values[] = {0.25f, 0.26f, -0.3f, 0.27f + 0.8f, 1.7f, -1.4f, 0};
	static float x[MOST], y[MOST];
	static uint16_t codes[MOST], extras[MOST + GP_SMAQ_SLACK], draws[MOST];
	const struct gp_smaq s = values_of(0.25f, 0.8f, 6, 8, false);
	for (size_t k = 0; k < sizeof values / sizeof values[0]; k++) {
		double sum = 0, least = INFINITY, most = -INFINITY;
		for (int at = 0; at < DRAWS; at += MOST) {
			for (int i = 0; i < MOST; i++) {
				x[i] = values[k];
				draws[i] = (uint16_t)gp_rng_u32(3, k, (uint64_t)(at + i));
			}
			reference->quantize(&s, x, MOST, draws, codes, extras);
			reference->dequantize(&s, codes, MOST, extras, y);
			for (int i = 0; i < MOST; i++) {
				sum += (double)y[i];
				least = fmin(least, (double)y[i]);
				most = fmax(most, (double)y[i]);
			}
		}
		const double step = 0.8 / (fabsf(values[k] - 0.25f) > 0.8f ? 42 : 15);
		if (values[k] == 0.0f)
			assert_true(least == most && fabs(least) < step / 2);
		else
			assert_true(fabs(sum / DRAWS - (double)values[k]) < 0.05 * step);
		assert_true(most - least < 1.01 * step && (most > least) == (values[k] != 0.25f && values[k] != 0.0f));
	}
}

/* One deviation with the largest draw is the last level within it, however narrow levels are beside floats. */
static void the_largest_draw_leaves_no_code_too_large(void **state)
{
	(void)state;
	const float x[1] = {1};
	const uint16_t draw[1] = {UINT16_MAX};
	for (int width = 3; width <= 16; width++) {
		uint16_t code[1], extras[1 + GP_SMAQ_SLACK];
		float y[1];
		const struct gp_smaq s = values_of(0, 1, width, 16, false);
		assert_int_equal(reference->quantize(&s, x, 1, draw, code, extras), 0);
		reference->dequantize(&s, code, 1, extras, y);
		assert_true(y[0] == 1.0f);
	}
}

static void moments_are_those_of_the_definition(void **state)
{
	(void)state;
	static float x[MOST];
	for (int s = 1; s < SIZES; s++) {
		struct gp_smaq_sums sums = {0};
		double sum = 0, squares = 0, got = 0, got_squares = 0;
		fill(x, sizes[s], 0);
		for (size_t i = 0; i < sizes[s]; i++) {
			sum += (double)x[i] - 3;
			squares += ((double)x[i] - 3) * ((double)x[i] - 3);
		}
		reference->add(x, sizes[s], 3, &sums);
		for (int i = 0; i < GP_SMAQ_LANES; i++) {
			got += sums.sum[i];
			got_squares += sums.squares[i];
		}
		assert_true(fabs(got - sum) < 1e-12 * squares && fabs(got_squares / squares - 1) < 1e-12);
	}
}

static void check_against_reference(const struct gp_smaq_loops *l, const struct gp_smaq *s, const float *x, size_t n,
				    const uint16_t *draws)
{
	static float y[MOST + 1], expected_y[MOST + 1];
	static uint16_t codes[MOST + 1], expected[MOST + 1];
	static uint16_t extras[MOST + GP_SMAQ_SLACK], expected_extras[MOST + GP_SMAQ_SLACK];
	codes[n] = expected[n] = 0xa5a5;
	y[n] = expected_y[n] = 4711;
	const size_t count = reference->quantize(s, x, n, draws, expected, expected_extras);
	assert_int_equal(l->quantize(s, x, n, draws, codes, extras), count);
	assert_memory_equal(codes, expected, (n + 1) * sizeof codes[0]);
	assert_memory_equal(extras, expected_extras, count * sizeof extras[0]);
	assert_int_equal(reference->dequantize(s, codes, n, extras, expected_y), count);
	assert_int_equal(l->dequantize(s, codes, n, extras, y), count);
	assert_memory_equal(y, expected_y, (n + 1) * sizeof y[0]);
}

static void every_instruction_set_gives_the_bits_of_the_reference(void **state)
{
	(void)state;
	static float x[MOST];
	static uint16_t draws[MOST];
	for (size_t i = 0; i < MOST; i++)
		draws[i] = i % 50 ? (uint16_t)gp_rng_u32(6, 10, i) : UINT16_MAX;
	static const float scales[][2] = {{0, 1}, {0.3f, 0.7f}, {0, 0}, {1e30f, 1e36f}, {-1e-40f, 1e-41f}, {0, 1e38f}};
	for (int k = 0; other(k); k++)
		for (int i = 0; i < SIZES; i++)
			for (int kind = 0; kind < 4; kind++) {
				struct gp_smaq_sums a = {0}, b = {0};
				fill(x, sizes[i], kind);
				reference->add(x, sizes[i], 0.5f, &a);
				other(k)->add(x, sizes[i], 0.5f, &b);
				assert_memory_equal(&a, &b, sizeof a);
				for (int w = 0; w < WIDTHS; w++)
					for (size_t c = 0; c < sizeof scales / sizeof scales[0]; c++) {
						struct gp_smaq s = values_of(scales[c][0], scales[c][1], widths[w][0],
									     widths[w][1], false);
						check_against_reference(other(k), &s, x, sizes[i], NULL);
						check_against_reference(other(k), &s, x, sizes[i], draws);
						s.half = 0.5f;
						check_against_reference(other(k), &s, x, sizes[i], NULL);
					}
			}
}

/* A peer may send any code and any extra. */
static void every_instruction_set_decodes_any_codes_alike(void **state)
{
	(void)state;
	static float y[MOST], expected[MOST];
	static uint16_t codes[MOST], extras[MOST + GP_SMAQ_SLACK];
	for (int k = 0; other(k); k++)
		for (int w = 0; w < WIDTHS; w++) {
			const struct gp_smaq s = values_of(0.1f, 2, widths[w][0], widths[w][1], false);
			for (uint64_t i = 0; i < MOST; i++) {
				codes[i] = (uint16_t)(gp_rng_u32(7, 1, i) & ((1u << widths[w][0]) - 1));
				extras[i] =
					(uint16_t)(gp_rng_u32(7, 2, i) & ((1u << (widths[w][1] - widths[w][0])) - 1));
			}
			const size_t count = reference->dequantize(&s, codes, MOST, extras, expected);
			assert_int_equal(other(k)->dequantize(&s, codes, MOST, extras, y), count);
			assert_memory_equal(y, expected, sizeof y);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(errors_stay_within_a_level_and_outliers_are_clamped),
		cmocka_unit_test(nearest_levels_halve_the_error_and_do_not_shrink_values),
		cmocka_unit_test(drawn_levels_are_right_in_the_mean),
		cmocka_unit_test(the_largest_draw_leaves_no_code_too_large),
		cmocka_unit_test(moments_are_those_of_the_definition),
		cmocka_unit_test(every_instruction_set_gives_the_bits_of_the_reference),
		cmocka_unit_test(every_instruction_set_decodes_any_codes_alike),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
