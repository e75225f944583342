/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients of a plan whose maps lie encoded (kernels/plan/plan_store.h): they
 * are those that a backward pass in double precision gives which reads the
 * decoded values in place of the exact ones, while everything that forward
 * computed (outputs, statistics of batch norm, where an activation that stands
 * alone let gradients pass) is exact. What it saves. What is
 * the same wherever a model is cut: test_plan_kept.c; that nothing lies where
 * it is overwritten: test_plan_walk.c. On any device (test_device.h).
 */
#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/base/threads.h"
#include "common/codec/codec_store.h"
#include "common/graph/device.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_elementwise.h"
#include "kernels/device_registry.h"
#include "tests/unit/ok.h"
#include "tests/unit/test_device.h"

enum { BATCH = 2, SIDE = 9, ROWS = BATCH * SIDE * SIDE, IN = 8, MIDDLE = 16, OUT = 12 };
static const double EPS = 1e-5;

/* A convolution of 1x1, a batch norm with its activation, which the next convolution computes as it reads, and that. */
static struct gp_graph *build(void)
{
	const struct gp_shape image = {.ndim = 3, .dim = {SIDE, SIDE, IN}};
	struct gp_graph *g = gp_graph_new("chain", &image, &err);
	OK(gp_graph_begin_block(g, "block", &err));
	int x = gp_graph_conv(g, "first", 0, MIDDLE, 1, 1, 0, 1, false, &err);
	x = gp_graph_batch_norm(g, "norm", x, (float)EPS, 0.1f, &err);
	x = gp_graph_unary(g, GP_OP_RELU, "act", x, &err);
	assert_true(gp_graph_conv(g, "last", x, OUT, 1, 1, 0, 1, false, &err) > 0);
	OK(gp_graph_finish(g, &err));
	return g;
}

/* The activation behind a sum of the batch norm and of what that reads: the sum's value is kept nowhere else, so that whether a
 * gradient passes is known from the activation's output alone. */
static struct gp_graph *build_sum(enum gp_op act, bool frozen)
{
	const struct gp_shape image = {.ndim = 3, .dim = {SIDE, SIDE, IN}};
	struct gp_graph *g = gp_graph_new("sum", &image, &err);
	OK(gp_graph_begin_block(g, "block", &err));
	const int z_value = gp_graph_conv(g, "first", 0, MIDDLE, 1, 1, 0, 1, false, &err);
	int x = gp_graph_batch_norm(g, "norm", z_value, (float)EPS, 0.1f, &err);
	x = gp_graph_sum(g, "sum", x, z_value, &err);
	x = gp_graph_unary(g, act, "act", x, &err);
	assert_true(gp_graph_conv(g, "last", x, OUT, 1, 1, 0, 1, false, &err) > 0);
	OK(gp_graph_finish(g, &err));
	if (frozen)
		assert_true(gp_graph_freeze(g, "norm.*") > 0);
	return g;
}

/* An activation that reads a convolution and is read by one, without a batch norm. */
static struct gp_graph *build_alone(void)
{
	const struct gp_shape image = {.ndim = 3, .dim = {SIDE, SIDE, IN}};
	struct gp_graph *g = gp_graph_new("alone", &image, &err);
	OK(gp_graph_begin_block(g, "block", &err));
	int x = gp_graph_conv(g, "first", 0, MIDDLE, 1, 1, 0, 1, false, &err);
	x = gp_graph_unary(g, GP_OP_RELU, "act", x, &err);
	assert_true(gp_graph_conv(g, "last", x, OUT, 1, 1, 0, 1, false, &err) > 0);
	OK(gp_graph_finish(g, &err));
	return g;
}

/* Parameters, input, and the output's gradient. Input and first weights are small integers, so that their products are exact and
 * both sides encode the same values. */
struct numbers {
	float x[ROWS * IN], first[MIDDLE * IN], gamma[MIDDLE], beta[MIDDLE], last[OUT * MIDDLE], dout[ROWS * OUT];
};

