/* SPDX-License-Identifier: Apache-2.0
 *
 * What a CPU plan promises beyond right numbers: parts of a model equal the
 * whole bit for bit whatever the cut and however chunks interleave, runs are
 * reproducible, a steady step allocates nothing, an estimate is exact, every
 * failure is an error and not a crash. Also opening devices by name.
 */
#include <string.h>

#include "common/graph/device.h"
#include "kernels/device_registry.h"
#include "common/base/fault.h"
#include "common/base/mem.h"
#include "client/models/models.h"
#include "common/base/rng.h"
#include "common/base/threads.h"
#include "tests/unit/ok.h"
#include "tests/unit/test_device.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_pool.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/graph_part.h"

#define SEED      5
#define BATCH     3
#define CHUNKS    3
#define MAX_PARTS 3
#define STEPS     2
#define CLASSES   10

/* --- models ----------------------------------------------------------------------------------------------------- */

static struct gp_graph *build_model(const char *spec)
{
	const struct gp_model_options options = {.classes = CLASSES};
	struct gp_graph *g;
	OK(gp_model_build(spec, &options, &g, &err));
	return g;
}

/*
 * Cuts in awkward places: between a batch norm and its ReLU6, before and behind a residual sum whose branches both
 * start at the cut, before a dropout, before a flatten that moves elements.
 */
static struct gp_graph *build_awkward(void)
{
	const struct gp_shape sample = {.ndim = 3, .dim = {9, 8, 3}};
	struct gp_graph *g = gp_graph_new("awkward", &sample, &err);
	assert_non_null(g);
	OK(gp_graph_begin_block(g, "stem", &err));
	int x = gp_graph_conv(g, "conv", 0, 12, 3, 1, 1, 1, true, &err);
	x = gp_graph_batch_norm(g, "bn", x, 1e-5f, 0.1f, &err);
	OK(gp_graph_begin_block(g, "activation", &err));
	x = gp_graph_unary(g, GP_OP_RELU6, "relu6", x, &err);
	OK(gp_graph_begin_block(g, "residual", &err));
	int y = gp_graph_conv(g, "branch", x, 12, 3, 1, 1, 12, false, &err);
	y = gp_graph_batch_norm(g, "branch_bn", y, 1e-5f, 0.1f, &err);
	x = gp_graph_sum(g, "sum", x, y, &err);
	OK(gp_graph_begin_block(g, "double", &err));
	x = gp_graph_sum(g, "twice", x, x, &err);
	x = gp_graph_unary(g, GP_OP_RELU, "relu", x, &err);
	x = gp_graph_pool(g, GP_OP_MAX_POOL, "pool", x, 2, 2, 0, &err);
	OK(gp_graph_begin_block(g, "dropout", &err));
	x = gp_graph_dropout(g, "drop", x, 0.3f, &err);
	OK(gp_graph_begin_block(g, "flatten", &err));
	x = gp_graph_unary(g, GP_OP_FLATTEN, "flat", x, &err);
	OK(gp_graph_begin_block(g, "classifier", &err));
	assert_true(gp_graph_linear(g, "linear", x, CLASSES, true, &err) > 0);
	OK(gp_graph_finish(g, &err));
	return g;
}

/* --- a chain of plans that together run one model --------------------------------------------------------------- */

struct chain {
	const struct gp_graph *whole;
	struct gp_device *dev;
	struct gp_graph *graph[MAX_PARTS];
	struct gp_plan *plan[MAX_PARTS];
	int parts, slots;
};

static struct gp_plan_spec spec_of(const struct gp_graph *g, int slots, bool grad_inputs)
{
	struct gp_plan_spec spec = {.graph = g, .batch = BATCH, .slots = slots, .train = true, .seed = SEED};
	spec.grad_inputs = grad_inputs;
	spec.optim = (struct gp_optim){.kind = GP_OPTIM_SGD, .momentum = 0.9f, .nesterov = true, .weight_decay = 1e-3f};
	return spec;
}

/* Parts are blocks [cut[k], cut[k+1]). */
static struct chain make_chain(const struct gp_graph *whole, const int *cut, int parts, int slots, int threads)
{
	struct chain c = {.whole = whole, .parts = parts, .slots = slots};
	OK(gp_device_open(test_device(), threads, &c.dev, &err));
	for (int k = 0; k < parts; k++) {
		OK(gp_graph_part(whole, cut[k], cut[k + 1], &c.graph[k], &err));
		struct gp_plan_spec spec = spec_of(c.graph[k], slots, true);
		OK(c.dev->ops->plan_new(c.dev, &spec, &c.plan[k], &err));
	}
	return c;
}

