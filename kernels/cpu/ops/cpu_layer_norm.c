/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer norm with the residual sum and the dropout before it: the portable
 * reference. Forward keeps the normalized rows and each row's scale. Gradients
 * of weight and bias are shared out by columns, so that sums are the same on any
 * number of threads. Test: tests/unit/test_cpu_ops.c
 */
#include <math.h>

#include "common/base/rng.h"
#include "common/graph/ops/op_layer_norm.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cpu/plan/parallel.h"

#define GRAIN 16 /* floats of a cache line */

struct norm_job {
	const float *in, *residual, *dout, *weight, *bias;
	float *out, *dx, *dresidual, *grad_weight, *grad_bias;
	float *normal, *scale; /* saved: (rows, features); (rows) */
	int64_t rows, features;
	float eps, keep;
	uint32_t threshold;
	uint64_t seed, stream, first_block;
	bool fresh;
};

static float kept(const struct norm_job *job, int64_t element)
{
	if (!job->threshold)
		return 1.0f;
	uint32_t word[4];
	gp_rng_block(job->seed, job->stream, job->first_block + (uint64_t)element / 4, word);
	return word[element % 4] < job->threshold ? 0.0f : job->keep;
}

static void forward_row(const struct norm_job *job, int64_t row)
{
	const int64_t at = row * job->features;
	float *normal = job->normal + at;
	double sum = 0, squares = 0;
	for (int64_t i = 0; i < job->features; i++) {
		normal[i] = job->in[at + i] * kept(job, at + i) + (job->residual ? job->residual[at + i] : 0.0f);
		sum += normal[i];
	}
	const double mean = sum / (double)job->features;
	for (int64_t i = 0; i < job->features; i++)
		squares += (normal[i] - mean) * (normal[i] - mean);
	const float scale = (float)(1.0 / sqrt(squares / (double)job->features + (double)job->eps));
	job->scale[row] = scale;
	for (int64_t i = 0; i < job->features; i++) {
		normal[i] = (float)(normal[i] - mean) * scale;
		job->out[at + i] = normal[i] * job->weight[i] + job->bias[i];
	}
}

static void backward_row(const struct norm_job *job, int64_t row)
{
	const int64_t at = row * job->features;
	const float *normal = job->normal + at, *dout = job->dout + at;
	double sum = 0, with = 0;
	for (int64_t i = 0; i < job->features; i++) {
		sum += dout[i] * job->weight[i];
		with += (double)dout[i] * job->weight[i] * normal[i];
	}
	const float mean = (float)(sum / (double)job->features), along = (float)(with / (double)job->features);
	for (int64_t i = 0; i < job->features; i++) {
		const float d = (dout[i] * job->weight[i] - mean - normal[i] * along) * job->scale[row];
		if (job->dresidual)
			job->dresidual[at + i] = d;
		if (job->dx)
			job->dx[at + i] = d * kept(job, at + i);
	}
}

static void row_part(void *arg, int part, int parts)
{
	const struct norm_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->rows, 1, part, parts);
	for (int64_t row = r.from; row < r.to; row++)
		if (job->out)
			forward_row(job, row);
		else
			backward_row(job, row);
}

static void column_part(void *arg, int part, int parts)
{
	const struct norm_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->features, GRAIN, part, parts);
	for (int64_t i = r.from; i < r.to; i++) {
		float weight = 0, bias = 0;
		for (int64_t at = i; at < job->rows * job->features; at += job->features) {
			weight += job->dout[at] * job->normal[at];
			bias += job->dout[at];
		}
		job->grad_weight[i] = job->fresh ? weight : job->grad_weight[i] + weight;
		job->grad_bias[i] = job->fresh ? bias : job->grad_bias[i] + bias;
	}
}

static struct norm_job job_of(const struct cpu_call *c, bool dropout)
{
	const struct gp_layer_norm_attr a = gp_layer_norm_attr(c->node->base.g);
	const int64_t elements = gp_cpu_elements(c->plan, c->node);
	struct norm_job job = {.weight = gp_cpu_param_value(c->plan, c->node, GP_PARAM_WEIGHT),
			       .bias = gp_cpu_param_value(c->plan, c->node, GP_PARAM_BIAS),
			       .features = c->node->base.g->shape.dim[c->node->base.g->shape.ndim - 1],
			       .eps = a.eps,
			       .keep = dropout ? (float)(1.0 / (1.0 - (double)a.p)) : 1.0f,
			       .threshold = dropout ? (uint32_t)((double)a.p * 0x1p32) : 0,
			       .seed = c->plan->base.spec.seed,
			       .stream = gp_rng_stream(GP_RNG_DROPOUT, gp_rng_name_id(c->node->base.g->name)),
			       .first_block = c->draw * (((uint64_t)elements + 3) / 4),
			       .fresh = !c->accumulate};
	job.rows = elements / job.features;
	job.normal = c->saved;
	job.scale = job.normal + elements;
	return job;
}

static enum gp_status layer_norm_prepare(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	(void)err;
	const uint64_t elements = (uint64_t)gp_cpu_elements(p, n);
	n->base.saved_bytes = (elements + elements / (uint64_t)n->base.g->shape.dim[n->base.g->shape.ndim - 1]) *
			      sizeof(float);
	return GP_OK;
}

static enum gp_status layer_norm_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct norm_job job = job_of(c, c->mode == GP_TRAIN);
	job.in = c->in[0];
	job.residual = c->node->base.g->inputs > 1 ? c->in[1] : NULL;
	job.out = c->out[0];
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, job.rows * job.features), row_part, &job);
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
	const int parts = gp_cpu_parts(c->plan->threads, job.rows * job.features);
	if (job.grad_weight && job.grad_bias)
		gp_cpu_parallel(parts, column_part, &job);
	if (job.dx || job.dresidual)
		gp_cpu_parallel(parts, row_part, &job);
	return GP_OK;
}

const struct cpu_op gp_cpu_op_layer_norm = {
	.name = "layer_norm",
	.prepare = layer_norm_prepare,
	.forward = layer_norm_forward,
	.backward = layer_norm_backward,
};
