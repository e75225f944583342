/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays that lie encoded in memory (common/codec/codec_store.h): what comes
 * back is what the codec's own payload gives, block by block; room is never
 * passed; what no codec can represent is limited; what cannot be is refused.
 */
#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/codec/moment_store.h"
#include "tests/unit/ok.h"

static const char *const specs[] = {"fp16",
				    "bf16",
				    "fp8:format=e4m3",
				    "fp8:format=e5m2",
				    "s2fp8",
				    "smaq:main=6,outlier=8",
				    "smaq:main=6,outlier=8,round=nearest,reach=8",
				    "smaq:main=5,outlier=9,reach=1000",
				    "uniform:bits=8",
				    "uniform:bits=3",
				    "sortquant:bits=6,split=2"};
enum { SPECS = sizeof specs / sizeof specs[0] };
/* One element, a part of a block, a whole one, and several with a short last one. */
static const uint64_t sizes[] = {1, 100, GP_STORE_BLOCK, 2 * GP_STORE_BLOCK + 77};

static struct gp_codec_spec parse(const char *text)
{
	struct gp_codec_spec spec;
	OK(gp_codec_spec_parse(text, &spec, &err));
	return spec;
}

static float *draw(uint64_t n)
{
	float *x = gp_calloc(n, sizeof *x);
	assert_non_null(x);
	for (uint64_t i = 0; i < n; i++)
		x[i] = gp_rng_normal(3, 1, i) * (i < GP_STORE_BLOCK ? 1.0f : 50.0f);
	return x;
}

/* Through the store; behind its room nothing is written. */
static void come_back(const struct gp_codec_spec *spec, const float *x, uint64_t n, float *out)
{
	struct gp_store_coder *c;
	const uint64_t bytes = gp_store_bytes(spec, n);
	uint8_t *store = gp_calloc(bytes + 16, 1);
	assert_non_null(store);
	memset(store + bytes, 0x5a, 16);
	OK(gp_store_coder_new(spec, &c, &err));
	for (uint64_t k = gp_store_blocks(n); k-- > 0;)
		gp_store_encode(c, x, n, k, store);
	for (uint64_t k = 0; k < gp_store_blocks(n); k++)
		gp_store_decode(c, store, n, k, out);
	for (int i = 0; i < 16; i++)
		assert_int_equal(store[bytes + (uint64_t)i], 0x5a);
	gp_store_coder_free(c);
	gp_free(store);
}

static void expect_payloads_values(const struct gp_codec_spec *spec, const float *x, uint64_t n, const float *got)
{
	for (uint64_t at = 0; at < n; at += GP_STORE_BLOCK) {
		const uint64_t count = n - at < GP_STORE_BLOCK ? n - at : GP_STORE_BLOCK;
		const struct gp_shape shape = {.ndim = 1, .dim = {(int64_t)count}};
		struct gp_codec *c;
		size_t len;
		OK(gp_codec_new(spec, &shape, 1, &c, &err));
		uint8_t *payload = gp_calloc(gp_codec_bound(c), 1);
		float *want = gp_calloc(count, sizeof *want);
		assert_true(payload && want);
		OK(gp_codec_encode(c, x + at, 0, payload, gp_codec_bound(c), &len, &err));
		OK(gp_codec_decode(c, (struct gp_span){payload, len}, want, &err));
		assert_memory_equal(got + at, want, count * sizeof *want);
		gp_free(want);
		gp_free(payload);
		gp_codec_free(c);
	}
}

static void blocks_come_back_as_from_payloads_of_their_own(void **state)
{
	(void)state;
	for (int i = 0; i < SPECS; i++)
		for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
			const struct gp_codec_spec spec = parse(specs[i]);
			float *x = draw(sizes[k]), *y = draw(sizes[k]), *z = draw(sizes[k]);
			struct gp_store_coder *c;
			OK(gp_store_check(&spec, false, &err));
			come_back(&spec, x, sizes[k], y);
			expect_payloads_values(&spec, x, sizes[k], y);
			OK(gp_store_coder_new(&spec, &c, &err));
			for (uint64_t block = 0; block < gp_store_blocks(sizes[k]); block++)
				gp_store_round_trip(c, z, sizes[k], block);
			assert_memory_equal(y, z, sizes[k] * sizeof *y);
			gp_store_coder_free(c);
			gp_free(x);
			gp_free(y);
			gp_free(z);
		}
}

static void room_is_what_the_codec_needs(void **state)
{
	(void)state;
	struct gp_codec_spec spec = parse("uniform:bits=8");
	assert_in_range(gp_store_bytes(&spec, 1 << 20), 1 << 20, (1 << 20) + (1 << 20) / 500);
	spec = parse("bf16");
	assert_in_range(gp_store_bytes(&spec, 1 << 20), 2 << 20, (2 << 20) + (1 << 20) / 500);
}

