/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradient clipping (common/graph/clip.h): the factor, and what the CPU device does
 * to gradients, by thread count and instruction set. 50 steps beside PyTorch
 * are in test_optim_steps.c, split against local in test_engine.c.
 */
#include <math.h>
#include <string.h>

#include "common/graph/clip.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "kernels/loops/simd.h"
#include "tests/unit/ok.h"
#include "tests/unit/test_device.h"
#include "kernels/device_registry.h"
#include "common/graph/ops/op_linear.h"

enum { SIDE = 300, ELEMENTS = SIDE * SIDE }; /* more than a parameter that is summed in one piece */

struct bed {
	struct gp_graph *graph;
	struct gp_device *dev;
	struct gp_plan *plan;
};

static struct bed make_bed(int threads, const struct gp_optim *optim)
{
	struct bed b;
	const struct gp_shape sample = {.ndim = 1, .dim = {SIDE}};
	b.graph = gp_graph_new("linear", &sample, &err);
	OK(gp_graph_begin_block(b.graph, "block", &err));
	assert_true(gp_graph_linear(b.graph, "op", 0, SIDE, true, &err) > 0);
	OK(gp_graph_finish(b.graph, &err));
	OK(gp_device_open(test_device(), threads, &b.dev, &err));
	struct gp_plan_spec spec = {.graph = b.graph, .batch = 1, .slots = 1, .train = true, .optim = *optim};
	OK(b.dev->ops->plan_new(b.dev, &spec, &b.plan, &err));
	return b;
}

static void drop_bed(struct bed *b)
{
	b->dev->ops->plan_free(b->plan);
	b->dev->ops->close(b->dev);
	gp_graph_free(b->graph);
}

/* One sample: the weight's gradient is an outer product, the same for any number of threads. */
static void make_gradients(struct bed *b)
{
	float *x = b->dev->ops->buffer(b->plan, 0, GP_BUF_INPUT, 0);
	for (int i = 0; i < SIDE; i++)
		x[i] = gp_rng_normal(1, 1, (uint64_t)i);
	OK(b->dev->ops->forward(b->plan, 0, GP_TRAIN, 0, &err));
	float *gy = b->dev->ops->buffer(b->plan, 0, GP_BUF_GRAD_OUTPUT, 0);
	for (int i = 0; i < SIDE; i++)
		gy[i] = gp_rng_normal(1, 2, (uint64_t)i);
	OK(b->dev->ops->backward(b->plan, 0, &err));
}

static float *gradient(struct bed *b)
{
	float *g = gp_calloc(ELEMENTS, sizeof *g);
	assert_non_null(g);
	OK(b->dev->ops->grad_get(b->plan, 0, g, &err));
	return g;
}

static void the_factor_is_pytorchs(void **state)
{
	(void)state;
	assert_true(gp_clip_scale(2.0, 1.0) == 1.0f);
	assert_true(gp_clip_scale(2.0, 0.0) == 1.0f);
	assert_true(gp_clip_scale(1.0, 4.0) == (float)(1.0 / (4.0 + 1e-6)));
	assert_true(gp_clip_scale(1.0, 1.0) == (float)(1.0 / (1.0 + 1e-6)));
	assert_true(gp_clip_scale(1.0, (double)INFINITY) == 0.0f);
	assert_true(isnan(gp_clip_scale(1.0, (double)NAN)));
}

static void sums_of_parts_add_up_to_the_whole_to_the_bit(void **state)
{
	(void)state;
	double squares[64];
	for (int i = 0; i < 64; i++)
		squares[i] = (double)gp_rng_uniform(7, 3, (uint64_t)i) * pow(10.0, i % 9 - 4);
	const double whole = gp_clip_add(0.0, squares, 64);
	for (int cut = 0; cut <= 64; cut++)
		assert_true(gp_clip_add(gp_clip_add(0.0, squares, cut), squares + cut, 64 - cut) == whole);
}

