/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts and cuts of a graph (common/graph/graph_part.h): what crosses, which of it
 * has gradients, how --cut is read; and its blocks, as OPEN gives them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/unit/one_node.h"
#include "common/graph/graph_part.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_embedding.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/ops/op_shape.h"

/* Four blocks; block 2 adds the output of block 0, so cuts 1 ... 2 are crossed by it. */
static struct gp_graph *graph_with_a_long_skip(void)
{
	struct gp_err err = {0};
	struct gp_graph *g = graph_of(image);
	gp_graph_unary(g, GP_OP_RELU, "a", 0, &err);
	gp_graph_begin_block(g, "b1", &err);
	gp_graph_conv(g, "b", 1, 8, 3, 1, 1, 1, true, &err);
	gp_graph_begin_block(g, "b2", &err);
	gp_graph_sum(g, "c", 1, 2, &err);
	gp_graph_begin_block(g, "b3", &err);
	gp_graph_unary(g, GP_OP_FLATTEN, "d", 3, &err);
	assert_int_equal(gp_graph_finish(g, &err), GP_OK);
	return g;
}

static void expect_ports(const struct gp_graph *p, const char *inputs, const char *outputs)
{
	char in[512] = "", out[512] = "";
	for (int i = 0; i < p->inputs; i++)
		snprintf(in + strlen(in), sizeof in - strlen(in), "%s ", p->node[i].name);
	for (int i = 0; i < p->outputs; i++)
		snprintf(out + strlen(out), sizeof out - strlen(out), "%s ", p->output[i].name);
	assert_string_equal(in, inputs);
	assert_string_equal(out, outputs);
}

static void part_takes_and_gives_all_values_that_cross_its_borders(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_graph *g = graph_with_a_long_skip(), *p = NULL;
	assert_int_equal(gp_graph_part(g, 2, 3, &p, &err), GP_OK);
	expect_ports(p, "a b ", "c ");
	gp_graph_free(p);
	assert_int_equal(gp_graph_part(g, 0, 2, &p, &err), GP_OK);
	expect_ports(p, "input ", "a b ");
	gp_graph_free(p);
	assert_int_equal(gp_graph_part(g, 0, 3, &p, &err), GP_OK);
	expect_ports(p, "input ", "c ");
	gp_graph_free(p);
	assert_int_equal(gp_graph_part(g, 1, 3, &p, &err), GP_OK);
	assert_int_equal(p->nodes, 3);
	assert_true(p->node[2].in[0] == 0 && p->node[2].in[1] == 1);
	assert_string_equal(p->block[1].name, "b2");
	assert_int_equal(p->block[1].first_node, 2);
	assert_int_equal(p->param[0].node, 1);
	gp_graph_free(p);
	gp_graph_free(g);
}

static struct gp_graph_parts cut_at(const struct gp_graph *g, int head, int tail)
{
	struct gp_err err = {0};
	struct gp_graph_parts p;
	if (gp_graph_cut(g, &(struct gp_cut){head, tail}, &p, &err) != GP_OK)
		fail_msg("%s", err.text);
	return p;
}

static void cut_inside_a_residual_block_sends_the_skip_as_well(void **state)
{
	(void)state;
	struct gp_graph *g = graph_with_a_long_skip();
	struct gp_graph_parts p = cut_at(g, 2, 3);
	expect_ports(p.head, "input ", "a b ");
	expect_ports(p.body, "a b ", "c ");
	expect_ports(p.tail, "c ", "d ");
	assert_true(p.body_in[0].from == GP_FROM_HEAD && p.body_in[0].index == 0);
	assert_true(p.body_in[1].from == GP_FROM_HEAD && p.body_in[1].index == 1);
	assert_true(p.tail_in[0].from == GP_FROM_BODY && p.tail_in[0].index == 0);
	assert_int_equal(p.body_activation, 2); /* nothing with parameters lies before a */
	assert_int_equal(p.body_gradient, 2);
	gp_graph_parts_deinit(&p);
	p = cut_at(g, 1, 2); /* the tail reads a, too: it stays with the client */
	expect_ports(p.head, "input ", "a ");
	expect_ports(p.body, "a ", "b ");
	expect_ports(p.tail, "a b ", "d ");
	assert_true(p.tail_in[0].from == GP_FROM_HEAD && p.tail_in[0].index == 0);
	assert_true(p.tail_in[1].from == GP_FROM_BODY && p.tail_in[1].index == 0);
	gp_graph_parts_deinit(&p);
	gp_graph_free(g);
}

