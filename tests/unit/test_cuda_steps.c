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
#define CARD_LIMIT     1e-2 /* the same on a card: from the second step on, other ReLUs have been flipped */
#define GRADIENT_LIMIT 1e-3 /* relative L2 over all parameters together, of the first step */
#define FLIPPED_LIMIT  5e-2 /* the same where rounding flips ReLUs: a card sums otherwise */

/*
 * Where data begin. With one set of data in ten no ReLU of MobileNetV2 has an input so near to 0 that rounding decides about
 * it (gradients are then within 1e-5, and within 1e-3 to 3e-2 else), and which sets these are depends on the processor: these
 * are clean on those with AVX-512, the first one, and on those with AVX2, the others.
 */
static const uint64_t first_chunks[] = {4, 14, 58, 60, 66, 78};

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

static double error_of_all_grads(const struct pair *p)
{
	float *want = collect_grads(p, CPU), *got = collect_grads(p, CUDA);
	const double error = relative_l2(got, want, p->graph->trained_elements);
	gp_free(want);
	gp_free(got);
	return error;
}

/* Sum over the chunks, on both; `first` is the first one's data. */
static void run_step(struct pair *p, uint64_t first, double loss[BOTH])
{
	int32_t labels[BATCH];
	struct gp_loss_result result;
	loss[CPU] = loss[CUDA] = 0;
	for (int c = 0; c < CHUNKS; c++) {
		fill_both(p, c, GP_BUF_INPUT, first + (uint64_t)c);
		forward_both(p, c, GP_TRAIN, first + (uint64_t)c);
	}
	for (int c = 0; c < CHUNKS; c++) {
		fill_labels(labels, first + (uint64_t)c);
		for (int d = 0; d < BOTH; d++) {
			OK(p->plan[d]->ops->loss(p->plan[d], c, labels, BATCH, true, 1.0f / (BATCH * CHUNKS), &result,
						 &err));
			loss[d] += result.loss_sum;
		}
		backward_both(p, c);
	}
}

/* Returns the error of the first step's gradients; where that is above the limit, there are no more steps. */
static double train_on(uint64_t first, const char *spec, enum gp_precision precision, double loss_limit,
		       double gradient_limit)
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
	double error = 0;
	for (uint64_t step = 0; step < steps && error <= gradient_limit; step++) {
		double loss[BOTH];
		run_step(&p, first + step * CHUNKS, loss);
		print_message("  %s in %s, step %d: loss %.6f, on the CPU %.6f\n", spec, gp_precision_name(precision),
			      (int)step, loss[CUDA], loss[CPU]);
		assert_true(fabs(loss[CUDA] - loss[CPU]) <= loss_limit * fabs(loss[CPU]));
		if (step == 0)
			error = error_of_all_grads(&p);
		for (int d = 0; d < BOTH; d++)
			OK(p.plan[d]->ops->optim_step(p.plan[d], 0.001f, &err));
	}
	drop_pair(&p);
	gp_graph_free(g);
	return error;
}

static void train(const char *spec, enum gp_precision precision, double loss_limit, double gradient_limit)
{
	const double error = train_on(first_chunks[0], spec, precision, loss_limit, gradient_limit);
	if (!(error <= gradient_limit))
		fail_msg("%s: all gradients: relative L2 error %.3g", spec, error);
}

static double loss_limit(void)
{
	return is_like_a_card() ? CARD_LIMIT : LOSS_LIMIT;
}

static double gradient_limit(void)
{
	return is_like_a_card() ? FLIPPED_LIMIT : GRADIENT_LIMIT;
}

static void mobilenetv2_trains_as_on_the_cpu(void **state)
{
	(void)state;
	const int sets = sizeof first_chunks / sizeof first_chunks[0];
	for (int i = 0; i < sets; i++) {
		const double error = train_on(first_chunks[i], "mobilenetv2:width=0.25,stem=cifar", GP_PRECISION_FP32,
					      loss_limit(), gradient_limit());
		if (error <= gradient_limit())
			return;
		print_message("  a ReLU is flipped: all gradients: relative L2 error %.3g\n", error);
		assert_true(error <= FLIPPED_LIMIT);
	}
	fail_msg("with each of %d sets of data gradients differ by more than %g", sets, gradient_limit());
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
