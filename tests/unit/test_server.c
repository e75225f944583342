/* SPDX-License-Identifier: Apache-2.0
 *
 * A real server (server/server.c) on loopback against clients that break the
 * protocol in one place each: the session ends with a reason, the daemon and
 * the next client do not notice.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <arpa/inet.h>
#include <math.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/control.h"
#include "common/graph_msg.h"
#include "common/models.h"
#include "kernels/cpu/simd.h"
#include "tests/unit/raw_peer.h"
#include "tests/unit/server_thread.h"

struct fixture {
	struct server_thread *server;
	uint16_t port;
	struct gp_graph *body;
};

static struct gp_graph *make_body(void)
{
	struct gp_err err;
	struct gp_graph *whole, *body;
	struct gp_model_options o = {.classes = 10};
	assert_int_equal(gp_model_build("cnn", &o, &whole, &err), GP_OK);
	assert_int_equal(gp_graph_part(whole, 1, whole->blocks - 1, &body, &err), GP_OK);
	gp_graph_free(whole);
	return body;
}

static int setup(void **state)
{
	struct fixture *f = gp_calloc(1, sizeof *f);
	f->server = server_thread_start();
	f->port = f->server->port;
	f->body = make_body();
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	server_thread_stop(f->server);
	gp_graph_free(f->body);
	gp_free(f);
	return 0;
}

static void client_connect(struct raw_peer *c, const struct fixture *f)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(f->port)};
	struct timeval patience = {.tv_sec = 20};
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	memset(c, 0, sizeof *c);
	c->fd = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	assert_int_equal(connect(c->fd, (struct sockaddr *)&a, sizeof a), 0);
	c->codec = 1;
	c->body_cap = 1 << 20;
	c->body = gp_calloc(c->body_cap, 1);
}

static void client_close(struct raw_peer *c)
{
	close(c->fd);
	gp_free(c->body);
}

static void put_hello(struct raw_peer *c, uint32_t version)
{
	Gpsplit__Hello hello = GPSPLIT__HELLO__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	hello.version = version;
	m.body_case = GPSPLIT__CONTROL__BODY_HELLO;
	m.hello = &hello;
	put_control(c, &m);
}

static void put_open(struct raw_peer *c, const struct gp_graph *graph, void (*spoil)(Gpsplit__Open *))
{
	struct gp_err err;
	Gpsplit__Open open = GPSPLIT__OPEN__INIT;
	Gpsplit__Optimizer optimizer = GPSPLIT__OPTIMIZER__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	Gpsplit__Graph *g;
	assert_int_equal(gp_graph_to_msg(graph, &g, &err), GP_OK);
	open.graph = g;
	open.optimizer = &optimizer;
	optimizer.momentum = 0.9f;
	open.chunk_samples = 2;
	open.window = 2;
	open.chunks = 2;
	open.codec_act_up = open.codec_act_down = open.codec_grad_up = open.codec_grad_down = (char *)"raw";
	if (spoil)
		spoil(&open);
	m.body_case = GPSPLIT__CONTROL__BODY_OPEN;
	m.open = &open;
	put_control(c, &m);
	gp_graph_msg_free(g);
}

static void expect_error(struct raw_peer *c, const char *part)
{
	Gpsplit__Control *m = get_control(c);
	if (!m)
		fail_msg("the server hung up without a reason; expected one with '%s'", part);
	if (m->body_case != GPSPLIT__CONTROL__BODY_ERROR || !strstr(m->error->text, part))
		fail_msg("got %s '%s', expected an error with '%s'", gp_control_name(m),
			 m->body_case == GPSPLIT__CONTROL__BODY_ERROR ? m->error->text : "", part);
	gpsplit__control__free_unpacked(m, NULL);
	assert_null(get_control(c)); /* and nothing after it */
}

/* A session that has just ended may still count for a moment: busy is an answer to come back after. */
static bool try_welcome(struct raw_peer *c, const struct fixture *f)
{
	client_connect(c, f);
	put_preface(c);
	put_hello(c, GP_PROTO_VERSION);
	Gpsplit__Control *m = get_control(c);
	assert_non_null(m);
	bool welcome = m->body_case == GPSPLIT__CONTROL__BODY_WELCOME;
	if (welcome)
		c->session = m->welcome->session;
	else if (m->body_case != GPSPLIT__CONTROL__BODY_ERROR || m->error->code != GP_BUSY)
		fail_msg("got %s instead of welcome", gp_control_name(m));
	gpsplit__control__free_unpacked(m, NULL);
	if (!welcome)
		client_close(c);
	return welcome;
}

