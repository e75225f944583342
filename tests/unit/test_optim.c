/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning-rate schedules against torch.optim.lr_scheduler (PyTorch 1.13), and
 * the checks of optimizer settings. The updates themselves are tested where
 * they run, in test_cpu_ops.c.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/graph/optim.h"

static struct gp_err err;

static void check_rates(const struct gp_schedule *s, const double *want, int count)
{
	assert_int_equal(gp_schedule_check(s, &err), GP_OK);
	for (int i = 0; i < count; i++) {
		double got = (double)gp_schedule_lr(s, i);
		if (fabs(got - want[i]) > 1e-7 * s->base_lr)
			fail_msg("step %d: %.9g instead of %.9g", i, got, want[i]);
	}
}

static void constant_schedule_keeps_its_rate(void **state)
{
	(void)state;
	const struct gp_schedule s = {.kind = GP_SCHEDULE_CONST, .base_lr = 0.1};
	assert_true(gp_schedule_lr(&s, 0) == 0.1f);
	assert_true(gp_schedule_lr(&s, 1000000) == 0.1f);
}

/* CosineAnnealingLR(T_max=10, eta_min=0.01) */
static void cosine_schedule_is_pytorchs_and_stays_at_its_end(void **state)
{
	(void)state;
	const struct gp_schedule s = {.kind = GP_SCHEDULE_COSINE, .base_lr = 0.1, .final_lr = 0.01, .total_steps = 10};
	const double want[] = {0.1,          0.0977975432, 0.0914057647, 0.0814503364, 0.0689057647, 0.055,
			       0.0410942353, 0.0285496636, 0.0185942353, 0.0122024568, 0.01,         0.01};
	check_rates(&s, want, 12);
}

/* StepLR(step_size=3, gamma=0.5) */
static void step_schedule_is_pytorchs(void **state)
{
	(void)state;
	const struct gp_schedule s = {.kind = GP_SCHEDULE_STEP, .base_lr = 0.1, .gamma = 0.5, .every = 3};
	const double want[] = {0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025, 0.0125, 0.0125, 0.0125};
	check_rates(&s, want, 12);
}

/* PolynomialLR(total_iters=10, power=2) */
static void poly_schedule_is_pytorchs_and_stays_at_its_end(void **state)
{
	(void)state;
	const struct gp_schedule s = {.kind = GP_SCHEDULE_POLY, .base_lr = 0.1, .total_steps = 10, .power = 2.0};
	const double want[] = {0.1, 0.081, 0.064, 0.049, 0.036, 0.025, 0.016, 0.009, 0.004, 0.001, 0, 0};
	check_rates(&s, want, 12);
}

static void poly_schedule_ends_at_its_final_rate(void **state)
{
	(void)state;
	const struct gp_schedule s = {
		.kind = GP_SCHEDULE_POLY, .base_lr = 0.1, .final_lr = 0.02, .total_steps = 4, .power = 1.0};
	const double want[] = {0.1, 0.08, 0.06, 0.04, 0.02, 0.02};
	check_rates(&s, want, 6);
}

/* SequentialLR([LinearLR(start_factor=1/4, total_iters=3), CosineAnnealingLR(T_max=8)], milestones=[4]) */
static void warm_up_rises_to_the_base_rate_and_the_schedule_begins_behind_it(void **state)
{
	(void)state;
	const struct gp_schedule s = {.kind = GP_SCHEDULE_COSINE, .base_lr = 0.1, .total_steps = 12, .warmup_steps = 4};
	const double want[] = {
		0.025, 0.05,         0.075,        0.1,           0.1, 0.0961939766, 0.0853553391, 0.0691341716,
		0.05,  0.0308658284, 0.0146446609, 0.00380602337, 0};
	check_rates(&s, want, 13);
}

/* SequentialLR([LinearLR(start_factor=1/2, total_iters=1), StepLR(3, 0.1)], milestones=[2]) */
static void warm_up_shifts_the_step_schedule(void **state)
{
	(void)state;
	const struct gp_schedule s = {
		.kind = GP_SCHEDULE_STEP, .base_lr = 0.1, .warmup_steps = 2, .gamma = 0.1, .every = 3};
	const double want[] = {0.05, 0.1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.001};
	check_rates(&s, want, 9);
}

static void expect_refusal(enum gp_status status, const char *flag)
{
	assert_int_equal(status, GP_USAGE);
	if (!strstr(err.text, flag))
		fail_msg("\"%s\" does not name %s", err.text, flag);
}

