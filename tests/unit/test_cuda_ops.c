/* SPDX-License-Identifier: Apache-2.0
 *
 * Every op of the CUDA device beside the CPU device, on small graphs around it:
 * forward in both modes, input gradients, parameter gradients accumulated over
 * chunks of two slots by turns, running statistics. Three rounds, so that what
 * was captured as a graph is replayed with other inputs and draws. On whatever
 * this build has: emulated devices, or cards. See kernels/cuda/plan.h.
 *
 * To add a case: a function that builds its graph, and a row in `cases`.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#ifdef GP_CUDA_DEVICE
#include "tests/unit/device_pair.h"

#define ROUNDS 3
#define SLOTS  2

/* --- graphs ------------------------------------------------------------------------------------------------------- */

static struct gp_graph *begin(int64_t h, int64_t w, int64_t c)
{
	const struct gp_shape image = {.ndim = 3, .dim = {h, w, c}}, row = {.ndim = 1, .dim = {c}};
	struct gp_graph *g = gp_graph_new("case", h ? &image : &row, &err);
	assert_non_null(g);
	OK(gp_graph_begin_block(g, "block", &err));
	return g;
}

static struct gp_graph *end(struct gp_graph *g, int last)
{
	if (last < 0)
		fail_msg("%s", err.text);
	OK(gp_graph_finish(g, &err));
	return g;
}

static struct gp_graph *relu(void)
{
	struct gp_graph *g = begin(5, 7, 13);
	return end(g, gp_graph_unary(g, GP_OP_RELU, "act", 0, &err));
}

static struct gp_graph *relu6_behind_a_view(void)
{
	struct gp_graph *g = begin(1, 1, 61);
	int x = gp_graph_unary(g, GP_OP_FLATTEN, "flat", 0, &err);
	return end(g, gp_graph_unary(g, GP_OP_RELU6, "act", x, &err));
}

static struct gp_graph *views_alone(void)
{
	struct gp_graph *g = begin(1, 1, 9);
	int x = gp_graph_dropout(g, "drop", 0, 0.0f, &err);
	x = gp_graph_shortcut_pad(g, "shortcut", x, 1, 0, 0, &err);
	return end(g, gp_graph_unary(g, GP_OP_FLATTEN, "flat", x, &err));
}

/* The input has three readers, one value is added to itself, and a gradient that is handed on has two owners. */
static struct gp_graph *sums(void)
{
	struct gp_graph *g = begin(3, 5, 7);
	int r = gp_graph_unary(g, GP_OP_RELU, "r", 0, &err), s = gp_graph_unary(g, GP_OP_RELU6, "s", 0, &err);
	int a = gp_graph_sum(g, "a", r, s, &err);
	a = gp_graph_sum(g, "twice", a, a, &err);
	a = gp_graph_sum(g, "again", a, r, &err);
	return end(g, gp_graph_sum(g, "y", a, 0, &err));
}

static struct gp_graph *linear(void)
{
	struct gp_graph *g = begin(0, 0, 37);
	int x = gp_graph_linear(g, "first", 0, 19, true, &err);
	x = gp_graph_unary(g, GP_OP_RELU, "act", x, &err);
	return end(g, gp_graph_linear(g, "second", x, 11, false, &err));
}

/* Two linear layers and a sum read one value: contributions to its gradient are added by the ops. */
static struct gp_graph *linear_of_many_readers(void)
{
	struct gp_graph *g = begin(0, 0, 24);
	int r = gp_graph_linear(g, "in", 0, 24, true, &err);
	int a = gp_graph_linear(g, "a", r, 24, true, &err), b = gp_graph_linear(g, "b", r, 24, true, &err);
	a = gp_graph_sum(g, "s", a, b, &err);
	return end(g, gp_graph_sum(g, "t", a, r, &err));
}

static struct gp_graph *flatten_then_linear(void)
{
	struct gp_graph *g = begin(6, 7, 35);
	int x = gp_graph_unary(g, GP_OP_FLATTEN, "flat", 0, &err);
	return end(g, gp_graph_linear(g, "linear", x, 5, true, &err));
}

static struct gp_graph *flatten_alone(void)
{
	struct gp_graph *g = begin(9, 5, 33);
	return end(g, gp_graph_unary(g, GP_OP_FLATTEN, "flat", 0, &err));
}

static struct gp_graph *dropout(void)
{
	struct gp_graph *g = begin(0, 0, 1021);
	int x = gp_graph_dropout(g, "first", 0, 0.3f, &err);
	x = gp_graph_unary(g, GP_OP_RELU, "act", x, &err);
	return end(g, gp_graph_dropout(g, "second", x, 0.5f, &err));
}

