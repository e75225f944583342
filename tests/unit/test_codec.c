/* SPDX-License-Identifier: Apache-2.0
 *
 * Round trips and hostile payloads through the public interface
 * (common/codec/codec.h), for every codec and every instruction set of this machine.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <string.h>

#include "common/codec/codec.h"
#include "common/base/fault.h"
#include "common/base/isa.h"
#include "common/base/rng.h"
#include "kernels/loops/codec_loops.h"
#include "tests/codec_specs.h"
#include "tests/sanitized.h"

/* Chains beside the examples of the codecs. */
static const char *const chains[] = {
	"uniform:bits=3+zstd:level=3",
	"topk:ratio=0.3+uniform:bits=6",
	"ef+amq:bits=3,bucket=17",
};

/* The examples that code a list of numbers, which is what most tests here give them; and the chains. */
static struct codec_specs specs;

static int list_specs(void **state)
{
	(void)state;
	codec_specs_add_examples(&specs, &(struct gp_shape){.ndim = 1, .dim = {1}});
	for (size_t i = 0; i < sizeof chains / sizeof chains[0]; i++)
		codec_specs_add(&specs, chains[i]);
	return 0;
}

static struct gp_codec *new_codec(const char *text, size_t n)
{
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	struct gp_codec *c = NULL;
	const struct gp_shape shape = {.ndim = 1, .dim = {(int64_t)n}};
	assert_int_equal(gp_codec_spec_parse(text, &spec, &err), GP_OK);
	assert_int_equal(gp_codec_new(&spec, &shape, 7, &c, &err), GP_OK);
	return c;
}

/* The payload of x, in a block of its own size; *len gets it. */
static uint8_t *encoded(struct gp_codec *c, const float *x, size_t *len)
{
	struct gp_err err = {0};
	uint8_t *out = malloc(gp_codec_bound(c));
	assert_int_equal(gp_codec_encode(c, x, 3, out, gp_codec_bound(c), len, &err), GP_OK);
	assert_true(*len <= gp_codec_bound(c));
	return realloc(out, *len);
}

static void roundtrip(const char *spec, const float *x, size_t n, float *y)
{
	struct gp_err err = {0};
	struct gp_codec *c = new_codec(spec, n);
	size_t len;
	uint8_t *payload = encoded(c, x, &len);
	assert_int_equal(gp_codec_decode(c, (struct gp_span){payload, len}, y, &err), GP_OK);
	free(payload);
	gp_codec_free(c);
}

enum fill { NORMAL, RELU6, CONSTANT, ZERO, DENORMAL, HUGE_VALUES, TWO_VALUES, RAMP, MOSTLY_ONE, FILLS };
enum { MOST = 20011 };

/* The i-th draw for this kind of tensor: drawn once, for tests that fill thousands of tensors. */
static float drawn(enum fill kind, size_t i)
{
	static float all[FILLS][MOST];
	static size_t count[FILLS];
	const uint64_t stream = gp_rng_stream(GP_RNG_INIT, (uint64_t)kind);
	assert_true(i < MOST);
	for (; count[kind] <= i; count[kind]++)
		all[kind][count[kind]] = gp_rng_normal(5, stream, count[kind]);
	return all[kind][i];
}

static void fill(float *x, size_t n, enum fill kind)
{
	for (size_t i = 0; i < n; i++) {
		const float g = drawn(kind, i);
		switch (kind) {
		case NORMAL:
			x[i] = g;
			break;
		case RELU6:
			x[i] = fminf(fmaxf(3 * g - 1, 0), 6);
			break;
		case CONSTANT:
			x[i] = 0.1f;
			break;
		case ZERO:
			x[i] = i % 3 ? 0.0f : -0.0f;
			break;
		case DENORMAL:
			x[i] = g * 1e-40f;
			break;
		case HUGE_VALUES:
			x[i] = fminf(fmaxf(g, -4), 4) * 2e37f;
			break;
		case TWO_VALUES:
			x[i] = g > 0 ? 1 : -1;
			break;
		case RAMP:
			x[i] = (float)i;
			break;
		case MOSTLY_ONE:
			x[i] = g > 2 ? g : 1;
			break;
		case FILLS:
			break;
		}
	}
}

