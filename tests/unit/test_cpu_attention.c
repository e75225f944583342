/* SPDX-License-Identifier: Apache-2.0
 *
 * Self-attention on the CPU device beside a plain reference in double
 * precision, with all kinds of lengths and dropout; the same bits on any number
 * of threads, with every instruction set, and whatever stands in the padding.
 */
#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/base/threads.h"
#include "common/graph/device.h"
#include "common/graph/ops/op_attention.h"
#include "kernels/device_registry.h"
#include "kernels/loops/simd.h"
#include "tests/sanitized.h"
#include "tests/unit/ok.h"

#define SEED      5
#define DRAW      3
#define TOLERANCE 2e-6 /* relative L2 */

enum { Q, K, V, TENSORS };

struct test_case {
	int positions, width, heads;
	float p;
	float spread; /* of queries: large ones make one weight nearly 1 */
};

static const struct test_case cases[] = {{1, 16, 1, 0.0f, 1.0f},   {7, 5, 3, 0.1f, 1.0f},      {8, 64, 1, 0.0f, 1.0f},
					 {16, 16, 12, 0.1f, 1.0f}, {17, 20, 3, 0.5f, 1.0f},    {49, 80, 1, 0.0f, 1.0f},
					 {128, 64, 2, 0.1f, 1.0f}, {128, 16, 1, 0.0f, 300.0f}, {200, 24, 2, 0.1f, 1.0f},
					 {300, 8, 1, 0.1f, 20.0f}};
#define CASES (sizeof cases / sizeof cases[0])

/* One sample of each kind; a peer may say anything. */
#define SAMPLES 7

static void set_lengths(const struct test_case *c, int32_t *length)
{
	const int32_t all = c->positions;
	const int32_t lengths[SAMPLES] = {all, 0, 1, 2 * all / 3, INT32_MAX, INT32_MIN, (all + 4) / 5};
	memcpy(length, lengths, sizeof lengths);
}

static int64_t tokens_of(const struct test_case *c, int sample)
{
	int32_t length[SAMPLES];
	set_lengths(c, length);
	return length[sample] < 0 ? 0 : length[sample] < c->positions ? length[sample] : c->positions;
}

static int64_t elements_of(const struct test_case *c)
{
	return (int64_t)SAMPLES * c->positions * c->heads * c->width;
}

/* Where row i of a head begins. */
static int64_t at(const struct test_case *c, int sample, int head, int64_t i)
{
	return ((int64_t)sample * c->positions + i) * c->heads * c->width + head * c->width;
}

/* --- what it computes on ----------------------------------------------------------------------------------------- */

/* q, k, v, the gradient of the output; then what comes out: the output, dq, dk, dv. */
struct tensors {
	float *in[TENSORS], *dout, *out, *dx[TENSORS];
};

static float *zeros(const struct test_case *c)
{
	float *v = gp_calloc((size_t)elements_of(c), sizeof *v);
	assert_non_null(v);
	return v;
}

static float *draws(const struct test_case *c, uint64_t stream, float spread)
{
	float *v = zeros(c);
	for (int64_t i = 0; i < elements_of(c); i++)
		v[i] = spread * gp_rng_normal(9, gp_rng_stream(GP_RNG_SYNTHETIC, stream), (uint64_t)i);
	return v;
}

static struct tensors tensors_of(const struct test_case *c)
{
	struct tensors t = {.dout = draws(c, 4, 1.0f), .out = zeros(c)};
	for (int k = Q; k < TENSORS; k++) {
		t.in[k] = draws(c, (uint64_t)k, k == Q ? c->spread : 1.0f);
		t.dx[k] = zeros(c);
	}
	return t;
}

static void free_tensors(struct tensors *t)
{
	for (int k = Q; k < TENSORS; k++) {
		gp_free(t->in[k]);
		gp_free(t->dx[k]);
	}
	gp_free(t->dout);
	gp_free(t->out);
}

