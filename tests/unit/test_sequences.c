/* SPDX-License-Identifier: Apache-2.0
 *
 * Sequences of a graph: which values have positions of which a chunk may have
 * fewer, which graphs need all of them, and that parts of a graph and its
 * message say the same. See common/graph/graph.h, gp_graph_sequence.
 */
#include <string.h>

#include "common/graph/graph_part.h"
#include "common/graph/ops/op_attention.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_embedding.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/ops/op_rows.h"
#include "common/graph/ops/op_shape.h"
#include "common/wire/graph_msg.h"
#include "tests/unit/ok.h"

enum { POSITIONS = 20, FEATURES = 4 };

static struct gp_graph *begin(int positions)
{
	const struct gp_type x = {GP_F32, {.ndim = 2, .dim = {positions, FEATURES}}};
	struct gp_graph *g = gp_graph_new_empty("g", &err);
	assert_int_equal(gp_graph_add_input(g, "x", &x, &err), 0);
	gp_graph_mark_sequence(g, 0);
	return g;
}

static int64_t end(struct gp_graph *g, int last)
{
	if (last < 0)
		fail_msg("%s", err.text);
	OK(gp_graph_finish(g, &err));
	const int64_t length = gp_graph_sequence(g);
	gp_graph_free(g);
	return length;
}

static void ops_that_work_by_position_keep_a_sequence(void **state)
{
	(void)state;
	struct gp_graph *g = begin(POSITIONS);
	OK(gp_graph_begin_block(g, "b", &err));
	int x = gp_graph_linear(g, "l", 0, 6, true, &err);
	x = gp_graph_unary(g, GP_OP_RELU, "r", x, &err);
	assert_true(g->value[x].sequence);
	x = gp_graph_take_row(g, "t", x, GP_SEQUENCE_STEP - 1, &err);
	assert_false(g->value[x].sequence);
	assert_int_equal(end(g, gp_graph_linear(g, "c", x, 2, true, &err)), POSITIONS);
}

static void flatten_needs_all_positions(void **state)
{
	(void)state;
	struct gp_graph *g = begin(POSITIONS);
	OK(gp_graph_begin_block(g, "b", &err));
	assert_int_equal(end(g, gp_graph_unary(g, GP_OP_FLATTEN, "f", 0, &err)), 0);
}

static void a_row_that_a_short_chunk_lacks_needs_all_positions(void **state)
{
	(void)state;
	struct gp_graph *g = begin(POSITIONS);
	OK(gp_graph_begin_block(g, "b", &err));
	assert_int_equal(end(g, gp_graph_take_row(g, "t", 0, GP_SEQUENCE_STEP, &err)), 0);
}

/* It has the same shape, but is no sequence: a chunk's would not fit. */
static void a_sum_with_a_value_that_is_no_sequence_needs_all_positions(void **state)
{
	(void)state;
	const struct gp_type y = {GP_F32, {.ndim = 2, .dim = {POSITIONS, FEATURES}}};
	struct gp_graph *g = begin(POSITIONS);
	const int other = gp_graph_add_input(g, "y", &y, &err);
	OK(gp_graph_begin_block(g, "b", &err));
	assert_int_equal(end(g, gp_graph_sum(g, "s", 0, other, &err)), 0);
}

static void sequences_of_two_lengths_leave_none(void **state)
{
	(void)state;
	const struct gp_type y = {GP_F32, {.ndim = 2, .dim = {POSITIONS + 1, FEATURES}}};
	struct gp_graph *g = begin(POSITIONS);
	gp_graph_mark_sequence(g, gp_graph_add_input(g, "y", &y, &err));
	OK(gp_graph_begin_block(g, "b", &err));
	const int a = gp_graph_take_row(g, "a", 0, 0, &err), b = gp_graph_take_row(g, "c", 1, 0, &err);
	assert_int_equal(end(g, gp_graph_sum(g, "s", a, b, &err)), 0);
}

/* A linear layer over ids' places, a row of numbers, is no layer for each position. */
static void a_layer_along_the_positions_needs_all_of_them(void **state)
{
	(void)state;
	const struct gp_type row = {GP_F32, {.ndim = 1, .dim = {POSITIONS}}};
	struct gp_graph *g = gp_graph_new_empty("g", &err);
	gp_graph_mark_sequence(g, gp_graph_add_input(g, "x", &row, &err));
	OK(gp_graph_begin_block(g, "b", &err));
	assert_int_equal(end(g, gp_graph_linear(g, "l", 0, 2, true, &err)), 0);
}

