/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans of which parts pass through codecs (spec.coded of common/graph/device.h)
 * against straightforward arithmetic with the same codecs, to the last bit: what
 * the optimizer remembers, gradients of parameters and of values, parameters. On
 * any device (test_device.h).
 */
#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/base/threads.h"
#include "common/codec/codec_store.h"
#include "common/graph/clip.h"
#include "common/graph/device.h"
#include "common/graph/plan_replace.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_linear.h"
#include "kernels/device_registry.h"
#include "tests/unit/ok.h"
#include "tests/unit/test_device.h"

static const char *const specs[] = {
	"fp16",          "bf16",           "fp8:format=e4m3",       "fp8:format=e5m2",
	"s2fp8",         "uniform:bits=8", "smaq:main=6,outlier=8", "sortquant:bits=6,split=2",
	"uniform:bits=3"};
enum { SPECS = sizeof specs / sizeof specs[0] };

static struct gp_codec_spec parse(const char *text)
{
	struct gp_codec_spec spec;
	OK(gp_codec_spec_parse(text, &spec, &err));
	return spec;
}

static float *floats(uint64_t n)
{
	float *x = gp_calloc(n, sizeof *x);
	assert_non_null(x);
	return x;
}

static void round_trip(const struct gp_codec_spec *spec, float *x, uint64_t n)
{
	struct gp_store_coder *c;
	OK(gp_store_coder_new(spec, &c, &err));
	for (uint64_t block = 0; block < gp_store_blocks(n); block++)
		gp_store_round_trip(c, x, n, block);
	gp_store_coder_free(c);
}

/* In each block, whatever becomes what a zero does, is 0. */
static void moment_round_trip(const struct gp_codec_spec *spec, float *x, uint64_t n)
{
	for (uint64_t at = 0; at < n; at += GP_STORE_BLOCK) {
		const uint64_t end = n - at < GP_STORE_BLOCK ? n : at + GP_STORE_BLOCK;
		uint64_t zero = at;
		while (zero < end && x[zero] != 0.0f)
			zero++;
		round_trip(spec, x + at, end - at);
		const float was = zero < end ? x[zero] : 0.0f;
		for (uint64_t i = at; i < end && zero < end; i++)
			x[i] = x[i] == was ? 0.0f : x[i];
	}
}

static void expect_same(const float *got, const float *want, uint64_t n, const char *what, const char *codec)
{
	for (uint64_t i = 0; i < n; i++)
		if (memcmp(&got[i], &want[i], sizeof *got) != 0)
			fail_msg("%s: %s: element %llu is %.9g instead of %.9g", codec, what, (unsigned long long)i,
				 (double)got[i], (double)want[i]);
}

/* --- a layer whose weight takes more than one block --------------------------------------------------------------- */

enum { BATCH = 4, IN = 300, OUT = 250, WEIGHTS = IN * OUT, STEPS = 4 };
#define RATE 0.01f

static struct gp_graph *build_with(int outputs)
{
	const struct gp_shape row = {.ndim = 1, .dim = {IN}};
	struct gp_graph *g = gp_graph_new("layer", &row, &err);
	OK(gp_graph_begin_block(g, "block", &err));
	assert_true(gp_graph_linear(g, "fc", 0, outputs, false, &err) > 0);
	OK(gp_graph_finish(g, &err));
	return g;
}

static struct gp_graph *build_layer(void)
{
	assert_true(WEIGHTS > GP_STORE_BLOCK);
	return build_with(OUT);
}

static struct gp_plan *make_plan(struct gp_device *dev, const struct gp_plan_spec *spec)
{
	struct gp_plan *p;
	OK(dev->ops->plan_new(dev, spec, &p, &err));
	return p;
}

/* Columns have gradients of very different sizes, and some of zero. */
static void run_chunk(struct gp_plan *p, uint64_t step)
{
	float *x = p->ops->buffer(p, 0, GP_BUF_INPUT, 0), *dout = p->ops->buffer(p, 0, GP_BUF_GRAD_OUTPUT, 0);
	for (uint64_t i = 0; i < BATCH * IN; i++)
		x[i] = i % IN % 7 == 0 ? 0.0f : ldexpf(gp_rng_normal(1, step, i), -(int)(i % IN % 12));
	OK(p->ops->forward(p, 0, GP_TRAIN, step, &err));
	for (uint64_t i = 0; i < BATCH * OUT; i++)
		dout[i] = gp_rng_normal(2, step, i);
	OK(p->ops->backward(p, 0, &err));
}

