/* SPDX-License-Identifier: Apache-2.0
 *
 * Model builders (client/models/models.h) against torchvision: names, shapes, counts
 * and MACs in tests/golden/models (made by tests/tools/dump_models.py), and
 * that every cut of every model gives parts that chain.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "common/base/fault.h"
#include "common/base/mem.h"
#include "client/models/models.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_attention.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_embedding.h"
#include "common/graph/ops/op_layer_norm.h"
#include "common/graph/graph_part.h"

static struct gp_graph *build(const char *spec, int64_t h, int64_t w, int64_t c)
{
	struct gp_err err = {0};
	struct gp_graph *g = NULL;
	struct gp_model_options o = {.input = {.ndim = h ? 3 : 0, .dim = {h, w, c}}};
	if (gp_model_build(spec, &o, &g, &err) != GP_OK)
		fail_msg("%s: %s", spec, err.text);
	return g;
}

static void settled_text_builds_the_same_model_without_any_default(void **state)
{
	(void)state;
	static const char *const specs[] = {"cnn",
					    "mobilenetv2:pad=same,eps=0.001",
					    "resnet18:stem=cifar,width=0.3",
					    "resnet20",
					    "vgg13:hidden=0",
					    "fasttext",
					    "roberta:dropout=0.25",
					    "bert:layers=3,dim=96,cuts=fine"};
	char settled[GP_MODEL_SPEC], again[GP_MODEL_SPEC];
	struct gp_err err = {0};
	for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
		struct gp_graph *g, *same;
		const struct gp_model_options o = {.classes = 7};
		if (gp_model_build_settled(specs[i], &o, &g, settled, &err) != GP_OK ||
		    gp_model_build_settled(settled, NULL, &same, again, &err) != GP_OK)
			fail_msg("%s: %s", specs[i], err.text);
		assert_string_equal(settled, again);
		assert_non_null(strstr(settled, "classes=7"));
		assert_int_equal(g->param_elements, same->param_elements);
		gp_graph_free(g);
		gp_graph_free(same);
	}
}

static void expect_difference(const char *a, const char *b, const char *decisive, bool classes)
{
	struct gp_model_difference d;
	gp_model_compare(a, b, &d);
	assert_string_equal(d.decisive, decisive);
	assert_int_equal(d.classes, classes);
}

static void settled_texts_differ_in_what_is_computed(void **state)
{
	(void)state;
	expect_difference("m:pad=same,eps=0.1,cuts=fine", "m:pad=same,eps=0.1,cuts=blocks", "", false);
	expect_difference("m:attention_dropout=0.1,tokens=8", "m:attention_dropout=0,tokens=9", "", false);
	expect_difference("m:pad=same,eps=0.1", "m:pad=torch,eps=0.2", "pad, eps", false);
	expect_difference("m:pad=same,classes=10", "m:pad=same,classes=5", "", true);
	expect_difference("m:lm=0,classes=10", "m:lm=1", "", true);
	expect_difference("m:lm=0,classes=2", "m:lm=1,dim=8", "dim", true);
	expect_difference("m:pad=same", "m", "pad", false);
	expect_difference("m", "m:new=1,dropout=0", "new", false);
	expect_difference("resnet18:width=1", "resnet34:width=1", "the kind of model", false);
	expect_difference("m:,,=,==", "m:", "", false);
}

static void option_is_dropped_from_a_text(void **state)
{
	(void)state;
	static const char *const pairs[][2] = {
		{"m:classes=5,pad=same", "m:pad=same"}, {"m:pad=same,classes=5", "m:pad=same"}, {"m:classes=5", "m"},
		{"m:a=1,classes=5,b=2", "m:a=1,b=2"},   {"m:subclasses=5", "m:subclasses=5"},   {"m", "m"}};
	for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
		char text[64];
		strcpy(text, pairs[i][0]);
		gp_model_spec_drop(text, "classes");
		assert_string_equal(text, pairs[i][1]);
	}
}

/* --- against torchvision ---------------------------------------------------------------------------------------- */

