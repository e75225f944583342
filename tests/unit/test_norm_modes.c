/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norm's modes over steps of several chunks (op_batch_norm.h): what does
 * not depend on how a batch is cut, what a step that is taken back leaves, what
 * renorm's warm-up does, and statistics that are taken anew. Each by itself
 * against PyTorch: test_cpu_ops.c, test_cpu_steps.c.
 */
#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/base/threads.h"
#include "common/graph/device.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_linear.h"
#include "kernels/device_registry.h"
#include "tests/unit/ok.h"
#include "tests/unit/test_device.h"

enum { BATCH = 12, CLASSES = 4, CHANNELS = 8, MOST_CHUNKS = 6, ROOM = 4096 };

/* --- a small network, whose first batch norm sees data alone ------------------------------------------------------ */

static struct gp_graph *build_graph(struct gp_bn_attr how)
{
	const struct gp_shape sample = {.ndim = 3, .dim = {6, 5, CHANNELS}};
	struct gp_graph *g = gp_graph_new("small", &sample, &err);
	assert_non_null(g);
	OK(gp_graph_begin_block(g, "block", &err));
	int x = gp_graph_batch_norm(g, "first", 0, 1e-5f, 0.1f, &err);
	x = gp_graph_conv(g, "conv", x, CHANNELS, 1, 1, 0, 1, false, &err);
	x = gp_graph_batch_norm(g, "second", x, 1e-5f, 0.2f, &err);
	x = gp_graph_unary(g, GP_OP_RELU, "relu", x, &err);
	x = gp_graph_conv(g, "last", x, CHANNELS, 3, 1, 1, 1, false, &err);
	x = gp_graph_unary(g, GP_OP_FLATTEN, "flat", x, &err);
	assert_true(gp_graph_linear(g, "linear", x, CLASSES, true, &err) > 0);
	OK(gp_graph_finish(g, &err));
	assert_int_equal(gp_graph_set_batch_norm(g, &how, &err), 2);
	return g;
}

struct bed {
	struct gp_graph *graph;
	struct gp_device *dev;
	struct gp_plan *plan;
	int chunks;
};

static struct bed make_bed_of(struct gp_bn_attr how, int chunks, bool train)
{
	struct bed b = {.graph = build_graph(how), .chunks = chunks};
	OK(gp_device_open(test_device(), 2, &b.dev, &err));
	const struct gp_plan_spec spec = {.graph = b.graph,
					  .batch = BATCH / chunks,
					  .slots = 2,
					  .train = train,
					  .undo = train,
					  .calibrate = true,
					  .seed = 9,
					  .optim = {.kind = GP_OPTIM_SGD}};
	OK(b.dev->ops->plan_new(b.dev, &spec, &b.plan, &err));
	return b;
}

static struct bed make_bed(struct gp_bn_attr how, int chunks)
{
	return make_bed_of(how, chunks, true);
}

static void drop_bed(struct bed *b)
{
	b->dev->ops->plan_free(b->plan);
	b->dev->ops->close(b->dev);
	gp_graph_free(b->graph);
}

/* Sample i of a step has the same values however the batch is cut; means are away from 0. */
static void forward(struct bed *b, uint64_t step, int chunk, enum gp_mode mode, uint64_t draw)
{
	const uint64_t n = gp_shape_elements(gp_graph_input_shape(b->graph)), samples = BATCH / (uint64_t)b->chunks;
	float *x = b->plan->ops->buffer(b->plan, chunk % 2, GP_BUF_INPUT, 0);
	for (uint64_t i = 0; i < n * samples; i++) {
		const uint64_t at = (uint64_t)chunk * samples * n + i;
		x[i] = 2.0f * gp_rng_normal(1, gp_rng_stream(GP_RNG_SYNTHETIC, step), at) + (float)(i % CHANNELS);
	}
	OK(b->plan->ops->forward(b->plan, chunk % 2, mode, draw, &err));
}

static void backward(struct bed *b, int chunk)
{
	int32_t labels[BATCH];
	struct gp_loss_result loss;
	for (int i = 0; i < BATCH; i++)
		labels[i] = (chunk * BATCH / b->chunks + i) % CLASSES;
	OK(b->plan->ops->loss(b->plan, chunk % 2, labels, BATCH / b->chunks, true, 1.0f / BATCH, &loss, &err));
	OK(b->plan->ops->backward(b->plan, chunk % 2, &err));
}

