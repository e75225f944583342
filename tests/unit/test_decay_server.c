/* SPDX-License-Identifier: Apache-2.0
 *
 * Decaying ranks (PROTOCOL.md section 5.3), from a client that says what it likes to a real server: which
 * schedules OPEN may have, which ranks COMMIT has to name, and what may come behind it.
 */
#include <math.h>

#include "common/graph/ops/op_linear.h"
#include "tests/unit/server_rig.h"

enum { RANK = 12, CHUNK = 2, CHUNKS = 2 };

/* decoder (12 to 12), relu, encoder (12 to 12). */
static struct gp_graph *make_decaying_body(void)
{
	const struct gp_shape sample = {.ndim = 1, .dim = {RANK}};
	struct gp_err err;
	struct gp_graph *g = gp_graph_new("body", &sample, &err);
	assert_int_equal(gp_graph_begin_block(g, "body", &err), GP_OK);
	int x = gp_graph_linear(g, "up.decoder", 0, RANK, false, &err);
	x = gp_graph_unary(g, GP_OP_RELU, "relu", x, &err);
	x = gp_graph_linear(g, "down.encoder", x, RANK, false, &err);
	assert_true(x > 0);
	assert_int_equal(gp_graph_finish(g, &err), GP_OK);
	return g;
}

static int setup_decaying(void **state)
{
	setup(state);
	struct fixture *f = *state;
	gp_graph_free(f->body);
	f->body = make_decaying_body();
	return 0;
}

/* --- OPEN --------------------------------------------------------------------------------------------------------- */

static Gpsplit__Decay decay[GP_DECAYS_MAX + 1], *list[GP_DECAYS_MAX + 1];

/* Up: 12, 9, 6; down: 12, 6, 3. Both change at step 1, and the one above at step 2, the other at step 3. */
static void ask_for_decays(Gpsplit__Open *o)
{
	for (int i = 0; i <= GP_DECAYS_MAX; i++) {
		gpsplit__decay__init(&decay[i]);
		list[i] = &decay[i];
		decay[i].encoder = decay[i].decoder = (char *)"";
		decay[i].rate = 0.75;
		decay[i].every = 1;
		decay[i].times = 2;
		decay[i].l1 = 0.01f;
	}
	decay[0].encoder = (char *)"up.encoder";
	decay[0].decoder = (char *)"up.decoder";
	decay[1].encoder = (char *)"down.encoder";
	decay[1].decoder = (char *)"down.decoder";
	decay[1].rate = 0.5;
	o->decay = list;
	o->n_decay = 2;
}

#define SPOIL(name, what)                                                                                              \
	static void name(Gpsplit__Open *o)                                                                             \
	{                                                                                                              \
		ask_for_decays(o);                                                                                     \
		what;                                                                                                  \
	}

static char long_name[GP_NAME_MAX + 1];

SPOIL(spoil_rate, decay[0].rate = 1.0)
SPOIL(spoil_rate_nan, decay[0].rate = (double)NAN)
SPOIL(spoil_every, decay[0].every = 0)
SPOIL(spoil_every_most, decay[0].every = UINT32_MAX)
SPOIL(spoil_times, decay[0].times = UINT32_MAX)
SPOIL(spoil_sum, (decay[0].rate = decay[1].rate = 0.999, decay[0].times = 12, decay[1].times = 53))
SPOIL(spoil_end, decay[0].times = 12)
SPOIL(spoil_l1, decay[0].l1 = -1.0f)
SPOIL(spoil_name, decay[0].decoder = (char *)"nobody")
SPOIL(spoil_node, decay[0].decoder = (char *)"relu")
SPOIL(spoil_twice, decay[1] = decay[0])
SPOIL(spoil_both, decay[0].encoder = (char *)"up.decoder")
SPOIL(spoil_inner, (decay[1].encoder = (char *)"x", decay[1].decoder = (char *)"down.encoder"))
SPOIL(spoil_count, o->n_decay = GP_DECAYS_MAX + 1)
SPOIL(spoil_long, decay[0].encoder = memset(long_name, 'a', GP_NAME_MAX))
SPOIL(spoil_evaluation, o->eval_only = true)

