/* SPDX-License-Identifier: Apache-2.0
 *
 * topk through the public interface: golden cases, what it keeps against a
 * sort, and a gradient that has its activation's elements. The selection by
 * itself (common/codec/stages/topk_select.h), where it is hard.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <string.h>

#include "common/codec/codec.h"
#include "common/codec/codec_impl.h"
#include "common/codec/stages/topk_select.h"
#include "common/base/isa.h"
#include "common/base/rng.h"
#include "common/store/safetensors.h"
#include "kernels/loops/codec_loops.h"

#define DIRECTORY "tests/golden/codec/"

static struct gp_codec *open_codec(const char *text, uint64_t n, const struct gp_codec_options *options)
{
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	struct gp_codec *c = NULL;
	const struct gp_shape shape = {.ndim = 1, .dim = {(int64_t)n}};
	assert_int_equal(gp_codec_spec_parse(text, &spec, &err), GP_OK);
	assert_int_equal(gp_codec_open(&spec, &shape, options, &c, &err), GP_OK);
	return c;
}

static uint8_t *encoded(struct gp_codec *c, const struct gp_codec_pass *pass, const float *x, size_t *len)
{
	struct gp_err err = {0};
	uint8_t *out = malloc(gp_codec_bound(c));
	assert_int_equal(gp_codec_encode_pass(c, pass, x, out, gp_codec_bound(c), len, &err), GP_OK);
	return realloc(out, *len);
}

/* --- what is kept ------------------------------------------------------------------------------------------------ */

static void roundtrip(const char *text, const float *x, uint64_t n, float *y)
{
	struct gp_err err = {0};
	size_t len;
	struct gp_codec *c = open_codec(text, n, &(struct gp_codec_options){0});
	uint8_t *payload = encoded(c, &(struct gp_codec_pass){0}, x, &len);
	assert_int_equal(gp_codec_decode(c, (struct gp_span){payload, len}, y, &err), GP_OK);
	free(payload);
	gp_codec_free(c);
}

static void check_golden(const struct gp_st_file *inputs, const struct gp_st_file *cases, const char *input,
			 const char *ratio)
{
	struct gp_err err = {0};
	char name[48], spec[48];
	snprintf(name, sizeof name, "topk_%s_r%s", input, ratio);
	snprintf(spec, sizeof spec, "topk:ratio=%s", ratio);
	const struct gp_st_tensor *t = gp_st_find(inputs, input), *bits = gp_st_find(cases, name);
	assert_true(t && bits);
	const uint64_t n = t->count;
	const uint8_t *chosen = bits->data;
	float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
	assert_int_equal(gp_st_read_f32(t, x, &err), GP_OK);
	roundtrip(spec, x, n, y);
	for (uint64_t i = 0; i < n; i++)
		assert_true(y[i] == (chosen[i / 8] >> i % 8 & 1 ? x[i] : 0));
	free(y);
	free(x);
}

static void topk_keeps_the_elements_of_the_golden_cases(void **state)
{
	(void)state;
	static const char *const ratios[] = {"0.1", "0.2", "0.5"};
	struct gp_err err = {0};
	struct gp_st_file *inputs, *cases;
	assert_int_equal(gp_st_open(DIRECTORY "inputs.safetensors", &inputs, &err), GP_OK);
	assert_int_equal(gp_st_open(DIRECTORY "topk.safetensors", &cases, &err), GP_OK);
	for (int k = 0; k < 3; k++) {
		if (!gp_codec_loops_named(gp_isa_name((enum gp_isa)k)))
			continue;
		setenv("GP_SIMD", gp_isa_name((enum gp_isa)k), 1);
		for (int r = 0; r < 3; r++) {
			check_golden(inputs, cases, "act", ratios[r]);
			check_golden(inputs, cases, "hidden", ratios[r]);
		}
	}
	unsetenv("GP_SIMD");
	gp_st_close(cases);
	gp_st_close(inputs);
}

enum fill { NORMAL, RELU6, CONSTANT, ZERO, DENORMAL, HUGE_VALUES, TWO_VALUES, RAMP, ONE_LARGE, FILLS };

