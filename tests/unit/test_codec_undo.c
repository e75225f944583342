/* SPDX-License-Identifier: Apache-2.0
 *
 * Both ends of a cut take what their codecs remember back to where the step
 * under way began (common/codec/codec_undo.c): the step done again, and all after it,
 * have the same payloads, tensors and memory as if nothing had happened.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/codec/codec.h"
#include "common/base/fault.h"
#include "common/base/rng.h"

enum { ROWS = 4, N = ROWS * 6 * 10, CHUNKS = 3, SAMPLES = 40, STEPS = 4, OTHER_DATA = 1000 };

static const struct gp_shape shape = {.ndim = 3, .dim = {ROWS, 6, 10}};

/* Everything that remembers, alone and behind one another; and top-k, whose mask a gradient reuses. */
static const char *const specs[] = {
	"ef+uniform:bits=3",
	"ef+qsgd:bits=4,bucket=32+zstd",
	"poweriter:rank=2,iters=2+uniform:bits=8",
	"alq:bits=3,bucket=64,update=2",
	"amq:bits=3,bucket=64,update=3",
	"delta:samples=40+uniform:bits=4",
	"delta:samples=40+fp16+zstd",
	"topk:ratio=0.2+uniform:bits=6",
	"ef+topk:ratio=0.2+alq:bits=3,update=2",
	"ef+poweriter:rank=3,iters=1+amq:bits=2,update=2",
	"delta:samples=40+topk:ratio=0.5+uniform:bits=8",
	"delta:samples=40+poweriter:rank=2,iters=2+alq:bits=4,update=1",
	"ef+hadamard:size=16+block:bits=3,size=16",
	"delta:samples=40+hadamard:size=8+block:size=16,budget=3",
};
enum { SPECS = sizeof specs / sizeof specs[0] };

/* "WRAPPER|SPEC": one wrapper around another, which no spec can say (codec_order.c) but a tree can be made of. */
static void parse(const char *text, struct gp_codec_spec *out)
{
	struct gp_err err = {0};
	struct gp_codec_spec outer;
	char wrapper[64];
	const char *bar = strchr(text, '|');
	assert_int_equal(gp_codec_spec_parse(bar ? bar + 1 : text, out, &err), GP_OK);
	if (!bar)
		return;
	snprintf(wrapper, sizeof wrapper, "%.*s+uniform", (int)(bar - text), text);
	assert_int_equal(gp_codec_spec_parse(wrapper, &outer, &err), GP_OK);
	memmove(out->stage + 1, out->stage, (size_t)out->stages++ * sizeof out->stage[0]);
	out->stage[0] = outer.stage[0];
}

static struct gp_codec *open_codec(const char *text, const struct gp_codec_options *options)
{
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	struct gp_codec *c = NULL;
	parse(text, &spec);
	if (gp_codec_open(&spec, &shape, options, &c, &err) != GP_OK)
		fail_msg("%s: %s", text, err.text);
	return c;
}

/* --- a cut: an activation goes one way, its gradient comes back -------------------------------------------------- */

enum { ACT_IN, ACT_OUT, GRAD_IN, GRAD_OUT, CODECS };

struct cut {
	struct gp_codec *codec[CODECS];
};

static struct cut open_cut(const char *text)
{
	struct cut c;
	struct gp_codec_options act = {.seed = 1, .chunks = CHUNKS, .has_gradient = true, .undo = true};
	struct gp_codec_options grad = {.seed = 2, .chunks = CHUNKS, .undo = true};
	act.role = GP_CODEC_ENCODES;
	c.codec[ACT_IN] = open_codec(text, &act);
	act.role = GP_CODEC_DECODES;
	c.codec[ACT_OUT] = open_codec(text, &act);
	grad.role = GP_CODEC_ENCODES;
	grad.activation = c.codec[ACT_OUT];
	c.codec[GRAD_IN] = open_codec(text, &grad);
	grad.role = GP_CODEC_DECODES;
	grad.activation = c.codec[ACT_IN];
	c.codec[GRAD_OUT] = open_codec(text, &grad);
	return c;
}

