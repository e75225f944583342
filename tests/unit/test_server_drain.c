/* SPDX-License-Identifier: Apache-2.0
 *
 * A real server that is told to stop (gp_server_drain; PROTOCOL.md sections 5.5 and 5.7): what it still does for the
 * sessions that it has, what it answers to clients that come, and which checkpoints it leaves behind.
 */
#include "tests/unit/server_rig.h"

#include <stdlib.h>

#include "common/net/token.h"
#include "server/state_dir.h"

static char state_dir[64];
static const uint8_t run_id[GP_RUN_ID_BYTES] = {0xab, 0xcd};

static int setup_keeping(void **state)
{
	struct gp_server_settings set = server_thread_settings();
	strcpy(state_dir, "/tmp/gp_drain_XXXXXX");
	if (!mkdtemp(state_dir))
		return -1;
	set.state_dir = state_dir;
	set.state_max_bytes = 1 << 30;
	set.resume_window_s = 60;
	set.max_sessions = 64; /* those that were asked for until the server drained may be parked */
	return setup_with(state, &set);
}

static int teardown_keeping(void **state)
{
	char command[128];
	teardown(state);
	snprintf(command, sizeof command, "rm -rf '%s'", state_dir);
	return system(command);
}

/* How a client says who it is: at step `step` of the run, with a token or without. */
struct hello {
	uint64_t step;
	uint8_t token[GP_TOKEN_BYTES];
	size_t token_len;
};

static Gpsplit__Control *say_hello(struct raw_peer *c, const struct fixture *f, const struct hello *h)
{
	Gpsplit__Hello hello = GPSPLIT__HELLO__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	const uint8_t none[32] = {0};
	uint64_t from_start = 0;
	client_connect(c, f);
	put_preface(c);
	hello.version = GP_PROTO_VERSION;
	hello.run_id = (ProtobufCBinaryData){sizeof run_id, (uint8_t *)run_id};
	hello.checkpoint = &from_start;
	hello.n_checkpoint = 1;
	hello.last_step = h->step;
	hello.resume_token = (ProtobufCBinaryData){h->token_len, (uint8_t *)h->token};
	hello.state_hash = gp_frame_checksum(none, sizeof none); /* raw codecs remember nothing */
	m.body_case = GPSPLIT__CONTROL__BODY_HELLO;
	m.hello = &hello;
	put_control(c, &m);
	Gpsplit__Control *answer = get_control(c);
	assert_non_null(answer);
	return answer;
}

/* The token for coming back is in *back. */
static void welcome(struct raw_peer *c, const struct fixture *f, const struct hello *h, bool resumed,
		    struct hello *back)
{
	Gpsplit__Control *m = say_hello(c, f, h);
	if (m->body_case != GPSPLIT__CONTROL__BODY_WELCOME)
		fail_msg("got %s", gp_control_name(m));
	assert_int_equal(m->welcome->resumed, resumed);
	c->session = m->welcome->session;
	assert_int_equal(m->welcome->resume_token.len, GP_TOKEN_BYTES);
	*back = (struct hello){.token_len = GP_TOKEN_BYTES};
	memcpy(back->token, m->welcome->resume_token.data, GP_TOKEN_BYTES);
	gpsplit__control__free_unpacked(m, NULL);
}

static void open_run(struct raw_peer *c, const struct fixture *f, struct hello *back)
{
	welcome(c, f, &(struct hello){.step = 0}, false, back);
	put_open(c, f->body, NULL);
	expect_control(c, GPSPLIT__CONTROL__BODY_READY);
}

/* One that has just come is told to come later, and why. */
static bool is_turned_away(const struct fixture *f)
{
	struct raw_peer c;
	client_connect(&c, f);
	put_preface(&c);
	put_hello(&c, GP_PROTO_VERSION);
	Gpsplit__Control *m = get_control(&c);
	const bool away = m && m->body_case == GPSPLIT__CONTROL__BODY_ERROR;
	if (away) {
		assert_int_equal(m->error->code, GP_BUSY);
		assert_true(m->error->retry_ms > 0);
		assert_non_null(strstr(m->error->text, "the server is stopping"));
	}
	assert_non_null(m);
	gpsplit__control__free_unpacked(m, NULL);
	client_close(&c);
	return away;
}

/* The server takes the request on its own thread; whoever comes before that is still welcome. */
static void begin_drain(const struct fixture *f)
{
	server_thread_drain(f->server);
	for (int i = 0; i < 50 && !is_turned_away(f); i++)
		usleep(20000);
	assert_true(is_turned_away(f));
}

static void expect_canceled(struct raw_peer *c)
{
	Gpsplit__Control *m = get_control(c);
	assert_true(m && m->body_case == GPSPLIT__CONTROL__BODY_ERROR);
	assert_int_equal(m->error->code, GP_CANCELED);
	assert_string_equal(m->error->text, "the server is stopping");
	gpsplit__control__free_unpacked(m, NULL);
	client_close(c);
}

/* When the server has gone. */
static uint64_t newest_kept(void)
{
	const struct gp_state_limits limits = {
		.bytes = 1 << 30, .client_bytes = 1 << 30, .client_runs = GP_STATE_RUNS_MAX, .names = true};
	struct gp_state_dir *d;
	struct gp_err err;
	assert_int_equal(gp_state_dir_open(state_dir, &limits, &d, &err), GP_OK);
	uint64_t newest;
	assert_int_equal(gp_state_dir_common(d, run_id, (uint64_t[]){1, 2}, 2, &newest, &err), GP_OK);
	gp_state_dir_close(d);
	return newest;
}

