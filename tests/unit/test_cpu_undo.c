/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan that takes a half-done step back goes on as if it had never been
 * begun, to the last bit; and a new plan that is given parameters and the
 * optimizer's memory goes on as the old one would have.
 */
#include <string.h>

#include "common/codec/codec.h"
#include "common/graph/device.h"
#include "kernels/device_registry.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/base/threads.h"
#include "tests/unit/ok.h"
#include "tests/unit/test_device.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_linear.h"

enum { BATCH = 3, CHUNKS = 3, SLOTS = 2, CLASSES = 4, OTHER_DATA = 1000 };

static const struct gp_optim optimizers[] = {
	{.kind = GP_OPTIM_SGD},
	{.kind = GP_OPTIM_SGD, .momentum = 0.9f, .nesterov = true, .weight_decay = 1e-3f},
	{.kind = GP_OPTIM_ADAM, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8f, .weight_decay = 1e-3f},
	{.kind = GP_OPTIM_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8f, .weight_decay = 1e-2f},
};
enum { OPTIMIZERS = sizeof optimizers / sizeof optimizers[0] };

/* --- a small network with everything that a step changes --------------------------------------------------------- */

static struct gp_graph *build_graph(void)
{
	const struct gp_shape sample = {.ndim = 3, .dim = {6, 5, 3}};
	struct gp_graph *g = gp_graph_new("small", &sample, &err);
	assert_non_null(g);
	OK(gp_graph_begin_block(g, "block", &err));
	int x = gp_graph_conv(g, "conv", 0, 8, 3, 1, 1, 1, true, &err);
	x = gp_graph_batch_norm(g, "bn", x, 1e-5f, 0.1f, &err);
	x = gp_graph_unary(g, GP_OP_RELU, "relu", x, &err);
	x = gp_graph_conv(g, "narrow", x, 8, 1, 1, 0, 1, false, &err);
	x = gp_graph_batch_norm(g, "bn2", x, 1e-5f, 0.2f, &err);
	x = gp_graph_dropout(g, "drop", x, 0.3f, &err);
	x = gp_graph_unary(g, GP_OP_FLATTEN, "flat", x, &err);
	assert_true(gp_graph_linear(g, "linear", x, CLASSES, true, &err) > 0);
	OK(gp_graph_finish(g, &err));
	return g;
}

static bool recompute;                    /* plans compute their blocks a second time, */
static const struct gp_codec_spec *maps;  /* or keep their maps encoded */
static const struct gp_codec_spec *coded; /* or everything else passes through a codec */

struct bed {
	struct gp_graph *graph;
	struct gp_device *dev;
	struct gp_plan_spec spec;
};

/* `frozen`: parameters that are not trained, or NULL. */
static struct bed make_bed(const struct gp_optim *optim, const char *frozen)
{
	struct bed b = {.graph = build_graph()};
	if (frozen)
		assert_true(gp_graph_freeze(b.graph, frozen) > 0);
	OK(gp_device_open(test_device(), 2, &b.dev, &err));
	b.spec = (struct gp_plan_spec){.graph = b.graph,
				       .batch = BATCH,
				       .slots = SLOTS,
				       .train = true,
				       .undo = true,
				       .grad_inputs = 1,
				       .recompute = recompute,
				       .maps = maps,
				       .seed = 9,
				       .optim = *optim};
	for (int i = 0; i < GP_STRUCTS; i++)
		b.spec.coded[i] = coded;
	return b;
}

static void drop_bed(struct bed *b)
{
	b->dev->ops->close(b->dev);
	gp_graph_free(b->graph);
}

static struct gp_plan *new_plan(struct bed *b)
{
	struct gp_plan *p;
	OK(b->dev->ops->plan_new(b->dev, &b->spec, &p, &err));
	return p;
}

static void forward(struct gp_plan *p, int slot, uint64_t draw, enum gp_mode mode)
{
	float *x = p->ops->buffer(p, slot, GP_BUF_INPUT, 0);
	const uint64_t n = BATCH * gp_shape_elements(gp_graph_input_shape(p->spec.graph));
	for (uint64_t i = 0; i < n; i++)
		x[i] = gp_rng_normal(1, gp_rng_stream(GP_RNG_SYNTHETIC, draw), i);
	OK(p->ops->forward(p, slot, mode, draw, &err));
}

