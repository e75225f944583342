/* SPDX-License-Identifier: Apache-2.0
 *
 * State of plans and codecs into a checkpoint and out of it (common/graph/snapshot.h):
 * a plan that is loaded goes on bit for bit as the one that was saved.
 */
#include <string.h>
#include <unistd.h>

#include "common/store/checkpoint.h"
#include "common/base/fault.h"
#include "client/models/models.h"
#include "common/graph/snapshot.h"
#include "common/base/threads.h"
#include "tests/unit/ok.h"
#include "kernels/device_registry.h"

enum { BATCH = 4, CLASSES = 10 };

static const struct gp_optim adam = {
	.kind = GP_OPTIM_ADAM, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8f, .weight_decay = 1e-3f};
static const struct gp_optim momentum = {.kind = GP_OPTIM_SGD, .momentum = 0.9f, .weight_decay = 1e-3f};

static char root[64];
static struct gp_graph *graph;
static struct gp_device *dev;

static int setup(void **state)
{
	(void)state;
	const struct gp_model_options o = {.classes = CLASSES, .input = {.ndim = 3, .dim = {8, 8, 1}}};
	strcpy(root, "/tmp/gp_snap_XXXXXX");
	if (!mkdtemp(root) || gp_model_build("cnn", &o, &graph, &err) != GP_OK)
		return -1;
	return gp_device_open("cpu", 1, &dev, &err);
}

static int teardown(void **state)
{
	(void)state;
	char command[128];
	dev->ops->close(dev);
	gp_graph_free(graph);
	snprintf(command, sizeof command, "rm -rf '%s'", root);
	return system(command);
}

/* In plans that are made everything passes through `coded`, or the optimizer's state alone through `coded_state`. */
static const struct gp_codec_spec *coded, *coded_state;

static struct gp_plan *new_plan(const struct gp_optim *optim, uint64_t seed)
{
	struct gp_plan_spec spec = {
		.graph = graph, .batch = BATCH, .slots = 1, .train = true, .seed = seed, .optim = *optim};
	struct gp_plan *p;
	for (int i = 0; i < GP_STRUCTS; i++)
		spec.coded[i] = coded;
	if (coded_state)
		spec.coded[GP_STRUCT_STATE] = coded_state;
	spec.no_master = coded != NULL;
	OK(dev->ops->plan_new(dev, &spec, &p, &err));
	return p;
}

static void run_step(struct gp_plan *p, uint64_t step)
{
	const int32_t labels[BATCH] = {2, 0, 3, (int32_t)(step % CLASSES)};
	const uint64_t n = BATCH * gp_shape_elements(gp_graph_input_shape(graph));
	struct gp_loss_result loss;
	float *x = p->ops->buffer(p, 0, GP_BUF_INPUT, 0);
	for (uint64_t i = 0; i < n; i++)
		x[i] = (float)((i * 37 + step * 11) % 17) / 8 - 1;
	OK(p->ops->forward(p, 0, GP_TRAIN, step, &err));
	OK(p->ops->loss(p, 0, labels, BATCH, true, 1.0f / BATCH, &loss, &err));
	OK(p->ops->backward(p, 0, &err));
	OK(p->ops->optim_step(p, 0.01f, &err));
}

static uint64_t item_bytes(const struct gp_st_item *item)
{
	return gp_shape_elements(&item->shape) * gp_st_dtype_bytes(item->dtype);
}

static void expect_equal(const struct gp_snapshot *a, const struct gp_snapshot *b)
{
	assert_int_equal(a->count, b->count);
	for (int i = 0; i < a->count; i++) {
		assert_string_equal(a->item[i].name, b->item[i].name);
		if (memcmp(a->item[i].data, b->item[i].data, item_bytes(&a->item[i])) != 0)
			fail_msg("%s differs", a->item[i].name);
	}
}

static void expect_same_plans(struct gp_plan *p, struct gp_plan *q)
{
	struct gp_snapshot a = {0}, b = {0};
	OK(gp_snapshot_add_plan(&a, p, &err));
	OK(gp_snapshot_add_plan(&b, q, &err));
	expect_equal(&a, &b);
	assert_int_equal(p->ops->optim_count_get(p), q->ops->optim_count_get(q));
	gp_snapshot_deinit(&a);
	gp_snapshot_deinit(&b);
}

static struct gp_checkpoint *through_disk(const struct gp_snapshot *s, uint64_t step)
{
	const struct gp_manifest m = {.step = step};
	struct gp_checkpoint *c;
	OK(gp_checkpoint_write(root, &m, s->item, s->count, NULL, &err));
	OK(gp_checkpoint_open(root, step, &c, &err));
	return c;
}

