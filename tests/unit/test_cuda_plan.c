/* SPDX-License-Identifier: Apache-2.0
 *
 * What a CUDA plan promises beyond right numbers (test_cuda_ops.c,
 * test_cuda_train.c): its memory is what was estimated, and all comes back; a
 * step taken back leaves no trace; failures are told; a device is found by name.
 * On whatever this build has: emulated devices, or cards.
 */
#include "common/base/fault.h"
#include "kernels/cuda/runtime/rt_tally.h"
#include "tests/unit/small_plan.h"
#include "kernels/device_registry.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_elementwise.h"

enum { OTHER_DATA = 1000 };

static struct gp_device *open_device(void)
{
	struct gp_device *dev;
	OK(gp_device_open(gp_cuda_ops()->name, 1, &dev, &err));
	return dev;
}

static uint64_t unused_memory(struct gp_device *dev)
{
	uint64_t total, unused;
	OK(dev->ops->memory(dev, &total, &unused, &err));
	return unused;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* On a card others take and give memory, too; there the plan's own figures have to do. */
static void expect_unused(struct gp_device *dev, uint64_t bytes)
{
	if (!is_like_a_card())
		assert_int_equal(unused_memory(dev), bytes);
}

static void expect_exact_estimate(struct gp_device *dev, const struct gp_plan_spec *spec)
{
	struct gp_plan_memory want, got;
	struct gp_plan *plan;
	const uint64_t before = unused_memory(dev);
	OK(dev->ops->plan_estimate(dev, spec, &want, &err));
	expect_unused(dev, before);
	OK(dev->ops->plan_new(dev, spec, &plan, &err));
	dev->ops->plan_memory(plan, &got);
	assert_memory_equal(&want, &got, sizeof got);
	assert_true(got.total > 0);
	expect_unused(dev, before - got.total);
	dev->ops->plan_free(plan);
	expect_unused(dev, before);
}

static void estimate_is_what_the_plan_takes(void **state)
{
	(void)state;
	struct gp_graph *g = build_graph();
	struct gp_device *dev = open_device();
	for (int precision = 0; precision < GP_PRECISIONS; precision++)
		for (int i = 0; i < OPTIMIZERS; i++)
			for (int way = 0; way < 4; way++) {
				struct gp_plan_spec spec = spec_of(&optimizers[i]);
				spec.graph = g;
				spec.precision = (enum gp_precision)precision;
				spec.train = way & 1;
				spec.device_io = way & 2;
				expect_exact_estimate(dev, &spec);
			}
	dev->ops->close(dev);
	gp_graph_free(g);
}

static struct gp_graph *build_large(void)
{
	const struct gp_shape sample = {.ndim = 3, .dim = {1 << 14, 1 << 14, 4}};
	struct gp_graph *g = gp_graph_new("large", &sample, &err);
	assert_non_null(g);
	OK(gp_graph_begin_block(g, "block", &err));
	assert_true(gp_graph_unary(g, GP_OP_RELU, "relu", 0, &err) > 0);
	OK(gp_graph_finish(g, &err));
	return g;
}

static void plan_that_does_not_fit_is_refused_and_leaves_nothing(void **state)
{
	(void)state;
	struct gp_graph *g = build_large();
	struct gp_device *dev = open_device();
	struct gp_plan_memory memory;
	struct gp_plan *plan = NULL;
	const uint64_t before = unused_memory(dev);
	struct gp_plan_spec spec = {.graph = g, .batch = 64, .slots = 1};
	OK(dev->ops->plan_estimate(dev, &spec, &memory, &err)); /* 512 GiB: more than any card has */
	assert_int_equal(memory.total >> 30, 512);
	assert_int_equal(dev->ops->plan_new(dev, &spec, &plan, &err), GP_NOMEM);
	assert_non_null(strstr(err.text, "large takes 524288 MiB"));
	assert_null(plan);
	expect_unused(dev, before);
	spec.batch = 1 << 10;
	assert_int_equal(dev->ops->plan_new(dev, &spec, &plan, &err), GP_NOMEM);
	spec.batch = 0;
	assert_int_equal(dev->ops->plan_new(dev, &spec, &plan, &err), GP_INVALID);
	spec.batch = 1;
	spec.slots = 1 << 30;
	assert_int_equal(dev->ops->plan_new(dev, &spec, &plan, &err), GP_INVALID);
	dev->ops->close(dev);
	gp_graph_free(g);
}

#ifdef GP_FAULTS
static void every_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
	(void)state;
	struct gp_graph *g = build_graph();
	struct gp_device *dev = open_device();
	struct gp_plan_spec spec = spec_of(&optimizers[2]);
	spec.graph = g;
	enum gp_status status = GP_NOMEM;
	const uint64_t before = unused_memory(dev);
	for (uint64_t nth = 1; status != GP_OK; nth++) {
		struct gp_plan *plan = NULL;
		assert_true(nth < 200);
		gp_fault_arm(GP_FAULT_ALLOC, nth);
		status = dev->ops->plan_new(dev, &spec, &plan, &err);
		gp_fault_arm(GP_FAULT_ALLOC, 0);
		if (status == GP_OK)
			dev->ops->plan_free(plan);
		else
			assert_int_equal(status, GP_NOMEM);
		expect_unused(dev, before);
	}
	dev->ops->close(dev);
	gp_graph_free(g);
}

