/* SPDX-License-Identifier: Apache-2.0
 *
 * Codecs whose blocks have scales (block, mxfp8, mxfp6, mxfp4, nvfp4): bit for
 * bit what tests/tools/dump_block_formats.py wrote from the specification, the
 * promised errors, draws, what a peer may not send.
 */
#include "tests/unit/codec_golden.h"

#include <float.h>
#include <math.h>

#include "common/base/isa.h"
#include "common/base/rng.h"
#include "kernels/loops/block_loops.h"
#include "kernels/loops/codec_loops.h"

/* --- golden cases ----------------------------------------------------------------------------------------------- */

static void payloads_and_tensors_are_those_of_the_reference(void **state)
{
	(void)state;
	assert_true(golden_cases(GOLDEN "block_formats.safetensors") >= 56);
}

/* --- block ------------------------------------------------------------------------------------------------------ */

enum { N = 5000 };

static float normal(uint64_t i)
{
	float sum = -6;
	for (uint64_t k = 0; k < 12; k++)
		sum += (float)gp_rng_u32(18, 1, 12 * i + k) * 0x1p-32f;
	return sum;
}

/* Largest range, or magnitude, of a block over its levels. */
static double step_of(const float *x, size_t n, int bits, bool asym)
{
	double low = 0, high = 0;
	for (size_t i = 0; i < n; i++) {
		low = fmin(low, (double)x[i]);
		high = fmax(high, (double)x[i]);
	}
	return asym ? (high - low) / ((1 << bits) - 1) : fmax(-low, high) / ((1 << (bits - 1)) - 1);
}

static void an_error_is_at_most_half_a_step_of_the_block(void **state)
{
	(void)state;
	static float x[N], y[N];
	for (int bits = 2; bits <= 8; bits++)
		for (int kind = 0; kind < 4; kind++)
			for (size_t size = 16; size <= 1024; size = 2 * size + (bits == 5)) {
				const bool asym = kind % 2, e8m0 = kind / 2;
				char spec[96];
				snprintf(spec, sizeof spec, "block:bits=%d,size=%zu,zero=%s,scale=%s", bits, size,
					 asym ? "asym" : "sym", e8m0 ? "e8m0" : "fp16");
				for (size_t i = 0; i < N; i++)
					x[i] = ldexpf(normal(i), (int)(i / 1000 * 4) - 20) + (float)(asym && i < 2000);
				free(roundtrip(spec, x, N, y, NULL));
				for (size_t at = 0; at < N; at += size) {
					const size_t here = N - at < size ? N - at : size;
					const double step = step_of(x + at, here, bits, asym) * (e8m0 ? 2 : 1.001);
					for (size_t i = at; i < at + here; i++)
						assert_true(fabs((double)x[i] - (double)y[i]) <= 0.501 * step);
				}
			}
}

static double squared(const char *spec, const float *x)
{
	static float y[N];
	double sum = 0;
	free(roundtrip(spec, x, N, y, NULL));
	for (size_t i = 0; i < N; i++)
		sum += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
	return sum;
}

static void the_chosen_clip_is_never_worse_than_none(void **state)
{
	(void)state;
	static float x[N];
	for (size_t i = 0; i < N; i++)
		x[i] = normal(i);
	for (int bits = 2; bits <= 8; bits++)
		for (int asym = 0; asym < 2; asym++) {
			char max[64], mse[80];
			snprintf(max, sizeof max, "block:bits=%d,zero=%s", bits, asym ? "asym" : "sym");
			snprintf(mse, sizeof mse, "%s,clip=mse", max);
			assert_true(squared(mse, x) <= squared(max, x));
			if (bits <= 3)
				assert_true(squared(mse, x) < 0.9 * squared(max, x));
		}
}

static uint8_t *encoded_at(struct gp_codec *c, const float *x, uint64_t step, size_t *len)
{
	struct gp_err err = {0};
	uint8_t *out = malloc(gp_codec_bound(c));
	assert_int_equal(gp_codec_encode(c, x, step, out, gp_codec_bound(c), len, &err), GP_OK);
	return out;
}

