/* SPDX-License-Identifier: Apache-2.0
 *
 * Links that break (PROTOCOL.md section 5.6): a real engine and a real server
 * with a relay between them that cuts the connection at a chosen byte. Wherever
 * it cuts, the run ends as an undisturbed one, to the last bit; a server that
 * stays away is given up, and so are links that never carry a tensor. Who may come back: test_resume_tokens.c; what is on
 * disk: test_resume_checkpoints.c; steps that no link carries as a whole: test_resume_places.c.
 */
#include "tests/unit/resume_rig.h"
#include "tests/unit/cut_proxy.h"

/* One connection is cut there; the run must not show it. */
static void check_cut(const struct server_thread *server, const struct config *c, const struct outcome *want, bool up,
		      uint64_t byte, enum cut_kind kind)
{
	static struct cut_proxy p;
	struct outcome got;
	cut_proxy_start(&p, server->port, (struct cut_plan){.up = up ? byte : 0, .down = up ? 0 : byte, .kind = kind},
			false);
	run(p.address, c, &got);
	assert_int_equal(atomic_load(&p.cuts), 1);
	cut_proxy_stop(&p);
	expect_same(&got, want, up ? "up" : "down", byte);
	if (got.figures.reconnects != 1)
		fail_msg("%u reconnects after a cut at %llu %s", got.figures.reconnects, (unsigned long long)byte,
			 up ? "up" : "down");
}

/* Places in all phases: the prefaces, the handshake, OPEN and weights, every step, evaluation, fetched parameters. */
static void cut_everywhere(const struct config *c, int cuts, enum cut_kind kind)
{
	struct server_thread *server = start_server(120);
	struct outcome want;
	run(server->address, c, &want);
	assert_int_equal(want.figures.reconnects, 0);
	for (int i = 0; i < cuts; i++) {
		const bool up = i % 2 == 0;
		const uint64_t first = GP_PREFACE_BYTES / 2, all = (up ? want.up : want.down)[2 + STEPS] - first;
		check_cut(server, c, &want, up, first + all * (uint64_t)i / (uint64_t)cuts, kind);
	}
	server_thread_stop(server);
}

static void a_cut_anywhere_changes_nothing_of_a_raw_run_with_momentum(void **state)
{
	(void)state;
	cut_everywhere(&raw_sgd, 60, CUT_END);
}

static void a_cut_anywhere_changes_nothing_of_a_raw_run_with_adam_and_weights(void **state)
{
	(void)state;
	cut_everywhere(&raw_adam, 40, CUT_RESET);
}

static void a_cut_anywhere_changes_nothing_of_codecs_that_remember(void **state)
{
	(void)state;
	cut_everywhere(&remembered_adam, 60, CUT_END);
	cut_everywhere(&poweriter_sgd, 40, CUT_RESET);
}

static void a_cut_anywhere_changes_nothing_of_a_run_clipped_by_norm(void **state)
{
	(void)state;
	cut_everywhere(&clipped, 60, CUT_END);
}

static void a_cut_anywhere_changes_nothing_where_two_tensors_cross(void **state)
{
	(void)state;
	cut_everywhere(&wide_raw, 60, CUT_END);
	cut_everywhere(&wide_remembered, 60, CUT_END);
}

static void a_cut_anywhere_changes_nothing_of_a_run_whose_chunks_go_ahead(void **state)
{
	(void)state;
	cut_everywhere(&frozen_raw, 80, CUT_END);
	cut_everywhere(&frozen_clipped, 40, CUT_RESET);
}

static void a_server_that_noticed_nothing_is_taken_over(void **state)
{
	(void)state;
	cut_everywhere(&remembered_adam, 5, CUT_CLIENT_ONLY);
}

/* COMMIT and COMMITTED are few bytes: every few of those where steps meet. */
static void cut_around_a_commit(const struct config *c)
{
	struct server_thread *server = start_server(120);
	struct outcome want;
	run(server->address, c, &want);
	for (int back = -60; back <= 60; back += 6) {
		check_cut(server, c, &want, true, (uint64_t)((int64_t)want.up[2] + back), CUT_END);
		check_cut(server, c, &want, false, (uint64_t)((int64_t)want.down[2] + back), CUT_END);
	}
	server_thread_stop(server);
}

