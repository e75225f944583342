/* SPDX-License-Identifier: Apache-2.0
 *
 * hadamard through the public interface and its loops alone: bit for bit what
 * tests/tools/dump_hadamard.py computes, the transform that its definition
 * says, back again, what it does to outliers, and what a peer may not send.
 */
#include "tests/unit/codec_golden.h"

#include <float.h>
#include <math.h>

#include "common/base/rng.h"
#include "kernels/loops/hadamard_loops.h"
#include "kernels/loops/versions.h"

enum { N = 5000 };

static const struct gp_hadamard_loops *const loops[] = GP_LOOP_VERSIONS(&gp_hadamard_loops);

static void payloads_and_tensors_are_those_of_the_reference(void **state)
{
	(void)state;
	assert_int_equal(golden_cases(GOLDEN "hadamard.safetensors"), 18);
}

static float normal(uint64_t i)
{
	return gp_rng_normal(31, 1, i);
}

static void fill_signs(uint32_t sign[GP_HADAMARD_MOST])
{
	for (uint32_t i = 0; i < GP_HADAMARD_MOST; i++)
		sign[i] = gp_rng_u32(3, 3, i) & 0x80000000u;
}

static double sign_of(uint32_t bits)
{
	return bits ? -1 : 1;
}

/* Row k of the matrix times the block, in double precision. */
static double defined(const uint32_t *sign, const float *x, unsigned size, unsigned k)
{
	double sum = 0;
	for (unsigned i = 0; i < size; i++)
		sum += (__builtin_popcount(i & k) % 2 ? -1 : 1) * sign_of(sign[i]) * (double)x[i];
	return sum / sqrt((double)size);
}

static void each_element_is_a_row_of_the_matrix_times_its_block(void **state)
{
	(void)state;
	static uint32_t sign[GP_HADAMARD_MOST];
	static float x[GP_HADAMARD_MOST], y[GP_HADAMARD_MOST], z[GP_HADAMARD_MOST];
	fill_signs(sign);
	for (int levels = 0; levels <= GP_HADAMARD_LEVELS; levels++) {
		const unsigned size = 1u << levels;
		for (unsigned i = 0; i < size; i++)
			x[i] = normal(i);
		gp_hadamard_loops_portable.forward(sign, levels, x, size, y);
		for (unsigned k = 0; k < size; k++)
			assert_true(fabs((double)y[k] - defined(sign, x, size, k)) < 4e-6);
		gp_hadamard_loops_portable.backward(sign, levels, y, size, z);
		for (unsigned i = 0; i < size; i++)
			assert_true(fabsf(x[i] - z[i]) < 2e-6f);
	}
}

static uint32_t run(gp_hadamard_turn *turn, const uint32_t *sign, int levels, const float *x, size_t n, float *y,
		    bool in_place)
{
	if (!in_place)
		return turn(sign, levels, x, n, y);
	memcpy(y, x, n * sizeof *x);
	return turn(sign, levels, y, n, y);
}

static void every_instruction_set_gives_the_same_bits_also_in_place(void **state)
{
	(void)state;
	static uint32_t sign[GP_HADAMARD_MOST];
	static float x[5 * GP_HADAMARD_MOST], y[5 * GP_HADAMARD_MOST], expected[5 * GP_HADAMARD_MOST];
	fill_signs(sign);
	for (size_t i = 0; i < 5 * GP_HADAMARD_MOST; i++)
		x[i] = i % 7 ? ldexpf(normal(i), (int)(i % 60) - 30) : i % 2 ? -0.0f : 0;
	for (int levels = 0; levels <= GP_HADAMARD_LEVELS; levels++)
		for (size_t blocks = 1; blocks <= 5; blocks++)
			for (int k = 1; k <= (int)gp_isa_best(); k++)
				for (int how = 0; how < 4; how++) {
					const size_t n = blocks << levels;
					const bool back = how % 2, in_place = how / 2;
					const uint32_t top = run(back ? loops[0]->backward : loops[0]->forward, sign,
								 levels, x, n, expected, false);
					assert_int_equal(run(back ? loops[k]->backward : loops[k]->forward, sign,
							     levels, x, n, y, in_place),
							 top);
					assert_memory_equal(y, expected, n * sizeof *y);
				}
}

static double error_of(const char *spec, const float *x, size_t n)
{
	static float y[N];
	free(roundtrip(spec, x, n, y, NULL));
	return relative_error(x, y, n);
}

static void what_is_large_is_spread_and_costs_the_others_less(void **state)
{
	(void)state;
	static float x[N];
	for (size_t i = 0; i < N; i++)
		x[i] = normal(i) * (i % 97 == 0 ? 30 : 1);
	const double without = error_of("block:bits=4", x, N), with = error_of("hadamard+block:bits=4", x, N);
	print_message("relative error %g without, %g with\n", without, with);
	assert_true(with < 0.6 * without);
}

