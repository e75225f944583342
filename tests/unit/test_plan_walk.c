/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a plan's values lie, on graphs drawn at random of several inputs and
 * outputs: nodes with many inputs and outputs, values with many readers, views,
 * outputs that are read inside, integers. A plan computes, on every device, what
 * an interpreter in this file computes that gives each value and each gradient
 * memory of its own, bit for bit; so nothing is overwritten too early.
 * See kernels/plan/plan_walk.h.
 */
#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/base/threads.h"
#include "common/codec/codec.h"
#include "common/graph/device.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_shape.h"
#include "kernels/device_registry.h"
#include "tests/unit/ok.h"

enum { BATCH = 3, SLOTS = 2, ROUNDS = 2, GRAPHS = 250, MOST_VALUES = 80 };

static const char *const devices[] = {"cpu", "cuda-emulated", "cuda"};

/* --- graphs at random --------------------------------------------------------------------------------------------- */

struct drawing {
	struct gp_graph *g;
	uint64_t seed, draws;
	bool read[MOST_VALUES];
};

static int draw(struct drawing *d, int low, int high)
{
	return low + (int)(gp_rng_u32(d->seed, 1, d->draws++) % (uint32_t)(high - low + 1));
}

static int width_of(const struct gp_graph *g, int value)
{
	return (int)g->value[value].type.shape.dim[0];
}

static bool is_integer(const struct gp_graph *g, int value)
{
	return g->value[value].type.dtype == GP_I32;
}

/* A value of so many features (0: any), which there is; every other time one that nobody has read, if there is such. */
static int draw_value(struct drawing *d, int width)
{
	int fit[MOST_VALUES], count = 0;
	for (int fresh = draw(d, 0, 1); count == 0; fresh = 0)
		for (int v = 0; v < d->g->values; v++)
			if (!is_integer(d->g, v) && (!width || width_of(d->g, v) == width) && !(fresh && d->read[v]))
				fit[count++] = v;
	return fit[draw(d, 0, count - 1)];
}

static int add_sum(struct drawing *d, const char *name)
{
	int in[4] = {draw_value(d, 0)};
	const int inputs = draw(d, 2, 4);
	for (int k = 1; k < inputs; k++)
		in[k] = draw_value(d, width_of(d->g, in[0]));
	return gp_graph_append(d->g, (struct gp_node){.op = GP_OP_ADD}, name, inputs, in, &err);
}

static int add_concat(struct drawing *d, const char *name)
{
	int in[3];
	const int inputs = draw(d, 1, 3);
	for (int k = 0; k < inputs; k++)
		in[k] = draw_value(d, draw(d, 0, 1) ? 8 : 0);
	return gp_graph_concat(d->g, name, inputs, in, &err);
}

static int add_split(struct drawing *d, const char *name)
{
	const int in = draw_value(d, 0), width = width_of(d->g, in);
	return gp_graph_split(d->g, name, in, width % 4 == 0 && draw(d, 0, 1) ? 4 : width % 2 == 0 ? 2 : 1, &err);
}

static void add_node(struct drawing *d, int number)
{
	static const enum gp_op unary[] = {GP_OP_RELU, GP_OP_RELU6, GP_OP_IDENTITY, GP_OP_FLATTEN};
	char name[32];
	int value;
	snprintf(name, sizeof name, "n%d", number);
	const int kind = draw(d, 0, 9);
	if (kind < 4)
		value = add_sum(d, name);
	else if (kind < 7)
		value = gp_graph_unary(d->g, unary[draw(d, 0, 3)], name, draw_value(d, 0), &err);
	else
		value = kind < 8 ? add_concat(d, name) : add_split(d, name);
	if (value < 0)
		fail_msg("%s", err.text);
	const struct gp_node *n = gp_graph_maker(d->g, value);
	for (int k = 0; k < n->inputs; k++)
		d->read[n->in[k]] = true;
}

