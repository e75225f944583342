/* SPDX-License-Identifier: Apache-2.0
 *
 * GELU, tanh and e^x (kernels/cpu/math/curves.h, exp.h) beside the C library in
 * double precision, over all magnitudes; NaNs and infinities; and each
 * instruction set beside the portable one.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/math/curves.h"
#include "kernels/cpu/math/exp.h"

enum { PIECE = 4099, STEP = 9973 }; /* STEP: between the bits of neighbouring test values, some 430,000 of them */

static const enum gp_isa isas[] = {GP_ISA_PORTABLE, GP_ISA_AVX2, GP_ISA_AVX512};
enum { ISAS = sizeof isas / sizeof isas[0] };

/* --- what is right ----------------------------------------------------------------------------------------------- */

static double below(double x) /* the normal distribution's share below x */
{
	return 0.5 * erfc(-x * M_SQRT1_2);
}

static double gelu(double x)
{
	return x * below(x);
}

static double gelu_slope(double x)
{
	return below(x) + x * exp(-0.5 * x * x) / sqrt(2.0 * M_PI);
}

static double exponent(double x)
{
	return 2.0 * sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x);
}

static double gelu_tanh(double x)
{
	return x / (1.0 + exp(-exponent(x)));
}

static double gelu_tanh_slope(double x)
{
	const double share = 1.0 / (1.0 + exp(-exponent(x)));
	return share + x * share * (1.0 - share) * 2.0 * sqrt(2.0 / M_PI) * (1.0 + 3.0 * 0.044715 * x * x);
}

static double tanh_slope(double x)
{
	return 1.0 / (cosh(x) * cosh(x));
}

/* largest: of the arguments. bound: of the value's relative error, `growing`: times 1 and what e is raised to; of the
 * slope's error, relative where that is above 1. */
static const struct {
	const char *name;
	enum gp_curve curve;
	double (*value)(double), (*slope)(double);
	float largest;
	double bound, slope_bound;
	bool growing;
} curves[] = {
	{"gelu", GP_CURVE_GELU, gelu, gelu_slope, 1e30f, 4e-7, 2e-7, false},
	{"gelu by tanh", GP_CURVE_GELU_TANH, gelu_tanh, gelu_tanh_slope, 1e9f, 3e-7, 4e-7, true},
	{"tanh", GP_CURVE_TANH, tanh, tanh_slope, 1e30f, 2.5e-7, 3e-7, false},
};
enum { CURVES = sizeof curves / sizeof curves[0] };

/* --- all magnitudes ---------------------------------------------------------------------------------------------- */

struct errors {
	double value, slope;
};

/* Near the smallest normal number, 1.2e-38, precision ends. */
static double error_of(float got, double want, double scale)
{
	return fabs((double)got - want) / fmax(scale, 1e-31);
}

static void compare(size_t c, const float *x, int n, struct errors *e)
{
	float value[PIECE], slope[PIECE];
	gp_curve_values_and_slopes(curves[c].curve, value, slope, x, n);
	for (int i = 0; i < n; i++) {
		const double at = (double)x[i], v = curves[c].value(at), d = curves[c].slope(at);
		const double allowed = curves[c].growing ? 1.0 + fmax(0.0, -exponent(at)) : 1.0;
		e->value = fmax(e->value, error_of(value[i], v, fabs(v)) / allowed);
		e->slope = fmax(e->slope, error_of(slope[i], d, fmax(1.0, fabs(d))));
		if (!isfinite(value[i]) || !isfinite(slope[i]))
			fail_msg("%s(%g) is %g, slope %g", curves[c].name, at, (double)value[i], (double)slope[i]);
	}
}

static void values_and_slopes_agree_with_the_c_library(void **state)
{
	(void)state;
	for (size_t c = 0; c < CURVES; c++) {
		struct errors e = {0};
		float x[PIECE];
		int n = 0;
		for (uint64_t bits = 0; bits <= UINT32_MAX; bits += STEP) {
			x[n] = gp_float_of((uint32_t)bits);
			n += fabsf(x[n]) <= curves[c].largest; /* neither a NaN */
			if (n == PIECE || bits + STEP > UINT32_MAX) {
				compare(c, x, n, &e);
				n = 0;
			}
		}
		print_message("%s: relative error of the value %.3g, error of the slope %.3g\n", curves[c].name,
			      e.value, e.slope);
		assert_true(e.value < curves[c].bound && e.slope < curves[c].slope_bound);
	}
}

/* As activations are: what a layer's output is off by, in relative L2. */
static void errors_of_a_whole_tensor_are_as_if_rounded_once(void **state)
{
	(void)state;
	for (size_t c = 0; c < CURVES; c++) {
		float x[PIECE], got[PIECE];
		double diff = 0.0, norm = 0.0;
		for (int i = 0; i < PIECE; i++)
			x[i] = 6.0f * ((float)i / PIECE - 0.5f);
		gp_curve_values(curves[c].curve, got, x, PIECE);
		for (int i = 0; i < PIECE; i++) {
			const double want = curves[c].value((double)x[i]);
			diff += ((double)got[i] - want) * ((double)got[i] - want);
			norm += want * want;
		}
		if (!(sqrt(diff / norm) < 6e-8))
			fail_msg("%s: relative L2 error %.3g", curves[c].name, sqrt(diff / norm));
	}
}