static void draw(struct numbers *n)
{
	for (int i = 0; i < ROWS * IN; i++)
		n->x[i] = (float)(gp_rng_u32(1, 1, (uint64_t)i) % 9) - 4.0f;
	for (int i = 0; i < MIDDLE * IN; i++)
		n->first[i] = (float)(gp_rng_u32(1, 2, (uint64_t)i) % 7) - 3.0f;
	for (int i = 0; i < MIDDLE; i++) {
		n->gamma[i] = 1.0f + 0.2f * gp_rng_normal(1, 3, (uint64_t)i);
		n->beta[i] = 0.3f * gp_rng_normal(1, 4, (uint64_t)i);
	}
	for (int i = 0; i < OUT * MIDDLE; i++)
		n->last[i] = gp_rng_normal(1, 5, (uint64_t)i);
	for (int i = 0; i < ROWS * OUT; i++)
		n->dout[i] = gp_rng_normal(1, 6, (uint64_t)i);
}

struct gradients {
	float first[MIDDLE * IN], gamma[MIDDLE], beta[MIDDLE], last[OUT * MIDDLE];
};

/* --- the reference ------------------------------------------------------------------------------------------------ */

static double z[ROWS][MIDDLE], decoded[ROWS][MIDDLE], dz[ROWS][MIDDLE];

static void round_trip(const struct gp_codec_spec *spec, float *map)
{
	struct gp_store_coder *c;
	OK(gp_store_coder_new(spec, &c, &err));
	for (uint64_t block = 0; block < gp_store_blocks(ROWS * MIDDLE); block++)
		gp_store_round_trip(c, map, ROWS * MIDDLE, block);
	gp_store_coder_free(c);
}

static void forward(const struct numbers *n, const struct gp_codec_spec *spec)
{
	static float plain[ROWS * MIDDLE];
	for (int r = 0; r < ROWS; r++)
		for (int m = 0; m < MIDDLE; m++) {
			z[r][m] = 0.0;
			for (int i = 0; i < IN; i++)
				z[r][m] += (double)n->first[m * IN + i] * (double)n->x[r * IN + i];
			plain[r * MIDDLE + m] = (float)z[r][m];
		}
	round_trip(spec, plain);
	for (int r = 0; r < ROWS; r++)
		for (int m = 0; m < MIDDLE; m++)
			decoded[r][m] = (double)plain[r * MIDDLE + m];
}

static void statistics(int m, double *mean, double *invstd)
{
	double var = 0.0;
	*mean = 0.0;
	for (int r = 0; r < ROWS; r++)
		*mean += z[r][m] / ROWS;
	for (int r = 0; r < ROWS; r++)
		var += (z[r][m] - *mean) * (z[r][m] - *mean) / ROWS;
	*invstd = 1.0 / sqrt(var + EPS);
}

/* The gradient with respect to what the last convolution reads. */
static double handed_down(const struct numbers *n, int r, int m)
{
	double g = 0.0;
	for (int o = 0; o < OUT; o++)
		g += (double)n->last[o * MIDDLE + m] * (double)n->dout[r * OUT + o];
	return g;
}

/* One channel of the batch norm, from the gradient behind it in `dz` to that of its input there: PyTorch's formula with exact
 * statistics and decoded values. */
static void through_norm(const struct numbers *n, int m, double mean, double invstd, struct gradients *out)
{
	double sum = 0.0, dot = 0.0;
	for (int r = 0; r < ROWS; r++) {
		sum += dz[r][m];
		dot += dz[r][m] * (decoded[r][m] - mean);
	}
	out->beta[m] = (float)sum;
	out->gamma[m] = (float)(dot * invstd);
	for (int r = 0; r < ROWS; r++)
		dz[r][m] = (double)n->gamma[m] * invstd *
			   (dz[r][m] - sum / ROWS - (decoded[r][m] - mean) * invstd * invstd * dot / ROWS);
}