static void close_cut(struct cut *c)
{
	for (int i = CODECS - 1; i >= 0; i--)
		gp_codec_free(c->codec[i]);
}

/* What travelled and arrived, of all passes so far. */
struct trace {
	size_t used;
	uint8_t bytes[1 << 18];
};

static void note(struct trace *t, const void *bytes, size_t len)
{
	assert_true(t->used + len <= sizeof t->bytes);
	memcpy(t->bytes + t->used, bytes, len);
	t->used += len;
}

static void send(struct gp_codec *in, struct gp_codec *out, const struct gp_codec_pass *pass, const float *x,
		 struct trace *trace)
{
	struct gp_err err = {0};
	uint8_t payload[8 * N + 1024];
	float y[N];
	size_t len;
	const uint64_t calls = gp_mem_calls();
	assert_int_equal(gp_codec_encode_pass(in, pass, x, payload, sizeof payload, &len, &err), GP_OK);
	if (gp_codec_decode_pass(out, pass, (struct gp_span){payload, len}, y, &err) != GP_OK)
		fail_msg("%s", err.text);
	assert_int_equal(gp_mem_calls(), calls);
	note(trace, payload, len);
	note(trace, y, sizeof y);
}

/* Tensors of a chunk follow from `data`; some samples come again in the next step, as in the next epoch. */
static void send_one(struct cut *c, bool gradient, uint64_t step, uint32_t chunk, uint64_t data, struct trace *trace)
{
	uint32_t sample[ROWS];
	float x[N];
	const struct gp_codec_pass pass = {
		.draw = step * CHUNKS + chunk, .step = step, .chunk = chunk, .sample = sample};
	for (uint32_t i = 0; i < ROWS; i++)
		sample[i] = (uint32_t)(data * 7 + chunk * ROWS + i) % SAMPLES;
	for (uint64_t i = 0; i < N; i++)
		x[i] = gp_rng_normal(gradient, data * CHUNKS + chunk, i);
	if (gradient)
		send(c->codec[GRAD_IN], c->codec[GRAD_OUT], &pass, x, trace);
	else
		send(c->codec[ACT_IN], c->codec[ACT_OUT], &pass, x, trace);
}

static void run_step(struct cut *c, uint64_t step, struct trace *trace)
{
	for (uint32_t chunk = 0; chunk < CHUNKS; chunk++) {
		send_one(c, false, step, chunk, step, trace);
		send_one(c, true, step, chunk, step, trace);
	}
}

static void send_whole(struct cut *c, struct gp_codec_pass pass, float spoiled, struct trace *trace)
{
	float x[N];
	for (uint64_t i = 0; i < N; i++)
		x[i] = (float)i;
	x[7] = spoiled;
	send(c->codec[ACT_IN], c->codec[ACT_OUT], &pass, x, trace);
	send(c->codec[GRAD_IN], c->codec[GRAD_OUT], &pass, x, trace);
}

/* Other data than run_step has: one chunk there and back, one only there, one not at all. */
static void run_part(struct cut *c, uint64_t step, struct trace *trace)
{
	send_one(c, false, step, 0, OTHER_DATA + step, trace);
	send_one(c, true, step, 0, OTHER_DATA + step, trace);
	send_one(c, false, step, 1, OTHER_DATA + step, trace);
	send_whole(c, (struct gp_codec_pass){.step = step, .eval = true}, 0, trace);
}

static void undo(struct cut *c, uint64_t step)
{
	for (int i = 0; i < CODECS; i++)
		gp_codec_undo(c->codec[i], step);
}

