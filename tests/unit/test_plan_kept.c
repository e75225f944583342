/* SPDX-License-Identifier: Apache-2.0
 *
 * What plans keep of a forward pass for the backward one, in another way: blocks that are computed a second time keep less
 * and change no bit; where maps lie encoded, or everything passes through a codec, a model cut in three equals one whole
 * bit for bit, parts frozen or not. On every device. See kernels/plan/plan_again.h, kernels/plan/plan_store.h.
 */
#include "tests/unit/parts_rig.h"

/* --- blocks that are computed a second time ----------------------------------------------------------------------- */

/* Blocks of so many nodes each, from here on. */
static void set_blocks(struct gp_graph *g, uint32_t nodes)
{
	uint32_t before[GP_GRAPH_MAX_NODES];
	size_t count = 0;
	for (uint32_t at = nodes; at < (uint32_t)(g->nodes - g->inputs); at += nodes)
		before[count++] = at;
	OK(gp_graph_set_blocks(g, count, before, &err));
}

static void check_whole(struct gp_device *dev, const struct gp_graph *g, enum gp_precision precision,
			float *const *want)
{
	struct run whole = make_whole(dev, g, precision);
	for (uint64_t step = 0; step < STEPS; step++) {
		float *got = run_and_collect(&whole, step);
		expect_same(g, got, want[step], (struct gp_cut){0, 0});
		gp_free(got);
	}
	drop(&whole);
}

/* Against a plan that keeps everything: the whole model, and cut in three, with blocks of several sizes. */
static void check_recomputing_on(struct gp_device *dev, struct gp_graph *g, enum gp_precision precision, int every)
{
	static const uint32_t nodes[] = {1, 2, 5, 1000};
	float *want[STEPS];
	int number = 0;
	struct run plain = make_whole(dev, g, precision);
	for (uint64_t step = 0; step < STEPS; step++)
		want[step] = run_and_collect(&plain, step);
	drop(&plain);
	recompute = true;
	for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++) {
		set_blocks(g, nodes[i]);
		check_whole(dev, g, precision, want);
		for (int head = 1; head < g->blocks - 1; head += 2)
			if (number++ % every == 0)
				check_cut(dev, g, (struct gp_cut){head, (head + g->blocks) / 2}, precision, want);
	}
	recompute = false;
	for (int step = 0; step < STEPS; step++)
		gp_free(want[step]);
}

static void check_recomputing(int threads, struct gp_graph *g, enum gp_precision precision)
{
	struct gp_device *dev;
	OK(gp_device_open("cpu", threads, &dev, &err));
	check_recomputing_on(dev, g, precision, 1);
	dev->ops->close(dev);
}

/* Emulated kernels are slow: see check_everywhere. */
static void check_recomputing_on_gpu(struct gp_graph *g)
{
	struct gp_device *dev;
	if (gp_device_open("cuda-emulated", 1, &dev, &err) != GP_OK && gp_device_open("cuda", 1, &dev, &err) != GP_OK)
		return;
	check_recomputing_on(dev, g, GP_PRECISION_FP32, 17);
	check_recomputing_on(dev, g, GP_PRECISION_BF16, 17);
	dev->ops->close(dev);
}

static void blocks_that_are_computed_twice_change_no_bit(void **state)
{
	(void)state;
	struct gp_graph *(*const build[])(void) = {build_residuals, build_inverted, build_norms, build_tokens,
						   build_encoder};
	struct gp_device *dev;
	OK(gp_device_open("cpu", 1, &dev, &err));
	const bool has_bf16 = gp_device_supports(dev, GP_PRECISION_BF16);
	dev->ops->close(dev);
	for (size_t i = 0; i < sizeof build / sizeof build[0]; i++) {
		struct gp_graph *g = build[i]();
		check_recomputing(1, g, GP_PRECISION_FP32);
		check_recomputing(2, g, GP_PRECISION_FP32);
		if (has_bf16)
			check_recomputing(1, g, GP_PRECISION_BF16);
		check_recomputing_on_gpu(g);
		gp_graph_free(g);
	}
}

