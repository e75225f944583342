/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests of a real server share: it, a body to open sessions with, and
 * clients on blocking sockets that say what they are told. Not a test by itself.
 */
#ifndef GP_TEST_SERVER_RIG_H
#define GP_TEST_SERVER_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/wire/graph_msg.h"
#include "client/models/models.h"
#include "tests/unit/raw_peer.h"
#include "tests/unit/server_thread.h"
#include "common/graph/graph_part.h"

struct fixture {
	struct server_thread *server;
	uint16_t port;
	struct gp_graph *body;
};

static inline struct gp_graph *make_body(void)
{
	struct gp_err err;
	struct gp_graph *whole, *body;
	struct gp_model_options o = {.classes = 10};
	assert_int_equal(gp_model_build("cnn", &o, &whole, &err), GP_OK);
	assert_int_equal(gp_graph_part(whole, 1, whole->blocks - 1, &body, &err), GP_OK);
	gp_graph_free(whole);
	return body;
}

static inline int setup_with(void **state, const struct gp_server_settings *set)
{
	struct fixture *f = gp_calloc(1, sizeof *f);
	f->server = server_thread_start_with(set);
	f->port = f->server->port;
	f->body = make_body();
	*state = f;
	return 0;
}

static inline int setup(void **state)
{
	const struct gp_server_settings set = server_thread_settings();
	return setup_with(state, &set);
}

/* For tests whose peers fall silent. */
static inline int setup_impatient(void **state)
{
	struct gp_server_settings set = server_thread_settings();
	set.handshake_timeout_s = 3;
	return setup_with(state, &set);
}

static inline int teardown(void **state)
{
	struct fixture *f = *state;
	server_thread_stop(f->server);
	gp_graph_free(f->body);
	gp_free(f);
	return 0;
}

static inline int connect_to(uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct timeval patience = {.tv_sec = 600};
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
	return fd;
}

static inline void client_connect(struct raw_peer *c, const struct fixture *f)
{
	memset(c, 0, sizeof *c);
	c->fd = connect_to(f->port);
	c->codec = 1;
	c->body_cap = 1 << 20;
	c->body = gp_calloc(c->body_cap, 1);
}

static inline void client_close(struct raw_peer *c)
{
	close(c->fd);
	gp_free(c->body);
}

static inline void put_open(struct raw_peer *c, const struct gp_graph *graph, void (*spoil)(Gpsplit__Open *))
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

static inline void expect_error(struct raw_peer *c, const char *part)
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

static inline void expect_control(struct raw_peer *c, Gpsplit__Control__BodyCase what)
{
	Gpsplit__Control *m = get_control(c);
	assert_non_null(m);
	if (m->body_case != what)
		fail_msg("got %s '%s'", gp_control_name(m),
			 m->body_case == GPSPLIT__CONTROL__BODY_ERROR ? m->error->text : "");
	gpsplit__control__free_unpacked(m, NULL);
}

/* A session that has just ended may still count for a moment: busy is an answer to come back after. */
static inline bool try_welcome(struct raw_peer *c, const struct fixture *f)
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

static inline void until_welcome(struct raw_peer *c, const struct fixture *f)
{
	for (int i = 0; i < 3000; i++) {
		if (try_welcome(c, f))
			return;
		usleep(20000);
	}
	fail_msg("the server stays busy");
}

static inline void until_ready_with(struct raw_peer *c, const struct fixture *f, void (*spoil)(Gpsplit__Open *))
{
	until_welcome(c, f);
	put_open(c, f->body, spoil);
	Gpsplit__Control *m = get_control(c);
	assert_non_null(m);
	if (m->body_case != GPSPLIT__CONTROL__BODY_READY)
		fail_msg("got %s instead of ready", gp_control_name(m));
	gpsplit__control__free_unpacked(m, NULL);
}

static inline void until_ready(struct raw_peer *c, const struct fixture *f)
{
	until_ready_with(c, f, NULL);
}

/* A whole frame in one segment, of `len` payload bytes (at most a segment). */
static inline void put_frame(struct raw_peer *c, enum gp_frame_type type, uint64_t step, uint32_t chunk, uint32_t len,
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

static inline void put_commit_with_norm(struct raw_peer *c, uint64_t step, float lr, double norm)
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

static inline void put_commit(struct raw_peer *c, uint64_t step, float lr)
{
	put_commit_with_norm(c, step, lr, 0.0);
}

static inline void still_serves(const struct fixture *f)
{
	struct raw_peer c;
	until_ready(&c, f);
	client_close(&c);
}

/* Reads that many frames and GRAD_SQUARES, in any order: control messages overtake. */
static inline void get_answers(struct raw_peer *c, int frames, int squares)
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
static inline void put_step(struct raw_peer *c, const struct fixture *f)
{
	uint32_t act = (uint32_t)(2 * gp_shape_elements(gp_graph_input_shape(f->body)) * sizeof(float));
	uint32_t grad = (uint32_t)(2 * gp_shape_elements(gp_graph_output_shape(f->body)) * sizeof(float));
	for (uint32_t chunk = 0; chunk < 2; chunk++)
		put_frame(c, GP_FRAME_ACT_UP, 0, chunk, act, true);
	get_answers(c, 2, 0);
	for (uint32_t chunk = 0; chunk < 2; chunk++)
		put_frame(c, GP_FRAME_GRAD_UP, 0, chunk, grad, true);
}

/* A client without checkpoints opens a session and trains. */
static inline void another_session_makes_a_step(const struct fixture *f)
{
	struct raw_peer c;
	until_ready(&c, f);
	put_step(&c, f);
	get_answers(&c, 2, 0);
	put_commit(&c, 0, 0.1f);
	expect_control(&c, GPSPLIT__CONTROL__BODY_COMMITTED);
	client_close(&c);
}

#endif
