/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of a CUDA plan that are queued while others are under way, in the orders
 * in which a server queues them: every bit is as when each was waited for at
 * once. The emulated device does its work as late as it may, so that what is not
 * waited for, by the host or by a stream, is missing. See common/graph/device.h.
 */
#include <string.h>

#include "common/base/fault.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/base/worker.h"
#include "kernels/cuda/plan/cuda_device.h"
#include "tests/unit/on_gpu.h"
#include "kernels/device_registry.h"
#include "common/graph/ops/op_conv.h"
#include "common/graph/ops/op_batch_norm.h"
#include "common/graph/ops/op_elementwise.h"
#include "common/graph/ops/op_linear.h"

enum { BATCH = 3, SLOTS = 3, CHUNKS = 5, STEPS = 3, CLASSES = 5 };

/* --- a model with all that a plan does with gradients ------------------------------------------------------------- */

static int normed(struct gp_graph *g, const char *name, int x, int channels, int kernel, int groups)
{
	char bn[32];
	snprintf(bn, sizeof bn, "%s_bn", name);
	x = gp_graph_conv(g, name, x, channels, kernel, 1, kernel / 2, groups, false, &err);
	return gp_graph_batch_norm(g, bn, x, 1e-5f, 0.1f, &err);
}

/* An inverted residual as MobileNetV2's, a block as ResNet's, one without batch norm, whose gradients are added up where a
 * weight gradient still reads one, and a branch that reads what the sum made. */
static struct gp_graph *build_graph(void)
{
	const struct gp_shape sample = {.ndim = 3, .dim = {4, 3, 8}};
	struct gp_graph *g = gp_graph_new("branches", &sample, &err);
	assert_non_null(g);
	OK(gp_graph_begin_block(g, "block", &err));
	int a = gp_graph_unary(g, GP_OP_RELU6, "a", normed(g, "stem", 0, 16, 3, 1), &err);
	int x = gp_graph_unary(g, GP_OP_RELU6, "b", normed(g, "expand", a, 32, 1, 1), &err);
	x = gp_graph_unary(g, GP_OP_RELU6, "c", normed(g, "depthwise", x, 32, 3, 32), &err);
	a = gp_graph_sum(g, "first_sum", normed(g, "project", x, 16, 1, 1), a, &err);
	x = gp_graph_unary(g, GP_OP_RELU, "d", normed(g, "conv1", a, 16, 3, 1), &err);
	a = gp_graph_sum(g, "second_sum", normed(g, "conv2", x, 16, 3, 1), a, &err);
	a = gp_graph_unary(g, GP_OP_RELU, "e", a, &err);
	x = gp_graph_conv(g, "plain1", a, 16, 1, 1, 0, 1, true, &err);
	x = gp_graph_unary(g, GP_OP_RELU, "f", x, &err);
	a = gp_graph_sum(g, "plain_sum", gp_graph_conv(g, "plain2", x, 16, 1, 1, 0, 1, true, &err), a, &err);
	x = gp_graph_conv(g, "biased", a, 16, 3, 1, 1, 1, true, &err);
	x = gp_graph_sum(g, "third_sum", x, a, &err);
	x = gp_graph_dropout(g, "drop", x, 0.2f, &err);
	x = gp_graph_unary(g, GP_OP_GLOBAL_AVG_POOL, "mean", x, &err);
	x = gp_graph_unary(g, GP_OP_FLATTEN, "flat", x, &err);
	assert_true(gp_graph_linear(g, "classifier", x, CLASSES, true, &err) > 0);
	OK(gp_graph_finish(g, &err));
	return g;
}

static struct gp_device *open_device(void)
{
	struct gp_device *dev;
	OK(gp_device_open(gp_cuda_ops()->name, 1, &dev, &err));
	return dev;
}

static struct gp_plan *new_plan(struct gp_device *dev, const struct gp_graph *g, enum gp_precision precision)
{
	const struct gp_plan_spec spec = {.graph = g,
					  .batch = BATCH,
					  .slots = SLOTS,
					  .train = true,
					  .grad_inputs = 1,
					  .seed = 9,
					  .undo = true,
					  .precision = precision,
					  .optim = {.kind = GP_OPTIM_SGD, .momentum = 0.9f, .weight_decay = 1e-3f}};
	struct gp_plan *p;
	OK(dev->ops->plan_new(dev, &spec, &p, &err));
	return p;
}

/* What others are compared to: a plan that is measured has no graphs, and everything of a call on one stream. */
static struct gp_plan *new_reference(struct gp_device *dev, const struct gp_graph *g, enum gp_precision precision)
{
	const struct gp_plan_profile *profile;
	struct gp_plan *p = new_plan(dev, g, precision);
	OK(dev->ops->profile(p, &profile, &err));
	return p;
}