static void backward(struct gp_plan *p, int slot)
{
	static const int32_t labels[BATCH] = {2, 0, 3};
	struct gp_loss_result loss;
	OK(p->ops->loss(p, slot, labels, BATCH, true, 1.0f / (BATCH * CHUNKS), &loss, &err));
	OK(p->ops->backward(p, slot, &err));
}

static void run_step(struct gp_plan *p, uint64_t step)
{
	for (int c = 0; c < CHUNKS; c++) {
		forward(p, c % SLOTS, step * CHUNKS + (uint64_t)c, GP_TRAIN);
		backward(p, c % SLOTS);
	}
	OK(p->ops->optim_step(p, 0.01f, &err));
}

/* Two forwards and one backward of other data: a chunk is left between the two. */
static void run_part_of_a_step(struct gp_plan *p)
{
	forward(p, 0, OTHER_DATA, GP_TRAIN);
	forward(p, 1, OTHER_DATA + 1, GP_TRAIN);
	backward(p, 0);
}

/* --- comparing --------------------------------------------------------------------------------------------------- */

typedef enum gp_status (*get_fn)(struct gp_plan *p, int index, float *out, struct gp_err *err);

static void expect_same_array(struct gp_plan *a, struct gp_plan *b, int index, get_fn get, const char *what)
{
	const struct gp_param *q = &a->spec.graph->param[index];
	float *x = gp_calloc(q->count, sizeof *x), *y = gp_calloc(q->count, sizeof *y);
	assert_true(x && y);
	OK(get(a, index, x, &err));
	OK(get(b, index, y, &err));
	if (memcmp(x, y, q->count * sizeof *x) != 0)
		fail_msg("%s of %s differ", what, q->name);
	gp_free(x);
	gp_free(y);
}

static enum gp_status first_state(struct gp_plan *p, int index, float *out, struct gp_err *e)
{
	return p->ops->optim_get(p, index, 0, out, e);
}

static enum gp_status second_state(struct gp_plan *p, int index, float *out, struct gp_err *e)
{
	return p->ops->optim_get(p, index, 1, out, e);
}

static void expect_same(struct gp_plan *a, struct gp_plan *b)
{
	static const get_fn states[] = {first_state, second_state};
	for (int i = 0; i < a->spec.graph->params; i++) {
		expect_same_array(a, b, i, a->ops->param_get, "values");
		if (!a->spec.graph->param[i].trained)
			continue;
		expect_same_array(a, b, i, a->ops->grad_get, "gradients");
		for (int k = 0; k < a->ops->optim_states(a); k++)
			expect_same_array(a, b, i, states[k], "optimizer states");
	}
	assert_int_equal(a->ops->optim_count_get(a), b->ops->optim_count_get(b));
}

/* --- undo -------------------------------------------------------------------------------------------------------- */

/* At the start, after a step, and twice in a row. */
static void expect_no_trace(const struct gp_optim *optim, const char *frozen)
{
	struct bed b = make_bed(optim, frozen);
	struct gp_plan *disturbed = new_plan(&b), *other = new_plan(&b);
	for (uint64_t step = 0; step < 3; step++) {
		for (uint64_t times = 0; times < step + 1; times++) {
			run_part_of_a_step(disturbed);
			disturbed->ops->step_undo(disturbed);
			expect_same(disturbed, other);
		}
		run_step(disturbed, step);
		run_step(other, step);
		expect_same(disturbed, other);
	}
	b.dev->ops->plan_free(disturbed);
	b.dev->ops->plan_free(other);
	drop_bed(&b);
}

static void a_step_taken_back_leaves_no_trace(void **state)
{
	(void)state;
	for (int i = 0; i < OPTIMIZERS; i++)
		expect_no_trace(&optimizers[i], NULL);
}

/* The second forward moves no running statistics either. */
static void a_step_taken_back_leaves_no_trace_in_plans_that_keep_less(void **state)
{
	(void)state;
	struct gp_codec_spec spec;
	OK(gp_codec_spec_parse("uniform:bits=4", &spec, &err));
	recompute = true;
	expect_no_trace(&optimizers[1], NULL);
	recompute = false;
	maps = &spec;
	expect_no_trace(&optimizers[1], NULL);
	coded = &spec;
	for (int i = 0; i < OPTIMIZERS; i++)
		expect_no_trace(&optimizers[i], NULL);
	maps = coded = NULL;
}

