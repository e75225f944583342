/* SPDX-License-Identifier: Apache-2.0
 *
 * A small graph trains on the CUDA device as on the CPU: optimizers and their
 * states, clipping, the loss, copies in bf16, many chunks in flight. Whole models:
 * test_cuda_steps.c. On whatever this build has: emulated devices, or cards.
 */
#include "common/graph/clip.h"
#include "tests/unit/small_plan.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_linear.h"

static void compare_loss(struct pair *p, int slot, uint64_t chunk, int valid)
{
	struct gp_loss_result loss[BOTH];
	int32_t labels[BATCH];
	fill_labels(labels, chunk);
	for (int d = 0; d < BOTH; d++)
		OK(p->plan[d]->ops->loss(p->plan[d], slot, labels, valid, true, 1.0f / (BATCH * CHUNKS), &loss[d],
					 &err));
	assert_true(fabs(loss[CUDA].loss_sum - loss[CPU].loss_sum) <= p->tolerance * fabs(loss[CPU].loss_sum));
	assert_int_equal(loss[CUDA].correct, loss[CPU].correct);
	compare_buffer(p, slot, GP_BUF_GRAD_OUTPUT);
}

static void run_chunks(struct pair *p, uint64_t step)
{
	for (int c = 0; c < CHUNKS; c++) {
		const uint64_t chunk = step * CHUNKS + (uint64_t)c;
		fill_both(p, c % SLOTS, GP_BUF_INPUT, chunk);
		forward_both(p, c % SLOTS, GP_TRAIN, chunk);
		compare_loss(p, c % SLOTS, chunk, BATCH - c % 2);
		backward_both(p, c % SLOTS);
	}
}

static void update_both(struct pair *p, float lr)
{
	for (int d = 0; d < BOTH; d++)
		OK(p->plan[d]->ops->optim_step(p->plan[d], lr, &err));
}

static void compare_states(struct pair *p)
{
	static read_param *const states[] = {first_state, second_state};
	const int n = p->plan[CUDA]->ops->optim_states(p->plan[CUDA]);
	assert_int_equal(n, p->plan[CPU]->ops->optim_states(p->plan[CPU]));
	for (int k = 0; k < n; k++)
		for (int i = 0; i < p->graph->params; i++)
			if (p->graph->param[i].trained)
				compare_param(p, i, "optimizer state", states[k], states[k]);
}

static void optimizers_step_as_the_cpu_does(void **state)
{
	(void)state;
	struct gp_graph *g = build_graph();
	for (int i = 0; i < OPTIMIZERS; i++) {
		struct pair p = make_pair(g, spec_of(&optimizers[i]));
		for (uint64_t step = 0; step < 4; step++) {
			run_chunks(&p, step);
			compare_grads(&p);
			update_both(&p, 0.02f / (float)(step + 1));
			compare_params(&p);
			compare_states(&p);
			compare_grads(&p); /* zero again */
			assert_int_equal(p.plan[CUDA]->ops->optim_count_get(p.plan[CUDA]), step + 1);
		}
		drop_pair(&p);
	}
	gp_graph_free(g);
}

/* Copies in bf16 follow the masters, which small updates move by less than a bf16 shows. */
static void training_in_bf16_goes_the_way_of_fp32(void **state)
{
	(void)state;
	struct gp_graph *g = build_graph();
	struct gp_plan_spec spec = spec_of(&optimizers[1]);
	spec.precision = GP_PRECISION_BF16;
	struct pair p = make_pair(g, spec);
	for (uint64_t step = 0; step < 4; step++) {
		run_chunks(&p, step);
		update_both(&p, 0.05f);
	}
	compare_params(&p);
	drop_pair(&p);
	gp_graph_free(g);
}

static struct gp_graph *build_convolution(void)
{
	const struct gp_shape sample = {.ndim = 3, .dim = {5, 5, 8}};
	struct gp_graph *g = gp_graph_new("convolution", &sample, &err);
	assert_non_null(g);
	OK(gp_graph_begin_block(g, "block", &err));
	assert_true(gp_graph_conv(g, "conv", 0, 8, 3, 1, 1, 1, true, &err) > 0);
	OK(gp_graph_finish(g, &err));
	return g;
}

/* Steps so large that little is left of the weights before: the copies of them that ops keep must follow. */
static void gradients_of_inputs_are_those_of_the_weights_after_an_update(void **state)
{
	(void)state;
	struct gp_graph *g = build_convolution();
	for (int precision = 0; precision < 3; precision++) {
		struct gp_plan_spec spec = spec_of(&optimizers[0]);
		spec.precision = (enum gp_precision)precision;
		struct pair p = make_pair(g, spec);
		for (uint64_t step = 0; step < 4; step++) {
			fill_both(&p, 0, GP_BUF_INPUT, step);
			fill_both(&p, 0, GP_BUF_GRAD_OUTPUT, step);
			forward_both(&p, 0, GP_TRAIN, step);
			compare_buffer(&p, 0, GP_BUF_OUTPUT);
			backward_both(&p, 0);
			compare_buffer(&p, 0, GP_BUF_GRAD_INPUT);
			update_both(&p, 0.1f);
		}
		drop_pair(&p);
	}
	gp_graph_free(g);
}

