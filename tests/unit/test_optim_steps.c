/* SPDX-License-Identifier: Apache-2.0
 *
 * 50 steps of every optimizer with every schedule beside PyTorch 1.13, and
 * with gradients clipped by norm and by value. The reference is made by
 * tests/tools/dump_optim.py, which says why both sides see the same gradients
 * to the last bit: what differs here is the update's own rounding.
 *
 * Two plans stand for two parts of a cut model: the norm that clips spans both.
 */
#include <math.h>
#include <string.h>

#include "common/graph/clip.h"
#include "common/base/mem.h"
#include "common/store/safetensors.h"
#include "tests/unit/ok.h"
#include "tests/unit/test_device.h"
#include "kernels/device_registry.h"
#include "common/graph/ops/op_linear.h"

enum { STEPS = 50, WARMUP = 8, PARTS = 2, PARAMS = 2, LARGEST = 24 * 16, SUMS = PARTS * PARAMS };

/* PyTorch's vector loops contract a + b * c into one rounding where the processor can, ours never do. */
#define PARAMETER_LIMIT 5e-7 /* largest difference in a tensor, relative to its largest element */
#define NORM_LIMIT      1e-6 /* PyTorch adds squares in float32 */

static struct gp_st_file *dump;

struct part {
	const char *name;
	int inputs, outputs;
	struct gp_graph *graph;
	struct gp_plan *plan;
	float *gy; /* sets of outputs' gradients */
	int sets;
};

enum decay { OF_ALL, OF_WEIGHTS };

struct bed {
	struct gp_device *dev;
	struct part part[PARTS];
	float *amplitudes;
};

/* Caller frees. */
static float *load(const char *prefix, const char *name, uint64_t *count)
{
	char full[96];
	snprintf(full, sizeof full, "%s%s", prefix, name);
	const struct gp_st_tensor *t = gp_st_find(dump, full);
	if (!t)
		fail_msg("the dump has no %s", full);
	float *v = gp_calloc(t->count, sizeof *v);
	assert_non_null(v);
	OK(gp_st_read_f32(t, v, &err));
	*count = t->count;
	return v;
}

/* --- two linear layers with the dump's starting values ----------------------------------------------------------- */

static const char *param_name(const struct part *p, int param, char name[32])
{
	snprintf(name, 32, "/%s.%s", p->name, param ? "bias" : "weight");
	return name;
}

static void load_start(struct part *p)
{
	char name[32];
	uint64_t n;
	for (int i = 0; i < PARAMS; i++) {
		float *v = load("start", param_name(p, i, name), &n);
		assert_int_equal(n, p->graph->param[i].count);
		OK(p->plan->ops->param_set(p->plan, i, v, &err));
		gp_free(v);
	}
}

static void make_part(struct part *p, struct gp_device *dev, const struct gp_optim *optim, enum decay decay)
{
	const struct gp_shape sample = {.ndim = 1, .dim = {p->inputs}};
	char name[32];
	uint64_t n;
	p->graph = gp_graph_new("linear", &sample, &err);
	OK(gp_graph_begin_block(p->graph, "block", &err));
	assert_true(gp_graph_linear(p->graph, "op", 0, p->outputs, true, &err) > 0);
	OK(gp_graph_finish(p->graph, &err));
	p->graph->param[1].decay = decay == OF_ALL;
	struct gp_plan_spec spec = {.graph = p->graph, .batch = p->inputs, .slots = 1, .train = true, .optim = *optim};
	OK(dev->ops->plan_new(dev, &spec, &p->plan, &err));
	snprintf(name, sizeof name, "gy/%s", p->name);
	p->gy = load("", name, &n);
	p->sets = (int)n / (p->inputs * p->outputs);
	load_start(p);
}

static struct bed make_bed_with(const struct gp_optim *optim, enum decay decay)
{
	struct bed b = {.part = {{.name = "a", .inputs = 5, .outputs = 3}, {.name = "b", .inputs = 24, .outputs = 16}}};
	uint64_t n;
	OK(gp_optim_check(optim, &err));
	OK(gp_device_open(test_device(), 1, &b.dev, &err));
	for (int i = 0; i < PARTS; i++)
		make_part(&b.part[i], b.dev, optim, decay);
	b.amplitudes = load("", "amplitudes", &n);
	assert_int_equal(n, STEPS);
	return b;
}

static struct bed make_bed(const struct gp_optim *optim)
{
	return make_bed_with(optim, OF_ALL);
}

static void drop_bed(struct bed *b)
{
	for (int i = 0; i < PARTS; i++) {
		b->part[i].plan->ops->plan_free(b->part[i].plan);
		gp_graph_free(b->part[i].graph);
		gp_free(b->part[i].gy);
	}
	b->dev->ops->close(b->dev);
	gp_free(b->amplitudes);
}

