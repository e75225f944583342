/* SPDX-License-Identifier: Apache-2.0
 *
 * --precision bf16 on the CPU device: a plan in bf16 computes what a plan in
 * fp32 (which test_cpu_ops.c compares with PyTorch) makes of operands rounded
 * beforehand; training follows fp32's; a processor without it is refused.
 * Skipped where the processor lacks AVX512_BF16, on ARM64 FEAT_BF16, but
 * for the refusals.
 */
#include <math.h>
#include <string.h>

#include "common/graph/device.h"
#include "kernels/device_registry.h"
#include "common/base/mem.h"
#include "client/models/models.h"
#include "common/base/rng.h"
#include "common/base/threads.h"
#include "kernels/cpu/math/bf16.h"
#include "kernels/loops/simd.h"
#include "tests/sanitized.h"
#include "tests/unit/bf16_reference.h"
#include "tests/unit/ok.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/ops/op_conv.h"

#define TOLERANCE 2e-5 /* relative L2: sums in fp32 in another order */
#define COARSE    1e-2 /* of a sum of rounded against one of unrounded values, or the other way round */
#define BATCH     3

/* --- one op, in both precisions ---------------------------------------------------------------------------------- */

struct layer {
	enum gp_op op;
	int in, size, out; /* channels, height and width, channels */
	int kernel, stride, pad, groups;
	bool bias;
	bool bf16; /* whether its products are expected in bf16: else in fp32, exactly */
};

static const struct layer layers[] = {
	{GP_OP_CONV2D, 32, 9, 48, 3, 1, 1, 1, true, true},
	{GP_OP_CONV2D, 32, 9, 48, 3, 1, 1, 1, false, false},
	{GP_OP_CONV2D, 32, 9, 64, 3, 2, 1, 1, true, true},
	{GP_OP_CONV2D, 3, 20, 32, 3, 2, 1, 1, false, true},
	{GP_OP_CONV2D, 3, 20, 64, 7, 2, 3, 1, false, true},
	{GP_OP_CONV2D, 64, 8, 32, 1, 2, 0, 1, false, true},
	{GP_OP_CONV2D, 24, 8, 40, 1, 1, 0, 1, true, true},
	{GP_OP_CONV2D, 24, 30, 144, 1, 1, 0, 1, false, true},
	{GP_OP_CONV2D, 147, 21, 35, 1, 1, 0, 1, false, true},
	{GP_OP_CONV2D, 17, 7, 19, 3, 1, 1, 1, true, true},
	{GP_OP_CONV2D, 48, 10, 48, 3, 1, 1, 48, false, false},
	{GP_OP_CONV2D_TRANSPOSE, 32, 5, 16, 3, 2, 0, 1, true, true},
	{GP_OP_LINEAR, 37, 1, 29, 0, 0, 0, 0, true, true},
	{GP_OP_LINEAR, 320, 1, 100, 0, 0, 0, 0, false, true},
};
#define LAYERS (sizeof layers / sizeof layers[0])

static struct gp_graph *graph_of(const struct layer *l)
{
	struct gp_shape image = {.ndim = 3, .dim = {l->size, l->size, l->in}}, row = {.ndim = 1, .dim = {l->in}};
	struct gp_node n = {.op = l->op, .name = "op", .inputs = 1, .in = {0}};
	int index;
	if (l->op == GP_OP_LINEAR)
		gp_set_linear_attr(&n, (struct gp_linear_attr){l->out, l->bias});
	else
		gp_set_conv_attr(&n, (struct gp_conv_attr){.out_channels = l->out,
							   .kernel_h = l->kernel,
							   .kernel_w = l->kernel,
							   .stride_h = l->stride,
							   .stride_w = l->stride,
							   .pad_top = l->pad,
							   .pad_bottom = l->pad,
							   .pad_left = l->pad,
							   .pad_right = l->pad,
							   .groups = l->groups,
							   .bias = l->bias});
	struct gp_graph *g = gp_graph_new("layer", l->op == GP_OP_LINEAR ? &row : &image, &err);
	assert_non_null(g);
	OK(gp_graph_begin_block(g, "block", &err));
	OK(gp_graph_add(g, &n, &index, &err));
	OK(gp_graph_finish(g, &err));
	return g;
}

struct results {
	float *y, *gx, *grad[2];
	uint64_t y_count, gx_count, grad_count[2];
};

