/* SPDX-License-Identifier: Apache-2.0
 *
 * Decaying ranks (PROTOCOL.md section 5.3), with a real engine and a real server: a
 * split run equals a local one bit for bit, less crosses behind every change, a link may break anywhere, and both ends go
 * on from checkpoints of any rank. The changes are at steps 1, 2, 3 and 4.
 */
#include "common/base/fault.h"
#include "kernels/device_registry.h"
#include "tests/unit/resume_rig.h"
#include "tests/unit/cut_proxy.h"

static void a_split_run_equals_a_local_one(void **state)
{
	(void)state;
	static const struct config *const configs[] = {&decaying_raw, &decaying_sgd, &decaying_clipped};
	struct server_thread *server = start_server(120);
	struct outcome local, split;
	for (int i = 0; i < 3; i++) {
		run(NULL, configs[i], &local);
		run(server->address, configs[i], &split);
		expect_same(&split, &local, "in a split run", 0);
	}
	server_thread_stop(server);
}

/* Its memory has its own account, which no change may pass; and its updates replace gradients by themselves. */
static void a_split_run_equals_a_local_one_on_the_emulated_gpu(void **state)
{
	struct gp_device *dev;
	struct gp_err err;
	if (gp_device_open("cuda-emulated", 1, &dev, &err) != GP_OK)
		skip();
	dev->ops->close(dev);
	rig_device = "cuda-emulated";
	a_split_run_equals_a_local_one(state);
	rig_device = "cpu";
}

static void ranks_reach_both_ends_and_the_weights(void **state)
{
	(void)state;
	struct server_thread *server = start_server(120);
	static const char *const name[] = {"up.encoder.weight", "up.decoder.weight", "down.encoder.weight",
					   "down.decoder.weight"};
	static const int64_t rows[] = {6, RANK, 1, RANK}, columns[] = {RANK, 6, RANK, 1};
	const char *const where[] = {NULL, server->address};
	for (int w = 0; w < 2; w++) {
		struct rig r;
		struct outcome o;
		struct gp_err err = {0};
		expect_ok(rig_init(&r, where[w], &decaying_raw, true, &err), &err);
		run_steps(&r, &o);
		expect_ok(r.engine->ops->get_weights(r.engine, r.weights, &err), &err);
		for (int i = 0; i < 4; i++) {
			const int p = gp_graph_find_param(r.weights->graph, name[i]);
			assert_int_equal(r.weights->graph->param[p].shape.dim[0], rows[i]);
			assert_int_equal(r.weights->graph->param[p].shape.dim[1], columns[i]);
		}
		rig_deinit(&r);
	}
	server_thread_stop(server);
}

/* Elements that cross for a sample in each step, one way: 12 + 12, 12 + 6, 9 + 3, 9 + 1. */
static void less_crosses_behind_every_change(void **state)
{
	(void)state;
	static const uint64_t elements[STEPS] = {24, 18, 12, 10};
	struct server_thread *server = start_server(120);
	struct rig r;
	struct gp_err err = {0};
	struct gp_step_result result;
	struct gp_engine_figures now, before;
	expect_ok(rig_init(&r, server->address, &decaying_raw, true, &err), &err);
	r.engine->ops->figures(r.engine, &before);
	for (int i = 0; i < STEPS; i++) {
		expect_ok(rig_step(&r, &result, &err), &err);
		r.engine->ops->figures(r.engine, &now);
		struct gp_account delta = now.account;
		gp_account_subtract(&delta, &before.account);
		const uint64_t up = delta.sent.kind[GP_FRAME_ACT_UP].payload_bytes +
				    delta.sent.kind[GP_FRAME_GRAD_UP].payload_bytes;
		assert_int_equal(up, elements[i] * BATCH * sizeof(float));
		assert_int_equal(now.codec[0].encoded, (i + 1) * CHUNKS);
		before = now;
	}
	rig_deinit(&r);
	server_thread_stop(server);
}

/* One connection is cut there; the run must not show it. */
static void check_cut(const struct server_thread *server, const struct config *c, const struct outcome *want, bool up,
		      uint64_t byte)
{
	static struct cut_proxy p;
	struct outcome got;
	cut_proxy_start(&p, server->port,
			(struct cut_plan){.up = up ? byte : 0, .down = up ? 0 : byte, .kind = CUT_END}, false);
	run(p.address, c, &got);
	assert_int_equal(atomic_load(&p.cuts), 1);
	cut_proxy_stop(&p);
	expect_same(&got, want, up ? "up" : "down", byte);
}

