/* SPDX-License-Identifier: Apache-2.0
 *
 * Codecs that remember: error feedback, and what holds for every memory
 * (per chunk, untouched by evaluations and raw tensors, saved, loaded, hashed).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "common/codec/codec.h"
#include "common/base/rng.h"

enum { N = 500, CHUNKS = 3 };

static struct gp_codec *open_codec(const char *text, enum gp_codec_role role)
{
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	struct gp_codec *c = NULL;
	const struct gp_shape shape = {.ndim = 2, .dim = {5, N / 5}};
	const struct gp_codec_options options = {.seed = 1, .role = role, .chunks = CHUNKS};
	assert_int_equal(gp_codec_spec_parse(text, &spec, &err), GP_OK);
	assert_int_equal(gp_codec_open(&spec, &shape, &options, &c, &err), GP_OK);
	return c;
}

struct ends {
	struct gp_codec *in, *out;
};

static struct ends open_ends(const char *text)
{
	return (struct ends){open_codec(text, GP_CODEC_ENCODES), open_codec(text, GP_CODEC_DECODES)};
}

static void close_ends(struct ends *e)
{
	gp_codec_free(e->in);
	gp_codec_free(e->out);
}

static void fill(float *x, uint64_t stream)
{
	for (int i = 0; i < N; i++)
		x[i] = gp_rng_normal(2, stream, (uint64_t)i);
}

static void send(struct ends *e, const struct gp_codec_pass *pass, const float *x, float *y)
{
	struct gp_err err = {0};
	size_t len;
	uint8_t *payload = malloc(gp_codec_bound(e->in));
	const uint64_t calls = gp_mem_calls();
	assert_int_equal(gp_codec_encode_pass(e->in, pass, x, payload, gp_codec_bound(e->in), &len, &err), GP_OK);
	payload = realloc(payload, len);
	assert_int_equal(gp_codec_decode_pass(e->out, pass, (struct gp_span){payload, len}, y, &err), GP_OK);
	assert_int_equal(gp_mem_calls(), calls);
	free(payload);
}

/* When a tensor is sent again and again, the mean of what arrives comes as close to it as one likes. */
static void error_feedback_sends_in_the_end_what_was_lost(void **state)
{
	(void)state;
	struct ends e = open_ends("ef+uniform:bits=3");
	float x[N], y[N];
	double sum[N] = {0};
	fill(x, 1);
	for (int step = 0; step < 200; step++) {
		send(&e, &(struct gp_codec_pass){.draw = (uint64_t)step}, x, y);
		for (int i = 0; i < N; i++)
			sum[i] += y[i];
	}
	for (int i = 0; i < N; i++)
		assert_true(fabs(sum[i] / 200 - (double)x[i]) < 0.01); /* one tensor alone: up to half a step, 0.4 */
	close_ends(&e);
}

static void chunks_remember_apart(void **state)
{
	(void)state;
	struct ends e = open_ends("ef+uniform:bits=2"), single = open_ends("ef+uniform:bits=2");
	float x[N], other[N], y[N], expected[N];
	fill(x, 1);
	fill(other, 2);
	for (int step = 0; step < 4; step++) {
		send(&e, &(struct gp_codec_pass){.chunk = 2}, other, y);
		send(&e, &(struct gp_codec_pass){.chunk = 1}, x, y);
		send(&single, &(struct gp_codec_pass){.chunk = 0}, x, expected);
		assert_memory_equal(y, expected, sizeof y);
	}
	close_ends(&e);
	close_ends(&single);
}

static void evaluations_leave_memory_alone(void **state)
{
	(void)state;
	struct ends e = open_ends("ef+uniform:bits=2");
	float x[N], y[N], first[N];
	fill(x, 1);
	send(&e, &(struct gp_codec_pass){.eval = true}, x, first);
	send(&e, &(struct gp_codec_pass){0}, x, y);
	const uint64_t hash = gp_codec_state_hash(e.in);
	send(&e, &(struct gp_codec_pass){.eval = true, .chunk = 7}, x, y);
	assert_memory_equal(y, first, sizeof y);
	x[4] = NAN;
	send(&e, &(struct gp_codec_pass){.eval = true}, x, y);
	assert_memory_equal(y, x, sizeof y);
	assert_true(gp_codec_state_hash(e.in) == hash);
	close_ends(&e);
}

static void what_travels_raw_is_owed_no_more(void **state)
{
	(void)state;
	struct ends e = open_ends("ef+uniform:bits=2"), fresh = open_ends("ef+uniform:bits=2");
	struct gp_codec_stats stats;
	float x[N], y[N];
	fill(x, 1);
	send(&e, &(struct gp_codec_pass){0}, x, y);
	assert_true(gp_codec_state_hash(e.in) != gp_codec_state_hash(fresh.in));
	x[4] = INFINITY;
	send(&e, &(struct gp_codec_pass){0}, x, y);
	assert_memory_equal(y, x, sizeof y);
	assert_true(gp_codec_state_hash(e.in) == gp_codec_state_hash(fresh.in));
	gp_codec_get_stats(e.in, &stats);
	assert_int_equal(stats.raw_fallbacks, 1);
	close_ends(&e);
	close_ends(&fresh);
}

