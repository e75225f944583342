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
 * With renorm the normalized value times r, plus d (op_batch_norm.h), which are
 * constants:
 *   dgamma = r invstd sum g (x - mean) + d sum g, and dx is r times the above.
 *
 * Where none of its parameters is trained, and in mode running, it normalizes by
 * the running statistics in training, too, leaves them alone, and
 * dx = gamma invstd g. No statistics are taken then. Where no parameter is
 * trained, backward needs of x only the activation's mask: it is kept as bits
 * where nobody else keeps x (gp_cpu_bn_may_mask), else found again as above.
 *
 * Statistics that move the running ones at the end of a step, or that
 * GP_CALIBRATE asks for, are merged over chunks in double, in the order of the
 * forwards.
 *
 * It makes four passes over memory. Each may be done by a neighbour, while
 * the rows are in the cache (cpu_plan_build.c decides):
 *   fed       the convolution before sums up the rows it has just written;
 *   unwritten the only reader normalizes what it reads, the normalized value never is in memory, and that reader sums
 *             up the gradients it has just written;
 *   deferred  the convolution before turns dout into dx as it reads it.
 * Results do not depend on which of them are. In evaluation the convolution before does all of it where it can, with results
 * that differ by rounding (cpu_fold.h). Test: tests/unit/test_cpu_ops.c
 */
#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "kernels/cpu/math/saved_bits.h"
#include "kernels/cpu/plan/parallel.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "common/graph/ops/op_batch_norm.h"

struct bn_state {
	struct gp_bn shape;
	uint64_t merged_offset;     /* in plan->merged */
	struct gp_bn_merged merged; /* where statistics are merged: of the step's chunks so far, or of a calibration */
};

struct bn_job {
	const struct gp_bn *s;
	enum cpu_act act;
	const float *x, *dout;
	float *out, *sums;
	uint32_t *mask; /* NULL: there is none */
	float *vec[BN_VECTORS];
};

/* --- per-channel vectors: saved memory holds those of forward, invstd, with renorm r and d, then the mask ----------- */

/* Those of backward alone lie in scratch memory; NULL in forward. */
static void vectors_at(const struct gp_bn *s, void *saved, float *backward, float *vec[BN_VECTORS])
{
	for (int v = 0; v < BN_GRAD_MEAN; v++)
		vec[v] = (float *)saved + v * s->width;
	for (int v = BN_GRAD_MEAN; v < BN_VECTORS; v++)
		vec[v] = backward ? backward + (v - BN_GRAD_MEAN) * s->width : NULL;
}

static float *invstd_at(const struct gp_bn *s, void *saved)
{
	return (float *)saved + BN_GRAD_MEAN * s->width;
}

/* NULL: r is 1 and d is 0. */
static float *corrections_at(const struct cpu_node *n, const struct gp_bn *s, void *saved)
{
	return gp_bn_attr(n->base.g).mode == GP_BN_RENORM ? invstd_at(s, saved) + s->channels : NULL;
}

/* So many times `channels` floats are saved behind the vectors: invstd, and with renorm r and d. */
static int64_t lines_of(const struct cpu_node *n)
{
	return gp_bn_attr(n->base.g).mode == GP_BN_RENORM ? 3 : 1;
}

