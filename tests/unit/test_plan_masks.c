/* SPDX-License-Identifier: Apache-2.0
 *
 * Activations and maximum pooling keep bits for backward where nobody keeps the
 * map (kernels/cpu/plan/cpu_plan.h, "Masks"): how many, where not, and that
 * gradients are those of a plan that keeps the map, bit for bit. Wherever a
 * model is cut, with maps that lie encoded, with blocks that are computed a
 * second time: test_plan_kept.c; graphs at random: test_plan_walk.c.
 */
#include <string.h>

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/base/threads.h"
#include "common/graph/device.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_pool.h"
#include "kernels/device_registry.h"
#include "tests/unit/ok.h"
#include "tests/unit/test_device.h"

enum { BATCH = 4, SIDE = 12, PIXELS = BATCH * SIDE * SIDE, CHANNELS = 24 };

/* What all graphs and plans here have; a test that changes it puts it back. */
static int channels = CHANNELS;
static enum gp_precision precision = GP_PRECISION_FP32;

static uint64_t map_elements(void)
{
	return (uint64_t)PIXELS * (uint64_t)channels;
}

static uint64_t real_bytes(void)
{
	return precision == GP_PRECISION_BF16 ? 2 : 4;
}

static uint64_t aligned(uint64_t bytes)
{
	const uint64_t align = on_cpu() ? 64 : 256;
	return (bytes + align - 1) / align * align;
}

static struct gp_graph *begin(void)
{
	const struct gp_shape image = {.ndim = 3, .dim = {SIDE, SIDE, channels}};
	struct gp_graph *g = gp_graph_new("masks", &image, &err);
	assert_non_null(g);
	OK(gp_graph_begin_block(g, "block", &err));
	return g;
}

static int conv(struct gp_graph *g, const char *name, int in)
{
	return gp_graph_conv(g, name, in, channels, 1, 1, 0, 1, false, &err);
}

static int max_pool(struct gp_graph *g, int in, int kernel, int stride)
{
	return gp_graph_pool(g, GP_OP_MAX_POOL, "pool", in, kernel, stride, kernel / 2, &err);
}

/* Besides `last`, so that it lies in an IO buffer: `map`, where it is none below 0. */
static struct gp_graph *end(struct gp_graph *g, int last, int map)
{
	if (last < 0)
		fail_msg("%s", err.text);
	OK(gp_graph_set_outputs(g, map < 0 ? 1 : 2, (const int[]){last, map}, &err));
	OK(gp_graph_finish(g, &err));
	return g;
}

static uint64_t kept_bytes(const struct gp_graph *g)
{
	struct gp_device *dev;
	struct gp_plan_memory m;
	const struct gp_plan_spec spec = {
		.graph = g, .batch = BATCH, .slots = 1, .train = true, .grad_inputs = 1, .precision = precision};
	OK(gp_device_open(test_device(), 1, &dev, &err));
	OK(dev->ops->plan_estimate(dev, &spec, &m, &err));
	dev->ops->close(dev);
	return m.activations;
}

/* --- how many bits ------------------------------------------------------------------------------------------------ */

static struct gp_graph *activation_and_pool(enum gp_op op, int kernel, int stride, bool keeps_map)
{
	struct gp_graph *g = begin();
	const int act = gp_graph_unary(g, op, "act", conv(g, "c", 0), &err);
	return end(g, max_pool(g, act, kernel, stride), keeps_map ? act : -1);
}

static void an_activation_before_a_pooling_keeps_a_bit_and_the_pooling_a_place(void **state)
{
	(void)state;
	const struct {
		int kernel, stride, out, bits, on_gpu;
	} pools[] = {{2, 2, 7, 2, 4}, {3, 2, 6, 4, 4}, {5, 5, 3, 8, 8}};
	const uint64_t mask = aligned(PIXELS * CHANNELS / 8);
	for (size_t i = 0; i < sizeof pools / sizeof pools[0]; i++) {
		const uint64_t pixels = (uint64_t)(BATCH * pools[i].out * pools[i].out);
		const int bits = on_cpu() ? pools[i].bits : pools[i].on_gpu;
		const uint64_t words = (uint64_t)(CHANNELS * bits + 31) / 32;
		struct gp_graph *g = activation_and_pool(GP_OP_RELU6, pools[i].kernel, pools[i].stride, false);
		assert_int_equal(kept_bytes(g), mask + aligned(4 * pixels * words));
		gp_graph_free(g);
	}
}