static void run_chunks(struct bed *b, uint64_t step)
{
	for (int c = 0; c < b->chunks; c++) {
		forward(b, step, c, GP_TRAIN, (uint64_t)c);
		backward(b, c);
	}
}

static void run_step(struct bed *b, uint64_t step)
{
	run_chunks(b, step);
	OK(b->plan->ops->optim_step(b->plan, 0.01f, &err));
}

static uint64_t read_param(struct bed *b, const char *name, bool grad, float *out)
{
	const int index = gp_graph_find_param(b->graph, name);
	assert_true(index >= 0 && b->graph->param[index].count <= ROOM);
	OK(grad ? b->plan->ops->grad_get(b->plan, index, out, &err)
		: b->plan->ops->param_get(b->plan, index, out, &err));
	return b->graph->param[index].count;
}

/* Relative L2 difference of a value, or a gradient. */
static double distance(struct bed *a, struct bed *b, const char *name, bool grad)
{
	static float x[ROOM], y[ROOM];
	const uint64_t n = read_param(a, name, grad, x);
	assert_int_equal(read_param(b, name, grad, y), n);
	return relative_l2(x, y, n);
}

static bool same_bits(struct bed *a, struct bed *b)
{
	static float x[ROOM], y[ROOM];
	for (int i = 0; i < a->graph->params; i++) {
		const uint64_t n = read_param(a, a->graph->param[i].name, false, x);
		read_param(b, a->graph->param[i].name, false, y);
		if (memcmp(x, y, n * sizeof *x) != 0)
			return false;
	}
	return true;
}

#define MODE(name)                                                                                                     \
	(struct gp_bn_attr)                                                                                            \
	{                                                                                                              \
		.mode = GP_BN_##name                                                                                   \
	}
#define RENORM                                                                                                         \
	(struct gp_bn_attr)                                                                                            \
	{                                                                                                              \
		.mode = GP_BN_RENORM, .r_max = 3.0f, .d_max = 5.0f                                                     \
	}

/* --- how a batch is cut ------------------------------------------------------------------------------------------- */

#define ROUNDING 2e-6 /* relative L2 */

static void expect_cut_to_matter(struct gp_bn_attr how, const char *param, bool matters)
{
	static const int cuts[] = {2, 3, MOST_CHUNKS};
	struct bed whole = make_bed(how, 1);
	for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
		struct bed b = make_bed(how, cuts[i]);
		for (uint64_t step = 0; step < 2; step++) {
			if (i == 0)
				run_step(&whole, step);
			run_step(&b, step);
		}
		const double away = distance(&b, &whole, param, false);
		if (matters != (away > ROUNDING))
			fail_msg("mode %d, %d chunks: %s is %.3g away", how.mode, cuts[i], param, away);
		drop_bed(&b);
	}
	drop_bed(&whole);
}

static void running_statistics_of_deferred_do_not_depend_on_the_cut(void **state)
{
	(void)state;
	expect_cut_to_matter(MODE(CHUNK), "first.running_mean", true);
	expect_cut_to_matter(MODE(DEFERRED), "first.running_mean", false);
	expect_cut_to_matter(MODE(DEFERRED), "first.running_var", false);
	expect_cut_to_matter(RENORM, "first.running_mean", false);
	expect_cut_to_matter(RENORM, "first.running_var", false);
}

static void parameters_of_running_do_not_depend_on_the_cut(void **state)
{
	(void)state;
	static const char *const params[] = {"first.weight", "conv.weight", "second.weight",
					     "second.bias",  "last.weight", "linear.weight"};
	for (size_t i = 0; i < sizeof params / sizeof params[0]; i++) {
		expect_cut_to_matter(MODE(RUNNING), params[i], false);
		expect_cut_to_matter(MODE(DEFERRED), params[i], true);
	}
}