/* Whatever nobody has read is read by a node of its own; an output is what nobody reads, and some values besides. */
static void end_graph(struct drawing *d)
{
	int output[GP_GRAPH_MAX_PORTS], outputs = 0;
	char name[32];
	for (int v = 0; v < d->g->inputs; v++) {
		snprintf(name, sizeof name, "of_input%d", v);
		if (!d->read[v])
			assert_true(gp_graph_unary(d->g, GP_OP_IDENTITY, name, v, &err) > 0);
	}
	for (int i = d->g->inputs; i < d->g->nodes; i++) {
		const struct gp_node *n = &d->g->node[i];
		bool used = false;
		for (int v = n->first_value; v < n->first_value + n->outputs; v++)
			used = used || d->read[v];
		for (int v = n->first_value; v < n->first_value + n->outputs; v++)
			if ((!used && v == n->first_value) || draw(d, 0, 5) == 0)
				output[outputs++] = v;
	}
	const int last = output[0];
	output[0] = output[outputs - 1];
	output[outputs - 1] = last;
	OK(gp_graph_set_outputs(d->g, outputs, output, &err));
	OK(gp_graph_finish(d->g, &err));
}

static struct gp_graph *draw_graph(uint64_t seed)
{
	struct drawing d = {.g = gp_graph_new_empty("drawn", &err), .seed = seed};
	const struct gp_type wide = {GP_F32, {.ndim = 1, .dim = {8}}}, narrow = {GP_F32, {.ndim = 1, .dim = {4}}};
	const struct gp_type integers = {GP_I32, {.ndim = 1, .dim = {5}}};
	assert_non_null(d.g);
	assert_int_equal(gp_graph_add_input(d.g, "a", &wide, &err), 0);
	if (draw(&d, 0, 1))
		assert_int_equal(gp_graph_add_input(d.g, "b", &narrow, &err), 1);
	if (draw(&d, 0, 2) == 0)
		assert_true(gp_graph_add_input(d.g, "ids", &integers, &err) > 0);
	OK(gp_graph_begin_block(d.g, "block", &err));
	for (int i = draw(&d, 1, 14); i > 0; i--)
		add_node(&d, i);
	end_graph(&d);
	return d.g;
}

/* --- the interpreter ---------------------------------------------------------------------------------------------- */

struct interpreter {
	const struct gp_graph *g;
	float *value[MOST_VALUES], *grad[MOST_VALUES];
	bool needs[MOST_VALUES], has_grad[MOST_VALUES];
};

static uint64_t count_of(const struct gp_graph *g, int value)
{
	return BATCH * gp_shape_elements(&g->value[value].type.shape);
}

static struct interpreter make_interpreter(const struct gp_graph *g, uint64_t grad_inputs)
{
	struct interpreter in = {.g = g};
	assert_true(g->values <= MOST_VALUES);
	gp_graph_find_gradients(g, grad_inputs, in.needs);
	for (int v = 0; v < g->values; v++) {
		in.value[v] = gp_calloc(count_of(g, v), sizeof(float));
		in.grad[v] = gp_calloc(count_of(g, v), sizeof(float));
		assert_true(in.value[v] && in.grad[v]);
	}
	return in;
}

static void drop_interpreter(struct interpreter *in)
{
	for (int v = 0; v < in->g->values; v++) {
		gp_free(in->value[v]);
		gp_free(in->grad[v]);
	}
}

/* Columns [at, at + width) of every row of `whole`, to or from `part`. */
static void move_columns(float *whole, int64_t wide, float *part, int64_t width, int64_t at, bool out_of)
{
	for (int64_t r = 0; r < BATCH; r++) {
		float *a = whole + r * wide + at, *b = part + r * width;
		memcpy(out_of ? b : a, out_of ? a : b, (size_t)width * sizeof *a);
	}
}

