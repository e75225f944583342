/* SPDX-License-Identifier: Apache-2.0
 *
 * A real server and a run's checkpoints (PROTOCOL.md section 5.7): what WELCOME
 * names, what OPEN may go on from, and what becomes of those that do not fit.
 */
#include "tests/unit/server_rig.h"
#include "tests/unit/lose_tensor.h"

#include "server/state_dir.h"

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

static void a_checkpoint_that_lacks_a_part_is_put_out_of_the_way(void **state)
{
	const struct fixture *f = *state;
	char param[GP_NAME_MAX + 8];
	snprintf(param, sizeof param, "param.%s", f->body->param[0].name);
	const char *const missing[] = {param, "codec.grad_up.0"};
	for (int i = 0; i < 2; i++) {
		struct raw_peer c;
		run_a_step_and_keep(f);
		lose_tensor(state_dir, run_id, 1, missing[i]);
		assert_int_equal(welcome_of_run(&c, f, (uint64_t[]){1, 0}, 2), 1);
		put_open(&c, f->body, restore_step_1);
		Gpsplit__Control *m = get_control(&c);
		assert_true(m && m->body_case == GPSPLIT__CONTROL__BODY_ERROR);
		assert_int_equal(m->error->code, GP_CANCELED);
		assert_non_null(strstr(m->error->text, "the checkpoint of step 1 does not load"));
		gpsplit__control__free_unpacked(m, NULL);
		client_close(&c);
		assert_int_equal(welcome_of_run(&c, f, (uint64_t[]){1, 0}, 2), 0);
		client_close(&c);
	}
	still_serves(f);
}

static enum gp_status keep_of_another_run(const struct fixture *f)
{
	static const uint8_t other[GP_RUN_ID_BYTES] = {0xef};
	static const float value[OTHER_VALUES];
	const struct gp_pairs none = {.count = 0};
	const struct gp_st_item item = {"param.a", {.ndim = 1, .dim = {OTHER_VALUES}}, value, GP_ST_F32};
	struct gp_err err;
	return gp_state_dir_write(f->server->server.state, other, 1, &none, &item, 1, GP_CHECKPOINTS_STAY, &err);
}

/* The folder has room for the checkpoint of one run. */
static void what_welcome_named_makes_no_room_before_open(void **state)
{
	const struct fixture *f = *state;
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
	const uint64_t begin_ns = gp_now_ns();
	while (keep_of_another_run(f) != GP_OK) { /* as soon as nobody has it any more */
		assert_true(gp_now_ns() - begin_ns < 300000000000ull);
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
		cmocka_unit_test_setup_teardown(a_run_goes_on_from_the_checkpoint_that_was_asked_for, setup_keeping,
						teardown_keeping),
		cmocka_unit_test_setup_teardown(a_checkpoint_that_does_not_fit_is_refused_with_the_reason,
						setup_keeping, teardown_keeping),
		cmocka_unit_test_setup_teardown(a_checkpoint_whose_codecs_remember_something_else_is_put_out_of_the_way,
						setup_keeping, teardown_keeping),
		cmocka_unit_test_setup_teardown(a_checkpoint_that_lacks_a_part_is_put_out_of_the_way, setup_keeping,
						teardown_keeping),
		cmocka_unit_test_setup_teardown(what_welcome_named_makes_no_room_before_open, setup_keeping_one,
						teardown_keeping),
		cmocka_unit_test_setup_teardown(too_many_checkpoints_in_hello_are_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(a_server_without_a_state_dir_says_that_nothing_is_kept, setup,
						teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
