/* SPDX-License-Identifier: Apache-2.0
 *
 * What parts of a model cost (client/costs/part_costs.h) and the table of it
 * (client/costs/cost_table.h): against the figures that the origin published for
 * MobileNetV2, and against products counted by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/costs/cost_table.h"
#include "client/job/freeze.h"
#include "client/models/models.h"
#include "common/graph/graph_part.h"
#include "common/graph/ops/op_attention.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_linear.h"
#include "tests/unit/ok.h"

static struct gp_graph *mobilenet(const char *cut_text, struct gp_cut *cut)
{
	struct gp_graph *g = NULL;
	OK(gp_model_build("mobilenetv2:cuts=fine,classes=1000", NULL, &g, &err));
	OK(gp_cut_parse(g, cut_text, cut, &err));
	return g;
}

static void view_of(const struct gp_graph *g, const struct gp_cut *cut, struct gp_model_view *v)
{
	OK(gp_model_view_init(v, "mobilenetv2", g, cut, 64, 8, &err));
}

static uint64_t batch_macs(const struct gp_model_view *v, int part, enum gp_count count)
{
	return gp_cost_of(&v->part[part].costs.pass[GP_PASS_FORWARD], v->batch).macs[count];
}

/* The origin's figures have three digits. */
static void assert_within_a_hundredth(uint64_t ours, double theirs)
{
	if (fabs((double)ours / theirs - 1) > 0.01)
		fail_msg("%llu, but the origin has %.3g", (unsigned long long)ours, theirs);
}

/* Head, body and tail for a batch of 64 at the origin's cut. */
static void assert_parts(const struct gp_model_view *v, const double theirs[3], double true_body)
{
	for (int p = GP_VIEW_HEAD; p <= GP_VIEW_TAIL; p++)
		assert_within_a_hundredth(batch_macs(v, p, GP_COUNT_ORIGIN), theirs[p]);
	assert_within_a_hundredth(batch_macs(v, GP_VIEW_BODY, GP_COUNT_TRUE), true_body);
}

static void mobilenetv2_costs_what_the_origin_says(void **state)
{
	(void)state;
	struct gp_cut cut;
	struct gp_model_view v;
	struct gp_graph *g = mobilenet("1:-2", &cut);
	view_of(g, &cut, &v);
	assert_parts(&v, (const double[]){7.45e8, 1.93e10, 8.19e7}, 1.85e10);
	assert_true(batch_macs(&v, GP_VIEW_TOTAL, GP_COUNT_TRUE) == 64ull * 300774272);
	assert_true(v.part[GP_VIEW_HEAD].costs.pass[GP_PASS_FORWARD].bytes == 2 * 32 * 112 * 112 * 4);
	gp_model_view_deinit(&v);
	gp_graph_free(g);
}

/* The model of `preset` at the origin's cut, and its view. */
static struct gp_graph *insert(const char *preset, struct gp_cut *cut, struct gp_insertion *ins,
			       struct gp_model_view *v)
{
	struct gp_view_plain plain;
	struct gp_graph *g = mobilenet("1:-2", cut);
	OK(gp_insertion_parse(preset, NULL, NULL, ins, &err));
	OK(gp_view_plain_find(g, cut, &plain, &err));
	OK(gp_insert(&g, cut, ins, &err));
	view_of(g, cut, v);
	gp_model_view_compare(v, ins, &plain);
	return g;
}

static void insertions_cost_what_the_origin_says(void **state)
{
	(void)state;
	static const struct {
		const char *preset;
		double origin[3], true_body, rate;
	} rows[] = {{"flop-2", {1.25e9, 2.53e10, 1.53e9}, 2.04e10, 0.097},
		    {"flop-3", {1.60e9, 3.40e10, 1.65e9}, 2.09e10, 0.038}};
	for (int i = 0; i < 2; i++) {
		struct gp_cut cut;
		struct gp_insertion ins;
		struct gp_model_view v;
		struct gp_graph *g = insert(rows[i].preset, &cut, &ins, &v);
		assert_parts(&v, rows[i].origin, rows[i].true_body);
		const double both =
			(double)(gp_model_view_bytes(&v, GP_ACT_UP, 1) + gp_model_view_bytes(&v, GP_ACT_DOWN, 1)) /
			(double)(v.plain.bytes[GP_ACT_UP] + v.plain.bytes[GP_ACT_DOWN]);
		assert_true(fabs(both - rows[i].rate) < 0.0005);
		gp_model_view_deinit(&v);
		gp_graph_free(g);
	}
}

