/* SPDX-License-Identifier: Apache-2.0
 *
 * Bias of rows of channels. See cpu_bias.h. Test: tests/unit/test_cpu_ops.c
 */
#include "kernels/cpu/ops/cpu_bias.h"

#include "kernels/cpu/plan/parallel.h"
#include "kernels/loops/simd.h"

#define BLOCK   64 /* rows summed in float */
#define COLUMNS 16 /* of these rows at a time: a line of the cache */

GP_INLINE void add_bias_body(float *restrict y, int64_t rows, int64_t channels, const float *restrict bias)
{
	for (int64_t r = 0; r < rows; r++) {
		float *yr = y + r * channels;
#pragma omp simd
		for (int64_t c = 0; c < channels; c++)
			yr[c] += bias[c];
	}
}
GP_CPU_CLONES(add_bias, (float *y, int64_t rows, int64_t channels, const float *bias), (y, rows, channels, bias))

struct bias_job {
	float *y;
	int64_t rows, channels;
	const float *bias;
};

static void add_bias_part(void *arg, int part, int parts)
{
	const struct bias_job *job = arg;
	struct gp_cpu_range r = gp_cpu_share(job->rows, 1, part, parts);
	add_bias(job->y + r.from * job->channels, r.to - r.from, job->channels, job->bias);
}

/* part (n) = the sum of rows of `dout`, which are `channels` floats apart. */
GP_INLINE void sum_block_body(float *restrict part, const float *restrict dout, int64_t rows, int64_t channels,
			      int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		part[i] = 0.0f;
	for (int64_t r = 0; r < rows; r++) {
		const float *row = dout + r * channels;
#pragma omp simd
		for (int64_t i = 0; i < n; i++)
			part[i] += row[i];
	}
}
GP_CPU_CLONES(sum_block, (float *part, const float *dout, int64_t rows, int64_t channels, int64_t n),
	      (part, dout, rows, channels, n))

struct sum_job {
	const float *dout;
	float *grad;
	int64_t rows, channels;
	bool accumulate;
};

/* Columns [first, first + n), n <= COLUMNS: in float over a block of rows and in double beyond. */
static void sum_columns(const struct sum_job *job, int64_t first, int64_t n)
{
	double sum[COLUMNS] = {0};
	float part[COLUMNS];
	for (int64_t row = 0; row < job->rows; row += BLOCK) {
		const int64_t rows = job->rows - row < BLOCK ? job->rows - row : BLOCK;
		sum_block(part, job->dout + row * job->channels + first, rows, job->channels, n);
		for (int64_t i = 0; i < n; i++)
			sum[i] += (double)part[i];
	}
	for (int64_t i = 0; i < n; i++)
		job->grad[first + i] = (job->accumulate ? job->grad[first + i] : 0.0f) + (float)sum[i];
}

static void sum_part(void *arg, int part, int parts)
{
	const struct sum_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->channels, COLUMNS, part, parts);
	for (int64_t first = r.from; first < r.to; first += COLUMNS)
		sum_columns(job, first, r.to - first < COLUMNS ? r.to - first : COLUMNS);
}

void gp_cpu_bias_add(const struct cpu_call *c, float *y, int64_t rows, int64_t channels)
{
	struct bias_job job = {y, rows, channels, gp_cpu_param_value(c->plan, c->node, GP_PARAM_BIAS)};
	if (job.bias)
		gp_cpu_parallel(gp_cpu_parts(c->plan->threads, rows * channels), add_bias_part, &job);
}

void gp_cpu_bias_gradient(const struct cpu_call *c, const float *dout, int64_t rows, int64_t channels)
{
	struct sum_job job = {dout, gp_cpu_param_grad(c->plan, c->node, GP_PARAM_BIAS), rows, channels, c->accumulate};
	if (job.grad)
		gp_cpu_parallel(gp_cpu_parts(c->plan->threads, rows * channels), sum_part, &job);
}
