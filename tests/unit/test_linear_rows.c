/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear layers of many rows on the CPU device, which multiply with the weight
 * as it is (kernels/cpu/onednn/dnn_linear.c), beside sums in double precision of
 * some of their elements; layers of fewer rows do the same another way. Beside
 * PyTorch: test_cpu_ops.c.
 */
#include <math.h>

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/base/threads.h"
#include "common/graph/device.h"
#include "common/graph/ops/op_linear.h"
#include "kernels/device_registry.h"
#include "tests/unit/ok.h"

enum { POSITIONS = 4, SAMPLED = 300 };
static int64_t features_in = 512, features_out = 1032;

struct bed {
	int samples, threads;
	bool bias, data; /* data: nobody wants the gradient of the rows */
	int every;       /* rows have a label, the first of so many; the others are left out. 0: none is */
	const char *frozen;
	struct gp_graph *graph;
	struct gp_device *dev;
	struct gp_plan *plan;
	float *weight, *offset;
};

static float drawn(uint64_t stream, int64_t i)
{
	return gp_rng_uniform(7, stream, (uint64_t)i) - 0.45f;
}

/* Element i of a gradient with respect to all rows of the output. */
static float drawn_gradient(const struct bed *b, uint64_t stream, int64_t i)
{
	return b->every && i / features_out % b->every ? 0.0f : drawn(stream, i);
}

/* Where element i of the output, or of its gradient, lies among those of all rows. */
static int64_t place_of(const struct bed *b, int64_t i)
{
	return b->every ? i / features_out * b->every * features_out + i % features_out : i;
}

static void fill(float *to, int64_t n, uint64_t stream)
{
	for (int64_t i = 0; i < n; i++)
		to[i] = drawn(stream, i);
}

static void open_bed(struct bed *b)
{
	const struct gp_shape x = {.ndim = 2, .dim = {POSITIONS, features_in}};
	b->graph = gp_graph_new("linear", &x, &err);
	assert_non_null(b->graph);
	OK(gp_graph_begin_block(b->graph, "block", &err));
	assert_true(gp_graph_linear(b->graph, "l", 0, features_out, b->bias, &err) > 0);
	OK(gp_graph_finish(b->graph, &err));
	if (b->frozen)
		assert_true(gp_graph_freeze(b->graph, b->frozen) > 0);
	const struct gp_plan_spec spec = {.graph = b->graph,
					  .batch = b->samples,
					  .slots = 1,
					  .train = true,
					  .grad_inputs = b->data ? 0 : 1,
					  .seed = 1,
					  .optim = {.kind = GP_OPTIM_SGD}};
	OK(gp_device_open("cpu", b->threads, &b->dev, &err));
	OK(b->dev->ops->plan_new(b->dev, &spec, &b->plan, &err));
	b->weight = gp_calloc((size_t)features_in * features_out, sizeof(float));
	b->offset = gp_calloc(features_out, sizeof(float));
	fill(b->weight, (int64_t)features_in * features_out, 1);
	fill(b->offset, b->bias ? features_out : 0, 2);
	OK(b->plan->ops->param_set(b->plan, 0, b->weight, &err));
	if (b->bias)
		OK(b->plan->ops->param_set(b->plan, 1, b->offset, &err));
}

static void close_bed(struct bed *b)
{
	b->plan->ops->plan_free(b->plan);
	b->dev->ops->close(b->dev);
	gp_graph_free(b->graph);
	gp_free(b->weight);
	gp_free(b->offset);
}

static int64_t rows_of(const struct bed *b)
{
	return (int64_t)b->samples * POSITIONS;
}

static int64_t rows_computed(const struct bed *b)
{
	return b->every ? (rows_of(b) + b->every - 1) / b->every : rows_of(b);
}

static void set_labels(const struct bed *b)
{
	int32_t *label = gp_calloc((size_t)rows_of(b), sizeof *label);
	assert_non_null(label);
	for (int64_t row = 0; row < rows_of(b); row++)
		label[row] = b->every && row % b->every ? GP_NO_LABEL : 0;
	gp_plan_set_labels(b->plan, 0, label, b->samples);
	gp_free(label);
}

