/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults (common/base/fault.h) in a short split training, client and server in this
 * process: whatever allocation or send fails, on either side, ends in success
 * or in one error with a text, and the server goes on serving. Leaks show under
 * the address sanitizer, hangs in the alarm.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "client/engine/engine.h"
#include "common/base/fault.h"
#include "client/models/models.h"
#include "tests/unit/server_thread.h"
#include "tests/unit/picture_batch.h"

#ifdef GP_FAULTS

enum { BATCH = 4, CHUNKS = 2, STEPS = 2, PATIENCE_S = 800, CLEAN_RUN_EVERY = 64, QUIET_RUNS = 4 };

struct fixture {
	struct server_thread *server;
	struct gp_graph *graph;
	struct gp_weights *weights;
	char undisturbed[GP_SHA256_HEX];
	float images[BATCH * 64];
	int32_t labels[BATCH];
	uint32_t samples[BATCH];
};

static enum gp_status train(struct gp_engine *e, struct fixture *f, struct gp_err *err)
{
	const struct gp_batch batch =
		picture_batch(f->images, gp_graph_input_shape(f->graph), f->labels, f->samples, BATCH);
	struct gp_step_result result;
	for (int i = 0; i < STEPS; i++)
		GP_TRY(e->ops->step(e, &batch, NULL, 0.1f, &result, err));
	return e->ops->get_weights(e, f->weights, err);
}

static enum gp_status run(struct fixture *f, struct gp_err *err)
{
	struct gp_engine *e = NULL;
	struct gp_engine_spec spec = {.graph = f->graph,
				      .device = "cpu",
				      .threads = 1,
				      .session.chunk_samples = BATCH / CHUNKS,
				      .session.chunks = CHUNKS,
				      .session.window = 2,
				      .session.seed = 1,
				      .session.optim = {.momentum = 0.9f, .clip_norm = 1.0},
				      .server = f->server->address,
				      .cut = {.head = 1, .tail = f->graph->blocks - 1},
				      .connect_timeout_s = 60,
				      .idle_timeout_s = 60};
	for (int i = 0; i < 4; i++)
		assert_int_equal(gp_codec_spec_parse("ef+uniform:bits=6+zstd", &spec.session.codec[i], err), GP_OK);
	enum gp_status status = gp_engine_new_split(&spec, &e, err);
	if (status == GP_OK)
		status = train(e, f, err);
	if (e)
		e->ops->free(e);
	return status;
}

/* A session that has just failed may still hold its place for a moment. */
static void run_cleanly(struct fixture *f, char sha[GP_SHA256_HEX])
{
	struct gp_err err = {0};
	enum gp_status status = run(f, &err);
	for (int i = 0; i < 500 && status == GP_BUSY; i++) {
		usleep(10000);
		status = run(f, &err);
	}
	if (status != GP_OK)
		fail_msg("without a fault: %s", err.text);
	assert_int_equal(gp_weights_sha256(f->weights, sha, &err), GP_OK);
}

static int setup(void **state)
{
	struct fixture *f = gp_calloc(1, sizeof *f);
	struct gp_err err = {0};
	const struct gp_model_options model = {.classes = 3, .input = {.ndim = 3, .dim = {8, 8, 1}}};
	for (int i = 0; i < BATCH * 64; i++)
		f->images[i] = (float)(i % 13) / 13.0f;
	for (int i = 0; i < BATCH; i++) {
		f->labels[i] = i % 3;
		f->samples[i] = (uint32_t)i;
	}
	assert_int_equal(gp_model_build("cnn:width=2", &model, &f->graph, &err), GP_OK);
	assert_int_equal(gp_weights_new(f->graph, &f->weights, &err), GP_OK);
	f->server = server_thread_start();
	alarm(PATIENCE_S);
	run_cleanly(f, f->undisturbed);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	alarm(0);
	server_thread_stop(f->server);
	gp_weights_free(f->weights);
	gp_graph_free(f->graph);
	gp_free(f);
	return 0;
}

static void check_outcome(enum gp_status status, const struct gp_err *err, const char *kind, uint64_t nth)
{
	const bool whole = status == GP_OK || (err->code == status && err->text[0] && !strchr(err->text, '\n'));
	if (!whole)
		fail_msg("%s %llu: status %d, text '%s'", kind, (unsigned long long)nth, (int)status, err->text);
}

static void check_server(struct fixture *f)
{
	char sha[GP_SHA256_HEX];
	run_cleanly(f, sha);
	assert_string_equal(sha, f->undisturbed);
}

static void walk(struct fixture *f, enum gp_fault_kind kind, const char *name)
{
	int failed = 0, quiet = 0;
	uint64_t nth = 1;
	for (; quiet < QUIET_RUNS; nth++) {
		struct gp_err err = {0};
		gp_fault_arm(kind, nth);
		enum gp_status status = run(f, &err);
		gp_fault_arm(kind, 0);
		check_outcome(status, &err, name, nth);
		failed += status != GP_OK;
		quiet = status == GP_OK ? quiet + 1 : 0;
		if (nth % CLEAN_RUN_EVERY == 0)
			check_server(f);
	}
	check_server(f);
	print_message("%s: %llu runs, %d failed\n", name, (unsigned long long)nth - 1, failed);
	assert_true(failed > 0);
}

static void whatever_allocation_fails_the_run_ends_cleanly_and_the_server_serves_on(void **state)
{
	walk(*state, GP_FAULT_ALLOC, "alloc");
}

static void whatever_send_fails_the_run_ends_cleanly_and_the_server_serves_on(void **state)
{
	walk(*state, GP_FAULT_SEND, "send");
}

static void whatever_allocation_fails_a_server_starts_or_says_why_not(void **state)
{
	(void)state;
	const struct gp_server_settings set = {.listen = "127.0.0.1:0",
					       .device = "cpu",
					       .threads = 1,
					       .codec_threads = 1,
					       .max_sessions = 1,
					       .max_unopened = 16,
					       .window = 1,
					       .task_time_s = 600,
					       .handshake_timeout_s = 1,
					       .step_timeout_s = 1,
					       .idle_timeout_s = 1};
	enum gp_status status = GP_NOMEM;
	for (uint64_t nth = 1; status != GP_OK; nth++) {
		struct gp_server server;
		struct gp_err err = {0};
		uv_loop_t loop;
		uv_loop_init(&loop);
		gp_fault_arm(GP_FAULT_ALLOC, nth);
		status = gp_server_start(&server, &loop, &set, &err);
		gp_fault_arm(GP_FAULT_ALLOC, 0);
		check_outcome(status, &err, "alloc", nth);
		if (status == GP_OK)
			gp_server_deinit(&server);
		uv_run(&loop, UV_RUN_DEFAULT);
		assert_int_equal(uv_loop_close(&loop), 0);
		assert_true(nth < 100);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(whatever_allocation_fails_the_run_ends_cleanly_and_the_server_serves_on,
						setup, teardown),
		cmocka_unit_test_setup_teardown(whatever_send_fails_the_run_ends_cleanly_and_the_server_serves_on,
						setup, teardown),
		cmocka_unit_test(whatever_allocation_fails_a_server_starts_or_says_why_not),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
	puts("this build has no fault switches");
	return 77; /* skipped, for ctest */
}

#endif
