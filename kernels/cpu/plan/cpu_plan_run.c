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
#include "kernels/cpu/plan/cpu_code.h"
#include "kernels/cpu/plan/cpu_profile.h"
#include "kernels/plan/plan_again.h"

void *gp_cpu_buf(const struct cpu_plan *p, int slot, int buf)
{
	if (buf < 0)
		return NULL;
	const struct gp_buf *b = &p->walk.buf[buf];
	switch (b->place) {
	case GP_AT_IO:
		return p->slot[slot].io[b->port];
	case GP_AT_SLOT:
		return p->slot[slot].arena + b->offset;
	case GP_AT_SCRATCH:
		return p->scratch + b->offset;
	}
	return NULL;
}

static void *value_address(const struct cpu_plan *p, int slot, int value)
{
	return gp_cpu_buf(p, slot, p->walk.value[value]);
}

static void *grad_address(const struct cpu_plan *p, int slot, int value)
{
	return gp_cpu_buf(p, slot, p->walk.grad[value]);
}

static enum gp_status repack(struct cpu_plan *p, struct gp_err *err)
{
	if (!p->packs_stale)
		return GP_OK;
	uint64_t start = gp_cpu_profile_start(p);
	gp_cpu_weights_decode(p);
	for (int i = p->base.spec.graph->inputs; i < p->base.spec.graph->nodes; i++)
		if (!p->node[i].base.view && p->node[i].op->repack)
			GP_TRY(p->node[i].op->repack(p, &p->node[i], err));
	p->packs_stale = false;
	gp_cpu_profile_other(p, CPU_PROFILE_PACK, start);
	return GP_OK;
}

/* A call's addresses: as many of each as the node has inputs, or outputs. */
struct addresses {
	const float *in[GP_NODE_MAX_INPUTS], *dout[GP_NODE_MAX_OUTPUTS];
	float *out[GP_NODE_MAX_OUTPUTS], *dx[GP_NODE_MAX_INPUTS];
};

/* `later`: in the second of two forwards, or backward (plan_again.h). */
static void *address_at(const struct cpu_plan *p, int slot, int buf, bool later)
{
	return gp_cpu_buf(p, slot, later ? gp_walk_later(&p->walk, buf) : buf);
}

static struct cpu_call call_of(struct cpu_plan *p, struct cpu_node *n, int slot, bool later, struct addresses *at)
{
	struct cpu_call c = {.plan = p, .node = n, .draw = p->slot[slot].draw, .in = at->in, .out = at->out};
	for (int k = 0; k < n->base.inputs; k++)
		at->in[k] = address_at(p, slot, p->walk.value[n->base.in[k]], later);
	for (int j = 0; j < n->base.outputs; j++)
		at->out[j] = address_at(p, slot, p->walk.value[n->base.first_value + j], later);
	c.saved = address_at(p, slot, n->base.saved, later);
	if (n->reads)
		c.reads_saved = gp_cpu_buf(p, slot, n->reads->base.saved);
	if (n->feeds)
		c.feed_sums = gp_cpu_buf(p, slot, n->feeds->sums_forward);
	return c;
}

/* Processors do not fail like cards, but what a server does about it can be tested without one. */
static enum gp_status check_fault(struct gp_err *err)
{
	if (gp_fault_hit(GP_FAULT_DEVICE))
		GP_FAIL(err, GP_DEVICE, "the device failed (GP_FAULT)");
	return GP_OK;
}

/* What a step, or a calibration, has merged so far is its own: the other begins with nothing. */
static enum gp_status begin_mode(struct cpu_plan *p, enum gp_mode mode, uint64_t draw, struct gp_err *err)
{
	if (mode == GP_CALIBRATE && !p->base.spec.calibrate)
		GP_FAIL(err, GP_INTERNAL, "the plan of %s was not made to calibrate", p->base.spec.graph->name);
	if (mode == GP_TRAIN && !p->base.spec.train)
		GP_FAIL(err, GP_INTERNAL, "the plan of %s was made for evaluation only", p->base.spec.graph->name);
	if ((mode == GP_TRAIN && p->calibrated > 0) || (mode == GP_CALIBRATE && draw == 0)) {
		gp_cpu_bn_forget(p);
		p->calibrated = 0;
	}
	p->calibrates = mode == GP_CALIBRATE && draw == p->calibrated;
	p->calibrated += p->calibrates;
	return GP_OK;
}

void gp_cpu_set_length(struct gp_plan *plan, int slot, int64_t length)
{
	struct cpu_plan *p = (struct cpu_plan *)plan;
	gp_require(slot >= 0 && slot < plan->spec.slots && length >= 0);
	gp_require(gp_sequence_length_ok(gp_graph_sequence(plan->spec.graph), (uint64_t)length));
	p->slot[slot].length = length;
	p->slot[slot].forwarded = false;
}

/* Sizes of values are from here on those of the slot's chunk. */
static void see_chunk(struct cpu_plan *p, int slot)
{
	gp_walk_set_length(&p->walk, p->slot[slot].length);
	gp_walk_set_rows(&p->walk, p->slot[slot].rows);
}

