/* SPDX-License-Identifier: Apache-2.0
 *
 * Links that break (PROTOCOL.md section 5.6): a real engine and a real server
 * with a relay between them that cuts the connection at a chosen byte. Wherever
 * it cuts, the run ends as an undisturbed one, to the last bit; who may not
 * come back is told why; what nobody comes back for is freed.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <signal.h>
#include <string.h>
#include <cmocka.h>

#include "client/engine.h"
#include "client/run_state.h"
#include "common/graph_msg.h"
#include "common/token.h"
#include "tests/unit/cut_proxy.h"
#include "tests/unit/raw_peer.h"
#include "tests/unit/server_thread.h"

enum { BATCH = 8, CHUNKS = 4, WINDOW = 2, VAL_BATCHES = 4, CLASSES = 5, STEPS = 4 };

static void expect_ok(enum gp_status status, const struct gp_err *err)
{
	if (status != GP_OK)
		fail_msg("%s", err->text);
}

/* What must be the same after every step back: batch norm, dropout, in each part. */
static int add_stage(struct gp_graph *g, const char *name, int in, int stride)
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

static struct gp_graph *make_graph(const struct gp_shape *input)
{
	struct gp_err err = {0};
	struct gp_graph *g = gp_graph_new("small", input, &err);
	int x = add_stage(g, "head", 0, 1);
	x = add_stage(g, "body1", x, 1);
	x = add_stage(g, "body2", x, 2);
	x = add_stage(g, "tail", x, 1);
	x = gp_graph_unary(g, GP_OP_GLOBAL_AVG_POOL, "pool", x, &err);
	x = gp_graph_unary(g, GP_OP_FLATTEN, "flatten", x, &err);
	x = gp_graph_linear(g, "classifier", x, CLASSES, true, &err);
	assert_true(x > 0);
	expect_ok(gp_graph_finish(g, &err), &err);
	return g;
}

