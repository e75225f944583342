/* SPDX-License-Identifier: Apache-2.0
 *
 * The profile of a plan: counts calls and work exactly, changes no result, and
 * prints one row per node that ran.
 */
#include <stdlib.h>
#include <string.h>

#include "common/codec/codec.h"
#include "common/graph/device.h"
#include "kernels/device_registry.h"
#include "common/base/mem.h"
#include "client/models/models.h"
#include "common/graph/plan_profile.h"
#include "common/base/threads.h"
#include "tests/unit/ok.h"

#define BATCH  2
#define CHUNKS 3

struct bed {
	struct gp_graph *graph;
	struct gp_device *dev;
	struct gp_plan *plan;
};

static struct bed make_bed_with(bool recompute, const struct gp_codec_spec *maps)
{
	const struct gp_model_options options = {.classes = 10};
	struct bed b;
	OK(gp_model_build("mobilenetv2:width=0.35,stem=cifar", &options, &b.graph, &err));
	OK(gp_device_open("cpu", 1, &b.dev, &err));
	struct gp_plan_spec spec = {.graph = b.graph, .batch = BATCH, .slots = 1, .train = true, .seed = 4};
	spec.recompute = recompute;
	spec.maps = maps;
	OK(b.dev->ops->plan_new(b.dev, &spec, &b.plan, &err));
	return b;
}

static struct bed make_bed(void)
{
	return make_bed_with(false, NULL);
}

static void drop_bed(struct bed *b)
{
	b->plan->ops->plan_free(b->plan);
	b->dev->ops->close(b->dev);
	gp_graph_free(b->graph);
}

static double run_step(struct bed *b)
{
	const struct gp_device_ops *ops = b->plan->ops;
	const int32_t labels[BATCH] = {3, 7};
	double sum = 0.0;
	for (int c = 0; c < CHUNKS; c++) {
		struct gp_loss_result loss;
		float *x = ops->buffer(b->plan, 0, GP_BUF_INPUT, 0);
		for (uint64_t i = 0; i < BATCH * gp_shape_elements(gp_graph_input_shape(b->graph)); i++)
			x[i] = (float)(i % 17) - 8.0f + (float)c;
		OK(ops->forward(b->plan, 0, GP_TRAIN, (uint64_t)c, &err));
		OK(ops->loss(b->plan, 0, labels, BATCH, true, 0.1f, &loss, &err));
		OK(ops->backward(b->plan, 0, &err));
		sum += loss.loss_sum;
	}
	OK(ops->optim_step(b->plan, 0.05f, &err));
	return sum;
}

static void every_node_is_counted_once_per_chunk_and_direction(void **state)
{
	(void)state;
	struct bed b = make_bed();
	const struct gp_plan_profile *profile;
	run_step(&b); /* before the profile: not in it */
	OK(gp_plan_profile_begin(b.plan, &profile, &err));
	assert_non_null(profile);
	run_step(&b);
	double forward = 0.0;
	for (int i = 1; i < b.graph->nodes; i++) {
		const struct gp_node_profile *p = &profile->node[i];
		const struct gp_node *n = &b.graph->node[i];
		forward += p->flops[0];
		assert_true(p->calls[0] == CHUNKS || p->calls[0] == 0); /* 0: part of another node */
		assert_true(p->calls[1] == CHUNKS || p->calls[1] == 0); /* 0: the gradient goes on as it is */
		if (n->op != GP_OP_CONV2D)
			continue;
		assert_int_equal(p->calls[0], CHUNKS);
		assert_int_equal(p->calls[1], CHUNKS);
		assert_true(p->flops[1] == p->flops[0] * (n->in[0] == 0 ? 1.0 : 2.0));
		assert_true(p->bytes[0] >= CHUNKS * BATCH * gp_shape_elements(&n->shape) * sizeof(float));
	}
	assert_true(forward == 2.0 * (double)b.graph->macs * BATCH * CHUNKS);
	assert_int_equal(profile->loss.calls[0], CHUNKS);
	assert_int_equal(profile->update.calls[0], 1);
	assert_int_equal(profile->pack.calls[0], 1);
	drop_bed(&b);
}

static void profile_step(struct bed *b, const struct gp_plan_profile **out)
{
	OK(gp_plan_profile_begin(b->plan, out, &err));
	run_step(b);
}

/* A sum only hands its gradient on. Where it ends a block that is computed a second time, it has that time: gpclient plan counts
 * on it. */
static void a_second_forward_counts_as_backward_of_the_last_node(void **state)
{
	(void)state;
	struct bed plain = make_bed(), again = make_bed_with(true, NULL);
	const struct gp_plan_profile *once, *twice;
	int sums = 0;
	profile_step(&plain, &once);
	profile_step(&again, &twice);
	for (int block = 0; block < again.graph->blocks; block++) {
		const int last = gp_graph_block_end(again.graph, block) - 1;
		assert_int_equal(twice->node[last].calls[1], CHUNKS);
		if (again.graph->node[last].op != GP_OP_ADD)
			continue;
		assert_int_equal(once->node[last].calls[1], 0);
		sums++;
	}
	assert_true(sums > 0);
	drop_bed(&plain);
	drop_bed(&again);
}

