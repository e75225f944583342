/* SPDX-License-Identifier: Apache-2.0
 *
 * Residual networks of basic blocks (He et al., "Deep Residual Learning for
 * Image Recognition", CVPR 2016), in two families:
 *
 * - resnet18, resnet34: table 1, with the names, structure and starting values of torchvision.models. stem=cifar is the
 *   usual adaptation to about 32x32: a 3x3 first convolution with stride 1 and no pooling behind it, total stride 8
 *   instead of 32.
 * - resnet20, 32, 44, 56: section 4.2, for 32x32 images. Three stages of 16, 32 and 64 channels; where a stage begins,
 *   the shortcut drops every other pixel and adds channels of zeros (option A), so that it has no parameters. Named as
 *   most published weights are: conv1, bn1, layerS.B.conv1 ..., linear. Starting values: He et al., "Delving Deep
 *   into Rectifiers", equation 10, by fan-in.
 *
 * Blocks: conv1 (stem), layer1.0, layer1.1, ..., avgpool (global average pool and flatten), fc or linear. With
 * cuts=fine the ReLU that ends the stem (and its pooling) is a block of its own, conv1.act, and a residual block is
 * four: layer1.0 (conv1, bn1), layer1.0.relu1 (to bn2), layer1.0.add (the shortcut and the sum) and layer1.0.act. So a
 * cut can lie before an activation, or inside a residual block, where two tensors cross.
 *
 * Test: tests/unit/test_models.c, tests/unit/test_cpu_steps.c
 */
#include <math.h>
#include <string.h>

#include "client/models/models_internal.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_pool.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/ops/op_shape.h"

#define STAGES 4

enum { STEM_IMAGENET, STEM_CIFAR };

static const struct variant {
	const char *name;
	bool option_a;       /* the family for 32x32 images */
	int repeats[STAGES]; /* basic blocks by stage */
} variants[] = {
	{"resnet18", false, {2, 2, 2, 2}}, {"resnet34", false, {3, 4, 6, 3}}, {"resnet20", true, {3, 3, 3}},
	{"resnet32", true, {5, 5, 5}},     {"resnet44", true, {7, 7, 7}},     {"resnet56", true, {9, 9, 9}},
};

struct settings {
	const struct variant *variant;
	double width;
	int stem, fine, classes;
	struct gp_shape input;
};

/* What every step of building needs. */
struct build {
	struct gp_graph *g;
	const struct settings *s;
	struct gp_err *err;
};

/* --- layers; each takes and returns a node, -1 after a failure -------------------------------------------------- */

static int channels_of(const struct build *b, int node)
{
	return (int)b->g->node[node].shape.dim[2];
}

/* kaiming_normal_: by fan-out in torchvision's models, by fan-in in the others. */
static int conv(const struct build *b, const char *name, int in, int out, int kernel, int stride)
{
	if (in < 0)
		return -1;
	int x = gp_graph_conv(b->g, name, in, out, kernel, stride, kernel / 2, 1, false, b->err);
	double fan = (double)(b->s->variant->option_a ? channels_of(b, in) : out) * kernel * kernel;
	gp_model_init_weight(b->g, x, GP_INIT_NORMAL, (float)sqrt(2.0 / fan));
	return x;
}

static int batch_norm(const struct build *b, const char *name, int in)
{
	return gp_graph_batch_norm(b->g, name, in, 1e-5f, 0.1f, b->err);
}

/* What the residual branch is added to. */
static int shortcut(const struct build *b, const char *prefix, int in, int out, int stride)
{
	char name[GP_NAME_MAX];
	int missing = out - channels_of(b, in);
	if (stride == 1 && missing == 0)
		return in;
	if (b->s->variant->option_a)
		return gp_graph_shortcut_pad(b->g, gp_model_name(name, "%s.shortcut", prefix), in, stride, missing / 2,
					     missing - missing / 2, b->err);
	int x = conv(b, gp_model_name(name, "%s.downsample.0", prefix), in, out, 1, stride);
	return batch_norm(b, gp_model_name(name, "%s.downsample.1", prefix), x);
}

/* Figure 2: two 3x3 convolutions and a shortcut, a block of the graph. */
static int basic_block(const struct build *b, const char *prefix, int in, int out, int stride)
{
	char name[GP_NAME_MAX];
	int x = conv(b, gp_model_name(name, "%s.conv1", prefix), in, out, 3, stride);
	x = batch_norm(b, gp_model_name(name, "%s.bn1", prefix), x);
	x = gp_model_begin_fine(b->g, b->s->fine, gp_model_name(name, "%s.relu1", prefix), x, b->err);
	x = gp_graph_unary(b->g, GP_OP_RELU, gp_model_name(name, "%s.relu1", prefix), x, b->err);
	x = conv(b, gp_model_name(name, "%s.conv2", prefix), x, out, 3, 1);
	x = batch_norm(b, gp_model_name(name, "%s.bn2", prefix), x);
	x = gp_model_begin_fine(b->g, b->s->fine, gp_model_name(name, "%s.add", prefix), x, b->err);
	if (x < 0)
		return -1;
	int past = shortcut(b, prefix, in, out, stride);
	x = gp_graph_sum(b->g, gp_model_name(name, "%s.add", prefix), x, past, b->err);
	x = gp_model_begin_act(b->g, b->s->fine, prefix, x, b->err);
	return gp_graph_unary(b->g, GP_OP_RELU, gp_model_name(name, "%s.relu2", prefix), x, b->err);
}

