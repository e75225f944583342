/* SPDX-License-Identifier: Apache-2.0
 *
 * Shape inference, one function per op. The nodes may come from a hostile
 * peer: every attribute is bounded before it is used in arithmetic, all of
 * which is 64-bit and cannot overflow within these bounds. See graph_infer.h.
 * Test: tests/unit/test_graph.c
 */
#include "common/graph/graph_infer.h"

#include <math.h>

#include "common/base/mem.h"

/* Far above any real layer; small enough that sums and products of a few stay within int64. */
#define MAX_WINDOW   4096
#define MAX_CHANNELS ((int64_t)1 << 24)

typedef enum gp_status (*infer_fn)(struct gp_node *n, const struct gp_shape *const in[2], struct gp_param *param,
				   struct gp_err *err);

static enum gp_status check_range(const char *what, int64_t value, int64_t min, int64_t max, struct gp_err *err)
{
	if (value < min || value > max)
		GP_FAIL(err, GP_INVALID, "%s is %lld; it must be in %lld..%lld", what, (long long)value, (long long)min,
			(long long)max);
	return GP_OK;
}

static enum gp_status check_image(const struct gp_shape *s, struct gp_err *err)
{
	char text[64];
	if (s->ndim != 3)
		GP_FAIL(err, GP_INVALID, "the input must be an image (H,W,C), not %s",
			gp_shape_text(s, text, sizeof text));
	return GP_OK;
}

static struct gp_shape shape3(int64_t a, int64_t b, int64_t c)
{
	return (struct gp_shape){.ndim = 3, .dim = {a, b, c}};
}

static struct gp_shape shape1(int64_t a)
{
	return (struct gp_shape){.ndim = 1, .dim = {a}};
}

static enum gp_status add_param(struct gp_node *n, struct gp_param *param, enum gp_param_role role,
				struct gp_shape shape, enum gp_init_kind init, float scale, struct gp_err *err)
{
	bool trained = role == GP_PARAM_WEIGHT || role == GP_PARAM_BIAS;
	struct gp_param *p = &param[n->params];
	*p = (struct gp_param){
		.role = role, .shape = shape, .init = init, .init_scale = scale, .trained = trained, .decay = trained};
	GP_TRY(gp_shape_count(&p->shape, GP_GRAPH_MAX_ELEMENTS, &p->count, err));
	n->params++;
	return GP_OK;
}

/* kaiming_uniform(a=sqrt(5)) of torch.nn: both weight and bias are uniform in +-1/sqrt(fan_in). */
static enum gp_status add_weight_and_bias(struct gp_node *n, struct gp_param *param, struct gp_shape weight,
					  int64_t fan_in, bool bias, int64_t outputs, struct gp_err *err)
{
	float scale = (float)(1.0 / sqrt((double)fan_in));
	GP_TRY(add_param(n, param, GP_PARAM_WEIGHT, weight, GP_INIT_UNIFORM, scale, err));
	if (bias)
		GP_TRY(add_param(n, param, GP_PARAM_BIAS, shape1(outputs), GP_INIT_UNIFORM, scale, err));
	return GP_OK;
}

/* --- convolution ------------------------------------------------------------------------------------------------ */

static enum gp_status check_conv(const struct gp_conv_attr *a, int64_t in_channels, struct gp_err *err)
{
	GP_TRY(check_range("out_channels", a->out_channels, 1, MAX_CHANNELS, err));
	GP_TRY(check_range("kernel height", a->kernel_h, 1, MAX_WINDOW, err));
	GP_TRY(check_range("kernel width", a->kernel_w, 1, MAX_WINDOW, err));
	GP_TRY(check_range("stride height", a->stride_h, 1, MAX_WINDOW, err));
	GP_TRY(check_range("stride width", a->stride_w, 1, MAX_WINDOW, err));
	GP_TRY(check_range("top padding", a->pad_top, 0, MAX_WINDOW, err));
	GP_TRY(check_range("bottom padding", a->pad_bottom, 0, MAX_WINDOW, err));
	GP_TRY(check_range("left padding", a->pad_left, 0, MAX_WINDOW, err));
	GP_TRY(check_range("right padding", a->pad_right, 0, MAX_WINDOW, err));
	GP_TRY(check_range("groups", a->groups, 1, MAX_CHANNELS, err));
	if (in_channels % a->groups || a->out_channels % a->groups)
		GP_FAIL(err, GP_INVALID, "%d groups do not divide %lld input and %d output channels", a->groups,
			(long long)in_channels, a->out_channels);
	return GP_OK;
}

