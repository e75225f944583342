/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax cross-entropy, its gradient, and the count of right answers. Rows
 * are few and short: one thread, in double, so that the sum does not depend on
 * anything but the values. Test: tests/unit/test_cpu_ops.c
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/plan.h"
#include "kernels/cpu/profile.h"

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

static enum gp_status check_labels(const struct gp_plan *plan, const int32_t *labels, int valid, int64_t classes,
				   struct gp_err *err)
{
	if (valid < 0 || valid > plan->spec.batch)
		GP_FAIL(err, GP_INTERNAL, "%d valid samples in a chunk of %d", valid, plan->spec.batch);
	for (int i = 0; i < valid; i++)
		if (labels[i] < 0 || labels[i] >= classes)
			GP_FAIL(err, GP_INVALID, "label %d does not fit a model with %lld classes", labels[i],
				(long long)classes);
	return GP_OK;
}

enum gp_status gp_cpu_loss(struct gp_plan *plan, int slot, const int32_t *labels, int valid, bool want_grad,
			   float grad_scale, struct gp_loss_result *out, struct gp_err *err)
{
	struct cpu_plan *p = (struct cpu_plan *)plan;
	const struct gp_shape *shape = gp_graph_output_shape(plan->spec.graph);
	gp_require(slot >= 0 && slot < plan->spec.slots);
	if (shape->ndim != 1)
		GP_FAIL(err, GP_INVALID, "the output of %s is not one row of class scores", plan->spec.graph->name);
	int64_t k = shape->dim[0];
	GP_TRY(check_labels(plan, labels, valid, k, err));
	const float *x = p->slot[slot].io[GP_BUF_OUTPUT];
	float *grad = want_grad ? p->slot[slot].io[GP_BUF_GRAD_OUTPUT] : NULL;
	if (want_grad && !grad)
		GP_FAIL(err, GP_INTERNAL, "the plan of %s was made for evaluation only", plan->spec.graph->name);
	struct gp_loss_result result = {0};
	uint64_t start = gp_cpu_profile_start(p);
	for (int n = 0; n < valid; n++) {
		const float *row = x + n * k;
		int best = largest(row, k);
		double sum;
		result.loss_sum += row_loss(row, k, labels[n], row[best], &sum);
		result.correct += best == labels[n];
		if (grad)
			row_gradient(row, k, labels[n], row[best], sum, grad_scale, grad + n * k);
	}
	if (grad)
		memset(grad + valid * k, 0, (size_t)((plan->spec.batch - valid) * k) * sizeof(float));
	*out = result;
	gp_cpu_profile_other(p, CPU_PROFILE_LOSS, start);
	return GP_OK;
}
