/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss over several rows of scores a sample, some of them without a label
 * (`loss` of common/graph/device.h), beside the definition in double precision,
 * with a row as short as few classes and as long as a vocabulary. On every device of
 * this build; the CPU's bits are the same on any number of threads.
 */
#include <string.h>

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/graph/device.h"
#include "common/graph/ops/op_elementwise.h"
#include "kernels/device_registry.h"
#include "tests/unit/ok.h"

enum { SAMPLES = 4, VALID = 3, ROWS = 5, LABELS = SAMPLES * ROWS };
#define SCALE 0.125f

static const struct place {
	const char *device;
	int threads;
} places[] = {{"cpu", 1}, {"cpu", 2}, {"cpu", 3}, {"cuda-emulated", 1}, {"cuda", 1}};
enum { PLACES = sizeof places / sizeof places[0] };

static const int64_t vocabularies[] = {2, 7, 100, 50265};

struct bed {
	struct gp_graph *graph;
	struct gp_device *device;
	struct gp_plan *plan;
	int64_t k;
};

/* Scores that a test writes: a ReLU whose outputs are overwritten. */
static struct gp_graph *scores_of(const struct gp_shape *shape, bool sequence)
{
	const struct gp_type type = {GP_F32, *shape};
	struct gp_graph *g = gp_graph_new_empty("scores", &err);
	assert_int_equal(gp_graph_add_input(g, "x", &type, &err), 0);
	if (sequence)
		gp_graph_mark_sequence(g, 0);
	OK(gp_graph_begin_block(g, "block", &err));
	assert_true(gp_graph_unary(g, GP_OP_RELU, "relu", 0, &err) > 0);
	OK(gp_graph_finish(g, &err));
	return g;
}

/* False: this build has no such device. */
static bool open_bed(struct bed *b, const struct place *place, const struct gp_shape *shape, bool sequence,
		     enum gp_loss_kind loss)
{
	if (gp_device_open(place->device, place->threads, &b->device, &err) != GP_OK)
		return false;
	b->graph = scores_of(shape, sequence);
	b->k = shape->dim[shape->ndim - 1];
	const struct gp_plan_spec spec = {
		.graph = b->graph, .batch = SAMPLES, .slots = 1, .train = true, .grad_inputs = 1, .loss = loss};
	OK(b->device->ops->plan_new(b->device, &spec, &b->plan, &err));
	return true;
}

static bool open_rows(struct bed *b, const struct place *place, int64_t k)
{
	const struct gp_shape shape = {.ndim = 2, .dim = {ROWS, k}};
	return open_bed(b, place, &shape, false, GP_LOSS_CROSS_ENTROPY);
}

static void close_bed(struct bed *b)
{
	b->plan->ops->plan_free(b->plan);
	b->device->ops->close(b->device);
	gp_graph_free(b->graph);
}

static float *buffer(const struct bed *b, enum gp_plan_buf which)
{
	return b->plan->ops->buffer(b->plan, 0, which, 0);
}

static void draw_scores(const struct bed *b)
{
	float *x = buffer(b, GP_BUF_OUTPUT), *grad = buffer(b, GP_BUF_GRAD_OUTPUT);
	for (int64_t i = 0; i < LABELS * b->k; i++) {
		x[i] = 3.0f * gp_rng_normal(8, (uint64_t)b->k, (uint64_t)i);
		grad[i] = 77.0f;
	}
}

/* A third of the rows have none; some have the word with the highest score. */
static void draw_labels(const struct bed *b, int32_t labels[LABELS])
{
	const float *x = buffer(b, GP_BUF_OUTPUT);
	for (int row = 0; row < LABELS; row++) {
		int64_t best = 0;
		for (int64_t i = 1; i < b->k; i++)
			best = x[row * b->k + i] > x[row * b->k + best] ? i : best;
		labels[row] = row % 3 == 1   ? GP_NO_LABEL
			      : row % 4 == 0 ? (int32_t)best
					     : (int32_t)(gp_rng_u32(2, 0, (uint64_t)row) % (uint64_t)b->k);
	}
}

/* --- the definition ----------------------------------------------------------------------------------------------- */