static void goes_on_as_before(const struct gp_optim *optim)
{
	struct gp_plan *p = new_plan(optim, 5), *q = new_plan(optim, coded_state ? 5 : 6);
	struct gp_snapshot s = {0};
	run_step(q, 7);
	for (uint64_t step = 0; step < 3; step++)
		run_step(p, step);
	OK(gp_snapshot_add_plan(&s, p, &err));
	struct gp_checkpoint *c = through_disk(&s, 3);
	OK(gp_snapshot_load_plan(c->state, 3, q, &err));
	expect_same_plans(p, q);
	for (uint64_t step = 3; step < 5; step++) {
		run_step(p, step);
		run_step(q, step);
	}
	expect_same_plans(p, q);
	uint64_t bytes = 0;
	for (int i = 0; i < s.count; i++)
		bytes += item_bytes(&s.item[i]);
	assert_true(bytes <= gp_snapshot_plan_bytes(graph, coded_state ? coded_state : coded));
	gp_checkpoint_close(c);
	gp_snapshot_deinit(&s);
	p->ops->plan_free(p);
	q->ops->plan_free(q);
}

static void loaded_plan_goes_on_as_the_saved_one(void **state)
{
	(void)state;
	goes_on_as_before(&momentum);
	goes_on_as_before(&adam);
}

static bool has_item(const struct gp_snapshot *s, const char *kind, const char *param)
{
	char name[GP_NAME_MAX + 32];
	snprintf(name, sizeof name, "%s.%s", kind, param);
	for (int i = 0; i < s->count; i++)
		if (strcmp(s->item[i].name, name) == 0)
			return true;
	return false;
}

/* smaq's codes of the same length in elements differ in bytes, and encoding what was decoded gives another one. */
static void state_that_lies_encoded_goes_on_as_it_was(void **state)
{
	(void)state;
	static const char *const specs[] = {"bf16", "smaq:main=6,outlier=8", "uniform:bits=8",
					    "sortquant:bits=6,split=2"};
	for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
		struct gp_codec_spec spec;
		OK(gp_codec_spec_parse(specs[i], &spec, &err));
		coded = &spec;
		goes_on_as_before(&momentum);
		goes_on_as_before(&adam);
		coded = NULL;
	}
}

/* Draws are those of the run's seed and the number of updates, which go on. */
static void state_that_is_rounded_stochastically_goes_on_with_the_same_draws(void **state)
{
	(void)state;
	struct gp_codec_spec spec;
	OK(gp_codec_spec_parse("smaq:main=6,outlier=8,round=stochastic", &spec, &err));
	coded_state = &spec;
	goes_on_as_before(&momentum);
	goes_on_as_before(&adam);
	coded_state = NULL;
}

/* A checkpoint has all values, and optimizer state of what is trained. */
static void frozen_parameters_are_saved_without_optimizer_state(void **state)
{
	(void)state;
	struct gp_snapshot s = {0};
	assert_true(gp_graph_freeze_blocks(graph, 0, 1) > 0);
	goes_on_as_before(&adam);
	struct gp_plan *p = new_plan(&adam, 5);
	OK(gp_snapshot_add_plan(&s, p, &err));
	int frozen = 0;
	for (int i = 0; i < graph->params; i++) {
		const struct gp_param *q = &graph->param[i];
		assert_true(has_item(&s, "param", q->name));
		assert_int_equal(has_item(&s, "optimizer.0", q->name), q->trained);
		assert_int_equal(has_item(&s, "optimizer.1", q->name), q->trained);
		frozen += !q->trained;
	}
	assert_true(frozen > 0 && frozen < graph->params);
	gp_snapshot_deinit(&s);
	p->ops->plan_free(p);
}

static void expect_to_begin_again(void)
{
	struct gp_weights *init;
	struct gp_plan *p = new_plan(&adam, 5), *fresh = new_plan(&adam, 5);
	run_step(p, 0);
	OK(gp_snapshot_begin_plan(p, NULL, &err));
	expect_same_plans(p, fresh);
	OK(gp_weights_new(graph, &init, &err));
	gp_weights_init(init, 77);
	run_step(p, 0);
	OK(gp_snapshot_begin_plan(p, init, &err));
	struct gp_plan *other = new_plan(&adam, 77);
	expect_same_plans(p, other);
	gp_weights_free(init);
	p->ops->plan_free(p);
	fresh->ops->plan_free(fresh);
	other->ops->plan_free(other);
}

static void plan_that_begins_again_is_as_new(void **state)
{
	(void)state;
	struct gp_codec_spec spec;
	expect_to_begin_again();
	OK(gp_codec_spec_parse("smaq:main=6,outlier=8", &spec, &err));
	coded = &spec;
	expect_to_begin_again();
	coded = NULL;
}

static void expect_load_refused(const struct gp_snapshot *s, struct gp_plan *p, const char *words)
{
	struct gp_snapshot before = {0}, after = {0};
	struct gp_checkpoint *c = through_disk(s, 1);
	OK(gp_snapshot_add_plan(&before, p, &err));
	assert_int_equal(gp_snapshot_load_plan(c->state, 1, p, &err), GP_INVALID);
	if (!strstr(err.text, words))
		fail_msg("'%s' does not mention '%s'", err.text, words);
	OK(gp_snapshot_add_plan(&after, p, &err));
	expect_equal(&before, &after);
	gp_snapshot_deinit(&before);
	gp_snapshot_deinit(&after);
	gp_checkpoint_close(c);
}

