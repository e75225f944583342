/* SPDX-License-Identifier: Apache-2.0
 *
 * Who may go on with a session whose link broke (PROTOCOL.md section 5.6): the
 * owner of its token, for as long as it is kept. Everybody else is told why
 * not; what nobody comes back for is freed.
 */
#include "tests/unit/resume_rig.h"

#include "common/wire/graph_msg.h"
#include "common/net/token.h"
#include "tests/unit/cut_proxy.h"
#include "tests/unit/raw_peer.h"
#include "common/graph/graph_part.h"

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
	struct gp_graph *whole = make_graph(&input, false), *body;
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
	cut_proxy_start(&p, server->port, (struct cut_plan){.up = 60000}, false);
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
		cmocka_unit_test(a_client_that_comes_too_late_is_told_so),
		cmocka_unit_test(a_token_is_good_until_the_next_one_is_known),
		cmocka_unit_test(a_stranger_gets_no_session),
		cmocka_unit_test(ends_that_do_not_fit_together_do_not_go_on),
		cmocka_unit_test(a_session_that_nobody_comes_for_makes_room),
		cmocka_unit_test(a_run_that_begins_anew_drops_what_was_kept_of_it),
		cmocka_unit_test(a_client_whose_run_was_taken_over_by_another_is_told_not_to_come_back),
		cmocka_unit_test(the_newer_connection_wins),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
