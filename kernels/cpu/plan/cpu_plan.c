/* SPDX-License-Identifier: Apache-2.0
 *
 * Life of a CPU plan: taking its memory in one go, starting values, parameters
 * in and out, giving everything back. What the plan consists of is decided in
 * cpu_plan_build.c and cpu_plan_layout.c; cpu_plan_run.c runs it. See cpu_plan.h.
 * Test: tests/unit/test_cpu_plan.c
 */
#include "kernels/cpu/plan/cpu_device.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <omp.h>

#include "common/base/mem.h"
#include "kernels/cpu/math/bf16.h"
#include "kernels/cpu/onednn/dnn_device.h"
#include "kernels/cpu/plan/cpu_code.h"
#include "kernels/cpu/plan/cpu_moments.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cpu/plan/cpu_profile.h"

#define HUGE_PAGE ((uintptr_t)2 << 20)

/* --- device ----------------------------------------------------------------------------------------------------- */

static enum gp_status cpu_open(const char *arg, int threads, struct gp_device **out, struct gp_err *err)
{
	if (arg)
		GP_FAIL(err, GP_USAGE, "the cpu device takes no number");
	struct cpu_device *dev = gp_calloc(1, sizeof *dev);
	if (!dev)
		GP_FAIL(err, GP_NOMEM, "out of memory for the cpu device");
	const char *engine = getenv("GP_ENGINE");
	dev->plain = engine && strcmp(engine, "plain") == 0;
	dev->own = dev->plain || (engine && strcmp(engine, "own") == 0);
	const enum gp_status status = gp_dnn_open(dev, err);
	if (status != GP_OK) {
		gp_free(dev);
		return status;
	}
	dev->base = (struct gp_device){.ops = &gp_cpu_device_ops, .threads = threads};
	*out = &dev->base;
	return GP_OK;
}

static void cpu_close(struct gp_device *base)
{
	if (!base)
		return;
	struct cpu_device *dev = (struct cpu_device *)base;
	gp_dnn_close(dev);
	gp_free(dev);
}

static bool cpu_supports(const struct gp_device *dev, enum gp_precision precision)
{
	(void)dev;
	return precision == GP_PRECISION_FP32 || (precision == GP_PRECISION_BF16 && gp_bf16_supported());
}

static const char *cpu_lacks(const struct gp_device *dev, enum gp_precision precision)
{
	(void)dev;
	return precision == GP_PRECISION_BF16 ? GP_BF16_FEATURE " is missing" : "only GPUs can";
}

/* --- life of a plan --------------------------------------------------------------------------------------------- */

static enum gp_status begin_plan(struct gp_device *base, const struct gp_plan_spec *spec, struct cpu_plan **out,
				 struct gp_err *err)
{
	struct cpu_plan *p = gp_calloc(1, sizeof *p);
	if (!p)
		GP_FAIL(err, GP_NOMEM, "out of memory for the plan of %s", spec->graph->name);
	p->base = (struct gp_plan){.ops = &gp_cpu_device_ops, .spec = *spec};
	p->dev = (struct cpu_device *)base;
	p->threads = base->threads;
	omp_set_num_threads(p->threads); /* working room is laid out for this many */
	*out = p;
	return GP_OK;
}

void gp_cpu_plan_release(struct cpu_plan *p)
{
	int nodes = p->node ? p->base.spec.graph->nodes : 0;
	for (int i = 0; i < nodes; i++)
		if (p->node[i].op && p->node[i].op->release)
			p->node[i].op->release(&p->node[i]);
	for (int s = 0; p->slot && s < p->base.spec.slots; s++) {
		gp_free_aligned(p->slot[s].arena);
		gp_free_aligned(p->slot[s].row);
		for (int port = 0; p->slot[s].io && port < gp_walk_ports(&p->walk); port++)
			gp_free_aligned(p->slot[s].io[port]);
		gp_free(p->slot[s].io);
	}
	gp_dnn_end(p);
	gp_free_aligned(p->values);
	gp_free_aligned(p->decoded);
	gp_free_aligned(p->grads);
	gp_free_aligned(p->moment);
	gp_free_aligned(p->packs);
	gp_free_aligned(p->undo);
	gp_free_aligned(p->merged);
	gp_free_aligned(p->scratch);
	gp_cpu_coders_free(p);
	gp_cpu_profile_free(p);
	gp_free(p->slot);
	gp_walk_deinit(&p->walk);
	gp_free(p->param);
	gp_free(p->node);
	gp_free(p);
}

