/* SPDX-License-Identifier: Apache-2.0
 *
 * Mean over the positions (S,F) whose mask (S) is not 0; zeros where there are
 * none. A sample is one part's work, position after position.
 * Test: tests/unit/test_cpu_ops.c
 */
#include <string.h>

#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cpu/plan/parallel.h"
#include "kernels/loops/simd.h"

enum { VALUES, MASK };

struct mean_job {
	const float *from;
	float *to;
	const int32_t *mask;
	int64_t samples, positions, features;
};

/* out = x * scale; out may be x. */
GP_INLINE void scale_row_body(float *out, const float *x, float scale, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		out[i] = x[i] * scale;
}
GP_CPU_CLONES(scale_row, (float *out, const float *x, float scale, int64_t n), (out, x, scale, n))

/* One through the number of positions that count; 0 where there are none. */
static float share_of(const int32_t *mask, int64_t positions)
{
	int64_t count = 0;
	for (int64_t s = 0; s < positions; s++)
		count += mask[s] != 0;
	return count ? 1.0f / (float)count : 0.0f;
}

static void forward_part(void *arg, int part, int parts)
{
	const struct mean_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->samples, 1, part, parts);
	for (int64_t n = r.from; n < r.to; n++) {
		const int32_t *mask = job->mask + n * job->positions;
		const float *x = job->from + n * job->positions * job->features;
		float *out = job->to + n * job->features;
		memset(out, 0, (size_t)job->features * sizeof *out);
		for (int64_t s = 0; s < job->positions; s++)
			if (mask[s] != 0)
				gp_cpu_add_row(out, x + s * job->features, job->features);
		scale_row(out, out, share_of(mask, job->positions), job->features);
	}
}

static void backward_part(void *arg, int part, int parts)
{
	const struct mean_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->samples, 1, part, parts);
	for (int64_t n = r.from; n < r.to; n++) {
		const int32_t *mask = job->mask + n * job->positions;
		const float share = share_of(mask, job->positions), *dout = job->from + n * job->features;
		float *dx = job->to + n * job->positions * job->features;
		for (int64_t s = 0; s < job->positions; s++, dx += job->features)
			if (mask[s] != 0)
				scale_row(dx, dout, share, job->features);
			else
				memset(dx, 0, (size_t)job->features * sizeof *dx);
	}
}

static void run(const struct cpu_call *c, float *to, const float *from, gp_cpu_part_fn part)
{
	const struct gp_shape *x = gp_cpu_in_shape(c->plan, c->node, VALUES);
	struct mean_job job = {from, to, gp_cpu_integers(c, MASK), c->plan->base.spec.batch, x->dim[0], x->dim[1]};
	gp_cpu_parallel(gp_cpu_parts(c->plan->threads, gp_cpu_in_elements(c->plan, c->node, VALUES)), part, &job);
}

static enum gp_status mean_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	run(c, c->out[0], c->in[VALUES], forward_part);
	return GP_OK;
}

static enum gp_status mean_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	run(c, c->dx[VALUES], c->dout[0], backward_part);
	return GP_OK;
}

const struct cpu_op gp_cpu_op_masked_mean = {
	.name = "masked_mean",
	.saves_in = 1 << MASK,
	.forward = mean_forward,
	.backward = mean_backward,
};
