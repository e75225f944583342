/* SPDX-License-Identifier: Apache-2.0
 *
 * Decaying linear insertion (common/graph/decay.h): its ranks, which schedules are refused, graphs with other ranks, and
 * training with it beside PyTorch 1.13, with the plan replaced at every change of rank (plan_replace.h). The reference is
 * made by tests/tools/dump_decay.py. With GP_TEST_DEVICE, on that device.
 */
#include <string.h>

#include "common/base/mem.h"
#include "common/graph/decay.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/plan_replace.h"
#include "common/store/safetensors.h"
#include "kernels/device_registry.h"
#include "tests/unit/ok.h"
#include "tests/unit/test_device.h"

enum { SIDE = 12, BATCH = 4, STEPS = 13, EVERY = 3, TIMES = 3 };

static const struct gp_decays decays = {.count = 1,
					.decay = {{.encoder = "encoder",
						   .decoder = "decoder",
						   .rate = 0.75,
						   .every = EVERY,
						   .times = TIMES,
						   .l1 = 0.125f}}};

/* Input -> relu -> encoder -> identity -> decoder: the ends that `first` and `last` name. */
enum { RELU, ENCODER, PASS, DECODER };

static struct gp_graph *make_graph(int first, int last, int rank)
{
	const struct gp_shape sample = {.ndim = 1, .dim = {first > ENCODER ? rank : SIDE}};
	struct gp_graph *g = gp_graph_new("pair", &sample, &err);
	int at = 0;
	OK(gp_graph_begin_block(g, "block", &err));
	if (first <= RELU)
		at = gp_graph_unary(g, GP_OP_RELU, "relu", at, &err);
	if (first <= ENCODER)
		at = gp_graph_linear(g, "encoder", at, rank, false, &err);
	if (first <= PASS && last >= PASS)
		at = gp_graph_unary(g, GP_OP_IDENTITY, "pass", at, &err);
	if (last >= DECODER)
		at = gp_graph_linear(g, "decoder", at, SIDE, false, &err);
	assert_true(at > 0);
	OK(gp_graph_finish(g, &err));
	return g;
}

static void ranks_are_those_of_the_origin(void **state)
{
	(void)state;
	static const int64_t want[] = {768, 691, 621, 558, 502, 451, 405, 364, 327, 294};
	const struct gp_decay d = {.rate = 0.9, .every = 300, .times = 9};
	const struct gp_decays all = {.count = 1, .decay = {d}};
	for (uint64_t step = 0; step < 4000; step++) {
		const uint64_t changes = step / 300 < 9 ? step / 300 : 9;
		assert_int_equal(gp_decay_rank(&d, 768, step), want[changes]);
		assert_int_equal(gp_decays_change_at(&all, step), step > 0 && step % 300 == 0 && step <= 2700);
	}
	assert_int_equal(gp_decay_rank(&d, 768, UINT64_MAX), 294);
	assert_false(gp_decays_change_at(&all, UINT64_MAX));
}

static void two_schedules_change_at_the_steps_of_both(void **state)
{
	(void)state;
	static const uint64_t want[] = {4, 6, 8, 12, 0};
	const struct gp_decays d = {.count = 2, .decay = {{.every = 4, .times = 3}, {.every = 6, .times = 2}}};
	uint64_t step = 0;
	for (int i = 0; want[i] > 0; i++) {
		step = gp_decays_next_change(&d, step);
		assert_int_equal(step, want[i]);
	}
	assert_int_equal(gp_decays_next_change(&d, step), 0);
}

static void refuse(struct gp_decays d, const char *words)
{
	struct gp_graph *g = make_graph(RELU, DECODER, SIDE);
	assert_int_equal(gp_decays_check(&d, g, &err), GP_INVALID);
	if (!strstr(err.text, words))
		fail_msg("'%s' does not say '%s'", err.text, words);
	gp_graph_free(g);
}

static void schedules_that_cannot_be_are_refused(void **state)
{
	(void)state;
	struct gp_decays d = decays;
	struct gp_graph *g = make_graph(RELU, DECODER, SIDE);
	OK(gp_decays_check(&d, g, &err));
	gp_graph_free(g);
	static const double rates[] = {0.0, 1.0, -0.5, (double)NAN};
	for (int i = 0; i < 4; i++, d = decays) {
		d.decay[0].rate = rates[i];
		refuse(d, "between 0 and 1");
	}
	d.decay[0].every = 0;
	refuse(d, "every is 0");
	d = decays;
	d.decay[0].times = GP_DECAY_CHANGES_MAX + 1;
	refuse(d, "times is 65");
	d = decays;
	d.decay[0].times = 30;
	refuse(d, "a rank of 12 would be 0");
	d = decays;
	d.decay[0].l1 = -1.0f;
	refuse(d, "l1 is -1");
	d = decays;
	strcpy(d.decay[0].encoder, "relu");
	refuse(d, "relu is no linear layer");
	d = decays;
	strcpy(d.decay[0].encoder, "a");
	strcpy(d.decay[0].decoder, "b");
	refuse(d, "neither a node 'a' nor a node 'b'");
	d = decays;
	strcpy(d.decay[0].encoder, "a"); /* what the decoder reads does not come from the input as it is */
	refuse(d, "does not come from an input");
	d = decays;
	strcpy(d.decay[0].decoder, "b"); /* the decoder is there all the same, and would change with the encoder */
	refuse(d, "parameter decoder.weight would have a shape");
	d = decays;
	d.count = 2;
	d.decay[1] = d.decay[0];
	refuse(d, "two entries");
	d.count = GP_DECAYS_MAX + 1;
	refuse(d, "at most");
}