/* Whatever fails, a call says so or has done its work; and other plans of the device go on. */
static void failure_of_the_device_is_told_by_the_call_that_waits(void **state)
{
	(void)state;
	if (!gp_rt_is_emulated())
		skip();
	struct gp_graph *g = build_graph();
	struct gp_plan_spec spec = spec_of(&optimizers[3]);
	struct pair p = make_pair(g, spec);
	struct gp_plan *plan = p.plan[CUDA];
	fill_both(&p, 0, GP_BUF_INPUT, 1);
	for (uint64_t nth = 1; nth < 3; nth++) { /* the second call is a graph and an event */
		gp_fault_arm(GP_FAULT_DEVICE, nth);
		assert_int_equal(plan->ops->forward(plan, 0, GP_TRAIN, 0, &err), GP_DEVICE);
		gp_fault_arm(GP_FAULT_DEVICE, 0);
		assert_int_equal(plan->ops->backward(plan, 0, &err), GP_INTERNAL);
	}
	forward_both(&p, 0, GP_TRAIN, 5);
	compare_buffer(&p, 0, GP_BUF_OUTPUT);
	drop_pair(&p);
	gp_graph_free(g);
}

/* The second call captures a graph. Without it the same work is queued one by one, and nothing of the failure is left. */
static void failed_product_costs_the_graph_and_nothing_else(void **state)
{
	(void)state;
	if (!gp_rt_is_emulated())
		skip();
	struct gp_graph *g = build_graph();
	struct pair p = make_pair(g, spec_of(&optimizers[3]));
	struct gp_plan *plan = p.plan[CUDA];
	fill_both(&p, 0, GP_BUF_INPUT, 1);
	forward_both(&p, 0, GP_TRAIN, 5);
	assert_null(gp_cuda_without_graphs(plan));
	gp_fault_arm(GP_FAULT_PRODUCT, 1);
	forward_both(&p, 0, GP_TRAIN, 5);
	assert_int_equal(gp_fault_hit(GP_FAULT_PRODUCT), false);
	assert_non_null(gp_cuda_without_graphs(plan));
	compare_buffer(&p, 0, GP_BUF_OUTPUT);
	gp_fault_arm(GP_FAULT_PRODUCT, 1);
	assert_int_equal(plan->ops->forward(plan, 0, GP_TRAIN, 0, &err), GP_DEVICE);
	forward_both(&p, 0, GP_TRAIN, 6);
	compare_buffer(&p, 0, GP_BUF_OUTPUT);
	drop_pair(&p);
	gp_graph_free(g);
}
#endif

/* --- undo, state in and out --------------------------------------------------------------------------------------- */

