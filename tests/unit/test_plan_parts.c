/* SPDX-License-Identifier: Apache-2.0
 *
 * A model that gp_graph_cut cuts in three, at every place: inside residual
 * blocks too, where several values cross and some pass from head to tail. The
 * three plans together equal one plan of the whole bit for bit: outputs,
 * gradients, running statistics, updates; with chunks in flight, on any number
 * of threads, with parts frozen, on every device. See graph_part.h, plan_walk.h.
 */
#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/base/threads.h"
#include "common/codec/codec.h"
#include "common/graph/device.h"
#include "common/graph/graph_part.h"
#include "common/graph/ops/op_attention.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_embedding.h"
#include "common/graph/ops/op_layer_norm.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/ops/op_pool.h"
#include "common/graph/ops/op_rows.h"
#include "common/graph/ops/op_shape.h"
#include "kernels/device_registry.h"
#include "tests/unit/ok.h"
#include "tests/sanitized.h"

enum { BATCH = 3, SLOTS = 2, CHUNKS = 3, STEPS = 2, CLASSES = 4, SEED = 5, VOCAB = 7 };
enum { HEAD, BODY, TAIL, PARTS };

/* --- models of which every node is a block ------------------------------------------------------------------------ */

static void begin(struct gp_graph *g)
{
	char name[16];
	snprintf(name, sizeof name, "b%d", g->blocks);
	OK(gp_graph_begin_block(g, name, &err));
}

static int conv(struct gp_graph *g, const char *name, int in, int channels, int kernel, int stride, int groups)
{
	begin(g);
	return gp_graph_conv(g, name, in, channels, kernel, stride, kernel / 2, groups, false, &err);
}

static int norm(struct gp_graph *g, const char *name, int in)
{
	begin(g);
	return gp_graph_batch_norm(g, name, in, 1e-5f, 0.1f, &err);
}

static int unary(struct gp_graph *g, enum gp_op op, const char *name, int in)
{
	begin(g);
	return gp_graph_unary(g, op, name, in, &err);
}

static int sum(struct gp_graph *g, const char *name, int a, int b)
{
	begin(g);
	return gp_graph_sum(g, name, a, b, &err);
}

static struct gp_graph *end(struct gp_graph *g, int last)
{
	if (last < 0)
		fail_msg("%s", err.text);
	OK(gp_graph_finish(g, &err));
	return g;
}

static int classify(struct gp_graph *g, int x)
{
	x = unary(g, GP_OP_GLOBAL_AVG_POOL, "pool", x);
	x = unary(g, GP_OP_FLATTEN, "flat", x);
	begin(g);
	return gp_graph_linear(g, "fc", x, CLASSES, true, &err);
}

/* Identity, projection, and a value that four nodes read, one of them behind a second addition. */
static struct gp_graph *build_residuals(void)
{
	const struct gp_shape image = {.ndim = 3, .dim = {8, 8, 3}};
	struct gp_graph *g = gp_graph_new("residuals", &image, &err);
	int x = unary(g, GP_OP_RELU, "stem", norm(g, "stem_bn", conv(g, "stem_conv", 0, 16, 3, 1, 1)));
	int y = unary(g, GP_OP_RELU, "a0", norm(g, "a0_bn", conv(g, "a0_conv", x, 16, 3, 1, 1)));
	y = norm(g, "a1_bn", conv(g, "a1_conv", y, 16, 3, 1, 1));
	x = unary(g, GP_OP_RELU, "a", sum(g, "a_sum", y, x));
	y = unary(g, GP_OP_RELU6, "b0", norm(g, "b0_bn", conv(g, "b0_conv", x, 24, 1, 1, 1)));
	y = unary(g, GP_OP_RELU6, "b1", norm(g, "b1_bn", conv(g, "b1_conv", y, 24, 3, 2, 24)));
	y = norm(g, "b2_bn", conv(g, "b2_conv", y, 20, 1, 1, 1));
	int down = norm(g, "down_bn", conv(g, "down_conv", x, 20, 1, 2, 1));
	begin(g);
	int pad = gp_graph_shortcut_pad(g, "pad", x, 2, 2, 2, &err);
	begin(g);
	y = gp_graph_append(g, (struct gp_node){.op = GP_OP_ADD}, "b_sum", 3, (const int[]){y, down, pad}, &err);
	return end(g, classify(g, y));
}

