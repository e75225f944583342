/* SPDX-License-Identifier: Apache-2.0
 *
 * The client's end of a session (client/session/client_session.h) against servers that break
 * the protocol or do nothing: an error with the reason, which the server is
 * told, too, and never a hang.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "client/session/client_session.h"
#include "client/session/client_session_impl.h"
#include "client/engine/engine.h"
#include "client/models/models.h"
#include "tests/unit/raw_peer.h"
#include "tests/unit/picture_batch.h"

/* A server of one connection, played by a script on a thread. */
struct fake {
	pthread_t thread;
	int listener;
	char address[32];
	void (*play)(struct raw_peer *p);
	uint32_t told; /* code of the client's ERROR */
};

static void *fake_main(void *arg)
{
	struct fake *f = arg;
	struct raw_peer p = {.body_cap = 1 << 20};
	Gpsplit__Control *m;
	p.fd = accept(f->listener, NULL, NULL);
	p.body = gp_calloc(p.body_cap, 1);
	put_preface(&p);
	f->play(&p);
	while ((m = get_control(&p))) { /* until the client has gone */
		if (m->body_case == GPSPLIT__CONTROL__BODY_ERROR)
			f->told = m->error->code;
		gpsplit__control__free_unpacked(m, NULL);
	}
	close(p.fd);
	gp_free(p.body);
	return NULL;
}

static void fake_start(struct fake *f, void (*play)(struct raw_peer *p))
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	socklen_t len = sizeof a;
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	f->play = play;
	f->told = GP_OK;
	f->listener = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(f->listener, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(listen(f->listener, 1), 0);
	assert_int_equal(getsockname(f->listener, (struct sockaddr *)&a, &len), 0);
	snprintf(f->address, sizeof f->address, "127.0.0.1:%u", ntohs(a.sin_port));
	assert_int_equal(pthread_create(&f->thread, NULL, fake_main, f), 0);
}

static uint32_t window = 8; /* of the server */

static void put_welcome(struct raw_peer *p, uint32_t step_timeout_ms)
{
	Gpsplit__Limits limits = GPSPLIT__LIMITS__INIT;
	Gpsplit__Welcome welcome = GPSPLIT__WELCOME__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	limits.window = window;
	limits.segment_bytes = GP_SEGMENT_BYTES_DEFAULT;
	limits.step_timeout_ms = step_timeout_ms;
	welcome.version = GP_PROTO_VERSION;
	welcome.session = 1;
	welcome.limits = &limits;
	m.body_case = GPSPLIT__CONTROL__BODY_WELCOME;
	m.welcome = &welcome;
	put_control(p, &m);
}

static struct gp_optim optim;      /* of the engine */
static bool calibrates, recompute; /* the engine asks for it */
static uint32_t coded;             /* a bit for what it asks to pass through bf16 */
static double connect_for_s = 20;  /* and how long its server may take to answer at all */
static double patience_s;          /* with it, 0: as the server says */
static bool clips, tells;          /* the fake server's READY says so */

static bool chooses;   /* the engine leaves the precision to the server */
static struct choice { /* which READY answers with, where there are trials */
	size_t trials;
	uint32_t precision, tried;
	double pass_s;
} choice;

static void put_ready(struct raw_peer *p)
{
	Gpsplit__Ready ready = GPSPLIT__READY__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	Gpsplit__Choice made = GPSPLIT__CHOICE__INIT;
	Gpsplit__Trial trial = GPSPLIT__TRIAL__INIT, *trials[] = {&trial, &trial, &trial, &trial};
	made.precision = choice.precision;
	made.n_trial = choice.trials;
	made.trial = trials;
	trial.precision = choice.tried;
	trial.pass_s = choice.pass_s;
	ready.choice = choice.trials > 0 ? &made : NULL;
	ready.clips = clips;
	ready.intervals = tells;
	m.body_case = GPSPLIT__CONTROL__BODY_READY;
	m.ready = &ready;
	put_control(p, &m);
}

static void put_committed(struct raw_peer *p)
{
	Gpsplit__Committed committed = GPSPLIT__COMMITTED__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	m.body_case = GPSPLIT__CONTROL__BODY_COMMITTED;
	m.committed = &committed;
	put_control(p, &m);
}