/* By part: forward products of a sample, as either count has them. */
static void part_macs(const struct gp_model_view *v, uint64_t macs[3][GP_COUNTS])
{
	for (int p = 0; p < 3; p++)
		memcpy(macs[p], v->part[p].costs.pass[GP_PASS_FORWARD].macs, sizeof macs[p]);
}

/* The straight path and the two layers of the branch, at each position of 32 channels of 112x112 and 1280 of 7x7. */
static void a_bottleneck_costs_three_products(void **state)
{
	(void)state;
	static const uint64_t up = 112 * 112 * (32 * 8 + 32 * 32 + 32 * 8),
			      down = 49 * (1280 * 40 + 1280 * 50 + 50 * 40), up_back = up,
			      down_back = 49 * (40 * 1280 + 40 * 50 + 50 * 1280);
	const uint64_t more[] = {[GP_VIEW_HEAD] = up, [GP_VIEW_BODY] = up_back + down, [GP_VIEW_TAIL] = down_back};
	uint64_t plain[3][GP_COUNTS], with[3][GP_COUNTS];
	struct gp_cut cut;
	struct gp_model_view v;
	struct gp_insertion ins;
	struct gp_graph *g = mobilenet("1:-2", &cut);
	view_of(g, &cut, &v);
	part_macs(&v, plain);
	gp_model_view_deinit(&v);
	OK(gp_insertion_parse(NULL, "bottleneck:dim=8", "bottleneck:dim=40,hidden=50", &ins, &err));
	OK(gp_insert(&g, &cut, &ins, &err));
	view_of(g, &cut, &v);
	part_macs(&v, with);
	for (int p = 0; p < 3; p++)
		for (int c = 0; c < GP_COUNTS; c++)
			assert_int_equal(with[p][c] - plain[p][c], more[p]);
	assert_int_equal(gp_model_view_bytes(&v, GP_ACT_UP, 1), 112 * 112 * 8 * 4);
	assert_int_equal(gp_model_view_bytes(&v, GP_ACT_DOWN, 1), 49 * 40 * 4);
	gp_model_view_deinit(&v);
	gp_graph_free(g);
}

/* A small net whose products are counted by hand: input 5x5x2, conv to 3 channels, batch norm, transposed conv of stride
 * 2 to 4 channels, whose outputs a linear layer reads. */
static struct gp_graph *small_net(void)
{
	const struct gp_shape shape = {.ndim = 3, .dim = {5, 5, 2}};
	struct gp_graph *g = gp_graph_new("small", &shape, &err);
	struct gp_node up = {.op = GP_OP_CONV2D_TRANSPOSE};
	gp_set_conv_attr(&up, (struct gp_conv_attr){.out_channels = 4,
						    .kernel_h = 2,
						    .kernel_w = 2,
						    .stride_h = 2,
						    .stride_w = 2,
						    .groups = 1,
						    .bias = 1});
	assert_non_null(g);
	OK(gp_graph_begin_block(g, "all", &err));
	int x = gp_graph_conv(g, "conv", 0, 3, 3, 1, 0, 1, false, &err);
	x = gp_graph_batch_norm(g, "norm", x, 1e-5f, 0.1f, &err);
	x = gp_graph_append(g, up, "up", 1, &x, &err);
	x = gp_graph_unary(g, GP_OP_FLATTEN, "flat", x, &err);
	x = gp_graph_linear(g, "linear", x, 7, true, &err);
	assert_true(x >= 0);
	OK(gp_graph_finish(g, &err));
	return g;
}

