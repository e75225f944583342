/* SPDX-License-Identifier: Apache-2.0
 *
 * Multi-head self-attention: which part computes which heads, and where they
 * lie. A head of a sample is one part's work, so nothing depends on the number
 * of threads; parts get heads of about equal work, as samples have lengths of
 * their own. The arithmetic is kernels/cpu/math/attention.h; it is fp32 in
 * every precision. Test: tests/unit/test_cpu_attention.c, tests/unit/test_cpu_ops.c
 */
#include <math.h>

#include "common/base/rng.h"
#include "common/graph/ops/op_attention.h"
#include "kernels/cpu/math/attention.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cpu/plan/parallel.h"

enum { Q, K, V, LENGTH };

/* All (samples, positions, heads * width). */
struct attention_job {
	struct gp_attention with;
	const float *in[3];
	float *out;
	const float *dout; /* backward, as is dx: NULL where nobody wants one */
	float *dx[3];
	float *sums; /* (samples, heads, positions, 2) */
	float *room;
	uint64_t room_floats; /* of each part */
	const int32_t *length;
	int64_t samples, heads;
	uint64_t draw;
	gp_attention_forward *forward;   /* forward alone */
	gp_attention_backward *backward; /* backward alone */
};

static int64_t tokens_of(const struct attention_job *job, int64_t sample)
{
	const int64_t length = job->length[sample], positions = job->with.positions;
	return length < 0 ? 0 : length < positions ? length : positions;
}

/* For each head of a sample: pairs of positions, and rows to clear at least. As a double, which does not overflow. */
static double work_of(const struct attention_job *job, int64_t sample)
{
	const double tokens = (double)tokens_of(job, sample);
	return tokens * tokens + (double)job->with.positions;
}

static double work_of_all(const struct attention_job *job)
{
	double work = 0.0;
	for (int64_t sample = 0; sample < job->samples; sample++)
		work += (double)job->heads * work_of(job, sample);
	return work;
}

/* The first head of a part, of samples * heads: before it lies a share of the work that grows with the part. */
static int64_t first_head(const struct attention_job *job, int part, int parts)
{
	double left = work_of_all(job) * part / parts;
	for (int64_t sample = 0; part < parts && sample < job->samples; sample++) {
		const double each = work_of(job, sample), heads = floor(left / each);
		if (heads < (double)job->heads)
			return sample * job->heads + (int64_t)heads;
		left -= (double)job->heads * each;
	}
	return job->samples * job->heads;
}

static struct gp_attention_head head_of(const struct attention_job *job, int64_t index, int64_t end)
{
	const struct gp_attention *a = &job->with;
	const int64_t sample = index / job->heads, head = index % job->heads;
	const int64_t at = sample * a->positions * a->stride + head * a->width;
	const int64_t next = head + 1 < job->heads ? a->width : a->positions * a->stride - head * a->width;
	const uint64_t rows = (uint64_t)(job->samples * job->heads * a->most), blocks = ((uint64_t)a->most + 3) / 4;
	const uint64_t drawn = job->draw * rows + (uint64_t)(index * a->most);
	return (struct gp_attention_head){.q = job->in[Q] + at,
					  .k = job->in[K] + at,
					  .v = job->in[V] + at,
					  .out = job->out + at,
					  .dout = job->dout ? job->dout + at : NULL,
					  .dq = job->dx[Q] ? job->dx[Q] + at : NULL,
					  .dk = job->dx[K] ? job->dx[K] + at : NULL,
					  .dv = job->dx[V] ? job->dx[V] + at : NULL,
					  .sums = job->sums + 2 * index * a->positions,
					  .tokens = tokens_of(job, sample),
					  .first_block = drawn * blocks,
					  .ahead = index + 1 < end ? next : 0};
}

static void heads_part(void *arg, int part, int parts)
{
	const struct attention_job *job = arg;
	const int64_t end = first_head(job, part + 1, parts);
	float *room = job->room + (uint64_t)part * job->room_floats;
	for (int64_t n = first_head(job, part, parts); n < end; n++) {
		const struct gp_attention_head h = head_of(job, n, end);
		if (job->dout)
			job->backward(&job->with, &h, room);
		else
			job->forward(&job->with, &h, room);
	}
}

static int64_t width_of(const struct gp_node *g)
{
	return g->shape.dim[1] / gp_attention_attr(g).heads;
}

static struct gp_attention attention_of(const struct cpu_call *c, bool dropout)
{
	const struct gp_node *g = c->node->base.g;
	const double p = dropout ? (double)gp_attention_attr(g).p : 0.0;
	const int64_t width = width_of(g);
	return (struct gp_attention){.positions = gp_cpu_in_shape(c->plan, c->node, Q)->dim[0],
				     .most = g->shape.dim[0],
				     .width = width,
				     .stride = g->shape.dim[1],
				     .scale = 1.0f / sqrtf((float)width),
				     .keep = (float)(1.0 / (1.0 - p)),
				     .threshold = (uint32_t)(p * 0x1p32),
				     .seed = c->plan->base.spec.seed,
				     .stream = gp_rng_stream(GP_RNG_DROPOUT, gp_rng_name_id(g->name)),
				     .draw = gp_draw_words_choose()};
}

static struct attention_job job_of(const struct cpu_call *c, bool dropout)
{
	return (struct attention_job){.with = attention_of(c, dropout),
				      .in = {c->in[Q], c->in[K], c->in[V]},
				      .out = c->out[0],
				      .sums = c->saved,
				      .room = c->tmp,
				      .length = gp_cpu_integers(c, LENGTH),
				      .samples = c->plan->base.spec.batch,
				      .heads = gp_attention_attr(c->node->base.g).heads,
				      .draw = c->draw};
}

static enum gp_status attention_prepare(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	(void)err;
	const struct gp_node *g = n->base.g;
	const int64_t positions = g->shape.dim[0], width = width_of(g);
	const uint64_t rows = (uint64_t)(p->base.spec.batch * gp_attention_attr(g).heads * positions);
	const uint64_t room = n->base.need_grad ? gp_attention_backward_room(positions, width)
						: gp_attention_forward_room(positions, width);
	n->base.saved_bytes = 2 * rows * sizeof(float);
	n->base.plain_in = 1 << Q | 1 << K | 1 << V; /* the sums that are kept of each row are those of these values */
	n->tmp_bytes = (uint64_t)p->threads * room * sizeof(float);
	return GP_OK;
}

static void run(const struct cpu_call *c, struct attention_job *job)
{
	const double work = work_of_all(job), enough = 1e9; /* for all threads that there may be */
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, (int64_t)fmin(work, enough)), heads_part, job);
}

static enum gp_status attention_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct attention_job job = job_of(c, c->mode == GP_TRAIN);
	job.forward = gp_attention_forward_choose();
	job.room_floats = gp_attention_forward_room(job.with.most, job.with.width);
	run(c, &job);
	return GP_OK;
}

static enum gp_status attention_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct attention_job job = job_of(c, true);
	job.backward = gp_attention_backward_choose();
	job.room_floats = gp_attention_backward_room(job.with.most, job.with.width);
	job.dout = c->dout[0];
	for (int k = Q; k <= V; k++)
		job.dx[k] = c->dx[k];
	run(c, &job);
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
