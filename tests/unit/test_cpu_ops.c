/* SPDX-License-Identifier: Apache-2.0
 *
 * Single ops of the CPU device against PyTorch: forward, input gradients,
 * parameter gradients, accumulation over chunks, on 1 and 2 threads and with
 * every vector width. Reference: tests/golden/ops/ops.safetensors, made by
 * tests/tools/dump_ops.py. To add a case: only there. An op without a case fails,
 * and so does a case that no test reads.
 */
#include <math.h>
#include <string.h>

#include "common/graph/device.h"
#include "common/graph/op.h"
#include "kernels/device_registry.h"
#include "common/base/mem.h"
#include "common/store/safetensors.h"
#include "common/base/threads.h"
#include "kernels/loops/simd.h"
#include "tests/unit/ok.h"
#include "tests/unit/test_device.h"
#include "common/graph/ops/op_linear.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_elementwise.h"

#define TOLERANCE 1e-5 /* relative L2 */
#define MAX_ATTR  16

static struct gp_st_file *dump;
/* --- the dump --------------------------------------------------------------------------------------------------- */

static const struct gp_st_tensor *find(const char *name, const char *key)
{
	char full[128];
	snprintf(full, sizeof full, "%s/%s", name, key);
	return gp_st_find(dump, full);
}

static const struct gp_st_tensor *need(const char *name, const char *key)
{
	const struct gp_st_tensor *t = find(name, key);
	if (!t)
		fail_msg("the dump has no %s/%s", name, key);
	return t;
}

/* Caller frees. */
static float *load(const char *name, const char *key)
{
	const struct gp_st_tensor *t = need(name, key);
	float *v = gp_calloc(t->count, sizeof *v);
	assert_non_null(v);
	OK(gp_st_read_f32(t, v, &err));
	return v;
}

static int load_ints(const char *name, const char *key, int32_t *out, int cap)
{
	const struct gp_st_tensor *t = need(name, key);
	assert_int_equal(t->dtype, GP_ST_I32);
	assert_true(t->count <= (uint64_t)cap);
	memcpy(out, t->data, t->count * sizeof *out);
	return (int)t->count;
}

static void check(const char *name, const char *key, const float *got)
{
	float *want = load(name, key);
	double e = relative_l2(got, want, need(name, key)->count);
	gp_free(want);
	if (!(e < TOLERANCE))
		fail_msg("%s/%s: relative L2 error %.3g", name, key, e);
}

/* --- one op as a graph and a plan ------------------------------------------------------------------------------- */

struct bed { /* test bed of one case */
	const char *name;
	struct gp_graph *graph;
	struct gp_device *dev;
	struct gp_plan *plan;
};

/* The dump has the activation behind a batch norm, its mode and its limits. */
static void set_batch_norm(struct gp_node *n, const int32_t *a)
{
	gp_set_bn_attr(n, (struct gp_bn_attr){.eps = 1e-5f, .momentum = 0.1f, .mode = a[2]});
	n->attr[3].i = a[3];
	n->attr[4].i = a[4];
}

/* `a` as dump_ops.py has it: the op, then its attributes in order. */
static void set_attributes(struct gp_node *n, const int32_t *a)
{
	const struct gp_op_def *def = gp_op_def(n->op);
	if (n->op == GP_OP_BATCH_NORM) {
		set_batch_norm(n, a);
		return;
	}
	assert_true(def->attrs < MAX_ATTR);
	for (int i = 0; i < def->attrs; i++)
		n->attr[i].i = a[1 + i]; /* a real one is there as its bits */
}