static void schedules_that_cannot_be_are_refused_with_the_reason(void **state)
{
	static const struct {
		void (*spoil)(Gpsplit__Open *);
		const char *part;
	} cases[] = {
		{spoil_rate, "rate is 1"},
		{spoil_rate_nan, "rate is nan"},
		{spoil_every, "every is 0"},
		{spoil_every_most, "every is 4294967295"},
		{spoil_times, "times is 4294967295"},
		{spoil_sum, "change ranks 65 times; at most 64"},
		{spoil_end, "a rank of 12 would be 0"},
		{spoil_l1, "l1 is -1"},
		{spoil_name, "neither a node 'up.encoder' nor a node 'nobody'"},
		{spoil_node, "relu is no linear layer"},
		{spoil_twice, "two entries"},
		{spoil_both, "neither"},
		{spoil_inner, "does not come from an input"},
		{spoil_count, "9 decays; at most 8"},
		{spoil_long, "96 characters"},
		{spoil_evaluation, "evaluates alone"},
	};
	struct fixture *f = *state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct raw_peer c;
		until_welcome(&c, f);
		put_open(&c, f->body, cases[i].spoil);
		expect_error(&c, cases[i].part);
		client_close(&c);
	}
	still_serves(f);
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

static uint32_t bytes_of(int rank)
{
	return (uint32_t)(CHUNK * rank) * (uint32_t)sizeof(float);
}

static void put_zeros(struct raw_peer *c, uint64_t step, int up, int down)
{
	for (uint32_t chunk = 0; chunk < CHUNKS; chunk++)
		put_frame(c, GP_FRAME_ACT_UP, step, chunk, bytes_of(up), true);
	get_answers(c, CHUNKS, 0);
	for (uint32_t chunk = 0; chunk < CHUNKS; chunk++)
		put_frame(c, GP_FRAME_GRAD_UP, step, chunk, bytes_of(down), true);
	get_answers(c, CHUNKS, 0);
}

static void put_commit_with_ranks(struct raw_peer *c, uint64_t step, size_t count, uint32_t up, uint32_t down)
{
	Gpsplit__Commit commit = GPSPLIT__COMMIT__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	uint32_t rank[] = {up, down, 1};
	commit.step = step;
	commit.lr = 0.1f;
	commit.rank = rank;
	commit.n_rank = count;
	m.body_case = GPSPLIT__CONTROL__BODY_COMMIT;
	m.commit = &commit;
	put_control(c, &m);
}

static void expect_committed(struct raw_peer *c, size_t count, uint32_t up, uint32_t down)
{
	Gpsplit__Control *m = get_control(c);
	assert_non_null(m);
	if (m->body_case != GPSPLIT__CONTROL__BODY_COMMITTED)
		fail_msg("got %s", gp_control_name(m));
	assert_int_equal(m->committed->n_rank, count);
	if (count > 0)
		assert_true(m->committed->rank[0] == up && m->committed->rank[1] == down);
	gpsplit__control__free_unpacked(m, NULL);
}

static void a_session_follows_its_schedule(void **state)
{
	static const int up[] = {12, 9, 6, 6}, down[] = {12, 6, 3, 3};
	struct fixture *f = *state;
	struct raw_peer c;
	until_ready_with(&c, f, ask_for_decays);
	for (uint64_t step = 0; step < 3; step++) {
		const size_t count = step < 2 ? 2 : 0;
		const uint32_t next[] = {(uint32_t)up[step + 1], (uint32_t)down[step + 1]};
		put_zeros(&c, step, up[step], down[step]);
		put_commit_with_ranks(&c, step, count, next[0], next[1]);
		expect_committed(&c, count, next[0], next[1]);
	}
	put_frame(&c, GP_FRAME_ACT_UP, 3, 0, bytes_of(12), true); /* as it was at first */
	expect_error(&c, "act_up");
	client_close(&c);
	still_serves(f);
}

static void other_ranks_than_those_of_the_schedule_are_refused(void **state)
{
	static const struct {
		size_t count;
		uint32_t up, down;
	} cases[] = {{0, 0, 0}, {1, 9, 0}, {2, 9, 7}, {2, 12, 12}, {2, 0, 6}, {3, 9, 6}, {2, UINT32_MAX, 6}};
	struct fixture *f = *state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct raw_peer c;
		until_ready_with(&c, f, ask_for_decays);
		put_zeros(&c, 0, 12, 12);
		put_commit_with_ranks(&c, 0, cases[i].count, cases[i].up, cases[i].down);
		expect_error(&c, "names other ranks");
		client_close(&c);
	}
	struct raw_peer c;
	until_ready(&c, f); /* without decays no COMMIT may name any */
	put_zeros(&c, 0, 12, 12);
	put_commit_with_ranks(&c, 0, 2, 9, 6);
	expect_error(&c, "names other ranks");
	client_close(&c);
	still_serves(f);
}

