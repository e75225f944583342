/* SPDX-License-Identifier: Apache-2.0
 *
 * What is the same for every device: its title, whether it has a precision, how
 * fast it is, and whether a plan is to stop. See device.h.
 * Tests: tests/unit/test_cpu_plan.c, tests/unit/test_client_precision.c, tests/unit/test_graph_work.c
 */
#include "common/graph/device.h"

#include <stdio.h>

#include "common/base/stop.h"
#include "common/codec/moment_store.h"

bool gp_device_supports(const struct gp_device *dev, enum gp_precision precision)
{
	if (!dev->ops->supports)
		return precision == GP_PRECISION_FP32;
	return dev->ops->supports(dev, precision);
}

enum gp_status gp_device_check_precision(const struct gp_device *dev, enum gp_precision precision, struct gp_err *err)
{
	if (gp_device_supports(dev, precision))
		return GP_OK;
	const char *why = dev->ops->lacks ? dev->ops->lacks(dev, precision) : NULL;
	GP_FAIL(err, GP_DEVICE, "%s cannot compute in %s%s%s%s; use fp32", dev->name, gp_precision_name(precision),
		why ? " (" : "", why ? why : "", why ? ")" : "");
}

enum gp_status gp_device_measure(struct gp_device *dev, struct gp_err *err)
{
	return dev->ops->measure ? dev->ops->measure(dev, &dev->speed, err) : GP_OK;
}

enum gp_status gp_plan_check_stop(const struct gp_plan_spec *spec, struct gp_err *err)
{
	if (gp_stop_is_set(spec->stop))
		GP_FAIL(err, GP_CANCELED, "the computation of %s was stopped", spec->graph->name);
	return GP_OK;
}

#define DRAWN_AT_ONCE (UINT64_C(1) << 20) /* some milliseconds */

/* Drawing a gigabyte takes long. */
enum gp_status gp_plan_draw_param(const struct gp_plan_spec *spec, int index, float *out, struct gp_err *err)
{
	const struct gp_param *p = &spec->graph->param[index];
	for (uint64_t at = 0; at < p->count; at += DRAWN_AT_ONCE) {
		const uint64_t left = p->count - at;
		GP_TRY(gp_plan_check_stop(spec, err));
		gp_param_draw(p, spec->seed, at, left < DRAWN_AT_ONCE ? left : DRAWN_AT_ONCE, out + at);
	}
	return GP_OK;
}

uint64_t gp_plan_moment_array(const struct gp_plan_spec *spec, int index, int which)
{
	return gp_moment_array(spec->seed, spec->graph->param[index].name, which);
}

const char *gp_precision_name(enum gp_precision precision)
{
	static const char *const names[GP_PRECISIONS] = {"fp32", "bf16", "tf32"};
	return precision < GP_PRECISIONS ? names[precision] : "?";
}

void gp_plan_set_length(struct gp_plan *plan, int slot, int64_t length)
{
	if (plan->ops->set_length && gp_graph_sequence(plan->spec.graph) > 0)
		plan->ops->set_length(plan, slot, length);
}

void gp_plan_set_labels(struct gp_plan *plan, int slot, const void *labels, int valid)
{
	if (plan->ops->set_labels && plan->spec.loss == GP_LOSS_CROSS_ENTROPY &&
	    gp_graph_row_scores(plan->spec.graph) >= 0)
		plan->ops->set_labels(plan, slot, labels, valid);
}

const char *gp_device_title(const struct gp_device *dev, char text[GP_DEVICE_TITLE])
{
	snprintf(text, GP_DEVICE_TITLE, dev->card[0] ? "%s (%s)" : "%s", dev->name, dev->card);
	return text;
}