static void forward(struct gp_plan *p, int slot, uint64_t chunk)
{
	float *x = p->ops->buffer(p, slot, GP_BUF_INPUT, 0);
	for (uint64_t i = 0; i < BATCH * gp_shape_elements(gp_graph_input_shape(p->spec.graph)); i++)
		x[i] = gp_rng_normal(4, chunk, i);
	OK(p->ops->forward(p, slot, GP_TRAIN, chunk, &err));
}

static void backward(struct gp_plan *p, int slot, uint64_t chunk)
{
	struct gp_loss_result loss;
	int32_t labels[BATCH];
	fill_labels(labels, chunk);
	OK(p->ops->loss(p, slot, labels, BATCH, true, 0.1f, &loss, &err));
	OK(p->ops->backward(p, slot, &err));
}

static void run_step(struct gp_plan *p, uint64_t step)
{
	for (uint64_t c = 0; c < CHUNKS; c++) {
		forward(p, (int)(c % SLOTS), step * CHUNKS + c);
		backward(p, (int)(c % SLOTS), step * CHUNKS + c);
	}
	OK(p->ops->optim_step(p, 0.01f, &err));
}

static void expect_same_array(struct gp_plan *a, struct gp_plan *b, int index, read_param *get, const char *what)
{
	const struct gp_param *q = &a->spec.graph->param[index];
	float *x = gp_calloc(q->count, sizeof *x), *y = gp_calloc(q->count, sizeof *y);
	assert_true(x && y);
	OK(get(a, index, x, &err));
	OK(get(b, index, y, &err));
	if (memcmp(x, y, q->count * sizeof *x) != 0)
		fail_msg("%s of %s differ", what, q->name);
	gp_free(x);
	gp_free(y);
}

static void expect_same(struct gp_plan *a, struct gp_plan *b)
{
	static read_param *const states[] = {first_state, second_state};
	for (int i = 0; i < a->spec.graph->params; i++) {
		expect_same_array(a, b, i, a->ops->param_get, "values");
		if (!a->spec.graph->param[i].trained)
			continue;
		expect_same_array(a, b, i, a->ops->grad_get, "gradients");
		for (int k = 0; k < a->ops->optim_states(a); k++)
			expect_same_array(a, b, i, states[k], "optimizer states");
	}
	assert_int_equal(a->ops->optim_count_get(a), b->ops->optim_count_get(b));
}

static struct gp_plan *new_plan(struct gp_device *dev, const struct gp_graph *g, const struct gp_optim *optim)
{
	struct gp_plan_spec spec = spec_of(optim);
	struct gp_plan *p;
	spec.graph = g;
	OK(dev->ops->plan_new(dev, &spec, &p, &err));
	return p;
}

/* Two forwards and one backward of other data: a chunk is left between the two. */
static void a_step_taken_back_leaves_no_trace(void **state)
{
	(void)state;
	struct gp_graph *g = build_graph();
	struct gp_device *dev = open_device();
	struct gp_plan *disturbed = new_plan(dev, g, &optimizers[3]), *other = new_plan(dev, g, &optimizers[3]);
	for (uint64_t step = 0; step < 3; step++) {
		for (uint64_t times = 0; times < step + 1; times++) {
			forward(disturbed, 0, OTHER_DATA);
			forward(disturbed, 1, OTHER_DATA + 1);
			backward(disturbed, 0, OTHER_DATA);
			disturbed->ops->step_undo(disturbed);
			expect_same(disturbed, other);
			assert_int_equal(disturbed->ops->backward(disturbed, 1, &err), GP_INTERNAL);
		}
		run_step(disturbed, step);
		run_step(other, step);
		expect_same(disturbed, other);
	}
	dev->ops->plan_free(disturbed);
	dev->ops->plan_free(other);
	dev->ops->close(dev);
	gp_graph_free(g);
}

static void copy_array(struct gp_plan *from, struct gp_plan *to, int index)
{
	const uint64_t count = from->spec.graph->param[index].count;
	float *x = gp_calloc(count, sizeof *x);
	assert_non_null(x);
	OK(from->ops->param_get(from, index, x, &err));
	OK(to->ops->param_set(to, index, x, &err));
	for (int k = 0; from->spec.graph->param[index].trained && k < from->ops->optim_states(from); k++) {
		OK(from->ops->optim_get(from, index, k, x, &err));
		OK(to->ops->optim_set(to, index, k, x, &err));
	}
	gp_free(x);
}

