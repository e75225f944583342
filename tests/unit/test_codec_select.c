/* SPDX-License-Identifier: Apache-2.0
 *
 * Exact order statistics (common/codec/codec_select.c, codec_histogram.c): every
 * result is proved by counting, for every instruction set of this machine.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "common/codec/codec_histogram.h"
#include "common/codec/codec_select.h"
#include "common/base/isa.h"
#include "common/base/rng.h"

/* v has rank r exactly when fewer than or as many as r elements are below it, and more than r are not above. */
static void assert_rank(const float *x, uint64_t n, uint64_t rank, float v)
{
	uint64_t below = 0, at_or_below = 0;
	for (uint64_t i = 0; i < n; i++) {
		below += x[i] < v;
		at_or_below += x[i] <= v;
	}
	assert_true(below <= rank && rank < at_or_below);
}

static struct gp_select *new_select(const char *name, uint64_t n)
{
	struct gp_err err = {0};
	struct gp_select *s = NULL;
	assert_int_equal(gp_select_new(gp_codec_loops_named(name), n, 64, &s, &err), GP_OK);
	return s;
}

/* The ranks on both sides of each boundary of `parts` partitions. */
static int boundary_ranks(uint64_t n, int parts, uint64_t *rank)
{
	int count = 0;
	for (int p = 1; p < parts; p++) {
		uint64_t first = n * (uint64_t)p / (uint64_t)parts;
		if (first > 0)
			rank[count++] = first - 1;
		rank[count++] = first;
	}
	return count;
}

static void check(const float *x, uint64_t n, int parts)
{
	uint64_t rank[512];
	float value[512], min, max;
	int count = boundary_ranks(n, parts, rank);
	for (int k = 0; k < 3; k++) {
		if (!gp_codec_loops_named(gp_isa_name((enum gp_isa)k)))
			continue;
		struct gp_select *s = new_select(gp_isa_name((enum gp_isa)k), n);
		assert_true(gp_select_ranks(s, x, rank, count, value, &min, &max));
		for (int i = 0; i < count; i++)
			assert_rank(x, n, rank[i], value[i]);
		assert_rank(x, n, 0, min);
		assert_rank(x, n, n - 1, max);
		gp_select_free(s);
	}
}

enum { MOST = 200003 };
static float x[MOST];

static void draw_normal(uint64_t n, uint64_t seed)
{
	for (uint64_t i = 0; i < n; i++)
		x[i] = gp_rng_normal(seed, 1, i);
}

static void normal_values_are_selected_exactly_at_every_size(void **state)
{
	(void)state;
	static const uint64_t sizes[] = {1, 2, 3, 100, 16384, 16385, 20000, 65537, MOST};
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		draw_normal(sizes[i], i);
		for (int parts = 2; parts <= 16; parts *= 2)
			check(x, sizes[i], parts);
	}
}

static void many_ranks_are_selected_exactly(void **state)
{
	(void)state;
	draw_normal(50000, 3);
	check(x, 50000, 64);
	check(x, 50000, 256);
}

static void tied_values_are_selected_exactly(void **state)
{
	(void)state;
	static const float zeros[] = {0.2f, 0.25f, 0.3f, 0.45f, 0.49f, 0.5f, 0.51f, 0.63f, 0.75f, 0.99f};
	for (size_t z = 0; z < sizeof zeros / sizeof zeros[0]; z++) {
		draw_normal(MOST, 7);
		for (uint64_t i = 0; i < MOST; i++)
			if (gp_rng_uniform(8, z, i) < zeros[z])
				x[i] = 0;
		check(x, MOST, 4);
		for (uint64_t i = 0; i < MOST; i++)
			x[i] = fminf(fmaxf(x[i], 0), 1);
		check(x, MOST, 4);
		check(x, MOST, 16);
	}
}

static void rectified_tensors_need_no_histogram(void **state)
{
	(void)state;
	uint64_t rank[6];
	float value[6], min, max;
	struct gp_select *s = new_select("portable", MOST);
	for (int shift = -4; shift <= 4; shift++) {
		draw_normal(MOST, 9);
		for (uint64_t i = 0; i < MOST; i++)
			x[i] = fmaxf(x[i] + (float)shift / 4, 0);
		boundary_ranks(MOST, 4, rank);
		assert_true(gp_select_ranks(s, x, rank, 6, value, &min, &max));
		assert_int_equal(gp_select_misses(s), 0);
	}
	gp_select_free(s);
}