/* Every element of the rows that are padding. */
static void fill_padding(const struct test_case *c, float *v, float with)
{
	for (int sample = 0; sample < SAMPLES; sample++)
		for (int64_t j = at(c, sample, 0, tokens_of(c, sample)); j < at(c, sample + 1, 0, 0); j++)
			v[j] = with;
}

static void fill_all_padding(const struct test_case *c, const struct tensors *t, float with)
{
	for (int k = Q; k < TENSORS; k++)
		fill_padding(c, t->in[k], with);
	fill_padding(c, t->dout, with);
}

/* --- the device -------------------------------------------------------------------------------------------------- */

struct setting {
	int threads;
	enum gp_mode mode;
	uint64_t draw, grad_inputs;
	enum gp_precision precision;
};
static const struct setting plain = {1, GP_TRAIN, DRAW, 7, GP_PRECISION_FP32};

static struct gp_graph *graph_of(const struct test_case *c)
{
	const struct gp_type row = {GP_F32, {.ndim = 2, .dim = {c->positions, c->heads * c->width}}};
	const struct gp_type length = {GP_I32, {.ndim = 1, .dim = {1}}};
	static const char *const names[] = {"q", "k", "v"};
	int qkv[TENSORS];
	struct gp_graph *g = gp_graph_new_empty("one_op", &err);
	assert_non_null(g);
	for (int k = Q; k < TENSORS; k++)
		qkv[k] = gp_graph_add_input(g, names[k], &row, &err);
	const int lengths = gp_graph_add_input(g, "length", &length, &err);
	OK(gp_graph_begin_block(g, "block", &err));
	assert_true(gp_graph_attention(g, "op", qkv, lengths, (struct gp_attention_attr){c->heads, c->p}, &err) > 0);
	OK(gp_graph_finish(g, &err));
	return g;
}

static void fill_plan(const struct test_case *c, const struct tensors *t, struct gp_plan *plan)
{
	const size_t bytes = (size_t)elements_of(c) * sizeof(float);
	for (int k = Q; k < TENSORS; k++)
		memcpy(plan->ops->buffer(plan, 0, GP_BUF_INPUT, k), t->in[k], bytes);
	set_lengths(c, plan->ops->buffer(plan, 0, GP_BUF_INPUT, TENSORS));
}

/* Gradients that the setting does not ask for stay as they are. */
static void run(const struct test_case *c, struct tensors *t, const struct setting *with)
{
	const size_t bytes = (size_t)elements_of(c) * sizeof(float);
	struct gp_device *dev;
	struct gp_plan *plan;
	struct gp_graph *g = graph_of(c);
	OK(gp_device_open("cpu", with->threads, &dev, &err));
	const struct gp_plan_spec spec = {.graph = g,
					  .batch = SAMPLES,
					  .slots = 1,
					  .train = true,
					  .seed = SEED,
					  .grad_inputs = with->grad_inputs,
					  .precision = with->precision};
	OK(dev->ops->plan_new(dev, &spec, &plan, &err));
	fill_plan(c, t, plan);
	OK(plan->ops->forward(plan, 0, with->mode, with->draw, &err));
	memcpy(t->out, plan->ops->buffer(plan, 0, GP_BUF_OUTPUT, 0), bytes);
	if (with->mode == GP_TRAIN) {
		memcpy(plan->ops->buffer(plan, 0, GP_BUF_GRAD_OUTPUT, 0), t->dout, bytes);
		OK(plan->ops->backward(plan, 0, &err));
	}
	for (int k = Q; k < TENSORS && with->mode == GP_TRAIN; k++)
		if (with->grad_inputs >> k & 1)
			memcpy(t->dx[k], plan->ops->buffer(plan, 0, GP_BUF_GRAD_INPUT, k), bytes);
	plan->ops->plan_free(plan);
	dev->ops->close(dev);
	gp_graph_free(g);
}