static void add_row(const float *x, int64_t k, int32_t label, float *grad, struct gp_loss_result *sum)
{
	int64_t best = 0;
	double all = 0.0;
	for (int64_t i = 1; i < k; i++)
		best = x[i] > x[best] ? i : best;
	for (int64_t i = 0; i < k; i++)
		all += exp((double)x[i] - (double)x[best]);
	for (int64_t i = 0; i < k; i++)
		grad[i] = (float)((double)SCALE * (exp((double)x[i] - (double)x[best]) / all - (i == label)));
	sum->loss_sum += log(all) - ((double)x[label] - (double)x[best]);
	sum->correct += best == label;
	sum->labelled++;
}

/* Caller frees the gradient. */
static struct gp_loss_result definition(const struct bed *b, const int32_t labels[LABELS], float **grad)
{
	struct gp_loss_result sum = {0};
	*grad = gp_calloc((size_t)(LABELS * b->k), sizeof **grad);
	assert_non_null(*grad);
	for (int row = 0; row < VALID * ROWS; row++)
		if (labels[row] != GP_NO_LABEL)
			add_row(buffer(b, GP_BUF_OUTPUT) + row * b->k, b->k, labels[row], *grad + row * b->k, &sum);
	return sum;
}

static void check_gradient(const struct bed *b, const int32_t labels[LABELS], const float *want)
{
	const float *got = buffer(b, GP_BUF_GRAD_OUTPUT);
	assert_true(relative_l2(got, want, (uint64_t)(LABELS * b->k)) < 1e-6);
	for (int row = 0; row < LABELS; row++)
		if (row >= VALID * ROWS || labels[row] == GP_NO_LABEL)
			for (int64_t i = 0; i < b->k; i++)
				assert_true(got[row * b->k + i] == 0.0f);
}

static void rows_without_a_label_add_nothing(void **state)
{
	(void)state;
	for (int i = 0; i < PLACES; i++)
		for (size_t v = 0; v < sizeof vocabularies / sizeof vocabularies[0]; v++) {
			struct bed b;
			int32_t labels[LABELS];
			struct gp_loss_result got, unwanted;
			float *grad;
			if (!open_rows(&b, &places[i], vocabularies[v]))
				continue;
			draw_scores(&b);
			draw_labels(&b, labels);
			const struct gp_loss_result want = definition(&b, labels, &grad);
			assert_true(want.labelled == VALID * ROWS - ROWS && want.correct > 0);
			OK(b.plan->ops->loss(b.plan, 0, labels, VALID, false, 0.0f, &unwanted, &err));
			assert_true(buffer(&b, GP_BUF_GRAD_OUTPUT)[0] == 77.0f);
			OK(b.plan->ops->loss(b.plan, 0, labels, VALID, true, SCALE, &got, &err));
			assert_true(fabs(got.loss_sum - want.loss_sum) < 1e-6 * want.loss_sum);
			assert_true(unwanted.loss_sum == got.loss_sum && unwanted.correct == got.correct);
			assert_true(got.correct == want.correct && got.labelled == want.labelled);
			check_gradient(&b, labels, grad);
			gp_free(grad);
			close_bed(&b);
		}
}

static void nothing_is_labelled_in_a_chunk_without_labels(void **state)
{
	(void)state;
	int32_t labels[LABELS];
	for (int row = 0; row < LABELS; row++)
		labels[row] = GP_NO_LABEL;
	for (int i = 0; i < PLACES; i++) {
		struct bed b;
		struct gp_loss_result r;
		if (!open_rows(&b, &places[i], 100))
			continue;
		draw_scores(&b);
		OK(b.plan->ops->loss(b.plan, 0, labels, SAMPLES, true, SCALE, &r, &err));
		assert_true(r.loss_sum == 0.0 && r.labelled == 0 && r.correct == 0);
		for (int64_t k = 0; k < LABELS * b.k; k++)
			assert_true(buffer(&b, GP_BUF_GRAD_OUTPUT)[k] == 0.0f);
		close_bed(&b);
	}
}