/* Reads all inputs of the graph; all it makes is an output. */
static void add_node(struct gp_graph *g, const int32_t *a)
{
	struct gp_node n = {.op = (enum gp_op)a[0], .name = "op", .inputs = g->inputs};
	int index, outputs[GP_NODE_MAX_OUTPUTS];
	for (int i = 0; i < g->inputs; i++)
		n.in[i] = i;
	set_attributes(&n, a);
	OK(gp_graph_add(g, &n, &index, &err));
	if (n.op == GP_OP_BATCH_NORM && a[1])
		index = gp_graph_unary(g, (enum gp_op)a[1], "act", index, &err);
	const int count = gp_graph_maker(g, index)->outputs;
	for (int j = 0; j < count; j++)
		outputs[j] = index + j;
	OK(gp_graph_set_outputs(g, count, outputs, &err));
}

/* r = relu(x); s = r + conv(r); y = s + s */
static void add_fan_out(struct gp_graph *g)
{
	int r = gp_graph_unary(g, GP_OP_RELU, "r", 0, &err);
	int c = gp_graph_conv(g, "op", r, 6, 1, 1, 0, 1, false, &err);
	int s = gp_graph_sum(g, "s", r, c, &err);
	assert_true(gp_graph_sum(g, "y", s, s, &err) > 0);
}

/* "x", "x1", ...: NULL where the case has no more. */
static const struct gp_st_tensor *numbered(const char *name, const char *key, int index, char text[16])
{
	snprintf(text, 16, index ? "%s%d" : "%s", key, index);
	return find(name, text);
}

static struct gp_graph *graph_of(const char *name, int *batch)
{
	int32_t attr[MAX_ATTR] = {0};
	char key[16];
	load_ints(name, "attr", attr, MAX_ATTR);
	struct gp_graph *g = gp_graph_new_empty("one_op", &err);
	assert_non_null(g);
	for (const struct gp_st_tensor *x; (x = numbered(name, "x", g->inputs, key));) {
		struct gp_type type = {x->dtype == GP_ST_I32 ? GP_I32 : GP_F32, {.ndim = x->shape.ndim - 1}};
		memcpy(type.shape.dim, x->shape.dim + 1, (size_t)type.shape.ndim * sizeof type.shape.dim[0]);
		*batch = (int)x->shape.dim[0];
		assert_true(gp_graph_add_input(g, key, &type, &err) >= 0);
	}
	OK(gp_graph_begin_block(g, "block", &err));
	if (attr[0] == GP_OP_ADD && g->inputs == 1)
		add_fan_out(g);
	else
		add_node(g, attr);
	OK(gp_graph_finish(g, &err));
	return g;
}

static struct bed make_bed(const char *name, int threads)
{
	struct bed b = {.name = name};
	struct gp_plan_spec spec = {.slots = 1, .train = true, .grad_inputs = ~(uint64_t)0, .seed = 3};
	b.graph = graph_of(name, &spec.batch);
	spec.graph = b.graph;
	OK(gp_device_open(test_device(), threads, &b.dev, &err));
	OK(b.dev->ops->plan_new(b.dev, &spec, &b.plan, &err));
	return b;
}

static void drop_bed(struct bed *b)
{
	b->plan->ops->plan_free(b->plan);
	b->dev->ops->close(b->dev);
	gp_graph_free(b->graph);
}

static const char *role_name(const struct gp_param *p)
{
	const char *dot = strrchr(p->name, '.');
	return dot ? dot + 1 : p->name;
}

static void load_params(struct bed *b)
{
	for (int i = 0; i < b->graph->params; i++) {
		float *v = load(b->name, role_name(&b->graph->param[i]));
		OK(b->plan->ops->param_set(b->plan, i, v, &err));
		gp_free(v);
	}
}

static void fill_all(struct bed *b, enum gp_plan_buf which, const char *prefix)
{
	const struct gp_st_tensor *t;
	char key[16];
	for (int i = 0; (t = numbered(b->name, prefix, i, key)); i++) {
		void *to = b->plan->ops->buffer(b->plan, 0, which, i);
		assert_non_null(to);
		if (t->dtype == GP_ST_I32)
			memcpy(to, t->data, t->count * sizeof(int32_t));
		else
			OK(gp_st_read_f32(t, to, &err));
	}
}