static void a_cut_around_a_commit_commits_once(void **state)
{
	(void)state;
	cut_around_a_commit(&raw_sgd);
	cut_around_a_commit(&frozen_raw);
}

static void a_link_that_breaks_in_every_step_is_only_slow(void **state)
{
	(void)state;
	static struct cut_proxy p;
	struct server_thread *server = start_server(120);
	struct outcome want, got;
	run(server->address, &poweriter_sgd, &want);
	const uint64_t step = want.down[3] - want.down[2], opening = want.down[0];
	cut_proxy_start(&p, server->port, (struct cut_plan){.down = opening + step * 5 / 3}, true);
	run(p.address, &poweriter_sgd, &got);
	cut_proxy_stop(&p);
	expect_same(&got, &want, "down, again and again", p.plan.down);
	assert_true(got.figures.reconnects >= 3);
	assert_int_equal(got.figures.reconnects, atomic_load(&p.cuts));
	assert_true(got.figures.account.sent.wire_bytes > want.figures.account.sent.wire_bytes);
	server_thread_stop(server);
}

/* Every answer counts: a connection that brings two and a half of them is good for two. */
static void an_evaluation_gets_on_over_a_link_cut_every_few_frames(void **state)
{
	(void)state;
	static struct cut_proxy p;
	struct server_thread *server = start_server(120);
	struct gp_step_result want, got;
	struct gp_engine_figures f;
	struct rig r;
	struct gp_err err = {0};
	expect_ok(rig_init(&r, server->address, &raw_sgd, false, &err), &err);
	r.engine->ops->figures(r.engine, &f);
	const uint64_t opening = f.account.received.wire_bytes;
	expect_ok(r.engine->ops->evaluate(r.engine, r.loader, VAL_BATCHES, &want, &err), &err);
	r.engine->ops->figures(r.engine, &f);
	const uint64_t answer = (f.account.received.wire_bytes - opening) / (VAL_BATCHES * CHUNKS);
	rig_deinit(&r);
	cut_proxy_start(&p, server->port, (struct cut_plan){.down = opening + answer * 5 / 2}, true);
	expect_ok(rig_init(&r, p.address, &raw_sgd, false, &err), &err);
	expect_ok(r.engine->ops->evaluate(r.engine, r.loader, VAL_BATCHES, &got, &err), &err);
	r.engine->ops->figures(r.engine, &f);
	rig_deinit(&r);
	cut_proxy_stop(&p);
	assert_true(got.loss_sum == want.loss_sum);
	assert_int_equal(got.correct, want.correct);
	assert_int_equal(got.samples, want.samples);
	assert_in_range(f.reconnects, VAL_BATCHES * CHUNKS / 3 - 1, VAL_BATCHES * CHUNKS / 2);
	server_thread_stop(server);
}

/* Half of an evaluation's answers; then another server, which knows nothing of it and wants chunks one by one. */
static void evaluate_with_a_smaller_window(const struct config *c)
{
	static struct cut_proxy p;
	struct gp_server_settings set = server_thread_settings();
	struct server_thread *first = start_server(120);
	set.window = 1;
	struct server_thread *second = server_thread_start_with(&set);
	struct gp_step_result want, got;
	struct gp_engine_figures f;
	struct rig r;
	struct gp_err err = {0};
	expect_ok(rig_init(&r, first->address, c, false, &err), &err);
	r.engine->ops->figures(r.engine, &f);
	const uint64_t opening = f.account.received.wire_bytes;
	expect_ok(r.engine->ops->evaluate(r.engine, r.loader, VAL_BATCHES, &want, &err), &err);
	r.engine->ops->figures(r.engine, &f);
	rig_deinit(&r);
	cut_proxy_start(&p, first->port,
			(struct cut_plan){.down = opening + (f.account.received.wire_bytes - opening) / 2}, false);
	expect_ok(rig_init(&r, p.address, c, false, &err), &err);
	atomic_store(&p.server_port, second->port); /* of the next connection */
	expect_ok(r.engine->ops->evaluate(r.engine, r.loader, VAL_BATCHES, &got, &err), &err);
	r.engine->ops->figures(r.engine, &f);
	rig_deinit(&r);
	cut_proxy_stop(&p);
	assert_int_equal(f.reconnects, 1);
	assert_true(got.loss_sum == want.loss_sum);
	assert_int_equal(got.correct, want.correct);
	assert_int_equal(got.samples, want.samples);
	server_thread_stop(first);
	server_thread_stop(second);
}

