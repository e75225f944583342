/* SPDX-License-Identifier: Apache-2.0
 *
 * A model that gp_graph_cut cuts in three, at every place: inside residual
 * blocks too, where several values cross and some pass from head to tail. The
 * three plans together equal one plan of the whole bit for bit: outputs,
 * gradients, running statistics, updates; with chunks in flight, on any number
 * of threads, with parts frozen, on every device. See graph_part.h, plan_walk.h.
 */
#include "tests/unit/parts_rig.h"

static void cuts_inside_an_encoder_change_no_bit(void **state)
{
	(void)state;
	check_everywhere(build_encoder(), 23);
}

static void cuts_inside_residual_blocks_change_no_bit(void **state)
{
	(void)state;
	check_everywhere(build_residuals(), 23);
}

static void cuts_inside_inverted_residuals_change_no_bit(void **state)
{
	(void)state;
	check_everywhere(build_inverted(), 7);
}

static void cuts_around_norms_of_shared_values_change_no_bit(void **state)
{
	(void)state;
	check_everywhere(build_norms(), 3);
}

static void cuts_through_tokens_and_a_mask_change_no_bit(void **state)
{
	(void)state;
	check_everywhere(build_tokens(), 5);
}

/* --- frozen parts ------------------------------------------------------------------------------------------------- */

/* From the front up to somewhere in a residual block, in the middle, of a batch norm one parameter alone. */
static void frozen_parts_change_no_bit_wherever_the_cut_is(void **state)
{
	(void)state;
	static const char *const patterns[][3] = {{"stem*", "a0*", NULL},
						  {"a1_conv*", "b1*", "down_bn*"},
						  {"*_bn.weight", "fc.bias", NULL},
						  {"*_conv*", NULL, NULL}};
	for (size_t p = 0; p < sizeof patterns / sizeof patterns[0]; p++) {
		struct gp_graph *g = build_residuals();
		for (int k = 0; k < 3 && patterns[p][k]; k++)
			assert_true(gp_graph_freeze(g, patterns[p][k]) > 0);
		check_all_cuts("cpu", 1, g, 5, GP_PRECISION_FP32);
		check_all_cuts("cpu", 2, g, 23, GP_PRECISION_FP32);
		check_all_cuts("cuda-emulated", 1, g, 41, GP_PRECISION_FP32);
		check_all_cuts("cuda", 1, g, 5, GP_PRECISION_FP32);
		gp_graph_free(g);
	}
}

/* Where nothing before the cut is trained, no gradient crosses it. */
static void nothing_goes_back_into_a_frozen_head(void **state)
{
	(void)state;
	struct gp_graph *g = build_residuals();
	struct gp_device *dev;
	const struct gp_cut cut = {8, 20};
	assert_true(gp_graph_freeze_blocks(g, 0, cut.head) > 0);
	OK(gp_device_open("cpu", 1, &dev, &err));
	struct run r = make_split(dev, g, cut, GP_PRECISION_FP32);
	struct gp_plan_memory m;
	r.plan[HEAD]->ops->plan_memory(r.plan[HEAD], &m);
	assert_int_equal(m.grads + m.optim + m.activations, 0);
	assert_int_equal(r.parts.body_gradient, 0);
	assert_true(r.parts.body->inputs >= 2);
	for (int i = 0; i < r.parts.body->inputs; i++)
		assert_null(buffer(&r, BODY, 0, GP_BUF_GRAD_INPUT, i));
	for (int i = 0; i < r.parts.head->outputs; i++)
		assert_null(buffer(&r, HEAD, 0, GP_BUF_GRAD_OUTPUT, i));
	drop(&r);
	dev->ops->close(dev);
	gp_graph_free(g);
}

int main(int argc, char **argv)
{
	(void)argc;
	gp_threads_prepare(argv);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cuts_inside_residual_blocks_change_no_bit),
		cmocka_unit_test(cuts_inside_an_encoder_change_no_bit),
		cmocka_unit_test(cuts_inside_inverted_residuals_change_no_bit),
		cmocka_unit_test(cuts_around_norms_of_shared_values_change_no_bit),
		cmocka_unit_test(cuts_through_tokens_and_a_mask_change_no_bit),
		cmocka_unit_test(frozen_parts_change_no_bit_wherever_the_cut_is),
		cmocka_unit_test(nothing_goes_back_into_a_frozen_head),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
