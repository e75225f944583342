/* SPDX-License-Identifier: Apache-2.0
 *
 * Engines (client/engine/engine.h) in one process with a real server: a split run
 * equals a local one bit for bit, evaluation too, a step that is taken back
 * leaves no trace, and a server that goes away is an error and not a hang. Runs
 * under the sanitizers.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "client/engine/engine_split.h"
#include "client/models/models.h"
#include "kernels/cpu/math/bf16.h"
#include "tests/unit/server_thread.h"
#include "tests/unit/tcp_counts.h"
#include "common/graph/graph_part.h"

enum { BATCH = 8, CHUNKS = 4, STEPS = 3, VAL_BATCHES = 3, CLASSES = 10 };

struct rig {
	struct gp_graph *graph;
	struct gp_dataset *data;
	struct gp_loader *loader;
	struct gp_engine *engine;
	struct gp_weights *weights;
	struct gp_step_result last, eval;
};

static void expect_ok(enum gp_status status, const struct gp_err *err)
{
	if (status != GP_OK)
		fail_msg("%s", err->text);
}

static struct gp_optim rig_optim = {.momentum = 0.9f, .weight_decay = 1e-4f};
static const char *rig_cut = "1:-1", *rig_model = "cnn";
static bool rig_frozen_head;

static int rig_forget_model(void **state)
{
	(void)state;
	rig_model = "cnn";
	rig_cut = "1:-1";
	return 0;
}

static void rig_init_sides(struct rig *r, enum gp_precision body, enum gp_precision client, const char *server,
			   const char *codec, int window, bool train)
{
	struct gp_err err = {0};
	struct gp_dataset_options dataset = {0};
	struct gp_loader_spec ls = {.batch = BATCH, .shuffle = train, .drop_last = train, .seed = 5, .prefetch = 2};
	struct gp_engine_spec spec = {.device = "cpu",
				      .threads = 1,
				      .session.chunk_samples = BATCH / CHUNKS,
				      .session.chunks = CHUNKS,
				      .session.window = window,
				      .session.eval_only = !train,
				      .session.precision = body,
				      .client_precision = client,
				      .session.seed = 11,
				      .session.optim = rig_optim,
				      .server = server,
				      .connect_timeout_s = 60,
				      .idle_timeout_s = 60,
				      .reconnect_for_s = 1};
	memset(r, 0, sizeof *r);
	const char *data =
		"synthetic:shape=1x16x16,classes=10,samples=64,limit=59"; /* evaluation: a short last batch */
	expect_ok(gp_dataset_open(data, GP_SPLIT_TRAIN, &dataset, &r->data, &err), &err);
	expect_ok(gp_loader_new(r->data, &ls, &r->loader, &err), &err);
	struct gp_model_options model = {.classes = 10, .input = *gp_dataset_shape(r->data)};
	expect_ok(gp_model_build(rig_model, &model, &r->graph, &err), &err);
	expect_ok(gp_weights_new(r->graph, &r->weights, &err), &err);
	spec.graph = r->graph;
	expect_ok(gp_cut_parse(r->graph, rig_cut, &spec.cut, &err), &err);
	if (rig_frozen_head)
		assert_true(gp_graph_freeze_blocks(r->graph, 0, spec.cut.head) > 0);
	for (int i = 0; i < 4; i++)
		expect_ok(gp_codec_spec_parse(codec, &spec.session.codec[i], &err), &err);
	expect_ok(server ? gp_engine_new_split(&spec, &r->engine, &err) : gp_engine_new_local(&spec, &r->engine, &err),
		  &err);
}

static void rig_init_in(struct rig *r, enum gp_precision precision, const char *server, const char *codec, int window,
			bool train)
{
	rig_init_sides(r, precision, precision, server, codec, window, train);
}

static void rig_init_for(struct rig *r, const char *server, const char *codec, int window, bool train)
{
	rig_init_in(r, GP_PRECISION_FP32, server, codec, window, train);
}

