/* SPDX-License-Identifier: Apache-2.0
 *
 * Model builders (client/models/models.h) against torchvision: names, shapes, counts
 * and MACs in tests/golden/models (made by tests/tools/dump_models.py); starting
 * values; specs. Cuts of models: test_model_cuts.c; encoders: test_model_encoders.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/unit/built_model.h"
#include "common/base/fault.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_conv.h"

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
		struct gp_graph *g = NULL, *same = NULL;
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

/* --- specs ------------------------------------------------------------------------------------------------------ */

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
		cmocka_unit_test(bad_specs_are_refused_with_the_choices),
		cmocka_unit_test(input_too_small_for_the_model_is_refused),
		cmocka_unit_test(spec_wins_over_the_dataset_which_wins_over_the_default),
#ifdef GP_FAULTS
		cmocka_unit_test(failed_allocation_is_an_error_not_a_crash),
#endif
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