/* Each chunk has a stream of its own. */
static void run_chunk(const struct bed *b, uint64_t chunk)
{
	const struct gp_device_ops *ops = b->plan->ops;
	fill(ops->buffer(b->plan, 0, GP_BUF_INPUT, 0), rows_of(b) * features_in, 10 + chunk);
	set_labels(b);
	OK(ops->forward(b->plan, 0, GP_TRAIN, 0, &err));
	float *grad = ops->buffer(b->plan, 0, GP_BUF_GRAD_OUTPUT, 0);
	for (int64_t i = 0; i < rows_computed(b) * features_out; i++)
		grad[i] = drawn_gradient(b, 20 + chunk, place_of(b, i));
	OK(ops->backward(b->plan, 0, &err));
}

/* --- some elements in double precision --------------------------------------------------------------------------- */

static double value_at(const struct bed *b, int64_t i, int chunks)
{
	const int64_t row = place_of(b, i) / features_out, out = i % features_out;
	double sum = (double)b->offset[out];
	for (int64_t k = 0; k < features_in; k++)
		sum += (double)drawn(9 + (uint64_t)chunks, row * features_in + k) *
		       (double)b->weight[out * features_in + k];
	return sum;
}

static double row_gradient_at(const struct bed *b, int64_t i, int chunks)
{
	const int64_t row = i / features_in, in = i % features_in;
	double sum = 0;
	for (int64_t k = 0; k < features_out; k++)
		sum += (double)drawn_gradient(b, 19 + (uint64_t)chunks, row * features_out + k) *
		       (double)b->weight[k * features_in + in];
	return sum;
}

static double weight_gradient_at(const struct bed *b, int64_t i, int chunks)
{
	const int64_t out = i / features_in, in = i % features_in;
	double sum = 0;
	for (uint64_t c = 0; c < (uint64_t)chunks; c++)
		for (int64_t row = 0; row < rows_of(b); row++)
			sum += (double)drawn_gradient(b, 20 + c, row * features_out + out) *
			       (double)drawn(10 + c, row * features_in + in);
	return sum;
}

static double bias_gradient_at(const struct bed *b, int64_t i, int chunks)
{
	double sum = 0;
	for (uint64_t c = 0; c < (uint64_t)chunks; c++)
		for (int64_t row = 0; row < rows_of(b); row++)
			sum += (double)drawn_gradient(b, 20 + c, row * features_out + i);
	return sum;
}

typedef double element(const struct bed *b, int64_t i, int chunks);

/* The last elements, and others all over. */
static void expect(const struct bed *b, const char *what, const float *got, int64_t n, element *want, int chunks)
{
	double diff = 0, norm = 0;
	for (int k = 0; k < SAMPLED; k++) {
		const int64_t i = k < 20 ? n - 1 - k : (int64_t)(gp_rng_u32(3, 3, (uint64_t)k) % (uint64_t)n);
		const double w = want(b, i, chunks), d = (double)got[i] - w;
		diff += d * d;
		norm += w * w;
	}
	if (!(sqrt(diff / norm) < 1e-5))
		fail_msg("%s after %d chunks of %d rows: relative L2 error %.3g", what, chunks, (int)rows_of(b),
			 sqrt(diff / norm));
}

static void expect_gradient(const struct bed *b, int param, int64_t n, element *want, int chunks)
{
	float *got = gp_calloc((size_t)n, sizeof *got);
	assert_non_null(got);
	OK(b->plan->ops->grad_get(b->plan, param, got, &err));
	expect(b, param ? "bias gradient" : "weight gradient", got, n, want, chunks);
	gp_free(got);
}

/* Two steps of two chunks: the first of a step overwrites what the one before left. */
static void check(struct bed b)
{
	const struct gp_device_ops *ops;
	open_bed(&b);
	ops = b.plan->ops;
	for (int step = 0; step < 2; step++) {
		for (int chunks = 1; chunks <= 2; chunks++) {
			run_chunk(&b, (uint64_t)chunks - 1);
			expect(&b, "value", ops->buffer(b.plan, 0, GP_BUF_OUTPUT, 0), rows_computed(&b) * features_out,
			       value_at, chunks);
			if (!b.data)
				expect(&b, "gradient", ops->buffer(b.plan, 0, GP_BUF_GRAD_INPUT, 0),
				       rows_of(&b) * features_in, row_gradient_at, chunks);
			if (b.graph->param[0].trained)
				expect_gradient(&b, 0, (int64_t)features_in * features_out, weight_gradient_at, chunks);
			if (b.bias && b.graph->param[1].trained)
				expect_gradient(&b, 1, features_out, bias_gradient_at, chunks);
		}
		OK(ops->optim_step(b.plan, 0.0f, &err));
	}
	close_bed(&b);
}