static uint64_t undo_bytes(struct bed *b)
{
	struct gp_plan_memory with, without;
	OK(b->dev->ops->plan_estimate(b->dev, &b->spec, &with, &err));
	b->spec.undo = false;
	OK(b->dev->ops->plan_estimate(b->dev, &b->spec, &without, &err));
	b->spec.undo = true;
	return with.total - without.total;
}

/* A frozen batch norm leaves its running statistics alone, so they need not be kept; one that is half frozen does not. */
static void frozen_parameters_need_no_undo(void **state)
{
	(void)state;
	expect_no_trace(&optimizers[2], "bn.*");
	expect_no_trace(&optimizers[2], "bn.weight");
	expect_no_trace(&optimizers[1], "conv.*");
	struct bed all = make_bed(&optimizers[2], NULL), norm = make_bed(&optimizers[2], "bn.*"),
		   weight = make_bed(&optimizers[2], "bn.weight");
	assert_true(undo_bytes(&norm) < undo_bytes(&all));
	assert_int_equal(undo_bytes(&weight), undo_bytes(&all));
	if (on_cpu()) /* others pad */
		assert_int_equal(2 * undo_bytes(&norm), undo_bytes(&all));
	drop_bed(&all);
	drop_bed(&norm);
	drop_bed(&weight);
}

static void a_chunk_of_a_step_taken_back_has_no_backward(void **state)
{
	(void)state;
	struct bed b = make_bed(&optimizers[0], NULL);
	struct gp_plan *p = new_plan(&b);
	run_part_of_a_step(p);
	p->ops->step_undo(p);
	for (int slot = 0; slot < SLOTS; slot++)
		assert_int_equal(p->ops->backward(p, slot, &err), GP_INTERNAL);
	b.dev->ops->plan_free(p);
	drop_bed(&b);
}

/* Neither an evaluation nor a whole step is anything to go back behind. */
static void undo_without_a_step_under_way_changes_nothing(void **state)
{
	(void)state;
	struct bed b = make_bed(&optimizers[1], NULL);
	struct gp_plan *p = new_plan(&b), *other = new_plan(&b);
	p->ops->step_undo(p);
	expect_same(p, other);
	run_step(p, 0);
	run_step(other, 0);
	forward(p, 1, OTHER_DATA, GP_EVAL);
	p->ops->step_undo(p);
	expect_same(p, other);
	b.dev->ops->plan_free(p);
	b.dev->ops->plan_free(other);
	drop_bed(&b);
}

static int running_mean_of(const struct gp_graph *g)
{
	for (int i = 0; i < g->params; i++)
		if (g->param[i].role == GP_PARAM_RUNNING_MEAN)
			return i;
	fail_msg("no batch norm");
	return -1;
}