static struct chain make_whole(const struct gp_graph *whole, int threads)
{
	const int cut[2] = {0, whole->blocks};
	return make_chain(whole, cut, 1, 1, threads);
}

static void drop_chain(struct chain *c)
{
	for (int k = 0; k < c->parts; k++) {
		c->dev->ops->plan_free(c->plan[k]);
		gp_graph_free(c->graph[k]);
	}
	c->dev->ops->close(c->dev);
}

static void move(struct chain *c, int slot, int from, enum gp_plan_buf out, int to, enum gp_plan_buf in)
{
	const struct gp_graph *cut_behind = c->graph[from < to ? from : to];
	uint64_t n = BATCH * gp_shape_elements(gp_graph_output_shape(cut_behind));
	memcpy(c->dev->ops->buffer(c->plan[to], slot, in, 0), c->dev->ops->buffer(c->plan[from], slot, out, 0),
	       n * sizeof(float));
}

static void fill_input(struct chain *c, int slot, uint64_t chunk)
{
	float *x = c->dev->ops->buffer(c->plan[0], slot, GP_BUF_INPUT, 0);
	uint64_t n = BATCH * gp_shape_elements(gp_graph_input_shape(c->whole));
	for (uint64_t i = 0; i < n; i++)
		x[i] = gp_rng_normal(SEED, gp_rng_stream(GP_RNG_SYNTHETIC, chunk), i);
}

static void chunk_forward(struct chain *c, int slot, uint64_t chunk, enum gp_mode mode)
{
	fill_input(c, slot, chunk);
	for (int k = 0; k < c->parts; k++) {
		if (k)
			move(c, slot, k - 1, GP_BUF_OUTPUT, k, GP_BUF_INPUT);
		OK(c->dev->ops->forward(c->plan[k], slot, mode, chunk, &err));
	}
}

static double chunk_backward(struct chain *c, int slot, uint64_t chunk)
{
	struct gp_loss_result loss;
	int32_t labels[BATCH];
	for (int i = 0; i < BATCH; i++)
		labels[i] = (int32_t)((chunk * 7 + (uint64_t)i * 3) % CLASSES);
	OK(c->dev->ops->loss(c->plan[c->parts - 1], slot, labels, BATCH, true, 1.0f / (BATCH * CHUNKS), &loss, &err));
	for (int k = c->parts - 1; k >= 0; k--) {
		if (k < c->parts - 1)
			move(c, slot, k + 1, GP_BUF_GRAD_INPUT, k, GP_BUF_GRAD_OUTPUT);
		OK(c->dev->ops->backward(c->plan[k], slot, &err));
	}
	return loss.loss_sum;
}

static void update(struct chain *c)
{
	for (int k = 0; k < c->parts; k++)
		OK(c->dev->ops->optim_step(c->plan[k], 0.05f, &err));
}

/* One forward, one backward, with as many chunks in flight as there are slots. */
static double run_chunks(struct chain *c, int step)
{
	uint64_t first = (uint64_t)step * CHUNKS;
	double loss = 0.0;
	for (int i = 0; i < CHUNKS + c->slots - 1; i++) {
		int back = i - (c->slots - 1);
		if (i < CHUNKS)
			chunk_forward(c, i % c->slots, first + (uint64_t)i, GP_TRAIN);
		if (back >= 0)
			loss += chunk_backward(c, back % c->slots, first + (uint64_t)back);
	}
	return loss;
}

/* --- comparing -------------------------------------------------------------------------------------------------- */

/* Values or gradients of every parameter of the whole model, in its order. Caller frees. */
static float *collect(struct chain *c, bool grads)
{
	float *all = gp_calloc(c->whole->param_elements, sizeof *all), *at = all;
	assert_non_null(all);
	for (int k = 0; k < c->parts; k++) {
		for (int i = 0; i < c->graph[k]->params; i++) {
			const struct gp_param *p = &c->graph[k]->param[i];
			if (!grads)
				OK(c->dev->ops->param_get(c->plan[k], i, at, &err));
			else if (p->trained)
				OK(c->dev->ops->grad_get(c->plan[k], i, at, &err));
			at += p->count;
		}
	}
	assert_int_equal(at - all, c->whole->param_elements);
	return all;
}