/* What has had its last reader is encoded, and counts as this node's time. */
static enum gp_status run_forward(struct cpu_plan *p, struct cpu_node *n, int slot, enum gp_mode mode, int *encoded,
				  struct gp_err *err)
{
	struct addresses at;
	const int before = *encoded;
	const uint64_t start = gp_cpu_profile_start(p);
	if (!n->base.view) {
		GP_TRY(gp_plan_check_stop(&p->base.spec, err));
		struct cpu_call c = call_of(p, n, slot, false, &at);
		c.mode = mode;
		c.tmp = gp_cpu_buf(p, slot, n->base.tmp[0]);
		at.in[0] = gp_cpu_pick_input(p, slot, n, at.in[0], c.tmp);
		c.sums = gp_cpu_buf(p, slot, n->sums_forward);
		GP_TRY(n->op->forward(&c, err));
	}
	if (mode == GP_TRAIN)
		gp_cpu_store_after(p, slot, n->base.index, encoded);
	if (!n->base.view || *encoded > before)
		gp_cpu_profile_node(p, n, CPU_PROFILE_FORWARD, start);
	return GP_OK;
}

enum gp_status gp_cpu_forward(struct gp_plan *plan, int slot, enum gp_mode mode, uint64_t draw, struct gp_err *err)
{
	struct cpu_plan *p = (struct cpu_plan *)plan;
	gp_require(slot >= 0 && slot < plan->spec.slots);
	GP_TRY(begin_mode(p, mode, draw, err));
	omp_set_num_threads(p->threads);
	GP_TRY(check_fault(err));
	GP_TRY(repack(p, err));
	if (mode == GP_TRAIN)
		gp_cpu_undo_save(p);
	p->slot[slot].forwarded = false;
	p->slot[slot].draw = draw;
	see_chunk(p, slot);
	for (int i = plan->spec.graph->inputs, encoded = 0; i < plan->spec.graph->nodes; i++)
		GP_TRY(run_forward(p, &p->node[i], slot, mode, &encoded, err));
	p->slot[slot].forwarded = mode == GP_TRAIN;
	return GP_OK;
}

/* Nodes that hand their gradient on: only where two contributions meet is anything moved; then true. */
static bool pass_gradient(struct cpu_plan *p, struct cpu_node *n, int slot)
{
	const struct gp_walk_node *b = &n->base;
	const float *dout = grad_address(p, slot, b->first_value);
	bool moved = false;
	for (int k = 0; k < b->inputs; k++) {
		float *dx = gp_cpu_buf(p, slot, b->dx[k]);
		if (!dx || dx == dout)
			continue;
		const float *before = b->add >> k & 1 ? dx : gp_cpu_buf(p, slot, b->dx_add[k]);
		gp_cpu_add(p->threads, dx, dout, before, gp_cpu_in_elements(p, n, k));
		moved = true;
	}
	return moved;
}

/* What the node has computed, not what it hands on, passes through the codec of gradients, before other contributions are added:
 * so it does not matter whose plan adds them. */
static void code_gradients(const struct cpu_plan *p, const struct cpu_node *n, float *const *dx)
{
	if (!gp_cpu_codec(p, GP_STRUCT_GRAD_MAPS) || n->moves)
		return;
	for (int k = 0; k < n->base.inputs; k++)
		if (dx[k] && !gp_walk_passes(&n->base, k))
			gp_cpu_code(p, GP_STRUCT_GRAD_MAPS, CPU_ROUND_TRIP, dx[k], NULL,
				    (uint64_t)gp_cpu_in_elements(p, n, k));
}

static enum gp_status run_backward(struct cpu_plan *p, struct cpu_node *n, int slot, struct gp_err *err)
{
	struct addresses at;
	struct cpu_call c = call_of(p, n, slot, true, &at);
	for (int j = 0; j < n->base.outputs; j++)
		at.dout[j] = grad_address(p, slot, n->base.first_value + j);
	for (int k = 0; k < n->base.inputs; k++)
		at.dx[k] = gp_cpu_buf(p, slot, n->base.dx[k]);
	c.dout = at.dout;
	c.dx = at.dx;
	c.mode = GP_TRAIN;
	c.tmp = gp_cpu_buf(p, slot, n->base.tmp[1]);
	if (n->base.trains)
		at.in[0] = gp_cpu_pick_input(p, slot, n, at.in[0], c.tmp);
	c.accumulate = p->have_grads;
	c.sums = gp_cpu_buf(p, slot, n->sums_backward);
	c.vectors = gp_cpu_buf(p, slot, n->vectors);
	if (n->reads)
		c.return_sums = gp_cpu_buf(p, slot, n->reads->sums_backward);
	if (n->finishes) {
		c.finish_saved = gp_cpu_buf(p, slot, n->finishes->base.saved);
		c.finish_vectors = gp_cpu_buf(p, slot, n->finishes->vectors);
	}
	GP_TRY(n->op->backward(&c, err));
	gp_cpu_pick_spread(p, slot, n, at.dx[0]);
	code_gradients(p, n, at.dx);
	for (int k = 0; k < n->base.inputs; k++)
		if (n->base.dx_add[k] >= 0)
			gp_cpu_add_into(p->threads, at.dx[k], gp_cpu_buf(p, slot, n->base.dx_add[k]),
					gp_cpu_in_elements(p, n, k));
	return GP_OK;
}