/* --- blocks of the graph ---------------------------------------------------------------------------------------- */

static int add_stem(const struct build *b, int channels)
{
	bool large = b->s->stem == STEM_IMAGENET;
	if (gp_graph_begin_block(b->g, "conv1", b->err) != GP_OK)
		return -1;
	int x = conv(b, "conv1", 0, channels, large ? 7 : 3, large ? 2 : 1);
	x = batch_norm(b, "bn1", x);
	x = gp_model_begin_act(b->g, b->s->fine, "conv1", x, b->err);
	x = gp_graph_unary(b->g, GP_OP_RELU, "relu", x, b->err);
	return large ? gp_graph_pool(b->g, GP_OP_MAX_POOL, "maxpool", x, 3, 2, 1, b->err) : x;
}

static int add_stage(const struct build *b, int stage, int in, int channels)
{
	char prefix[GP_NAME_MAX];
	int x = in;
	for (int r = 0; r < b->s->variant->repeats[stage] && x >= 0; r++) {
		gp_model_name(prefix, "layer%d.%d", stage + 1, r);
		if (gp_graph_begin_block(b->g, prefix, b->err) != GP_OK)
			return -1;
		x = basic_block(b, prefix, x, channels, stage > 0 && r == 0 ? 2 : 1);
	}
	return x;
}

static enum gp_status add_classifier(const struct build *b, int x)
{
	const char *name = b->s->variant->option_a ? "linear" : "fc";
	GP_TRY(gp_graph_begin_block(b->g, "avgpool", b->err));
	x = gp_graph_unary(b->g, GP_OP_GLOBAL_AVG_POOL, "avgpool", x, b->err);
	x = gp_graph_unary(b->g, GP_OP_FLATTEN, "flatten", x, b->err);
	if (x < 0)
		return b->err->code;
	int64_t features = b->g->node[x].shape.dim[0];
	GP_TRY(gp_graph_begin_block(b->g, name, b->err));
	x = gp_graph_linear(b->g, name, x, b->s->classes, true, b->err);
	if (x < 0)
		return b->err->code;
	if (b->s->variant->option_a)
		gp_model_init_weight(b->g, x, GP_INIT_NORMAL, (float)sqrt(2.0 / (double)features));
	return gp_graph_finish(b->g, b->err);
}

static enum gp_status add_layers(const struct build *b)
{
	int first = (int)((b->s->variant->option_a ? 16 : 64) * b->s->width + 0.5);
	int x = add_stem(b, first);
	for (int i = 0; i < STAGES && x >= 0; i++)
		x = add_stage(b, i, x, first << i);
	return x < 0 ? b->err->code : add_classifier(b, x);
}

/* --- the builder ------------------------------------------------------------------------------------------------ */

static const struct variant *find_variant(const char *name)
{
	const struct variant *found = NULL;
	for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++)
		if (strcmp(variants[i].name, name) == 0)
			found = &variants[i];
	gp_require(found); /* models.c has a row for each of these, and for no other */
	return found;
}

static enum gp_status read_settings(struct gp_model_args *a, struct settings *s, struct gp_err *err)
{
	*s = (struct settings){.variant = find_variant(a->info->name), .width = 1.0, .stem = STEM_IMAGENET};
	GP_TRY(gp_model_arg_real(a, "width", 0.05, 8.0, &s->width, err));
	GP_TRY(gp_model_arg_cuts(a, &s->fine, err));
	if (s->variant->option_a)
		s->stem = STEM_CIFAR;
	else
		GP_TRY(gp_model_arg_choice(a, "stem", "imagenet|cifar", &s->stem, err));
	bool cifar = s->stem == STEM_CIFAR;
	GP_TRY(gp_model_arg_classes(a, cifar ? 10 : 1000, &s->classes, err));
	int64_t side = cifar ? 32 : 224;
	GP_TRY(gp_model_arg_input(a, (struct gp_shape){.ndim = 3, .dim = {side, side, 3}}, &s->input, err));
	return gp_model_args_done(a, err);
}

enum gp_status gp_model_resnet(struct gp_model_args *a, struct gp_graph **out, struct gp_err *err)
{
	struct settings s;
	GP_TRY(read_settings(a, &s, err));
	struct build b = {.g = gp_graph_new(a->info->name, &s.input, err), .s = &s, .err = err};
	if (!b.g)
		return err->code;
	if (add_layers(&b) != GP_OK) {
		gp_graph_free(b.g);
		return err->code;
	}
	*out = b.g;
	return GP_OK;
}
