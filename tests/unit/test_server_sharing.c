/* SPDX-License-Identifier: Apache-2.0
 *
 * Two real servers that share a folder of checkpoints (server/handover.h, PROTOCOL.md section 5.7): whose a run's client is
 * told to be, and what becomes of a session that its server loses, or hands over.
 */
#include "tests/unit/gate.h"
#include "tests/unit/server_rig.h"

#include "server/state_dir.h"

static char state_dir[64];
static const uint8_t run_id[GP_RUN_ID_BYTES] = {0xab, 0xcd};
static struct fixture second; /* the other server, with the body of the first one's fixture */

enum held { WRITES = 1 };

enum gp_status __real_gp_checkpoint_write_via(const char *dir, const char *work, const struct gp_manifest *m,
					      const struct gp_st_item *items, int count, uint64_t *bytes,
					      struct gp_err *err);
enum gp_status __wrap_gp_checkpoint_write_via(const char *dir, const char *work, const struct gp_manifest *m,
					      const struct gp_st_item *items, int count, uint64_t *bytes,
					      struct gp_err *err);

/* Writing a checkpoint is held by a gate (linked with --wrap). */
enum gp_status __wrap_gp_checkpoint_write_via(const char *dir, const char *work, const struct gp_manifest *m,
					      const struct gp_st_item *items, int count, uint64_t *bytes,
					      struct gp_err *err)
{
	gate_pass(WRITES);
	return __real_gp_checkpoint_write_via(dir, work, m, items, count, bytes, err);
}

static int setup_two(void **state)
{
	struct gp_server_settings set = server_thread_settings();
	strcpy(state_dir, "/tmp/gp_two_XXXXXX");
	if (!mkdtemp(state_dir))
		return -1;
	set.state_dir = state_dir;
	set.state_max_bytes = 1 << 30;
	set.resume_window_s = 600;
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
	gate_set(GATE_OPEN);
	server_thread_stop(second.server);
	teardown(state);
	snprintf(command, sizeof command, "rm -rf '%s'", state_dir);
	return system(command);
}

/* The answer to the HELLO of a client that could go on from steps 1 and 0. */
static Gpsplit__Control *say_hello(struct raw_peer *c, const struct fixture *f)
{
	Gpsplit__Hello hello = GPSPLIT__HELLO__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	uint64_t list[] = {1, 0};
	client_connect(c, f);
	put_preface(c);
	hello.version = GP_PROTO_VERSION;
	hello.run_id = (ProtobufCBinaryData){sizeof run_id, (uint8_t *)run_id};
	hello.checkpoint = list;
	hello.n_checkpoint = 2;
	m.body_case = GPSPLIT__CONTROL__BODY_HELLO;
	m.hello = &hello;
	put_control(c, &m);
	Gpsplit__Control *answer = get_control(c);
	assert_non_null(answer);
	return answer;
}

static void expect_busy(struct raw_peer *c, const struct fixture *f, const char *text)
{
	Gpsplit__Control *m = say_hello(c, f);
	assert_true(m->body_case == GPSPLIT__CONTROL__BODY_ERROR && m->error->code == GP_BUSY);
	assert_non_null(strstr(m->error->text, text));
	gpsplit__control__free_unpacked(m, NULL);
	client_close(c);
}

/* Until that server has the run; the checkpoint that it names. `busy` (optional): how often it had not. */
static uint64_t until_welcome_of_run(struct raw_peer *c, const struct fixture *f, int *busy)
{
	const uint64_t begin_ns = gp_now_ns();
	for (int n = 0;; n++) {
		Gpsplit__Control *m = say_hello(c, f);
		if (m->body_case == GPSPLIT__CONTROL__BODY_WELCOME) {
			const uint64_t named = m->welcome->checkpoint;
			c->session = m->welcome->session;
			gpsplit__control__free_unpacked(m, NULL);
			if (busy)
				*busy = n;
			return named;
		}
		assert_int_equal(m->body_case, GPSPLIT__CONTROL__BODY_ERROR);
		assert_int_equal(m->error->code, GP_BUSY);
		assert_true(m->error->retry_ms > 0);
		assert_non_null(strstr(m->error->text, "which shares this one's --state-dir, has the run"));
		gpsplit__control__free_unpacked(m, NULL);
		client_close(c);
		assert_true(gp_now_ns() - begin_ns < 120000000000ull);
		usleep(100000);
	}
}