static uint32_t *mask_at(const struct cpu_node *n, const struct gp_bn *s, void *saved)
{
	return n->masks ? (void *)(invstd_at(s, saved) + lines_of(n) * s->channels) : NULL;
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

/* Whether some parameter is trained, and by which statistics training normalizes then. */
static bool trains_by_running(const struct cpu_node *n)
{
	return n->base.trains && gp_bn_attr(n->base.g).mode == GP_BN_RUNNING;
}

static bool is_calibrated(const struct cpu_plan *p, const struct cpu_node *n)
{
	return p->base.spec.calibrate && gp_graph_is_trained(p->base.spec.graph, n->base.g);
}

bool gp_cpu_bn_takes_statistics(const struct cpu_node *n)
{
	return n->base.trains && !trains_by_running(n);
}

/* Room where a node's own statistics, or its gradients, are summed up. */
static void ask_for_sums(const struct cpu_plan *p, struct cpu_node *n)
{
	const struct gp_bn *s = shape_of(n);
	n->sums_in_forward = gp_cpu_bn_takes_statistics(n) || is_calibrated(p, n);
	if (n->base.trains || n->sums_in_forward)
		n->sums_bytes = (uint64_t)(2 * s->blocks * s->channels) * sizeof(float);
}

/* Room where statistics of chunks are merged. */
static void ask_for_merged(struct cpu_plan *p, const struct cpu_node *n, struct bn_state *s)
{
	const bool deferred = n->base.trains && gp_bn_is_deferred(n->base.g);
	if (!deferred && !is_calibrated(p, n))
		return;
	s->merged_offset = p->merged_doubles;
	p->merged_doubles += 2 * (uint64_t)s->shape.channels;
}

static enum gp_status bn_prepare(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	struct bn_state *s = gp_calloc(1, sizeof *s);
	if (!s)
		GP_FAIL(err, GP_NOMEM, "out of memory for batch norm %s", n->base.g->name);
	n->state = s;
	s->shape = shape_for(p, n);
	s->shape.fixed = !gp_cpu_bn_takes_statistics(n);
	n->base.keeps_saved = true;
	n->base.saved_bytes =
		(uint64_t)(BN_GRAD_MEAN * s->shape.width + lines_of(n) * s->shape.channels) * sizeof(float);
	n->vector_bytes = (uint64_t)((BN_VECTORS - BN_GRAD_MEAN) * s->shape.width) * sizeof(float);
	if (!n->base.trains && (n->act == CPU_ACT_NONE || n->masks)) /* its gradient is dout times a constant */
		n->base.saves_in = 0;
	if (n->masks)
		n->base.saved_bytes += gp_mask_bytes(gp_cpu_elements(p, n));
	n->tmp_bytes = 2 * (uint64_t)s->shape.channels * sizeof(double);
	ask_for_sums(p, n);
	ask_for_merged(p, n, s);
	return GP_OK;
}

static enum gp_status bn_create(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	(void)err;
	struct bn_state *s = n->state;
	if (!p->merged) /* no node of this plan has asked for any */
		return GP_OK;
	s->merged.mean = p->merged + s->merged_offset;
	s->merged.squares = s->merged.mean + s->shape.channels;
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
	job.mask = c->mode == GP_TRAIN ? mask_at(c->node, job.s, c->saved) : NULL;
	vectors_at(job.s, c->saved, c->vectors, job.vec);
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

/* A frozen norm whose activation keeps a mask: a piece at a time, while it is in the cache. */
static void apply_masked_part(void *arg, int part, int parts)
{
	const struct bn_job *job = arg;
	const int64_t channels = job->s->channels, piece = job->s->fold * GP_MASK_GRAIN;
	const struct gp_cpu_range r = gp_cpu_share(job->s->rows, piece, part, parts);
	for (int64_t row = r.from; row < r.to; row += piece) {
		const int64_t at = row * channels, rows = r.to - row < piece ? r.to - row : piece;
		uint32_t *mask = job->mask + at / GP_MASK_GRAIN;
		if (job->dout) {
			gp_mask_gradient(job->out + at, job->dout + at, mask, rows * channels);
			gp_bn_gradient(job->s, CPU_ACT_NONE, job->out + at, NULL, job->out + at, rows, job->vec);
		} else {
			gp_bn_apply(job->s, job->act, job->x + at, job->out + at, rows, job->vec);
			gp_mask_of(job->out + at, mask, rows * channels, job->act == CPU_ACT_RELU6);
		}
	}
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

static double moved(double momentum, double from, double to)
{
	return momentum < 1.0 ? momentum * to + (1.0 - momentum) * from : to;
}

static double unbiased(double var, int64_t rows)
{
	return rows > 1 ? var * (double)rows / (double)(rows - 1) : var;
}

/* Running statistics move by `momentum` towards those of `rows` rows. */
static void move_running(const struct cpu_plan *p, const struct cpu_node *n, double momentum, int64_t rows,
			 const double *mean, const double *var)
{
	float *running_mean = gp_cpu_param_value(p, n, GP_PARAM_RUNNING_MEAN);
	float *running_var = gp_cpu_param_value(p, n, GP_PARAM_RUNNING_VAR);
	for (int64_t ch = 0; ch < shape_of(n)->channels; ch++) {
		running_mean[ch] = (float)moved(momentum, (double)running_mean[ch], mean[ch]);
		running_var[ch] = (float)moved(momentum, (double)running_var[ch], unbiased(var[ch], rows));
	}
}

/* The same towards those of all rows that were merged. */
static void move_to_merged(const struct cpu_plan *p, const struct cpu_node *n, double momentum)
{
	const struct gp_bn_merged *m = &((const struct bn_state *)n->state)->merged;
	float *running_mean = gp_cpu_param_value(p, n, GP_PARAM_RUNNING_MEAN);
	float *running_var = gp_cpu_param_value(p, n, GP_PARAM_RUNNING_VAR);
	for (int64_t ch = 0; ch < shape_of(n)->channels; ch++) {
		const double var = m->squares[ch] / (double)(m->rows > 1 ? m->rows - 1 : 1);
		running_mean[ch] = (float)moved(momentum, (double)running_mean[ch], m->mean[ch]);
		running_var[ch] = (float)moved(momentum, (double)running_var[ch], var);
	}
}

static void note_statistics(const struct cpu_call *c, const double *mean, const double *var)
{
	const struct gp_bn *s = shape_of(c->node);
	struct bn_state *state = c->node->state;
	const double momentum = (double)gp_bn_attr(c->node->base.g).momentum;
	if (c->mode == GP_TRAIN && !gp_bn_is_deferred(c->node->base.g)) {
		move_running(c->plan, c->node, momentum, s->rows, mean, var);
		return;
	}
	if (c->mode == GP_CALIBRATE && !c->plan->calibrates)
		return;
	gp_bn_merge(s->channels, &state->merged, s->rows, mean, var);
	if (c->mode == GP_CALIBRATE)
		move_to_merged(c->plan, c->node, 1.0);
}

/* a and b of out = a x + b, from mean and variance; the normalized value is corrected by r and d. */
static struct gp_cpu_affine affine_of(const struct cpu_plan *p, const struct cpu_node *n, int64_t channel, double mean,
				      double var, double r, double d)
{
	const double gamma = (double)gp_cpu_param_value(p, n, GP_PARAM_WEIGHT)[channel];
	const double beta = (double)gp_cpu_param_value(p, n, GP_PARAM_BIAS)[channel];
	const double a = gamma * r / sqrt(var + (double)gp_bn_attr(n->base.g).eps);
	return (struct gp_cpu_affine){a, beta + gamma * d - mean * a};
}

struct gp_cpu_affine gp_cpu_bn_affine(const struct cpu_plan *p, const struct cpu_node *n, int64_t ch)
{
	const float mean = gp_cpu_param_value(p, n, GP_PARAM_RUNNING_MEAN)[ch];
	const float var = gp_cpu_param_value(p, n, GP_PARAM_RUNNING_VAR)[ch];
	return affine_of(p, n, ch, (double)mean, (double)var, 1.0, 0.0);
}

static void set_affine(struct bn_job *job, int64_t channel, struct gp_cpu_affine affine)
{
	job->vec[BN_A][channel] = (float)affine.a;
	job->vec[BN_B][channel] = (float)affine.b;
}

static double between(double low, double v, double high)
{
	return v < low ? low : v > high ? high : v;
}

/* Ioffe 2017, algorithm 1. */
static void find_corrections(const struct cpu_call *c, const double *mean, const double *var, float *r, float *d)
{
	const struct gp_bn_attr attr = gp_bn_attr(c->node->base.g);
	const struct gp_bn_limits most = gp_bn_limits(&attr, c->plan->optim_steps);
	const float *running_mean = gp_cpu_param_value(c->plan, c->node, GP_PARAM_RUNNING_MEAN);
	const float *running_var = gp_cpu_param_value(c->plan, c->node, GP_PARAM_RUNNING_VAR);
	for (int64_t ch = 0; ch < shape_of(c->node)->channels; ch++) {
		const double sigma = sqrt((double)running_var[ch] + (double)attr.eps);
		r[ch] = (float)between(1.0 / most.r, sqrt(var[ch] + (double)attr.eps) / sigma, most.r);
		d[ch] = (float)between(-most.d, (mean[ch] - (double)running_mean[ch]) / sigma, most.d);
	}
}

static void batch_statistics(const struct cpu_call *c, struct bn_job *job)
{
	double *mean = c->tmp, *var = mean + job->s->channels;
	float *invstd = invstd_at(job->s, c->saved), *r = corrections_at(c->node, job->s, c->saved);
	const float *d = r ? r + job->s->channels : NULL;
	if (!c->node->fed)
		gp_cpu_parallel(parts_of(c, job->s), sum_part, job);
	gp_bn_total_values(job->s, job->sums, mean, var);
	if (c->mode == GP_CALIBRATE)
		r = NULL;
	if (r)
		find_corrections(c, mean, var, r, r + job->s->channels);
	for (int64_t ch = 0; ch < job->s->channels; ch++) {
		set_affine(job, ch,
			   affine_of(c->plan, c->node, ch, mean[ch], var[ch], r ? (double)r[ch] : 1.0,
				     r ? (double)d[ch] : 0.0));
		job->vec[BN_MEAN][ch] = (float)mean[ch];
		invstd[ch] = (float)(1.0 / sqrt(var[ch] + (double)gp_bn_attr(c->node->base.g).eps));
	}
	gp_bn_fold_out(job->s, job->vec[BN_MEAN]);
	note_statistics(c, mean, var);
}

static void running_statistics(const struct cpu_call *c, struct bn_job *job)
{
	const float *mean = gp_cpu_param_value(c->plan, c->node, GP_PARAM_RUNNING_MEAN);
	const float *var = gp_cpu_param_value(c->plan, c->node, GP_PARAM_RUNNING_VAR);
	for (int64_t ch = 0; ch < job->s->channels; ch++)
		set_affine(job, ch, affine_of(c->plan, c->node, ch, (double)mean[ch], (double)var[ch], 1.0, 0.0));
}

/* What backward reads of them, and a neighbour that sums up gradients before it. */
static void keep_running_statistics(const struct cpu_call *c, struct bn_job *job)
{
	const float *mean = gp_cpu_param_value(c->plan, c->node, GP_PARAM_RUNNING_MEAN);
	const float *var = gp_cpu_param_value(c->plan, c->node, GP_PARAM_RUNNING_VAR);
	float *invstd = invstd_at(job->s, c->saved);
	for (int64_t ch = 0; ch < job->s->channels; ch++) {
		job->vec[BN_MEAN][ch] = mean[ch];
		invstd[ch] = (float)(1.0 / sqrt((double)var[ch] + (double)gp_bn_attr(c->node->base.g).eps));
	}
	gp_bn_fold_out(job->s, job->vec[BN_MEAN]);
}

/* Whether this call normalizes by the chunk's own statistics. */
static bool is_by_chunk(const struct cpu_call *c)
{
	if (c->mode == GP_CALIBRATE)
		return is_calibrated(c->plan, c->node);
	return c->mode == GP_TRAIN && gp_cpu_bn_takes_statistics(c->node);
}

/* Statistics, and the vectors they come to. */
static void find_vectors(const struct cpu_call *c, struct bn_job *job)
{
	if (is_by_chunk(c))
		batch_statistics(c, job);
	else
		running_statistics(c, job);
	if (c->mode == GP_TRAIN && trains_by_running(c->node))
		keep_running_statistics(c, job);
	gp_bn_fold_out(job->s, job->vec[BN_A]);
	gp_bn_fold_out(job->s, job->vec[BN_B]);
}

static enum gp_status bn_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct bn_job job = job_of(c);
	if (!c->again)
		find_vectors(c, &job);
	if (!c->node->base.unwritten)
		gp_cpu_parallel(parts_of(c, job.s), job.mask ? apply_masked_part : apply_part, &job);
	return GP_OK;
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

/* `grad` NULL: that parameter is frozen. */
static void add_grad(float *grad, int64_t channel, double value, bool accumulate)
{
	if (grad)
		grad[channel] = accumulate ? grad[channel] + (float)value : (float)value;
}

/* Sums of g, and of g times the normalized value. */
static void add_grads(const struct cpu_call *c, const struct bn_job *job, const double *sum, const double *dot)
{
	const float *invstd = invstd_at(job->s, c->saved), *r = corrections_at(c->node, job->s, c->saved);
	for (int64_t ch = 0; ch < job->s->channels; ch++) {
		double moment = dot[ch] * (double)invstd[ch];
		if (r)
			moment = moment * (double)r[ch] + sum[ch] * (double)r[job->s->channels + ch];
		add_grad(gp_cpu_param_grad(c->plan, c->node, GP_PARAM_WEIGHT), ch, moment, c->accumulate);
		add_grad(gp_cpu_param_grad(c->plan, c->node, GP_PARAM_BIAS), ch, sum[ch], c->accumulate);
	}
}

static void gradient_vectors(const struct cpu_call *c, struct bn_job *job)
{
	const struct gp_bn *s = job->s;
	const float *gamma = gp_cpu_param_value(c->plan, c->node, GP_PARAM_WEIGHT);
	const float *saved_invstd = invstd_at(s, c->saved), *r = corrections_at(c->node, s, c->saved);
	const double n = (double)s->rows;
	double *sum = c->tmp, *dot = sum + s->channels;
	gp_bn_total_gradients(s, job->sums, sum, dot);
	add_grads(c, job, sum, dot);
	for (int64_t ch = 0; ch < s->channels; ch++) {
		const double invstd = (double)saved_invstd[ch];
		job->vec[BN_GRAD_MEAN][ch] = s->fixed ? 0.0f : (float)(sum[ch] / n);
		job->vec[BN_K][ch] = s->fixed ? 0.0f : (float)(dot[ch] * invstd * invstd / n);
		job->vec[BN_SCALE][ch] = (float)((double)gamma[ch] * invstd * (r ? (double)r[ch] : 1.0));
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

/* A reader cannot sum up gradients that pass through a codec when it has written them. */
static bool reader_sums(const struct cpu_call *c, const struct cpu_node *n)
{
	return n->base.unwritten && !c->plan->base.spec.coded[GP_STRUCT_GRAD_MAPS];
}

static enum gp_status bn_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct bn_job job = job_of(c);
	if (c->node->base.trains && !reader_sums(c, c->node))
		gp_cpu_parallel(parts_of(c, job.s), sum_part, &job);
	if (c->node->base.trains)
		gradient_vectors(c, &job);
	else
		frozen_vectors(c, &job);
	if (c->dx[0] && !c->node->deferred)
		gp_cpu_parallel(parts_of(c, job.s), job.mask ? apply_masked_part : apply_part, &job);
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
	vectors_at(shape_of(n), c->reads_saved, NULL, vec);
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
	vectors_at(shape_of(n), c->finish_saved, c->finish_vectors, vec);
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
	if (!n || c->mode == GP_EVAL || c->again)
		return until;
	const struct bn_job job = {.s = shape_of(n), .x = c->out[0], .sums = c->feed_sums};
	return sum_written(&job, done, until);
}

int64_t gp_cpu_bn_return(const struct cpu_call *c, int64_t done, int64_t until)
{
	const struct cpu_node *n = c->node->reads;
	if (!n || !n->base.trains || !c->dx[0] || !reader_sums(c, n))
		return until;
	struct bn_job job = {.s = shape_of(n), .act = n->act, .x = c->in[0], .dout = c->dx[0], .sums = c->return_sums};
	vectors_at(job.s, c->reads_saved, NULL, job.vec);
	return sum_written(&job, done, until);
}

/* --- the end of a step -------------------------------------------------------------------------------------------- */

void gp_cpu_bn_forget(struct cpu_plan *p)
{
	for (int i = p->base.spec.graph->inputs; i < p->base.spec.graph->nodes; i++)
		if (p->node[i].op == &gp_cpu_op_batch_norm && p->node[i].state)
			((struct bn_state *)p->node[i].state)->merged.rows = 0;
}

void gp_cpu_bn_end_step(struct cpu_plan *p)
{
	for (int i = p->base.spec.graph->inputs; i < p->base.spec.graph->nodes; i++) {
		const struct cpu_node *n = &p->node[i];
		const struct bn_state *s = n->op == &gp_cpu_op_batch_norm ? n->state : NULL;
		if (s && s->merged.rows > 0)
			move_to_merged(p, n, (double)gp_bn_attr(n->base.g).momentum);
	}
	gp_cpu_bn_forget(p);
}

const struct cpu_op gp_cpu_op_batch_norm = {
	.name = "batch_norm",
	.saves_in = 1,
	.in_place = true,
	.in_place_backward = true,
	.prepare = bn_prepare,
	.create = bn_create,
	.release = bn_release,
	.forward = bn_forward,
	.backward = bn_backward,
};
