/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax cross-entropy with the count of right answers, or the squared error of
 * one value, and their gradients.
 *
 * Where a sample has one row of scores, rows are few and short: one thread, in double, so that the sum does not depend on
 * anything but the values. Where it has several, they are those of a language model, long and many: on all threads, in
 * single precision, in GROUPS whose sums are added up in their order, on any number of threads the same. A group has rows by
 * their numbers among all, so that the sums are the same whether or not rows without a label were left out (cpu_pick.c).
 * Test: tests/unit/test_cpu_ops.c, tests/unit/test_label_rows.c, tests/unit/test_row_labels.c
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
	const float *x; /* (rows,k), or those that were picked */
	const int32_t *labels;
	float *grad;        /* as x; NULL: none is wanted */
	const int64_t *row; /* which rows were picked; NULL: all are there */
	int64_t picked;
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

/* `at`: where the row lies. */
static void labelled_row(const struct rows_job *job, int64_t at, int32_t label, struct gp_loss_result *sum)
{
	const float *x = job->x + at * job->k, most = gp_softmax_largest(x, job->k);
	float *grad = job->grad ? job->grad + at * job->k : NULL;
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

static void add_row(const struct rows_job *job, int64_t at, int64_t row, struct gp_loss_result *sum)
{
	if (job->labels[row] != GP_NO_LABEL)
		labelled_row(job, at, job->labels[row], sum);
	else if (job->grad)
		memset(job->grad + at * job->k, 0, (size_t)job->k * sizeof(float));
}

static int64_t first_picked(const struct rows_job *job, int64_t row)
{
	int64_t at = 0;
	while (at < job->picked && job->row[at] < row)
		at++;
	return at;
}

static void group_of_rows(struct rows_job *job, int group)
{
	const struct gp_cpu_range r = gp_cpu_share(job->rows, 1, group, GROUPS);
	struct gp_loss_result sum = {0};
	for (int64_t row = r.from; row < r.to && !job->row; row++)
		add_row(job, row, row, &sum);
	for (int64_t at = first_picked(job, r.from); at < job->picked && job->row[at] < r.to; at++)
		add_row(job, at, job->row[at], &sum);
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
	gp_cpu_parallel(gp_cpu_parts(threads, (job->row ? job->picked : job->rows) * job->k), rows_part, job);
	for (int i = 0; i < GROUPS; i++) {
		result.loss_sum += job->group[i].loss_sum;
		result.labelled += job->group[i].labelled;
		result.correct += job->group[i].correct;
	}
	return result;
}

/* --- all of a chunk ----------------------------------------------------------------------------------------------- */

static struct gp_loss_result loss_of(const struct cpu_plan *p, int slot, const float *x, const void *labels, int valid,
				     float scale, float *grad)
{
	const struct cpu_slot *s = &p->slot[slot];
	const struct gp_shape *out = gp_graph_output_shape(p->base.spec.graph);
	const int64_t k = out->dim[out->ndim - 1];
	if (p->base.spec.loss == GP_LOSS_SQUARED_ERROR)
		return squared_error(x, labels, valid, scale, grad);
	if (out->ndim == 1)
		return cross_entropy(x, k, labels, valid, scale, grad);
	struct rows_job job = {
		.x = x, .labels = labels, .grad = grad, .rows = valid * out->dim[0], .k = k, .scale = scale};
	job.row = s->rows > 0 ? s->row : NULL;
	job.picked = s->rows;
	return cross_entropy_of_rows(p->threads, &job);
}

/* Gradients of samples that are no valid ones, and of the one row that is computed of a chunk without any label. */
static void clear_gradients(const struct cpu_plan *p, int slot, int valid, const struct gp_loss_result *r, float *grad)
{
	const struct gp_shape *out = gp_graph_output_shape(p->base.spec.graph);
	const uint64_t sample = gp_shape_elements(out);
	if (p->slot[slot].rows == 0)
		memset(grad + (uint64_t)valid * sample, 0,
		       (uint64_t)(p->base.spec.batch - valid) * sample * sizeof *grad);
	else if (r->labelled == 0)
		memset(grad, 0, (size_t)out->dim[1] * sizeof *grad);
}

static enum gp_status check_picked(const struct cpu_plan *p, int slot, const void *labels, int valid,
				   struct gp_err *err)
{
	const int64_t rows = valid * gp_plan_label_rows(&p->base);
	if (p->slot[slot].rows > 0 && !gp_cpu_pick_agrees(p, slot, labels, rows))
		GP_FAIL(err, GP_INTERNAL, "the loss of %s has other labels than its forward was told",
			p->base.spec.graph->name);
	return GP_OK;
}

enum gp_status gp_cpu_loss(struct gp_plan *plan, int slot, const void *labels, int valid, bool want_grad,
			   float grad_scale, struct gp_loss_result *out, struct gp_err *err)
{
	struct cpu_plan *p = (struct cpu_plan *)plan;
	gp_require(slot >= 0 && slot < plan->spec.slots);
	GP_TRY(gp_plan_check_labels(plan, labels, valid, err));
	GP_TRY(check_picked(p, slot, labels, valid, err));
	const float *x = plan->ops->buffer(plan, slot, GP_BUF_OUTPUT, 0);
	float *grad = want_grad ? plan->ops->buffer(plan, slot, GP_BUF_GRAD_OUTPUT, 0) : NULL;
	if (want_grad && !plan->spec.train)
		GP_FAIL(err, GP_INTERNAL, "the plan of %s was made for evaluation only", plan->spec.graph->name);
	uint64_t start = gp_cpu_profile_start(p);
	const struct gp_loss_result result = loss_of(p, slot, x, labels, valid, grad_scale, grad);
	if (grad)
		clear_gradients(p, slot, valid, &result, grad);
	*out = result;
	gp_cpu_profile_other(p, CPU_PROFILE_LOSS, start);
	return GP_OK;
}
