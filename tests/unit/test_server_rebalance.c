/* SPDX-License-Identifier: Apache-2.0
 *
 * Two real servers that share a folder of checkpoints (server/rebalance.h, PROTOCOL.md section 5.7): one has two sessions more
 * than the other, and sends that one away whose client has said that it goes on elsewhere, with everything that was committed.
 */
#include <poll.h>

#include "tests/unit/server_rig.h"

static char state_dir[64];
static struct fixture second; /* the other server, with the body of the first one's fixture */

static int setup_two(void **state)
{
	struct gp_server_settings set = server_thread_settings();
	strcpy(state_dir, "/tmp/gp_even_XXXXXX");
	if (!mkdtemp(state_dir))
		return -1;
	set.state_dir = state_dir;
	set.state_max_bytes = 1 << 30;
	set.lease_s = 12; /* a disk that is busy elsewhere holds up its renewal */
	set.rebalance_s = 0.1;
	set.resume_window_s = 600;
	set.idle_timeout_s = 600;
	set.step_timeout_s = 600;
	set.advertise = "127.0.0.1:7";
	const int status = setup_with(state, &set);
	const struct fixture *first = *state;
	second.server = server_thread_start_with(&set);
	second.port = second.server->port;
	second.body = first->body;
	return status;
}

static int teardown_two(void **state)
{
	char command[128];
	server_thread_stop(second.server);
	teardown(state);
	snprintf(command, sizeof command, "rm -rf '%s'", state_dir);
	return system(command);
}

struct client {
	struct raw_peer peer;
	uint8_t run_id[GP_RUN_ID_BYTES];
	bool moves;
	uint64_t steps; /* committed */
};

/* The answer to the HELLO of a client that could go on from the step that it is at, and from the start. */
static Gpsplit__Control *say_hello(struct client *c, const struct fixture *f)
{
	Gpsplit__Hello hello = GPSPLIT__HELLO__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	uint64_t list[] = {c->steps, 0};
	client_connect(&c->peer, f);
	put_preface(&c->peer);
	hello.version = GP_PROTO_VERSION;
	hello.run_id = (ProtobufCBinaryData){sizeof c->run_id, c->run_id};
	hello.checkpoint = list;
	hello.n_checkpoint = c->steps > 0 ? 2 : 1;
	hello.moves = c->moves;
	m.body_case = GPSPLIT__CONTROL__BODY_HELLO;
	m.hello = &hello;
	put_control(&c->peer, &m);
	Gpsplit__Control *answer = get_control(&c->peer);
	assert_non_null(answer);
	return answer;
}

/* Until that server has the run; the checkpoint that it names. */
static uint64_t until_named(struct client *c, const struct fixture *f)
{
	const uint64_t begin_ns = gp_now_ns();
	for (;;) {
		Gpsplit__Control *m = say_hello(c, f);
		if (m->body_case == GPSPLIT__CONTROL__BODY_WELCOME) {
			const uint64_t named = m->welcome->checkpoint;
			c->peer.session = m->welcome->session;
			gpsplit__control__free_unpacked(m, NULL);
			return named;
		}
		assert_int_equal(m->body_case, GPSPLIT__CONTROL__BODY_ERROR);
		assert_int_equal(m->error->code, GP_BUSY);
		gpsplit__control__free_unpacked(m, NULL);
		client_close(&c->peer);
		assert_true(gp_now_ns() - begin_ns < 120000000000ull);
		usleep(50000);
	}
}

static void commit(struct client *c, bool checkpoint)
{
	Gpsplit__Commit message = GPSPLIT__COMMIT__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	message.step = c->steps;
	message.lr = 0.1f;
	message.checkpoint = checkpoint;
	m.body_case = GPSPLIT__CONTROL__BODY_COMMIT;
	m.commit = &message;
	put_control(&c->peer, &m);
	expect_control(&c->peer, GPSPLIT__CONTROL__BODY_COMMITTED);
	c->steps++;
}