static void a_step_under_way_may_end_and_its_state_is_written(void **state)
{
	struct fixture *f = *state;
	struct raw_peer c;
	struct hello back;
	open_run(&c, f, &back);
	put_step(&c, f);
	begin_drain(f);
	get_answers(&c, 2, 0);
	put_commit(&c, 0, 0.1f);
	expect_control(&c, GPSPLIT__CONTROL__BODY_COMMITTED);
	expect_canceled(&c);
	server_thread_join(f->server);
	assert_int_equal(f->server->server.fallen_back, 0);
	assert_int_equal(newest_kept(), 1);
}

static void a_session_between_two_steps_ends_at_once(void **state)
{
	struct fixture *f = *state;
	struct raw_peer c;
	struct hello back;
	open_run(&c, f, &back);
	put_step(&c, f);
	get_answers(&c, 2, 0);
	put_commit(&c, 0, 0.1f);
	expect_control(&c, GPSPLIT__CONTROL__BODY_COMMITTED);
	server_thread_drain(f->server);
	expect_canceled(&c);
	server_thread_join(f->server);
	assert_int_equal(newest_kept(), 1);
}

static void one_that_is_not_open_yet_is_told_to_come_later(void **state)
{
	struct fixture *f = *state;
	struct raw_peer c;
	struct hello back;
	welcome(&c, f, &(struct hello){.step = 0}, false, &back);
	server_thread_drain(f->server);
	Gpsplit__Control *m = get_control(&c);
	assert_true(m && m->body_case == GPSPLIT__CONTROL__BODY_ERROR);
	assert_int_equal(m->error->code, GP_BUSY);
	gpsplit__control__free_unpacked(m, NULL);
	client_close(&c);
	server_thread_join(f->server);
}

/* The link broke with COMMIT on its way: only its client can tell, so the session waits for it, and then both are at 1. */
static void a_commit_that_a_broken_link_lost_is_waited_for(void **state)
{
	struct fixture *f = *state;
	struct raw_peer c;
	struct hello back, again;
	open_run(&c, f, &back);
	put_step(&c, f);
	get_answers(&c, 2, 0);
	client_close(&c);
	begin_drain(f);
	back.step = 1;
	welcome(&c, f, &back, true, &again);
	put_commit(&c, 0, 0.1f);
	expect_control(&c, GPSPLIT__CONTROL__BODY_COMMITTED);
	expect_canceled(&c);
	server_thread_join(f->server);
	assert_int_equal(newest_kept(), 1);
}

/* The first step of two is committed; nobody ends the second one. */
static void a_step_that_nobody_ends_is_given_up_and_the_one_before_is_kept(void **state)
{
	struct fixture *f = *state;
	const uint32_t act = (uint32_t)(2 * gp_shape_elements(gp_graph_input_shape(f->body)) * sizeof(float));
	struct raw_peer c;
	struct hello back;
	open_run(&c, f, &back);
	put_step(&c, f);
	get_answers(&c, 2, 0);
	put_commit(&c, 0, 0.1f);
	expect_control(&c, GPSPLIT__CONTROL__BODY_COMMITTED);
	put_frame(&c, GP_FRAME_ACT_UP, 1, 0, act, true);
	get_answers(&c, 1, 0);
	begin_drain(f);
	server_thread_end(f->server);
	expect_canceled(&c);
	server_thread_join(f->server);
	assert_int_equal(f->server->server.fallen_back, 0);
	assert_int_equal(newest_kept(), 1);
}

/* Nothing can be written any more where the folder of the run should be. */
static void a_state_that_cannot_be_written_is_counted(void **state)
{
	struct fixture *f = *state;
	struct raw_peer c;
	struct hello back;
	char path[128], hex[GP_RUN_ID_HEX];
	gp_run_id_text(run_id, hex);
	snprintf(path, sizeof path, "%s/%s", state_dir, hex);
	FILE *in_the_way = fopen(path, "w");
	assert_non_null(in_the_way);
	fclose(in_the_way);
	open_run(&c, f, &back);
	put_step(&c, f);
	begin_drain(f);
	get_answers(&c, 2, 0);
	put_commit(&c, 0, 0.1f);
	expect_control(&c, GPSPLIT__CONTROL__BODY_COMMITTED);
	expect_canceled(&c);
	server_thread_join(f->server);
	assert_int_equal(f->server->server.fallen_back, 1);
}

int main(void)
{
#define KEEPING(test) cmocka_unit_test_setup_teardown(test, setup_keeping, teardown_keeping)
	const struct CMUnitTest tests[] = {
		KEEPING(a_step_under_way_may_end_and_its_state_is_written),
		KEEPING(a_session_between_two_steps_ends_at_once),
		KEEPING(one_that_is_not_open_yet_is_told_to_come_later),
		KEEPING(a_commit_that_a_broken_link_lost_is_waited_for),
		KEEPING(a_step_that_nobody_ends_is_given_up_and_the_one_before_is_kept),
		KEEPING(a_state_that_cannot_be_written_is_counted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