static void a_new_plan_goes_on_where_another_stopped(void **state)
{
	(void)state;
	struct gp_graph *g = build_graph();
	struct gp_device *dev = open_device();
	for (int i = 0; i < OPTIMIZERS; i++) {
		struct gp_plan *old = new_plan(dev, g, &optimizers[i]), *new = new_plan(dev, g, &optimizers[i]);
		run_step(old, 0);
		run_step(new, 7);
		for (int q = 0; q < g->params; q++)
			copy_array(old, new, q);
		new->ops->optim_count_set(new, old->ops->optim_count_get(old));
		run_step(old, 1);
		run_step(new, 1);
		expect_same(old, new);
		dev->ops->plan_free(old);
		dev->ops->plan_free(new);
	}
	dev->ops->close(dev);
	gp_graph_free(g);
}

static void a_number_of_a_gpu_is_written_in_one_way(void **state)
{
	(void)state;
	static const char *const wrong[] = {"",   "x",  "00", "01",   "-1",
					    "+1", "1x", " 1", "1024", "99999999999999999999"};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		struct gp_device *dev;
		char spec[64], part[128];
		snprintf(spec, sizeof spec, "%s:%s", gp_cuda_ops()->name, wrong[i]);
		snprintf(part, sizeof part, "device \"%.32s\": \"%.32s\" is no number of a GPU", spec, wrong[i]);
		assert_int_equal(gp_device_open(spec, 1, &dev, &err), GP_USAGE);
		if (!strstr(err.text, part))
			fail_msg("%s: %s", spec, err.text);
	}
}

static void what_is_not_there_is_refused(void **state)
{
	(void)state;
	struct gp_graph *g = build_graph();
	struct gp_device *dev = open_device();
	struct gp_plan *train = new_plan(dev, g, &optimizers[1]), *eval;
	struct gp_plan_spec spec = {.graph = g, .batch = BATCH, .slots = 1};
	float x;
	OK(dev->ops->plan_new(dev, &spec, &eval, &err));
	assert_int_equal(train->ops->param_get(train, g->params, &x, &err), GP_INTERNAL);
	assert_int_equal(train->ops->optim_get(train, 0, 1, &x, &err), GP_INTERNAL);
	assert_int_equal(train->ops->backward(train, 0, &err), GP_INTERNAL);
	assert_int_equal(eval->ops->forward(eval, 0, GP_TRAIN, 0, &err), GP_INTERNAL);
	assert_int_equal(eval->ops->grad_get(eval, 0, &x, &err), GP_INTERNAL);
	assert_int_equal(eval->ops->optim_step(eval, 0.1f, &err), GP_INTERNAL);
	assert_null(eval->ops->buffer(eval, 0, GP_BUF_GRAD_OUTPUT, 0));
	dev->ops->plan_free(train);
	dev->ops->plan_free(eval);
	dev->ops->close(dev);
	gp_graph_free(g);
}

/* --- running ------------------------------------------------------------------------------------------------------ */

static void steady_step_allocates_nothing_here(void **state)
{
	(void)state;
	struct gp_graph *g = build_graph();
	struct gp_device *dev = open_device();
	struct gp_plan *p = new_plan(dev, g, &optimizers[4]);
	run_step(p, 0);
	run_step(p, 1);
	const uint64_t before = gp_mem_calls();
	run_step(p, 2);
	assert_int_equal(gp_mem_calls(), before);
	dev->ops->plan_free(p);
	dev->ops->close(dev);
	gp_graph_free(g);
}

struct queued {
	int graphs, others;
};

static void count_queued(void *arg, const char *what, uint64_t blocks)
{
	struct queued *const q = arg;
	(void)blocks;
	*(strcmp(what, "graph") == 0 ? &q->graphs : &q->others) += 1;
}