static void cut_anywhere(const struct config *c, int cuts)
{
	struct server_thread *server = start_server(120);
	struct outcome want;
	run(server->address, c, &want);
	for (int i = 0; i < cuts; i++) {
		const bool up = i % 2 == 0;
		const uint64_t first = GP_PREFACE_BYTES / 2, all = (up ? want.up : want.down)[2 + STEPS] - first;
		check_cut(server, c, &want, up, first + all * (uint64_t)i / (uint64_t)cuts);
	}
	server_thread_stop(server);
}

static void a_cut_anywhere_changes_nothing(void **state)
{
	(void)state;
	cut_anywhere(&decaying_raw, 40);
	cut_anywhere(&decaying_remembered, 60);
	cut_anywhere(&decaying_clipped, 20);
}

/* COMMIT and COMMITTED of a step that changes both ranks, every few bytes. */
static void a_cut_around_a_change_changes_the_ranks_once(void **state)
{
	(void)state;
	struct server_thread *server = start_server(120);
	struct outcome want;
	run(server->address, &decaying_remembered, &want);
	for (int back = -60; back <= 60; back += 6) {
		check_cut(server, &decaying_remembered, &want, true, (uint64_t)((int64_t)want.up[2] + back));
		check_cut(server, &decaying_remembered, &want, false, (uint64_t)((int64_t)want.down[2] + back));
	}
	server_thread_stop(server);
}

/* --- memory that is out -------------------------------------------------------------------------------------------- */

/* Wherever a change of ranks ends, what there is is freed, each thing once: a sanitizer would see more. */
static void a_change_that_fails_is_cleaned_up(void **state)
{
	(void)state;
	static const uint64_t allocation[] = {1, 2, 3, 5, 8, 12, 17, 23, 30, 40, 50, 60, 80, 100, 120, 140, 160, 200};
	if (!gp_faults_built_in)
		skip();
	struct server_thread *server = start_server(120);
	int failed = 0;
	for (size_t i = 0; i < 2 * sizeof allocation / sizeof allocation[0]; i++) {
		struct rig r;
		struct gp_err err = {0};
		struct gp_step_result result;
		struct gp_batch *batch;
		expect_ok(rig_init(&r, i % 2 ? server->address : NULL, &decaying_raw, true, &err), &err);
		expect_ok(gp_loader_next(r.loader, &batch, &err), &err); /* its threads may take a fault or two */
		gp_fault_arm(GP_FAULT_ALLOC, allocation[i / 2]);
		failed += r.engine->ops->step(r.engine, batch, NULL, 0.05f, &result, &err) != GP_OK;
		gp_fault_arm(GP_FAULT_ALLOC, 0);
		gp_loader_give_back(r.loader, batch);
		rig_deinit(&r);
	}
	assert_true(failed > 5);
	server_thread_stop(server);
}

/* --- checkpoints -------------------------------------------------------------------------------------------------- */

static void remove_folder(const char *dir)
{
	char command[128];
	snprintf(command, sizeof command, "rm -r '%s'", dir);
	assert_int_equal(system(command), 0);
}

static struct server_thread *start_keeping_server(const char *dir, const char *listen)
{
	struct gp_server_settings set = server_thread_settings();
	set.resume_window_s = 20;
	set.state_dir = dir;
	set.state_max_bytes = 1 << 30;
	if (listen)
		set.listen = listen;
	return server_thread_start_with(&set);
}

enum { ALL = 6 };

