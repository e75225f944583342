/* SPDX-License-Identifier: Apache-2.0
 *
 * Level quantizers through the public interface: unbiased, reproducible, the
 * promised error, the values at the edges, hostile payloads.
 */
#include "tests/unit/codec_rig.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "common/codec/codec_impl.h"
#include "common/base/rng.h"

static const char *const specs[] = {"qsgd:bits=1",    "qsgd:bits=4,bucket=100", "qsgd:bits=8",
				    "qsgdinf:bits=2", "qsgdinf:bits=4",         "qsgdinf:bits=8,bucket=7",
				    "nuqsgd:bits=3",  "nuqsgd:bits=4",          "nuqsgd:bits=8",
				    "terngrad",       "terngrad:bucket=65536"};
enum { SPECS = sizeof specs / sizeof specs[0] };

/* The payload goes to `out`, or nowhere. */
static size_t send(struct gp_codec *c, uint64_t draw, const float *x, float *y, uint8_t *out)
{
	struct gp_err err = {0};
	size_t len;
	uint8_t *payload = out ? out : malloc(gp_codec_bound(c));
	assert_int_equal(gp_codec_encode(c, x, draw, payload, gp_codec_bound(c), &len, &err), GP_OK);
	assert_int_equal(gp_codec_decode(c, (struct gp_span){payload, len}, y, &err), GP_OK);
	if (!out)
		free(payload);
	return len;
}

enum { KINDS = 20 }; /* different values in the tensor */

struct error_sum {
	double sum, square;
};

static bool within_four_standard_errors(struct error_sum e)
{
	return fabs(e.sum) <= 4 * sqrt(e.square);
}

/* 10^6 draws. */
static void check_unbiased(const char *spec)
{
	enum { N = 4000, PASSES = 250 };
	static float x[N], y[N];
	struct gp_codec *c = row_codec(spec, N, 11);
	struct error_sum all = {0}, kind[KINDS] = {0};
	for (int i = 0; i < N; i++)
		x[i] = (float)(i % KINDS) * 0.17f - 1.5f;
	for (uint64_t pass = 0; pass < PASSES; pass++) {
		send(c, pass, x, y, NULL);
		for (int i = 0; i < N; i++) {
			const double e = (double)y[i] - (double)x[i];
			kind[i % KINDS].sum += e;
			kind[i % KINDS].square += e * e;
		}
	}
	for (int k = 0; k < KINDS; k++) {
		all.sum += kind[k].sum;
		all.square += kind[k].square;
		assert_true(within_four_standard_errors(kind[k]));
	}
	print_message("%s: mean error %.2f standard errors from 0\n", spec, all.sum / sqrt(all.square));
	assert_true(within_four_standard_errors(all));
	gp_codec_free(c);
}

/* Over the tensor, and for each value in it. */
static void rounding_is_unbiased(void **state)
{
	(void)state;
	for (int s = 0; s < SPECS; s++)
		check_unbiased(specs[s]);
}

static void the_same_seed_and_draw_give_the_same_payload(void **state)
{
	(void)state;
	enum { N = 3000 };
	static float x[N], y[N];
	static uint8_t first[5 * N], again[5 * N], next[5 * N];
	for (uint64_t i = 0; i < N; i++)
		x[i] = gp_rng_normal(3, 4, i);
	for (int s = 0; s < SPECS; s++) {
		struct gp_codec *a = row_codec(specs[s], N, 11), *b = row_codec(specs[s], N, 11);
		assert_true(gp_codec_bound(a) <= sizeof first);
		const size_t len = send(a, 5, x, y, first);
		send(b, 6, x, y, next);
		assert_int_equal(send(b, 5, x, y, again), len);
		assert_memory_equal(first, again, len);
		assert_memory_not_equal(first, next, len);
		gp_codec_free(a);
		gp_codec_free(b);
	}
}

/* An element moves by less than the gap between the levels around it. */
static void errors_stay_below_the_widest_gap(void **state)
{
	(void)state;
	enum { N = 2048 };
	static float x[N], y[N];
	static const struct {
		const char *spec;
		double gap;
	} cases[] = {{"qsgdinf:bits=8,bucket=2048", 2.0 / 255},
		     {"qsgdinf:bits=2,bucket=2048", 2.0 / 3},
		     {"nuqsgd:bits=4,bucket=2048", 0.5},
		     {"terngrad:bucket=2048", 1}};
	for (uint64_t i = 0; i < N; i++)
		x[i] = gp_rng_uniform(3, 4, i) * 2 - 1;
	x[77] = -1;
	for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
		struct gp_codec *c = row_codec(cases[k].spec, N, 11);
		double norm = 1;
		for (int i = 0; i < N && cases[k].spec[0] == 'n'; i++)
			norm = i ? norm + (double)x[i] * (double)x[i] : (double)x[0] * (double)x[0];
		send(c, 1, x, y, NULL);
		for (int i = 0; i < N; i++)
			assert_true(fabs((double)y[i] - (double)x[i]) <= cases[k].gap * sqrt(norm) * 1.00001);
		gp_codec_free(c);
	}
}

