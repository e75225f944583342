/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole training steps of MobileNetV2, the small CNN, two residual networks and
 * VGG-13 against PyTorch: the outputs, the input gradient, every parameter's gradient, and losses and
 * parameters over three steps of SGD. The reference is float64, made by
 * tests/tools/dump_steps.py from the same counter-based draws.
 */
#include <math.h>
#include <string.h>

#include "common/graph/device.h"
#include "kernels/device_registry.h"
#include "common/base/mem.h"
#include "client/models/models.h"
#include "common/base/rng.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/store/safetensors.h"
#include "common/base/threads.h"
#include "tests/unit/ok.h"
#include "tests/unit/test_device.h"

#define SEED            11
#define BATCH           4
#define OUTPUT_LIMIT    1e-5
#define GRADIENT_LIMIT  1e-3 /* whole network */
#define LOSS_LIMIT      1e-3 /* a step ahead, rounding has flipped some ReLU6: PyTorch in float32 is as far off */
#define NOISE           1e-4 /* of the norm of all */
#define PARAMETER_LIMIT 1e-3 /* after three steps, running statistics included */

struct bed {
	struct gp_st_file *dump;
	struct gp_graph *graph;
	struct gp_device *dev;
	struct gp_plan *plan;
};

struct difference { /* sums of squares */
	double diff, norm;
};

static void add_difference(struct difference *d, const float *got, const float *want, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		double e = (double)got[i] - (double)want[i];
		d->diff += e * e;
		d->norm += (double)want[i] * (double)want[i];
	}
}

static void check_difference(const struct difference *d, double limit, const char *what)
{
	double e = sqrt(d->diff / d->norm);
	print_message("%s: relative L2 difference %.2e\n", what, e);
	if (!(e < limit))
		fail_msg("%s: relative L2 difference %.3g, limit %.0e", what, e, limit);
}

/* Caller frees. */
static float *load(const struct bed *b, const char *prefix, const char *name, uint64_t *count)
{
	char full[GP_NAME_MAX + 16];
	snprintf(full, sizeof full, "%s%s", prefix, name);
	const struct gp_st_tensor *t = gp_st_find(b->dump, full);
	if (!t)
		fail_msg("the dump has no %s", full);
	float *v = gp_calloc(t->count, sizeof *v);
	assert_non_null(v);
	OK(gp_st_read_f32(t, v, &err));
	*count = t->count;
	return v;
}

/* h, w: of RGB images; 0 = the model's own */
static struct bed make_bed(const char *model, int h, int w, const struct gp_bn_attr *how, const char *dump, int threads)
{
	struct bed b;
	struct gp_model_options options = {.classes = 10};
	if (h)
		options.input = (struct gp_shape){.ndim = 3, .dim = {h, w, 3}};
	OK(gp_st_open(dump, &b.dump, &err));
	OK(gp_model_build(model, &options, &b.graph, &err));
	assert_true(gp_graph_set_batch_norm(b.graph, how, &err) > 0);
	OK(gp_device_open(test_device(), threads, &b.dev, &err));
	struct gp_plan_spec spec = {.graph = b.graph, .batch = BATCH, .slots = 1, .train = true, .seed = SEED};
	spec.grad_inputs = 1;
	spec.optim = (struct gp_optim){.kind = GP_OPTIM_SGD, .momentum = 0.9f, .weight_decay = 1e-4f};
	OK(b.dev->ops->plan_new(b.dev, &spec, &b.plan, &err));
	return b;
}

static void drop_bed(struct bed *b)
{
	b->plan->ops->plan_free(b->plan);
	b->dev->ops->close(b->dev);
	gp_graph_free(b->graph);
	gp_st_close(b->dump);
}

static void check_buffer(struct bed *b, enum gp_plan_buf which, const char *key, double limit)
{
	uint64_t n;
	struct difference d = {0};
	float *want = load(b, "", key, &n);
	add_difference(&d, b->plan->ops->buffer(b->plan, 0, which, 0), want, n);
	gp_free(want);
	check_difference(&d, limit, key);
}

