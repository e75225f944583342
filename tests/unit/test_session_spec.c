/* SPDX-License-Identifier: Apache-2.0
 *
 * What a session computes (common/wire/session_spec.h), from its struct to the
 * bytes of OPEN and back, and to the words of checkpoints.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "client/models/models.h"
#include "common/wire/graph_msg.h"
#include "common/wire/session_spec.h"

enum { WINDOW_MAX = 8 };

/* Every number differs from every other and from 0. */
static struct gp_session_spec make_spec(void)
{
	static const char *const codecs[4] = {"raw", "uniform:bits=4", "topk:ratio=0.25+zstd", "ef+uniform:bits=2"};
	struct gp_err err;
	struct gp_session_spec s = {.optim = {.kind = GP_OPTIM_SGD,
					      .momentum = 0.5f,
					      .nesterov = true,
					      .weight_decay = 0.25f,
					      .beta1 = 0.9,
					      .beta2 = 0.999,
					      .eps = 1e-8f,
					      .clip_norm = 3.0},
				    .precision = GP_PRECISION_BF16,
				    .seed = 0x123456789abcdefull,
				    .chunk_samples = 5,
				    .chunks = 7,
				    .window = 3,
				    .eval_only = true,
				    .calibrates = true};
	for (int i = 0; i < 4; i++)
		assert_int_equal(gp_codec_spec_parse(codecs[i], &s.codec[i], &err), GP_OK);
	return s;
}

static void expect_equal(const struct gp_session_spec *a, const struct gp_session_spec *b)
{
	assert_int_equal(a->optim.kind, b->optim.kind);
	assert_true(a->optim.momentum == b->optim.momentum && a->optim.weight_decay == b->optim.weight_decay);
	assert_true(a->optim.beta1 == b->optim.beta1 && a->optim.beta2 == b->optim.beta2);
	assert_true(a->optim.eps == b->optim.eps && a->optim.nesterov == b->optim.nesterov);
	assert_true(a->optim.clip_norm == b->optim.clip_norm && a->optim.clip_value == b->optim.clip_value);
	assert_int_equal(a->precision, b->precision);
	assert_int_equal(a->choose_precision, b->choose_precision);
	assert_true(a->seed == b->seed);
	assert_int_equal(a->chunk_samples, b->chunk_samples);
	assert_int_equal(a->chunks, b->chunks);
	assert_int_equal(a->window, b->window);
	assert_int_equal(a->eval_only, b->eval_only);
	assert_int_equal(a->calibrates, b->calibrates);
	for (int i = 0; i < 4; i++)
		assert_string_equal(a->codec[i].text, b->codec[i].text);
}

/* Who asks for the fastest precision has none yet. */
static void a_precision_is_chosen_or_named(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_session_spec there = make_spec(), back;
	for (int named = 0; named < 2; named++)
		for (int restored = 0; restored < 2; restored++) {
			Gpsplit__Open open = GPSPLIT__OPEN__INIT;
			struct gp_session_parts parts;
			there.precision = named ? GP_PRECISION_BF16 : GP_PRECISION_FP32;
			there.choose_precision = true;
			gp_session_spec_write(&there, &open, &parts);
			open.restore_step = restored ? 5 : 0;
			const enum gp_status status = gp_session_spec_read(&open, WINDOW_MAX, &back, &err);
			assert_int_equal(status, named || restored ? GP_INVALID : GP_OK);
			assert_true(status != GP_OK || back.choose_precision);
		}
}

/* Through the bytes of the message. */
static void every_field_comes_back_from_open(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_session_spec there = make_spec(), back;
	for (int clips = 0; clips < 2; clips++) {
		Gpsplit__Open open = GPSPLIT__OPEN__INIT;
		struct gp_session_parts parts;
		gp_session_spec_write(&there, &open, &parts);
		uint8_t bytes[1024];
		const size_t len = gpsplit__open__get_packed_size(&open);
		assert_true(len <= sizeof bytes);
		gpsplit__open__pack(&open, bytes);
		Gpsplit__Open *read = gpsplit__open__unpack(NULL, len, bytes);
		assert_non_null(read);
		assert_int_equal(gp_session_spec_read(read, WINDOW_MAX, &back, &err), GP_OK);
		expect_equal(&there, &back);
		assert_false(back.undo);
		gpsplit__open__free_unpacked(read, NULL);
		there.optim.clip_norm = 0.0;
		there.optim.clip_value = 2.0;
	}
}

