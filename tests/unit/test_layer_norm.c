/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer norm with residual and dropout on the CPU device beside the same in
 * double precision, row by row; beside the single ops that it stands for; on any
 * number of threads and with every instruction set. Beside PyTorch:
 * test_cpu_ops.c.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/isa.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/base/threads.h"
#include "common/graph/device.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_layer_norm.h"
#include "kernels/device_registry.h"
#include "tests/unit/ok.h"

enum { SEED = 21, DRAW = 5 };

/* One layer norm over samples of (positions, features), and a chunk for it. */
struct bed {
	int batch, positions, features, threads;
	bool residual, evaluates;
	float p, eps, offset;
	const char *frozen; /* pattern, or NULL */
	struct gp_graph *graph;
	struct gp_device *dev;
	struct gp_plan *plan;
	float *weight, *bias;
};

static int64_t rows_of(const struct bed *b)
{
	return (int64_t)b->batch * b->positions;
}

static int64_t elements_of(const struct bed *b)
{
	return rows_of(b) * b->features;
}

static float *floats(int64_t n)
{
	float *v = gp_calloc((size_t)n, sizeof *v);
	assert_non_null(v);
	return v;
}

static void draw(float *to, int64_t n, uint64_t stream, float scale, float offset)
{
	for (int64_t i = 0; i < n; i++)
		to[i] = offset + scale * gp_rng_normal(SEED, stream, (uint64_t)i);
}

static struct gp_graph *begin(const struct bed *b)
{
	const struct gp_type x = {GP_F32, {.ndim = 2, .dim = {b->positions, b->features}}};
	struct gp_graph *g = gp_graph_new_empty("norm", &err);
	assert_non_null(g);
	assert_int_equal(gp_graph_add_input(g, "x", &x, &err), 0);
	if (b->residual)
		assert_int_equal(gp_graph_add_input(g, "r", &x, &err), 1);
	OK(gp_graph_begin_block(g, "block", &err));
	return g;
}

static void set_param(struct bed *b, const char *name, float *v)
{
	const int index = gp_graph_find_param(b->graph, name);
	assert_true(index >= 0);
	OK(b->plan->ops->param_set(b->plan, index, v, &err));
}

/* The graph is given and its norm is called "n", or it is made. */
static void open_bed(struct bed *b)
{
	if (!b->graph) {
		b->graph = begin(b);
		assert_true(gp_graph_layer_norm(b->graph, "n", 0, b->residual ? 1 : -1,
						(struct gp_layer_norm_attr){.eps = b->eps, .p = b->p}, &err) > 0);
		OK(gp_graph_finish(b->graph, &err));
	}
	if (b->frozen)
		assert_true(gp_graph_freeze(b->graph, b->frozen) > 0);
	const struct gp_plan_spec spec = {.graph = b->graph,
					  .batch = b->batch,
					  .slots = 1,
					  .train = !b->evaluates,
					  .grad_inputs = b->evaluates ? 0 : ~(uint64_t)0,
					  .seed = SEED};
	OK(gp_device_open("cpu", b->threads, &b->dev, &err));
	OK(b->dev->ops->plan_new(b->dev, &spec, &b->plan, &err));
	b->weight = floats(b->features);
	b->bias = floats(b->features);
	draw(b->weight, b->features, 1, 0.5f, 1.0f);
	draw(b->bias, b->features, 2, 1.0f, 0.0f);
	set_param(b, "n.weight", b->weight);
	set_param(b, "n.bias", b->bias);
}

static void close_bed(struct bed *b)
{
	b->plan->ops->plan_free(b->plan);
	b->dev->ops->close(b->dev);
	gp_graph_free(b->graph);
	gp_free(b->weight);
	gp_free(b->bias);
	b->graph = NULL;
}

static float *buffer(const struct bed *b, enum gp_plan_buf which, int port)
{
	return b->plan->ops->buffer(b->plan, 0, which, port);
}

static void forward(const struct bed *b, enum gp_mode mode)
{
	draw(buffer(b, GP_BUF_INPUT, 0), elements_of(b), 3, 2.0f, b->offset);
	if (b->residual)
		draw(buffer(b, GP_BUF_INPUT, 1), elements_of(b), 4, 1.0f, b->offset);
	OK(b->plan->ops->forward(b->plan, 0, mode, DRAW, &err));
}

static void backward(const struct bed *b)
{
	draw(buffer(b, GP_BUF_GRAD_OUTPUT, 0), elements_of(b), 5, 1.0f, 0.25f);
	OK(b->plan->ops->backward(b->plan, 0, &err));
}

/* --- the same in double precision -------------------------------------------------------------------------------- */

struct reference {
	float *out, *dx, *dresidual, *dweight, *dbias;
};