/* Views run nothing, but what has had its last reader there is encoded there. */
static void encoding_and_decoding_counts_and_changes_no_other_count(void **state)
{
	(void)state;
	struct gp_codec_spec maps;
	OK(gp_codec_spec_parse("bf16", &maps, &err));
	struct bed plain = make_bed(), encoded = make_bed_with(false, &maps);
	const struct gp_plan_profile *a, *b;
	profile_step(&plain, &a);
	profile_step(&encoded, &b);
	for (int i = 1; i < plain.graph->nodes; i++)
		for (int way = 0; way < 2; way++)
			assert_true(b->node[i].calls[way] == a->node[i].calls[way] || a->node[i].calls[way] == 0);
	drop_bed(&plain);
	drop_bed(&encoded);
}

/* Attention has no parameters, but each of its two products has two factors with a gradient. */
static void attention_has_two_products_backward_for_each_one_forward(void **state)
{
	(void)state;
	const struct gp_model_options options = {.classes = 2};
	const struct gp_plan_profile *profile;
	const int32_t labels[BATCH] = {0, 1};
	struct gp_loss_result loss;
	struct bed b;
	OK(gp_model_build("roberta:layers=2,dim=16,heads=2,ffn=32,vocab=8,tokens=8", &options, &b.graph, &err));
	OK(gp_device_open("cpu", 1, &b.dev, &err));
	struct gp_plan_spec spec = {.graph = b.graph, .batch = BATCH, .slots = 1, .train = true, .seed = 4};
	OK(b.dev->ops->plan_new(b.dev, &spec, &b.plan, &err));
	OK(gp_plan_profile_begin(b.plan, &profile, &err));
	memset(b.plan->ops->buffer(b.plan, 0, GP_BUF_INPUT, 0), 0, BATCH * 8 * sizeof(int32_t));
	for (int i = 0; i < BATCH; i++)
		((int32_t *)b.plan->ops->buffer(b.plan, 0, GP_BUF_INPUT, 1))[i] = 8;
	OK(b.plan->ops->forward(b.plan, 0, GP_TRAIN, 0, &err));
	OK(b.plan->ops->loss(b.plan, 0, labels, BATCH, true, 0.1f, &loss, &err));
	OK(b.plan->ops->backward(b.plan, 0, &err));
	int seen = 0;
	for (int i = 0; i < b.graph->nodes; i++) {
		if (b.graph->node[i].op != GP_OP_ATTENTION)
			continue;
		seen++;
		assert_true(profile->node[i].flops[0] == 2.0 * (double)b.graph->node[i].macs * BATCH);
		assert_true(profile->node[i].flops[1] == 2.0 * profile->node[i].flops[0]);
	}
	assert_int_equal(seen, 2);
	drop_bed(&b);
}

static void measuring_changes_no_result(void **state)
{
	(void)state;
	struct bed plain = make_bed(), measured = make_bed();
	const struct gp_plan_profile *profile;
	OK(gp_plan_profile_begin(measured.plan, &profile, &err));
	for (int step = 0; step < 2; step++)
		assert_true(run_step(&plain) == run_step(&measured));
	drop_bed(&plain);
	drop_bed(&measured);
}

static void table_has_a_row_for_what_was_run_and_for_nothing_else(void **state)
{
	(void)state;
	struct bed b = make_bed();
	const struct gp_plan_profile *profile;
	char *text = NULL;
	size_t size = 0;
	int absent = 0;
	FILE *f = open_memstream(&text, &size);
	assert_non_null(f);
	gp_plan_profile_print(f, "nothing", b.plan, NULL);
	assert_int_equal(ftell(f), 0);
	OK(gp_plan_profile_begin(b.plan, &profile, &err));
	run_step(&b);
	gp_plan_profile_print(f, "model", b.plan, profile);
	fclose(f);
	for (int i = 1; i < b.graph->nodes; i++) {
		char cell[GP_NAME_MAX + 2];
		snprintf(cell, sizeof cell, " %s ", b.graph->node[i].name);
		const bool folded = b.graph->node[i].op == GP_OP_RELU6;
		absent += folded && !strstr(text, cell);
		if (!folded && b.graph->node[i].op != GP_OP_ADD && b.graph->node[i].op != GP_OP_FLATTEN)
			assert_non_null(strstr(text, cell));
	}
	assert_true(absent > 0); /* activations that are part of a batch norm */
	assert_non_null(strstr(text, "GFLOP/s"));
	free(text);
	drop_bed(&b);
}

int main(int argc, char **argv)
{
	(void)argc;
	gp_threads_prepare(argv);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_node_is_counted_once_per_chunk_and_direction),
		cmocka_unit_test(a_second_forward_counts_as_backward_of_the_last_node),
		cmocka_unit_test(encoding_and_decoding_counts_and_changes_no_other_count),
		cmocka_unit_test(attention_has_two_products_backward_for_each_one_forward),
		cmocka_unit_test(measuring_changes_no_result),
		cmocka_unit_test(table_has_a_row_for_what_was_run_and_for_nothing_else),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
