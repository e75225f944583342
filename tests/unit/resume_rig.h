/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests of links that break share: a small network in three parts, an
 * engine that trains it, and all that such a run ends in. Not a test by itself.
 */
#ifndef GP_TEST_RESUME_RIG_H
#define GP_TEST_RESUME_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <signal.h>
#include <string.h>
#include <cmocka.h>

#include "client/engine/engine.h"
#include "client/job/security.h"
#include "client/session/client_session.h"
#include "client/train/run_state.h"
#include "tests/unit/server_thread.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_linear.h"

enum { BATCH = 8, CHUNKS = 4, WINDOW = 2, VAL_BATCHES = 4, CLASSES = 5, STEPS = 4 };

static inline void expect_ok(enum gp_status status, const struct gp_err *err)
{
	if (status != GP_OK)
		fail_msg("%s", err->text);
}

/* What must be the same after every step back: batch norm, dropout, in each part. */
static inline int add_stage(struct gp_graph *g, const char *name, int in, int stride)
{
	char text[32];
	struct gp_err err = {0};
	assert_int_equal(gp_graph_begin_block(g, name, &err), GP_OK);
	snprintf(text, sizeof text, "%s.conv", name);
	in = gp_graph_conv(g, text, in, 4, 3, stride, 1, 1, false, &err);
	snprintf(text, sizeof text, "%s.bn", name);
	in = gp_graph_batch_norm(g, text, in, 1e-5f, 0.1f, &err);
	snprintf(text, sizeof text, "%s.relu", name);
	in = gp_graph_unary(g, GP_OP_RELU, text, in, &err);
	snprintf(text, sizeof text, "%s.drop", name);
	return gp_graph_dropout(g, text, in, 0.2f, &err);
}

/* A second value beside `in`, which goes on to behind the next cut. */
static inline int add_side(struct gp_graph *g, const char *name, int in, int stride)
{
	struct gp_err err = {0};
	return gp_graph_conv(g, name, in, 4, 1, stride, 0, 1, true, &err);
}

/* `wide`: two tensors cross each cut. */
static inline struct gp_graph *make_graph(const struct gp_shape *input, bool wide)
{
	struct gp_err err = {0};
	struct gp_graph *g = gp_graph_new("small", input, &err);
	int x = add_stage(g, "head", 0, 1);
	int side = wide ? add_side(g, "head.side", x, 1) : 0;
	x = add_stage(g, "body1", x, 1);
	x = wide ? gp_graph_sum(g, "body1.sum", x, side, &err) : x;
	side = x;
	x = add_stage(g, "body2", x, 2);
	side = wide ? add_side(g, "body2.side", side, 2) : 0;
	x = add_stage(g, "tail", x, 1);
	x = wide ? gp_graph_sum(g, "tail.sum", x, side, &err) : x;
	x = gp_graph_unary(g, GP_OP_GLOBAL_AVG_POOL, "pool", x, &err);
	x = gp_graph_unary(g, GP_OP_FLATTEN, "flatten", x, &err);
	x = gp_graph_linear(g, "classifier", x, CLASSES, true, &err);
	assert_true(x > 0);
	expect_ok(gp_graph_finish(g, &err), &err);
	return g;
}

/* Decaying pairs at both cuts: the model's own ranks are `rank`. Integer parts make 12, 9, 6 and 12, 6, 3, 1. */
enum { RANK = 12 };
static const struct gp_decays two_decays = {
	.count = 2,
	.decay = {{.encoder = "up.encoder", .decoder = "up.decoder", .rate = 0.75, .every = 2, .times = 2, .l1 = 0.01f},
		  {.encoder = "down.encoder",
		   .decoder = "down.decoder",
		   .rate = 0.5,
		   .every = 1,
		   .times = 3,
		   .l1 = 0.02f}}};

static inline int add_linear(struct gp_graph *g, const char *name, int in, int features, bool bias)
{
	struct gp_err err = {0};
	return gp_graph_linear(g, name, in, features, bias, &err);
}