/* --- what the optimizer remembers --------------------------------------------------------------------------------- */

static const struct gp_optim optimizers[] = {
	{.kind = GP_OPTIM_SGD, .momentum = 0.9f, .weight_decay = 1e-3f},
	{.kind = GP_OPTIM_SGD, .momentum = 0.9f, .nesterov = true},
	{.kind = GP_OPTIM_ADAM, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8f, .weight_decay = 1e-3f},
	{.kind = GP_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8f, .weight_decay = 1e-2f},
};
enum { OPTIMIZERS = sizeof optimizers / sizeof optimizers[0] };

/* first, and the root of second, as they were decoded. */
struct memory {
	float *value, *first, *root;
};

static void momentum_update(const struct gp_optim *o, struct memory *m, const float *grad)
{
	for (int i = 0; i < WEIGHTS; i++) {
		const float g = grad[i] + o->weight_decay * m->value[i], v = o->momentum * m->first[i] + g;
		m->first[i] = v;
		m->value[i] -= RATE * (o->nesterov ? g + o->momentum * v : v);
	}
}

static void adam_update(const struct gp_optim *o, struct memory *m, const float *grad, int step)
{
	const bool decoupled = o->kind == GP_OPTIM_ADAMW;
	const double most = (1.0 - o->beta1) / sqrt((1.0 - o->beta2) * (1.0 - o->beta1 * o->beta1 / o->beta2));
	const float size = (float)((double)RATE / (1.0 - pow(o->beta1, step)));
	const float scale = (float)(1.0 / sqrt(1.0 - pow(o->beta2, step)));
	for (int i = 0; i < WEIGHTS; i++) {
		const float root = fmaxf(m->root[i], 0.0f), limit = (float)most * root;
		const float v =
			m->value[i] * (decoupled ? (float)(1.0 - (double)RATE * (double)o->weight_decay) : 1.0f);
		const float g = grad[i] + (decoupled ? 0.0f : o->weight_decay) * v;
		float first = fminf(fmaxf(m->first[i], -limit), limit), second = root * root;
		first = (float)o->beta1 * first + (float)(1.0 - o->beta1) * g;
		second = (float)o->beta2 * second + (float)(1.0 - o->beta2) * g * g;
		m->value[i] = v - size * first / (sqrtf(second) * scale + o->eps);
		m->first[i] = first;
		m->root[i] = sqrtf(second);
	}
}

static void reference_step(const struct gp_optim *o, const struct gp_codec_spec *codec, struct memory *m,
			   const float *grad, int step)
{
	if (o->kind == GP_OPTIM_SGD)
		momentum_update(o, m, grad);
	else
		adam_update(o, m, grad, step);
	moment_round_trip(codec, m->first, WEIGHTS);
	if (o->kind != GP_OPTIM_SGD)
		moment_round_trip(codec, m->root, WEIGHTS);
}

static void check_state(struct gp_device *dev, const struct gp_graph *g, const struct gp_optim *o, const char *text)
{
	const struct gp_codec_spec codec = parse(text);
	const struct gp_plan_spec spec = {.graph = g,
					  .batch = BATCH,
					  .slots = 1,
					  .train = true,
					  .seed = 3,
					  .optim = *o,
					  .coded[GP_STRUCT_STATE] = &codec};
	struct gp_plan *p = make_plan(dev, &spec);
	struct memory m = {floats(WEIGHTS), floats(WEIGHTS), floats(WEIGHTS)};
	float *x = floats(WEIGHTS);
	OK(p->ops->param_get(p, 0, m.value, &err));
	for (int step = 1; step <= STEPS; step++) {
		run_chunk(p, (uint64_t)step);
		OK(p->ops->grad_get(p, 0, x, &err));
		OK(p->ops->optim_step(p, RATE, &err));
		reference_step(o, &codec, &m, x, step);
		OK(p->ops->param_get(p, 0, x, &err));
		expect_same(x, m.value, WEIGHTS, "parameters", text);
	}
	OK(p->ops->optim_get(p, 0, 0, x, &err));
	if (o->kind == GP_OPTIM_SGD)
		expect_same(x, m.first, WEIGHTS, "momentum", text);
	gp_free(m.value);
	gp_free(m.first);
	gp_free(m.root);
	gp_free(x);
	dev->ops->plan_free(p);
}