static void expect_same_memory(const struct gp_codec *a, const struct gp_codec *b, const char *text)
{
	const size_t bytes = gp_codec_state_bytes(a);
	uint8_t *x = malloc(bytes), *y = malloc(bytes);
	assert_int_equal(gp_codec_state_bytes(b), bytes);
	assert_int_equal(gp_codec_state_save(a, x, NULL), GP_OK);
	assert_int_equal(gp_codec_state_save(b, y, NULL), GP_OK);
	if (memcmp(x, y, bytes) != 0)
		fail_msg("%s: memory differs", text);
	assert_true(gp_codec_state_hash(a) == gp_codec_state_hash(b));
	assert_true(gp_codec_state_shared_hash(a) == gp_codec_state_shared_hash(b));
	free(x);
	free(y);
}

static void expect_same(const struct cut *a, const struct cut *b, const char *text)
{
	for (int i = 0; i < CODECS; i++)
		expect_same_memory(a->codec[i], b->codec[i], text);
	assert_true(gp_codec_state_shared_hash(a->codec[ACT_IN]) == gp_codec_state_shared_hash(a->codec[ACT_OUT]));
	assert_true(gp_codec_state_shared_hash(a->codec[GRAD_IN]) == gp_codec_state_shared_hash(a->codec[GRAD_OUT]));
}

/* --- tests ------------------------------------------------------------------------------------------------------- */

typedef void (*disturb_fn)(struct cut *c, uint64_t step, struct trace *trace);

static void expect_no_trace(const char *text, disturb_fn disturb)
{
	static struct trace got, want, lost;
	struct cut disturbed = open_cut(text), other = open_cut(text);
	got.used = want.used = 0;
	for (uint64_t step = 0; step < STEPS; step++) {
		lost.used = 0;
		disturb(&disturbed, step, &lost);
		undo(&disturbed, step);
		expect_same(&disturbed, &other, text);
		run_step(&disturbed, step, &got);
		run_step(&other, step, &want);
		assert_int_equal(got.used, want.used);
		if (memcmp(got.bytes, want.bytes, want.used) != 0)
			fail_msg("%s: payloads or tensors differ", text);
		expect_same(&disturbed, &other, text);
	}
	close_cut(&disturbed);
	close_cut(&other);
}

static void a_step_taken_back_leaves_no_trace(void **state)
{
	(void)state;
	for (int i = 0; i < SPECS; i++)
		expect_no_trace(specs[i], run_part);
}

static void run_twice(struct cut *c, uint64_t step, struct trace *trace)
{
	run_part(c, step, trace);
	undo(c, step);
	run_step(c, step, trace);
}

static void a_step_can_be_taken_back_again_and_when_it_was_complete(void **state)
{
	(void)state;
	for (int i = 0; i < SPECS; i++)
		expect_no_trace(specs[i], run_twice);
}

static void spoil(struct cut *c, uint64_t step, struct trace *trace)
{
	send_whole(c, (struct gp_codec_pass){.step = step, .chunk = 1}, NAN, trace);
	send_whole(c, (struct gp_codec_pass){.step = step, .chunk = 2}, 3, trace);
}

static void so_do_tensors_that_travelled_raw(void **state)
{
	(void)state;
	for (int i = 0; i < SPECS; i++)
		expect_no_trace(specs[i], spoil);
}

/* A difference to samples of step 0 that is not finite. */
static void spoil_seen(struct cut *c, uint64_t step, struct trace *trace)
{
	const uint32_t sample[ROWS] = {0, 1, 2, 3};
	send_whole(c, (struct gp_codec_pass){.step = step, .chunk = 1, .sample = sample}, NAN, trace);
	send_whole(c, (struct gp_codec_pass){.step = step, .chunk = 1}, 3, trace);
}

/* The inner one never sees what the outer one refuses, but forgets its chunk. */
static void so_do_tensors_that_only_the_outer_of_two_wrappers_saw(void **state)
{
	(void)state;
	expect_no_trace("delta:samples=40|ef+uniform:bits=3", run_part);
	expect_no_trace("delta:samples=40|ef+uniform:bits=3", spoil_seen);
}

/* A chunk or sample that comes more often than it should. */
static void run_chunk_often(struct cut *c, uint64_t step, struct trace *trace)
{
	for (uint64_t i = 0; i < 6; i++) {
		send_one(c, false, step, 1, OTHER_DATA + i, trace);
		send_one(c, true, step, 1, OTHER_DATA + i, trace);
	}
}

