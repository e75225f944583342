/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax cross-entropy with the count of right answers, or the squared error of
 * one value, and their gradients. Rows are few and short: one thread, in double,
 * so that the sum does not depend on anything but the values. Test: tests/unit/test_cpu_ops.c
 */
#include <math.h>
#include <string.h>

#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cpu/plan/cpu_profile.h"
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
	struct gp_loss_result result = {0};
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
	struct gp_loss_result result = {0};
	for (int n = 0; n < valid; n++) {
		const double off = (double)x[n] - (double)labels[n];
		result.loss_sum += off * off;
		if (grad)
			grad[n] = (float)((double)scale * 2.0 * off);
	}
	return result;
}

enum gp_status gp_cpu_loss(struct gp_plan *plan, int slot, const void *labels, int valid, bool want_grad,
			   float grad_scale, struct gp_loss_result *out, struct gp_err *err)
{
	struct cpu_plan *p = (struct cpu_plan *)plan;
	gp_require(slot >= 0 && slot < plan->spec.slots);
	GP_TRY(gp_plan_check_labels(plan, labels, valid, err));
	const int64_t k = gp_graph_output_shape(plan->spec.graph)->dim[0];
	const float *x = plan->ops->buffer(plan, slot, GP_BUF_OUTPUT, 0);
	float *grad = want_grad ? plan->ops->buffer(plan, slot, GP_BUF_GRAD_OUTPUT, 0) : NULL;
	if (want_grad && !plan->spec.train)
		GP_FAIL(err, GP_INTERNAL, "the plan of %s was made for evaluation only", plan->spec.graph->name);
	uint64_t start = gp_cpu_profile_start(p);
	const struct gp_loss_result result = plan->spec.loss == GP_LOSS_SQUARED_ERROR
						     ? squared_error(x, labels, valid, grad_scale, grad)
						     : cross_entropy(x, k, labels, valid, grad_scale, grad);
	if (grad)
		memset(grad + valid * k, 0, (size_t)((plan->spec.batch - valid) * k) * sizeof(float));
	*out = result;
	gp_cpu_profile_other(p, CPU_PROFILE_LOSS, start);
	return GP_OK;
}