static void updates_are_those_of_state_that_passed_through_the_codec(void **state)
{
	(void)state;
	struct gp_graph *g = build_layer();
	for (int threads = 1; threads < 2 * test_threads(); threads += 2) {
		struct gp_device *dev;
		OK(gp_device_open(test_device(), threads, &dev, &err));
		for (int o = 0; o < OPTIMIZERS; o++)
			for (int i = 0; i < SPECS; i++)
				check_state(dev, g, &optimizers[o], specs[i]);
		dev->ops->close(dev);
	}
	gp_graph_free(g);
}

/* Whatever a codec makes of small moments: none moves a parameter further than Adam itself can. Where there never was a gradient
 * nothing moves. */
static void no_codec_lets_adam_run_away(void **state)
{
	(void)state;
	struct gp_graph *g = build_layer();
	struct gp_device *dev;
	float *before = floats(WEIGHTS), *after = floats(WEIGHTS);
	const struct gp_optim *o = &optimizers[2];
	const float most = 7.28f * RATE;
	OK(gp_device_open(test_device(), 1, &dev, &err));
	for (int i = 0; i < SPECS; i++) {
		const struct gp_codec_spec codec = parse(specs[i]);
		struct gp_plan_spec spec = {.graph = g, .batch = BATCH, .slots = 1, .train = true, .seed = 3};
		spec.coded[GP_STRUCT_STATE] = &codec;
		spec.optim = *o;
		spec.optim.weight_decay = 0.0f;
		struct gp_plan *p = make_plan(dev, &spec);
		p->ops->optim_count_set(p, 10000); /* corrections are 1 */
		for (uint64_t step = 0; step < 20; step++) {
			OK(p->ops->param_get(p, 0, before, &err));
			run_chunk(p, step);
			OK(p->ops->optim_step(p, RATE, &err));
			OK(p->ops->param_get(p, 0, after, &err));
			for (int k = 0; k < WEIGHTS; k++)
				if (!(fabsf(after[k] - before[k]) <= most))
					fail_msg("%s: step %d moves element %d by %g", specs[i], (int)step, k,
						 (double)(after[k] - before[k]));
			for (int k = 0; k < WEIGHTS; k++)
				if (k % IN % 7 == 0 && after[k] != before[k])
					fail_msg("%s: step %d moves element %d, which has no gradient", specs[i],
						 (int)step, k);
		}
		dev->ops->plan_free(p);
	}
	dev->ops->close(dev);
	gp_free(before);
	gp_free(after);
	gp_graph_free(g);
}

static void state_takes_what_the_codec_needs(void **state)
{
	(void)state;
	struct gp_graph *g = build_layer();
	struct gp_device *dev;
	const struct gp_codec_spec codec = parse("uniform:bits=8");
	struct gp_plan_memory plain, coded, took;
	OK(gp_device_open(test_device(), 2, &dev, &err));
	struct gp_plan_spec spec = {.graph = g, .batch = BATCH, .slots = 1, .train = true, .optim = optimizers[2]};
	OK(dev->ops->plan_estimate(dev, &spec, &plain, &err));
	spec.coded[GP_STRUCT_STATE] = &codec;
	OK(dev->ops->plan_estimate(dev, &spec, &coded, &err));
	assert_true(coded.optim * 100 < plain.optim * 26);
	struct gp_plan *p = make_plan(dev, &spec);
	dev->ops->plan_memory(p, &took);
	assert_memory_equal(&took, &coded, sizeof took);
	run_chunk(p, 0);
	const uint64_t before = gp_mem_calls();
	OK(p->ops->optim_step(p, RATE, &err));
	run_chunk(p, 1);
	OK(p->ops->optim_step(p, RATE, &err));
	assert_int_equal(gp_mem_calls(), before);
	dev->ops->plan_free(p);
	spec.optim.beta1 = 0.999;
	spec.optim.beta2 = 0.9;
	assert_int_equal(dev->ops->plan_estimate(dev, &spec, &coded, &err), GP_UNSUPPORTED);
	dev->ops->close(dev);
	gp_graph_free(g);
}

