/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans whose depthwise convolutions and batch norms work for each other
 * (kernels/cuda/plan/cuda_share.c): a network cut between any two of its nodes,
 * where none of them can, ends in the same bits as in one piece, in every mode
 * of batch norm, in training, evaluation and calibration; and how many launches it saves. What
 * the numbers should be is test_cuda_ops.c's and test_cuda_norm_modes.c's.
 */
#include "common/graph/graph_part.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_elementwise.h"
#include "kernels/cuda/runtime/rt_tally.h"
#include "tests/unit/device_pair.h"

enum { BLOCKS = 10, SLOTS = 2, STEPS = 2, CHUNKS = 2 };

static struct gp_device *dev;

/* --- a network of one node, or of a batch norm with its activation, in each block ---------------------------------- */

static int begin_block(struct gp_graph *g, const char *name, int x)
{
	assert_true(x >= 0);
	OK(gp_graph_begin_block(g, name, &err));
	return x;
}

static int norm_block(struct gp_graph *g, const char *name, int x, enum gp_op act)
{
	char act_name[32];
	x = gp_graph_batch_norm(g, name, begin_block(g, name, x), 1e-5f, 0.1f, &err);
	snprintf(act_name, sizeof act_name, "%s_act", name);
	return act == GP_OP_INPUT ? x : gp_graph_unary(g, act, act_name, x, &err);
}

static int conv_block(struct gp_graph *g, const char *name, int x, int channels, int kernel, int stride, bool depthwise)
{
	return gp_graph_conv(g, name, begin_block(g, name, x), channels, kernel, stride, kernel / 2,
			     depthwise ? channels : 1, false, &err);
}

/* Beside the usual inverted residual: batch norms with a depthwise convolution on either side, and one without ReLU. */
static struct gp_graph *build(int side, int channels)
{
	const struct gp_shape sample = {.ndim = 3, .dim = {side, side, 8}};
	struct gp_graph *g = gp_graph_new("blocks", &sample, &err);
	assert_non_null(g);
	int x = conv_block(g, "expand", 0, channels, 1, 1, false);
	x = norm_block(g, "first", x, GP_OP_RELU6);
	x = conv_block(g, "deep", x, channels, 3, 1, true);
	x = norm_block(g, "second", x, GP_OP_RELU6);
	x = conv_block(g, "deeper", x, channels, 5, 2, true);
	x = norm_block(g, "third", x, GP_OP_INPUT);
	x = conv_block(g, "project", x, 12, 1, 1, false);
	x = norm_block(g, "fourth", x, GP_OP_RELU);
	x = conv_block(g, "deepest", x, 12, 3, 2, true);
	x = norm_block(g, "fifth", x, GP_OP_RELU);
	assert_true(x > 0);
	OK(gp_graph_finish(g, &err));
	assert_int_equal(g->blocks, BLOCKS);
	return g;
}

/* --- plans one behind the other ------------------------------------------------------------------------------------ */

struct parts {
	struct gp_graph *graph[2];
	struct gp_plan *plan[2];
	int count;
};

struct how {
	struct gp_bn_attr norm;
	enum gp_precision precision;
	int batch;
	bool frozen; /* every other batch norm */
};

static struct gp_plan *plan_for(const struct gp_graph *g, const struct how *how)
{
	const struct gp_plan_spec spec = {.graph = g,
					  .batch = how->batch,
					  .slots = SLOTS,
					  .train = true,
					  .undo = true,
					  .calibrate = true,
					  .grad_inputs = 1,
					  .seed = 5,
					  .precision = how->precision,
					  .optim = {.kind = GP_OPTIM_SGD, .momentum = 0.9f}};
	struct gp_plan *p;
	OK(dev->ops->plan_new(dev, &spec, &p, &err));
	return p;
}

