/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops of language models in a graph (common/graph/graph.h): their shapes, and
 * refusal of every bad node.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <limits.h>
#include <math.h>

#include "tests/unit/one_node.h"
#include "common/graph/ops/op_attention.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_layer_norm.h"
#include "common/graph/ops/op_rows.h"

static const struct gp_shape sequence = {.ndim = 2, .dim = {7, 12}}, row = {.ndim = 1, .dim = {12}};

static struct gp_node node_of(enum gp_op op)
{
	return (struct gp_node){.op = op, .name = "n", .inputs = 1, .in = {0}};
}

static struct gp_node layer_norm_node(float eps, float p)
{
	struct gp_node n = node_of(GP_OP_LAYER_NORM);
	gp_set_layer_norm_attr(&n, (struct gp_layer_norm_attr){.eps = eps, .p = p});
	return n;
}

static struct gp_node add_rows_node(int rows, int first, int step)
{
	struct gp_node n = node_of(GP_OP_ADD_ROWS);
	gp_set_add_rows_attr(&n, (struct gp_add_rows_attr){.rows = rows, .first = first, .step = step});
	return n;
}

static struct gp_node take_row_node(int index)
{
	struct gp_node n = node_of(GP_OP_TAKE_ROW);
	gp_set_take_row_attr(&n, (struct gp_take_row_attr){.row = index});
	return n;
}

static struct gp_node gelu_node(int approximate)
{
	struct gp_node n = node_of(GP_OP_GELU);
	gp_set_gelu_attr(&n, (struct gp_gelu_attr){.approximate = approximate});
	return n;
}

static void shapes_of_language_ops_are_those_of_their_inputs(void **state)
{
	(void)state;
	expect_shape(image, gelu_node(0), "15x14x8", 0);
	expect_shape(row, gelu_node(1), "12", 0);
	expect_shape(sequence, node_of(GP_OP_TANH), "7x12", 0);
	expect_shape(sequence, layer_norm_node(1e-12f, 0.1f), "7x12", 0);
	expect_shape(image, layer_norm_node(1.0f, 0.0f), "15x14x8", 0);
	expect_shape(row, layer_norm_node(1e-5f, 0.0f), "12", 0);
	expect_shape(sequence, add_rows_node(9, 2, 1), "7x12", 0);
	expect_shape(sequence, add_rows_node(1, 0, 0), "7x12", 0);
	expect_shape(sequence, take_row_node(6), "12", 0);
}

static void curves_norms_and_rows_with_bad_attributes_are_refused(void **state)
{
	static const float bad_eps[] = {0.0f, -1e-5f, 1.5f, INFINITY, NAN},
			   bad_p[] = {1.0f, -0.1f, 2.0f, INFINITY, NAN};
	(void)state;
	for (int i = 0; i < 5; i++) {
		expect_refused(sequence, layer_norm_node(bad_eps[i], 0.0f), "eps");
		expect_refused(sequence, layer_norm_node(1e-5f, bad_p[i]), "dropout probability");
	}
	expect_refused(row, gelu_node(2), "approximate");
	expect_refused(row, gelu_node(-1), "approximate");
	expect_refused(sequence, add_rows_node(0, 0, 0), "rows");
	expect_refused(sequence, add_rows_node(INT_MIN, 0, 1), "rows");
	expect_refused(sequence, add_rows_node(INT_MAX, 0, 1), "rows");
	expect_refused(sequence, add_rows_node(9, 9, 0), "first");
	expect_refused(sequence, add_rows_node(9, -1, 0), "first");
	expect_refused(sequence, add_rows_node(9, 0, 2), "step");
	expect_refused(sequence, add_rows_node(9, 0, -1), "step");
	expect_refused(sequence, add_rows_node(9, 3, 1), "7 positions, and rows for 6 of them");
	expect_refused(row, add_rows_node(9, 0, 1), "takes (S,F)");
	expect_refused(image, add_rows_node(9, 0, 1), "takes (S,F)");
	expect_refused(sequence, take_row_node(7), "row");
	expect_refused(sequence, take_row_node(-1), "row");
	expect_refused(row, take_row_node(0), "takes (S,F)");
}