/* Depthwise blocks whose sum has no activation behind it, as MobileNetV2's. */
static struct gp_graph *build_inverted(void)
{
	const struct gp_shape image = {.ndim = 3, .dim = {6, 6, 8}};
	struct gp_graph *g = gp_graph_new("inverted", &image, &err);
	int x = norm(g, "stem_bn", conv(g, "stem_conv", 0, 16, 1, 1, 1));
	for (int i = 0; i < 2; i++) {
		char name[6][16];
		static const char *const what[] = {"expand", "expand_bn", "expand_act", "deep", "project", "sum"};
		for (int k = 0; k < 6; k++)
			snprintf(name[k], sizeof name[k], "%s%d", what[k], i);
		int y = norm(g, name[1], conv(g, name[0], x, 32, 1, 1, 1));
		y = conv(g, name[3], unary(g, GP_OP_RELU6, name[2], y), 32, 3, 1, 32);
		y = conv(g, name[4], y, 16, 1, 1, 1);
		x = sum(g, name[5], x, y);
	}
	return end(g, classify(g, x));
}

/* Norms of values that others read as well, between them and the sum that would take them over. */
static struct gp_graph *build_norms(void)
{
	const struct gp_shape image = {.ndim = 3, .dim = {5, 4, 8}};
	struct gp_graph *g = gp_graph_new("norms", &image, &err);
	int x = unary(g, GP_OP_RELU, "r", conv(g, "stem", 0, 16, 3, 1, 1));
	int n = norm(g, "n", x), c = conv(g, "c", x, 16, 1, 1, 1);
	int s = sum(g, "s", sum(g, "t", n, c), x);
	n = norm(g, "m", s);
	c = conv(g, "d", s, 16, 3, 1, 16);
	x = unary(g, GP_OP_RELU6, "act", sum(g, "u", s, n));
	return end(g, classify(g, sum(g, "v", sum(g, "w", x, c), s)));
}

/* Token ids and a mask from the data; the mask crosses both cuts where they lie before its reader. */
static struct gp_graph *build_tokens(void)
{
	const struct gp_type ids = {GP_I32, {.ndim = 1, .dim = {6}}}, row = {GP_F32, {.ndim = 1, .dim = {5}}};
	struct gp_graph *g = gp_graph_new_empty("tokens", &err);
	assert_int_equal(gp_graph_add_input(g, "ids", &ids, &err), 0);
	assert_int_equal(gp_graph_add_input(g, "mask", &ids, &err), 1);
	assert_int_equal(gp_graph_add_input(g, "extra", &row, &err), 2);
	begin(g);
	int x = gp_graph_embedding(g, "table", 0, VOCAB, 8, &err);
	begin(g);
	int y = gp_graph_linear(g, "mix", x, 8, true, &err);
	x = sum(g, "mixed", unary(g, GP_OP_RELU, "mix_act", y), x);
	begin(g);
	const int half = gp_graph_split(g, "halves", x, 2, &err);
	x = sum(g, "folded", half, half + 1);
	begin(g);
	x = gp_graph_masked_mean(g, "mean", x, 1, &err);
	begin(g);
	x = gp_graph_concat(g, "joined", 3, (const int[]){x, 2, x}, &err);
	begin(g);
	x = gp_graph_dropout(g, "drop", x, 0.2f, &err);
	begin(g);
	return end(g, gp_graph_linear(g, "fc", x, CLASSES, true, &err));
}

static int linear(struct gp_graph *g, const char *name, int in, int out)
{
	begin(g);
	return gp_graph_linear(g, name, in, out, true, &err);
}

static int layer_norm(struct gp_graph *g, const char *name, int in, int residual)
{
	begin(g);
	return gp_graph_layer_norm(g, name, in, residual, (struct gp_layer_norm_attr){.eps = 1e-5f, .p = 0.1f}, &err);
}