/* Each mode of batch norm, of which renorm's corrections depend on running statistics that other chunks have moved since. */
static void norms_in_blocks_that_are_computed_twice_change_no_bit(void **state)
{
	(void)state;
	for (int mode = 0; mode < GP_BN_MODES; mode++) {
		const bool renorm = mode == GP_BN_RENORM;
		const struct gp_bn_attr how = {
			.mode = mode, .r_max = renorm ? 3.0f : 0.0f, .d_max = renorm ? 5.0f : 0.0f, .warmup = renorm};
		struct gp_graph *g = build_residuals();
		assert_true(gp_graph_set_batch_norm(g, &how, &err) > 0);
		check_recomputing(1, g, GP_PRECISION_FP32);
		check_recomputing_on_gpu(g);
		gp_graph_free(g);
	}
}

static void frozen_parts_of_blocks_that_are_computed_twice_change_no_bit(void **state)
{
	(void)state;
	static const char *const patterns[] = {"stem*", "a1_conv*", "*_bn*", "b[0-9]_*", "*_conv*"};
	for (size_t k = 0; k < sizeof patterns / sizeof patterns[0]; k++) {
		struct gp_graph *g = build_residuals();
		assert_true(gp_graph_freeze(g, patterns[k]) > 0);
		check_recomputing(1, g, GP_PRECISION_FP32);
		gp_graph_free(g);
	}
}

/* What a slot keeps is then no more than what crosses from block to block, and no slot has the inside of one. */
static void blocks_that_are_computed_twice_keep_less(void **state)
{
	(void)state;
	struct gp_graph *g = build_inverted();
	struct gp_device *dev;
	struct gp_plan_memory plain, again;
	OK(gp_device_open("cpu", 1, &dev, &err));
	set_blocks(g, 6);
	struct gp_plan_spec spec = {.graph = g, .batch = 64, .slots = 1, .train = true};
	OK(dev->ops->plan_estimate(dev, &spec, &plain, &err));
	spec.recompute = true;
	OK(dev->ops->plan_estimate(dev, &spec, &again, &err));
	print_message("kept %llu and %llu, scratch %llu and %llu bytes\n", (unsigned long long)plain.activations,
		      (unsigned long long)again.activations, (unsigned long long)plain.scratch,
		      (unsigned long long)again.scratch);
	assert_true(again.activations * 10 < plain.activations * 6);
	assert_true(again.total < plain.total);
	assert_int_equal(again.params + again.grads + again.optim + again.io,
			 plain.params + plain.grads + plain.optim + plain.io);
	dev->ops->close(dev);
	gp_graph_free(g);
}

/* --- maps that lie encoded ---------------------------------------------------------------------------------------- */

/* Decoding loses something, but the same in the whole model as in the parts that it is cut in. */
static void check_encoded_cut(struct gp_device *dev, const struct gp_graph *g, struct gp_cut cut,
			      enum gp_precision precision)
{
	float *want[STEPS];
	cut_of_whole = cut;
	struct run whole = make_whole(dev, g, precision);
	cut_of_whole = (struct gp_cut){0, 0};
	for (uint64_t step = 0; step < STEPS; step++)
		want[step] = run_and_collect(&whole, step);
	drop(&whole);
	check_cut(dev, g, cut, precision, want);
	for (int step = 0; step < STEPS; step++)
		gp_free(want[step]);
}

static void check_encoded(int threads, const struct gp_graph *g, const struct gp_codec_spec *spec, int every)
{
	struct gp_device *dev;
	int number = 0;
	OK(gp_device_open("cpu", threads, &dev, &err));
	maps = spec;
	for (int head = 1; head < g->blocks - 1; head++)
		for (int tail = head + 1; tail < g->blocks; tail++)
			if (number++ % every == 0)
				check_encoded_cut(dev, g, (struct gp_cut){head, tail}, GP_PRECISION_FP32);
	maps = NULL;
	dev->ops->close(dev);
}