/* Opens an engine on the fake server, runs one step if that worked, and expects an end with this status and text. */
static void expect_end_in(enum gp_precision precision, void (*play)(struct raw_peer *p), bool weights,
			  enum gp_status status, const char *part)
{
	struct fake f;
	struct gp_err err = {0};
	struct gp_graph *graph;
	struct gp_weights *init = NULL;
	struct gp_engine *engine = NULL;
	struct gp_model_options model = {.classes = 10};
	struct gp_step_result result;
	float *images;
	int32_t labels[4] = {0};
	fake_start(&f, play);
	assert_int_equal(gp_model_build("cnn", &model, &graph, &err), GP_OK);
	if (weights)
		assert_int_equal(gp_weights_new(graph, &init, &err), GP_OK);
	struct gp_engine_spec spec = {.graph = graph,
				      .device = "cpu",
				      .threads = 1,
				      .session.chunk_samples = 4 / 2,
				      .session.chunks = 2,
				      .session.window = 2,
				      .session.precision = precision,
				      .session.choose_precision = chooses,
				      .init = init,
				      .session.optim = optim,
				      .session.recompute = recompute,
				      .session.calibrates = calibrates,
				      .server = f.address,
				      .cut = {.head = 1, .tail = graph->blocks - 1},
				      .connect_timeout_s = connect_for_s,
				      .idle_timeout_s = 60,
				      .patience_s = patience_s};
	for (int i = 0; i < 4; i++)
		assert_int_equal(gp_codec_spec_parse("raw", &spec.session.codec[i], &err), GP_OK);
	for (int i = 0; i < GP_STRUCTS; i++)
		if (coded >> i & 1)
			assert_int_equal(gp_codec_spec_parse("bf16", &spec.session.coded[i], &err), GP_OK);
	images = gp_calloc(4 * gp_shape_elements(gp_graph_input_shape(graph)), sizeof *images);
	enum gp_status got = gp_engine_new_split(&spec, &engine, &err);
	const struct gp_batch batch = picture_batch(images, gp_graph_input_shape(graph), labels, NULL, 4);
	if (got == GP_OK)
		got = engine->ops->step(engine, &batch, NULL, 0.1f, &result, &err);
	if (got != status || !strstr(err.text, part))
		fail_msg("got %s '%s', expected %s with '%s'", gp_status_name(got), err.text, gp_status_name(status),
			 part);
	if (engine)
		engine->ops->free(engine);
	pthread_join(f.thread, NULL);
	close(f.listener);
	assert_int_equal(f.told, status);
	gp_weights_free(init);
	gp_graph_free(graph);
	gp_free(images);
}

static void expect_end(void (*play)(struct raw_peer *p), bool weights, enum gp_status status, const char *part)
{
	expect_end_in(GP_PRECISION_FP32, play, weights, status, part);
}

static void play_silence(struct raw_peer *p)
{
	(void)p;
}

static uint32_t step_timeout_ms = 20000;

static void play_welcome_only(struct raw_peer *p)
{
	put_welcome(p, step_timeout_ms);
}

/* Nobody asked for sums of squares. */
static void play_squares(struct raw_peer *p)
{
	Gpsplit__GradSquares squares = GPSPLIT__GRAD_SQUARES__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	put_welcome(p, 20000);
	put_ready(p);
	m.body_case = GPSPLIT__CONTROL__BODY_GRAD_SQUARES;
	m.grad_squares = &squares;
	put_control(p, &m);
}

/* A body's forward pass, and one of a head. */
static void play_intervals(struct raw_peer *p)
{
	int64_t number[] = {5, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1};
	Gpsplit__Intervals intervals = GPSPLIT__INTERVALS__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	put_welcome(p, 20000);
	put_ready(p);
	intervals.number = number;
	intervals.n_number = 12;
	m.body_case = GPSPLIT__CONTROL__BODY_INTERVALS;
	m.intervals = &intervals;
	put_control(p, &m);
}

/* Whether the client has said something; frames and heartbeats are passed over. */
static bool is_told(struct raw_peer *p)
{
	uint8_t bytes[GP_RECORD_HEADER_BYTES];
	struct gp_record_head h;
	struct gp_err err;
	while (recv(p->fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT) == sizeof bytes) {
		assert_int_equal(gp_record_head_read(bytes, &h, &err), GP_OK);
		if (h.kind == GP_RECORD_CONTROL)
			return true;
		assert_true(h.len <= p->body_cap && get(p, bytes, sizeof bytes) && get(p, p->body, h.len));
	}
	return false;
}