static float value_of(enum fill kind, uint64_t i)
{
	const float g = gp_rng_normal(5, gp_rng_stream(GP_RNG_INIT, (uint64_t)kind), i);
	switch (kind) {
	case NORMAL:
		return g;
	case RELU6:
		return fminf(fmaxf(3 * g - 1, 0), 6);
	case CONSTANT:
		return -0.1f;
	case ZERO:
		return i % 3 ? 0.0f : -0.0f;
	case DENORMAL:
		return g * 1e-40f;
	case HUGE_VALUES:
		return i % 100 ? g * 1e37f : FLT_MAX;
	case TWO_VALUES:
		return g > 0.5f ? 2 : -1;
	case RAMP:
		return (float)i;
	case ONE_LARGE:
		return i == 7 ? 1e9f : 1;
	case FILLS:
		break;
	}
	return 0;
}

static int descending(const void *a, const void *b)
{
	const float x = fabsf(*(const float *)a), y = fabsf(*(const float *)b);
	return (x < y) - (x > y);
}

enum { MOST = 100000 };

/* Exactly k elements are kept, all above the k-th largest magnitude, and of those equal to it the first. */
static void check_against_sort(const float *x, const float *y, uint64_t n, uint64_t k)
{
	static float sorted[MOST];
	memcpy(sorted, x, n * sizeof *x);
	qsort(sorted, n, sizeof *sorted, descending);
	const float least = fabsf(sorted[k - 1]);
	uint64_t ties = 0;
	for (uint64_t i = k; i-- > 0 && fabsf(sorted[i]) == least;)
		ties++;
	for (uint64_t i = 0; i < n; i++) {
		const bool tie = fabsf(x[i]) == least && ties > 0;
		const float expected = tie || fabsf(x[i]) > least ? x[i] : 0;
		ties -= tie;
		assert_memory_equal(&y[i], &expected, sizeof expected);
	}
	assert_int_equal(ties, 0);
}

static void the_largest_magnitudes_are_kept_and_of_equal_ones_the_first(void **state)
{
	(void)state;
	static float x[MOST], y[MOST];
	static const uint64_t sizes[] = {1, 2, 63, 64, 65, 1000, 16384, 16385, 40000, MOST};
	static const double ratios[] = {0.0001, 0.01, 0.1, 0.5, 0.9999, 1};
	for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
		for (size_t r = 0; r < 6; r++)
			for (int f = 0; f < FILLS; f++) {
				char spec[32];
				const uint64_t n = sizes[s], k = (uint64_t)(ratios[r] * (double)n);
				snprintf(spec, sizeof spec, "topk:ratio=%g", ratios[r]);
				for (uint64_t i = 0; i < n; i++)
					x[i] = value_of((enum fill)f, i);
				roundtrip(spec, x, n, y);
				check_against_sort(x, y, n, k ? k : 1);
			}
}

static void every_instruction_set_gives_the_same_payload(void **state)
{
	(void)state;
	static float x[MOST];
	const uint64_t sizes[] = {100, MOST};
	for (int s = 0; s < 2; s++)
		for (int f = 0; f < FILLS; f++) {
			uint8_t *payload[3] = {NULL};
			size_t len[3];
			for (uint64_t i = 0; i < sizes[s]; i++)
				x[i] = value_of((enum fill)f, i);
			for (int k = 0; k < 3; k++) {
				if (!gp_codec_loops_named(gp_isa_name((enum gp_isa)k)))
					continue;
				setenv("GP_SIMD", gp_isa_name((enum gp_isa)k), 1);
				struct gp_codec *c = open_codec("topk:ratio=0.13+uniform:bits=5", sizes[s],
								&(struct gp_codec_options){0});
				payload[k] = encoded(c, &(struct gp_codec_pass){0}, x, &len[k]);
				gp_codec_free(c);
				assert_int_equal(len[k], len[0]);
				assert_memory_equal(payload[k], payload[0], len[k]);
			}
			for (int k = 0; k < 3; k++)
				free(payload[k]);
		}
	unsetenv("GP_SIMD");
}

/* --- selection --------------------------------------------------------------------------------------------------- */