/* Runs on the same inputs otherwise; everything must come out with the bits of `want`. */
static void expect_same(const struct test_case *c, const struct tensors *want, const struct setting *with)
{
	const size_t bytes = (size_t)elements_of(c) * sizeof(float);
	struct tensors got = *want;
	got.out = zeros(c);
	for (int k = Q; k < TENSORS; k++)
		got.dx[k] = zeros(c);
	run(c, &got, with);
	assert_memory_equal(got.out, want->out, bytes);
	for (int k = Q; k < TENSORS; k++) {
		if (with->grad_inputs >> k & 1)
			assert_memory_equal(got.dx[k], want->dx[k], bytes);
		gp_free(got.dx[k]);
	}
	gp_free(got.out);
}

/* --- the reference ----------------------------------------------------------------------------------------------- */

/* 0, or 1 / (1 - p): as common/graph/ops/op_attention.h numbers the draws. */
static double kept(const struct test_case *c, const struct setting *with, int64_t row, int64_t j)
{
	uint32_t word[4];
	const uint64_t blocks = ((uint64_t)c->positions + 3) / 4;
	const uint64_t rows = (uint64_t)SAMPLES * (uint64_t)(c->heads * c->positions);
	if (with->mode != GP_TRAIN)
		return 1.0;
	gp_rng_block(SEED, gp_rng_stream(GP_RNG_DROPOUT, gp_rng_name_id("op")),
		     (with->draw * rows + (uint64_t)row) * blocks + (uint64_t)j / 4, word);
	return word[j % 4] < (uint32_t)((double)c->p * 0x1p32) ? 0.0 : 1.0 / (1.0 - (double)c->p);
}

static double dot(const float *a, const float *b, int64_t n)
{
	double sum = 0.0;
	for (int64_t i = 0; i < n; i++)
		sum += (double)a[i] * (double)b[i];
	return sum;
}

static void add(double *to, const float *x, double factor, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		to[i] += (double)x[i] * factor;
}

/* Softmax of row i's scores. */
static void weigh(const struct test_case *c, const struct tensors *t, int sample, int head, int64_t i, double *weight)
{
	const int64_t tokens = tokens_of(c, sample);
	double largest = -INFINITY, sum = 0.0;
	for (int64_t j = 0; j < tokens; j++) {
		weight[j] = dot(t->in[Q] + at(c, sample, head, i), t->in[K] + at(c, sample, head, j), c->width) /
			    sqrt(c->width);
		largest = weight[j] > largest ? weight[j] : largest;
	}
	for (int64_t j = 0; j < tokens; j++)
		sum += weight[j] = exp(weight[j] - largest);
	for (int64_t j = 0; j < tokens; j++)
		weight[j] /= sum;
}

/* Sums in double: the output, and gradients. */
struct sums {
	double *out, *dx[TENSORS];
};

static void add_row(const struct test_case *c, const struct tensors *t, const struct setting *with, struct sums *s,
		    int sample, int head, int64_t i)
{
	double weight[512], grad[512], expected = 0.0;
	const int64_t tokens = tokens_of(c, sample), from = at(c, sample, head, i);
	const int64_t row = ((int64_t)sample * c->heads + head) * c->positions + i;
	weigh(c, t, sample, head, i, weight);
	for (int64_t j = 0; j < tokens; j++) {
		const int64_t other = at(c, sample, head, j);
		const double keep = kept(c, with, row, j);
		add(s->out + from, t->in[V] + other, weight[j] * keep, c->width);
		add(s->dx[V] + other, t->dout + from, weight[j] * keep, c->width);
		grad[j] = keep * dot(t->dout + from, t->in[V] + other, c->width);
		expected += weight[j] * grad[j];
	}
	for (int64_t j = 0; j < tokens; j++) {
		const int64_t other = at(c, sample, head, j);
		const double factor = weight[j] * (grad[j] - expected) / sqrt(c->width);
		add(s->dx[Q] + from, t->in[K] + other, factor, c->width);
		add(s->dx[K] + other, t->in[Q] + from, factor, c->width);
	}
}