static void expect_same(struct chain *a, struct chain *b, bool grads)
{
	float *x = collect(a, grads), *y = collect(b, grads);
	for (uint64_t i = 0; i < a->whole->param_elements; i++)
		if (memcmp(&x[i], &y[i], sizeof *x) != 0)
			fail_msg("%s: element %llu is %.9g and %.9g", grads ? "gradients" : "parameters",
				 (unsigned long long)i, (double)x[i], (double)y[i]);
	gp_free(x);
	gp_free(y);
}

static void expect_parts_equal_whole(const struct gp_graph *g, const int *cut, int parts, int slots, int threads)
{
	struct chain whole = make_whole(g, threads), split = make_chain(g, cut, parts, slots, threads);
	expect_same(&whole, &split, false);
	const int steps = on_cpu() ? STEPS : 1; /* emulated kernels are slow */
	for (int step = 0; step < steps; step++) {
		assert_true(run_chunks(&whole, step) == run_chunks(&split, step));
		expect_same(&whole, &split, true);
		update(&whole);
		update(&split);
		expect_same(&whole, &split, false);
	}
	drop_chain(&whole);
	drop_chain(&split);
}

/* --- tests ------------------------------------------------------------------------------------------------------ */

static void parts_of_mobilenetv2_equal_the_whole_bit_for_bit(void **state)
{
	(void)state;
	struct gp_graph *g = build_model("mobilenetv2:width=0.25,stem=cifar");
	const int cut[] = {0, 2, g->blocks - 1, g->blocks};
	for (int threads = 1; threads <= test_threads(); threads++)
		expect_parts_equal_whole(g, cut, 3, threads + 1, threads);
	gp_graph_free(g);
}

static void parts_of_the_cnn_equal_the_whole_bit_for_bit(void **state)
{
	(void)state;
	struct gp_graph *g = build_model("cnn:width=8");
	const int cut[] = {0, 1, 3, g->blocks};
	for (int threads = 1; threads <= test_threads(); threads++)
		expect_parts_equal_whole(g, cut, 3, 3, threads);
	gp_graph_free(g);
}

/* Cuts between a batch norm or a residual sum and its ReLU, and before padded and projected shortcuts. */
static void parts_of_residual_networks_equal_the_whole_bit_for_bit(void **state)
{
	(void)state;
	static const char *const specs[] = {"resnet20:width=0.25,cuts=fine",
					    "resnet18:width=0.125,stem=cifar,cuts=fine"};
	for (int i = 0; i < 2; i++) {
		struct gp_graph *g = build_model(specs[i]);
		const int at_act[] = {0, 1, g->blocks - 3, g->blocks}, at_shortcut[] = {0, 10, 14, g->blocks};
		expect_parts_equal_whole(g, at_act, 3, 2, 2);
		expect_parts_equal_whole(g, at_shortcut, 3, 3, 1);
		gp_graph_free(g);
	}
}

static void parts_equal_the_whole_at_awkward_cuts(void **state)
{
	(void)state;
	struct gp_graph *g = build_awkward();
	for (int head = 1; head < g->blocks - 1; head++) {
		for (int tail = head + 1; tail < g->blocks; tail++) {
			const int cut[] = {0, head, tail, g->blocks};
			expect_parts_equal_whole(g, cut, 3, 2, 1 + (head + tail) % 2);
		}
	}
	gp_graph_free(g);
}

static void two_runs_are_bit_identical(void **state)
{
	(void)state;
	struct gp_graph *g = build_model("mobilenetv2:width=0.25,stem=cifar");
	struct chain a = make_whole(g, 2), b = make_whole(g, 2);
	for (int step = 0; step < STEPS; step++) {
		assert_true(run_chunks(&a, step) == run_chunks(&b, step));
		update(&a);
		update(&b);
	}
	expect_same(&a, &b, false);
	drop_chain(&a);
	drop_chain(&b);
	gp_graph_free(g);
}

static void evaluation_between_forward_and_backward_changes_nothing(void **state)
{
	(void)state;
	struct gp_graph *g = build_awkward();
	const int cut[] = {0, g->blocks};
	struct chain a = make_chain(g, cut, 1, 2, 1), b = make_chain(g, cut, 1, 2, 1);
	chunk_forward(&a, 0, 1, GP_TRAIN);
	chunk_backward(&a, 0, 1);
	chunk_forward(&b, 0, 1, GP_TRAIN);
	chunk_forward(&b, 1, 2, GP_EVAL);
	chunk_backward(&b, 0, 1);
	expect_same(&a, &b, true);
	expect_same(&a, &b, false);
	drop_chain(&a);
	drop_chain(&b);
	gp_graph_free(g);
}