/* Lists of no intervals, again and again for a minute, and then a message that is an error. */
static void play_intervals_only(struct raw_peer *p)
{
	Gpsplit__Intervals intervals = GPSPLIT__INTERVALS__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT, *open = NULL;
	put_welcome(p, step_timeout_ms);
	while (!open || open->body_case != GPSPLIT__CONTROL__BODY_OPEN) {
		if (open)
			gpsplit__control__free_unpacked(open, NULL);
		open = get_control(p);
		assert_non_null(open);
	}
	gpsplit__control__free_unpacked(open, NULL);
	put_ready(p);
	m.body_case = GPSPLIT__CONTROL__BODY_INTERVALS;
	m.intervals = &intervals;
	for (int i = 0; i < 3000 && !is_told(p); i++) {
		put_control(p, &m);
		usleep(20000);
	}
	if (!is_told(p))
		put_committed(p);
}

/* Both in one packet, so that the client reads READY before it has run again. */
static void play_ready_only(struct raw_peer *p)
{
	int on = 1, off = 0;
	setsockopt(p->fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on);
	put_welcome(p, step_timeout_ms);
	put_ready(p);
	setsockopt(p->fd, IPPROTO_TCP, TCP_CORK, &off, sizeof off);
}

static void play_committed(struct raw_peer *p)
{
	put_welcome(p, 20000);
	put_ready(p);
	put_committed(p);
}

static void play_ready_before_welcome(struct raw_peer *p)
{
	put_ready(p);
}

static void a_server_that_only_answers_heartbeats_is_given_up(void **state)
{
	(void)state;
	connect_for_s = 1;
	step_timeout_ms = 1500;
	expect_end(play_silence, false, GP_TIMEOUT, "no progress for 1 s");
	expect_end(play_welcome_only, false, GP_TIMEOUT, "no progress for 1.5 s");
	expect_end(play_ready_only, false, GP_TIMEOUT, "no progress for 1.5 s");
	tells = true;
	expect_end(play_intervals_only, false, GP_TIMEOUT, "no progress for 1.5 s");
	tells = false;
	connect_for_s = 20;
	step_timeout_ms = 20000;
}

/* It says that it may do nothing for 20 s. */
static void a_server_is_waited_for_no_longer_than_the_engine_was_told(void **state)
{
	(void)state;
	patience_s = 1.5;
	expect_end(play_welcome_only, false, GP_TIMEOUT, "no progress for 1.5 s");
	expect_end(play_ready_only, false, GP_TIMEOUT, "no progress for 1.5 s");
	patience_s = 0;
}

/* A window of 0 would start no chunk, and a timeout of weeks would wait for a dead server. */
static void limits_that_no_session_can_keep_are_refused(void **state)
{
	(void)state;
	window = 0;
	expect_end(play_welcome_only, false, GP_PROTO, "a window of 0 chunks");
	window = 8;
	step_timeout_ms = UINT32_MAX;
	expect_end(play_welcome_only, false, GP_PROTO, "a step timeout of 4294967295 ms");
	step_timeout_ms = 20000;
}

static void answers_to_no_question_are_refused(void **state)
{
	(void)state;
	expect_end(play_committed, false, GP_PROTO, "not asked for");
	expect_end(play_ready_before_welcome, false, GP_PROTO, "not expected");
	expect_end(play_squares, false, GP_PROTO, "grad_squares message is not expected");
	optim.clip_norm = 1.0;
	clips = true;
	expect_end(play_squares, false, GP_PROTO, "grad_squares of step 0 with 0 sums is not expected");
	optim.clip_norm = 0.0;
	clips = false;
	expect_end(play_intervals, false, GP_PROTO, "intervals message was not asked for");
	tells = true;
	expect_end(play_intervals, false, GP_PROTO,
		   "intervals: stage 0 of tensor 0, 1 ns after 1, is none of a server");
	tells = false;
}