/* A layer of an encoder; the lengths cross where they lie before the attention. */
static struct gp_graph *build_encoder(void)
{
	const struct gp_type ids = {GP_I32, {.ndim = 1, .dim = {6}}}, one = {GP_I32, {.ndim = 1, .dim = {1}}};
	struct gp_graph *g = gp_graph_new_empty("encoder", &err);
	assert_int_equal(gp_graph_add_input(g, "ids", &ids, &err), 0);
	assert_int_equal(gp_graph_add_input(g, "length", &one, &err), 1);
	begin(g);
	int x = gp_graph_embedding(g, "tokens", 0, VOCAB, 16, &err);
	begin(g);
	x = gp_graph_add_rows(g, "place", x, (struct gp_add_rows_attr){.rows = 8, .first = 2, .step = 1}, &err);
	begin(g);
	x = gp_graph_add_rows(g, "kind", x, (struct gp_add_rows_attr){.rows = 2}, &err);
	const int in = layer_norm(g, "n0", x, -1), q = linear(g, "q", in, 16), k = linear(g, "k", in, 16),
		  v = linear(g, "v", in, 16);
	begin(g);
	x = gp_graph_attention(g, "a", (const int[]){q, k, v}, 1, (struct gp_attention_attr){.heads = 2, .p = 0.2f},
			       &err);
	const int middle = layer_norm(g, "n1", linear(g, "o", x, 16), in);
	x = linear(g, "f0", middle, 24);
	begin(g);
	x = gp_graph_gelu(g, "act", x, false, &err);
	x = layer_norm(g, "n2", linear(g, "f1", x, 16), middle);
	begin(g);
	x = gp_graph_take_row(g, "first", x, 0, &err);
	return end(g, linear(g, "fc", unary(g, GP_OP_TANH, "tanh", x), CLASSES));
}

/* --- one plan, or three ------------------------------------------------------------------------------------------- */

struct run {
	const struct gp_graph *whole;
	struct gp_graph_parts parts;
	int count;
	const struct gp_graph *graph[PARTS];
	struct gp_plan *plan[PARTS];
};

static bool recompute;                    /* plans that are made compute their blocks a second time */
static const struct gp_codec_spec *maps;  /* or their maps lie encoded */
static const struct gp_codec_spec *coded; /* or all the rest passes through a codec */
static struct gp_cut cut_of_whole;        /* as those of this cut do */

static struct gp_plan *make_plan(struct gp_device *dev, const struct gp_graph *g, uint64_t grad_inputs,
				 uint64_t map_inputs, enum gp_precision precision)
{
	struct gp_plan_spec spec = {.graph = g, .batch = BATCH, .slots = SLOTS, .train = true, .seed = SEED};
	struct gp_plan *plan;
	spec.grad_inputs = grad_inputs;
	spec.precision = precision;
	spec.recompute = recompute;
	spec.maps = maps;
	spec.map_inputs = map_inputs;
	for (int i = 0; i < GP_STRUCTS; i++)
		spec.coded[i] = coded;
	if (g->blocks > cut_of_whole.tail && cut_of_whole.head > 0) {
		spec.cuts[0] = g->block[cut_of_whole.head].first_node;
		spec.cuts[1] = g->block[cut_of_whole.tail].first_node;
	}
	spec.optim = (struct gp_optim){.kind = GP_OPTIM_SGD, .momentum = 0.9f, .nesterov = true, .weight_decay = 1e-3f};
	OK(dev->ops->plan_new(dev, &spec, &plan, &err));
	return plan;
}

static struct run make_whole(struct gp_device *dev, const struct gp_graph *g, enum gp_precision precision)
{
	return (struct run){.whole = g, .count = 1, .graph = {g}, .plan = {make_plan(dev, g, 0, 0, precision)}};
}

static struct run make_split(struct gp_device *dev, const struct gp_graph *g, struct gp_cut cut,
			     enum gp_precision precision)
{
	struct run r = {.whole = g, .count = PARTS};
	OK(gp_graph_cut(g, &cut, &r.parts, &err));
	const struct gp_graph *const graph[] = {r.parts.head, r.parts.body, r.parts.tail};
	const uint64_t grads[] = {0, r.parts.body_gradient, r.parts.tail_gradient};
	const uint64_t activations[] = {0, r.parts.body_activation, r.parts.tail_activation};
	for (int k = 0; k < PARTS; k++) {
		r.graph[k] = graph[k];
		r.plan[k] = make_plan(dev, graph[k], grads[k], activations[k], precision);
	}
	return r;
}

static void drop(struct run *r)
{
	for (int k = 0; k < r->count; k++)
		r->plan[k]->ops->plan_free(r->plan[k]);
	gp_graph_parts_deinit(&r->parts);
}

static void *buffer(struct run *r, int part, int slot, enum gp_plan_buf which, int index)
{
	return r->plan[part]->ops->buffer(r->plan[part], slot, which, index);
}

static uint64_t count_of(const struct gp_type *type)
{
	return BATCH * gp_shape_elements(&type->shape);
}

