/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints of a split run on both sides (PROTOCOL.md section 5.7), with a
 * real engine and a real server: each side knows what the other one has, also
 * when the answer was lost, and goes on from a pair that fits.
 */
#include "tests/unit/resume_rig.h"

#include <inttypes.h>

#include "tests/unit/cut_proxy.h"
#include "tests/unit/lose_tensor.h"

/* Two steps with a checkpoint after each. *newest is that of the client, *first_down the bytes of the first step. */
static enum gp_status run_with_checkpoints(const char *server, bool required, uint64_t *newest, uint64_t *first_down,
					   struct gp_err *err)
{
	char dir[] = "/tmp/gp_resume_XXXXXX", command[64];
	struct rig r;
	struct outcome o;
	struct gp_step_result result;
	struct gp_pairs spec = {.count = 0};
	assert_non_null(mkdtemp(dir));
	const struct gp_run_state_options options = {
		.dir = dir, .every = 1, .total_steps = 9, .required = required, .spec = &spec};
	expect_ok(gp_run_state_open(&options, &run_state, err), err);
	expect_ok(rig_init(&r, server, &raw_sgd, true, err), err);
	enum gp_status status = rig_step(&r, &result, err);
	note(&r, &o, 0);
	*first_down = o.down[0];
	if (status == GP_OK)
		status = rig_step(&r, &result, err);
	if (status == GP_OK)
		status = r.engine->ops->get_weights(r.engine, r.weights, err); /* settles */
	rig_deinit(&r);
	*newest = gp_run_state_newest(run_state);
	gp_run_state_close(run_state);
	run_state = NULL;
	snprintf(command, sizeof command, "rm -r '%s'", dir);
	assert_int_equal(system(command), 0);
	return status;
}

static struct server_thread *start_keeping_server(char dir[64], uint64_t bytes)
{
	struct gp_server_settings set = server_thread_settings();
	strcpy(dir, "/tmp/gp_resume_XXXXXX");
	assert_non_null(mkdtemp(dir));
	set.resume_window_s = 20;
	set.state_dir = dir;
	set.state_max_bytes = bytes;
	return server_thread_start_with(&set);
}

static void remove_folder(const char *dir)
{
	char command[128];
	snprintf(command, sizeof command, "rm -r '%s'", dir);
	assert_int_equal(system(command), 0);
}

/* Around the first COMMITTED. Returns how many runs lost it and were told by WELCOME that there is no checkpoint. */
static int cut_around_committed(struct server_thread *server, enum gp_status want, const char *words)
{
	static struct cut_proxy p;
	struct gp_err err = {0};
	uint64_t newest, down, ignored;
	int lost = 0;
	expect_ok(run_with_checkpoints(server->address, false, &newest, &down, &err), &err);
	for (int64_t back = -80; back <= 160; back += 8) {
		cut_proxy_start(&p, server->port,
				(struct cut_plan){.down = (uint64_t)((int64_t)down + back), .kind = CUT_END}, false);
		enum gp_status status = run_with_checkpoints(p.address, true, &newest, &ignored, &err);
		cut_proxy_stop(&p);
		if (status != want || (want != GP_OK && !strstr(err.text, words)))
			fail_msg("a cut %lld bytes from the end of a step: %s '%s'", (long long)back,
				 gp_status_name(status), status == GP_OK ? "" : err.text);
		assert_int_equal(newest, want == GP_OK ? 2 : 0);
		lost += status != GP_OK && strstr(err.text, "the link has lost");
	}
	return lost;
}

static void a_checkpoint_that_failed_is_known_though_the_answer_was_lost(void **state)
{
	(void)state;
	char dir[64];
	struct server_thread *server = start_keeping_server(dir, 1); /* no room for any */
	assert_true(cut_around_committed(server, GP_INVALID, "--checkpoint-required") > 0);
	server_thread_stop(server);
	remove_folder(dir);
}

static void calibrate(struct rig *r)
{
	struct gp_err err = {0};
	expect_ok(gp_loader_seek(r->loader, 0, 0, &err), &err);
	expect_ok(r->engine->ops->calibrate(r->engine, r->loader, 3, NULL, &err), &err);
}