/* But for rounding: on the processor it may fold batch norms into convolutions (test_fold.c). */
static void evaluation_plan_gives_what_a_training_plan_evaluates(void **state)
{
	(void)state;
	struct gp_graph *g = build_awkward();
	struct chain a = make_whole(g, 1);
	struct gp_plan_spec spec = {.graph = g, .batch = BATCH, .slots = 2, .seed = SEED};
	struct gp_plan *eval;
	OK(a.dev->ops->plan_new(a.dev, &spec, &eval, &err));
	chunk_forward(&a, 0, 1, GP_EVAL);
	uint64_t in = BATCH * gp_shape_elements(gp_graph_input_shape(g));
	memcpy(a.dev->ops->buffer(eval, 1, GP_BUF_INPUT, 0), a.dev->ops->buffer(a.plan[0], 0, GP_BUF_INPUT, 0),
	       in * sizeof(float));
	OK(a.dev->ops->forward(eval, 1, GP_EVAL, 0, &err));
	assert_true(relative_l2(a.dev->ops->buffer(eval, 1, GP_BUF_OUTPUT, 0),
				a.dev->ops->buffer(a.plan[0], 0, GP_BUF_OUTPUT, 0), BATCH * CLASSES) <= 1e-5);
	assert_null(a.dev->ops->buffer(eval, 0, GP_BUF_GRAD_OUTPUT, 0));
	assert_int_equal(a.dev->ops->forward(eval, 0, GP_TRAIN, 0, &err), GP_INTERNAL);
	a.dev->ops->plan_free(eval);
	drop_chain(&a);
	gp_graph_free(g);
}

static void steady_step_allocates_nothing(void **state)
{
	(void)state;
	struct gp_graph *g = build_model("mobilenetv2:width=0.25,stem=cifar");
	const int cut[] = {0, 1, g->blocks - 1, g->blocks};
	struct chain c = make_chain(g, cut, 3, 2, 2);
	run_chunks(&c, 0);
	update(&c);
	uint64_t before = gp_mem_calls();
	for (int step = 1; step < 4; step++) {
		run_chunks(&c, step);
		update(&c);
	}
	assert_int_equal(gp_mem_calls(), before);
	drop_chain(&c);
	gp_graph_free(g);
}

static void expect_exact_estimate(struct gp_device *dev, const struct gp_plan_spec *spec)
{
	struct gp_plan_memory want, got;
	struct gp_plan *plan;
	OK(dev->ops->plan_estimate(dev, spec, &want, &err));
	OK(dev->ops->plan_new(dev, spec, &plan, &err));
	dev->ops->plan_memory(plan, &got);
	assert_memory_equal(&want, &got, sizeof got);
	assert_true(got.total > 0);
	dev->ops->plan_free(plan);
}

static void estimate_is_what_the_plan_takes(void **state)
{
	(void)state;
	struct gp_graph *g = build_model("mobilenetv2:width=0.5,stem=cifar");
	struct gp_device *dev;
	OK(gp_device_open(test_device(), 2, &dev, &err));
	struct gp_plan_spec spec = spec_of(g, 3, true);
	expect_exact_estimate(dev, &spec);
	spec.train = false;
	expect_exact_estimate(dev, &spec);
	spec = spec_of(g, 1, false);
	spec.optim.kind = GP_OPTIM_ADAM;
	expect_exact_estimate(dev, &spec);
	dev->ops->close(dev);
	gp_graph_free(g);
}

/* Kept activations of MobileNetV2: inputs of convolutions and batch norms, nothing twice. */
static void evaluation_needs_far_less_memory_than_training(void **state)
{
	(void)state;
	struct gp_graph *g = build_model("mobilenetv2:width=0.5,stem=cifar");
	struct gp_device *dev;
	struct gp_plan_memory train, eval;
	uint64_t values = 0;
	OK(gp_device_open(test_device(), 1, &dev, &err));
	struct gp_plan_spec spec = spec_of(g, 1, false);
	OK(dev->ops->plan_estimate(dev, &spec, &train, &err));
	spec.train = false;
	OK(dev->ops->plan_estimate(dev, &spec, &eval, &err));
	for (int i = 0; i < g->nodes; i++)
		values += BATCH * gp_shape_elements(&g->node[i].shape) * sizeof(float);
	assert_int_equal(eval.grads + eval.optim + eval.activations, 0);
	assert_true(train.activations < values * 3 / 4); /* one value per batch norm with its activation */
	assert_true(eval.scratch < values / 4);
	dev->ops->close(dev);
	gp_graph_free(g);
}