static void fill_data(const struct gp_graph *g, int input, uint64_t chunk, void *out)
{
	const struct gp_type *type = &g->value[input].type;
	for (uint64_t i = 0; i < count_of(type); i++)
		if (type->dtype == GP_I32) /* some ids lie outside the table, some masks are 0 */
			((int32_t *)out)[i] = (int32_t)(gp_rng_u32(SEED + (uint64_t)input, chunk, i) % (VOCAB + 2)) - 1;
		else
			((float *)out)[i] = gp_rng_normal(SEED + (uint64_t)input, chunk, i);
}

static const struct gp_port *ports_of(const struct run *r, int part)
{
	return part == HEAD ? r->parts.head_in : part == BODY ? r->parts.body_in : r->parts.tail_in;
}

static void set_input(struct run *r, int part, int slot, int input, uint64_t chunk)
{
	void *to = buffer(r, part, slot, GP_BUF_INPUT, input);
	if (r->count == 1) {
		fill_data(r->whole, input, chunk, to);
		return;
	}
	const struct gp_port port = ports_of(r, part)[input];
	if (port.from == GP_FROM_DATA)
		fill_data(r->whole, port.index, chunk, to);
	else
		memcpy(to, buffer(r, port.from == GP_FROM_HEAD ? HEAD : BODY, slot, GP_BUF_OUTPUT, port.index),
		       count_of(&r->graph[part]->value[input].type) * sizeof(float));
}

static void forward(struct run *r, int slot, uint64_t chunk)
{
	for (int part = 0; part < r->count; part++) {
		for (int i = 0; i < r->graph[part]->inputs; i++)
			set_input(r, part, slot, i, chunk);
		OK(r->plan[part]->ops->forward(r->plan[part], slot, GP_TRAIN, chunk, &err));
	}
}

/* What the tail and the body say of an output of `part`, in this order. */
static void gather_gradient(struct run *r, int part, int slot, int output)
{
	float *to = buffer(r, part, slot, GP_BUF_GRAD_OUTPUT, output);
	bool any = false;
	for (int reader = TAIL; to && reader > part; reader--)
		for (int i = 0; i < r->graph[reader]->inputs; i++) {
			const struct gp_port port = ports_of(r, reader)[i];
			const float *from = buffer(r, reader, slot, GP_BUF_GRAD_INPUT, i);
			if (port.index != output || port.from != (part == HEAD ? GP_FROM_HEAD : GP_FROM_BODY) || !from)
				continue;
			for (uint64_t e = 0; e < count_of(&r->graph[reader]->value[i].type); e++)
				to[e] = any ? to[e] + from[e] : from[e];
			any = true;
		}
	assert_true(any || !to);
}

static double backward(struct run *r, int slot, uint64_t chunk)
{
	struct gp_plan *last = r->plan[r->count - 1];
	struct gp_loss_result loss;
	int32_t labels[BATCH];
	for (int i = 0; i < BATCH; i++)
		labels[i] = (int32_t)((chunk * 7 + (uint64_t)i * 3) % CLASSES);
	OK(last->ops->loss(last, slot, labels, BATCH, true, 1.0f / (BATCH * CHUNKS), &loss, &err));
	for (int part = r->count - 1; part >= 0; part--) {
		for (int i = 0; part < r->count - 1 && i < r->graph[part]->outputs; i++)
			gather_gradient(r, part, slot, i);
		OK(r->plan[part]->ops->backward(r->plan[part], slot, &err));
	}
	return loss.loss_sum;
}

/* One chunk's forward lies before another one's backward. */
static double run_step(struct run *r, uint64_t step)
{
	double loss = 0.0;
	for (int i = 0; i < CHUNKS + SLOTS - 1; i++) {
		const int back = i - (SLOTS - 1);
		if (i < CHUNKS)
			forward(r, i % SLOTS, step * CHUNKS + (uint64_t)i);
		if (back >= 0)
			loss += backward(r, back % SLOTS, step * CHUNKS + (uint64_t)back);
	}
	return loss;
}

static void update(struct run *r)
{
	for (int part = 0; part < r->count; part++)
		OK(r->plan[part]->ops->optim_step(r->plan[part], 0.05f, &err));
}

/* --- comparing ---------------------------------------------------------------------------------------------------- */

/* A parameter of the whole model, or its gradient, from the part that has it. */
static void read_param(struct run *r, const struct gp_param *q, bool grad, float *out)
{
	for (int part = 0; part < r->count; part++) {
		const int i = gp_graph_find_param(r->graph[part], q->name);
		if (i < 0)
			continue;
		assert_int_equal(r->graph[part]->param[i].trained, q->trained);
		OK(grad ? r->plan[part]->ops->grad_get(r->plan[part], i, out, &err)
			: r->plan[part]->ops->param_get(r->plan[part], i, out, &err));
		return;
	}
	fail_msg("no part has %s", q->name);
}