/* What is a level of its bucket is exact: zeros, and a bucket's only element or largest magnitude. */
static void ends_and_zeros_are_exact(void **state)
{
	(void)state;
	static const float values[] = {0.1f, -3e38f, FLT_MAX, -FLT_TRUE_MIN, 1e-40f, 0};
	for (size_t v = 0; v < sizeof values / sizeof values[0]; v++)
		for (int s = 0; s < SPECS; s++) {
			float x[30], y[30];
			for (int i = 0; i < 30; i++)
				x[i] = values[v];
			struct gp_codec *one = row_codec(specs[s], 1, 11), *many = row_codec(specs[s], 30, 11);
			send(one, v, x, y, NULL);
			assert_true(x[0] == y[0]);
			send(many, v, x, y, NULL);
			for (int i = 0; i < 30 && (strstr(specs[s], "inf") || strstr(specs[s], "tern")); i++)
				assert_true(x[i] == y[i]);
			for (int i = 0; i < 30 && values[v] == 0; i++)
				assert_true(y[i] == 0);
			gp_codec_free(one);
			gp_codec_free(many);
		}
}

/* A norm that overflows sends the tensor raw; large values alone do not. */
static void huge_buckets_travel_raw_and_huge_values_do_not(void **state)
{
	(void)state;
	struct gp_codec_stats stats;
	float x[16], y[16];
	for (int i = 0; i < 16; i++)
		x[i] = i % 2 ? 3e38f : -3e38f;
	for (int s = 0; s < 2; s++) {
		struct gp_codec *c = row_codec(s ? "qsgdinf" : "qsgd", 16, 11);
		send(c, 0, x, y, NULL);
		gp_codec_get_stats(c, &stats);
		assert_int_equal(stats.raw_fallbacks, !s);
		assert_memory_equal(x, y, sizeof x);
		gp_codec_free(c);
	}
}

static void payload_sizes_are_those_documented(void **state)
{
	(void)state;
	static const struct {
		const char *spec;
		size_t len;
	} cases[] = {{"qsgd:bits=4,bucket=512", 4 + 4 * 2 + 501},
		     {"qsgdinf:bits=3,bucket=1000", 4 + 4 * 2 + 376},
		     {"nuqsgd:bits=8,bucket=2000", 4 + 4 + 1001},
		     {"terngrad:bucket=1", 4 + 4 * 1001 + 251}};
	float x[1001] = {1}, y[1001];
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct gp_codec *c = row_codec(cases[i].spec, 1001, 11);
		assert_int_equal(send(c, 0, x, y, NULL), cases[i].len);
		assert_int_equal(gp_codec_bound(c) >= cases[i].len, 1);
		gp_codec_free(c);
	}
}

static void norms_and_codes_that_cannot_be_are_refused(void **state)
{
	(void)state;
	static const float bad[] = {-1, -FLT_TRUE_MIN, NAN, INFINITY, -INFINITY};
	struct gp_err err = {0};
	uint8_t payload[4 + 4 * 2 + 2] = {0};
	float y[7];
	struct gp_codec *c = row_codec("terngrad:bucket=4", 7, 11);
	const struct gp_span span = {payload, sizeof payload};
	assert_int_equal(gp_codec_decode(c, span, y, &err), GP_OK);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		gp_put_f32(payload + 8, bad[i]);
		assert_int_equal(gp_codec_decode(c, span, y, &err), GP_PROTO);
	}
	gp_put_f32(payload + 8, FLT_MAX);
	assert_int_equal(gp_codec_decode(c, span, y, &err), GP_OK);
	payload[12] = 0x30; /* code 3 */
	assert_int_equal(gp_codec_decode(c, span, y, &err), GP_PROTO);
	payload[12] = 0x2a;
	payload[13] = 0x40; /* behind the last code */
	assert_int_equal(gp_codec_decode(c, span, y, &err), GP_PROTO);
	payload[13] = 0;
	assert_int_equal(gp_codec_decode(c, span, y, &err), GP_OK);
	gp_codec_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rounding_is_unbiased),
		cmocka_unit_test(the_same_seed_and_draw_give_the_same_payload),
		cmocka_unit_test(errors_stay_below_the_widest_gap),
		cmocka_unit_test(ends_and_zeros_are_exact),
		cmocka_unit_test(huge_buckets_travel_raw_and_huge_values_do_not),
		cmocka_unit_test(payload_sizes_are_those_documented),
		cmocka_unit_test(norms_and_codes_that_cannot_be_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