static void rig_init(struct rig *r, const char *server, const char *codec, int window)
{
	rig_init_for(r, server, codec, window, true);
}

static enum gp_status rig_step(struct rig *r, struct gp_err *err)
{
	struct gp_batch *batch;
	expect_ok(gp_loader_next(r->loader, &batch, err), err);
	enum gp_status status = r->engine->ops->step(r->engine, batch, NULL, 0.05f, &r->last, err);
	gp_loader_give_back(r->loader, batch);
	return status;
}

static void rig_run(struct rig *r)
{
	struct gp_err err = {0};
	for (int i = 0; i < STEPS; i++)
		expect_ok(rig_step(r, &err), &err);
	expect_ok(r->engine->ops->evaluate(r->engine, r->loader, VAL_BATCHES, &r->eval, &err), &err);
	expect_ok(rig_step(r, &err), &err);
	expect_ok(r->engine->ops->get_weights(r->engine, r->weights, &err), &err);
}

static void rig_deinit(struct rig *r)
{
	r->engine->ops->free(r->engine);
	gp_loader_free(r->loader);
	gp_dataset_free(r->data);
	gp_weights_free(r->weights);
	gp_graph_free(r->graph);
}

static void a_split_run_equals_a_local_one(void **state)
{
	(void)state;
	struct server_thread *server = server_thread_start();
	struct rig local, split;
	struct gp_err err;
	char want[GP_SHA256_HEX], got[GP_SHA256_HEX];
	rig_init(&local, NULL, "raw", 1);
	rig_run(&local);
	expect_ok(gp_weights_sha256(local.weights, want, &err), &err);
	for (int window = 1; window <= CHUNKS; window++) {
		rig_init(&split, server->address, "raw", window);
		rig_run(&split);
		expect_ok(gp_weights_sha256(split.weights, got, &err), &err);
		assert_string_equal(got, want);
		assert_true(split.last.loss_sum == local.last.loss_sum);
		assert_true(split.eval.loss_sum == local.eval.loss_sum);
		assert_int_equal(split.eval.samples, VAL_BATCHES * BATCH);
		assert_int_equal(split.eval.correct, local.eval.correct);
		rig_deinit(&split);
	}
	rig_deinit(&local);
	server_thread_stop(server);
}

static int clipping_off(void **state)
{
	(void)state;
	rig_optim.clip_norm = rig_optim.clip_value = 0;
	rig_cut = "1:-1";
	rig_frozen_head = false;
	return 0;
}

/* The local run has one plan, the cuts have three: nothing may depend on how the norm is put together. */
static void clipped_runs_do_not_depend_on_the_cut(void **state)
{
	(void)state;
	static const char *const cuts[] = {"1:-1", "2:-1", "1:-2", "2:3"};
	struct server_thread *server = server_thread_start();
	struct rig local, split;
	struct gp_err err;
	char want[GP_SHA256_HEX], got[GP_SHA256_HEX];
	for (int by_value = 0; by_value < 2; by_value++) {
		rig_optim.clip_norm = by_value ? 0 : 0.5;
		rig_optim.clip_value = by_value ? 0.01 : 0;
		rig_init(&local, NULL, "raw", 1);
		rig_run(&local);
		expect_ok(gp_weights_sha256(local.weights, want, &err), &err);
		assert_true(by_value ? isnan(local.last.grad_norm) : local.last.grad_norm > 0.5);
		for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
			rig_cut = cuts[i];
			rig_init(&split, server->address, "raw", CHUNKS);
			rig_run(&split);
			expect_ok(gp_weights_sha256(split.weights, got, &err), &err);
			assert_string_equal(got, want);
			assert_true(by_value || split.last.grad_norm == local.last.grad_norm);
			rig_deinit(&split);
		}
		rig_deinit(&local);
	}
	server_thread_stop(server);
}