static void put_both(struct raw_peer *c, const Gpsplit__Control *first, const Gpsplit__Control *second)
{
	const Gpsplit__Control *const m[] = {first, second};
	uint8_t bytes[2 * GP_RECORD_HEADER_BYTES + 256], *at = bytes;
	for (int i = 0; i < 2; i++) {
		const size_t len = gpsplit__control__get_packed_size(m[i]);
		struct gp_record_head h = {.kind = GP_RECORD_CONTROL, .klass = GP_CLASS_CONTROL, .len = (uint32_t)len};
		assert_true(len <= 128);
		gpsplit__control__pack(m[i], at + GP_RECORD_HEADER_BYTES);
		h.body_sum = gp_control_checksum(at + GP_RECORD_HEADER_BYTES, len);
		gp_record_head_write(&h, at);
		at += GP_RECORD_HEADER_BYTES + len;
	}
	put(c, bytes, (size_t)(at - bytes));
}

/* In one piece, so that the server reads both before it has changed anything: the plan is another thread's then. */
static void parameters_cannot_be_fetched_while_ranks_change(void **state)
{
	struct fixture *f = *state;
	struct raw_peer c;
	Gpsplit__Commit commit = GPSPLIT__COMMIT__INIT;
	Gpsplit__FetchParams fetch = GPSPLIT__FETCH_PARAMS__INIT;
	Gpsplit__Control first = GPSPLIT__CONTROL__INIT, second = GPSPLIT__CONTROL__INIT;
	uint32_t rank[] = {9, 6};
	commit.lr = 0.1f;
	commit.rank = rank;
	commit.n_rank = 2;
	first.body_case = GPSPLIT__CONTROL__BODY_COMMIT;
	first.commit = &commit;
	second.body_case = GPSPLIT__CONTROL__BODY_FETCH_PARAMS;
	second.fetch_params = &fetch;
	until_ready_with(&c, f, ask_for_decays);
	put_zeros(&c, 0, 12, 12);
	put_both(&c, &first, &second);
	expect_error(&c, "fetch_params before committed");
	client_close(&c);
	still_serves(f);
}

/* Whether the ranks have changed by then or not: a frame of the old shape fits neither. */
static void nothing_of_the_next_step_may_come_before_committed(void **state)
{
	struct fixture *f = *state;
	struct raw_peer c;
	until_ready_with(&c, f, ask_for_decays);
	put_zeros(&c, 0, 12, 12);
	put_commit_with_ranks(&c, 0, 2, 9, 6);
	put_frame(&c, GP_FRAME_ACT_UP, 1, 0, bytes_of(12), true);
	Gpsplit__Control *m = get_control(&c);
	assert_non_null(m);
	if (m->body_case == GPSPLIT__CONTROL__BODY_COMMITTED) {
		gpsplit__control__free_unpacked(m, NULL);
		m = get_control(&c);
		assert_non_null(m);
	}
	assert_int_equal(m->body_case, GPSPLIT__CONTROL__BODY_ERROR);
	assert_non_null(strstr(m->error->text, "act_up"));
	gpsplit__control__free_unpacked(m, NULL);
	client_close(&c);
	still_serves(f);
}

static void clients_that_vanish_while_ranks_change_leave_nothing(void **state)
{
	struct fixture *f = *state;
	for (int i = 0; i < 20; i++) {
		struct raw_peer c;
		struct linger hard = {.l_onoff = 1, .l_linger = 0};
		until_ready_with(&c, f, ask_for_decays);
		put_zeros(&c, 0, 12, 12);
		put_commit_with_ranks(&c, 0, 2, 9, 6);
		usleep((useconds_t)(i % 10) * 300);
		setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
		client_close(&c);
	}
	still_serves(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(schedules_that_cannot_be_are_refused_with_the_reason, setup_decaying,
						teardown),
		cmocka_unit_test_setup_teardown(a_session_follows_its_schedule, setup_decaying, teardown),
		cmocka_unit_test_setup_teardown(other_ranks_than_those_of_the_schedule_are_refused, setup_decaying,
						teardown),
		cmocka_unit_test_setup_teardown(nothing_of_the_next_step_may_come_before_committed, setup_decaying,
						teardown),
		cmocka_unit_test_setup_teardown(parameters_cannot_be_fetched_while_ranks_change, setup_decaying,
						teardown),
		cmocka_unit_test_setup_teardown(clients_that_vanish_while_ranks_change_leave_nothing, setup_decaying,
						teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