/* What the block's forward made and has not kept, a second time. What it takes counts as backward of its last node. */
static enum gp_status run_again(struct cpu_plan *p, int node, int slot, struct gp_err *err)
{
	for (int i = gp_walk_block_from(&p->walk, node); i <= node; i++) {
		struct cpu_node *n = &p->node[i];
		struct addresses at;
		if (!n->base.again)
			continue;
		GP_TRY(gp_plan_check_stop(&p->base.spec, err));
		struct cpu_call c = call_of(p, n, slot, true, &at);
		c.mode = GP_TRAIN;
		c.again = true;
		c.tmp = address_at(p, slot, n->base.tmp[0], true);
		at.in[0] = gp_cpu_pick_input(p, slot, n, at.in[0], c.tmp);
		GP_TRY(n->op->forward(&c, err));
	}
	return GP_OK;
}

static bool ends_block(const struct cpu_plan *p, int node)
{
	return gp_walk_recomputes(&p->walk) && gp_walk_block_end(&p->walk, node) == node + 1;
}

/* One node backward, with what comes before that: the second forward of the block that ends with it, decoding. */
static enum gp_status go_back(struct cpu_plan *p, struct cpu_node *n, int slot, int *decoded, struct gp_err *err)
{
	const uint64_t start = gp_cpu_profile_start(p);
	const int before = *decoded;
	bool worked = ends_block(p, n->base.index);
	if (worked)
		GP_TRY(run_again(p, n->base.index, slot, err));
	if (n->base.need_grad) {
		GP_TRY(gp_plan_check_stop(&p->base.spec, err));
		gp_cpu_store_before(p, slot, n->base.index, decoded);
		worked = worked || *decoded > before || gp_walk_works_backward(&n->base);
		if (gp_walk_works_backward(&n->base))
			GP_TRY(run_backward(p, n, slot, err));
		else if (pass_gradient(p, n, slot))
			worked = true;
	}
	if (worked)
		gp_cpu_profile_node(p, n, CPU_PROFILE_BACKWARD, start);
	return GP_OK;
}

/* Gradients of inputs that lie where another one is given out. */
static void give_out(struct cpu_plan *p, int slot)
{
	for (int i = 0; i < p->base.spec.graph->inputs; i++) {
		const int v = gp_walk_input(&p->walk, i), buf = p->walk.grad[v];
		if (buf >= 0 && !gp_walk_lies_at(&p->walk, buf, GP_BUF_GRAD_INPUT, i))
			gp_cpu_copy(p->threads, p->slot[slot].io[gp_walk_port(&p->walk, GP_BUF_GRAD_INPUT, i)],
				    gp_cpu_buf(p, slot, buf), gp_walk_elements(&p->walk, v));
	}
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
	see_chunk(p, slot);
	gp_cpu_store_edges(p, slot);
	for (int i = plan->spec.graph->nodes - 1, decoded = 0; i >= plan->spec.graph->inputs; i--)
		GP_TRY(go_back(p, &p->node[i], slot, &decoded, err));
	give_out(p, slot);
	p->have_grads = true;
	return GP_OK;
}

/* The value of a batch norm whose reader normalizes, or a view of it, is nowhere. */
static bool never_made(const struct cpu_plan *p, const struct cpu_node *n)
{
	while (n->base.view)
		n = gp_cpu_input(p, n, 0);
	return n->base.unwritten || p->walk.value[n->base.first_value] < 0;
}

/* Only values that still exist: kept for backward, or the plan's own input and output. */
enum gp_status gp_cpu_node_get(struct gp_plan *plan, int slot, int index, float *out, struct gp_err *err)
{
	struct cpu_plan *p = (struct cpu_plan *)plan;
	gp_require(slot >= 0 && slot < plan->spec.slots);
	if (index < 0 || index >= plan->spec.graph->nodes)
		GP_FAIL(err, GP_INTERNAL, "%s has no node %d", plan->spec.graph->name, index);
	const struct cpu_node *n = &p->node[index];
	const int value = n->base.first_value;
	if (gp_walk_type(&p->walk, value)->dtype != GP_F32)
		GP_FAIL(err, GP_UNSUPPORTED, "the value of %s is not f32", n->base.g->name);
	if (n->folded || never_made(p, n) || p->walk.buf[p->walk.value[value]].place == GP_AT_SCRATCH ||
	    gp_walk_overwritten(&p->walk, &n->base))
		GP_FAIL(err, GP_UNSUPPORTED, "the value of %s is not kept", n->base.g->name);
	see_chunk(p, slot);
	memcpy(out, value_address(p, slot, value), (size_t)gp_cpu_elements(p, n) * sizeof(float));
	return GP_OK;
}