static struct gp_topk_select *new_select(uint64_t n)
{
	struct gp_err err = {0};
	struct gp_topk_select *s;
	assert_int_equal(gp_topk_select_new(gp_topk_loops_choose(), n, &s, &err), GP_OK);
	return s;
}

static void ordinary_tensors_are_found_by_their_sample(void **state)
{
	(void)state;
	static float x[MOST];
	struct gp_topk_select *s = new_select(MOST);
	for (int f = 0; f < FILLS; f++) {
		for (uint64_t i = 0; i < MOST; i++)
			x[i] = value_of((enum fill)f, i);
		for (uint64_t k = 1; k <= MOST; k += 9999) {
			uint32_t threshold;
			uint64_t ties;
			assert_true(gp_topk_threshold(s, x, k, &threshold, &ties));
		}
	}
	assert_int_equal(gp_topk_select_misses(s), 0);
	gp_topk_select_free(s);
}

/* Where the sample is drawn the tensor is zero: all of it has to be counted, and is. */
static void a_sample_that_misleads_costs_time_and_not_the_result(void **state)
{
	(void)state;
	static float x[MOST];
	struct gp_topk_select *s = new_select(MOST);
	const uint64_t stretch = MOST / 8192;
	for (uint64_t i = 0; i < MOST; i++)
		x[i] = value_of(NORMAL, i);
	for (uint32_t i = 0; i < 8192; i++)
		x[(uint64_t)i * MOST / 8192 + (stretch * (i * 2654435769u) >> 32)] = 0;
	uint32_t threshold;
	uint64_t ties, above = 0, equal = 0;
	assert_true(gp_topk_threshold(s, x, MOST / 10, &threshold, &ties));
	for (uint64_t i = 0; i < MOST; i++) {
		uint32_t key;
		memcpy(&key, &x[i], sizeof key);
		above += (key & 0x7fffffff) > threshold;
		equal += (key & 0x7fffffff) == threshold;
	}
	assert_true(above + ties == MOST / 10 && ties >= 1 && ties <= equal);
	assert_int_equal(gp_topk_select_misses(s), 1);
	x[MOST - 5] = NAN;
	assert_false(gp_topk_threshold(s, x, MOST / 10, &threshold, &ties));
	gp_topk_select_free(s);
}

static void a_tensor_with_one_bad_element_travels_raw(void **state)
{
	(void)state;
	static float x[20000], y[20000];
	const float bad[] = {NAN, INFINITY, -INFINITY};
	const uint64_t sizes[] = {100, 20000};
	for (int s = 0; s < 2; s++)
		for (int b = 0; b < 3; b++) {
			for (uint64_t i = 0; i < sizes[s]; i++)
				x[i] = value_of(NORMAL, i);
			x[b * 49] = bad[b];
			roundtrip("topk:ratio=0.2+uniform:bits=4", x, sizes[s], y);
			assert_memory_equal(y, x, sizes[s] * sizeof *x);
		}
}

/* --- the gradient of an activation -------------------------------------------------------------------------------- */

enum { N = 2000, CHUNKS = 3 };

/* Four instances as in a session: an activation from here to there, its gradient back. */
struct session {
	struct gp_codec *act_here, *act_there, *grad_there, *grad_here;
};

static struct session open_session(const char *act, const char *grad)
{
	struct session s;
	struct gp_codec_options o = {.chunks = CHUNKS, .role = GP_CODEC_ENCODES, .has_gradient = true, .undo = true};
	s.act_here = open_codec(act, N, &o);
	o.role = GP_CODEC_DECODES;
	s.act_there = open_codec(act, N, &o);
	o = (struct gp_codec_options){
		.chunks = CHUNKS, .role = GP_CODEC_ENCODES, .activation = s.act_there, .undo = true};
	s.grad_there = open_codec(grad, N, &o);
	o.role = GP_CODEC_DECODES;
	o.activation = s.act_here;
	s.grad_here = open_codec(grad, N, &o);
	return s;
}

static void close_session(struct session *s)
{
	gp_codec_free(s->grad_here);
	gp_codec_free(s->grad_there);
	gp_codec_free(s->act_there);
	gp_codec_free(s->act_here);
}

