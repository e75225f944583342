/* SPDX-License-Identifier: Apache-2.0
 *
 * Chunks that compute only those rows of scores that have a label (set_labels of
 * common/graph/device.h): the loss, the gradients of all parameters and that of the
 * input are those of a chunk that computes all rows, whether no row has a label, some
 * have or all. On every device of this build, also those that compute all rows anyway;
 * once more on plain loops (tests/CMakeLists.txt).
 *
 * Nothing but the scores' layer sees fewer rows, and the loss adds up the same numbers in the same order. So results differ by
 * no more than how products of fewer rows round: a bound of 1e-5, or of 1e-3 where gradients are rounded to bf16 on their way.
 */
#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/graph/device.h"
#include "common/graph/graph_part.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_layer_norm.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/ops/op_take_rows.h"
#include "common/graph/plan_profile.h"
#include "kernels/device_registry.h"
#include "tests/unit/ok.h"

enum { SAMPLES = 16, VALID = 13, POSITIONS = 24, ROWS = 7, FEATURES = 64, LABELS = SAMPLES * ROWS, SLOTS = 2 };
/* The weight of many is multiplied as it is (kernels/cpu/onednn/dnn_linear.c). */
enum { FEW_WORDS = 37, MANY_WORDS = 5003 };
enum { X, NUMBERS };

/* How many rows have a label. */
enum kind { NONE, ONE, SOME, LISTS, ALL, KINDS };

static const struct place {
	const char *device;
	int threads;
} places[] = {{"cpu", 1}, {"cpu", 2}, {"cpu", 3}, {"cuda-emulated", 1}, {"cuda", 1}};
enum { PLACES = sizeof places / sizeof places[0] };

struct bed {
	struct gp_graph *graph;
	struct gp_device *device;
	struct gp_plan *plan;
	int words;
	double tolerance;
};

/* The end of a masked language model, in two blocks. */
static struct gp_graph *model_of(int words)
{
	const struct gp_type x = {GP_F32, {.ndim = 2, .dim = {POSITIONS, FEATURES}}};
	const struct gp_type numbers = {GP_I32, {.ndim = 1, .dim = {ROWS}}};
	struct gp_graph *g = gp_graph_new_empty("model", &err);
	assert_int_equal(gp_graph_add_input(g, "x", &x, &err), X);
	assert_int_equal(gp_graph_add_input(g, "numbers", &numbers, &err), NUMBERS);
	OK(gp_graph_begin_block(g, "head", &err));
	int v = gp_graph_take_rows(g, "masked", X, NUMBERS, &err);
	v = gp_graph_gelu(g, "gelu", gp_graph_linear(g, "dense", v, FEATURES, true, &err), false, &err);
	v = gp_graph_layer_norm(g, "norm", v, -1, (struct gp_layer_norm_attr){.eps = 1e-5f}, &err);
	OK(gp_graph_begin_block(g, "out", &err));
	assert_true(gp_graph_linear(g, "words", v, words, true, &err) > 0);
	OK(gp_graph_finish(g, &err));
	return g;
}

struct how {
	int words;
	bool recompute;
	enum gp_precision precision;
};

/* False: this build has no such device, or it lacks the precision. */
static bool open_bed(struct bed *b, const struct place *place, struct how how)
{
	*b = (struct bed){.words = how.words, .tolerance = how.precision == GP_PRECISION_BF16 ? 1e-3 : 1e-5};
	if (gp_device_open(place->device, place->threads, &b->device, &err) != GP_OK)
		return false;
	if (!gp_device_supports(b->device, how.precision)) {
		b->device->ops->close(b->device);
		return false;
	}
	b->graph = model_of(how.words);
	const struct gp_plan_spec spec = {.graph = b->graph,
					  .batch = SAMPLES,
					  .slots = SLOTS,
					  .train = true,
					  .grad_inputs = 1 << X,
					  .seed = 3,
					  .optim = {.kind = GP_OPTIM_SGD},
					  .recompute = how.recompute,
					  .precision = how.precision};
	OK(b->device->ops->plan_new(b->device, &spec, &b->plan, &err));
	return true;
}

static bool is_cpu(const struct place *place)
{
	return strcmp(place->device, "cpu") == 0;
}

static void close_bed(struct bed *b)
{
	b->plan->ops->plan_free(b->plan);
	b->device->ops->close(b->device);
	gp_graph_free(b->graph);
}