static float activated(enum gp_op op, float x)
{
	const float v = x < 0.0f ? 0.0f : x;
	return op == GP_OP_RELU6 && v > 6.0f ? 6.0f : v;
}

static void forward_columns(struct interpreter *in, const struct gp_node *n)
{
	const bool join = n->op == GP_OP_CONCAT;
	const int whole = join ? n->first_value : n->in[0], parts = join ? n->inputs : n->outputs;
	int64_t at = 0;
	for (int k = 0; k < parts; k++) {
		const int part = join ? n->in[k] : n->first_value + k, width = width_of(in->g, part);
		move_columns(in->value[whole], width_of(in->g, whole), in->value[part], width, at, !join);
		at += width;
	}
}

static void forward_node(struct interpreter *in, const struct gp_node *n)
{
	float *out = in->value[n->first_value];
	const uint64_t count = count_of(in->g, n->first_value);
	if (n->op == GP_OP_CONCAT || n->op == GP_OP_SPLIT) {
		forward_columns(in, n);
		return;
	}
	memcpy(out, in->value[n->in[0]], count * sizeof *out);
	for (int k = 1; k < n->inputs; k++)
		for (uint64_t i = 0; i < count; i++)
			out[i] += in->value[n->in[k]][i];
	for (uint64_t i = 0; i < count && (n->op == GP_OP_RELU || n->op == GP_OP_RELU6); i++)
		out[i] = activated(n->op, out[i]);
}

static void contribute(struct interpreter *in, int value, const float *dx)
{
	for (uint64_t i = 0; i < count_of(in->g, value) && in->needs[value]; i++)
		in->grad[value][i] = in->has_grad[value] ? in->grad[value][i] + dx[i] : dx[i];
	in->has_grad[value] = in->needs[value];
}

static void backward_columns(struct interpreter *in, const struct gp_node *n, float *room)
{
	const bool join = n->op == GP_OP_CONCAT;
	const int whole = join ? n->first_value : n->in[0], parts = join ? n->inputs : n->outputs;
	int64_t at = 0;
	for (int k = 0; k < parts; k++) {
		const int part = join ? n->in[k] : n->first_value + k, width = width_of(in->g, part);
		if (join) {
			move_columns(in->grad[whole], width_of(in->g, whole), room, width, at, true);
			contribute(in, part, room);
		} else { /* of a part that nobody reads the gradient is zeros */
			move_columns(room, width_of(in->g, whole), in->grad[part], width, at, false);
		}
		at += width;
	}
	if (!join)
		contribute(in, whole, room);
}

static void backward_node(struct interpreter *in, const struct gp_node *n, float *room)
{
	const float *out = in->value[n->first_value], *dout = in->grad[n->first_value];
	if (n->op == GP_OP_CONCAT || n->op == GP_OP_SPLIT) {
		backward_columns(in, n, room);
		return;
	}
	memcpy(room, dout, count_of(in->g, n->first_value) * sizeof *room);
	for (uint64_t i = 0; i < count_of(in->g, n->first_value); i++)
		if ((n->op == GP_OP_RELU || n->op == GP_OP_RELU6) &&
		    !(out[i] > 0.0f && (n->op == GP_OP_RELU || out[i] < 6.0f)))
			room[i] = 0.0f;
	for (int k = 0; k < n->inputs; k++)
		contribute(in, n->in[k], room);
}

static void interpret(struct interpreter *in)
{
	for (int i = in->g->inputs; i < in->g->nodes; i++)
		forward_node(in, &in->g->node[i]);
}

/* Gradients of outputs are there; those of the others begin with nothing. */
static void interpret_backward(struct interpreter *in)
{
	float room[BATCH * 1024];
	for (int i = in->g->nodes - 1; i >= in->g->inputs; i--) {
		const struct gp_node *n = &in->g->node[i];
		bool any = false;
		for (int k = 0; k < n->inputs; k++)
			any = any || in->needs[n->in[k]];
		assert_true(count_of(in->g, n->in[0]) <= BATCH * 1024 &&
			    count_of(in->g, n->first_value) <= BATCH * 1024);
		if (any)
			backward_node(in, n, room);
	}
}

