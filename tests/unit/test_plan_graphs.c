/* SPDX-License-Identifier: Apache-2.0
 *
 * Small nets against PyTorch, for two steps of training: several inputs and
 * outputs, integers, frozen parameters, batch norms that are frozen in whole or
 * in part; and every kind of insertion (client/insert/insert.h). On every device, on 1
 * and 2 threads. References: tests/golden/ops/graphs.safetensors, made by
 * tests/tools/dump_graphs.py, and insert.safetensors there, by dump_insert.py.
 */
#include <math.h>
#include <string.h>

#include "client/insert/insert.h"
#include "common/base/mem.h"
#include "common/base/threads.h"
#include "common/graph/device.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_embedding.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/ops/op_shape.h"
#include "common/store/safetensors.h"
#include "kernels/device_registry.h"
#include "tests/unit/ok.h"

#define TOLERANCE 1e-4 /* relative L2 */
#define RATE      0.1f
#define STEPS     2

static struct gp_st_file *dump;

/* --- the nets of dump_graphs.py ----------------------------------------------------------------------------------- */

static struct gp_graph *end(struct gp_graph *g, int outputs, const int *value, const char *const *frozen)
{
	for (int i = 0; i < outputs; i++)
		if (value[i] < 0)
			fail_msg("%s", err.text);
	OK(gp_graph_set_outputs(g, outputs, value, &err));
	OK(gp_graph_finish(g, &err));
	for (; *frozen; frozen++)
		assert_true(gp_graph_freeze(g, *frozen) > 0);
	return g;
}

struct net {
	const char *name;
	struct gp_graph *(*build)(const struct net *net);
	const char *frozen[6];
	int batch;
	const char *insert;    /* of those of dump_insert.py */
	struct gp_shape shape; /* of what crosses, (H,W,C) or (S,F) */
};

static struct gp_graph *build_tokens(const struct net *net)
{
	const struct gp_type ids = {GP_I32, {.ndim = 1, .dim = {6}}}, row = {GP_F32, {.ndim = 1, .dim = {5}}};
	struct gp_graph *g = gp_graph_new_empty("tokens", &err);
	assert_int_equal(gp_graph_add_input(g, "ids", &ids, &err), 0);
	assert_int_equal(gp_graph_add_input(g, "mask", &ids, &err), 1);
	assert_int_equal(gp_graph_add_input(g, "extra", &row, &err), 2);
	OK(gp_graph_begin_block(g, "all", &err));
	int x = gp_graph_embedding(g, "table", 0, 11, 8, &err), y = gp_graph_linear(g, "mix", x, 8, true, &err);
	x = gp_graph_sum(g, "mixed", gp_graph_unary(g, GP_OP_RELU, "act", y, &err), x, &err);
	const int a = gp_graph_split(g, "halves", x, 2, &err);
	x = gp_graph_concat(g, "swapped", 2, (const int[]){a + 1, a}, &err);
	const int mean = gp_graph_masked_mean(g, "mean", x, 1, &err);
	x = gp_graph_concat(g, "joined", 2, (const int[]){mean, 2}, &err);
	x = gp_graph_linear(g, "fc", x, 4, true, &err);
	return end(g, 3, (const int[]){x, mean, gp_graph_unary(g, GP_OP_RELU, "half", a, &err)}, net->frozen);
}

static struct gp_graph *begin_image(const char *name, int64_t h, int64_t w)
{
	const struct gp_shape image = {.ndim = 3, .dim = {h, w, 3}};
	struct gp_graph *g = gp_graph_new(name, &image, &err);
	assert_non_null(g);
	OK(gp_graph_begin_block(g, "all", &err));
	return g;
}

static int norm(struct gp_graph *g, const char *name, int in)
{
	return gp_graph_batch_norm(g, name, in, 1e-5f, 0.1f, &err);
}

static struct gp_graph *build_norms(const struct net *net)
{
	struct gp_graph *g = begin_image("norms", 6, 5);
	const int n1 = norm(g, "n1", gp_graph_conv(g, "c1", 0, 8, 3, 1, 1, 1, false, &err));
	int x = gp_graph_unary(g, GP_OP_RELU, "r1", n1, &err);
	x = norm(g, "n2", gp_graph_conv(g, "c2", x, 12, 3, 1, 1, 1, false, &err));
	x = gp_graph_unary(g, GP_OP_RELU6, "r2", x, &err);
	x = norm(g, "n3", gp_graph_conv(g, "c3", x, 8, 1, 1, 0, 1, false, &err));
	x = gp_graph_unary(g, GP_OP_RELU, "r3", gp_graph_sum(g, "s", x, n1, &err), &err);
	return end(g, 1, &x, net->frozen);
}