/* None at all is the answer of an older server, which computes in fp32. */
static void choices_that_cannot_be_are_refused(void **state)
{
	(void)state;
	static const struct choice bad[] = {{1, GP_PRECISIONS, 0, 1},    {1, UINT32_MAX, 0, 1}, {4, 0, 0, 1},
					    {1, 0, GP_PRECISIONS, 1},    {1, 0, UINT32_MAX, 1}, {1, 0, 0, -1},
					    {1, 0, 0, (double)INFINITY}, {1, 0, 0, (double)NAN}};
	chooses = true;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		choice = bad[i];
		expect_end(play_ready_only, false, GP_PROTO, "which cannot be");
	}
	choice = (struct choice){0};
	patience_s = 1.5;
	expect_end(play_ready_only, false, GP_TIMEOUT, "no progress for 1.5 s");
	choice = (struct choice){1, GP_PRECISION_BF16, GP_PRECISION_FP32, 0.5};
	expect_end(play_ready_only, false, GP_TIMEOUT, "no progress for 1.5 s");
	patience_s = 0;
	choice = (struct choice){0};
	chooses = false;
}

/* The frames with the weights would be freed while the channel still has them. */
static void ready_before_the_weights_have_left_is_refused(void **state)
{
	(void)state;
	expect_end(play_ready_only, true, GP_PROTO, "before it has the weights");
}

/* The server may have read the last byte, and answered, before the client's loop learns that the write of it has ended. */
static void ready_may_come_before_the_last_write_is_known_to_have_ended(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_graph *graph;
	struct gp_model_options model = {.classes = 10};
	Gpsplit__Ready ready = GPSPLIT__READY__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	uint8_t bytes[64];
	assert_int_equal(gp_model_build("cnn", &model, &graph, &err), GP_OK);
	const struct gp_session_spec spec = {.eval_only = true};
	struct gp_weights *weights;
	assert_int_equal(gp_weights_new(graph, &weights, &err), GP_OK);
	const struct gp_client_open open = {.spec = &spec, .body = graph, .weights = weights, .server = "a server"};
	struct gp_client_session s = {.open = &open, .body = graph, .state = GP_LINK_LOAD};
	s.param_up = gp_calloc((size_t)graph->params, sizeof *s.param_up);
	assert_non_null(s.param_up);
	gp_control_arena_init(&s.arena, 1 << 16);
	for (int i = 0; i < graph->params; i++) {
		s.param_up[i].head = (struct gp_frame_head){.type = GP_FRAME_PARAM_UP, .payload_len = 8};
		s.param_up[i].at = GP_FRAME_HEADER_BYTES + 8;
	}
	m.body_case = GPSPLIT__CONTROL__BODY_READY;
	m.ready = &ready;
	const struct gp_span span = {bytes, gpsplit__control__pack(&m, bytes)};
	for (int i = 0; i < graph->params; i++) {
		if (i == graph->params - 1 && gp_client_session_channel_cbs.control(&s, span, &err) != GP_OK)
			fail_msg("%s", err.text);
		assert_false(s.ready); /* the last frame is still the channel's */
		gp_client_session_channel_cbs.sent(&s, &s.param_up[i]);
	}
	assert_true(s.ready && s.state == GP_LINK_RUN);
	gp_control_arena_deinit(&s.arena);
	gp_free(s.param_up);
	gp_weights_free(weights);
	gp_graph_free(graph);
}

static void a_server_that_knows_no_clipping_is_not_trained_with(void **state)
{
	(void)state;
	optim.clip_value = 1.0;
	expect_end(play_ready_only, false, GP_UNSUPPORTED, "too old to clip gradients");
	optim.clip_value = 0.0;
}

static void a_server_that_takes_no_statistics_anew_is_not_asked_for_it(void **state)
{
	(void)state;
	calibrates = true;
	expect_end(play_ready_only, false, GP_UNSUPPORTED, "too old to take statistics anew (--recalibrate)");
	calibrates = false;
}

static void a_server_that_cannot_recompute_is_not_trained_with(void **state)
{
	(void)state;
	recompute = true;
	expect_end(play_ready_only, false, GP_UNSUPPORTED, "too old to compute blocks a second time (--recompute)");
	recompute = false;
}

/* Each by itself: READY has a bit for each. */
static void a_server_that_cannot_code_a_part_of_a_training_is_not_trained_with(void **state)
{
	(void)state;
	static const char *const words[GP_STRUCTS] = {
		"too old for --compress grad-maps=bf16", "too old for --compress weights=bf16",
		"too old for --compress weight-grads=bf16", "too old for --compress state=bf16"};
	for (int i = 0; i < GP_STRUCTS; i++) {
		coded = 1u << i;
		expect_end(play_ready_only, false, GP_UNSUPPORTED, words[i]);
	}
	coded = 0;
}

