/* SPDX-License-Identifier: Apache-2.0
 *
 * Multi-head self-attention: the portable reference. A head of a sample is one
 * part's work, row after row, so that sums are the same on any number of
 * threads. Backward computes the softmax's weights anew from the logarithm of
 * the sum that forward keeps per row (Dao et al., "FlashAttention", 2022,
 * algorithm 4), so that no (S,S) matrix is kept. Test: tests/unit/test_cpu_ops.c
 */
#include <math.h>
#include <string.h>

#include "common/base/rng.h"
#include "common/graph/ops/op_attention.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cpu/plan/parallel.h"

enum { Q, K, V, LENGTH };

/* All (samples, positions, heads * width). */
struct attention_job {
	const float *in[3], *out, *dout;
	float *to, *dx[3]; /* forward: the output; backward: gradients, NULL where nobody wants one */
	float *logs;       /* (samples, heads, positions): logarithm of a row's sum */
	float *row;        /* tmp: a row of weights for each (sample, head) */
	const int32_t *length;
	int64_t samples, positions, heads, width;
	float scale, keep; /* 1 / sqrt(width); 1 / (1 - p) */
	uint32_t threshold;
	uint64_t seed, stream, draw;
};

struct attention_head {
	int64_t at;     /* of the head's first element */
	int64_t stride; /* from one position to the next */
	int64_t index;  /* sample * heads + head */
	int64_t tokens;
};

static struct attention_head head_of(const struct attention_job *job, int64_t index)
{
	const int64_t sample = index / job->heads, head = index % job->heads, stride = job->heads * job->width;
	const int64_t length = job->length[sample];
	return (struct attention_head){.at = sample * job->positions * stride + head * job->width,
				       .stride = stride,
				       .index = index,
				       .tokens = length < 0 ? 0 : length < job->positions ? length : job->positions};
}

static float dot(const float *a, const float *b, int64_t n)
{
	float sum = 0;
	for (int64_t i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}

static void add_scaled(float *to, const float *x, float scale, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		to[i] += x[i] * scale;
}

/* What dropout makes of weight (i, j): 0, or 1 / (1 - p). */
static float kept(const struct attention_job *job, const struct attention_head *h, int64_t i, int64_t j)
{
	if (!job->threshold)
		return 1.0f;
	uint32_t word[4];
	const uint64_t blocks = ((uint64_t)job->positions + 3) / 4;
	const uint64_t row = (uint64_t)(h->index * job->positions + i);
	const uint64_t rows = (uint64_t)(job->samples * job->heads * job->positions);
	gp_rng_block(job->seed, job->stream, (job->draw * rows + row) * blocks + (uint64_t)j / 4, word);
	return word[j % 4] < job->threshold ? 0.0f : job->keep;
}

/* Scores of row i into `row`; their largest is returned. */
static float score_row(const struct attention_job *job, const struct attention_head *h, int64_t i, float *row)
{
	float largest = -INFINITY;
	for (int64_t j = 0; j < h->tokens; j++) {
		row[j] = dot(job->in[Q] + h->at + i * h->stride, job->in[K] + h->at + j * h->stride, job->width) *
			 job->scale;
		largest = row[j] > largest ? row[j] : largest;
	}
	return largest;
}

static void forward_head(const struct attention_job *job, const struct attention_head *h, float *row)
{
	for (int64_t i = 0; i < job->positions; i++) {
		float *out = job->to + h->at + i * h->stride, sum = 0;
		memset(out, 0, (size_t)job->width * sizeof *out);
		if (i >= h->tokens)
			continue;
		const float largest = score_row(job, h, i, row);
		for (int64_t j = 0; j < h->tokens; j++) {
			row[j] = expf(row[j] - largest);
			sum += row[j];
		}
		for (int64_t j = 0; j < h->tokens; j++)
			add_scaled(out, job->in[V] + h->at + j * h->stride, row[j] / sum * kept(job, h, i, j),
				   job->width);
		job->logs[h->index * job->positions + i] = largest + logf(sum);
	}
}

static void clear_head(const struct attention_job *job, const struct attention_head *h)
{
	for (int k = Q; k <= V; k++)
		for (int64_t i = 0; job->dx[k] && i < job->positions; i++)
			memset(job->dx[k] + h->at + i * h->stride, 0, (size_t)job->width * sizeof(float));
}

static void backward_row(const struct attention_job *job, const struct attention_head *h, int64_t i, float *row)
{
	const int64_t at = h->at + i * h->stride;
	const float *dout = job->dout + at, log = job->logs[h->index * job->positions + i];
	const float expected = dot(dout, job->out + at, job->width);
	score_row(job, h, i, row);
	for (int64_t j = 0; j < h->tokens; j++) {
		const int64_t other = h->at + j * h->stride;
		const float weight = expf(row[j] - log), keep = kept(job, h, i, j);
		const float dscore =
			weight * (keep * dot(dout, job->in[V] + other, job->width) - expected) * job->scale;
		if (job->dx[Q])
			add_scaled(job->dx[Q] + at, job->in[K] + other, dscore, job->width);
		if (job->dx[K])
			add_scaled(job->dx[K] + other, job->in[Q] + at, dscore, job->width);
		if (job->dx[V])
			add_scaled(job->dx[V] + other, dout, weight * keep, job->width);
	}
}

static void head_part(void *arg, int part, int parts)
{
	const struct attention_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->samples * job->heads, 1, part, parts);
	for (int64_t n = r.from; n < r.to; n++) {
		const struct attention_head h = head_of(job, n);
		float *row = job->row + n * job->positions;
		if (job->to) {
			forward_head(job, &h, row);
			continue;
		}
		clear_head(job, &h);
		for (int64_t i = 0; i < h.tokens; i++)
			backward_row(job, &h, i, row);
	}
}

