/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps that no link carries as a whole (PROTOCOL.md section 5.6): a real engine and a real server with a relay between them
 * that cuts every connection after a part of a step. Each link brings the step on, no frame is encoded twice, and the run
 * ends as an undisturbed one, to the last bit. With a server that does not keep its place a step begins anew.
 */
#include "tests/unit/resume_rig.h"
#include "tests/unit/cut_proxy.h"
#include "tests/unit/raw_peer.h"

#include "common/wire/graph_msg.h"

enum gp_status __real_gp_control_send(struct gp_channel *ch, const Gpsplit__Control *m, struct gp_err *err);
enum gp_status __wrap_gp_control_send(struct gp_channel *ch, const Gpsplit__Control *m, struct gp_err *err);

/* What the server says of places, and what the client asks of them. */
static atomic_bool server_is_old;
static void (*_Atomic spoil)(Gpsplit__Place *asked);

static enum gp_status send_hello(struct gp_channel *ch, const Gpsplit__Control *m, struct gp_err *err)
{
	uint64_t act[GP_GRAPH_MAX_PORTS + 1] = {0}, grad[GP_GRAPH_MAX_PORTS + 1] = {0};
	Gpsplit__Control control = *m;
	Gpsplit__Hello hello = *m->hello;
	Gpsplit__Place place = *m->hello->place;
	memcpy(act, place.act, place.n_act * sizeof *act);
	memcpy(grad, place.grad, place.n_grad * sizeof *grad);
	place.act = act;
	place.grad = grad;
	atomic_load (&spoil)(&place);
	hello.place = &place;
	control.hello = &hello;
	return __real_gp_control_send(ch, &control, err);
}

enum gp_status __wrap_gp_control_send(struct gp_channel *ch, const Gpsplit__Control *m, struct gp_err *err)
{
	Gpsplit__Control control = *m;
	if (m->body_case == GPSPLIT__CONTROL__BODY_HELLO && m->hello->place && atomic_load(&spoil))
		return send_hello(ch, m, err);
	if (m->body_case != GPSPLIT__CONTROL__BODY_WELCOME || !atomic_load(&server_is_old))
		return __real_gp_control_send(ch, m, err);
	Gpsplit__Welcome welcome = *m->welcome;
	welcome.keeps_place = false;
	control.welcome = &welcome;
	return __real_gp_control_send(ch, &control, err);
}

/* Steps over links that are cut, if `p` is given, then an evaluation and the parameters over whole ones. */
static void run_in_parts(const char *server, struct cut_proxy *p, const struct config *c, struct outcome *o)
{
	struct rig r;
	struct gp_err err = {0};
	memset(o, 0, sizeof *o);
	expect_ok(rig_init(&r, server, c, true, &err), &err);
	note(&r, o, 0);
	run_steps(&r, o);
	if (p)
		atomic_store(&p->repeat, false);
	expect_ok(r.engine->ops->evaluate(r.engine, r.loader, VAL_BATCHES, &o->eval, &err), &err);
	expect_ok(rig_step(&r, &o->step[STEPS], &err), &err);
	expect_ok(r.engine->ops->get_weights(r.engine, r.weights, &err), &err);
	note(&r, o, 2 + STEPS);
	expect_ok(gp_weights_sha256(r.weights, o->sha, &err), &err);
	rig_deinit(&r);
}

/* Every link is cut after so much of what one carries beside its opening; at least half as many are needed. */
static void check_parts(const struct server_thread *server, const struct config *c, const struct outcome *want, bool up,
			double part, enum cut_kind kind)
{
	static struct cut_proxy p;
	struct outcome got;
	const uint64_t *sent = up ? want->up : want->down;
	const uint64_t step = sent[3] - sent[2], byte = sent[0] + (uint64_t)((double)step * part);
	cut_proxy_start(&p, server->port, (struct cut_plan){.up = up ? byte : 0, .down = up ? 0 : byte, .kind = kind},
			true);
	run_in_parts(p.address, &p, c, &got);
	cut_proxy_stop(&p);
	expect_same(&got, want, up ? "up, of every link" : "down, of every link", byte);
	/* the part that the shorter opening of a resumed link leaves room for is bounded by the first one's; what a socket
	 * has taken when its link is cut may still arrive, so that a link carries more than was meant */
	const uint64_t carried = byte - GP_PREFACE_BYTES, steps = STEPS * step;
	if (got.figures.reconnects < steps / carried / 2)
		fail_msg("only %u links were cut", got.figures.reconnects);
}