/* Every length, so that every way to take a rest apart comes; a smaller tensor is the beginning of a larger one. */
static void any_number_of_elements_comes_back(void **state)
{
	(void)state;
	float x[300], y[300];
	for (size_t i = 0; i < 300; i++)
		x[i] = normal(i);
	for (size_t n = 1; n <= 300; n++) {
		size_t len;
		free(roundtrip("hadamard:size=128", x, n, y, &len));
		assert_int_equal(len, 8 + 4 * n);
		for (size_t i = 0; i < n; i++)
			assert_true(fabsf(x[i] - y[i]) < 2e-6f);
	}
}

/* `block` takes the tensor from it by pieces, which need not begin or end where its own blocks do. */
static void by_pieces_it_gives_what_it_gives_at_once(void **state)
{
	(void)state;
	static const unsigned sizes[] = {16, 17, 100, 128, 1024};
	static float x[N], y[N], whole[N], z[N];
	char text[80], block[48];
	for (size_t i = 0; i < N; i++)
		x[i] = normal(i);
	for (int size = 8; size <= 1024; size *= 2)
		for (size_t s = 0; s < 5; s++)
			for (size_t n = 1; n <= N; n = n < 4 ? n + 1 : n * 3 + 5) {
				size_t len, expected_len;
				snprintf(block, sizeof block, "block:bits=%zu,size=%u", 2 + s, sizes[s]);
				snprintf(text, sizeof text, "hadamard:size=%d", size);
				uint8_t *turned = roundtrip(text, x, n, y, &len);
				memcpy(whole, turned + 8, n * sizeof *whole);
				uint8_t *expected = roundtrip(block, whole, n, y, &expected_len);
				memcpy(turned + 8, y, n * sizeof *y);
				struct gp_err err = {0};
				struct gp_codec *c = row_codec(text, n, 0);
				assert_int_equal(gp_codec_decode(c, (struct gp_span){turned, len}, z, &err), GP_OK);
				gp_codec_free(c);
				snprintf(text, sizeof text, "hadamard:size=%d+%s", size, block);
				uint8_t *payload = roundtrip(text, x, n, y, &len);
				assert_int_equal(len, 8 + expected_len);
				assert_memory_equal(payload + 8, expected, expected_len);
				assert_memory_equal(y, z, n * sizeof *y);
				free(turned);
				free(expected);
				free(payload);
			}
}

static void it_stands_in_front_of_other_stages(void **state)
{
	(void)state;
	static float x[N], y[N];
	static const struct {
		const char *text;
		double error;                                          /* at most, relative */
	} specs[] = {{"hadamard+topk:ratio=0.5+uniform:bits=8", 0.28}, /* half of the values have 93 % of the energy */
		     {"hadamard:size=32+smaq", 0.07},
		     {"ef+hadamard+block:bits=3+rans", 0.3},
		     {"delta:samples=99+hadamard+block:bits=4", 0.13},
		     {"downsample+hadamard:size=16+block", 0.9}, /* of noise the means of places are little */
		     {"hadamard:size=64+kmeans:bits=4+zstd", 0.11}};
	const struct gp_shape shape = {.ndim = 4, .dim = {2, 10, 10, 25}};
	for (size_t i = 0; i < N; i++)
		x[i] = normal(i);
	for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++) {
		struct gp_err err = {0};
		struct gp_codec *c = shaped_codec(specs[s].text, &shape, 1);
		uint8_t *out = malloc(gp_codec_bound(c));
		size_t len;
		assert_int_equal(gp_codec_encode(c, x, 0, out, gp_codec_bound(c), &len, &err), GP_OK);
		assert_int_equal(gp_codec_decode(c, (struct gp_span){out, len}, y, &err), GP_OK);
		assert_true(len < N * 3);
		assert_true(relative_error(x, y, N) < specs[s].error);
		free(out);
		gp_codec_free(c);
	}
}

/* What works along places gets values of one place each, or says that it does not. */
static void places_that_would_be_mixed_are_refused_behind_it(void **state)
{
	(void)state;
	static const struct {
		const char *spec;
		int64_t channels;
		bool fits;
	} cases[] = {
		{"hadamard:size=8+downsample+fp16", 24, true},
		{"hadamard:size=8+poweriter:rank=2", 24, true},
		{"hadamard:size=8+downsample+poweriter:rank=2", 24, true},
		{"ef+hadamard+downsample+uniform", 256, true},
		{"downsample+hadamard:size=16+block", 24, true},
		{"hadamard:size=16+block", 24, true},
		{"hadamard:size=16+topk", 24, true},
		{"hadamard:size=16+downsample+fp16", 24, false},
		{"hadamard:size=16+poweriter:rank=2", 24, false},
		{"ef+hadamard+downsample+uniform", 64, false},
		{"hadamard+downsample+poweriter", 64, false},
		{"hadamard:size=8+downsample", 25, false},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct gp_err err = {0};
		struct gp_codec_spec spec;
		struct gp_codec *c = NULL;
		uint64_t bound;
		const struct gp_shape shape = {.ndim = 4, .dim = {2, 6, 6, cases[i].channels}};
		const enum gp_status expected = cases[i].fits ? GP_OK : GP_INVALID;
		assert_int_equal(gp_codec_spec_parse(cases[i].spec, &spec, &err), GP_OK);
		if (gp_codec_bound_for(&spec, &shape, &bound, &err) != expected)
			fail_msg("%s with %lld channels", cases[i].spec, (long long)cases[i].channels);
		assert_int_equal(gp_codec_new(&spec, &shape, 0, &c, &err), expected);
		gp_codec_free(c);
		if (!cases[i].fits && !strstr(err.text, "is no multiple of that"))
			fail_msg("%s: %s", cases[i].spec, err.text);
	}
}

