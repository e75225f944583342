/* SPDX-License-Identifier: Apache-2.0
 *
 * A real server and clients that ask for more time than they may have: refused
 * at OPEN by estimate (--task-time), ended where the estimate was wrong, and of
 * no cost once they have gone. What is estimated: test_graph_work.c, test_codec_work.c.
 */
#include "tests/unit/server_rig.h"

#include <stdatomic.h>

#include "common/codec/codec.h"
#include "common/graph/graph_work.h"
#include "common/graph/ops/op_pool.h"

#define LIMIT_S    1.0
#define HOURS_SIDE 32

/* A device to which every estimate is nothing, unless a test says otherwise. */
static const struct gp_speed endless = {.macs_per_s = 1e30, .elements_per_s = 1e30};

static struct fixture *prepare_with(const struct gp_server_settings *set, const struct gp_speed *speed)
{
	struct fixture *f = gp_calloc(1, sizeof *f);
	f->server = server_thread_prepare(set);
	f->server->server.devices.device[0].dev->speed = *speed;
	f->port = f->server->port;
	f->body = make_body();
	return f;
}

static struct fixture *prepare(double task_time_s, const struct gp_speed *speed)
{
	struct gp_server_settings set = server_thread_settings();
	set.task_time_s = task_time_s;
	return prepare_with(&set, speed);
}

static void finish(struct fixture *f)
{
	void *state = f;
	teardown(&state);
}

static struct gp_graph *relu_graph(int64_t side, int64_t channels)
{
	struct gp_err err;
	struct gp_graph *g = gp_graph_new("g", &(struct gp_shape){.ndim = 3, .dim = {side, side, channels}}, &err);
	assert_true(g && gp_graph_begin_block(g, "b", &err) == GP_OK);
	assert_true(gp_graph_unary(g, GP_OP_RELU, "r", 0, &err) > 0 && gp_graph_finish(g, &err) == GP_OK);
	return g;
}

/* What was sent is read, then the end. */
static void leave(struct raw_peer *c)
{
	uint8_t byte;
	shutdown(c->fd, SHUT_WR);
	while (get(c, &byte, 1))
		;
	client_close(c);
}

static void expect_refusal(const struct fixture *f, const struct gp_graph *g, void (*spoil)(Gpsplit__Open *),
			   const char *part)
{
	struct raw_peer c;
	until_welcome(&c, f);
	put_open(&c, g, spoil);
	expect_error(&c, part);
	client_close(&c);
}

/* --- OPEN -------------------------------------------------------------------------------------------------------- */

/* Two samples a chunk, of which `fit` can be computed in the limit. */
static void refuse_with(double fit, const char *part)
{
	struct gp_work work[2];
	struct gp_graph *body = make_body();
	gp_graph_work(body, &work[0], &work[1]);
	const struct gp_speed speed = {.macs_per_s = fit * (double)work[1].macs / LIMIT_S, .elements_per_s = 1e30};
	struct fixture *f = prepare(LIMIT_S, &speed);
	server_thread_run(f->server);
	expect_refusal(f, body, NULL, part);
	finish(f);
	gp_graph_free(body);
}

static void a_chunk_that_takes_too_long_is_refused_with_the_chunks_that_fit(void **state)
{
	(void)state;
	refuse_with(1.5, "backward pass over a chunk of 2 samples would take 1.33 s here, the server allows 1 s "
			 "(--task-time); --chunks 4 would fit");
	refuse_with(0.5, "one sample alone does not fit");
}

static void highest_rank(Gpsplit__Open *o)
{
	o->codec_act_down = (char *)"poweriter:rank=256,iters=64+uniform:bits=8";
}

static void highest_level(Gpsplit__Open *o)
{
	o->codec_grad_down = (char *)"zstd:level=19";
}

static void a_codec_that_takes_too_long_is_refused_by_its_direction(void **state)
{
	(void)state;
	struct fixture *f = prepare(LIMIT_S, &endless);
	struct gp_graph *g = relu_graph(32, 256);
	struct raw_peer c;
	server_thread_run(f->server);
	expect_refusal(f, g, highest_rank, "encode act_down of one chunk by poweriter:rank=256,iters=64");
	expect_refusal(f, g, highest_level, "encode grad_down of one chunk by raw+zstd:level=19");
	expect_refusal(f, g, highest_level, "allows 1 s (--task-time)");
	until_welcome(&c, f);
	put_open(&c, g, NULL);
	expect_control(&c, GPSPLIT__CONTROL__BODY_READY);
	client_close(&c);
	gp_graph_free(g);
	finish(f);
}

/* --- a wrong estimate -------------------------------------------------------------------------------------------- */