/* From what is in `dir` up to step `to`, with a checkpoint every `every` steps. Returns where it began. */
static uint64_t train_to(const char *server, const char *dir, const struct config *c, uint64_t every, uint64_t to,
			 char sha[GP_SHA256_HEX])
{
	struct rig r;
	struct gp_err err = {0};
	struct gp_step_result result;
	struct gp_pairs spec = {.count = 0};
	const struct gp_run_state_options options = {
		.dir = dir, .every = every, .total_steps = 99, .resume = GP_RESUME_IF_ANY, .spec = &spec};
	expect_ok(gp_run_state_open(&options, &run_state, &err), &err);
	expect_ok(rig_init(&r, server, c, true, &err), &err);
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

/* Before, at and behind each change. */
static void resume_from_each_step(const char *server, const struct config *c)
{
	char want[GP_SHA256_HEX], got[GP_SHA256_HEX], whole[] = "/tmp/gp_decay_XXXXXX";
	assert_non_null(mkdtemp(whole));
	train_to(server, whole, c, 99, ALL, want);
	for (uint64_t at = 1; at < ALL; at++) {
		char parted[] = "/tmp/gp_decay_XXXXXX";
		assert_non_null(mkdtemp(parted));
		assert_int_equal(train_to(server, parted, c, 1, at, got), 0);
		assert_int_equal(train_to(server, parted, c, 1, ALL, got), at);
		assert_string_equal(got, want);
		remove_folder(parted);
	}
	remove_folder(whole);
}

static void a_resumed_run_ends_as_an_undisturbed_one(void **state)
{
	(void)state;
	char kept[] = "/tmp/gp_decay_XXXXXX";
	assert_non_null(mkdtemp(kept));
	struct server_thread *server = start_keeping_server(kept, NULL);
	resume_from_each_step(NULL, &decaying_raw);
	resume_from_each_step(server->address, &decaying_raw);
	resume_from_each_step(server->address, &decaying_remembered);
	server_thread_stop(server);
	remove_folder(kept);
}

/* The server ends, without a checkpoint of what came behind step 1, and another one goes on: both ends go back over a change
 * of rank, to a plan with larger ranks. */
static void run_over_two_servers(bool disturbed, char sha[GP_SHA256_HEX])
{
	char kept[] = "/tmp/gp_decay_XXXXXX", own[] = "/tmp/gp_decay_XXXXXX", address[32];
	assert_non_null(mkdtemp(kept));
	assert_non_null(mkdtemp(own));
	struct server_thread *server = start_keeping_server(kept, NULL);
	struct rig r;
	struct gp_err err = {0};
	struct gp_step_result result;
	struct gp_pairs spec = {.count = 0};
	const struct gp_run_state_options options = {.dir = own, .every = 3, .total_steps = 99, .spec = &spec};
	snprintf(address, sizeof address, "%s", server->address);
	expect_ok(gp_run_state_open(&options, &run_state, &err), &err);
	expect_ok(rig_init(&r, address, &decaying_remembered, true, &err), &err);
	for (uint64_t i = 0; i < ALL; i++) {
		if (disturbed && i == 2) { /* back to the start */
			server_thread_stop(server);
			remove_folder(kept);
			mkdir(kept, 0700);
			server = start_keeping_server(kept, address);
			assert_int_equal(rig_step(&r, &result, &err), GP_CANCELED);
			assert_true(r.engine->rewound && r.engine->steps == 0);
			expect_ok(gp_loader_seek(r.loader, 0, 0, &err), &err);
			i = 0;
			disturbed = false;
		}
		expect_ok(rig_step(&r, &result, &err), &err);
	}
	expect_ok(r.engine->ops->get_weights(r.engine, r.weights, &err), &err);
	expect_ok(gp_weights_sha256(r.weights, sha, &err), &err);
	rig_deinit(&r);
	gp_run_state_close(run_state);
	run_state = NULL;
	server_thread_stop(server);
	remove_folder(kept);
	remove_folder(own);
}

static void a_server_that_has_lost_everything_gets_the_first_ranks_again(void **state)
{
	(void)state;
	char whole[GP_SHA256_HEX], disturbed[GP_SHA256_HEX];
	run_over_two_servers(false, whole);
	run_over_two_servers(true, disturbed);
	assert_string_equal(whole, disturbed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_split_run_equals_a_local_one),
		cmocka_unit_test(a_split_run_equals_a_local_one_on_the_emulated_gpu),
		cmocka_unit_test(ranks_reach_both_ends_and_the_weights),
		cmocka_unit_test(less_crosses_behind_every_change),
		cmocka_unit_test(a_cut_anywhere_changes_nothing),
		cmocka_unit_test(a_cut_around_a_change_changes_the_ranks_once),
		cmocka_unit_test(a_change_that_fails_is_cleaned_up),
		cmocka_unit_test(a_resumed_run_ends_as_an_undisturbed_one),
		cmocka_unit_test(a_server_that_has_lost_everything_gets_the_first_ranks_again),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