static void check_all(struct bed *b, enum gp_plan_buf which, const char *prefix, int count)
{
	char key[16];
	for (int i = 0; i < count; i++) {
		const float *got = b->plan->ops->buffer(b->plan, 0, which, i);
		assert_int_equal(got != NULL, numbered(b->name, prefix, i, key) != NULL);
		if (got)
			check(b->name, key, got);
	}
}

static void run_chunk(struct bed *b)
{
	fill_all(b, GP_BUF_INPUT, "x");
	OK(b->plan->ops->forward(b->plan, 0, GP_TRAIN, 0, &err));
	check_all(b, GP_BUF_OUTPUT, "y", b->graph->outputs);
	fill_all(b, GP_BUF_GRAD_OUTPUT, "gy");
	OK(b->plan->ops->backward(b->plan, 0, &err));
	check_all(b, GP_BUF_GRAD_INPUT, "gx", b->graph->inputs);
}

/* Gradients after `chunks` equal chunks are `chunks` times PyTorch's. */
static void check_grads(struct bed *b, int chunks)
{
	for (int i = 0; i < b->graph->params; i++) {
		const struct gp_param *p = &b->graph->param[i];
		char key[GP_NAME_MAX + 8];
		if (!p->trained)
			continue;
		float *g = gp_calloc(p->count, sizeof *g);
		OK(b->plan->ops->grad_get(b->plan, i, g, &err));
		for (uint64_t k = 0; k < p->count; k++)
			g[k] /= (float)chunks;
		snprintf(key, sizeof key, "grad.%s", role_name(p));
		check(b->name, key, g);
		gp_free(g);
	}
}

/* `prefix`: "after.", or "" for those that were given. */
static void check_running_statistics(struct bed *b, const char *prefix)
{
	float v[256];
	for (int i = 0; i < b->graph->params; i++) {
		char key[GP_NAME_MAX + 8];
		if (b->graph->param[i].trained)
			continue;
		snprintf(key, sizeof key, "%s%s", prefix, role_name(&b->graph->param[i]));
		assert_true(b->graph->param[i].count <= 256);
		OK(b->plan->ops->param_get(b->plan, i, v, &err));
		check(b->name, key, v);
	}
}

/* Running statistics that move at the end of a step have not moved before. */
static void end_step_if_deferred(struct bed *b)
{
	if (!gp_bn_is_deferred(&b->graph->node[1]))
		return;
	check_running_statistics(b, "");
	OK(b->plan->ops->optim_step(b->plan, 0.0f, &err));
	check_running_statistics(b, "after.");
}

static void check_batch_norm(struct bed *b)
{
	end_step_if_deferred(b);
	check_running_statistics(b, "after.");
	OK(b->plan->ops->forward(b->plan, 0, GP_EVAL, 0, &err));
	check(b->name, "y_eval", b->plan->ops->buffer(b->plan, 0, GP_BUF_OUTPUT, 0));
	if (!gp_bn_is_deferred(&b->graph->node[1]))
		return;
	load_params(b); /* of a step that the update above has ended, the first chunk again */
	run_chunk(b);
}

static void run_case(const char *name, int threads)
{
	struct bed b = make_bed(name, threads);
	load_params(&b);
	run_chunk(&b);
	check_grads(&b, 1);
	if (find(name, "y_eval"))
		check_batch_norm(&b);
	run_chunk(&b);
	check_grads(&b, 2);
	run_chunk(&b);
	check_grads(&b, 3);
	drop_bed(&b);
}

/* The name of the case that tensor i of the dump belongs to: what stands before its slash. */
static const char *case_of(int i, char name[64])
{
	const char *full = gp_st_at(dump, i)->name;
	snprintf(name, 64, "%.*s", (int)strcspn(full, "/"), full);
	return name;
}