static void cpu_plan_free(struct gp_plan *plan)
{
	if (plan)
		gp_cpu_plan_release((struct cpu_plan *)plan);
}

static enum gp_status cpu_plan_estimate(struct gp_device *dev, const struct gp_plan_spec *spec,
					struct gp_plan_memory *out, struct gp_err *err)
{
	struct cpu_plan *p;
	GP_TRY(begin_plan(dev, spec, &p, err));
	enum gp_status status = gp_cpu_plan_build(p, err);
	if (status == GP_OK)
		*out = p->memory;
	gp_cpu_plan_release(p);
	return status;
}

static enum gp_status cpu_plan_maps(struct gp_device *dev, const struct gp_plan_spec *spec, uint64_t *maps,
				    struct gp_err *err)
{
	struct cpu_plan *p;
	GP_TRY(begin_plan(dev, spec, &p, err));
	enum gp_status status = gp_cpu_plan_build(p, err);
	if (status == GP_OK)
		gp_walk_count_maps(&p->walk, maps);
	gp_cpu_plan_release(p);
	return status;
}

/*
 * Large blocks on huge pages, where the kernel gives them on request: rows of a matrix are far apart, and a step walks
 * through hundreds of megabytes. Only whole huge pages inside the block, so that no more memory is touched than asked.
 */
static void prefer_huge_pages(void *block, uint64_t bytes)
{
	uintptr_t from = ((uintptr_t)block + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1);
	uintptr_t to = ((uintptr_t)block + bytes) & ~(uintptr_t)(HUGE_PAGE - 1);
	if (from < to)
		(void)madvise((void *)from, to - from, MADV_HUGEPAGE); /* only a wish */
}

/* Takes `bytes` and counts them in *sum. No block for nothing. */
static enum gp_status take(struct cpu_plan *p, void *out, uint64_t bytes, uint64_t *sum, struct gp_err *err)
{
	if (!bytes)
		return GP_OK;
	void *block = gp_alloc_aligned(bytes);
	if (!block)
		GP_FAIL(err, GP_NOMEM,
			"out of memory: the plan of %s needs %llu MB (at %d samples per chunk, %d slots)",
			p->base.spec.graph->name, (unsigned long long)(p->memory.total >> 20), p->base.spec.batch,
			p->base.spec.slots);
	prefer_huge_pages(block, bytes);
	memcpy(out, &block, sizeof block);
	*sum += bytes;
	return GP_OK;
}

static enum gp_status take_slot(struct cpu_plan *p, struct cpu_slot *slot, struct gp_plan_memory *m, struct gp_err *err)
{
	void *io;
	GP_TRY(take(p, &slot->arena, p->walk.slot_bytes, &m->activations, err));
	GP_TRY(take(p, &slot->row, (uint64_t)gp_cpu_pick_most(p) * sizeof *slot->row, &m->io, err));
	GP_TRY(gp_alloc_array(&io, (size_t)gp_walk_ports(&p->walk), sizeof *slot->io, err));
	slot->io = io;
	for (int port = 0; port < gp_walk_ports(&p->walk); port++)
		GP_TRY(take(p, &slot->io[port], p->walk.io_bytes[port], &m->io, err));
	return GP_OK;
}