static float kept(const struct bed *b, int64_t element)
{
	const uint64_t stream = gp_rng_stream(GP_RNG_DROPOUT, gp_rng_name_id("n"));
	const uint64_t blocks = ((uint64_t)elements_of(b) + 3) / 4;
	uint32_t word[4];
	if (b->p == 0.0f || b->evaluates)
		return 1.0f;
	gp_rng_block(SEED, stream, DRAW * blocks + (uint64_t)element / 4, word);
	return word[element % 4] < (uint32_t)((double)b->p * 0x1p32) ? 0.0f : (float)(1.0 / (1.0 - (double)b->p));
}

static void reference_row(const struct bed *b, int64_t row, const float *x, const float *r, const float *dout,
			  struct reference *ref)
{
	const int n = b->features;
	const int64_t at = row * n;
	double normal[2048], mean = 0, var = 0, sum = 0, along = 0;
	for (int i = 0; i < n; i++) {
		normal[i] = (double)x[at + i] * (double)kept(b, at + i) + (r ? (double)r[at + i] : 0.0);
		mean += normal[i] / n;
	}
	for (int i = 0; i < n; i++)
		var += (normal[i] - mean) * (normal[i] - mean) / n;
	const double scale = 1.0 / sqrt(var + (double)b->eps);
	for (int i = 0; i < n; i++) {
		const double g = (double)dout[at + i] * (double)b->weight[i];
		normal[i] = (normal[i] - mean) * scale;
		ref->out[at + i] = (float)(normal[i] * (double)b->weight[i] + (double)b->bias[i]);
		sum += g / n;
		along += g * normal[i] / n;
		ref->dweight[i] += (float)((double)dout[at + i] * normal[i]);
		ref->dbias[i] += dout[at + i];
	}
	for (int i = 0; i < n; i++) {
		const double g = (double)dout[at + i] * (double)b->weight[i];
		const double d = (g - sum - normal[i] * along) * scale;
		ref->dresidual[at + i] = (float)d;
		ref->dx[at + i] = (float)(d * (double)kept(b, at + i));
	}
}

static struct reference reference_of(const struct bed *b)
{
	const int64_t n = elements_of(b);
	struct reference ref = {floats(n), floats(n), floats(n), floats(b->features), floats(b->features)};
	float *x = floats(n), *r = floats(n), *dout = floats(n);
	draw(x, n, 3, 2.0f, b->offset);
	draw(r, n, 4, 1.0f, b->offset);
	draw(dout, n, 5, 1.0f, 0.25f);
	for (int64_t row = 0; row < rows_of(b); row++)
		reference_row(b, row, x, b->residual ? r : NULL, dout, &ref);
	gp_free(x);
	gp_free(r);
	gp_free(dout);
	return ref;
}

static void drop_reference(struct reference *ref)
{
	gp_free(ref->out);
	gp_free(ref->dx);
	gp_free(ref->dresidual);
	gp_free(ref->dweight);
	gp_free(ref->dbias);
}

/* An error relative to the norm of what is there, or to 1 where that is nothing: of one feature all gradients vanish. */
static void expect_near(const struct bed *b, const char *what, const float *got, const float *want, int64_t n)
{
	double diff = 0.0, norm = 0.0;
	for (int64_t i = 0; i < n; i++) {
		diff += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
		norm += (double)want[i] * (double)want[i];
	}
	const double e = sqrt(diff / fmax(norm, 1.0));
	if (!(e < 3e-6))
		fail_msg("%s of %d x %d x %d, p %g: relative L2 error %.3g", what, b->batch, b->positions, b->features,
			 (double)b->p, e);
}

static void expect_gradient(const struct bed *b, const char *name, const float *want, int chunks)
{
	float *got = floats(b->features);
	OK(b->plan->ops->grad_get(b->plan, gp_graph_find_param(b->graph, name), got, &err));
	for (int i = 0; i < b->features; i++)
		got[i] /= (float)chunks;
	expect_near(b, name, got, want, b->features);
	gp_free(got);
}

static void expect_as_reference(struct bed b)
{
	open_bed(&b);
	struct reference ref = reference_of(&b);
	for (int chunks = 1; chunks <= 2; chunks++) {
		forward(&b, GP_TRAIN);
		expect_near(&b, "value", buffer(&b, GP_BUF_OUTPUT, 0), ref.out, elements_of(&b));
		backward(&b);
		expect_near(&b, "gradient", buffer(&b, GP_BUF_GRAD_INPUT, 0), ref.dx, elements_of(&b));
		if (b.residual)
			expect_near(&b, "residual's gradient", buffer(&b, GP_BUF_GRAD_INPUT, 1), ref.dresidual,
				    elements_of(&b));
		if (!b.frozen || !strstr(b.frozen, "weight"))
			expect_gradient(&b, "n.weight", ref.dweight, chunks);
		if (!b.frozen || !strstr(b.frozen, "bias"))
			expect_gradient(&b, "n.bias", ref.dbias, chunks);
	}
	drop_reference(&ref);
	close_bed(&b);
}