static void expect_close(const struct test_case *c, const char *what, const float *got, double *want)
{
	double diff = 0.0, norm = 0.0;
	for (int64_t i = 0; i < elements_of(c); i++) {
		diff += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
		norm += want[i] * want[i];
	}
	/* Where a softmax has but one position, scores have no gradient: what remains is rounding. */
	if (!(sqrt(diff) <= (c->positions == 1 ? 1e-6 : TOLERANCE * (c->spread > 1.0f ? 100 : 1) * sqrt(norm))))
		fail_msg("%d positions, %d heads of %d: relative L2 error of %s is %.3g", c->positions, c->heads,
			 c->width, what, sqrt(diff / norm));
	gp_free(want);
}

static void check(const struct test_case *c, const struct tensors *t, const struct setting *with)
{
	static const char *const names[] = {"dq", "dk", "dv"};
	struct sums s = {.out = gp_calloc((size_t)elements_of(c), sizeof(double))};
	for (int k = Q; k < TENSORS; k++)
		s.dx[k] = gp_calloc((size_t)elements_of(c), sizeof(double));
	for (int sample = 0; sample < SAMPLES; sample++)
		for (int head = 0; head < c->heads; head++)
			for (int64_t i = 0; i < tokens_of(c, sample); i++)
				add_row(c, t, with, &s, sample, head, i);
	expect_close(c, "the output", t->out, s.out);
	for (int k = Q; k < TENSORS; k++) {
		if (with->mode == GP_TRAIN)
			expect_close(c, names[k], t->dx[k], s.dx[k]);
		else
			gp_free(s.dx[k]);
	}
}

/* --- tests ------------------------------------------------------------------------------------------------------- */

static void attention_agrees_with_sums_in_double(void **state)
{
	struct setting evaluation = plain;
	evaluation.mode = GP_EVAL;
	(void)state;
	for (size_t i = 0; i < CASES; i++) {
		struct tensors t = tensors_of(&cases[i]);
		run(&cases[i], &t, &plain);
		check(&cases[i], &t, &plain);
		run(&cases[i], &t, &evaluation);
		check(&cases[i], &t, &evaluation);
		free_tensors(&t);
	}
}

static void bits_depend_neither_on_threads_nor_on_the_instruction_set(void **state)
{
	(void)state;
	for (size_t i = 0; i < CASES; i++) {
		struct tensors t = tensors_of(&cases[i]);
		run(&cases[i], &t, &plain);
		for (int isa = GP_ISA_PORTABLE; isa <= GP_ISA_AVX512; isa++) {
			for (int threads = 1; threads <= 3; threads++) {
				struct setting with = plain;
				with.threads = threads;
				if (left_to_dev(3, isa + threads))
					continue;
				gp_isa_limit((enum gp_isa)isa);
				expect_same(&cases[i], &t, &with);
			}
		}
		free_tensors(&t);
	}
}

static void padding_has_no_influence_and_comes_out_as_zeros(void **state)
{
	(void)state;
	for (size_t i = 0; i < CASES; i++) {
		const struct test_case *c = &cases[i];
		struct tensors t = tensors_of(c);
		fill_all_padding(c, &t, NAN);
		run(c, &t, &plain);
		for (int64_t k = 0; k < elements_of(c); k++)
			assert_true(isfinite(t.out[k]) && isfinite(t.dx[Q][k]) && isfinite(t.dx[K][k]) &&
				    isfinite(t.dx[V][k]));
		fill_all_padding(c, &t, INFINITY);
		expect_same(c, &t, &plain);
		fill_all_padding(c, &t, 1e30f);
		expect_same(c, &t, &plain);
		struct tensors clear = t;
		clear.out = zeros(c);
		memcpy(clear.out, t.out, (size_t)elements_of(c) * sizeof(float));
		fill_padding(c, clear.out, 0.0f);
		assert_memory_equal(clear.out, t.out, (size_t)elements_of(c) * sizeof(float));
		gp_free(clear.out);
		for (int k = Q; k < TENSORS; k++) {
			float *dx = zeros(c);
			memcpy(dx, t.dx[k], (size_t)elements_of(c) * sizeof *dx);
			fill_padding(c, dx, 0.0f);
			assert_memory_equal(dx, t.dx[k], (size_t)elements_of(c) * sizeof *dx);
			gp_free(dx);
		}
		free_tensors(&t);
	}
}