static void clipping_does_what_the_cpu_does(void **state)
{
	(void)state;
	struct gp_graph *g = build_graph();
	struct pair p = make_pair(g, spec_of(&optimizers[0]));
	double squares[BOTH][8];
	assert_true(gp_clip_sums(g) <= 8);
	for (int round = 0; round < 2; round++) { /* before any gradient is there, and with some */
		for (int d = 0; d < BOTH; d++)
			OK(p.plan[d]->ops->grad_squares(p.plan[d], squares[d], &err));
		for (int i = 0; i < gp_clip_sums(g); i++)
			assert_true(fabs(squares[CUDA][i] - squares[CPU][i]) <= 1e-4 * squares[CPU][i]);
		run_chunks(&p, (uint64_t)round);
	}
	for (int d = 0; d < BOTH; d++) {
		OK(p.plan[d]->ops->grad_scale(p.plan[d], 3.0f, &err));
		OK(p.plan[d]->ops->grad_clamp(p.plan[d], 0.02f, &err));
	}
	compare_grads(&p);
	drop_pair(&p);
	gp_graph_free(g);
}

/* More than one chunk of a sum's table. */
static void sums_of_squares_of_a_large_parameter_are_right(void **state)
{
	(void)state;
	const struct gp_shape sample = {.ndim = 1, .dim = {509}};
	struct gp_graph *g = gp_graph_new("wide", &sample, &err);
	double squares[BOTH][2];
	OK(gp_graph_begin_block(g, "block", &err));
	assert_true(gp_graph_linear(g, "linear", 0, 211, true, &err) > 0);
	OK(gp_graph_finish(g, &err));
	struct pair p = make_pair(g, spec_of(&optimizers[0]));
	fill_both(&p, 0, GP_BUF_INPUT, 1);
	forward_both(&p, 0, GP_TRAIN, 0);
	fill_both(&p, 0, GP_BUF_GRAD_OUTPUT, 1);
	backward_both(&p, 0);
	for (int d = 0; d < BOTH; d++)
		OK(p.plan[d]->ops->grad_squares(p.plan[d], squares[d], &err));
	for (int i = 0; i < 2; i++)
		assert_true(fabs(squares[CUDA][i] - squares[CPU][i]) <= 1e-5 * squares[CPU][i]);
	drop_pair(&p);
	gp_graph_free(g);
}

static void labels_that_do_not_fit_are_refused(void **state)
{
	(void)state;
	struct gp_graph *g = build_graph();
	struct pair p = make_pair(g, spec_of(&optimizers[0]));
	struct gp_plan *plan = p.plan[CUDA];
	struct gp_loss_result loss;
	const int32_t high[BATCH] = {0, CLASSES, 0}, low[BATCH] = {0, 0, -1}, good[BATCH] = {0};
	assert_int_equal(plan->ops->loss(plan, 0, high, BATCH, false, 1, &loss, &err), GP_INVALID);
	assert_int_equal(plan->ops->loss(plan, 0, low, BATCH, false, 1, &loss, &err), GP_INVALID);
	assert_int_equal(plan->ops->loss(plan, 0, good, BATCH + 1, false, 1, &loss, &err), GP_INTERNAL);
	OK(plan->ops->loss(plan, 0, high, 1, false, 1, &loss, &err)); /* what is not valid is not looked at */
	drop_pair(&p);
	gp_graph_free(g);
}

/* Beyond so many slots there are no graphs. */
static void many_slots_are_as_good_as_one(void **state)
{
	(void)state;
	struct gp_graph *g = build_graph();
	struct gp_plan_spec spec = spec_of(&optimizers[0]);
	spec.slots = 70;
	struct pair p = make_pair(g, spec);
	for (int s = 0; s < spec.slots; s++) {
		fill_both(&p, s, GP_BUF_INPUT, (uint64_t)s);
		forward_both(&p, s, GP_TRAIN, (uint64_t)s);
	}
	for (int s = spec.slots - 1; s >= 0; s--) {
		compare_loss(&p, s, (uint64_t)s, BATCH);
		backward_both(&p, s);
	}
	compare_grads(&p);
	drop_pair(&p);
	gp_graph_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(optimizers_step_as_the_cpu_does),
		cmocka_unit_test(training_in_bf16_goes_the_way_of_fp32),
		cmocka_unit_test(gradients_of_inputs_are_those_of_the_weights_after_an_update),
		cmocka_unit_test(clipping_does_what_the_cpu_does),
		cmocka_unit_test(sums_of_squares_of_a_large_parameter_are_right),
		cmocka_unit_test(labels_that_do_not_fit_are_refused),
		cmocka_unit_test(many_slots_are_as_good_as_one),
	};
	return run_on_gpu(tests, NULL, NULL);
}