static void a_chunk_may_have_come_more_than_once(void **state)
{
	(void)state;
	for (int i = 0; i < SPECS; i++)
		expect_no_trace(specs[i], run_chunk_often);
}

static void only_the_latest_step_is_taken_back(void **state)
{
	(void)state;
	static struct trace trace;
	for (int i = 0; i < SPECS; i++) {
		struct cut c = open_cut(specs[i]), other = open_cut(specs[i]);
		trace.used = 0;
		undo(&c, 0);
		expect_same(&c, &other, specs[i]);
		run_step(&c, 0, &trace);
		run_step(&other, 0, &trace);
		send_whole(&c, (struct gp_codec_pass){.step = 1, .eval = true}, 0, &trace);
		undo(&c, 1);
		expect_same(&c, &other, specs[i]);
		close_cut(&c);
		close_cut(&other);
	}
}

static void load_from(struct gp_codec *to, const struct gp_codec *from)
{
	struct gp_err err = {0};
	const size_t bytes = gp_codec_state_bytes(from);
	uint8_t *saved = malloc(bytes);
	assert_int_equal(gp_codec_state_save(from, saved, NULL), GP_OK);
	assert_int_equal(gp_codec_state_load(to, (struct gp_span){saved, bytes}, &err), GP_OK);
	free(saved);
}

/* Loading is a beginning: what was kept before it is of another memory. */
static void memory_that_was_loaded_is_not_taken_back(void **state)
{
	(void)state;
	static struct trace trace;
	for (int i = 0; i < SPECS; i++) {
		struct cut c = open_cut(specs[i]), other = open_cut(specs[i]);
		trace.used = 0;
		run_step(&other, 0, &trace);
		run_part(&c, 0, &trace);
		for (int k = 0; k < CODECS; k++)
			load_from(c.codec[k], other.codec[k]);
		undo(&c, 0);
		expect_same(&c, &other, specs[i]);
		close_cut(&c);
		close_cut(&other);
	}
}

static void an_instance_for_both_ends_takes_back_what_both_remember(void **state)
{
	(void)state;
	static struct trace trace;
	for (int i = 0; i < SPECS; i++) {
		const struct gp_codec_options options = {.seed = 1, .chunks = CHUNKS, .undo = true};
		struct gp_codec *c = open_codec(specs[i], &options), *other = open_codec(specs[i], &options);
		struct cut one = {.codec = {c, c}}, two = {.codec = {other, other}};
		trace.used = 0;
		for (uint64_t step = 0; step < STEPS; step++) {
			send_one(&one, false, step, 1, OTHER_DATA, &trace);
			gp_codec_undo(c, step);
			expect_same_memory(c, other, specs[i]);
			send_one(&one, false, step, 1, step, &trace);
			send_one(&two, false, step, 1, step, &trace);
			expect_same_memory(c, other, specs[i]);
			trace.used = 0;
		}
		gp_codec_free(c);
		gp_codec_free(other);
	}
}

static uint64_t memory_for(const char *text, enum gp_codec_role role, bool with_undo)
{
	struct gp_err err = {0};
	struct gp_codec_spec spec;
	const struct gp_codec_options options = {.role = role, .chunks = CHUNKS, .undo = with_undo};
	uint64_t bytes;
	assert_int_equal(gp_codec_spec_parse(text, &spec, &err), GP_OK);
	assert_int_equal(gp_codec_bytes_for(&spec, &shape, &options, &bytes, &err), GP_OK);
	return bytes;
}