/* What a step made, and its update: loss, outputs, then for each parameter its gradient, if it has one, and its
 * value. */
static float *run_and_collect(struct run *r, uint64_t step)
{
	const uint64_t outputs = BATCH * CLASSES;
	float *all = gp_calloc(1 + SLOTS * outputs + 2 * r->whole->param_elements, sizeof *all), *at = all;
	assert_non_null(all);
	*at++ = (float)run_step(r, step);
	for (int s = 0; s < SLOTS; s++, at += outputs)
		memcpy(at, buffer(r, r->count - 1, s, GP_BUF_OUTPUT, 0), outputs * sizeof *at);
	for (int i = 0; i < r->whole->params; at += r->whole->param[i++].count)
		if (r->whole->param[i].trained)
			read_param(r, &r->whole->param[i], true, at);
	update(r);
	for (int i = 0; i < r->whole->params; at += r->whole->param[i++].count)
		read_param(r, &r->whole->param[i], false, at);
	return all;
}

static void expect_same(const struct gp_graph *g, const float *got, const float *want, struct gp_cut cut)
{
	const uint64_t before = 1 + SLOTS * BATCH * CLASSES;
	uint64_t from = before;
	if (memcmp(got, want, before * sizeof *got) != 0)
		fail_msg("cut %d:%d: outputs differ", cut.head, cut.tail);
	for (int i = 0; i < 2 * g->params; i++) {
		const struct gp_param *q = &g->param[i % g->params];
		for (uint64_t k = from; k < from + q->count; k++)
			if (memcmp(&got[k], &want[k], sizeof *got) != 0)
				fail_msg("cut %d:%d: %s of %s: element %llu is %.9g instead of %.9g", cut.head,
					 cut.tail, i < g->params ? "gradient" : "value", q->name,
					 (unsigned long long)(k - from), (double)got[k], (double)want[k]);
		from += q->count;
	}
}

static void check_cut(struct gp_device *dev, const struct gp_graph *g, struct gp_cut cut, enum gp_precision precision,
		      float *const *want)
{
	struct run split = make_split(dev, g, cut, precision);
	for (uint64_t step = 0; step < STEPS; step++) {
		float *got = run_and_collect(&split, step);
		expect_same(g, got, want[step], cut);
		gp_free(got);
	}
	drop(&split);
}

static void check_cuts(struct gp_device *dev, const struct gp_graph *g, int every, enum gp_precision precision)
{
	struct run whole = make_whole(dev, g, precision);
	float *want[STEPS];
	int number = 0;
	for (uint64_t step = 0; step < STEPS; step++)
		want[step] = run_and_collect(&whole, step);
	drop(&whole);
	for (int head = 1; head < g->blocks - 1; head++)
		for (int tail = head + 1; tail < g->blocks; tail++)
			if (number++ % every == 0 && !left_to_plain_runs(4, head + tail))
				check_cut(dev, g, (struct gp_cut){head, tail}, precision, want);
	for (int step = 0; step < STEPS; step++)
		gp_free(want[step]);
}

static void check_all_cuts(const char *device, int threads, const struct gp_graph *g, int every,
			   enum gp_precision precision)
{
	struct gp_device *dev;
	if (gp_device_open(device, threads, &dev, &err) != GP_OK)
		return; /* this build has none */
	if (gp_device_supports(dev, precision))
		check_cuts(dev, g, every, precision);
	dev->ops->close(dev);
}

/* Emulated kernels are slow: there every so-many-th cut has to do. */
static void check_everywhere(struct gp_graph *g, int emulated)
{
	check_all_cuts("cpu", 1, g, 1, GP_PRECISION_FP32);
	check_all_cuts("cpu", 2, g, 5, GP_PRECISION_FP32);
	check_all_cuts("cpu", 1, g, 7, GP_PRECISION_BF16);
	check_all_cuts("cuda-emulated", 1, g, emulated, GP_PRECISION_FP32);
	check_all_cuts("cuda-emulated", 1, g, emulated, GP_PRECISION_BF16);
	check_all_cuts("cuda", 1, g, 3, GP_PRECISION_FP32);
	check_all_cuts("cuda", 1, g, 3, GP_PRECISION_BF16);
	gp_graph_free(g);
}