/* --- one step, in whatever order ---------------------------------------------------------------------------------- */

static uint64_t in_elements(const struct gp_plan *p)
{
	return BATCH * gp_shape_elements(gp_graph_input_shape(p->spec.graph));
}

static void fill(float *x, uint64_t n, uint64_t stream, uint64_t number)
{
	for (uint64_t i = 0; i < n; i++)
		x[i] = gp_rng_normal(stream, number, i);
}

static void fill_input(struct gp_plan *p, int slot, uint64_t number)
{
	fill(p->ops->buffer(p, slot, GP_BUF_INPUT, 0), in_elements(p), 4, number);
}

static void fill_gradient(struct gp_plan *p, int slot, uint64_t number)
{
	fill(p->ops->buffer(p, slot, GP_BUF_GRAD_OUTPUT, 0), BATCH * CLASSES, 5, number);
}

/* What came of a step's chunks. */
struct made {
	float *out, *grad; /* (CHUNKS, BATCH, CLASSES), (CHUNKS, input) */
	double squares[64];
};

static struct made new_made(const struct gp_plan *p)
{
	struct made m = {.out = gp_calloc((size_t)CHUNKS * BATCH * CLASSES, sizeof *m.out),
			 .grad = gp_calloc((size_t)CHUNKS * in_elements(p), sizeof *m.grad)};
	assert_true(m.out && m.grad);
	return m;
}

static void drop_made(struct made *m)
{
	gp_free(m->out);
	gp_free(m->grad);
}

static void keep(struct gp_plan *p, struct made *m, int chunk, bool backward)
{
	const int slot = chunk % SLOTS;
	if (backward)
		memcpy(m->grad + (size_t)chunk * in_elements(p), p->ops->buffer(p, slot, GP_BUF_GRAD_INPUT, 0),
		       in_elements(p) * sizeof(float));
	else
		memcpy(m->out + (size_t)chunk * BATCH * CLASSES, p->ops->buffer(p, slot, GP_BUF_OUTPUT, 0),
		       BATCH * CLASSES * sizeof(float));
}

static void run_one_by_one(struct gp_plan *p, uint64_t step, struct made *m)
{
	for (int c = 0; c < CHUNKS; c++) {
		fill_input(p, c % SLOTS, step * CHUNKS + (uint64_t)c);
		OK(p->ops->forward(p, c % SLOTS, GP_TRAIN, step * CHUNKS + (uint64_t)c, &err));
		keep(p, m, c, false);
		fill_gradient(p, c % SLOTS, step * CHUNKS + (uint64_t)c);
		OK(p->ops->backward(p, c % SLOTS, &err));
		keep(p, m, c, true);
	}
	OK(p->ops->grad_squares(p, m->squares, &err));
	OK(p->ops->optim_step(p, 0.05f, &err));
}

struct call {
	int chunk;
	bool backward;
};

/* A server's step: what comes next is drawn, at most GP_TASKS_BEGUN calls have not been waited for. */
struct flight {
	struct gp_plan *p;
	struct made *m;
	uint64_t step, draws;
	struct call call[GP_TASKS_BEGUN];
	int under_way, begun[2], ended[2]; /* [0] forwards, [1] backwards */
};

static void land(struct flight *f)
{
	const struct call c = f->call[0];
	OK(f->p->ops->wait(f->p, c.chunk % SLOTS, &err));
	keep(f->p, f->m, c.chunk, c.backward);
	f->ended[c.backward]++;
	memmove(f->call, f->call + 1, (size_t)--f->under_way * sizeof f->call[0]);
}

static void begin(struct flight *f, bool backward)
{
	struct gp_plan *p = f->p;
	const int chunk = f->begun[backward]++, slot = chunk % SLOTS;
	const uint64_t number = f->step * CHUNKS + (uint64_t)chunk;
	if (backward) {
		fill_gradient(p, slot, number);
		OK(p->ops->queue_backward(p, slot, &err));
	} else {
		fill_input(p, slot, number);
		OK(p->ops->queue_forward(p, slot, GP_TRAIN, number, &err));
	}
	f->call[f->under_way++] = (struct call){chunk, backward};
}

/* The update of the step before may be under way. */
static void run_in_flight(struct gp_plan *p, uint64_t step, uint64_t seed, struct made *m)
{
	struct flight f = {.p = p, .m = m, .step = step};
	while (f.begun[1] < CHUNKS) {
		const bool forward = f.begun[0] < CHUNKS && f.begun[0] < f.ended[1] + SLOTS,
			   backward = f.begun[1] < f.ended[0];
		const bool ends = gp_rng_uniform(seed, step, f.draws++) < 0.3f;
		if (f.under_way == GP_TASKS_BEGUN || (f.under_way > 0 && (ends || (!forward && !backward))))
			land(&f);
		else if (forward && (!backward || gp_rng_uniform(seed, step, f.draws++) < 0.5f))
			begin(&f, false);
		else
			begin(&f, true);
	}
	if (seed % 2) /* right behind what is under way, or after it */
		OK(p->ops->grad_squares(p, m->squares, &err));
	while (f.under_way > 0)
		land(&f);
	if (seed % 2 == 0)
		OK(p->ops->grad_squares(p, m->squares, &err));
	OK(p->ops->queue_optim_step(p, 0.05f, &err));
}