/* They have blocks, and need no arrays for channels; neither do smaller ones. */
static void channels_of_few_elements_take_no_memory(void **state)
{
	(void)state;
	enum { ROWS = 15, CHANNELS = 400 };
	static float x[ROWS * CHANNELS], y[ROWS * CHANNELS];
	static const char *const texts[] = {"block:dim=channel", "block"};
	const struct gp_shape shape = {.ndim = 2, .dim = {ROWS, CHANNELS}};
	struct gp_codec *codec[2];
	uint64_t bytes[2];
	struct gp_err err = {0};
	for (size_t i = 0; i < ROWS * CHANNELS; i++)
		x[i] = normal(i);
	for (int k = 0; k < 2; k++) {
		struct gp_codec_spec spec;
		const struct gp_codec_options plain = {0};
		assert_int_equal(gp_codec_spec_parse(texts[k], &spec, &err), GP_OK);
		assert_int_equal(gp_codec_bytes_for(&spec, &shape, &plain, &bytes[k], &err), GP_OK);
		codec[k] = shaped_codec(texts[k], &shape, 0);
	}
	assert_int_equal(bytes[0], bytes[1]);
	for (int64_t rows = ROWS; rows > 0; rows -= 7) {
		const struct gp_shape smaller = {.ndim = 2, .dim = {rows, CHANNELS}};
		size_t len[2];
		uint8_t *payload[2];
		for (int k = 0; k < 2; k++) {
			gp_codec_resize(codec[k], &smaller);
			payload[k] = encoded_at(codec[k], x, 0, &len[k]);
		}
		assert_int_equal(len[0], len[1]);
		assert_memory_equal(payload[0], payload[1], len[0]);
		assert_int_equal(gp_codec_decode(codec[0], (struct gp_span){payload[0], len[0]}, y, &err), GP_OK);
		free(payload[0]);
		free(payload[1]);
	}
	gp_codec_free(codec[0]);
	gp_codec_free(codec[1]);
}

/* Every set of instructions draws alike, the same step the same; the mean of many steps is the tensor. */
static void draws_follow_from_the_step_and_have_no_bias(void **state)
{
	(void)state;
	enum { ROWS = 40, CHANNELS = 7, ELEMENTS = ROWS * CHANNELS, STEPS = 600 };
	static const char *const specs[] = {"block:bits=3,size=24,round=stochastic",
					    "block:bits=3,size=24,zero=asym,round=stochastic",
					    "block:bits=3,dim=channel,round=stochastic"};
	const struct gp_shape shape = {.ndim = 2, .dim = {ROWS, CHANNELS}};
	float x[ELEMENTS], y[ELEMENTS];
	for (size_t i = 0; i < ELEMENTS; i++)
		x[i] = normal(i);
	for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++) {
		struct gp_err err = {0};
		double sum[ELEMENTS] = {0}, bias = 0;
		struct gp_codec *c = shaped_codec(specs[s], &shape, 5);
		size_t len, again_len;
		uint8_t *first = encoded_at(c, x, 0, &len);
		for (int k = 0; k < 3; k++) {
			if (!gp_codec_loops_named(gp_isa_name((enum gp_isa)k)))
				continue;
			setenv("GP_SIMD", gp_isa_name((enum gp_isa)k), 1);
			struct gp_codec *other = shaped_codec(specs[s], &shape, 5);
			uint8_t *again = encoded_at(other, x, 0, &again_len);
			assert_int_equal(len, again_len);
			assert_memory_equal(first, again, len);
			free(again);
			gp_codec_free(other);
		}
		unsetenv("GP_SIMD");
		for (uint64_t step = 1; step <= STEPS; step++) {
			uint8_t *out = encoded_at(c, x, step, &len);
			assert_true(step > 1 || memcmp(first, out, len) != 0);
			assert_int_equal(gp_codec_decode(c, (struct gp_span){out, len}, y, &err), GP_OK);
			for (size_t i = 0; i < ELEMENTS; i++)
				sum[i] += (double)y[i];
			free(out);
		}
		for (size_t i = 0; i < ELEMENTS; i++)
			bias += fabs(sum[i] / STEPS - (double)x[i]) / ELEMENTS;
		print_message("%s: mean bias %g\n", specs[s], bias);
		assert_true(bias < 0.05); /* steps are 0.3 to 1 */
		free(first);
		gp_codec_free(c);
	}
}

