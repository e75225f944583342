/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of definitions, and what several of them share. See op.h.
 * Test: tests/unit/test_graph.c
 */
#include "common/graph/op.h"

#include <math.h>

#include "common/base/mem.h"

#define X(id, NAME, name) extern const struct gp_op_def gp_op_##name;
GP_OPS(X)
#undef X

static const struct gp_op_def *const definitions[GP_OP_COUNT] = {
#define X(id, NAME, name) [GP_OP_##NAME] = &gp_op_##name,
	GP_OPS(X)
#undef X
};

const struct gp_op_def *gp_op_def(enum gp_op op)
{
	return (unsigned)op < GP_OP_COUNT ? definitions[op] : NULL;
}

const char *gp_op_name(enum gp_op op)
{
	const struct gp_op_def *def = gp_op_def(op);
	return def ? def->name : op == GP_OP_INPUT ? "input" : "?";
}

enum gp_status gp_check_range(const char *what, int64_t value, int64_t min, int64_t max, struct gp_err *err)
{
	if (value < min || value > max)
		GP_FAIL(err, GP_INVALID, "%s is %lld; it must be in %lld..%lld", what, (long long)value, (long long)min,
			(long long)max);
	return GP_OK;
}

enum gp_status gp_check_dtype(const struct gp_infer *io, int index, enum gp_dtype dtype, struct gp_err *err)
{
	if (io->in[index]->dtype != dtype)
		GP_FAIL(err, GP_INVALID, "input %d must be %s, not %s", index, gp_dtype_name(dtype),
			gp_dtype_name(io->in[index]->dtype));
	return GP_OK;
}

enum gp_status gp_check_image(const struct gp_infer *io, int index, struct gp_err *err)
{
	char text[64];
	GP_TRY(gp_check_dtype(io, index, GP_F32, err));
	if (io->in[index]->shape.ndim != 3)
		GP_FAIL(err, GP_INVALID, "the input must be an image (H,W,C), not %s",
			gp_shape_text(&io->in[index]->shape, text, sizeof text));
	return GP_OK;
}

enum gp_status gp_check_same_shapes(const struct gp_infer *io, struct gp_err *err)
{
	char a[64], b[64];
	for (int i = 0; i < io->node->inputs; i++) {
		GP_TRY(gp_check_dtype(io, i, GP_F32, err));
		if (!gp_shape_equal(&io->in[0]->shape, &io->in[i]->shape))
			GP_FAIL(err, GP_INVALID, "inputs 0 and %d differ in shape: %s and %s", i,
				gp_shape_text(&io->in[0]->shape, a, sizeof a),
				gp_shape_text(&io->in[i]->shape, b, sizeof b));
	}
	return GP_OK;
}

struct gp_shape gp_shape1(int64_t a)
{
	return (struct gp_shape){.ndim = 1, .dim = {a}};
}

struct gp_shape gp_shape2(int64_t a, int64_t b)
{
	return (struct gp_shape){.ndim = 2, .dim = {a, b}};
}

struct gp_shape gp_shape3(int64_t a, int64_t b, int64_t c)
{
	return (struct gp_shape){.ndim = 3, .dim = {a, b, c}};
}

enum gp_status gp_infer_param(struct gp_infer *io, enum gp_param_role role, struct gp_shape shape,
			      enum gp_init_kind init, float scale, struct gp_err *err)
{
	const bool trained = role == GP_PARAM_WEIGHT || role == GP_PARAM_BIAS;
	gp_require(io->node->params < GP_NODE_MAX_PARAMS);
	struct gp_param *p = &io->param[io->node->params];
	*p = (struct gp_param){
		.role = role, .shape = shape, .init = init, .init_scale = scale, .trained = trained, .decay = trained};
	GP_TRY(gp_shape_count(&p->shape, GP_GRAPH_MAX_ELEMENTS, &p->count, err));
	io->node->params++;
	return GP_OK;
}

enum gp_status gp_infer_weight_and_bias(struct gp_infer *io, struct gp_shape weight, int64_t fan_in, bool bias,
					int64_t outputs, struct gp_err *err)
{
	const float scale = (float)(1.0 / sqrt((double)fan_in));
	GP_TRY(gp_infer_param(io, GP_PARAM_WEIGHT, weight, GP_INIT_UNIFORM, scale, err));
	if (bias)
		GP_TRY(gp_infer_param(io, GP_PARAM_BIAS, gp_shape1(outputs), GP_INIT_UNIFORM, scale, err));
	return GP_OK;
}

enum gp_status gp_infer_same(struct gp_infer *io, struct gp_err *err)
{
	GP_TRY(gp_check_dtype(io, 0, GP_F32, err));
	io->out[0] = *io->in[0];
	return GP_OK;
}
