/* SPDX-License-Identifier: Apache-2.0
 *
 * MobileNetV2 (Sandler et al., "MobileNetV2: Inverted Residuals and Linear
 * Bottlenecks", CVPR 2018, table 2) with the names, structure and starting
 * values of torchvision.models.mobilenet_v2.
 *
 * Blocks: features.0 (stem) ... features.18, avgpool (global average pool and
 * flatten), classifier (dropout and linear). With cuts=fine a block ends behind
 * every convolution and its batch norm: what follows is a block features.0.act,
 * features.2.conv.0.act, features.2.conv.1.act, or, before a residual sum,
 * features.3.add. So a cut can lie before an activation, or inside a residual
 * block, where two tensors cross.
 *
 * stem=imagenet is torchvision's network: total stride 32, for about 224x224.
 * stem=cifar is the usual adaptation to about 32x32: the first convolution and
 * the first block of the 24-channel stage (features.2) have stride 1, so the
 * total stride is 8. The parameters have the same names and shapes either way.
 *
 * pad=same and eps=1e-3 are for weights that were trained in TensorFlow: its
 * SAME padding puts an odd row at the bottom and right, where torch pads both
 * sides alike, and its batch norms have a larger epsilon.
 *
 * Test: tests/unit/test_models.c
 */
#include <math.h>

#include "client/models/models_internal.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_linear.h"

enum { STEM_IMAGENET, STEM_CIFAR };
enum { PAD_TORCH, PAD_SAME };

struct settings {
	double width, dropout, eps;
	int stem, pad, fine, classes;
	struct gp_shape input;
};