/* Halves would be 0 below 6e-8 and infinite above 65504: the unit moves with the tensor. */
static void halves_reach_from_the_smallest_gradients_to_the_largest_numbers(void **state)
{
	(void)state;
	static float x[N], y[N];
	for (int e = -90; e <= 110; e += 20) {
		for (size_t i = 0; i < N; i++)
			x[i] = ldexpf(normal(i), e);
		free(roundtrip("block:bits=8,size=64", x, N, y, NULL));
		for (size_t i = 0; i < N; i++)
			assert_true(fabs((double)x[i] - (double)y[i]) <= ldexp(0.03, e));
	}
	const float extremes[] = {FLT_MAX, -FLT_MAX, 0, -0.0f, FLT_MIN, FLT_TRUE_MIN, 1e-40f, 1};
	static const char *const specs[] = {
		"block", "block:zero=asym", "block:scale=e8m0", "block:clip=mse", "mxfp8", "mxfp4", "nvfp4"};
	for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++) {
		free(roundtrip(specs[s], extremes, 8, y, NULL));
		for (size_t i = 0; i < 8; i++)
			assert_true(isfinite(y[i]));
		free(roundtrip(specs[s], extremes + 2, 5, y, NULL));
		for (size_t i = 0; i < 5; i++)
			assert_true(fabsf(y[i]) < 1e-33f);
	}
}

/* A channel that never fires has the least scale there is, which a decoder takes. */
static void channels_of_zeros_are_coded_with_the_least_scale(void **state)
{
	(void)state;
	enum { ROWS = 40, CHANNELS = 3 };
	static const char *const specs[] = {"block:bits=8,scale=e8m0,dim=channel",
					    "block:bits=3,scale=e8m0,clip=mse,dim=channel",
					    "block:bits=4,zero=asym,scale=e8m0,dim=channel"};
	const struct gp_shape shape = {.ndim = 2, .dim = {ROWS, CHANNELS}};
	float x[ROWS * CHANNELS], y[ROWS * CHANNELS];
	for (size_t i = 0; i < ROWS * CHANNELS; i++)
		x[i] = i % CHANNELS == 0 ? normal(i) : i % CHANNELS == 1 ? 0.0f : -0.0f;
	for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++) {
		struct gp_err err = {0};
		struct gp_codec *c = shaped_codec(specs[s], &shape, 0);
		size_t len;
		uint8_t *out = encoded_at(c, x, 0, &len);
		assert_int_equal(out[4 + 1], 1);
		assert_int_equal(out[4 + 2], 1);
		assert_int_equal(gp_codec_decode(c, (struct gp_span){out, len}, y, &err), GP_OK);
		for (size_t i = 0; i < ROWS * CHANNELS; i++)
			assert_true(i % CHANNELS == 0 || y[i] == 0);
		free(out);
		gp_codec_free(c);
	}
}