/* Hours of windows, for a body that is estimated at nothing: a pass is ended between two of its nodes. */
static struct gp_graph *hours_graph(void)
{
	enum { NODES = 4000 };
	struct gp_err err;
	struct gp_graph *g =
		gp_graph_new("g", &(struct gp_shape){.ndim = 3, .dim = {HOURS_SIDE, HOURS_SIDE, 16}}, &err);
	assert_true(g && gp_graph_begin_block(g, "b", &err) == GP_OK);
	for (int i = 0, at = 0; i < NODES; i++) {
		char name[16];
		snprintf(name, sizeof name, "p%d", i);
		at = gp_graph_pool(g, GP_OP_AVG_POOL, name, at, 31, 1, 15, &err);
		assert_true(at > 0);
	}
	assert_int_equal(gp_graph_finish(g, &err), GP_OK);
	return g;
}

static void begin_hours(struct raw_peer *c, const struct fixture *f, const struct gp_graph *g)
{
	until_welcome(c, f);
	put_open(c, g, NULL);
	expect_control(c, GPSPLIT__CONTROL__BODY_READY);
	put_frame(c, GP_FRAME_ACT_UP, 0, 0, 2 * HOURS_SIDE * HOURS_SIDE * 16 * sizeof(float), true);
}

/* The device computes for others. */
static void expect_answers(const struct fixture *f)
{
	struct raw_peer c;
	until_ready(&c, f);
	put_step(&c, f);
	get_answers(&c, 2, 0);
	client_close(&c);
}

static void a_pass_far_over_its_estimate_ends_its_session_alone(void **state)
{
	struct raw_peer c;
	(void)state;
	struct fixture *f = prepare(5, &endless);
	struct gp_graph *g = hours_graph();
	server_thread_run(f->server);
	begin_hours(&c, f, g);
	expect_error(&c, "a pass over a chunk has run for");
	client_close(&c);
	expect_answers(f);
	gp_graph_free(g);
	finish(f);
}

static atomic_int forwards;
static enum gp_status (*real_forward)(struct gp_plan *, int, enum gp_mode, uint64_t, struct gp_err *);

static enum gp_status counted_forward(struct gp_plan *p, int slot, enum gp_mode mode, uint64_t draw, struct gp_err *err)
{
	atomic_fetch_add(&forwards, 1);
	return real_forward(p, slot, mode, draw, err);
}

/* There is no link to hang a deadline on, and the only place for a session is taken until the pass is ended. */
static void a_parked_session_is_ended_for_its_pass_too(void **state)
{
	static struct gp_device_ops ops;
	struct gp_server_settings set = server_thread_settings();
	struct raw_peer c;
	(void)state;
	set.task_time_s = 5;
	set.resume_window_s = 100000;
	set.max_sessions = 1;
	struct fixture *f = prepare_with(&set, &endless);
	struct gp_device *dev = f->server->server.devices.device[0].dev;
	struct gp_graph *g = hours_graph();
	ops = *dev->ops;
	real_forward = ops.queue_forward;
	ops.queue_forward = counted_forward;
	atomic_store(&forwards, 0);
	dev->ops = &ops;
	server_thread_run(f->server);
	begin_hours(&c, f, g);
	while (atomic_load(&forwards) == 0)
		usleep(1000);
	leave(&c);
	expect_answers(f);
	gp_graph_free(g);
	finish(f);
}

/* While it is set, nothing that the server encodes gets done. */
static atomic_bool gate_shut;

enum gp_status __real_gp_codec_encode_pass(struct gp_codec *c, const struct gp_codec_pass *pass, const float *x,
					   uint8_t *out, size_t cap, size_t *len, struct gp_err *err);
enum gp_status __wrap_gp_codec_encode_pass(struct gp_codec *c, const struct gp_codec_pass *pass, const float *x,
					   uint8_t *out, size_t cap, size_t *len, struct gp_err *err);

enum gp_status __wrap_gp_codec_encode_pass(struct gp_codec *c, const struct gp_codec_pass *pass, const float *x,
					   uint8_t *out, size_t cap, size_t *len, struct gp_err *err)
{
	while (atomic_load(&gate_shut))
		usleep(1000);
	return __real_gp_codec_encode_pass(c, pass, x, out, cap, len, err);
}

static void a_codec_far_over_its_estimate_ends_its_session_alone(void **state)
{
	struct raw_peer c;
	(void)state;
	struct fixture *f = prepare(5, &endless);
	server_thread_run(f->server);
	until_ready(&c, f);
	atomic_store(&gate_shut, true);
	put_frame(&c, GP_FRAME_ACT_UP, 0, 0,
		  (uint32_t)(2 * gp_shape_elements(gp_graph_input_shape(f->body)) * sizeof(float)), true);
	expect_error(&c, "the codec of act_down has run for");
	client_close(&c);
	atomic_store(&gate_shut, false);
	expect_answers(f);
	finish(f);
}