/* Where several scores are the largest the first of them counts, as with one row a sample. */
static void the_first_of_the_largest_is_the_answer(void **state)
{
	(void)state;
	int32_t labels[LABELS];
	for (int i = 0; i < PLACES; i++) {
		struct bed b;
		struct gp_loss_result r;
		if (!open_rows(&b, &places[i], 100))
			continue;
		for (int64_t k = 0; k < LABELS * b.k; k++)
			buffer(&b, GP_BUF_OUTPUT)[k] = k % 10 == 3 ? 1.0f : 0.0f;
		for (int row = 0; row < LABELS; row++)
			labels[row] = row % 2 ? 3 : 13;
		OK(b.plan->ops->loss(b.plan, 0, labels, SAMPLES, true, SCALE, &r, &err));
		assert_int_equal(r.correct, LABELS / 2);
		close_bed(&b);
	}
}

static void threads_change_no_bit(void **state)
{
	(void)state;
	struct bed one;
	int32_t labels[LABELS];
	struct gp_loss_result a, r;
	assert_true(open_rows(&one, &places[0], 50265));
	draw_scores(&one);
	draw_labels(&one, labels);
	OK(one.plan->ops->loss(one.plan, 0, labels, SAMPLES, true, SCALE, &a, &err));
	for (int i = 1; strcmp(places[i].device, "cpu") == 0; i++) {
		struct bed b;
		assert_true(open_rows(&b, &places[i], 50265));
		draw_scores(&b);
		OK(b.plan->ops->loss(b.plan, 0, labels, SAMPLES, true, SCALE, &r, &err));
		assert_true(a.loss_sum == r.loss_sum);
		assert_memory_equal(buffer(&one, GP_BUF_GRAD_OUTPUT), buffer(&b, GP_BUF_GRAD_OUTPUT),
				    (size_t)(LABELS * b.k) * sizeof(float));
		close_bed(&b);
	}
	close_bed(&one);
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

static void expect_refused(const struct gp_shape *shape, bool sequence, enum gp_loss_kind loss, const void *labels,
			   const char *part)
{
	for (int i = 0; i < PLACES; i++) {
		struct bed b;
		struct gp_loss_result r;
		if (!open_bed(&b, &places[i], shape, sequence, loss))
			continue;
		assert_int_equal(b.plan->ops->loss(b.plan, 0, labels, VALID, true, SCALE, &r, &err), GP_INVALID);
		if (!strstr(err.text, part))
			fail_msg("'%s' has no '%s'", err.text, part);
		close_bed(&b);
	}
}

static void labels_that_are_no_class_are_refused(void **state)
{
	(void)state;
	const struct gp_shape shape = {.ndim = 2, .dim = {ROWS, 9}};
	int32_t labels[LABELS] = {0};
	labels[VALID * ROWS - 1] = 9;
	expect_refused(&shape, false, GP_LOSS_CROSS_ENTROPY, labels, "label 9 does not fit a model with 9 classes");
	labels[VALID * ROWS - 1] = -2;
	expect_refused(&shape, false, GP_LOSS_CROSS_ENTROPY, labels, "label -2 does not fit");
	const struct gp_shape one = {.ndim = 1, .dim = {9}};
	labels[0] = GP_NO_LABEL;
	expect_refused(&one, false, GP_LOSS_CROSS_ENTROPY, labels, "label -1 does not fit");
}

static void outputs_that_are_no_rows_of_scores_are_refused(void **state)
{
	(void)state;
	const int32_t labels[LABELS] = {0};
	const float values[LABELS] = {0};
	const struct gp_shape image = {.ndim = 3, .dim = {2, 2, 5}}, rows = {.ndim = 2, .dim = {ROWS, 1}};
	const struct gp_shape sequence = {.ndim = 2, .dim = {ROWS, 3}};
	expect_refused(&image, false, GP_LOSS_CROSS_ENTROPY, labels, "neither a row of class scores");
	expect_refused(&sequence, true, GP_LOSS_CROSS_ENTROPY, labels, "neither a row of class scores");
	expect_refused(&rows, false, GP_LOSS_SQUARED_ERROR, values, "does not predict one value");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_without_a_label_add_nothing),
		cmocka_unit_test(nothing_is_labelled_in_a_chunk_without_labels),
		cmocka_unit_test(the_first_of_the_largest_is_the_answer),
		cmocka_unit_test(threads_change_no_bit),
		cmocka_unit_test(labels_that_are_no_class_are_refused),
		cmocka_unit_test(outputs_that_are_no_rows_of_scores_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
