/* SPDX-License-Identifier: Apache-2.0
 *
 * MobileNetV2 (Sandler et al., "MobileNetV2: Inverted Residuals and Linear
 * Bottlenecks", CVPR 2018, table 2) with the names, structure and starting
 * values of torchvision.models.mobilenet_v2.
 *
 * Blocks: features.0 (stem) ... features.18, avgpool (global average pool and
 * flatten), classifier (dropout and linear).
 *
 * stem=imagenet is torchvision's network: total stride 32, for about 224x224.
 * stem=cifar is the usual adaptation to about 32x32: the first convolution and
 * the first block of the 24-channel stage (features.2) have stride 1, so the
 * total stride is 8. The parameters have the same names and shapes either way.
 *
 * Test: tests/unit/test_models.c
 */
#include <math.h>

#include "common/models_internal.h"

enum stem { STEM_IMAGENET, STEM_CIFAR };

struct settings {
	double width, dropout;
	int stem, classes;
	struct gp_shape input;
};

/* Table 2: expansion, channels, repeats, stride of the first. */
static const struct {
	int expand, channels, repeats, stride;
} stages[] = {
	{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1},
};

#define STAGES                ((int)(sizeof stages / sizeof stages[0]))
#define CIFAR_UNSTRIDED_STAGE 1 /* keeps its resolution under stem=cifar, beside the stem itself */

/* torchvision's _make_divisible: the nearest multiple of 8, but not below 90 % of `channels`. */
static int make_divisible(double channels)
{
	int rounded = (int)(channels + 4.0) / 8 * 8;
	if (rounded < 8)
		rounded = 8;
	return rounded < 0.9 * channels ? rounded + 8 : rounded;
}

static int channels_of(const struct gp_graph *g, int node)
{
	return node < 0 ? 1 : (int)g->node[node].shape.dim[2];
}

/* Convolution without bias, batch norm and, if wanted, ReLU6: "PREFIX.0", "PREFIX.1", "PREFIX.2". */
static int conv_bn_relu(struct gp_graph *g, const char *prefix, int in, int out, int kernel, int stride, int groups,
			struct gp_err *err)
{
	char name[GP_NAME_MAX];
	int x = gp_graph_conv(g, gp_model_name(name, "%s.0", prefix), in, out, kernel, stride, kernel / 2, groups,
			      false, err);
	/* kaiming_normal_(mode="fan_out"): torch counts fan_out as weight.size(0) * kernel area, groups or not. */
	gp_model_init_weight(g, x, GP_INIT_NORMAL, (float)sqrt(2.0 / ((double)out * kernel * kernel)));
	x = gp_graph_batch_norm(g, gp_model_name(name, "%s.1", prefix), x, 1e-5f, 0.1f, err);
	return gp_graph_unary(g, GP_OP_RELU6, gp_model_name(name, "%s.2", prefix), x, err);
}

/* Projection at "PREFIX.conv.I" and its batch norm at I+1, without activation. */
static int conv_bn(struct gp_graph *g, const char *prefix, int index, int in, int out, struct gp_err *err)
{
	char name[GP_NAME_MAX];
	int x = gp_graph_conv(g, gp_model_name(name, "%s.conv.%d", prefix, index), in, out, 1, 1, 0, 1, false, err);
	gp_model_init_weight(g, x, GP_INIT_NORMAL, (float)sqrt(2.0 / out));
	return gp_graph_batch_norm(g, gp_model_name(name, "%s.conv.%d", prefix, index + 1), x, 1e-5f, 0.1f, err);
}

static int inverted_residual(struct gp_graph *g, const char *prefix, int in, int out, int stride, int expand,
			     struct gp_err *err)
{
	char name[GP_NAME_MAX];
	int channels = channels_of(g, in), hidden = channels * expand, index = 0, x = in;
	if (expand != 1) {
		gp_model_name(name, "%s.conv.%d", prefix, index++);
		x = conv_bn_relu(g, name, x, hidden, 1, 1, 1, err);
	}
	x = conv_bn_relu(g, gp_model_name(name, "%s.conv.%d", prefix, index++), x, hidden, 3, stride, hidden, err);
	x = conv_bn(g, prefix, index, x, out, err);
	if (stride != 1 || channels != out)
		return x;
	return gp_graph_sum(g, gp_model_name(name, "%s.add", prefix), in, x, err);
}

