/* SPDX-License-Identifier: Apache-2.0
 *
 * A real server whose folder of checkpoints answers as late as this test wants:
 * a call is held until another session has made steps, so a server that waits for the disk
 * on its loop thread never gets there. Calls are held by a gate around what
 * server/state_dir.c asks of common/store/checkpoint.h (linked with --wrap).
 */
#include "tests/unit/gate.h"
#include "tests/unit/site_rig.h"

#include "server/state_dir.h"

enum gp_status __real_gp_checkpoint_peek(const char *dir, uint64_t step, struct gp_manifest *out, struct gp_err *err);
enum gp_status __wrap_gp_checkpoint_peek(const char *dir, uint64_t step, struct gp_manifest *out, struct gp_err *err);
enum gp_status __real_gp_checkpoint_drop_after_via(const char *dir, const char *work, uint64_t step,
						   struct gp_err *err);
enum gp_status __wrap_gp_checkpoint_drop_after_via(const char *dir, const char *work, uint64_t step,
						   struct gp_err *err);

static char state_dir[64];
static const char *shown_token = ""; /* by clients of a run */
static const uint8_t run_id[GP_RUN_ID_BYTES] = {0xab, 0xcd}, old_run[GP_RUN_ID_BYTES] = {0xef};

/* --- the gate ---------------------------------------------------------------------------------------------------- */

enum held { MANIFESTS = 1, REMOVALS };

enum gp_status __wrap_gp_checkpoint_peek(const char *dir, uint64_t step, struct gp_manifest *out, struct gp_err *err)
{
	gate_pass(MANIFESTS);
	return __real_gp_checkpoint_peek(dir, step, out, err);
}

/* Every step above 0: a run whose checkpoints go. A write, too, asks for those above its own. */
enum gp_status __wrap_gp_checkpoint_drop_after_via(const char *dir, const char *work, uint64_t step, struct gp_err *err)
{
	if (step == 0)
		gate_pass(REMOVALS);
	return __real_gp_checkpoint_drop_after_via(dir, work, step, err);
}

/* --- the server and its clients ---------------------------------------------------------------------------------- */

static int setup_keeping_at_most(void **state, uint64_t bytes)
{
	struct gp_server_settings set = server_thread_settings();
	strcpy(state_dir, "/tmp/gp_slow_XXXXXX");
	if (!mkdtemp(state_dir))
		return -1;
	set.state_dir = state_dir;
	set.state_max_bytes = (int64_t)bytes;
	return setup_with(state, &set);
}

static int setup_keeping(void **state)
{
	return setup_keeping_at_most(state, 1 << 30);
}

/* Room for one checkpoint of the body (parameters and momentum), and not for the old run's beside it. */
static int setup_keeping_one(void **state)
{
	struct gp_graph *body = make_body();
	const uint64_t bytes = 2 * body->param_elements * sizeof(float);
	gp_graph_free(body);
	return setup_keeping_at_most(state, bytes + (1 << 14));
}

static int setup_keeping_names(void **state)
{
	struct gp_server_settings set = server_thread_settings();
	const int file = mkstemp(token_path);
	strcpy(state_dir, "/tmp/gp_slow_XXXXXX");
	if (file < 0 || !mkdtemp(state_dir))
		return -1;
	close(file);
	write_tokens("edge-1 " ONE "\nedge-2 " TWO "\n");
	set.tokens = token_path;
	set.state_dir = state_dir;
	set.state_max_bytes = 1 << 30;
	shown_token = ONE;
	return setup_with(state, &set);
}

static int teardown_keeping(void **state)
{
	char command[128];
	gate_set(GATE_OPEN);
	teardown(state);
	snprintf(command, sizeof command, "rm -rf '%s'", state_dir);
	return system(command);
}

static int teardown_keeping_names(void **state)
{
	shown_token = "";
	unlink(token_path);
	return teardown_keeping(state);
}

static void put_hello_of(struct raw_peer *c, const struct fixture *f, const uint8_t run[GP_RUN_ID_BYTES],
			 uint64_t *checkpoint, size_t count)
{
	Gpsplit__Hello hello = GPSPLIT__HELLO__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	client_connect(c, f);
	put_preface(c);
	hello.version = GP_PROTO_VERSION;
	hello.token = (ProtobufCBinaryData){strlen(shown_token), (uint8_t *)shown_token};
	hello.run_id = (ProtobufCBinaryData){GP_RUN_ID_BYTES, (uint8_t *)run};
	hello.checkpoint = checkpoint;
	hello.n_checkpoint = count;
	m.body_case = GPSPLIT__CONTROL__BODY_HELLO;
	m.hello = &hello;
	put_control(c, &m);
}

