/* SPDX-License-Identifier: Apache-2.0
 *
 * A small CNN for small images, made to train in minutes on a CPU: three
 * blocks of convolution 3x3, batch norm, ReLU and max pooling (width, 2 width
 * and 4 width channels) and a linear classifier. 7.5 M MACs for a 28x28 image
 * at width 32.
 *
 * Blocks: features.0, features.1, features.2 (with the flatten), classifier.
 * Starting values are torch.nn's defaults. Test: tests/unit/test_models.c
 */
#include "common/models_internal.h"

#define STAGES 3

static int conv_block(struct gp_graph *g, const char *prefix, int in, int channels, struct gp_err *err)
{
	char name[GP_NAME_MAX];
	int x = gp_graph_conv(g, gp_model_name(name, "%s.0", prefix), in, channels, 3, 1, 1, 1, false, err);
	x = gp_graph_batch_norm(g, gp_model_name(name, "%s.1", prefix), x, 1e-5f, 0.1f, err);
	x = gp_graph_unary(g, GP_OP_RELU, gp_model_name(name, "%s.2", prefix), x, err);
	return gp_graph_pool(g, GP_OP_MAX_POOL, gp_model_name(name, "%s.3", prefix), x, 2, 2, 0, err);
}

static enum gp_status add_layers(struct gp_graph *g, int width, int classes, struct gp_err *err)
{
	int x = 0;
	for (int i = 0; i < STAGES; i++) {
		char prefix[GP_NAME_MAX];
		gp_model_name(prefix, "features.%d", i);
		GP_TRY(gp_graph_begin_block(g, prefix, err));
		x = conv_block(g, prefix, x, width << i, err);
		if (x < 0)
			return err->code;
	}
	x = gp_graph_unary(g, GP_OP_FLATTEN, "flatten", x, err);
	if (x < 0)
		return err->code;
	GP_TRY(gp_graph_begin_block(g, "classifier", err));
	if (gp_graph_linear(g, "classifier", x, classes, true, err) < 0)
		return err->code;
	return gp_graph_finish(g, err);
}

enum gp_status gp_model_cnn(struct gp_model_args *a, struct gp_graph **out, struct gp_err *err)
{
	int width = 32, classes;
	struct gp_shape input;
	GP_TRY(gp_model_arg_int(a, "width", 1, 1024, &width, err));
	GP_TRY(gp_model_arg_classes(a, 10, &classes, err));
	GP_TRY(gp_model_arg_input(a, (struct gp_shape){.ndim = 3, .dim = {28, 28, 1}}, &input, err));
	GP_TRY(gp_model_args_done(a, err));
	struct gp_graph *g = gp_graph_new("cnn", &input, err);
	if (!g)
		return err->code;
	if (add_layers(g, width, classes, err) != GP_OK) {
		gp_graph_free(g);
		return err->code;
	}
	*out = g;
	return GP_OK;
}
