/* SPDX-License-Identifier: Apache-2.0
 *
 * Engines (client/engine/engine.h) train a masked language model, whose samples have
 * several labels, some of them missing: a split run equals a local one bit for bit
 * at every named cut, neither the number of chunks nor padding matters, and data with
 * other labels is refused.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "client/engine/engine.h"
#include "client/models/models.h"
#include "client/costs/partitions.h"
#include "common/base/rng.h"
#include "common/graph/weights.h"
#include "tests/unit/server_thread.h"
#include "tests/unit/ok.h"

/* ThreadSanitizer does not know the barriers of the OpenMP library that oneDNN runs its threads by. */
#ifdef __SANITIZE_THREAD__
enum { THREADS = 1 };
#else
enum { THREADS = 2 };
#endif

enum { BATCH = 8, TOKENS = 24, MASKED = 4, WORDS = 30, STEPS = 3, INPUTS = 3, LENGTH_MOST = 14 };
#define MODEL                                                                                                          \
	"roberta:lm=1,layers=2,dim=16,heads=2,ffn=24,max=26,vocab=30,tokens=24,cuts=fine,dropout=%s,"                  \
	"attention_dropout=%s"

/* --- batches ------------------------------------------------------------------------------------------------------ */

struct sentences {
	int32_t tokens[BATCH * TOKENS], length[BATCH], positions[BATCH * MASKED], label[BATCH * MASKED];
	uint32_t number[BATCH];
};

static const struct gp_tensor_info tensors[INPUTS] = {
	{"tokens", {GP_I32, {.ndim = 1, .dim = {TOKENS}}}, WORDS},
	{"length", {GP_I32, {.ndim = 1, .dim = {1}}}, TOKENS + 1},
	{"positions", {GP_I32, {.ndim = 1, .dim = {MASKED}}}, TOKENS},
};

static uint32_t draw(uint64_t step, uint64_t what, int i, int below)
{
	return gp_rng_u32(step, what, (uint64_t)i) % (uint32_t)below;
}

/* As many words of sample i are masked as i modulo MASKED + 1 says; the rest of the list is position 0, without a label. */
static void write_sentence(struct sentences *s, uint64_t step, int i)
{
	s->number[i] = (uint32_t)i;
	s->length[i] = 5 + (int32_t)draw(step, 0, i, LENGTH_MOST - 4);
	for (int k = 0; k < TOKENS; k++)
		s->tokens[i * TOKENS + k] =
			k < s->length[i] ? 2 + (int32_t)draw(step, 1, i * TOKENS + k, WORDS - 2) : 1;
	for (int k = 0; k < MASKED; k++) {
		const bool masked = k < i % (MASKED + 1);
		const int at = i * MASKED + k;
		s->positions[at] = masked ? (int32_t)draw(step, 2, at, s->length[i]) : 0;
		s->label[at] = masked ? (int32_t)draw(step, 3, at, WORDS) : GP_NO_LABEL;
	}
}

static struct gp_batch batch_of(struct sentences *s, uint64_t step)
{
	for (int i = 0; i < BATCH; i++)
		write_sentence(s, step, i);
	return (struct gp_batch){.tensors = INPUTS,
				 .info = tensors,
				 .data = {s->tokens, s->length, s->positions},
				 .label_info = {.name = "label", .type = {GP_I32, {.ndim = 1, .dim = {MASKED}}}},
				 .label = s->label,
				 .samples = s->number,
				 .valid = BATCH,
				 .room = BATCH};
}

static uint64_t labels_of(const struct sentences *s)
{
	uint64_t n = 0;
	for (int i = 0; i < BATCH * MASKED; i++)
		n += s->label[i] != GP_NO_LABEL;
	return n;
}

/* --- a training --------------------------------------------------------------------------------------------------- */

struct how {
	const char *server, *cut, *dropout; /* server NULL: local */
	int chunks, window;
	bool drop_padding;
};

struct run {
	struct gp_graph *graph;
	struct gp_engine *engine;
	struct gp_weights *weights;
	struct gp_step_result step[STEPS];
};

static void open_engine(struct run *r, const struct how *how)
{
	char model[200];
	struct gp_engine_spec spec = {.device = "cpu",
				      .threads = THREADS,
				      .session.chunk_samples = BATCH / how->chunks,
				      .session.chunks = how->chunks,
				      .session.window = how->window,
				      .session.seed = 11,
				      .session.optim = {.kind = GP_OPTIM_SGD, .momentum = 0.9f},
				      .drop_padding = how->drop_padding,
				      .server = how->server,
				      .connect_timeout_s = 60,
				      .idle_timeout_s = 60,
				      .reconnect_for_s = 1};
	snprintf(model, sizeof model, MODEL, how->dropout, how->dropout);
	OK(gp_model_build(model, NULL, &r->graph, &err));
	OK(gp_weights_new(r->graph, &r->weights, &err));
	spec.graph = r->graph;
	OK(gp_partition_parse(r->graph, how->cut, &spec.cut, &err));
	for (int i = 0; i < 4; i++)
		OK(gp_codec_spec_parse("raw", &spec.session.codec[i], &err));
	OK(how->server ? gp_engine_new_split(&spec, &r->engine, &err) : gp_engine_new_local(&spec, &r->engine, &err));
}

static void close_run(struct run *r)
{
	r->engine->ops->free(r->engine);
	gp_weights_free(r->weights);
	gp_graph_free(r->graph);
}