/* As it lies, it goes on exactly; other bytes are refused, and leave it as it is. */
static void codes_of_state_come_in_as_they_went_out(void **state)
{
	(void)state;
	struct gp_graph *g = build_layer();
	struct gp_device *dev;
	float *x = floats(WEIGHTS), *y = floats(WEIGHTS);
	OK(gp_device_open(test_device(), 2, &dev, &err));
	for (int i = 0; i < SPECS; i++) {
		const struct gp_codec_spec codec = parse(specs[i]);
		struct gp_plan_spec spec = {
			.graph = g, .batch = BATCH, .slots = 1, .train = true, .optim = optimizers[2]};
		spec.coded[GP_STRUCT_STATE] = &codec;
		struct gp_plan *p = make_plan(dev, &spec), *q = make_plan(dev, &spec);
		const uint64_t bytes = p->ops->optim_code_bytes(p, 0);
		uint8_t *code = gp_calloc(bytes, 1);
		assert_non_null(code);
		run_chunk(p, 0);
		OK(p->ops->optim_step(p, RATE, &err));
		for (int which = 0; which < 2; which++) {
			OK(p->ops->optim_code_get(p, 0, which, code, &err));
			OK(q->ops->optim_code_set(q, 0, which, code, &err));
		}
		memset(code, 0xff, bytes);
		assert_int_equal(q->ops->optim_code_set(q, 0, 1, code, &err), GP_INVALID);
		memset(code, 0, bytes);
		assert_int_equal(q->ops->optim_code_set(q, 0, 0, code, &err), GP_INVALID);
		for (int which = 0; which < 2; which++) {
			OK(p->ops->optim_get(p, 0, which, x, &err));
			OK(q->ops->optim_get(q, 0, which, y, &err));
			expect_same(y, x, WEIGHTS, "state", specs[i]);
		}
		gp_free(code);
		dev->ops->plan_free(p);
		dev->ops->plan_free(q);
	}
	dev->ops->close(dev);
	gp_free(x);
	gp_free(y);
	gp_graph_free(g);
}

/* A matrix that stays keeps its very bytes; of one that loses rows, the rest is decoded and encoded anew. */
static void plans_that_take_over_keep_the_state(void **state)
{
	(void)state;
	struct gp_graph *g = build_layer(), *same = build_layer(), *smaller = build_with(OUT / 2);
	struct gp_device *dev;
	float *first = floats(WEIGHTS), *got = floats(WEIGHTS);
	OK(gp_device_open(test_device(), 1, &dev, &err));
	for (int i = 0; i < SPECS; i++) {
		const struct gp_codec_spec codec = parse(specs[i]);
		struct gp_plan_spec spec = {
			.graph = g, .batch = BATCH, .slots = 1, .train = true, .optim = optimizers[0]};
		spec.coded[GP_STRUCT_STATE] = &codec;
		struct gp_plan *p = make_plan(dev, &spec);
		run_chunk(p, 0);
		OK(p->ops->optim_step(p, RATE, &err));
		OK(p->ops->optim_get(p, 0, 0, first, &err));
		spec.graph = same;
		OK(gp_plan_replace(dev, &spec, &p, &err));
		OK(p->ops->optim_get(p, 0, 0, got, &err));
		expect_same(got, first, WEIGHTS, "the whole", specs[i]);
		spec.graph = smaller;
		OK(gp_plan_replace(dev, &spec, &p, &err));
		OK(p->ops->optim_get(p, 0, 0, got, &err));
		moment_round_trip(&codec, first, OUT / 2 * IN);
		expect_same(got, first, OUT / 2 * IN, "the first rows", specs[i]);
		assert_int_equal(p->ops->optim_count_get(p), 1);
		dev->ops->plan_free(p);
	}
	dev->ops->close(dev);
	gp_free(first);
	gp_free(got);
	gp_graph_free(g);
	gp_graph_free(same);
	gp_graph_free(smaller);
}

/* A weight of more than one block, which lies in another order on a GPU. */
static struct gp_graph *build_conv(void)
{
	enum { DEPTH = 96 };
	const struct gp_shape image = {.ndim = 3, .dim = {3, 3, DEPTH}};
	struct gp_graph *g = gp_graph_new("conv", &image, &err);
	OK(gp_graph_begin_block(g, "block", &err));
	assert_true(gp_graph_conv(g, "conv", 0, DEPTH, 3, 1, 1, 1, false, &err) > 0);
	OK(gp_graph_finish(g, &err));
	assert_true(g->param[0].count > GP_STORE_BLOCK);
	return g;
}

static void set_state(struct gp_plan *p, uint64_t n)
{
	float *x = floats(n);
	for (int which = 0; which < 2; which++) {
		for (uint64_t i = 0; i < n; i++) {
			const float v = gp_rng_normal(5, (uint64_t)which, i);
			x[i] = i % 5 == 0 ? 0.0f : which ? v * v : 0.1f * v;
		}
		OK(p->ops->optim_set(p, 0, which, x, &err));
	}
	gp_free(x);
}