static void running_leaves_its_statistics_as_they_are(void **state)
{
	(void)state;
	struct bed b = make_bed(MODE(RUNNING), 3), fresh = make_bed(MODE(RUNNING), 3);
	float weight[CHANNELS], before[CHANNELS];
	run_step(&b, 0);
	for (int i = 0; i < b.graph->params; i++)
		if (!b.graph->param[i].trained)
			assert_true(distance(&b, &fresh, b.graph->param[i].name, false) == 0.0);
	read_param(&b, "first.weight", false, weight);
	read_param(&fresh, "first.weight", false, before);
	assert_memory_not_equal(weight, before, sizeof weight);
	drop_bed(&b);
	drop_bed(&fresh);
}

/* In one chunk there is nothing to defer. */
static void deferred_in_one_chunk_is_chunk(void **state)
{
	(void)state;
	struct bed a = make_bed(MODE(CHUNK), 1), b = make_bed(MODE(DEFERRED), 1);
	for (uint64_t step = 0; step < 3; step++) {
		run_step(&a, step);
		run_step(&b, step);
		assert_true(same_bits(&a, &b));
	}
	drop_bed(&a);
	drop_bed(&b);
}

/* --- steps that are taken back ------------------------------------------------------------------------------------- */

static void expect_no_trace(struct gp_bn_attr how)
{
	struct bed a = make_bed(how, 3), b = make_bed(how, 3);
	for (uint64_t step = 0; step < 3; step++) {
		forward(&b, 100, 0, GP_TRAIN, 100);
		forward(&b, 100, 1, GP_TRAIN, 101);
		backward(&b, 0);
		b.plan->ops->step_undo(b.plan);
		assert_true(same_bits(&a, &b));
		run_step(&a, step);
		run_step(&b, step);
		assert_true(same_bits(&a, &b));
	}
	drop_bed(&a);
	drop_bed(&b);
}

static void a_step_taken_back_leaves_no_trace_in_any_mode(void **state)
{
	(void)state;
	expect_no_trace(MODE(CHUNK));
	expect_no_trace(MODE(DEFERRED));
	expect_no_trace(MODE(RUNNING));
	expect_no_trace(RENORM);
}

/* Nothing is kept for it where running statistics move with the update, or not at all. */
static void modes_other_than_chunk_keep_nothing_for_an_undo(void **state)
{
	(void)state;
	const struct gp_bn_attr modes[] = {MODE(DEFERRED), MODE(RUNNING), RENORM};
	for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
		struct bed b = make_bed(modes[i], 3);
		struct gp_plan_spec spec = b.plan->spec;
		struct gp_plan_memory with, without;
		OK(b.dev->ops->plan_estimate(b.dev, &spec, &with, &err));
		spec.undo = false;
		OK(b.dev->ops->plan_estimate(b.dev, &spec, &without, &err));
		assert_int_equal(with.total, without.total);
		drop_bed(&b);
	}
}

/* --- renorm -------------------------------------------------------------------------------------------------------- */

static void limits_grow_from_one_and_zero(void **state)
{
	(void)state;
	struct gp_bn_attr a = {.mode = GP_BN_RENORM, .r_max = 3.0f, .d_max = 5.0f, .warmup = 4};
	static const struct {
		uint64_t updates;
		double r, d;
	} cases[] = {{0, 1, 0}, {3, 1, 0}, {4, 1.5, 1.25}, {5, 2, 2.5}, {7, 3, 5}, {8, 3, 5}, {UINT64_MAX, 3, 5}};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		const struct gp_bn_limits l = gp_bn_limits(&a, cases[i].updates);
		assert_true(l.r == cases[i].r && l.d == cases[i].d);
	}
	a.warmup = 0;
	assert_true(gp_bn_limits(&a, 0).r == 3.0 && gp_bn_limits(&a, 0).d == 5.0);
}

/* So long it is deferred; and updates made before, as a plan that goes on from a checkpoint has, count. */
static void renorm_is_deferred_while_it_warms_up(void **state)
{
	(void)state;
	struct gp_bn_attr how = RENORM;
	how.warmup = 2;
	struct bed a = make_bed(MODE(DEFERRED), 3), b = make_bed(how, 3), c = make_bed(how, 3);
	for (uint64_t step = 0; step < 2; step++) {
		run_step(&a, step);
		run_step(&b, step);
		assert_true(same_bits(&a, &b));
	}
	run_step(&a, 2);
	run_step(&b, 2);
	assert_false(same_bits(&a, &b));
	for (int i = 0; i < c.graph->params; i++) {
		static float v[ROOM];
		read_param(&b, c.graph->param[i].name, false, v);
		OK(c.plan->ops->param_set(c.plan, i, v, &err));
	}
	c.plan->ops->optim_count_set(c.plan, 3);
	run_step(&b, 3);
	run_step(&c, 3);
	assert_true(same_bits(&b, &c));
	drop_bed(&a);
	drop_bed(&b);
	drop_bed(&c);
}

