/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of optimizer settings and the learning-rate formulas. See optim.h.
 * Test: tests/unit/test_optim.c
 */
#include "common/graph/optim.h"

#include <math.h>

static enum gp_status check_number(const char *flag, double value, double min, double max, bool open_end,
				   struct gp_err *err)
{
	if (!(value >= min) || !(open_end ? value < max : value <= max))
		GP_FAIL(err, GP_USAGE, "%s is %g; it must be in %g..%g%s", flag, value, min, max,
			open_end ? ", below the end" : "");
	return GP_OK;
}

enum gp_status gp_optim_check(const struct gp_optim *o, struct gp_err *err)
{
	if (o->kind != GP_OPTIM_SGD && o->kind != GP_OPTIM_ADAM && o->kind != GP_OPTIM_ADAMW)
		GP_FAIL(err, GP_USAGE, "--optimizer: unknown number %d; known are sgd, adam, adamw", (int)o->kind);
	GP_TRY(check_number("--weight-decay", (double)o->weight_decay, 0.0, 1e6, false, err));
	GP_TRY(check_number("--clip-norm", o->clip_norm, 0.0, 1e30, false, err));
	GP_TRY(check_number("--clip-value", o->clip_value, 0.0, 1e30, false, err));
	if (o->clip_norm > 0.0 && o->clip_value > 0.0)
		GP_FAIL(err, GP_USAGE, "--clip-norm and --clip-value exclude each other");
	if (o->kind == GP_OPTIM_SGD) {
		GP_TRY(check_number("--momentum", (double)o->momentum, 0.0, 1.0, true, err));
		if (o->nesterov && !(o->momentum > 0.0f))
			GP_FAIL(err, GP_USAGE, "--nesterov needs --momentum above 0");
		return GP_OK;
	}
	GP_TRY(check_number("--adam-betas: the first one", o->beta1, 0.0, 1.0, true, err));
	GP_TRY(check_number("--adam-betas: the second one", o->beta2, 0.0, 1.0, true, err));
	if (!(o->eps > 0.0f && o->eps <= 1.0f))
		GP_FAIL(err, GP_USAGE, "--adam-eps is %g; it must be above 0 and at most 1", (double)o->eps);
	return GP_OK;
}

int gp_optim_states(const struct gp_optim *o)
{
	if (o->kind != GP_OPTIM_SGD)
		return 2;
	return o->momentum > 0.0f ? 1 : 0;
}

enum gp_status gp_schedule_check(const struct gp_schedule *s, struct gp_err *err)
{
	bool falls = s->kind == GP_SCHEDULE_COSINE || s->kind == GP_SCHEDULE_POLY || s->kind == GP_SCHEDULE_LINEAR;
	if (!(s->base_lr >= 0.0 && s->base_lr <= 1e6))
		GP_FAIL(err, GP_USAGE, "--lr is %g; it must be in 0..1e6", s->base_lr);
	if (s->warmup_steps < 0)
		GP_FAIL(err, GP_USAGE, "--warmup is %lld; it must not be negative", (long long)s->warmup_steps);
	if (falls && !(s->final_lr >= 0.0 && s->final_lr <= s->base_lr))
		GP_FAIL(err, GP_USAGE, "--final-lr is %g; it must be in 0..--lr (%g)", s->final_lr, s->base_lr);
	if (falls && s->total_steps <= s->warmup_steps)
		GP_FAIL(err, GP_USAGE, "--warmup (%lld steps) leaves none of %lld steps for the schedule",
			(long long)s->warmup_steps, (long long)s->total_steps);
	if (s->kind == GP_SCHEDULE_POLY && !(s->power > 0.0 && s->power <= 100.0))
		GP_FAIL(err, GP_USAGE, "--poly-power is %g; it must be above 0 and at most 100", s->power);
	if (s->kind != GP_SCHEDULE_STEP)
		return GP_OK;
	if (s->every < 1)
		GP_FAIL(err, GP_USAGE, "--step-every is %lld; a step schedule needs at least 1", (long long)s->every);
	if (!(s->gamma > 0.0 && s->gamma <= 1.0))
		GP_FAIL(err, GP_USAGE, "--step-gamma is %g; it must be above 0 and at most 1", s->gamma);
	return GP_OK;
}

/* How far the falling part has come at `step`: 0 right after the warm-up, 1 at the end. */
static double progress(const struct gp_schedule *s, int64_t step)
{
	double at = (double)(step - s->warmup_steps), length = (double)(s->total_steps - s->warmup_steps);
	if (at <= 0.0 || length <= 0.0)
		return 0.0;
	return at < length ? at / length : 1.0;
}

float gp_schedule_lr(const struct gp_schedule *s, int64_t step)
{
	double span = s->base_lr - s->final_lr;
	if (step < s->warmup_steps)
		return (float)(s->base_lr * (double)(step + 1) / (double)s->warmup_steps);
	switch (s->kind) {
	case GP_SCHEDULE_CONST:
		return (float)s->base_lr;
	case GP_SCHEDULE_COSINE:
		return (float)(s->final_lr + 0.5 * span * (1.0 + cos(3.14159265358979323846 * progress(s, step))));
	case GP_SCHEDULE_STEP:
		return (float)(s->base_lr * pow(s->gamma, (double)((step - s->warmup_steps) / s->every)));
	case GP_SCHEDULE_LINEAR:
		return (float)(s->final_lr + span * (1.0 - progress(s, step)));
	case GP_SCHEDULE_POLY:
		return (float)(s->final_lr + span * pow(1.0 - progress(s, step), s->power));
	}
	return (float)s->base_lr;
}