/* The server ends, and another one goes on with what it has kept, but for checkpoints of step `lost` (0: none is lost). */
static void restart_server(struct server_thread **server, const char *dir, uint64_t lost)
{
	char command[128];
	static char address[32];
	struct gp_server_settings set = server_thread_settings();
	strcpy(address, (*server)->address);
	server_thread_drain(*server);
	server_thread_join(*server);
	server_thread_stop(*server);
	snprintf(command, sizeof command, "rm -rf '%s'/*/step-%012" PRIu64, dir, lost);
	assert_int_equal(system(command), 0);
	set.listen = address;
	set.resume_window_s = 20;
	set.state_dir = dir;
	set.state_max_bytes = 64 << 20;
	*server = server_thread_start_with(&set);
}

static void run_calibrated(bool disturbed, char sha[GP_SHA256_HEX])
{
	char dir[64], own[] = "/tmp/gp_resume_XXXXXX", address[32];
	struct server_thread *server = start_keeping_server(dir, 64 << 20);
	struct rig r;
	struct gp_step_result result;
	snprintf(address, sizeof address, "%s", server->address); /* of the server that comes after it, too */
	struct gp_pairs spec = {.count = 0};
	struct gp_err err = {0};
	assert_non_null(mkdtemp(own));
	const struct gp_run_state_options options = {.dir = own, .every = 2, .total_steps = 9, .spec = &spec};
	expect_ok(gp_run_state_open(&options, &run_state, &err), &err);
	expect_ok(rig_init(&r, address, &calibrated, true, &err), &err);
	expect_ok(rig_step(&r, &result, &err), &err);
	expect_ok(rig_step(&r, &result, &err), &err);
	calibrate(&r);
	if (disturbed) {
		restart_server(&server, dir, 0);
		assert_int_equal(rig_step(&r, &result, &err), GP_CANCELED);
		assert_true(r.engine->rewound && r.engine->steps == 2);
		calibrate(&r);
	}
	expect_ok(gp_loader_seek(r.loader, 0, 2, &err), &err);
	expect_ok(rig_step(&r, &result, &err), &err);
	expect_ok(r.engine->ops->get_weights(r.engine, r.weights, &err), &err);
	expect_ok(gp_weights_sha256(r.weights, sha, &err), &err);
	rig_deinit(&r);
	gp_run_state_close(run_state);
	run_state = NULL;
	server_thread_stop(server);
	remove_folder(dir);
	remove_folder(own);
}

static void statistics_taken_anew_are_asked_for_again_where_the_server_is_a_new_one(void **state)
{
	(void)state;
	char whole[GP_SHA256_HEX], disturbed[GP_SHA256_HEX];
	run_calibrated(false, whole);
	run_calibrated(true, disturbed);
	assert_string_equal(whole, disturbed);
}

/* Up to step `to`, which its server commits. GP_CANCELED: the engine has gone back, and its loader with it. */
static enum gp_status steps_to(struct rig *r, uint64_t to, struct gp_err *err)
{
	struct gp_step_result result;
	enum gp_status status = GP_OK;
	while (r->engine->steps < to && status == GP_OK)
		status = rig_step(r, &result, err);
	if (status == GP_OK)
		status = r->engine->ops->get_weights(r->engine, r->weights, err);
	if (status == GP_CANCELED)
		expect_ok(gp_loader_seek(r->loader, 0, (uint32_t)r->engine->steps, err), err);
	return status;
}

/* Its checkpoint is of step 2, and it is lost whenever it has committed step 3, which is done again each time. */
static void a_server_that_never_comes_further_is_not_asked_for_ever(void **state)
{
	(void)state;
	char dir[64], own[] = "/tmp/gp_resume_XXXXXX", address[32];
	struct server_thread *server = start_keeping_server(dir, 64 << 20);
	struct rig r;
	struct gp_pairs spec = {.count = 0};
	struct gp_err err = {0};
	enum gp_status status = GP_OK;
	uint32_t rewinds = 0;
	snprintf(address, sizeof address, "%s", server->address);
	assert_non_null(mkdtemp(own));
	const struct gp_run_state_options options = {.dir = own, .every = 2, .total_steps = 99, .spec = &spec};
	expect_ok(gp_run_state_open(&options, &run_state, &err), &err);
	expect_ok(rig_init(&r, address, &raw_sgd, true, &err), &err);
	while (status == GP_OK && rewinds <= GP_CLIENT_REWINDS_MOST) {
		expect_ok(steps_to(&r, 3, &err), &err);
		restart_server(&server, dir, 3);
		status = steps_to(&r, 4, &err);
		if (status != GP_CANCELED)
			break;
		assert_int_equal(r.engine->steps, 2);
		status = GP_OK;
		rewinds++;
	}
	assert_int_equal(status, GP_PEER);
	assert_int_equal(rewinds, GP_CLIENT_REWINDS_MOST);
	if (!strstr(err.text, "without coming further than step 3"))
		fail_msg("%s", err.text);
	rig_deinit(&r);
	gp_run_state_close(run_state);
	run_state = NULL;
	server_thread_stop(server);
	remove_folder(dir);
	remove_folder(own);
}