static void backward_channel(const struct numbers *n, int m, struct gradients *out)
{
	double mean, invstd;
	statistics(m, &mean, &invstd);
	const double gamma = (double)n->gamma[m], beta = (double)n->beta[m];
	for (int o = 0; o < OUT; o++) {
		double last = 0.0;
		for (int r = 0; r < ROWS; r++) {
			const double y = gamma * (decoded[r][m] - mean) * invstd + beta;
			last += (double)n->dout[r * OUT + o] * (y > 0.0 ? y : 0.0);
		}
		out->last[o * MIDDLE + m] = (float)last;
	}
	for (int r = 0; r < ROWS; r++)
		dz[r][m] = gamma * (decoded[r][m] - mean) * invstd + beta > 0.0 ? handed_down(n, r, m) : 0.0;
	through_norm(n, m, mean, invstd, out);
}

static void first_weights(const struct numbers *n, struct gradients *out)
{
	for (int m = 0; m < MIDDLE; m++)
		for (int i = 0; i < IN; i++) {
			double sum = 0.0;
			for (int r = 0; r < ROWS; r++)
				sum += dz[r][m] * (double)n->x[r * IN + i];
			out->first[m * IN + i] = (float)sum;
		}
}

static void reference(const struct numbers *n, const struct gp_codec_spec *spec, struct gradients *out)
{
	forward(n, spec);
	for (int m = 0; m < MIDDLE; m++)
		backward_channel(n, m, out);
	first_weights(n, out);
}

/* Gradients of build_sum, but for that of the last weights: whether a gradient passes depends on exact values. A frozen norm has
 * the running statistics that it began with, mean 0 and variance 1. */
static void reference_of_sum(const struct numbers *n, const struct gp_codec_spec *spec, bool six, bool frozen,
			     struct gradients *out)
{
	static double passed[ROWS];
	forward(n, spec);
	for (int m = 0; m < MIDDLE; m++) {
		const double gamma = (double)n->gamma[m], beta = (double)n->beta[m];
		double mean = 0.0, invstd = 1.0 / sqrt(1.0 + EPS);
		if (!frozen)
			statistics(m, &mean, &invstd);
		for (int r = 0; r < ROWS; r++) {
			const double y = gamma * (z[r][m] - mean) * invstd + beta + z[r][m];
			dz[r][m] = passed[r] = y > 0.0 && (!six || y < 6.0) ? handed_down(n, r, m) : 0.0;
		}
		if (!frozen)
			through_norm(n, m, mean, invstd, out);
		for (int r = 0; r < ROWS; r++)
			dz[r][m] = (frozen ? gamma * invstd * passed[r] : dz[r][m]) + passed[r];
	}
	first_weights(n, out);
}

/* Gradients of build_alone: the decoded map is for the gradient of the last weights only. */
static void reference_of_alone(const struct numbers *n, const struct gp_codec_spec *spec, struct gradients *out)
{
	static float map[ROWS * MIDDLE];
	forward(n, spec);
	for (int i = 0; i < ROWS * MIDDLE; i++)
		map[i] = z[i / MIDDLE][i % MIDDLE] > 0.0 ? (float)z[i / MIDDLE][i % MIDDLE] : 0.0f;
	round_trip(spec, map);
	for (int m = 0; m < MIDDLE; m++) {
		for (int o = 0; o < OUT; o++) {
			double last = 0.0;
			for (int r = 0; r < ROWS; r++)
				last += (double)n->dout[r * OUT + o] * (double)map[r * MIDDLE + m];
			out->last[o * MIDDLE + m] = (float)last;
		}
		for (int r = 0; r < ROWS; r++)
			dz[r][m] = z[r][m] > 0.0 ? handed_down(n, r, m) : 0.0;
	}
	first_weights(n, out);
}

/* --- the plan ----------------------------------------------------------------------------------------------------- */

static void set(struct gp_plan *p, const char *name, const float *values)
{
	OK(p->ops->param_set(p, gp_graph_find_param(p->spec.graph, name), values, &err));
}

static void get(struct gp_plan *p, const char *name, float *out)
{
	OK(p->ops->grad_get(p, gp_graph_find_param(p->spec.graph, name), out, &err));
}

