/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of attention beside a plain loop in double: heads of many widths,
 * sequences of several tiles, lengths of all kinds, dropout, in fp32, TF32 and
 * bf16. See kernels/cuda/ops/k_attention.h.
 */
#include "kernels/cuda/ops/k_attention.h"
#include "tests/sanitized.h"
#include "tests/unit/test_cuda.h"

enum { Q, K, V, OUT, DOUT, DQ, DK, DV, VALUES };

struct attention_case {
	int64_t samples, positions, heads, width;
	enum gp_precision precision;
	float p;
	int32_t length[4];
};

/* One such on the device, and what it should be. */
struct attention {
	struct attention_case of;
	struct tensor value[VALUES], log, room;
	double *want[VALUES];
	struct gpk_attention a;
	uint64_t draw;
};

static enum gp_rt_type type_of_case(const struct attention_case *c)
{
	return c->precision == GP_PRECISION_BF16 ? GP_RT_BF16 : GP_RT_F32;
}

static int64_t elements_of(const struct attention_case *c)
{
	return c->samples * c->positions * c->heads * c->width;
}

static int64_t rows_of(const struct attention_case *c)
{
	return c->samples * c->heads * c->positions;
}

static int64_t tokens_of(const struct attention_case *c, int64_t sample)
{
	const int64_t length = c->length[sample];
	return length < 0 ? 0 : length < c->positions ? length : c->positions;
}

/* Copies to device memory of its own. */
static void *on_device(const void *from, size_t bytes)
{
	void *const to = device_room(bytes);
	gp_rt_copy_up(stream, to, from, bytes);
	OK(gp_rt_stream_wait(stream, &err));
	return to;
}

static struct attention attention_new(struct attention_case c)
{
	struct attention t = {.of = c, .draw = 5};
	for (int v = 0; v < VALUES; v++) {
		t.value[v] = tensor_new(type_of_case(&c), elements_of(&c));
		t.want[v] = calloc((size_t)elements_of(&c), sizeof(double));
		assert_non_null(t.want[v]);
	}
	t.log = tensor_new(GP_RT_F32, rows_of(&c));
	t.room = tensor_new(GP_RT_F32, (int64_t)(gpk_attention_room(c.samples, c.positions, c.heads) / sizeof(float)));
	t.a = (struct gpk_attention){.q = t.value[Q].device,
				     .k = t.value[K].device,
				     .v = t.value[V].device,
				     .length = on_device(c.length, sizeof c.length),
				     .log = t.log.device,
				     .samples = c.samples,
				     .positions = c.positions,
				     .most = c.positions,
				     .heads = c.heads,
				     .width = c.width,
				     .precision = c.precision};
	t.a.drop = (struct gpk_dropout){.seed = 3,
					.stream = 4,
					.draw = on_device(&t.draw, sizeof t.draw),
					.threshold = (uint32_t)((double)c.p * 0x1p32),
					.scale = (float)(1 / (1 - (double)c.p))};
	return t;
}

static void attention_free(struct attention *t)
{
	for (int v = 0; v < VALUES; v++) {
		tensor_free(&t->value[v]);
		free(t->want[v]);
	}
	tensor_free(&t->log);
	tensor_free(&t->room);
	gp_rt_free(0, (void *)(uintptr_t)t->a.length);
	gp_rt_free(0, (void *)(uintptr_t)t->a.drop.draw);
}

static void run_forward(const struct attention *t)
{
	gpk_attention_forward(stream, type_of_case(&t->of), &t->a, t->value[OUT].device);
}

static void run_backward(const struct attention *t, bool dq, bool dk, bool dv)
{
	const struct gpk_attention_grads g = {.out = t->value[OUT].device,
					      .dout = t->value[DOUT].device,
					      .dq = dq ? t->value[DQ].device : NULL,
					      .dk = dk ? t->value[DK].device : NULL,
					      .dv = dv ? t->value[DV].device : NULL,
					      .room = t->room.device};
	gpk_attention_backward(stream, type_of_case(&t->of), &t->a, &g);
}

/* --- what it should be -------------------------------------------------------------------------------------------- */

static double dot(const float *x, const float *y, int64_t n)
{
	double sum = 0;
	for (int64_t i = 0; i < n; i++)
		sum += (double)x[i] * (double)y[i];
	return sum;
}