static inline struct gp_graph *make_decaying_graph(const struct gp_shape *input)
{
	struct gp_err err = {0};
	struct gp_graph *g = gp_graph_new("decaying", input, &err);
	assert_int_equal(gp_graph_begin_block(g, "head", &err), GP_OK);
	int x = gp_graph_unary(g, GP_OP_FLATTEN, "flatten", 0, &err);
	x = add_linear(g, "head", x, RANK, true);
	x = add_linear(g, "up.encoder", x, RANK, false);
	assert_int_equal(gp_graph_begin_block(g, "body1", &err), GP_OK);
	x = add_linear(g, "up.decoder", x, RANK, false);
	x = gp_graph_unary(g, GP_OP_RELU, "relu", x, &err);
	assert_int_equal(gp_graph_begin_block(g, "body2", &err), GP_OK);
	x = gp_graph_dropout(g, "drop", add_linear(g, "body", x, RANK, true), 0.2f, &err);
	x = add_linear(g, "down.encoder", x, RANK, false);
	assert_int_equal(gp_graph_begin_block(g, "tail", &err), GP_OK);
	x = add_linear(g, "down.decoder", x, RANK, false);
	x = add_linear(g, "classifier", x, CLASSES, true);
	assert_true(x > 0);
	expect_ok(gp_graph_finish(g, &err), &err);
	return g;
}

struct config {
	const char *codec[4];
	struct gp_optim optim;
	bool weights;    /* travel up, instead of being drawn there */
	bool wide;       /* two tensors cross each cut */
	bool calibrates; /* running statistics are taken anew */
	bool frozen;     /* the head: chunks of the next step go ahead, where no codec up remembers */
	bool decays;     /* another model, with decaying ranks */
};

#define RAW                                                                                                            \
	{                                                                                                              \
		"raw", "raw", "raw", "raw"                                                                             \
	}
#define REMEMBERED                                                                                                     \
	{                                                                                                              \
		"delta+uniform:bits=6", "poweriter:rank=2,iters=1", "ef+topk:ratio=0.1", "ef+uniform:bits=3"           \
	}
#define POWERITER                                                                                                      \
	{                                                                                                              \
		"poweriter:rank=2,iters=1", "poweriter:rank=2,iters=1", "poweriter:rank=2,iters=1",                    \
			"ef+topk:ratio=0.2"                                                                            \
	}
#define SGD                                                                                                            \
	{                                                                                                              \
		.momentum = 0.9f, .weight_decay = 1e-4f                                                                \
	}
#define ADAM                                                                                                           \
	{                                                                                                              \
		.kind = GP_OPTIM_ADAM, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8f                                      \
	}
#define CLIPPED                                                                                                        \
	{                                                                                                              \
		.momentum = 0.9f, .clip_norm = 0.5                                                                     \
	}

static const struct config raw_sgd = {.codec = RAW, .optim = SGD},
			   raw_adam = {.codec = RAW, .optim = ADAM, .weights = true},
			   clipped = {.codec = REMEMBERED, .optim = CLIPPED, .weights = true},
			   remembered_adam = {.codec = REMEMBERED, .optim = ADAM},
			   poweriter_sgd = {.codec = POWERITER, .optim = SGD, .weights = true},
			   calibrated = {.codec = RAW, .optim = SGD, .calibrates = true},
			   wide_raw = {.codec = RAW, .optim = SGD, .wide = true},
			   wide_remembered = {.codec = REMEMBERED, .optim = ADAM, .wide = true},
			   frozen_raw = {.codec = RAW, .optim = SGD, .wide = true, .frozen = true},
			   decaying_raw = {.codec = RAW, .optim = ADAM, .decays = true},
			   decaying_sgd = {.codec = RAW, .optim = SGD, .decays = true, .weights = true},
			   decaying_clipped = {.codec = RAW, .optim = CLIPPED, .decays = true},
			   decaying_remembered = {.codec = {"delta+uniform:bits=6", "topk:ratio=0.3",
							    "ef+topk:ratio=0.1", "ef+uniform:bits=3"},
						  .optim = ADAM,
						  .decays = true},
			   frozen_clipped = {.codec = RAW, .optim = CLIPPED, .wide = true, .frozen = true};