static void an_evaluation_goes_on_at_a_server_with_a_smaller_window(void **state)
{
	(void)state;
	evaluate_with_a_smaller_window(&raw_sgd);
	for (int i = 0; i < 10; i++)
		evaluate_with_a_smaller_window(&wide_raw);
}

/* Somebody else's port, say. */
static void a_server_that_never_says_who_it_is_is_given_up_soon(void **state)
{
	(void)state;
	static struct cut_proxy p;
	struct server_thread *server = start_server(120);
	struct rig r;
	struct gp_err err = {0};
	cut_proxy_start(&p, server->port, (struct cut_plan){.down = GP_PREFACE_BYTES - 1, .kind = CUT_END}, true);
	assert_int_equal(rig_init(&r, p.address, &raw_sgd, true, &err), GP_PEER);
	assert_non_null(strstr(err.text, "before it said who it is"));
	assert_int_equal(atomic_load(&p.accepted), 4);
	rig_deinit(&r);
	cut_proxy_stop(&p);
	server_thread_stop(server);
}

static void a_client_that_may_not_reconnect_ends_at_once(void **state)
{
	(void)state;
	static struct cut_proxy p;
	struct server_thread *server = start_server(120);
	struct rig r;
	struct gp_err err = {0};
	cut_proxy_start(&p, server->port, (struct cut_plan){.up = 60000}, false);
	reconnect_for_s = 0;
	expect_ok(rig_init(&r, p.address, &raw_sgd, true, &err), &err);
	reconnect_for_s = 120;
	assert_int_equal(gp_status_exit(step_until_failure(&r, &err)), 4);
	assert_int_equal(atomic_load(&p.accepted), 1);
	rig_deinit(&r);
	cut_proxy_stop(&p);
	server_thread_stop(server);
}

static void a_server_that_stays_away_is_given_up(void **state)
{
	(void)state;
	static struct cut_proxy p;
	struct server_thread *server = start_server(120);
	struct rig r;
	struct gp_err err = {0};
	cut_proxy_start(&p, server->port, (struct cut_plan){.up = 60000}, false);
	reconnect_for_s = 0.4;
	expect_ok(rig_init(&r, p.address, &raw_sgd, true, &err), &err);
	reconnect_for_s = 120;
	atomic_store(&p.deaf, true);
	assert_int_equal(gp_status_exit(step_until_failure(&r, &err)), 4);
	assert_non_null(strstr(err.text, "gave up reconnecting"));
	rig_deinit(&r);
	cut_proxy_stop(&p);
	server_thread_stop(server);
}

/* --- links that all break too early ------------------------------------------------------------------------------ */

/* Long enough for a handshake on a busy machine. */
#define STANDSTILL_S 8

/* Trains or evaluates over links of which each is cut after the opening's bytes and `more`. */
static void start_standstill(struct cut_proxy *p, const struct server_thread *server, uint64_t down, struct rig *r, bool train)
{
	struct gp_err err = {0};
	cut_proxy_start(p, server->port, (struct cut_plan){.down = down}, true);
	reconnect_for_s = STANDSTILL_S;
	expect_ok(rig_init(r, p->address, &raw_sgd, train, &err), &err);
	reconnect_for_s = 120;
}

