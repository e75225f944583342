/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax cross-entropy with the count of right answers, or the squared error of
 * one value, and their gradients.
 *
 * Where a sample has one row of scores, rows are few and short: one thread, in double, so that the sum does not depend on
 * anything but the values. Where it has several, they are those of a language model, long and many: on all threads, in
 * single precision, in GROUPS whose sums are added up in their order, on any number of threads the same.
 * Test: tests/unit/test_cpu_ops.c, tests/unit/test_label_rows.c
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/math/softmax_rows.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cpu/plan/cpu_profile.h"
#include "kernels/cpu/plan/parallel.h"
#include "kernels/plan/plan_check.h"

static int largest(const float *x, int64_t k)
{
	int best = 0;
	for (int64_t i = 1; i < k; i++)
		if (x[i] > x[best])
			best = (int)i;
	return best;
}

/* -log softmax(x)[label]; the normaliser comes out for the gradient. */
static double row_loss(const float *x, int64_t k, int32_t label, float max, double *sum)
{
	*sum = 0.0;
	for (int64_t i = 0; i < k; i++)
		*sum += exp((double)x[i] - (double)max);
	return log(*sum) - ((double)x[label] - (double)max);
}

static void row_gradient(const float *x, int64_t k, int32_t label, float max, double sum, float scale, float *grad)
{
	for (int64_t i = 0; i < k; i++) {
		double p = exp((double)x[i] - (double)max) / sum;
		grad[i] = (float)((double)scale * (p - (i == label ? 1.0 : 0.0)));
	}
}

static struct gp_loss_result cross_entropy(const float *x, int64_t k, const int32_t *labels, int valid, float scale,
					   float *grad)
{
	struct gp_loss_result result = {.labelled = valid};
	for (int n = 0; n < valid; n++) {
		const float *row = x + n * k;
		int best = largest(row, k);
		double sum;
		result.loss_sum += row_loss(row, k, labels[n], row[best], &sum);
		result.correct += best == labels[n];
		if (grad)
			row_gradient(row, k, labels[n], row[best], sum, scale, grad + n * k);
	}
	return result;
}

static struct gp_loss_result squared_error(const float *x, const float *labels, int valid, float scale, float *grad)
{
	struct gp_loss_result result = {.labelled = valid};
	for (int n = 0; n < valid; n++) {
		const double off = (double)x[n] - (double)labels[n];
		result.loss_sum += off * off;
		if (grad)
			grad[n] = (float)((double)scale * 2.0 * off);
	}
	return result;
}

/* --- rows of which not all have a label --------------------------------------------------------------------------- */

#define GROUPS 64

struct rows_job {
	const float *x; /* (rows,k) */
	const int32_t *labels;
	float *grad; /* (rows,k); NULL: none is wanted */
	int64_t rows, k;
	float scale;
	struct gp_loss_result group[GROUPS];
};

/* Whether the label's score is the first of the largest. */
static bool is_best(const float *x, int32_t label, float most)
{
	if (x[label] != most)
		return false;
	for (int32_t i = 0; i < label; i++)
		if (x[i] == most)
			return false;
	return true;
}

static void labelled_row(const struct rows_job *job, int64_t row, struct gp_loss_result *sum)
{
	const float *x = job->x + row * job->k, most = gp_softmax_largest(x, job->k);
	float *grad = job->grad ? job->grad + row * job->k : NULL;
	const int32_t label = job->labels[row];
	const double exps = gp_softmax_exps(grad, x, job->k, most), scale = (double)job->scale;
	sum->loss_sum += log(exps) - ((double)x[label] - (double)most);
	sum->labelled++;
	sum->correct += is_best(x, label, most);
	if (!grad)
		return;
	const float at_label = (float)(scale * ((double)grad[label] / exps - 1.0));
	gp_softmax_scale(grad, job->k, (float)(scale / exps));
	grad[label] = at_label;
}

static void group_of_rows(struct rows_job *job, int group)
{
	const struct gp_cpu_range r = gp_cpu_share(job->rows, 1, group, GROUPS);
	struct gp_loss_result sum = {0};
	for (int64_t row = r.from; row < r.to; row++)
		if (job->labels[row] != GP_NO_LABEL)
			labelled_row(job, row, &sum);
		else if (job->grad)
			memset(job->grad + row * job->k, 0, (size_t)job->k * sizeof(float));
	job->group[group] = sum;
}

static void rows_part(void *arg, int part, int parts)
{
	for (int group = part; group < GROUPS; group += parts)
		group_of_rows(arg, group);
}

static struct gp_loss_result cross_entropy_of_rows(int threads, struct rows_job *job)
{
	struct gp_loss_result result = {0};
	gp_cpu_parallel(gp_cpu_parts(threads, job->rows * job->k), rows_part, job);
	for (int i = 0; i < GROUPS; i++) {
		result.loss_sum += job->group[i].loss_sum;
		result.labelled += job->group[i].labelled;
		result.correct += job->group[i].correct;
	}
	return result;
}

/* --- all of a chunk ----------------------------------------------------------------------------------------------- */

static struct gp_loss_result loss_of(const struct cpu_plan *p, const float *x, const void *labels, int valid,
				     float scale, float *grad)
{
	const struct gp_shape *out = gp_graph_output_shape(p->base.spec.graph);
	const int64_t k = out->dim[out->ndim - 1];
	if (p->base.spec.loss == GP_LOSS_SQUARED_ERROR)
		return squared_error(x, labels, valid, scale, grad);
	if (out->ndim == 1)
		return cross_entropy(x, k, labels, valid, scale, grad);
	struct rows_job job = {
		.x = x, .labels = labels, .grad = grad, .rows = valid * out->dim[0], .k = k, .scale = scale};
	return cross_entropy_of_rows(p->threads, &job);
}

enum gp_status gp_cpu_loss(struct gp_plan *plan, int slot, const void *labels, int valid, bool want_grad,
			   float grad_scale, struct gp_loss_result *out, struct gp_err *err)
{
	struct cpu_plan *p = (struct cpu_plan *)plan;
	gp_require(slot >= 0 && slot < plan->spec.slots);
	GP_TRY(gp_plan_check_labels(plan, labels, valid, err));
	const uint64_t sample = gp_shape_elements(gp_graph_output_shape(plan->spec.graph));
	const float *x = plan->ops->buffer(plan, slot, GP_BUF_OUTPUT, 0);
	float *grad = want_grad ? plan->ops->buffer(plan, slot, GP_BUF_GRAD_OUTPUT, 0) : NULL;
	if (want_grad && !plan->spec.train)
		GP_FAIL(err, GP_INTERNAL, "the plan of %s was made for evaluation only", plan->spec.graph->name);
	uint64_t start = gp_cpu_profile_start(p);
	const struct gp_loss_result result = loss_of(p, x, labels, valid, grad_scale, grad);
	if (grad)
		memset(grad + (uint64_t)valid * sample, 0,
		       (uint64_t)(plan->spec.batch - valid) * sample * sizeof(float));
	*out = result;
	gp_cpu_profile_other(p, CPU_PROFILE_LOSS, start);
	return GP_OK;
}