/* --- chunks ------------------------------------------------------------------------------------------------------- */

/* LISTS: as texts have them, a row without a label behind those with one; SOME: anywhere. */
static bool has_label(enum kind kind, int row)
{
	switch (kind) {
	case ONE:
		return row == 4 * ROWS + 2;
	case SOME:
		return gp_rng_u32(9, 0, (uint64_t)row) % 3 == 0;
	case LISTS:
		return row % ROWS < 1 + row / ROWS % 4;
	case ALL:
		return true;
	default:
		return false;
	}
}

static int valid_of(enum kind kind)
{
	return kind == ALL ? SAMPLES : VALID;
}

static int draw_labels(const struct bed *b, enum kind kind, int32_t labels[LABELS])
{
	int count = 0;
	for (int row = 0; row < LABELS; row++) {
		const bool labelled = has_label(kind, row);
		labels[row] = labelled ? (int32_t)(gp_rng_u32(2, 0, (uint64_t)row) % (uint32_t)b->words) : GP_NO_LABEL;
		count += labelled && row < valid_of(kind) * ROWS;
	}
	return count;
}

static void fill(const struct bed *b, int slot)
{
	float *x = b->plan->ops->buffer(b->plan, slot, GP_BUF_INPUT, X);
	int32_t *number = b->plan->ops->buffer(b->plan, slot, GP_BUF_INPUT, NUMBERS);
	for (int i = 0; i < SAMPLES * POSITIONS * FEATURES; i++)
		x[i] = gp_rng_normal(5, (uint64_t)slot, (uint64_t)i);
	for (int i = 0; i < LABELS; i++)
		number[i] = (int32_t)(gp_rng_u32(6, (uint64_t)slot, (uint64_t)i) % POSITIONS);
}

static struct gp_loss_result forward(const struct bed *b, int slot, enum kind kind, bool told, enum gp_mode mode)
{
	int32_t labels[LABELS];
	struct gp_loss_result r;
	const int count = draw_labels(b, kind, labels);
	fill(b, slot);
	gp_plan_set_labels(b->plan, slot, told ? labels : NULL, valid_of(kind));
	OK(b->plan->ops->forward(b->plan, slot, mode, 0, &err));
	OK(b->plan->ops->loss(b->plan, slot, labels, valid_of(kind), mode == GP_TRAIN, 0.01f, &r, &err));
	assert_int_equal(r.labelled, count);
	return r;
}

/* What a step of two chunks that are in flight together leaves. */
struct outcome {
	struct gp_loss_result loss[SLOTS];
	float *dx[SLOTS], *grad[8];
};

static const size_t dx_floats = (size_t)SAMPLES * POSITIONS * FEATURES;

static struct outcome run(const struct bed *b, enum kind kind, bool told)
{
	struct outcome o;
	const enum kind kinds[SLOTS] = {kind, SOME};
	for (int slot = 0; slot < SLOTS; slot++)
		o.loss[slot] = forward(b, slot, kinds[slot], told, GP_TRAIN);
	for (int slot = 0; slot < SLOTS; slot++) {
		OK(b->plan->ops->backward(b->plan, slot, &err));
		o.dx[slot] = gp_calloc(dx_floats, sizeof(float));
		memcpy(o.dx[slot], b->plan->ops->buffer(b->plan, slot, GP_BUF_GRAD_INPUT, X),
		       dx_floats * sizeof(float));
	}
	assert_true(b->graph->params <= 8);
	for (int i = 0; i < b->graph->params; i++) {
		o.grad[i] = gp_calloc((size_t)b->graph->param[i].count, sizeof(float));
		OK(b->plan->ops->grad_get(b->plan, i, o.grad[i], &err));
	}
	OK(b->plan->ops->optim_step(b->plan, 0.0f, &err));
	return o;
}

static void free_outcome(const struct bed *b, struct outcome *o)
{
	for (int slot = 0; slot < SLOTS; slot++)
		gp_free(o->dx[slot]);
	for (int i = 0; i < b->graph->params; i++)
		gp_free(o->grad[i]);
}

/* Zeros have to be zeros. */
static void expect_near(const struct bed *b, const char *what, const float *got, const float *want, uint64_t n,
			enum kind kind)
{
	bool zero = true;
	for (uint64_t i = 0; i < n && zero; i++)
		zero = want[i] == 0.0f && got[i] == 0.0f;
	if (!zero && !(relative_l2(got, want, n) < b->tolerance))
		fail_msg("%s of kind %d: %g apart", what, (int)kind, relative_l2(got, want, n));
}