static void expect_given_up(struct cut_proxy *p, struct rig *r, enum gp_status status, const struct gp_err *err,
			    const char *what)
{
	struct gp_engine_figures f;
	assert_int_equal(gp_status_exit(status), 4);
	if (!strstr(err->text, what) || !strstr(err->text, " kB up and "))
		fail_msg("the reason is not '%s', but: %s", what, err->text);
	r->engine->ops->figures(r->engine, &f);
	assert_in_range(f.reconnects, 3, CUT_PROXY_LINKS); /* there are pauses between them */
	rig_deinit(r);
	cut_proxy_stop(p); /* which counts a cut after the client has seen it */
	assert_int_equal(f.reconnects + 1, atomic_load(&p->cuts));
}

/* Bytes that an undisturbed server sends: to open, for one step or for one evaluated chunk, for the parameters. */
struct down_bytes {
	uint64_t opening, more;
};

static struct down_bytes measure(const struct server_thread *server, bool train, bool fetch)
{
	struct gp_step_result result;
	struct gp_engine_figures f;
	struct gp_err err = {0};
	struct rig r;
	expect_ok(rig_init(&r, server->address, &raw_sgd, train, &err), &err);
	r.engine->ops->figures(r.engine, &f);
	struct down_bytes out = {.opening = f.account.received.wire_bytes};
	if (fetch)
		expect_ok(r.engine->ops->get_weights(r.engine, r.weights, &err), &err);
	else if (train)
		expect_ok(rig_step(&r, &result, &err), &err);
	else
		expect_ok(r.engine->ops->evaluate(r.engine, r.loader, 1, &result, &err), &err);
	r.engine->ops->figures(r.engine, &f);
	out.more = (f.account.received.wire_bytes - out.opening) / (train ? 1 : CHUNKS);
	rig_deinit(&r);
	return out;
}

/* A few bytes of the first answer: the messages that open a session are longer than those that resume it, but not by a
 * frame. */
static void links_that_never_carry_a_tensor_of_a_step_are_given_up(void **state)
{
	(void)state;
	static struct cut_proxy p;
	struct server_thread *server = start_server(120);
	const struct down_bytes down = measure(server, true, false);
	struct rig r;
	struct gp_err err = {0};
	start_standstill(&p, server, down.opening + 20, &r, true);
	const enum gp_status status = step_until_failure(&r, &err);
	assert_int_equal(r.engine->steps, 0);
	assert_non_null(strstr(err.text, "a smaller --batch"));
	expect_given_up(&p, &r, status, &err, "no tensor of a step has come through for ");
	server_thread_stop(server);
}

static void links_that_never_carry_an_answer_of_an_evaluation_are_given_up(void **state)
{
	(void)state;
	static struct cut_proxy p;
	struct server_thread *server = start_server(120);
	const struct down_bytes down = measure(server, false, false);
	struct gp_step_result result;
	struct rig r;
	struct gp_err err = {0};
	start_standstill(&p, server, down.opening + down.more / 2, &r, false);
	const enum gp_status status = r.engine->ops->evaluate(r.engine, r.loader, VAL_BATCHES, &result, &err);
	expect_given_up(&p, &r, status, &err, "no chunk of the evaluation was answered for ");
	server_thread_stop(server);
}

static void links_that_never_carry_the_parameters_are_given_up(void **state)
{
	(void)state;
	static struct cut_proxy p;
	struct server_thread *server = start_server(120);
	const struct down_bytes down = measure(server, true, true);
	struct rig r;
	struct gp_err err = {0};
	start_standstill(&p, server, down.opening + down.more / 2, &r, true);
	const enum gp_status status = r.engine->ops->get_weights(r.engine, r.weights, &err);
	expect_given_up(&p, &r, status, &err, "the body's parameters have not arrived for ");
	server_thread_stop(server);
}