/* The convolution that trains keeps the value for the gradient of its weights; frozen it keeps nothing. */
static void an_activation_whose_value_is_kept_has_no_mask(void **state)
{
	(void)state;
	for (int frozen = 0; frozen < 2; frozen++) {
		struct gp_graph *g = begin();
		const int act = gp_graph_unary(g, GP_OP_RELU, "act", conv(g, "c", 0), &err);
		end(g, conv(g, "d", act), -1);
		if (frozen)
			assert_int_equal(gp_graph_freeze(g, "d.*"), 1);
		assert_int_equal(kept_bytes(g), frozen ? aligned(PIXELS * CHANNELS / 8) : PIXELS * CHANNELS * 4);
		gp_graph_free(g);
	}
}

static struct gp_graph *frozen_norm(const char *frozen, bool keeps_map)
{
	struct gp_graph *g = begin();
	const int x = conv(g, "c", 0), norm = gp_graph_batch_norm(g, "n", x, 1e-5f, 0.1f, &err);
	const int act = gp_graph_unary(g, GP_OP_RELU, "act", norm, &err);
	end(g, conv(g, "d", act), keeps_map ? x : -1);
	assert_int_equal(gp_graph_freeze(g, frozen), frozen[0] == '[' ? 3 : 2);
	return g;
}

static void a_frozen_norm_keeps_its_input_where_it_has_to_alone(void **state)
{
	(void)state;
	struct gp_graph *all = frozen_norm("[nd].*", false), *norm = frozen_norm("n.*", false);
	const uint64_t map = PIXELS * CHANNELS * 4, little = map / 16;
	if (on_cpu())
		assert_true(kept_bytes(all) < little);
	else /* a GPU keeps a frozen norm's input */
		assert_true(kept_bytes(all) >= map && kept_bytes(all) < map + little);
	assert_true(kept_bytes(norm) >= map && kept_bytes(norm) < 2 * map + little);
	gp_graph_free(all);
	gp_graph_free(norm);
}

/* --- the same gradients ------------------------------------------------------------------------------------------- */

enum { WEIGHTS = CHANNELS * CHANNELS };

struct results {
	float out[PIXELS * CHANNELS], dx[PIXELS * CHANNELS], grad[2][WEIGHTS];
	uint64_t outputs;
};

static void draw(float *to, uint64_t n, uint64_t stream)
{
	for (uint64_t i = 0; i < n; i++)
		to[i] = 3.0f * gp_rng_normal(8, stream, i);
}

/* The gradient of a map that is an output is 0. */
static void run(const struct gp_graph *g, int threads, struct results *r)
{
	struct gp_device *dev;
	struct gp_plan *p;
	const struct gp_plan_spec spec = {.graph = g,
					  .batch = BATCH,
					  .slots = 1,
					  .train = true,
					  .grad_inputs = 1,
					  .seed = 2,
					  .precision = precision};
	OK(gp_device_open(test_device(), threads, &dev, &err));
	OK(dev->ops->plan_new(dev, &spec, &p, &err));
	r->outputs = BATCH * gp_shape_elements(&gp_graph_output_type(g, 0)->shape);
	draw(dev->ops->buffer(p, 0, GP_BUF_INPUT, 0), map_elements(), 1);
	OK(dev->ops->forward(p, 0, GP_TRAIN, 0, &err));
	memcpy(r->out, dev->ops->buffer(p, 0, GP_BUF_OUTPUT, 0), r->outputs * sizeof(float));
	draw(dev->ops->buffer(p, 0, GP_BUF_GRAD_OUTPUT, 0), r->outputs, 2);
	if (g->outputs > 1)
		memset(dev->ops->buffer(p, 0, GP_BUF_GRAD_OUTPUT, 1), 0, map_elements() * sizeof(float));
	OK(dev->ops->backward(p, 0, &err));
	memcpy(r->dx, dev->ops->buffer(p, 0, GP_BUF_GRAD_INPUT, 0), map_elements() * sizeof(float));
	memset(r->grad, 0, sizeof r->grad);
	for (int i = 0, at = 0; i < g->params; i++)
		if (g->param[i].trained && g->param[i].count == (uint64_t)channels * (uint64_t)channels)
			OK(dev->ops->grad_get(p, i, r->grad[at++], &err));
	dev->ops->plan_free(p);
	dev->ops->close(dev);
}

/* 0 and -0 are one. */
static void expect_equal(const float *got, const float *want, uint64_t n, const char *what)
{
	for (uint64_t i = 0; i < n; i++)
		if (got[i] != want[i])
			fail_msg("%s, element %llu: %.9g, not %.9g", what, (unsigned long long)i, (double)got[i],
				 (double)want[i]);
}

static bool has_others_than_zero(const float *x, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		if (x[i] != 0.0f)
			return true;
	return false;
}