static void both_parts_of_a_model_get_the_rank_of_the_step(void **state)
{
	(void)state;
	static const int first[] = {RELU, RELU, PASS}, last[] = {DECODER, ENCODER, DECODER};
	for (int i = 0; i < 3; i++) {
		struct gp_graph *g = make_graph(first[i], last[i], SIDE), *copy;
		OK(gp_decays_check(&decays, g, &err));
		for (uint64_t step = 0; step < STEPS; step++) {
			const struct gp_decay_ranks r = gp_decays_ranks_at(&decays, g, step);
			struct gp_graph *want =
				make_graph(first[i], last[i], (int)gp_decay_rank(&decays.decay[0], SIDE, step));
			OK(gp_decays_graph(&decays, g, step, &copy, &err));
			assert_int_equal(r.count, step > 0 && step % EVERY == 0 && step <= EVERY * TIMES);
			if (r.count)
				assert_int_equal(r.rank[0], gp_decay_rank(&decays.decay[0], SIDE, step));
			assert_int_equal(copy->params, want->params);
			for (int p = 0; p < want->params; p++)
				assert_true(gp_shape_equal(&copy->param[p].shape, &want->param[p].shape));
			assert_true(gp_shape_equal(gp_graph_input_shape(copy), gp_graph_input_shape(want)));
			assert_true(gp_shape_equal(gp_graph_output_shape(copy), gp_graph_output_shape(want)));
			gp_graph_free(want);
			gp_graph_free(copy);
		}
		gp_graph_free(g);
	}
}

static void a_copy_keeps_what_is_frozen(void **state)
{
	(void)state;
	struct gp_graph *g = make_graph(RELU, DECODER, SIDE), *copy;
	assert_int_equal(gp_graph_freeze(g, "decoder.*"), 1);
	g->param[0].init = GP_INIT_ONES;
	g->param[0].decay = false;
	OK(gp_decays_graph(&decays, g, EVERY, &copy, &err));
	assert_false(copy->param[1].trained);
	assert_true(copy->param[0].trained && !copy->param[0].decay && copy->param[0].init == GP_INIT_ONES);
	assert_int_equal(copy->trained_elements, 9 * SIDE);
	gp_graph_free(copy);
	gp_graph_free(g);
}

/* --- beside PyTorch ----------------------------------------------------------------------------------------------- */

static struct gp_st_file *dump;

/* Caller frees. */
static float *load(const char *name, uint64_t count)
{
	const struct gp_st_tensor *t = gp_st_find(dump, name);
	if (!t)
		fail_msg("the dump has no %s", name);
	assert_int_equal(t->count, count);
	float *v = gp_calloc(count, sizeof *v);
	assert_non_null(v);
	OK(gp_st_read_f32(t, v, &err));
	return v;
}

struct bed {
	struct gp_graph *start, *graph;
	struct gp_device *dev;
	struct gp_plan_spec spec;
	struct gp_plan *plan;
	float *x, *gy;
};

static void init_bed(struct bed *b, const struct gp_optim *optim)
{
	static const char *const name[] = {"start/encoder.weight", "start/decoder.weight"};
	b->start = make_graph(ENCODER, DECODER, SIDE);
	OK(gp_decays_graph(&decays, b->start, 0, &b->graph, &err));
	OK(gp_device_open(test_device(), test_threads(), &b->dev, &err));
	b->spec = (struct gp_plan_spec){.graph = b->graph,
					.batch = BATCH,
					.slots = 1,
					.train = true,
					.grad_inputs = 1,
					.optim = *optim,
					.decays = &decays};
	OK(b->dev->ops->plan_new(b->dev, &b->spec, &b->plan, &err));
	for (int i = 0; i < 2; i++) {
		float *v = load(name[i], SIDE * SIDE);
		OK(b->dev->ops->param_set(b->plan, i, v, &err));
		gp_free(v);
	}
	b->x = load("start/x", STEPS * BATCH * SIDE);
	b->gy = load("start/gy", STEPS * BATCH * SIDE);
}

static void deinit_bed(struct bed *b)
{
	b->dev->ops->plan_free(b->plan);
	b->dev->ops->close(b->dev);
	gp_graph_free(b->graph);
	gp_graph_free(b->start);
	gp_free(b->x);
	gp_free(b->gy);
}

