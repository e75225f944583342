/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch normalization's loops beside plain double-precision sums, and each
 * instruction set beside the portable one.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/rng.h"
#include "kernels/cpu/math/bn_rows.h"
#include "kernels/loops/simd.h"

struct bench {
	struct gp_bn s;
	float *x, *dout, *out, *sums;
	float *vec[BN_VECTORS];
};

static float *draws(int64_t n, uint64_t stream, float scale, float shift)
{
	float *v = malloc((size_t)n * sizeof *v);
	assert_non_null(v);
	for (int64_t i = 0; i < n; i++)
		v[i] = shift + scale * (float)(gp_rng_uniform(7, stream, (uint64_t)i) - 0.5f);
	return v;
}

static struct bench setup(int64_t images, int64_t pixels, int64_t channels)
{
	struct bench b = {.s = gp_bn_shape(images, pixels, channels)};
	const int64_t n = b.s.rows * channels;
	b.x = draws(n, 1, 20.0f, 3.0f);
	b.dout = draws(n, 2, 2.0f, 0.0f);
	b.out = draws(n, 3, 1.0f, 0.0f);
	b.sums = draws(2 * b.s.blocks * channels, 4, 1.0f, 0.0f);
	for (int v = 0; v < BN_VECTORS; v++) {
		b.vec[v] = draws(b.s.width, 5 + (uint64_t)v, 1.0f, 0.5f);
		gp_bn_fold_out(&b.s, b.vec[v]);
	}
	b.x[n / 2] = NAN;
	return b;
}

static void teardown(struct bench *b)
{
	free(b->x);
	free(b->dout);
	free(b->out);
	free(b->sums);
	for (int v = 0; v < BN_VECTORS; v++)
		free(b->vec[v]);
}

static int64_t rows_of(const struct gp_bn *s, int64_t block)
{
	int64_t left = s->rows - block * s->block;
	return left < s->block ? left : s->block;
}

/* Everything the loops give, one after another, into one array; returns its length. */
static int64_t run_all(struct bench *b, enum cpu_act act, float *all)
{
	const int64_t n = b->s.rows * b->s.channels, sums = 2 * b->s.blocks * b->s.channels;
	gp_bn_apply(&b->s, act, b->x, all, b->s.rows, b->vec);
	gp_bn_gradient(&b->s, act, b->dout, b->x, all + n, b->s.rows, b->vec);
	for (int64_t k = 0; k < b->s.blocks; k++) {
		const int64_t at = k * b->s.block * b->s.channels, to = 2 * n + 2 * k * b->s.channels;
		gp_bn_sum_values(&b->s, b->x + at, rows_of(&b->s, k), all + to);
		gp_bn_sum_gradients(&b->s, act, b->dout + at, b->x + at, rows_of(&b->s, k), b->vec, all + to + sums);
	}
	return 2 * n + 2 * sums;
}

static const struct {
	int64_t images, pixels, channels;
} sizes[] = {{3, 49, 24}, {2, 64, 96}, {5, 1, 7}, {1, 7, 1030}, {50, 4, 16}, {1, 97, 63}, {2, 53 * 2, 33}, {1, 1, 1}};
#define SIZES (sizeof sizes / sizeof sizes[0])

static void every_instruction_set_gives_the_same_bits(void **state)
{
	(void)state;
	for (size_t i = 0; i < SIZES; i++) {
		struct bench b = setup(sizes[i].images, sizes[i].pixels, sizes[i].channels);
		const int64_t room = 2 * b.s.rows * b.s.channels + 4 * b.s.blocks * b.s.channels;
		float *want = calloc((size_t)room, sizeof *want), *got = calloc((size_t)room, sizeof *got);
		for (int act = CPU_ACT_NONE; act <= CPU_ACT_RELU6; act++) {
			gp_isa_limit(GP_ISA_PORTABLE);
			assert_int_equal(run_all(&b, (enum cpu_act)act, want), room);
			for (int isa = GP_ISA_AVX2; isa <= GP_ISA_AVX512; isa++) {
				gp_isa_limit((enum gp_isa)isa);
				run_all(&b, (enum cpu_act)act, got);
				assert_memory_equal(got, want, (size_t)room * sizeof *got);
			}
		}
		free(want);
		free(got);
		teardown(&b);
	}
}