static float *draw(uint64_t count, uint64_t stream, bool rounded)
{
	float *v = gp_calloc(count, sizeof *v);
	assert_non_null(v);
	for (uint64_t i = 0; i < count; i++) {
		v[i] = gp_rng_normal(4, gp_rng_stream(GP_RNG_SYNTHETIC, stream), i);
		if (rounded)
			v[i] = bf16_rounded(v[i]);
	}
	return v;
}

static void fill(struct gp_plan *plan, enum gp_plan_buf which, uint64_t count, bool rounded)
{
	float *v = draw(count, which, rounded);
	memcpy(plan->ops->buffer(plan, 0, which, 0), v, count * sizeof *v);
	gp_free(v);
}

static float *copy_of(const float *v, uint64_t count)
{
	float *copy = gp_calloc(count, sizeof *copy);
	assert_non_null(copy);
	memcpy(copy, v, count * sizeof *copy);
	return copy;
}

/* A bias is added in fp32: never rounded. */
static void set_params(struct gp_plan *plan, bool rounded)
{
	const struct gp_graph *g = plan->spec.graph;
	for (int i = 0; i < g->params; i++) {
		float *v = draw(g->param[i].count, 10 + (uint64_t)i, rounded && g->param[i].role == GP_PARAM_WEIGHT);
		OK(plan->ops->param_set(plan, i, v, &err));
		gp_free(v);
	}
}

/* Two chunks, so that gradients add up: the second as the first. */
static void run(struct gp_plan *plan, struct results *r, bool rounded)
{
	const struct gp_graph *g = plan->spec.graph;
	const struct gp_device_ops *ops = plan->ops;
	r->gx_count = BATCH * gp_shape_elements(gp_graph_input_shape(g));
	r->y_count = BATCH * gp_shape_elements(gp_graph_output_shape(g));
	set_params(plan, rounded);
	for (int chunk = 0; chunk < 2; chunk++) {
		fill(plan, GP_BUF_INPUT, r->gx_count, rounded);
		OK(ops->forward(plan, 0, GP_TRAIN, 0, &err));
		fill(plan, GP_BUF_GRAD_OUTPUT, r->y_count, rounded);
		OK(ops->backward(plan, 0, &err));
	}
	r->y = copy_of(ops->buffer(plan, 0, GP_BUF_OUTPUT, 0), r->y_count);
	r->gx = copy_of(ops->buffer(plan, 0, GP_BUF_GRAD_INPUT, 0), r->gx_count);
	for (int i = 0; i < g->params; i++) {
		r->grad_count[i] = g->param[i].count;
		r->grad[i] = gp_calloc(g->param[i].count, sizeof(float));
		OK(ops->grad_get(plan, i, r->grad[i], &err));
	}
}

static void run_layer(const struct layer *l, enum gp_precision precision, bool rounded, int threads, struct results *r)
{
	struct gp_device *dev;
	struct gp_plan *plan;
	struct gp_graph *g = graph_of(l);
	struct gp_plan_spec spec = {.graph = g,
				    .batch = BATCH,
				    .slots = 1,
				    .train = true,
				    .grad_inputs = 1,
				    .seed = 3,
				    .precision = precision};
	memset(r, 0, sizeof *r);
	OK(gp_device_open("cpu", threads, &dev, &err));
	OK(dev->ops->plan_new(dev, &spec, &plan, &err));
	run(plan, r, rounded);
	plan->ops->plan_free(plan);
	dev->ops->close(dev);
	gp_graph_free(g);
}

static void drop(struct results *r)
{
	gp_free(r->y);
	gp_free(r->gx);
	gp_free(r->grad[0]);
	gp_free(r->grad[1]);
}

static void expect_close(size_t layer, const char *what, const float *got, const float *want, uint64_t n, double most)
{
	double d = relative_l2(got, want, n);
	if (!(d <= most))
		fail_msg("layer %zu, %s: relative L2 difference %.3g, at most %.3g is fine", layer, what, d, most);
}