static enum gp_status add_features(struct gp_graph *g, const struct settings *s, int *out, struct gp_err *err)
{
	char prefix[GP_NAME_MAX] = "features.0";
	int cifar = s->stem == STEM_CIFAR, index = 1;
	GP_TRY(gp_graph_begin_block(g, prefix, err));
	int x = conv_bn_relu(g, prefix, 0, make_divisible(32 * s->width), 3, cifar ? 1 : 2, 1, err);
	if (x < 0)
		return err->code;
	for (int t = 0; t < STAGES; t++) {
		int stride = cifar && t == CIFAR_UNSTRIDED_STAGE ? 1 : stages[t].stride;
		for (int r = 0; r < stages[t].repeats; r++) {
			gp_model_name(prefix, "features.%d", index++);
			GP_TRY(gp_graph_begin_block(g, prefix, err));
			x = inverted_residual(g, prefix, x, make_divisible(stages[t].channels * s->width),
					      r ? 1 : stride, stages[t].expand, err);
			if (x < 0)
				return err->code;
		}
	}
	gp_model_name(prefix, "features.%d", index);
	GP_TRY(gp_graph_begin_block(g, prefix, err));
	/* The last layer never shrinks below 1280. */
	x = conv_bn_relu(g, prefix, x, make_divisible(1280 * fmax(1.0, s->width)), 1, 1, 1, err);
	if (x < 0)
		return err->code;
	*out = x;
	return GP_OK;
}

static enum gp_status add_classifier(struct gp_graph *g, const struct settings *s, int x, struct gp_err *err)
{
	GP_TRY(gp_graph_begin_block(g, "avgpool", err));
	x = gp_graph_unary(g, GP_OP_GLOBAL_AVG_POOL, "avgpool", x, err);
	x = gp_graph_unary(g, GP_OP_FLATTEN, "flatten", x, err);
	if (x < 0)
		return err->code;
	GP_TRY(gp_graph_begin_block(g, "classifier", err));
	x = gp_graph_dropout(g, "classifier.0", x, (float)s->dropout, err);
	x = gp_graph_linear(g, "classifier.1", x, s->classes, true, err);
	if (x < 0)
		return err->code;
	gp_model_init_weight(g, x, GP_INIT_NORMAL, 0.01f);
	gp_model_init_bias(g, x, GP_INIT_ZEROS, 0);
	return gp_graph_finish(g, err);
}

static enum gp_status read_settings(struct gp_model_args *a, struct settings *s, struct gp_err *err)
{
	*s = (struct settings){.width = 1.0, .dropout = 0.2, .stem = STEM_IMAGENET};
	GP_TRY(gp_model_arg_real(a, "width", 0.05, 8.0, &s->width, err));
	GP_TRY(gp_model_arg_real(a, "dropout", 0.0, 0.99, &s->dropout, err));
	GP_TRY(gp_model_arg_choice(a, "stem", "imagenet|cifar", &s->stem, err));
	bool cifar = s->stem == STEM_CIFAR;
	GP_TRY(gp_model_arg_classes(a, cifar ? 10 : 1000, &s->classes, err));
	int64_t side = cifar ? 32 : 224;
	GP_TRY(gp_model_arg_input(a, (struct gp_shape){.ndim = 3, .dim = {side, side, 3}}, &s->input, err));
	return gp_model_args_done(a, err);
}

enum gp_status gp_model_mobilenetv2(struct gp_model_args *a, struct gp_graph **out, struct gp_err *err)
{
	struct settings s;
	int x = -1;
	GP_TRY(read_settings(a, &s, err));
	struct gp_graph *g = gp_graph_new("mobilenetv2", &s.input, err);
	if (!g)
		return err->code;
	if (add_features(g, &s, &x, err) != GP_OK || add_classifier(g, &s, x, err) != GP_OK) {
		gp_graph_free(g);
		return err->code;
	}
	*out = g;
	return GP_OK;
}