static void until_welcome(struct raw_peer *c, const struct fixture *f)
{
	for (int i = 0; i < 500; i++) {
		if (try_welcome(c, f))
			return;
		usleep(20000);
	}
	fail_msg("the server stays busy");
}

static void until_ready_with(struct raw_peer *c, const struct fixture *f, void (*spoil)(Gpsplit__Open *))
{
	until_welcome(c, f);
	put_open(c, f->body, spoil);
	Gpsplit__Control *m = get_control(c);
	assert_non_null(m);
	if (m->body_case != GPSPLIT__CONTROL__BODY_READY)
		fail_msg("got %s instead of ready", gp_control_name(m));
	gpsplit__control__free_unpacked(m, NULL);
}

static void until_ready(struct raw_peer *c, const struct fixture *f)
{
	until_ready_with(c, f, NULL);
}

/* A whole frame in one segment, of `len` payload bytes (at most a segment). */
static void put_frame(struct raw_peer *c, enum gp_frame_type type, uint64_t step, uint32_t chunk, uint32_t len,
		      bool good_sum)
{
	uint8_t *bytes = gp_calloc(GP_RECORD_HEADER_BYTES + GP_FRAME_HEADER_BYTES + len, 1);
	uint8_t *payload = bytes + GP_RECORD_HEADER_BYTES + GP_FRAME_HEADER_BYTES;
	struct gp_record_head r = {.kind = GP_RECORD_SEGMENT,
				   .klass = (uint8_t)gp_frame_class(type),
				   .flags = GP_SEGMENT_FIRST | GP_SEGMENT_LAST,
				   .len = GP_FRAME_HEADER_BYTES + len};
	struct gp_frame_head h = {.type = (uint8_t)type,
				  .codec = c->codec,
				  .chunk = chunk,
				  .session = c->session,
				  .step = step,
				  .payload_len = len,
				  .checksum = gp_frame_checksum(payload, len) ^ !good_sum};
	gp_record_head_write(&r, bytes);
	gp_frame_head_write(&h, bytes + GP_RECORD_HEADER_BYTES);
	put(c, bytes, GP_RECORD_HEADER_BYTES + GP_FRAME_HEADER_BYTES + len);
	gp_free(bytes);
}

static void put_commit_with_norm(struct raw_peer *c, uint64_t step, float lr, double norm)
{
	Gpsplit__Commit commit = GPSPLIT__COMMIT__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	commit.step = step;
	commit.lr = lr;
	commit.grad_norm = norm;
	m.body_case = GPSPLIT__CONTROL__BODY_COMMIT;
	m.commit = &commit;
	put_control(c, &m);
}

static void put_commit(struct raw_peer *c, uint64_t step, float lr)
{
	put_commit_with_norm(c, step, lr, 0.0);
}

/* The tests. Each leaves the server as it was: a good client gets READY at the end of it. */

static void still_serves(const struct fixture *f)
{
	struct raw_peer c;
	until_ready(&c, f);
	client_close(&c);
}