static void expect_same_state(struct gp_plan *p, struct gp_plan *q, uint64_t n, const char *text)
{
	float *x = floats(n), *y = floats(n);
	for (int which = 0; which < 2; which++) {
		OK(p->ops->optim_get(p, 0, which, x, &err));
		OK(q->ops->optim_get(q, 0, which, y, &err));
		expect_same(y, x, n, "state", text);
	}
	gp_free(x);
	gp_free(y);
}

/* The same state has the same bytes on the processor, and goes on there, or here. */
static void codes_of_state_are_those_of_the_processor(void **state)
{
	(void)state;
	struct gp_graph *g = build_conv();
	struct gp_device *cpu, *dev;
	const uint64_t n = g->param[0].count;
	OK(gp_device_open("cpu", 2, &cpu, &err));
	OK(gp_device_open(test_device(), 1, &dev, &err));
	for (int i = 0; i <= SPECS; i++) {
		const char *text = i < SPECS ? specs[i] : "smaq:main=6,outlier=8,round=stochastic";
		const struct gp_codec_spec codec = parse(text);
		struct gp_plan_spec spec = {
			.graph = g, .batch = 1, .slots = 1, .train = true, .seed = 3, .optim = optimizers[2]};
		spec.coded[GP_STRUCT_STATE] = &codec;
		struct gp_plan *p = make_plan(cpu, &spec), *q = make_plan(dev, &spec), *r = make_plan(dev, &spec);
		const uint64_t bytes = p->ops->optim_code_bytes(p, 0);
		uint8_t *want = gp_calloc(bytes, 1), *got = gp_calloc(bytes, 1);
		assert_true(want && got);
		assert_int_equal(q->ops->optim_code_bytes(q, 0), bytes);
		p->ops->optim_count_set(p, 6);
		q->ops->optim_count_set(q, 6);
		set_state(p, n);
		set_state(q, n);
		for (int which = 0; which < 2; which++) {
			OK(p->ops->optim_code_get(p, 0, which, want, &err));
			OK(q->ops->optim_code_get(q, 0, which, got, &err));
			assert_memory_equal(got, want, bytes);
			OK(r->ops->optim_code_set(r, 0, which, want, &err));
		}
		expect_same_state(p, r, n, text);
		gp_free(want);
		gp_free(got);
		cpu->ops->plan_free(p);
		dev->ops->plan_free(q);
		dev->ops->plan_free(r);
	}
	cpu->ops->close(cpu);
	dev->ops->close(dev);
	gp_graph_free(g);
}

/* --- gradients of parameters -------------------------------------------------------------------------------------- */

static void check_gradients(struct gp_device *dev, const struct gp_graph *g, const struct gp_optim *o, const char *text)
{
	const struct gp_codec_spec codec = parse(text);
	struct gp_plan_spec spec = {.graph = g, .batch = BATCH, .slots = 1, .train = true, .seed = 3, .optim = *o};
	struct gp_plan *plain = make_plan(dev, &spec);
	spec.coded[GP_STRUCT_WEIGHT_GRADS] = &codec;
	struct gp_plan *p = make_plan(dev, &spec);
	float *grad = floats(WEIGHTS), *want = floats(WEIGHTS), *got = floats(WEIGHTS);
	double squares, sum = 0.0;
	OK(p->ops->param_get(p, 0, want, &err));
	run_chunk(p, 0);
	run_chunk(p, 1);
	OK(p->ops->grad_get(p, 0, grad, &err));
	round_trip(&codec, grad, WEIGHTS);
	for (int i = 0; i < WEIGHTS; i++)
		sum += (double)grad[i] * (double)grad[i];
	OK(p->ops->grad_squares(p, &squares, &err));
	assert_true(fabs(squares - sum) <= 1e-9 * sum);
	const float scale = o->clip_norm > 0.0 ? gp_clip_scale(o->clip_norm, sqrt(squares)) : 1.0f;
	const float limit = o->clip_value > 0.0 ? (float)o->clip_value : INFINITY;
	for (int i = 0; i < WEIGHTS; i++)
		want[i] -= RATE * fmaxf(fminf(grad[i] * scale, limit), -limit);
	OK(gp_clip_update(p, RATE, sqrt(squares), &err));
	OK(p->ops->param_get(p, 0, got, &err));
	expect_same(got, want, WEIGHTS, "parameters", text);
	gp_free(grad);
	gp_free(want);
	gp_free(got);
	dev->ops->plan_free(plain);
	dev->ops->plan_free(p);
}