/* The first one asks for a checkpoint. */
static void make_step(struct client *c, const struct fixture *f)
{
	const uint32_t act = (uint32_t)(2 * gp_shape_elements(gp_graph_input_shape(f->body)) * sizeof(float));
	const uint32_t grad = (uint32_t)(2 * gp_shape_elements(gp_graph_output_shape(f->body)) * sizeof(float));
	for (uint32_t chunk = 0; chunk < 2; chunk++)
		put_frame(&c->peer, GP_FRAME_ACT_UP, c->steps, chunk, act, true);
	get_answers(&c->peer, 2, 0);
	for (uint32_t chunk = 0; chunk < 2; chunk++)
		put_frame(&c->peer, GP_FRAME_GRAD_UP, c->steps, chunk, grad, true);
	get_answers(&c->peer, 2, 0);
	commit(c, c->steps == 0);
}

static struct client open_run(const struct fixture *f, uint8_t number, bool moves)
{
	struct client c = {.run_id = {0xee, number}, .moves = moves};
	assert_int_equal(until_named(&c, f), 0);
	put_open(&c.peer, f->body, NULL);
	expect_control(&c.peer, GPSPLIT__CONTROL__BODY_READY);
	return c;
}

#define PATIENCE_NS UINT64_C(10000000000)

/* A message that follows at once; NULL: none does. Heartbeats come all the time. */
static Gpsplit__Control *control_that_follows(struct client *c)
{
	const uint64_t begin_ns = gp_now_ns();
	struct pollfd p = {.fd = c->peer.fd, .events = POLLIN};
	uint8_t bytes[GP_RECORD_HEADER_BYTES];
	struct gp_record_head h;
	struct gp_err err;
	while (gp_now_ns() - begin_ns < PATIENCE_NS && poll(&p, 1, (int)(PATIENCE_NS / 1000000)) > 0) {
		assert_true(get(&c->peer, bytes, sizeof bytes));
		assert_int_equal(gp_record_head_read(bytes, &h, &err), GP_OK);
		assert_true(h.len <= c->peer.body_cap && get(&c->peer, c->peer.body, h.len));
		if (h.kind == GP_RECORD_CONTROL)
			return gpsplit__control__unpack(NULL, h.len, c->peer.body);
	}
	return NULL;
}

static bool is_sent_away(struct client *c)
{
	Gpsplit__Control *m = control_that_follows(c);
	if (!m)
		return false;
	assert_true(m->body_case == GPSPLIT__CONTROL__BODY_ERROR);
	assert_int_equal(m->error->code, GP_CANCELED);
	assert_non_null(strstr(m->error->text, "this one is to go on at another"));
	assert_int_equal(m->error->n_servers, 1);
	assert_string_equal(m->error->servers[0], "127.0.0.1:7");
	gpsplit__control__free_unpacked(m, NULL);
	return true;
}

/* One of the two goes, at the end of a step. */
static void until_sent_away(struct client *goes, struct client *stays, const struct fixture *f)
{
	const uint64_t begin_ns = gp_now_ns();
	do {
		assert_true(gp_now_ns() - begin_ns < 300000000000ull);
		make_step(stays, f);
		make_step(goes, f);
	} while (!is_sent_away(goes));
	client_close(&goes->peer);
}

static void who_says_that_it_moves_is_sent_to_the_emptier_server(void **state)
{
	const struct fixture *f = *state;
	struct client stays = open_run(f, 1, false), goes = open_run(f, 2, true);
	until_sent_away(&goes, &stays, f);
	assert_int_equal(until_named(&goes, &second), goes.steps); /* not that of the checkpoint it had asked for */
	make_step(&stays, f);
	client_close(&goes.peer);
	client_close(&stays.peer);
}

/* A balancer may lead it back to the server that it comes from, which may be writing still. */
static void who_comes_straight_back_loses_no_step(void **state)
{
	const struct fixture *f = *state;
	struct client stays = open_run(f, 3, false), goes = open_run(f, 4, true);
	until_sent_away(&goes, &stays, f);
	assert_int_equal(until_named(&goes, f), goes.steps);
	client_close(&goes.peer);
	client_close(&stays.peer);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup_two, teardown_two)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(who_says_that_it_moves_is_sent_to_the_emptier_server),
		TEST(who_comes_straight_back_loses_no_step),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