static void put_hello_of_run(struct raw_peer *c, const struct fixture *f, uint64_t *checkpoint, size_t count)
{
	put_hello_of(c, f, run_id, checkpoint, count);
}

static uint64_t get_welcome(struct raw_peer *c)
{
	Gpsplit__Control *m = get_control(c);
	assert_true(m && m->body_case == GPSPLIT__CONTROL__BODY_WELCOME);
	const uint64_t stored = m->welcome->checkpoint;
	c->session = m->welcome->session;
	gpsplit__control__free_unpacked(m, NULL);
	return stored;
}

static void put_commit_that_keeps(struct raw_peer *c)
{
	Gpsplit__Commit commit = GPSPLIT__COMMIT__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	commit.lr = 0.1f;
	commit.checkpoint = true;
	m.body_case = GPSPLIT__CONTROL__BODY_COMMIT;
	m.commit = &commit;
	put_control(c, &m);
}

static void expect_kept(struct raw_peer *c)
{
	Gpsplit__Control *m = get_control(c);
	assert_true(m && m->body_case == GPSPLIT__CONTROL__BODY_COMMITTED);
	assert_string_equal(m->committed->checkpoint_error, "");
	gpsplit__control__free_unpacked(m, NULL);
}

/* A session of the run up to its first step, whose checkpoint is asked for. */
static void put_first_step(struct raw_peer *c, const struct fixture *f)
{
	put_hello_of_run(c, f, (uint64_t[]){0}, 1);
	assert_int_equal(get_welcome(c), 0);
	put_open(c, f->body, NULL);
	expect_control(c, GPSPLIT__CONTROL__BODY_READY);
	put_step(c, f);
	get_answers(c, 2, 0);
	put_commit_that_keeps(c);
}

static void keep_step_1(const struct fixture *f)
{
	struct raw_peer c;
	put_first_step(&c, f);
	expect_kept(&c);
	client_close(&c);
}

static void restore_step_1(Gpsplit__Open *o)
{
	o->restore_step = 1;
}

/* --- tests ------------------------------------------------------------------------------------------------------- */

static void hello_that_waits_for_the_disk_holds_up_nobody_else(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c;
	keep_step_1(f);
	gate_set(MANIFESTS);
	put_hello_of_run(&c, f, (uint64_t[]){1, 0}, 2);
	gate_until_somebody_waits();
	another_session_makes_a_step(f);
	gate_set(GATE_OPEN);
	assert_int_equal(get_welcome(&c), 1);
	client_close(&c);
}

static void open_that_waits_for_the_disk_holds_up_nobody_else(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c;
	keep_step_1(f);
	put_hello_of_run(&c, f, (uint64_t[]){1, 0}, 2);
	assert_int_equal(get_welcome(&c), 1);
	gate_set(MANIFESTS);
	put_open(&c, f->body, restore_step_1);
	gate_until_somebody_waits();
	another_session_makes_a_step(f);
	gate_set(GATE_OPEN);
	expect_control(&c, GPSPLIT__CONTROL__BODY_READY);
	client_close(&c);
}

static void client_that_leaves_while_its_manifests_are_read_leaves_nothing(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c;
	keep_step_1(f);
	gate_set(MANIFESTS);
	put_hello_of_run(&c, f, (uint64_t[]){1, 0}, 2);
	gate_until_somebody_waits();
	client_close(&c);
	another_session_makes_a_step(f); /* by then the server has seen that the other has gone */
	gate_set(GATE_OPEN);
	put_hello_of_run(&c, f, (uint64_t[]){1, 0}, 2);
	assert_int_equal(get_welcome(&c), 1);
	gate_set(MANIFESTS);
	put_open(&c, f->body, restore_step_1);
	gate_until_somebody_waits();
	client_close(&c);
	another_session_makes_a_step(f);
	gate_set(GATE_OPEN);
	still_serves(f);
}

/* Whether a new client is told that too many sessions are ending. */
static bool too_many_are_ending(const struct fixture *f)
{
	struct raw_peer c;
	client_connect(&c, f);
	put_preface(&c);
	put_hello_with(&c, shown_token);
	Gpsplit__Control *m = get_control(&c);
	assert_non_null(m);
	const bool is_error = m->body_case == GPSPLIT__CONTROL__BODY_ERROR;
	const bool told = is_error && strstr(m->error->text, "busy with sessions that have ended");
	assert_true(!is_error || m->error->code == GP_BUSY);
	gpsplit__control__free_unpacked(m, NULL);
	client_close(&c);
	return told;
}

