/* SPDX-License-Identifier: Apache-2.0
 *
 * Running a CPU plan: forward and backward over the nodes. Everything was
 * decided and made when the plan was; here are only addresses and calls, and
 * no allocation. See cpu_plan.h. Test: tests/unit/test_cpu_plan.c
 */
#include <omp.h>
#include <string.h>

#include "common/base/fault.h"
#include "kernels/cpu/plan/parallel.h"
#include "kernels/cpu/plan/cpu_plan.h"
#include "kernels/cpu/plan/cpu_profile.h"

static void *address(const struct cpu_plan *p, int slot, int buf)
{
	if (buf < 0)
		return NULL;
	const struct cpu_buf *b = &p->buf[buf];
	switch (b->place) {
	case CPU_AT_IO:
		return p->slot[slot].io[b->io];
	case CPU_AT_SLOT:
		return p->slot[slot].arena + b->offset;
	case CPU_AT_SCRATCH:
		return p->scratch + b->offset;
	}
	return NULL;
}

static enum gp_status repack(struct cpu_plan *p, struct gp_err *err)
{
	if (!p->packs_stale)
		return GP_OK;
	uint64_t start = gp_cpu_profile_start(p);
	for (int i = 1; i < p->base.spec.graph->nodes; i++)
		if (!p->node[i].view && p->node[i].op->repack)
			GP_TRY(p->node[i].op->repack(p, &p->node[i], err));
	p->packs_stale = false;
	gp_cpu_profile_other(p, CPU_PROFILE_PACK, start);
	return GP_OK;
}

static struct cpu_call call_of(struct cpu_plan *p, struct cpu_node *n, int slot)
{
	struct cpu_call c = {.plan = p, .node = n, .draw = p->slot[slot].draw};
	for (int k = 0; k < n->g->inputs; k++)
		c.in[k] = address(p, slot, gp_cpu_input(p, n, k)->out);
	c.out = address(p, slot, n->out);
	c.saved = address(p, slot, n->saved);
	if (n->reads)
		c.reads_saved = address(p, slot, n->reads->saved);
	if (n->feeds)
		c.feed_sums = address(p, slot, n->feeds->sums_forward);
	return c;
}

/* Processors do not fail like cards, but what a server does about it can be tested without one. */
static enum gp_status check_fault(struct gp_err *err)
{
	if (gp_fault_hit(GP_FAULT_DEVICE))
		GP_FAIL(err, GP_DEVICE, "the device failed (GP_FAULT)");
	return GP_OK;
}

enum gp_status gp_cpu_forward(struct gp_plan *plan, int slot, enum gp_mode mode, uint64_t draw, struct gp_err *err)
{
	struct cpu_plan *p = (struct cpu_plan *)plan;
	gp_require(slot >= 0 && slot < plan->spec.slots);
	if (mode == GP_TRAIN && !plan->spec.train)
		GP_FAIL(err, GP_INTERNAL, "the plan of %s was made for evaluation only", plan->spec.graph->name);
	omp_set_num_threads(p->threads);
	GP_TRY(check_fault(err));
	GP_TRY(repack(p, err));
	if (mode == GP_TRAIN)
		gp_cpu_undo_save(p);
	p->slot[slot].forwarded = false;
	p->slot[slot].draw = draw;
	for (int i = 1; i < plan->spec.graph->nodes; i++) {
		struct cpu_node *n = &p->node[i];
		if (n->view)
			continue;
		struct cpu_call c = call_of(p, n, slot);
		c.mode = mode;
		c.tmp = address(p, slot, n->tmp_forward);
		c.sums = address(p, slot, n->sums_forward);
		uint64_t start = gp_cpu_profile_start(p);
		GP_TRY(n->op->forward(&c, err));
		gp_cpu_profile_node(p, n, CPU_PROFILE_FORWARD, start);
	}
	p->slot[slot].forwarded = mode == GP_TRAIN;
	return GP_OK;
}

/* Nodes that hand their gradient on: only where two contributions meet, or at the plan's edge, is anything moved; then
 * true. */
