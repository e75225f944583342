/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norms folded into convolutions in plans for evaluation (kernels/cpu/plan/cpu_fold.h): such a plan agrees with the
 * evaluation of one that trains, which folds nothing, for each kind of convolution, for whole models, and after parameters
 * have changed; its bits depend neither on the number of threads nor on the instruction set, on ARM64 either. What may not be
 * folded is not.
 */
#include <math.h>
#include <string.h>

#include "client/models/models.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/base/threads.h"
#include "common/graph/device.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_elementwise.h"
#include "kernels/cpu/math/gemm.h"
#include "kernels/device_registry.h"
#include "kernels/loops/simd.h"
#include "tests/sanitized.h"
#include "tests/unit/ok.h"
#include "tests/unit/same_bits.h"

enum { BATCH = 3 };

#define CLOSE 1e-5
#define BITS  0xb9e925d5a3a4da92u /* of all layers' outputs, on every processor */

/* --- plans ------------------------------------------------------------------------------------------------------- */

struct bed {
	struct gp_device *dev;
	struct gp_plan *plan;
};

static struct bed make_bed(const struct gp_graph *g, bool train, int threads)
{
	struct bed b;
	const struct gp_plan_spec spec = {.graph = g, .batch = BATCH, .slots = 1, .train = train, .seed = 7};
	OK(gp_device_open("cpu", threads, &b.dev, &err));
	OK(b.dev->ops->plan_new(b.dev, &spec, &b.plan, &err));
	return b;
}

static void drop_bed(struct bed *b)
{
	b->plan->ops->plan_free(b->plan);
	b->dev->ops->close(b->dev);
}

/* In [low, high): no function of the C library, so that it is the same everywhere. */
static float between(float low, float high, uint64_t stream, uint64_t i)
{
	return low + (high - low) * gp_rng_uniform(4, gp_rng_stream(GP_RNG_SYNTHETIC, stream), i);
}

static float drawn(enum gp_param_role role, uint64_t fan_in, uint64_t stream, uint64_t i)
{
	switch (role) {
	case GP_PARAM_RUNNING_VAR:
		return between(0.5f, 2.0f, stream, i);
	case GP_PARAM_RUNNING_MEAN:
	case GP_PARAM_BIAS:
		return between(-0.5f, 0.5f, stream, i);
	default: /* of a norm: fan_in is 1 */
		if (fan_in > 1)
			return between(-1.7f, 1.7f, stream, i) / sqrtf((float)fan_in);
		return between(0.5f, 1.5f, stream, i);
	}
}

/* Parameters that make each norm do something, `variant` of them. */
static void set_params(struct gp_plan *plan, uint64_t variant)
{
	const struct gp_graph *g = plan->spec.graph;
	for (int p = 0; p < g->params; p++) {
		const struct gp_param *param = &g->param[p];
		const uint64_t fan_in = param->shape.ndim > 1 ? param->count / (uint64_t)param->shape.dim[0] : 1;
		float *v = gp_calloc(param->count, sizeof *v);
		assert_non_null(v);
		for (uint64_t i = 0; i < param->count; i++)
			v[i] = drawn(param->role, fan_in, 10 + variant * 1000 + (uint64_t)p, i);
		OK(plan->ops->param_set(plan, p, v, &err));
		gp_free(v);
	}
}

static uint64_t output_count(const struct gp_graph *g)
{
	return BATCH * gp_shape_elements(gp_graph_output_shape(g));
}

static void evaluate(struct gp_plan *plan, float *out)
{
	const struct gp_graph *g = plan->spec.graph;
	float *x = plan->ops->buffer(plan, 0, GP_BUF_INPUT, 0);
	for (uint64_t i = 0; i < BATCH * gp_shape_elements(gp_graph_input_shape(g)); i++)
		x[i] = between(-1.0f, 1.0f, 1, i);
	OK(plan->ops->forward(plan, 0, GP_EVAL, 0, &err));
	memcpy(out, plan->ops->buffer(plan, 0, GP_BUF_OUTPUT, 0), output_count(g) * sizeof *out);
}