/* --- a plan beside it --------------------------------------------------------------------------------------------- */

static bool few_bits; /* small integers */

static void fill(const struct gp_graph *g, int value, float *out, uint64_t stream)
{
	for (uint64_t i = 0; i < count_of(g, value); i++)
		out[i] = few_bits ? (float)(gp_rng_u32(7, stream, i) % 5) - 2.0f : 3.0f * gp_rng_normal(7, stream, i);
	if (is_integer(g, value)) /* also such as are no number when they are read as one */
		for (uint64_t i = 0; i < count_of(g, value); i++)
			memcpy(&out[i], &(uint32_t){gp_rng_u32(7, stream, i)}, sizeof *out);
}

static void expect_equal(const struct gp_graph *g, int value, const float *got, const float *want, const char *what,
			 uint64_t seed)
{
	char name[GP_NAME_MAX];
	if (!got || memcmp(got, want, count_of(g, value) * sizeof *want) != 0)
		fail_msg("graph %llu: %s of %s differs", (unsigned long long)seed, what, gp_value_name(g, value, name));
}

static void set_inputs(struct gp_plan *p, int slot, struct interpreter *in, uint64_t chunk)
{
	const struct gp_graph *g = in->g;
	for (int i = 0; i < g->inputs; i++) {
		fill(g, i, in->value[i], 100 * chunk + (uint64_t)i);
		memcpy(p->ops->buffer(p, slot, GP_BUF_INPUT, i), in->value[i], count_of(g, i) * sizeof(float));
	}
}

static void compare_outputs(struct gp_plan *p, int slot, struct interpreter *in, uint64_t seed)
{
	for (int i = 0; i < in->g->outputs; i++) {
		const int v = in->g->output[i].value;
		expect_equal(in->g, v, p->ops->buffer(p, slot, GP_BUF_OUTPUT, i), in->value[v], "value", seed);
	}
}

/* Outputs whose gradient nobody needs have no buffer for it. */
static void set_gradients(struct gp_plan *p, int slot, struct interpreter *in, uint64_t chunk)
{
	const struct gp_graph *g = in->g;
	memset(in->has_grad, 0, sizeof in->has_grad);
	for (int v = 0; v < g->values; v++)
		memset(in->grad[v], 0, count_of(g, v) * sizeof(float));
	for (int i = 0; i < g->outputs; i++) {
		const int v = g->output[i].value;
		float *to = p->ops->buffer(p, slot, GP_BUF_GRAD_OUTPUT, i);
		assert_int_equal(to != NULL, in->needs[v]);
		if (!to)
			continue;
		fill(g, v, in->grad[v], 100 * chunk + 50 + (uint64_t)i);
		memcpy(to, in->grad[v], count_of(g, v) * sizeof *to);
		in->has_grad[v] = true;
	}
}

static void compare_gradients(struct gp_plan *p, int slot, struct interpreter *in, uint64_t seed)
{
	for (int i = 0; i < in->g->inputs; i++) {
		const float *got = p->ops->buffer(p, slot, GP_BUF_GRAD_INPUT, i);
		assert_int_equal(got != NULL, in->needs[i]);
		if (got)
			expect_equal(in->g, i, got, in->grad[i], "gradient", seed);
	}
}

