/* SPDX-License-Identifier: Apache-2.0
 *
 * 8-bit floating-point loops (kernels/loops/fp8_loops.h): the reference against
 * the definition of the formats, the others against the reference.
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
#include "kernels/loops/fp8_loops.h"
#include "kernels/loops/versions.h"

static const struct gp_fp8_loops *const reference = &gp_fp8_loops_portable;

/* The other versions this machine can run; NULL past the end. */
static const struct gp_fp8_loops *other(int index)
{
	static const struct gp_fp8_loops *const versions[] = GP_LOOP_VERSIONS(&gp_fp8_loops);
	return index < (int)gp_isa_best() ? versions[index + 1] : NULL;
}

static float from_bits(uint32_t u)
{
	float v;
	memcpy(&v, &u, sizeof v);
	return v;
}

/* Value of a magnitude from the definition: sign, exponent with bias, mantissa. */
static double value_of(int magnitude, int mantissa_bits, int bias)
{
	const int exponent = magnitude >> mantissa_bits, mantissa = magnitude & ((1 << mantissa_bits) - 1);
	const double scale = ldexp(1, -mantissa_bits);
	return exponent ? ldexp(1 + mantissa * scale, exponent - bias) : ldexp(mantissa * scale, 1 - bias);
}

/* The nearest magnitude up to `most`, ties to even, by trying. */
static int nearest(double x, int most, int mantissa_bits, int bias)
{
	int best = 0;
	if (x >= value_of(most, mantissa_bits, bias))
		return most;
	for (int m = 1; m <= most; m++) {
		const double d = fabs(value_of(m, mantissa_bits, bias) - x);
		const double least = fabs(value_of(best, mantissa_bits, bias) - x);
		if (d < least || (d == least && m % 2 == 0))
			best = m;
	}
	return best;
}

struct format {
	int most, mantissa_bits, bias;
	bool (*to)(const float *, size_t, uint8_t *);
	bool (*from)(const uint8_t *, size_t, float *);
};

static struct format format_of(int index)
{
	return index ? (struct format){0x7e, 3, 7, reference->to_e4m3, reference->from_e4m3}
		     : (struct format){0x7b, 2, 15, reference->to_e5m2, reference->from_e5m2};
}

static void every_byte_has_the_value_of_its_format(void **state)
{
	(void)state;
	for (int f = 0; f < 2; f++) {
		const struct format format = format_of(f);
		for (int b = 0; b < 256; b++) {
			const uint8_t byte = (uint8_t)b;
			float x;
			const bool number = format.from(&byte, 1, &x);
			assert_int_equal(number, (b & 0x7f) <= format.most);
			if (!number)
				continue;
			const double magnitude = value_of(b & 0x7f, format.mantissa_bits, format.bias);
			assert_true((double)x == (b & 0x80 ? -magnitude : magnitude));
			assert_int_equal(signbit(x) != 0, b >> 7);
		}
	}
}

static void check_rounding(const struct format *format, float x)
{
	uint8_t code;
	assert_true(format->to(&x, 1, &code));
	assert_int_equal(code & 0x7f, nearest(fabs((double)x), format->most, format->mantissa_bits, format->bias));
	assert_int_equal(code >> 7, signbit(x) != 0);
}

/* Values, the ties between them and what lies just beside a tie; then anything. */
static void numbers_round_to_the_nearest_even_and_saturate(void **state)
{
	(void)state;
	for (int f = 0; f < 2; f++) {
		const struct format format = format_of(f);
		for (int m = 0; m <= format.most; m++) {
			const float low = (float)value_of(m, format.mantissa_bits, format.bias);
			const float high = (float)value_of(m + 1, format.mantissa_bits, format.bias);
			const float tie = (low + high) / 2;
			check_rounding(&format, low);
			check_rounding(&format, -tie);
			check_rounding(&format, nextafterf(tie, 0));
			check_rounding(&format, nextafterf(tie, INFINITY));
		}
		check_rounding(&format, FLT_MAX);
		check_rounding(&format, -FLT_MIN / 2);
		for (uint64_t i = 0; i < 5000; i++)
			check_rounding(&format, ldexpf(gp_rng_uniform(1, 2, i) - 0.5f, (int)(i % 60) - 30));
	}
}

static void what_is_not_finite_is_reported(void **state)
{
	(void)state;
	const float bad[] = {NAN, INFINITY, -INFINITY, -NAN};
	for (int k = -1; k < 0 || other(k); k++) {
		const struct gp_fp8_loops *l = k < 0 ? reference : other(k);
		for (size_t at = 0; at < 100; at++) {
			float x[100] = {0};
			uint8_t out[100];
			struct gp_log_sum sum = {0};
			x[at] = bad[at % 4];
			assert_false(l->to_e5m2(x, 100, out));
			assert_false(l->to_e4m3(x, 100, out));
			l->add_logs(x, 100, &sum);
			assert_true(sum.largest >= 0x7f800000u);
		}
	}
}

static const size_t sizes[] = {0, 1, 15, 16, 17, 31, 32, 33, 64, 100, 1023, 1024, 1025, 2048, 5000};
enum { SIZES = sizeof sizes / sizeof sizes[0], MOST = 5000 };