/* Beside what is remembered only a few bytes a chunk, and of delta's samples only those of a step. */
static void undo_is_accounted_before_it_is_taken(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		enum gp_codec_role role;
		uint64_t more;
	} cases[] = {
		{"uniform", GP_CODEC_ENCODES, 0},
		{"topk+uniform", GP_CODEC_ENCODES, 0},
		{"ef+uniform", GP_CODEC_ENCODES, 4 * N * CHUNKS},
		{"ef+uniform", GP_CODEC_DECODES, 0},
		{"poweriter:rank=2+uniform", GP_CODEC_ENCODES, 4 * CHUNKS * (1 + ROWS * 2 * 6)},
		{"alq:bits=3", GP_CODEC_ENCODES, 4 * CHUNKS * (1 + 8)},
		{"delta:samples=40+uniform", GP_CODEC_DECODES, CHUNKS * ROWS * (4 * N / ROWS + 4)},
		{"delta:samples=5+uniform", GP_CODEC_ENCODES, 5 * (4 * N / ROWS + 4)},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		const uint64_t without = memory_for(cases[i].text, cases[i].role, false);
		const uint64_t more = memory_for(cases[i].text, cases[i].role, true) - without;
		assert_in_range(more, cases[i].more, cases[i].more + 16 * CHUNKS);
	}
}

/* An encoder that does not count its samples, a decoder that has room for those of one step. */
static void delta_refuses_more_samples_in_a_step_than_its_chunks_have(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_codec_options options = {.chunks = 2, .role = GP_CODEC_ENCODES};
	struct gp_codec *in = open_codec("delta:samples=40+uniform", &options);
	options.role = GP_CODEC_DECODES;
	options.undo = true;
	struct gp_codec *out = open_codec("delta:samples=40+uniform", &options);
	for (uint32_t i = 0; i < 4; i++) {
		const uint32_t sample[ROWS] = {4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3};
		const struct gp_codec_pass pass = {.step = 5 + (i == 3), .chunk = i % 2, .sample = sample};
		uint8_t payload[8 * N];
		float x[N] = {0}, y[N];
		size_t len;
		assert_int_equal(gp_codec_encode_pass(in, &pass, x, payload, sizeof payload, &len, &err), GP_OK);
		assert_int_equal(gp_codec_decode_pass(out, &pass, (struct gp_span){payload, len}, y, &err),
				 i == 2 ? GP_PROTO : GP_OK);
	}
	gp_codec_free(in);
	gp_codec_free(out);
}

#ifdef GP_FAULTS
static void every_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
	(void)state;
	struct gp_err err = {0};
	const struct gp_codec_options options = {.chunks = CHUNKS, .undo = true};
	for (int i = 0; i < SPECS; i++) {
		struct gp_codec_spec spec;
		enum gp_status status = GP_NOMEM;
		assert_int_equal(gp_codec_spec_parse(specs[i], &spec, &err), GP_OK);
		for (uint64_t nth = 1; status != GP_OK; nth++) {
			struct gp_codec *c = NULL;
			gp_fault_arm(GP_FAULT_ALLOC, nth);
			status = gp_codec_open(&spec, &shape, &options, &c, &err);
			gp_fault_arm(GP_FAULT_ALLOC, 0);
			assert_true(status == GP_OK || status == GP_NOMEM);
			gp_codec_free(c);
		}
	}
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_taken_back_leaves_no_trace),
		cmocka_unit_test(a_step_can_be_taken_back_again_and_when_it_was_complete),
		cmocka_unit_test(so_do_tensors_that_travelled_raw),
		cmocka_unit_test(so_do_tensors_that_only_the_outer_of_two_wrappers_saw),
		cmocka_unit_test(a_chunk_may_have_come_more_than_once),
		cmocka_unit_test(only_the_latest_step_is_taken_back),
		cmocka_unit_test(memory_that_was_loaded_is_not_taken_back),
		cmocka_unit_test(an_instance_for_both_ends_takes_back_what_both_remember),
		cmocka_unit_test(undo_is_accounted_before_it_is_taken),
		cmocka_unit_test(delta_refuses_more_samples_in_a_step_than_its_chunks_have),
#ifdef GP_FAULTS
		cmocka_unit_test(every_failed_allocation_is_reported_and_leaks_nothing),
#endif
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