static void check_param_line(const struct gp_graph *g, int *index, const char *name, const char *shape)
{
	char text[64];
	assert_true(*index < g->params);
	const struct gp_param *p = &g->param[(*index)++];
	assert_string_equal(p->name, name);
	assert_string_equal(gp_shape_text(&p->shape, text, sizeof text), shape);
	assert_true(p->count == gp_shape_elements(&p->shape));
	assert_int_equal(p->trained, !strstr(name, "running_"));
}

static void check_against(const char *path)
{
	FILE *f = fopen(path, "r");
	char spec[100], name[100], shape[64];
	long long c, h, w;
	unsigned long long macs;
	assert_non_null(f);
	assert_int_equal(fscanf(f, "spec %99s %lldx%lldx%lld macs %llu", spec, &c, &h, &w, &macs), 5);
	struct gp_graph *g = build(spec, h, w, c);
	assert_true(g->macs == macs);
	int index = 0;
	while (fscanf(f, " param %99s %63s", name, shape) == 2)
		check_param_line(g, &index, name, shape);
	assert_int_equal(index, g->params);
	fclose(f);
	gp_graph_free(g);
}

static void parameters_and_macs_equal_those_of_torchvision(void **state)
{
	(void)state;
	static const char *const files[] = {
		"mobilenetv2-1.0-224",
		"mobilenetv2-0.5-224",
		"mobilenetv2-1.4-96",
		"mobilenetv2-1.0-cifar",
		"mobilenetv2-0.5-fashion",
		"cnn-32-fashion",
		"cnn-8-cifar",
		"resnet18-224",
		"resnet34-75",
		"resnet18-cifar",
		"resnet20-cifar",
		"resnet20-fashion",
		"resnet56-cifar",
		"vgg13-224",
		"vgg13-96",
		"vgg13-cifar",
	};
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
		char path[100];
		snprintf(path, sizeof path, "tests/golden/models/%s.txt", files[i]);
		check_against(path);
	}
}

static void mobilenetv2_has_the_published_size(void **state)
{
	(void)state;
	struct gp_graph *g = build("mobilenetv2", 0, 0, 0);
	assert_true(g->trained_elements == 3504872); /* torchvision's num_params */
	assert_true(g->macs == 300774272);           /* the paper's 300 M */
	assert_int_equal(g->blocks, 21);
	assert_string_equal(g->block[0].name, "features.0");
	assert_string_equal(g->block[18].name, "features.18");
	assert_string_equal(g->block[19].name, "avgpool");
	assert_string_equal(g->block[20].name, "classifier");
	gp_graph_free(g);
}

static void residual_networks_and_vgg_have_their_published_sizes(void **state)
{
	(void)state;
	/* torchvision's num_params; for 32x32, table 6 of He et al. in thousands: 270, 460, 660, 850 */
	static const struct {
		const char *spec, *last_stage;
		uint64_t trained;
		int blocks;
	} want[] = {
		{"resnet18", "layer4.1", 11689512, 11},   {"resnet34", "layer4.2", 21797672, 19},
		{"resnet20", "layer3.2", 269722, 12},     {"resnet32", "layer3.4", 464154, 18},
		{"resnet44", "layer3.6", 658586, 24},     {"resnet56", "layer3.8", 853018, 30},
		{"vgg13", "classifier.0", 133053736, 14},
	};
	for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
		struct gp_graph *g = build(want[i].spec, 0, 0, 0);
		assert_true(g->trained_elements == want[i].trained);
		assert_int_equal(g->blocks, want[i].blocks);
		assert_string_equal(g->block[g->blocks - 3].name, want[i].last_stage);
		gp_graph_free(g);
	}
}