static void garbage_and_silence_end_only_their_own_connection(void **state)
{
	struct fixture *f = *state;
	static const char *const rubbish[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\x02", "", "gpsplit"};
	for (size_t i = 0; i < sizeof rubbish / sizeof rubbish[0]; i++) {
		struct raw_peer c;
		uint8_t byte;
		client_connect(&c, f);
		put(&c, rubbish[i], strlen(rubbish[i]));
		while (get(&c, &byte, 1))
			; /* the server's preface, perhaps a reason, then the end: within the handshake's time */
		client_close(&c);
	}
	still_serves(f);
}

static void a_wrong_version_is_told_so(void **state)
{
	struct raw_peer c;
	client_connect(&c, *state);
	put_preface(&c);
	put_hello(&c, 999);
	expect_error(&c, "version 999");
	client_close(&c);
	still_serves(*state);
}

static void messages_out_of_order_are_refused(void **state)
{
	struct fixture *f = *state;
	struct raw_peer c;
	client_connect(&c, f);
	put_preface(&c);
	put_open(&c, f->body, NULL);
	expect_error(&c, "open message is not expected");
	client_close(&c);
	until_welcome(&c, f);
	put_frame(&c, GP_FRAME_ACT_UP, 0, 0, 64, true);
	expect_error(&c, "before open");
	client_close(&c);
	until_welcome(&c, f);
	put_hello(&c, GP_PROTO_VERSION);
	expect_error(&c, "hello message is not expected");
	client_close(&c);
	until_ready(&c, f);
	put_open(&c, f->body, NULL);
	expect_error(&c, "not expected");
	client_close(&c);
	still_serves(f);
}

static void spoil_window(Gpsplit__Open *o)
{
	o->window = 1000;
}

static void spoil_chunks(Gpsplit__Open *o)
{
	o->chunks = 0;
}

static void spoil_codec(Gpsplit__Open *o)
{
	o->codec_grad_up = (char *)"sortquant:bits=400";
}

static void spoil_samples(Gpsplit__Open *o)
{
	o->chunk_samples = 1 << 13;
}

static void spoil_weights(Gpsplit__Open *o)
{
	o->weights = 3;
}

static void spoil_optimizer(Gpsplit__Open *o)
{
	o->optimizer->kind = 77;
}

static void spoil_clip_norm(Gpsplit__Open *o)
{
	o->optimizer->clip_norm = -1;
}

static void spoil_clip_both(Gpsplit__Open *o)
{
	o->optimizer->clip_norm = o->optimizer->clip_value = 1;
}

static void spoil_graph_input(Gpsplit__Open *o)
{
	o->graph->input[0] = INT64_MAX;
}

static void spoil_graph_channels(Gpsplit__Open *o)
{
	for (size_t i = 0; i < o->graph->n_node; i++)
		if (o->graph->node[i]->conv)
			o->graph->node[i]->conv->out_channels = 1u << 30;
}

static void spoil_graph_edge(Gpsplit__Open *o)
{
	o->graph->node[0]->in[0] = 4000000000u;
}

static void spoil_precision(Gpsplit__Open *o)
{
	o->precision = 77;
}

static void ask_for_bf16(Gpsplit__Open *o)
{
	o->precision = GP_PRECISION_BF16;
}

/* The server says beforehand what it can do; a client that asks for more all the same is refused. */
static void a_precision_that_the_processor_lacks_is_neither_offered_nor_given(void **state)
{
	struct fixture *f = *state;
	struct raw_peer c;
	gp_cpu_isa_limit(GP_CPU_AVX2);
	client_connect(&c, f);
	put_preface(&c);
	put_hello(&c, GP_PROTO_VERSION);
	Gpsplit__Control *m = get_control(&c);
	assert_non_null(m);
	assert_int_equal(m->body_case, GPSPLIT__CONTROL__BODY_WELCOME);
	assert_int_equal(m->welcome->n_precision, 1);
	assert_int_equal(m->welcome->precision[0], GP_PRECISION_FP32);
	gpsplit__control__free_unpacked(m, NULL);
	put_open(&c, f->body, ask_for_bf16);
	expect_error(&c, "cannot compute in bf16");
	client_close(&c);
	gp_cpu_isa_limit(GP_CPU_AVX512);
	still_serves(f);
}

static void an_open_that_cannot_be_is_refused_with_the_reason(void **state)
{
	static const struct {
		void (*spoil)(Gpsplit__Open *);
		const char *part;
	} cases[] = {
		{spoil_window, "window is 1000"}, {spoil_chunks, "chunks is 0"}, {spoil_codec, "bits"},
		{spoil_samples, "MiB"},           {spoil_weights, "3 weights"},  {spoil_optimizer, ""},
		{spoil_graph_input, ""},          {spoil_graph_channels, ""},    {spoil_graph_edge, ""},
		{spoil_clip_norm, "clip-norm"},   {spoil_clip_both, "exclude"},  {spoil_precision, "no precision 77"},
	};
	struct fixture *f = *state;
	uint64_t resident = gp_mem_peak_rss_bytes();
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct raw_peer c;
		until_welcome(&c, f);
		put_open(&c, f->body, cases[i].spoil);
		expect_error(&c, cases[i].part);
		client_close(&c);
	}
	assert_true(gp_mem_peak_rss_bytes() < resident + (64 << 20));
	still_serves(f);
}

