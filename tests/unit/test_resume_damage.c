/* SPDX-License-Identifier: Apache-2.0
 *
 * Links that damage what they carry (PROTOCOL.md section 5.6): a real engine and a real server with the link emulator
 * between them, which flips a bit. Whichever end meets it, the run goes on over another link and ends as an undisturbed
 * one, to the last bit; only links that damage one after the other, and bring nothing, end it.
 */
#include "tests/unit/resume_rig.h"
#include "tests/unit/link_thread.h"

/* Changes one byte of one direction of the first `times` connections; 0: of all. */
static struct link_thread *damaging_link(const struct server_thread *server, bool up, uint64_t byte, int64_t times)
{
	struct gp_link_faults faults = LINK_NO_FAULTS;
	faults.direction = up ? GP_LINK_UP : GP_LINK_DOWN;
	faults.corrupt_byte = (int64_t)byte;
	faults.times = times;
	return link_thread_start(&(struct gp_link_spec){.to = server->address, .faults = faults});
}

static uint64_t corrupted(const struct gp_link_counts *c)
{
	return c->corrupted[GP_LINK_UP] + c->corrupted[GP_LINK_DOWN];
}

/* The two ends need not agree on where the run was when the bit flipped; most places cost the link. */
static uint32_t check_flip(const struct server_thread *server, const struct config *c, const struct outcome *want,
			   bool up, uint64_t byte)
{
	struct outcome got;
	struct link_thread *link = damaging_link(server, up, byte, 1);
	run(link->address, c, &got);
	const struct gp_link_counts counts = link_thread_stop(link);
	expect_same(&got, want, up ? "up" : "down", byte);
	assert_int_equal(corrupted(&counts), 1);
	if (got.figures.reconnects > 1)
		fail_msg("%u reconnects after a bit flipped at %llu %s", got.figures.reconnects,
			 (unsigned long long)byte, up ? "up" : "down");
	return got.figures.reconnects;
}

/* Places in all phases, beginning with the first bytes: the prefaces, the handshake, OPEN and weights, every step,
 * evaluation, fetched parameters. */
static void flip_everywhere(const struct config *c, int flips)
{
	struct server_thread *server = start_server(120);
	struct outcome want;
	int reconnects = 0;
	run(server->address, c, &want);
	for (int i = 0; i < flips; i++) {
		const bool up = i % 2 == 0;
		const uint64_t all = (up ? want.up : want.down)[2 + STEPS];
		reconnects += (int)check_flip(server, c, &want, up, all * (uint64_t)i / (uint64_t)flips);
	}
	assert_true(reconnects >= flips * 9 / 10); /* nobody looks at a pong, or at a newer version than one speaks */
	server_thread_stop(server);
}

static void a_flipped_bit_anywhere_changes_nothing_of_a_raw_run(void **state)
{
	(void)state;
	flip_everywhere(&raw_adam, 30);
}

static void a_flipped_bit_anywhere_changes_nothing_of_codecs_that_remember(void **state)
{
	(void)state;
	flip_everywhere(&remembered_adam, 30);
	flip_everywhere(&wide_remembered, 30);
}

static void a_flipped_bit_anywhere_changes_nothing_of_a_run_whose_chunks_go_ahead(void **state)
{
	(void)state;
	flip_everywhere(&frozen_clipped, 20);
}

static void a_flipped_bit_of_a_preface_costs_only_the_link(void **state)
{
	(void)state;
	struct server_thread *server = start_server(120);
	struct outcome want;
	run(server->address, &raw_sgd, &want);
	for (uint64_t byte = 0; byte < 32; byte += 3) {
		check_flip(server, &raw_sgd, &want, true, byte);
		check_flip(server, &raw_sgd, &want, false, byte);
	}
	server_thread_stop(server);
}

/* More links damage data than either end puts up with in a row, but each has brought a step. */
static void links_that_damage_every_other_step_are_never_given_up(void **state)
{
	(void)state;
	struct server_thread *server = start_server(120);
	struct outcome want, got;
	run(server->address, &poweriter_sgd, &want);
	for (int up = 0; up < 2; up++) {
		const uint64_t *sent = up ? want.up : want.down;
		struct link_thread *link = damaging_link(server, up, sent[0] + (sent[3] - sent[2]) * 5 / 3, 0);
		run(link->address, &poweriter_sgd, &got);
		const struct gp_link_counts counts = link_thread_stop(link);
		expect_same(&got, &want, "again and again", 0);
		assert_true(corrupted(&counts) >= GP_DAMAGES_MOST);
		assert_true(got.figures.reconnects >= GP_DAMAGES_MOST);
	}
	server_thread_stop(server);
}