/* Every case whose first attribute is `op`, on 1 and on 2 threads. */
static void run_op(enum gp_op op)
{
	int cases = 0;
	for (int i = 0; i < gp_st_count(dump); i++) {
		int32_t attr[MAX_ATTR];
		char name[64];
		if (gp_st_at(dump, i) != find(case_of(i, name), "attr"))
			continue;
		load_ints(name, "attr", attr, MAX_ATTR);
		if (attr[0] != (int32_t)op)
			continue;
		run_case(name, 1);
		run_case(name, 2);
		cases++;
	}
	if (cases == 0)
		fail_msg("tests/tools/dump_ops.py has no case of op %d, %s", (int)op, gp_op_name(op));
}

/* A test for each op: relu6_agrees_with_pytorch. Dropout is skipped, because PyTorch draws other masks; its tests are
 * below. */
#define X(id, NAME, name)                                                                                              \
	static void name##_agrees_with_pytorch(void **state)                                                           \
	{                                                                                                              \
		(void)state;                                                                                           \
		if (GP_OP_##NAME == GP_OP_DROPOUT)                                                                     \
			skip();                                                                                        \
		run_op(GP_OP_##NAME);                                                                                  \
	}
GP_OPS(X)
#undef X

/* --- vector widths ---------------------------------------------------------------------------------------------- */

static const char *const vector_cases[] = {"bn_24",
					   "bn_relu",
					   "bn_relu6",
					   "bn_wide",
					   "bn_deferred",
					   "bn_running",
					   "bn_running_relu6",
					   "bn_running_wide",
					   "bn_renorm",
					   "bn_renorm_clipped",
					   "bn_renorm_relu6",
					   "bn_renorm_wide",
					   "relu",
					   "relu6",
					   "add_fan_out",
					   "pool_max",
					   "pool_avg_padded",
					   "pool_avg",
					   "pool_max_overlapping",
					   "sum_three",
					   "sum_five",
					   "concat_images",
					   "split_rows",
					   "embedding_wide",
					   "masked_mean_some",
					   "masked_mean_all",
					   "gelu_wide",
					   "gelu_tanh_wide",
					   "tanh_wide",
					   "layer_norm_rows",
					   "layer_norm_residual",
					   "layer_norm_residual_wide",
					   "attention_three_heads",
					   "attention_long",
					   "add_rows_positions_from_2",
					   "add_rows_one_row_of_many",
					   "take_row_last",
					   "take_rows_again",
					   "take_rows_outside"};

/* What there is of output 0, of input 0's gradient, and of parameter 0's. */
static uint64_t collect(struct bed *b, float *v)
{
	const uint64_t batch = (uint64_t)b->plan->spec.batch;
	const float *dx = b->plan->ops->buffer(b->plan, 0, GP_BUF_GRAD_INPUT, 0);
	uint64_t count = batch * gp_shape_elements(gp_graph_output_shape(b->graph));
	memcpy(v, b->plan->ops->buffer(b->plan, 0, GP_BUF_OUTPUT, 0), count * sizeof *v);
	if (dx) {
		const uint64_t more = batch * gp_shape_elements(gp_graph_input_shape(b->graph));
		memcpy(v + count, dx, more * sizeof *v);
		count += more;
	}
	if (b->graph->params > 0) {
		OK(b->plan->ops->grad_get(b->plan, 0, v + count, &err));
		count += b->graph->param[0].count;
	}
	return count;
}

/* What collect has of one case at one vector width. Caller frees. */
static float *run_at_width(const char *name, enum gp_isa isa, uint64_t *count)
{
	struct bed b = make_bed(name, 1);
	float *v = gp_calloc(1 << 20, sizeof *v);
	assert_non_null(v);
	gp_isa_limit(isa);
	load_params(&b);
	run_chunk(&b);
	*count = collect(&b, v);
	gp_isa_limit(GP_ISA_AVX512);
	drop_bed(&b);
	return v;
}

static void loops_of_all_vector_widths_agree_bit_for_bit(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof vector_cases / sizeof vector_cases[0]; i++) {
		uint64_t n;
		float *portable = run_at_width(vector_cases[i], GP_ISA_PORTABLE, &n);
		for (enum gp_isa isa = GP_ISA_AVX2; isa <= GP_ISA_AVX512; isa++) {
			float *wide = run_at_width(vector_cases[i], isa, &n);
			assert_memory_equal(portable, wide, n * sizeof *wide);
			gp_free(wide);
		}
		gp_free(portable);
	}
}

/* --- dropout ---------------------------------------------------------------------------------------------------- */

static struct gp_plan *dropout_plan(struct gp_device *dev, struct gp_graph **g, float p, uint64_t seed)
{
	const struct gp_shape sample = {.ndim = 3, .dim = {10, 10, 50}};
	struct gp_plan *plan;
	*g = gp_graph_new("dropout", &sample, &err);
	OK(gp_graph_begin_block(*g, "block", &err));
	assert_true(gp_graph_dropout(*g, "drop", 0, p, &err) > 0);
	OK(gp_graph_finish(*g, &err));
	struct gp_plan_spec spec = {.graph = *g, .batch = 4, .slots = 2, .train = true, .grad_inputs = 1, .seed = seed};
	OK(dev->ops->plan_new(dev, &spec, &plan, &err));
	return plan;
}

#define DROP_COUNT 20000

static void run_dropout(struct gp_plan *plan, int slot, enum gp_mode mode, uint64_t draw)
{
	float *x = plan->ops->buffer(plan, slot, GP_BUF_INPUT, 0);
	for (int i = 0; i < DROP_COUNT; i++)
		x[i] = 1.0f;
	OK(plan->ops->forward(plan, slot, mode, draw, &err));
}

static int count_zeros(const float *v)
{
	int zeros = 0;
	for (int i = 0; i < DROP_COUNT; i++)
		zeros += v[i] == 0.0f;
	return zeros;
}

static void dropout_drops_its_share_and_scales_the_rest(void **state)
{
	(void)state;
	struct gp_device *dev;
	struct gp_graph *g;
	OK(gp_device_open(test_device(), 2, &dev, &err));
	struct gp_plan *plan = dropout_plan(dev, &g, 0.2f, 7);
	const float *y = plan->ops->buffer(plan, 0, GP_BUF_OUTPUT, 0);
	run_dropout(plan, 0, GP_TRAIN, 5);
	int zeros = count_zeros(y); /* 4000 expected, standard deviation 57 */
	assert_in_range(zeros, 3700, 4300);
	for (int i = 0; i < DROP_COUNT; i++)
		assert_true(y[i] == 0.0f || y[i] == 1.25f);
	run_dropout(plan, 0, GP_EVAL, 5);
	assert_int_equal(count_zeros(y), 0);
	plan->ops->plan_free(plan);
	dev->ops->close(dev);
	gp_graph_free(g);
}

static void dropout_backward_uses_the_forward_mask_of_its_slot(void **state)
{
	(void)state;
	struct gp_device *dev;
	struct gp_graph *g;
	float mask[2][DROP_COUNT];
	OK(gp_device_open(test_device(), 1, &dev, &err));
	struct gp_plan *plan = dropout_plan(dev, &g, 0.5f, 7);
	for (int slot = 0; slot < 2; slot++) {
		run_dropout(plan, slot, GP_TRAIN, (uint64_t)slot);
		memcpy(mask[slot], plan->ops->buffer(plan, slot, GP_BUF_OUTPUT, 0), sizeof mask[slot]);
	}
	assert_memory_not_equal(mask[0], mask[1], sizeof mask[0]);
	for (int slot = 0; slot < 2; slot++) {
		float *gy = plan->ops->buffer(plan, slot, GP_BUF_GRAD_OUTPUT, 0);
		for (int i = 0; i < DROP_COUNT; i++)
			gy[i] = 1.0f;
		OK(plan->ops->backward(plan, slot, &err));
		assert_memory_equal(plan->ops->buffer(plan, slot, GP_BUF_GRAD_INPUT, 0), mask[slot], sizeof mask[slot]);
	}
	plan->ops->plan_free(plan);
	dev->ops->close(dev);
	gp_graph_free(g);
}

/* --- loss ------------------------------------------------------------------------------------------------------- */

/* A plan whose OUTPUT can be written directly: ReLU over (K). */
static struct gp_plan *identity_plan(struct gp_device *dev, struct gp_graph **g, int64_t k, int batch,
				     enum gp_loss_kind loss)
{
	const struct gp_shape sample = {.ndim = 1, .dim = {k}};
	struct gp_plan *plan;
	*g = gp_graph_new("scores", &sample, &err);
	OK(gp_graph_begin_block(*g, "block", &err));
	assert_true(gp_graph_unary(*g, GP_OP_RELU, "relu", 0, &err) > 0);
	OK(gp_graph_finish(*g, &err));
	struct gp_plan_spec spec = {
		.graph = *g, .batch = batch, .slots = 1, .train = true, .grad_inputs = 1, .seed = 1, .loss = loss};
	OK(dev->ops->plan_new(dev, &spec, &plan, &err));
	return plan;
}

static void run_loss(const char *name)
{
	struct gp_device *dev;
	struct gp_graph *g;
	int32_t labels[16], correct;
	struct gp_loss_result r;
	const struct gp_st_tensor *x = need(name, "x");
	int n = (int)x->shape.dim[0];
	OK(gp_device_open(test_device(), 1, &dev, &err));
	struct gp_plan *plan = identity_plan(dev, &g, x->shape.dim[1], n, GP_LOSS_CROSS_ENTROPY);
	OK(gp_st_read_f32(x, plan->ops->buffer(plan, 0, GP_BUF_OUTPUT, 0), &err));
	load_ints(name, "labels", labels, 16);
	load_ints(name, "correct", &correct, 1);
	OK(plan->ops->loss(plan, 0, labels, n, true, 1.0f / (float)n, &r, &err));
	float loss = (float)r.loss_sum;
	check(name, "loss", &loss);
	check(name, "gx", plan->ops->buffer(plan, 0, GP_BUF_GRAD_OUTPUT, 0));
	assert_int_equal(r.correct, correct);
	plan->ops->plan_free(plan);
	dev->ops->close(dev);
	gp_graph_free(g);
}

static const char *const loss_cases[] = {"loss_small", "loss_peaked"};

static void cross_entropy_agrees_with_pytorch(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof loss_cases / sizeof loss_cases[0]; i++)
		run_loss(loss_cases[i]);
}

