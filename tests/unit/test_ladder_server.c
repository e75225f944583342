/* SPDX-License-Identifier: Apache-2.0
 *
 * Codecs that change between two steps (PROTOCOL.md section 5.3), from a client that says what it likes to a real
 * server: which ladders OPEN may have, which rungs COMMIT may name, what COMMITTED tells, and what frames may come
 * then.
 */
#include "common/graph/ops/op_linear.h"
#include "tests/unit/server_rig.h"

enum { WIDTH = 12, CHUNK = 2, CHUNKS = 2, BYTES = CHUNK * WIDTH * 4 };

static struct gp_graph *make_square_body(void)
{
	const struct gp_shape sample = {.ndim = 1, .dim = {WIDTH}};
	struct gp_err err;
	struct gp_graph *g = gp_graph_new("body", &sample, &err);
	assert_int_equal(gp_graph_begin_block(g, "body", &err), GP_OK);
	assert_true(gp_graph_linear(g, "fc", 0, WIDTH, false, &err) > 0);
	assert_int_equal(gp_graph_finish(g, &err), GP_OK);
	return g;
}

static int setup_square(void **state)
{
	setup(state);
	struct fixture *f = *state;
	gp_graph_free(f->body);
	f->body = make_square_body();
	return 0;
}

/* --- OPEN --------------------------------------------------------------------------------------------------------- */

static void ask(Gpsplit__Open *o)
{
	o->ladder_act_up = (char *)"uniform:bits=8|raw|bf16";
	o->ladder_grad_down = (char *)"raw|uniform:bits=4";
	o->survey_every = 2;
}

#define SPOIL(name, what)                                                                                              \
	static void name(Gpsplit__Open *o)                                                                             \
	{                                                                                                              \
		ask(o);                                                                                                \
		what;                                                                                                  \
	}

SPOIL(spoil_other, o->codec_act_up = (char *)"fp16")
SPOIL(spoil_one, o->ladder_act_down = (char *)"raw")
SPOIL(spoil_state, o->ladder_grad_up = (char *)"raw|ef+uniform")
SPOIL(spoil_text, o->ladder_grad_up = (char *)"raw|\n")
SPOIL(spoil_many, o->ladder_grad_up = (char *)"raw|raw")
SPOIL(spoil_evaluation, o->eval_only = true)