static void value_that_the_body_reads_twice_and_the_tail_reads_passes_through_the_body(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_graph *g = graph_of(image);
	const int x = gp_graph_conv(g, "x", 0, 8, 3, 1, 1, 1, true, &err);
	gp_graph_begin_block(g, "b1", &err);
	const int y = gp_graph_sum(g, "y", x, x, &err);
	gp_graph_begin_block(g, "b2", &err);
	gp_graph_sum(g, "z", x, y, &err);
	assert_int_equal(gp_graph_finish(g, &err), GP_OK);
	struct gp_graph_parts p = cut_at(g, 1, 2);
	expect_ports(p.head, "input ", "x ");
	expect_ports(p.body, "x ", "y x ");
	expect_ports(p.tail, "x y ", "z ");
	assert_true(p.tail_in[0].from == GP_FROM_BODY && p.tail_in[0].index == 1);
	assert_true(p.tail_in[1].from == GP_FROM_BODY && p.tail_in[1].index == 0);
	gp_graph_parts_deinit(&p);
	gp_graph_free(g);
}

/* Tokens and mask in, a mean of embeddings; three blocks. */
static struct gp_graph *graph_of_text(void)
{
	struct gp_err err = {0};
	const struct gp_type ids = {GP_I32, {.ndim = 1, .dim = {7}}};
	struct gp_graph *g = gp_graph_new_empty("text", &err);
	const int tokens = gp_graph_add_input(g, "tokens", &ids, &err);
	const int mask = gp_graph_add_input(g, "mask", &ids, &err);
	gp_graph_begin_block(g, "embedding", &err);
	int x = gp_graph_embedding(g, "words", tokens, 50, 4, &err);
	gp_graph_begin_block(g, "mean", &err);
	x = gp_graph_linear(g, "fc1", x, 4, true, &err);
	x = gp_graph_masked_mean(g, "mean", x, mask, &err);
	gp_graph_begin_block(g, "classifier", &err);
	x = gp_graph_linear(g, "fc2", x, 3, true, &err);
	assert_true(x > 0);
	assert_int_equal(gp_graph_finish(g, &err), GP_OK);
	return g;
}

static void integers_and_data_cross_without_gradient_and_without_loss(void **state)
{
	(void)state;
	struct gp_graph *g = graph_of_text();
	struct gp_graph_parts p = cut_at(g, 1, 2);
	expect_ports(p.head, "tokens ", "words ");
	expect_ports(p.body, "mask words ", "mean ");
	expect_ports(p.tail, "mean ", "fc2 ");
	assert_true(p.body_in[0].from == GP_FROM_DATA && p.body_in[0].index == 1);
	assert_true(p.body_in[1].from == GP_FROM_HEAD && p.body_in[1].index == 0);
	assert_int_equal(p.body->value[0].type.dtype, GP_I32);
	assert_int_equal(p.body_activation, 2);
	assert_int_equal(p.body_gradient, 2);
	gp_graph_parts_deinit(&p);
	gp_graph_free(g);
}

/* As OPEN gives them, so from anybody. */
static void blocks_that_cannot_be_are_refused(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_graph *g = graph_of_text(); /* two inputs, four nodes */
	const uint32_t good[] = {1, 3}, zero[] = {0}, far[] = {4}, twice[] = {2, 2}, back[] = {3, 1},
		       huge[] = {UINT32_MAX};
	assert_int_equal(gp_graph_set_blocks(g, 1, zero, &err), GP_INVALID);
	assert_int_equal(gp_graph_set_blocks(g, 1, far, &err), GP_INVALID);
	assert_int_equal(gp_graph_set_blocks(g, 2, twice, &err), GP_INVALID);
	assert_int_equal(gp_graph_set_blocks(g, 2, back, &err), GP_INVALID);
	assert_int_equal(gp_graph_set_blocks(g, 1, huge, &err), GP_INVALID);
	assert_int_equal(g->blocks, 3);
	assert_int_equal(gp_graph_set_blocks(g, 2, good, &err), GP_OK);
	assert_int_equal(g->blocks, 3);
	assert_int_equal(gp_graph_block_end(g, 0), 3);
	assert_int_equal(gp_graph_block_end(g, 1), 5);
	assert_int_equal(gp_graph_block_end(g, 2), 6);
	for (int i = 0; i < g->nodes; i++)
		assert_int_equal(gp_graph_block_of(g, i), (i >= 3) + (i >= 5));
	assert_int_equal(gp_graph_set_blocks(g, 0, NULL, &err), GP_OK);
	assert_int_equal(g->blocks, 1);
	for (int i = 0; i < g->nodes; i++)
		assert_int_equal(gp_graph_block_of(g, i), 0);
	gp_graph_free(g);
}

