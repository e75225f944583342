/* SPDX-License-Identifier: Apache-2.0
 *
 * delta (common/codec/stages/delta.c): both ends remember alike, what is sent is what
 * has changed, and bytes from a peer cannot make them remember anything else.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "common/codec/codec.h"
#include "common/codec/codec_impl.h"
#include "common/base/rng.h"

enum { ROWS = 4, ROW = 50, N = ROWS * ROW, SAMPLES = 10 };

struct ends {
	struct gp_codec *in, *out;
};

static struct gp_codec *open_end(const char *text, enum gp_codec_role role)
{
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	struct gp_codec *c = NULL;
	const struct gp_shape shape = {.ndim = 2, .dim = {ROWS, ROW}};
	const struct gp_codec_options options = {.role = role, .chunks = 2};
	assert_int_equal(gp_codec_spec_parse(text, &spec, &err), GP_OK);
	assert_int_equal(gp_codec_spec_set_samples(&spec, SAMPLES, &err), GP_OK);
	assert_int_equal(gp_codec_open(&spec, &shape, &options, &c, &err), GP_OK);
	return c;
}

static struct ends open_ends(const char *text)
{
	return (struct ends){open_end(text, GP_CODEC_ENCODES), open_end(text, GP_CODEC_DECODES)};
}

static void close_ends(struct ends *e)
{
	gp_codec_free(e->in);
	gp_codec_free(e->out);
}

/* Row r: the activation of a sample, a little different at each visit. */
static void fill(float *x, const uint32_t *sample, uint64_t visit)
{
	for (int i = 0; i < N; i++)
		x[i] = gp_rng_normal(1, sample[i / ROW], (uint64_t)(i % ROW)) +
		       0.01f * gp_rng_normal(2 + visit, sample[i / ROW], (uint64_t)(i % ROW));
}

static size_t send(struct ends *e, const struct gp_codec_pass *pass, const float *x, float *y)
{
	struct gp_err err = {0};
	size_t len;
	uint8_t *payload = malloc(gp_codec_bound(e->in));
	const uint64_t calls = gp_mem_calls();
	assert_int_equal(gp_codec_encode_pass(e->in, pass, x, payload, gp_codec_bound(e->in), &len, &err), GP_OK);
	payload = realloc(payload, len);
	assert_int_equal(gp_codec_decode_pass(e->out, pass, (struct gp_span){payload, len}, y, &err), GP_OK);
	assert_int_equal(gp_mem_calls(), calls);
	assert_true(gp_codec_state_shared_hash(e->in) == gp_codec_state_shared_hash(e->out));
	free(payload);
	return len;
}

static double relative_error(const float *x, const float *y)
{
	double error = 0, norm = 0;
	for (int i = 0; i < N; i++) {
		error += pow((double)x[i] - (double)y[i], 2);
		norm += pow((double)x[i], 2);
	}
	return sqrt(error / norm);
}

static void a_later_visit_costs_the_error_of_what_has_changed(void **state)
{
	(void)state;
	struct ends e = open_ends("delta+uniform:bits=4");
	const uint32_t sample[ROWS] = {3, 0, 9, 7};
	float x[N], y[N];
	fill(x, sample, 0);
	const size_t first_len = send(&e, &(struct gp_codec_pass){.sample = sample}, x, y);
	const double first = relative_error(x, y);
	double last = first;
	for (uint64_t visit = 1; visit < 5; visit++) {
		fill(x, sample, visit);
		assert_int_equal(send(&e, &(struct gp_codec_pass){.sample = sample, .chunk = visit % 2}, x, y),
				 first_len);
		last = relative_error(x, y);
	}
	print_message("relative error %.4f at the first visit, %.4f at the fifth\n", first, last);
	assert_true(first > 0.05 && last < 0.01);
	close_ends(&e);
}

static void both_ends_agree_through_anything(void **state)
{
	(void)state;
	struct ends e = open_ends("delta+uniform:bits=3+zstd");
	float x[N], y[N];
	for (uint64_t step = 0; step < 200; step++) {
		uint32_t sample[ROWS]; /* twice the same, and too large ones, among them */
		for (uint64_t r = 0; r < ROWS; r++)
			sample[r] = gp_rng_below(6, 6, ROWS * step + r, SAMPLES + 3);
		fill(x, sample, step);
		if (step % 7 == 3)
			x[step] = step % 2 ? NAN : INFINITY;
		if (step % 11 == 5)
			for (int i = 0; i < ROW; i++)
				x[i] = i % 2 ? 3e38f : -3e38f;
		const struct gp_codec_pass pass = {.sample = step % 13 ? sample : NULL, .eval = step % 5 == 0};
		send(&e, &pass, x, y);
		for (int i = 0; i < N && step % 7 != 3 && step % 11 != 5; i++)
			assert_true(isfinite(y[i]));
	}
	close_ends(&e);
}