static void state_that_does_not_fit_is_refused_and_changes_nothing(void **state)
{
	(void)state;
	struct gp_plan *p = new_plan(&adam, 5), *q = new_plan(&momentum, 5);
	struct gp_snapshot s = {0}, t = {0};
	OK(gp_snapshot_add_plan(&s, q, &err));
	expect_load_refused(&s, p, "no tensor 'optimizer.1.");
	OK(gp_snapshot_add_plan(&t, p, &err));
	t.item[t.count - 1].shape = (struct gp_shape){.ndim = 1, .dim = {1}};
	expect_load_refused(&t, p, "another type or shape");
	gp_snapshot_deinit(&s);
	gp_snapshot_deinit(&t);
	p->ops->plan_free(p);
	q->ops->plan_free(q);
}

/* The last array's code: neither that, nor what comes before it, is taken. */
static void codes_that_are_none_are_refused_and_change_nothing(void **state)
{
	(void)state;
	struct gp_codec_spec spec;
	OK(gp_codec_spec_parse("uniform:bits=8", &spec, &err));
	coded = &spec;
	struct gp_plan *p = new_plan(&adam, 5), *plain;
	struct gp_snapshot s = {0}, t = {0};
	run_step(p, 0);
	OK(gp_snapshot_add_plan(&s, p, &err));
	run_step(p, 1);
	int last = s.count - 1;
	while (s.item[last].dtype != GP_ST_U8)
		last--;
	memset((void *)s.item[last].data, 0xff, 4);
	expect_load_refused(&s, p, "the place of a zero");
	coded = NULL;
	plain = new_plan(&adam, 5);
	OK(gp_snapshot_add_plan(&t, plain, &err));
	expect_load_refused(&t, p, "another type or shape");
	expect_load_refused(&s, plain, "another type or shape");
	gp_snapshot_deinit(&s);
	gp_snapshot_deinit(&t);
	p->ops->plan_free(p);
	plain->ops->plan_free(plain);
}

static struct gp_codec *new_codec(const char *text)
{
	struct gp_codec_spec spec;
	struct gp_codec *c;
	const struct gp_shape shape = {.ndim = 2, .dim = {BATCH, 16}};
	OK(gp_codec_spec_parse(text, &spec, &err));
	OK(gp_codec_new(&spec, &shape, 3, &c, &err));
	return c;
}

static void codec_memory_comes_back(void **state)
{
	(void)state;
	struct gp_codec *a = new_codec("ef+uniform:bits=2"), *b = new_codec("ef+uniform:bits=2"),
			*other = new_codec("raw");
	float x[BATCH * 16];
	uint8_t out[4096];
	size_t len;
	struct gp_snapshot s = {0};
	for (int i = 0; i < BATCH * 16; i++)
		x[i] = (float)i * 0.37f;
	OK(gp_codec_encode(a, x, 1, out, sizeof out, &len, &err));
	assert_int_not_equal(gp_codec_state_hash(a), gp_codec_state_hash(b));
	OK(gp_snapshot_add_codec(&s, "act_up", a, &err));
	struct gp_checkpoint *c = through_disk(&s, 9);
	OK(gp_snapshot_load_codec(c->state, "act_up", b, &err));
	assert_int_equal(gp_codec_state_hash(a), gp_codec_state_hash(b));
	assert_int_equal(gp_snapshot_load_codec(c->state, "act_down", b, &err), GP_INVALID);
	assert_int_equal(gp_snapshot_load_codec(c->state, "act_up", other, &err), GP_INVALID);
	gp_checkpoint_close(c);
	gp_snapshot_deinit(&s);
	gp_codec_free(a);
	gp_codec_free(b);
	gp_codec_free(other);
}

static void failed_allocations_are_errors(void **state)
{
	(void)state;
	struct gp_plan *p = new_plan(&adam, 5);
	enum gp_status status = GP_NOMEM;
#ifndef GP_FAULTS
	p->ops->plan_free(p);
	skip();
#endif
	for (uint64_t n = 1; status != GP_OK; n++) {
		struct gp_snapshot s = {0};
		assert_true(n < 1000);
		gp_fault_arm(GP_FAULT_ALLOC, n);
		status = gp_snapshot_add_plan(&s, p, &err);
		gp_fault_arm(GP_FAULT_ALLOC, 0);
		assert_true(status == GP_OK || status == GP_NOMEM);
		gp_snapshot_deinit(&s);
	}
	p->ops->plan_free(p);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(int argc, char **argv)
{
	(void)argc;
	gp_threads_prepare(argv);
	const struct CMUnitTest tests[] = {
		TEST(loaded_plan_goes_on_as_the_saved_one),
		TEST(frozen_parameters_are_saved_without_optimizer_state),
		TEST(plan_that_begins_again_is_as_new),
		TEST(state_that_lies_encoded_goes_on_as_it_was),
		TEST(state_that_is_rounded_stochastically_goes_on_with_the_same_draws),
		TEST(state_that_does_not_fit_is_refused_and_changes_nothing),
		TEST(codes_that_are_none_are_refused_and_change_nothing),
		TEST(codec_memory_comes_back),
		TEST(failed_allocations_are_errors),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