static void a_run_goes_on_from_saved_memory_as_if_nothing_had_happened(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct ends e = open_ends("ef+uniform:bits=2"), again = open_ends("ef+uniform:bits=2");
	float x[N], y[N], expected[N];
	fill(x, 1);
	for (uint32_t step = 0; step < 5; step++)
		send(&e, &(struct gp_codec_pass){.chunk = step % CHUNKS}, x, y);
	const size_t bytes = gp_codec_state_bytes(e.in);
	uint8_t *saved = malloc(bytes);
	assert_int_equal(gp_codec_state_save(e.in, saved, NULL), GP_OK);
	assert_int_equal(gp_codec_state_load(again.in, (struct gp_span){saved, bytes}, &err), GP_OK);
	assert_true(gp_codec_state_hash(e.in) == gp_codec_state_hash(again.in));
	send(&e, &(struct gp_codec_pass){.chunk = 1}, x, expected);
	send(&again, &(struct gp_codec_pass){.chunk = 1}, x, y);
	assert_memory_equal(y, expected, sizeof y);
	free(saved);
	close_ends(&e);
	close_ends(&again);
}

static void saved_memory_that_is_damaged_or_of_another_codec_is_refused(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_codec *c = open_codec("ef+uniform:bits=2", GP_CODEC_ENCODES);
	struct gp_codec *other = open_codec("ef+uniform:bits=3", GP_CODEC_ENCODES);
	const size_t bytes = gp_codec_state_bytes(c);
	uint8_t *saved = malloc(bytes);
	assert_int_equal(gp_codec_state_save(other, saved, NULL), GP_OK);
	assert_int_equal(gp_codec_state_load(c, (struct gp_span){saved, bytes}, &err), GP_INVALID);
	assert_int_equal(gp_codec_state_save(c, saved, NULL), GP_OK);
	const uint64_t hash = gp_codec_state_hash(c);
	assert_int_equal(gp_codec_state_load(c, (struct gp_span){saved, bytes - 1}, &err), GP_INVALID);
	for (size_t at = 0; at < bytes; at += at < 40 ? 1 : 97) {
		saved[at] ^= 0x10;
		assert_int_equal(gp_codec_state_load(c, (struct gp_span){saved, bytes}, &err), GP_INVALID);
		saved[at] ^= 0x10;
	}
	assert_true(gp_codec_state_hash(c) == hash);
	free(saved);
	gp_codec_free(c);
	gp_codec_free(other);
}

static void codecs_say_whether_they_remember(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		bool encoder, decoder;
	} cases[] = {
		{"raw", false, false},
		{"topk:ratio=0.1+uniform:bits=8+zstd", false, false},
		{"hadamard+block:round=stochastic", false, false},
		{"qsgd", false, false},
		{"ef+uniform:bits=2", true, false},
		{"delta:samples=9+fp16", true, true},
		{"alq", true, false},
		{"amq", true, false},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct ends e = open_ends(cases[i].text);
		struct gp_codec *both = open_codec(cases[i].text, GP_CODEC_BOTH);
		if (gp_codec_remembers(e.in) != cases[i].encoder || gp_codec_remembers(e.out) != cases[i].decoder ||
		    gp_codec_remembers(both) != cases[i].encoder)
			fail_msg("%s", cases[i].text);
		gp_codec_free(both);
		close_ends(&e);
	}
}

static void memory_is_accounted_before_it_is_taken(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	const struct gp_shape shape = {.ndim = 2, .dim = {64, 1000}};
	struct gp_codec_options options = {.role = GP_CODEC_ENCODES, .chunks = 10};
	uint64_t encodes, decodes;
	assert_int_equal(gp_codec_spec_parse("ef+uniform:bits=2", &spec, &err), GP_OK);
	assert_int_equal(gp_codec_bytes_for(&spec, &shape, &options, &encodes, &err), GP_OK);
	options.role = GP_CODEC_DECODES;
	assert_int_equal(gp_codec_bytes_for(&spec, &shape, &options, &decodes, &err), GP_OK);
	assert_in_range(encodes, 4 * 64000 * 11, 4 * 64000 * 11 + 65536);
	assert_in_range(decodes, 4 * 64000, 4 * 64000 + 65536);
}

static void an_end_does_only_what_it_was_opened_for(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct ends e = open_ends("uniform");
	float x[N] = {0};
	uint8_t out[4 * N + 64];
	size_t len;
	assert_int_equal(gp_codec_encode(e.out, x, 0, out, sizeof out, &len, &err), GP_INTERNAL);
	assert_int_equal(gp_codec_decode(e.in, (struct gp_span){out, 4}, x, &err), GP_INTERNAL);
	assert_int_equal(gp_codec_state_hash(e.in), 0);
	close_ends(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(error_feedback_sends_in_the_end_what_was_lost),
		cmocka_unit_test(chunks_remember_apart),
		cmocka_unit_test(evaluations_leave_memory_alone),
		cmocka_unit_test(what_travels_raw_is_owed_no_more),
		cmocka_unit_test(a_run_goes_on_from_saved_memory_as_if_nothing_had_happened),
		cmocka_unit_test(saved_memory_that_is_damaged_or_of_another_codec_is_refused),
		cmocka_unit_test(codecs_say_whether_they_remember),
		cmocka_unit_test(memory_is_accounted_before_it_is_taken),
		cmocka_unit_test(an_end_does_only_what_it_was_opened_for),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