static const size_t sizes[] = {1,  2,  3,   5,   7,   8,   15,   16,   17,   31,   33,   63,
			       64, 65, 100, 127, 255, 257, 1000, 1023, 1024, 1025, 4099, 20011};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* Largest error over the tensor's range. */
static double worst(const float *x, const float *y, size_t n)
{
	double lo = x[0], hi = x[0], d = 0;
	for (size_t i = 0; i < n; i++) {
		lo = fmin(lo, (double)x[i]);
		hi = fmax(hi, (double)x[i]);
		d = fmax(d, fabs((double)x[i] - (double)y[i]));
	}
	return hi > lo ? d / (hi - lo) : d;
}

static void lossless_chains_keep_every_bit_pattern(void **state)
{
	(void)state;
	static const char *const lossless[] = {"raw", "zstd", "bdi", "raw+zstd:level=9"};
	uint32_t bits[1000];
	float x[1000], y[1000];
	for (uint64_t i = 0; i < 1000; i++)
		bits[i] = gp_rng_u32(1, 2, i);
	bits[0] = 0x7f800001u;
	bits[1] = 0xffffffffu;
	memcpy(x, bits, sizeof x);
	for (size_t i = 0; i < sizeof lossless / sizeof lossless[0]; i++) {
		roundtrip(lossless[i], x, 1000, y);
		assert_memory_equal(x, y, sizeof x);
	}
}

static void uniform_error_is_at_most_half_a_step(void **state)
{
	(void)state;
	static float x[MOST], y[MOST];
	for (int bits = 1; bits <= 16; bits++)
		for (int s = 0; s < SIZES; s++)
			for (int f = 0; f < FILLS; f++) {
				if (left_to_dev(6, bits + s + f))
					continue;
				char spec[32];
				snprintf(spec, sizeof spec, "uniform:bits=%d", bits);
				fill(x, sizes[s], (enum fill)f);
				roundtrip(spec, x, sizes[s], y);
				/* Denormal steps are coarse: 2^-149 at least. */
				double allowed = f == DENORMAL ? 1 : 0.5 / (double)((1 << bits) - 1) + 1e-6;
				assert_true(worst(x, y, sizes[s]) <= allowed);
			}
}

/* Floating-point formats and scales round, level quantizers draw, top-k leaves out. */
static bool keeps_constants(const char *spec)
{
	static const char *const none[] = {"fp",  "bf16", "block", "qsgd",  "terngrad",
					   "alq", "amq",  "topk",  "prune", "hadamard"};
	for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
		if (strstr(spec, none[i]))
			return false;
	return true;
}

static void constant_tensors_are_exact(void **state)
{
	(void)state;
	static float x[MOST], y[MOST];
	for (int i = 0; i < specs.count; i++)
		for (int s = 0; s < SIZES && keeps_constants(specs.text[i]); s++) {
			if (left_to_dev(3, i + s))
				continue;
			fill(x, sizes[s], CONSTANT);
			roundtrip(specs.text[i], x, sizes[s], y);
			assert_memory_equal(x, y, sizes[s] * sizeof *x);
		}
}

static int ascending(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;
	return (x > y) - (x < y);
}

/* Against a sort: every element's error is at most half a step of a partition that its value belongs to. */
static void check_against_sort(const float *x, const float *y, size_t n, int bits, int split)
{
	static float sorted[MOST];
	const size_t parts = (size_t)1 << split;
	memcpy(sorted, x, n * sizeof *x);
	qsort(sorted, n, sizeof *sorted, ascending);
	size_t begin = 0;
	for (size_t p = 0; p < parts && begin < n; p++) {
		size_t end = begin + n / parts + (p < n % parts);
		double lo = sorted[begin], hi = sorted[end - 1], half = (hi - lo) / ((1 << bits) - 1) / 2;
		for (size_t i = 0; i < n; i++)
			if (x[i] >= lo && (x[i] < hi || (end == n && x[i] <= hi))) {
				double error = fabs((double)x[i] - (double)y[i]);
				assert_true(error <= half * 1.001 + 1e-6 * fmax(fabs(lo), fabs(hi)) + 1e-40);
			}
		begin = end;
	}
}