static enum gp_status infer_conv(struct gp_node *n, const struct gp_shape *const in[2], struct gp_param *param,
				 struct gp_err *err)
{
	const struct gp_conv_attr *a = &n->u.conv;
	GP_TRY(check_image(in[0], err));
	int64_t c = in[0]->dim[2];
	GP_TRY(check_conv(a, c, err));
	if (a->out_pad_h || a->out_pad_w)
		GP_FAIL(err, GP_INVALID, "output padding belongs to transposed convolution only");
	int64_t h = in[0]->dim[0] + a->pad_top + a->pad_bottom - a->kernel_h;
	int64_t w = in[0]->dim[1] + a->pad_left + a->pad_right - a->kernel_w;
	if (h < 0 || w < 0)
		GP_FAIL(err, GP_INVALID, "a %dx%d kernel does not fit a padded %lldx%lld image", a->kernel_h,
			a->kernel_w, (long long)(h + a->kernel_h), (long long)(w + a->kernel_w));
	n->shape = shape3(h / a->stride_h + 1, w / a->stride_w + 1, a->out_channels);
	int64_t per_group = c / a->groups;
	struct gp_shape weight = {.ndim = 4, .dim = {a->out_channels, per_group, a->kernel_h, a->kernel_w}};
	GP_TRY(add_weight_and_bias(n, param, weight, per_group * a->kernel_h * a->kernel_w, a->bias, a->out_channels,
				   err));
	if (!gp_mul_ok((uint64_t)n->shape.dim[0] * (uint64_t)n->shape.dim[1], param[0].count, &n->macs))
		GP_FAIL(err, GP_INVALID, "the convolution is too large");
	return GP_OK;
}

static enum gp_status infer_conv_transpose(struct gp_node *n, const struct gp_shape *const in[2],
					   struct gp_param *param, struct gp_err *err)
{
	const struct gp_conv_attr *a = &n->u.conv;
	GP_TRY(check_image(in[0], err));
	int64_t c = in[0]->dim[2];
	GP_TRY(check_conv(a, c, err));
	GP_TRY(check_range("output padding height", a->out_pad_h, 0, a->stride_h - 1, err));
	GP_TRY(check_range("output padding width", a->out_pad_w, 0, a->stride_w - 1, err));
	int64_t h = (in[0]->dim[0] - 1) * a->stride_h - a->pad_top - a->pad_bottom + a->kernel_h + a->out_pad_h;
	int64_t w = (in[0]->dim[1] - 1) * a->stride_w - a->pad_left - a->pad_right + a->kernel_w + a->out_pad_w;
	if (h < 1 || w < 1)
		GP_FAIL(err, GP_INVALID, "the padding crops the whole %lldx%lld output", (long long)h, (long long)w);
	n->shape = shape3(h, w, a->out_channels);
	int64_t per_group = a->out_channels / a->groups;
	struct gp_shape weight = {.ndim = 4, .dim = {c, per_group, a->kernel_h, a->kernel_w}};
	/* torch.nn takes fan_in from the weight's second dimension, which here counts outputs. */
	GP_TRY(add_weight_and_bias(n, param, weight, per_group * a->kernel_h * a->kernel_w, a->bias, a->out_channels,
				   err));
	if (!gp_mul_ok((uint64_t)in[0]->dim[0] * (uint64_t)in[0]->dim[1], param[0].count, &n->macs))
		GP_FAIL(err, GP_INVALID, "the transposed convolution is too large");
	return GP_OK;
}

/* --- pooling ---------------------------------------------------------------------------------------------------- */

