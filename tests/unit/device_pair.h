/* SPDX-License-Identifier: Apache-2.0
 *
 * One graph as a plan on the CPU device and one on the CUDA device of this build
 * (emulated, or a card), doing the same and compared: for test_cuda_ops.c,
 * test_cuda_plan.c, test_cuda_train.c and test_cuda_steps.c. Not a test by itself.
 */
#ifndef GP_TEST_DEVICE_PAIR_H
#define GP_TEST_DEVICE_PAIR_H

#include <string.h>

#include "common/graph/device.h"
#include "kernels/device_registry.h"
#include "common/base/mem.h"
#include "common/base/rng.h"
#include "kernels/cuda/plan/cuda_device.h"
#include "kernels/cuda/runtime/rt.h"
#include "tests/unit/on_gpu.h"

enum { CPU, CUDA, BOTH };

struct pair {
	const struct gp_graph *graph;
	struct gp_plan_spec spec;
	struct gp_device *dev[BOTH];
	struct gp_plan *plan[BOTH];
	double tolerance; /* relative L2 between the two */
};

/* 1e-4 in fp32; what rounding to 11 and 8 bits makes of sums otherwise, and of ReLUs whose input is nearly 0. */
static inline double tolerance_of(enum gp_precision precision)
{
	return precision == GP_PRECISION_BF16 ? 0.15 : precision == GP_PRECISION_TF32 ? 5e-3 : 1e-4;
}

/* The CPU's plan computes in fp32 whatever the other's precision. */
static inline struct pair make_pair(const struct gp_graph *g, struct gp_plan_spec spec)
{
	struct pair p = {.graph = g, .spec = spec, .tolerance = tolerance_of(spec.precision)};
	struct gp_plan_spec exact;
	p.spec.graph = g;
	exact = p.spec;
	exact.precision = GP_PRECISION_FP32;
	OK(gp_device_open("cpu", 1, &p.dev[CPU], &err));
	OK(gp_device_open(gp_cuda_ops()->name, 1, &p.dev[CUDA], &err));
	OK(p.dev[CPU]->ops->plan_new(p.dev[CPU], &exact, &p.plan[CPU], &err));
	OK(p.dev[CUDA]->ops->plan_new(p.dev[CUDA], &p.spec, &p.plan[CUDA], &err));
	return p;
}

static inline void drop_pair(struct pair *p)
{
	for (int d = 0; d < BOTH; d++) {
		p->plan[d]->ops->plan_free(p->plan[d]);
		p->dev[d]->ops->close(p->dev[d]);
	}
}

static inline void expect_near(const char *what, const float *got, const float *want, uint64_t n, double tolerance)
{
	double e = relative_l2(got, want, n);
	if (!(e <= tolerance))
		fail_msg("%s: relative L2 error %.3g (%llu elements, first %.6g instead of %.6g)", what, e,
			 (unsigned long long)n, (double)got[0], (double)want[0]);
}

/* Inputs, or outputs, of the graph; the type of one of them. */
static inline int ports_of(const struct pair *p, enum gp_plan_buf which)
{
	return which == GP_BUF_INPUT || which == GP_BUF_GRAD_INPUT ? p->graph->inputs : p->graph->outputs;
}

static inline const struct gp_type *type_of(const struct pair *p, enum gp_plan_buf which, int port)
{
	const bool input = which == GP_BUF_INPUT || which == GP_BUF_GRAD_INPUT;
	return input ? &p->graph->value[port].type : gp_graph_output_type(p->graph, port);
}

/* Elements of port 0. */
static inline uint64_t elements(const struct pair *p, enum gp_plan_buf which)
{
	return (uint64_t)p->spec.batch * gp_shape_elements(&type_of(p, which, 0)->shape);
}

/* Integers are small, some of them negative. */
static inline void fill_port(struct gp_plan *plan, void *to, const struct gp_type *type, uint64_t seed, uint64_t number)
{
	const uint64_t count = (uint64_t)plan->spec.batch * gp_shape_elements(&type->shape);
	for (uint64_t i = 0; i < count; i++)
		if (type->dtype == GP_I32)
			((int32_t *)to)[i] = (int32_t)(gp_rng_u32(seed, number, i) % 9) - 1;
		else
			((float *)to)[i] = gp_rng_normal(seed, number, i);
}

/* Every port that there is. */
static inline void fill_both(struct pair *p, int slot, enum gp_plan_buf which, uint64_t number)
{
	for (int port = 0; port < ports_of(p, which); port++)
		for (int d = 0; d < BOTH; d++) {
			void *to = p->plan[d]->ops->buffer(p->plan[d], slot, which, port);
			if (to)
				fill_port(p->plan[d], to, type_of(p, which, port),
					  9 + (uint64_t)which + 10 * (uint64_t)port, number);
		}
}

static inline void compare_buffer(struct pair *p, int slot, enum gp_plan_buf which)
{
	static const char *const names[] = {"output", "output", "input gradient", "input gradient"};
	for (int port = 0; port < ports_of(p, which); port++) {
		const float *got = p->plan[CUDA]->ops->buffer(p->plan[CUDA], slot, which, port);
		const float *want = p->plan[CPU]->ops->buffer(p->plan[CPU], slot, which, port);
		const struct gp_type *type = type_of(p, which, port);
		const uint64_t count = (uint64_t)p->spec.batch * gp_shape_elements(&type->shape);
		assert_int_equal(got != NULL, want != NULL);
		if (want && type->dtype == GP_I32)
			assert_memory_equal(got, want, count * sizeof *want);
		else if (want)
			expect_near(names[which], got, want, count, p->tolerance);
	}
}

static inline void forward_both(struct pair *p, int slot, enum gp_mode mode, uint64_t draw)
{
	for (int d = 0; d < BOTH; d++)
		OK(p->plan[d]->ops->forward(p->plan[d], slot, mode, draw, &err));
}

static inline void backward_both(struct pair *p, int slot)
{
	for (int d = 0; d < BOTH; d++)
		OK(p->plan[d]->ops->backward(p->plan[d], slot, &err));
}

typedef enum gp_status read_param(struct gp_plan *plan, int index, float *out, struct gp_err *err);

static inline void compare_param(struct pair *p, int index, const char *what, read_param *cpu, read_param *cuda)
{
	const struct gp_param *q = &p->graph->param[index];
	char title[GP_NAME_MAX + 64];
	float *want = gp_calloc(q->count, sizeof *want), *got = gp_calloc(q->count, sizeof *got);
	assert_non_null(want);
	assert_non_null(got);
	OK(cpu(p->plan[CPU], index, want, &err));
	OK(cuda(p->plan[CUDA], index, got, &err));
	snprintf(title, sizeof title, "%s of %s", what, q->name);
	expect_near(title, got, want, q->count, p->tolerance);
	gp_free(want);
	gp_free(got);
}

static inline void compare_params(struct pair *p)
{
	for (int i = 0; i < p->graph->params; i++)
		compare_param(p, i, "value", p->plan[CPU]->ops->param_get, p->plan[CUDA]->ops->param_get);
}

static inline void compare_grads(struct pair *p)
{
	for (int i = 0; i < p->graph->params; i++)
		if (p->graph->param[i].trained)
			compare_param(p, i, "gradient", p->plan[CPU]->ops->grad_get, p->plan[CUDA]->ops->grad_get);
}

#endif