/* A convolution and its batch norm. */
static int part(struct gp_graph *g, const char *name, int in, int channels, int kernel, int stride, int groups)
{
	char bn[32];
	snprintf(bn, sizeof bn, "%s_bn", name);
	return norm(g, bn, gp_graph_conv(g, name, in, channels, kernel, stride, kernel / 2, groups, false, &err));
}

static struct gp_graph *build_residual(const struct net *net)
{
	struct gp_graph *g = begin_image("residual", 8, 8);
	int x = gp_graph_unary(g, GP_OP_RELU, "stem_act", part(g, "stem", 0, 16, 3, 1, 1), &err);
	int y = gp_graph_unary(g, GP_OP_RELU, "a0_act", part(g, "a0", x, 16, 3, 1, 1), &err);
	y = gp_graph_sum(g, "a_sum", part(g, "a1", y, 16, 1, 1, 1), x, &err);
	x = gp_graph_unary(g, GP_OP_RELU, "a_act", y, &err);
	y = gp_graph_unary(g, GP_OP_RELU, "b0_act", part(g, "b0", x, 24, 3, 2, 1), &err);
	y = part(g, "b1", y, 24, 3, 1, 24);
	y = gp_graph_sum(g, "b_sum", y, part(g, "down", x, 24, 1, 2, 1), &err);
	y = gp_graph_unary(g, GP_OP_RELU, "b_act", y, &err);
	y = gp_graph_unary(g, GP_OP_FLATTEN, "flat", gp_graph_unary(g, GP_OP_GLOBAL_AVG_POOL, "pool", y, &err), &err);
	y = gp_graph_linear(g, "fc", y, 5, true, &err);
	return end(g, 1, &y, net->frozen);
}

static const struct net nets[] = {
	{.name = "tokens", .build = build_tokens, .frozen = {NULL}, .batch = 3},
	{.name = "tokens_frozen", .build = build_tokens, .frozen = {"table.*", "mix.bias", NULL}, .batch = 3},
	{.name = "norms", .build = build_norms, .frozen = {"n1.*", "n2.weight", "n3.bias", NULL}, .batch = 4},
	{.name = "residual",
	 .build = build_residual,
	 .frozen = {"stem*", "a0*", "a1_bn.*", "b1.*", "down_bn.*", NULL},
	 .batch = 3},
};

/* --- the nets of dump_insert.py ----------------------------------------------------------------------------------- */

/* A layer of a block of its own. */
static int layer(struct gp_graph *g, const char *name, int x, const struct gp_shape *shape, int features)
{
	OK(gp_graph_begin_block(g, name, &err));
	return shape->ndim == 3 ? gp_graph_conv(g, name, x, features, 1, 1, 0, 1, true, &err)
				: gp_graph_linear(g, name, x, features, true, &err);
}

static struct gp_graph *build_inserted(const struct net *net)
{
	const struct gp_shape *shape = &net->shape;
	const int features = (int)shape->dim[shape->ndim - 1];
	const struct gp_cut cut = {1, 2};
	struct gp_shape input = *shape;
	struct gp_insertion ins;
	input.dim[shape->ndim - 1] = 3;
	struct gp_graph *g = gp_graph_new(net->name, &input, &err);
	assert_non_null(g);
	int x = layer(g, "a", 0, shape, features);
	x = layer(g, "b", x, shape, features);
	x = layer(g, "c", x, shape, 2);
	g = end(g, 1, &x, net->frozen);
	OK(gp_insertion_parse(net->insert, NULL, NULL, &ins, &err));
	OK(gp_insert(&g, &cut, &ins, &err));
	return g;
}

#define NET(name, insert, dims, ...)                                                                                   \
	{                                                                                                              \
		name, build_inserted, {NULL}, 2, insert,                                                               \
		{                                                                                                      \
			.ndim = dims, .dim = { __VA_ARGS__ }                                                           \
		}                                                                                                      \
	}
#define MAP(name, insert, c, h, w)   NET(name, insert, 3, h, w, c)
#define SEQUENCE(name, insert, s, f) NET(name, insert, 2, s, f)

