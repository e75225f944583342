/* SPDX-License-Identifier: Apache-2.0
 *
 * Cuts of models (client/models/models.h): every cut of every model gives parts
 * that chain, cuts=fine adds the places that it should, and so many tensors cross.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/unit/built_model.h"

static void check_same_params(const struct gp_graph *whole, const struct gp_graph *part, int *index)
{
	for (int i = 0; i < part->params; i++, (*index)++) {
		const struct gp_param *p = &part->param[i], *q = &whole->param[*index];
		assert_string_equal(p->name, q->name);
		assert_true(gp_shape_equal(&p->shape, &q->shape));
		assert_true(p->init == q->init && p->init_scale == q->init_scale);
		assert_string_equal(part->node[p->node].name, whole->node[q->node].name);
	}
}

static const struct gp_type *source_of(const struct gp_graph *g, const struct gp_graph_parts *p,
				       const struct gp_port *from)
{
	if (from->from == GP_FROM_DATA)
		return &g->value[from->index].type;
	return gp_graph_output_type(from->from == GP_FROM_HEAD ? p->head : p->body, from->index);
}

/* Every input of a part has the type of what it is given. */
static void check_ports(const struct gp_graph *g, const struct gp_graph_parts *p)
{
	const struct gp_graph *part[3] = {p->head, p->body, p->tail};
	const struct gp_port *in[3] = {p->head_in, p->body_in, p->tail_in};
	for (int k = 0; k < 3; k++)
		for (int i = 0; i < part[k]->inputs; i++)
			assert_true(gp_type_equal(&part[k]->value[i].type, source_of(g, p, &in[k][i])));
}

/* Identity nodes that gp_graph_cut puts at the body's end are none of the model's. */
static int own_nodes(const struct gp_graph *part)
{
	int count = 0;
	for (int i = part->inputs; i < part->nodes; i++)
		count += part->node[i].op != GP_OP_IDENTITY;
	return count;
}

static void check_cut(const struct gp_graph *g, int head, int tail)
{
	struct gp_err err = {0};
	const struct gp_cut cut = {head, tail};
	struct gp_graph_parts p;
	int nodes = 0, params = 0;
	uint64_t macs = 0, elements = 0;
	if (gp_graph_cut(g, &cut, &p, &err) != GP_OK)
		fail_msg("%s cut %d:%d: %s", g->name, head, tail, err.text);
	const struct gp_graph *part[3] = {p.head, p.body, p.tail};
	for (int i = 0; i < 3; i++) {
		check_same_params(g, part[i], &params);
		nodes += own_nodes(part[i]);
		macs += part[i]->macs;
		elements += part[i]->param_elements;
	}
	check_ports(g, &p);
	assert_true(gp_shape_equal(gp_graph_output_shape(p.tail), gp_graph_output_shape(g)));
	assert_int_equal(nodes, own_nodes(g));
	assert_int_equal(params, g->params);
	assert_true(macs == g->macs && elements == g->param_elements);
	gp_graph_parts_deinit(&p);
}

static void one_tensor_crosses_between_blocks_and_two_inside_a_residual_block(void **state)
{
	(void)state;
	struct gp_graph *g = build("resnet20:cuts=fine", 0, 0, 0);
	assert_string_equal(g->block[3].name, "layer1.0.relu1");
	assert_string_equal(g->block[4].name, "layer1.0.add");
	expect_crossing(g, "1:-1", 1, 1);
	expect_crossing(g, "3:-1", 2, 1);
	expect_crossing(g, "4:8", 2, 2);
	gp_graph_free(g);
	g = build("mobilenetv2:cuts=fine", 0, 0, 0);
	int block = 0;
	while (strcmp(g->block[block].name, "features.3.add") != 0)
		block++;
	char text[16];
	snprintf(text, sizeof text, "%d:-1", block);
	expect_crossing(g, text, 2, 1);
	snprintf(text, sizeof text, "1:%d", block - 1); /* features.3.conv.1.act */
	expect_crossing(g, text, 1, 2);
	gp_graph_free(g);
	g = build("mobilenetv2", 0, 0, 0);
	expect_crossing(g, "3:-3", 1, 1);
	gp_graph_free(g);
}

static void every_cut_of_every_model_gives_parts_that_chain(void **state)
{
	(void)state;
	static const char *const specs[] = {
		"cnn",
		"mobilenetv2:width=0.5,stem=cifar",
		"mobilenetv2",
		"mobilenetv2:cuts=fine",
		"resnet18",
		"resnet18:cuts=fine",
		"resnet20:width=0.5",
		"resnet20:cuts=fine",
		"vgg13",
		"vgg13:cuts=fine,hidden=0",
		"fasttext",
		"roberta:layers=4",
		"roberta:layers=2,cuts=fine",
		"bert:layers=2,cuts=fine",
	};
	for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
		struct gp_graph *g = build(specs[i], 0, 0, 0);
		for (int head = 1; head < g->blocks - 1; head++)
			for (int tail = head + 1; tail < g->blocks; tail++)
				check_cut(g, head, tail);
		gp_graph_free(g);
	}
}