/* Rows that begin at every place of a block of draws; whole lanes of sums, and a few more or fewer. */
static void rows_of_any_width_agree_with_double_precision(void **state)
{
	static const int widths[] = {1, 2, 3, 7, 16, 31, 63, 64, 65, 128, 300, 1027};
	(void)state;
	for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++)
		for (int way = 0; way < 4; way++)
			expect_as_reference((struct bed){.batch = 3,
							 .positions = 5,
							 .features = widths[i],
							 .threads = 2,
							 .residual = way & 1,
							 .p = way & 2 ? 0.3f : 0.0f,
							 .eps = 1e-3f});
}

static void sums_of_many_rows_agree_with_double_precision(void **state)
{
	(void)state;
	for (int rows = 31; rows <= 3000; rows = rows < 34 ? rows + 1 : rows * 3)
		expect_as_reference((struct bed){.batch = rows,
						 .positions = 1,
						 .features = 24,
						 .threads = 2,
						 .residual = true,
						 .p = 0.1f,
						 .eps = 1e-5f});
}

/* Whose squares alone would lose all digits. */
static void rows_far_from_zero_agree_with_double_precision(void **state)
{
	(void)state;
	expect_as_reference(
		(struct bed){.batch = 4, .positions = 9, .features = 768, .threads = 1, .eps = 1e-5f, .offset = 50.0f});
}

static void parameters_that_are_not_trained_have_no_say_in_the_others(void **state)
{
	static const char *const frozen[] = {"n.weight", "n.bias", "n.[wb]*"};
	(void)state;
	for (int i = 0; i < 3; i++) {
		struct bed b = {.batch = 40,
				.positions = 2,
				.features = 33,
				.threads = 2,
				.residual = true,
				.p = 0.2f,
				.eps = 1e-5f,
				.frozen = i < 2 ? frozen[i] : NULL};
		expect_as_reference(b);
	}
	struct bed b = {.batch = 2, .positions = 3, .features = 9, .threads = 1, .eps = 1e-5f, .frozen = frozen[2]};
	open_bed(&b);
	forward(&b, GP_TRAIN);
	backward(&b);
	struct reference ref = reference_of(&b);
	expect_near(&b, "gradient", buffer(&b, GP_BUF_GRAD_INPUT, 0), ref.dx, elements_of(&b));
	drop_reference(&ref);
	close_bed(&b);
}

/* --- what it stands for ------------------------------------------------------------------------------------------ */

/* Dropout as an op of its own, of the same name and so with the same draws; then a sum, then the norm. */
static struct gp_graph *single_ops(const struct bed *b)
{
	struct gp_graph *g = begin(b);
	const int dropped = gp_graph_dropout(g, "n", 0, b->p, &err), sum = gp_graph_sum(g, "s", dropped, 1, &err);
	assert_true(gp_graph_layer_norm(g, "norm", sum, -1, (struct gp_layer_norm_attr){.eps = b->eps}, &err) > 0);
	OK(gp_graph_finish(g, &err));
	return g;
}

static void copy_params(const struct bed *from, struct bed *to)
{
	OK(to->plan->ops->param_set(to->plan, 0, from->weight, &err));
	OK(to->plan->ops->param_set(to->plan, 1, from->bias, &err));
}

static void it_is_dropout_and_sum_and_norm_bit_for_bit(void **state)
{
	(void)state;
	struct bed fused = {.batch = 5, .positions = 7, .features = 45, .threads = 2, .residual = true};
	fused.p = 0.4f;
	fused.eps = 1e-5f;
	struct bed apart = fused;
	apart.graph = single_ops(&apart);
	const struct gp_plan_spec spec = {
		.graph = apart.graph, .batch = 5, .slots = 1, .train = true, .grad_inputs = 3, .seed = SEED};
	open_bed(&fused);
	OK(gp_device_open("cpu", 2, &apart.dev, &err));
	OK(apart.dev->ops->plan_new(apart.dev, &spec, &apart.plan, &err));
	copy_params(&fused, &apart);
	const size_t bytes = (size_t)elements_of(&fused) * sizeof(float);
	for (int way = 0; way < 2; way++) {
		const enum gp_mode mode = way ? GP_TRAIN : GP_EVAL;
		forward(&fused, mode);
		forward(&apart, mode);
		assert_memory_equal(buffer(&fused, GP_BUF_OUTPUT, 0), buffer(&apart, GP_BUF_OUTPUT, 0), bytes);
	}
	backward(&fused);
	backward(&apart);
	for (int i = 0; i < 2; i++) /* -0 equals 0 */
		for (int64_t k = 0; k < elements_of(&fused); k++)
			assert_true(buffer(&fused, GP_BUF_GRAD_INPUT, i)[k] == buffer(&apart, GP_BUF_GRAD_INPUT, i)[k]);
	close_bed(&apart);
	close_bed(&fused);
}