static void a_split_run_in_bf16_equals_a_local_one_and_not_one_in_fp32(void **state)
{
	(void)state;
	if (!gp_bf16_supported())
		skip();
	struct server_thread *server = server_thread_start();
	struct rig rig[3];
	struct gp_err err;
	char sha[3][GP_SHA256_HEX];
	rig_init_in(&rig[0], GP_PRECISION_BF16, NULL, "raw", 1, true);
	rig_init_in(&rig[1], GP_PRECISION_BF16, server->address, "raw", 2, true);
	rig_init_in(&rig[2], GP_PRECISION_FP32, NULL, "raw", 1, true);
	for (int i = 0; i < 3; i++) {
		rig_run(&rig[i]);
		expect_ok(gp_weights_sha256(rig[i].weights, sha[i], &err), &err);
		rig_deinit(&rig[i]);
	}
	assert_string_equal(sha[1], sha[0]);
	assert_string_not_equal(sha[2], sha[0]);
	assert_true(rig[1].eval.loss_sum == rig[0].eval.loss_sum);
	server_thread_stop(server);
}

static void each_side_computes_in_its_own_precision(void **state)
{
	(void)state;
	if (!gp_bf16_supported())
		skip();
	static const enum gp_precision F = GP_PRECISION_FP32, B = GP_PRECISION_BF16;
	const enum gp_precision body[] = {F, F, B, B}, client[] = {F, B, F, B};
	struct server_thread *server = server_thread_start();
	struct gp_engine_figures figures;
	struct rig rig;
	struct gp_err err;
	char sha[4][GP_SHA256_HEX];
	rig_model = "resnet20:width=0.5"; /* convolutions of the cnn are Winograd's, in fp32 */
	for (int i = 0; i < 4; i++) {
		rig_init_sides(&rig, body[i], client[i], server->address, "raw", 2, true);
		rig_run(&rig);
		rig.engine->ops->figures(rig.engine, &figures);
		assert_int_equal(figures.precision, body[i]);
		assert_int_equal(figures.client_precision, client[i]);
		expect_ok(gp_weights_sha256(rig.weights, sha[i], &err), &err);
		rig_deinit(&rig);
		for (int k = 0; k < i; k++)
			assert_string_not_equal(sha[i], sha[k]);
	}
	server_thread_stop(server);
}

/* The whole set twice, so that chunk numbers start again; then every sample's outputs. */
static void rig_evaluate(struct rig *r, float *outputs)
{
	struct gp_err err = {0};
	const struct gp_engine_ops *ops = r->engine->ops;
	uint32_t batches = gp_loader_batches_per_epoch(r->loader);
	expect_ok(ops->evaluate(r->engine, r->loader, batches, &r->last, &err), &err);
	expect_ok(ops->evaluate(r->engine, r->loader, batches, &r->eval, &err), &err);
	for (uint32_t i = 0; i < batches; i++) {
		struct gp_batch *batch;
		expect_ok(ops->predict(r->engine, r->loader, outputs + (size_t)i * BATCH * CLASSES, &batch, &err),
			  &err);
		assert_int_equal(batch->index, i);
		gp_loader_give_back(r->loader, batch);
	}
	expect_ok(ops->get_weights(r->engine, r->weights, &err), &err);
}