static enum gp_status take_memory(struct cpu_plan *p, struct gp_err *err)
{
	struct gp_plan_memory planned = p->memory, m = {0};
	GP_TRY(take(p, &p->values, p->value_floats * sizeof(float), &m.params, err));
	GP_TRY(take(p, &p->decoded, p->decoded_floats * sizeof(float), &m.params, err));
	GP_TRY(take(p, &p->packs, p->pack_bytes, &m.params, err));
	GP_TRY(take(p, &p->undo, p->undo_floats * sizeof(float), &m.params, err));
	GP_TRY(take(p, &p->merged, p->merged_doubles * sizeof(double), &m.params, err));
	GP_TRY(take(p, &p->grads, planned.grads, &m.grads, err));
	GP_TRY(take(p, &p->moment, planned.optim, &m.optim, err));
	GP_TRY(take(p, &p->scratch, p->scratch_bytes, &m.scratch, err));
	GP_TRY(gp_cpu_coders_new(p, err));
	m.scratch += gp_cpu_coders_bytes(p);
	void *slots;
	GP_TRY(gp_alloc_array(&slots, (size_t)p->base.spec.slots, sizeof *p->slot, err));
	p->slot = slots;
	for (int s = 0; s < p->base.spec.slots; s++)
		GP_TRY(take_slot(p, &p->slot[s], &m, err));
	m.total = m.params + m.grads + m.optim + m.activations + m.scratch + m.io;
	p->memory = m;
	return GP_OK;
}

static enum gp_status start_values(struct cpu_plan *p, struct gp_err *err)
{
	const struct gp_graph *g = p->base.spec.graph;
	if (p->values)
		memset(p->values, 0, p->value_floats * sizeof(float));
	for (int i = 0; !p->base.spec.params_given && i < g->params; i++)
		GP_TRY(gp_plan_draw_param(&p->base.spec, i, p->values + p->param[i].value_offset, err));
	if (p->grads)
		memset(p->grads, 0, p->memory.grads);
	gp_cpu_moments_clear(p);
	gp_cpu_forget_clipping(p);
	if (p->packs)
		memset(p->packs, 0, p->pack_bytes);
	p->packs_stale = true;
	return GP_OK;
}

static enum gp_status create_node(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	if (n->base.view || !n->op->create)
		return GP_OK;
	GP_TRY(gp_plan_check_stop(&p->base.spec, err));
	return n->op->create(p, n, err);
}

static enum gp_status finish_plan(struct cpu_plan *p, struct gp_err *err)
{
	GP_TRY(gp_cpu_plan_build(p, err));
	GP_TRY(take_memory(p, err));
	GP_TRY(start_values(p, err));
	GP_TRY(gp_dnn_begin(p, err));
	for (int i = p->base.spec.graph->inputs; i < p->base.spec.graph->nodes; i++)
		GP_TRY(create_node(p, &p->node[i], err));
	return GP_OK;
}

static enum gp_status cpu_plan_new(struct gp_device *dev, const struct gp_plan_spec *spec, struct gp_plan **out,
				   struct gp_err *err)
{
	struct cpu_plan *p;
	GP_TRY(begin_plan(dev, spec, &p, err));
	enum gp_status status = finish_plan(p, err);
	if (status != GP_OK) {
		gp_cpu_plan_release(p);
		return status;
	}
	*out = &p->base;
	return GP_OK;
}

/* --- what others may look at ------------------------------------------------------------------------------------ */

static void *cpu_buffer(struct gp_plan *plan, int slot, enum gp_plan_buf which, int index)
{
	struct cpu_plan *p = (struct cpu_plan *)plan;
	gp_require(slot >= 0 && slot < plan->spec.slots && (unsigned)which < 4);
	const int port = gp_walk_port(&p->walk, which, index);
	return port < 0 ? NULL : p->slot[slot].io[port];
}

static void cpu_plan_memory(const struct gp_plan *plan, struct gp_plan_memory *out)
{
	*out = ((const struct cpu_plan *)plan)->memory;
}