/* Gradients of the step: the input is the identity, so a weight's is the output gradient, transposed. */
static void make_gradients(struct bed *b, int step, bool spoil)
{
	for (int k = 0; k < PARTS; k++) {
		struct part *p = &b->part[k];
		const struct gp_device_ops *ops = p->plan->ops;
		const int n = p->inputs * p->outputs;
		float *x = ops->buffer(p->plan, 0, GP_BUF_INPUT, 0);
		for (int i = 0; i < p->inputs * p->inputs; i++)
			x[i] = i % (p->inputs + 1) == 0;
		OK(ops->forward(p->plan, 0, GP_TRAIN, 0, &err));
		float *gy = ops->buffer(p->plan, 0, GP_BUF_GRAD_OUTPUT, 0);
		for (int i = 0; i < n; i++)
			gy[i] = p->gy[step % p->sets * n + i] * b->amplitudes[step];
		if (spoil && k == 1)
			gy[3 * p->outputs + 7] = NAN;
		OK(ops->backward(p->plan, 0, &err));
	}
}

static double norm_of(struct bed *b)
{
	double squares[SUMS], total = 0.0;
	for (int k = 0; k < PARTS; k++) {
		assert_int_equal(gp_clip_sums(b->part[k].graph), PARAMS);
		OK(b->dev->ops->grad_squares(b->part[k].plan, squares, &err));
		total = gp_clip_add(total, squares, PARAMS);
	}
	return sqrt(total);
}

/* --- comparison -------------------------------------------------------------------------------------------------- */

struct difference {
	double worst; /* largest in a tensor / its largest element, of all tensors */
	int bits;     /* elements that are not equal to the bit */
};

static void compare(struct difference *d, const char *what, const float *got, const float *want, uint64_t n)
{
	double largest = 0.0, worst = 0.0;
	for (uint64_t i = 0; i < n; i++) {
		if (isnan(got[i]) != isnan(want[i]))
			fail_msg("%s, element %d: %g instead of %g", what, (int)i, (double)got[i], (double)want[i]);
		if (isnan(want[i]))
			continue;
		largest = fmax(largest, fabs((double)want[i]));
		worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
		d->bits += got[i] != want[i];
	}
	if (largest > 0.0)
		d->worst = fmax(d->worst, worst / largest);
}

static void check_params(struct bed *b, const char *what)
{
	struct difference d = {0};
	float got[LARGEST];
	char name[32];
	uint64_t n;
	for (int k = 0; k < PARTS; k++)
		for (int i = 0; i < PARAMS; i++) {
			float *want = load(what, param_name(&b->part[k], i, name), &n);
			assert_true(n <= LARGEST);
			OK(b->dev->ops->param_get(b->part[k].plan, i, got, &err));
			compare(&d, what, got, want, n);
			gp_free(want);
		}
	print_message("%s: largest difference %.2e, %d elements not equal to the bit\n", what, d.worst, d.bits);
	if (!(d.worst < PARAMETER_LIMIT))
		fail_msg("%s: relative difference %.3g, limit %.0e", what, d.worst, PARAMETER_LIMIT);
}

static float rate(const char *what, const float *want, const struct gp_schedule *s, int step)
{
	float lr = gp_schedule_lr(s, step);
	if (fabs((double)lr - (double)want[step]) > 1e-7 * (double)want[step])
		fail_msg("%s, step %d: rate %.9g instead of %.9g", what, step, (double)lr, (double)want[step]);
	return lr;
}

/* --- cases ------------------------------------------------------------------------------------------------------- */

#define BASE .base_lr = 0.01, .warmup_steps = WARMUP
static const struct {
	const char *name;
	struct gp_schedule s;
} schedules[] = {
	{"const", {.kind = GP_SCHEDULE_CONST, .base_lr = 0.01}},
	{"cosine", {.kind = GP_SCHEDULE_COSINE, BASE, .total_steps = STEPS, .final_lr = 1e-4}},
	{"step", {.kind = GP_SCHEDULE_STEP, BASE, .every = 15, .gamma = 0.1}},
	{"poly", {.kind = GP_SCHEDULE_POLY, BASE, .total_steps = STEPS, .power = 2.0}},
};

#define ADAM .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8f
static const struct {
	const char *name;
	struct gp_optim o;
} optimizers[] = {
	{"sgd", {.kind = GP_OPTIM_SGD, .weight_decay = 1e-2f}},
	{"momentum", {.kind = GP_OPTIM_SGD, .momentum = 0.9f, .weight_decay = 1e-3f}},
	{"nesterov", {.kind = GP_OPTIM_SGD, .momentum = 0.9f, .nesterov = true, .weight_decay = 1e-3f}},
	{"adam", {.kind = GP_OPTIM_ADAM, .weight_decay = 1e-3f, ADAM}},
	{"adamw", {.kind = GP_OPTIM_ADAMW, .weight_decay = 1e-2f, ADAM}},
};

enum { MOMENTUM = 1, ADAMW = 4, CONST = 0, COSINE = 1 };