enum { CONV = 1, NORM, UP, FLAT, LINEAR };

static void assert_macs(const struct gp_graph *g, int node, uint64_t true_macs, uint64_t origin)
{
	assert_true(gp_node_macs(g, &g->node[node], GP_COUNT_TRUE) == true_macs);
	assert_true(gp_node_macs(g, &g->node[node], GP_COUNT_ORIGIN) == origin);
}

static void each_op_counts_by_its_rule(void **state)
{
	(void)state;
	struct gp_graph *g = small_net();
	assert_macs(g, CONV, 3 * 3 * 3 * 2 * 9, 3 * 3 * 3 * 2 * 9);
	assert_macs(g, NORM, 0, 2 * 3 * 3 * 3);
	assert_macs(g, UP, 3 * 3 * 3 * 4 * 4, 6 * 6 * 4 * 3 * 4);
	assert_macs(g, FLAT, 0, 0);
	assert_macs(g, LINEAR, 144 * 7, 144 * 7);
	gp_graph_free(g);
}

static struct gp_cost cost_of(const struct gp_graph *g, int node, enum gp_pass pass)
{
	struct gp_part_costs c;
	gp_part_costs_find(g, node, node + 1, &c);
	return c.pass[pass];
}

static void backward_costs_what_is_wanted_of_it(void **state)
{
	(void)state;
	struct gp_graph *g = small_net();
	assert_true(cost_of(g, CONV, GP_PASS_BACKWARD).macs[GP_COUNT_TRUE] == 486); /* weights: data has no gradient */
	assert_true(cost_of(g, NORM, GP_PASS_BACKWARD).macs[GP_COUNT_ORIGIN] == 2 * 54);
	assert_true(cost_of(g, UP, GP_PASS_BACKWARD).macs[GP_COUNT_TRUE] == 2 * 432);
	assert_true(cost_of(g, UP, GP_PASS_BACKWARD).macs[GP_COUNT_ORIGIN] == 2 * 1728);
	assert_true(cost_of(g, UP, GP_PASS_BACKWARD).bytes == 144 * 4);
	gp_graph_freeze(g, "conv.*");
	gp_graph_freeze(g, "norm.*");
	assert_true(cost_of(g, CONV, GP_PASS_BACKWARD).macs[GP_COUNT_TRUE] == 0);
	assert_true(cost_of(g, CONV, GP_PASS_BACKWARD).bytes == 0);
	assert_true(cost_of(g, CONV, GP_PASS_FORWARD).bytes == 27 * 4);
	assert_true(cost_of(g, UP, GP_PASS_BACKWARD).macs[GP_COUNT_TRUE] == 432); /* nothing before it is trained */
	gp_graph_freeze(g, "up.*");
	assert_true(cost_of(g, UP, GP_PASS_BACKWARD).macs[GP_COUNT_TRUE] == 0);
	assert_true(cost_of(g, LINEAR, GP_PASS_BACKWARD).macs[GP_COUNT_TRUE] == 144 * 7);
	gp_graph_free(g);
}

/* Both products of attention are of activations with activations. */
static void attention_goes_back_by_four_products(void **state)
{
	(void)state;
	struct gp_graph *g = NULL;
	struct gp_part_costs c;
	OK(gp_model_build("roberta:layers=1,dim=8,heads=2,ffn=16,vocab=20,tokens=6", NULL, &g, &err));
	for (int i = 0; i < g->nodes; i++) {
		if (g->node[i].op != GP_OP_ATTENTION)
			continue;
		gp_part_costs_find(g, i, i + 1, &c);
		assert_true(c.pass[GP_PASS_FORWARD].macs[GP_COUNT_TRUE] == 2 * 6 * 6 * 8);
		assert_true(c.pass[GP_PASS_BACKWARD].macs[GP_COUNT_TRUE] == 4 * 6 * 6 * 8);
	}
	gp_graph_free(g);
}