static float *param_or_grad(struct bed *b, int index, bool grad)
{
	float *v = gp_calloc(b->graph->param[index].count, sizeof *v);
	assert_non_null(v);
	OK(grad ? b->plan->ops->grad_get(b->plan, index, v, &err) : b->plan->ops->param_get(b->plan, index, v, &err));
	return v;
}

/* The gradient's norm, for the part of it that the dump leaves out. */
static void check_norm(struct bed *b, const struct gp_param *p, const float *grad, double floor)
{
	uint64_t n;
	double sum = 0.0;
	float *want = load(b, "norm.", p->name, &n);
	for (uint64_t i = 0; i < p->count; i++)
		sum += (double)grad[i] * (double)grad[i];
	if (!(fabs(sqrt(sum) - (double)want[0]) < GRADIENT_LIMIT * ((double)want[0] + floor)))
		fail_msg("%s: gradient norm %g instead of %g", p->name, sqrt(sum), (double)want[0]);
	gp_free(want);
}

/* Every parameter or gradient together; the norm of all of the reference comes back. */
static double check_together(struct bed *b, bool grads, double limit)
{
	struct difference d = {0};
	for (int i = 0; i < b->graph->params; i++) {
		const struct gp_param *p = &b->graph->param[i];
		uint64_t n;
		if (grads && !p->trained)
			continue;
		float *got = param_or_grad(b, i, grads), *want = load(b, grads ? "grad." : "value.", p->name, &n);
		add_difference(&d, got, want, n);
		gp_free(got);
		gp_free(want);
	}
	check_difference(&d, limit, grads ? "gradients" : "parameters after the last step");
	return sqrt(d.norm);
}

/*
 * And each gradient by itself, since a small one is lost in a sum; `noise` is what a bias before a batch norm has instead
 * of 0. Not the parameters after the last step: MobileNetV2's small biases feel every ReLU6 that rounding has flipped.
 */
static void check_each_gradient(struct bed *b, double noise)
{
	for (int i = 0; i < b->graph->params; i++) {
		const struct gp_param *p = &b->graph->param[i];
		struct difference d = {0};
		uint64_t n;
		if (!p->trained)
			continue;
		float *got = param_or_grad(b, i, true), *want = load(b, "grad.", p->name, &n);
		add_difference(&d, got, want, n);
		if (!(sqrt(d.diff) < GRADIENT_LIMIT * (sqrt(d.norm) + noise)))
			fail_msg("gradient of %s: L2 difference %.3g of %.3g", p->name, sqrt(d.diff), sqrt(d.norm));
		check_norm(b, p, got, noise);
		gp_free(got);
		gp_free(want);
	}
}

static double run_step(struct bed *b, int step)
{
	const struct gp_device_ops *ops = b->plan->ops;
	float *x = ops->buffer(b->plan, 0, GP_BUF_INPUT, 0);
	uint64_t n = BATCH * gp_shape_elements(gp_graph_input_shape(b->graph));
	struct gp_loss_result loss;
	int32_t labels[BATCH];
	for (uint64_t i = 0; i < n; i++)
		x[i] = gp_rng_normal(SEED, gp_rng_stream(GP_RNG_SYNTHETIC, (uint64_t)step), i);
	for (int i = 0; i < BATCH; i++)
		labels[i] = 3 * i % 10;
	OK(ops->forward(b->plan, 0, GP_TRAIN, 0, &err));
	OK(ops->loss(b->plan, 0, labels, BATCH, true, 1.0f / BATCH, &loss, &err));
	OK(ops->backward(b->plan, 0, &err));
	return loss.loss_sum / BATCH;
}