/* An evaluation keeps nothing anyway. */
static void only_a_training_recomputes(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_session_spec there = make_spec(), back;
	for (int train = 0; train < 2; train++) {
		Gpsplit__Open open = GPSPLIT__OPEN__INIT;
		struct gp_session_parts parts;
		there.recompute = true;
		there.eval_only = !train;
		gp_session_spec_write(&there, &open, &parts);
		assert_true(open.recompute);
		assert_int_equal(gp_session_spec_read(&open, WINDOW_MAX, &back, &err), GP_OK);
		assert_int_equal(back.recompute, train);
	}
}

static void maps_of_a_training_may_lie_encoded(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_session_spec there = make_spec(), back;
	struct gp_session_parts parts;
	Gpsplit__Open open = GPSPLIT__OPEN__INIT;
	assert_int_equal(gp_codec_spec_parse("uniform:bits=8", &there.maps, &err), GP_OK);
	for (int train = 0; train < 2; train++) {
		there.eval_only = !train;
		gp_session_spec_write(&there, &open, &parts);
		assert_int_equal(gp_session_spec_read(&open, WINDOW_MAX, &back, &err), GP_OK);
		assert_int_equal(gp_session_maps(&back) != NULL, train);
	}
	assert_string_equal(back.maps.text, "uniform:bits=8");
}

static void the_rest_of_a_training_may_pass_through_codecs(void **state)
{
	(void)state;
	static const char *const specs[GP_STRUCTS] = {"uniform:bits=8", "bf16", "fp8:format=e5m2",
						      "smaq:main=6,outlier=8"};
	struct gp_err err;
	struct gp_session_spec there = make_spec(), back;
	struct gp_session_parts parts;
	for (int i = 0; i < GP_STRUCTS; i++)
		assert_int_equal(gp_codec_spec_parse(specs[i], &there.coded[i], &err), GP_OK);
	there.no_master = true;
	for (int train = 1; train >= 0; train--) {
		Gpsplit__Open open = GPSPLIT__OPEN__INIT;
		struct gp_plan_spec ps = {0};
		there.eval_only = !train;
		gp_session_spec_write(&there, &open, &parts);
		assert_int_equal(gp_session_spec_read(&open, WINDOW_MAX, &back, &err), GP_OK);
		assert_int_equal(gp_session_coded_bits(&back), train ? 15 : 0);
		gp_session_coded(&back, &ps);
		for (int i = 0; i < GP_STRUCTS; i++) {
			assert_int_equal(ps.coded[i] != NULL, train);
			if (train)
				assert_string_equal(ps.coded[i]->text, specs[i]);
		}
		assert_int_equal(ps.no_master, train);
	}
}

static void refused(const Gpsplit__Open *open, enum gp_status status, const char *part)
{
	struct gp_err err;
	struct gp_session_spec out;
	assert_int_equal(gp_session_spec_read(open, WINDOW_MAX, &out, &err), status);
	if (!strstr(err.text, part))
		fail_msg("'%s' does not say '%s'", err.text, part);
}

static void what_cannot_be_is_refused_with_its_name(void **state)
{
	(void)state;
	const struct gp_session_spec spec = make_spec();
	Gpsplit__Open good = GPSPLIT__OPEN__INIT, m;
	struct gp_session_parts parts;
	Gpsplit__Optimizer bad = GPSPLIT__OPTIMIZER__INIT;
	gp_session_spec_write(&spec, &good, &parts);
	m = good, m.window = 0;
	refused(&m, GP_INVALID, "open: window is 0; 1 to 8");
	m = good, m.window = WINDOW_MAX + 1;
	refused(&m, GP_INVALID, "open: window is 9; 1 to 8");
	m = good, m.chunks = 0;
	refused(&m, GP_INVALID, "open: chunks is 0");
	m = good, m.chunks = (1u << 20) + 1;
	refused(&m, GP_INVALID, "open: chunks is 1048577");
	m = good, m.chunk_samples = UINT32_MAX;
	refused(&m, GP_INVALID, "open: chunk_samples is 4294967295");
	m = good, m.optimizer = NULL;
	refused(&m, GP_PROTO, "no optimizer");
	bad.kind = 77;
	m = good, m.optimizer = &bad;
	refused(&m, GP_INVALID, "open: optimizer");
	m = good, m.precision = GP_PRECISIONS;
	refused(&m, GP_UNSUPPORTED, "precision 3");
	m = good, m.eval_only = false, m.maps = (char *)"nonsense";
	refused(&m, GP_INVALID, "open: maps");
	m = good, m.eval_only = false, m.maps = (char *)"topk:ratio=0.5";
	refused(&m, GP_INVALID, "topk cannot");
	m = good, m.eval_only = false, m.maps = (char *)"bf16", m.recompute = true;
	refused(&m, GP_UNSUPPORTED, "open: maps and recompute exclude each other");
	m = good, m.eval_only = false, m.state = (char *)"nonsense";
	refused(&m, GP_INVALID, "open: state");
	m = good, m.eval_only = false, m.weight_grads = (char *)"topk:ratio=0.5";
	refused(&m, GP_INVALID, "open: weight-grads");
	m = good, m.eval_only = false, m.weights_codec = (char *)"bf16+zstd";
	refused(&m, GP_INVALID, "zstd cannot");
	m = good, m.eval_only = false, m.grad_maps = (char *)"kmeans";
	refused(&m, GP_INVALID, "kmeans cannot");
	m = good, m.codec_grad_up = (char *)"nonsense";
	refused(&m, GP_INVALID, "open: codec_grad_up");
}