static void stems_have_total_stride_32_and_8(void **state)
{
	(void)state;
	struct gp_graph *a = build("mobilenetv2", 224, 224, 3), *b = build("mobilenetv2:stem=cifar", 32, 32, 3);
	const struct gp_shape *at_a = &a->node[a->block[19].first_node - 1].shape;
	const struct gp_shape *at_b = &b->node[b->block[19].first_node - 1].shape;
	assert_true(at_a->dim[0] == 7 && at_a->dim[2] == 1280);
	assert_true(at_b->dim[0] == 4 && at_b->dim[2] == 1280);
	assert_true(gp_graph_output_shape(a)->dim[0] == 1000 && gp_graph_output_shape(b)->dim[0] == 10);
	gp_graph_free(a);
	gp_graph_free(b);
}

/* TensorFlow's SAME: an even size with stride 2 is padded at the end only, an odd one on both sides. */
static void same_padding_is_that_of_tensorflow(void **state)
{
	(void)state;
	struct gp_graph *g = build("mobilenetv2:pad=same,eps=1e-3", 224, 31, 3);
	struct gp_conv_attr a = gp_conv_attr(&g->node[1]);
	assert_true(a.pad_top == 0 && a.pad_bottom == 1 && a.pad_left == 1 && a.pad_right == 1);
	assert_true(g->node[1].shape.dim[0] == 112 && g->node[1].shape.dim[1] == 16);
	assert_true(gp_bn_attr(&g->node[2]).eps == 1e-3f);
	a = gp_conv_attr(&g->node[4]); /* features.1.conv.0.0, stride 1 */
	assert_true(a.kernel_h == 3 && a.pad_top == 1 && a.pad_bottom == 1);
	gp_graph_free(g);
}

static void mobilenetv2_starts_as_torchvision_does(void **state)
{
	(void)state;
	struct gp_graph *g = build("mobilenetv2", 0, 0, 0);
	const struct gp_param *stem = &g->param[gp_graph_find_param(g, "features.0.0.weight")];
	const struct gp_param *deep = &g->param[gp_graph_find_param(g, "features.2.conv.1.0.weight")];
	const struct gp_param *w = &g->param[gp_graph_find_param(g, "classifier.1.weight")];
	const struct gp_param *b = &g->param[gp_graph_find_param(g, "classifier.1.bias")];
	assert_true(stem->init == GP_INIT_NORMAL && fabs(stem->init_scale - sqrt(2.0 / (32 * 9))) < 1e-7);
	assert_true(deep->init == GP_INIT_NORMAL && fabs(deep->init_scale - sqrt(2.0 / (96 * 9))) < 1e-7);
	assert_true(w->init == GP_INIT_NORMAL && w->init_scale == 0.01f);
	assert_true(b->init == GP_INIT_ZEROS);
	gp_graph_free(g);
}

static const struct gp_param *param_of(const struct gp_graph *g, const char *name)
{
	int i = gp_graph_find_param(g, name);
	assert_true(i >= 0);
	return &g->param[i];
}

static void expect_normal(const struct gp_graph *g, const char *name, double scale)
{
	const struct gp_param *p = param_of(g, name);
	assert_true(p->init == GP_INIT_NORMAL && fabs(p->init_scale - scale) < 1e-7);
}

static void residual_networks_and_vgg_start_as_published(void **state)
{
	(void)state;
	struct gp_graph *g = build("resnet18", 0, 0, 0);
	expect_normal(g, "conv1.weight", sqrt(2.0 / (64 * 49)));
	expect_normal(g, "layer2.0.conv1.weight", sqrt(2.0 / (128 * 9))); /* fan-out */
	expect_normal(g, "layer2.0.downsample.0.weight", sqrt(2.0 / 128));
	assert_true(param_of(g, "fc.weight")->init == GP_INIT_UNIFORM);
	gp_graph_free(g);
	g = build("resnet20", 0, 0, 0);
	expect_normal(g, "conv1.weight", sqrt(2.0 / (3 * 9)));
	expect_normal(g, "layer2.0.conv1.weight", sqrt(2.0 / (16 * 9))); /* fan-in */
	expect_normal(g, "linear.weight", sqrt(2.0 / 64));
	gp_graph_free(g);
	g = build("vgg13:hidden=100", 32, 32, 3);
	expect_normal(g, "features.3.weight", sqrt(2.0 / (64 * 9)));
	expect_normal(g, "classifier.3.weight", 0.01);
	assert_true(param_of(g, "features.3.bias")->init == GP_INIT_ZEROS);
	assert_true(param_of(g, "classifier.6.bias")->init == GP_INIT_ZEROS);
	gp_graph_free(g);
}