/* kind 0: any bits, 1: finite bits, 2: normal values with zeros, 3: subnormals. */
static void fill(float *x, size_t n, int kind)
{
	for (size_t i = 0; i < n; i++) {
		const uint32_t u = gp_rng_u32(4, (uint64_t)kind, i);
		x[i] = from_bits(kind == 1 && (u & 0x7f800000u) == 0x7f800000u ? u & 0xff7fffffu : u);
		if (kind == 2)
			x[i] = u % 5 ? gp_rng_normal(4, 9, i) : u % 2 ? 0.0f : -0.0f;
		if (kind == 3)
			x[i] = from_bits(u & 0x807fffffu);
	}
}

static void every_instruction_set_gives_the_bits_of_the_reference(void **state)
{
	(void)state;
	static float x[MOST], y[MOST], expected_y[MOST], table[128];
	static uint8_t out[MOST + 1], expected[MOST + 1];
	for (int i = 1; i < 128; i++)
		table[i] = (float)i * 1.1f;
	for (int k = 0; other(k); k++)
		for (int s = 0; s < SIZES; s++)
			for (int kind = 0; kind < 4; kind++) {
				const struct gp_fp8_loops *l = other(k);
				const size_t n = sizes[s];
				fill(x, n, kind);
				out[n] = expected[n] = 0xa5;
				bool good = reference->to_e5m2(x, n, expected);
				assert_int_equal(l->to_e5m2(x, n, out), good);
				if (good)
					assert_memory_equal(out, expected, n + 1);
				good = reference->to_e4m3(x, n, expected);
				assert_int_equal(l->to_e4m3(x, n, out), good);
				if (good)
					assert_memory_equal(out, expected, n + 1);
				if (good) {
					reference->to_s2fp8(x, n, 1.7f, 0.3f, expected);
					l->to_s2fp8(x, n, 1.7f, 0.3f, out);
					assert_memory_equal(out, expected, n + 1);
				}
				const uint8_t *bytes = (const uint8_t *)x;
				good = reference->from_e5m2(bytes, n, expected_y);
				assert_int_equal(l->from_e5m2(bytes, n, y), good);
				assert_true(!good || memcmp(y, expected_y, n * sizeof *y) == 0);
				good = reference->from_e4m3(bytes, n, expected_y);
				assert_int_equal(l->from_e4m3(bytes, n, y), good);
				assert_true(!good || memcmp(y, expected_y, n * sizeof *y) == 0);
				good = reference->from_s2fp8(bytes, n, table, expected_y);
				assert_int_equal(l->from_s2fp8(bytes, n, table, y), good);
				assert_true(!good || memcmp(y, expected_y, n * sizeof *y) == 0);
				struct gp_log_sum a = {0}, b = {0};
				reference->add_logs(x, n, &a);
				l->add_logs(x, n, &b);
				assert_int_equal(a.largest, b.largest);
				if (a.largest < 0x7f800000u)
					assert_true(a.exponents == b.exponents && a.product == b.product);
			}
}

/* All bytes that are numbers, at every place in a vector. */
static void every_instruction_set_decodes_every_byte_alike(void **state)
{
	(void)state;
	uint8_t in[256];
	float y[256], expected[256], table[128];
	for (int i = 0; i < 128; i++)
		table[i] = (float)i;
	for (int k = 0; other(k); k++)
		for (int shift = 0; shift < 64; shift++) {
			for (int i = 0; i < 256; i++)
				in[i] = (uint8_t)((i + shift) % 0x7c | (i & 0x80));
			assert_true(reference->from_e5m2(in, 256, expected) && other(k)->from_e5m2(in, 256, y));
			assert_memory_equal(y, expected, sizeof y);
			assert_true(reference->from_e4m3(in, 256, expected) && other(k)->from_e4m3(in, 256, y));
			assert_memory_equal(y, expected, sizeof y);
			assert_true(reference->from_s2fp8(in, 256, table, expected) &&
				    other(k)->from_s2fp8(in, 256, table, y));
			assert_memory_equal(y, expected, sizeof y);
		}
}

static void sums_of_logarithms_are_those_of_the_library(void **state)
{
	(void)state;
	static float x[MOST];
	for (int kind = 1; kind < 4; kind++)
		for (int s = 1; s < SIZES; s++) {
			struct gp_log_sum sum = {0};
			double expected = 0, top = -1e9;
			fill(x, sizes[s], kind);
			for (size_t i = 0; i < sizes[s]; i++) {
				const double l = x[i] == 0 ? 0 : log2(fabs((double)x[i]));
				expected += l;
				top = fmax(top, l);
			}
			reference->add_logs(x, sizes[s], &sum);
			const double got = (double)sum.exponents + log2(sum.product);
			assert_true(fabs(got - expected) < 1e-6 * (double)sizes[s]);
			assert_true(fabs(log2((double)from_bits(sum.largest)) - top) < 1e-9);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_byte_has_the_value_of_its_format),
		cmocka_unit_test(numbers_round_to_the_nearest_even_and_saturate),
		cmocka_unit_test(what_is_not_finite_is_reported),
		cmocka_unit_test(every_instruction_set_gives_the_bits_of_the_reference),
		cmocka_unit_test(every_instruction_set_decodes_every_byte_alike),
		cmocka_unit_test(sums_of_logarithms_are_those_of_the_library),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