static void ladders_that_cannot_be_are_refused_with_the_reason(void **state)
{
	static const struct {
		void (*spoil)(Gpsplit__Open *);
		const char *part;
	} cases[] = {
		{spoil_other, "ladder_act_up does not have codec_act_up, fp16"},
		{spoil_one, "ladder_act_down"},
		{spoil_state, "ladder_grad_up: codec 2: ef remembers"},
		{spoil_text, "ladder_grad_up"},
		{spoil_many, "comes twice"},
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

static void put_zeros(struct raw_peer *c, uint64_t step, uint16_t up_codec, uint32_t up_bytes)
{
	const uint16_t raw = c->codec;
	c->codec = up_codec;
	for (uint32_t chunk = 0; chunk < CHUNKS; chunk++)
		put_frame(c, GP_FRAME_ACT_UP, step, chunk, up_bytes, true);
	c->codec = raw;
	get_answers(c, CHUNKS, 0);
	for (uint32_t chunk = 0; chunk < CHUNKS; chunk++)
		put_frame(c, GP_FRAME_GRAD_UP, step, chunk, BYTES, true);
	get_answers(c, CHUNKS, 0);
}

static void put_rungs(struct raw_peer *c, uint64_t step, size_t count, uint32_t act_up, uint32_t grad_up,
		      uint32_t grad_down)
{
	Gpsplit__Commit commit = GPSPLIT__COMMIT__INIT;
	Gpsplit__Control m = GPSPLIT__CONTROL__INIT;
	uint32_t rung[] = {act_up, 0, grad_up, grad_down, 0};
	commit.step = step;
	commit.lr = 0.1f;
	commit.rung = rung;
	commit.n_rung = count;
	m.body_case = GPSPLIT__CONTROL__BODY_COMMIT;
	m.commit = &commit;
	put_control(c, &m);
}

static void expect_committed(struct raw_peer *c, size_t rungs, size_t surveyed)
{
	Gpsplit__Control *m = get_control(c);
	assert_non_null(m);
	if (m->body_case != GPSPLIT__CONTROL__BODY_COMMITTED)
		fail_msg("got %s", gp_control_name(m));
	assert_int_equal(m->committed->n_rung, rungs);
	assert_int_equal(m->committed->n_surveyed, surveyed);
	for (size_t i = 0; i < surveyed; i++) {
		const Gpsplit__Surveyed *s = m->committed->surveyed[i];
		assert_true(s->direction == GP_GRAD_DOWN && s->rung == i && s->tensor_bytes == BYTES);
		assert_true(s->payload_bytes > 0 && s->payload_bytes <= BYTES && s->error == 0 && s->cosine == 1);
	}
	gpsplit__control__free_unpacked(m, NULL);
}

static void codecs_change_as_commit_says(void **state)
{
	enum { RAW = 1, BF16 = 3 };
	struct fixture *f = *state;
	struct raw_peer c;
	until_ready_with(&c, f, ask);
	put_zeros(&c, 0, RAW, BYTES);
	put_rungs(&c, 0, GP_DIRECTIONS, 2, 0, 1);
	expect_committed(&c, GP_DIRECTIONS, 2);
	put_zeros(&c, 1, BF16, BYTES / 2 + 4);
	put_rungs(&c, 1, 0, 0, 0, 0);
	expect_committed(&c, 0, 0);                        /* step 1 is not surveyed */
	put_frame(&c, GP_FRAME_ACT_UP, 2, 0, BYTES, true); /* as it was at first */
	expect_error(&c, "names codec 1, not the 3 agreed on");
	client_close(&c);
	still_serves(f);
}

/* What comes, or does not, while another thread has the codecs. */
static void a_change_is_not_disturbed_by_what_the_client_does_meanwhile(void **state)
{
	struct fixture *f = *state;
	for (int i = 0; i < 24; i++) {
		struct raw_peer c;
		until_ready_with(&c, f, ask);
		put_zeros(&c, 0, 1, BYTES);
		put_rungs(&c, 0, GP_DIRECTIONS, 2, 0, 1);
		if (i % 3 == 1)
			put_frame(&c, GP_FRAME_ACT_UP, 1, 0, BYTES, true);
		if (i % 3 == 2)
			put_rungs(&c, 1, GP_DIRECTIONS, 0, 0, 0);
		client_close(&c);
	}
	still_serves(f);
}

static void rungs_that_there_are_not_are_refused(void **state)
{
	static const struct {
		size_t count;
		uint32_t act_up, grad_up, grad_down;
		const char *part;
	} cases[] = {{1, 1, 0, 0, "names 1 codecs"},
		     {5, 1, 0, 0, "names 5 codecs"},
		     {4, 3, 0, 0, "codec 3 of act_up, which has 3"},
		     {4, 1, 1, 0, "codec 1 of grad_up, which has 0"},
		     {4, 1, 0, UINT32_MAX, "of grad_down, which has 2"}};
	struct fixture *f = *state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct raw_peer c;
		until_ready_with(&c, f, ask);
		put_zeros(&c, 0, 1, BYTES);
		put_rungs(&c, 0, cases[i].count, cases[i].act_up, cases[i].grad_up, cases[i].grad_down);
		expect_error(&c, cases[i].part);
		client_close(&c);
	}
	struct raw_peer c;
	until_ready(&c, f); /* without a ladder COMMIT names none */
	put_zeros(&c, 0, 1, BYTES);
	put_rungs(&c, 0, GP_DIRECTIONS, 0, 0, 0);
	expect_error(&c, "names 4 codecs");
	client_close(&c);
	still_serves(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(ladders_that_cannot_be_are_refused_with_the_reason, setup_square,
						teardown),
		cmocka_unit_test_setup_teardown(codecs_change_as_commit_says, setup_square, teardown),
		cmocka_unit_test_setup_teardown(a_change_is_not_disturbed_by_what_the_client_does_meanwhile,
						setup_square, teardown),
		cmocka_unit_test_setup_teardown(rungs_that_there_are_not_are_refused, setup_square, teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