static void undo_goes_back_to_parameters_set_within_the_step(void **state)
{
	(void)state;
	static const float means[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	float now[8];
	struct bed b = make_bed(&optimizers[0], NULL);
	struct gp_plan *p = new_plan(&b);
	const int mean = running_mean_of(b.graph);
	for (int further = 0; further < 2; further++) {
		run_part_of_a_step(p);
		OK(p->ops->param_set(p, mean, means, &err));
		if (further)
			run_part_of_a_step(p);
		p->ops->step_undo(p);
		OK(p->ops->param_get(p, mean, now, &err));
		assert_memory_equal(now, means, sizeof now);
	}
	b.dev->ops->plan_free(p);
	drop_bed(&b);
}

static void undo_is_counted_and_allocates_nothing(void **state)
{
	(void)state;
	struct bed b = make_bed(&optimizers[2], NULL);
	struct gp_plan_memory with, without, took;
	struct gp_plan *p = new_plan(&b);
	p->ops->plan_memory(p, &took);
	OK(b.dev->ops->plan_estimate(b.dev, &b.spec, &with, &err));
	b.spec.undo = false;
	OK(b.dev->ops->plan_estimate(b.dev, &b.spec, &without, &err));
	assert_memory_equal(&with, &took, sizeof took);
	const uint64_t kept = with.total - without.total, needed = 4 * 8 * sizeof(float); /* of two batch norms */
	assert_true(on_cpu() ? kept == needed : kept >= needed);                          /* others pad */
	run_step(p, 0);
	const uint64_t before = gp_mem_calls();
	run_part_of_a_step(p);
	p->ops->step_undo(p);
	run_step(p, 1);
	assert_int_equal(gp_mem_calls(), before);
	b.dev->ops->plan_free(p);
	drop_bed(&b);
}

/* --- optimizer state --------------------------------------------------------------------------------------------- */

static void copy_param(struct gp_plan *to, struct gp_plan *from, int index)
{
	const struct gp_param *q = &from->spec.graph->param[index];
	float *v = gp_calloc(q->count, sizeof *v);
	assert_non_null(v);
	OK(from->ops->param_get(from, index, v, &err));
	OK(to->ops->param_set(to, index, v, &err));
	for (int k = 0; q->trained && k < from->ops->optim_states(from); k++) {
		OK(from->ops->optim_get(from, index, k, v, &err));
		OK(to->ops->optim_set(to, index, k, v, &err));
	}
	gp_free(v);
}

static void expect_to_go_on_alike(const struct gp_optim *optim)
{
	struct bed b = make_bed(optim, NULL);
	struct gp_plan *old = new_plan(&b);
	run_step(old, 0);
	run_step(old, 1);
	b.spec.undo = false;
	struct gp_plan *new = new_plan(&b);
	for (int i = 0; i < b.graph->params; i++)
		copy_param(new, old, i);
	assert_int_equal(old->ops->optim_count_get(old), 2);
	new->ops->optim_count_set(new, 2);
	expect_same(new, old);
	run_step(old, 2);
	run_step(new, 2);
	run_step(old, 3);
	run_step(new, 3);
	expect_same(new, old);
	b.dev->ops->plan_free(old);
	b.dev->ops->plan_free(new);
	drop_bed(&b);
}

static void a_plan_given_anothers_optimizer_state_goes_on_as_that_one(void **state)
{
	(void)state;
	static const int states[OPTIMIZERS] = {0, 1, 2, 2};
	for (int i = 0; i < OPTIMIZERS; i++) {
		struct bed b = make_bed(&optimizers[i], NULL);
		struct gp_plan *p = new_plan(&b);
		assert_int_equal(p->ops->optim_states(p), states[i]);
		b.dev->ops->plan_free(p);
		drop_bed(&b);
		expect_to_go_on_alike(&optimizers[i]);
	}
}

static void optimizer_states_that_do_not_exist_are_refused(void **state)
{
	(void)state;
	struct bed b = make_bed(&optimizers[1], NULL);
	struct gp_plan *p = new_plan(&b);
	float v[1024];
	const int mean = running_mean_of(b.graph);
	const struct {
		int index, which;
	} cases[] = {{0, 1}, {0, -1}, {-1, 0}, {b.graph->params, 0}, {mean, 0}};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		assert_int_equal(p->ops->optim_get(p, cases[i].index, cases[i].which, v, &err), GP_INTERNAL);
		assert_int_equal(p->ops->optim_set(p, cases[i].index, cases[i].which, v, &err), GP_INTERNAL);
	}
	b.dev->ops->plan_free(p);
	b.spec.train = false;
	p = new_plan(&b);
	assert_int_equal(p->ops->optim_states(p), 0);
	assert_int_equal(p->ops->optim_get(p, 0, 0, v, &err), GP_INTERNAL);
	p->ops->step_undo(p);
	b.dev->ops->plan_free(p);
	drop_bed(&b);
}

int main(int argc, char **argv)
{
	(void)argc;
	gp_threads_prepare(argv); /* else waiting threads take the cores other tests run on */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_taken_back_leaves_no_trace),
		cmocka_unit_test(a_step_taken_back_leaves_no_trace_in_plans_that_keep_less),
		cmocka_unit_test(frozen_parameters_need_no_undo),
		cmocka_unit_test(a_chunk_of_a_step_taken_back_has_no_backward),
		cmocka_unit_test(undo_without_a_step_under_way_changes_nothing),
		cmocka_unit_test(undo_goes_back_to_parameters_set_within_the_step),
		cmocka_unit_test(undo_is_counted_and_allocates_nothing),
		cmocka_unit_test(a_plan_given_anothers_optimizer_state_goes_on_as_that_one),
		cmocka_unit_test(optimizer_states_that_do_not_exist_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