/* Chunks of both slots forward, one of them evaluated in between on a third, then both backward. */
static void run_training_with(struct gp_device *dev, const struct gp_graph *g, uint64_t seed, uint64_t grad_inputs,
			      bool recompute, const struct gp_codec_spec *maps)
{
	const struct gp_plan_spec spec = {.graph = g,
					  .batch = BATCH,
					  .slots = SLOTS,
					  .train = true,
					  .recompute = recompute,
					  .maps = maps,
					  .map_inputs = maps ? seed % 4 : 0,
					  .grad_inputs = grad_inputs,
					  .seed = 1};
	struct interpreter in[SLOTS];
	struct gp_plan *p;
	OK(dev->ops->plan_new(dev, &spec, &p, &err));
	for (int s = 0; s < SLOTS; s++)
		in[s] = make_interpreter(g, grad_inputs);
	for (uint64_t round = 0; round < ROUNDS; round++) {
		for (int s = 0; s < SLOTS; s++) {
			set_inputs(p, s, &in[s], 2 * round + (uint64_t)s);
			OK(dev->ops->forward(p, s, GP_TRAIN, 0, &err));
		}
		for (int s = 0; s < SLOTS; s++) {
			interpret(&in[s]);
			compare_outputs(p, s, &in[s], seed);
			set_gradients(p, s, &in[s], 2 * round + (uint64_t)s);
			OK(dev->ops->backward(p, s, &err));
		}
		for (int s = 0; s < SLOTS; s++) {
			interpret_backward(&in[s]);
			compare_gradients(p, s, &in[s], seed);
		}
	}
	for (int s = 0; s < SLOTS; s++)
		drop_interpreter(&in[s]);
	dev->ops->plan_free(p);
}

static void run_training(struct gp_device *dev, const struct gp_graph *g, uint64_t seed, uint64_t grad_inputs,
			 bool recompute)
{
	run_training_with(dev, g, seed, grad_inputs, recompute, NULL);
}

static void run_evaluation(struct gp_device *dev, const struct gp_graph *g, uint64_t seed)
{
	const struct gp_plan_spec spec = {.graph = g, .batch = BATCH, .slots = 1};
	struct interpreter in = make_interpreter(g, 0);
	struct gp_plan *p;
	OK(dev->ops->plan_new(dev, &spec, &p, &err));
	for (uint64_t chunk = 0; chunk < 2; chunk++) {
		set_inputs(p, 0, &in, chunk);
		OK(dev->ops->forward(p, 0, GP_EVAL, 0, &err));
		interpret(&in);
		compare_outputs(p, 0, &in, seed);
	}
	drop_interpreter(&in);
	dev->ops->plan_free(p);
}

static void plans_of_drawn_graphs_compute_what_an_interpreter_does(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
		struct gp_device *dev;
		if (gp_device_open(devices[i], 1, &dev, &err) != GP_OK)
			continue;
		for (uint64_t seed = 0; seed < GRAPHS; seed++) {
			struct gp_graph *g = draw_graph(seed);
			run_training(dev, g, seed, gp_rng_u32(seed, 2, 0) % 8, false);
			run_evaluation(dev, g, seed);
			gp_graph_free(g);
		}
		dev->ops->close(dev);
	}
}

/* Blocks that begin at nodes drawn at random: one after every second or third node. */
static void draw_blocks(struct gp_graph *g, uint64_t seed)
{
	uint32_t before[MOST_VALUES];
	size_t count = 0;
	for (int i = 1; i < g->nodes - g->inputs; i++)
		if (gp_rng_u32(seed, 3, (uint64_t)i) % 5 < 2)
			before[count++] = (uint32_t)i;
	OK(gp_graph_set_blocks(g, count, before, &err));
	assert_int_equal(g->blocks, count + 1);
}

static void blocks_that_are_computed_twice_compute_the_same(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
		struct gp_device *dev;
		if (gp_device_open(devices[i], 1, &dev, &err) != GP_OK)
			continue;
		for (uint64_t seed = 0; seed < GRAPHS; seed++) {
			struct gp_graph *g = draw_graph(seed);
			run_training(dev, g, seed, gp_rng_u32(seed, 2, 0) % 8, true);
			draw_blocks(g, seed);
			run_training(dev, g, seed, gp_rng_u32(seed, 2, 0) % 8, true);
			gp_graph_free(g);
		}
		dev->ops->close(dev);
	}
}

