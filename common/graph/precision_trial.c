/* SPDX-License-Identifier: Apache-2.0
 *
 * See precision_trial.h. Test: tests/unit/test_precision_trial.c
 */
#include "common/graph/precision_trial.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/fault.h"

#define ENOUGH_S  0.1 /* of passes of one plan */
#define PASSES    20
#define WORTH     0.95 /* of the time in fp32: what another precision may take at most to be chosen */
#define OPTIMIZER ((struct gp_optim){.kind = GP_OPTIM_SGD})

struct gp_plan_spec gp_precision_trial_spec(const struct gp_plan_spec *spec, enum gp_precision precision)
{
	struct gp_plan_spec s = *spec;
	s.slots = 1;
	s.optim = OPTIMIZER;
	s.decays = NULL;
	s.undo = s.calibrate = s.device_io = false;
	s.params_given = true;
	s.train = spec->train && (spec->graph->trained_elements > 0 || spec->grad_inputs != 0);
	s.precision = precision;
	return s;
}

static void clear(struct gp_plan *plan, enum gp_plan_buf which, int index, const struct gp_type *type)
{
	void *at = plan->ops->buffer(plan, 0, which, index);
	if (at)
		memset(at, 0, (size_t)plan->spec.batch * gp_shape_elements(&type->shape) * gp_dtype_bytes(type->dtype));
}

/* Integers are indices, which have to be possible; and subnormal numbers would take longer. */
static void clear_inputs(struct gp_plan *plan)
{
	const struct gp_graph *g = plan->spec.graph;
	for (int i = 0; i < g->inputs; i++)
		clear(plan, GP_BUF_INPUT, i, &g->value[i].type);
	for (int i = 0; plan->spec.train && i < g->outputs; i++)
		clear(plan, GP_BUF_GRAD_OUTPUT, i, gp_graph_output_type(g, i));
}

/* --- one plan ------------------------------------------------------------------------------------------------------- */

enum gp_status gp_precision_probe_begin(struct gp_precision_probe *p, struct gp_device *dev,
					const struct gp_plan_spec *spec, enum gp_precision precision,
					struct gp_err *err)
{
	const struct gp_plan_spec s = gp_precision_trial_spec(spec, precision);
	*p = (struct gp_precision_probe){.plan = NULL};
	GP_TRY(dev->ops->plan_new(dev, &s, &p->plan, err));
	clear_inputs(p->plan);
	return GP_OK;
}

bool gp_precision_probe_goes_on(const struct gp_precision_probe *p)
{
	return p->backward || p->passes == 0 || (p->passes <= PASSES && p->sum_s < ENOUGH_S);
}

/* The first one touches memory for the first time, and packs weights. */
static void end_pass(struct gp_precision_probe *p)
{
	if (p->passes > 0) {
		p->sum_s += p->pass_s;
		p->best_s = p->passes == 1 || p->pass_s < p->best_s ? p->pass_s : p->best_s;
	}
	p->passes++;
	p->pass_s = 0;
}

enum gp_status gp_precision_probe_step(struct gp_precision_probe *p, struct gp_err *err)
{
	const struct gp_device_ops *ops = p->plan->ops;
	const bool train = p->plan->spec.train;
	GP_TRY(gp_plan_check_stop(&p->plan->spec, err));
	const uint64_t begin = gp_now_ns();
	GP_TRY(p->backward ? ops->backward(p->plan, 0, err)
			   : ops->forward(p->plan, 0, train ? GP_TRAIN : GP_EVAL, 0, err));
	p->pass_s += (double)(gp_now_ns() - begin) * 1e-9;
	p->backward = train && !p->backward;
	if (!p->backward)
		end_pass(p);
	return GP_OK;
}

void gp_precision_probe_end(struct gp_precision_probe *p)
{
	if (p->plan)
		p->plan->ops->plan_free(p->plan);
	p->plan = NULL;
}

/* --- one precision -------------------------------------------------------------------------------------------------- */

void gp_precision_note(struct gp_precision_trial *trial, enum gp_precision precision, double pass_s)
{
	const uint64_t percent = gp_fault_number(GP_FAULT_PRECISION);
	if (percent > 0)
		pass_s = precision == GP_PRECISION_FP32 ? 1.0 : 0.01 * (double)percent;
	if (trial->pass_s[precision] <= 0 || pass_s < trial->pass_s[precision])
		trial->pass_s[precision] = pass_s;
}

static enum gp_status time_plan(struct gp_device *dev, const struct gp_plan_spec *spec, enum gp_precision precision,
				double *best_s, struct gp_err *err)
{
	struct gp_precision_probe p;
	enum gp_status status = gp_precision_probe_begin(&p, dev, spec, precision, err);
	while (status == GP_OK && gp_precision_probe_goes_on(&p))
		status = gp_precision_probe_step(&p, err);
	gp_precision_probe_end(&p);
	*best_s = p.best_s;
	return status;
}

enum gp_status gp_precision_try(struct gp_device *dev, const struct gp_plan_spec *spec, int plans,
				enum gp_precision precision, struct gp_precision_trial *trial, struct gp_err *err)
{
	double sum_s = 0, best_s;
	for (int i = 0; i < plans; i++) {
		GP_TRY(time_plan(dev, &spec[i], precision, &best_s, err));
		sum_s += best_s;
	}
	gp_precision_note(trial, precision, sum_s);
	return GP_OK;
}

/* --- all of them ---------------------------------------------------------------------------------------------------- */

enum gp_precision gp_precision_next(const struct gp_device *dev, int from)
{
	for (int p = from; p < GP_PRECISIONS; p++)
		if (gp_device_supports(dev, (enum gp_precision)p))
			return (enum gp_precision)p;
	return GP_PRECISIONS;
}

enum gp_precision gp_precision_fastest(const struct gp_precision_trial *trial)
{
	enum gp_precision best = GP_PRECISION_FP32;
	double most = WORTH * trial->pass_s[best];
	for (int p = best + 1; p < GP_PRECISIONS; p++)
		if (trial->pass_s[p] > 0 && trial->pass_s[p] < most) {
			best = (enum gp_precision)p;
			most = trial->pass_s[p];
		}
	return best;
}

enum gp_status gp_precision_choose(struct gp_device *dev, const struct gp_plan_spec *spec, int plans,
				   struct gp_precision_trial *trial, enum gp_precision *out, struct gp_err *err)
{
	*trial = (struct gp_precision_trial){0};
	*out = GP_PRECISION_FP32;
	if (gp_precision_next(dev, GP_PRECISION_FP32 + 1) == GP_PRECISIONS)
		return GP_OK;
	for (int round = 0; round < GP_PRECISION_ROUNDS; round++)
		for (int p = GP_PRECISION_FP32; p < GP_PRECISIONS; p = gp_precision_next(dev, p + 1))
			GP_TRY(gp_precision_try(dev, spec, plans, (enum gp_precision)p, trial, err));
	*out = gp_precision_fastest(trial);
	return GP_OK;
}

const char *gp_precision_trial_text(const struct gp_precision_trial *trial, char text[GP_PRECISION_TRIAL_TEXT])
{
	size_t n = 0;
	text[0] = '\0';
	for (int p = 0; p < GP_PRECISIONS; p++)
		if (trial->pass_s[p] > 0 && n < GP_PRECISION_TRIAL_TEXT)
			n += (size_t)snprintf(text + n, GP_PRECISION_TRIAL_TEXT - n, "%s%s %.4g ms", n ? ", " : "",
					      gp_precision_name((enum gp_precision)p), trial->pass_s[p] * 1e3);
	return text;
}
