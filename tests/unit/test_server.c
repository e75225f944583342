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
#include "common/checkpoint.h"
#include "kernels/cpu/simd.h"
#include "server/state_dir.h"
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

static int setup_with(void **state, const struct gp_server_settings *set)
{
	struct fixture *f = gp_calloc(1, sizeof *f);
	f->server = server_thread_start_with(set);
	f->port = f->server->port;
	f->body = make_body();
	*state = f;
	return 0;
}

static int setup(void **state)
{
	const struct gp_server_settings set = server_thread_settings();
	return setup_with(state, &set);
}

/* For tests whose peers fall silent. */
static int setup_impatient(void **state)
{
	struct gp_server_settings set = server_thread_settings();
	set.handshake_timeout_s = 0.5;
	return setup_with(state, &set);
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	server_thread_stop(f->server);
	gp_graph_free(f->body);
	gp_free(f);
	return 0;
}

static int connect_to(uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct timeval patience = {.tv_sec = 20};
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
	return fd;
}

static void client_connect(struct raw_peer *c, const struct fixture *f)
{
	memset(c, 0, sizeof *c);
	c->fd = connect_to(f->port);
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

static void expect_control(struct raw_peer *c, Gpsplit__Control__BodyCase what)
{
	Gpsplit__Control *m = get_control(c);
	assert_non_null(m);
	if (m->body_case != what)
		fail_msg("got %s '%s'", gp_control_name(m),
			 m->body_case == GPSPLIT__CONTROL__BODY_ERROR ? m->error->text : "");
	gpsplit__control__free_unpacked(m, NULL);
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
	for (int i = 0; i < 3000; i++) {
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

/* More of them than the server takes, and none has a session's place. */
static void connections_that_say_nothing_keep_nobody_out(void **state)
{
	enum { SILENT = 40 }; /* 16 are allowed */
	struct fixture *f = *state;
	struct raw_peer silent[SILENT], c;
	uint8_t bytes[GP_PREFACE_BYTES];
	for (int i = 0; i < SILENT; i++)
		client_connect(&silent[i], f);
	client_connect(&c, f);
	put_preface(&c);
	put_hello(&c, GP_PROTO_VERSION);
	expect_control(&c, GPSPLIT__CONTROL__BODY_WELCOME);
	while (get(&silent[0], bytes, 1))
		; /* the oldest went first */
	for (int i = 0; i < SILENT; i++)
		client_close(&silent[i]);
	client_close(&c);
}

/* Without pages of files, which come and go as the kernel likes. */
static uint64_t resident_bytes(void)
{
	unsigned long long pages = 0, shared = 0;
	FILE *statm = fopen("/proc/self/statm", "r");
	assert_non_null(statm);
	assert_int_equal(fscanf(statm, "%*u %llu %llu", &pages, &shared), 2);
	fclose(statm);
	return (pages - shared) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void a_connection_that_is_not_opened_costs_a_few_kilobytes(void **state)
{
	(void)state;
	enum { SILENT = 300, BYTES_MOST = 12 << 10 };
	struct gp_server_settings set = server_thread_settings();
	struct raw_peer silent[SILENT + 1] = {0};
	uint8_t byte;
	set.max_unopened = 2 * SILENT;
	set.handshake_timeout_s = 20;
	struct server_thread *server = server_thread_start_with(&set);
	silent[SILENT].fd = connect_to(server->port); /* what the first one brings with it */
	assert_true(get(&silent[SILENT], &byte, 1));
	const uint64_t before = resident_bytes();
	for (int i = 0; i < SILENT; i++) {
		silent[i].fd = connect_to(server->port);
		put(&silent[i], "gpsplit\n\1", 9); /* and falls silent within its preface */
	}
	for (int i = 0; i < SILENT; i++)
		assert_true(get(&silent[i], &byte, 1)); /* the server has it */
	const uint64_t after = resident_bytes();
	print_message("%.1f KiB for each\n", ((double)after - (double)before) / 1024 / SILENT);
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ /* whose own memory grows along */
	assert_true(after < before + SILENT * (uint64_t)BYTES_MOST);
#endif
	for (int i = 0; i <= SILENT; i++)
		close(silent[i].fd);
	server_thread_stop(server);
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
	put_hello(&c[4], GP_PROTO_VERSION);
	expect_error(&c[4], "no room");
	for (int i = 0; i < 5; i++)
		client_close(&c[i]);
}

/* --- checkpoints (PROTOCOL.md 5.7) ------------------------------------------------------------------------------- */

enum { HEADERS_MOST = 1 << 14, OTHER_VALUES = HEADERS_MOST / sizeof(float) };

static char state_dir[64];
static const uint8_t run_id[GP_RUN_ID_BYTES] = {0xab, 0xcd};

static int setup_keeping_at_most(void **state, uint64_t bytes)
{
	struct gp_server_settings set = server_thread_settings();
	strcpy(state_dir, "/tmp/gp_keep_XXXXXX");
	if (!mkdtemp(state_dir))
		return -1;
	set.state_dir = state_dir;
	set.state_max_bytes = bytes;
	return setup_with(state, &set);
}

static int setup_keeping(void **state)
{
	return setup_keeping_at_most(state, 1 << 30);
}

/* One checkpoint of the body, parameters and momentum: what its headers leave is less than the other run needs. */
static int setup_keeping_one(void **state)
{
	struct gp_graph *body = make_body();
	const uint64_t bytes = 2 * body->param_elements * sizeof(float);
	gp_graph_free(body);
	return setup_keeping_at_most(state, bytes + HEADERS_MOST);
}

static int teardown_keeping(void **state)
{
	char command[128];
	teardown(state);
	snprintf(command, sizeof command, "rm -rf '%s'", state_dir);
	return system(command);
}

/* Returns the step named. `why` (optional): that no checkpoints will be kept. */
static uint64_t welcome_of_run_and_why(struct raw_peer *c, const struct fixture *f, uint64_t *checkpoint, size_t count,
				       char why[256])
{
	Gpsplit__Hello hello = GPSPLIT__HELLO__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	client_connect(c, f);
	put_preface(c);
	hello.version = GP_PROTO_VERSION;
	hello.run_id = (ProtobufCBinaryData){sizeof run_id, (uint8_t *)run_id};
	hello.checkpoint = checkpoint;
	hello.n_checkpoint = count;
	m.body_case = GPSPLIT__CONTROL__BODY_HELLO;
	m.hello = &hello;
	put_control(c, &m);
	Gpsplit__Control *answer = get_control(c);
	assert_true(answer && answer->body_case == GPSPLIT__CONTROL__BODY_WELCOME);
	const uint64_t common = answer->welcome->checkpoint;
	c->session = answer->welcome->session;
	if (why)
		snprintf(why, 256, "%s", answer->welcome->checkpoint_error);
	gpsplit__control__free_unpacked(answer, NULL);
	return common;
}

static uint64_t welcome_of_run(struct raw_peer *c, const struct fixture *f, uint64_t *checkpoint, size_t count)
{
	return welcome_of_run_and_why(c, f, checkpoint, count, NULL);
}

/* COMMIT of step 0 that asks for a checkpoint; "" when it was kept, else why not. */
static void commit_and_keep(struct raw_peer *c, char why[256])
{
	Gpsplit__Commit commit = GPSPLIT__COMMIT__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	commit.lr = 0.1f;
	commit.checkpoint = true;
	m.body_case = GPSPLIT__CONTROL__BODY_COMMIT;
	m.commit = &commit;
	put_control(c, &m);
	Gpsplit__Control *answer = get_control(c);
	assert_true(answer && answer->body_case == GPSPLIT__CONTROL__BODY_COMMITTED && answer->committed->step == 0);
	snprintf(why, 256, "%s", answer->committed->checkpoint_error);
	assert_int_equal(answer->committed->checkpoint, !*why);
	gpsplit__control__free_unpacked(answer, NULL);
}

static void run_a_step_and_keep(const struct fixture *f)
{
	struct raw_peer c;
	char why[256];
	assert_int_equal(welcome_of_run_and_why(&c, f, (uint64_t[]){0}, 1, why), 0);
	assert_string_equal(why, "");
	put_open(&c, f->body, NULL);
	expect_control(&c, GPSPLIT__CONTROL__BODY_READY);
	put_step(&c, f);
	get_answers(&c, 2, 0);
	commit_and_keep(&c, why);
	assert_string_equal(why, "");
	client_close(&c);
}

static void restore_step_1(Gpsplit__Open *o)
{
	o->restore_step = 1;
}

static void restore_step_2(Gpsplit__Open *o)
{
	o->restore_step = 2;
}

static void restore_with_other_codec_memory(Gpsplit__Open *o)
{
	o->restore_step = 1;
	o->state_hash = 1;
}

static void restore_with_another_seed(Gpsplit__Open *o)
{
	o->restore_step = 1;
	o->seed = 77;
}

static void a_run_goes_on_from_the_checkpoint_that_was_asked_for(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c;
	const uint32_t act = (uint32_t)(2 * gp_shape_elements(gp_graph_input_shape(f->body)) * sizeof(float));
	run_a_step_and_keep(f);
	assert_int_equal(welcome_of_run(&c, f, (uint64_t[]){5, 1, 0}, 3), 1);
	put_open(&c, f->body, restore_step_1);
	expect_control(&c, GPSPLIT__CONTROL__BODY_READY);
	put_frame(&c, GP_FRAME_ACT_UP, 1, 0, act, true);
	get_answers(&c, 1, 0);
	client_close(&c);
	assert_int_equal(welcome_of_run(&c, f, (uint64_t[]){5, 0}, 2), 0);
	client_close(&c);
}

static void expect_restore_refused(const struct fixture *f, size_t listed, void (*spoil)(Gpsplit__Open *),
				   const char *part)
{
	struct raw_peer c;
	welcome_of_run(&c, f, (uint64_t[]){1, 0}, listed);
	put_open(&c, f->body, spoil);
	expect_error(&c, part);
	client_close(&c);
}

static void a_checkpoint_that_does_not_fit_is_refused_with_the_reason(void **state)
{
	const struct fixture *f = *state;
	run_a_step_and_keep(f);
	expect_restore_refused(f, 2, restore_with_another_seed, "seed is '77', but the run has it at '0'");
	expect_restore_refused(f, 2, restore_step_2, "restore_step");
	expect_restore_refused(f, 0, restore_step_1, "a session that cannot have it");
	still_serves(f);
}

/* Else the client would be named it again, for ever. */
static void a_checkpoint_whose_codecs_remember_something_else_is_put_out_of_the_way(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c;
	run_a_step_and_keep(f);
	assert_int_equal(welcome_of_run(&c, f, (uint64_t[]){1, 0}, 2), 1);
	put_open(&c, f->body, restore_with_other_codec_memory);
	Gpsplit__Control *m = get_control(&c);
	assert_true(m && m->body_case == GPSPLIT__CONTROL__BODY_ERROR);
	assert_int_equal(m->error->code, GP_CANCELED);
	assert_string_equal(m->error->text, "the checkpoint of step 1 does not fit the client's (the codecs of both "
					    "ends remember different things) and is removed");
	gpsplit__control__free_unpacked(m, NULL);
	client_close(&c);
	assert_int_equal(welcome_of_run(&c, f, (uint64_t[]){1, 0}, 2), 0);
	client_close(&c);
}

static enum gp_status keep_of_another_run(const struct fixture *f)
{
	static const uint8_t other[GP_RUN_ID_BYTES] = {0xef};
	static const float value[OTHER_VALUES];
	const struct gp_pairs none = {.count = 0};
	const struct gp_st_item item = {"param.a", {.ndim = 1, .dim = {OTHER_VALUES}}, value, GP_F32};
	struct gp_err err;
	return gp_state_dir_write(f->server->server.state, other, 1, &none, &item, 1, GP_CHECKPOINTS_KEPT, &err);
}

/* The folder has room for the checkpoint of one run. */
static void what_welcome_named_makes_no_room_before_open(void **state)
{
	const struct fixture *f = *state;
	const uint64_t begin_ns = gp_now_ns();
	struct raw_peer c;
	run_a_step_and_keep(f);
	assert_int_equal(welcome_of_run(&c, f, (uint64_t[]){1, 0}, 2), 1);
	assert_int_equal(keep_of_another_run(f), GP_NOMEM);
	put_open(&c, f->body, restore_step_1);
	expect_control(&c, GPSPLIT__CONTROL__BODY_READY);
	assert_int_equal(keep_of_another_run(f), GP_NOMEM);
	client_close(&c);
	assert_int_equal(welcome_of_run(&c, f, (uint64_t[]){1, 0}, 2), 1);
	put_open(&c, f->body, restore_with_another_seed);
	expect_error(&c, "seed");
	client_close(&c);
	while (keep_of_another_run(f) != GP_OK) { /* as soon as nobody has it any more */
		assert_true(gp_now_ns() - begin_ns < 60000000000ull);
		usleep(10000);
	}
	assert_int_equal(welcome_of_run(&c, f, (uint64_t[]){1, 0}, 2), 0);
	client_close(&c);
}

static void too_many_checkpoints_in_hello_are_refused(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c;
	uint64_t many[GP_CHECKPOINTS_MAX + 1] = {0};
	Gpsplit__Hello hello = GPSPLIT__HELLO__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	client_connect(&c, f);
	put_preface(&c);
	hello.version = GP_PROTO_VERSION;
	hello.checkpoint = many;
	hello.n_checkpoint = GP_CHECKPOINTS_MAX + 1;
	m.body_case = GPSPLIT__CONTROL__BODY_HELLO;
	m.hello = &hello;
	put_control(&c, &m);
	expect_error(&c, "17 checkpoints");
	client_close(&c);
}

static void a_server_without_a_state_dir_says_that_nothing_is_kept(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c;
	char why[256];
	welcome_of_run_and_why(&c, f, NULL, 0, why);
	assert_string_equal(why, ""); /* it did not ask */
	client_close(&c);
	assert_int_equal(welcome_of_run_and_why(&c, f, (uint64_t[]){1, 0}, 2, why), 0);
	assert_non_null(strstr(why, "--state-dir"));
	put_open(&c, f->body, NULL);
	expect_control(&c, GPSPLIT__CONTROL__BODY_READY);
	put_step(&c, f);
	get_answers(&c, 2, 0);
	commit_and_keep(&c, why);
	assert_non_null(strstr(why, "--state-dir"));
	client_close(&c);
	expect_restore_refused(f, 2, restore_step_1, "a session that cannot have it");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(garbage_and_silence_end_only_their_own_connection, setup_impatient,
						teardown),
		cmocka_unit_test_setup_teardown(connections_that_say_nothing_keep_nobody_out, setup, teardown),
		cmocka_unit_test(a_connection_that_is_not_opened_costs_a_few_kilobytes),
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
		cmocka_unit_test_setup_teardown(a_run_goes_on_from_the_checkpoint_that_was_asked_for, setup_keeping,
						teardown_keeping),
		cmocka_unit_test_setup_teardown(a_checkpoint_that_does_not_fit_is_refused_with_the_reason,
						setup_keeping, teardown_keeping),
		cmocka_unit_test_setup_teardown(
			a_checkpoint_whose_codecs_remember_something_else_is_put_out_of_the_way, setup_keeping,
			teardown_keeping),
		cmocka_unit_test_setup_teardown(what_welcome_named_makes_no_room_before_open, setup_keeping_one,
						teardown_keeping),
		cmocka_unit_test_setup_teardown(too_many_checkpoints_in_hello_are_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(a_server_without_a_state_dir_says_that_nothing_is_kept, setup,
						teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
