/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch normalization over all but the last dimension, with the ReLU or ReLU6
 * behind it folded in; same arithmetic, bit for bit, as the two ops apart.
 *
 * Backward, PyTorch's formula: with g = dout behind the activation,
 *   dbeta = sum g, dgamma = invstd * sum g (x - mean),
 *   dx = gamma invstd (g - dbeta/n - (x - mean) invstd dgamma/n)
 * The activation's mask is found again from x, so its output is not read.
 *
 * Where none of its parameters is trained, it normalizes by the running
 * statistics in training, too, leaves them alone, and dx = gamma invstd g.
 *
 * It makes four passes over memory. Each may be done by a neighbour, while
 * the rows are in the cache (cpu_plan_build.c decides):
 *   fed       the convolution before sums up the rows it has just written;
 *   unwritten the only reader normalizes what it reads, the normalized value never is in memory, and that reader sums
 *             up the gradients it has just written;
 *   deferred  the convolution before turns dout into dx as it reads it.
 * Results do not depend on which of them are. Test: tests/unit/test_cpu_ops.c
 */
#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "kernels/cpu/plan/parallel.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "common/graph/ops/op_batch_norm.h"

struct bn_state {
	struct gp_bn shape;
};

struct bn_job {
	const struct gp_bn *s;
	enum cpu_act act;
	const float *x, *dout;
	float *out, *sums;
	float *vec[BN_VECTORS];
};

/* --- per-channel vectors: saved memory holds BN_VECTORS of them, then invstd -------------------------------------- */

static void vectors_at(const struct gp_bn *s, void *saved, float *vec[BN_VECTORS])
{
	for (int v = 0; v < BN_VECTORS; v++)
		vec[v] = (float *)saved + v * s->width;
}

static float *invstd_at(const struct gp_bn *s, void *saved)
{
	return (float *)saved + BN_VECTORS * s->width;
}

static const struct gp_bn *shape_of(const struct cpu_node *n)
{
	return &((const struct bn_state *)n->state)->shape;
}

static struct gp_bn shape_for(const struct cpu_plan *p, const struct cpu_node *n)
{
	const struct gp_shape *shape = &n->base.g->shape;
	int64_t pixels = 1;
	for (int d = 0; d < shape->ndim - 1; d++)
		pixels *= shape->dim[d];
	return gp_bn_shape(p->base.spec.batch, pixels, shape->dim[shape->ndim - 1]);
}

static enum gp_status bn_prepare(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	struct bn_state *s = gp_calloc(1, sizeof *s);
	if (!s)
		GP_FAIL(err, GP_NOMEM, "out of memory for batch norm %s", n->base.g->name);
	n->state = s;
	s->shape = shape_for(p, n);
	n->base.saved_bytes = (uint64_t)(BN_VECTORS * s->shape.width + s->shape.channels) * sizeof(float);
	n->tmp_bytes = 2 * (uint64_t)s->shape.channels * sizeof(double);
	if (n->base.trains)
		n->sums_bytes = (uint64_t)(2 * s->shape.blocks * s->shape.channels) * sizeof(float);
	return GP_OK;
}

static void bn_release(struct cpu_node *n)
{
	gp_free(n->state);
	n->state = NULL;
}

static struct bn_job job_of(const struct cpu_call *c)
{
	struct bn_job job = {.s = shape_of(c->node), .act = c->node->act, .x = c->in[0]};
	job.dout = c->dout ? c->dout[0] : NULL;
	job.out = c->dout ? c->dx[0] : c->out[0];
	job.sums = c->sums;
	vectors_at(job.s, c->saved, job.vec);
	return job;
}

/* --- passes over all rows ----------------------------------------------------------------------------------------- */

static int64_t rows_of_block(const struct gp_bn *s, int64_t block)
{
	int64_t left = s->rows - block * s->block;
	return left < s->block ? left : s->block;
}

static void sum_block(const struct bn_job *job, int64_t block)
{
	const struct gp_bn *s = job->s;
	const int64_t at = block * s->block * s->channels, rows = rows_of_block(s, block);
	float *sums = job->sums + block * 2 * s->channels;
	if (job->dout)
		gp_bn_sum_gradients(s, job->act, job->dout + at, job->x + at, rows, job->vec, sums);
	else
		gp_bn_sum_values(s, job->x + at, rows, sums);
}

static void sum_part(void *arg, int part, int parts)
{
	const struct bn_job *job = arg;
	struct gp_cpu_range r = gp_cpu_share(job->s->blocks, 1, part, parts);
	for (int64_t block = r.from; block < r.to; block++)
		sum_block(job, block);
}