struct config {
	const char *codec[4];
	struct gp_optim optim;
	bool weights; /* travel up, instead of being drawn there */
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

static const struct config raw_sgd = {RAW, SGD, false}, raw_adam = {RAW, ADAM, true},
			   clipped = {REMEMBERED, CLIPPED, true}, remembered_adam = {REMEMBERED, ADAM, false},
			   poweriter_sgd = {POWERITER, SGD, true};

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

static double reconnect_for_s = 120;
static volatile sig_atomic_t stop;
static struct gp_run_state *run_state; /* NULL: no checkpoints */

static enum gp_status rig_init(struct rig *r, const char *server, const struct config *c, bool train,
			       struct gp_err *err)
{
	struct gp_dataset_options dataset = {0};
	struct gp_loader_spec ls = {.batch = BATCH, .shuffle = train, .drop_last = train, .seed = 5, .prefetch = 2};
	memset(r, 0, sizeof *r);
	expect_ok(
		gp_dataset_open("synthetic:shape=1x8x8,classes=5,samples=32", GP_SPLIT_TRAIN, &dataset, &r->data, err),
		err);
	expect_ok(gp_loader_new(r->data, &ls, &r->loader, err), err);
	r->graph = make_graph(gp_dataset_shape(r->data));
	expect_ok(gp_weights_new(r->graph, &r->weights, err), err);
	expect_ok(gp_weights_new(r->graph, &r->init, err), err);
	gp_weights_init(r->init, 11);
	struct gp_engine_spec spec = {.graph = r->graph,
				      .device = "cpu",
				      .threads = 1,
				      .batch = BATCH,
				      .chunks = CHUNKS,
				      .window = WINDOW,
				      .train = train,
				      .seed = 11,
				      .optim = c->optim,
				      .init = c->weights ? r->init : NULL,
				      .server = server,
				      .cut = {.head = 1, .tail = 3},
				      .connect_timeout_s = 30,
				      .idle_timeout_s = 30,
				      .reconnect_for_s = reconnect_for_s,
				      .run = run_state,
				      .stop = &stop};
	for (int i = 0; i < 4; i++) {
		expect_ok(gp_codec_spec_parse(c->codec[i], &spec.codec[i], err), err);
		expect_ok(gp_codec_spec_set_samples(&spec.codec[i], gp_dataset_samples(r->data), err), err);
	}
	return gp_engine_new_split(&spec, &r->engine, err);
}

static void rig_deinit(struct rig *r)
{
	if (r->engine)
		r->engine->ops->free(r->engine);
	gp_loader_free(r->loader);
	gp_dataset_free(r->data);
	gp_weights_free(r->weights);
	gp_weights_free(r->init);
	gp_graph_free(r->graph);
}

static enum gp_status rig_step(struct rig *r, struct gp_step_result *out, struct gp_err *err)
{
	struct gp_batch *batch;
	expect_ok(gp_loader_next(r->loader, &batch, err), err);
	enum gp_status status = r->engine->ops->step(r->engine, batch, 0.05f, out, err);
	gp_loader_give_back(r->loader, batch);
	return status;
}

static void note(struct rig *r, struct outcome *o, int part)
{
	r->engine->ops->figures(r->engine, &o->figures);
	o->up[part] = o->figures.account.sent.wire_bytes;
	o->down[part] = o->figures.account.received.wire_bytes;
}

/* Steps, an evaluation and a prediction between them, the parameters. */
static void run(const char *server, const struct config *c, struct outcome *o)
{
	struct rig r;
	struct gp_err err = {0};
	struct gp_batch *batch;
	memset(o, 0, sizeof *o);
	expect_ok(rig_init(&r, server, c, true, &err), &err);
	const struct gp_engine_ops *ops = r.engine->ops;
	note(&r, o, 0);
	for (int i = 0; i < STEPS; i++) {
		expect_ok(rig_step(&r, &o->step[i], &err), &err);
		note(&r, o, 1 + i);
	}
	expect_ok(ops->evaluate(r.engine, r.loader, VAL_BATCHES, &o->eval, &err), &err);
	expect_ok(ops->predict(r.engine, r.loader, o->outputs, &batch, &err), &err);
	gp_loader_give_back(r.loader, batch);
	note(&r, o, 1 + STEPS);
	expect_ok(rig_step(&r, &o->step[STEPS], &err), &err);
	expect_ok(ops->get_weights(r.engine, r.weights, &err), &err);
	note(&r, o, 2 + STEPS);
	expect_ok(gp_weights_sha256(r.weights, o->sha, &err), &err);
	rig_deinit(&r);
}

static void expect_same(const struct outcome *got, const struct outcome *want, const char *where, uint64_t byte)
{
	bool same = strcmp(got->sha, want->sha) == 0 && got->eval.loss_sum == want->eval.loss_sum &&
		    got->eval.samples == want->eval.samples && got->eval.correct == want->eval.correct;
	for (int i = 0; i <= STEPS; i++)
		same = same && got->step[i].loss_sum == want->step[i].loss_sum &&
		       got->step[i].samples == want->step[i].samples;
	if (!same || memcmp(got->outputs, want->outputs, sizeof want->outputs) != 0)
		fail_msg("a cut after %llu bytes %s changes the run", (unsigned long long)byte, where);
}

static struct server_thread *start_server(double window_s)
{
	struct gp_server_settings set = server_thread_settings();
	set.resume_window_s = window_s;
	set.handshake_timeout_s = 30;
	return server_thread_start_with(&set);
}

/* One connection is cut there; the run must not show it. */
static void check_cut(const struct server_thread *server, const struct config *c, const struct outcome *want, bool up,
		      uint64_t byte, enum cut_kind kind)
{
	static struct cut_proxy p;
	struct outcome got;
	memset(&p, 0, sizeof p);
	p.plans = 1;
	p.plan[0] = (struct cut_plan){.up = up ? byte : 0, .down = up ? 0 : byte, .kind = kind};
	cut_proxy_start(&p, server->port);
	run(p.address, c, &got);
	assert_int_equal(atomic_load(&p.cuts), 1);
	cut_proxy_stop(&p);
	expect_same(&got, want, up ? "up" : "down", byte);
	if (got.figures.reconnects != 1)
		fail_msg("%u reconnects after a cut at %llu %s", got.figures.reconnects, (unsigned long long)byte,
			 up ? "up" : "down");
}

/* Places in all phases: the prefaces, the handshake, OPEN and weights, every step, evaluation, fetched parameters. */
static void cut_everywhere(const struct config *c, int cuts, enum cut_kind kind)
{
	struct server_thread *server = start_server(120);
	struct outcome want;
	run(server->address, c, &want);
	assert_int_equal(want.figures.reconnects, 0);
	for (int i = 0; i < cuts; i++) {
		const bool up = i % 2 == 0;
		const uint64_t first = GP_PREFACE_BYTES / 2, all = (up ? want.up : want.down)[2 + STEPS] - first;
		check_cut(server, c, &want, up, first + all * (uint64_t)i / (uint64_t)cuts, kind);
	}
	server_thread_stop(server);
}

static void a_cut_anywhere_changes_nothing_of_a_raw_run_with_momentum(void **state)
{
	(void)state;
	cut_everywhere(&raw_sgd, 60, CUT_END);
}

static void a_cut_anywhere_changes_nothing_of_a_raw_run_with_adam_and_weights(void **state)
{
	(void)state;
	cut_everywhere(&raw_adam, 40, CUT_RESET);
}

static void a_cut_anywhere_changes_nothing_of_codecs_that_remember(void **state)
{
	(void)state;
	cut_everywhere(&remembered_adam, 60, CUT_END);
	cut_everywhere(&poweriter_sgd, 40, CUT_RESET);
}

static void a_cut_anywhere_changes_nothing_of_a_run_clipped_by_norm(void **state)
{
	(void)state;
	cut_everywhere(&clipped, 60, CUT_END);
}

static void a_server_that_noticed_nothing_is_taken_over(void **state)
{
	(void)state;
	cut_everywhere(&remembered_adam, 5, CUT_CLIENT_ONLY);
}

/* COMMIT and COMMITTED are few bytes: every few of those where steps meet. */
static void a_cut_around_a_commit_commits_once(void **state)
{
	(void)state;
	struct server_thread *server = start_server(120);
	struct outcome want;
	run(server->address, &raw_sgd, &want);
	for (int back = -60; back <= 60; back += 6) {
		check_cut(server, &raw_sgd, &want, true, (uint64_t)((int64_t)want.up[2] + back), CUT_END);
		check_cut(server, &raw_sgd, &want, false, (uint64_t)((int64_t)want.down[2] + back), CUT_END);
	}
	server_thread_stop(server);
}

static void a_link_that_breaks_in_every_step_is_only_slow(void **state)
{
	(void)state;
	static struct cut_proxy p;
	struct server_thread *server = start_server(120);
	struct outcome want, got;
	run(server->address, &poweriter_sgd, &want);
	memset(&p, 0, sizeof p);
	p.plans = 1;
	p.repeat = true;
	const uint64_t step = want.down[3] - want.down[2], opening = want.down[0];
	p.plan[0] = (struct cut_plan){.down = opening + step * 5 / 3};
	cut_proxy_start(&p, server->port);
	run(p.address, &poweriter_sgd, &got);
	cut_proxy_stop(&p);
	expect_same(&got, &want, "down, again and again", p.plan[0].down);
	assert_true(got.figures.reconnects >= 3);
	assert_int_equal(got.figures.reconnects, atomic_load(&p.cuts));
	assert_true(got.figures.account.sent.wire_bytes > want.figures.account.sent.wire_bytes);
	server_thread_stop(server);
}

/* Every answer counts: a connection that brings two and a half of them is good for two. */
static void an_evaluation_gets_on_over_a_link_cut_every_few_frames(void **state)
{
	(void)state;
	static struct cut_proxy p;
	struct server_thread *server = start_server(120);
	struct gp_step_result want, got;
	struct gp_engine_figures f;
	struct rig r;
	struct gp_err err = {0};
	expect_ok(rig_init(&r, server->address, &raw_sgd, false, &err), &err);
	r.engine->ops->figures(r.engine, &f);
	const uint64_t opening = f.account.received.wire_bytes;
	expect_ok(r.engine->ops->evaluate(r.engine, r.loader, VAL_BATCHES, &want, &err), &err);
	r.engine->ops->figures(r.engine, &f);
	const uint64_t answer = (f.account.received.wire_bytes - opening) / (VAL_BATCHES * CHUNKS);
	rig_deinit(&r);
	memset(&p, 0, sizeof p);
	p.plans = 1;
	p.repeat = true;
	p.plan[0] = (struct cut_plan){.down = opening + answer * 5 / 2};
	cut_proxy_start(&p, server->port);
	expect_ok(rig_init(&r, p.address, &raw_sgd, false, &err), &err);
	expect_ok(r.engine->ops->evaluate(r.engine, r.loader, VAL_BATCHES, &got, &err), &err);
	r.engine->ops->figures(r.engine, &f);
	rig_deinit(&r);
	cut_proxy_stop(&p);
	assert_true(got.loss_sum == want.loss_sum);
	assert_int_equal(got.correct, want.correct);
	assert_int_equal(got.samples, want.samples);
	assert_in_range(f.reconnects, VAL_BATCHES * CHUNKS / 3 - 1, VAL_BATCHES * CHUNKS / 2);
	server_thread_stop(server);
}

/* Half of an evaluation's answers; then another server, which knows nothing of it and wants chunks one by one. */
static void an_evaluation_goes_on_at_a_server_with_a_smaller_window(void **state)
{
	(void)state;
	static struct cut_proxy p;
	struct gp_server_settings set = server_thread_settings();
	struct server_thread *first = start_server(120);
	set.window = 1;
	struct server_thread *second = server_thread_start_with(&set);
	struct gp_step_result want, got;
	struct gp_engine_figures f;
	struct rig r;
	struct gp_err err = {0};
	expect_ok(rig_init(&r, first->address, &raw_sgd, false, &err), &err);
	r.engine->ops->figures(r.engine, &f);
	const uint64_t opening = f.account.received.wire_bytes;
	expect_ok(r.engine->ops->evaluate(r.engine, r.loader, VAL_BATCHES, &want, &err), &err);
	r.engine->ops->figures(r.engine, &f);
	rig_deinit(&r);
	memset(&p, 0, sizeof p);
	p.plans = 1;
	p.plan[0] = (struct cut_plan){.down = opening + (f.account.received.wire_bytes - opening) / 2};
	cut_proxy_start(&p, first->port);
	expect_ok(rig_init(&r, p.address, &raw_sgd, false, &err), &err);
	atomic_store(&p.server_port, second->port); /* of the next connection */
	expect_ok(r.engine->ops->evaluate(r.engine, r.loader, VAL_BATCHES, &got, &err), &err);
	r.engine->ops->figures(r.engine, &f);
	rig_deinit(&r);
	cut_proxy_stop(&p);
	assert_int_equal(f.reconnects, 1);
	assert_true(got.loss_sum == want.loss_sum);
	assert_int_equal(got.correct, want.correct);
	assert_int_equal(got.samples, want.samples);
	server_thread_stop(first);
	server_thread_stop(second);
}

/* Steps until one fails; then its status and text. */
static enum gp_status step_until_failure(struct rig *r, struct gp_err *err)
{
	struct gp_step_result result;
	enum gp_status status = GP_OK;
	for (int i = 0; i < 1000 && status == GP_OK; i++)
		status = rig_step(r, &result, err);
	return status;
}

/* Somebody else's port, say. */
static void a_server_that_never_says_who_it_is_is_given_up_soon(void **state)
{
	(void)state;
	static struct cut_proxy p;
	struct server_thread *server = start_server(120);
	struct rig r;
	struct gp_err err = {0};
	memset(&p, 0, sizeof p);
	p.plans = 1;
	p.plan[0] = (struct cut_plan){.down = GP_PREFACE_BYTES - 1, .kind = CUT_END};
	p.repeat = true;
	cut_proxy_start(&p, server->port);
	assert_int_equal(rig_init(&r, p.address, &raw_sgd, true, &err), GP_PEER);
	assert_non_null(strstr(err.text, "before it said who it is"));
	assert_int_equal(atomic_load(&p.accepted), 4);
	rig_deinit(&r);
	cut_proxy_stop(&p);
	server_thread_stop(server);
}

static void a_client_that_may_not_reconnect_ends_at_once(void **state)
{
	(void)state;
	static struct cut_proxy p;
	struct server_thread *server = start_server(120);
	struct rig r;
	struct gp_err err = {0};
	memset(&p, 0, sizeof p);
	p.plans = 1;
	p.plan[0].up = 60000;
	cut_proxy_start(&p, server->port);
	reconnect_for_s = 0;
	expect_ok(rig_init(&r, p.address, &raw_sgd, true, &err), &err);
	reconnect_for_s = 120;
	assert_int_equal(gp_status_exit(step_until_failure(&r, &err)), 4);
	assert_int_equal(atomic_load(&p.accepted), 1);
	rig_deinit(&r);
	cut_proxy_stop(&p);
	server_thread_stop(server);
}

static void a_server_that_stays_away_is_given_up(void **state)
{
	(void)state;
	static struct cut_proxy p;
	struct server_thread *server = start_server(120);
	struct rig r;
	struct gp_err err = {0};
	memset(&p, 0, sizeof p);
	p.plans = 1;
	p.plan[0].up = 60000;
	cut_proxy_start(&p, server->port);
	reconnect_for_s = 0.4;
	expect_ok(rig_init(&r, p.address, &raw_sgd, true, &err), &err);
	reconnect_for_s = 120;
	atomic_store(&p.deaf, true);
	assert_int_equal(gp_status_exit(step_until_failure(&r, &err)), 4);
	assert_non_null(strstr(err.text, "gave up reconnecting"));
	rig_deinit(&r);
	cut_proxy_stop(&p);
	server_thread_stop(server);
}

static void on_signal(int number)
{
	(void)number;
	stop = 1;
}

static pthread_t training;

static void *stop_when_cut(void *arg)
{
	struct cut_proxy *p = arg;
	while (atomic_load(&p->cuts) == 0)
		usleep(1000);
	usleep(300000);
	pthread_kill(training, SIGUSR1);
	return NULL;
}

static void stop_while_reconnecting(bool mute)
{
	static struct cut_proxy p;
	struct server_thread *server = start_server(120);
	pthread_t stopper;
	struct rig r;
	struct gp_err err = {0};
	memset(&p, 0, sizeof p);
	p.plans = 1;
	p.plan[0].up = 60000;
	cut_proxy_start(&p, server->port);
	reconnect_for_s = 3600;
	expect_ok(rig_init(&r, p.address, &raw_sgd, true, &err), &err);
	reconnect_for_s = 120;
	atomic_store(mute ? &p.mute : &p.deaf, true);
	training = pthread_self();
	signal(SIGUSR1, on_signal);
	assert_int_equal(pthread_create(&stopper, NULL, stop_when_cut, &p), 0);
	assert_int_equal(step_until_failure(&r, &err), GP_CANCELED);
	assert_non_null(strstr(err.text, "stopped by a signal"));
	pthread_join(stopper, NULL);
	signal(SIGUSR1, SIG_DFL);
	stop = 0;
	rig_deinit(&r);
	cut_proxy_stop(&p);
	server_thread_stop(server);
}

static void a_signal_ends_the_wait_for_a_link(void **state)
{
	(void)state;
	stop_while_reconnecting(false);
}

static void a_signal_ends_the_wait_for_a_server_that_does_not_answer(void **state)
{
	(void)state;
	stop_while_reconnecting(true);
}

/* Peers on a plain socket. */

static void client_connect(struct raw_peer *c, uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct timeval patience = {.tv_sec = 20};
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	memset(c, 0, sizeof *c);
	c->fd = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	assert_int_equal(connect(c->fd, (struct sockaddr *)&a, sizeof a), 0);
	c->codec = 1;
	c->body_cap = 1 << 20;
	c->body = gp_calloc(c->body_cap, 1);
	put_preface(c);
}

static void client_close(struct raw_peer *c)
{
	close(c->fd);
	gp_free(c->body);
}

struct hello {
	uint8_t token[GP_TOKEN_BYTES];
	size_t token_len, run_id_len;
	uint64_t step, hash;
};

/* HELLO, and the answer: WELCOME (its token in `out`) or ERROR. */
static Gpsplit__Control *say_hello(struct raw_peer *c, const struct hello *h, struct hello *out)
{
	static const uint8_t run_id[64] = {7};
	Gpsplit__Hello hello = GPSPLIT__HELLO__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	hello.version = GP_PROTO_VERSION;
	hello.resume_token = (ProtobufCBinaryData){h->token_len, (uint8_t *)h->token};
	hello.run_id = (ProtobufCBinaryData){h->run_id_len, (uint8_t *)run_id};
	hello.last_step = h->step;
	hello.state_hash = h->hash;
	m.body_case = GPSPLIT__CONTROL__BODY_HELLO;
	m.hello = &hello;
	put_control(c, &m);
	Gpsplit__Control *answer = get_control(c);
	assert_non_null(answer);
	if (out && answer->body_case == GPSPLIT__CONTROL__BODY_WELCOME) {
		assert_int_equal(answer->welcome->resume_token.len, GP_TOKEN_BYTES);
		*out = (struct hello){.token_len = GP_TOKEN_BYTES};
		memcpy(out->token, answer->welcome->resume_token.data, GP_TOKEN_BYTES);
	}
	return answer;
}

static void expect_welcome(struct raw_peer *c, const struct hello *h, struct hello *out, bool resumed)
{
	Gpsplit__Control *m = say_hello(c, h, out);
	if (m->body_case != GPSPLIT__CONTROL__BODY_WELCOME)
		fail_msg("got %s '%s'", gp_control_name(m),
			 m->body_case == GPSPLIT__CONTROL__BODY_ERROR ? m->error->text : "");
	assert_int_equal(m->welcome->resumed, resumed);
	gpsplit__control__free_unpacked(m, NULL);
}

static void expect_refusal(struct raw_peer *c, const struct hello *h, const char *part)
{
	Gpsplit__Control *m = say_hello(c, h, NULL);
	if (m->body_case != GPSPLIT__CONTROL__BODY_ERROR || !strstr(m->error->text, part))
		fail_msg("got %s '%s', not '%s'", gp_control_name(m),
			 m->body_case == GPSPLIT__CONTROL__BODY_ERROR ? m->error->text : "", part);
	gpsplit__control__free_unpacked(m, NULL);
}

static void open_session(struct raw_peer *c)
{
	struct gp_err err;
	struct gp_shape input = {.ndim = 3, .dim = {8, 8, 1}};
	struct gp_graph *whole = make_graph(&input), *body;
	Gpsplit__Open open = GPSPLIT__OPEN__INIT;
	Gpsplit__Optimizer optimizer = GPSPLIT__OPTIMIZER__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	expect_ok(gp_graph_part(whole, 1, 3, &body, &err), &err);
	expect_ok(gp_graph_to_msg(body, &open.graph, &err), &err);
	open.optimizer = &optimizer;
	open.chunk_samples = open.window = open.chunks = 2;
	open.codec_act_up = open.codec_act_down = open.codec_grad_up = open.codec_grad_down = (char *)"raw";
	m.body_case = GPSPLIT__CONTROL__BODY_OPEN;
	m.open = &open;
	put_control(c, &m);
	gp_graph_msg_free(open.graph);
	gp_graph_free(body);
	gp_graph_free(whole);
	Gpsplit__Control *ready = get_control(c);
	assert_true(ready && ready->body_case == GPSPLIT__CONTROL__BODY_READY);
	gpsplit__control__free_unpacked(ready, NULL);
}

/* A session at step 0 whose link broke; how to come back. */
static void leave_session(uint16_t port, struct hello *back)
{
	struct raw_peer c;
	const struct hello first = {.run_id_len = GP_RUN_ID_BYTES};
	const uint8_t none[32] = {0};
	client_connect(&c, port);
	expect_welcome(&c, &first, back, false);
	open_session(&c);
	client_close(&c);
	back->hash = gp_frame_checksum(none, sizeof none); /* raw codecs remember nothing */
}

static void fetch_params(struct raw_peer *c)
{
	Gpsplit__FetchParams fetch = GPSPLIT__FETCH_PARAMS__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	m.body_case = GPSPLIT__CONTROL__BODY_FETCH_PARAMS;
	m.fetch_params = &fetch;
	put_control(c, &m);
	Gpsplit__Control *done = get_control(c);
	assert_true(done && done->body_case == GPSPLIT__CONTROL__BODY_PARAMS_DONE);
	gpsplit__control__free_unpacked(done, NULL);
}

static void a_token_is_good_until_the_next_one_is_known(void **state)
{
	(void)state;
	struct server_thread *server = start_server(120);
	struct raw_peer c;
	struct hello first, second, third;
	leave_session(server->port, &first);
	client_connect(&c, server->port);
	expect_welcome(&c, &first, &second, true);
	assert_memory_not_equal(first.token, second.token, GP_TOKEN_BYTES);
	client_close(&c); /* as if WELCOME had not arrived: the token before must do */
	client_connect(&c, server->port);
	expect_welcome(&c, &first, &second, true);
	fetch_params(&c); /* the session works, and this client knows the new token */
	client_close(&c);
	client_connect(&c, server->port);
	expect_welcome(&c, &first, &third, false);
	client_close(&c);
	second.hash = first.hash;
	client_connect(&c, server->port);
	expect_welcome(&c, &second, &third, true);
	client_close(&c);
	server_thread_stop(server); /* with a session that waits: frees it */
}

static void a_stranger_gets_no_session(void **state)
{
	(void)state;
	struct server_thread *server = start_server(120);
	struct raw_peer c;
	struct hello back, wrong;
	leave_session(server->port, &back);
	wrong = back;
	wrong.token[31] ^= 1;
	client_connect(&c, server->port);
	expect_welcome(&c, &wrong, NULL, false);
	client_close(&c);
	wrong = back;
	wrong.token_len = 5;
	client_connect(&c, server->port);
	expect_refusal(&c, &wrong, "token of 5 bytes");
	client_close(&c);
	wrong = (struct hello){.run_id_len = 3};
	client_connect(&c, server->port);
	expect_refusal(&c, &wrong, "not 3");
	client_close(&c);
	client_connect(&c, server->port); /* none of them spoilt it */
	expect_welcome(&c, &back, NULL, true);
	client_close(&c);
	server_thread_stop(server);
}

static void ends_that_do_not_fit_together_do_not_go_on(void **state)
{
	(void)state;
	struct server_thread *server = start_server(120);
	struct raw_peer c;
	struct hello back;
	leave_session(server->port, &back);
	back.step = 2;
	client_connect(&c, server->port);
	expect_refusal(&c, &back, "step 2");
	client_close(&c);
	leave_session(server->port, &back);
	back.hash++;
	client_connect(&c, server->port);
	expect_refusal(&c, &back, "remember different things");
	client_close(&c);
	client_connect(&c, server->port); /* and it is gone */
	back.hash--;
	expect_welcome(&c, &back, NULL, false);
	client_close(&c);
	server_thread_stop(server);
}

/* Whether a server for one session would begin one. */
static bool has_room(uint16_t port)
{
	struct raw_peer c;
	const struct hello fresh = {0};
	client_connect(&c, port);
	Gpsplit__Control *m = say_hello(&c, &fresh, NULL);
	const bool welcome = m->body_case == GPSPLIT__CONTROL__BODY_WELCOME;
	if (!welcome && (m->body_case != GPSPLIT__CONTROL__BODY_ERROR || !strstr(m->error->text, "no room")))
		fail_msg("got %s", gp_control_name(m));
	gpsplit__control__free_unpacked(m, NULL);
	client_close(&c);
	return welcome;
}

/* After the window the server, which has room for one session, has forgotten it, and says so. The relay lets nobody in
 * until then. */
static void *let_in_later(void *arg)
{
	struct cut_proxy *p = arg;
	while (atomic_load(&p->cuts) == 0)
		usleep(1000);
	while (!has_room(p->server_port))
		usleep(20000);
	atomic_store(&p->deaf, false);
	return NULL;
}

static void a_client_that_comes_too_late_is_told_so(void **state)
{
	(void)state;
	static struct cut_proxy p;
	struct gp_server_settings set = server_thread_settings();
	set.resume_window_s = 0.05;
	set.max_sessions = 1;
	struct server_thread *server = server_thread_start_with(&set);
	pthread_t later;
	struct rig r;
	struct gp_err err = {0};
	memset(&p, 0, sizeof p);
	p.plans = 1;
	p.plan[0].up = 60000;
	cut_proxy_start(&p, server->port);
	expect_ok(rig_init(&r, p.address, &raw_sgd, true, &err), &err);
	atomic_store(&p.deaf, true);
	assert_int_equal(pthread_create(&later, NULL, let_in_later, &p), 0);
	assert_int_equal(gp_status_exit(step_until_failure(&r, &err)), 4);
	assert_non_null(strstr(err.text, "no longer has this session"));
	pthread_join(later, NULL);
	rig_deinit(&r);
	cut_proxy_stop(&p);
	server_thread_stop(server);
}

/* A server for one session: who waits for it waits for the window. */
static void a_session_that_nobody_comes_for_makes_room(void **state)
{
	(void)state;
	struct gp_server_settings set = server_thread_settings();
	set.resume_window_s = 0.5;
	set.max_sessions = 1;
	struct server_thread *server = server_thread_start_with(&set);
	struct hello back;
	const uint64_t left = gp_now_ns();
	leave_session(server->port, &back);
	while (!has_room(server->port)) {
		assert_true(gp_now_ns() - left < 60000000000ull);
		usleep(20000);
	}
	assert_true(gp_now_ns() - left > 490000000ull); /* until then it was kept */
	server_thread_stop(server);
}

/* The same client, begun anew: it does not wait for its own leftovers. */
static void a_run_that_begins_anew_drops_what_was_kept_of_it(void **state)
{
	(void)state;
	struct gp_server_settings set = server_thread_settings();
	set.resume_window_s = 60;
	set.max_sessions = 1;
	struct server_thread *server = server_thread_start_with(&set);
	struct hello back;
	for (int i = 0; i < 3; i++)
		leave_session(server->port, &back);
	server_thread_stop(server);
}

/* Two steps with a checkpoint after each. *newest is that of the client, *first_down the bytes of the first step. */
static enum gp_status run_with_checkpoints(const char *server, bool required, uint64_t *newest, uint64_t *first_down,
					   struct gp_err *err)
{
	char dir[] = "/tmp/gp_resume_XXXXXX", command[64];
	struct rig r;
	struct outcome o;
	struct gp_step_result result;
	struct gp_pairs spec = {.count = 0};
	assert_non_null(mkdtemp(dir));
	const struct gp_run_state_options options = {
		.dir = dir, .every = 1, .total_steps = 9, .required = required, .spec = &spec};
	expect_ok(gp_run_state_open(&options, &run_state, err), err);
	expect_ok(rig_init(&r, server, &raw_sgd, true, err), err);
	enum gp_status status = rig_step(&r, &result, err);
	note(&r, &o, 0);
	*first_down = o.down[0];
	if (status == GP_OK)
		status = rig_step(&r, &result, err);
	if (status == GP_OK)
		status = r.engine->ops->get_weights(r.engine, r.weights, err); /* settles */
	rig_deinit(&r);
	*newest = gp_run_state_newest(run_state);
	gp_run_state_close(run_state);
	run_state = NULL;
	snprintf(command, sizeof command, "rm -r '%s'", dir);
	assert_int_equal(system(command), 0);
	return status;
}

static struct server_thread *start_keeping_server(char dir[64], uint64_t bytes)
{
	struct gp_server_settings set = server_thread_settings();
	strcpy(dir, "/tmp/gp_resume_XXXXXX");
	assert_non_null(mkdtemp(dir));
	set.resume_window_s = 20;
	set.state_dir = dir;
	set.state_max_bytes = bytes;
	return server_thread_start_with(&set);
}

static void remove_folder(const char *dir)
{
	char command[128];
	snprintf(command, sizeof command, "rm -r '%s'", dir);
	assert_int_equal(system(command), 0);
}

/* Around the first COMMITTED. Returns how many runs lost it and were told by WELCOME that there is no checkpoint. */
static int cut_around_committed(struct server_thread *server, enum gp_status want, const char *words)
{
	static struct cut_proxy p;
	struct gp_err err = {0};
	uint64_t newest, down, ignored;
	int lost = 0;
	expect_ok(run_with_checkpoints(server->address, false, &newest, &down, &err), &err);
	for (int64_t back = -80; back <= 160; back += 8) {
		memset(&p, 0, sizeof p);
		p.plans = 1;
		p.plan[0] = (struct cut_plan){.down = (uint64_t)((int64_t)down + back), .kind = CUT_END};
		cut_proxy_start(&p, server->port);
		enum gp_status status = run_with_checkpoints(p.address, true, &newest, &ignored, &err);
		cut_proxy_stop(&p);
		if (status != want || (want != GP_OK && !strstr(err.text, words)))
			fail_msg("a cut %lld bytes from the end of a step: %s '%s'", (long long)back,
				 gp_status_name(status), status == GP_OK ? "" : err.text);
		assert_int_equal(newest, want == GP_OK ? 2 : 0);
		lost += status != GP_OK && strstr(err.text, "the link has lost");
	}
	return lost;
}

static void a_checkpoint_that_failed_is_known_though_the_answer_was_lost(void **state)
{
	(void)state;
	char dir[64];
	struct server_thread *server = start_keeping_server(dir, 1); /* no room for any */
	assert_true(cut_around_committed(server, GP_INVALID, "--checkpoint-required") > 0);
	server_thread_stop(server);
	remove_folder(dir);
}

/* Opens a run with checkpoints at a server that keeps none; `said` gets what is on stderr by then. */
static enum gp_status open_where_nothing_is_kept(bool required, char said[4096], struct gp_err *err)
{
	char dir[] = "/tmp/gp_resume_XXXXXX";
	struct server_thread *server = start_server(20);
	struct rig r;
	struct gp_pairs spec = {.count = 0};
	assert_non_null(mkdtemp(dir));
	const struct gp_run_state_options options = {
		.dir = dir, .every = 100, .total_steps = 999, .required = required, .spec = &spec};
	expect_ok(gp_run_state_open(&options, &run_state, err), err);
	FILE *caught = tmpfile();
	const int own = dup(STDERR_FILENO);
	dup2(fileno(caught), STDERR_FILENO);
	const enum gp_status status = rig_init(&r, server->address, &raw_sgd, true, err);
	dup2(own, STDERR_FILENO);
	close(own);
	rewind(caught);
	said[fread(said, 1, 4095, caught)] = '\0';
	fclose(caught);
	rig_deinit(&r);
	gp_run_state_close(run_state);
	run_state = NULL;
	server_thread_stop(server);
	remove_folder(dir);
	return status;
}

static void a_server_that_keeps_no_checkpoints_is_known_before_the_first_step(void **state)
{
	(void)state;
	char said[4096];
	struct gp_err err = {0};
	expect_ok(open_where_nothing_is_kept(false, said, &err), &err);
	assert_non_null(strstr(said, "this server keeps no checkpoints (--state-dir); training goes on"));
	assert_int_equal(open_where_nothing_is_kept(true, said, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "--checkpoint-required: server 127.0.0.1:"));
	assert_non_null(strstr(err.text, "keeps no checkpoints"));
}

static void a_checkpoint_that_was_kept_is_known_though_the_answer_was_lost(void **state)
{
	(void)state;
	char dir[64];
	struct server_thread *server = start_keeping_server(dir, 1 << 30);
	cut_around_committed(server, GP_OK, "");
	server_thread_stop(server);
	remove_folder(dir);
}

/* From what is in `dir` up to step `to`, with a checkpoint after each. Returns where it began; `sha` of the parameters. */
static uint64_t train_to(const char *server, const char *dir, uint64_t to, char sha[GP_SHA256_HEX])
{
	struct rig r;
	struct gp_err err = {0};
	struct gp_step_result result;
	struct gp_pairs spec = {.count = 0};
	const struct gp_run_state_options options = {
		.dir = dir, .every = 1, .total_steps = 99, .resume = true, .spec = &spec};
	expect_ok(gp_run_state_open(&options, &run_state, &err), &err);
	expect_ok(rig_init(&r, server, &remembered_adam, true, &err), &err);
	const uint64_t begin = r.engine->steps, epoch = gp_loader_batches_per_epoch(r.loader);
	expect_ok(gp_loader_seek(r.loader, (uint32_t)(begin / epoch), (uint32_t)(begin % epoch), &err), &err);
	for (uint64_t i = begin; i < to; i++)
		expect_ok(rig_step(&r, &result, &err), &err);
	expect_ok(r.engine->ops->get_weights(r.engine, r.weights, &err), &err);
	expect_ok(gp_weights_sha256(r.weights, sha, &err), &err);
	rig_deinit(&r);
	gp_run_state_close(run_state);
	run_state = NULL;
	return begin;
}

/* Rewrites a checkpoint, whole and with the right sums, with another byte in what a codec remembers. */
static void change_codec_memory(const char *dir, uint64_t step, const char *name)
{
	struct gp_err err = {0};
	struct gp_checkpoint *c;
	expect_ok(gp_checkpoint_open(dir, step, &c, &err), &err);
	const int count = gp_st_count(c->state);
	struct gp_st_item *item = gp_calloc((size_t)count, sizeof *item);
	uint8_t *changed = NULL;
	for (int i = 0; i < count; i++) {
		const struct gp_st_tensor *t = gp_st_at(c->state, i);
		item[i] = (struct gp_st_item){t->name, t->shape, t->data, t->dtype};
		if (strcmp(t->name, name) != 0)
			continue;
		assert_true(t->bytes > 64);
		item[i].data = changed = gp_calloc(t->bytes, 1);
		memcpy(changed, t->data, t->bytes);
		changed[t->bytes / 2] ^= 1;
		const uint64_t sum = gp_frame_checksum(changed, t->bytes - sizeof sum); /* as codec_state.c ends it */
		memcpy(changed + t->bytes - sizeof sum, &sum, sizeof sum);
	}
	assert_non_null(changed);
	expect_ok(gp_checkpoint_write(dir, &c->manifest, item, count, NULL, &err), &err);
	gp_checkpoint_close(c);
	gp_free(changed);
	gp_free(item);
}

static void a_checkpoint_that_does_not_fit_the_other_side_gives_way_to_an_older_one(void **state)
{
	(void)state;
	char kept[64], whole[] = "/tmp/gp_resume_XXXXXX", parted[] = "/tmp/gp_resume_XXXXXX";
	char want[GP_SHA256_HEX], got[GP_SHA256_HEX];
	struct server_thread *server = start_keeping_server(kept, 1 << 30);
	assert_non_null(mkdtemp(whole));
	assert_non_null(mkdtemp(parted));
	assert_int_equal(train_to(server->address, whole, 4, want), 0);
	assert_int_equal(train_to(server->address, parted, 3, got), 0);
	change_codec_memory(parted, 3, "codec.act_up");
	change_codec_memory(parted, 2, "codec.act_up");
	assert_int_equal(train_to(server->address, parted, 4, got), 1);
	assert_string_equal(got, want);
	assert_int_equal(train_to(server->address, parted, 4, got), 4);
	server_thread_stop(server);
	remove_folder(kept);
	remove_folder(whole);
	remove_folder(parted);
}

static void a_client_whose_run_was_taken_over_by_another_is_told_not_to_come_back(void **state)
{
	(void)state;
	struct server_thread *server = start_server(120);
	struct raw_peer first, second;
	const struct hello hello = {.run_id_len = GP_RUN_ID_BYTES};
	struct hello ignored;
	client_connect(&first, server->port);
	expect_welcome(&first, &hello, &ignored, false);
	open_session(&first);
	client_connect(&second, server->port);
	expect_welcome(&second, &hello, &ignored, false);
	Gpsplit__Control *told = get_control(&first);
	assert_true(told && told->body_case == GPSPLIT__CONTROL__BODY_ERROR);
	assert_int_equal(told->error->code, GP_DENIED);
	assert_non_null(strstr(told->error->text, "another client"));
	gpsplit__control__free_unpacked(told, NULL);
	client_close(&first);
	client_close(&second);
	server_thread_stop(server);
}

static void the_newer_connection_wins(void **state)
{
	(void)state;
	struct server_thread *server = start_server(120);
	struct raw_peer first, second;
	const uint8_t none[32] = {0};
	const struct hello fresh = {0};
	struct hello back;
	client_connect(&first, server->port);
	expect_welcome(&first, &fresh, &back, false);
	open_session(&first);
	back.hash = gp_frame_checksum(none, sizeof none);
	client_connect(&second, server->port);
	/* The old end is told, and reads to its end, which lets the server close it. */
	Gpsplit__Hello hello = GPSPLIT__HELLO__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	hello.version = GP_PROTO_VERSION;
	hello.resume_token = (ProtobufCBinaryData){GP_TOKEN_BYTES, back.token};
	hello.state_hash = back.hash;
	m.body_case = GPSPLIT__CONTROL__BODY_HELLO;
	m.hello = &hello;
	put_control(&second, &m);
	Gpsplit__Control *told = get_control(&first);
	assert_true(told && told->body_case == GPSPLIT__CONTROL__BODY_ERROR);
	assert_non_null(strstr(told->error->text, "taken over"));
	gpsplit__control__free_unpacked(told, NULL);
	client_close(&first);
	Gpsplit__Control *welcome = get_control(&second);
	assert_true(welcome && welcome->body_case == GPSPLIT__CONTROL__BODY_WELCOME && welcome->welcome->resumed);
	gpsplit__control__free_unpacked(welcome, NULL);
	fetch_params(&second);
	client_close(&second);
	server_thread_stop(server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_cut_anywhere_changes_nothing_of_a_raw_run_with_momentum),
		cmocka_unit_test(a_cut_anywhere_changes_nothing_of_a_raw_run_with_adam_and_weights),
		cmocka_unit_test(a_cut_anywhere_changes_nothing_of_codecs_that_remember),
		cmocka_unit_test(a_cut_anywhere_changes_nothing_of_a_run_clipped_by_norm),
		cmocka_unit_test(a_cut_around_a_commit_commits_once),
		cmocka_unit_test(a_server_that_noticed_nothing_is_taken_over),
		cmocka_unit_test(a_link_that_breaks_in_every_step_is_only_slow),
		cmocka_unit_test(an_evaluation_gets_on_over_a_link_cut_every_few_frames),
		cmocka_unit_test(an_evaluation_goes_on_at_a_server_with_a_smaller_window),
		cmocka_unit_test(a_server_that_never_says_who_it_is_is_given_up_soon),
		cmocka_unit_test(a_client_that_may_not_reconnect_ends_at_once),
		cmocka_unit_test(a_server_that_stays_away_is_given_up),
		cmocka_unit_test(a_signal_ends_the_wait_for_a_link),
		cmocka_unit_test(a_signal_ends_the_wait_for_a_server_that_does_not_answer),
		cmocka_unit_test(a_client_that_comes_too_late_is_told_so),
		cmocka_unit_test(a_token_is_good_until_the_next_one_is_known),
		cmocka_unit_test(a_stranger_gets_no_session),
		cmocka_unit_test(ends_that_do_not_fit_together_do_not_go_on),
		cmocka_unit_test(a_session_that_nobody_comes_for_makes_room),
		cmocka_unit_test(a_run_that_begins_anew_drops_what_was_kept_of_it),
		cmocka_unit_test(a_server_that_keeps_no_checkpoints_is_known_before_the_first_step),
		cmocka_unit_test(a_checkpoint_that_failed_is_known_though_the_answer_was_lost),
		cmocka_unit_test(a_checkpoint_that_was_kept_is_known_though_the_answer_was_lost),
		cmocka_unit_test(a_checkpoint_that_does_not_fit_the_other_side_gives_way_to_an_older_one),
		cmocka_unit_test(a_client_whose_run_was_taken_over_by_another_is_told_not_to_come_back),
		cmocka_unit_test(the_newer_connection_wins),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