static void an_engine_for_evaluation_needs_no_training_memory(void **state)
{
	(void)state;
	struct server_thread *server = server_thread_start();
	struct rig local, split;
	struct gp_engine_figures training, evaluating;
	static float want[64 * CLASSES], got[64 * CLASSES];
	struct gp_err err;
	char local_sha[GP_SHA256_HEX], split_sha[GP_SHA256_HEX];
	rig_init(&split, server->address, "raw", CHUNKS);
	split.engine->ops->figures(split.engine, &training);
	rig_deinit(&split);
	rig_init_for(&local, NULL, "raw", 1, false);
	rig_evaluate(&local, want);
	assert_int_equal(local.eval.samples, 59);
	assert_true(local.last.loss_sum == local.eval.loss_sum && local.eval.loss_sum > 0);
	expect_ok(gp_weights_sha256(local.weights, local_sha, &err), &err);
	for (int window = 1; window <= CHUNKS; window++) {
		memset(got, 0, sizeof got);
		rig_init_for(&split, server->address, "raw", window, false);
		rig_evaluate(&split, got);
		assert_true(split.last.loss_sum == local.eval.loss_sum);
		assert_true(split.eval.loss_sum == local.eval.loss_sum);
		assert_int_equal(split.eval.correct, local.eval.correct);
		assert_int_equal(split.eval.samples, local.eval.samples);
		assert_memory_equal(got, want, sizeof got);
		expect_ok(gp_weights_sha256(split.weights, split_sha, &err), &err);
		assert_string_equal(split_sha, local_sha);
		split.engine->ops->figures(split.engine, &evaluating);
		rig_deinit(&split);
	}
	assert_true(evaluating.memory_bytes < training.memory_bytes);
	assert_true(evaluating.server_memory_bytes < training.server_memory_bytes);
	const struct gp_dir_account *up = &evaluating.account.sent;
	assert_int_equal(up->kind[GP_FRAME_ACT_UP].frames, 3 * 30); /* no frame for a chunk without a sample */
	assert_int_equal(up->kind[GP_FRAME_GRAD_UP].frames, 0);
	rig_deinit(&local);
	server_thread_stop(server);
}

/* Batch norms are folded into convolutions in all parts of a model. With cuts=fine a cut may divide a norm from its
 * activation. */
static void evaluations_do_not_depend_on_the_cut(void **state)
{
	(void)state;
	static const char *const cuts[] = {"1:-1", "2:-2", "3:9", "4:-5", "5:12"};
	struct server_thread *server = server_thread_start();
	struct rig local, split;
	static float want[64 * CLASSES], got[64 * CLASSES];
	rig_model = "mobilenetv2:width=0.25,stem=cifar,cuts=fine";
	rig_init_for(&local, NULL, "raw", 1, false);
	rig_evaluate(&local, want);
	for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
		memset(got, 0, sizeof got);
		rig_cut = cuts[i];
		rig_init_for(&split, server->address, "raw", 2, false);
		rig_evaluate(&split, got);
		assert_true(split.eval.loss_sum == local.eval.loss_sum);
		assert_memory_equal(got, want, sizeof got);
		rig_deinit(&split);
	}
	rig_deinit(&local);
	server_thread_stop(server);
}

static void our_bytes_are_the_kernels(void **state)
{
	(void)state;
	struct server_thread *server = server_thread_start();
	struct rig r;
	struct gp_engine_figures f;
	rig_init(&r, server->address, "uniform:bits=8", 2);
	rig_run(&r);
	r.engine->ops->figures(r.engine, &f);
	const struct gp_dir_account *up = &f.account.sent;
	uint64_t chunk =
		(uint64_t)(BATCH / CHUNKS) * gp_shape_elements(&r.graph->node[r.graph->block[1].first_node - 1].shape);
	uint64_t train = (STEPS + 1) * CHUNKS, eval = VAL_BATCHES * CHUNKS;
	assert_int_equal(up->kind[GP_FRAME_ACT_UP].frames, train + eval);
	assert_int_equal(up->kind[GP_FRAME_GRAD_UP].frames, train);
	assert_int_equal(up->kind[GP_FRAME_ACT_UP].tensor_bytes, (train + eval) * chunk * sizeof(float));
	assert_true(up->kind[GP_FRAME_ACT_UP].payload_bytes < (train + eval) * (chunk + 64));
	assert_int_equal(f.tcp.valid, kernel_counts_bytes());
	if (f.tcp.valid) {
		assert_true(f.tcp.bytes_received == f.account.received.wire_bytes);
		double difference = (double)f.tcp.bytes_acked - (double)up->wire_bytes;
		assert_true(fabs(difference) < 0.005 * (double)up->wire_bytes);
	}
	rig_deinit(&r);
	server_thread_stop(server);
}