static struct gp_session_words *words_of(const struct gp_session_spec *s, const struct gp_graph *g)
{
	struct gp_err err;
	struct gp_session_words *w = calloc(1, sizeof *w);
	assert_non_null(w);
	assert_int_equal(gp_session_spec_describe(s, g, w, &err), GP_OK);
	return w;
}

/* Whether a run described by `a` may go on as one described by `b`. */
static bool same_words(const struct gp_session_spec *a, const struct gp_session_spec *b, const struct gp_graph *g)
{
	struct gp_err err;
	struct gp_session_words *wa = words_of(a, g), *wb = words_of(b, g);
	const bool same = gp_pairs_compare(&wa->pairs, &wb->pairs, "", &err) == GP_OK;
	free(wa);
	free(wb);
	return same;
}

static void whatever_decides_the_result_is_in_the_words_and_nothing_else(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_graph *g;
	const struct gp_model_options o = {.classes = 10};
	assert_int_equal(gp_model_build("cnn", &o, &g, &err), GP_OK);
	const struct gp_session_spec a = make_spec();
	struct gp_session_spec b = a;
	b.window++;
	b.undo = true;
	b.eval_only = false;
	b.recompute = true;
	assert_true(same_words(&a, &b, g));
#define DIFFERS(change)                                                                                                \
	b = a;                                                                                                         \
	change;                                                                                                        \
	assert_false(same_words(&a, &b, g))
	DIFFERS(b.optim.kind = GP_OPTIM_ADAM);
	DIFFERS(b.optim.momentum += 0.25f);
	DIFFERS(b.optim.nesterov = false);
	DIFFERS(b.optim.weight_decay = 0.0f);
	DIFFERS(b.optim.beta1 = 0.8);
	DIFFERS(b.optim.beta2 = 0.99);
	DIFFERS(b.optim.eps = 1e-7f);
	DIFFERS(b.optim.clip_norm = 2.0);
	DIFFERS(b.optim.clip_value = 2.0);
	DIFFERS(b.precision = GP_PRECISION_FP32);
	DIFFERS(b.seed++);
	DIFFERS(b.chunk_samples++);
	DIFFERS(b.chunks++);
	DIFFERS(assert_int_equal(gp_codec_spec_parse("bf16", &b.maps, &err), GP_OK));
	for (int i = 0; i < GP_STRUCTS; i++) {
		DIFFERS(assert_int_equal(gp_codec_spec_parse("bf16", &b.coded[i], &err), GP_OK));
	}
	DIFFERS(b.no_master = true);
	for (int i = 0; i < 4; i++) {
		DIFFERS(assert_int_equal(gp_codec_spec_parse("bf16", &b.codec[i], &err), GP_OK));
	}
#undef DIFFERS
	gp_graph_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_field_comes_back_from_open),
		cmocka_unit_test(a_precision_is_chosen_or_named),
		cmocka_unit_test(only_a_training_recomputes),
		cmocka_unit_test(maps_of_a_training_may_lie_encoded),
		cmocka_unit_test(the_rest_of_a_training_may_pass_through_codecs),
		cmocka_unit_test(what_cannot_be_is_refused_with_its_name),
		cmocka_unit_test(whatever_decides_the_result_is_in_the_words_and_nothing_else),
	};
	return cmocka_run_group_tests_name("session spec", tests, NULL, NULL);
}