static void run_with(const char *what, const struct gp_optim *o, const struct gp_schedule *s, enum decay decay)
{
	struct bed b = make_bed_with(o, decay);
	uint64_t steps;
	float *lr = load(what, "/lr", &steps);
	assert_int_equal(steps, STEPS);
	for (int step = 0; step < STEPS; step++) {
		make_gradients(&b, step, false);
		for (int k = 0; k < PARTS; k++)
			OK(gp_clip_update(b.part[k].plan, rate(what, lr, s, step), NAN, &err));
	}
	check_params(&b, what);
	gp_free(lr);
	drop_bed(&b);
}

static void run_plain(const char *what, const struct gp_optim *o, const struct gp_schedule *s)
{
	run_with(what, o, s, OF_ALL);
}

static void every_optimizer_with_every_schedule_ends_where_pytorch_does(void **state)
{
	(void)state;
	char what[64];
	for (size_t o = 0; o < sizeof optimizers / sizeof optimizers[0]; o++)
		for (size_t s = 0; s < sizeof schedules / sizeof schedules[0]; s++) {
			snprintf(what, sizeof what, "%s-%s", optimizers[o].name, schedules[s].name);
			run_plain(what, &optimizers[o].o, &schedules[s].s);
		}
}

/* Returns how many of the steps were clipped. */
static int run_clipped_by_norm(const char *what, struct gp_optim o, const struct gp_schedule *s, int spoil_step)
{
	uint64_t steps, n;
	int clipped = 0;
	o.clip_norm = 20.0;
	struct bed b = make_bed(&o);
	float *lr = load(what, "/lr", &steps), *norms = load(what, "/norms", &n);
	assert_int_equal(n, steps);
	for (int step = 0; step < (int)steps; step++) {
		make_gradients(&b, step, step == spoil_step);
		double norm = norm_of(&b);
		if (isnan(norm) != isnan(norms[step]) || fabs(norm - (double)norms[step]) > NORM_LIMIT * norm)
			fail_msg("%s, step %d: norm %.9g instead of %.9g", what, step, norm, (double)norms[step]);
		clipped += norm > o.clip_norm;
		for (int k = 0; k < PARTS; k++)
			OK(gp_clip_update(b.part[k].plan, rate(what, lr, s, step), norm, &err));
	}
	check_params(&b, what);
	gp_free(lr);
	gp_free(norms);
	drop_bed(&b);
	return clipped;
}

static void clipping_by_norm_ends_where_pytorch_does(void **state)
{
	(void)state;
	int clipped = run_clipped_by_norm("momentum-clip-norm", optimizers[MOMENTUM].o, &schedules[COSINE].s, -1);
	print_message("%d of %d steps were clipped\n", clipped, STEPS);
	assert_in_range(clipped, 10, STEPS - 10); /* or the case shows only half of it */
	run_clipped_by_norm("adamw-clip-norm", optimizers[ADAMW].o, &schedules[COSINE].s, -1);
}

static void a_norm_that_is_not_finite_spoils_the_same_parameters_as_in_pytorch(void **state)
{
	(void)state;
	run_clipped_by_norm("momentum-clip-norm-nan", optimizers[MOMENTUM].o, &schedules[CONST].s, 1);
}

static void clipping_by_value_ends_where_pytorch_does(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		int optimizer;
	} cases[] = {{"momentum-clip-value", MOMENTUM}, {"adamw-clip-value", ADAMW}};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct gp_optim o = optimizers[cases[i].optimizer].o;
		o.clip_value = 0.25;
		run_plain(cases[i].name, &o, &schedules[COSINE].s);
	}
}

/* eps and betas that are not the defaults, and a decay that shows within 50 steps. */
static void decay_of_some_parameters_ends_where_pytorch_does(void **state)
{
	(void)state;
	static const struct gp_optim adamw = {
		.kind = GP_OPTIM_ADAMW, .weight_decay = 0.5f, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3f};
	static const struct gp_optim momentum = {.kind = GP_OPTIM_SGD, .momentum = 0.9f, .weight_decay = 0.5f};
	static const struct gp_schedule linear = {.kind = GP_SCHEDULE_LINEAR, BASE, .total_steps = STEPS};
	run_with("adamw-set-linear", &adamw, &linear, OF_ALL);
	run_with("adamw-set-no-decay", &adamw, &linear, OF_WEIGHTS);
	run_with("momentum-no-decay", &momentum, &schedules[CONST].s, OF_WEIGHTS);
}

static int open_dump(void **state)
{
	(void)state;
	return gp_st_open("tests/golden/ops/optim_steps.safetensors", &dump, &err) == GP_OK ? 0 : -1;
}

static int close_dump(void **state)
{
	(void)state;
	gp_st_close(dump);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_optimizer_with_every_schedule_ends_where_pytorch_does),
		cmocka_unit_test(clipping_by_norm_ends_where_pytorch_does),
		cmocka_unit_test(a_norm_that_is_not_finite_spoils_the_same_parameters_as_in_pytorch),
		cmocka_unit_test(clipping_by_value_ends_where_pytorch_does),
		cmocka_unit_test(decay_of_some_parameters_ends_where_pytorch_does),
	};
	return cmocka_run_group_tests(tests, open_dump, close_dump);
}