static void cross_entropy_ignores_rows_past_the_valid_ones(void **state)
{
	(void)state;
	struct gp_device *dev;
	struct gp_graph *g;
	struct gp_loss_result r;
	const int32_t labels[4] = {1, 0, 99, -5};
	OK(gp_device_open(test_device(), 1, &dev, &err));
	struct gp_plan *plan = identity_plan(dev, &g, 2, 4, GP_LOSS_CROSS_ENTROPY);
	float *y = plan->ops->buffer(plan, 0, GP_BUF_OUTPUT, 0),
	      *gy = plan->ops->buffer(plan, 0, GP_BUF_GRAD_OUTPUT, 0);
	for (int i = 0; i < 8; i++)
		y[i] = gy[i] = (float)i;
	OK(plan->ops->loss(plan, 0, labels, 2, true, 1.0f, &r, &err));
	assert_true(fabs(r.loss_sum - (log(1 + exp(-1.0)) + log(1 + exp(1.0)))) < 1e-6);
	assert_int_equal(r.correct, 1);
	for (int i = 4; i < 8; i++)
		assert_true(gy[i] == 0.0f);
	assert_int_equal(plan->ops->loss(plan, 0, labels, 3, true, 1.0f, &r, &err), GP_INVALID);
	plan->ops->plan_free(plan);
	dev->ops->close(dev);
	gp_graph_free(g);
}