static void expect_same(struct gp_graph *bits, struct gp_graph *map)
{
	static struct results got, want;
	for (int threads = 1; threads <= test_threads(); threads++) {
		run(bits, threads, &got);
		run(map, threads, &want);
		expect_equal(got.out, want.out, got.outputs, "output");
		expect_equal(got.dx, want.dx, map_elements(), "input's gradient");
		expect_equal(got.grad[0], want.grad[0], WEIGHTS, "first weights' gradient");
		expect_equal(got.grad[1], want.grad[1], WEIGHTS, "second weights' gradient");
		assert_true(has_others_than_zero(want.dx, map_elements()));
	}
	gp_graph_free(bits);
	gp_graph_free(map);
}

static void gradients_are_those_of_plans_that_keep_the_maps(void **state)
{
	(void)state;
	static const enum gp_op ops[] = {GP_OP_RELU, GP_OP_RELU6};
	for (int i = 0; i < 2; i++) {
		expect_same(activation_and_pool(ops[i], 2, 2, false), activation_and_pool(ops[i], 2, 2, true));
		expect_same(activation_and_pool(ops[i], 3, 2, false), activation_and_pool(ops[i], 3, 2, true));
	}
	expect_same(frozen_norm("[nd].*", false), frozen_norm("[nd].*", true));
}

/* --- a GPU's channels and types ----------------------------------------------------------------------------------- */

/* Bits of a place are those that the kernels' threads, which have 16 bytes of channels each or one channel, write. */
static void a_gpu_keeps_places_as_its_threads_have_channels(void **state)
{
	(void)state;
	static const struct {
		int channels;
		enum gp_precision precision;
		int small, large; /* bits of a place in a window of 3x3 and of 5x5 */
	} cases[] = {{24, GP_PRECISION_FP32, 4, 8}, {24, GP_PRECISION_BF16, 4, 8}, {12, GP_PRECISION_FP32, 4, 8},
		     {12, GP_PRECISION_BF16, 8, 8}, {3, GP_PRECISION_FP32, 8, 8},  {3, GP_PRECISION_BF16, 8, 8}};
	for (size_t i = 0; !on_cpu() && i < sizeof cases / sizeof cases[0]; i++) {
		channels = cases[i].channels;
		precision = cases[i].precision;
		const uint64_t n = map_elements(), small = BATCH * 36 * (uint64_t)channels,
			       large = BATCH * 9 * (uint64_t)channels;
		struct gp_graph *three = activation_and_pool(GP_OP_RELU6, 3, 2, false),
				*five = activation_and_pool(GP_OP_RELU6, 5, 5, false);
		const uint64_t rest = kept_bytes(five) - aligned(large * (uint64_t)cases[i].large / 8);
		/* The mask; in bf16 the convolution's input besides, which lies in an IO buffer in fp32. */
		assert_int_equal(rest, aligned((n + 7) / 8) + (real_bytes() == 2 ? aligned(2 * n) : 0));
		assert_int_equal(kept_bytes(three), rest + aligned(small * (uint64_t)cases[i].small / 8));
		gp_graph_free(three);
		gp_graph_free(five);
		expect_same(activation_and_pool(GP_OP_RELU6, 3, 2, false),
			    activation_and_pool(GP_OP_RELU6, 3, 2, true));
		expect_same(activation_and_pool(GP_OP_RELU, 5, 5, false), activation_and_pool(GP_OP_RELU, 5, 5, true));
	}
	channels = CHANNELS;
	precision = GP_PRECISION_FP32;
}

/* Where an output has another type at the plan's edge, the plan's own copy need not stay. */
static void an_activation_at_the_edge_keeps_a_mask_in_bf16(void **state)
{
	(void)state;
	for (int narrow = 0; !on_cpu() && narrow < 2; narrow++) {
		precision = narrow ? GP_PRECISION_BF16 : GP_PRECISION_FP32;
		struct gp_graph *g = begin();
		end(g, gp_graph_unary(g, GP_OP_RELU, "act", conv(g, "c", 0), &err), -1);
		assert_int_equal(kept_bytes(g),
				 narrow ? aligned(2 * PIXELS * CHANNELS) + aligned(PIXELS * CHANNELS / 8) : 0);
		gp_graph_free(g);
	}
	precision = GP_PRECISION_FP32;
}

int main(int argc, char **argv)
{
	(void)argc;
	gp_threads_prepare(argv);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_activation_before_a_pooling_keeps_a_bit_and_the_pooling_a_place),
		cmocka_unit_test(an_activation_whose_value_is_kept_has_no_mask),
		cmocka_unit_test(a_frozen_norm_keeps_its_input_where_it_has_to_alone),
		cmocka_unit_test(gradients_are_those_of_plans_that_keep_the_maps),
		cmocka_unit_test(a_gpu_keeps_places_as_its_threads_have_channels),
		cmocka_unit_test(an_activation_at_the_edge_keeps_a_mask_in_bf16),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