static void expect_same_params(struct gp_plan *a, struct gp_plan *b)
{
	for (int i = 0; i < a->spec.graph->params; i++) {
		const struct gp_param *q = &a->spec.graph->param[i];
		float *x = gp_calloc(q->count, sizeof *x), *y = gp_calloc(q->count, sizeof *y);
		assert_true(x && y);
		OK(a->ops->param_get(a, i, x, &err));
		OK(b->ops->param_get(b, i, y, &err));
		if (memcmp(x, y, q->count * sizeof *x) != 0)
			fail_msg("%s differ", q->name);
		gp_free(x);
		gp_free(y);
	}
}

static void expect_same(const struct gp_plan *p, const struct made *a, const struct made *b)
{
	assert_memory_equal(a->out, b->out, (size_t)CHUNKS * BATCH * CLASSES * sizeof(float));
	assert_memory_equal(a->grad, b->grad, (size_t)CHUNKS * in_elements(p) * sizeof(float));
	assert_memory_equal(a->squares, b->squares, sizeof a->squares);
}

/* With the running statistics and weights that the step left, on the second plan's side right behind its update. */
static void expect_same_evaluation(struct gp_plan *a, struct gp_plan *b, uint64_t step)
{
	fill_input(a, 0, 2000 + step);
	fill_input(b, 0, 2000 + step);
	OK(b->ops->queue_forward(b, 0, GP_EVAL, 0, &err));
	OK(a->ops->forward(a, 0, GP_EVAL, 0, &err));
	OK(b->ops->wait(b, 0, &err));
	assert_memory_equal(a->ops->buffer(a, 0, GP_BUF_OUTPUT, 0), b->ops->buffer(b, 0, GP_BUF_OUTPUT, 0),
			    BATCH * CLASSES * sizeof(float));
}

static void fly(struct gp_device *dev, const struct gp_graph *g, enum gp_precision precision, uint64_t seed)
{
	struct gp_plan *a = new_reference(dev, g, precision), *b = new_plan(dev, g, precision);
	struct made of_a = new_made(a), of_b = new_made(b);
	for (uint64_t step = 0; step < STEPS; step++) {
		run_one_by_one(a, step, &of_a);
		run_in_flight(b, step, seed, &of_b);
		if (seed % 3 == 0)
			OK(b->ops->wait(b, GP_SLOT_UPDATE, &err));
		expect_same(a, &of_a, &of_b);
		if (seed % 2)
			expect_same_evaluation(a, b, step);
		if (seed % 3 == 1 || step == STEPS - 1)
			expect_same_params(a, b);
	}
	drop_made(&of_a);
	drop_made(&of_b);
	dev->ops->plan_free(a);
	dev->ops->plan_free(b);
}

static void calls_under_way_give_what_calls_one_by_one_give(void **state)
{
	(void)state;
	struct gp_graph *g = build_graph();
	struct gp_device *dev = open_device();
	assert_true(g->params <= 64);
	for (uint64_t seed = 1; seed < 7; seed++)
		fly(dev, g, GP_PRECISION_FP32, seed);
	fly(dev, g, GP_PRECISION_BF16, 7);
	fly(dev, g, GP_PRECISION_TF32, 8);
	dev->ops->close(dev);
	gp_graph_free(g);
}

/* Two forwards and a backward, with other data, are under way when the step is taken back, by stream or by host. */
static void begin_in_vain(struct gp_plan *p, bool wait_first)
{
	fill_input(p, 0, 1000);
	fill_input(p, 1, 1001);
	fill_gradient(p, 0, 1000);
	OK(p->ops->forward(p, 0, GP_TRAIN, 1000, &err));
	OK(p->ops->queue_forward(p, 1, GP_TRAIN, 1001, &err));
	OK(p->ops->queue_backward(p, 0, &err));
	if (!wait_first)
		p->ops->step_undo(p);
	OK(p->ops->wait(p, 1, &err));
	OK(p->ops->wait(p, 0, &err));
	if (wait_first)
		p->ops->step_undo(p);
}