static const struct net inserted[] = {
	MAP("conv", "conv:out=5,k=3,s=3", 4, 10, 7),
	MAP("stacked", "conv:out=6,k=4,s=4/conv:out=2,k=1,s=1", 4, 11, 8),
	MAP("wide", "conv:out=9,k=8,s=8", 3, 17, 19),
	{.name = "norms",
	 .build = build_inserted,
	 .frozen = {"a.bias", "b.bias", NULL},
	 .batch = 2,
	 .insert = "conv:out=6,k=2,s=2,bn=1,act=relu,bias=0/conv:out=3,k=1,s=1,bn=1,act=relu6,bias=0",
	 .shape = {.ndim = 3, .dim = {7, 6, 4}}},
	MAP("padded", "conv:out=3,k=3,s=2,p=1,act=relu6,bias=0", 4, 8, 5),
	MAP("channels", "linear:rank=3,dim=feature", 8, 5, 4),
	MAP("mixed", "conv:out=6,k=2,s=2/linear:rank=2,dim=feature", 4, 6, 5),
	SEQUENCE("features", "linear:rank=4,dim=feature", 7, 9),
	SEQUENCE("positions", "linear:rank=3,dim=sequence", 7, 9),
	SEQUENCE("both", "linear:rank=5,dim=feature/linear:rank=3,dim=sequence", 7, 9),
	MAP("bottleneck", "bottleneck:dim=3,hidden=5,act=relu6", 8, 5, 4),
	SEQUENCE("bottleneck_text", "bottleneck:dim=3", 7, 9),
	MAP("bottleneck_stacked", "conv:out=6,k=2,s=2/bottleneck:dim=2,act=relu", 4, 6, 5),
};

/* --- the dump ----------------------------------------------------------------------------------------------------- */

struct bed {
	const struct net *net;
	struct gp_graph *graph;
	struct gp_plan *plan;
	char device[64];
};

static const struct gp_st_tensor *find(const struct bed *b, int step, const char *key, const char *of)
{
	char name[2 * GP_NAME_MAX];
	if (step < 0)
		snprintf(name, sizeof name, "%s/%s.%s", b->net->name, key, of);
	else
		snprintf(name, sizeof name, "%s/%d/%s.%s", b->net->name, step, key, of);
	return gp_st_find(dump, name);
}

static void check(const struct bed *b, int step, const char *key, const char *of, const float *got)
{
	const struct gp_st_tensor *t = find(b, step, key, of);
	if (!t)
		fail_msg("%s has no %s.%s", b->net->name, key, of);
	float *want = gp_calloc(t->count, sizeof *want);
	assert_non_null(want);
	OK(gp_st_read_f32(t, want, &err));
	const double e = relative_l2(got, want, t->count);
	if (!(e < TOLERANCE))
		fail_msg("%s on %s, step %d: %s.%s: relative L2 error %.3g", b->net->name, b->device, step, key, of, e);
	gp_free(want);
}

static void set_port(const struct bed *b, int step, const char *key, enum gp_plan_buf which, int index)
{
	char of[16];
	snprintf(of, sizeof of, "%d", index);
	const struct gp_st_tensor *t = find(b, step, key, of);
	void *to = b->plan->ops->buffer(b->plan, 0, which, index);
	assert_true(t && to);
	if (t->dtype == GP_ST_I32)
		memcpy(to, t->data, t->count * sizeof(int32_t));
	else
		OK(gp_st_read_f32(t, to, &err));
}

static void check_port(const struct bed *b, int step, const char *key, enum gp_plan_buf which, int index)
{
	char of[16];
	snprintf(of, sizeof of, "%d", index);
	const float *got = b->plan->ops->buffer(b->plan, 0, which, index);
	assert_int_equal(got != NULL, find(b, step, key, of) != NULL);
	if (got)
		check(b, step, key, of, got);
}

/* Every parameter, or every gradient. */
static void check_params(const struct bed *b, int step, const char *key, bool grads)
{
	for (int i = 0; i < b->graph->params; i++) {
		const struct gp_param *q = &b->graph->param[i];
		if (grads)
			assert_int_equal(q->trained, find(b, step, key, q->name) != NULL);
		if (grads && !q->trained)
			continue;
		float *v = gp_calloc(q->count, sizeof *v);
		assert_non_null(v);
		OK(grads ? b->plan->ops->grad_get(b->plan, i, v, &err) : b->plan->ops->param_get(b->plan, i, v, &err));
		check(b, step, key, q->name, v);
		gp_free(v);
	}
}

static void load_params(const struct bed *b)
{
	for (int i = 0; i < b->graph->params; i++) {
		const struct gp_st_tensor *t = find(b, -1, "param", b->graph->param[i].name);
		float *v = gp_calloc(b->graph->param[i].count, sizeof *v);
		assert_true(t && v && t->count == b->graph->param[i].count);
		OK(gp_st_read_f32(t, v, &err));
		OK(b->plan->ops->param_set(b->plan, i, v, &err));
		gp_free(v);
	}
}