static enum gp_status check_param(const struct gp_plan *plan, int index, struct gp_err *err)
{
	if (index < 0 || index >= plan->spec.graph->params)
		GP_FAIL(err, GP_INTERNAL, "%s has no parameter %d", plan->spec.graph->name, index);
	return GP_OK;
}

static enum gp_status cpu_param_get(struct gp_plan *plan, int index, float *out, struct gp_err *err)
{
	struct cpu_plan *p = (struct cpu_plan *)plan;
	GP_TRY(check_param(plan, index, err));
	memcpy(out, p->values + p->param[index].value_offset, plan->spec.graph->param[index].count * sizeof(float));
	return GP_OK;
}

static enum gp_status cpu_param_set(struct gp_plan *plan, int index, const float *in, struct gp_err *err)
{
	struct cpu_plan *p = (struct cpu_plan *)plan;
	GP_TRY(check_param(plan, index, err));
	memcpy(p->values + p->param[index].value_offset, in, plan->spec.graph->param[index].count * sizeof(float));
	p->packs_stale = true;
	p->undo_saved = false;
	return GP_OK;
}

static enum gp_status cpu_grad_get(struct gp_plan *plan, int index, float *out, struct gp_err *err)
{
	struct cpu_plan *p = (struct cpu_plan *)plan;
	GP_TRY(check_param(plan, index, err));
	const struct gp_param *q = &plan->spec.graph->param[index];
	if (!plan->spec.train || !q->trained)
		GP_FAIL(err, GP_INTERNAL, "%s has no gradient", q->name);
	if (!p->have_grads) {
		memset(out, 0, q->count * sizeof(float));
		return GP_OK;
	}
	omp_set_num_threads(p->threads);
	struct cpu_node *n = &p->node[q->node];
	if (q->role == GP_PARAM_WEIGHT && n->op->grad_dense)
		return n->op->grad_dense(p, n, out, err);
	memcpy(out, p->grads + p->param[index].grad_offset, q->count * sizeof(float));
	return GP_OK;
}

const struct gp_device_ops gp_cpu_device_ops = {
	.name = "cpu",
	.summary = "this machine's processor",
	.open = cpu_open,
	.close = cpu_close,
	.supports = cpu_supports,
	.lacks = cpu_lacks,
	.measure = gp_cpu_measure,
	.plan_estimate = cpu_plan_estimate,
	.plan_maps = cpu_plan_maps,
	.plan_new = cpu_plan_new,
	.plan_free = cpu_plan_free,
	.buffer = cpu_buffer,
	.set_length = gp_cpu_set_length,
	.set_labels = gp_cpu_set_labels,
	.forward = gp_cpu_forward,
	.backward = gp_cpu_backward,
	.queue_forward = gp_cpu_forward,
	.queue_backward = gp_cpu_backward,
	.loss = gp_cpu_loss,
	.grad_squares = gp_cpu_grad_squares,
	.tie_grads = gp_cpu_tie_grads,
	.tie_values = gp_cpu_tie_values,
	.grad_scale = gp_cpu_grad_scale,
	.grad_clamp = gp_cpu_grad_clamp,
	.optim_step = gp_cpu_optim_step,
	.queue_optim_step = gp_cpu_optim_step,
	.step_undo = gp_cpu_step_undo,
	.optim_states = gp_cpu_optim_states,
	.optim_get = gp_cpu_optim_get,
	.optim_set = gp_cpu_optim_set,
	.optim_code_bytes = gp_cpu_optim_code_bytes,
	.optim_code_get = gp_cpu_optim_code_get,
	.optim_code_set = gp_cpu_optim_code_set,
	.optim_count_get = gp_cpu_optim_count_get,
	.optim_count_set = gp_cpu_optim_count_set,
	.param_get = cpu_param_get,
	.param_set = cpu_param_set,
	.grad_get = cpu_grad_get,
	.node_get = gp_cpu_node_get,
	.plan_memory = cpu_plan_memory,
	.profile = gp_cpu_profile,
};
