/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops of the level quantizers (kernels/loops/level_loops.h): the reference
 * against its definition, the others against the reference.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <string.h>

#include "common/base/rng.h"
#include "kernels/loops/codec_loops.h"
#include "kernels/loops/level_loops.h"
#include "kernels/loops/versions.h"

static const struct gp_level_loops *const reference = &gp_level_loops_portable;

/* The other versions this machine can run; NULL past the end. */
static const struct gp_level_loops *other(int index)
{
	static const struct gp_level_loops *const versions[] = GP_LOOP_VERSIONS(&gp_level_loops);
	return index < (int)gp_isa_best() ? versions[index + 1] : NULL;
}

enum { MOST = 2100 };
static const size_t sizes[] = {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 100, 512, 1023, 1024, MOST};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* Uneven levels; `count` of 2^bits. */
static struct gp_level_table *table_of(int bits, int count)
{
	static struct gp_level_table t;
	float level[GP_LEVEL_MOST];
	for (int i = 0; i < count; i++) {
		const float v = (float)(2 * i - (count - 1)) / (float)(count - 1);
		level[i] = v * fabsf(v);
	}
	gp_level_table_set(&t, bits, level, count);
	return &t;
}

/* kind 0: normal, 1: levels exactly and the ends, 2: zeros, 3: tiny. Returns a norm that fits. */
static float fill(const struct gp_level_table *t, float *x, size_t n, int kind)
{
	const float norm = kind == 3 ? 1e-39f : 5.5f;
	for (size_t i = 0; i < n; i++) {
		const float g = gp_rng_normal(8, (uint64_t)kind, i);
		x[i] = fminf(fmaxf(g, -norm), norm);
		if (kind == 1)
			x[i] = norm * t->level[gp_rng_below(8, 5, i, 1u << t->bits)];
		if (kind == 1 && !isfinite(x[i]))
			x[i] = norm;
		if (kind == 2)
			x[i] = i % 2 ? 0.0f : -0.0f;
		if (kind == 3)
			x[i] = fminf(fmaxf(g * 3e-40f, -norm), norm);
	}
	return norm;
}

static void an_element_goes_to_one_of_the_levels_around_it_by_its_draw(void **state)
{
	(void)state;
	static float x[MOST];
	static uint16_t draws[MOST];
	static uint16_t codes[MOST];
	for (int bits = 1; bits <= 8; bits++) {
		const struct gp_level_table *t = table_of(bits, 1 << bits);
		const float norm = fill(t, x, MOST, 0);
		for (uint64_t i = 0; i < MOST; i++)
			draws[i] = (uint16_t)gp_rng_u32(8, 9, i);
		reference->quantize(t, x, MOST, norm, draws, codes);
		for (int i = 0; i < MOST; i++) {
			const float r = x[i] / norm;
			int c = 0;
			while (c + 2 < 1 << bits && t->level[c + 1] <= r)
				c++;
			const double part = (double)(r - t->level[c]) / (double)(t->level[c + 1] - t->level[c]);
			const double draw = (draws[i] + 0.5) * 0x1p-16;
			assert_in_range(codes[i], c, c + 1);
			if (fabs(part - draw) > 1e-5)
				assert_int_equal(codes[i], c + (draw < part));
		}
	}
}

static void levels_themselves_are_kept_whatever_is_drawn(void **state)
{
	(void)state;
	static const int counts[][2] = {{1, 2}, {2, 3}, {2, 4}, {4, 16}, {8, 256}};
	static const uint16_t draws[] = {0, 1, 255, 0x8000, 0xffff};
	for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
		const struct gp_level_table *t = table_of(counts[k][0], counts[k][1]);
		for (int i = 0; i < counts[k][1]; i++)
			for (size_t w = 0; w < sizeof draws / sizeof draws[0]; w++) {
				uint16_t code;
				reference->quantize(t, &t->level[i], 1, 1, &draws[w], &code);
				assert_int_equal(code, i);
			}
	}
}

static void norms_are_those_of_the_library(void **state)
{
	(void)state;
	static float x[MOST];
	const struct gp_level_table *t = table_of(4, 16);
	for (int kind = 0; kind < 4; kind++)
		for (int s = 0; s < SIZES; s++) {
			long double sum = 0;
			float top = 0;
			fill(t, x, sizes[s], kind);
			for (size_t i = 0; i < sizes[s]; i++) {
				sum += (long double)x[i] * (long double)x[i];
				top = fmaxf(top, fabsf(x[i]));
			}
			const uint32_t u = reference->largest(x, sizes[s]);
			assert_true(fabsl((long double)reference->squares(x, sizes[s]) - sum) <= 1e-13L * sum);
			assert_memory_equal(&u, &top, sizeof u);
		}
}

static void what_is_not_finite_shows_in_both_norms(void **state)
{
	(void)state;
	const float bad[] = {NAN, INFINITY, -INFINITY, -NAN};
	for (int k = -1; k < 0 || other(k); k++) {
		const struct gp_level_loops *l = k < 0 ? reference : other(k);
		for (size_t at = 0; at < 100; at++) {
			float x[100] = {FLT_MAX, -FLT_MAX};
			assert_true(isfinite(l->squares(x, 100)));
			assert_true(l->largest(x, 100) < 0x7f800000u);
			x[at] = bad[at % 4];
			assert_false(isfinite(l->squares(x, 100)));
			assert_true(l->largest(x, 100) >= 0x7f800000u);
		}
	}
}

static void compare(const struct gp_level_loops *l, const struct gp_level_table *t, int kind, size_t n)
{
	static float x[MOST], y[MOST + 1], expected_y[MOST + 1];
	static uint16_t draws[MOST];
	static uint16_t codes[MOST + 1], expected[MOST + 1];
	const float norm = fill(t, x, n, kind);
	for (uint64_t i = 0; i < n; i++)
		draws[i] = (uint16_t)gp_rng_u32(8, 10, i);
	codes[n] = expected[n] = 0xa5a5;
	y[n] = expected_y[n] = 3;
	const double a = reference->squares(x, n), b = l->squares(x, n);
	assert_memory_equal(&a, &b, sizeof a);
	assert_int_equal(reference->largest(x, n), l->largest(x, n));
	reference->quantize(t, x, n, norm, draws, expected);
	l->quantize(t, x, n, norm, draws, codes);
	assert_memory_equal(codes, expected, (n + 1) * sizeof *codes);
	reference->dequantize(t, codes, n, norm, expected_y);
	l->dequantize(t, codes, n, norm, y);
	assert_memory_equal(y, expected_y, (n + 1) * sizeof *y);
}

static void every_instruction_set_gives_the_bits_of_the_reference(void **state)
{
	(void)state;
	for (int k = 0; other(k); k++)
		for (int bits = 1; bits <= 8; bits++)
			for (int kind = 0; kind < 4; kind++)
				for (int s = 0; s < SIZES; s++) {
					compare(other(k), table_of(bits, 1 << bits), kind, sizes[s]);
					if (bits > 1)
						compare(other(k), table_of(bits, (1 << bits) - 1), kind, sizes[s]);
				}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_element_goes_to_one_of_the_levels_around_it_by_its_draw),
		cmocka_unit_test(levels_themselves_are_kept_whatever_is_drawn),
		cmocka_unit_test(norms_are_those_of_the_library),
		cmocka_unit_test(what_is_not_finite_shows_in_both_norms),
		cmocka_unit_test(every_instruction_set_gives_the_bits_of_the_reference),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