/* --- statistics taken anew ------------------------------------------------------------------------------------------ */

/* The first batch norm sees data alone: mean and unbiased variance of `batches` batches. */
static void check_statistics(struct bed *b, uint64_t batches)
{
	const uint64_t n = gp_shape_elements(gp_graph_input_shape(b->graph)), values = n * BATCH / CHANNELS * batches;
	float mean[CHANNELS], var[CHANNELS];
	read_param(b, "first.running_mean", false, mean);
	read_param(b, "first.running_var", false, var);
	for (uint64_t c = 0; c < CHANNELS; c++) {
		double sum = 0, squares = 0;
		for (uint64_t i = 0; i < n * BATCH * batches; i++) {
			const uint64_t stream = gp_rng_stream(GP_RNG_SYNTHETIC, 40 + i / (n * BATCH));
			const double v = 2.0 * (double)gp_rng_normal(1, stream, i % (n * BATCH));
			sum += i % CHANNELS == c ? v : 0;
			squares += i % CHANNELS == c ? v * v : 0;
		}
		sum /= (double)values;
		squares = (squares - sum * sum * (double)values) / (double)(values - 1);
		assert_true(fabs(sum + (double)c - (double)mean[c]) < 1e-5);
		assert_true(fabs(squares - (double)var[c]) < 1e-4);
	}
}

static void calibrate(struct bed *b, uint64_t batches)
{
	uint64_t number = 0;
	for (uint64_t batch = 0; batch < batches; batch++)
		for (int c = 0; c < b->chunks; c++)
			forward(b, 40 + batch, c, GP_CALIBRATE, number++);
}

static void expect_statistics_of_all_samples(struct gp_bn_attr how, bool train)
{
	struct bed b = make_bed_of(how, 3, train);
	if (train)
		run_step(&b, 0);
	calibrate(&b, 3);
	check_statistics(&b, 3);
	calibrate(&b, 2); /* begins anew */
	check_statistics(&b, 2);
	drop_bed(&b);
}

static void calibration_takes_the_statistics_of_all_samples(void **state)
{
	(void)state;
	expect_statistics_of_all_samples(MODE(CHUNK), true);
	expect_statistics_of_all_samples(MODE(DEFERRED), true);
	expect_statistics_of_all_samples(MODE(RUNNING), true);
	expect_statistics_of_all_samples(RENORM, true);
	expect_statistics_of_all_samples(MODE(CHUNK), false);
}

/* As after a link that broke. */
static void a_chunk_that_comes_again_counts_once(void **state)
{
	(void)state;
	struct bed a = make_bed(MODE(CHUNK), 3), b = make_bed(MODE(CHUNK), 3);
	calibrate(&a, 1);
	forward(&b, 40, 0, GP_CALIBRATE, 0);
	forward(&b, 40, 1, GP_CALIBRATE, 1);
	b.plan->ops->step_undo(b.plan);
	forward(&b, 40, 1, GP_CALIBRATE, 1);
	forward(&b, 40, 2, GP_CALIBRATE, 2);
	assert_true(same_bits(&a, &b));
	drop_bed(&a);
	drop_bed(&b);
}

/* A step that follows sees the new statistics and nothing else. */
static void training_goes_on_from_a_calibration(void **state)
{
	(void)state;
	const struct gp_bn_attr modes[] = {MODE(CHUNK), MODE(DEFERRED), MODE(RUNNING), RENORM};
	for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++) {
		struct bed a = make_bed(modes[m], 3), b = make_bed(modes[m], 3);
		calibrate(&a, 2);
		for (int i = 0; i < b.graph->params; i++) {
			static float v[ROOM];
			read_param(&a, b.graph->param[i].name, false, v);
			OK(b.plan->ops->param_set(b.plan, i, v, &err));
		}
		for (uint64_t step = 0; step < 2; step++) {
			run_step(&a, step);
			run_step(&b, step);
			assert_true(same_bits(&a, &b));
		}
		drop_bed(&a);
		drop_bed(&b);
	}
}