static void sortquant_error_is_at_most_half_a_step_of_the_partition(void **state)
{
	(void)state;
	static float x[MOST], y[MOST];
	static const int shapes[][2] = {{6, 2}, {1, 1}, {3, 1}, {12, 4}, {9, 3}, {9, 5}, {2, 8}, {8, 0}};
	for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++)
		for (int s = 0; s < SIZES; s++)
			for (int f = 0; f < FILLS; f++) {
				if (f == DENORMAL || left_to_dev(6, (int)k + s + f))
					continue;
				char spec[48];
				snprintf(spec, sizeof spec, "sortquant:bits=%d,split=%d", shapes[k][0], shapes[k][1]);
				fill(x, sizes[s], (enum fill)f);
				roundtrip(spec, x, sizes[s], y);
				check_against_sort(x, y, sizes[s], shapes[k][0], shapes[k][1]);
			}
}

static void values_tied_across_a_boundary_are_exact(void **state)
{
	(void)state;
	static float x[4096], y[4096];
	fill(x, 4096, RELU6);
	roundtrip("sortquant:bits=6,split=2", x, 4096, y);
	int zeros = 0;
	for (int i = 0; i < 4096; i++)
		if (x[i] == 0) {
			zeros++;
			assert_true(y[i] == 0);
		}
	assert_true(zeros > 2048);
}

static void sampled_bounds_keep_the_error_within_the_range(void **state)
{
	(void)state;
	static float x[MOST], y[MOST];
	for (int f = 0; f < FILLS; f++) {
		fill(x, MOST, (enum fill)f);
		roundtrip("sortquant:bits=6,split=2,sample=64", x, MOST, y);
		assert_true(worst(x, y, MOST) <= (f == DENORMAL ? 1 : 0.5 / 63 + 1e-6));
	}
}

static void sample_of_everything_is_exact_mode(void **state)
{
	(void)state;
	static float x[500], y[500], z[500];
	fill(x, 500, NORMAL);
	roundtrip("sortquant:bits=3,split=2,sample=500", x, 500, y);
	roundtrip("sortquant:bits=3,split=2", x, 500, z);
	assert_memory_equal(y, z, sizeof y);
}

static void fp16_and_bf16_round_to_nearest_even(void **state)
{
	(void)state;
	static const struct {
		float x, fp16, bf16;
	} cases[] = {
		{1.0f, 1.0f, 1.0f},
		{1.00048828125f, 1.0f, 1.0f},          /* fp16 tie, down to even */
		{1.00146484375f, 1.001953125f, 1.0f},  /* fp16 tie, up to even */
		{1.01171875f, 1.01171875f, 1.015625f}, /* bf16 tie, up to even */
		{1.00390625f, 1.00390625f, 1.0f},      /* bf16 tie, down to even */
		{65504.0f, 65504.0f, 65536.0f},
		{65519.0f, 65504.0f, 65536.0f},
		{0x1p-25f, 0.0f, 0x1p-25f},
		{0x1.8p-24f, 0x1p-23f, 0x1.8p-24f},
		{-2.0f, -2.0f, -2.0f},
		{-0.0f, -0.0f, -0.0f},
		{0x1p-14f, 0x1p-14f, 0x1p-14f},
		{0x1.ff8p-15f, 0x1.ff8p-15f, 0x1p-14f},
		{0x1.ffcp-15f, 0x1p-14f, 0x1p-14f},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		float y;
		roundtrip("fp16", &cases[i].x, 1, &y);
		assert_memory_equal(&y, &cases[i].fp16, sizeof y);
		roundtrip("bf16", &cases[i].x, 1, &y);
		assert_memory_equal(&y, &cases[i].bf16, sizeof y);
	}
}

static bool is_lossless(const char *text)
{
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	assert_int_equal(gp_codec_spec_parse(text, &spec, &err), GP_OK);
	return gp_codec_spec_lossless(&spec);
}

