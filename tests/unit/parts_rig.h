/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a graph as one plan, or cut in three (common/graph/graph_part.h), and compares outputs, gradients and values bit for
 * bit, at every cut, on every device. How plans are made is said by the variables below. Not a test by itself.
 */
#ifndef GP_TEST_PARTS_RIG_H
#define GP_TEST_PARTS_RIG_H

#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/rng.h"
#include "common/base/threads.h"
#include "common/codec/codec.h"
#include "common/graph/device.h"
#include "common/graph/graph_part.h"
#include "kernels/device_registry.h"
#include "tests/sanitized.h"
#include "tests/unit/parts_graphs.h"

enum { HEAD, BODY, TAIL, PARTS };

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

static inline struct gp_plan *make_plan(struct gp_device *dev, const struct gp_graph *g, uint64_t grad_inputs,
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

static inline struct run make_whole(struct gp_device *dev, const struct gp_graph *g, enum gp_precision precision)
{
	return (struct run){.whole = g, .count = 1, .graph = {g}, .plan = {make_plan(dev, g, 0, 0, precision)}};
}

static inline struct run make_split(struct gp_device *dev, const struct gp_graph *g, struct gp_cut cut,
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

static inline void drop(struct run *r)
{
	for (int k = 0; k < r->count; k++)
		r->plan[k]->ops->plan_free(r->plan[k]);
	gp_graph_parts_deinit(&r->parts);
}

static inline void *buffer(struct run *r, int part, int slot, enum gp_plan_buf which, int index)
{
	return r->plan[part]->ops->buffer(r->plan[part], slot, which, index);
}

static inline uint64_t count_of(const struct gp_type *type)
{
	return BATCH * gp_shape_elements(&type->shape);
}

static inline void fill_data(const struct gp_graph *g, int input, uint64_t chunk, void *out)
{
	const struct gp_type *type = &g->value[input].type;
	for (uint64_t i = 0; i < count_of(type); i++)
		if (type->dtype == GP_I32) /* some ids lie outside the table, some masks are 0 */
			((int32_t *)out)[i] = (int32_t)(gp_rng_u32(SEED + (uint64_t)input, chunk, i) % (VOCAB + 2)) - 1;
		else
			((float *)out)[i] = gp_rng_normal(SEED + (uint64_t)input, chunk, i);
}

static inline const struct gp_port *ports_of(const struct run *r, int part)
{
	return part == HEAD ? r->parts.head_in : part == BODY ? r->parts.body_in : r->parts.tail_in;
}

static inline void set_input(struct run *r, int part, int slot, int input, uint64_t chunk)
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

static inline void forward(struct run *r, int slot, uint64_t chunk)
{
	for (int part = 0; part < r->count; part++) {
		for (int i = 0; i < r->graph[part]->inputs; i++)
			set_input(r, part, slot, i, chunk);
		OK(r->plan[part]->ops->forward(r->plan[part], slot, GP_TRAIN, chunk, &err));
	}
}

/* What the tail and the body say of an output of `part`, in this order. */
static inline void gather_gradient(struct run *r, int part, int slot, int output)
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

static inline double backward(struct run *r, int slot, uint64_t chunk)
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
static inline double run_step(struct run *r, uint64_t step)
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

static inline void update(struct run *r)
{
	for (int part = 0; part < r->count; part++)
		OK(r->plan[part]->ops->optim_step(r->plan[part], 0.05f, &err));
}

/* --- comparing ---------------------------------------------------------------------------------------------------- */

/* A parameter of the whole model, or its gradient, from the part that has it. */
static inline void read_param(struct run *r, const struct gp_param *q, bool grad, float *out)
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
static inline float *run_and_collect(struct run *r, uint64_t step)
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

static inline void expect_same(const struct gp_graph *g, const float *got, const float *want, struct gp_cut cut)
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

static inline void check_cut(struct gp_device *dev, const struct gp_graph *g, struct gp_cut cut,
			     enum gp_precision precision, float *const *want)
{
	struct run split = make_split(dev, g, cut, precision);
	for (uint64_t step = 0; step < STEPS; step++) {
		float *got = run_and_collect(&split, step);
		expect_same(g, got, want[step], cut);
		gp_free(got);
	}
	drop(&split);
}

static inline void check_cuts(struct gp_device *dev, const struct gp_graph *g, int every, enum gp_precision precision)
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

static inline void check_all_cuts(const char *device, int threads, const struct gp_graph *g, int every,
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
static inline void check_everywhere(struct gp_graph *g, int emulated)
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

#endif