/* The next stage enlarges some numbers, and the sum with what is remembered has to stay finite. */
static void what_is_finite_arrives_finite_however_large(void **state)
{
	(void)state;
	static const char *const specs[] = {"delta+terngrad", "delta+qsgdinf:bits=1", "delta+sortquant:bits=2,split=1",
					    "delta+smaq", "delta+s2fp8", "delta+uniform:bits=1"};
	static const uint32_t sample[ROWS] = {0, 1, 2, 3};
	float x[N], y[N];
	for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++)
		for (int power = 96; power < 128; power++) {
			struct ends e = open_ends(specs[s]);
			for (uint64_t step = 0; step < 12; step++) {
				for (int i = 0; i < N; i++)
					x[i] = ldexpf(2 * gp_rng_uniform(3, step, (uint64_t)i) - 1, power);
				send(&e, &(struct gp_codec_pass){.step = step, .draw = step, .sample = sample}, x, y);
				for (int i = 0; i < N; i++)
					assert_true(isfinite(y[i]));
			}
			close_ends(&e);
		}
}

/* One row that is seen for the first time is not finite: the others, which are differences, do not lose by that. */
static void a_tensor_that_is_not_finite_in_one_row_arrives_bit_for_bit(void **state)
{
	(void)state;
	static const uint32_t first[ROWS] = {0, 1, 2, 3}, second[ROWS] = {0, 1, 2, 4};
	struct ends e = open_ends("delta+uniform:bits=4");
	float x[N], y[N];
	fill(x, first, 0);
	send(&e, &(struct gp_codec_pass){.sample = first}, x, y);
	fill(x, second, 1);
	x[N - 1] = NAN;
	send(&e, &(struct gp_codec_pass){.step = 1, .draw = 1, .sample = second}, x, y);
	assert_memory_equal(x, y, sizeof x);
	close_ends(&e);
}

static void evaluations_and_rows_without_number_change_nothing(void **state)
{
	(void)state;
	struct ends e = open_ends("delta+uniform:bits=4");
	const uint32_t sample[ROWS] = {1, 2, 3, 4};
	float x[N], y[N], again[N];
	fill(x, sample, 0);
	send(&e, &(struct gp_codec_pass){.sample = sample}, x, y);
	const uint64_t hash = gp_codec_state_shared_hash(e.in);
	assert_true(hash != 0);
	send(&e, &(struct gp_codec_pass){.sample = sample, .eval = true}, x, again);
	assert_memory_equal(again, y, sizeof y);
	send(&e, &(struct gp_codec_pass){0}, x, again);
	assert_memory_equal(again, y, sizeof y);
	assert_true(gp_codec_state_shared_hash(e.in) == hash);
	close_ends(&e);
}

static void saved_memory_continues_on_both_ends(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct ends e = open_ends("delta+uniform:bits=4"), again = open_ends("delta+uniform:bits=4");
	const uint32_t sample[ROWS] = {1, 2, 3, 4};
	float x[N], y[N], expected[N];
	fill(x, sample, 0);
	send(&e, &(struct gp_codec_pass){.sample = sample}, x, y);
	const size_t bytes = gp_codec_state_bytes(e.in);
	uint8_t *saved = malloc(bytes);
	assert_int_equal(gp_codec_state_bytes(e.out), bytes);
	assert_int_equal(gp_codec_state_save(e.in, saved, NULL), GP_OK);
	assert_int_equal(gp_codec_state_load(again.in, (struct gp_span){saved, bytes}, &err), GP_OK);
	assert_int_equal(gp_codec_state_save(e.out, saved, NULL), GP_OK);
	assert_int_equal(gp_codec_state_load(again.out, (struct gp_span){saved, bytes}, &err), GP_OK);
	fill(x, sample, 1);
	send(&e, &(struct gp_codec_pass){.sample = sample}, x, expected);
	send(&again, &(struct gp_codec_pass){.sample = sample}, x, y);
	assert_memory_equal(y, expected, sizeof y);
	free(saved);
	close_ends(&e);
	close_ends(&again);
}