static void nonfinite_and_overflowing_tensors_travel_as_raw_and_are_counted(void **state)
{
	(void)state;
	const float bad[] = {NAN, INFINITY, -INFINITY, -NAN};
	struct gp_err err = {0};
	float x[300], y[300];
	for (int i = 0; i < specs.count; i++)
		for (int b = 0; b < 5 && !is_lossless(specs.text[i]); b++)
			for (size_t at = 0; at < 300; at += 299) {
				struct gp_codec *c = new_codec(specs.text[i], 300);
				struct gp_codec_stats stats;
				size_t len;
				fill(x, 300, NORMAL);
				x[at] = b < 4 ? bad[b] : FLT_MAX;
				x[150] = b < 4 ? x[150] : -FLT_MAX;
				uint8_t *payload = encoded(c, x, &len);
				assert_int_equal(gp_codec_decode(c, (struct gp_span){payload, len}, y, &err), GP_OK);
				gp_codec_get_stats(c, &stats);
				assert_true(stats.encoded == 1 && stats.decoded == 1);
				if (b < 4)
					assert_true(stats.raw_fallbacks == 1);
				if (stats.raw_fallbacks && (b < 4 || !strstr(specs.text[i], "topk")))
					assert_memory_equal(x, y, sizeof x);
				if (stats.raw_fallbacks && !strchr(specs.text[i], '+'))
					assert_int_equal(len, 4 + 4 * 300);
				for (size_t j = 0; j < 300; j++)
					assert_true(isfinite(y[j]) || !isfinite(x[j]));
				free(payload);
				gp_codec_free(c);
			}
}

static void payload_sizes_are_those_documented(void **state)
{
	(void)state;
	static float x[1001];
	static const struct {
		const char *spec;
		size_t len;
	} expected[] = {
		{"raw", 4004},
		{"fp16", 4 + 2002},
		{"uniform:bits=5", 4 + 8 + 626},
		{"sortquant:bits=6,split=2", 4 + 32 + 1001},
		{"sortquant:bits=12,split=4", 4 + 128 + 2002},
	};
	fill(x, 1001, NORMAL);
	for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
		struct gp_codec *c = new_codec(expected[i].spec, 1001);
		size_t len;
		free(encoded(c, x, &len));
		assert_int_equal(len, expected[i].len);
		gp_codec_free(c);
	}
}

static void every_instruction_set_gives_the_same_payload_and_tensor(void **state)
{
	(void)state;
	static float x[MOST], y[MOST], expected[MOST];
	struct gp_err err = {0};
	for (int i = 0; i < specs.count; i++)
		for (int s = 0; s < SIZES; s++)
			for (int f = 0; f < FILLS; f++) {
				if (left_to_dev(6, i + s + f))
					continue;
				uint8_t *first = NULL;
				size_t first_len = 0;
				const size_t n = sizes[s];
				fill(x, n, (enum fill)f);
				for (int k = 0; k < 3; k++) {
					if (!gp_codec_loops_named(gp_isa_name((enum gp_isa)k)))
						continue;
					setenv("GP_SIMD", gp_isa_name((enum gp_isa)k), 1);
					struct gp_codec *c = new_codec(specs.text[i], n);
					size_t len;
					uint8_t *payload = encoded(c, x, &len);
					const struct gp_span span = {payload, len};
					assert_int_equal(gp_codec_decode(c, span, k ? y : expected, &err), GP_OK);
					gp_codec_free(c);
					if (!first) {
						first = payload;
						first_len = len;
						continue;
					}
					assert_int_equal(len, first_len);
					assert_memory_equal(payload, first, len);
					assert_memory_equal(y, expected, n * sizeof *y);
					free(payload);
				}
				free(first);
			}
	unsetenv("GP_SIMD");
}

/* Each in a block of its exact size, so that a sanitizer sees a read past the end. */
static void try_hostile(struct gp_codec *c, const uint8_t *bytes, size_t len, float *y)
{
	struct gp_err err = {0};
	uint8_t *copy = malloc(len ? len : 1);
	memcpy(copy, bytes, len);
	enum gp_status status = gp_codec_decode(c, (struct gp_span){copy, len}, y, &err);
	assert_true(status == GP_OK || status == GP_PROTO);
	free(copy);
}

static void truncated_and_oversized_payloads_are_refused(void **state)
{
	(void)state;
	static float x[333], y[333];
	struct gp_err err = {0};
	fill(x, 333, NORMAL);
	for (int i = 0; i < specs.count; i++) {
		struct gp_codec *c = new_codec(specs.text[i], 333);
		size_t len;
		uint8_t *payload = encoded(c, x, &len);
		for (size_t cut = 0; cut < len; cut++) {
			uint8_t *copy = malloc(cut ? cut : 1);
			memcpy(copy, payload, cut);
			assert_int_equal(gp_codec_decode(c, (struct gp_span){copy, cut}, y, &err), GP_PROTO);
			free(copy);
		}
		payload = realloc(payload, len + 64);
		memset(payload + len, 0, 64);
		for (size_t extra = 1; extra <= 64; extra += 9)
			assert_int_equal(gp_codec_decode(c, (struct gp_span){payload, len + extra}, y, &err), GP_PROTO);
		free(payload);
		gp_codec_free(c);
	}
}