static void squares_depend_on_neither_threads_nor_processor(void **state)
{
	(void)state;
	static const enum gp_isa isas[] = {GP_ISA_PORTABLE, GP_ISA_AVX2, GP_ISA_AVX512};
	const struct gp_optim optim = {.kind = GP_OPTIM_SGD};
	double first[2] = {0};
	for (int threads = 1; threads <= 3; threads++) {
		struct bed b = make_bed(threads, &optim);
		make_gradients(&b);
		for (int i = 0; i < 3; i++) {
			double squares[2] = {-1, -1};
			gp_isa_limit(isas[i]);
			OK(b.dev->ops->grad_squares(b.plan, squares, &err));
			if (threads == 1 && i == 0)
				memcpy(first, squares, sizeof first);
			assert_memory_equal(squares, first, sizeof first);
		}
		drop_bed(&b);
	}
	struct bed b = make_bed(1, &optim);
	make_gradients(&b);
	float *g = gradient(&b);
	double want = 0.0;
	for (int i = 0; i < ELEMENTS; i++)
		want += (double)g[i] * (double)g[i];
	assert_true(fabs(first[0] - want) < 1e-13 * want);
	gp_free(g);
	drop_bed(&b);
}

static void without_a_backward_pass_the_norm_is_zero(void **state)
{
	(void)state;
	const struct gp_optim optim = {.kind = GP_OPTIM_SGD, .clip_norm = 1.0};
	struct bed b = make_bed(1, &optim);
	double squares[2] = {-1, -1};
	for (int step = 0; step < 2; step++) {
		OK(b.dev->ops->grad_squares(b.plan, squares, &err));
		assert_true(squares[0] == 0.0 && squares[1] == 0.0);
		make_gradients(&b);
		OK(gp_clip_update(b.plan, 0.1f, 1.0, &err)); /* gradients are zero again */
	}
	drop_bed(&b);
}

static void scaling_and_clamping_change_every_element_alike(void **state)
{
	(void)state;
	static const enum gp_isa isas[] = {GP_ISA_PORTABLE, GP_ISA_AVX2, GP_ISA_AVX512};
	const struct gp_optim optim = {.kind = GP_OPTIM_SGD};
	for (int i = 0; i < 3; i++) {
		struct bed b = make_bed(1 + i, &optim);
		gp_isa_limit(isas[i]);
		make_gradients(&b);
		float *before = gradient(&b);
		OK(b.dev->ops->grad_scale(b.plan, 0.3f, &err));
		float *scaled = gradient(&b);
		OK(b.dev->ops->grad_clamp(b.plan, 0.125f, &err));
		float *clamped = gradient(&b);
		for (int k = 0; k < ELEMENTS; k++) {
			assert_true(scaled[k] == 0.3f * before[k]);
			assert_true(clamped[k] == fminf(fmaxf(scaled[k], -0.125f), 0.125f));
		}
		gp_free(before);
		gp_free(scaled);
		gp_free(clamped);
		drop_bed(&b);
	}
}

static void clamping_leaves_nan_and_limits_infinity(void **state)
{
	(void)state;
	const struct gp_optim optim = {.kind = GP_OPTIM_SGD};
	struct bed b = make_bed(1, &optim);
	make_gradients(&b);
	OK(b.dev->ops->grad_scale(b.plan, INFINITY, &err));
	OK(b.dev->ops->grad_clamp(b.plan, 2.0f, &err));
	float *g = gradient(&b);
	for (int k = 0; k < ELEMENTS; k++)
		assert_true(fabsf(g[k]) == 2.0f);
	gp_free(g);
	OK(b.dev->ops->grad_scale(b.plan, NAN, &err));
	OK(b.dev->ops->grad_clamp(b.plan, 2.0f, &err));
	g = gradient(&b);
	for (int k = 0; k < ELEMENTS; k++)
		assert_true(isnan(g[k]));
	gp_free(g);
	drop_bed(&b);
}

static int restore_isa(void **state)
{
	(void)state;
	gp_isa_limit(GP_ISA_AVX512);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_factor_is_pytorchs),
		cmocka_unit_test(sums_of_parts_add_up_to_the_whole_to_the_bit),
		cmocka_unit_test_teardown(squares_depend_on_neither_threads_nor_processor, restore_isa),
		cmocka_unit_test(without_a_backward_pass_the_norm_is_zero),
		cmocka_unit_test_teardown(scaling_and_clamping_change_every_element_alike, restore_isa),
		cmocka_unit_test(clamping_leaves_nan_and_limits_infinity),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