/* A plan for evaluation keeps nothing. */
static void evaluation_drops_nothing(void **state)
{
	(void)state;
	for (int evaluates = 0; evaluates < 2; evaluates++) {
		struct bed b = {
			.batch = 3, .positions = 4, .features = 50, .threads = 1, .residual = true, .eps = 1e-5f};
		b.evaluates = evaluates;
		b.p = 0.5f;
		open_bed(&b);
		forward(&b, GP_EVAL);
		b.p = 0.0f; /* of the reference alone */
		struct reference ref = reference_of(&b);
		expect_near(&b, "value", buffer(&b, GP_BUF_OUTPUT, 0), ref.out, elements_of(&b));
		drop_reference(&ref);
		close_bed(&b);
	}
}

/* --- rows of no use ---------------------------------------------------------------------------------------------- */

static void a_constant_row_is_the_bias_and_a_nan_stays_in_its_row(void **state)
{
	(void)state;
	struct bed b = {.batch = 1, .positions = 3, .features = 70, .threads = 1, .eps = 1e-12f};
	open_bed(&b);
	float *x = buffer(&b, GP_BUF_INPUT, 0);
	draw(x, elements_of(&b), 3, 1.0f, 0.0f);
	for (int i = 0; i < 70; i++)
		x[i] = 1234.567f;
	x[2 * 70 + 3] = NAN;
	OK(b.plan->ops->forward(b.plan, 0, GP_TRAIN, 0, &err));
	const float *y = buffer(&b, GP_BUF_OUTPUT, 0);
	for (int i = 0; i < 70; i++)
		assert_true(fabsf(y[i] - b.bias[i]) < 1e-3f && isfinite(y[70 + i]) && isnan(y[2 * 70 + i]));
	close_bed(&b);
}

/* --- threads, instruction sets ----------------------------------------------------------------------------------- */

/* Value, both gradients, and those of weight and bias. */
static float *all_of(struct bed b, int64_t *count)
{
	const int64_t n = elements_of(&b);
	float *all = floats(3 * n + 2 * b.features);
	open_bed(&b);
	forward(&b, GP_TRAIN);
	memcpy(all, buffer(&b, GP_BUF_OUTPUT, 0), (size_t)n * sizeof *all);
	backward(&b);
	for (int i = 0; i < 2; i++) {
		memcpy(all + (1 + i) * n, buffer(&b, GP_BUF_GRAD_INPUT, i), (size_t)n * sizeof *all);
		OK(b.plan->ops->grad_get(b.plan, i, all + 3 * n + i * b.features, &err));
	}
	close_bed(&b);
	*count = 3 * n + 2 * b.features;
	return all;
}

static void bits_do_not_depend_on_threads_or_instruction_sets(void **state)
{
	static const int widths[] = {37, 64, 200};
	(void)state;
	for (int i = 0; i < 3; i++) {
		struct bed b = {.batch = 130, .positions = 7, .features = widths[i], .threads = 1, .residual = true};
		b.p = 0.25f;
		b.eps = 1e-5f;
		int64_t n;
		float *want = all_of(b, &n);
		for (int way = 0; way < 9; way++) {
			gp_isa_limit((enum gp_isa)(way / 3));
			b.threads = 1 + way % 3;
			float *got = all_of(b, &n);
			assert_memory_equal(got, want, (size_t)n * sizeof *got);
			gp_free(got);
		}
		gp_isa_limit(GP_ISA_AVX512);
		gp_free(want);
	}
}

int main(int argc, char **argv)
{
	(void)argc;
	gp_threads_prepare(argv); /* else waiting threads take the cores other tests run on */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_of_any_width_agree_with_double_precision),
		cmocka_unit_test(sums_of_many_rows_agree_with_double_precision),
		cmocka_unit_test(rows_far_from_zero_agree_with_double_precision),
		cmocka_unit_test(parameters_that_are_not_trained_have_no_say_in_the_others),
		cmocka_unit_test(it_is_dropout_and_sum_and_norm_bit_for_bit),
		cmocka_unit_test(evaluation_drops_nothing),
		cmocka_unit_test(a_constant_row_is_the_bias_and_a_nan_stays_in_its_row),
		cmocka_unit_test(bits_do_not_depend_on_threads_or_instruction_sets),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