static void random_and_flipped_payloads_give_a_tensor_or_an_error(void **state)
{
	(void)state;
	static float x[77], y[77];
	uint64_t draw = 0;
	fill(x, 77, NORMAL);
	for (int i = 0; i < specs.count; i++) {
		struct gp_codec *c = new_codec(specs.text[i], 77);
		size_t len;
		uint8_t *payload = encoded(c, x, &len);
		for (int round = 0; round < 300; round++) {
			uint8_t *copy = malloc(len);
			memcpy(copy, payload, len);
			for (int flips = 0; flips <= round % 5; flips++, draw++)
				copy[gp_rng_below(9, 9, draw, (uint32_t)len)] = (uint8_t)gp_rng_u32(9, 10, draw);
			try_hostile(c, copy, len, y);
			for (size_t b = 4; b < len; b++)
				copy[b] = (uint8_t)gp_rng_u32(9, 11, draw++);
			try_hostile(c, copy, len, y);
			free(copy);
		}
		free(payload);
		gp_codec_free(c);
	}
}

static void coded_payloads_never_decode_to_nonfinite_values(void **state)
{
	(void)state;
	struct gp_err err = {0};
	float y[4];
	const uint8_t inf_step[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x7f, 1, 2, 3, 4};
	const uint8_t nan_min[] = {0, 0, 0, 0, 0, 0, 0xc0, 0x7f, 0, 0, 0x80, 0x3f, 1, 2, 3, 4};
	const uint8_t negative_step[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0xbf, 1, 2, 3, 4};
	const uint8_t huge_step[] = {0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0x7f, 0x7f, 1, 2, 3, 4};
	const uint8_t bad_form[] = {2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x3f, 1, 2, 3, 4};
	const uint8_t bad_head[] = {0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x3f, 1, 2, 3, 4};
	const uint8_t *const bad[] = {inf_step, nan_min, negative_step, huge_step, bad_form, bad_head};
	struct gp_codec *c = new_codec("uniform:bits=8", 4);
	for (int i = 0; i < 6; i++)
		assert_int_equal(gp_codec_decode(c, (struct gp_span){bad[i], 16}, y, &err), GP_PROTO);
	gp_codec_free(c);
	const uint8_t padding[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x3f, 0xff, 0x1f};
	c = new_codec("uniform:bits=4", 3);
	assert_int_equal(gp_codec_decode(c, (struct gp_span){padding, 14}, y, &err), GP_PROTO);
	gp_codec_free(c);
	const uint8_t half_inf[] = {0, 0, 0, 0, 0x00, 0x7c};
	c = new_codec("fp16", 1);
	assert_int_equal(gp_codec_decode(c, (struct gp_span){half_inf, 6}, y, &err), GP_PROTO);
	gp_codec_free(c);
}

static void bounds_follow_from_spec_and_shape_alone(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	for (int i = 0; i < specs.count; i++) {
		const struct gp_shape shape = {.ndim = 4, .dim = {2, 3, 5, 7}};
		uint64_t bytes;
		struct gp_codec *c;
		assert_int_equal(gp_codec_spec_parse(specs.text[i], &spec, &err), GP_OK);
		assert_int_equal(gp_codec_bound_for(&spec, &shape, &bytes, &err), GP_OK);
		assert_int_equal(gp_codec_new(&spec, &shape, 0, &c, &err), GP_OK);
		assert_int_equal(bytes, gp_codec_bound(c));
		gp_codec_free(c);
	}
	const struct gp_shape empty = {.ndim = 2, .dim = {4, 0}}, vast = {.ndim = 2, .dim = {1 << 30, 1 << 30}};
	uint64_t bytes;
	assert_int_equal(gp_codec_bound_for(&spec, &empty, &bytes, &err), GP_OK);
	assert_int_equal(bytes, 0);
	assert_int_equal(gp_codec_bound_for(&spec, &vast, &bytes, &err), GP_INVALID);
}