static struct attention_job job_of(const struct cpu_call *c, bool dropout)
{
	const struct gp_attention_attr a = gp_attention_attr(c->node->base.g);
	const struct gp_shape *x = gp_cpu_in_shape(c->plan, c->node, Q);
	const int64_t width = x->dim[1] / a.heads;
	return (struct attention_job){.in = {c->in[Q], c->in[K], c->in[V]},
				      .logs = c->saved,
				      .row = c->tmp,
				      .length = gp_cpu_integers(c, LENGTH),
				      .samples = c->plan->base.spec.batch,
				      .positions = x->dim[0],
				      .heads = a.heads,
				      .width = width,
				      .scale = 1.0f / sqrtf((float)width),
				      .keep = dropout ? (float)(1.0 / (1.0 - (double)a.p)) : 1.0f,
				      .threshold = dropout ? (uint32_t)((double)a.p * 0x1p32) : 0,
				      .seed = c->plan->base.spec.seed,
				      .stream = gp_rng_stream(GP_RNG_DROPOUT, gp_rng_name_id(c->node->base.g->name)),
				      .draw = c->draw};
}

static enum gp_status attention_prepare(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	(void)err;
	const int64_t rows = p->base.spec.batch * gp_attention_attr(n->base.g).heads * n->base.g->shape.dim[0];
	n->base.saved_bytes = (uint64_t)rows * sizeof(float);
	n->tmp_bytes = (uint64_t)rows * sizeof(float);
	return GP_OK;
}

static enum gp_status attention_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct attention_job job = job_of(c, c->mode == GP_TRAIN);
	job.to = c->out[0];
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, job.samples * job.heads * job.positions * job.positions),
			head_part, &job);
	return GP_OK;
}

static enum gp_status attention_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct attention_job job = job_of(c, true);
	job.out = c->out[0];
	job.dout = c->dout[0];
	for (int k = Q; k <= V; k++)
		job.dx[k] = c->dx[k];
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, job.samples * job.heads * job.positions * job.positions),
			head_part, &job);
	return GP_OK;
}

const struct cpu_op gp_cpu_op_attention = {
	.name = "attention",
	.saves_in = 1 << Q | 1 << K | 1 << V | 1 << LENGTH,
	.saves_out = 1,
	.prepare = attention_prepare,
	.forward = attention_forward,
	.backward = attention_backward,
};