static void check_config(const struct config *c, enum cut_kind kind)
{
	static const double parts[] = {0.45, 0.62, 0.81};
	struct server_thread *server = start_server(120);
	struct outcome want;
	run_in_parts(server->address, NULL, c, &want);
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		for (int up = 0; up < 2; up++)
			check_parts(server, c, &want, up, parts[i], kind);
	server_thread_stop(server);
}

static void a_raw_run_gets_on_over_links_that_each_carry_a_part_of_a_step(void **state)
{
	(void)state;
	check_config(&raw_sgd, CUT_END);
	check_config(&raw_adam, CUT_RESET);
}

static void codecs_that_remember_get_on_over_such_links(void **state)
{
	(void)state;
	check_config(&remembered_adam, CUT_END);
	check_config(&poweriter_sgd, CUT_RESET);
	check_config(&clipped, CUT_END);
}

static void several_tensors_get_on_over_such_links(void **state)
{
	(void)state;
	check_config(&wide_raw, CUT_END);
	check_config(&wide_remembered, CUT_RESET);
}

static void chunks_that_go_ahead_get_on_over_such_links(void **state)
{
	(void)state;
	check_config(&frozen_raw, CUT_END);
	check_config(&frozen_clipped, CUT_RESET);
}

/* As with a server that does not know of places. */
static void with_an_older_server_a_step_begins_anew(void **state)
{
	(void)state;
	static struct cut_proxy p;
	struct server_thread *server = start_server(120);
	struct outcome want, got;
	atomic_store(&server_is_old, true);
	run_in_parts(server->address, NULL, &remembered_adam, &want);
	const uint64_t step = want.down[3] - want.down[2];
	cut_proxy_start(&p, server->port, (struct cut_plan){.down = want.down[0] + step * 5 / 3}, true);
	run_in_parts(p.address, &p, &remembered_adam, &got);
	cut_proxy_stop(&p);
	atomic_store(&server_is_old, false);
	expect_same(&got, &want, "down, with an older server", p.plan.down);
	assert_true(got.figures.reconnects >= 2);
	server_thread_stop(server);
}

/* --- places that cannot be ---------------------------------------------------------------------------------------- */

static void act_of_the_future(Gpsplit__Place *place)
{
	place->act[0] += 100;
}

static void act_of_the_past(Gpsplit__Place *place)
{
	place->act[0] -= 100;
}

static void grad_of_the_future(Gpsplit__Place *place)
{
	place->grad[0] = UINT64_MAX;
}

static void one_tensor_more(Gpsplit__Place *place)
{
	place->n_act++;
}

static void no_gradient(Gpsplit__Place *place)
{
	place->n_grad = 0;
}

/* The session ends with a word about it, and the server serves others. */
static void a_place_that_cannot_be_ends_the_session(void **state)
{
	(void)state;
	static struct cut_proxy p;
	static void (*const spoils[])(Gpsplit__Place *) = {act_of_the_future, act_of_the_past, grad_of_the_future,
							   one_tensor_more, no_gradient};
	struct server_thread *server = start_server(120);
	struct outcome want;
	run_in_parts(server->address, NULL, &raw_sgd, &want);
	for (size_t i = 0; i < sizeof spoils / sizeof *spoils; i++) {
		struct gp_err err = {0};
		struct rig r;
		cut_proxy_start(&p, server->port, (struct cut_plan){.down = (want.down[2] + want.down[3]) / 2}, false);
		expect_ok(rig_init(&r, p.address, &raw_sgd, true, &err), &err);
		atomic_store(&spoil, spoils[i]);
		const enum gp_status status = step_until_failure(&r, &err);
		atomic_store(&spoil, NULL);
		rig_deinit(&r);
		cut_proxy_stop(&p);
		assert_int_equal(status, GP_PEER);
		if (!strstr(err.text, "waits for") && !strstr(err.text, "a place of"))
			fail_msg("'%s' does not tell of places", err.text);
	}
	server_thread_stop(server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_raw_run_gets_on_over_links_that_each_carry_a_part_of_a_step),
		cmocka_unit_test(codecs_that_remember_get_on_over_such_links),
		cmocka_unit_test(several_tensors_get_on_over_such_links),
		cmocka_unit_test(chunks_that_go_ahead_get_on_over_such_links),
		cmocka_unit_test(with_an_older_server_a_step_begins_anew),
		cmocka_unit_test(a_place_that_cannot_be_ends_the_session),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