static void gradients_that_nobody_wants_change_no_other(void **state)
{
	(void)state;
	struct tensors t = tensors_of(&cases[4]);
	run(&cases[4], &t, &plain);
	for (uint64_t wanted = 1; wanted < 7; wanted++) {
		struct setting with = plain;
		with.grad_inputs = wanted;
		expect_same(&cases[4], &t, &with);
	}
	free_tensors(&t);
}

static void attention_computes_in_fp32_in_a_plan_of_bf16(void **state)
{
	struct gp_device *dev;
	(void)state;
	OK(gp_device_open("cpu", 1, &dev, &err));
	const bool supported = gp_device_supports(dev, GP_PRECISION_BF16);
	dev->ops->close(dev);
	if (!supported)
		skip();
	struct setting with = plain;
	with.precision = GP_PRECISION_BF16;
	struct tensors t = tensors_of(&cases[6]);
	run(&cases[6], &t, &plain);
	expect_same(&cases[6], &t, &with);
	free_tensors(&t);
}

/* Scores are all 0 and the values a unit matrix: what comes out are the weights themselves. */
static void dropout_drops_its_share_of_the_weights_anew_in_every_draw(void **state)
{
	enum { SIDE = 64, WEIGHTS = SIDE * SIDE };
	const struct test_case c = {SIDE, SIDE, 1, 0.1f, 0.0f};
	struct setting other = plain;
	(void)state;
	struct tensors t = tensors_of(&c);
	for (int64_t i = 0; i < SIDE; i++)
		for (int64_t j = 0; j < SIDE; j++)
			t.in[V][at(&c, 0, 0, i) + j] = i == j ? 1.0f : 0.0f;
	run(&c, &t, &plain);
	int dropped = 0;
	for (int i = 0; i < WEIGHTS; i++) {
		dropped += t.out[i] == 0.0f;
		assert_true(t.out[i] == 0.0f || fabs((double)t.out[i] * SIDE * 0.9 - 1.0) < 1e-6);
	}
	assert_in_range(dropped, 330, 490); /* 410 expected, standard deviation 19 */
	float *first = zeros(&c);
	memcpy(first, t.out, WEIGHTS * sizeof *first);
	other.draw = DRAW + 1;
	run(&c, &t, &other);
	int both = 0;
	for (int i = 0; i < WEIGHTS; i++)
		both += first[i] == 0.0f && t.out[i] == 0.0f;
	assert_in_range(both, 10, 80); /* 41 expected, standard deviation 6 */
	gp_free(first);
	free_tensors(&t);
}

int main(int argc, char **argv)
{
	(void)argc;
	gp_threads_prepare(argv); /* else waiting threads take the cores other tests run on */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(attention_agrees_with_sums_in_double),
		cmocka_unit_test(bits_depend_neither_on_threads_nor_on_the_instruction_set),
		cmocka_unit_test(padding_has_no_influence_and_comes_out_as_zeros),
		cmocka_unit_test(gradients_that_nobody_wants_change_no_other),
		cmocka_unit_test(attention_computes_in_fp32_in_a_plan_of_bf16),
		cmocka_unit_test(dropout_drops_its_share_of_the_weights_anew_in_every_draw),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
