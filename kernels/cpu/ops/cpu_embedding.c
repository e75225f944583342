/* SPDX-License-Identifier: Apache-2.0
 *
 * Embedding: token ids to rows of a table. Ids come from data, and so from
 * anywhere: one outside the table gives zeros and gets no gradient.
 *
 * The table's gradient is shared out by columns: every part goes through all positions in their order, so that sums are
 * the same on any number of threads. Test: tests/unit/test_cpu_ops.c
 */
#include <string.h>

#include "common/graph/ops/op_embedding.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cpu/plan/parallel.h"

#define GRAIN 16 /* floats of a cache line */

struct embedding_job {
	const int32_t *id;
	float *out;         /* forward */
	const float *table; /* forward (V,F) */
	const float *dout;  /* backward */
	float *grad;        /* backward (V,F) */
	int64_t positions, vocab, features;
	bool fresh;
};

static bool is_known(const struct embedding_job *job, int64_t position)
{
	return job->id[position] >= 0 && job->id[position] < job->vocab;
}

static void forward_part(void *arg, int part, int parts)
{
	const struct embedding_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->positions, 1, part, parts);
	const size_t bytes = (size_t)job->features * sizeof *job->out;
	for (int64_t p = r.from; p < r.to; p++) {
		float *out = job->out + p * job->features;
		if (is_known(job, p))
			memcpy(out, job->table + job->id[p] * job->features, bytes);
		else
			memset(out, 0, bytes);
	}
}

static void backward_part(void *arg, int part, int parts)
{
	const struct embedding_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->features, GRAIN, part, parts);
	const int64_t width = r.to - r.from;
	for (int64_t v = 0; job->fresh && v < job->vocab; v++)
		memset(job->grad + v * job->features + r.from, 0, (size_t)width * sizeof *job->grad);
	for (int64_t p = 0; p < job->positions; p++)
		if (is_known(job, p))
			gp_cpu_add_row(job->grad + job->id[p] * job->features + r.from,
				       job->dout + p * job->features + r.from, width);
}

static struct embedding_job job_of(const struct cpu_call *c)
{
	const struct gp_embedding_attr a = gp_embedding_attr(c->node->base.g);
	return (struct embedding_job){.id = gp_cpu_integers(c, 0),
				      .positions = gp_cpu_in_elements(c->plan, c->node, 0),
				      .vocab = a.vocab,
				      .features = a.features};
}

static enum gp_status embedding_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct embedding_job job = job_of(c);
	job.out = c->out[0];
	job.table = gp_cpu_param_value(c->plan, c->node, GP_PARAM_WEIGHT);
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, job.positions * job.features), forward_part, &job);
	return GP_OK;
}

static enum gp_status embedding_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	struct embedding_job job = job_of(c);
	job.dout = c->dout[0];
	job.grad = gp_cpu_param_grad(c->plan, c->node, GP_PARAM_WEIGHT);
	job.fresh = !c->accumulate;
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, (job.positions + job.vocab) * job.features), backward_part,
			&job);
	return GP_OK;
}

const struct cpu_op gp_cpu_op_embedding = {
	.name = "embedding",
	.saves_in = 1,
	.forward = embedding_forward,
	.backward = embedding_backward,
};