/* One step without a checkpoint. */
static void open_and_step(struct raw_peer *c, const struct fixture *f)
{
	assert_int_equal(until_welcome_of_run(c, f, NULL), 0);
	put_open(c, f->body, NULL);
	expect_control(c, GPSPLIT__CONTROL__BODY_READY);
	put_step(c, f);
	get_answers(c, 2, 0);
	put_commit(c, 0, 0.1f);
	expect_control(c, GPSPLIT__CONTROL__BODY_COMMITTED);
}

static void restore_step_1(Gpsplit__Open *o)
{
	o->restore_step = 1;
}

static void a_parked_session_is_written_and_handed_to_where_its_client_is(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c;
	int busy;
	open_and_step(&c, f);
	client_close(&c);
	assert_int_equal(until_welcome_of_run(&c, &second, &busy),
			 1); /* the last commit, of which there was no checkpoint */
	assert_true(busy > 0);
	put_open(&c, second.body, restore_step_1);
	expect_control(&c, GPSPLIT__CONTROL__BODY_READY);
	client_close(&c);
}

/* Its link flaps: it has asked the other server, whose wish is being granted, and comes back before the state is written. */
static void who_comes_back_during_the_handover_loses_no_step(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c, elsewhere, back;
	open_and_step(&c, f);
	gate_set(WRITES);
	client_close(&c);
	expect_busy(&elsewhere, &second, "has the run");
	gate_until_somebody_waits();
	expect_busy(&back, f, "the run goes to another server, and its state is being written");
	gate_set(GATE_OPEN);
	assert_int_equal(until_welcome_of_run(&elsewhere, &second, NULL), 1);
	client_close(&elsewhere);
}

/* The first server's client is connected still, and somebody who knows the run asks the second one again and again. */
static void a_connected_client_is_told_that_its_run_was_taken_over(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c, other;
	open_and_step(&c, f);
	assert_int_equal(until_welcome_of_run(&other, &second, NULL), 1);
	Gpsplit__Control *m = get_control(&c);
	assert_true(m && m->body_case == GPSPLIT__CONTROL__BODY_ERROR);
	assert_int_equal(m->error->code, GP_DENIED);
	assert_non_null(strstr(m->error->text, "another client has taken this run over"));
	gpsplit__control__free_unpacked(m, NULL);
	client_close(&c);
	client_close(&other);
}

/* What it asked for once, before it came back to its server, costs it nothing. */
static void one_wish_does_not_cost_a_connected_client_its_session(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c, elsewhere;
	const uint32_t act = (uint32_t)(2 * gp_shape_elements(gp_graph_input_shape(f->body)) * sizeof(float));
	open_and_step(&c, f);
	expect_busy(&elsewhere, &second, "has the run");
	const uint64_t begin_ns = gp_now_ns();
	while (gp_state_dir_wants(f->server->server.state, run_id) == 0) {
		assert_true(gp_now_ns() - begin_ns < 120000000000ull);
		usleep(10000);
	}
	put_frame(&c, GP_FRAME_ACT_UP, 1, 0, act, true);
	get_answers(&c, 1, 0);
	another_session_makes_a_step(f); /* which takes its time, as looking at the sessions does */
	put_frame(&c, GP_FRAME_ACT_UP, 1, 1, act, true);
	get_answers(&c, 1, 0);
	client_close(&c);
}

/* As after SIGSTOP for longer than --lease: others have taken it for dead, and it finds so. */
static void a_server_that_has_lost_its_leases_ends_the_sessions_of_runs(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c, again;
	char command[160];
	struct gp_state_figures first;
	open_and_step(&c, f);
	gp_state_dir_figures(f->server->server.state, &first);
	snprintf(command, sizeof command, "rm -r '%s/servers/%s'", state_dir, first.owner);
	assert_int_equal(system(command), 0);
	Gpsplit__Control *m = get_control(&c);
	assert_true(m && m->body_case == GPSPLIT__CONTROL__BODY_ERROR);
	assert_int_equal(m->error->code, GP_CANCELED);
	assert_non_null(strstr(m->error->text, "could not renew its lease of the run"));
	gpsplit__control__free_unpacked(m, NULL);
	client_close(&c);
	assert_int_equal(until_welcome_of_run(&again, &second, NULL), 0); /* nothing was written */
	client_close(&again);
	still_serves(f);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup_two, teardown_two)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_parked_session_is_written_and_handed_to_where_its_client_is),
		TEST(who_comes_back_during_the_handover_loses_no_step),
		TEST(a_connected_client_is_told_that_its_run_was_taken_over),
		TEST(one_wish_does_not_cost_a_connected_client_its_session),
		TEST(a_server_that_has_lost_its_leases_ends_the_sessions_of_runs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