static void make_step(struct bed *b, int step)
{
	const size_t count = BATCH * SIDE;
	memcpy(b->dev->ops->buffer(b->plan, 0, GP_BUF_INPUT, 0), b->x + (size_t)step * count, count * sizeof(float));
	OK(b->dev->ops->forward(b->plan, 0, GP_TRAIN, (uint64_t)step, &err));
	memcpy(b->dev->ops->buffer(b->plan, 0, GP_BUF_GRAD_OUTPUT, 0), b->gy + (size_t)step * count,
	       count * sizeof(float));
	OK(b->dev->ops->backward(b->plan, 0, &err));
	OK(b->dev->ops->optim_step(b->plan, 0.01f, &err));
}

static void change_rank(struct bed *b, uint64_t steps)
{
	struct gp_graph *before = b->graph;
	OK(gp_decays_graph(&decays, b->start, steps, &b->graph, &err));
	b->spec.graph = b->graph;
	OK(gp_plan_replace(b->dev, &b->spec, &b->plan, &err));
	assert_int_equal(b->dev->ops->optim_count_get(b->plan), steps);
	gp_graph_free(before);
}

static void compare(struct bed *b, const char *kind, int steps)
{
	for (int i = 0; i < 2; i++) {
		const struct gp_param *p = &b->graph->param[i];
		char name[GP_NAME_MAX + 32];
		float got[SIDE * SIDE];
		snprintf(name, sizeof name, "%s/%d/%s", kind, steps, p->name);
		float *want = load(name, p->count);
		OK(b->dev->ops->param_get(b->plan, i, got, &err));
		const double apart = relative_l2(got, want, p->count);
		if (!(apart < 1e-6))
			fail_msg("%s: %g from PyTorch", name, apart);
		gp_free(want);
	}
}

static void train(const char *kind, const struct gp_optim *optim)
{
	struct bed b;
	init_bed(&b, optim);
	for (int step = 0; step < STEPS; step++) {
		make_step(&b, step);
		if (gp_decays_change_at(&decays, (uint64_t)step + 1))
			change_rank(&b, (uint64_t)step + 1);
		if ((step + 1) % EVERY == 0 || step + 1 == STEPS)
			compare(&b, kind, step + 1);
	}
	assert_int_equal(b.graph->param[0].shape.dim[0], 4);
	deinit_bed(&b);
}

static void training_with_changes_of_rank_ends_where_pytorch_does(void **state)
{
	(void)state;
	train("sgd", &(struct gp_optim){.kind = GP_OPTIM_SGD});
	train("momentum", &(struct gp_optim){.kind = GP_OPTIM_SGD, .momentum = 0.9f, .weight_decay = 1e-3f});
	train("adamw",
	      &(struct gp_optim){
		      .kind = GP_OPTIM_ADAMW, .weight_decay = 1e-2f, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8f});
}

/* What no decay is about, and what is left of one that is over, has its own gradient. */
static void a_rule_ends_with_the_last_change(void **state)
{
	(void)state;
	struct gp_graph *g = make_graph(RELU, DECODER, SIDE);
	struct gp_decay_rule rule;
	assert_false(gp_decays_rule(NULL, g, 0, 0, &rule));
	assert_false(gp_decays_rule(&decays, g, 0, EVERY * TIMES, &rule));
	assert_true(gp_decays_rule(&decays, g, 0, EVERY * TIMES - 1, &rule));
	assert_true(rule.first_row == 9 && rule.first_column == 0 && rule.rows == SIDE && rule.columns == SIDE);
	assert_true(gp_decays_rule(&decays, g, 1, 0, &rule));
	assert_true(rule.first_row == 0 && rule.first_column == 9);
	float grad[SIDE * SIDE] = {[9] = 2.0f, [10] = -3.0f, [8] = 5.0f, [SIDE + 11] = NAN};
	gp_decay_replace(&rule, grad);
	assert_true(grad[9] == -0.125f && grad[10] == 0.125f && grad[11] == 0.0f && grad[8] == 5.0f);
	assert_true(grad[SIDE + 11] == 0.0f); /* as torch.sign */
	struct gp_decays off = decays;
	off.decay[0].l1 = 0.0f;
	assert_false(gp_decays_rule(&off, g, 0, 0, &rule));
	gp_graph_free(g);
}

static int open_dump(void **state)
{
	(void)state;
	return gp_st_open("tests/golden/ops/decay.safetensors", &dump, &err) == GP_OK ? 0 : -1;
}

static int close_dump(void **state)
{
	(void)state;
	gp_st_close(dump);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranks_are_those_of_the_origin),
		cmocka_unit_test(two_schedules_change_at_the_steps_of_both),
		cmocka_unit_test(schedules_that_cannot_be_are_refused),
		cmocka_unit_test(both_parts_of_a_model_get_the_rank_of_the_step),
		cmocka_unit_test(a_copy_keeps_what_is_frozen),
		cmocka_unit_test(a_rule_ends_with_the_last_change),
		cmocka_unit_test(training_with_changes_of_rank_ends_where_pytorch_does),
	};
	return cmocka_run_group_tests(tests, open_dump, close_dump);
}