static void a_server_that_stops_during_predictions_is_an_error_not_a_hang(void **state)
{
	(void)state;
	struct server_thread *server = server_thread_start();
	struct rig r;
	struct gp_err err = {0};
	struct gp_batch *batch;
	static float outputs[BATCH * CLASSES];
	char address[sizeof server->address];
	memcpy(address, server->address, sizeof address);
	rig_init_for(&r, address, "raw", 2, false);
	expect_ok(r.engine->ops->predict(r.engine, r.loader, outputs, &batch, &err), &err);
	gp_loader_give_back(r.loader, batch);
	server_thread_stop(server);
	batch = NULL;
	assert_int_equal(gp_status_exit(r.engine->ops->predict(r.engine, r.loader, outputs, &batch, &err)), 4);
	assert_null(batch);
	assert_int_equal(gp_status_exit(r.engine->ops->evaluate(r.engine, r.loader, 1, &r.eval, &err)), 4);
	rig_deinit(&r);
}

static void a_server_that_stops_is_an_error_not_a_hang(void **state)
{
	(void)state;
	struct server_thread *server = server_thread_start();
	struct rig r;
	struct gp_err err = {0};
	char address[sizeof server->address];
	memcpy(address, server->address, sizeof address); /* the engine names it after the server has gone */
	rig_init(&r, address, "raw", 2);
	expect_ok(rig_step(&r, &err), &err);
	server_thread_stop(server);
	enum gp_status status = GP_OK;
	for (int i = 0; i < 3 && status == GP_OK; i++)
		status = rig_step(&r, &err);
	assert_int_equal(gp_status_exit(status), 4);
	assert_true(err.text[0] != '\0');
	rig_deinit(&r);
}

static void check_steady_steps(void)
{
	struct server_thread *server = server_thread_start();
	struct rig r;
	struct gp_err err = {0};
	rig_init(&r, server->address, "sortquant:bits=6,split=2", 2);
	for (int i = 0; i < 3; i++)
		expect_ok(rig_step(&r, &err), &err);
	uint64_t before = gp_mem_calls(); /* client and server live in this process: both count */
	for (int i = 0; i < 20; i++)
		expect_ok(rig_step(&r, &err), &err);
	assert_int_equal(gp_mem_calls(), before);
	rig_deinit(&r);
	server_thread_stop(server);
}

static void a_steady_step_allocates_nothing(void **state)
{
	(void)state;
	check_steady_steps();
	rig_optim.clip_norm = 0.5;
	check_steady_steps();
}

/* --- a frozen head: chunks of the next step run ahead of it ------------------------------------------------------ */

/* A step whose successor's chunks all come back before the successor is asked for: while its batch is read, say. */
static void step_and_wait_for_the_next(struct rig *r, struct gp_batch *batch, struct gp_batch *next)
{
	struct split_engine *e = (struct split_engine *)r->engine;
	struct gp_err err = {0};
	expect_ok(e->base.ops->step(&e->base, batch, next, 0.05f, &r->last, &err), &err);
	assert_true(e->ahead);
	while (e->done < 2 * CHUNKS || (e->squares && !e->body_squares))
		uv_run(&e->loop, UV_RUN_ONCE);
	assert_int_equal(e->session.status, GP_OK);
}