static void updates_read_gradients_that_passed_through_the_codec(void **state)
{
	(void)state;
	static const struct gp_optim ways[] = {{.kind = GP_OPTIM_SGD},
					       {.kind = GP_OPTIM_SGD, .clip_norm = 0.5},
					       {.kind = GP_OPTIM_SGD, .clip_value = 0.01}};
	struct gp_graph *g = build_layer();
	for (int threads = 1; threads <= test_threads(); threads++) {
		struct gp_device *dev;
		OK(gp_device_open(test_device(), threads, &dev, &err));
		for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++)
			for (int i = 0; i < SPECS; i++)
				check_gradients(dev, g, &ways[k], specs[i]);
		dev->ops->close(dev);
	}
	gp_graph_free(g);
}

/* --- parameters --------------------------------------------------------------------------------------------------- */

static void expect_forward_with(struct gp_plan *p, struct gp_plan *plain, const float *weights, const char *text)
{
	OK(plain->ops->param_set(plain, 0, weights, &err));
	run_chunk(p, 7);
	run_chunk(plain, 7);
	expect_same(p->ops->buffer(p, 0, GP_BUF_OUTPUT, 0), plain->ops->buffer(plain, 0, GP_BUF_OUTPUT, 0), BATCH * OUT,
		    "outputs", text);
	expect_same(p->ops->buffer(p, 0, GP_BUF_GRAD_INPUT, 0), plain->ops->buffer(plain, 0, GP_BUF_GRAD_INPUT, 0),
		    BATCH * IN, "gradients of inputs", text);
}

static void check_weights(struct gp_device *dev, const struct gp_graph *g, const char *text, bool no_master)
{
	const struct gp_codec_spec codec = parse(text);
	struct gp_plan_spec spec = {.graph = g,
				    .batch = BATCH,
				    .slots = 1,
				    .train = true,
				    .grad_inputs = 1,
				    .seed = 3,
				    .no_master = no_master};
	struct gp_plan *plain = make_plan(dev, &spec);
	spec.coded[GP_STRUCT_WEIGHTS] = &codec;
	struct gp_plan *p = make_plan(dev, &spec);
	float *grad = floats(WEIGHTS), *master = floats(WEIGHTS), *now = floats(WEIGHTS);
	OK(p->ops->param_get(p, 0, now, &err));
	memcpy(master, now, WEIGHTS * sizeof *now);
	if (!no_master)
		round_trip(&codec, now, WEIGHTS);
	for (int step = 0; step < 2; step++) {
		expect_forward_with(p, plain, now, text);
		OK(p->ops->grad_get(p, 0, grad, &err));
		OK(p->ops->optim_step(p, RATE, &err));
		OK(plain->ops->optim_step(plain, RATE, &err));
		for (int i = 0; i < WEIGHTS; i++)
			master[i] -= RATE * grad[i];
		memcpy(now, master, WEIGHTS * sizeof *now);
		round_trip(&codec, now, WEIGHTS);
		if (no_master)
			memcpy(master, now, WEIGHTS * sizeof *now);
		OK(p->ops->param_get(p, 0, grad, &err));
		expect_same(grad, master, WEIGHTS, "parameters", text);
	}
	expect_forward_with(p, plain, now, text);
	gp_free(grad);
	gp_free(master);
	gp_free(now);
	dev->ops->plan_free(plain);
	dev->ops->plan_free(p);
}

static void parameters_are_read_as_the_codec_leaves_them(void **state)
{
	(void)state;
	struct gp_graph *g = build_layer();
	for (int threads = 1; threads <= test_threads(); threads++) {
		struct gp_device *dev;
		OK(gp_device_open(test_device(), threads, &dev, &err));
		for (int i = 0; i < SPECS; i++) {
			check_weights(dev, g, specs[i], false);
			check_weights(dev, g, specs[i], true);
		}
		dev->ops->close(dev);
	}
	gp_graph_free(g);
}

/* --- gradients of values ------------------------------------------------------------------------------------------ */

enum { SIDE = 6, DEEP = 8, WIDE = 16, PIXELS = SIDE * SIDE, LAYERS = 3 };

static int add_layer(struct gp_graph *g, int layer, int x)
{
	if (layer == 0)
		return gp_graph_conv(g, "first", x, WIDE, 1, 1, 0, 1, false, &err);
	if (layer == 2)
		return gp_graph_conv(g, "last", x, DEEP, 1, 1, 0, 1, false, &err);
	x = gp_graph_batch_norm(g, "norm", x, 1e-5f, 0.1f, &err);
	return gp_graph_unary(g, GP_OP_RELU, "act", x, &err);
}