static void mean_and_variance_are_those_of_all_rows(void **state)
{
	(void)state;
	for (size_t i = 0; i < SIZES; i++) {
		struct bench b = setup(sizes[i].images, sizes[i].pixels, sizes[i].channels);
		const int64_t c = b.s.channels;
		double *mean = calloc((size_t)c, sizeof *mean), *var = calloc((size_t)c, sizeof *var);
		b.x[b.s.rows * c / 2] = 1.0f;
		for (int64_t r = 0; r < b.s.rows; r++) /* the same numbers far from zero are as exact */
			b.x[r * c] += 1000.0f;
		for (int64_t k = 0; k < b.s.blocks; k++)
			gp_bn_sum_values(&b.s, b.x + k * b.s.block * c, rows_of(&b.s, k), b.sums + 2 * k * c);
		gp_bn_total_values(&b.s, b.sums, mean, var);
		for (int64_t ch = 0; ch < c; ch++) {
			double m = 0.0, v = 0.0, n = (double)b.s.rows;
			for (int64_t r = 0; r < b.s.rows; r++)
				m += (double)b.x[r * c + ch] / n;
			for (int64_t r = 0; r < b.s.rows; r++)
				v += ((double)b.x[r * c + ch] - m) * ((double)b.x[r * c + ch] - m) / n;
			assert_true(fabs(mean[ch] - m) <= 1e-6 * (fabs(m) + sqrt(v)));
			assert_true(fabs(var[ch] - v) <= 1e-4 * v + 1e-12);
		}
		free(mean);
		free(var);
		teardown(&b);
	}
}

static void gradient_sums_are_those_of_all_rows(void **state)
{
	(void)state;
	for (size_t i = 0; i < SIZES; i++) {
		struct bench b = setup(sizes[i].images, sizes[i].pixels, sizes[i].channels);
		const int64_t c = b.s.channels;
		double *sum = calloc((size_t)c, sizeof *sum), *dot = calloc((size_t)c, sizeof *dot);
		b.x[b.s.rows * c / 2] = 1.0f;
		for (int64_t k = 0; k < b.s.blocks; k++)
			gp_bn_sum_gradients(&b.s, CPU_ACT_RELU6, b.dout + k * b.s.block * c, b.x + k * b.s.block * c,
					    rows_of(&b.s, k), b.vec, b.sums + 2 * k * c);
		gp_bn_total_gradients(&b.s, b.sums, sum, dot);
		for (int64_t ch = 0; ch < c; ch++) {
			double want_sum = 0.0, want_dot = 0.0, size = 1e-9;
			for (int64_t r = 0; r < b.s.rows; r++) {
				float x = b.x[r * c + ch], z = x * b.vec[BN_A][ch] + b.vec[BN_B][ch];
				double g = z > 0.0f && z < 6.0f ? (double)b.dout[r * c + ch] : 0.0;
				want_sum += g;
				want_dot += g * ((double)x - (double)b.vec[BN_MEAN][ch]);
				size += fabs(g) * (1.0 + fabs((double)x));
			}
			assert_true(fabs(sum[ch] - want_sum) <= 1e-5 * size);
			assert_true(fabs(dot[ch] - want_dot) <= 1e-5 * size);
		}
		free(sum);
		free(dot);
		teardown(&b);
	}
}

static void blocks_meet_images_wherever_sizes_allow(void **state)
{
	(void)state;
	static const int64_t pixels[] = {1, 4, 16, 49, 64, 196, 784, 3136, 12544, 1024, 4096, 50176};
	for (size_t i = 0; i < sizeof pixels / sizeof pixels[0]; i++) {
		int64_t block = gp_bn_block(pixels[i]);
		assert_in_range(block, 48, 128);
		assert_true(pixels[i] % block == 0 || block % pixels[i] == 0);
	}
	assert_int_equal(gp_bn_block(10007), 48); /* a prime number */
}

static int restore_isa(void **state)
{
	(void)state;
	gp_isa_limit(GP_ISA_AVX512);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(every_instruction_set_gives_the_same_bits, restore_isa),
		cmocka_unit_test(mean_and_variance_are_those_of_all_rows),
		cmocka_unit_test(gradient_sums_are_those_of_all_rows),
		cmocka_unit_test(blocks_meet_images_wherever_sizes_allow),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
