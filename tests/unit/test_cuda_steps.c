/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole models train on the CUDA device of this build (emulated, or a card) as
 * they do on the CPU device: MobileNetV2 and residual networks, a few steps of
 * two chunks in flight. See tests/unit/device_pair.h.
 */
#include "client/models/models.h"
#include "common/base/threads.h"
#include "tests/sanitized.h"
#include "tests/unit/device_pair.h"

enum { BATCH = 4, CHUNKS = 2, SLOTS = 2, STEPS = 3, CLASSES = 10 };

#define LOSS_LIMIT     1e-4 /* relative */
#define CARD_LIMIT     1e-2 /* the same from the second step on, where other ReLUs have been flipped, as on a card */
#define GRADIENT_LIMIT 1e-3 /* relative L2 over all parameters together, of the first step */
#define FLIPPED_LIMIT  5e-2 /* the same where rounding flips ReLUs: that depends on data, processor and card */
#define FIRST_CHUNK    4

static struct gp_graph *build_model(const char *spec)
{
	const struct gp_model_options options = {.classes = CLASSES};
	struct gp_graph *g;
	OK(gp_model_build(spec, &options, &g, &err));
	return g;
}

static void fill_labels(int32_t *labels, uint64_t chunk)
{
	for (int i = 0; i < BATCH; i++)
		labels[i] = (int32_t)((chunk * 7 + (uint64_t)i * 3) % CLASSES);
}

/* All trained parameters' gradients, one behind another. Caller frees. */
static float *collect_grads(const struct pair *p, int d)
{
	float *all = gp_calloc(p->graph->param_elements, sizeof *all), *at = all;
	assert_non_null(all);
	for (int i = 0; i < p->graph->params; i++) {
		if (!p->graph->param[i].trained)
			continue;
		OK(p->plan[d]->ops->grad_get(p->plan[d], i, at, &err));
		at += p->graph->param[i].count;
	}
	return all;
}

static void compare_all_grads(const struct pair *p, double limit)
{
	float *want = collect_grads(p, CPU), *got = collect_grads(p, CUDA);
	expect_near("all gradients", got, want, p->graph->trained_elements, limit);
	gp_free(want);
	gp_free(got);
}

/* Sum over the chunks, on both. */
static void run_step(struct pair *p, uint64_t step, double loss[BOTH])
{
	int32_t labels[BATCH];
	struct gp_loss_result result;
	loss[CPU] = loss[CUDA] = 0;
	for (int c = 0; c < CHUNKS; c++) {
		fill_both(p, c, GP_BUF_INPUT, FIRST_CHUNK + step * CHUNKS + (uint64_t)c);
		forward_both(p, c, GP_TRAIN, FIRST_CHUNK + step * CHUNKS + (uint64_t)c);
	}
	for (int c = 0; c < CHUNKS; c++) {
		fill_labels(labels, FIRST_CHUNK + step * CHUNKS + (uint64_t)c);
		for (int d = 0; d < BOTH; d++) {
			OK(p->plan[d]->ops->loss(p->plan[d], c, labels, BATCH, true, 1.0f / (BATCH * CHUNKS), &result,
						 &err));
			loss[d] += result.loss_sum;
		}
		backward_both(p, c);
	}
}

static void train(const char *spec, enum gp_precision precision, double loss_limit, double gradient_limit)
{
	struct gp_graph *g = build_model(spec);
	const struct gp_plan_spec plan = {.batch = BATCH,
					  .slots = SLOTS,
					  .train = true,
					  .grad_inputs = 1,
					  .seed = 5,
					  .precision = precision,
					  .optim = {.kind = GP_OPTIM_SGD, .momentum = 0.9f, .weight_decay = 1e-4f}};
	struct pair p = make_pair(g, plan);
	const uint64_t steps =
		repeats_another_run() ? STEPS - 1 : STEPS; /* the second one sees what the first one left */
	for (uint64_t step = 0; step < steps; step++) {
		double loss[BOTH];
		run_step(&p, step, loss);
		print_message("  %s in %s, step %d: loss %.6f, on the CPU %.6f\n", spec, gp_precision_name(precision),
			      (int)step, loss[CUDA], loss[CPU]);
		const bool exact = step == 0 && precision == GP_PRECISION_FP32; /* no gradient is in it yet */
		assert_true(fabs(loss[CUDA] - loss[CPU]) <= (exact ? LOSS_LIMIT : loss_limit) * fabs(loss[CPU]));
		if (step == 0)
			compare_all_grads(&p, gradient_limit);
		for (int d = 0; d < BOTH; d++)
			OK(p.plan[d]->ops->optim_step(p.plan[d], 0.001f, &err));
	}
	drop_pair(&p);
	gp_graph_free(g);
}

static double loss_limit(void)
{
	return gp_rt_is_emulated() ? LOSS_LIMIT : CARD_LIMIT;
}

static double gradient_limit(void)
{
	return gp_rt_is_emulated() ? GRADIENT_LIMIT : FLIPPED_LIMIT;
}

/* Some of its many ReLUs always have an input that is nearly 0, whatever computes. */
static void mobilenetv2_trains_as_on_the_cpu(void **state)
{
	(void)state;
	train("mobilenetv2:width=0.25,stem=cifar", GP_PRECISION_FP32, CARD_LIMIT, FLIPPED_LIMIT);
}

static void resnet18_trains_as_on_the_cpu(void **state)
{
	(void)state;
	train("resnet18:width=0.125,stem=cifar", GP_PRECISION_FP32, loss_limit(), gradient_limit());
}

static void the_small_cnn_trains_as_on_the_cpu(void **state)
{
	(void)state;
	train("cnn:width=8", GP_PRECISION_FP32, loss_limit(), gradient_limit());
}

/* Rounding to 8 or 11 bits in every layer: near, not equal; and the deeper, the more of the gradient is other ReLUs'. */
static void models_train_in_bf16_and_tf32_near_the_cpu(void **state)
{
	(void)state;
	train("cnn:width=8", GP_PRECISION_TF32, 1e-2, 0.1);
	train("cnn:width=8", GP_PRECISION_BF16, 2e-2, 0.2);
	if (repeats_another_run()) /* test_cuda_ops has the layers of the deeper model in these precisions */
		return;
	train("resnet18:width=0.125,stem=cifar", GP_PRECISION_TF32, 1e-2, 0.3);
	train("resnet18:width=0.125,stem=cifar", GP_PRECISION_BF16, 5e-2, 0.6);
}

int main(int argc, char **argv)
{
	(void)argc;
	gp_threads_prepare(argv); /* else waiting threads take the cores other tests run on */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mobilenetv2_trains_as_on_the_cpu),
		cmocka_unit_test(resnet18_trains_as_on_the_cpu),
		cmocka_unit_test(the_small_cnn_trains_as_on_the_cpu),
		cmocka_unit_test(models_train_in_bf16_and_tf32_near_the_cpu),
	};
	return run_on_gpu(tests, NULL, NULL);
}