static void default_cut_keeps_stem_and_classifier_on_the_client(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_cut cut;
	struct gp_graph *g = build("mobilenetv2", 0, 0, 0), *head, *tail;
	assert_int_equal(gp_cut_parse(g, "1:-1", &cut, &err), GP_OK);
	assert_int_equal(gp_graph_part(g, 0, cut.head, &head, &err), GP_OK);
	assert_int_equal(gp_graph_part(g, cut.tail, g->blocks, &tail, &err), GP_OK);
	assert_int_equal(head->nodes, 4); /* input, convolution, batch norm, ReLU6 */
	assert_int_equal(tail->nodes, 3); /* input, dropout, linear */
	assert_true(gp_graph_input_shape(tail)->ndim == 1 && gp_graph_input_shape(tail)->dim[0] == 1280);
	gp_graph_free(head);
	gp_graph_free(tail);
	gp_graph_free(g);
}

/* Which blocks cuts=fine adds, and that an activation or a residual sum begins there, behind what can be a batch norm. */
static int count_fine(const struct gp_graph *g)
{
	int count = 0;
	for (int i = 1; i < g->blocks; i++) {
		const char *name = g->block[i].name;
		const enum gp_op first = g->node[g->block[i].first_node].op;
		const enum gp_op before = g->node[g->block[i].first_node - 1].op;
		const bool act = ends_with(name, ".act"), inside = ends_with(name, ".relu1");
		if (act || inside)
			assert_true(first == GP_OP_RELU || first == GP_OP_RELU6);
		if (inside || ends_with(name, ".add"))
			assert_true(before == GP_OP_BATCH_NORM);
		count += act || inside || ends_with(name, ".add");
	}
	return count;
}

/* The same network, in smaller blocks. */
static void check_fine(const char *spec, const char *fine_spec, int more_blocks)
{
	struct gp_graph *g = build(spec, 0, 0, 0), *fine = build(fine_spec, 0, 0, 0);
	assert_int_equal(fine->nodes, g->nodes);
	assert_int_equal(fine->blocks, g->blocks + more_blocks);
	for (int i = 0; i < g->nodes; i++) {
		assert_string_equal(fine->node[i].name, g->node[i].name);
		assert_true(fine->node[i].op == g->node[i].op && fine->node[i].in[0] == g->node[i].in[0]);
	}
	assert_int_equal(count_fine(fine), more_blocks);
	/* The first cut lies right behind the batch norm. */
	assert_true(fine->node[fine->block[1].first_node - 1].op == GP_OP_BATCH_NORM);
	gp_graph_free(g);
	gp_graph_free(fine);
}

/* A residual block of two convolutions has three more cuts; one of MobileNetV2 two, three with a sum, one less without
 * expansion. */
static void fine_cuts_lie_behind_batch_norms_and_sums_and_change_nothing_else(void **state)
{
	(void)state;
	check_fine("mobilenetv2", "mobilenetv2:cuts=fine", 2 + 17 * 2 - 1 + 10);
	check_fine("resnet18", "resnet18:cuts=fine", 1 + 8 * 3);
	check_fine("resnet34:stem=cifar,cuts=blocks", "resnet34:stem=cifar,cuts=fine", 1 + 16 * 3);
	check_fine("resnet56", "resnet56:cuts=fine", 1 + 27 * 3);
	check_fine("vgg13", "vgg13:cuts=fine", 12);
	check_fine("vgg13:hidden=0", "vgg13:hidden=0,cuts=fine", 10);
}

/* Stem and classifier on the client; one more block at either end; both. */
static void usual_partitions_can_be_written_for_every_model(void **state)
{
	(void)state;
	static const char *const specs[] = {"cnn",      "mobilenetv2", "resnet18", "resnet34",
					    "resnet20", "resnet56",    "vgg13"};
	static const char *const cuts[] = {"1:-1", "2:-2", "2:-1", "1:-2"};
	for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
		struct gp_graph *g = build(specs[i], 0, 0, 0);
		for (size_t k = 0; k < sizeof cuts / sizeof cuts[0]; k++) {
			struct gp_err err;
			struct gp_cut cut;
			if (g->blocks == 4 && k == 1)
				continue; /* cnn: nothing would be left for the server */
			assert_int_equal(gp_cut_parse(g, cuts[k], &cut, &err), GP_OK);
			check_cut(g, cut.head, cut.tail);
		}
		gp_graph_free(g);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_cut_of_every_model_gives_parts_that_chain),
		cmocka_unit_test(fine_cuts_lie_behind_batch_norms_and_sums_and_change_nothing_else),
		cmocka_unit_test(one_tensor_crosses_between_blocks_and_two_inside_a_residual_block),
		cmocka_unit_test(usual_partitions_can_be_written_for_every_model),
		cmocka_unit_test(default_cut_keeps_stem_and_classifier_on_the_client),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