/* Layers [from, to) of a convolution, a norm with its activation, and one more convolution. */
static struct gp_graph *build_layers(int from, int to)
{
	const struct gp_shape image = {.ndim = 3, .dim = {SIDE, SIDE, from == 0 ? DEEP : WIDE}};
	struct gp_graph *g = gp_graph_new("layers", &image, &err);
	int x = 0;
	OK(gp_graph_begin_block(g, "block", &err));
	for (int i = from; i < to; i++)
		x = add_layer(g, i, x);
	assert_true(x > 0);
	OK(gp_graph_finish(g, &err));
	return g;
}

static struct gp_plan *make_layers(struct gp_device *dev, const struct gp_graph *g, const struct gp_codec_spec *codec)
{
	const struct gp_plan_spec spec = {.graph = g,
					  .batch = BATCH,
					  .slots = 1,
					  .train = true,
					  .grad_inputs = 1,
					  .seed = 3,
					  .coded[GP_STRUCT_GRAD_MAPS] = codec};
	return make_plan(dev, &spec);
}

static void expect_gradients(struct gp_plan *p, struct gp_plan *layer, const char *text)
{
	const struct gp_graph *g = layer->spec.graph;
	for (int i = 0; i < g->params; i++) {
		if (!g->param[i].trained)
			continue;
		float *got = floats(g->param[i].count), *want = floats(g->param[i].count);
		OK(p->ops->grad_get(p, gp_graph_find_param(p->spec.graph, g->param[i].name), got, &err));
		OK(layer->ops->grad_get(layer, i, want, &err));
		expect_same(got, want, g->param[i].count, g->param[i].name, text);
		gp_free(got);
		gp_free(want);
	}
}

static uint64_t input_count(const struct gp_plan *p)
{
	return BATCH * gp_shape_elements(gp_graph_input_shape(p->spec.graph));
}

static void copy_params(struct gp_plan *to, struct gp_plan *from)
{
	const struct gp_graph *g = to->spec.graph;
	for (int i = 0; i < g->params; i++) {
		float *x = floats(g->param[i].count);
		OK(from->ops->param_get(from, gp_graph_find_param(from->spec.graph, g->param[i].name), x, &err));
		OK(to->ops->param_set(to, i, x, &err));
		gp_free(x);
	}
}

/* Each layer a plan of its own, whose gradient passes through the codec before the next one gets it. */
static void run_layers(struct gp_plan *layer[LAYERS], const struct gp_codec_spec *codec, const float *x,
		       const float *dout, float *dx)
{
	memcpy(layer[0]->ops->buffer(layer[0], 0, GP_BUF_INPUT, 0), x, input_count(layer[0]) * sizeof *x);
	for (int i = 0; i < LAYERS; i++) {
		if (i > 0)
			memcpy(layer[i]->ops->buffer(layer[i], 0, GP_BUF_INPUT, 0),
			       layer[i - 1]->ops->buffer(layer[i - 1], 0, GP_BUF_OUTPUT, 0),
			       input_count(layer[i]) * sizeof *x);
		OK(layer[i]->ops->forward(layer[i], 0, GP_TRAIN, 0, &err));
	}
	memcpy(layer[2]->ops->buffer(layer[2], 0, GP_BUF_GRAD_OUTPUT, 0), dout, BATCH * PIXELS * DEEP * sizeof *dout);
	for (int i = LAYERS - 1; i >= 0; i--) {
		float *to = i > 0 ? layer[i - 1]->ops->buffer(layer[i - 1], 0, GP_BUF_GRAD_OUTPUT, 0) : dx;
		OK(layer[i]->ops->backward(layer[i], 0, &err));
		memcpy(to, layer[i]->ops->buffer(layer[i], 0, GP_BUF_GRAD_INPUT, 0),
		       input_count(layer[i]) * sizeof *to);
		round_trip(codec, to, input_count(layer[i]));
	}
}