/* at: the block before which it is cut; 0: nowhere. */
static struct parts make_parts(const struct gp_graph *g, const struct how *how, int at)
{
	struct parts p = {.count = at ? 2 : 1};
	for (int i = 0; i < p.count; i++) {
		OK(gp_graph_part(g, i ? at : 0, i || !at ? BLOCKS : at, &p.graph[i], &err));
		p.plan[i] = plan_for(p.graph[i], how);
	}
	return p;
}

static void drop_parts(struct parts *p)
{
	for (int i = 0; i < p->count; i++) {
		dev->ops->plan_free(p->plan[i]);
		gp_graph_free(p->graph[i]);
	}
}

static float *buffer(const struct parts *p, int part, int slot, enum gp_plan_buf which)
{
	return p->plan[part]->ops->buffer(p->plan[part], slot, which, 0);
}

static uint64_t floats_of(const struct parts *p, int part, bool input)
{
	const struct gp_graph *g = p->graph[part];
	const struct gp_type *t = input ? &g->value[0].type : gp_graph_output_type(g, 0);
	return (uint64_t)p->plan[part]->spec.batch * gp_shape_elements(&t->shape);
}

static void forward(const struct parts *p, int slot, enum gp_mode mode, uint64_t chunk)
{
	fill_port(p->plan[0], buffer(p, 0, slot, GP_BUF_INPUT), &p->graph[0]->value[0].type, 21, chunk);
	for (int i = 0; i < p->count; i++) {
		if (i)
			memcpy(buffer(p, i, slot, GP_BUF_INPUT), buffer(p, i - 1, slot, GP_BUF_OUTPUT),
			       floats_of(p, i, true) * sizeof(float));
		OK(p->plan[i]->ops->forward(p->plan[i], slot, mode, chunk, &err));
	}
}

static void backward(const struct parts *p, int slot, uint64_t chunk)
{
	const int last = p->count - 1;
	fill_port(p->plan[last], buffer(p, last, slot, GP_BUF_GRAD_OUTPUT), gp_graph_output_type(p->graph[last], 0), 22,
		  chunk);
	for (int i = last; i >= 0; i--) {
		if (i < last)
			memcpy(buffer(p, i, slot, GP_BUF_GRAD_OUTPUT), buffer(p, i + 1, slot, GP_BUF_GRAD_INPUT),
			       floats_of(p, i, false) * sizeof(float));
		OK(p->plan[i]->ops->backward(p->plan[i], slot, &err));
	}
}

static void update(const struct parts *p)
{
	for (int i = 0; i < p->count; i++)
		OK(p->plan[i]->ops->optim_step(p->plan[i], 0.01f, &err));
}

/* --- comparing ---------------------------------------------------------------------------------------------------- */

static void expect_equal_buffers(const struct parts *a, const struct parts *b, int slot, bool backwards)
{
	const int x = backwards ? 0 : a->count - 1, y = backwards ? 0 : b->count - 1;
	const enum gp_plan_buf which = backwards ? GP_BUF_GRAD_INPUT : GP_BUF_OUTPUT;
	assert_memory_equal(buffer(a, x, slot, which), buffer(b, y, slot, which),
			    floats_of(a, x, backwards) * sizeof(float));
}

static const float *param_of(const struct parts *p, const char *node, enum gp_param_role role, float *room)
{
	for (int i = 0; i < p->count; i++)
		for (int k = 0; k < p->graph[i]->params; k++) {
			const struct gp_param *q = &p->graph[i]->param[k];
			if (q->role != role || strcmp(p->graph[i]->node[q->node].name, node) != 0)
				continue;
			OK(p->plan[i]->ops->param_get(p->plan[i], k, room, &err));
			return room;
		}
	fail_msg("%s has no such parameter", node);
	return NULL;
}

static void expect_equal_params(const struct gp_graph *g, const struct parts *a, const struct parts *b)
{
	float x[4096], y[4096];
	for (int k = 0; k < g->params; k++) {
		const struct gp_param *q = &g->param[k];
		const char *node = g->node[q->node].name;
		assert_true(q->count <= 4096);
		if (memcmp(param_of(a, node, q->role, x), param_of(b, node, q->role, y), q->count * sizeof *x) != 0)
			fail_msg("%s, role %d, differs", node, (int)q->role);
	}
}