/* What a new plan evaluates to. Caller frees. */
static float *outputs_of(const struct gp_graph *g, bool train, int threads)
{
	struct bed b = make_bed(g, train, threads);
	float *out = gp_calloc(output_count(g), sizeof *out);
	assert_non_null(out);
	set_params(b.plan, 0);
	evaluate(b.plan, out);
	drop_bed(&b);
	return out;
}

static bool same(const float *a, const float *b, uint64_t n)
{
	return memcmp(a, b, n * sizeof *a) == 0;
}

static void expect_close(const char *what, const float *got, const float *want, uint64_t n)
{
	const double d = relative_l2(got, want, n);
	if (!(d <= CLOSE))
		fail_msg("%s: relative L2 difference %.3g, at most %.3g is fine", what, d, CLOSE);
}

/* --- one convolution, its norm and its activation ------------------------------------------------------------------ */

struct layer {
	const char *what;
	int in, size, out, kernel, stride, pad, groups;
	enum gp_op act; /* GP_OP_BATCH_NORM: none */
};

static const struct layer layers[] = {
	{"1x1", 24, 9, 40, 1, 1, 0, 1, GP_OP_RELU6},
	{"1x1, odd", 17, 7, 35, 1, 1, 0, 1, GP_OP_RELU},
	{"1x1, wide", 96, 5, 144, 1, 1, 0, 1, GP_OP_BATCH_NORM},
	{"1x1, one vector", 33, 5, 11, 1, 1, 0, 1, GP_OP_RELU6},
	{"1x1, two vectors", 8, 5, 32, 1, 1, 0, 1, GP_OP_RELU},
	{"1x1, four vectors", 40, 3, 64, 1, 1, 0, 1, GP_OP_RELU6},
	{"1x1, several panels", 12, 3, 130, 1, 1, 0, 1, GP_OP_RELU},
	{"depthwise", 48, 10, 48, 3, 1, 1, 48, GP_OP_RELU6},
	{"depthwise, odd, stride 2", 21, 9, 21, 3, 2, 1, 21, GP_OP_RELU},
	{"depthwise, one pixel", 40, 1, 40, 3, 1, 1, 40, GP_OP_BATCH_NORM},
	{"Winograd", 32, 9, 48, 3, 1, 1, 1, GP_OP_RELU},
	{"Winograd, odd", 19, 11, 21, 3, 1, 1, 1, GP_OP_BATCH_NORM},
	{"Winograd, stride 2", 64, 9, 128, 3, 2, 1, 1, GP_OP_RELU6},
	{"Winograd, 4 pixels, stride 2", 64, 4, 128, 3, 2, 1, 1, GP_OP_RELU},
	{"Winograd, 2 pixels", 64, 2, 64, 3, 1, 1, 1, GP_OP_RELU},
	{"Winograd, one pixel", 64, 1, 48, 3, 1, 1, 1, GP_OP_RELU},
};
enum { LAYERS = sizeof layers / sizeof layers[0] };

/* apart: the norm begins a block of its own. shared: somebody else reads the convolution, too. */
static struct gp_graph *graph_of(const struct layer *l, bool apart, bool shared)
{
	const struct gp_shape image = {.ndim = 3, .dim = {l->size, l->size, l->in}};
	struct gp_graph *g = gp_graph_new("layer", &image, &err);
	assert_non_null(g);
	OK(gp_graph_begin_block(g, "first", &err));
	const int conv = gp_graph_conv(g, "conv", 0, l->out, l->kernel, l->stride, l->pad, l->groups, false, &err);
	if (apart)
		OK(gp_graph_begin_block(g, "second", &err));
	int x = gp_graph_batch_norm(g, "norm", conv, 1e-3f, 0.1f, &err);
	if (l->act != GP_OP_BATCH_NORM)
		x = gp_graph_unary(g, l->act, "act", x, &err);
	if (shared)
		x = gp_graph_sum(g, "sum", x, conv, &err);
	assert_true(x > 0);
	OK(gp_graph_finish(g, &err));
	return g;
}