static enum gp_status check_pool_axis(const char *axis, int64_t size, int32_t kernel, int32_t stride, int32_t before,
				      int32_t after, int64_t *out, struct gp_err *err)
{
	if (kernel < 1 || kernel > MAX_WINDOW || stride < 1 || stride > MAX_WINDOW)
		GP_FAIL(err, GP_INVALID, "pool %s has kernel %d and stride %d; both must be in 1..%d", axis, kernel,
			stride, MAX_WINDOW);
	/* Padding below the kernel size: no window lies in padding alone. */
	if (before < 0 || before >= kernel || after < 0 || after >= kernel)
		GP_FAIL(err, GP_INVALID, "pool %s has padding %d and %d; it must be in 0..%d", axis, before, after,
			kernel - 1);
	int64_t room = size + before + after - kernel;
	if (room < 0)
		GP_FAIL(err, GP_INVALID, "a pool kernel of %d does not fit a padded %s of %lld", kernel, axis,
			(long long)(room + kernel));
	*out = room / stride + 1;
	return GP_OK;
}

static enum gp_status infer_pool(struct gp_node *n, const struct gp_shape *const in[2], struct gp_param *param,
				 struct gp_err *err)
{
	(void)param;
	const struct gp_pool_attr *a = &n->u.pool;
	int64_t h, w;
	GP_TRY(check_image(in[0], err));
	GP_TRY(check_pool_axis("height", in[0]->dim[0], a->kernel_h, a->stride_h, a->pad_top, a->pad_bottom, &h, err));
	GP_TRY(check_pool_axis("width", in[0]->dim[1], a->kernel_w, a->stride_w, a->pad_left, a->pad_right, &w, err));
	n->shape = shape3(h, w, in[0]->dim[2]);
	return GP_OK;
}

static enum gp_status infer_global_pool(struct gp_node *n, const struct gp_shape *const in[2], struct gp_param *param,
					struct gp_err *err)
{
	(void)param;
	GP_TRY(check_image(in[0], err));
	n->shape = shape3(1, 1, in[0]->dim[2]);
	return GP_OK;
}

/* --- the rest --------------------------------------------------------------------------------------------------- */

static enum gp_status infer_same(struct gp_node *n, const struct gp_shape *const in[2], struct gp_param *param,
				 struct gp_err *err)
{
	(void)param;
	(void)err;
	n->shape = *in[0];
	return GP_OK;
}

static enum gp_status infer_batch_norm(struct gp_node *n, const struct gp_shape *const in[2], struct gp_param *param,
				       struct gp_err *err)
{
	const struct gp_bn_attr *a = &n->u.bn;
	if (in[0]->ndim != 1 && in[0]->ndim != 3)
		GP_FAIL(err, GP_INVALID, "batch norm takes (F) or (H,W,C), not %d dimensions", in[0]->ndim);
	if (!(a->eps >= 1e-12f && a->eps <= 1.0f) || !(a->momentum >= 0.0f && a->momentum <= 1.0f))
		GP_FAIL(err, GP_INVALID, "eps %g must be in 1e-12..1 and momentum %g in 0..1", (double)a->eps,
			(double)a->momentum);
	struct gp_shape c = shape1(in[0]->dim[in[0]->ndim - 1]);
	n->shape = *in[0];
	GP_TRY(add_param(n, param, GP_PARAM_WEIGHT, c, GP_INIT_ONES, 0, err));
	GP_TRY(add_param(n, param, GP_PARAM_BIAS, c, GP_INIT_ZEROS, 0, err));
	GP_TRY(add_param(n, param, GP_PARAM_RUNNING_MEAN, c, GP_INIT_ZEROS, 0, err));
	return add_param(n, param, GP_PARAM_RUNNING_VAR, c, GP_INIT_ONES, 0, err);
}

static enum gp_status infer_add(struct gp_node *n, const struct gp_shape *const in[2], struct gp_param *param,
				struct gp_err *err)
{
	(void)param;
	char a[64], b[64];
	if (!gp_shape_equal(in[0], in[1]))
		GP_FAIL(err, GP_INVALID, "its two inputs differ in shape: %s and %s", gp_shape_text(in[0], a, sizeof a),
			gp_shape_text(in[1], b, sizeof b));
	n->shape = *in[0];
	return GP_OK;
}

