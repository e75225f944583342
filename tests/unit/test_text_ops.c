/* SPDX-License-Identifier: Apache-2.0
 *
 * add_rows, take_row, GELU and tanh on the CPU device, on tensors that are large
 * enough to be shared out: the same bits on any number of threads, gradients
 * that are added up over chunks, and in plans that keep nothing. Beside PyTorch:
 * test_cpu_ops.c.
 */
#include <string.h>

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/base/threads.h"
#include "common/graph/device.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_rows.h"
#include "kernels/device_registry.h"
#include "tests/unit/ok.h"

enum { CHUNKS = 2, MAX_THREADS = 3 };

/* One op over (positions, features); `op` adds it. */
struct bed {
	int batch, positions, features, threads;
	struct gp_add_rows_attr rows;
	int (*op)(const struct bed *b, struct gp_graph *g);
	bool evaluates;
	struct gp_graph *graph;
	struct gp_device *dev;
	struct gp_plan *plan;
};

static int64_t elements_of(const struct bed *b)
{
	return (int64_t)b->batch * b->positions * b->features;
}

static int64_t outputs_of(const struct bed *b)
{
	return b->batch * (int64_t)gp_shape_elements(gp_graph_output_shape(b->graph));
}

static float *floats(int64_t n)
{
	float *v = gp_calloc((size_t)n, sizeof *v);
	assert_non_null(v);
	return v;
}

static void draw(float *to, int64_t n, uint64_t stream)
{
	for (int64_t i = 0; i < n; i++)
		to[i] = 4.0f * gp_rng_uniform(5, stream, (uint64_t)i) - 2.0f;
}

static void open_bed(struct bed *b)
{
	const struct gp_shape x = {.ndim = 2, .dim = {b->positions, b->features}};
	b->graph = gp_graph_new("op", &x, &err);
	assert_non_null(b->graph);
	OK(gp_graph_begin_block(b->graph, "block", &err));
	if (b->op(b, b->graph) < 0)
		fail_msg("%s", err.text);
	OK(gp_graph_finish(b->graph, &err));
	const struct gp_plan_spec spec = {.graph = b->graph,
					  .batch = b->batch,
					  .slots = 1,
					  .train = !b->evaluates,
					  .grad_inputs = b->evaluates ? 0 : 1,
					  .seed = 2};
	OK(gp_device_open("cpu", b->threads, &b->dev, &err));
	OK(b->dev->ops->plan_new(b->dev, &spec, &b->plan, &err));
}

static void close_bed(struct bed *b)
{
	b->plan->ops->plan_free(b->plan);
	b->dev->ops->close(b->dev);
	gp_graph_free(b->graph);
}

/* Value and gradient of the last chunk, and the parameter's after all of them. */
static float *all_of(struct bed b, int64_t *count)
{
	open_bed(&b);
	const struct gp_device_ops *ops = b.plan->ops;
	const int64_t in = elements_of(&b), out = outputs_of(&b);
	const int64_t params = b.graph->params ? (int64_t)b.graph->param[0].count : 0;
	float *all = floats(in + out + params);
	for (uint64_t c = 0; c < CHUNKS; c++) {
		draw(ops->buffer(b.plan, 0, GP_BUF_INPUT, 0), in, 10 + c);
		OK(ops->forward(b.plan, 0, GP_TRAIN, c, &err));
		memcpy(all, ops->buffer(b.plan, 0, GP_BUF_OUTPUT, 0), (size_t)out * sizeof *all);
		draw(ops->buffer(b.plan, 0, GP_BUF_GRAD_OUTPUT, 0), out, 20 + c);
		OK(ops->backward(b.plan, 0, &err));
	}
	memcpy(all + out, ops->buffer(b.plan, 0, GP_BUF_GRAD_INPUT, 0), (size_t)in * sizeof *all);
	if (params)
		OK(ops->grad_get(b.plan, 0, all + out + in, &err));
	*count = in + out + params;
	close_bed(&b);
	return all;
}

static void expect_the_same_on_all_threads(struct bed b)
{
	int64_t n;
	b.threads = 1;
	float *want = all_of(b, &n);
	for (b.threads = 2; b.threads <= MAX_THREADS; b.threads++) {
		float *got = all_of(b, &n);
		assert_memory_equal(got, want, (size_t)n * sizeof *got);
		gp_free(got);
	}
	gp_free(want);
}

/* --- rows -------------------------------------------------------------------------------------------------------- */

static int add_rows(const struct bed *b, struct gp_graph *g)
{
	return gp_graph_add_rows(g, "rows", 0, b->rows, &err);
}

static int take_last_row(const struct bed *b, struct gp_graph *g)
{
	return gp_graph_take_row(g, "last", 0, b->positions - 1, &err);
}