/* --- a worker that is held --------------------------------------------------------------------------------------- */

/* A task that lies on one thread of a worker until it is let go. */
struct gate {
	struct gp_lane lane;
	struct gp_task task;
	uv_sem_t open;
	atomic_bool gone;
};

static void gate_run(struct gp_task *t)
{
	struct gate *g = t->arg;
	uv_sem_wait(&g->open);
	t->status = GP_OK;
}

static void gate_done(struct gp_task *t)
{
	struct gate *g = t->arg;
	gp_lane_deinit(&g->lane);
	uv_sem_destroy(&g->open);
	atomic_store(&g->gone, true);
}

/* The server may be stopped then. */
static void gate_open(struct gate *g)
{
	uv_sem_post(&g->open);
	while (!atomic_load(&g->gone))
		usleep(1000);
}

/* Before the server's loop runs. */
static void gate_close(struct gate *g, struct gp_worker *w)
{
	memset(g, 0, sizeof *g);
	assert_int_equal(uv_sem_init(&g->open, 0), 0);
	gp_lane_init(&g->lane, w, NULL);
	g->task = (struct gp_task){.run = gate_run, .done = gate_done, .arg = g};
	gp_worker_submit(&g->lane, &g->task, 0);
}

static atomic_int estimates;
static enum gp_status (*real_estimate)(struct gp_device *, const struct gp_plan_spec *, struct gp_plan_memory *,
				       struct gp_err *);

static enum gp_status counted_estimate(struct gp_device *dev, const struct gp_plan_spec *spec,
				       struct gp_plan_memory *out, struct gp_err *err)
{
	atomic_fetch_add(&estimates, 1);
	return real_estimate(dev, spec, out, err);
}

/* While nothing can be estimated, clients open sessions and leave: as many as there may be, and not one more. Then those
 * that have gone are not estimated at all. */
static void clients_that_open_and_leave_do_not_pile_up_bodies(void **state)
{
	enum { ATTEMPTS = 40, SESSIONS = 4, BUILD_THREADS = 2 };
	static struct gp_device_ops ops;
	struct gate gate[BUILD_THREADS];
	(void)state;
	struct fixture *f = prepare(LIMIT_S, &endless);
	struct gp_device *dev = f->server->server.devices.device[0].dev;
	int welcomed = 0;
	ops = *dev->ops;
	real_estimate = ops.plan_estimate;
	ops.plan_estimate = counted_estimate;
	atomic_store(&estimates, 0);
	dev->ops = &ops;
	for (int i = 0; i < BUILD_THREADS; i++)
		gate_close(&gate[i], f->server->server.build);
	server_thread_run(f->server);
	for (int i = 0; i < ATTEMPTS; i++) {
		struct raw_peer c;
		if (!try_welcome(&c, f))
			continue;
		welcomed++;
		put_open(&c, f->body, NULL);
		leave(&c);
	}
	assert_int_equal(welcomed, SESSIONS);
	assert_int_equal(atomic_load(&estimates), 0);
	for (int i = 0; i < BUILD_THREADS; i++)
		gate_open(&gate[i]);
	still_serves(f);
	assert_int_equal(atomic_load(&estimates), 1); /* of the last client alone */
	finish(f);
}

static atomic_int given, drawn;
static enum gp_status (*real_new)(struct gp_device *, const struct gp_plan_spec *, struct gp_plan **, struct gp_err *);

static enum gp_status counted_new(struct gp_device *dev, const struct gp_plan_spec *spec, struct gp_plan **out,
				  struct gp_err *err)
{
	atomic_fetch_add(spec->params_given ? &given : &drawn, 1);
	return real_new(dev, spec, out, err);
}

static uint32_t weights;

static void announce_weights(Gpsplit__Open *o)
{
	o->weights = weights;
}

static void nothing_is_drawn_where_the_client_brings_its_weights(void **state)
{
	static struct gp_device_ops ops;
	struct raw_peer c;
	(void)state;
	struct fixture *f = prepare(LIMIT_S, &endless);
	struct gp_device *dev = f->server->server.devices.device[0].dev;
	ops = *dev->ops;
	real_new = ops.plan_new;
	ops.plan_new = counted_new;
	dev->ops = &ops;
	weights = (uint32_t)f->body->params;
	server_thread_run(f->server);
	until_welcome(&c, f);
	put_open(&c, f->body, announce_weights);
	while (atomic_load(&given) + atomic_load(&drawn) == 0)
		usleep(1000);
	assert_int_equal(atomic_load(&given), 1);
	client_close(&c);
	until_ready(&c, f);
	assert_int_equal(atomic_load(&drawn), 1);
	client_close(&c);
	finish(f);
}

