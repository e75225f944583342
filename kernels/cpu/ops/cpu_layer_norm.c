/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer norm with the residual sum and the dropout before it, by
 * kernels/cpu/math/norm_rows.h. Forward keeps the normal rows and each row's
 * scale; the mask of dropout is drawn again in backward.
 *
 * What is kept, counted in arrays of the value's size that pass through memory, a write twice: with the normal, forward
 * has 6 of them and backward 6; with the inputs in its place 4 and 7, but two arrays to keep instead of one wherever no
 * other op keeps the residual, and both inputs are in the way of working in place.
 *
 * Backward goes once through the rows, in blocks of rows that do not depend on the number of threads; a block has sums
 * of its own for the gradients of weight and bias, which are added up in the order of the blocks.
 *
 * Test: tests/unit/test_layer_norm.c, tests/unit/test_cpu_ops.c
 */
#include <string.h>

#include "common/base/rng.h"
#include "common/graph/ops/op_layer_norm.h"
#include "kernels/cpu/math/drop.h"
#include "kernels/cpu/math/norm_rows.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cpu/plan/parallel.h"

#define GRAIN      16 /* floats of a cache line */
#define BLOCK_ROWS 32 /* at least so many rows have sums of their own: the last block may have fewer */
#define BLOCKS     64 /* at most */

struct norm_job {
	struct gp_drop drop;
	const float *in, *residual, *weight, *bias; /* forward; residual may be NULL; weight in backward, too */
	const float *dout;                          /* backward */
	float *out, *dx, *dresidual;                /* either gradient may be NULL */
	float *normal, *scale;                      /* kept: (rows, features); (rows). NULL where no backward comes */
	float *sums;                                /* backward: (blocks, 2, features) of weight and bias, or NULL */
	float *grad_weight, *grad_bias;             /* either may be NULL */
	int64_t rows, features, blocks;
	int64_t sample_rows, missing; /* rows of a sample; elements that it has fewer than one of full length */
	float eps;
	bool fresh;
};

static int64_t features_of(const struct cpu_node *n)
{
	const struct gp_shape *s = &n->base.g->shape;
	return s->dim[s->ndim - 1];
}

static int64_t blocks_of(int64_t rows)
{
	const int64_t blocks = (rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
	return blocks < BLOCKS ? blocks : BLOCKS;
}

/* What the draws of a row's elements are counted from: all positions of every sample. */
static int64_t first_draw(const struct norm_job *job, int64_t row)
{
	return row * job->features + row / job->sample_rows * job->missing;
}

/* --- forward ----------------------------------------------------------------------------------------------------- */

/* The sum lies where the normal row will, or else the output: rows are read whole before that is written to. */
static void forward_row(const struct norm_job *job, int64_t row)
{
	const int64_t n = job->features, at = row * n;
	float *v = (job->normal ? job->normal : job->out) + at;
	gp_drop_values(&job->drop, first_draw(job, row), v, job->in + at, job->residual ? job->residual + at : NULL, n);
	const struct gp_norm_row r = gp_norm_row_of(v, n, job->eps);
	if (!job->normal) {
		gp_norm_row_apply(&r, v, v, job->weight, job->bias, n);
		return;
	}
	gp_norm_row_apply_and_keep(&r, job->out + at, v, v, job->weight, job->bias, n);
	job->scale[row] = r.scale;
}

static void forward_part(void *arg, int part, int parts)
{
	const struct norm_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->rows, 1, part, parts);
	for (int64_t row = r.from; row < r.to; row++)
		forward_row(job, row);
}

/* --- backward ---------------------------------------------------------------------------------------------------- */

/* Any gradient may lie where dout does. */
static void backward_row(const struct norm_job *job, int64_t row)
{
	const int64_t n = job->features, at = row * n;
	const float *dout = job->dout + at, *normal = job->normal + at;
	float *dx = job->dx ? job->dx + at : NULL, *d = job->dresidual ? job->dresidual + at : dx;
	const struct gp_norm_slope s = gp_norm_row_slope(dout, normal, job->weight, n);
	gp_norm_row_gradient(&s, job->scale[row], d, dout, normal, job->weight, n);
	if (dx)
		gp_drop_values(&job->drop, first_draw(job, row), dx, d, NULL, n);
}

static void backward_part(void *arg, int part, int parts)
{
	const struct norm_job *job = arg;
	const struct gp_cpu_range mine = gp_cpu_share(job->blocks, 1, part, parts);
	for (int64_t b = mine.from; b < mine.to; b++) {
		const int64_t n = job->features, until = job->rows * (b + 1) / job->blocks;
		float *sums = job->sums ? job->sums + 2 * b * n : NULL;
		if (sums)
			memset(sums, 0, 2 * (size_t)n * sizeof *sums);
		for (int64_t row = job->rows * b / job->blocks; row < until; row++) {
			if (sums)
				gp_norm_row_add_gradients(sums, sums + n, job->dout + row * n, job->normal + row * n,
							  n);
			if (job->dx || job->dresidual)
				backward_row(job, row);
		}
	}
}