static void check_layers(struct gp_device *dev, const char *text)
{
	const struct gp_codec_spec codec = parse(text);
	struct gp_graph *whole = build_layers(0, LAYERS), *part[LAYERS];
	struct gp_plan *p = make_layers(dev, whole, &codec), *layer[LAYERS];
	float *x = floats(BATCH * PIXELS * DEEP), *dout = floats(BATCH * PIXELS * DEEP),
	      *dx = floats(BATCH * PIXELS * DEEP);
	for (uint64_t i = 0; i < BATCH * PIXELS * DEEP; i++) {
		x[i] = gp_rng_normal(1, 1, i);
		dout[i] = gp_rng_normal(1, 2, i);
	}
	for (int i = 0; i < LAYERS; i++) {
		part[i] = build_layers(i, i + 1);
		layer[i] = make_layers(dev, part[i], NULL);
		copy_params(layer[i], p);
	}
	run_layers(layer, &codec, x, dout, dx);
	memcpy(p->ops->buffer(p, 0, GP_BUF_INPUT, 0), x, BATCH * PIXELS * DEEP * sizeof *x);
	OK(p->ops->forward(p, 0, GP_TRAIN, 0, &err));
	memcpy(p->ops->buffer(p, 0, GP_BUF_GRAD_OUTPUT, 0), dout, BATCH * PIXELS * DEEP * sizeof *dout);
	OK(p->ops->backward(p, 0, &err));
	expect_same(p->ops->buffer(p, 0, GP_BUF_GRAD_INPUT, 0), dx, BATCH * PIXELS * DEEP, "gradient of the input",
		    text);
	for (int i = 0; i < LAYERS; i++) {
		expect_gradients(p, layer[i], text);
		dev->ops->plan_free(layer[i]);
		gp_graph_free(part[i]);
	}
	dev->ops->plan_free(p);
	gp_graph_free(whole);
	gp_free(x);
	gp_free(dout);
	gp_free(dx);
}

static void what_each_layer_hands_back_passes_through_the_codec(void **state)
{
	(void)state;
	for (int threads = 1; threads <= test_threads(); threads++) {
		struct gp_device *dev;
		OK(gp_device_open(test_device(), threads, &dev, &err));
		for (int i = 0; i < SPECS; i++)
			check_layers(dev, specs[i]);
		dev->ops->close(dev);
	}
}

/* --- everything --------------------------------------------------------------------------------------------------- */

/* With one codec for all, and with several. */
static void everything_at_once_is_the_same_on_any_number_of_threads(void **state)
{
	(void)state;
	struct gp_graph *g = build_layer();
	float *want = floats(WEIGHTS), *got = floats(WEIGHTS);
	static const char *const of_state[] = {"smaq:main=6,outlier=8", "uniform:bits=8", "smaq:round=stochastic"};
	for (int mixed = 0; mixed < 3; mixed++) {
		const struct gp_codec_spec codec[GP_STRUCTS] = {parse("smaq:main=6,outlier=8"),
								parse(mixed ? "bf16" : "smaq:main=6,outlier=8"),
								parse("smaq:main=6,outlier=8"), parse(of_state[mixed])};
		for (int threads = 1; threads <= 2 * test_threads(); threads++) {
			struct gp_device *dev;
			struct gp_plan_spec spec = {.graph = g, .batch = BATCH, .slots = 1, .train = true, .seed = 3};
			spec.optim = optimizers[2];
			spec.maps = &codec[0];
			for (int i = 0; i < GP_STRUCTS; i++)
				spec.coded[i] = &codec[i];
			OK(gp_device_open(test_device(), threads, &dev, &err));
			struct gp_plan *p = make_plan(dev, &spec);
			for (uint64_t step = 0; step < STEPS; step++) {
				run_chunk(p, step);
				OK(p->ops->optim_step(p, RATE, &err));
			}
			OK(p->ops->param_get(p, 0, threads == 1 ? want : got, &err));
			if (threads > 1)
				expect_same(got, want, WEIGHTS, "parameters", "everything");
			dev->ops->plan_free(p);
			dev->ops->close(dev);
		}
	}
	gp_free(want);
	gp_free(got);
	gp_graph_free(g);
}

int main(int argc, char **argv)
{
	(void)argc;
	gp_threads_prepare(argv);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(updates_are_those_of_state_that_passed_through_the_codec),
		cmocka_unit_test(no_codec_lets_adam_run_away),
		cmocka_unit_test(state_takes_what_the_codec_needs),
		cmocka_unit_test(codes_of_state_come_in_as_they_went_out),
		cmocka_unit_test(plans_that_take_over_keep_the_state),
		cmocka_unit_test(codes_of_state_are_those_of_the_processor),
		cmocka_unit_test(updates_read_gradients_that_passed_through_the_codec),
		cmocka_unit_test(parameters_are_read_as_the_codec_leaves_them),
		cmocka_unit_test(what_each_layer_hands_back_passes_through_the_codec),
		cmocka_unit_test(everything_at_once_is_the_same_on_any_number_of_threads),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