static void figures_stop_where_json_ends(void **state)
{
	(void)state;
	const struct gp_cost much = {.macs = {INT64_MAX / 2, 3}, .bytes = INT64_MAX};
	const struct gp_cost c = gp_cost_of(&much, 1 << 20);
	assert_true(c.macs[GP_COUNT_TRUE] == INT64_MAX && c.bytes == INT64_MAX);
	assert_true(c.macs[GP_COUNT_ORIGIN] == 3 << 20);
}

static void assert_text_has(const struct gp_model_view *v, const char *const *words, size_t count)
{
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	assert_non_null(f);
	gp_model_view_print(v, true, f);
	fclose(f);
	for (size_t i = 0; i < count; i++)
		if (!strstr(text, words[i]))
			fail_msg("no '%s' in:\n%s", words[i], text);
	free(text);
}

static void the_table_has_both_counts(void **state)
{
	(void)state;
	struct gp_cut cut;
	struct gp_model_view v;
	struct gp_graph *g = mobilenet("1:-2", &cut);
	static const char *const words[] = {"MACs/sample", "10,838,016", "6.94e8",      "7.45e8",   "1.93e10",
					    "8.19e7",      "chunk of 8", "batch of 64", "backward", "1.0000"};
	static const char *const origin[] = {"MACs, origin", "11,640,832", "6.94e8", "7.45e8"};
	view_of(g, &cut, &v);
	assert_text_has(&v, words, sizeof words / sizeof words[0]);
	v.count = GP_COUNT_ORIGIN;
	assert_text_has(&v, origin, sizeof origin / sizeof origin[0]);
	gp_model_view_deinit(&v);
	gp_graph_free(g);
}

static json_t *view_json(const struct gp_model_view *v)
{
	json_error_t json_err;
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);
	assert_non_null(f);
	assert_int_equal(gp_model_view_json(v, f, &err), GP_OK);
	fclose(f);
	json_t *root = json_loadb(text, len, 0, &json_err);
	assert_non_null(root);
	free(text);
	return root;
}

/* The value at "a.b.c". */
static json_t *at(json_t *root, const char *path)
{
	char copy[100], *rest = copy, *key;
	snprintf(copy, sizeof copy, "%s", path);
	while (root && (key = strsep(&rest, ".")))
		root = json_object_get(root, key);
	if (!root)
		fail_msg("no %s", path);
	return root;
}

static void json_has_both_counts(void **state)
{
	(void)state;
	struct gp_cut cut;
	struct gp_model_view v;
	struct gp_graph *g = mobilenet("1:-2", &cut);
	int frozen;
	OK(gp_freeze(g, &cut, "head", &frozen, &err));
	view_of(g, &cut, &v);
	json_t *root = view_json(&v);
	assert_int_equal(json_integer_value(at(root, "parts.head.macs")), 10838016);
	assert_int_equal(json_integer_value(at(root, "parts.head.origin_macs")), 11640832);
	assert_int_equal(json_integer_value(at(root, "parts.head.activation_bytes")), 2 * 32 * 112 * 112 * 4);
	assert_int_equal(json_integer_value(at(root, "parts.head.forward.batch.macs")), 64 * 10838016);
	assert_int_equal(json_integer_value(at(root, "parts.head.forward.chunk.origin_macs")), 8 * 11640832);
	assert_int_equal(json_integer_value(at(root, "parts.head.backward.sample.macs")), 0);
	assert_int_equal(json_integer_value(at(root, "parts.tail.backward.sample.macs")), 2560000);
	assert_true(json_real_value(at(root, "rate.forward.both")) == 1.0);
	assert_true(json_is_null(at(root, "rate.backward.down"))); /* nothing before the first cut is trained */
	json_decref(root);
	gp_model_view_deinit(&v);
	gp_graph_free(g);
}