static struct queued queued_by_chunk(struct gp_plan *p, int slot, uint64_t chunk)
{
	struct queued q = {0};
	gp_rt_tally(count_queued, &q);
	forward(p, slot, chunk);
	OK(p->ops->backward(p, slot, &err));
	gp_rt_tally(NULL, NULL);
	return q;
}

/* Each way is queued by hand once for all slots, then captured in every slot. */
static void a_captured_chunk_is_one_graph_each_way_and_nothing_else(void **state)
{
	(void)state;
	struct gp_graph *g = build_graph();
	struct gp_device *dev = open_device();
	struct gp_plan *p = new_plan(dev, g, &optimizers[0]);
	run_step(p, 0);
	run_step(p, 1);
	forward(p, 0, 2); /* after an update: what undo needs is copied */
	for (uint64_t chunk = 0; chunk < 3 * SLOTS; chunk++) {
		const struct queued q = queued_by_chunk(p, (int)(chunk % SLOTS), chunk);
		assert_int_equal(q.graphs, 2);
		assert_int_equal(q.others, 0);
	}
	dev->ops->plan_free(p);
	dev->ops->close(dev);
	gp_graph_free(g);
}

static struct gp_graph *build_convolutions(bool residual)
{
	const struct gp_shape sample = {.ndim = 3, .dim = {4, 4, 8}};
	struct gp_graph *g = gp_graph_new("convolutions", &sample, &err);
	assert_non_null(g);
	OK(gp_graph_begin_block(g, "block", &err));
	const int first = gp_graph_conv(g, "first", 0, 8, 3, 1, 1, 1, true, &err);
	int x = gp_graph_conv(g, "second", first, 8, 3, 1, 1, 1, true, &err);
	x = gp_graph_unary(g, GP_OP_RELU, "relu", x, &err);
	if (residual) {
		x = gp_graph_conv(g, "third", x, 8, 3, 1, 1, 1, true, &err);
		x = gp_graph_sum(g, "sum", x, first, &err);
	}
	assert_true(x > 0);
	OK(gp_graph_finish(g, &err));
	return g;
}

/* It is somebody else's: neither a ReLU at the end works in it, nor is what comes around a residual added to it. */
static void gradient_of_the_output_is_left_as_it_came(void **state)
{
	(void)state;
	enum { COUNT = BATCH * 4 * 4 * 8 };
	float given[COUNT], left[COUNT];
	struct gp_rt_stream *stream;
	struct gp_device *dev = open_device();
	OK(gp_rt_stream_new(0, false, &stream, &err));
	for (uint64_t i = 0; i < COUNT; i++)
		given[i] = gp_rng_normal(5, 0, i);
	for (int residual = 0; residual < 2; residual++) {
		struct gp_graph *g = build_convolutions(residual);
		struct gp_plan_spec spec = spec_of(&optimizers[0]);
		struct gp_plan *p;
		spec.graph = g;
		spec.device_io = true;
		OK(dev->ops->plan_new(dev, &spec, &p, &err));
		gp_rt_copy_up(stream, p->ops->buffer(p, 0, GP_BUF_INPUT, 0), given, sizeof given);
		gp_rt_copy_up(stream, p->ops->buffer(p, 0, GP_BUF_GRAD_OUTPUT, 0), given, sizeof given);
		OK(gp_rt_stream_wait(stream, &err));
		OK(p->ops->forward(p, 0, GP_TRAIN, 0, &err));
		OK(p->ops->backward(p, 0, &err));
		gp_rt_copy_down(stream, left, p->ops->buffer(p, 0, GP_BUF_GRAD_OUTPUT, 0), sizeof left);
		OK(gp_rt_stream_wait(stream, &err));
		assert_memory_equal(left, given, sizeof given);
		dev->ops->plan_free(p);
		gp_graph_free(g);
	}
	gp_rt_stream_free(stream);
	dev->ops->close(dev);
}