static void what_is_not_representable_is_limited(void **state)
{
	(void)state;
	float y[6];
	const float x[6] = {NAN, INFINITY, -INFINITY, 1e30f, 1.0f, -2.0f};
	for (int i = 0; i < SPECS; i++) {
		const struct gp_codec_spec spec = parse(specs[i]);
		come_back(&spec, x, 6, y);
		for (int k = 0; k < 6; k++)
			assert_true(isfinite(y[k]));
	}
	const struct gp_codec_spec spec = parse("fp16");
	come_back(&spec, x, 6, y);
	assert_true(y[0] == 0.0f && y[1] > 50000.0f && y[2] < -50000.0f && y[4] == 1.0f && y[5] == -2.0f);
}

/* However far smaq reaches: what is too large for it becomes much larger than the next smaller limit of 57344. */
static void a_long_reach_is_limited_to_large_numbers(void **state)
{
	(void)state;
	static const char *const texts[] = {"smaq:reach=2.5", "smaq:reach=8", "smaq:reach=1000"};
	const float x[4] = {3e38f, -3e38f, 3e38f, -3e38f};
	float y[4];
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		const struct gp_codec_spec spec = parse(texts[i]);
		come_back(&spec, x, 4, y);
		assert_true(y[0] > 1e34f && y[1] < -1e34f && y[2] > 1e34f && y[3] < -1e34f);
	}
}

static void what_cannot_lie_in_memory_is_refused_by_name(void **state)
{
	(void)state;
	static const char *const bad[][2] = {{"raw", "raw cannot"},
					     {"topk:ratio=0.1", "topk cannot"},
					     {"kmeans", "kmeans cannot"},
					     {"uniform:bits=8+zstd", "zstd cannot"},
					     {"ef+uniform:bits=8", "ef cannot"},
					     {"sortquant:bits=6,split=2,prune=0.5", "leaves elements out"}};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		const struct gp_codec_spec spec = parse(bad[i][0]);
		assert_int_equal(gp_store_check(&spec, true, &err), GP_USAGE);
		if (!strstr(err.text, bad[i][1]))
			fail_msg("'%s' does not say '%s'", err.text, bad[i][1]);
	}
	const struct gp_codec_spec drawn = parse("smaq:round=stochastic");
	assert_int_equal(gp_store_check(&drawn, false, &err), GP_USAGE);
	assert_non_null(strstr(err.text, "for state= alone"));
	OK(gp_store_check(&drawn, true, &err));
}

/* --- state arrays ------------------------------------------------------------------------------------------------- */

/* A mean far from 0, so that no codec has a 0 by chance; some zeros, in the first block and the last. */
static float *draw_state(uint64_t n)
{
	float *x = draw(n);
	for (uint64_t i = 0; i < n; i++)
		x[i] = i % 5 == 3 && (i < 1000 || n - i < 50) ? 0.0f : fabsf(x[i]) + 0.013f;
	return x;
}

static void zeros_of_state_stay_zero(void **state)
{
	(void)state;
	for (int i = 0; i < SPECS; i++)
		for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
			const struct gp_codec_spec spec = parse(specs[i]);
			const uint64_t n = sizes[k], bytes = gp_moment_bytes(&spec, n);
			float *x = draw_state(n), *y = draw(n), *z = draw(n);
			uint8_t *array = gp_calloc(bytes + 16, 1);
			struct gp_store_coder *c;
			assert_non_null(array);
			memset(array + bytes, 0x5a, 16);
			OK(gp_store_coder_new(&spec, &c, &err));
			come_back(&spec, x, n, z);
			for (uint64_t block = gp_store_blocks(n); block-- > 0;)
				gp_moment_encode(c, &(struct gp_moment_draw){1, 2}, x + block * GP_STORE_BLOCK, n,
						 block, array);
			OK(gp_moment_accept(c, array, n, &err));
			for (uint64_t block = 0; block < gp_store_blocks(n); block++)
				gp_moment_decode(c, array, n, block, y + block * GP_STORE_BLOCK);
			for (uint64_t e = 0; e < n; e++)
				if (x[e] == 0.0f ? y[e] != 0.0f : y[e] != z[e] && y[e] != 0.0f)
					fail_msg("%s: %g becomes %g, not %g", specs[i], (double)x[e], (double)y[e],
						 (double)z[e]);
			for (int e = 0; e < 16; e++)
				assert_int_equal(array[bytes + (uint64_t)e], 0x5a);
			gp_store_coder_free(c);
			gp_free(array);
			gp_free(x);
			gp_free(y);
			gp_free(z);
		}
}

/* Some averages move by little of the way to their aim in each update, as an optimizer's second moments do: less than half a
 * level, so that a codec that rounds to the nearest one holds them up. One that rounds stochastically lets them get there, in
 * their mean. */
static double average_after(const char *text, int updates)
{
	enum { N = 20000 };
	const struct gp_codec_spec spec = parse(text);
	uint8_t *array = gp_calloc(gp_moment_bytes(&spec, N), 1);
	float *x = draw(N);
	struct gp_store_coder *c;
	double sum = 0;
	assert_non_null(array);
	OK(gp_store_check(&spec, true, &err));
	OK(gp_store_coder_new(&spec, &c, &err));
	for (int i = 0; i < N; i++)
		x[i] = 1.0f + 0.01f * (float)(i % 100);
	for (int u = 1; u <= updates; u++) {
		gp_moment_encode(c, &(struct gp_moment_draw){9, (uint64_t)u}, x, N, 0, array);
		gp_moment_decode(c, array, N, 0, x);
		for (int i = 0; i < N; i += 100)
			x[i] += 0.002f * (2.0f - x[i]);
	}
	for (int i = 0; i < N; i += 100)
		sum += (double)x[i] / (N / 100);
	gp_store_coder_free(c);
	gp_free(array);
	gp_free(x);
	return sum;
}