static void expect_same(const struct bed *b, const struct outcome *got, const struct outcome *want, enum kind kind)
{
	for (int slot = 0; slot < SLOTS; slot++) {
		const struct gp_loss_result *g = &got->loss[slot], *w = &want->loss[slot];
		assert_true(fabs(g->loss_sum - w->loss_sum) <= 1e-6 * w->loss_sum && g->correct == w->correct);
		expect_near(b, "dx", got->dx[slot], want->dx[slot], dx_floats, kind);
	}
	for (int i = 0; i < b->graph->params; i++)
		expect_near(b, b->graph->param[i].name, got->grad[i], want->grad[i], b->graph->param[i].count, kind);
}

static void check(const struct place *place, struct how how)
{
	struct bed b;
	if (!open_bed(&b, place, how))
		return;
	for (enum kind kind = NONE; kind < KINDS; kind++) {
		struct outcome all = run(&b, kind, false), few = run(&b, kind, true);
		struct outcome again = run(&b, kind, false); /* what was left out leaves nothing behind */
		expect_same(&b, &few, &all, kind);
		for (int slot = 0; slot < SLOTS; slot++)
			assert_memory_equal(again.dx[slot], all.dx[slot], dx_floats * sizeof(float));
		for (int i = 0; i < b.graph->params; i++)
			assert_memory_equal(again.grad[i], all.grad[i], b.graph->param[i].count * sizeof(float));
		free_outcome(&b, &all);
		free_outcome(&b, &few);
		free_outcome(&b, &again);
	}
	close_bed(&b);
}

static void rows_without_a_label_change_nothing(void **state)
{
	(void)state;
	for (int i = 0; i < PLACES; i++) {
		check(&places[i], (struct how){.words = FEW_WORDS});
		if (is_cpu(&places[i])) /* the emulated GPU takes long, and computes all rows anyway */
			check(&places[i], (struct how){.words = MANY_WORDS});
	}
}

static void blocks_computed_again_leave_out_the_same_rows(void **state)
{
	(void)state;
	check(&places[1], (struct how){.words = FEW_WORDS, .recompute = true});
	check(&places[1], (struct how){.words = MANY_WORDS, .recompute = true});
}

static void rounded_products_leave_out_the_same_rows(void **state)
{
	(void)state;
	check(&places[1], (struct how){.words = FEW_WORDS, .precision = GP_PRECISION_BF16});
	check(&places[1], (struct how){.words = MANY_WORDS, .precision = GP_PRECISION_BF16});
}

/* The same chunk twice: the second time over what other labels have left. */
static void the_same_labels_give_the_same_bits(void **state)
{
	(void)state;
	struct bed b;
	assert_true(open_bed(&b, &places[0], (struct how){.words = MANY_WORDS}));
	struct outcome first = run(&b, LISTS, true), other = run(&b, ALL, true), second = run(&b, LISTS, true);
	assert_true(first.loss[0].loss_sum == second.loss[0].loss_sum);
	for (int i = 0; i < b.graph->params; i++)
		assert_memory_equal(first.grad[i], second.grad[i], b.graph->param[i].count * sizeof(float));
	free_outcome(&b, &first);
	free_outcome(&b, &other);
	free_outcome(&b, &second);
	close_bed(&b);
}

static void an_evaluation_has_the_loss_of_all_rows(void **state)
{
	(void)state;
	for (int i = 0; i < PLACES; i++) {
		struct bed b;
		if (!open_bed(&b, &places[i], (struct how){.words = is_cpu(&places[i]) ? MANY_WORDS : FEW_WORDS}))
			continue;
		for (enum kind kind = NONE; kind < KINDS; kind++) {
			const struct gp_loss_result all = forward(&b, 0, kind, false, GP_EVAL);
			const struct gp_loss_result few = forward(&b, 0, kind, true, GP_EVAL);
			assert_true(fabs(all.loss_sum - few.loss_sum) <= 1e-6 * all.loss_sum);
			assert_true(all.correct == few.correct && all.labelled == few.labelled);
		}
		close_bed(&b);
	}
}

/* --- what a chunk computes ---------------------------------------------------------------------------------------- */