static void give_columns(const struct norm_job *job, float *grad, const float *total, int64_t width)
{
	if (grad && job->fresh)
		memcpy(grad, total, (size_t)width * sizeof *grad);
	else if (grad)
		gp_cpu_add_row(grad, total, width);
}

/* The others' sums are added to those of the first block. */
static void column_part(void *arg, int part, int parts)
{
	const struct norm_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->features, GRAIN, part, parts);
	const int64_t n = job->features, width = r.to - r.from;
	float *weight = job->sums + r.from, *bias = weight + n;
	for (int64_t b = 1; b < job->blocks; b++) {
		gp_cpu_add_row(weight, weight + 2 * b * n, width);
		gp_cpu_add_row(bias, bias + 2 * b * n, width);
	}
	give_columns(job, job->grad_weight ? job->grad_weight + r.from : NULL, weight, width);
	give_columns(job, job->grad_bias ? job->grad_bias + r.from : NULL, bias, width);
}

/* --- the op ------------------------------------------------------------------------------------------------------ */

static struct norm_job job_of(const struct cpu_call *c, bool train)
{
	const struct gp_node *g = c->node->base.g;
	const struct gp_layer_norm_attr a = gp_layer_norm_attr(g);
	const int64_t elements = gp_cpu_elements(c->plan, c->node), batch = c->plan->base.spec.batch;
	struct norm_job job = {.weight = gp_cpu_param_value(c->plan, c->node, GP_PARAM_WEIGHT),
			       .bias = gp_cpu_param_value(c->plan, c->node, GP_PARAM_BIAS),
			       .features = features_of(c->node),
			       .eps = a.eps};
	job.rows = elements / job.features;
	job.blocks = blocks_of(job.rows);
	job.sample_rows = job.rows / batch;
	job.missing = gp_cpu_missing_in_sample(c->plan, c->node);
	job.drop = gp_drop_of(train ? a.p : 0.0f, c->plan->base.spec.seed,
			      gp_rng_stream(GP_RNG_DROPOUT, gp_rng_name_id(g->name)), c->draw,
			      gp_cpu_full_sample(c->plan, c->node) * batch);
	if (train && c->saved) {
		job.normal = c->saved;
		job.scale = job.normal + elements;
	}
	return job;
}

static void run(const struct cpu_call *c, struct norm_job *job, gp_cpu_part_fn part)
{
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, job->rows * job->features), part, job);
}

static enum gp_status layer_norm_prepare(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	(void)err;
	const uint64_t elements = (uint64_t)gp_cpu_elements(p, n), features = (uint64_t)features_of(n);
	const uint64_t rows = elements / features;
	if (p->base.spec.train && n->base.need_grad)
		n->base.saved_bytes = (elements + rows) * sizeof(float);
	n->base.saves_map = n->base.saved_bytes > 0;
	if (n->base.trains)
		n->tmp_bytes = (uint64_t)blocks_of((int64_t)rows) * 2 * features * sizeof(float);
	return GP_OK;
}

static enum gp_status layer_norm_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct norm_job job = job_of(c, c->mode == GP_TRAIN);
	job.in = c->in[0];
	job.residual = c->node->base.g->inputs > 1 ? c->in[1] : NULL;
	job.out = c->out[0];
	run(c, &job, forward_part);
	return GP_OK;
}

static enum gp_status layer_norm_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct norm_job job = job_of(c, true);
	job.dout = c->dout[0];
	job.dx = c->dx[0];
	job.dresidual = c->node->base.g->inputs > 1 ? c->dx[1] : NULL;
	job.grad_weight = gp_cpu_param_grad(c->plan, c->node, GP_PARAM_WEIGHT);
	job.grad_bias = gp_cpu_param_grad(c->plan, c->node, GP_PARAM_BIAS);
	job.sums = job.grad_weight || job.grad_bias ? c->tmp : NULL;
	job.fresh = !c->accumulate;
	run(c, &job, backward_part);
	if (job.sums)
		run(c, &job, column_part);
	return GP_OK;
}

const struct cpu_op gp_cpu_op_layer_norm = {
	.name = "layer_norm",
	.in_place = true,
	.in_place_backward = true,
	.prepare = layer_norm_prepare,
	.forward = layer_norm_forward,
	.backward = layer_norm_backward,
};