static void a_size_is_a_power_of_two(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	assert_int_equal(gp_codec_spec_parse("hadamard:size=100", &spec, &err), GP_USAGE);
	assert_non_null(strstr(err.text, "codec stage 1 (hadamard): size=100 is not allowed; it is a power of two"));
	for (int size = 8; size <= 1024; size *= 2) {
		char text[32];
		snprintf(text, sizeof text, "hadamard:size=%d", size);
		assert_int_equal(gp_codec_spec_parse(text, &spec, &err), GP_OK);
	}
}

static void what_is_not_finite_or_too_large_travels_raw(void **state)
{
	(void)state;
	const float bad[] = {NAN, INFINITY, -INFINITY, FLT_MAX, -0x1p103f};
	float x[40], y[40];
	size_t len;
	for (size_t b = 0; b < sizeof bad / sizeof bad[0]; b++)
		for (size_t at = 0; at < 40; at++) {
			for (size_t i = 0; i < 40; i++)
				x[i] = i == at ? bad[b] : i % 3 ? -0.0f : normal(i);
			uint8_t *payload = roundtrip("hadamard:size=32+block", x, 40, y, &len);
			assert_int_equal(len, 4 + 4 * 40);
			assert_int_equal(payload[0], 1);
			assert_memory_equal(x, y, sizeof x);
			free(payload);
		}
	for (size_t i = 0; i < 40; i++)
		x[i] = i % 2 ? 0x1p95f : -0x1p94f; /* sums up to 2^98 */
	free(roundtrip("hadamard:size=32+block:bits=2", x, 40, y, NULL));
	for (size_t i = 0; i < 40; i++)
		assert_true(isfinite(y[i]));
}

static void hostile_payloads_are_refused(void **state)
{
	(void)state;
	struct gp_err err = {0};
	uint8_t payload[8 + 4 * 16 + 4] = {0};
	float x[16] = {0}, y[16];
	struct gp_codec *c = row_codec("hadamard:size=16", 16, 0);
	const size_t len = 8 + 4 * 16;
	assert_int_equal(gp_codec_decode(c, (struct gp_span){payload, len}, y, &err), GP_OK);
	for (size_t cut = 0; cut <= sizeof payload; cut++)
		if (cut != len)
			assert_int_equal(gp_codec_decode(c, (struct gp_span){payload, cut}, y, &err), GP_PROTO);
	payload[4] = 1; /* a side byte */
	assert_int_equal(gp_codec_decode(c, (struct gp_span){payload, len + 1}, y, &err), GP_PROTO);
	payload[4] = 0;
	const float bad[] = {NAN, INFINITY, -INFINITY};
	for (size_t b = 0; b < 3; b++) {
		x[5] = bad[b];
		gp_put_f32s(payload + 8, x, 16);
		assert_int_equal(gp_codec_decode(c, (struct gp_span){payload, len}, y, &err), GP_PROTO);
		assert_non_null(strstr(err.text, "not finite"));
	}
	for (size_t i = 0; i < 16; i++)
		x[i] = FLT_MAX / 2; /* their sum is not finite */
	gp_put_f32s(payload + 8, x, 16);
	assert_int_equal(gp_codec_decode(c, (struct gp_span){payload, len}, y, &err), GP_PROTO);
	gp_codec_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(payloads_and_tensors_are_those_of_the_reference),
		cmocka_unit_test(each_element_is_a_row_of_the_matrix_times_its_block),
		cmocka_unit_test(every_instruction_set_gives_the_same_bits_also_in_place),
		cmocka_unit_test(what_is_large_is_spread_and_costs_the_others_less),
		cmocka_unit_test(any_number_of_elements_comes_back),
		cmocka_unit_test(by_pieces_it_gives_what_it_gives_at_once),
		cmocka_unit_test(it_stands_in_front_of_other_stages),
		cmocka_unit_test(places_that_would_be_mixed_are_refused_behind_it),
		cmocka_unit_test(a_size_is_a_power_of_two),
		cmocka_unit_test(what_is_not_finite_or_too_large_travels_raw),
		cmocka_unit_test(hostile_payloads_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