static void run_step(const struct bed *b, int step)
{
	const struct gp_device_ops *ops = b->plan->ops;
	for (int i = 0; i < b->graph->inputs; i++)
		set_port(b, step, "in", GP_BUF_INPUT, i);
	OK(ops->forward(b->plan, 0, GP_TRAIN, 0, &err));
	for (int i = 0; i < b->graph->outputs; i++) {
		check_port(b, step, "out", GP_BUF_OUTPUT, i);
		set_port(b, step, "gout", GP_BUF_GRAD_OUTPUT, i);
	}
	OK(ops->backward(b->plan, 0, &err));
	for (int i = 0; i < b->graph->inputs; i++)
		check_port(b, step, "gin", GP_BUF_GRAD_INPUT, i);
	check_params(b, step, "grad", true);
	OK(ops->optim_step(b->plan, RATE, &err));
	check_params(b, step, "after", false);
}

static void run_net(const struct net *net, const char *device, int threads)
{
	struct bed b = {.net = net, .graph = net->build(net)};
	struct gp_plan_spec spec = {.graph = b.graph, .batch = net->batch, .slots = 1, .train = true};
	struct gp_device *dev;
	spec.grad_inputs = ~(uint64_t)0;
	spec.optim = (struct gp_optim){.kind = GP_OPTIM_SGD, .momentum = 0.9f, .weight_decay = 0.01f};
	snprintf(b.device, sizeof b.device, "%s, %d threads", device, threads);
	if (gp_device_open(device, threads, &dev, &err) == GP_OK) { /* else this build has none */
		OK(dev->ops->plan_new(dev, &spec, &b.plan, &err));
		load_params(&b);
		for (int step = 0; step < STEPS; step++)
			run_step(&b, step);
		dev->ops->plan_free(b.plan);
		dev->ops->close(dev);
	}
	gp_graph_free(b.graph);
}

static void run_nets(const char *path, const struct net *list, size_t count)
{
	OK(gp_st_open(path, &dump, &err));
	for (size_t i = 0; i < count; i++) {
		run_net(&list[i], "cpu", 1);
		run_net(&list[i], "cpu", 2);
		run_net(&list[i], "cuda-emulated", 1);
		run_net(&list[i], "cuda", 1);
	}
	gp_st_close(dump);
}

static void nets_train_as_in_pytorch(void **state)
{
	(void)state;
	run_nets("tests/golden/ops/graphs.safetensors", nets, sizeof nets / sizeof nets[0]);
}

static void insertions_train_as_in_pytorch(void **state)
{
	(void)state;
	run_nets("tests/golden/ops/insert.safetensors", inserted, sizeof inserted / sizeof inserted[0]);
}

/* --- what frozen parts do not take -------------------------------------------------------------------------------- */

static struct gp_plan_memory memory_of(struct gp_device *dev, const struct gp_graph *g, bool train)
{
	struct gp_plan_spec spec = {.graph = g, .batch = 3, .slots = 2, .train = train};
	struct gp_plan_memory m;
	spec.optim = (struct gp_optim){.kind = GP_OPTIM_ADAM, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8f};
	OK(dev->ops->plan_estimate(dev, &spec, &m, &err));
	return m;
}

static void frozen_parts_have_no_gradients_no_optimizer_state_and_keep_nothing(void **state)
{
	(void)state;
	static const char *const devices[] = {"cpu", "cuda-emulated", "cuda"};
	static const struct net none = {.frozen = {NULL}};
	for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
		struct gp_device *dev;
		if (gp_device_open(devices[i], 1, &dev, &err) != GP_OK)
			continue;
		struct gp_graph *g = build_residual(&none);
		const struct gp_plan_memory trained = memory_of(dev, g, true);
		assert_true(gp_graph_freeze(g, "stem*") + gp_graph_freeze(g, "a*") > 0);
		const struct gp_plan_memory some = memory_of(dev, g, true);
		const uint64_t states = 2 * g->trained_elements * sizeof(float),
			       padding = 2 * 256 * (uint64_t)g->params;
		assert_true(gp_graph_freeze(g, "*") > 0);
		const struct gp_plan_memory frozen = memory_of(dev, g, true);
		assert_true(some.grads < trained.grads && some.optim < trained.optim);
		assert_true(some.activations < trained.activations / 2);
		assert_true(some.optim >= states && some.optim <= states + padding);
		assert_int_equal(frozen.grads + frozen.optim + frozen.activations, 0);
		gp_graph_free(g);
		dev->ops->close(dev);
	}
}

int main(int argc, char **argv)
{
	(void)argc;
	gp_threads_prepare(argv);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nets_train_as_in_pytorch),
		cmocka_unit_test(insertions_train_as_in_pytorch),
		cmocka_unit_test(frozen_parts_have_no_gradients_no_optimizer_state_and_keep_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