static void rates_are_those_of_the_model_without_the_insertion(void **state)
{
	(void)state;
	struct gp_cut cut;
	struct gp_insertion ins;
	struct gp_model_view v;
	struct gp_graph *g = insert("flop-2", &cut, &ins, &v);
	static const char *const words[] = {"insertion up: conv:out=20,k=3,s=3", "insertion down: conv:out=360,k=1,s=1",
					    "0.0970", "1856512", "conv2d_transpose 3x3 /3"};
	assert_text_has(&v, words, sizeof words / sizeof words[0]);
	json_t *root = view_json(&v);
	assert_true(fabs(json_real_value(at(root, "rate.forward.up")) - 20.0 * 37 * 37 / (32 * 112 * 112)) < 1e-9);
	assert_true(fabs(json_real_value(at(root, "rate.backward.up")) - 360.0 / 1280) < 1e-9);
	assert_int_equal(json_integer_value(at(root, "parts.head.parameters")), 928 + 32 * 20 * 9 + 20);
	json_decref(root);
	gp_model_view_deinit(&v);
	gp_graph_free(g);
}

/* Where no gradient comes down there is nothing to compare with, and the up way has its rate. */
static void frozen_heads_have_no_rate_down_of_gradients(void **state)
{
	(void)state;
	struct gp_cut cut;
	struct gp_insertion ins;
	struct gp_model_view v;
	struct gp_view_plain plain;
	int frozen;
	struct gp_graph *g = mobilenet("1:-2", &cut);
	OK(gp_insertion_parse("flop-3", NULL, NULL, &ins, &err));
	OK(gp_view_plain_find(g, &cut, &plain, &err));
	OK(gp_insert(&g, &cut, &ins, &err));
	OK(gp_freeze(g, &cut, "head", &frozen, &err));
	view_of(g, &cut, &v);
	gp_model_view_compare(&v, &ins, &plain);
	json_t *root = view_json(&v);
	assert_true(json_is_null(at(root, "rate.backward.down")));
	assert_true(fabs(json_real_value(at(root, "rate.backward.both")) - 40.0 / 1280) < 1e-9);
	json_decref(root);
	gp_model_view_deinit(&v);
	gp_graph_free(g);
}

/* The cuts of an encoder that have names cost what they cost, whatever is inserted at one of them. */
static void named_cuts_are_those_of_the_model_without_the_insertion(void **state)
{
	(void)state;
	struct gp_graph *g = NULL;
	struct gp_cut cut;
	struct gp_insertion ins;
	struct gp_view_plain plain;
	struct gp_model_view v;
	OK(gp_model_build("roberta:layers=3,dim=8,heads=2,ffn=16,vocab=20,tokens=6", NULL, &g, &err));
	OK(gp_partition_parse(g, "f3l2", &cut, &err));
	OK(gp_insertion_parse("linear:rank=2,dim=feature", NULL, NULL, &ins, &err));
	OK(gp_view_plain_find(g, &cut, &plain, &err));
	OK(gp_insert(&g, &cut, &ins, &err));
	OK(gp_model_view_init(&v, "roberta", g, &cut, 4, 2, &err));
	assert_true(v.plain.partition[0].up_bytes == 6 * 2 * 4);
	gp_model_view_compare(&v, &ins, &plain);
	assert_string_equal(v.plain.partition[0].name, "f3l2");
	assert_true(v.plain.partition[0].up_bytes == 6 * 8 * 4);
	gp_model_view_deinit(&v);
	gp_graph_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mobilenetv2_costs_what_the_origin_says),
		cmocka_unit_test(insertions_cost_what_the_origin_says),
		cmocka_unit_test(a_bottleneck_costs_three_products),
		cmocka_unit_test(each_op_counts_by_its_rule),
		cmocka_unit_test(backward_costs_what_is_wanted_of_it),
		cmocka_unit_test(attention_goes_back_by_four_products),
		cmocka_unit_test(figures_stop_where_json_ends),
		cmocka_unit_test(the_table_has_both_counts),
		cmocka_unit_test(json_has_both_counts),
		cmocka_unit_test(rates_are_those_of_the_model_without_the_insertion),
		cmocka_unit_test(frozen_heads_have_no_rate_down_of_gradients),
		cmocka_unit_test(named_cuts_are_those_of_the_model_without_the_insertion),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