static void gradients_are_zero_before_backward_and_after_an_update(void **state)
{
	(void)state;
	struct gp_graph *g = build_model("cnn:width=8");
	struct chain c = make_whole(g, 1);
	for (int round = 0; round < 2; round++) {
		float *grads = collect(&c, true);
		for (uint64_t i = 0; i < g->param_elements; i++)
			assert_true(grads[i] == 0.0f);
		gp_free(grads);
		run_chunks(&c, 0);
		update(&c);
	}
	drop_chain(&c);
	gp_graph_free(g);
}

static void backward_without_a_training_forward_is_refused(void **state)
{
	(void)state;
	struct gp_graph *g = build_model("cnn:width=8");
	struct chain c = make_whole(g, 1);
	assert_int_equal(c.dev->ops->backward(c.plan[0], 0, &err), GP_INTERNAL);
	chunk_forward(&c, 0, 0, GP_EVAL);
	assert_int_equal(c.dev->ops->backward(c.plan[0], 0, &err), GP_INTERNAL);
	drop_chain(&c);
	gp_graph_free(g);
}

static void plan_too_large_for_memory_is_refused_before_it_is_taken(void **state)
{
	(void)state;
	const struct gp_shape sample = {.ndim = 3, .dim = {1 << 14, 1 << 14, 4}};
	struct gp_graph *g = gp_graph_new("large", &sample, &err);
	struct gp_device *dev;
	struct gp_plan *plan;
	OK(gp_graph_begin_block(g, "block", &err));
	assert_true(gp_graph_unary(g, GP_OP_RELU, "relu", 0, &err) > 0);
	OK(gp_graph_finish(g, &err));
	OK(gp_device_open(test_device(), 1, &dev, &err));
	struct gp_plan_spec spec = {.graph = g, .batch = 1 << 10, .slots = 1};
	assert_int_equal(dev->ops->plan_new(dev, &spec, &plan, &err), GP_NOMEM);
	spec.batch = 0;
	assert_int_equal(dev->ops->plan_new(dev, &spec, &plan, &err), GP_INVALID);
	spec.batch = 1;
	spec.slots = 1 << 30;
	assert_int_equal(dev->ops->plan_new(dev, &spec, &plan, &err), GP_INVALID);
	dev->ops->close(dev);
	gp_graph_free(g);
}

#ifdef GP_FAULTS
static void every_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
	(void)state;
	struct gp_graph *g = build_awkward();
	struct gp_device *dev;
	OK(gp_device_open(test_device(), 1, &dev, &err));
	struct gp_plan_spec spec = spec_of(g, 2, true);
	enum gp_status status = GP_NOMEM;
	for (uint64_t nth = 1; status != GP_OK; nth++) {
		struct gp_plan *plan = NULL;
		assert_true(nth < 200);
		gp_fault_arm(GP_FAULT_ALLOC, nth);
		status = dev->ops->plan_new(dev, &spec, &plan, &err);
		gp_fault_arm(GP_FAULT_ALLOC, 0);
		if (status == GP_OK)
			dev->ops->plan_free(plan);
		else
			assert_int_equal(status, GP_NOMEM);
	}
	dev->ops->close(dev);
	gp_graph_free(g);
}
#endif

static void devices_open_by_name(void **state)
{
	(void)state;
	struct gp_device *dev;
	OK(gp_device_open("auto", 1, &dev, &err));
	dev->ops->close(dev);
	OK(gp_device_open("cpu", 3, &dev, &err));
	assert_string_equal(dev->ops->name, "cpu");
	assert_string_equal(dev->name, "cpu");
	assert_int_equal(dev->threads, 3);
	dev->ops->close(dev);
}

static void a_device_is_told_by_its_name_and_card(void **state)
{
	(void)state;
	struct gp_device dev = {.name = "cuda:1"};
	char text[GP_DEVICE_TITLE];
	assert_string_equal(gp_device_title(&dev, text), "cuda:1");
	strcpy(dev.card, "NVIDIA H200");
	assert_string_equal(gp_device_title(&dev, text), "cuda:1 (NVIDIA H200)");
}