static void orderly_tensors_are_selected_exactly(void **state)
{
	(void)state;
	for (int kind = 0; kind < 6; kind++) {
		for (uint64_t i = 0; i < MOST; i++) {
			switch (kind) {
			case 0:
				x[i] = (float)i;
				break;
			case 1:
				x[i] = -(float)i;
				break;
			case 2:
				x[i] = (float)(i % 32);
				break;
			case 3:
				x[i] = i % 2 ? FLT_MAX : -FLT_MAX;
				break;
			case 4:
				x[i] = i % 3 ? 0.0f : -0.0f;
				break;
			default:
				x[i] = (float)((int)(i % 1001) - 500) * 1e-42f;
			}
		}
		check(x, MOST, 4);
		check(x, MOST, 8);
	}
}

static void negative_zero_is_returned_as_zero(void **state)
{
	(void)state;
	float value[2], min, max;
	const float zeros[] = {-0.0f, -0.0f, -0.0f};
	const uint64_t rank[] = {0, 2};
	struct gp_select *s = new_select("portable", 3);
	assert_true(gp_select_ranks(s, zeros, rank, 2, value, &min, &max));
	assert_true(!signbit(value[0]) && !signbit(value[1]) && !signbit(min) && !signbit(max));
	gp_select_free(s);
}

static void tensors_that_are_not_finite_are_refused(void **state)
{
	(void)state;
	const float bad[] = {NAN, INFINITY, -INFINITY};
	const uint64_t rank[] = {10, 30000};
	float value[2], min, max;
	struct gp_select *s = new_select("portable", 40000);
	for (int b = 0; b < 3; b++)
		for (uint64_t at = 0; at < 40000; at += 13333) {
			draw_normal(40000, 2);
			x[at] = bad[b];
			assert_false(gp_select_ranks(s, x, rank, 2, value, &min, &max));
			for (uint64_t i = 0; i < 40000; i += 2)
				x[i] = bad[b];
			assert_false(gp_select_ranks(s, x, rank, 2, value, &min, &max));
		}
	gp_select_free(s);
}

/* A window fails to enclose its rank about once in two thousand; the counts notice, and the answer is exact all the
 * same. */
static void a_missed_window_is_noticed_and_answered_exactly(void **state)
{
	(void)state;
	enum { N = 16500 };
	uint64_t rank[6];
	float value[6], min, max;
	struct gp_select *s = new_select("portable", N);
	boundary_ranks(N, 4, rank);
	uint32_t seed = 1;
	for (int round = 0; round < 20000 && gp_select_misses(s) == 0; round++) {
		for (int i = 0; i < N; i++) {
			seed = seed * 1664525u + 1013904223u;
			x[i] = (float)(seed >> 8);
		}
		assert_true(gp_select_ranks(s, x, rank, 6, value, &min, &max));
	}
	assert_true(gp_select_misses(s) > 0);
	for (int i = 0; i < 6; i++)
		assert_rank(x, N, rank[i], value[i]);
	gp_select_free(s);
}

static void histogram_alone_is_exact(void **state)
{
	(void)state;
	uint64_t rank[512];
	float value[512];
	struct gp_err err = {0};
	struct gp_histogram *h;
	static const float offsets[] = {0, -2, 1000, -1e-3f, 1e6f};
	static const int ranks[] = {1, 7, 254, 512, 1000};
	for (int k = 0; k < 5; k++) {
		float min = INFINITY, max = -INFINITY;
		assert_int_equal(gp_histogram_new(ranks[k], &h, &err), GP_OK);
		draw_normal(5000, 4);
		for (int i = 0; i < 5000; i++) {
			x[i] = i % 2 ? x[i] + offsets[k] : (float)(i % 5) + offsets[k];
			min = fminf(min, x[i]);
			max = fmaxf(max, x[i]);
		}
		int count = boundary_ranks(5000, 128, rank);
		gp_histogram_ranks(h, x, 5000, min, max, rank, count, value);
		for (int i = 0; i < count; i++)
			assert_rank(x, 5000, rank[i], value[i]);
		gp_histogram_free(h);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(normal_values_are_selected_exactly_at_every_size),
		cmocka_unit_test(many_ranks_are_selected_exactly),
		cmocka_unit_test(tied_values_are_selected_exactly),
		cmocka_unit_test(rectified_tensors_need_no_histogram),
		cmocka_unit_test(orderly_tensors_are_selected_exactly),
		cmocka_unit_test(negative_zero_is_returned_as_zero),
		cmocka_unit_test(tensors_that_are_not_finite_are_refused),
		cmocka_unit_test(a_missed_window_is_noticed_and_answered_exactly),
		cmocka_unit_test(histogram_alone_is_exact),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