/* fastText: what the data says is what the model is made for; its parameters are those of the modules in the page. */
static void fasttext_takes_length_and_vocabulary_from_the_data(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		int64_t rows, columns;
	} want[] = {{"embedding.weight", 100, 64}, {"encoder.0.weight", 8, 64}, {"encoder.0.bias", 8, 0},
		    {"pooling.0.weight", 8, 8},    {"pooling.0.bias", 8, 0},    {"classifier.weight", 4, 8},
		    {"classifier.bias", 4, 0}};
	const struct gp_model_options o = {.classes = 4, .input = {.ndim = 1, .dim = {16}}, .values = 100};
	struct gp_err err;
	struct gp_graph *g;
	assert_int_equal(gp_model_build("fasttext:hidden=8", &o, &g, &err), GP_OK);
	assert_int_equal(g->params, sizeof want / sizeof want[0]);
	for (int i = 0; i < g->params; i++) {
		const struct gp_shape *s = &param_of(g, want[i].name)->shape;
		assert_true(s->dim[0] == want[i].rows && (s->ndim == 2 ? s->dim[1] : 0) == want[i].columns);
	}
	assert_true(param_of(g, "embedding.weight")->init == GP_INIT_NORMAL);
	assert_int_equal(g->inputs, 2);
	assert_string_equal(g->node[0].name, "tokens");
	assert_string_equal(g->node[1].name, "mask");
	assert_true(g->value[0].type.dtype == GP_I32 && g->value[0].type.shape.dim[0] == 16);
	gp_graph_free(g);
	assert_int_equal(gp_model_build("fasttext:vocab=50,tokens=8,classes=3", &o, &g, &err), GP_OK);
	assert_true(param_of(g, "embedding.weight")->shape.dim[0] == 50 && g->value[0].type.shape.dim[0] == 8);
	assert_true(gp_graph_output_shape(g)->dim[0] == 3);
	gp_graph_free(g);
}

/* --- cuts ------------------------------------------------------------------------------------------------------- */

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