/* Within the first frames of every link, so that three do not carry a step; who meets it says so, and how often. */
static void check_given_up(const struct server_thread *server, const struct outcome *want, bool up)
{
	const uint64_t *sent = up ? want->up : want->down;
	struct link_thread *link = damaging_link(server, up, sent[0] + 100, 0);
	struct gp_err err = {0};
	struct rig r;
	expect_ok(rig_init(&r, link->address, &raw_sgd, true, &err), &err);
	const enum gp_status status = step_until_failure(&r, &err);
	rig_deinit(&r);
	const struct gp_link_counts counts = link_thread_stop(link);
	assert_int_equal(gp_status_exit(status), 4);
	assert_int_equal(status, up ? GP_PEER : GP_DAMAGED); /* as the server says; as this end sees */
	if (!strstr(err.text, "damages data") || !strstr(err.text, "3 links in a row"))
		fail_msg("'%s' does not tell of damage", err.text);
	assert_int_equal(corrupted(&counts), GP_DAMAGES_MOST);
}

static void links_that_only_damage_are_given_up_by_the_end_that_meets_it(void **state)
{
	(void)state;
	struct server_thread *server = start_server(120);
	struct outcome want;
	run(server->address, &raw_sgd, &want);
	check_given_up(server, &want, false);
	check_given_up(server, &want, true);
	server_thread_stop(server);
}

/* Each answer counts, not only steps. */
static void an_evaluation_gets_on_over_links_that_damage_every_few_answers(void **state)
{
	(void)state;
	struct server_thread *server = start_server(120);
	struct gp_step_result want, got;
	struct gp_engine_figures f;
	struct gp_err err = {0};
	struct rig r;
	expect_ok(rig_init(&r, server->address, &raw_sgd, false, &err), &err);
	r.engine->ops->figures(r.engine, &f);
	const uint64_t opening[2] = {f.account.sent.wire_bytes, f.account.received.wire_bytes};
	expect_ok(r.engine->ops->evaluate(r.engine, r.loader, VAL_BATCHES, &want, &err), &err);
	r.engine->ops->figures(r.engine, &f);
	const uint64_t all[2] = {f.account.sent.wire_bytes, f.account.received.wire_bytes};
	rig_deinit(&r);
	for (int up = 0; up < 2; up++) {
		const uint64_t chunk = (all[!up] - opening[!up]) / (VAL_BATCHES * CHUNKS);
		struct link_thread *link = damaging_link(server, up, opening[!up] + chunk * 5 / 2, 0);
		expect_ok(rig_init(&r, link->address, &raw_sgd, false, &err), &err);
		expect_ok(r.engine->ops->evaluate(r.engine, r.loader, VAL_BATCHES, &got, &err), &err);
		r.engine->ops->figures(r.engine, &f);
		rig_deinit(&r);
		const struct gp_link_counts counts = link_thread_stop(link);
		assert_true(got.loss_sum == want.loss_sum && got.samples == want.samples &&
			    got.correct == want.correct);
		assert_true(f.reconnects >= GP_DAMAGES_MOST && corrupted(&counts) >= GP_DAMAGES_MOST);
	}
	server_thread_stop(server);
}

static void a_client_that_may_not_reconnect_ends_at_once(void **state)
{
	(void)state;
	struct server_thread *server = start_server(120);
	struct outcome want;
	struct gp_err err = {0};
	struct rig r;
	run(server->address, &raw_sgd, &want);
	const double before = reconnect_for_s;
	reconnect_for_s = 0;
	struct link_thread *link = damaging_link(server, false, (want.down[0] + want.down[1]) / 2, 0);
	expect_ok(rig_init(&r, link->address, &raw_sgd, true, &err), &err);
	assert_int_equal(step_until_failure(&r, &err), GP_DAMAGED);
	assert_non_null(strstr(err.text, "checksum"));
	rig_deinit(&r);
	link_thread_stop(link);
	reconnect_for_s = before;
	server_thread_stop(server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_flipped_bit_anywhere_changes_nothing_of_a_raw_run),
		cmocka_unit_test(a_flipped_bit_anywhere_changes_nothing_of_codecs_that_remember),
		cmocka_unit_test(a_flipped_bit_anywhere_changes_nothing_of_a_run_whose_chunks_go_ahead),
		cmocka_unit_test(a_flipped_bit_of_a_preface_costs_only_the_link),
		cmocka_unit_test(links_that_damage_every_other_step_are_never_given_up),
		cmocka_unit_test(links_that_only_damage_are_given_up_by_the_end_that_meets_it),
		cmocka_unit_test(an_evaluation_gets_on_over_links_that_damage_every_few_answers),
		cmocka_unit_test(a_client_that_may_not_reconnect_ends_at_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