static void run(struct gp_device *dev, const struct gp_graph *g, const struct numbers *n,
		const struct gp_codec_spec *spec, struct gradients *out)
{
	struct gp_plan *p;
	const struct gp_plan_spec ps = {.graph = g, .batch = BATCH, .slots = 2, .train = true, .seed = 1, .maps = spec};
	OK(dev->ops->plan_new(dev, &ps, &p, &err));
	set(p, "first.weight", n->first);
	const bool norm = gp_graph_find_param(g, "norm.weight") >= 0;
	if (norm) {
		set(p, "norm.weight", n->gamma);
		set(p, "norm.bias", n->beta);
	}
	set(p, "last.weight", n->last);
	for (int slot = 1; slot >= 0; slot--) { /* the other slot's forward must not touch what this one keeps */
		memcpy(dev->ops->buffer(p, slot, GP_BUF_INPUT, 0), n->x, sizeof n->x);
		if (slot == 1)
			((float *)dev->ops->buffer(p, 1, GP_BUF_INPUT, 0))[0] = 1.0f;
		OK(dev->ops->forward(p, slot, GP_TRAIN, (uint64_t)slot, &err));
	}
	memcpy(dev->ops->buffer(p, 0, GP_BUF_GRAD_OUTPUT, 0), n->dout, sizeof n->dout);
	OK(dev->ops->backward(p, 0, &err));
	get(p, "first.weight", out->first);
	if (norm && g->param[gp_graph_find_param(g, "norm.weight")].trained) {
		get(p, "norm.weight", out->gamma);
		get(p, "norm.bias", out->beta);
	}
	get(p, "last.weight", out->last);
	dev->ops->plan_free(p);
}

/* Whether the second convolution normalizes as it reads. Where it does not, as with lesser instruction sets, its input is a map
 * of its own, and the gradient of its weights is of other decoded values. */
static bool norm_is_shared(struct gp_device *dev, const struct gp_graph *g)
{
	struct gp_plan_memory m;
	const struct gp_plan_spec ps = {.graph = g, .batch = BATCH, .slots = 1, .train = true};
	OK(dev->ops->plan_estimate(dev, &ps, &m, &err));
	return m.activations < 2 * ROWS * MIDDLE * sizeof(float);
}

static void expect_close(const struct gradients *got, const struct gradients *want, bool shared, const char *codec)
{
	const double off[] = {relative_l2(got->first, want->first, MIDDLE * IN),
			      relative_l2(got->gamma, want->gamma, MIDDLE), relative_l2(got->beta, want->beta, MIDDLE),
			      relative_l2(got->last, want->last, OUT * MIDDLE)};
	print_message("%-24s %.2e %.2e %.2e %.2e\n", codec, off[0], off[1], off[2], off[3]);
	for (int i = 0; i < 3 + shared; i++)
		assert_true(off[i] < 1e-5);
}

static void gradients_are_those_of_the_decoded_values(void **state)
{
	(void)state;
	static const char *const specs[] = {
		"fp16",          "bf16",           "fp8:format=e4m3",       "fp8:format=e5m2",
		"s2fp8",         "uniform:bits=8", "smaq:main=6,outlier=8", "sortquant:bits=6,split=2",
		"uniform:bits=3"};
	static struct numbers n;
	static struct gradients got, want, plain;
	struct gp_graph *g = build();
	draw(&n);
	for (int threads = 1; threads <= test_threads(); threads++) {
		struct gp_device *dev;
		OK(gp_device_open(test_device(), threads, &dev, &err));
		run(dev, g, &n, NULL, &plain);
		for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
			struct gp_codec_spec spec;
			OK(gp_codec_spec_parse(specs[i], &spec, &err));
			run(dev, g, &n, &spec, &got);
			reference(&n, &spec, &want);
			expect_close(&got, &want, norm_is_shared(dev, g), specs[i]);
		}
		assert_true(relative_l2(got.last, plain.last, OUT * MIDDLE) > 1e-3); /* of 3 bits */
		dev->ops->close(dev);
	}
	gp_graph_free(g);
}

/* Also with a codec whose zeros come back as other numbers: all a little above zero, or all a little below. */
static const char *const zeros_move[] = {"smaq:main=6,outlier=8", "smaq:main=6,outlier=8,round=nearest",
					 "smaq:main=3,outlier=3", "uniform:bits=3",
					 "fp8:format=e5m2",       "bf16"};