static void a_tensor_without_elements_has_an_empty_payload(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	const struct gp_shape shape = {.ndim = 3, .dim = {4, 0, 7}};
	for (int i = 0; i < specs.count; i++) {
		struct gp_codec *c;
		uint8_t byte = 0;
		float x = 0;
		size_t len = 1;
		assert_int_equal(gp_codec_spec_parse(specs.text[i], &spec, &err), GP_OK);
		assert_int_equal(gp_codec_new(&spec, &shape, 0, &c, &err), GP_OK);
		assert_int_equal(gp_codec_bound(c), 0);
		assert_int_equal(gp_codec_encode(c, &x, 0, &byte, 0, &len, &err), GP_OK);
		assert_int_equal(len, 0);
		assert_int_equal(gp_codec_decode(c, (struct gp_span){&byte, 0}, &x, &err), GP_OK);
		assert_int_equal(gp_codec_decode(c, (struct gp_span){&byte, 1}, &x, &err), GP_PROTO);
		gp_codec_free(c);
	}
}

static void steady_use_allocates_nothing(void **state)
{
	(void)state;
	static float x[5000], y[5000];
	struct gp_err err = {0};
	fill(x, 5000, NORMAL);
	for (int i = 0; i < specs.count; i++) {
		struct gp_codec *c = new_codec(specs.text[i], 5000);
		uint8_t *out = malloc(gp_codec_bound(c));
		size_t len;
		uint64_t before = gp_mem_calls();
		assert_int_equal(gp_codec_encode(c, x, 0, out, gp_codec_bound(c), &len, &err), GP_OK);
		assert_int_equal(gp_codec_decode(c, (struct gp_span){out, len}, y, &err), GP_OK);
		assert_int_equal(gp_mem_calls(), before);
		assert_int_equal(gp_codec_encode(c, x, 0, out, gp_codec_bound(c) - 1, &len, &err), GP_INTERNAL);
		free(out);
		gp_codec_free(c);
	}
}

#ifdef GP_FAULTS
static void running_out_of_memory_fails_cleanly(void **state)
{
	(void)state;
	const struct gp_shape shape = {.ndim = 2, .dim = {100, 300}};
	for (int i = 0; i < specs.count; i++) {
		struct gp_err err = {0};
		struct gp_codec_spec spec;
		struct gp_codec *c = NULL;
		enum gp_status status = GP_NOMEM;
		assert_int_equal(gp_codec_spec_parse(specs.text[i], &spec, &err), GP_OK);
		for (uint64_t nth = 1; status == GP_NOMEM && nth < 30; nth++) {
			gp_fault_arm(GP_FAULT_ALLOC, nth);
			status = gp_codec_new(&spec, &shape, 0, &c, &err);
			assert_true(status == GP_OK || (nth < 25 && !c));
			assert_true(status == GP_OK || (nth < 20 && !c));
		}
		gp_fault_arm(GP_FAULT_ALLOC, 0);
		assert_int_equal(status, GP_OK);
		gp_codec_free(c);
	}
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lossless_chains_keep_every_bit_pattern),
		cmocka_unit_test(uniform_error_is_at_most_half_a_step),
		cmocka_unit_test(constant_tensors_are_exact),
		cmocka_unit_test(sortquant_error_is_at_most_half_a_step_of_the_partition),
		cmocka_unit_test(values_tied_across_a_boundary_are_exact),
		cmocka_unit_test(sampled_bounds_keep_the_error_within_the_range),
		cmocka_unit_test(sample_of_everything_is_exact_mode),
		cmocka_unit_test(fp16_and_bf16_round_to_nearest_even),
		cmocka_unit_test(nonfinite_and_overflowing_tensors_travel_as_raw_and_are_counted),
		cmocka_unit_test(payload_sizes_are_those_documented),
		cmocka_unit_test(every_instruction_set_gives_the_same_payload_and_tensor),
		cmocka_unit_test(truncated_and_oversized_payloads_are_refused),
		cmocka_unit_test(random_and_flipped_payloads_give_a_tensor_or_an_error),
		cmocka_unit_test(coded_payloads_never_decode_to_nonfinite_values),
		cmocka_unit_test(bounds_follow_from_spec_and_shape_alone),
		cmocka_unit_test(a_tensor_without_elements_has_an_empty_payload),
		cmocka_unit_test(steady_use_allocates_nothing),
#ifdef GP_FAULTS
		cmocka_unit_test(running_out_of_memory_fails_cleanly),
#endif
	};
	return cmocka_run_group_tests(tests, list_specs, NULL);
}