static void apply_part(void *arg, int part, int parts)
{
	const struct bn_job *job = arg;
	struct gp_cpu_range r = gp_cpu_share(job->s->rows, job->s->fold, part, parts);
	const int64_t at = r.from * job->s->channels, rows = r.to - r.from;
	if (job->dout)
		gp_bn_gradient(job->s, job->act, job->dout + at, job->x + at, job->out + at, rows, job->vec);
	else
		gp_bn_apply(job->s, job->act, job->x + at, job->out + at, rows, job->vec);
}

static int parts_of(const struct cpu_call *c, const struct gp_bn *s)
{
	return gp_cpu_parts(c->plan->threads, s->rows * s->channels);
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static void update_running(const struct cpu_call *c, int64_t channel, double mean, double var)
{
	const struct gp_bn *s = shape_of(c->node);
	float *running_mean = gp_cpu_param_value(c->plan, c->node, GP_PARAM_RUNNING_MEAN) + channel;
	float *running_var = gp_cpu_param_value(c->plan, c->node, GP_PARAM_RUNNING_VAR) + channel;
	double m = (double)gp_bn_attr(c->node->base.g).momentum;
	double unbiased = s->rows > 1 ? var * (double)s->rows / (double)(s->rows - 1) : var;
	*running_mean = (float)(m * mean + (1.0 - m) * (double)*running_mean);
	*running_var = (float)(m * unbiased + (1.0 - m) * (double)*running_var);
}

/* a and b of out = a x + b, from mean and variance. */
static void set_affine(const struct cpu_call *c, struct bn_job *job, int64_t channel, double mean, double var)
{
	float gamma = gp_cpu_param_value(c->plan, c->node, GP_PARAM_WEIGHT)[channel];
	float beta = gp_cpu_param_value(c->plan, c->node, GP_PARAM_BIAS)[channel];
	double a = (double)gamma / sqrt(var + (double)gp_bn_attr(c->node->base.g).eps);
	job->vec[BN_A][channel] = (float)a;
	job->vec[BN_B][channel] = (float)((double)beta - mean * a);
}

static void batch_statistics(const struct cpu_call *c, struct bn_job *job)
{
	double *mean = c->tmp, *var = mean + job->s->channels;
	float *invstd = invstd_at(job->s, c->saved);
	if (!c->node->fed)
		gp_cpu_parallel(parts_of(c, job->s), sum_part, job);
	gp_bn_total_values(job->s, job->sums, mean, var);
	for (int64_t ch = 0; ch < job->s->channels; ch++) {
		set_affine(c, job, ch, mean[ch], var[ch]);
		update_running(c, ch, mean[ch], var[ch]);
		job->vec[BN_MEAN][ch] = (float)mean[ch];
		invstd[ch] = (float)(1.0 / sqrt(var[ch] + (double)gp_bn_attr(c->node->base.g).eps));
	}
	gp_bn_fold_out(job->s, job->vec[BN_MEAN]);
}

static void running_statistics(const struct cpu_call *c, struct bn_job *job)
{
	const float *mean = gp_cpu_param_value(c->plan, c->node, GP_PARAM_RUNNING_MEAN);
	const float *var = gp_cpu_param_value(c->plan, c->node, GP_PARAM_RUNNING_VAR);
	for (int64_t ch = 0; ch < job->s->channels; ch++)
		set_affine(c, job, ch, (double)mean[ch], (double)var[ch]);
}

static enum gp_status bn_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct bn_job job = job_of(c);
	if (c->mode == GP_TRAIN && c->node->base.trains)
		batch_statistics(c, &job);
	else
		running_statistics(c, &job);
	gp_bn_fold_out(job.s, job.vec[BN_A]);
	gp_bn_fold_out(job.s, job.vec[BN_B]);
	if (!c->node->base.unwritten)
		gp_cpu_parallel(parts_of(c, job.s), apply_part, &job);
	return GP_OK;
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* `grad` NULL: that parameter is frozen. */
static void add_grad(float *grad, int64_t channel, double value, bool accumulate)
{
	if (grad)
		grad[channel] = accumulate ? grad[channel] + (float)value : (float)value;
}

static void gradient_vectors(const struct cpu_call *c, struct bn_job *job)
{
	const struct gp_bn *s = job->s;
	const float *gamma = gp_cpu_param_value(c->plan, c->node, GP_PARAM_WEIGHT);
	const float *saved_invstd = invstd_at(s, c->saved);
	double *sum = c->tmp, *dot = sum + s->channels;
	gp_bn_total_gradients(s, job->sums, sum, dot);
	for (int64_t ch = 0; ch < s->channels; ch++) {
		double invstd = (double)saved_invstd[ch], n = (double)s->rows;
		add_grad(gp_cpu_param_grad(c->plan, c->node, GP_PARAM_WEIGHT), ch, dot[ch] * invstd, c->accumulate);
		add_grad(gp_cpu_param_grad(c->plan, c->node, GP_PARAM_BIAS), ch, sum[ch], c->accumulate);
		job->vec[BN_GRAD_MEAN][ch] = (float)(sum[ch] / n);
		job->vec[BN_K][ch] = (float)(dot[ch] * invstd * invstd / n);
		job->vec[BN_SCALE][ch] = (float)((double)gamma[ch] * invstd);
	}
	for (int v = BN_GRAD_MEAN; v < BN_VECTORS; v++)
		gp_bn_fold_out(s, job->vec[v]);
}

/* Running statistics are constants: dx = gamma invstd g. */
static void frozen_vectors(const struct cpu_call *c, struct bn_job *job)
{
	const struct gp_bn *s = job->s;
	const float *gamma = gp_cpu_param_value(c->plan, c->node, GP_PARAM_WEIGHT);
	const float *mean = gp_cpu_param_value(c->plan, c->node, GP_PARAM_RUNNING_MEAN);
	const float *var = gp_cpu_param_value(c->plan, c->node, GP_PARAM_RUNNING_VAR);
	for (int64_t ch = 0; ch < s->channels; ch++) {
		job->vec[BN_MEAN][ch] = mean[ch];
		job->vec[BN_GRAD_MEAN][ch] = job->vec[BN_K][ch] = 0.0f;
		job->vec[BN_SCALE][ch] =
			(float)((double)gamma[ch] / sqrt((double)var[ch] + (double)gp_bn_attr(c->node->base.g).eps));
	}
	for (int v = BN_MEAN; v < BN_VECTORS; v++)
		gp_bn_fold_out(s, job->vec[v]);
}

static enum gp_status bn_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct bn_job job = job_of(c);
	if (c->node->base.trains && !c->node->base.unwritten)
		gp_cpu_parallel(parts_of(c, job.s), sum_part, &job);
	if (c->node->base.trains)
		gradient_vectors(c, &job);
	else
		frozen_vectors(c, &job);
	if (c->dx[0] && !c->node->deferred)
		gp_cpu_parallel(parts_of(c, job.s), apply_part, &job);
	return GP_OK;
}