/* What every chunk's dout adds to row r of the table, in double precision. */
static void expect_table_gradient(const struct bed *b, const float *got)
{
	double *want = gp_calloc((size_t)b->rows.rows * (size_t)b->features, sizeof *want);
	float *dout = floats(elements_of(b));
	assert_non_null(want);
	for (uint64_t c = 0; c < CHUNKS; c++) {
		draw(dout, elements_of(b), 20 + c);
		for (int64_t i = 0; i < elements_of(b); i++) {
			const int64_t position = i / b->features % b->positions;
			want[(b->rows.first + position * b->rows.step) * b->features + i % b->features] +=
				(double)dout[i];
		}
	}
	for (int64_t i = 0; i < (int64_t)b->rows.rows * b->features; i++)
		if (!(fabs((double)got[i] - want[i]) < 2e-3) || (want[i] == 0.0 && got[i] != 0.0f))
			fail_msg("element %d of the gradient is %g, not %g", (int)i, (double)got[i], want[i]);
	gp_free(want);
	gp_free(dout);
}

/* More positions than threads, and fewer; rows before and behind those that are added. */
static const struct bed row_beds[] = {
	{.batch = 9, .positions = 70, .features = 40, .rows = {.rows = 80, .first = 3, .step = 1}, .op = add_rows},
	{.batch = 5, .positions = 2, .features = 2000, .rows = {.rows = 5, .first = 1, .step = 1}, .op = add_rows},
	{.batch = 5, .positions = 2, .features = 2000, .rows = {.rows = 2, .first = 0, .step = 1}, .op = add_rows},
	{.batch = 9, .positions = 70, .features = 40, .rows = {.rows = 4, .first = 2}, .op = add_rows},
	{.batch = 9, .positions = 70, .features = 5, .rows = {.rows = 1}, .op = add_rows},
};

static void a_tables_gradient_is_the_sum_over_samples_and_chunks(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof row_beds / sizeof row_beds[0]; i++)
		for (int threads = 1; threads <= MAX_THREADS; threads++) {
			struct bed b = row_beds[i];
			int64_t n;
			b.threads = threads;
			float *all = all_of(b, &n);
			expect_table_gradient(&b, all + 2 * elements_of(&b));
			gp_free(all);
		}
}

static void rows_are_the_same_on_any_number_of_threads(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof row_beds / sizeof row_beds[0]; i++)
		expect_the_same_on_all_threads(row_beds[i]);
	expect_the_same_on_all_threads((struct bed){.batch = 7, .positions = 30, .features = 100, .op = take_last_row});
	expect_the_same_on_all_threads(
		(struct bed){.batch = 20, .positions = 2, .features = 1000, .op = take_last_row});
}

/* --- curves ------------------------------------------------------------------------------------------------------ */

static int add_gelu(const struct bed *b, struct gp_graph *g)
{
	(void)b;
	return gp_graph_gelu(g, "act", 0, false, &err);
}

static int add_gelu_by_tanh(const struct bed *b, struct gp_graph *g)
{
	(void)b;
	return gp_graph_gelu(g, "act", 0, true, &err);
}

static int add_tanh(const struct bed *b, struct gp_graph *g)
{
	(void)b;
	return gp_graph_unary(g, GP_OP_TANH, "act", 0, &err);
}

/* Behind another op, so that the second may take over the first one's memory. */
static int add_two(const struct bed *b, struct gp_graph *g)
{
	(void)b;
	return gp_graph_gelu(g, "b", gp_graph_gelu(g, "a", 0, false, &err), true, &err);
}

static const struct bed curve_beds[] = {
	{.batch = 3, .positions = 77, .features = 91, .op = add_gelu},
	{.batch = 3, .positions = 77, .features = 91, .op = add_gelu_by_tanh},
	{.batch = 3, .positions = 77, .features = 91, .op = add_tanh},
	{.batch = 3, .positions = 77, .features = 91, .op = add_two},
};

static void curves_are_the_same_on_any_number_of_threads(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof curve_beds / sizeof curve_beds[0]; i++)
		expect_the_same_on_all_threads(curve_beds[i]);
}

static float *evaluated(struct bed b, bool evaluates)
{
	b.threads = 1;
	b.evaluates = evaluates;
	open_bed(&b);
	float *out = floats(elements_of(&b));
	draw(b.plan->ops->buffer(b.plan, 0, GP_BUF_INPUT, 0), elements_of(&b), 1);
	OK(b.plan->ops->forward(b.plan, 0, evaluates ? GP_EVAL : GP_TRAIN, 0, &err));
	memcpy(out, b.plan->ops->buffer(b.plan, 0, GP_BUF_OUTPUT, 0), (size_t)elements_of(&b) * sizeof *out);
	close_bed(&b);
	return out;
}

static void evaluation_gives_the_values_of_training(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof curve_beds / sizeof curve_beds[0]; i++) {
		float *train = evaluated(curve_beds[i], false), *eval = evaluated(curve_beds[i], true);
		assert_memory_equal(train, eval, (size_t)elements_of(&curve_beds[i]) * sizeof *train);
		gp_free(train);
		gp_free(eval);
	}
}

int main(int argc, char **argv)
{
	(void)argc;
	gp_threads_prepare(argv); /* else waiting threads take the cores other tests run on */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_tables_gradient_is_the_sum_over_samples_and_chunks),
		cmocka_unit_test(rows_are_the_same_on_any_number_of_threads),
		cmocka_unit_test(curves_are_the_same_on_any_number_of_threads),
		cmocka_unit_test(evaluation_gives_the_values_of_training),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
