/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norm's modes on the CUDA device of this build (emulated, or a card),
 * beside the CPU device: running statistics over steps of several chunks, steps
 * that are taken back, a warm-up, and statistics taken anew. See
 * tests/unit/device_pair.h.
 */
#include "tests/unit/op_graphs.h"

enum { BATCH = 3, CHUNKS = 3, SLOTS = 2, STEPS = 4 };

static struct pair make_mode(struct gp_graph *g, struct gp_bn_attr how, bool train)
{
	assert_true(gp_graph_set_batch_norm(g, &how, &err) > 0);
	const struct gp_plan_spec spec = {.batch = BATCH,
					  .slots = SLOTS,
					  .train = train,
					  .undo = train,
					  .calibrate = true,
					  .grad_inputs = train,
					  .seed = 5,
					  .optim = {.kind = GP_OPTIM_SGD, .momentum = 0.9f}};
	return make_pair(g, spec);
}

static void run_chunk(struct pair *p, int slot, uint64_t draw)
{
	fill_both(p, slot, GP_BUF_INPUT, draw);
	forward_both(p, slot, GP_TRAIN, draw);
	compare_buffer(p, slot, GP_BUF_OUTPUT);
	fill_both(p, slot, GP_BUF_GRAD_OUTPUT, draw);
	backward_both(p, slot);
	compare_buffer(p, slot, GP_BUF_GRAD_INPUT);
}

static void run_step(struct pair *p, uint64_t step)
{
	for (uint64_t c = 0; c < CHUNKS; c++)
		run_chunk(p, (int)c % SLOTS, CHUNKS * step + c);
	compare_grads(p);
	for (int d = 0; d < BOTH; d++)
		OK(p->plan[d]->ops->optim_step(p->plan[d], 0.001f, &err));
	compare_params(p);
}

static void take_a_step_back(struct pair *p)
{
	run_chunk(p, 0, 1000);
	for (int d = 0; d < BOTH; d++)
		p->plan[d]->ops->step_undo(p->plan[d]);
}

static void calibrate_chunk(struct pair *p, uint64_t number)
{
	fill_both(p, (int)number % SLOTS, GP_BUF_INPUT, 500 + number);
	forward_both(p, (int)number % SLOTS, GP_CALIBRATE, number);
	compare_buffer(p, (int)number % SLOTS, GP_BUF_OUTPUT);
}

/* The second chunk comes twice. */
static void calibrate(struct pair *p)
{
	static const uint64_t number[] = {0, 1, 1, 2};
	for (size_t i = 0; i < sizeof number / sizeof number[0]; i++)
		calibrate_chunk(p, number[i]);
	compare_params(p);
}

static void train_in_mode(struct gp_bn_attr how)
{
	struct gp_graph *g = residuals();
	struct pair p = make_mode(g, how, true);
	p.tolerance = 1e-3;
	for (uint64_t step = 0; step < STEPS; step++) {
		take_a_step_back(&p);
		run_step(&p, step);
		if (step == 1)
			calibrate(&p);
	}
	drop_pair(&p);
	gp_graph_free(g);
}

static void modes_train_as_on_the_cpu(void **state)
{
	(void)state;
	train_in_mode((struct gp_bn_attr){.mode = GP_BN_CHUNK});
	train_in_mode((struct gp_bn_attr){.mode = GP_BN_DEFERRED});
	train_in_mode((struct gp_bn_attr){.mode = GP_BN_RUNNING});
	train_in_mode((struct gp_bn_attr){.mode = GP_BN_RENORM, .r_max = 3.0f, .d_max = 5.0f});
}

static void renorm_warms_up_as_on_the_cpu(void **state)
{
	(void)state;
	train_in_mode((struct gp_bn_attr){.mode = GP_BN_RENORM, .r_max = 3.0f, .d_max = 5.0f, .warmup = 1});
	train_in_mode((struct gp_bn_attr){.mode = GP_BN_RENORM, .r_max = 1.2f, .d_max = 0.5f, .warmup = 2});
}

static void an_evaluation_plan_calibrates_as_on_the_cpu(void **state)
{
	(void)state;
	struct gp_graph *g = inverted_residuals();
	struct pair p = make_mode(g, (struct gp_bn_attr){.mode = GP_BN_CHUNK}, false);
	calibrate(&p);
	calibrate(&p);
	fill_both(&p, 0, GP_BUF_INPUT, 7);
	forward_both(&p, 0, GP_EVAL, 0);
	compare_buffer(&p, 0, GP_BUF_OUTPUT);
	drop_pair(&p);
	gp_graph_free(g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(modes_train_as_on_the_cpu),
		cmocka_unit_test(renorm_warms_up_as_on_the_cpu),
		cmocka_unit_test(an_evaluation_plan_calibrates_as_on_the_cpu),
	};
	return run_on_gpu(tests, NULL, NULL);
}