/* --- what neighbours do ------------------------------------------------------------------------------------------- */

const float *gp_cpu_bn_input(const struct cpu_call *c, int64_t from, int64_t to, float *room)
{
	const struct cpu_node *n = c->node->reads;
	const float *x = c->in[0] + from * gp_cpu_in_shape(c->plan, c->node, 0)->dim[2];
	float *vec[BN_VECTORS];
	if (!n)
		return x;
	vectors_at(shape_of(n), c->reads_saved, vec);
	gp_bn_apply(shape_of(n), n->act, x, room, to - from, vec);
	return room;
}

const float *gp_cpu_bn_dout(const struct cpu_call *c, int64_t from, int64_t to, float *room)
{
	const struct cpu_node *n = c->node->finishes;
	const int64_t at = from * c->node->base.g->shape.dim[2];
	float *vec[BN_VECTORS];
	if (!n)
		return c->dout[0] + at;
	vectors_at(shape_of(n), c->finish_saved, vec);
	gp_bn_gradient(shape_of(n), n->act, c->dout[0] + at, c->out[0] + at, room, to - from, vec);
	return room;
}

/* The job of summing up what was written, for whole blocks of rows [done, until); returns up to where that was. */
static int64_t sum_written(const struct bn_job *job, int64_t done, int64_t until)
{
	const struct gp_bn *s = job->s;
	while (done < until && done + rows_of_block(s, done / s->block) <= until) {
		sum_block(job, done / s->block);
		done += rows_of_block(s, done / s->block);
	}
	return done;
}

int64_t gp_cpu_bn_feed(const struct cpu_call *c, int64_t done, int64_t until)
{
	const struct cpu_node *n = c->node->feeds;
	if (!n || c->mode != GP_TRAIN)
		return until;
	const struct bn_job job = {.s = shape_of(n), .x = c->out[0], .sums = c->feed_sums};
	return sum_written(&job, done, until);
}

int64_t gp_cpu_bn_return(const struct cpu_call *c, int64_t done, int64_t until)
{
	const struct cpu_node *n = c->node->reads;
	if (!n || !n->base.trains || !c->dx[0])
		return until;
	struct bn_job job = {.s = shape_of(n), .act = n->act, .x = c->in[0], .dout = c->dx[0], .sums = c->return_sums};
	vectors_at(job.s, c->reads_saved, job.vec);
	return sum_written(&job, done, until);
}

const struct cpu_op gp_cpu_op_batch_norm = {
	.name = "batch_norm",
	.saves_in = 1,
	.in_place = true,
	.in_place_backward = true,
	.prepare = bn_prepare,
	.release = bn_release,
	.forward = bn_forward,
	.backward = bn_backward,
};