static double kept(const struct attention *t, int64_t row, int64_t j)
{
	const uint64_t blocks = ((uint64_t)t->of.positions + 3) / 4;
	uint32_t word[4];
	gp_rng_block(t->a.drop.seed, t->a.drop.stream,
		     (t->draw * (uint64_t)rows_of(&t->of) + (uint64_t)row) * blocks + (uint64_t)j / 4, word);
	if (!t->a.drop.threshold)
		return 1;
	return word[j % 4] < t->a.drop.threshold ? 0 : (double)t->a.drop.scale;
}

static void add_scaled(double *to, double times, const float *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		to[i] += times * (double)x[i];
}

/* Query i of a head whose first element is at `at`; `row`: of the query among those of all heads. */
static void expect_query(struct attention *t, int64_t at, int64_t row, int64_t i, int64_t tokens)
{
	const int64_t width = t->of.width, stride = t->of.heads * width, mine = at + i * stride;
	const float *q = t->value[Q].host, *k = t->value[K].host, *v = t->value[V].host, *dout = t->value[DOUT].host;
	double *weight = calloc((size_t)tokens, sizeof *weight), sum = 0, expected = 0;
	assert_non_null(weight);
	for (int64_t j = 0; j < tokens; j++) {
		weight[j] = exp(dot(q + mine, k + at + j * stride, width) / sqrt((double)width));
		sum += weight[j];
	}
	for (int64_t j = 0; j < tokens; j++) {
		weight[j] /= sum;
		add_scaled(t->want[OUT] + mine, weight[j] * kept(t, row, j), v + at + j * stride, width);
		expected += weight[j] * kept(t, row, j) * dot(dout + mine, v + at + j * stride, width);
	}
	for (int64_t j = 0; j < tokens; j++) {
		const int64_t other = at + j * stride;
		const double keep = kept(t, row, j);
		const double d =
			weight[j] * (keep * dot(dout + mine, v + other, width) - expected) / sqrt((double)width);
		add_scaled(t->want[DQ] + mine, d, k + other, width);
		add_scaled(t->want[DK] + other, d, q + mine, width);
		add_scaled(t->want[DV] + other, weight[j] * keep, dout + mine, width);
	}
	free(weight);
}

static void expect_all(struct attention *t)
{
	const struct attention_case *c = &t->of;
	for (int64_t n = 0; n < c->samples; n++)
		for (int64_t h = 0; h < c->heads; h++)
			for (int64_t i = 0; i < tokens_of(c, n); i++)
				expect_query(t, n * c->positions * c->heads * c->width + h * c->width,
					     (n * c->heads + h) * c->positions + i, i, tokens_of(c, n));
}

/* Weights are rounded to the type of the product: 8 bits or 11. */
static void check_value(const struct attention *t, int v)
{
	static const char *const names[VALUES] = {[OUT] = "out", [DQ] = "dq", [DK] = "dk", [DV] = "dv"};
	static const double most[GP_PRECISIONS] = {
		[GP_PRECISION_FP32] = 1e-6, [GP_PRECISION_TF32] = 1e-3, [GP_PRECISION_BF16] = 6e-3};
	const struct attention_case *c = &t->of;
	const int64_t row = c->heads * c->width;
	float *const got = tensor_down(&t->value[v]);
	const double d = difference(got, t->want[v], t->value[v].n);
	if (!(d <= most[c->precision]))
		fail_msg("%s of %lld x %lld positions, %lld heads of %lld, in %s: relative difference %g", names[v],
			 (long long)c->samples, (long long)c->positions, (long long)c->heads, (long long)c->width,
			 gp_precision_name(c->precision), d);
	for (int64_t n = 0; n < c->samples; n++)
		for (int64_t i = tokens_of(c, n) * row; i < c->positions * row; i++)
			assert_true(got[n * c->positions * row + i] == 0);
	free(got);
}

static void check_case(struct attention_case c)
{
	struct attention t = attention_new(c);
	expect_all(&t);
	run_forward(&t);
	run_backward(&t, true, true, true);
	for (int v = OUT; v < VALUES; v++)
		if (v != DOUT)
			check_value(&t, v);
	attention_free(&t);
}

/* --- tests -------------------------------------------------------------------------------------------------------- */