/* As the server's codecs use it. */
static void buffers_of_the_device_hold_what_host_buffers_would(void **state)
{
	(void)state;
	struct gp_graph *g = build_graph();
	struct gp_plan_spec spec = spec_of(&optimizers[0]);
	struct pair p = make_pair(g, spec);
	struct gp_device *dev = p.dev[CUDA];
	struct gp_plan *plan;
	struct gp_rt_stream *stream;
	float out[BATCH * CLASSES];
	spec.graph = g;
	spec.device_io = true;
	OK(dev->ops->plan_new(dev, &spec, &plan, &err));
	OK(gp_rt_stream_new(0, false, &stream, &err));
	fill_both(&p, 1, GP_BUF_INPUT, 3);
	forward_both(&p, 1, GP_TRAIN, 4);
	gp_rt_copy_up(stream, dev->ops->buffer(plan, 1, GP_BUF_INPUT, 0),
		      dev->ops->buffer(p.plan[CUDA], 1, GP_BUF_INPUT, 0), elements(&p, GP_BUF_INPUT) * sizeof(float));
	OK(gp_rt_stream_wait(stream, &err));
	OK(dev->ops->forward(plan, 1, GP_TRAIN, 4, &err));
	gp_rt_copy_down(stream, out, dev->ops->buffer(plan, 1, GP_BUF_OUTPUT, 0), sizeof out);
	OK(gp_rt_stream_wait(stream, &err));
	assert_memory_equal(out, dev->ops->buffer(p.plan[CUDA], 1, GP_BUF_OUTPUT, 0), sizeof out);
	gp_rt_stream_free(stream);
	dev->ops->plan_free(plan);
	drop_pair(&p);
	gp_graph_free(g);
}

static void kept_values_can_be_looked_at_and_others_not(void **state)
{
	(void)state;
	struct gp_graph *g = build_graph();
	for (int precision = 0; precision < 2; precision++) {
		struct gp_plan_spec spec = spec_of(&optimizers[0]);
		spec.precision = (enum gp_precision)precision;
		struct pair p = make_pair(g, spec);
		float want[BATCH * 33], got[BATCH * 33];
		fill_both(&p, 0, GP_BUF_INPUT, 1);
		forward_both(&p, 0, GP_TRAIN, 1);
		const int relu6 = g->nodes - 2;
		OK(p.plan[CPU]->ops->node_get(p.plan[CPU], 0, relu6, want, &err));
		OK(p.plan[CUDA]->ops->node_get(p.plan[CUDA], 0, relu6, got, &err));
		expect_near("relu6", got, want, BATCH * 33, p.tolerance);
		assert_int_equal(p.plan[CUDA]->ops->node_get(p.plan[CUDA], 0, relu6 - 1, got, &err), GP_UNSUPPORTED);
		assert_int_equal(p.plan[CUDA]->ops->node_get(p.plan[CUDA], 0, g->nodes, got, &err), GP_INTERNAL);
		drop_pair(&p);
	}
	gp_graph_free(g);
}

static void profile_counts_every_node_that_ran(void **state)
{
	(void)state;
	struct gp_graph *g = build_graph();
	struct gp_device *dev = open_device();
	struct gp_plan *p = new_plan(dev, g, &optimizers[0]), *other = new_plan(dev, g, &optimizers[0]);
	const struct gp_plan_profile *profile;
	OK(p->ops->profile(p, &profile, &err));
	for (uint64_t step = 0; step < 2; step++) {
		run_step(p, step);
		run_step(other, step);
	}
	for (int i = 1; i < g->nodes; i++) {
		assert_int_equal(profile->node[i].calls[0], 2 * CHUNKS);
		assert_int_equal(profile->node[i].calls[1], 2 * CHUNKS);
		assert_true(profile->node[i].bytes[0] > 0);
	}
	assert_true(profile->node[g->nodes - 1].flops[1] == 2 * profile->node[g->nodes - 1].flops[0]);
	assert_int_equal(profile->update.calls[0], 2);
	assert_int_equal(profile->loss.calls[0], 2 * CHUNKS);
	expect_same(p, other);
	dev->ops->plan_free(p);
	dev->ops->plan_free(other);
	dev->ops->close(dev);
	gp_graph_free(g);
}

/* --- devices ------------------------------------------------------------------------------------------------------ */

