/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops of top-k (kernels/loops/topk_loops.h): the reference against what the
 * header says, the others against the reference, and nothing past the end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/rng.h"
#include "kernels/loops/codec_loops.h"
#include "kernels/loops/topk_loops.h"
#include "kernels/loops/versions.h"

static const struct gp_topk_loops *const reference = &gp_topk_loops_portable;

/* The other versions this machine can run; NULL past the end. */
static const struct gp_topk_loops *other(int index)
{
	static const struct gp_topk_loops *const versions[] = GP_LOOP_VERSIONS(&gp_topk_loops);
	return index < (int)gp_isa_best() ? versions[index + 1] : NULL;
}

static const size_t sizes[] = {0, 1, 7, 8, 15, 16, 17, 63, 64, 65, 127, 128, 129, 200, 1000, 1024, 4111};
enum { SIZES = sizeof sizes / sizeof sizes[0], MOST = 4111, WORDS = (MOST + 63) / 64 };

/* kind 0: normal, 1: few values with zeros, 2: any bits. */
static void fill(float *x, size_t n, int kind)
{
	for (size_t i = 0; i < n; i++) {
		const uint32_t u = gp_rng_u32(4, (uint64_t)kind, i);
		x[i] = kind == 0 ? gp_rng_normal(4, 9, i) : (float)(int)(u % 7) - 3;
		if (kind == 2)
			memcpy(&x[i], &u, sizeof u);
	}
}

static uint32_t key_of(float x)
{
	uint32_t u;
	memcpy(&u, &x, sizeof u);
	return u & 0x7fffffffu;
}

/* A block of its own size, so that a sanitizer sees what goes past it. */
static float *copy_of(const float *x, size_t n)
{
	float *copy = calloc(n ? n : 1, sizeof *x);
	assert_non_null(copy);
	memcpy(copy, x, n * sizeof *x);
	return copy;
}

static void check_sift(const struct gp_topk_loops *l, const float *x, size_t n, uint32_t lo, uint32_t hi)
{
	struct gp_topk_window w = {.lo = lo, .hi = hi, .above = 1, .from_hi = 2, .from_lo = 3};
	uint64_t above = 1, from_hi = 2, from_lo = 3;
	uint32_t largest = 0, *chosen = malloc((n + GP_TOPK_SLACK) * sizeof *chosen);
	size_t inside = 0;
	const size_t count = l->sift(x, n, &w, chosen);
	for (size_t i = 0; i < n; i++) {
		const uint32_t key = key_of(x[i]);
		above += key > hi;
		from_hi += key >= hi;
		from_lo += key >= lo;
		largest = key > largest ? key : largest;
		if (key > lo && key < hi)
			assert_int_equal(chosen[inside++], key);
	}
	assert_int_equal(count, inside);
	assert_true(w.above == above && w.from_hi == from_hi && w.from_lo == from_lo && w.largest == largest);
	free(chosen);
}

static void sifting_counts_and_keeps_what_the_window_says(void **state)
{
	(void)state;
	static float x[MOST];
	static const float bounds[][2] = {{0.5f, 1}, {1, 2}, {0, 3}, {2, 2}, {0, INFINITY}, {3, INFINITY}, {0, 0}};
	for (int k = -1; k < 0 || other(k); k++)
		for (int s = 0; s < SIZES; s++)
			for (int kind = 0; kind < 3; kind++)
				for (size_t b = 0; b < sizeof bounds / sizeof bounds[0]; b++) {
					fill(x, sizes[s], kind);
					float *copy = copy_of(x, sizes[s]);
					check_sift(k < 0 ? reference : other(k), copy, sizes[s], key_of(bounds[b][0]),
						   key_of(bounds[b][1]));
					free(copy);
				}
}