/* Else each of them would take memory until the disk answers. */
static void clients_that_come_and_leave_while_the_disk_stands_still_are_bounded(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c;
	keep_step_1(f);
	gate_set(MANIFESTS);
	for (int i = 0; !too_many_are_ending(f); i++) {
		assert_true(i < 20000);
		put_hello_of_run(&c, f, (uint64_t[]){1, 0}, 2);
		client_close(&c);
	}
	gate_set(GATE_OPEN);
	still_serves(f);
}

/* Else one name could leave so many that nobody else gets one. */
static void what_one_name_leaves_while_the_disk_stands_still_keeps_no_other_name_out(void **state)
{
	const struct fixture *f = *state;
	const struct site s = {.f = *f};
	struct raw_peer c;
	keep_step_1(f);
	gate_set(MANIFESTS);
	for (int i = 0; !too_many_are_ending(f); i++) {
		assert_true(i < 20000);
		put_hello_of_run(&c, f, (uint64_t[]){1, 0}, 2);
		client_close(&c);
	}
	open_session(&c, &s, TWO);
	put_step(&c, f);
	get_answers(&c, 2, 0);
	client_close(&c);
	gate_set(GATE_OPEN);
	bool welcome = false; /* the name itself is let in again, some time later */
	for (int i = 0; !welcome; i++) {
		assert_true(i < 20000);
		put_hello_of_run(&c, f, (uint64_t[]){1, 0}, 2);
		Gpsplit__Control *m = get_control(&c);
		assert_non_null(m);
		welcome = m->body_case == GPSPLIT__CONTROL__BODY_WELCOME;
		assert_true(welcome || (m->body_case == GPSPLIT__CONTROL__BODY_ERROR && m->error->code == GP_BUSY));
		gpsplit__control__free_unpacked(m, NULL);
		client_close(&c);
	}
}

/* Nor does it take OPEN before it has said WELCOME. */
static void message_that_comes_before_welcome_ends_the_session(void **state)
{
	const struct fixture *f = *state;
	struct raw_peer c;
	keep_step_1(f);
	gate_set(MANIFESTS);
	put_hello_of_run(&c, f, (uint64_t[]){1, 0}, 2);
	gate_until_somebody_waits();
	put_open(&c, f->body, NULL);
	expect_error(&c, "not expected in state WELCOME");
	client_close(&c);
	gate_set(GATE_OPEN);
	still_serves(f);
}

static void keep_of_old_run(const struct fixture *f)
{
	static const float value[4096];
	const struct gp_pairs none = {.count = 0};
	const struct gp_st_item item = {"param.a", {.ndim = 1, .dim = {4096}}, value, GP_ST_F32};
	struct gp_err err;
	if (gp_state_dir_write(f->server->server.state, old_run, 1, &none, &item, 1, GP_CHECKPOINTS_STAY, &err) !=
	    GP_OK)
		fail_msg("%s", err.text);
}

/* Not even for the list of runs: another client with checkpoints comes and leaves meanwhile, and is in that list. */
static void removal_that_takes_long_holds_up_nobody_else(void **state)
{
	static const uint8_t other_run[GP_RUN_ID_BYTES] = {0x77};
	const struct fixture *f = *state;
	struct raw_peer writer, leaver, stayer;
	keep_of_old_run(f);
	gate_set(REMOVALS);
	put_first_step(&writer, f);
	gate_until_somebody_waits();
	put_hello_of(&leaver, f, other_run, (uint64_t[]){3, 0}, 2);
	another_session_makes_a_step(f);
	client_close(&leaver);
	put_hello_of(&stayer, f, old_run, (uint64_t[]){1, 0}, 2); /* its checkpoint is the one that goes */
	another_session_makes_a_step(f);
	gate_set(GATE_OPEN);
	expect_kept(&writer);
	assert_int_equal(get_welcome(&stayer), 0);
	client_close(&stayer);
	client_close(&writer);
}

#define TEST(test, setup) cmocka_unit_test_setup_teardown(test, setup, teardown_keeping)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(hello_that_waits_for_the_disk_holds_up_nobody_else, setup_keeping),
		TEST(open_that_waits_for_the_disk_holds_up_nobody_else, setup_keeping),
		TEST(client_that_leaves_while_its_manifests_are_read_leaves_nothing, setup_keeping),
		TEST(clients_that_come_and_leave_while_the_disk_stands_still_are_bounded, setup_keeping),
		cmocka_unit_test_setup_teardown(
			what_one_name_leaves_while_the_disk_stands_still_keeps_no_other_name_out, setup_keeping_names,
			teardown_keeping_names),
		TEST(message_that_comes_before_welcome_ends_the_session, setup_keeping),
		TEST(removal_that_takes_long_holds_up_nobody_else, setup_keeping_one),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