static struct gp_graph *shortcuts(void)
{
	struct gp_graph *g = begin(7, 5, 6);
	int a = gp_graph_shortcut_pad(g, "a", 0, 2, 3, 4, &err), b = gp_graph_shortcut_pad(g, "b", 0, 2, 0, 7, &err);
	return end(g, gp_graph_sum(g, "y", a, b, &err));
}

static struct gp_graph *global_pool(void)
{
	struct gp_graph *g = begin(5, 6, 43);
	int r = gp_graph_unary(g, GP_OP_RELU, "r", 0, &err);
	int a = gp_graph_unary(g, GP_OP_GLOBAL_AVG_POOL, "a", r, &err);
	int b = gp_graph_unary(g, GP_OP_GLOBAL_AVG_POOL, "b", r, &err);
	a = gp_graph_sum(g, "s", a, b, &err);
	a = gp_graph_unary(g, GP_OP_FLATTEN, "flat", a, &err);
	return end(g, gp_graph_linear(g, "linear", a, 3, true, &err));
}

/* More rows than one slice of a bias gradient's sum. */
static struct gp_graph *many_rows(void)
{
	struct gp_graph *g = begin(0, 0, 3);
	return end(g, gp_graph_linear(g, "linear", 0, 41, true, &err));
}

static const struct {
	const char *name;
	struct gp_graph *(*build)(void);
	int batch;
} cases[] = {
	{"relu", relu, 3},
	{"relu6 behind a view", relu6_behind_a_view, 2},
	{"views alone", views_alone, 3},
	{"sums", sums, 2},
	{"linear", linear, 5},
	{"linear of many readers", linear_of_many_readers, 3},
	{"flatten, linear", flatten_then_linear, 3},
	{"flatten", flatten_alone, 2},
	{"dropout", dropout, 3},
	{"shortcuts", shortcuts, 3},
	{"global pool", global_pool, 3},
	{"many rows", many_rows, 1537},
};
#define CASES (sizeof cases / sizeof cases[0])

/* --- running ------------------------------------------------------------------------------------------------------ */

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

static void run_case(size_t i, enum gp_precision precision)
{
	struct gp_graph *g = cases[i].build();
	const struct gp_plan_spec spec = {.batch = cases[i].batch,
					  .slots = SLOTS,
					  .train = true,
					  .need_grad_input = true,
					  .seed = 11,
					  .precision = precision};
	struct pair p = make_pair(g, spec);
	print_message("  %s in %s\n", cases[i].name, gp_precision_name(precision));
	for (uint64_t round = 0; round < ROUNDS; round++)
		run_round(&p, round);
	compare_params(&p);
	drop_pair(&p);
	gp_graph_free(g);
}

static void ops_equal_those_of_the_cpu_in_fp32(void **state)
{
	(void)state;
	for (size_t i = 0; i < CASES; i++)
		run_case(i, GP_PRECISION_FP32);
}

static void ops_are_near_those_of_the_cpu_in_tf32(void **state)
{
	(void)state;
	for (size_t i = 0; i < CASES; i++)
		run_case(i, GP_PRECISION_TF32);
}

static void ops_are_near_those_of_the_cpu_in_bf16(void **state)
{
	(void)state;
	for (size_t i = 0; i < CASES; i++)
		run_case(i, GP_PRECISION_BF16);
}

/* A plan for evaluation keeps nothing, so that its ops work in place where a training plan's do not. */
static void ops_of_evaluation_plans_equal_those_of_the_cpu(void **state)
{
	(void)state;
	for (size_t i = 0; i < CASES; i++) {
		struct gp_graph *g = cases[i].build();
		const struct gp_plan_spec spec = {.batch = cases[i].batch, .slots = 1, .seed = 11};
		struct pair p = make_pair(g, spec);
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
		assert_memory_equal(p.plan[CPU]->ops->buffer(p.plan[CPU], 0, GP_BUF_OUTPUT),
				    p.plan[CUDA]->ops->buffer(p.plan[CUDA], 0, GP_BUF_OUTPUT),
				    elements(&p, GP_BUF_OUTPUT) * sizeof(float));
	}
	drop_pair(&p);
	gp_graph_free(g);
}

int main(void)
{
	if (!have_cuda()) {
		puts("no GPU here: nothing to test");
		return 77;
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ops_equal_those_of_the_cpu_in_fp32),
		cmocka_unit_test(ops_are_near_those_of_the_cpu_in_tf32),
		cmocka_unit_test(ops_are_near_those_of_the_cpu_in_bf16),
		cmocka_unit_test(ops_of_evaluation_plans_equal_those_of_the_cpu),
		cmocka_unit_test(masks_of_dropout_are_those_of_the_cpu),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
	puts("this build has no CUDA device: nothing to test");
	return 77;
}
#endif