static void check_early_chunks(void)
{
	struct server_thread *server = server_thread_start();
	struct rig local, split;
	struct gp_batch *batch[2];
	struct gp_err err = {0};
	rig_init(&local, NULL, "raw", 1);
	rig_init(&split, server->address, "raw", CHUNKS);
	for (int i = 0; i < 2; i++)
		expect_ok(gp_loader_next(split.loader, &batch[i], &err), &err);
	expect_ok(rig_step(&local, &err), &err);
	step_and_wait_for_the_next(&split, batch[0], batch[1]);
	assert_true(split.last.loss_sum == local.last.loss_sum);
	expect_ok(rig_step(&local, &err), &err);
	expect_ok(split.engine->ops->step(split.engine, batch[1], NULL, 0.05f, &split.last, &err), &err);
	assert_int_equal(split.last.samples, BATCH);
	assert_true(split.last.loss_sum == local.last.loss_sum);
	assert_int_equal(split.last.correct, local.last.correct);
	for (int i = 0; i < 2; i++)
		gp_loader_give_back(split.loader, batch[i]);
	expect_ok(rig_step(&local, &err), &err);
	expect_ok(rig_step(&split, &err), &err);
	assert_true(split.last.loss_sum == local.last.loss_sum);
	rig_deinit(&local);
	rig_deinit(&split);
	server_thread_stop(server);
}

static void chunks_that_come_back_before_their_step_is_asked_for_count_for_it(void **state)
{
	(void)state;
	rig_frozen_head = true;
	check_early_chunks();
	rig_optim.clip_norm = 0.5;
	check_early_chunks();
}

/* --- a step that this end begins, without a word to the server, and takes back ----------------------------------- */

static void scribble(float *x, uint64_t bytes, uint64_t seed)
{
	for (uint64_t i = 0; i < bytes / sizeof *x; i++)
		x[i] = (float)((i * 37 + seed * 11) % 101) * 0.02f - 1;
}

static struct gp_codec_pass pass_of(const struct split_engine *e, const uint32_t sample[BATCH / CHUNKS])
{
	return (struct gp_codec_pass){.draw = e->step * CHUNKS, .step = e->step, .sample = sample};
}

static void code_away(struct split_engine *e, int direction, const float *x)
{
	static const uint32_t sample[BATCH / CHUNKS] = {3, 8};
	struct gp_codec *c = e->flows.flow[direction][0].codec;
	const struct gp_codec_pass pass = pass_of(e, sample);
	struct gp_err err = {0};
	uint8_t *payload = gp_calloc(gp_codec_bound(c), 1);
	size_t len;
	expect_ok(gp_codec_encode_pass(c, &pass, x, payload, gp_codec_bound(c), &len, &err), &err);
	gp_free(payload);
}

/* What a server of this shape could have sent. */
static void decode_something(struct split_engine *e, int direction, float *x)
{
	static const uint32_t sample[BATCH / CHUNKS] = {5, 6};
	const struct gp_codec_options options = {.role = GP_CODEC_ENCODES, .chunks = CHUNKS};
	const bool input = direction == GP_GRAD_DOWN;
	const struct gp_shape shape = gp_shape_batched(input ? gp_graph_input_shape(e->cross->parts.body)
							     : gp_graph_output_shape(e->cross->parts.body),
						       BATCH / CHUNKS);
	const struct gp_codec_pass pass = pass_of(e, sample);
	struct gp_codec *c;
	struct gp_err err = {0};
	size_t len;
	expect_ok(gp_codec_open(&e->base.spec.session.codec[direction], &shape, &options, &c, &err), &err);
	uint8_t *payload = gp_calloc(gp_codec_bound(c), 1);
	scribble(x, e->flows.flow[direction][0].tensor_bytes, 3);
	expect_ok(gp_codec_encode_pass(c, &pass, x, payload, gp_codec_bound(c), &len, &err), &err);
	expect_ok(
		gp_codec_decode_pass(e->flows.flow[direction][0].codec, &pass, (struct gp_span){payload, len}, x, &err),
		&err);
	gp_free(payload);
	gp_codec_free(c);
}