/* Returns the payload's length. */
static size_t send(struct gp_codec *from, struct gp_codec *to, const struct gp_codec_pass *pass, const float *x,
		   float *y)
{
	struct gp_err err = {0};
	size_t len;
	uint8_t *payload = encoded(from, pass, x, &len);
	assert_int_equal(gp_codec_decode_pass(to, pass, (struct gp_span){payload, len}, y, &err), GP_OK);
	free(payload);
	return len;
}

static size_t send_act(struct session *s, const struct gp_codec_pass *pass, const float *x, float *y)
{
	return send(s->act_here, s->act_there, pass, x, y);
}

static size_t send_grad(struct session *s, const struct gp_codec_pass *pass, const float *x, float *y)
{
	return send(s->grad_there, s->grad_here, pass, x, y);
}

static void fill(float *x, uint64_t stream)
{
	for (uint64_t i = 0; i < N; i++)
		x[i] = gp_rng_normal(8, stream, i);
}

/* Head, length of no side bytes, raw values. */
enum { REUSED = 4 + 4 + 4 * N / 5 };

static void a_gradient_has_its_activations_elements_and_no_indices(void **state)
{
	(void)state;
	struct session s = open_session("topk:ratio=0.2", "topk:ratio=0.2");
	float act[CHUNKS][N], grad[N], y[N];
	for (int step = 0; step < 2; step++) {
		for (uint32_t c = 0; c < CHUNKS; c++) {
			fill(act[c], c + 10 * (uint64_t)step);
			assert_true(send_act(&s, &(struct gp_codec_pass){.chunk = c}, act[c], act[c]) > REUSED);
		}
		for (uint32_t c = CHUNKS; c-- > 0;) {
			fill(grad, 100 + c);
			assert_int_equal(send_grad(&s, &(struct gp_codec_pass){.chunk = c}, grad, y), REUSED);
			for (int i = 0; i < N; i++)
				assert_true(y[i] == (act[c][i] != 0 ? grad[i] : 0));
		}
	}
	close_session(&s);
}

/* The example of PROTOCOL.md, section 7. */
static void frames_of_a_chunk_are_those_of_the_page(void **state)
{
	(void)state;
	static const float act[] = {1, 0, 0, -9, 0, 0, 0, 2}, grad[] = {0.5f, 0, 0, 1, 0, 0, 0, -1};
	static const uint8_t up[] = {0, 0, 0, 0, 2, 0, 0, 0, 0, 0x88, 0, 0, 0x10, 0xc1, 0, 0, 0, 0x40};
	static const uint8_t down[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x3f, 0, 0, 0x80, 0xbf};
	const struct gp_codec_options here = {.has_gradient = true};
	struct gp_codec *a = open_codec("topk:ratio=0.25", 8, &here);
	const struct gp_codec_options back = {.activation = a};
	struct gp_codec *g = open_codec("topk:ratio=0.25", 8, &back);
	size_t up_len, down_len;
	uint8_t *first = encoded(a, &(struct gp_codec_pass){0}, act, &up_len);
	uint8_t *second = encoded(g, &(struct gp_codec_pass){0}, grad, &down_len);
	assert_true(up_len == sizeof up && down_len == sizeof down);
	assert_memory_equal(first, up, sizeof up);
	assert_memory_equal(second, down, sizeof down);
	free(first);
	free(second);
	gp_codec_free(g);
	gp_codec_free(a);
}

static void masks_are_found_behind_error_feedback_too(void **state)
{
	(void)state;
	struct session s = open_session("ef+topk:ratio=0.2+uniform:bits=8", "ef+topk:ratio=0.2");
	float act[N], grad[N], y[N];
	fill(act, 1);
	fill(grad, 2);
	send_act(&s, &(struct gp_codec_pass){0}, act, y);
	assert_int_equal(send_grad(&s, &(struct gp_codec_pass){0}, grad, y), REUSED + 4 + 4);
	close_session(&s);
}

