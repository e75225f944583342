/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradient clipping over parts of a model. See clip.h.
 * Test: tests/unit/test_clip.c
 */
#include "common/graph/clip.h"

int gp_clip_sums(const struct gp_graph *g)
{
	int n = 0;
	for (int i = 0; i < g->params; i++)
		n += g->param[i].trained;
	return n;
}

double gp_clip_add(double total, const double *squares, int n)
{
	for (int i = 0; i < n; i++)
		total += squares[i];
	return total;
}

float gp_clip_scale(double max_norm, double norm)
{
	double scale = max_norm / (norm + 1e-6);
	return (float)(scale > 1.0 ? 1.0 : scale);
}

enum gp_status gp_clip_queue_update(struct gp_plan *plan, float lr, double norm, struct gp_err *err)
{
	const struct gp_optim *o = &plan->spec.optim;
	float scale = o->clip_norm > 0.0 ? gp_clip_scale(o->clip_norm, norm) : 1.0f;
	if (o->clip_value > 0.0)
		GP_TRY(plan->ops->grad_clamp(plan, (float)o->clip_value, err));
	if (scale != 1.0f) /* NaN is, too */
		GP_TRY(plan->ops->grad_scale(plan, scale, err));
	return plan->ops->queue_optim_step(plan, lr, err);
}

enum gp_status gp_clip_update(struct gp_plan *plan, float lr, double norm, struct gp_err *err)
{
	GP_TRY(gp_clip_queue_update(plan, lr, norm, err));
	return plan->ops->wait ? plan->ops->wait(plan, GP_SLOT_UPDATE, err) : GP_OK;
}