static void averages_move_where_rounding_is_stochastic(void **state)
{
	(void)state;
	enum { UPDATES = 400 };
	const double there = 2.0 - pow(1 - 0.002, UPDATES);
	assert_true(fabs(average_after("smaq:main=6,outlier=8,round=stochastic", UPDATES) - there) < 0.05);
	assert_true(average_after("smaq:main=6,outlier=8,round=nearest", UPDATES) < there - 0.3);
}

/* Draws are of an element, an array and an update: blocks of their own give what an array gives, another update or array not. */
static void draws_are_those_of_the_array_and_the_update(void **state)
{
	(void)state;
	enum { N = 70000 };
	const struct gp_codec_spec spec = parse("smaq:main=6,outlier=8,round=stochastic");
	const uint64_t bytes = gp_moment_bytes(&spec, N);
	const struct gp_moment_draw draws[] = {{5, 7}, {5, 7}, {5, 8}, {6, 7}};
	uint8_t *array[4];
	float *x = draw(N);
	struct gp_store_coder *c;
	OK(gp_store_coder_new(&spec, &c, &err));
	for (int k = 0; k < 4; k++) {
		array[k] = gp_calloc(bytes, 1);
		assert_non_null(array[k]);
		for (uint64_t i = 0; i < 2; i++) {
			const uint64_t block = k == 1 ? 1 - i : i;
			gp_moment_encode(c, &draws[k], x + block * GP_STORE_BLOCK, N, block, array[k]);
		}
	}
	assert_memory_equal(array[0], array[1], bytes);
	assert_memory_not_equal(array[0], array[2], bytes);
	assert_memory_not_equal(array[0], array[3], bytes);
	/* What is the same in both blocks is not rounded alike. */
	const uint64_t head = 64, code = head + gp_store_block_bytes(&spec);
	memcpy(x + GP_STORE_BLOCK, x, (N - GP_STORE_BLOCK) * sizeof *x);
	gp_moment_encode(c, &draws[0], x, N, 0, array[0]);
	gp_moment_encode(c, &draws[0], x + GP_STORE_BLOCK, N, 1, array[0]);
	assert_memory_not_equal(array[0] + head + 16, array[0] + code + 16, 2000);
	assert_int_not_equal(gp_moment_array(1, "a", 0), gp_moment_array(1, "a", 1));
	assert_int_not_equal(gp_moment_array(1, "a", 0), gp_moment_array(1, "b", 0));
	assert_int_not_equal(gp_moment_array(1, "a", 0), gp_moment_array(2, "a", 0));
	for (int k = 0; k < 4; k++)
		gp_free(array[k]);
	gp_store_coder_free(c);
	gp_free(x);
}

/* Each byte of a small array in turn: decoded, or refused in words. */
static void bytes_that_are_no_code_are_refused(void **state)
{
	(void)state;
	float x[40], y[40];
	for (int i = 0; i < 40; i++)
		x[i] = (float)i - 7.0f;
	for (int i = 0; i < SPECS; i++) {
		const struct gp_codec_spec spec = parse(specs[i]);
		const uint64_t bytes = gp_moment_bytes(&spec, 40);
		uint8_t *array = gp_calloc(bytes, 1);
		struct gp_store_coder *c;
		int refused = 0;
		assert_non_null(array);
		OK(gp_store_coder_new(&spec, &c, &err));
		for (uint64_t at = 0; at < bytes; at++) {
			memset(array, 0, bytes);
			gp_moment_encode(c, &(struct gp_moment_draw){1, 2}, x, 40, 0, array);
			array[at] ^= 0xff;
			const enum gp_status status = gp_moment_accept(c, array, 40, &err);
			assert_true(status == GP_OK || status == GP_INVALID);
			refused += status == GP_INVALID;
			if (status == GP_OK)
				gp_moment_decode(c, array, 40, 0, y);
		}
		assert_true(refused >= 8); /* place and length, at least */
		gp_store_coder_free(c);
		gp_free(array);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_come_back_as_from_payloads_of_their_own),
		cmocka_unit_test(room_is_what_the_codec_needs),
		cmocka_unit_test(what_is_not_representable_is_limited),
		cmocka_unit_test(a_long_reach_is_limited_to_large_numbers),
		cmocka_unit_test(what_cannot_lie_in_memory_is_refused_by_name),
		cmocka_unit_test(zeros_of_state_stay_zero),
		cmocka_unit_test(averages_move_where_rounding_is_stochastic),
		cmocka_unit_test(draws_are_those_of_the_array_and_the_update),
		cmocka_unit_test(bytes_that_are_no_code_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