/* The same steps of two plans, the first waited for call by call. */
static void expect_equal_steps(void (*run)(struct gp_plan *p, uint64_t step, struct made *out))
{
	struct gp_graph *g = build_graph();
	struct gp_device *dev = open_device();
	struct gp_plan *a = new_reference(dev, g, GP_PRECISION_FP32), *b = new_plan(dev, g, GP_PRECISION_FP32);
	struct made of_a = new_made(a), of_b = new_made(b);
	for (uint64_t step = 0; step < STEPS; step++) {
		run_one_by_one(a, step, &of_a);
		run(b, step, &of_b);
		expect_same(a, &of_a, &of_b);
		expect_same_params(a, b);
	}
	drop_made(&of_a);
	drop_made(&of_b);
	dev->ops->plan_free(a);
	dev->ops->plan_free(b);
	dev->ops->close(dev);
	gp_graph_free(g);
}

static void run_after_one_in_vain(struct gp_plan *p, uint64_t step, struct made *out)
{
	begin_in_vain(p, step & 1);
	run_in_flight(p, step, 1, out);
}

static void a_step_taken_back_under_way_leaves_no_trace(void **state)
{
	(void)state;
	expect_equal_steps(run_after_one_in_vain);
}

/* As the host had not been asked: the device finds both in its queue. */
static void run_backward_behind_forward(struct gp_plan *p, uint64_t step, struct made *out)
{
	for (int c = 0; c < CHUNKS; c++) {
		const uint64_t number = step * CHUNKS + (uint64_t)c;
		const int slot = c % SLOTS;
		fill_input(p, slot, number);
		fill_gradient(p, slot, number);
		OK(p->ops->queue_forward(p, slot, GP_TRAIN, number, &err));
		OK(p->ops->queue_backward(p, slot, &err));
		OK(p->ops->wait(p, slot, &err));
		keep(p, out, c, false);
		keep(p, out, c, true);
	}
	OK(p->ops->grad_squares(p, out->squares, &err));
	OK(p->ops->queue_optim_step(p, 0.05f, &err));
}

static void a_backward_may_be_queued_right_behind_its_forward(void **state)
{
	(void)state;
	expect_equal_steps(run_backward_behind_forward);
}

static void a_plan_can_be_freed_with_calls_under_way(void **state)
{
	(void)state;
	struct gp_graph *g = build_graph();
	struct gp_device *dev = open_device();
	struct gp_plan *p = new_plan(dev, g, GP_PRECISION_FP32);
	fill_input(p, 0, 1);
	fill_input(p, 1, 2);
	OK(p->ops->queue_forward(p, 0, GP_TRAIN, 0, &err));
	OK(p->ops->queue_forward(p, 1, GP_TRAIN, 1, &err));
	dev->ops->plan_free(p);
	dev->ops->close(dev);
	gp_graph_free(g);
}

#ifdef GP_FAULTS
/* Three plans have a call under way, and one fails; the calls of the others are whole. */
static void a_failure_under_way_is_told_to_its_own_plan(void **state)
{
	(void)state;
	if (!gp_rt_is_emulated())
		skip();
	struct gp_graph *g = build_graph();
	struct gp_device *dev = open_device();
	struct gp_plan *p[3];
	for (int i = 0; i < 3; i++) {
		p[i] = new_plan(dev, g, GP_PRECISION_FP32);
		fill_input(p[i], 0, 1);
	}
	for (int i = 0; i < 3; i++) {
		gp_fault_arm(GP_FAULT_DEVICE, i == 1 ? 3 : 0);
		OK(p[i]->ops->queue_forward(p[i], 0, GP_TRAIN, 0, &err));
		gp_fault_arm(GP_FAULT_DEVICE, 0);
	}
	for (int i = 2; i >= 0; i--)
		assert_int_equal(p[i]->ops->wait(p[i], 0, &err), i == 1 ? GP_DEVICE : GP_OK);
	assert_int_equal(p[1]->ops->queue_backward(p[1], 0, &err), GP_INTERNAL);
	assert_memory_equal(p[0]->ops->buffer(p[0], 0, GP_BUF_OUTPUT, 0), p[2]->ops->buffer(p[2], 0, GP_BUF_OUTPUT, 0),
			    BATCH * CLASSES * sizeof(float));
	for (int i = 0; i < 3; i++)
		dev->ops->plan_free(p[i]);
	dev->ops->close(dev);
	gp_graph_free(g);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_under_way_give_what_calls_one_by_one_give),
		cmocka_unit_test(a_backward_may_be_queued_right_behind_its_forward),
		cmocka_unit_test(a_step_taken_back_under_way_leaves_no_trace),
		cmocka_unit_test(a_plan_can_be_freed_with_calls_under_way),
#ifdef GP_FAULTS
		cmocka_unit_test(a_failure_under_way_is_told_to_its_own_plan),
#endif
	};
	return run_on_gpu(tests, NULL, NULL);
}