static void name_no_value(Gpsplit__Open *o)
{
	o->graph->node[o->graph->n_node - 1]->in[0] = 1000000;
}

/* But heartbeats. */
static void expect_nothing_has_come(struct raw_peer *c)
{
	uint8_t bytes[GP_RECORD_HEADER_BYTES];
	struct gp_record_head h;
	struct gp_err err;
	while (recv(c->fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT) > 0) {
		assert_true(get(c, bytes, sizeof bytes));
		assert_int_equal(gp_record_head_read(bytes, &h, &err), GP_OK);
		assert_true(h.kind == GP_RECORD_PING || h.kind == GP_RECORD_PONG);
		assert_true(h.len <= sizeof bytes && get(c, bytes, h.len));
	}
}

/* While the threads that make plans do not come back, an OPEN is not looked at, however wrong it is; and the loop greets
 * others. */
static void an_open_is_read_on_the_threads_that_make_plans(void **state)
{
	enum { BUILD_THREADS = 2 };
	struct gate gate[BUILD_THREADS];
	struct raw_peer wrong, other;
	(void)state;
	struct fixture *f = prepare(LIMIT_S, &endless);
	for (int i = 0; i < BUILD_THREADS; i++)
		gate_close(&gate[i], f->server->server.build);
	server_thread_run(f->server);
	until_welcome(&wrong, f);
	put_open(&wrong, f->body, name_no_value);
	for (int i = 0; i < 3; i++) {
		until_welcome(&other, f);
		client_close(&other);
	}
	expect_nothing_has_come(&wrong);
	for (int i = 0; i < BUILD_THREADS; i++)
		gate_open(&gate[i]);
	expect_error(&wrong, "it must be one of an earlier node");
	client_close(&wrong);
	finish(f);
}

static void slow_down(Gpsplit__Open *o)
{
	o->codec_act_down = (char *)"zstd:level=19";
}

static void get_act_down(struct raw_peer *c)
{
	get_answers(c, 1, 0);
}

/* The thread of slow codecs does not come back: only a client that has a slow one notices. */
static void slow_codecs_hold_up_only_each_other(void **state)
{
	enum { SIDE = 32, CHANNELS = 16 };
	const uint32_t bytes = 2 * SIDE * SIDE * CHANNELS * sizeof(float);
	struct gate gate;
	struct raw_peer slow, fast;
	(void)state;
	struct fixture *f = prepare(60, &endless);
	struct gp_graph *g = relu_graph(SIDE, CHANNELS);
	gate_close(&gate, f->server->server.slow_codec);
	server_thread_run(f->server);
	until_welcome(&slow, f);
	put_open(&slow, g, slow_down);
	expect_control(&slow, GPSPLIT__CONTROL__BODY_READY);
	until_welcome(&fast, f);
	put_open(&fast, g, NULL);
	expect_control(&fast, GPSPLIT__CONTROL__BODY_READY);
	for (uint32_t chunk = 0; chunk < 2; chunk++)
		put_frame(&slow, GP_FRAME_ACT_UP, 0, chunk, bytes, true);
	for (uint32_t chunk = 0; chunk < 2; chunk++) {
		put_frame(&fast, GP_FRAME_ACT_UP, 0, chunk, bytes, true);
		get_act_down(&fast);
	}
	expect_nothing_has_come(&slow);
	gate_open(&gate);
	get_act_down(&slow);
	get_act_down(&slow);
	client_close(&slow);
	client_close(&fast);
	gp_graph_free(g);
	finish(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_chunk_that_takes_too_long_is_refused_with_the_chunks_that_fit),
		cmocka_unit_test(a_codec_that_takes_too_long_is_refused_by_its_direction),
		cmocka_unit_test(a_pass_far_over_its_estimate_ends_its_session_alone),
		cmocka_unit_test(a_parked_session_is_ended_for_its_pass_too),
		cmocka_unit_test(a_codec_far_over_its_estimate_ends_its_session_alone),
		cmocka_unit_test(clients_that_open_and_leave_do_not_pile_up_bodies),
		cmocka_unit_test(nothing_is_drawn_where_the_client_brings_its_weights),
		cmocka_unit_test(an_open_is_read_on_the_threads_that_make_plans),
		cmocka_unit_test(slow_codecs_hold_up_only_each_other),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