/* For longer than --reconnect-for, and with more breaks than are let pass without a step. */
static void links_that_carry_a_step_each_are_never_given_up(void **state)
{
	(void)state;
	static struct cut_proxy p;
	struct server_thread *server = start_server(120);
	const struct down_bytes down = measure(server, true, false);
	const uint64_t begin_ns = gp_now_ns();
	struct gp_step_result result;
	struct rig r;
	struct gp_err err = {0};
	start_standstill(&p, server, down.opening + down.more * 5 / 3, &r, true);
	while (gp_now_ns() - begin_ns < (STANDSTILL_S + 1) * UINT64_C(1000000000) || atomic_load(&p.cuts) < 8) {
		expect_ok(rig_step(&r, &result, &err), &err);
		usleep(50000); /* the proxy has places for so many links only */
	}
	rig_deinit(&r);
	cut_proxy_stop(&p);
	server_thread_stop(server);
}

static void on_signal(int number)
{
	(void)number;
	stop = 1;
}

static pthread_t training;

static void *stop_when_cut(void *arg)
{
	struct cut_proxy *p = arg;
	while (atomic_load(&p->cuts) == 0)
		usleep(1000);
	usleep(300000);
	pthread_kill(training, SIGUSR1);
	return NULL;
}

static void stop_while_reconnecting(bool mute)
{
	static struct cut_proxy p;
	struct server_thread *server = start_server(120);
	pthread_t stopper;
	struct rig r;
	struct gp_err err = {0};
	cut_proxy_start(&p, server->port, (struct cut_plan){.up = 60000}, false);
	reconnect_for_s = 3600;
	expect_ok(rig_init(&r, p.address, &raw_sgd, true, &err), &err);
	reconnect_for_s = 120;
	atomic_store(mute ? &p.mute : &p.deaf, true);
	training = pthread_self();
	signal(SIGUSR1, on_signal);
	assert_int_equal(pthread_create(&stopper, NULL, stop_when_cut, &p), 0);
	assert_int_equal(step_until_failure(&r, &err), GP_CANCELED);
	assert_non_null(strstr(err.text, "stopped by a signal"));
	pthread_join(stopper, NULL);
	signal(SIGUSR1, SIG_DFL);
	stop = 0;
	rig_deinit(&r);
	cut_proxy_stop(&p);
	server_thread_stop(server);
}

static void a_signal_ends_the_wait_for_a_link(void **state)
{
	(void)state;
	stop_while_reconnecting(false);
}

static void a_signal_ends_the_wait_for_a_server_that_does_not_answer(void **state)
{
	(void)state;
	stop_while_reconnecting(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_cut_anywhere_changes_nothing_of_a_raw_run_with_momentum),
		cmocka_unit_test(a_cut_anywhere_changes_nothing_of_a_raw_run_with_adam_and_weights),
		cmocka_unit_test(a_cut_anywhere_changes_nothing_of_codecs_that_remember),
		cmocka_unit_test(a_cut_anywhere_changes_nothing_of_a_run_clipped_by_norm),
		cmocka_unit_test(a_cut_anywhere_changes_nothing_where_two_tensors_cross),
		cmocka_unit_test(a_cut_anywhere_changes_nothing_of_a_run_whose_chunks_go_ahead),
		cmocka_unit_test(a_cut_around_a_commit_commits_once),
		cmocka_unit_test(a_server_that_noticed_nothing_is_taken_over),
		cmocka_unit_test(a_link_that_breaks_in_every_step_is_only_slow),
		cmocka_unit_test(an_evaluation_gets_on_over_a_link_cut_every_few_frames),
		cmocka_unit_test(an_evaluation_goes_on_at_a_server_with_a_smaller_window),
		cmocka_unit_test(a_server_that_never_says_who_it_is_is_given_up_soon),
		cmocka_unit_test(a_client_that_may_not_reconnect_ends_at_once),
		cmocka_unit_test(a_server_that_stays_away_is_given_up),
		cmocka_unit_test(links_that_never_carry_a_tensor_of_a_step_are_given_up),
		cmocka_unit_test(links_that_never_carry_an_answer_of_an_evaluation_are_given_up),
		cmocka_unit_test(links_that_never_carry_the_parameters_are_given_up),
		cmocka_unit_test(links_that_carry_a_step_each_are_never_given_up),
		cmocka_unit_test(a_signal_ends_the_wait_for_a_link),
		cmocka_unit_test(a_signal_ends_the_wait_for_a_server_that_does_not_answer),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