/* Whatever is behind or in front of them: arrives as finite as it was, and in fewer bytes. */
static void chains_with_blocks_are_coded(void **state)
{
	(void)state;
	static float x[N], y[N];
	static const struct {
		const char *text;
		double error; /* at most, relative */
	} specs[] = {{"block:bits=4+zstd", 0.11},
		     {"ef+block:bits=2", 0.7},
		     {"topk:ratio=0.1+block:bits=8", 0.5},
		     {"mxfp4+zstd", 0.13},
		     {"ef+mxfp4", 0.13},
		     {"topk:ratio=0.25+nvfp4", 0.15},
		     {"block:bits=8+bitshuffle+zstd", 0.006},
		     {"delta:samples=9+block:bits=4", 0.11},
		     {"topk:ratio=0.2+block:dim=channel", 0.22}};
	for (size_t i = 0; i < N; i++)
		x[i] = normal(i) * (i % 3 == 0);
	for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++) {
		struct gp_err err = {0};
		const struct gp_shape shape = {.ndim = 2, .dim = {50, N / 50}};
		struct gp_codec *c = shaped_codec(specs[s].text, &shape, 1);
		size_t len;
		uint8_t *out = encoded_at(c, x, 0, &len);
		assert_int_equal(gp_codec_decode(c, (struct gp_span){out, len}, y, &err), GP_OK);
		assert_true(relative_error(x, y, N) < specs[s].error);
		assert_true(len < N * 2);
		free(out);
		gp_codec_free(c);
	}
}

/* --- what a peer may not send ----------------------------------------------------------------------------------- */

static void assert_decodes(const char *spec, enum gp_status expected, const char *why, const uint8_t *body, size_t len)
{
	struct gp_err err = {0};
	uint8_t payload[64] = {0};
	float y[16];
	struct gp_codec *c = row_codec(spec, 3, 0);
	memcpy(payload + 4, body, len);
	const enum gp_status status = gp_codec_decode(c, (struct gp_span){payload, 4 + len}, y, &err);
	if (status != expected || (why && !strstr(err.text, why)))
		print_error("%s: status %d, \"%s\"\n", spec, (int)status, err.text);
	assert_int_equal(status, expected);
	assert_true(!why || strstr(err.text, why));
	for (size_t i = 0; expected == GP_OK && i < 3; i++)
		assert_true(isfinite(y[i]));
	gp_codec_free(c);
}

#define BODY(...)                                                                                                      \
	(const uint8_t[]){__VA_ARGS__}, sizeof(const uint8_t[])                                                        \
	{                                                                                                              \
		__VA_ARGS__                                                                                            \
	}