static void devices_open_by_name_and_number(void **state)
{
	(void)state;
	struct gp_device *dev;
	char name[64];
	OK(gp_device_open(gp_cuda_ops()->name, 1, &dev, &err));
	assert_string_equal(dev->name, gp_cuda_ops()->name);
	assert_true(dev->card[0] != 0);
	OK(dev->ops->check(dev, &err));
	dev->ops->close(dev);
	snprintf(name, sizeof name, "%s:%d", gp_cuda_ops()->name, gp_rt_count() - 1);
	OK(gp_device_open(name, 1, &dev, &err));
	dev->ops->close(dev);
	snprintf(name, sizeof name, "%s:%d", gp_cuda_ops()->name, gp_rt_count());
	assert_int_equal(gp_device_open(name, 1, &dev, &err), GP_DEVICE);
	snprintf(name, sizeof name, "%s:one", gp_cuda_ops()->name);
	assert_int_equal(gp_device_open(name, 1, &dev, &err), GP_USAGE);
}

/* Each has streams and memory of its own. */
static void plans_of_all_devices_do_the_same(void **state)
{
	(void)state;
	struct gp_graph *g = build_graph();
	struct gp_device *first = open_device();
	struct gp_plan *expected = new_plan(first, g, &optimizers[2]);
	run_step(expected, 0);
	for (int i = 1; i < gp_rt_count(); i++) {
		struct gp_device *dev;
		char name[64];
		snprintf(name, sizeof name, "%s:%d", gp_cuda_ops()->name, i);
		OK(gp_device_open(name, 1, &dev, &err));
		const uint64_t before = unused_memory(dev), elsewhere = unused_memory(first);
		struct gp_plan *p = new_plan(dev, g, &optimizers[2]);
		run_step(p, 0);
		expect_same(p, expected);
		assert_true(unused_memory(dev) < before);
		if (!is_like_a_card())
			assert_int_equal(unused_memory(first), elsewhere);
		dev->ops->plan_free(p);
		dev->ops->close(dev);
	}
	first->ops->plan_free(expected);
	first->ops->close(first);
	gp_graph_free(g);
}

static void emulated_devices_are_never_taken_unasked(void **state)
{
	(void)state;
	struct gp_device *dev;
	OK(gp_device_open("auto", 1, &dev, &err));
	assert_string_equal(dev->name, gp_rt_is_emulated() ? "cpu" : "cuda");
	dev->ops->close(dev);
	const char *other = gp_rt_is_emulated() ? "cuda" : "cuda-emulated";
	assert_int_equal(gp_device_open(other, 1, &dev, &err), GP_DEVICE);
	assert_non_null(strstr(err.text, "GP_CUDA="));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(estimate_is_what_the_plan_takes),
		cmocka_unit_test(plan_that_does_not_fit_is_refused_and_leaves_nothing),
#ifdef GP_FAULTS
		cmocka_unit_test(every_failed_allocation_is_reported_and_leaks_nothing),
		cmocka_unit_test(failure_of_the_device_is_told_by_the_call_that_waits),
		cmocka_unit_test(failed_product_costs_the_graph_and_nothing_else),
#endif
		cmocka_unit_test(a_step_taken_back_leaves_no_trace),
		cmocka_unit_test(a_new_plan_goes_on_where_another_stopped),
		cmocka_unit_test(a_number_of_a_gpu_is_written_in_one_way),
		cmocka_unit_test(what_is_not_there_is_refused),
		cmocka_unit_test(steady_step_allocates_nothing_here),
		cmocka_unit_test(a_captured_chunk_is_one_graph_each_way_and_nothing_else),
		cmocka_unit_test(gradient_of_the_output_is_left_as_it_came),
		cmocka_unit_test(buffers_of_the_device_hold_what_host_buffers_would),
		cmocka_unit_test(kept_values_can_be_looked_at_and_others_not),
		cmocka_unit_test(profile_counts_every_node_that_ran),
		cmocka_unit_test(devices_open_by_name_and_number),
		cmocka_unit_test(plans_of_all_devices_do_the_same),
		cmocka_unit_test(emulated_devices_are_never_taken_unasked),
	};
	return run_on_gpu(tests, NULL, NULL);
}