/* What a run ends in, and what crossed after each of its parts. */
struct outcome {
	char sha[GP_SHA256_HEX];
	struct gp_step_result step[STEPS + 1], eval;
	float outputs[BATCH * CLASSES];
	uint64_t up[STEPS + 3], down[STEPS + 3];
	struct gp_engine_figures figures;
};

struct rig {
	struct gp_graph *graph;
	struct gp_dataset *data;
	struct gp_loader *loader;
	struct gp_engine *engine;
	struct gp_weights *weights, *init;
};

static const char *rig_device = "cpu"; /* of both ends */
static double reconnect_for_s = 120, connect_timeout_s = 30;
static volatile sig_atomic_t stop;
static struct gp_run_state *run_state; /* NULL: no checkpoints */
static const struct gp_client_security *security;

/* `server` NULL: in this process. */
static inline enum gp_status rig_init(struct rig *r, const char *server, const struct config *c, bool train,
				      struct gp_err *err)
{
	struct gp_dataset_options dataset = {0};
	struct gp_loader_spec ls = {.batch = BATCH, .shuffle = train, .drop_last = train, .seed = 5, .prefetch = 2};
	memset(r, 0, sizeof *r);
	expect_ok(
		gp_dataset_open("synthetic:shape=1x8x8,classes=5,samples=32", GP_SPLIT_TRAIN, &dataset, &r->data, err),
		err);
	expect_ok(gp_loader_new(r->data, &ls, &r->loader, err), err);
	r->graph = c->decays ? make_decaying_graph(gp_dataset_shape(r->data))
			     : make_graph(gp_dataset_shape(r->data), c->wide);
	if (c->frozen)
		assert_true(gp_graph_freeze_blocks(r->graph, 0, 1) > 0);
	expect_ok(gp_weights_new(r->graph, &r->weights, err), err);
	expect_ok(gp_weights_new(r->graph, &r->init, err), err);
	gp_weights_init(r->init, 11);
	struct gp_engine_spec spec = {.graph = r->graph,
				      .device = rig_device,
				      .threads = 1,
				      .session.chunk_samples = BATCH / CHUNKS,
				      .session.chunks = CHUNKS,
				      .session.window = WINDOW,
				      .session.eval_only = !train,
				      .session.calibrates = c->calibrates,
				      .session.seed = 11,
				      .session.optim = c->optim,
				      .init = c->weights ? r->init : NULL,
				      .server = server,
				      .cut = {.head = 1, .tail = 3},
				      .connect_timeout_s = connect_timeout_s,
				      .idle_timeout_s = 30,
				      .reconnect_for_s = reconnect_for_s,
				      .run = run_state,
				      .security = security,
				      .stop = &stop};
	if (c->decays)
		spec.session.decays = two_decays;
	for (int i = 0; i < 4; i++) {
		expect_ok(gp_codec_spec_parse(c->codec[i], &spec.session.codec[i], err), err);
		expect_ok(gp_codec_spec_set_samples(&spec.session.codec[i], gp_dataset_samples(r->data), err), err);
	}
	return server ? gp_engine_new_split(&spec, &r->engine, err) : gp_engine_new_local(&spec, &r->engine, err);
}

static inline void rig_deinit(struct rig *r)
{
	if (r->engine)
		r->engine->ops->free(r->engine);
	gp_loader_free(r->loader);
	gp_dataset_free(r->data);
	gp_weights_free(r->weights);
	gp_weights_free(r->init);
	gp_graph_free(r->graph);
}