static void hostile_payloads_are_refused(void **state)
{
	(void)state;
	/* Unit 1, scale 1, codes 8, 9, 15. */
	assert_decodes("block", GP_OK, NULL, BODY(0, 0, 0x80, 0x3f, 0, 0x3c, 0x98, 0x0f));
	assert_decodes("block", GP_PROTO, "unit", BODY(1, 0, 0x80, 0x3f, 0, 0x3c, 0x98, 0x0f));
	assert_decodes("block", GP_PROTO, "unit", BODY(0, 0, 0x80, 0xbf, 0, 0x3c, 0x98, 0x0f));
	assert_decodes("block", GP_PROTO, "unit", BODY(0, 0, 0x80, 0x7f, 0, 0x3c, 0x98, 0x0f));
	assert_decodes("block", GP_PROTO, "unit", BODY(0, 0, 0, 0, 0, 0x3c, 0x98, 0x0f));
	assert_decodes("block", GP_PROTO, "scale 0", BODY(0, 0, 0x80, 0x3f, 0, 0x7c, 0x98, 0x0f));
	assert_decodes("block", GP_PROTO, "scale 0", BODY(0, 0, 0x80, 0x3f, 1, 0x7e, 0x98, 0x0f));
	assert_decodes("block", GP_PROTO, "scale 0", BODY(0, 0, 0x80, 0x3f, 0, 0xbc, 0x98, 0x0f));
	assert_decodes("block", GP_PROTO, "scale 0", BODY(0, 0, 0, 0x7d, 0xff, 0x7b, 0x98, 0x0f)); /* overflows */
	assert_decodes("block", GP_PROTO, "without a level", BODY(0, 0, 0x80, 0x3f, 0, 0x3c, 0x90, 0x0f));
	assert_decodes("block", GP_PROTO, "behind its last code", BODY(0, 0, 0x80, 0x3f, 0, 0x3c, 0x98, 0x1f));
	assert_decodes("block", GP_PROTO, "instead of 8", BODY(0, 0, 0x80, 0x3f, 0, 0x3c, 0x98));
	assert_decodes("block:scale=e8m0", GP_OK, NULL, BODY(127, 0x98, 0x0f));
	assert_decodes("block:scale=e8m0", GP_PROTO, "scale 0", BODY(255, 0x98, 0x0f));
	assert_decodes("block:scale=e8m0", GP_PROTO, "scale 0", BODY(0, 0x98, 0x0f));
	assert_decodes("block:scale=e8m0", GP_PROTO, "scale 0", BODY(254, 0x98, 0x0f));
	assert_decodes("block:scale=e8m0,zero=asym", GP_OK, NULL, BODY(127, 15, 0x90, 0x0f));
	assert_decodes("block:scale=e8m0,zero=asym", GP_PROTO, "zero point 0", BODY(127, 16, 0x90, 0x0f));
	assert_decodes("mxfp4", GP_OK, NULL, BODY(252, 0xf0, 0x0f));
	assert_decodes("mxfp4", GP_PROTO, "at most 252", BODY(253, 0xf0, 0x0f));
	assert_decodes("mxfp4", GP_PROTO, "at most 252", BODY(255, 0xf0, 0x0f));
	assert_decodes("mxfp4", GP_PROTO, "behind its last code", BODY(127, 0xf0, 0xff));
	assert_decodes("mxfp6", GP_PROTO, "at most 250", BODY(251, 0, 0, 0));
	assert_decodes("mxfp8", GP_OK, NULL, BODY(246, 0x7e, 0xfe, 0));
	assert_decodes("mxfp8", GP_PROTO, "at most 246", BODY(247, 0, 0, 0));
	assert_decodes("mxfp8", GP_PROTO, "not finite", BODY(127, 0x7f, 0, 0));
	assert_decodes("mxfp8", GP_PROTO, "not finite", BODY(127, 0, 0, 0xff));
	assert_decodes("mxfp8:format=e5m2", GP_OK, NULL, BODY(239, 0x7b, 0, 0));
	assert_decodes("mxfp8:format=e5m2", GP_PROTO, "not finite", BODY(127, 0x7c, 0, 0));
	assert_decodes("nvfp4", GP_OK, NULL, BODY(0, 0, 0x80, 0x3f, 0x7e, 0xf0, 0x0f));
	assert_decodes("nvfp4", GP_PROTO, "scale", BODY(0, 0, 0x80, 0x3f, 0x7f, 0xf0, 0x0f));
	assert_decodes("nvfp4", GP_PROTO, "scale", BODY(0, 0, 0x80, 0x3f, 0x81, 0xf0, 0x0f));
	assert_decodes("nvfp4", GP_PROTO, "scale", BODY(0, 0, 0x80, 0x7f, 0, 0xf0, 0x0f));
	assert_decodes("nvfp4", GP_PROTO, "scale", BODY(0, 0, 0x80, 0xbf, 0, 0xf0, 0x0f));
	assert_decodes("nvfp4", GP_PROTO, "scale", BODY(0, 0, 0, 0x7e, 0, 0xf0, 0x0f));
	assert_decodes("nvfp4", GP_PROTO, "scale", BODY(0, 0, 0, 0, 0, 0xf0, 0x0f));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(payloads_and_tensors_are_those_of_the_reference),
		cmocka_unit_test(an_error_is_at_most_half_a_step_of_the_block),
		cmocka_unit_test(the_chosen_clip_is_never_worse_than_none),
		cmocka_unit_test(channels_of_few_elements_take_no_memory),
		cmocka_unit_test(draws_follow_from_the_step_and_have_no_bias),
		cmocka_unit_test(halves_reach_from_the_smallest_gradients_to_the_largest_numbers),
		cmocka_unit_test(channels_of_zeros_are_coded_with_the_least_scale),
		cmocka_unit_test(chains_with_blocks_are_coded),
		cmocka_unit_test(hostile_payloads_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