/* One reader of an image with `across` columns of one row. */
static struct gp_graph *strip_of(int64_t across, bool pools)
{
	const struct gp_shape sample = {.ndim = 3, .dim = {1, across, 1}};
	struct gp_graph *g = gp_graph_new("strip", &sample, &err);
	assert_non_null(g);
	OK(gp_graph_begin_block(g, "block", &err));
	assert_true((pools ? gp_graph_pool(g, GP_OP_MAX_POOL, "pool", 0, 1, 2, 0, &err)
			   : gp_graph_unary(g, GP_OP_RELU, "relu", 0, &err)) > 0);
	OK(gp_graph_finish(g, &err));
	return g;
}

/* What a peer may send as a graph must not overflow the 31 bits in which a GPU's kernels count pixels. */
static void check_pixels(struct gp_device *dev)
{
	struct gp_plan_memory memory;
	struct gp_plan *plan;
	for (int pools = 0; pools < 2; pools++) {
		struct gp_graph *over = strip_of(INT64_C(1) << 31, pools), *most = strip_of(INT32_MAX, pools);
		struct gp_plan_spec spec = {.graph = over, .batch = 1, .slots = 1};
		assert_int_equal(dev->ops->plan_estimate(dev, &spec, &memory, &err), GP_INVALID);
		assert_non_null(strstr(err.text, "2147483648 elements in one sample"));
		assert_int_equal(dev->ops->plan_new(dev, &spec, &plan, &err), GP_INVALID);
		spec.graph = most;
		OK(dev->ops->plan_estimate(dev, &spec, &memory, &err));
		gp_graph_free(over);
		gp_graph_free(most);
	}
}

static void an_image_of_2_to_the_31_pixels_is_refused_on_every_device(void **state)
{
	(void)state;
	static const char *const names[] = {"cpu", "cuda", "cuda-emulated"};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		struct gp_device *dev;
		if (gp_device_open(names[i], 1, &dev, &err) != GP_OK)
			continue;
		check_pixels(dev);
		dev->ops->close(dev);
	}
}

static void unknown_devices_are_refused_with_a_reason(void **state)
{
	(void)state;
	struct gp_device *dev;
	assert_int_equal(gp_device_open("gpu", 1, &dev, &err), GP_USAGE);
	assert_non_null(strstr(err.text, "cpu"));
	const bool told = strstr(err.text, "cuda-emulated[:N]");
	const bool built = gp_device_open("cuda-emulated", 1, &dev, &err) == GP_OK;
	assert_int_equal(told, built);
	if (built)
		dev->ops->close(dev);
	assert_int_equal(gp_device_open("cpu:1", 1, &dev, &err), GP_USAGE);
	assert_non_null(strstr(err.text, "\"cpu:1\""));
	assert_int_equal(gp_device_open("cpu", 0, &dev, &err), GP_USAGE);
	assert_int_equal(gp_device_open("", 1, &dev, &err), GP_USAGE);
}

int main(int argc, char **argv)
{
	(void)argc;
	gp_threads_prepare(argv); /* else waiting threads take the cores other tests run on */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parts_of_mobilenetv2_equal_the_whole_bit_for_bit),
		cmocka_unit_test(parts_of_the_cnn_equal_the_whole_bit_for_bit),
		cmocka_unit_test(parts_of_residual_networks_equal_the_whole_bit_for_bit),
		cmocka_unit_test(parts_equal_the_whole_at_awkward_cuts),
		cmocka_unit_test(two_runs_are_bit_identical),
		cmocka_unit_test(evaluation_between_forward_and_backward_changes_nothing),
		cmocka_unit_test(evaluation_plan_gives_what_a_training_plan_evaluates),
		cmocka_unit_test(steady_step_allocates_nothing),
		cmocka_unit_test(estimate_is_what_the_plan_takes),
		cmocka_unit_test(evaluation_needs_far_less_memory_than_training),
		cmocka_unit_test(gradients_are_zero_before_backward_and_after_an_update),
		cmocka_unit_test(backward_without_a_training_forward_is_refused),
		cmocka_unit_test(plan_too_large_for_memory_is_refused_before_it_is_taken),
#ifdef GP_FAULTS
		cmocka_unit_test(every_failed_allocation_is_reported_and_leaks_nothing),
#endif
		cmocka_unit_test(devices_open_by_name),
		cmocka_unit_test(a_device_is_told_by_its_name_and_card),
		cmocka_unit_test(an_image_of_2_to_the_31_pixels_is_refused_on_every_device),
		cmocka_unit_test(unknown_devices_are_refused_with_a_reason),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