static void powers_of_e_agree_with_the_c_library(void **state)
{
	(void)state;
	double worst = 0.0;
	for (uint32_t bits = 0x80000000u; bits < 0xff800000u; bits += STEP) {
		const float x = gp_float_of(bits);
		const double want = x < -87.0f ? 0.0 : exp((double)x);
		worst = fmax(worst, error_of(gp_exp_negative(x), want, want));
	}
	print_message("e^x: relative error %.3g\n", worst);
	assert_true(worst < 1.5e-7);
	assert_true(gp_exp_negative(0.0f) == 1.0f && gp_exp_negative(-0.0f) == 1.0f);
	assert_true(gp_exp_negative(-INFINITY) == 0.0f && isnan(gp_exp_negative(NAN)));
}

/* --- no numbers, and infinities ---------------------------------------------------------------------------------- */

static void nans_stay_and_infinities_have_their_limits(void **state)
{
	(void)state;
	const float x[] = {NAN, -NAN, INFINITY, -INFINITY, -0.0f};
	for (size_t c = 0; c < CURVES; c++) {
		const bool gelus = curves[c].curve != GP_CURVE_TANH;
		float value[5], slope[5];
		gp_curve_values_and_slopes(curves[c].curve, value, slope, x, 5);
		assert_true(isnan(value[0]) && isnan(value[1]) && isnan(slope[0]) && isnan(slope[1]));
		assert_true(value[2] == (gelus ? INFINITY : 1.0f) && slope[2] == (gelus ? 1.0f : 0.0f));
		assert_true(gelus ? isnan(value[3]) : value[3] == -1.0f);
		assert_true(slope[3] == 0.0f);
		assert_true(value[4] == 0.0f && signbit(value[4]) && slope[4] == (gelus ? 0.5f : 1.0f));
	}
}

/* --- instruction sets -------------------------------------------------------------------------------------------- */

/* Any bits are a value: but NaNs, whose bits processors choose, are made all alike. */
static void fill_with_anything(float *x, int n, uint32_t first)
{
	for (int i = 0; i < n; i++) {
		x[i] = gp_float_of(first + (uint32_t)i * 2654435761u);
		x[i] = isnan(x[i]) ? 1.5f : x[i];
	}
}

static void make_nans_alike(float *x, int n)
{
	for (int i = 0; i < n; i++)
		x[i] = isnan(x[i]) ? NAN : x[i];
}

enum { VALUE, VALUE_TOO, SLOPE, GRADIENT, TANH_GRADIENT, RESULTS };

/* In place, but for slopes. */
static void compute_all(enum gp_curve curve, float got[RESULTS][PIECE], const float *x, const float *dout, int n)
{
	memcpy(got[VALUE], x, (size_t)n * sizeof *x);
	memcpy(got[VALUE_TOO], x, (size_t)n * sizeof *x);
	memcpy(got[GRADIENT], dout, (size_t)n * sizeof *x);
	memcpy(got[TANH_GRADIENT], dout, (size_t)n * sizeof *x);
	gp_curve_values(curve, got[VALUE], got[VALUE], n);
	gp_curve_values_and_slopes(curve, got[VALUE_TOO], got[SLOPE], got[VALUE_TOO], n);
	gp_curve_gradient(got[GRADIENT], got[GRADIENT], got[SLOPE], n);
	gp_curve_tanh_gradient(got[TANH_GRADIENT], got[TANH_GRADIENT], got[VALUE], n);
	for (int i = 0; i < RESULTS; i++)
		make_nans_alike(got[i], n);
}

/* Arrays of all lengths up to a few vectors, and a long one. */
static void all_instruction_sets_give_the_same_bits(void **state)
{
	(void)state;
	static float x[PIECE], dout[PIECE], got[ISAS][RESULTS][PIECE];
	for (int n = 0; n <= PIECE; n += n < 70 ? 1 : PIECE - 70) {
		fill_with_anything(x, n, 17u * (uint32_t)n);
		for (int i = 0; i < n; i++)
			dout[i] = 0.25f * (float)(i % 37) - 4.0f;
		for (size_t c = 0; c < CURVES; c++)
			for (size_t k = 0; k < ISAS; k++) {
				gp_isa_limit(isas[k]);
				compute_all(curves[c].curve, got[k], x, dout, n);
				assert_memory_equal(got[k], got[0], sizeof got[0]);
				assert_memory_equal(got[k][VALUE], got[k][VALUE_TOO], (size_t)n * sizeof(float));
			}
	}
	gp_isa_limit(GP_ISA_AVX512);
}

/* The last curve is tanh. */
static void gradients_are_products_with_the_slopes(void **state)
{
	(void)state;
	float value[100], slope[100], x[100], dx[100], dout[100];
	for (int i = 0; i < 100; i++) {
		x[i] = 0.1f * (float)(i - 50);
		dout[i] = (float)(i % 7) - 3.0f;
	}
	for (size_t c = 0; c < CURVES; c++) {
		gp_curve_values_and_slopes(curves[c].curve, value, slope, x, 100);
		gp_curve_gradient(dx, dout, slope, 100);
		for (int i = 0; i < 100; i++)
			assert_true(dx[i] == dout[i] * slope[i]);
	}
	float again[100];
	gp_curve_tanh_gradient(again, dout, value, 100);
	assert_memory_equal(again, dx, sizeof dx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_and_slopes_agree_with_the_c_library),
		cmocka_unit_test(errors_of_a_whole_tensor_are_as_if_rounded_once),
		cmocka_unit_test(powers_of_e_agree_with_the_c_library),
		cmocka_unit_test(nans_stay_and_infinities_have_their_limits),
		cmocka_unit_test(all_instruction_sets_give_the_same_bits),
		cmocka_unit_test(gradients_are_products_with_the_slopes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