static int64_t attention_of(bool length_is_sequence)
{
	const struct gp_type length = {GP_I32, {.ndim = 1, .dim = {1}}};
	struct gp_graph *g = begin(POSITIONS);
	const int l = gp_graph_add_input(g, "length", &length, &err);
	if (length_is_sequence)
		gp_graph_mark_sequence(g, l);
	OK(gp_graph_begin_block(g, "b", &err));
	const struct gp_attention_attr attr = {.heads = 2};
	return end(g, gp_graph_attention(g, "a", (const int[]){0, 0, 0}, l, attr, &err));
}

static void attention_keeps_a_sequence_beside_its_lengths(void **state)
{
	(void)state;
	assert_int_equal(attention_of(false), POSITIONS);
	assert_int_equal(attention_of(true), 0);
}

static void lengths_are_steps_or_all_positions(void **state)
{
	(void)state;
	static const struct {
		uint64_t length;
		bool ok;
	} cases[] = {{0, true},   {8, true},   {16, true},          {POSITIONS, true}, {7, false},
		     {12, false}, {24, false}, {UINT64_MAX, false}, {1, false}};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		assert_int_equal(gp_sequence_length_ok(POSITIONS, cases[i].length), cases[i].ok);
	assert_true(gp_sequence_length_ok(0, 0));
	assert_false(gp_sequence_length_ok(0, 8));
	assert_false(gp_sequence_length_ok(5, 8));
	assert_true(gp_sequence_length_ok(5, 5));
	assert_int_equal(gp_sequence_round(POSITIONS, 0), 8);
	assert_int_equal(gp_sequence_round(POSITIONS, 8), 8);
	assert_int_equal(gp_sequence_round(POSITIONS, 9), 16);
	assert_int_equal(gp_sequence_round(POSITIONS, 17), POSITIONS);
	assert_int_equal(gp_sequence_round(5, 3), 5);
}

static void parts_and_messages_say_the_same(void **state)
{
	(void)state;
	const struct gp_type tokens = {GP_I32, {.ndim = 1, .dim = {POSITIONS}}};
	struct gp_graph *g = gp_graph_new_empty("g", &err), *back;
	struct gp_graph_parts parts;
	Gpsplit__Graph *m;
	const int ids = gp_graph_add_input(g, "tokens", &tokens, &err),
		  mask = gp_graph_add_input(g, "mask", &tokens, &err);
	gp_graph_mark_sequence(g, ids);
	gp_graph_mark_sequence(g, mask);
	OK(gp_graph_begin_block(g, "b0", &err));
	int x = gp_graph_embedding(g, "e", ids, 10, FEATURES, &err);
	OK(gp_graph_begin_block(g, "b1", &err));
	x = gp_graph_masked_mean(g, "m", gp_graph_linear(g, "l", x, FEATURES, true, &err), mask, &err);
	OK(gp_graph_begin_block(g, "b2", &err));
	assert_true(gp_graph_linear(g, "c", x, 2, true, &err) > 0);
	OK(gp_graph_finish(g, &err));
	OK(gp_graph_cut(g, &(struct gp_cut){1, 2}, &parts, &err));
	assert_int_equal(gp_graph_sequence(parts.head), POSITIONS);
	assert_int_equal(gp_graph_sequence(parts.body), POSITIONS);
	assert_int_equal(gp_graph_sequence(parts.tail), 0);
	OK(gp_graph_to_msg(parts.body, &m, &err));
	OK(gp_graph_from_msg(m, UINT64_MAX, &back, &err));
	assert_int_equal(gp_graph_sequence(back), POSITIONS);
	gp_graph_msg_free(m);
	gp_graph_free(back);
	gp_graph_parts_deinit(&parts);
	gp_graph_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ops_that_work_by_position_keep_a_sequence),
		cmocka_unit_test(flatten_needs_all_positions),
		cmocka_unit_test(a_row_that_a_short_chunk_lacks_needs_all_positions),
		cmocka_unit_test(a_sum_with_a_value_that_is_no_sequence_needs_all_positions),
		cmocka_unit_test(sequences_of_two_lengths_leave_none),
		cmocka_unit_test(a_layer_along_the_positions_needs_all_of_them),
		cmocka_unit_test(attention_keeps_a_sequence_beside_its_lengths),
		cmocka_unit_test(lengths_are_steps_or_all_positions),
		cmocka_unit_test(parts_and_messages_say_the_same),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