static void each_kind_of_convolution_takes_its_norm_and_activation(void **state)
{
	(void)state;
	for (int i = 0; i < LAYERS; i++) {
		struct gp_graph *g = graph_of(&layers[i], false, false);
		float *want = outputs_of(g, true, 1), *got = outputs_of(g, false, 1), *two = outputs_of(g, false, 2);
		expect_close(layers[i].what, got, want, output_count(g));
		if (gp_gemm_supported() && same(got, want, output_count(g)))
			fail_msg("%s: nothing was folded", layers[i].what);
		assert_true(same(two, got, output_count(g)));
		gp_free(want);
		gp_free(got);
		gp_free(two);
		gp_graph_free(g);
	}
}

static uint64_t bits_of_layers(void)
{
	uint64_t bits = BITS_BEGIN;
	for (int i = 0; i < LAYERS; i++) {
		struct gp_graph *g = graph_of(&layers[i], false, false);
		float *got = outputs_of(g, false, 1);
		bits = bits_of(bits, got, (int64_t)output_count(g));
		gp_free(got);
		gp_graph_free(g);
	}
	return bits;
}

static void all_instruction_sets_give_the_same_bits(void **state)
{
	(void)state;
	if (!gp_gemm_supported())
		skip();
	for (enum gp_isa isa = GP_ISA_AVX2; isa <= gp_isa_best(); isa++) {
		gp_isa_limit(isa);
		const uint64_t bits = bits_of_layers();
		gp_isa_limit(GP_ISA_AVX512);
		if (bits != BITS)
			fail_msg("%s: the bits are %#llx", gp_isa_name(isa), (unsigned long long)bits);
	}
}

static void a_norm_of_another_block_or_beside_another_reader_is_not_folded(void **state)
{
	(void)state;
	for (int i = 0; i < LAYERS; i++) {
		for (int shared = 0; shared < 2; shared++) {
			struct gp_graph *g = graph_of(&layers[i], !shared, shared);
			float *want = outputs_of(g, true, 1), *got = outputs_of(g, false, 1);
			assert_true(same(got, want, output_count(g)));
			gp_free(want);
			gp_free(got);
			gp_graph_free(g);
		}
	}
}

static void without_own_kernels_nothing_is_folded(void **state)
{
	(void)state;
	gp_isa_limit(GP_ISA_PORTABLE);
	for (int i = 0; i < LAYERS; i++) {
		struct gp_graph *g = graph_of(&layers[i], false, false);
		float *want = outputs_of(g, true, 1), *got = outputs_of(g, false, 1);
		assert_true(same(got, want, output_count(g)));
		gp_free(want);
		gp_free(got);
		gp_graph_free(g);
	}
	gp_isa_limit(GP_ISA_AVX512);
}

/* What is not a number stays so, as behind a norm and an activation of their own. */
static void a_not_a_number_goes_through(void **state)
{
	(void)state;
	for (int i = 0; i < LAYERS; i++) {
		struct gp_graph *g = graph_of(&layers[i], false, false);
		float *out = gp_calloc(output_count(g), sizeof *out);
		struct bed b = make_bed(g, false, 1);
		assert_non_null(out);
		set_params(b.plan, 0);
		float *x = b.plan->ops->buffer(b.plan, 0, GP_BUF_INPUT, 0);
		for (uint64_t k = 0; k < BATCH * gp_shape_elements(gp_graph_input_shape(g)); k++)
			x[k] = NAN;
		OK(b.plan->ops->forward(b.plan, 0, GP_EVAL, 0, &err));
		memcpy(out, b.plan->ops->buffer(b.plan, 0, GP_BUF_OUTPUT, 0), output_count(g) * sizeof *out);
		for (uint64_t k = 0; k < output_count(g); k++)
			if (!isnan(out[k]))
				fail_msg("%s: element %llu is %g", layers[i].what, (unsigned long long)k,
					 (double)out[k]);
		drop_bed(&b);
		gp_free(out);
		gp_graph_free(g);
	}
}