static enum gp_status infer_linear(struct gp_node *n, const struct gp_shape *const in[2], struct gp_param *param,
				   struct gp_err *err)
{
	const struct gp_linear_attr *a = &n->u.linear;
	GP_TRY(check_range("out_features", a->out_features, 1, MAX_CHANNELS, err));
	if (in[0]->ndim != 1 && in[0]->ndim != 2)
		GP_FAIL(err, GP_INVALID, "linear takes (F) or (S,F), not %d dimensions; put a flatten before it",
			in[0]->ndim);
	int64_t features = in[0]->dim[in[0]->ndim - 1];
	n->shape = *in[0];
	n->shape.dim[in[0]->ndim - 1] = a->out_features;
	struct gp_shape weight = {.ndim = 2, .dim = {a->out_features, features}};
	GP_TRY(add_weight_and_bias(n, param, weight, features, a->bias, a->out_features, err));
	uint64_t rows = in[0]->ndim == 2 ? (uint64_t)in[0]->dim[0] : 1;
	if (!gp_mul_ok(rows, param[0].count, &n->macs))
		GP_FAIL(err, GP_INVALID, "the linear layer is too large");
	return GP_OK;
}

static enum gp_status infer_flatten(struct gp_node *n, const struct gp_shape *const in[2], struct gp_param *param,
				    struct gp_err *err)
{
	(void)param;
	(void)err;
	n->shape = shape1((int64_t)gp_shape_elements(in[0]));
	return GP_OK;
}

static enum gp_status infer_dropout(struct gp_node *n, const struct gp_shape *const in[2], struct gp_param *param,
				    struct gp_err *err)
{
	float p = n->u.dropout.p;
	if (!(p >= 0.0f && p < 1.0f))
		GP_FAIL(err, GP_INVALID, "dropout probability is %g; it must be in [0,1)", (double)p);
	return infer_same(n, in, param, err);
}

static enum gp_status infer_shortcut_pad(struct gp_node *n, const struct gp_shape *const in[2], struct gp_param *param,
					 struct gp_err *err)
{
	(void)param;
	const struct gp_shortcut_attr *a = &n->u.shortcut;
	GP_TRY(check_image(in[0], err));
	GP_TRY(check_range("stride", a->stride, 1, MAX_WINDOW, err));
	GP_TRY(check_range("zero channels before", a->before, 0, MAX_CHANNELS, err));
	GP_TRY(check_range("zero channels after", a->after, 0, MAX_CHANNELS, err));
	n->shape = shape3((in[0]->dim[0] - 1) / a->stride + 1, (in[0]->dim[1] - 1) / a->stride + 1,
			  a->before + in[0]->dim[2] + a->after);
	return GP_OK;
}

static const struct op_row {
	const char *name;
	int inputs;
	infer_fn infer;
} ops[GP_OP_COUNT] = {
	[GP_OP_INPUT] = {"input", -1, NULL},
	[GP_OP_CONV2D] = {"conv2d", 1, infer_conv},
	[GP_OP_CONV2D_TRANSPOSE] = {"conv2d_transpose", 1, infer_conv_transpose},
	[GP_OP_BATCH_NORM] = {"batch_norm", 1, infer_batch_norm},
	[GP_OP_RELU] = {"relu", 1, infer_same},
	[GP_OP_RELU6] = {"relu6", 1, infer_same},
	[GP_OP_ADD] = {"add", 2, infer_add},
	[GP_OP_AVG_POOL] = {"avg_pool", 1, infer_pool},
	[GP_OP_MAX_POOL] = {"max_pool", 1, infer_pool},
	[GP_OP_GLOBAL_AVG_POOL] = {"global_avg_pool", 1, infer_global_pool},
	[GP_OP_LINEAR] = {"linear", 1, infer_linear},
	[GP_OP_FLATTEN] = {"flatten", 1, infer_flatten},
	[GP_OP_DROPOUT] = {"dropout", 1, infer_dropout},
	[GP_OP_SHORTCUT_PAD] = {"shortcut_pad", 1, infer_shortcut_pad},
};

const char *gp_op_name(enum gp_op op)
{
	return (unsigned)op < GP_OP_COUNT ? ops[op].name : "?";
}

int gp_op_inputs(enum gp_op op)
{
	return (unsigned)op < GP_OP_COUNT ? ops[op].inputs : -1;
}

enum gp_status gp_graph_infer(struct gp_node *n, const struct gp_shape *const in[2],
			      struct gp_param param[GP_NODE_MAX_PARAMS], struct gp_err *err)
{
	uint64_t count;
	n->macs = 0;
	n->params = 0;
	GP_TRY(ops[n->op].infer(n, in, param, err));
	return gp_shape_count(&n->shape, GP_GRAPH_MAX_ELEMENTS, &count, err);
}