/* Opens a run with checkpoints at a server that writes none; `said` gets what is on stderr by then. */
static enum gp_status open_where_nothing_is_kept(bool required, char said[4096], struct gp_err *err)
{
	char dir[] = "/tmp/gp_resume_XXXXXX";
	struct server_thread *server = start_server(20);
	struct rig r;
	struct gp_pairs spec = {.count = 0};
	assert_non_null(mkdtemp(dir));
	const struct gp_run_state_options options = {
		.dir = dir, .every = 100, .total_steps = 999, .required = required, .spec = &spec};
	expect_ok(gp_run_state_open(&options, &run_state, err), err);
	FILE *caught = tmpfile();
	const int own = dup(STDERR_FILENO);
	dup2(fileno(caught), STDERR_FILENO);
	const enum gp_status status = rig_init(&r, server->address, &raw_sgd, true, err);
	dup2(own, STDERR_FILENO);
	close(own);
	rewind(caught);
	said[fread(said, 1, 4095, caught)] = '\0';
	fclose(caught);
	rig_deinit(&r);
	gp_run_state_close(run_state);
	run_state = NULL;
	server_thread_stop(server);
	remove_folder(dir);
	return status;
}

static void a_server_that_keeps_no_checkpoints_is_known_before_the_first_step(void **state)
{
	(void)state;
	char said[4096];
	struct gp_err err = {0};
	expect_ok(open_where_nothing_is_kept(false, said, &err), &err);
	assert_non_null(strstr(said, "this server writes no checkpoints (--state-dir); training goes on"));
	assert_int_equal(open_where_nothing_is_kept(true, said, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "--checkpoint-required: server 127.0.0.1:"));
	assert_non_null(strstr(err.text, "writes no checkpoints"));
}

static void a_checkpoint_that_was_kept_is_known_though_the_answer_was_lost(void **state)
{
	(void)state;
	char dir[64];
	struct server_thread *server = start_keeping_server(dir, 1 << 30);
	cut_around_committed(server, GP_OK, "");
	server_thread_stop(server);
	remove_folder(dir);
}

/* From what is in `dir` up to step `to`, with a checkpoint after each. Returns where it began; `sha` of the parameters. */
static uint64_t train_to(const char *server, const char *dir, uint64_t to, char sha[GP_SHA256_HEX])
{
	struct rig r;
	struct gp_err err = {0};
	struct gp_step_result result;
	struct gp_pairs spec = {.count = 0};
	const struct gp_run_state_options options = {
		.dir = dir, .every = 1, .total_steps = 99, .resume = GP_RESUME_IF_ANY, .spec = &spec};
	expect_ok(gp_run_state_open(&options, &run_state, &err), &err);
	expect_ok(rig_init(&r, server, &remembered_adam, true, &err), &err);
	const uint64_t begin = r.engine->steps, epoch = gp_loader_batches_per_epoch(r.loader);
	expect_ok(gp_loader_seek(r.loader, (uint32_t)(begin / epoch), (uint32_t)(begin % epoch), &err), &err);
	for (uint64_t i = begin; i < to; i++)
		expect_ok(rig_step(&r, &result, &err), &err);
	expect_ok(r.engine->ops->get_weights(r.engine, r.weights, &err), &err);
	expect_ok(gp_weights_sha256(r.weights, sha, &err), &err);
	rig_deinit(&r);
	gp_run_state_close(run_state);
	run_state = NULL;
	return begin;
}