static inline enum gp_status rig_step(struct rig *r, struct gp_step_result *out, struct gp_err *err)
{
	struct gp_batch *batch;
	expect_ok(gp_loader_next(r->loader, &batch, err), err);
	enum gp_status status = r->engine->ops->step(r->engine, batch, NULL, 0.05f, out, err);
	gp_loader_give_back(r->loader, batch);
	return status;
}

static inline void note(struct rig *r, struct outcome *o, int part)
{
	r->engine->ops->figures(r->engine, &o->figures);
	o->up[part] = o->figures.account.sent.wire_bytes;
	o->down[part] = o->figures.account.received.wire_bytes;
}

/* All steps up to the evaluation. Where the engine looks ahead it is told of the next step's batch. */
static inline void run_steps(struct rig *r, struct outcome *o)
{
	const struct gp_engine_ops *ops = r->engine->ops;
	struct gp_batch *batch = NULL, *next;
	struct gp_err err = {0};
	for (int i = 0; i < STEPS; i++) {
		next = NULL;
		if (!batch)
			expect_ok(ops->next(r->engine, r->loader, &batch, &err), &err);
		if (r->engine->looks_ahead && i + 1 < STEPS)
			expect_ok(ops->next(r->engine, r->loader, &next, &err), &err);
		expect_ok(ops->step(r->engine, batch, next, 0.05f, &o->step[i], &err), &err);
		gp_loader_give_back(r->loader, batch);
		batch = next;
		note(r, o, 1 + i);
	}
}

/* Steps, an evaluation and a prediction between them, the parameters. */
static inline void run_opened(struct rig *r, const struct config *c, struct outcome *o)
{
	const struct gp_engine_ops *ops = r->engine->ops;
	struct gp_err err = {0};
	struct gp_batch *batch;
	memset(o, 0, sizeof *o);
	note(r, o, 0);
	assert_true(!c->frozen || r->engine->looks_ahead);
	run_steps(r, o);
	expect_ok(ops->evaluate(r->engine, r->loader, VAL_BATCHES, &o->eval, &err), &err);
	expect_ok(ops->predict(r->engine, r->loader, o->outputs, &batch, &err), &err);
	gp_loader_give_back(r->loader, batch);
	note(r, o, 1 + STEPS);
	expect_ok(rig_step(r, &o->step[STEPS], &err), &err);
	expect_ok(ops->get_weights(r->engine, r->weights, &err), &err);
	note(r, o, 2 + STEPS);
	expect_ok(gp_weights_sha256(r->weights, o->sha, &err), &err);
	rig_deinit(r);
}

static inline void run(const char *server, const struct config *c, struct outcome *o)
{
	struct rig r;
	struct gp_err err = {0};
	expect_ok(rig_init(&r, server, c, true, &err), &err);
	run_opened(&r, c, o);
}

static inline struct server_thread *start_server(double window_s)
{
	struct gp_server_settings set = server_thread_settings();
	set.device = rig_device;
	set.resume_window_s = window_s;
	set.handshake_timeout_s = 30;
	return server_thread_start_with(&set);
}

/* Steps until one fails; then its status and text. */
static inline enum gp_status step_until_failure(struct rig *r, struct gp_err *err)
{
	struct gp_step_result result;
	enum gp_status status = GP_OK;
	for (int i = 0; i < 1000 && status == GP_OK; i++)
		status = rig_step(r, &result, err);
	return status;
}

static inline void expect_same(const struct outcome *got, const struct outcome *want, const char *where, uint64_t byte)
{
	bool same = strcmp(got->sha, want->sha) == 0 && got->eval.loss_sum == want->eval.loss_sum &&
		    got->eval.samples == want->eval.samples && got->eval.correct == want->eval.correct;
	for (int i = 0; i <= STEPS; i++)
		same = same && got->step[i].loss_sum == want->step[i].loss_sum &&
		       got->step[i].samples == want->step[i].samples;
	if (!same || memcmp(got->outputs, want->outputs, sizeof want->outputs) != 0)
		fail_msg("a fault after %llu bytes %s changes the run", (unsigned long long)byte, where);
}

#endif