/* One chunk there and back, a second one's head forward. */
static void begin_step(struct split_engine *e)
{
	static const int32_t labels[BATCH / CHUNKS] = {1, 2};
	const struct gp_device_ops *ops = e->device->ops;
	struct gp_loss_result loss;
	struct gp_err err = {0};
	for (int slot = 1; slot >= 0; slot--) {
		scribble(ops->buffer(e->head_plan, slot, GP_BUF_INPUT, 0), BATCH / CHUNKS * 16 * 16 * sizeof(float), 1);
		expect_ok(ops->forward(e->head_plan, slot, GP_TRAIN, 7, &err), &err);
		e->slot[slot].state = SLOT_WAIT_ACT;
	}
	code_away(e, GP_ACT_UP, ops->buffer(e->head_plan, 0, GP_BUF_OUTPUT, 0));
	decode_something(e, GP_ACT_DOWN, ops->buffer(e->tail_plan, 0, GP_BUF_INPUT, 0));
	expect_ok(ops->forward(e->tail_plan, 0, GP_TRAIN, 7, &err), &err);
	expect_ok(ops->loss(e->tail_plan, 0, labels, BATCH / CHUNKS, true, 0.1f, &loss, &err), &err);
	expect_ok(ops->backward(e->tail_plan, 0, &err), &err);
	code_away(e, GP_GRAD_UP, ops->buffer(e->tail_plan, 0, GP_BUF_GRAD_INPUT, 0));
	decode_something(e, GP_GRAD_DOWN, ops->buffer(e->head_plan, 0, GP_BUF_GRAD_OUTPUT, 0));
	expect_ok(ops->backward(e->head_plan, 0, &err), &err);
}

static void run_and_hash(const char *server, const char *codec, bool disturbed, char hash[GP_SHA256_HEX])
{
	struct gp_err err = {0};
	struct rig r;
	rig_init(&r, server, codec, 2);
	for (int i = 0; i < STEPS; i++) {
		struct split_engine *e = (struct split_engine *)r.engine;
		for (int times = 0; disturbed && times < 2; times++) {
			begin_step(e);
			gp_split_undo(e);
		}
		expect_ok(rig_step(&r, &err), &err);
	}
	expect_ok(r.engine->ops->get_weights(r.engine, r.weights, &err), &err);
	expect_ok(gp_weights_sha256(r.weights, hash, &err), &err);
	rig_deinit(&r);
}

static void a_step_that_is_taken_back_leaves_no_trace(void **state)
{
	(void)state;
	static const char *const codecs[] = {"ef+uniform:bits=4", "delta:samples=64+uniform:bits=4",
					     "ef+alq:bits=3,update=2"};
	struct server_thread *server = server_thread_start();
	rig_cut = "1:-2"; /* batch norms in head and tail */
	for (size_t i = 0; i < sizeof codecs / sizeof codecs[0]; i++) {
		char want[GP_SHA256_HEX], got[GP_SHA256_HEX];
		run_and_hash(server->address, codecs[i], false, want);
		run_and_hash(server->address, codecs[i], true, got);
		assert_string_equal(got, want);
	}
	rig_cut = "1:-1";
	server_thread_stop(server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_split_run_equals_a_local_one),
		cmocka_unit_test(a_split_run_in_bf16_equals_a_local_one_and_not_one_in_fp32),
		cmocka_unit_test_teardown(each_side_computes_in_its_own_precision, rig_forget_model),
		cmocka_unit_test(an_engine_for_evaluation_needs_no_training_memory),
		cmocka_unit_test_teardown(evaluations_do_not_depend_on_the_cut, rig_forget_model),
		cmocka_unit_test(our_bytes_are_the_kernels),
		cmocka_unit_test(a_server_that_stops_during_predictions_is_an_error_not_a_hang),
		cmocka_unit_test(a_server_that_stops_is_an_error_not_a_hang),
		cmocka_unit_test_teardown(chunks_that_come_back_before_their_step_is_asked_for_count_for_it,
					  clipping_off),
		cmocka_unit_test(a_step_that_is_taken_back_leaves_no_trace),
		cmocka_unit_test_teardown(a_steady_step_allocates_nothing, clipping_off),
		cmocka_unit_test_teardown(clipped_runs_do_not_depend_on_the_cut, clipping_off),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
