/* SPDX-License-Identifier: Apache-2.0
 *
 * Distance correlation: against NumPy (tests/tools/dump_distance.py), what leaves it as it is,
 * and its ends.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/privacy/distance_correlation.h"
#include "common/base/rng.h"
#include "common/store/safetensors.h"
#include "tests/unit/ok.h"

#define CASES "tests/golden/privacy/distance.safetensors"

enum { N = 200, EACH = 6 };

static float x[N * EACH], y[N * EACH];

static void draw(float *to, const char *name)
{
	for (int i = 0; i < N * EACH; i++)
		to[i] = gp_rng_normal(3, gp_rng_stream(GP_RNG_INIT, gp_rng_name_id(name)), (uint64_t)i);
}

static struct gp_distance_correlation correlate(void)
{
	struct gp_distance_correlation c;
	OK(gp_distance_correlation(x, EACH, y, EACH, N, &c, &err));
	return c;
}

static float *read_tensor(const struct gp_st_file *f, const char *name, const char *what, struct gp_shape *shape)
{
	char full[64];
	snprintf(full, sizeof full, "%s.%s", name, what);
	const struct gp_st_tensor *t = gp_st_find(f, full);
	assert_non_null(t);
	float *values = malloc(t->count * sizeof *values);
	assert_non_null(values);
	OK(gp_st_read_f32(t, values, &err));
	*shape = t->shape;
	return values;
}

static void check_case(const struct gp_st_file *f, const char *name)
{
	struct gp_shape of_x, of_y, two;
	struct gp_distance_correlation c;
	float *a = read_tensor(f, name, "x", &of_x), *b = read_tensor(f, name, "y", &of_y);
	float *want = read_tensor(f, name, "squares", &two);
	OK(gp_distance_correlation(a, (size_t)of_x.dim[1], b, (size_t)of_y.dim[1], (int)of_x.dim[0], &c, &err));
	print_message("%s: plain %.7f (%.7f), corrected %.7f (%.7f)\n", name, c.plain * c.plain, (double)want[0],
		      c.squared, (double)want[1]);
	assert_true(fabs(c.plain * c.plain - (double)want[0]) < 1e-6);
	assert_true(fabs(c.squared - (double)want[1]) < 1e-5);
	assert_true(c.corrected == (c.squared > 0 ? sqrt(c.squared) : 0));
	free(a);
	free(b);
	free(want);
}

static void both_estimates_are_those_of_numpy(void **state)
{
	static const char *const names[] = {"linear", "square", "independent", "few", "wide"};
	struct gp_st_file *f;
	(void)state;
	OK(gp_st_open(CASES, &f, &err));
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		check_case(f, names[i]);
	gp_st_close(f);
}

static void it_is_1_of_a_set_with_itself(void **state)
{
	(void)state;
	draw(x, "x");
	memcpy(y, x, sizeof x);
	const struct gp_distance_correlation c = correlate();
	assert_true(fabs(c.plain - 1) < 1e-6 && fabs(c.corrected - 1) < 1e-6);
}

/* The first two coordinates are turned by 30 degrees; then all is moved and scaled. */
static void turning_moving_and_scaling_change_nothing(void **state)
{
	(void)state;
	draw(x, "x");
	draw(y, "y");
	for (int i = 0; i < N; i++) /* some dependence */
		y[i * EACH] += x[i * EACH + 1];
	const struct gp_distance_correlation before = correlate();
	for (int i = 0; i < N; i++) {
		float *p = y + i * EACH;
		const float a = p[0], b = p[1];
		p[0] = 0.8660254f * a - 0.5f * b;
		p[1] = 0.5f * a + 0.8660254f * b;
		for (int k = 0; k < EACH; k++)
			p[k] = 3.7f * p[k] + (float)k;
	}
	const struct gp_distance_correlation after = correlate();
	assert_true(before.corrected > 0.2);
	assert_true(fabs(before.plain - after.plain) < 1e-5 && fabs(before.squared - after.squared) < 1e-5);
}

static void independent_samples_are_near_0_when_corrected(void **state)
{
	(void)state;
	draw(x, "x");
	draw(y, "y");
	const struct gp_distance_correlation c = correlate();
	assert_true(fabs(c.squared) < 0.02);
	assert_true(c.plain > 0.15); /* biased, although there is nothing */
}

static void a_constant_depends_on_nothing(void **state)
{
	(void)state;
	draw(x, "x");
	memset(y, 0, sizeof y);
	const struct gp_distance_correlation c = correlate();
	assert_true(c.plain == 0 && c.corrected == 0);
}

static void what_is_not_finite_has_no_correlation(void **state)
{
	(void)state;
	draw(x, "x");
	draw(y, "y");
	y[5] = NAN;
	const struct gp_distance_correlation c = correlate();
	assert_true(isnan(c.corrected) && isnan(c.plain));
}

static void samples_are_limited_by_their_number_and_by_memory(void **state)
{
	(void)state;
	assert_int_equal(gp_distance_samples(32, 1000), 32);
	assert_int_equal(gp_distance_samples(1000, 1000), GP_DISTANCE_SAMPLES);
	assert_int_equal(gp_distance_samples(1000, 1 << 20), 64);
	assert_int_equal(gp_distance_samples(1000, UINT64_C(1) << 30), GP_DISTANCE_LEAST);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_estimates_are_those_of_numpy),
		cmocka_unit_test(it_is_1_of_a_set_with_itself),
		cmocka_unit_test(turning_moving_and_scaling_change_nothing),
		cmocka_unit_test(independent_samples_are_near_0_when_corrected),
		cmocka_unit_test(a_constant_depends_on_nothing),
		cmocka_unit_test(what_is_not_finite_has_no_correlation),
		cmocka_unit_test(samples_are_limited_by_their_number_and_by_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
