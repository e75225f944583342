/* SPDX-License-Identifier: Apache-2.0
 *
 * Pooling: attributes, shapes, builder. global_avg_pool makes (1,1,C) of (H,W,C).
 * Test: tests/unit/test_graph.c
 */
#include "common/graph/ops/op_pool.h"

static enum gp_status check_pool_axis(const char *axis, int64_t size, int32_t kernel, int32_t stride, int32_t before,
				      int32_t after, int64_t *out, struct gp_err *err)
{
	if (kernel < 1 || kernel > GP_OP_MAX_WINDOW || stride < 1 || stride > GP_OP_MAX_WINDOW)
		GP_FAIL(err, GP_INVALID, "pool %s has kernel %d and stride %d; both must be in 1..%d", axis, kernel,
			stride, GP_OP_MAX_WINDOW);
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

static enum gp_status infer_pool(struct gp_infer *io, struct gp_err *err)
{
	const struct gp_pool_attr attr = gp_pool_attr(io->node), *const a = &attr;
	int64_t h, w;
	GP_TRY(gp_check_image(io, 0, err));
	GP_TRY(gp_check_range("count_include_pad", a->count_include_pad, 0, 1, err));
	const struct gp_shape *in = &io->in[0]->shape;
	GP_TRY(check_pool_axis("height", in->dim[0], a->kernel_h, a->stride_h, a->pad_top, a->pad_bottom, &h, err));
	GP_TRY(check_pool_axis("width", in->dim[1], a->kernel_w, a->stride_w, a->pad_left, a->pad_right, &w, err));
	io->out[0].shape = gp_shape3(h, w, in->dim[2]);
	return GP_OK;
}

static enum gp_status infer_global_pool(struct gp_infer *io, struct gp_err *err)
{
	GP_TRY(gp_check_image(io, 0, err));
	io->out[0].shape = gp_shape3(1, 1, io->in[0]->shape.dim[2]);
	return GP_OK;
}

int gp_graph_pool(struct gp_graph *g, enum gp_op op, const char *name, int in, int kernel, int stride, int pad,
		  struct gp_err *err)
{
	struct gp_node n = {.op = op};
	gp_set_pool_attr(&n, (struct gp_pool_attr){.kernel_h = kernel,
						   .kernel_w = kernel,
						   .stride_h = stride,
						   .stride_w = stride,
						   .pad_top = pad,
						   .pad_bottom = pad,
						   .pad_left = pad,
						   .pad_right = pad,
						   .count_include_pad = true});
	return gp_graph_append(g, n, name, 1, &in, err);
}

static const struct gp_op_attr attributes[] = {{"kernel_h", false}, {"kernel_w", false},  {"stride_h", false},
					       {"stride_w", false}, {"pad_top", false},   {"pad_bottom", false},
					       {"pad_left", false}, {"pad_right", false}, {"count_include_pad", false}};

const struct gp_op_def gp_op_avg_pool = {
	.name = "avg_pool",
	.inputs_min = 1,
	.inputs_max = 1,
	.attrs = GP_OP_ATTR_COUNT(attributes),
	.attr = attributes,
	.infer = infer_pool,
};

const struct gp_op_def gp_op_max_pool = {
	.name = "max_pool",
	.inputs_min = 1,
	.inputs_max = 1,
	.attrs = GP_OP_ATTR_COUNT(attributes),
	.attr = attributes,
	.infer = infer_pool,
};

const struct gp_op_def gp_op_global_avg_pool = {
	.name = "global_avg_pool",
	.inputs_min = 1,
	.inputs_max = 1,
	.infer = infer_global_pool,
};