/* Outside of the mask the gradient is 0: nothing is owed there, however often it was left out. */
static void error_feedback_owes_nothing_where_the_activation_was_left_out(void **state)
{
	(void)state;
	struct session s = open_session("topk:ratio=0.2", "ef+topk:ratio=0.2");
	float act[N], grad[N], y[N];
	const struct gp_codec_pass pass = {.chunk = 1};
	const uint64_t nothing = gp_codec_state_hash(s.grad_there);
	fill(grad, 2);
	for (uint64_t step = 0; step < 30; step++) {
		fill(act, 10 + step % 2);
		send_act(&s, &pass, act, act);
		send_grad(&s, &pass, grad, y);
		for (int i = 0; i < N; i++)
			assert_true(y[i] == (act[i] != 0 ? grad[i] : 0));
	}
	assert_true(gp_codec_state_hash(s.grad_there) == nothing);
	close_session(&s);
}

/* What `ef` owes after `sum` was to arrive, and `arrived` did. */
static void owe(const float *act, bool reuses, const float *sum, const float *arrived, float *owed)
{
	for (int i = 0; i < N; i++)
		if (!reuses || act[i] != 0)
			owed[i] = sum[i] - arrived[i];
}

/* Beside a session without memory that is sent what `ef` should add. Every fifth activation travels raw, and its
 * gradient then chooses by itself; every seventh step is an evaluation. */
static void a_place_that_is_chosen_again_gets_what_it_lost_and_no_more(void **state)
{
	(void)state;
	struct session s = open_session("topk:ratio=0.2", "ef+topk:ratio=0.2+uniform:bits=3");
	struct session plain = open_session("topk:ratio=0.2", "topk:ratio=0.2+uniform:bits=3");
	float act[N], grad[N], sum[N], y[N], expected[N], owed[N] = {0};
	for (uint64_t step = 0; step < 40; step++) {
		const struct gp_codec_pass pass = {.step = step, .chunk = 2, .eval = step % 7 == 6};
		const bool raw = step % 5 == 4;
		fill(act, 10 + step % 3);
		fill(grad, 100 + step);
		act[0] = raw ? NAN : act[0];
		send_act(&plain, &pass, act, y);
		send_act(&s, &pass, act, act);
		for (int i = 0; i < N; i++)
			sum[i] = grad[i] + (pass.eval ? 0 : owed[i]);
		send_grad(&plain, &pass, sum, expected);
		send_grad(&s, &pass, grad, y);
		assert_memory_equal(y, expected, sizeof y);
		if (!pass.eval)
			owe(act, !raw, sum, y, owed);
	}
	close_session(&plain);
	close_session(&s);
}

static void a_step_that_is_taken_back_owes_what_it_did_before(void **state)
{
	(void)state;
	struct session s = open_session("topk:ratio=0.2", "ef+topk:ratio=0.2+uniform:bits=3");
	float act[N], grad[N], first[N], y[N];
	fill(act, 1);
	fill(grad, 2);
	send_act(&s, &(struct gp_codec_pass){0}, act, y);
	send_grad(&s, &(struct gp_codec_pass){0}, grad, y);
	const uint64_t before = gp_codec_state_hash(s.grad_there);
	const struct gp_codec_pass pass = {.step = 1};
	fill(act, 3);
	send_act(&s, &pass, act, y);
	send_grad(&s, &pass, grad, first);
	assert_true(gp_codec_state_hash(s.grad_there) != before);
	gp_codec_undo(s.grad_there, 1);
	assert_true(gp_codec_state_hash(s.grad_there) == before);
	send_act(&s, &pass, act, y);
	send_grad(&s, &pass, grad, y);
	assert_memory_equal(y, first, sizeof y);
	close_session(&s);
}

static void a_gradient_carries_indices_where_there_is_no_mask(void **state)
{
	(void)state;
	struct session s = open_session("topk:ratio=0.2", "topk:ratio=0.2");
	float act[N], grad[N], y[N];
	const struct gp_codec_pass pass = {.chunk = 1};
	fill(act, 1);
	fill(grad, 2);
	assert_true(send_grad(&s, &pass, grad, y) > REUSED); /* before any activation */
	send_act(&s, &pass, act, y);
	assert_int_equal(send_grad(&s, &pass, grad, y), REUSED);
	assert_true(send_grad(&s, &(struct gp_codec_pass){.chunk = 2}, grad, y) > REUSED); /* another chunk */
	act[5] = NAN;
	send_act(&s, &pass, act, y); /* raw: all of it has arrived */
	assert_true(send_grad(&s, &pass, grad, y) > REUSED);
	close_session(&s);
	s = open_session("topk:ratio=0.3", "topk:ratio=0.2"); /* another number of elements */
	fill(act, 1);
	send_act(&s, &pass, act, y);
	assert_true(send_grad(&s, &pass, grad, y) > REUSED);
	close_session(&s);
}