static void frames_out_of_place_are_refused(void **state)
{
	struct fixture *f = *state;
	uint32_t act = (uint32_t)(2 * gp_shape_elements(gp_graph_input_shape(f->body)) * sizeof(float));
	static const struct {
		enum gp_frame_type type;
		uint64_t step;
		uint32_t chunk;
		const char *part;
	} cases[] = {
		{GP_FRAME_ACT_UP, 1, 0, "step 1"},         {GP_FRAME_ACT_UP, 0, 1, "chunk 1 is not expected"},
		{GP_FRAME_GRAD_UP, 0, 0, "not expected"},  {GP_FRAME_ACT_DOWN, 0, 0, "must not send"},
		{GP_FRAME_PARAM_UP, 0, 0, "not expected"}, {GP_FRAME_ACT_UP, 0, UINT32_MAX, "not expected"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct raw_peer c;
		until_ready(&c, f);
		put_frame(&c, cases[i].type, cases[i].step, cases[i].chunk, 64, true);
		expect_error(&c, cases[i].part);
		client_close(&c);
	}
	struct raw_peer c;
	until_ready(&c, f);
	c.codec = 4;
	put_frame(&c, GP_FRAME_ACT_UP, 0, 0, 64, true);
	expect_error(&c, "codec 4");
	client_close(&c);
	until_ready(&c, f);
	put_frame(&c, GP_FRAME_ACT_UP, 0, 0, 100, true); /* raw needs the whole tensor */
	expect_error(&c, "act_up of chunk 0");
	client_close(&c);
	until_ready(&c, f);
	if (act < GP_SEGMENT_BYTES_MAX - GP_FRAME_HEADER_BYTES) {
		put_frame(&c, GP_FRAME_ACT_UP, 0, 0, act, false);
		expect_error(&c, "checksum");
	}
	client_close(&c);
	still_serves(f);
}

/* The codec thread comes back to a session whose connection is gone already. */
static void clients_that_vanish_while_their_chunks_are_computed_leave_nothing(void **state)
{
	struct fixture *f = *state;
	uint32_t act = (uint32_t)(2 * gp_shape_elements(gp_graph_input_shape(f->body)) * sizeof(float));
	assert_true(act < GP_SEGMENT_BYTES_MAX - GP_FRAME_HEADER_BYTES);
	for (int i = 0; i < 20; i++) {
		struct raw_peer c;
		struct linger hard = {.l_onoff = 1, .l_linger = 0}; /* a reset: no wait for anything */
		until_ready(&c, f);
		put_frame(&c, GP_FRAME_ACT_UP, 0, 0, act, true);
		put_frame(&c, GP_FRAME_ACT_UP, 0, 1, act, true);
		usleep((useconds_t)(i % 10) * 500);
		setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
		client_close(&c);
	}
	still_serves(f);
}

static void a_commit_before_its_chunks_is_refused(void **state)
{
	struct raw_peer c;
	until_ready(&c, *state);
	put_commit(&c, 0, 0.1f);
	expect_error(&c, "commit of step 0 after 0 of 2 chunks");
	client_close(&c);
	still_serves(*state);
}

static void clip_by_norm(Gpsplit__Open *o)
{
	o->optimizer->clip_norm = 1.0;
}

/* Reads that many frames and GRAD_SQUARES, in any order: control messages overtake. */
static void get_answers(struct raw_peer *c, int frames, int squares)
{
	while (frames > 0 || squares > 0) {
		uint8_t bytes[GP_RECORD_HEADER_BYTES];
		struct gp_record_head h;
		struct gp_err err;
		assert_true(get(c, bytes, sizeof bytes));
		assert_int_equal(gp_record_head_read(bytes, &h, &err), GP_OK);
		assert_true(h.len <= c->body_cap && get(c, c->body, h.len));
		frames -= h.kind == GP_RECORD_SEGMENT && (h.flags & GP_SEGMENT_LAST);
		if (h.kind != GP_RECORD_CONTROL)
			continue;
		Gpsplit__Control *m = gpsplit__control__unpack(NULL, h.len, c->body);
		assert_true(m && m->body_case == GPSPLIT__CONTROL__BODY_GRAD_SQUARES && m->grad_squares->step == 0);
		gpsplit__control__free_unpacked(m, NULL);
		squares--;
	}
	assert_int_equal(squares, 0);
}

/* Both chunks of step 0, all zeros; their gradients' answers are still to come. */
static void put_step(struct raw_peer *c, const struct fixture *f)
{
	uint32_t act = (uint32_t)(2 * gp_shape_elements(gp_graph_input_shape(f->body)) * sizeof(float));
	uint32_t grad = (uint32_t)(2 * gp_shape_elements(gp_graph_output_shape(f->body)) * sizeof(float));
	for (uint32_t chunk = 0; chunk < 2; chunk++)
		put_frame(c, GP_FRAME_ACT_UP, 0, chunk, act, true);
	get_answers(c, 2, 0);
	for (uint32_t chunk = 0; chunk < 2; chunk++)
		put_frame(c, GP_FRAME_GRAD_UP, 0, chunk, grad, true);
}

static void expect_control(struct raw_peer *c, Gpsplit__Control__BodyCase what)
{
	Gpsplit__Control *m = get_control(c);
	assert_non_null(m);
	if (m->body_case != what)
		fail_msg("got %s '%s'", gp_control_name(m),
			 m->body_case == GPSPLIT__CONTROL__BODY_ERROR ? m->error->text : "");
	gpsplit__control__free_unpacked(m, NULL);
}

static void a_step_with_clipping_is_measured_before_it_is_committed(void **state)
{
	struct fixture *f = *state;
	static const double norms[] = {1.0, 0.0, (double)INFINITY, (double)NAN};
	for (size_t i = 0; i < sizeof norms / sizeof norms[0]; i++) {
		struct raw_peer c;
		until_ready_with(&c, f, clip_by_norm);
		put_step(&c, f);
		get_answers(&c, 2, 1);
		put_commit_with_norm(&c, 0, 0.1f, norms[i]);
		expect_control(&c, GPSPLIT__CONTROL__BODY_COMMITTED);
		client_close(&c);
	}
	still_serves(f);
}

static void a_norm_that_cannot_be_is_refused(void **state)
{
	struct fixture *f = *state;
	struct raw_peer c;
	until_ready_with(&c, f, clip_by_norm);
	put_step(&c, f);
	get_answers(&c, 2, 1);
	put_commit_with_norm(&c, 0, 0.1f, -1.0);
	expect_error(&c, "gradient norm of -1");
	client_close(&c);
	until_ready(&c, f);
	put_step(&c, f);
	get_answers(&c, 2, 0);
	put_commit_with_norm(&c, 0, 0.1f, 1.0);
	expect_error(&c, "without clip_norm");
	client_close(&c);
	still_serves(f);
}

static void sessions_over_the_limit_are_told_to_come_back(void **state)
{
	struct raw_peer c[5];
	for (int i = 0; i < 4; i++)
		until_ready(&c[i], *state);
	client_connect(&c[4], *state);
	put_preface(&c[4]);
	expect_error(&c[4], "no room");
	for (int i = 0; i < 5; i++)
		client_close(&c[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(garbage_and_silence_end_only_their_own_connection, setup, teardown),
		cmocka_unit_test_setup_teardown(a_wrong_version_is_told_so, setup, teardown),
		cmocka_unit_test_setup_teardown(messages_out_of_order_are_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(an_open_that_cannot_be_is_refused_with_the_reason, setup, teardown),
		cmocka_unit_test_setup_teardown(a_precision_that_the_processor_lacks_is_neither_offered_nor_given,
						setup, teardown),
		cmocka_unit_test_setup_teardown(frames_out_of_place_are_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(clients_that_vanish_while_their_chunks_are_computed_leave_nothing,
						setup, teardown),
		cmocka_unit_test_setup_teardown(a_commit_before_its_chunks_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(a_step_with_clipping_is_measured_before_it_is_committed, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_norm_that_cannot_be_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(sessions_over_the_limit_are_told_to_come_back, setup, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