static void cuts_inside_an_encoder_change_no_bit(void **state)
{
	(void)state;
	check_everywhere(build_encoder(), 23);
}

static void cuts_inside_residual_blocks_change_no_bit(void **state)
{
	(void)state;
	check_everywhere(build_residuals(), 23);
}

static void cuts_inside_inverted_residuals_change_no_bit(void **state)
{
	(void)state;
	check_everywhere(build_inverted(), 7);
}

static void cuts_around_norms_of_shared_values_change_no_bit(void **state)
{
	(void)state;
	check_everywhere(build_norms(), 3);
}

static void cuts_through_tokens_and_a_mask_change_no_bit(void **state)
{
	(void)state;
	check_everywhere(build_tokens(), 5);
}

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

/* --- frozen parts ------------------------------------------------------------------------------------------------- */

/* From the front up to somewhere in a residual block, in the middle, of a batch norm one parameter alone. */
static void frozen_parts_change_no_bit_wherever_the_cut_is(void **state)
{
	(void)state;
	static const char *const patterns[][3] = {{"stem*", "a0*", NULL},
						  {"a1_conv*", "b1*", "down_bn*"},
						  {"*_bn.weight", "fc.bias", NULL},
						  {"*_conv*", NULL, NULL}};
	for (size_t p = 0; p < sizeof patterns / sizeof patterns[0]; p++) {
		struct gp_graph *g = build_residuals();
		for (int k = 0; k < 3 && patterns[p][k]; k++)
			assert_true(gp_graph_freeze(g, patterns[p][k]) > 0);
		check_all_cuts("cpu", 1, g, 5, GP_PRECISION_FP32);
		check_all_cuts("cpu", 2, g, 23, GP_PRECISION_FP32);
		check_all_cuts("cuda-emulated", 1, g, 41, GP_PRECISION_FP32);
		check_all_cuts("cuda", 1, g, 5, GP_PRECISION_FP32);
		gp_graph_free(g);
	}
}

/* Where nothing before the cut is trained, no gradient crosses it. */
static void nothing_goes_back_into_a_frozen_head(void **state)
{
	(void)state;
	struct gp_graph *g = build_residuals();
	struct gp_device *dev;
	const struct gp_cut cut = {8, 20};
	assert_true(gp_graph_freeze_blocks(g, 0, cut.head) > 0);
	OK(gp_device_open("cpu", 1, &dev, &err));
	struct run r = make_split(dev, g, cut, GP_PRECISION_FP32);
	struct gp_plan_memory m;
	r.plan[HEAD]->ops->plan_memory(r.plan[HEAD], &m);
	assert_int_equal(m.grads + m.optim + m.activations, 0);
	assert_int_equal(r.parts.body_gradient, 0);
	assert_true(r.parts.body->inputs >= 2);
	for (int i = 0; i < r.parts.body->inputs; i++)
		assert_null(buffer(&r, BODY, 0, GP_BUF_GRAD_INPUT, i));
	for (int i = 0; i < r.parts.head->outputs; i++)
		assert_null(buffer(&r, HEAD, 0, GP_BUF_GRAD_OUTPUT, i));
	drop(&r);
	dev->ops->close(dev);
	gp_graph_free(g);
}

int main(int argc, char **argv)
{
	(void)argc;
	gp_threads_prepare(argv);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cuts_inside_residual_blocks_change_no_bit),
		cmocka_unit_test(cuts_inside_an_encoder_change_no_bit),
		cmocka_unit_test(cuts_inside_inverted_residuals_change_no_bit),
		cmocka_unit_test(cuts_around_norms_of_shared_values_change_no_bit),
		cmocka_unit_test(cuts_through_tokens_and_a_mask_change_no_bit),
		cmocka_unit_test(blocks_that_are_computed_twice_change_no_bit),
		cmocka_unit_test(norms_in_blocks_that_are_computed_twice_change_no_bit),
		cmocka_unit_test(frozen_parts_of_blocks_that_are_computed_twice_change_no_bit),
		cmocka_unit_test(blocks_that_are_computed_twice_keep_less),
		cmocka_unit_test(cuts_change_no_bit_where_maps_lie_encoded),
		cmocka_unit_test(cuts_of_frozen_parts_change_no_bit_where_maps_lie_encoded),
		cmocka_unit_test(cuts_change_no_bit_where_everything_passes_through_a_codec),
		cmocka_unit_test(frozen_parts_change_no_bit_wherever_the_cut_is),
		cmocka_unit_test(nothing_goes_back_into_a_frozen_head),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