/* torch.nn.MSELoss of (1.5, -2, 0.25) beside (1, 1, 0.25): 9.25 / 3, and 2 / 3 of the differences. */
static void the_squared_error_is_that_of_values(void **state)
{
	(void)state;
	struct gp_device *dev;
	struct gp_graph *g;
	struct gp_loss_result r;
	const float labels[4] = {1.0f, 1.0f, 0.25f, NAN}, outputs[4] = {1.5f, -2.0f, 0.25f, 7.0f};
	const float wanted[4] = {1.0f / 3, -2.0f, 0.0f, 0.0f};
	OK(gp_device_open(test_device(), 1, &dev, &err));
	struct gp_plan *plan = identity_plan(dev, &g, 1, 4, GP_LOSS_SQUARED_ERROR);
	float *gy = plan->ops->buffer(plan, 0, GP_BUF_GRAD_OUTPUT, 0);
	memcpy(plan->ops->buffer(plan, 0, GP_BUF_OUTPUT, 0), outputs, sizeof outputs);
	for (int i = 0; i < 4; i++)
		gy[i] = 5.0f;
	OK(plan->ops->loss(plan, 0, labels, 3, true, 1.0f / 3, &r, &err));
	assert_true(r.loss_sum == 9.25);
	assert_int_equal(r.correct, 0);
	for (int i = 0; i < 4; i++)
		assert_true(fabs((double)gy[i] - (double)wanted[i]) < 1e-6);
	assert_int_equal(plan->ops->loss(plan, 0, labels, 4, true, 1.0f, &r, &err), GP_INVALID);
	plan->ops->plan_free(plan);
	gp_graph_free(g);
	plan = identity_plan(dev, &g, 2, 4, GP_LOSS_SQUARED_ERROR);
	assert_int_equal(plan->ops->loss(plan, 0, labels, 3, true, 1.0f, &r, &err), GP_INVALID);
	plan->ops->plan_free(plan);
	dev->ops->close(dev);
	gp_graph_free(g);
}

