/* SPDX-License-Identifier: Apache-2.0
 *
 * A real server to which a client comes back, and which takes as long as this test wants to undo the step that was begun,
 * or to hash what codecs remember (PROTOCOL.md section 5.6): another session makes steps meanwhile, so a server that did
 * it on its loop thread would never get there. Both are held by a gate around what server/body_link.c asks of
 * common/wire/flows.h (linked with --wrap). Whatever ends the wait (another cut, a newer link, the end of the session or of
 * the server), the rest goes on.
 */
#include "tests/unit/gate.h"
#include "tests/unit/server_rig.h"

#include <stdlib.h>

#include "common/net/token.h"
#include "common/wire/flows.h"

void __real_gp_flows_undo(struct gp_flows *f, uint64_t step);
void __wrap_gp_flows_undo(struct gp_flows *f, uint64_t step);
uint64_t __real_gp_flows_state_hash(const struct gp_flows *f);
uint64_t __wrap_gp_flows_state_hash(const struct gp_flows *f);

enum held { UNDO = 1, HASH };

static char state_dir[64];
static int hashed;

void __wrap_gp_flows_undo(struct gp_flows *f, uint64_t step)
{
	gate_pass(UNDO);
	__real_gp_flows_undo(f, step);
}

uint64_t __wrap_gp_flows_state_hash(const struct gp_flows *f)
{
	gate_pass(HASH);
	pthread_mutex_lock(&gate.mutex);
	hashed++;
	pthread_mutex_unlock(&gate.mutex);
	return __real_gp_flows_state_hash(f);
}

static int times_hashed(void)
{
	pthread_mutex_lock(&gate.mutex);
	const int n = hashed;
	pthread_mutex_unlock(&gate.mutex);
	return n;
}

/* --- the server and its clients ---------------------------------------------------------------------------------- */

static int setup_parking(void **state)
{
	struct gp_server_settings set = server_thread_settings();
	set.resume_window_s = 600;
	hashed = 0;
	return setup_with(state, &set);
}

static int setup_keeping(void **state)
{
	struct gp_server_settings set = server_thread_settings();
	strcpy(state_dir, "/tmp/gp_slow_XXXXXX");
	if (!mkdtemp(state_dir))
		return -1;
	set.state_dir = state_dir;
	set.state_max_bytes = 1 << 30;
	return setup_with(state, &set);
}

static int teardown_open(void **state)
{
	gate_set(GATE_OPEN);
	return teardown(state);
}

static int teardown_keeping(void **state)
{
	char command[128];
	teardown_open(state);
	snprintf(command, sizeof command, "rm -rf '%s'", state_dir);
	return system(command);
}

struct token {
	uint8_t bytes[GP_TOKEN_BYTES];
	size_t len; /* 0: a new session */
};

/* HELLO of the one run of this test, at step 0. */
static void say_hello(struct raw_peer *c, const struct fixture *f, const struct token *token)
{
	static const uint8_t run_id[GP_RUN_ID_BYTES] = {0xab, 0xcd}, none[GP_DIRECTIONS * sizeof(uint64_t)];
	uint64_t from_start = 0;
	Gpsplit__Hello hello = GPSPLIT__HELLO__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	client_connect(c, f);
	put_preface(c);
	hello.version = GP_PROTO_VERSION;
	hello.run_id = (ProtobufCBinaryData){sizeof run_id, (uint8_t *)run_id};
	hello.checkpoint = &from_start;
	hello.n_checkpoint = 1;
	hello.resume_token = (ProtobufCBinaryData){token->len, (uint8_t *)token->bytes};
	hello.state_hash = gp_frame_checksum(none, sizeof none); /* raw codecs remember nothing */
	m.body_case = GPSPLIT__CONTROL__BODY_HELLO;
	m.hello = &hello;
	put_control(c, &m);
}

static void expect_welcome(struct raw_peer *c, bool resumed, struct token *next)
{
	Gpsplit__Control *m = get_control(c);
	assert_non_null(m);
	if (m->body_case != GPSPLIT__CONTROL__BODY_WELCOME)
		fail_msg("got %s", gp_control_name(m));
	assert_int_equal(m->welcome->resumed, resumed);
	c->session = m->welcome->session;
	if (m->welcome->resume_token.len == GP_TOKEN_BYTES) {
		next->len = GP_TOKEN_BYTES;
		memcpy(next->bytes, m->welcome->resume_token.data, GP_TOKEN_BYTES);
	}
	gpsplit__control__free_unpacked(m, NULL);
}

static void open_session(struct raw_peer *c, const struct fixture *f, struct token *token)
{
	*token = (struct token){.len = 0};
	say_hello(c, f, token);
	expect_welcome(c, false, token);
	put_open(c, f->body, NULL);
	expect_control(c, GPSPLIT__CONTROL__BODY_READY);
}

/* A session whose link broke within its first step, and whose client is back: the server is at what the gate holds. */
static void come_back_to(enum held what, struct raw_peer *c, const struct fixture *f, struct token *token)
{
	struct raw_peer before;
	open_session(&before, f, token);
	put_step(&before, f);
	get_answers(&before, 2, 0);
	client_close(&before);
	gate_set(what);
	say_hello(c, f, token);
	gate_until_somebody_waits();
}

