/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops of low-rank factors (kernels/loops/factor_loops.h): against sums in fp64,
 * and every instruction set against the portable one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/rng.h"
#include "kernels/loops/factor_loops.h"
#include "kernels/loops/simd.h"

enum { ROWS = GP_FACTOR_BLOCK, MOST = 80 };

static void fill(float *x, int64_t n, uint64_t seed)
{
	for (int64_t i = 0; i < n; i++)
		x[i] = gp_rng_normal(seed, 1, (uint64_t)i);
}

static void gram_matrices_are_sums_of_products(void **state)
{
	(void)state;
	static float t[ROWS * MOST], sums[MOST * MOST];
	static double g[MOST * MOST], exact[MOST * MOST], wide[4 * MOST];
	fill(t, ROWS * MOST, 1);
	for (int64_t n = 16; n <= MOST; n += 16)
		for (int64_t rows = 1; rows <= ROWS; rows += rows < 10 ? 1 : 59) {
			memset(g, 0, sizeof g);
			memset(exact, 0, sizeof exact);
			gp_factor_gram(g, t, rows, n, sums);
			gp_factor_gram(g, t, rows, n, sums);
			gp_factor_gram_exact(exact, t, rows, n, wide);
			for (int64_t i = 0; i < n; i++)
				for (int64_t j = i; j < n; j++) {
					double sum = 0;
					for (int64_t r = 0; r < rows; r++)
						sum += (double)t[r * n + i] * (double)t[r * n + j];
					assert_true(fabs(g[i * n + j] - 2 * sum) < 1e-3);
					assert_true(fabs(exact[i * n + j] - sum) < 1e-11);
				}
		}
}

static void products_have_every_element_and_nothing_beside_them(void **state)
{
	(void)state;
	static float a[20 * 64], b[64 * MOST], out[20 * MOST + 1];
	fill(a, 20 * 64, 2);
	fill(b, 64 * MOST, 3);
	for (int64_t n = 1; n <= MOST; n += 7)
		for (int64_t rows = 1; rows <= 20; rows++)
			for (int64_t k = 1; k <= 64; k += 21) {
				out[rows * n] = 4711;
				gp_factor_product(out, a, 64, b, rows, k, n);
				assert_true(out[rows * n] == 4711);
				for (int64_t i = 0; i < rows; i++)
					for (int64_t j = 0; j < n; j++) {
						double sum = 0;
						for (int64_t l = 0; l < k; l++)
							sum += (double)a[i * 64 + l] *
							       (double)b[l * gp_factor_padded(n) + j];
						assert_true(fabs((double)out[i * n + j] - sum) < 1e-4);
					}
			}
}

static void small_steps_are_those_of_the_definition(void **state)
{
	(void)state;
	static double g[32 * 32], v[3 * 32], w[3 * 32];
	for (int i = 0; i < 32; i++)
		for (int j = 0; j < 32; j++)
			g[i * 32 + j] = i == j ? i + 1 : 0.5 / (1 + abs(i - j));
	for (int i = 0; i < 3 * 32; i++)
		v[i] = (double)gp_rng_normal(4, 1, (uint64_t)i);
	gp_factor_apply(w, v, g, 3, 32);
	for (int k = 0; k < 3; k++)
		for (int j = 0; j < 32; j++)
			assert_true(fabs(w[k * 32 + j] - gp_factor_dot(v + k * 32, g + j * 32, 32)) < 1e-12);
	const double before = gp_factor_dot(w, v, 32);
	gp_factor_add(w, 2, v, 32);
	gp_factor_scale(w, 0.5, 32);
	assert_true(fabs(gp_factor_dot(w, v, 32) - (before / 2 + gp_factor_dot(v, v, 32))) < 1e-11);
}

/* Everything above in one block of results. */
struct results {
	double g[MOST * MOST], exact[MOST * MOST], w[5 * MOST], dot;
	float product[20 * MOST];
};

static void compute(struct results *out, int64_t n)
{
	static float t[ROWS * MOST], sums[MOST * MOST];
	static double wide[4 * MOST], v[5 * MOST];
	memset(out, 0, sizeof *out);
	fill(t, ROWS * MOST, 5);
	for (int i = 0; i < 5 * MOST; i++)
		v[i] = (double)t[i] / 3;
	gp_factor_gram(out->g, t, 101, n, sums);
	gp_factor_gram_exact(out->exact, t, 101, n, wide);
	gp_factor_apply(out->w, v, out->g, 5, n);
	out->dot = gp_factor_dot(v, out->w, n);
	gp_factor_add(out->w, out->dot, v, n);
	gp_factor_product(out->product, t, n, t + 7, 19, 13, n - 5);
}

static void every_instruction_set_gives_the_bits_of_the_portable_one(void **state)
{
	(void)state;
	static struct results expected, got;
	for (int64_t n = 16; n <= MOST; n += 16) {
		gp_isa_limit(GP_ISA_PORTABLE);
		compute(&expected, n);
		for (enum gp_isa isa = GP_ISA_AVX2; isa <= GP_ISA_AVX512; isa++) {
			gp_isa_limit(isa);
			compute(&got, n);
			assert_memory_equal(&got, &expected, sizeof got);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gram_matrices_are_sums_of_products),
		cmocka_unit_test(products_have_every_element_and_nothing_beside_them),
		cmocka_unit_test(small_steps_are_those_of_the_definition),
		cmocka_unit_test(every_instruction_set_gives_the_bits_of_the_portable_one),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