static void many_rows_and_few_agree_with_double_precision(void **state)
{
	(void)state;
	for (int threads = 1; threads <= 2; threads++) {
		check((struct bed){.samples = 128, .threads = threads, .bias = true});
		check((struct bed){.samples = 125, .threads = threads});
		check((struct bed){.samples = 3, .threads = threads, .bias = true});
	}
}

/* Few rows of such a layer are shared by threads in another way (kernels/cpu/onednn/dnn_linear.c). */
static void few_inputs_and_many_outputs_agree_as_well(void **state)
{
	(void)state;
	static const int samples[] = {1, 2, 8, 32};
	const int64_t in = features_in, out = features_out;
	features_out = 1280;
	for (features_in = 8; features_in <= 32; features_in += 24)
		for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++)
			for (int threads = 1; threads <= 2; threads++)
				check((struct bed){.samples = samples[i], .threads = threads, .bias = i % 2});
	features_in = in;
	features_out = out;
}

/* As of masked words, of which many texts have fewer than there are rows. */
static void rows_without_a_label_are_left_out(void **state)
{
	(void)state;
	for (int threads = 1; threads <= 2; threads++) {
		check((struct bed){.samples = 128, .threads = threads, .bias = true, .every = 3});
		check((struct bed){.samples = 125, .threads = threads, .every = 499});
		check((struct bed){.samples = 128, .threads = threads, .bias = true, .every = 4, .frozen = "l.weight"});
		check((struct bed){.samples = 128, .threads = threads, .bias = true, .every = 4, .data = true});
		check((struct bed){.samples = 3, .threads = threads, .bias = true, .every = 5});
	}
}

static void what_is_frozen_gets_no_gradient_and_the_rest_its_own(void **state)
{
	(void)state;
	check((struct bed){.samples = 128, .threads = 2, .bias = true, .frozen = "l.weight"});
	check((struct bed){.samples = 128, .threads = 2, .bias = true, .frozen = "l.bias"});
	check((struct bed){.samples = 128, .threads = 1, .bias = true, .frozen = "l.*"});
	check((struct bed){.samples = 128, .threads = 1, .bias = true, .data = true});
}

/* The update reads the gradient where it was added up. */
static void an_update_takes_the_gradient_off_the_weight(void **state)
{
	(void)state;
	struct bed b = {.samples = 128, .threads = 2, .bias = true};
	float *grad = gp_calloc((size_t)features_in * features_out, sizeof *grad),
	      *after = gp_calloc((size_t)features_in * features_out, sizeof *after);
	open_bed(&b);
	run_chunk(&b, 0);
	OK(b.plan->ops->grad_get(b.plan, 0, grad, &err));
	OK(b.plan->ops->optim_step(b.plan, 0.5f, &err));
	OK(b.plan->ops->param_get(b.plan, 0, after, &err));
	for (int i = 0; i < features_in * features_out; i++)
		assert_true(after[i] == b.weight[i] - 0.5f * grad[i]);
	gp_free(grad);
	gp_free(after);
	run_chunk(&b, 0);
	OK(b.plan->ops->param_get(b.plan, 0, b.weight, &err)); /* the forward pass reads what the update left */
	OK(b.plan->ops->param_get(b.plan, 1, b.offset, &err));
	expect(&b, "value", b.plan->ops->buffer(b.plan, 0, GP_BUF_OUTPUT, 0), rows_of(&b) * features_out, value_at, 1);
	close_bed(&b);
}

/* Packed for oneDNN's own kernels it would be there three times. */
static void the_weight_of_many_rows_is_held_once(void **state)
{
	(void)state;
	struct bed b = {.samples = 128, .threads = 1};
	struct gp_plan_memory memory;
	open_bed(&b);
	b.plan->ops->plan_memory(b.plan, &memory);
	assert_true(memory.params < features_in * features_out * sizeof(float) * 3 / 2);
	close_bed(&b);
}

int main(int argc, char **argv)
{
	(void)argc;
	gp_threads_prepare(argv); /* else waiting threads take the cores other tests run on */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_rows_and_few_agree_with_double_precision),
		cmocka_unit_test(few_inputs_and_many_outputs_agree_as_well),
		cmocka_unit_test(rows_without_a_label_are_left_out),
		cmocka_unit_test(what_is_frozen_gets_no_gradient_and_the_rest_its_own),
		cmocka_unit_test(an_update_takes_the_gradient_off_the_weight),
		cmocka_unit_test(the_weight_of_many_rows_is_held_once),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