static void schedule_check_names_the_flag_that_is_wrong(void **state)
{
	(void)state;
	struct gp_schedule s = {.kind = GP_SCHEDULE_CONST, .base_lr = -1};
	expect_refusal(gp_schedule_check(&s, &err), "--lr");
	s.base_lr = NAN;
	expect_refusal(gp_schedule_check(&s, &err), "--lr");
	s.base_lr = 0.1;
	s.warmup_steps = -1;
	expect_refusal(gp_schedule_check(&s, &err), "--warmup");
	s = (struct gp_schedule){.kind = GP_SCHEDULE_COSINE, .base_lr = 0.1, .total_steps = 5, .warmup_steps = 5};
	expect_refusal(gp_schedule_check(&s, &err), "--warmup");
	s = (struct gp_schedule){.kind = GP_SCHEDULE_COSINE, .base_lr = 0.1, .final_lr = 0.2, .total_steps = 5};
	expect_refusal(gp_schedule_check(&s, &err), "--final-lr");
	s = (struct gp_schedule){.kind = GP_SCHEDULE_STEP, .base_lr = 0.1, .gamma = 0.5};
	expect_refusal(gp_schedule_check(&s, &err), "--step-every");
	s = (struct gp_schedule){.kind = GP_SCHEDULE_STEP, .base_lr = 0.1, .gamma = 1.5, .every = 2};
	expect_refusal(gp_schedule_check(&s, &err), "--step-gamma");
	s = (struct gp_schedule){.kind = GP_SCHEDULE_POLY, .base_lr = 0.1, .total_steps = 5};
	expect_refusal(gp_schedule_check(&s, &err), "--poly-power");
}

static void optim_check_names_the_flag_that_is_wrong(void **state)
{
	(void)state;
	struct gp_optim o = {.kind = GP_OPTIM_SGD, .momentum = 0.9f, .nesterov = true, .weight_decay = 1e-4f};
	assert_int_equal(gp_optim_check(&o, &err), GP_OK);
	o.momentum = 0.0f;
	expect_refusal(gp_optim_check(&o, &err), "--nesterov");
	o.momentum = 1.0f;
	expect_refusal(gp_optim_check(&o, &err), "--momentum");
	o = (struct gp_optim){.kind = GP_OPTIM_SGD, .weight_decay = -1.0f};
	expect_refusal(gp_optim_check(&o, &err), "--weight-decay");
	o = (struct gp_optim){.kind = GP_OPTIM_ADAM, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8f};
	assert_int_equal(gp_optim_check(&o, &err), GP_OK);
	o.beta1 = 1.0;
	expect_refusal(gp_optim_check(&o, &err), "--adam-betas: the first one");
	o.beta1 = 0.9;
	o.beta2 = -0.1;
	expect_refusal(gp_optim_check(&o, &err), "--adam-betas: the second one");
	o.beta2 = 0.99;
	o.eps = 0.0f;
	expect_refusal(gp_optim_check(&o, &err), "--adam-eps");
	o.eps = 1e-8f;
	o.clip_norm = -1.0;
	expect_refusal(gp_optim_check(&o, &err), "--clip-norm");
	o.clip_norm = (double)NAN;
	expect_refusal(gp_optim_check(&o, &err), "--clip-norm");
	o.clip_norm = 1.0;
	assert_int_equal(gp_optim_check(&o, &err), GP_OK);
	o.clip_value = 1.0;
	expect_refusal(gp_optim_check(&o, &err), "exclude");
	o.clip_norm = 0.0;
	assert_int_equal(gp_optim_check(&o, &err), GP_OK);
	o.clip_value = (double)INFINITY;
	expect_refusal(gp_optim_check(&o, &err), "--clip-value");
	o.clip_value = 0.0;
	o.kind = (enum gp_optim_kind)9;
	expect_refusal(gp_optim_check(&o, &err), "--optimizer");
}

static void an_optimizer_remembers_as_many_arrays_as_pytorchs(void **state)
{
	(void)state;
	assert_int_equal(gp_optim_states(&(struct gp_optim){.kind = GP_OPTIM_SGD}), 0);
	assert_int_equal(gp_optim_states(&(struct gp_optim){.kind = GP_OPTIM_SGD, .momentum = 0.9f}), 1);
	assert_int_equal(gp_optim_states(&(struct gp_optim){.kind = GP_OPTIM_ADAM}), 2);
	assert_int_equal(gp_optim_states(&(struct gp_optim){.kind = GP_OPTIM_ADAMW, .momentum = 0.9f}), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(constant_schedule_keeps_its_rate),
		cmocka_unit_test(cosine_schedule_is_pytorchs_and_stays_at_its_end),
		cmocka_unit_test(step_schedule_is_pytorchs),
		cmocka_unit_test(poly_schedule_is_pytorchs_and_stays_at_its_end),
		cmocka_unit_test(poly_schedule_ends_at_its_final_rate),
		cmocka_unit_test(warm_up_rises_to_the_base_rate_and_the_schedule_begins_behind_it),
		cmocka_unit_test(warm_up_shifts_the_step_schedule),
		cmocka_unit_test(schedule_check_names_the_flag_that_is_wrong),
		cmocka_unit_test(optim_check_names_the_flag_that_is_wrong),
		cmocka_unit_test(an_optimizer_remembers_as_many_arrays_as_pytorchs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