/* The step from its start, as in an undisturbed session. */
static void make_the_step(struct raw_peer *c, const struct fixture *f)
{
	put_step(c, f);
	get_answers(c, 2, 0);
	put_commit(c, 0, 0.1f);
	expect_control(c, GPSPLIT__CONTROL__BODY_COMMITTED);
	client_close(c);
}

/* --- tests ------------------------------------------------------------------------------------------------------- */

static void hold_while_another_trains(const struct fixture *f, enum held what)
{
	struct raw_peer c;
	struct token token;
	come_back_to(what, &c, f, &token);
	another_session_makes_a_step(f);
	gate_set(GATE_OPEN);
	expect_welcome(&c, true, &token);
	make_the_step(&c, f);
}

static void undo_that_takes_long_holds_up_nobody_else(void **state)
{
	hold_while_another_trains(*state, UNDO);
}

static void hash_that_takes_long_holds_up_nobody_else(void **state)
{
	hold_while_another_trains(*state, HASH);
}

/* A client that waits no longer tries again: what was done for its first attempt is not done again, or it might never end. */
static void client_that_is_cut_off_again_finds_the_work_done(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c;
	struct token token;
	come_back_to(HASH, &c, f, &token);
	client_close(&c);
	another_session_makes_a_step(f);
	say_hello(&c, f, &token);
	another_session_makes_a_step(f);
	gate_set(GATE_OPEN);
	expect_welcome(&c, true, &token);
	assert_int_equal(times_hashed(), 1);
	make_the_step(&c, f);
}

static void newer_link_gets_the_session_that_an_older_one_waits_for(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer older, newer;
	struct token token;
	come_back_to(UNDO, &older, f, &token);
	say_hello(&newer, f, &token);
	expect_error(&older, "taken over by a new connection");
	client_close(&older);
	gate_set(GATE_OPEN);
	expect_welcome(&newer, true, &token);
	make_the_step(&newer, f);
}

/* It is told so, and its session is gone; then the undo comes back to nobody. */
static void run_that_begins_anew_ends_the_session_meanwhile(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c, anew;
	struct token token, new_token;
	come_back_to(UNDO, &c, f, &token);
	open_session(&anew, f, &new_token);
	expect_error(&c, "the session has ended");
	client_close(&c);
	make_the_step(&anew, f);
	gate_set(GATE_OPEN);
	say_hello(&c, f, &token);
	expect_welcome(&c, false, &token);
	client_close(&c);
	still_serves(f);
}

static void server_that_stops_meanwhile_ends_when_the_work_has_ended(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c;
	struct token token;
	come_back_to(HASH, &c, f, &token);
	server_thread_end(f->server);
	expect_error(&c, "the server is stopping");
	client_close(&c);
	gate_set(GATE_OPEN);
	server_thread_join(f->server);
}

/* The client that waits is let in, and then told that the server stops, as any other between two steps. */
static void server_that_drains_meanwhile_lets_the_work_end(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c;
	struct token token;
	come_back_to(UNDO, &c, f, &token);
	server_thread_drain(f->server);
	gate_set(GATE_OPEN);
	expect_welcome(&c, true, &token);
	expect_error(&c, "the server is stopping");
	client_close(&c);
	server_thread_join(f->server);
}

/* A session that has ended is undone, too, for the checkpoint of what it has committed. */
static void undo_before_a_last_checkpoint_holds_up_nobody_else(void **state)
{
	const struct fixture *f = *state;
	const uint32_t act = (uint32_t)(2 * gp_shape_elements(gp_graph_input_shape(f->body)) * sizeof(float));
	struct raw_peer c, other;
	struct token token;
	open_session(&c, f, &token);
	put_step(&c, f);
	get_answers(&c, 2, 0);
	put_commit(&c, 0, 0.1f);
	expect_control(&c, GPSPLIT__CONTROL__BODY_COMMITTED);
	put_frame(&c, GP_FRAME_ACT_UP, 1, 0, act, true);
	get_answers(&c, 1, 0);
	until_ready(&other, f);
	put_frame(&other, GP_FRAME_ACT_UP, 0, 0, act, true); /* within a step: it may end it */
	get_answers(&other, 1, 0);
	gate_set(UNDO);
	server_thread_drain(f->server);
	client_close(&c); /* no COMMIT of it can have been lost: its session ends */
	gate_until_somebody_waits();
	put_frame(&other, GP_FRAME_ACT_UP, 0, 1, act, true);
	get_answers(&other, 1, 0);
	gate_set(GATE_OPEN);
	client_close(&other);
	server_thread_join(f->server);
	assert_int_equal(f->server->server.fallen_back, 0);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup_parking, teardown_open)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(undo_that_takes_long_holds_up_nobody_else),
		TEST(hash_that_takes_long_holds_up_nobody_else),
		TEST(client_that_is_cut_off_again_finds_the_work_done),
		TEST(newer_link_gets_the_session_that_an_older_one_waits_for),
		TEST(run_that_begins_anew_ends_the_session_meanwhile),
		TEST(server_that_stops_meanwhile_ends_when_the_work_has_ended),
		TEST(server_that_drains_meanwhile_lets_the_work_end),
		cmocka_unit_test_setup_teardown(undo_before_a_last_checkpoint_holds_up_nobody_else, setup_keeping,
						teardown_keeping),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