/* --- optimizers ------------------------------------------------------------------------------------------------- */

static struct gp_optim optim_of(const char *name)
{
	int32_t kind;
	float *s = load(name, "settings");
	load_ints(name, "kind", &kind, 1);
	struct gp_optim o = {.kind = (enum gp_optim_kind)kind,
			     .momentum = s[0],
			     .nesterov = s[1] != 0.0f,
			     .weight_decay = s[2],
			     .beta1 = round(1e6 * (double)s[3]) * 1e-6,
			     .beta2 = round(1e6 * (double)s[4]) * 1e-6,
			     .eps = s[5]};
	gp_free(s);
	return o;
}

static struct bed linear_bed(const char *name)
{
	struct bed b = {.name = name};
	const struct gp_st_tensor *x = need(name, "x"), *w = need(name, "weight");
	const struct gp_shape sample = {.ndim = 1, .dim = {x->shape.dim[1]}};
	b.graph = gp_graph_new("linear", &sample, &err);
	OK(gp_graph_begin_block(b.graph, "block", &err));
	assert_true(gp_graph_linear(b.graph, "op", 0, (int)w->shape.dim[0], true, &err) > 0);
	OK(gp_graph_finish(b.graph, &err));
	OK(gp_device_open(test_device(), 1, &b.dev, &err));
	struct gp_plan_spec spec = {.graph = b.graph, .batch = (int)x->shape.dim[0], .slots = 1, .train = true};
	spec.optim = optim_of(name);
	OK(b.dev->ops->plan_new(b.dev, &spec, &b.plan, &err));
	return b;
}

static void check_step(struct bed *b, int step, const float *want, uint64_t count, int param)
{
	float got[64];
	OK(b->plan->ops->param_get(b->plan, param, got, &err));
	double e = relative_l2(got, want + (uint64_t)step * count, count);
	if (!(e < TOLERANCE))
		fail_msg("%s, parameter %d after step %d: relative L2 error %.3g", b->name, param, step + 1, e);
}