static void check_mark(const struct gp_topk_loops *l, const float *x, size_t n, uint32_t threshold, uint64_t ties)
{
	uint64_t bits[WORDS + 1], left = ties;
	memset(bits, 0xa5, sizeof bits);
	const uint64_t behind = bits[(n + 63) / 64];
	l->mark(x, n, threshold, &left, bits);
	assert_true(bits[(n + 63) / 64] == behind);
	for (size_t i = 0; i < (n + 63) / 64 * 64; i++) {
		bool set = i < n && key_of(x[i]) > threshold;
		if (i < n && key_of(x[i]) == threshold && ties > 0) {
			set = true;
			ties--;
		}
		assert_int_equal(bits[i / 64] >> i % 64 & 1, set);
	}
	assert_true(left == ties);
}

static void marking_takes_the_first_of_equal_magnitudes(void **state)
{
	(void)state;
	static float x[MOST];
	static const uint64_t ties[] = {0, 1, 5, 33, 100, 5000};
	for (int k = -1; k < 0 || other(k); k++)
		for (int s = 0; s < SIZES; s++)
			for (int kind = 0; kind < 2; kind++)
				for (int t = 0; t < 6; t++) {
					fill(x, sizes[s], kind);
					float *copy = copy_of(x, sizes[s]);
					check_mark(k < 0 ? reference : other(k), copy, sizes[s], key_of((float)(t % 3)),
						   ties[t]);
					free(copy);
				}
}

/* share of 0..16: how many of 16 bits are set. */
static size_t random_bits(uint64_t *bits, size_t n, uint32_t share)
{
	size_t count = 0;
	memset(bits, 0, (n + 63) / 64 * sizeof *bits);
	for (size_t i = 0; i < n; i++) {
		const bool set = gp_rng_u32(6, share, i) % 16 < share;
		bits[i / 64] |= (uint64_t)set << i % 64;
		count += set;
	}
	return count;
}

static void check_moves(const struct gp_topk_loops *l, const float *x, size_t n, uint32_t share)
{
	uint64_t bits[WORDS];
	const size_t count = random_bits(bits, n, share);
	float *copy = copy_of(x, n), *chosen = calloc(count ? count : 1, sizeof *chosen), *y = copy_of(x, n);
	assert_int_equal(l->gather(copy, n, bits, chosen, count), count);
	size_t at = 0;
	for (size_t i = 0; i < n; i++)
		if (bits[i / 64] >> i % 64 & 1)
			assert_memory_equal(&chosen[at++], &x[i], sizeof *x);
	l->scatter(bits, n, chosen, count, y);
	for (size_t i = 0; i < n; i++) {
		const float expected = bits[i / 64] >> i % 64 & 1 ? x[i] : 0;
		assert_memory_equal(&y[i], &expected, sizeof expected);
	}
	free(y);
	free(chosen);
	free(copy);
}

static void elements_come_together_and_go_apart_again(void **state)
{
	(void)state;
	static float x[MOST];
	fill(x, MOST, 2);
	for (int k = -1; k < 0 || other(k); k++)
		for (int s = 0; s < SIZES; s++)
			for (uint32_t share = 0; share <= 16; share++)
				check_moves(k < 0 ? reference : other(k), x, sizes[s], share);
}

/* More bits than room: nothing is written or read past it. */
static void too_many_bits_stay_within_the_room(void **state)
{
	(void)state;
	static float x[MOST];
	uint64_t bits[WORDS];
	fill(x, MOST, 0);
	memset(bits, 0xff, sizeof bits);
	for (int k = -1; k < 0 || other(k); k++)
		for (size_t room = 0; room < 300; room += 23) {
			const struct gp_topk_loops *l = k < 0 ? reference : other(k);
			float *chosen = malloc(room ? room * sizeof *chosen : 1), y[1000];
			assert_int_equal(l->gather(x, 1000, bits, chosen, room), room);
			l->scatter(bits, 1000, chosen, room, y);
			assert_memory_equal(y, x, room * sizeof *y);
			free(chosen);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sifting_counts_and_keeps_what_the_window_says),
		cmocka_unit_test(marking_takes_the_first_of_equal_magnitudes),
		cmocka_unit_test(elements_come_together_and_go_apart_again),
		cmocka_unit_test(too_many_bits_stay_within_the_room),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