static void frozen_norms_are_not_calibrated(void **state)
{
	(void)state;
	struct gp_graph *g = build_graph(MODE(CHUNK));
	struct bed b = make_bed(MODE(CHUNK), 3), fresh = make_bed(MODE(CHUNK), 3);
	assert_true(gp_graph_freeze(g, "first.*") > 0);
	struct gp_plan_spec spec = b.plan->spec;
	spec.graph = g;
	b.dev->ops->plan_free(b.plan);
	gp_graph_free(b.graph);
	b.graph = g;
	OK(b.dev->ops->plan_new(b.dev, &spec, &b.plan, &err));
	calibrate(&b, 2);
	assert_true(distance(&b, &fresh, "first.running_mean", false) == 0.0);
	assert_true(distance(&b, &fresh, "second.running_var", false) > ROUNDING);
	drop_bed(&b);
	drop_bed(&fresh);
}

static void a_plan_not_made_for_it_does_not_calibrate(void **state)
{
	(void)state;
	struct bed b = make_bed(MODE(CHUNK), 3);
	struct gp_plan_spec spec = b.plan->spec;
	spec.calibrate = false;
	b.dev->ops->plan_free(b.plan);
	OK(b.dev->ops->plan_new(b.dev, &spec, &b.plan, &err));
	assert_int_equal(b.plan->ops->forward(b.plan, 0, GP_CALIBRATE, 0, &err), GP_INTERNAL);
	drop_bed(&b);
}

/* --- the attribute -------------------------------------------------------------------------------------------------- */

static void modes_that_there_are_not_are_refused(void **state)
{
	(void)state;
	static const struct gp_bn_attr wrong[] = {
		{.mode = GP_BN_MODES},
		{.mode = -1},
		{.mode = GP_BN_RUNNING, .r_max = 1.0f},
		{.mode = GP_BN_CHUNK, .warmup = 1},
		{.mode = GP_BN_RENORM, .r_max = 0.5f, .d_max = 1.0f},
		{.mode = GP_BN_RENORM, .r_max = 3.0f, .d_max = -1.0f},
		{.mode = GP_BN_RENORM, .r_max = NAN, .d_max = 5.0f},
		{.mode = GP_BN_RENORM, .r_max = 3.0f, .d_max = INFINITY},
		{.mode = GP_BN_RENORM, .r_max = 3.0f, .d_max = 5.0f, .warmup = -1},
	};
	struct gp_graph *g = build_graph(MODE(CHUNK));
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		assert_int_equal(gp_graph_set_batch_norm(g, &wrong[i], &err), -1);
		struct gp_node n = {.op = GP_OP_BATCH_NORM, .name = "n", .inputs = 1};
		struct gp_bn_attr a = wrong[i];
		int value;
		a.eps = 1e-5f;
		gp_set_bn_attr(&n, a);
		assert_int_equal(gp_graph_add(g, &n, &value, &err), GP_INVALID);
	}
	gp_graph_free(g);
}

int main(int argc, char **argv)
{
	(void)argc;
	gp_threads_prepare(argv); /* else waiting threads take the cores other tests run on */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(running_statistics_of_deferred_do_not_depend_on_the_cut),
		cmocka_unit_test(parameters_of_running_do_not_depend_on_the_cut),
		cmocka_unit_test(running_leaves_its_statistics_as_they_are),
		cmocka_unit_test(deferred_in_one_chunk_is_chunk),
		cmocka_unit_test(a_step_taken_back_leaves_no_trace_in_any_mode),
		cmocka_unit_test(modes_other_than_chunk_keep_nothing_for_an_undo),
		cmocka_unit_test(limits_grow_from_one_and_zero),
		cmocka_unit_test(renorm_is_deferred_while_it_warms_up),
		cmocka_unit_test(calibration_takes_the_statistics_of_all_samples),
		cmocka_unit_test(a_chunk_that_comes_again_counts_once),
		cmocka_unit_test(training_goes_on_from_a_calibration),
		cmocka_unit_test(frozen_norms_are_not_calibrated),
		cmocka_unit_test(a_plan_not_made_for_it_does_not_calibrate),
		cmocka_unit_test(modes_that_there_are_not_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