static void run_optimizer(const char *name)
{
	struct bed b = linear_bed(name);
	const struct gp_device_ops *ops = b.plan->ops;
	float *lr = load(name, "lr"), *gy = load(name, "gy");
	float *weights = load(name, "weights"), *biases = load(name, "biases");
	int steps = (int)need(name, "lr")->count;
	const uint64_t outputs = need(name, "gy")->count / (uint64_t)steps;
	load_params(&b);
	for (int s = 0; s < steps; s++) {
		fill_all(&b, GP_BUF_INPUT, "x");
		OK(ops->forward(b.plan, 0, GP_TRAIN, 0, &err));
		memcpy(ops->buffer(b.plan, 0, GP_BUF_GRAD_OUTPUT, 0), gy + (uint64_t)s * outputs, outputs * sizeof *gy);
		OK(ops->backward(b.plan, 0, &err));
		OK(ops->optim_step(b.plan, lr[s], &err));
		check_step(&b, s, weights, need(name, "weight")->count, 0);
		check_step(&b, s, biases, need(name, "bias")->count, 1);
	}
	gp_free(lr);
	gp_free(gy);
	gp_free(weights);
	gp_free(biases);
	drop_bed(&b);
}

static const char *const optim_cases[] = {"optim_sgd",      "optim_sgd_decay", "optim_momentum", "optim_momentum_decay",
					  "optim_nesterov", "optim_adam",      "optim_adamw"};

static void optimizers_agree_with_pytorch_step_by_step(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof optim_cases / sizeof optim_cases[0]; i++)
		run_optimizer(optim_cases[i]);
}

/* --- the whole dump --------------------------------------------------------------------------------------------- */

static bool listed(const char *const *list, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(list[i], name) == 0)
			return true;
	return false;
}

static bool is_case_of_an_op(const char *name)
{
	int32_t attr[MAX_ATTR];
	if (!find(name, "attr"))
		return false;
	load_ints(name, "attr", attr, MAX_ATTR);
	return gp_op_def((enum gp_op)attr[0]) != NULL;
}

static void every_case_of_the_dump_is_read(void **state)
{
	(void)state;
	for (int i = 0; i < gp_st_count(dump); i++) {
		char name[64];
		case_of(i, name);
		if (!is_case_of_an_op(name) && !listed(loss_cases, sizeof loss_cases / sizeof loss_cases[0], name) &&
		    !listed(optim_cases, sizeof optim_cases / sizeof optim_cases[0], name))
			fail_msg("no test reads %s of tests/golden/ops/ops.safetensors", gp_st_at(dump, i)->name);
	}
}

static int open_dump(void **state)
{
	(void)state;
	OK(gp_st_open("tests/golden/ops/ops.safetensors", &dump, &err));
	return 0;
}

static int close_dump(void **state)
{
	(void)state;
	gp_st_close(dump);
	return 0;
}

int main(int argc, char **argv)
{
	(void)argc;
	gp_threads_prepare(argv); /* else waiting threads take the cores other tests run on */
	const struct CMUnitTest tests[] = {
#define X(id, NAME, name) cmocka_unit_test(name##_agrees_with_pytorch),
		GP_OPS(X)
#undef X
			cmocka_unit_test(loops_of_all_vector_widths_agree_bit_for_bit),
		cmocka_unit_test(dropout_drops_its_share_and_scales_the_rest),
		cmocka_unit_test(dropout_backward_uses_the_forward_mask_of_its_slot),
		cmocka_unit_test(cross_entropy_agrees_with_pytorch),
		cmocka_unit_test(cross_entropy_ignores_rows_past_the_valid_ones),
		cmocka_unit_test(the_squared_error_is_that_of_values),
		cmocka_unit_test(optimizers_agree_with_pytorch_step_by_step),
		cmocka_unit_test(every_case_of_the_dump_is_read),
	};
	return cmocka_run_group_tests(tests, open_dump, close_dump);
}