/* Values of few bits, which fp16 keeps as they are, whatever is added up. */
static void maps_that_lie_encoded_without_loss_change_nothing(void **state)
{
	(void)state;
	struct gp_codec_spec spec;
	OK(gp_codec_spec_parse("fp16", &spec, &err));
	few_bits = true;
	for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
		struct gp_device *dev;
		if (gp_device_open(devices[i], 1, &dev, &err) != GP_OK)
			continue;
		for (uint64_t seed = 0; seed < GRAPHS; seed++) {
			struct gp_graph *g = draw_graph(seed);
			run_training_with(dev, g, seed, gp_rng_u32(seed, 2, 0) % 8, false, &spec);
			draw_blocks(g, seed);
			run_training_with(dev, g, seed, gp_rng_u32(seed, 2, 0) % 8, false, &spec);
			gp_graph_free(g);
		}
		dev->ops->close(dev);
	}
	few_bits = false;
}

/* --- what is drawn too seldom ------------------------------------------------------------------------------------- */

/* Nobody reads the middle part: it is not made, and its gradient is zeros. */
static struct gp_graph *build_split(void)
{
	const struct gp_shape row = {.ndim = 1, .dim = {12}};
	struct gp_graph *g = gp_graph_new("split", &row, &err);
	OK(gp_graph_begin_block(g, "block", &err));
	const int parts = gp_graph_split(g, "parts", 0, 3, &err);
	const int act = gp_graph_unary(g, GP_OP_RELU, "act", parts + 2, &err);
	OK(gp_graph_set_outputs(g, 2, (const int[]){act, parts}, &err));
	OK(gp_graph_finish(g, &err));
	return g;
}

/* Views of the input, of an output, and of a view, each an output. */
static struct gp_graph *build_views(void)
{
	const struct gp_shape row = {.ndim = 1, .dim = {8}};
	struct gp_graph *g = gp_graph_new("views", &row, &err);
	OK(gp_graph_begin_block(g, "block", &err));
	const int a = gp_graph_unary(g, GP_OP_IDENTITY, "a", 0, &err);
	const int b = gp_graph_unary(g, GP_OP_IDENTITY, "b", a, &err);
	const int c = gp_graph_sum(g, "c", b, a, &err), d = gp_graph_unary(g, GP_OP_IDENTITY, "d", c, &err);
	const int e = gp_graph_unary(g, GP_OP_FLATTEN, "e", d, &err), f = gp_graph_unary(g, GP_OP_RELU, "f", c, &err);
	OK(gp_graph_set_outputs(g, 6, (const int[]){f, e, d, c, b, a}, &err));
	OK(gp_graph_finish(g, &err));
	return g;
}

/* A gradient that two inputs and two outputs share. */
static struct gp_graph *build_shared(void)
{
	const struct gp_type row = {GP_F32, {.ndim = 1, .dim = {8}}};
	struct gp_graph *g = gp_graph_new_empty("shared", &err);
	assert_int_equal(gp_graph_add_input(g, "a", &row, &err), 0);
	assert_int_equal(gp_graph_add_input(g, "b", &row, &err), 1);
	OK(gp_graph_begin_block(g, "block", &err));
	const int s = gp_graph_sum(g, "s", 0, 1, &err), t = gp_graph_sum(g, "t", s, s, &err);
	OK(gp_graph_set_outputs(g, 2, (const int[]){t, s}, &err));
	OK(gp_graph_finish(g, &err));
	return g;
}

static void edges_that_share_memory_are_told_apart(void **state)
{
	(void)state;
	struct gp_graph *(*const build[])(void) = {build_split, build_views, build_shared};
	for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
		struct gp_device *dev;
		if (gp_device_open(devices[i], 2, &dev, &err) != GP_OK)
			continue;
		for (size_t k = 0; k < sizeof build / sizeof build[0]; k++)
			for (uint64_t grads = 0; grads < 4; grads++) {
				struct gp_graph *g = build[k]();
				run_training(dev, g, k, grads, false);
				run_evaluation(dev, g, k);
				gp_graph_free(g);
			}
		dev->ops->close(dev);
	}
}