/* Rewrites a checkpoint, whole and with the right sums, with another byte in what a codec remembers. */
static void change_codec_memory(const char *dir, uint64_t step, const char *name)
{
	struct gp_err err = {0};
	struct gp_checkpoint *c;
	expect_ok(gp_checkpoint_open(dir, step, &c, &err), &err);
	const int count = gp_st_count(c->state);
	struct gp_st_item *item = gp_calloc((size_t)count, sizeof *item);
	uint8_t *changed = NULL;
	for (int i = 0; i < count; i++) {
		const struct gp_st_tensor *t = gp_st_at(c->state, i);
		item[i] = (struct gp_st_item){t->name, t->shape, t->data, t->dtype};
		if (strcmp(t->name, name) != 0)
			continue;
		assert_true(t->bytes > 64);
		item[i].data = changed = gp_calloc(t->bytes, 1);
		memcpy(changed, t->data, t->bytes);
		changed[t->bytes / 2] ^= 1;
		const uint64_t sum = gp_frame_checksum(changed, t->bytes - sizeof sum); /* as codec_state.c ends it */
		memcpy(changed + t->bytes - sizeof sum, &sum, sizeof sum);
	}
	assert_non_null(changed);
	expect_ok(gp_checkpoint_write(dir, &c->manifest, item, count, NULL, &err), &err);
	gp_checkpoint_close(c);
	gp_free(changed);
	gp_free(item);
}

static void a_checkpoint_that_does_not_fit_the_other_side_gives_way_to_an_older_one(void **state)
{
	(void)state;
	char kept[64], whole[] = "/tmp/gp_resume_XXXXXX", parted[] = "/tmp/gp_resume_XXXXXX";
	char want[GP_SHA256_HEX], got[GP_SHA256_HEX];
	struct server_thread *server = start_keeping_server(kept, 1 << 30);
	assert_non_null(mkdtemp(whole));
	assert_non_null(mkdtemp(parted));
	assert_int_equal(train_to(server->address, whole, 4, want), 0);
	assert_int_equal(train_to(server->address, parted, 3, got), 0);
	change_codec_memory(parted, 3, "codec.act_up.0");
	change_codec_memory(parted, 2, "codec.act_up.0");
	assert_int_equal(train_to(server->address, parted, 4, got), 1);
	assert_string_equal(got, want);
	assert_int_equal(train_to(server->address, parted, 4, got), 4);
	server_thread_stop(server);
	remove_folder(kept);
	remove_folder(whole);
	remove_folder(parted);
}

static void run_of(const char *dir, uint64_t step, uint8_t run[GP_RUN_ID_BYTES])
{
	struct gp_err err = {0};
	struct gp_manifest m;
	expect_ok(gp_checkpoint_peek(dir, step, &m, &err), &err);
	memcpy(run, m.run_id, GP_RUN_ID_BYTES);
	gp_manifest_deinit(&m);
}

static void a_checkpoint_that_does_not_load_gives_way_to_an_older_one(void **state)
{
	(void)state;
	char kept[64], dir[] = "/tmp/gp_resume_XXXXXX", want[GP_SHA256_HEX], got[GP_SHA256_HEX];
	uint8_t run[GP_RUN_ID_BYTES];
	struct server_thread *server = start_keeping_server(kept, 1 << 30);
	assert_non_null(mkdtemp(dir));
	assert_int_equal(train_to(server->address, dir, 3, want), 0);
	run_of(dir, 3, run);
	lose_tensor(kept, run, 3, "codec.grad_down.0");
	lose_tensor(kept, run, 2, "param.body1.conv.weight");
	assert_int_equal(train_to(server->address, dir, 3, got), 1);
	assert_string_equal(got, want);
	server_thread_stop(server);
	remove_folder(kept);
	remove_folder(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_server_that_keeps_no_checkpoints_is_known_before_the_first_step),
		cmocka_unit_test(a_checkpoint_that_failed_is_known_though_the_answer_was_lost),
		cmocka_unit_test(a_checkpoint_that_was_kept_is_known_though_the_answer_was_lost),
		cmocka_unit_test(a_checkpoint_that_does_not_fit_the_other_side_gives_way_to_an_older_one),
		cmocka_unit_test(a_checkpoint_that_does_not_load_gives_way_to_an_older_one),
		cmocka_unit_test(a_server_that_never_comes_further_is_not_asked_for_ever),
		cmocka_unit_test(statistics_taken_anew_are_asked_for_again_where_the_server_is_a_new_one),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