static bool pass_gradient(struct cpu_plan *p, struct cpu_node *n, int slot)
{
	const float *dout = address(p, slot, n->dout);
	bool moved = false;
	for (int k = 0; k < 2; k++) {
		if (n->dx[k] < 0 || n->dx[k] == n->dout)
			continue;
		float *dx = address(p, slot, n->dx[k]);
		int64_t count = gp_cpu_elements(p, gp_cpu_input(p, n, k));
		if (n->dx_add[k] >= 0)
			gp_cpu_add(p->threads, dx, dout, address(p, slot, n->dx_add[k]), count);
		else
			gp_cpu_copy(p->threads, dx, dout, count);
		moved = true;
	}
	return moved;
}

static enum gp_status run_backward(struct cpu_plan *p, struct cpu_node *n, int slot, struct gp_err *err)
{
	struct cpu_call c = call_of(p, n, slot);
	c.mode = GP_TRAIN;
	c.tmp = address(p, slot, n->tmp_backward);
	c.dout = address(p, slot, n->dout);
	c.dx = address(p, slot, n->dx[0]);
	c.accumulate = p->have_grads;
	c.sums = address(p, slot, n->sums_backward);
	if (n->reads)
		c.return_sums = address(p, slot, n->reads->sums_backward);
	if (n->finishes)
		c.finish_saved = address(p, slot, n->finishes->saved);
	GP_TRY(n->op->backward(&c, err));
	if (n->dx_add[0] >= 0)
		gp_cpu_add_into(p->threads, c.dx, address(p, slot, n->dx_add[0]),
				gp_cpu_elements(p, gp_cpu_input(p, n, 0)));
	return GP_OK;
}

enum gp_status gp_cpu_backward(struct gp_plan *plan, int slot, struct gp_err *err)
{
	struct cpu_plan *p = (struct cpu_plan *)plan;
	gp_require(slot >= 0 && slot < plan->spec.slots);
	if (!p->slot[slot].forwarded)
		GP_FAIL(err, GP_INTERNAL, "backward of %s without a training forward in slot %d",
			plan->spec.graph->name, slot);
	omp_set_num_threads(p->threads);
	GP_TRY(check_fault(err));
	p->slot[slot].forwarded = false;
	for (int i = plan->spec.graph->nodes - 1; i > 0; i--) {
		struct cpu_node *n = &p->node[i];
		if (!n->need_grad)
			continue;
		uint64_t start = gp_cpu_profile_start(p);
		bool worked = true;
		if (n->view || n->op->passes_gradient)
			worked = pass_gradient(p, n, slot);
		else
			GP_TRY(run_backward(p, n, slot, err));
		if (worked)
			gp_cpu_profile_node(p, n, CPU_PROFILE_BACKWARD, start);
	}
	p->have_grads = true;
	return GP_OK;
}

static bool overwritten_later(const struct cpu_plan *p, const struct cpu_node *n)
{
	for (int i = n->index + 1; i < p->base.spec.graph->nodes; i++)
		if (p->node[i].out == n->out && !p->node[i].view)
			return true;
	return false;
}

/* A lazy batch norm's value, or a view of it, is nowhere. */
static bool never_made(const struct cpu_plan *p, const struct cpu_node *n)
{
	while (n->view)
		n = gp_cpu_input(p, n, 0);
	return n->lazy;
}

/* Only values that still exist: kept for backward, or the plan's own input and output. */
enum gp_status gp_cpu_node_get(struct gp_plan *plan, int slot, int index, float *out, struct gp_err *err)
{
	struct cpu_plan *p = (struct cpu_plan *)plan;
	gp_require(slot >= 0 && slot < plan->spec.slots);
	if (index < 0 || index >= plan->spec.graph->nodes)
		GP_FAIL(err, GP_INTERNAL, "%s has no node %d", plan->spec.graph->name, index);
	const struct cpu_node *n = &p->node[index];
	if (n->folded || never_made(p, n) || p->buf[n->out].place == CPU_AT_SCRATCH || overwritten_later(p, n))
		GP_FAIL(err, GP_UNSUPPORTED, "the value of %s is not kept", n->g->name);
	memcpy(out, address(p, slot, n->out), (size_t)gp_cpu_elements(p, n) * sizeof(float));
	return GP_OK;
}