static void buffers_there_are_none_of_are_null(void **state)
{
	(void)state;
	struct gp_graph *g = build_shared();
	const struct gp_plan_spec spec = {
		.graph = g, .batch = BATCH, .slots = 1, .train = true, .grad_inputs = 2, .seed = 1};
	for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
		struct gp_device *dev;
		struct gp_plan *p;
		if (gp_device_open(devices[i], 1, &dev, &err) != GP_OK)
			continue;
		OK(dev->ops->plan_new(dev, &spec, &p, &err));
		for (int index = -1; index < 4; index++) {
			const bool there = index == 0 || index == 1;
			assert_int_equal(dev->ops->buffer(p, 0, GP_BUF_INPUT, index) != NULL, there);
			assert_int_equal(dev->ops->buffer(p, 0, GP_BUF_OUTPUT, index) != NULL, there);
			assert_int_equal(dev->ops->buffer(p, 0, GP_BUF_GRAD_OUTPUT, index) != NULL, there);
			assert_int_equal(dev->ops->buffer(p, 0, GP_BUF_GRAD_INPUT, index) != NULL, index == 1);
		}
		dev->ops->plan_free(p);
		dev->ops->close(dev);
	}
	gp_graph_free(g);
}

/* 300 nodes that read the same value 64 times each: as many gradients to be added, and room for each. */
static void plan_of_too_many_pieces_is_refused(void **state)
{
	(void)state;
	enum { NODES = 300 };
	int sum = -1, same[GP_NODE_MAX_INPUTS];
	struct gp_graph *g = gp_graph_new_empty("wide", &err);
	const int x = gp_graph_add_input(g, "x", &(struct gp_type){GP_F32, {.ndim = 1, .dim = {1}}}, &err);
	for (int k = 0; k < GP_NODE_MAX_INPUTS; k++)
		same[k] = x;
	OK(gp_graph_begin_block(g, "body", &err));
	for (int i = 0; i < NODES; i++) {
		char name[2][16];
		snprintf(name[0], sizeof name[0], "join%d", i);
		snprintf(name[1], sizeof name[1], "sum%d", i);
		const int joined = gp_graph_concat(g, name[0], GP_NODE_MAX_INPUTS, same, &err);
		sum = i == 0 ? joined
			     : gp_graph_append(g, (struct gp_node){.op = GP_OP_ADD}, name[1], 2,
					       (const int[]){sum, joined}, &err);
		assert_true(sum >= 0);
	}
	OK(gp_graph_set_outputs(g, 1, &sum, &err));
	OK(gp_graph_finish(g, &err));
	struct gp_plan *p = NULL;
	const struct gp_plan_spec spec = {.graph = g, .batch = 1, .slots = 1, .train = true, .grad_inputs = 1};
	struct gp_device *device;
	OK(gp_device_open("cpu", 1, &device, &err));
	assert_int_equal(device->ops->plan_new(device, &spec, &p, &err), GP_INVALID);
	assert_non_null(strstr(err.text, "more than 16384 pieces of memory"));
	device->ops->close(device);
	gp_graph_free(g);
}

int main(int argc, char **argv)
{
	(void)argc;
	gp_threads_prepare(argv);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plans_of_drawn_graphs_compute_what_an_interpreter_does),
		cmocka_unit_test(blocks_that_are_computed_twice_compute_the_same),
		cmocka_unit_test(maps_that_lie_encoded_without_loss_change_nothing),
		cmocka_unit_test(edges_that_share_memory_are_told_apart),
		cmocka_unit_test(buffers_there_are_none_of_are_null),
		cmocka_unit_test(plan_of_too_many_pieces_is_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