static void check_layer(size_t i, int threads)
{
	const struct layer *l = &layers[i];
	struct results got, want, plain;
	run_layer(l, GP_PRECISION_BF16, false, threads, &got);
	run_layer(l, GP_PRECISION_FP32, l->bf16, threads, &want);
	run_layer(l, GP_PRECISION_FP32, false, threads, &plain);
	const double most = l->bf16 ? TOLERANCE : 0.0;
	expect_close(i, "y", got.y, want.y, got.y_count, most);
	expect_close(i, "gx", got.gx, want.gx, got.gx_count, most);
	expect_close(i, "weight gradient", got.grad[0], want.grad[0], got.grad_count[0], most);
	if (l->bias)
		expect_close(i, "bias gradient", got.grad[1], want.grad[1], got.grad_count[1], COARSE);
	double rounding = relative_l2(got.y, plain.y, got.y_count);
	if (l->bf16 && !(rounding > 1e-4 && rounding < COARSE))
		fail_msg("layer %zu: the difference to fp32, %.3g, is not that of bf16", i, rounding);
	drop(&got);
	drop(&want);
	drop(&plain);
}

static void products_in_bf16_are_those_of_rounded_operands_summed_in_fp32(void **state)
{
	(void)state;
	if (!gp_bf16_supported())
		skip();
	for (size_t i = 0; i < LAYERS; i++) {
		check_layer(i, 1);
		check_layer(i, 2);
	}
}

/* --- training ---------------------------------------------------------------------------------------------------- */

enum { STEPS = 30, SAMPLES = 16, CLASSES = 10 };

/* Class k: brighter in its own place. */
static void fill_batch(float *x, int32_t *labels, uint64_t pixels, int step)
{
	for (uint64_t i = 0; i < SAMPLES; i++) {
		labels[i] = (int32_t)gp_rng_below(7, gp_rng_stream(GP_RNG_SYNTHETIC, 1), (uint64_t)step * SAMPLES + i,
						  CLASSES);
		for (uint64_t k = 0; k < pixels; k++)
			x[i * pixels + k] = 0.5f * gp_rng_normal(7, gp_rng_stream(GP_RNG_SYNTHETIC, 2),
								 ((uint64_t)step * SAMPLES + i) * pixels + k) +
					    (k * CLASSES / pixels == (uint64_t)labels[i] ? 1.0f : 0.0f);
	}
}

static void train(const char *model, enum gp_precision precision, double *loss)
{
	struct gp_device *dev;
	struct gp_plan *plan;
	struct gp_graph *g;
	struct gp_model_options options = {.classes = CLASSES, .input = {.ndim = 3, .dim = {16, 16, 3}}};
	int32_t labels[SAMPLES];
	OK(gp_model_build(model, &options, &g, &err));
	struct gp_plan_spec spec = {.graph = g, .batch = SAMPLES, .slots = 1, .train = true, .seed = 5};
	spec.optim = (struct gp_optim){.kind = GP_OPTIM_SGD, .momentum = 0.9f};
	spec.precision = precision;
	OK(gp_device_open("cpu", 1, &dev, &err));
	OK(dev->ops->plan_new(dev, &spec, &plan, &err));
	for (int s = 0; s < STEPS; s++) {
		struct gp_loss_result r;
		fill_batch(dev->ops->buffer(plan, 0, GP_BUF_INPUT, 0), labels,
			   gp_shape_elements(gp_graph_input_shape(g)), s);
		OK(dev->ops->forward(plan, 0, GP_TRAIN, 0, &err));
		OK(dev->ops->loss(plan, 0, labels, SAMPLES, true, 1.0f / SAMPLES, &r, &err));
		OK(dev->ops->backward(plan, 0, &err));
		OK(dev->ops->optim_step(plan, 0.02f, &err));
		loss[s] = r.loss_sum / SAMPLES;
	}
	dev->ops->plan_free(plan);
	dev->ops->close(dev);
	gp_graph_free(g);
}

static void check_training(const char *model)
{
	double want[STEPS], got[STEPS], again[STEPS], first = 0.0, last = 0.0, off = 0.0;
	train(model, GP_PRECISION_FP32, want);
	train(model, GP_PRECISION_BF16, got);
	train(model, GP_PRECISION_BF16, again);
	assert_memory_equal(got, again, sizeof got);
	for (int s = 0; s < STEPS / 3; s++) {
		first += got[s] / (STEPS / 3);
		last += got[STEPS - 1 - s] / (STEPS / 3);
	}
	for (int s = 0; s < STEPS; s++)
		off += fabs(got[s] - want[s]) / STEPS;
	print_message("%s: loss %.3f to %.3f, on average %.4f from fp32's\n", model, first, last, off);
	assert_true(fabs(got[0] - want[0]) < 0.02 * want[0]);
	assert_true(off > 0.0 && off < 0.05 * first);
	assert_true(last < 0.9 * first);
}

