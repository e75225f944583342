/* SPDX-License-Identifier: Apache-2.0
 *
 * Which precision is taken, by times that nobody measured (GP_FAULT_PRECISION);
 * and trials themselves: of models with indices as inputs, with nothing that is
 * trained, of several parts, stopped.
 */
#include <string.h>

#include "common/base/fault.h"
#include "common/base/mem.h"
#include "common/base/stop.h"
#include "common/graph/precision_trial.h"
#include "kernels/device_registry.h"
#include "tests/unit/small_plan.h"

static void the_fastest_is_taken_where_it_is_worth_it(void **state)
{
	(void)state;
	static const struct {
		double s[GP_PRECISIONS];
		enum gp_precision want;
	} cases[] = {
		{{0, 0, 0}, GP_PRECISION_FP32}, /* nothing was tried */
		{{1, 0, 0}, GP_PRECISION_FP32},     {{1, 0.5, 0}, GP_PRECISION_BF16},
		{{1, 0.96, 0}, GP_PRECISION_FP32}, /* that is noise */
		{{1, 1.4, 0}, GP_PRECISION_FP32},   {{1, 0.5, 0.4}, GP_PRECISION_TF32},
		{{1, 0.4, 0.5}, GP_PRECISION_BF16}, {{1, 0, 0.5}, GP_PRECISION_TF32},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct gp_precision_trial t;
		memcpy(t.pass_s, cases[i].s, sizeof t.pass_s);
		assert_int_equal(gp_precision_fastest(&t), cases[i].want);
	}
}

static void a_trial_is_told_in_words(void **state)
{
	(void)state;
	char text[GP_PRECISION_TRIAL_TEXT];
	const struct gp_precision_trial none = {{0}}, two = {{0.0312, 0.0225, 0}},
					long_ones = {{1e9, 1.5e-7, 12345.678}};
	assert_string_equal(gp_precision_trial_text(&none, text), "");
	assert_string_equal(gp_precision_trial_text(&two, text), "fp32 31.2 ms, bf16 22.5 ms");
	assert_string_equal(gp_precision_trial_text(&long_ones, text),
			    "fp32 1e+12 ms, bf16 0.00015 ms, tf32 1.235e+07 ms");
}

static struct gp_device *open_cpu(void)
{
	struct gp_device *dev;
	OK(gp_device_open("cpu", 1, &dev, &err));
	return dev;
}

/* All of them, and nothing stays. */
static void expect_tried(const struct gp_plan_spec *spec, int plans)
{
	struct gp_device *dev = open_cpu();
	struct gp_precision_trial t;
	enum gp_precision got = GP_PRECISIONS;
	OK(gp_precision_choose(dev, spec, plans, &t, &got, &err));
	assert_true(gp_device_supports(dev, got));
	const bool several = gp_device_supports(dev, GP_PRECISION_BF16);
	for (int p = 0; p < GP_PRECISIONS; p++)
		assert_int_equal(t.pass_s[p] > 0, several && gp_device_supports(dev, (enum gp_precision)p));
	dev->ops->close(dev);
}

static void every_precision_of_a_device_is_tried(void **state)
{
	(void)state;
	struct gp_graph *g = build_graph();
	struct gp_plan_spec spec = spec_of(&optimizers[3]);
	spec.graph = g;
	expect_tried(&spec, 1);
	spec.train = false;
	expect_tried(&spec, 1);
	const struct gp_plan_spec parts[] = {spec, spec_of(&optimizers[0])};
	struct gp_plan_spec both[] = {parts[0], parts[1]};
	both[1].graph = g;
	expect_tried(both, 2);
	gp_graph_free(g);
}

static void nothing_has_to_be_trained(void **state)
{
	(void)state;
	struct gp_graph *g = build_graph();
	struct gp_plan_spec spec = spec_of(&optimizers[0]);
	g->trained_elements = 0;
	spec.grad_inputs = 0;
	spec.graph = g;
	const struct gp_plan_spec trial = gp_precision_trial_spec(&spec, GP_PRECISION_FP32);
	assert_false(trial.train);
	gp_graph_free(g);
}

static void what_the_times_say_is_taken(void **state)
{
	(void)state;
	if (!gp_faults_built_in)
		skip();
	struct gp_graph *g = build_graph();
	struct gp_plan_spec spec = spec_of(&optimizers[0]);
	struct gp_device *dev = open_cpu();
	const bool can = gp_device_supports(dev, GP_PRECISION_BF16);
	struct gp_precision_trial t;
	enum gp_precision got;
	spec.graph = g;
	gp_fault_arm(GP_FAULT_PRECISION, 50);
	OK(gp_precision_choose(dev, &spec, 1, &t, &got, &err));
	assert_int_equal(got, can ? GP_PRECISION_BF16 : GP_PRECISION_FP32);
	gp_fault_arm(GP_FAULT_PRECISION, 200);
	OK(gp_precision_choose(dev, &spec, 1, &t, &got, &err));
	assert_int_equal(got, GP_PRECISION_FP32);
	gp_fault_arm(GP_FAULT_PRECISION, 0);
	dev->ops->close(dev);
	gp_graph_free(g);
}

static void a_trial_ends_when_its_session_does(void **state)
{
	(void)state;
	struct gp_graph *g = build_graph();
	struct gp_plan_spec spec = spec_of(&optimizers[0]);
	struct gp_device *dev = open_cpu();
	struct gp_precision_trial t = {{0}};
	struct gp_stop stop = {0};
	spec.graph = g;
	spec.stop = &stop;
	gp_stop_set(&stop);
	assert_int_equal(gp_precision_try(dev, &spec, 1, GP_PRECISION_FP32, &t, &err), GP_CANCELED);
	assert_true(t.pass_s[GP_PRECISION_FP32] <= 0);
	dev->ops->close(dev);
	gp_graph_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_fastest_is_taken_where_it_is_worth_it),
		cmocka_unit_test(a_trial_is_told_in_words),
		cmocka_unit_test(every_precision_of_a_device_is_tried),
		cmocka_unit_test(nothing_has_to_be_trained),
		cmocka_unit_test(what_the_times_say_is_taken),
		cmocka_unit_test(a_trial_ends_when_its_session_does),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