/* A graph of up to four inputs, and what an attention over them is refused for; NULL: it is not. */
static void expect_attention(const struct gp_type in[4], int heads, float p, const char *words)
{
	struct gp_err err = {0};
	struct gp_graph *g = gp_graph_new_empty("test", &err);
	assert_non_null(g);
	for (int i = 0; i < 4; i++) {
		char name[8];
		snprintf(name, sizeof name, "in%d", i);
		assert_int_equal(gp_graph_add_input(g, name, &in[i], &err), i);
	}
	assert_int_equal(gp_graph_begin_block(g, "b0", &err), GP_OK);
	const int made = gp_graph_attention(g, "n", (const int[]){0, 1, 2}, 3,
					    (struct gp_attention_attr){.heads = heads, .p = p}, &err);
	assert_int_equal(made, words ? -1 : 4);
	if (words && (err.code != GP_INVALID || !strstr(err.text, words)))
		fail_msg("'%s' does not mention '%s'", err.text, words);
	if (!words) {
		assert_true(gp_shape_equal(&g->node[4].shape, &in[0].shape));
		assert_true(g->node[4].macs == 2 * 7 * 7 * 12);
	}
	gp_graph_free(g);
}

static void attention_with_bad_attributes_or_inputs_is_refused(void **state)
{
	const struct gp_type x = {GP_F32, sequence}, other = {GP_F32, {.ndim = 2, .dim = {7, 11}}};
	const struct gp_type flat = {GP_F32, row}, ids = {GP_I32, sequence};
	const struct gp_type one = {GP_I32, {.ndim = 1, .dim = {1}}}, two = {GP_I32, {.ndim = 1, .dim = {2}}};
	const struct gp_type real = {GP_F32, {.ndim = 1, .dim = {1}}};
	static const float bad_p[] = {1.0f, -0.1f, NAN};
	(void)state;
	expect_attention((struct gp_type[]){x, x, x, one}, 12, 0.9f, NULL);
	for (int heads = 1; heads <= 4; heads++)
		expect_attention((struct gp_type[]){x, x, x, one}, heads, 0.0f, NULL);
	expect_attention((struct gp_type[]){x, x, x, one}, 5, 0.0f, "not a multiple of its 5 heads");
	expect_attention((struct gp_type[]){x, x, x, one}, 0, 0.0f, "heads");
	expect_attention((struct gp_type[]){x, x, x, one}, 13, 0.0f, "heads");
	expect_attention((struct gp_type[]){x, x, x, one}, INT_MIN, 0.0f, "heads");
	for (int i = 0; i < 3; i++)
		expect_attention((struct gp_type[]){x, x, x, one}, 3, bad_p[i], "dropout probability");
	expect_attention((struct gp_type[]){x, other, x, one}, 1, 0.0f, "of one shape");
	expect_attention((struct gp_type[]){x, x, other, one}, 1, 0.0f, "of one shape");
	expect_attention((struct gp_type[]){flat, flat, flat, one}, 1, 0.0f, "of one shape");
	expect_attention((struct gp_type[]){x, x, x, two}, 1, 0.0f, "one length");
	expect_attention((struct gp_type[]){x, x, x, ids}, 1, 0.0f, "one length");
	expect_attention((struct gp_type[]){x, x, x, real}, 1, 0.0f, "i32");
	expect_attention((struct gp_type[]){x, ids, x, one}, 1, 0.0f, "f32");
}

static void a_norms_residual_has_the_shape_of_its_input(void **state)
{
	(void)state;
	struct gp_err err = {0};
	const struct gp_layer_norm_attr attr = {.eps = 1e-5f};
	const struct gp_type ids = {GP_I32, sequence};
	struct gp_graph *g = graph_of(sequence);
	int first = gp_graph_take_row(g, "first", 0, 0, &err),
	    index = gp_graph_layer_norm(g, "n", 0, first, attr, &err);
	assert_int_equal(index, -1);
	assert_non_null(strstr(err.text, "differ in shape"));
	index = gp_graph_layer_norm(g, "n", 0, 0, attr, &err);
	assert_int_equal(index, 2);
	assert_int_equal(g->params, 2);
	assert_true(g->param[0].init == GP_INIT_ONES && g->param[1].init == GP_INIT_ZEROS && g->param[1].count == 12);
	gp_graph_free(g);
	g = gp_graph_new_empty("test", &err);
	assert_int_equal(gp_graph_add_input(g, "ids", &ids, &err), 0);
	assert_int_equal(gp_graph_begin_block(g, "b0", &err), GP_OK);
	assert_int_equal(gp_graph_layer_norm(g, "n", 0, -1, attr, &err), -1);
	assert_int_equal(gp_graph_gelu(g, "g", 0, false, &err), -1);
	assert_int_equal(gp_graph_take_row(g, "t", 0, 0, &err), -1);
	assert_non_null(strstr(err.text, "i32"));
	gp_graph_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shapes_of_language_ops_are_those_of_their_inputs),
		cmocka_unit_test(curves_norms_and_rows_with_bad_attributes_are_refused),
		cmocka_unit_test(attention_with_bad_attributes_or_inputs_is_refused),
		cmocka_unit_test(a_norms_residual_has_the_shape_of_its_input),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