static void training_in_bf16_repeats_itself_and_follows_fp32(void **state)
{
	(void)state;
	if (!gp_bf16_supported())
		skip();
	check_training("cnn");
	if (!IS_SANITIZED) /* takes minutes then */
		check_training("resnet20:width=0.5");
}

/* Weights are packed in half the room; what a device says beforehand is what it takes. */
static void a_plan_takes_what_was_estimated_and_less_for_packed_weights(void **state)
{
	(void)state;
	if (!gp_bf16_supported())
		skip();
	struct gp_graph *g;
	struct gp_device *dev;
	struct gp_plan *plan;
	struct gp_plan_memory want, got, plain;
	struct gp_model_options options = {.classes = CLASSES, .input = {.ndim = 3, .dim = {32, 32, 3}}};
	OK(gp_model_build("mobilenetv2:stem=cifar", &options, &g, &err));
	struct gp_plan_spec spec = {.graph = g, .batch = 2, .slots = 2, .train = true};
	OK(gp_device_open("cpu", 2, &dev, &err));
	OK(dev->ops->plan_estimate(dev, &spec, &plain, &err));
	spec.precision = GP_PRECISION_BF16;
	OK(dev->ops->plan_estimate(dev, &spec, &want, &err));
	OK(dev->ops->plan_new(dev, &spec, &plan, &err));
	dev->ops->plan_memory(plan, &got);
	assert_memory_equal(&got, &want, sizeof got);
	assert_true(got.params < plain.params);
	assert_in_range(got.grads, plain.grads,
			plain.grads / 100 * 101); /* with AMX oneDNN pads a picture's channels to 16 */
	assert_int_equal(got.activations, plain.activations);
	dev->ops->plan_free(plan);
	dev->ops->close(dev);
	gp_graph_free(g);
}

/* --- refusals ---------------------------------------------------------------------------------------------------- */

static void a_processor_without_bf16_is_refused_and_goes_on_in_fp32(void **state)
{
	(void)state;
	struct gp_device *dev;
	struct gp_plan *plan;
	struct gp_plan_memory memory;
	struct gp_graph *g = graph_of(&layers[0]);
	struct gp_plan_spec spec = {.graph = g, .batch = 1, .slots = 1, .precision = GP_PRECISION_BF16};
	OK(gp_device_open("cpu", 1, &dev, &err));
	gp_isa_limit(ISA_WITHOUT_BF16);
	assert_false(gp_device_supports(dev, GP_PRECISION_BF16));
	assert_true(gp_device_supports(dev, GP_PRECISION_FP32));
	assert_int_equal(dev->ops->plan_estimate(dev, &spec, &memory, &err), GP_DEVICE);
	assert_int_equal(dev->ops->plan_new(dev, &spec, &plan, &err), GP_DEVICE);
	assert_int_equal(gp_status_exit(err.code), 5);
	assert_non_null(strstr(err.text, "bf16"));
	spec.precision = GP_PRECISION_FP32;
	OK(dev->ops->plan_new(dev, &spec, &plan, &err));
	dev->ops->plan_free(plan);
	gp_isa_limit(GP_ISA_AVX512);
	dev->ops->close(dev);
	gp_graph_free(g);
}

static void no_device_has_a_precision_without_a_name(void **state)
{
	(void)state;
	struct gp_device *dev;
	OK(gp_device_open("cpu", 1, &dev, &err));
	assert_false(gp_device_supports(dev, GP_PRECISIONS));
	assert_string_equal(gp_precision_name(GP_PRECISION_FP32), "fp32");
	assert_string_equal(gp_precision_name(GP_PRECISION_BF16), "bf16");
	dev->ops->close(dev);
}

int main(int argc, char **argv)
{
	(void)argc;
	gp_threads_prepare(argv);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(products_in_bf16_are_those_of_rounded_operands_summed_in_fp32),
		cmocka_unit_test(training_in_bf16_repeats_itself_and_follows_fp32),
		cmocka_unit_test(a_plan_takes_what_was_estimated_and_less_for_packed_weights),
		cmocka_unit_test(a_processor_without_bf16_is_refused_and_goes_on_in_fp32),
		cmocka_unit_test(no_device_has_a_precision_without_a_name),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