enum { ZEROS_MOVE = sizeof zeros_move / sizeof zeros_move[0] };

static void behind_a_sum_a_gradient_passes_where_the_exact_activation_let_it(void **state)
{
	(void)state;
	static struct numbers n;
	static struct gradients got, want;
	draw(&n);
	for (int kind = 0; kind < 4; kind++) {
		const bool six = kind & 1, frozen = kind & 2;
		struct gp_graph *g = build_sum(six ? GP_OP_RELU6 : GP_OP_RELU, frozen);
		for (int threads = 1; threads <= test_threads(); threads++) {
			struct gp_device *dev;
			OK(gp_device_open(test_device(), threads, &dev, &err));
			for (int i = 0; i < ZEROS_MOVE; i++) {
				struct gp_codec_spec spec;
				OK(gp_codec_spec_parse(zeros_move[i], &spec, &err));
				run(dev, g, &n, &spec, &got);
				reference_of_sum(&n, &spec, six, frozen, &want);
				assert_true(relative_l2(got.first, want.first, MIDDLE * IN) < 1e-5);
				assert_true(frozen || relative_l2(got.gamma, want.gamma, MIDDLE) < 1e-5);
				assert_true(frozen || relative_l2(got.beta, want.beta, MIDDLE) < 1e-5);
			}
			dev->ops->close(dev);
		}
		gp_graph_free(g);
	}
}

static void alone_a_gradient_passes_where_the_exact_activation_let_it(void **state)
{
	(void)state;
	static struct numbers n;
	static struct gradients got, want;
	struct gp_graph *g = build_alone();
	draw(&n);
	for (int threads = 1; threads <= test_threads(); threads++) {
		struct gp_device *dev;
		OK(gp_device_open(test_device(), threads, &dev, &err));
		for (int i = 0; i < ZEROS_MOVE; i++) {
			struct gp_codec_spec spec;
			OK(gp_codec_spec_parse(zeros_move[i], &spec, &err));
			run(dev, g, &n, &spec, &got);
			reference_of_alone(&n, &spec, &want);
			assert_true(relative_l2(got.first, want.first, MIDDLE * IN) < 1e-5);
			assert_true(relative_l2(got.last, want.last, OUT * MIDDLE) < 1e-5);
		}
		dev->ops->close(dev);
	}
	gp_graph_free(g);
}

static void a_slot_keeps_what_the_codec_needs(void **state)
{
	(void)state;
	struct gp_graph *g = build();
	struct gp_device *dev;
	struct gp_plan_memory plain, coded;
	struct gp_codec_spec spec;
	OK(gp_codec_spec_parse("uniform:bits=8", &spec, &err));
	OK(gp_device_open(test_device(), 1, &dev, &err));
	struct gp_plan_spec ps = {.graph = g, .batch = 256, .slots = 3, .train = true};
	OK(dev->ops->plan_estimate(dev, &ps, &plain, &err));
	ps.maps = &spec;
	OK(dev->ops->plan_estimate(dev, &ps, &coded, &err));
	assert_true(coded.activations * 10 < plain.activations * 3);
	struct gp_plan *p;
	OK(dev->ops->plan_new(dev, &ps, &p, &err));
	dev->ops->plan_memory(p, &plain);
	assert_memory_equal(&plain, &coded, sizeof plain);
	dev->ops->plan_free(p);
	ps.recompute = true;
	assert_int_equal(dev->ops->plan_estimate(dev, &ps, &plain, &err), GP_UNSUPPORTED);
	dev->ops->close(dev);
	gp_graph_free(g);
}

int main(int argc, char **argv)
{
	(void)argc;
	gp_threads_prepare(argv);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gradients_are_those_of_the_decoded_values),
		cmocka_unit_test(behind_a_sum_a_gradient_passes_where_the_exact_activation_let_it),
		cmocka_unit_test(alone_a_gradient_passes_where_the_exact_activation_let_it),
		cmocka_unit_test(a_slot_keeps_what_the_codec_needs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