/* The fourth chunk is captured as a graph, the first ones are not. */
static void train_and_compare(const struct gp_graph *g, const struct parts *a, const struct parts *b)
{
	for (uint64_t step = 0; step < STEPS; step++) {
		for (uint64_t c = 0; c < CHUNKS; c++) {
			const int slot = (int)(c % SLOTS);
			for (int i = 0; i < 2; i++) {
				forward(i ? b : a, slot, GP_TRAIN, step * CHUNKS + c);
				backward(i ? b : a, slot, step * CHUNKS + c);
			}
			expect_equal_buffers(a, b, slot, false);
			expect_equal_buffers(a, b, slot, true);
		}
		update(a);
		update(b);
		expect_equal_params(g, a, b);
	}
}

static void compare_mode(const struct gp_graph *g, const struct parts *a, const struct parts *b, enum gp_mode mode)
{
	for (uint64_t c = 0; c < 2; c++) {
		forward(a, 0, mode, c);
		forward(b, 0, mode, c);
		expect_equal_buffers(a, b, 0, false);
	}
	expect_equal_params(g, a, b);
}

static void compare_cuts(struct gp_graph *g, const struct how *how, const int *cuts, int count)
{
	assert_true(gp_graph_set_batch_norm(g, &how->norm, &err) > 0);
	for (int i = 0; i < count; i++) {
		struct parts whole = make_parts(g, how, 0), cut = make_parts(g, how, cuts[i]);
		train_and_compare(g, &whole, &cut);
		compare_mode(g, &whole, &cut, GP_EVAL);
		compare_mode(g, &whole, &cut, GP_CALIBRATE);
		drop_parts(&whole);
		drop_parts(&cut);
	}
}

/* --- tests -------------------------------------------------------------------------------------------------------- */

static int open_it(void **state)
{
	(void)state;
	OK(gp_device_open(gp_cuda_ops()->name, 1, &dev, &err));
	return 0;
}

static int close_it(void **state)
{
	(void)state;
	dev->ops->close(dev);
	return 0;
}

