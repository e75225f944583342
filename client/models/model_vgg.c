/* SPDX-License-Identifier: Apache-2.0
 *
 * VGG-13 with batch norm (Simonyan and Zisserman, "Very Deep Convolutional
 * Networks for Large-Scale Image Recognition", ICLR 2015, configuration B) with
 * the names, structure and starting values of torchvision.models.vgg13_bn.
 *
 * The first linear layer is sized for the input: torchvision brings every input to 7x7 positions by adaptive pooling,
 * which at 224x224 changes nothing; here an input of H x W is classified from its own (H/32) x (W/32) positions.
 * hidden=0 leaves out the two hidden layers, as is usual at 32x32: one linear layer named "classifier".
 *
 * Blocks: one per convolution with batch norm, ReLU and the pooling behind it (features.0, features.3, features.7,
 * ...), flatten, and one per linear layer with its ReLU and dropout (classifier.0, classifier.3, classifier.6). With
 * cuts=fine each ReLU and what follows it is a block of its own, features.0.act, ...: then a cut can lie before an
 * activation.
 *
 * Test: tests/unit/test_models.c
 */
#include <math.h>

#include "client/models/models_internal.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_pool.h"
#include "common/graph/ops/op_linear.h"

/* Configuration B: the channels of each convolution; 0 is 2x2 max pooling. */
static const int layers[] = {64, 64, 0, 128, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0};

#define LAYERS ((int)(sizeof layers / sizeof layers[0]))

struct settings {
	double width, dropout;
	int hidden, fine, classes;
	struct gp_shape input;
};

/* What every step of building needs. */
struct build {
	struct gp_graph *g;
	const struct settings *s;
	struct gp_err *err;
};

/* --- convolutions ----------------------------------------------------------------------------------------------- */

/* A block: "features.N" convolution, N+1 batch norm, N+2 ReLU. Takes and returns a node, -1 after a failure. */
static int conv_bn_relu(const struct build *b, int n, int in, int channels)
{
	char prefix[GP_NAME_MAX], name[GP_NAME_MAX];
	struct gp_graph *g = b->g;
	gp_model_name(prefix, "features.%d", n);
	if (gp_graph_begin_block(g, prefix, b->err) != GP_OK)
		return -1;
	int x = gp_graph_conv(g, prefix, in, channels, 3, 1, 1, 1, true, b->err);
	gp_model_init_weight(g, x, GP_INIT_NORMAL, (float)sqrt(2.0 / (channels * 9.0))); /* kaiming_normal_, fan-out */
	gp_model_init_bias(g, x, GP_INIT_ZEROS, 0);
	x = gp_graph_batch_norm(g, gp_model_name(name, "features.%d", n + 1), x, 1e-5f, 0.1f, b->err);
	x = gp_model_begin_act(g, b->s->fine, prefix, x, b->err);
	return gp_graph_unary(g, GP_OP_RELU, gp_model_name(name, "features.%d", n + 2), x, b->err);
}

static int add_features(const struct build *b)
{
	char name[GP_NAME_MAX];
	int x = 0, n = 0; /* n: index in torchvision's nn.Sequential */
	for (int i = 0; i < LAYERS && x >= 0; i++) {
		if (layers[i]) {
			x = conv_bn_relu(b, n, x, (int)(layers[i] * b->s->width + 0.5));
			n += 3;
		} else {
			gp_model_name(name, "features.%d", n++);
			x = gp_graph_pool(b->g, GP_OP_MAX_POOL, name, x, 2, 2, 0, b->err);
		}
	}
	return x;
}

/* --- classifier ------------------------------------------------------------------------------------------------- */

static int linear(const struct build *b, const char *name, int in, int outputs)
{
	if (in < 0 || gp_graph_begin_block(b->g, name, b->err) != GP_OK)
		return -1;
	int x = gp_graph_linear(b->g, name, in, outputs, true, b->err);
	gp_model_init_weight(b->g, x, GP_INIT_NORMAL, 0.01f);
	gp_model_init_bias(b->g, x, GP_INIT_ZEROS, 0);
	return x;
}

/* A block: "classifier.N" linear, N+1 ReLU, N+2 dropout. */
static int hidden_layer(const struct build *b, int n, int in)
{
	char prefix[GP_NAME_MAX], name[GP_NAME_MAX];
	int x = linear(b, gp_model_name(prefix, "classifier.%d", n), in, b->s->hidden);
	x = gp_model_begin_act(b->g, b->s->fine, prefix, x, b->err);
	x = gp_graph_unary(b->g, GP_OP_RELU, gp_model_name(name, "classifier.%d", n + 1), x, b->err);
	return gp_graph_dropout(b->g, gp_model_name(name, "classifier.%d", n + 2), x, (float)b->s->dropout, b->err);
}

static enum gp_status add_classifier(const struct build *b, int x)
{
	if (x < 0)
		return b->err->code;
	GP_TRY(gp_graph_begin_block(b->g, "flatten", b->err));
	x = gp_graph_unary(b->g, GP_OP_FLATTEN, "flatten", x, b->err);
	if (b->s->hidden) {
		x = hidden_layer(b, 0, x);
		x = hidden_layer(b, 3, x);
	}
	x = linear(b, b->s->hidden ? "classifier.6" : "classifier", x, b->s->classes);
	return x < 0 ? b->err->code : gp_graph_finish(b->g, b->err);
}

/* --- the builder ------------------------------------------------------------------------------------------------ */

static enum gp_status read_settings(struct gp_model_args *a, struct settings *s, struct gp_err *err)
{
	*s = (struct settings){.width = 1.0, .dropout = 0.5, .hidden = 4096};
	GP_TRY(gp_model_arg_real(a, "width", 0.05, 8.0, &s->width, err));
	GP_TRY(gp_model_arg_real(a, "dropout", 0.0, 0.99, &s->dropout, err));
	GP_TRY(gp_model_arg_int(a, "hidden", 0, 1 << 16, &s->hidden, err));
	GP_TRY(gp_model_arg_cuts(a, &s->fine, err));
	GP_TRY(gp_model_arg_classes(a, 1000, &s->classes, err));
	GP_TRY(gp_model_arg_input(a, (struct gp_shape){.ndim = 3, .dim = {224, 224, 3}}, &s->input, err));
	return gp_model_args_done(a, err);
}

enum gp_status gp_model_vgg13(struct gp_model_args *a, struct gp_graph **out, struct gp_err *err)
{
	struct settings s;
	GP_TRY(read_settings(a, &s, err));
	struct build b = {.g = gp_graph_new("vgg13", &s.input, err), .s = &s, .err = err};
	if (!b.g)
		return err->code;
	if (add_classifier(&b, add_features(&b)) != GP_OK) {
		gp_graph_free(b.g);
		return err->code;
	}
	*out = b.g;
	return GP_OK;
}