/* Widths that are a whole tile's and such as are not, whole chunks of 16 bytes or not; the last by plain kernels. */
static void attention_is_right_in_every_precision(void **state)
{
	(void)state;
	static const struct attention_case cases[] = {
		{3, 70, 2, 16, 0, 0.0f, {70, 41, 0}},
		{2, 40, 2, 24, 0, 0.3f, {40, 17}},
		{4, 9, 3, 5, 0, 0.0f, {9, -3, 1, 100}},
		{1, 131, 1, 64, 0, 0.1f, {131}},
		{1, 67, 1, 72, 0, 0.0f, {66}},
		{2, 33, 1, 128, 0, 0.5f, {33, 15}},
		{1, 6, 1, 70, 0, 0.0f, {5}},
		{2, 6, 1, 136, 0, 0.3f, {6, 4}},
		{1, 3, 2, 300, 0, 0.0f, {3}},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		for (int precision = 0; precision < GP_PRECISIONS; precision++) {
			struct attention_case c = cases[i];
			if (left_to_plain_runs(3, (int)i + precision))
				continue;
			c.precision = (enum gp_precision)precision;
			check_case(c);
		}
}

static void forward_and_backward(struct attention *t, float *out[VALUES])
{
	run_forward(t);
	run_backward(t, true, true, true);
	for (int v = OUT; v < VALUES; v++)
		out[v] = tensor_down(&t->value[v]);
}

static void spoil_padding(struct attention *t, int v)
{
	const int64_t row = t->of.heads * t->of.width, sample = t->of.positions * row;
	for (int64_t n = 0; n < t->of.samples; n++)
		for (int64_t i = tokens_of(&t->of, n) * row; i < sample; i++)
			t->value[v].host[n * sample + i] = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY;
	tensor_up(&t->value[v]);
}

static void padding_has_no_influence_whatever_stands_there(void **state)
{
	(void)state;
	for (int precision = 0; precision < GP_PRECISIONS; precision++)
		for (int width = 16; width <= 144; width += 128) {
			const struct attention_case c = {3,    18,        1, width, (enum gp_precision)precision,
							 0.2f, {18, 7, 0}};
			struct attention t = attention_new(c);
			float *before[VALUES], *after[VALUES];
			forward_and_backward(&t, before);
			for (int v = Q; v <= DOUT; v++)
				if (v != OUT)
					spoil_padding(&t, v);
			forward_and_backward(&t, after);
			for (int v = OUT; v < VALUES; v++) {
				if (v != DOUT)
					assert_memory_equal(before[v], after[v],
							    (size_t)elements_of(&c) * sizeof(float));
				free(before[v]);
				free(after[v]);
			}
			attention_free(&t);
		}
}

/* A score far above the others comes last, and one row's are all as small as can be. */
static void scores_of_any_size_are_softened(void **state)
{
	(void)state;
	struct attention t = attention_new((struct attention_case){1, 80, 1, 16, GP_PRECISION_FP32, 0.0f, {80}});
	for (int64_t i = 0; i < 80 * 16; i++) {
		t.value[Q].host[i] = i % 16 == 0 ? 100.0f : 0.0f;
		t.value[K].host[i] = i % 16 == 0 ? (float)(i / 16) - 500.0f : 0.0f;
	}
	tensor_up(&t.value[Q]);
	tensor_up(&t.value[K]);
	run_forward(&t);
	float *const got = tensor_down(&t.value[OUT]);
	for (int64_t i = 0; i < 80; i++)
		for (int64_t c = 0; c < 16; c++)
			assert_true(fabsf(got[i * 16 + c] - t.value[V].host[79 * 16 + c]) < 1e-6f);
	free(got);
	attention_free(&t);
}

/* Each alone is what it is among all, and nothing else is written. */
static void gradients_that_nobody_wants_are_left_alone(void **state)
{
	(void)state;
	for (int width = 8; width <= 136; width += 128) {
		const struct attention_case c = {1, 6, 2, width, GP_PRECISION_FP32, 0.0f, {5}};
		struct attention t = attention_new(c);
		float *all[VALUES];
		forward_and_backward(&t, all);
		for (int v = DQ; v <= DV; v++) {
			for (int k = DQ; k <= DV; k++)
				tensor_up(&t.value[k]);
			run_backward(&t, v == DQ, v == DK, v == DV);
			for (int k = DQ; k <= DV; k++) {
				float *const got = tensor_down(&t.value[k]);
				assert_memory_equal(got, k == v ? all[k] : t.value[k].host,
						    (size_t)elements_of(&c) * sizeof *got);
				free(got);
			}
		}
		for (int v = OUT; v < VALUES; v++)
			free(all[v]);
		attention_free(&t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(attention_is_right_in_every_precision),
		cmocka_unit_test(padding_has_no_influence_whatever_stands_there),
		cmocka_unit_test(scores_of_any_size_are_softened),
		cmocka_unit_test(gradients_that_nobody_wants_are_left_alone),
	};
	return run_on_gpu(tests, open_stream, close_stream);
}