static const struct gp_bn_attr modes[] = {
	{.mode = GP_BN_CHUNK, .eps = 1e-5f, .momentum = 0.1f},
	{.mode = GP_BN_DEFERRED, .eps = 1e-5f, .momentum = 0.1f},
	{.mode = GP_BN_RUNNING, .eps = 1e-5f, .momentum = 0.1f},
	{.mode = GP_BN_RENORM, .eps = 1e-5f, .momentum = 0.1f, .r_max = 3, .d_max = 5},
};
static const int everywhere[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
static const int around[] = {2, 3, 4, 5, 9};
static const int inside[] = {2, 3, 5}; /* between a batch norm and a convolution on either side of it */

/* Few rows everywhere; one pixel behind the strides; one sample. */
static void few_rows_end_in_the_same_bits_wherever_they_are_cut(void **state)
{
	(void)state;
	struct gp_graph *g = build(6, 16), *tiny = build(1, 8);
	const struct how how = {.norm = modes[0], .batch = 3},
			 narrow = {.norm = modes[0], .batch = 3, .precision = GP_PRECISION_BF16};
	const struct how one = {.norm = modes[2], .batch = 1};
	compare_cuts(g, &how, everywhere, 9);
	compare_cuts(g, &narrow, inside, 3);
	compare_cuts(tiny, &one, inside, 3);
	gp_graph_free(g);
	gp_graph_free(tiny);
}

/* 1849 rows, then 484, then 121. */
static void many_rows_end_in_the_same_bits_wherever_they_are_cut(void **state)
{
	(void)state;
	struct gp_graph *g = build(43, 8);
	const struct how how = {.norm = modes[0], .batch = 1},
			 narrow = {.norm = modes[0], .batch = 1, .precision = GP_PRECISION_BF16};
	compare_cuts(g, &how, around, 5);
	compare_cuts(g, &narrow, inside, 2);
	gp_graph_free(g);
}

static void all_modes_end_in_the_same_bits(void **state)
{
	(void)state;
	struct gp_graph *few = build(7, 8), *many = build(43, 8);
	for (int mode = 1; mode < 4; mode++) {
		const struct how how = {.norm = modes[mode], .batch = 2}, one = {.norm = modes[mode], .batch = 1};
		compare_cuts(few, &how, inside, 3);
		compare_cuts(many, &one, inside + 1, 2);
	}
	gp_graph_free(few);
	gp_graph_free(many);
}

/* Channels that no code of its own takes: everything stays apart, and right. */
static void odd_channels_stay_apart(void **state)
{
	(void)state;
	struct gp_graph *g = build(9, 7);
	const struct how how = {.norm = modes[0], .batch = 2};
	compare_cuts(g, &how, inside, 3);
	gp_graph_free(g);
}

static void freeze(struct gp_graph *g)
{
	for (int k = 0; k < g->params; k++)
		if (strcmp(g->node[g->param[k].node].name, "first") == 0 ||
		    strcmp(g->node[g->param[k].node].name, "third") == 0)
			g->param[k].trained = false;
	gp_graph_count_trained(g);
}

static void frozen_batch_norms_end_in_the_same_bits(void **state)
{
	(void)state;
	for (int many = 0; many < 2; many++) {
		struct gp_graph *g = build(many ? 43 : 6, 8);
		const struct how how = {.norm = modes[0], .batch = 1};
		freeze(g);
		compare_cuts(g, &how, inside, 2);
		gp_graph_free(g);
	}
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

static int queued;

static void count(void *arg, const char *what, uint64_t blocks)
{
	(void)arg;
	(void)what;
	(void)blocks;
	queued++;
}

/* The profile keeps the plan from making graphs, in which launches could not be seen. */
static int launches_of(const struct parts *p, bool backwards)
{
	const struct gp_plan_profile *profile;
	OK(p->plan[0]->ops->profile(p->plan[0], &profile, &err));
	forward(p, 0, GP_TRAIN, 0);
	queued = 0;
	gp_rt_tally(count, NULL);
	if (backwards)
		backward(p, 0, 0);
	else
		forward(p, 0, GP_TRAIN, 0);
	gp_rt_tally(NULL, NULL);
	return queued;
}

/* A copy in and one out each way, two products, their gradients, five weights; and what is left of the rest. */
static void neighbours_save_launches(void **state)
{
	(void)state;
	struct gp_graph *few = build(6, 8), *many = build(43, 8);
	const struct how how = {.norm = modes[0], .batch = 1};
	struct parts p = make_parts(few, &how, 0), q = make_parts(many, &how, 0);
	/* First to second; deeper; third; fourth to fifth. */
	assert_int_equal(launches_of(&p, false), 2 + 2 + 4);
	/* Fifth; fourth with deepest; third; deeper; second; first with deep. */
	assert_int_equal(launches_of(&p, true), 2 + 2 + 5 + 6);
	/* First's sums; deep with first and second's sums; deeper with second; third; fourth to fifth. */
	assert_int_equal(launches_of(&q, false), 2 + 2 + 5);
	/* Fifth; fourth with deepest; third; deeper with second's sums; second; deep with first's; first. */
	assert_int_equal(launches_of(&q, true), 2 + 2 + 5 + 7);
	drop_parts(&p);
	drop_parts(&q);
	gp_graph_free(few);
	gp_graph_free(many);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(few_rows_end_in_the_same_bits_wherever_they_are_cut),
		cmocka_unit_test(many_rows_end_in_the_same_bits_wherever_they_are_cut),
		cmocka_unit_test(all_modes_end_in_the_same_bits),
		cmocka_unit_test(odd_channels_stay_apart),
		cmocka_unit_test(frozen_batch_norms_end_in_the_same_bits),
		cmocka_unit_test(neighbours_save_launches),
	};
	return run_on_gpu(tests, open_it, close_it);
}