/* An older server ignores what it does not know, and would compute in fp32. */
static void a_server_that_does_not_offer_bf16_is_not_asked_for_it(void **state)
{
	(void)state;
	expect_end_in(GP_PRECISION_BF16, play_welcome_only, false, GP_PEER, "cannot compute in bf16");
}

/* Behind a change of ranks, what is fetched has room for small ones; the parameters of an earlier step are larger, and a server
 * may send them with its READY. */
static void a_session_that_goes_back_takes_no_parameters(void **state)
{
	(void)state;
	struct gp_weights weights = {0};
	struct gp_client_session s = {.opened = true, .steps = 3, .committed = 3, .fetch_into = &weights};
	gp_client_session_rewind(&s, 3, false); /* it is there already */
	assert_true(s.fetch_into == &weights && !s.rewound);
	gp_client_session_rewind(&s, 1, false);
	assert_true(s.rewound && s.steps == 1);
	assert_null(s.fetch_into);
}

static void parameters_are_raw_and_of_the_step_that_is_committed(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_graph *graph;
	struct gp_weights *weights;
	struct gp_frame *f;
	struct gp_model_options model = {.classes = 10};
	assert_int_equal(gp_model_build("cnn", &model, &graph, &err), GP_OK);
	assert_int_equal(gp_weights_new(graph, &weights, &err), GP_OK);
	const uint64_t bytes = graph->param[0].count * sizeof(float);
	static const struct {
		uint64_t step, codec;
		bool taken;
	} c[] = {{2, 0, false}, {4, 0, false}, {3, 4, false}, {3, 0, true}};
	for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
		struct gp_client_session s = {.body = graph,
					      .state = GP_LINK_RUN,
					      .id = 7,
					      .steps = 3,
					      .committed = 3,
					      .fetch_into = weights};
		const struct gp_frame_head head = {.type = GP_FRAME_PARAM_DOWN,
						   .codec = (uint16_t)c[i].codec,
						   .session = 7,
						   .step = c[i].step,
						   .payload_len = bytes};
		const enum gp_status status = gp_client_session_channel_cbs.frame_begin(&s, &head, &f, &err);
		assert_int_equal(status, c[i].taken ? GP_OK : GP_PROTO);
		assert_true(c[i].taken || strstr(err.text, "not raw of step 3"));
	}
	gp_weights_free(weights);
	gp_graph_free(graph);
}

/* A server may say of every link that it has brought something. */
static void moves_without_a_gain_end_no_standstill_for_ever(void **state)
{
	(void)state;
	static struct gp_client_session s = {.keeps_place = true};
	for (int gain = 0; gain < 2; gain++) {
		int moves = 0;
		for (; moves < 2 * GP_CLIENT_MOVES_MOST; moves++) {
			s.standstill = (struct gp_client_standstill){.begin_ns = 1, .links = 1};
			gp_client_session_move(&s);
			if (s.standstill.links == 1)
				break;
		}
		assert_int_equal(moves, GP_CLIENT_MOVES_MOST);
		gp_client_session_gain(&s);
		assert_int_equal(s.standstill.links, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_session_that_goes_back_takes_no_parameters),
		cmocka_unit_test(parameters_are_raw_and_of_the_step_that_is_committed),
		cmocka_unit_test(a_server_that_only_answers_heartbeats_is_given_up),
		cmocka_unit_test(a_server_is_waited_for_no_longer_than_the_engine_was_told),
		cmocka_unit_test(limits_that_no_session_can_keep_are_refused),
		cmocka_unit_test(answers_to_no_question_are_refused),
		cmocka_unit_test(choices_that_cannot_be_are_refused),
		cmocka_unit_test(ready_before_the_weights_have_left_is_refused),
		cmocka_unit_test(ready_may_come_before_the_last_write_is_known_to_have_ended),
		cmocka_unit_test(a_server_that_knows_no_clipping_is_not_trained_with),
		cmocka_unit_test(a_server_that_takes_no_statistics_anew_is_not_asked_for_it),
		cmocka_unit_test(a_server_that_cannot_recompute_is_not_trained_with),
		cmocka_unit_test(a_server_that_cannot_code_a_part_of_a_training_is_not_trained_with),
		cmocka_unit_test(a_server_that_does_not_offer_bf16_is_not_asked_for_it),
		cmocka_unit_test(moves_without_a_gain_end_no_standstill_for_ever),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