static void run_model_in_mode(const char *model, int h, int w, const struct gp_bn_attr *how, const char *dump,
			      int threads)
{
	struct bed b = make_bed(model, h, w, how, dump, threads);
	uint64_t steps;
	float *losses = load(&b, "", "losses", &steps);
	for (uint64_t s = 0; s < steps; s++) {
		double loss = run_step(&b, (int)s);
		if (s == 0) {
			check_buffer(&b, GP_BUF_OUTPUT, "y", OUTPUT_LIMIT);
			check_buffer(&b, GP_BUF_GRAD_INPUT, "gx", GRADIENT_LIMIT);
			check_each_gradient(&b, NOISE * check_together(&b, true, GRADIENT_LIMIT));
		}
		if (!(fabs(loss - (double)losses[s]) < LOSS_LIMIT * fabs((double)losses[s])))
			fail_msg("loss of step %d: %.7g instead of %.7g", (int)s, loss, (double)losses[s]);
		OK(b.plan->ops->optim_step(b.plan, 0.001f, &err));
	}
	check_together(&b, false, PARAMETER_LIMIT);
	gp_free(losses);
	drop_bed(&b);
}

static void run_model(const char *model, int h, int w, const char *dump, int threads)
{
	run_model_in_mode(model, h, w, &(struct gp_bn_attr){.mode = GP_BN_CHUNK}, dump, threads);
}

static void mobilenetv2_trains_as_in_pytorch(void **state)
{
	(void)state;
	for (int threads = 1; threads <= test_threads(); threads++)
		run_model("mobilenetv2:width=0.25,stem=cifar,dropout=0", 0, 0,
			  "tests/golden/ops/steps_mobilenetv2.safetensors", threads);
}

static void cnn_trains_as_in_pytorch(void **state)
{
	(void)state;
	for (int threads = 1; threads <= test_threads(); threads++)
		run_model("cnn:width=8", 0, 0, "tests/golden/ops/steps_cnn.safetensors", threads);
}

/* torchvision's ResNet-18: 7x7 stem, pooling, projections as shortcuts, stages of odd sizes (10, 5, 3, 2). */
static void resnet18_trains_as_in_pytorch(void **state)
{
	(void)state;
	run_model("resnet18", 40, 40, "tests/golden/ops/steps_resnet18.safetensors", 2);
}

static void resnet20_trains_as_in_pytorch(void **state)
{
	(void)state;
	for (int threads = 1; threads <= test_threads(); threads++)
		run_model("resnet20", 0, 0, "tests/golden/ops/steps_resnet20.safetensors", threads);
}

static void resnet20_with_running_statistics_trains_as_in_pytorch(void **state)
{
	(void)state;
	run_model_in_mode("resnet20", 0, 0, &(struct gp_bn_attr){.mode = GP_BN_RUNNING},
			  "tests/golden/ops/steps_resnet20_running.safetensors", 2);
}

static void resnet20_with_renorm_trains_as_in_pytorch(void **state)
{
	(void)state;
	run_model_in_mode("resnet20", 0, 0, &(struct gp_bn_attr){.mode = GP_BN_RENORM, .r_max = 3.0f, .d_max = 5.0f},
			  "tests/golden/ops/steps_resnet20_renorm.safetensors", 2);
}

/* torchvision's VGG-13 with batch norm, narrow; 32x64 images leave 1x2 positions for the classifier. */
static void vgg13_trains_as_in_pytorch(void **state)
{
	(void)state;
	for (int threads = 1; threads <= test_threads(); threads++)
		run_model("vgg13:width=0.125,hidden=48,dropout=0", 32, 64, "tests/golden/ops/steps_vgg13.safetensors",
			  threads);
}

int main(int argc, char **argv)
{
	(void)argc;
	gp_threads_prepare(argv); /* else waiting threads take the cores other tests run on */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mobilenetv2_trains_as_in_pytorch),
		cmocka_unit_test(cnn_trains_as_in_pytorch),
		cmocka_unit_test(resnet18_trains_as_in_pytorch),
		cmocka_unit_test(resnet20_trains_as_in_pytorch),
		cmocka_unit_test(vgg13_trains_as_in_pytorch),
		cmocka_unit_test(resnet20_with_running_statistics_trains_as_in_pytorch),
		cmocka_unit_test(resnet20_with_renorm_trains_as_in_pytorch),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