static void what_is_frozen_needs_no_gradient(void **state)
{
	(void)state;
	struct gp_graph *g = graph_of_text();
	const uint64_t all = g->trained_elements;
	assert_int_equal(gp_graph_freeze(g, "nothing.*"), 0);
	assert_int_equal(gp_graph_freeze_blocks(g, 0, 1), 1);
	assert_true(g->trained_elements == all - 200);
	struct gp_graph_parts p = cut_at(g, 1, 2);
	assert_int_equal(p.body_gradient, 0);
	assert_int_equal(p.body_activation, 2); /* it may still be compressed */
	assert_int_equal(p.tail_gradient, 1);
	assert_true(p.head->trained_elements == 0);
	gp_graph_parts_deinit(&p);
	assert_int_equal(gp_graph_freeze(g, "fc1.*"), 2);
	p = cut_at(g, 1, 2);
	assert_true(p.body_gradient == 0 && p.tail_gradient == 0 && p.tail_activation == 1);
	gp_graph_parts_deinit(&p);
	gp_graph_free(g);
}

static void part_outside_the_graph_is_refused(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_graph *g = graph_with_a_long_skip(), *p = NULL;
	assert_int_equal(gp_graph_part(g, 1, 1, &p, &err), GP_INVALID);
	assert_int_equal(gp_graph_part(g, -1, 1, &p, &err), GP_INVALID);
	assert_int_equal(gp_graph_part(g, 0, 5, &p, &err), GP_INVALID);
	assert_int_equal(gp_graph_part(g, 3, 2, &p, &err), GP_INVALID);
	gp_graph_free(g);
}

static void cuts_count_from_either_end(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_cut cut = {-7, -7};
	struct gp_graph *g = graph_with_a_long_skip();
	static const struct {
		const char *text;
		int head, tail;
	} good[] = {{"1:-1", 1, 3}, {"1:2", 1, 2}, {"2:3", 2, 3}, {"-3:-1", 1, 3}, {"1:-2", 1, 2}};
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
		assert_int_equal(gp_cut_parse(g, good[i].text, &cut, &err), GP_OK);
		assert_true(cut.head == good[i].head && cut.tail == good[i].tail);
	}
	static const char *const bad[] = {"",
					  "1",
					  ":",
					  "1:",
					  ":1",
					  "0:-1",
					  "1:4",
					  "3:3",
					  "3:2",
					  "1:-3",
					  "1:-1x",
					  " 1:-1",
					  "1:-1 ",
					  "+1:3",
					  "1:--1",
					  "1::2",
					  "99999999999999999999:3",
					  "-99:3"};
	cut = (struct gp_cut){-7, -7};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		assert_int_equal(gp_cut_parse(g, bad[i], &cut, &err), GP_USAGE);
		assert_non_null(strstr(err.text, "4 blocks"));
	}
	assert_true(cut.head == -7 && cut.tail == -7);
	gp_graph_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(part_takes_and_gives_all_values_that_cross_its_borders),
		cmocka_unit_test(cut_inside_a_residual_block_sends_the_skip_as_well),
		cmocka_unit_test(value_that_the_body_reads_twice_and_the_tail_reads_passes_through_the_body),
		cmocka_unit_test(integers_and_data_cross_without_gradient_and_without_loss),
		cmocka_unit_test(what_is_frozen_needs_no_gradient),
		cmocka_unit_test(part_outside_the_graph_is_refused),
		cmocka_unit_test(cuts_count_from_either_end),
		cmocka_unit_test(blocks_that_cannot_be_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