/* Head, u32 length of side bytes, the entries, then fp16 of N elements: head and 2 N bytes. */
static void entries_that_an_encoder_cannot_write_are_refused(void **state)
{
	(void)state;
	static const uint32_t bad[][ROWS] = {
		{SAMPLES, 0, 1, 2},     /* no such sample */
		{0, 1, 2, 0},           /* twice */
		{0x80000000u, 1, 2, 3}, /* a difference to what was never seen */
		{0xffffffffu, 1, 2, 3}, /* a difference to nowhere */
	};
	struct gp_err err = {0};
	float y[N];
	uint8_t payload[8 + 4 * ROWS + 4 + 2 * N] = {0};
	payload[4] = 4 * ROWS;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct gp_codec *c = open_end("delta+fp16", GP_CODEC_DECODES);
		for (size_t r = 0; r < ROWS; r++)
			gp_put_u32(payload + 8 + 4 * r, bad[i][r]);
		assert_int_equal(gp_codec_decode(c, (struct gp_span){payload, sizeof payload}, y, &err), GP_PROTO);
		gp_codec_free(c);
	}
	struct gp_codec *c = open_end("delta+fp16", GP_CODEC_DECODES);
	for (uint32_t r = 0; r < ROWS; r++)
		gp_put_u32(payload + 8 + 4 * r, r);
	const struct gp_codec_pass eval = {.eval = true};
	assert_int_equal(gp_codec_decode_pass(c, &eval, (struct gp_span){payload, sizeof payload}, y, &err), GP_PROTO);
	assert_int_equal(gp_codec_decode(c, (struct gp_span){payload, sizeof payload}, y, &err), GP_OK);
	gp_codec_free(c);
}

static void memory_follows_from_the_data_set_and_is_accounted(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	const struct gp_shape shape = {.ndim = 4, .dim = {16, 8, 8, 32}};
	const struct gp_codec_options options = {.role = GP_CODEC_DECODES};
	uint64_t bytes;
	assert_int_equal(gp_codec_spec_parse("delta+uniform", &spec, &err), GP_OK);
	assert_int_equal(gp_codec_bytes_for(&spec, &shape, &options, &bytes, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "samples=N"));
	assert_int_equal(gp_codec_spec_set_samples(&spec, 50000, &err), GP_OK);
	assert_string_equal(spec.text, "delta:samples=50000+uniform:bits=8");
	assert_int_equal(gp_codec_bytes_for(&spec, &shape, &options, &bytes, &err), GP_OK);
	assert_in_range(bytes, UINT64_C(50000) * 4 * 2048, UINT64_C(50000) * (4 * 2048 + 9) + 4 * 16 * 2048 + 65536);
	assert_int_equal(gp_codec_spec_set_samples(&spec, 7, &err), GP_OK); /* given already: it stays */
	assert_string_equal(spec.text, "delta:samples=50000+uniform:bits=8");
	assert_int_equal(gp_codec_spec_parse("delta+uniform", &spec, &err), GP_OK);
	assert_int_equal(gp_codec_spec_set_samples(&spec, UINT32_MAX, &err), GP_INVALID);
}

static void a_scalar_has_no_samples_and_is_refused(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	struct gp_codec *c = NULL;
	uint64_t bytes = 42;
	const struct gp_shape scalar = {0};
	const struct gp_codec_options options = {.chunks = 2, .undo = true};
	assert_int_equal(gp_codec_spec_parse("delta:samples=5+uniform", &spec, &err), GP_OK);
	assert_int_equal(gp_codec_open(&spec, &scalar, &options, &c, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "codec stage 1 (delta): a scalar has no samples"));
	assert_int_equal(gp_codec_bound_for(&spec, &scalar, &bytes, &err), GP_INVALID);
	assert_int_equal(gp_codec_bytes_for(&spec, &scalar, &options, &bytes, &err), GP_INVALID);
	assert_null(c);
	assert_int_equal(bytes, 42);
}

/* Neither rows nor elements to divide by. */
static void a_batch_of_nothing_has_an_empty_payload(void **state)
{
	(void)state;
	static const struct gp_shape empty[] = {{.ndim = 2, .dim = {0, 3}}, {.ndim = 2, .dim = {3, 0}}};
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	uint8_t payload[1];
	float none[1] = {0};
	assert_int_equal(gp_codec_spec_parse("delta:samples=5+uniform", &spec, &err), GP_OK);
	for (int i = 0; i < 2; i++) {
		struct gp_codec *c;
		size_t len = 1;
		assert_int_equal(gp_codec_new(&spec, &empty[i], 0, &c, &err), GP_OK);
		assert_int_equal(gp_codec_encode(c, none, 0, payload, sizeof payload, &len, &err), GP_OK);
		assert_int_equal(len, 0);
		assert_int_equal(gp_codec_decode(c, (struct gp_span){payload, 0}, none, &err), GP_OK);
		gp_codec_free(c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_later_visit_costs_the_error_of_what_has_changed),
		cmocka_unit_test(both_ends_agree_through_anything),
		cmocka_unit_test(what_is_finite_arrives_finite_however_large),
		cmocka_unit_test(a_tensor_that_is_not_finite_in_one_row_arrives_bit_for_bit),
		cmocka_unit_test(evaluations_and_rows_without_number_change_nothing),
		cmocka_unit_test(saved_memory_continues_on_both_ends),
		cmocka_unit_test(entries_that_an_encoder_cannot_write_are_refused),
		cmocka_unit_test(memory_follows_from_the_data_set_and_is_accounted),
		cmocka_unit_test(a_scalar_has_no_samples_and_is_refused),
		cmocka_unit_test(a_batch_of_nothing_has_an_empty_payload),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