static struct run train(const struct how *how)
{
	struct run r = {0};
	struct sentences s;
	open_engine(&r, how);
	for (int i = 0; i < STEPS; i++) {
		const struct gp_batch batch = batch_of(&s, (uint64_t)i);
		OK(r.engine->ops->step(r.engine, &batch, NULL, 0.1f, &r.step[i], &err));
		assert_true(r.step[i].samples == labels_of(&s) && labels_of(&s) > 0);
	}
	OK(r.engine->ops->get_weights(r.engine, r.weights, &err));
	return r;
}

static void expect_same_bits(const struct run *a, const struct run *b)
{
	char want[GP_SHA256_HEX], got[GP_SHA256_HEX];
	for (int i = 0; i < STEPS; i++)
		assert_true(a->step[i].loss_sum == b->step[i].loss_sum && a->step[i].correct == b->step[i].correct);
	OK(gp_weights_sha256(a->weights, want, &err));
	OK(gp_weights_sha256(b->weights, got, &err));
	assert_string_equal(got, want);
}

/* But for rounding, which is all that there is of the gradients of keys' biases. */
static void expect_near(const struct run *a, const struct run *b)
{
	for (int i = 0; i < STEPS; i++)
		assert_true(fabs(a->step[i].loss_sum - b->step[i].loss_sum) <= 1e-5 * a->step[i].loss_sum);
	for (int i = 0; i < a->graph->params; i++) {
		const char *name = a->graph->param[i].name;
		const double e = relative_l2(b->weights->value[i], a->weights->value[i], a->graph->param[i].count);
		if (!strstr(name, "key.bias") && !(e < 1e-4))
			fail_msg("%s: relative L2 error %.3g", name, e);
	}
}

static void a_split_run_equals_a_local_one(void **state)
{
	(void)state;
	static const char *const cuts[] = {"type1", "f2l2", "1:-1"};
	struct server_thread *server = server_thread_start();
	for (int drop = 0; drop <= 1; drop++) {
		struct how how = {.cut = "1:-1", .dropout = "0.1", .chunks = 4, .window = 3, .drop_padding = drop};
		struct run local = train(&how);
		how.server = server->address;
		for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
			how.cut = cuts[i];
			struct run split = train(&how);
			expect_same_bits(&local, &split);
			close_run(&split);
		}
		close_run(&local);
	}
	server_thread_stop(server);
}

static void the_number_of_chunks_does_not_matter(void **state)
{
	(void)state;
	struct how how = {.cut = "1:-1", .dropout = "0", .chunks = 1, .window = 1};
	struct run one = train(&how);
	for (how.chunks = 2; how.chunks <= BATCH; how.chunks *= 2) {
		struct run many = train(&how);
		expect_near(&one, &many);
		close_run(&many);
	}
	close_run(&one);
}

static void padding_does_not_matter(void **state)
{
	(void)state;
	struct how how = {.cut = "1:-1", .dropout = "0", .chunks = 4, .window = 1};
	struct run whole = train(&how);
	how.drop_padding = true;
	struct run dropped = train(&how);
	expect_near(&whole, &dropped);
	close_run(&dropped);
	close_run(&whole);
}

static void a_step_without_any_label_changes_nothing(void **state)
{
	(void)state;
	const struct how how = {.cut = "1:-1", .dropout = "0", .chunks = 2, .window = 1};
	struct run r = {0};
	struct sentences s;
	struct gp_step_result result;
	char before[GP_SHA256_HEX], after[GP_SHA256_HEX];
	open_engine(&r, &how);
	OK(r.engine->ops->get_weights(r.engine, r.weights, &err));
	OK(gp_weights_sha256(r.weights, before, &err));
	const struct gp_batch batch = batch_of(&s, 0);
	for (int i = 0; i < BATCH * MASKED; i++)
		s.label[i] = GP_NO_LABEL;
	OK(r.engine->ops->step(r.engine, &batch, NULL, 0.1f, &result, &err));
	assert_true(result.samples == 0 && result.loss_sum == 0.0);
	OK(r.engine->ops->get_weights(r.engine, r.weights, &err));
	OK(gp_weights_sha256(r.weights, after, &err));
	assert_string_equal(before, after);
	close_run(&r);
}

static void refuse_labels(const struct how *how)
{
	struct run r = {0};
	struct sentences s;
	struct gp_step_result result;
	open_engine(&r, how);
	struct gp_batch batch = batch_of(&s, 0);
	batch.label_info.type.shape = (struct gp_shape){0};
	assert_int_equal(r.engine->ops->step(r.engine, &batch, NULL, 0.1f, &result, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "wants 4 labels for each sample, and the data has 1"));
	close_run(&r);
}

static void data_with_one_label_is_refused(void **state)
{
	(void)state;
	struct server_thread *server = server_thread_start();
	struct how how = {.cut = "1:-1", .dropout = "0", .chunks = 2, .window = 1};
	refuse_labels(&how);
	how.server = server->address;
	refuse_labels(&how);
	server_thread_stop(server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_split_run_equals_a_local_one),
		cmocka_unit_test(the_number_of_chunks_does_not_matter),
		cmocka_unit_test(padding_does_not_matter),
		cmocka_unit_test(a_step_without_any_label_changes_nothing),
		cmocka_unit_test(data_with_one_label_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