static void a_gradient_that_is_not_finite_travels_raw(void **state)
{
	(void)state;
	struct session s = open_session("topk:ratio=0.2", "topk:ratio=0.2");
	float act[N], grad[N], y[N];
	fill(act, 1);
	fill(grad, 2);
	send_act(&s, &(struct gp_codec_pass){0}, act, act);
	for (int i = 0; i < N; i++)
		if (act[i] == 0) { /* even where it would not be looked at */
			grad[i] = INFINITY;
			break;
		}
	assert_int_equal(send_grad(&s, &(struct gp_codec_pass){0}, grad, y), 4 + 4 * N);
	assert_memory_equal(y, grad, sizeof y);
	close_session(&s);
}

static void an_evaluation_leaves_the_mask_alone(void **state)
{
	(void)state;
	struct session s = open_session("topk:ratio=0.2", "topk:ratio=0.2");
	float act[N], other[N], grad[N], y[N];
	fill(act, 1);
	fill(other, 3);
	fill(grad, 2);
	send_act(&s, &(struct gp_codec_pass){0}, act, act);
	send_act(&s, &(struct gp_codec_pass){.eval = true}, other, y);
	other[0] = NAN;
	send_act(&s, &(struct gp_codec_pass){.eval = true}, other, y);
	assert_int_equal(send_grad(&s, &(struct gp_codec_pass){0}, grad, y), REUSED);
	for (int i = 0; i < N; i++)
		assert_true(y[i] == (act[i] != 0 ? grad[i] : 0));
	close_session(&s);
}

static void indices_are_refused_where_the_mask_says_and_the_other_way_round(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct session s = open_session("topk:ratio=0.2", "topk:ratio=0.2");
	const struct gp_codec_pass pass = {0};
	float act[N], grad[N], y[N];
	size_t with, without;
	fill(act, 1);
	fill(grad, 2);
	uint8_t *indices = encoded(s.grad_there, &pass, grad, &with);
	send_act(&s, &pass, act, y);
	uint8_t *bare = encoded(s.grad_there, &pass, grad, &without);
	assert_int_equal(gp_codec_decode_pass(s.grad_here, &pass, (struct gp_span){indices, with}, y, &err), GP_PROTO);
	assert_int_equal(gp_codec_decode_pass(s.act_there, &pass, (struct gp_span){bare, without}, y, &err), GP_PROTO);
	free(indices);
	free(bare);
	close_session(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(topk_keeps_the_elements_of_the_golden_cases),
		cmocka_unit_test(the_largest_magnitudes_are_kept_and_of_equal_ones_the_first),
		cmocka_unit_test(every_instruction_set_gives_the_same_payload),
		cmocka_unit_test(ordinary_tensors_are_found_by_their_sample),
		cmocka_unit_test(a_sample_that_misleads_costs_time_and_not_the_result),
		cmocka_unit_test(a_tensor_with_one_bad_element_travels_raw),
		cmocka_unit_test(a_gradient_has_its_activations_elements_and_no_indices),
		cmocka_unit_test(frames_of_a_chunk_are_those_of_the_page),
		cmocka_unit_test(masks_are_found_behind_error_feedback_too),
		cmocka_unit_test(error_feedback_owes_nothing_where_the_activation_was_left_out),
		cmocka_unit_test(a_place_that_is_chosen_again_gets_what_it_lost_and_no_more),
		cmocka_unit_test(a_step_that_is_taken_back_owes_what_it_did_before),
		cmocka_unit_test(a_gradient_carries_indices_where_there_is_no_mask),
		cmocka_unit_test(a_gradient_that_is_not_finite_travels_raw),
		cmocka_unit_test(an_evaluation_leaves_the_mask_alone),
		cmocka_unit_test(indices_are_refused_where_the_mask_says_and_the_other_way_round),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