/* Emulated kernels are slow: a few cuts have to do. */
static void check_encoded_on_gpu(const struct gp_graph *g, const struct gp_codec_spec *spec)
{
	const int n = g->blocks;
	struct gp_device *dev;
	if (gp_device_open("cuda-emulated", 1, &dev, &err) != GP_OK && gp_device_open("cuda", 1, &dev, &err) != GP_OK)
		return;
	maps = spec;
	check_encoded_cut(dev, g, (struct gp_cut){n / 3, 2 * n / 3}, GP_PRECISION_FP32);
	check_encoded_cut(dev, g, (struct gp_cut){n / 2, n / 2 + 1}, GP_PRECISION_FP32);
	check_encoded_cut(dev, g, (struct gp_cut){n / 3 + 1, n - 1}, GP_PRECISION_BF16);
	maps = NULL;
	dev->ops->close(dev);
}

static void cuts_change_no_bit_where_maps_lie_encoded(void **state)
{
	(void)state;
	struct gp_graph *(*const build[])(void) = {build_residuals, build_inverted, build_norms, build_tokens,
						   build_encoder};
	struct gp_codec_spec coarse, fine;
	OK(gp_codec_spec_parse("uniform:bits=3", &coarse, &err));
	OK(gp_codec_spec_parse("smaq:main=6,outlier=8", &fine, &err));
	for (size_t i = 0; i < sizeof build / sizeof build[0]; i++) {
		struct gp_graph *g = build[i]();
		check_encoded(1, g, &coarse, 3);
		check_encoded(2, g, &fine, 11);
		check_encoded_on_gpu(g, &coarse);
		gp_graph_free(g);
	}
}

/* Frozen norms keep bits of their activations, but not where a cut may be. */
static void cuts_of_frozen_parts_change_no_bit_where_maps_lie_encoded(void **state)
{
	(void)state;
	static const char *const patterns[][2] = {{"*_bn*", NULL}, {"b[0-9]_*", "a0*"}, {"*_bn*", "[ab]*_conv*"}};
	struct gp_codec_spec coarse;
	OK(gp_codec_spec_parse("uniform:bits=3", &coarse, &err));
	for (size_t p = 0; p < sizeof patterns / sizeof patterns[0]; p++) {
		struct gp_graph *g = build_residuals();
		for (int k = 0; k < 2 && patterns[p][k]; k++)
			assert_true(gp_graph_freeze(g, patterns[p][k]) > 0);
		check_encoded(1, g, &coarse, 5);
		gp_graph_free(g);
	}
}

/* --- what else passes through a codec ----------------------------------------------------------------------------- */

/* Frozen norms, too, whose gradients are taken another way. With maps, and without. */
static void cuts_change_no_bit_where_everything_passes_through_a_codec(void **state)
{
	(void)state;
	struct gp_graph *(*const build[])(void) = {build_residuals, build_inverted, build_norms, build_tokens,
						   build_encoder};
	struct gp_codec_spec coarse, fine;
	OK(gp_codec_spec_parse("uniform:bits=5", &coarse, &err));
	OK(gp_codec_spec_parse("smaq:main=6,outlier=8", &fine, &err));
	for (size_t i = 0; i < sizeof build / sizeof build[0]; i++)
		for (int frozen = 0; frozen < 2; frozen++) {
			struct gp_graph *g = build[i]();
			if (frozen && gp_graph_freeze(g, "*_bn*") == 0) {
				gp_graph_free(g);
				continue;
			}
			coded = &coarse;
			check_encoded(1, g, NULL, 5);
			coded = &fine;
			check_encoded(2, g, &fine, 17);
			check_encoded_on_gpu(g, &fine);
			coded = NULL;
			gp_graph_free(g);
		}
}

int main(int argc, char **argv)
{
	(void)argc;
	gp_threads_prepare(argv);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_that_are_computed_twice_change_no_bit),
		cmocka_unit_test(norms_in_blocks_that_are_computed_twice_change_no_bit),
		cmocka_unit_test(frozen_parts_of_blocks_that_are_computed_twice_change_no_bit),
		cmocka_unit_test(blocks_that_are_computed_twice_keep_less),
		cmocka_unit_test(cuts_change_no_bit_where_maps_lie_encoded),
		cmocka_unit_test(cuts_of_frozen_parts_change_no_bit_where_maps_lie_encoded),
		cmocka_unit_test(cuts_change_no_bit_where_everything_passes_through_a_codec),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