/* How many tensors cross the two cuts. */
static void expect_crossing(const struct gp_graph *g, const char *text, int up, int down)
{
	struct gp_err err;
	struct gp_cut cut;
	struct gp_graph_parts p;
	assert_int_equal(gp_cut_parse(g, text, &cut, &err), GP_OK);
	assert_int_equal(gp_graph_cut(g, &cut, &p, &err), GP_OK);
	assert_int_equal(p.body->inputs, up);
	assert_int_equal(p.body->outputs, down);
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

static bool ends_with(const char *text, const char *end)
{
	return strlen(text) > strlen(end) && strcmp(text + strlen(text) - strlen(end), end) == 0;
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

/* --- specs ------------------------------------------------------------------------------------------------------ */

static void expect_refused(const char *spec, enum gp_status code, const char *words)
{
	struct gp_err err = {0};
	struct gp_graph *g = NULL;
	struct gp_model_options o = {.classes = 10};
	assert_int_equal(gp_model_build(spec, &o, &g, &err), code);
	assert_null(g);
	if (!strstr(err.text, words))
		fail_msg("%s: '%s' does not mention '%s'", spec, err.text, words);
}

static void bad_specs_are_refused_with_the_choices(void **state)
{
	(void)state;
	expect_refused("resnet7", GP_USAGE, "cnn, fasttext, mobilenetv2, resnet18");
	expect_refused("resnet20:stem=cifar", GP_USAGE, "no key 'stem' (keys: width=1.0,classes=N");
	expect_refused("resnet18:cuts=finer", GP_USAGE, "blocks|fine");
	expect_refused("vgg13:hidden=-1", GP_USAGE, "model vgg13: hidden: -1 is out of range (0..");
	expect_refused("", GP_USAGE, "there are: cnn, fasttext, mobilenetv2");
	expect_refused("cnnn:width=3", GP_USAGE, "did you mean 'cnn'?");
	expect_refused("mobilenetv2:widht=1", GP_USAGE, "no key 'widht'; did you mean 'width'? (keys: width=1.0");
	expect_refused("mobilenetv2:width", GP_USAGE, "key=value");
	expect_refused("mobilenetv2:", GP_USAGE, "key=value");
	expect_refused("mobilenetv2:width=1,", GP_USAGE, "key=value");
	expect_refused("mobilenetv2:width=1,width=2", GP_USAGE, "twice");
	expect_refused("mobilenetv2:width=0", GP_USAGE, "0.05..8");
	expect_refused("mobilenetv2:width=nan", GP_USAGE, "0.05..8");
	expect_refused("mobilenetv2:stem=tiny", GP_USAGE, "imagenet|cifar");
	expect_refused("mobilenetv2:dropout=1", GP_USAGE, "dropout: 1 is out of range (0..0.99)");
	expect_refused("cnn:classes=0", GP_USAGE, "classes: 0 is out of range");
	expect_refused("cnn:classes=1.5", GP_USAGE, "whole number");
	expect_refused("cnn:width=99999999999999999999", GP_USAGE, "whole number");
}

static void input_too_small_for_the_model_is_refused(void **state)
{
	(void)state;
	struct gp_err err = {0};
	struct gp_graph *g = NULL;
	struct gp_model_options tiny = {.input = {.ndim = 3, .dim = {3, 3, 3}}};
	struct gp_model_options small = {.input = {.ndim = 3, .dim = {28, 28, 1}}};
	struct gp_model_options text = {.input = {.ndim = 2, .dim = {128, 768}}};
	assert_int_equal(gp_model_build("cnn", &tiny, &g, &err), GP_INVALID);
	assert_non_null(
		strstr(err.text, "cnn does not fit 3x3 images with 3 channels: node 11 (max_pool features.1.6)"));
	assert_int_equal(gp_model_build("vgg13", &small, &g, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "vgg13 does not fit 28x28 images with 1 channels"));
	assert_int_equal(gp_model_build("cnn", &text, &g, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "128x768"));
	assert_int_equal(gp_model_build("fasttext", &small, &g, &err), GP_INVALID);
	assert_string_equal(err.text, "model fasttext takes tokens (a row of numbers), not samples of 28x28x1");
	assert_null(g);
}

static void spec_wins_over_the_dataset_which_wins_over_the_default(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_graph *g;
	struct gp_model_options o = {.classes = 7};
	assert_int_equal(gp_model_build("mobilenetv2:classes=3", &o, &g, &err), GP_OK);
	assert_int_equal(gp_graph_output_shape(g)->dim[0], 3);
	gp_graph_free(g);
	assert_int_equal(gp_model_build("mobilenetv2", &o, &g, &err), GP_OK);
	assert_int_equal(gp_graph_output_shape(g)->dim[0], 7);
	gp_graph_free(g);
	assert_int_equal(gp_model_build("mobilenetv2", NULL, &g, &err), GP_OK);
	assert_int_equal(gp_graph_output_shape(g)->dim[0], 1000);
	gp_graph_free(g);
}

#ifdef GP_FAULTS
static void fail_each_allocation(const char *spec)
{
	struct gp_err err;
	for (uint64_t nth = 1;; nth++) {
		struct gp_graph *g = NULL;
		gp_fault_arm(GP_FAULT_ALLOC, nth);
		enum gp_status status = gp_model_build(spec, NULL, &g, &err);
		gp_fault_arm(GP_FAULT_ALLOC, 0);
		if (status == GP_OK) {
			gp_graph_free(g);
			assert_true(nth > 5);
			break;
		}
		assert_int_equal(status, GP_NOMEM);
		assert_null(g);
	}
}

static void failed_allocation_is_an_error_not_a_crash(void **state)
{
	(void)state;
	fail_each_allocation("mobilenetv2:cuts=fine");
	fail_each_allocation("resnet18:cuts=fine");
	fail_each_allocation("resnet20");
	fail_each_allocation("vgg13");
	fail_each_allocation("fasttext");
}
#endif

/* --- encoders --------------------------------------------------------------------------------------------------- */

static void encoders_have_the_sizes_of_hugging_face(void **state)
{
	(void)state;
	/* numel() of RobertaForSequenceClassification(RobertaConfig(vocab_size=50265, max_position_embeddings=514,
	 * type_vocab_size=1)) and of BertForSequenceClassification(BertConfig()), two classes each */
	struct gp_graph *g = build("roberta", 0, 0, 0);
	assert_true(g->trained_elements == 124647170);
	assert_int_equal(g->blocks, 14);
	gp_graph_free(g);
	g = build("bert", 0, 0, 0);
	assert_true(g->trained_elements == 109483778);
	gp_graph_free(g);
	g = build("roberta:layers=24,dim=1024,heads=16,ffn=4096", 0, 0, 0); /* roberta-large */
	assert_true(g->trained_elements == 355361794);
	gp_graph_free(g);
}

struct named_shape {
	const char *name;
	int64_t rows, columns; /* columns 0: one dimension */
};

static void expect_params(const struct gp_graph *g, const struct named_shape *want, int count)
{
	assert_int_equal(g->params, count);
	for (int i = 0; i < count; i++) {
		const struct gp_shape *s = &g->param[i].shape;
		assert_string_equal(g->param[i].name, want[i].name);
		assert_true(s->dim[0] == want[i].rows && (s->ndim == 2 ? s->dim[1] : 0) == want[i].columns);
	}
}

/* WEIGHT and bias of a linear layer */
#define DENSE(name, out, in)                                                                                           \
	{name ".weight", out, in},                                                                                     \
	{                                                                                                              \
		name ".bias", out, 0                                                                                   \
	}
#define NORM(name)                                                                                                     \
	{name ".weight", 6, 0},                                                                                        \
	{                                                                                                              \
		name ".bias", 6, 0                                                                                     \
	}
#define ENCODER_LAYER(name)                                                                                            \
	DENSE(name ".attention.self.query", 6, 6), DENSE(name ".attention.self.key", 6, 6),                            \
		DENSE(name ".attention.self.value", 6, 6), DENSE(name ".attention.output.dense", 6, 6),                \
		NORM(name ".attention.output.LayerNorm"), DENSE(name ".intermediate.dense", 10, 6),                    \
		DENSE(name ".output.dense", 6, 10), NORM(name ".output.LayerNorm")

static void encoders_have_the_names_and_shapes_of_hugging_face(void **state)
{
	(void)state;
	static const struct named_shape roberta[] = {{"roberta.embeddings.word_embeddings.weight", 20, 6},
						     {"roberta.embeddings.token_type_embeddings.weight", 1, 6},
						     {"roberta.embeddings.position_embeddings.weight", 16, 6},
						     NORM("roberta.embeddings.LayerNorm"),
						     ENCODER_LAYER("roberta.encoder.layer.0"),
						     DENSE("classifier.dense", 6, 6),
						     DENSE("classifier.out_proj", 3, 6)};
	static const struct named_shape bert[] = {{"bert.embeddings.word_embeddings.weight", 20, 6},
						  {"bert.embeddings.token_type_embeddings.weight", 2, 6},
						  {"bert.embeddings.position_embeddings.weight", 16, 6},
						  NORM("bert.embeddings.LayerNorm"),
						  ENCODER_LAYER("bert.encoder.layer.0"),
						  DENSE("bert.pooler.dense", 6, 6),
						  DENSE("classifier", 3, 6)};
	struct gp_graph *g = build("roberta:layers=1,dim=6,heads=2,ffn=10,vocab=20,max=16,classes=3", 0, 0, 0);
	expect_params(g, roberta, sizeof roberta / sizeof roberta[0]);
	assert_true(g->inputs == 2 && g->value[0].type.shape.dim[0] == 14); /* positions begin at 2 */
	gp_graph_free(g);
	g = build("bert:layers=1,dim=6,heads=2,ffn=10,vocab=20,max=16,classes=3", 0, 0, 0);
	expect_params(g, bert, sizeof bert / sizeof bert[0]);
	assert_true(g->inputs == 3 && g->value[0].type.shape.dim[0] == 16);
	assert_string_equal(g->node[1].name, "length");
	assert_string_equal(g->node[2].name, "types");
	gp_graph_free(g);
}

static void encoders_start_as_in_hugging_face(void **state)
{
	(void)state;
	struct gp_graph *g = build("roberta:layers=1", 0, 0, 0);
	for (int i = 0; i < g->params; i++) {
		const struct gp_param *p = &g->param[i];
		const bool norm = strstr(p->name, "LayerNorm.weight") != NULL;
		if (p->role == GP_PARAM_BIAS)
			assert_true(p->init == GP_INIT_ZEROS);
		else if (norm)
			assert_true(p->init == GP_INIT_ONES);
		else
			expect_normal(g, p->name, 0.02);
	}
	gp_graph_free(g);
}

/* Dropout in the same places: behind the embeddings, on attention weights, before each residual sum, and in the head. */
static void encoders_drop_out_where_hugging_face_does(void **state)
{
	(void)state;
	struct gp_graph *g = build("roberta:layers=2,dropout=0.25,attention_dropout=0.125", 0, 0, 0);
	int dropouts = 0, norms = 0, attentions = 0;
	for (int i = 0; i < g->nodes; i++) {
		const struct gp_node *n = &g->node[i];
		dropouts += n->op == GP_OP_DROPOUT && gp_dropout_attr(n).p == 0.25f;
		norms += n->op == GP_OP_LAYER_NORM && n->inputs == 2 && gp_layer_norm_attr(n).p == 0.25f;
		attentions += n->op == GP_OP_ATTENTION && gp_attention_attr(n).p == 0.125f;
		if (n->op == GP_OP_LAYER_NORM)
			assert_true(gp_layer_norm_attr(n).eps == 1e-5f &&
				    (n->inputs == 2 || gp_layer_norm_attr(n).p == 0));
	}
	assert_true(dropouts == 3 && norms == 4 && attentions == 2);
	gp_graph_free(g);
	g = build("bert:layers=1", 0, 0, 0);
	for (int i = 0; i < g->nodes; i++)
		if (g->node[i].op == GP_OP_LAYER_NORM)
			assert_true(gp_layer_norm_attr(&g->node[i]).eps == 1e-12f);
	gp_graph_free(g);
}

static void fine_cuts_of_encoders_lie_behind_attention_and_in_the_classifier(void **state)
{
	(void)state;
	static const char *const want[] = {"embeddings",  "layer.0",    "layer.0.ffn",      "layer.1",
					   "layer.1.ffn", "classifier", "classifier.dense", "classifier.out"};
	static const char *const specs[][2] = {{"roberta:layers=2", "roberta:layers=2,cuts=fine"},
					       {"bert:layers=2", "bert:layers=2,cuts=fine"}};
	for (size_t k = 0; k < 2; k++) {
		struct gp_graph *g = build(specs[k][0], 0, 0, 0), *fine = build(specs[k][1], 0, 0, 0);
		assert_int_equal(g->blocks, 4);
		assert_int_equal(fine->blocks, 8);
		assert_int_equal(fine->nodes, g->nodes);
		for (int b = 0; b < 8; b++)
			assert_string_equal(fine->block[b].name, want[b]);
		assert_true(ends_with(fine->node[fine->block[2].first_node - 1].name, "attention.output.LayerNorm"));
		expect_crossing(fine, "2:-3", 2, 1); /* the length, too */
		expect_crossing(fine, "2:-5", 1, 1); /* the feed-forward half of layer 0 alone */
		expect_crossing(fine, "5:-1", 1, 1);
		gp_graph_free(g);
		gp_graph_free(fine);
	}
}

static void encoders_refuse_more_tokens_than_they_have_positions_for(void **state)
{
	(void)state;
	struct gp_err err;
	struct gp_graph *g = NULL;
	const struct gp_model_options texts = {.input = {.ndim = 1, .dim = {64}}, .values = 100};
	const struct gp_model_options pictures = {.input = {.ndim = 3, .dim = {32, 32, 3}}};
	assert_int_equal(gp_model_build("roberta:max=65", &texts, &g, &err), GP_INVALID);
	assert_string_equal(
		err.text,
		"model roberta has positions for 63 tokens (its max=65), but texts have 64: give --data a max= "
		"of at most 63, or the model a larger one");
	assert_int_equal(gp_model_build("bert", &pictures, &g, &err), GP_INVALID);
	assert_string_equal(err.text, "model bert takes tokens (a row of numbers), not samples of 32x32x3");
	assert_int_equal(gp_model_build("roberta:max=66", &texts, &g, &err), GP_OK);
	assert_true(gp_embedding_attr(&g->node[g->inputs]).vocab == 100);
	gp_graph_free(g);
	expect_refused("roberta:dim=100,heads=3", GP_USAGE, "model roberta: dim=100 is not a multiple of heads=3");
	expect_refused("bert:dropout=1", GP_USAGE, "dropout: 1 is out of range (0..0.99)");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(settled_text_builds_the_same_model_without_any_default),
		cmocka_unit_test(settled_texts_differ_in_what_is_computed),
		cmocka_unit_test(option_is_dropped_from_a_text),
		cmocka_unit_test(parameters_and_macs_equal_those_of_torchvision),
		cmocka_unit_test(mobilenetv2_has_the_published_size),
		cmocka_unit_test(residual_networks_and_vgg_have_their_published_sizes),
		cmocka_unit_test(stems_have_total_stride_32_and_8),
		cmocka_unit_test(same_padding_is_that_of_tensorflow),
		cmocka_unit_test(mobilenetv2_starts_as_torchvision_does),
		cmocka_unit_test(residual_networks_and_vgg_start_as_published),
		cmocka_unit_test(fasttext_takes_length_and_vocabulary_from_the_data),
		cmocka_unit_test(every_cut_of_every_model_gives_parts_that_chain),
		cmocka_unit_test(fine_cuts_lie_behind_batch_norms_and_sums_and_change_nothing_else),
		cmocka_unit_test(one_tensor_crosses_between_blocks_and_two_inside_a_residual_block),
		cmocka_unit_test(usual_partitions_can_be_written_for_every_model),
		cmocka_unit_test(default_cut_keeps_stem_and_classifier_on_the_client),
		cmocka_unit_test(bad_specs_are_refused_with_the_choices),
		cmocka_unit_test(input_too_small_for_the_model_is_refused),
		cmocka_unit_test(spec_wins_over_the_dataset_which_wins_over_the_default),
#ifdef GP_FAULTS
		cmocka_unit_test(failed_allocation_is_an_error_not_a_crash),
#endif
		cmocka_unit_test(encoders_have_the_sizes_of_hugging_face),
		cmocka_unit_test(encoders_have_the_names_and_shapes_of_hugging_face),
		cmocka_unit_test(encoders_start_as_in_hugging_face),
		cmocka_unit_test(encoders_drop_out_where_hugging_face_does),
		cmocka_unit_test(fine_cuts_of_encoders_lie_behind_attention_and_in_the_classifier),
		cmocka_unit_test(encoders_refuse_more_tokens_than_they_have_positions_for),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