static void a_profile_counts_the_rows_that_are_computed(void **state)
{
	(void)state;
	struct bed b;
	const struct gp_plan_profile *profile;
	assert_true(open_bed(&b, &places[0], (struct how){.words = MANY_WORDS}));
	OK(gp_plan_profile_begin(b.plan, &profile, &err));
	const int scores = b.graph->nodes - 1;
	const double row = 2.0 * FEATURES * MANY_WORDS;
	double before = 0;
	for (enum kind kind = NONE; kind < KINDS; kind++) {
		int32_t labels[LABELS];
		const int count = draw_labels(&b, kind, labels);
		forward(&b, 0, kind, true, GP_TRAIN);
		const double flops = profile->node[scores].flops[0] - before;
		before += flops;
		assert_true(fabs(flops - row * (count > 0 ? count : 1)) < 1e-9 * row);
	}
	close_bed(&b);
}

static void a_loss_of_other_labels_is_refused(void **state)
{
	(void)state;
	struct bed b;
	int32_t labels[LABELS];
	struct gp_loss_result r;
	assert_true(open_bed(&b, &places[0], (struct how){.words = FEW_WORDS}));
	draw_labels(&b, LISTS, labels);
	fill(&b, 0);
	gp_plan_set_labels(b.plan, 0, labels, VALID);
	OK(b.plan->ops->forward(b.plan, 0, GP_TRAIN, 0, &err));
	labels[ROWS - 1] = 0;
	assert_int_equal(b.plan->ops->loss(b.plan, 0, labels, VALID, true, 1.0f, &r, &err), GP_INTERNAL);
	labels[ROWS - 1] = labels[0] = GP_NO_LABEL;
	assert_int_equal(b.plan->ops->loss(b.plan, 0, labels, VALID, true, 1.0f, &r, &err), GP_INTERNAL);
	assert_non_null(strstr(err.text, "has other labels than its forward was told"));
	close_bed(&b);
}

/* --- which graphs allow it ---------------------------------------------------------------------------------------- */

static void expect_scores(struct gp_graph *g, bool there)
{
	assert_int_equal(gp_graph_row_scores(g), there ? g->output[0].value : -1);
	gp_graph_free(g);
}

static struct gp_graph *linear_of(const struct gp_shape *shape, bool sequence, bool relu)
{
	const struct gp_type type = {GP_F32, *shape};
	struct gp_graph *g = gp_graph_new_empty("g", &err);
	assert_int_equal(gp_graph_add_input(g, "x", &type, &err), 0);
	if (sequence)
		gp_graph_mark_sequence(g, 0);
	OK(gp_graph_begin_block(g, "b", &err));
	const int v = gp_graph_linear(g, "l", 0, 9, true, &err);
	if (relu)
		assert_true(gp_graph_unary(g, GP_OP_RELU, "r", v, &err) > 0);
	OK(gp_graph_finish(g, &err));
	return g;
}

static void only_a_linear_layer_of_rows_may_leave_some_out(void **state)
{
	(void)state;
	const struct gp_shape rows = {.ndim = 2, .dim = {5, 6}}, one = {.ndim = 1, .dim = {6}};
	expect_scores(linear_of(&rows, false, false), true);
	expect_scores(linear_of(&rows, true, false), false);
	expect_scores(linear_of(&rows, false, true), false);
	expect_scores(linear_of(&one, false, false), false);
	expect_scores(model_of(FEW_WORDS), true);
}

static void a_part_of_a_model_allows_what_the_whole_does(void **state)
{
	(void)state;
	struct gp_graph *g = model_of(FEW_WORDS), *last;
	OK(gp_graph_part(g, 1, 2, &last, &err));
	expect_scores(last, true);
	gp_graph_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_without_a_label_change_nothing),
		cmocka_unit_test(blocks_computed_again_leave_out_the_same_rows),
		cmocka_unit_test(rounded_products_leave_out_the_same_rows),
		cmocka_unit_test(the_same_labels_give_the_same_bits),
		cmocka_unit_test(an_evaluation_has_the_loss_of_all_rows),
		cmocka_unit_test(a_profile_counts_the_rows_that_are_computed),
		cmocka_unit_test(a_loss_of_other_labels_is_refused),
		cmocka_unit_test(only_a_linear_layer_of_rows_may_leave_some_out),
		cmocka_unit_test(a_part_of_a_model_allows_what_the_whole_does),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