/* --- whole models ------------------------------------------------------------------------------------------------- */

static const struct {
	const char *model;
	int side;
} models[] = {{"mobilenetv2:width=0.5,stem=cifar", 16}, {"mobilenetv2:width=0.35", 64}, {"resnet18", 32}};

static struct gp_graph *model_of(int i)
{
	struct gp_graph *g;
	const struct gp_model_options options = {.classes = 10,
						 .input = {.ndim = 3, .dim = {models[i].side, models[i].side, 3}}};
	OK(gp_model_build(models[i].model, &options, &g, &err));
	return g;
}

static void models_agree_with_the_evaluation_of_a_training(void **state)
{
	(void)state;
	const int count = IS_SANITIZED ? 2 : (int)(sizeof models / sizeof models[0]);
	for (int i = 0; i < count; i++) {
		struct gp_graph *g = model_of(i);
		float *want = outputs_of(g, true, 1), *got = outputs_of(g, false, 1), *two = outputs_of(g, false, 2);
		print_message("%s: %.2g apart\n", models[i].model, relative_l2(got, want, output_count(g)));
		expect_close(models[i].model, got, want, output_count(g));
		assert_true(relative_l2(want, two, output_count(g)) <= CLOSE && same(two, got, output_count(g)));
		gp_free(want);
		gp_free(got);
		gp_free(two);
		gp_graph_free(g);
	}
}

static void parameters_that_change_are_folded_anew(void **state)
{
	(void)state;
	struct gp_graph *g = model_of(0);
	const uint64_t n = output_count(g);
	struct bed trains = make_bed(g, true, 1), evaluates = make_bed(g, false, 1);
	float *want = gp_calloc(n, sizeof *want), *got = gp_calloc(n, sizeof *got), *before = gp_calloc(n, sizeof *got);
	assert_true(want && got && before);
	for (uint64_t variant = 0; variant < 3; variant++) {
		set_params(trains.plan, variant);
		set_params(evaluates.plan, variant);
		evaluate(trains.plan, want);
		evaluate(evaluates.plan, got);
		expect_close("changed", got, want, n);
		assert_false(same(got, before, n));
		memcpy(before, got, n * sizeof *got);
	}
	drop_bed(&trains);
	drop_bed(&evaluates);
	gp_free(want);
	gp_free(got);
	gp_free(before);
	gp_graph_free(g);
}

/* What a device says beforehand is what such a plan takes, and it is less than for training. */
static void a_plan_takes_what_was_estimated(void **state)
{
	(void)state;
	struct gp_graph *g = model_of(2);
	struct gp_plan_memory want, got, training;
	struct bed b = make_bed(g, false, 1);
	struct gp_plan_spec spec = b.plan->spec;
	OK(b.dev->ops->plan_estimate(b.dev, &spec, &want, &err));
	spec.train = true;
	OK(b.dev->ops->plan_estimate(b.dev, &spec, &training, &err));
	b.plan->ops->plan_memory(b.plan, &got);
	assert_memory_equal(&got, &want, sizeof got);
	assert_true(got.total < training.total);
	drop_bed(&b);
	gp_graph_free(g);
}

int main(int argc, char **argv)
{
	(void)argc;
	gp_threads_prepare(argv);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_kind_of_convolution_takes_its_norm_and_activation),
		cmocka_unit_test(all_instruction_sets_give_the_same_bits),
		cmocka_unit_test(a_norm_of_another_block_or_beside_another_reader_is_not_folded),
		cmocka_unit_test(without_own_kernels_nothing_is_folded),
		cmocka_unit_test(a_not_a_number_goes_through),
		cmocka_unit_test(models_agree_with_the_evaluation_of_a_training),
		cmocka_unit_test(parameters_that_change_are_folded_anew),
		cmocka_unit_test(a_plan_takes_what_was_estimated),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
