/* SPDX-License-Identifier: Apache-2.0
 *
 * Every op of the CUDA device beside the CPU device, on small graphs around it:
 * forward in both modes, input gradients, parameter gradients accumulated over
 * chunks of two slots by turns, running statistics. Three rounds, so that what
 * was captured as a graph is replayed with other inputs and draws. On whatever
 * this build has: emulated devices, or cards. See kernels/cuda/plan/cuda_plan.h; the graphs,
 * and where to add one: op_graphs.h.
 */
#include "tests/unit/op_graphs.h"
#include "tests/sanitized.h"

#define ROUNDS 3
#define SLOTS  2

/* Two chunks in flight: both forward, then both backward. */
static void run_round(struct pair *p, uint64_t round)
{
	for (int s = 0; s < SLOTS; s++) {
		fill_both(p, s, GP_BUF_INPUT, 2 * round + (uint64_t)s);
		forward_both(p, s, GP_TRAIN, 100 * round + (uint64_t)s);
		compare_buffer(p, s, GP_BUF_OUTPUT);
	}
	for (int s = 0; s < SLOTS; s++) {
		fill_both(p, s, GP_BUF_GRAD_OUTPUT, 2 * round + (uint64_t)s);
		backward_both(p, s);
		compare_buffer(p, s, GP_BUF_GRAD_INPUT);
	}
	compare_grads(p);
	fill_both(p, 1, GP_BUF_INPUT, 1000 + round);
	forward_both(p, 1, GP_EVAL, 0);
	compare_buffer(p, 1, GP_BUF_OUTPUT);
}

/* Scales, biases and statistics of their own: from 1 and 0 on, gradients vanish where a second batch norm follows. */
static void draw_vectors(struct pair *p)
{
	for (int i = 0; i < p->graph->params; i++) {
		const struct gp_param *q = &p->graph->param[i];
		float *v = gp_calloc(q->count, sizeof *v);
		assert_non_null(v);
		for (uint64_t k = 0; k < q->count; k++)
			v[k] = 0.5f + gp_rng_uniform(13, (uint64_t)i, k);
		for (int d = 0; q->shape.ndim == 1 && d < BOTH; d++)
			OK(p->plan[d]->ops->param_set(p->plan[d], i, v, &err));
		gp_free(v);
	}
}

/*
 * Rounding decides otherwise about values near the edge of an activation or near the maximum of a window: of a share
 * e of them, which moves gradients by about the root of e. Layers add to that.
 */
static double tolerance_for(const struct gp_graph *g, enum gp_precision precision)
{
	bool normed = false, chooses = false;
	for (int i = 0; i < g->nodes; i++) {
		const enum gp_op op = g->node[i].op;
		normed = normed || op == GP_OP_BATCH_NORM;
		chooses = chooses || op == GP_OP_MAX_POOL || (normed && (op == GP_OP_RELU || op == GP_OP_RELU6));
	}
	if (!chooses || precision == GP_PRECISION_FP32)
		return tolerance_of(precision);
	return precision == GP_PRECISION_BF16 ? 0.3 : 0.08; /* one of 27 in a channel is a lot */
}

static void run_case(size_t i, enum gp_precision precision)
{
	struct gp_graph *g = op_cases[i].build();
	const struct gp_plan_spec spec = {.batch = op_cases[i].batch,
					  .slots = SLOTS,
					  .train = true,
					  .grad_inputs = ~(uint64_t)0,
					  .seed = 11,
					  .precision = precision};
	struct pair p = make_pair(g, spec);
	p.tolerance = tolerance_for(g, precision);
	draw_vectors(&p);
	print_message("  %s in %s\n", op_cases[i].name, gp_precision_name(precision));
	for (uint64_t round = 0; round < ROUNDS; round++)
		run_round(&p, round);
	compare_params(&p);
	for (int d = 0; d < BOTH; d++) /* running statistics that move at the end of a step */
		OK(p.plan[d]->ops->optim_step(p.plan[d], 0.0f, &err));
	compare_params(&p);
	drop_pair(&p);
	gp_graph_free(g);
}

static void ops_equal_those_of_the_cpu_in_fp32(void **state)
{
	(void)state;
	for (size_t i = 0; i < OP_CASES; i++)
		run_case(i, GP_PRECISION_FP32);
}

static void ops_are_near_those_of_the_cpu_in_tf32(void **state)
{
	(void)state;
	for (size_t i = 0; i < OP_CASES; i++)
		if (!left_to_plain_runs(2, (int)i)) /* the others: in bf16 */
			run_case(i, GP_PRECISION_TF32);
}

static void ops_are_near_those_of_the_cpu_in_bf16(void **state)
{
	(void)state;
	for (size_t i = 0; i < OP_CASES; i++)
		if (!left_to_plain_runs(2, (int)i + 1))
			run_case(i, GP_PRECISION_BF16);
}

/* A plan for evaluation keeps nothing, so that its ops work in place where a training plan's do not. */
static void ops_of_evaluation_plans_equal_those_of_the_cpu(void **state)
{
	(void)state;
	for (size_t i = 0; i < OP_CASES; i++) {
		struct gp_graph *g = op_cases[i].build();
		const struct gp_plan_spec spec = {.batch = op_cases[i].batch, .slots = 1, .seed = 11};
		struct pair p = make_pair(g, spec);
		draw_vectors(&p);
		for (uint64_t round = 0; round < ROUNDS; round++) {
			fill_both(&p, 0, GP_BUF_INPUT, round);
			forward_both(&p, 0, GP_EVAL, 0);
			compare_buffer(&p, 0, GP_BUF_OUTPUT);
		}
		drop_pair(&p);
		gp_graph_free(g);
	}
}

static void masks_of_dropout_are_those_of_the_cpu(void **state)
{
	(void)state;
	struct gp_graph *g = dropout();
	const struct gp_plan_spec spec = {.batch = 3, .slots = 1, .train = true, .seed = 77};
	struct pair p = make_pair(g, spec);
	for (uint64_t draw = 0; draw < 3; draw++) {
		fill_both(&p, 0, GP_BUF_INPUT, 1);
		forward_both(&p, 0, GP_TRAIN, draw * 1000003);
		assert_memory_equal(p.plan[CPU]->ops->buffer(p.plan[CPU], 0, GP_BUF_OUTPUT, 0),
				    p.plan[CUDA]->ops->buffer(p.plan[CUDA], 0, GP_BUF_OUTPUT, 0),
				    elements(&p, GP_BUF_OUTPUT) * sizeof(float));
	}
	drop_pair(&p);
	gp_graph_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ops_equal_those_of_the_cpu_in_fp32),
		cmocka_unit_test(ops_are_near_those_of_the_cpu_in_tf32),
		cmocka_unit_test(ops_are_near_those_of_the_cpu_in_bf16),
		cmocka_unit_test(ops_of_evaluation_plans_equal_those_of_the_cpu),
		cmocka_unit_test(masks_of_dropout_are_those_of_the_cpu),
	};
	return run_on_gpu(tests, NULL, NULL);
}