/* What every step of building needs. */
struct build {
	struct gp_graph *g;
	const struct settings *s;
	struct gp_err *err;
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

/* --- layers; each takes and returns a node, -1 after a failure -------------------------------------------------- */

/* TensorFlow's SAME: ceil(size / stride) outputs, the odd row of padding at the end. */
static void same_padding(int64_t size, int kernel, int stride, int32_t *before, int32_t *after)
{
	int64_t outputs = (size + stride - 1) / stride, total = (outputs - 1) * stride + kernel - size;
	*before = (int32_t)(total > 0 ? total / 2 : 0);
	*after = (int32_t)(total > 0 ? total - *before : 0);
}

static int conv(const struct build *b, const char *name, int in, int out, int kernel, int stride, int groups)
{
	if (in < 0)
		return -1;
	int32_t p = kernel / 2;
	const struct gp_shape *shape = &b->g->value[in].type.shape;
	struct gp_node n = {.op = GP_OP_CONV2D};
	struct gp_conv_attr a = {out, kernel, kernel, stride, stride, p, p, p, p, 0, 0, groups, false};
	if (b->s->pad == PAD_SAME) {
		same_padding(shape->dim[0], kernel, stride, &a.pad_top, &a.pad_bottom);
		same_padding(shape->dim[1], kernel, stride, &a.pad_left, &a.pad_right);
	}
	gp_set_conv_attr(&n, a);
	const int value = gp_graph_append(b->g, n, name, 1, &in, b->err);
	if (value < 0)
		return -1;
	/* kaiming_normal_(mode="fan_out"): torch counts fan_out as weight.size(0) * kernel area, groups or not. */
	gp_model_init_weight(b->g, value, GP_INIT_NORMAL, (float)sqrt(2.0 / ((double)out * kernel * kernel)));
	return value;
}

static int batch_norm(const struct build *b, const char *name, int in)
{
	return gp_graph_batch_norm(b->g, name, in, (float)b->s->eps, 0.1f, b->err);
}

/* "PREFIX.0", "PREFIX.1" */
static int conv_bn(const struct build *b, const char *prefix, int in, int out, int kernel, int stride, int groups)
{
	char name[GP_NAME_MAX];
	int x = conv(b, gp_model_name(name, "%s.0", prefix), in, out, kernel, stride, groups);
	return batch_norm(b, gp_model_name(name, "%s.1", prefix), x);
}

static int relu6(const struct build *b, const char *prefix, int in)
{
	char name[GP_NAME_MAX];
	return gp_graph_unary(b->g, GP_OP_RELU6, gp_model_name(name, "%s.2", prefix), in, b->err);
}

/* "PREFIX.0", "PREFIX.1", "PREFIX.2"; cuts=fine divides it before the activation. */
static int conv_bn_relu(const struct build *b, const char *prefix, int in, int out, int kernel, int stride, int groups)
{
	int x = conv_bn(b, prefix, in, out, kernel, stride, groups);
	return relu6(b, prefix, gp_model_begin_act(b->g, b->s->fine, prefix, x, b->err));
}

static int inverted_residual(const struct build *b, const char *prefix, int in, int out, int stride, int expand)
{
	char name[GP_NAME_MAX];
	int channels = (int)b->g->value[in].type.shape.dim[2], hidden = channels * expand, index = 0, x = in;
	if (expand != 1)
		x = conv_bn_relu(b, gp_model_name(name, "%s.conv.%d", prefix, index++), x, hidden, 1, 1, 1);
	x = conv_bn_relu(b, gp_model_name(name, "%s.conv.%d", prefix, index++), x, hidden, 3, stride, hidden);
	x = conv(b, gp_model_name(name, "%s.conv.%d", prefix, index++), x, out, 1, 1, 1);
	x = batch_norm(b, gp_model_name(name, "%s.conv.%d", prefix, index), x);
	if (stride != 1 || channels != out)
		return x;
	x = gp_model_begin_fine(b->g, b->s->fine, gp_model_name(name, "%s.add", prefix), x, b->err);
	return gp_graph_sum(b->g, name, in, x, b->err);
}

/* --- blocks ----------------------------------------------------------------------------------------------------- */

/* Begins block features.INDEX; `prefix` gets that name. */
static enum gp_status begin_features(const struct build *b, int index, char prefix[GP_NAME_MAX])
{
	return gp_graph_begin_block(b->g, gp_model_name(prefix, "features.%d", index), b->err);
}

static enum gp_status add_features(const struct build *b, int *out)
{
	char prefix[GP_NAME_MAX];
	double width = b->s->width;
	int cifar = b->s->stem == STEM_CIFAR, index = 0;
	GP_TRY(begin_features(b, index++, prefix));
	int x = conv_bn_relu(b, prefix, 0, make_divisible(32 * width), 3, cifar ? 1 : 2, 1);
	for (int t = 0; t < STAGES && x >= 0; t++) {
		int stride = cifar && t == CIFAR_UNSTRIDED_STAGE ? 1 : stages[t].stride;
		int channels = make_divisible(stages[t].channels * width);
		for (int r = 0; r < stages[t].repeats && x >= 0; r++) {
			GP_TRY(begin_features(b, index++, prefix));
			x = inverted_residual(b, prefix, x, channels, r ? 1 : stride, stages[t].expand);
		}
	}
	if (x < 0)
		return b->err->code;
	GP_TRY(begin_features(b, index, prefix));
	/* The last layer never shrinks below 1280. */
	*out = conv_bn_relu(b, prefix, x, make_divisible(1280 * fmax(1.0, width)), 1, 1, 1);
	return *out < 0 ? b->err->code : GP_OK;
}

static enum gp_status add_classifier(const struct build *b, int x)
{
	struct gp_graph *g = b->g;
	GP_TRY(gp_graph_begin_block(g, "avgpool", b->err));
	x = gp_graph_unary(g, GP_OP_GLOBAL_AVG_POOL, "avgpool", x, b->err);
	x = gp_graph_unary(g, GP_OP_FLATTEN, "flatten", x, b->err);
	if (x < 0)
		return b->err->code;
	GP_TRY(gp_graph_begin_block(g, "classifier", b->err));
	x = gp_graph_dropout(g, "classifier.0", x, (float)b->s->dropout, b->err);
	x = gp_graph_linear(g, "classifier.1", x, b->s->classes, true, b->err);
	if (x < 0)
		return b->err->code;
	gp_model_init_weight(g, x, GP_INIT_NORMAL, 0.01f);
	gp_model_init_bias(g, x, GP_INIT_ZEROS, 0);
	return gp_graph_finish(g, b->err);
}

static enum gp_status read_settings(struct gp_model_args *a, struct settings *s, struct gp_err *err)
{
	*s = (struct settings){.width = 1.0, .dropout = 0.2, .eps = 1e-5, .stem = STEM_IMAGENET, .pad = PAD_TORCH};
	GP_TRY(gp_model_arg_real(a, "width", 0.05, 8.0, &s->width, err));
	GP_TRY(gp_model_arg_real(a, "dropout", 0.0, 0.99, &s->dropout, err));
	GP_TRY(gp_model_arg_real(a, "eps", 1e-8, 0.1, &s->eps, err));
	GP_TRY(gp_model_arg_choice(a, "stem", "imagenet|cifar", &s->stem, err));
	GP_TRY(gp_model_arg_choice(a, "pad", "torch|same", &s->pad, err));
	GP_TRY(gp_model_arg_cuts(a, &s->fine, err));
	bool cifar = s->stem == STEM_CIFAR;
	GP_TRY(gp_model_arg_classes(a, cifar ? 10 : 1000, &s->classes, err));
	int64_t side = cifar ? 32 : 224;
	GP_TRY(gp_model_arg_input(a, (struct gp_shape){.ndim = 3, .dim = {side, side, 3}}, &s->input, err));
	return gp_model_args_done(a, err);
}

enum gp_status gp_model_mobilenetv2(struct gp_model_args *a, struct gp_graph **out, struct gp_err *err)
{
	struct settings s;
	int features = -1;
	GP_TRY(read_settings(a, &s, err));
	struct build b = {.g = gp_graph_new("mobilenetv2", &s.input, err), .s = &s, .err = err};
	if (!b.g)
		return err->code;
	if (add_features(&b, &features) != GP_OK || add_classifier(&b, features) != GP_OK) {
		gp_graph_free(b.g);
		return err->code;
	}
	*out = b.g;
	return GP_OK;
}
