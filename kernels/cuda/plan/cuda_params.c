/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters, their gradients and what the optimizer remembers of them, between
 * the host (PyTorch's layouts) and the device (axes as the ops want them,
 * cuda_plan.h). Reordering is the host's: it happens at checkpoints, not in steps.
 * Test: tests/unit/test_cuda_plan.c
 */
#include <string.h>

#include "common/base/mem.h"
#include "kernels/cuda/plan/cuda_moments.h"
#include "kernels/cuda/plan/cuda_plan_impl.h"

/* --- orders of axes ----------------------------------------------------------------------------------------------- */

bool gp_cuda_is_plain(const struct cuda_plan *p, int index)
{
	const int8_t *order = p->param[index].order;
	return order[0] == 0 && order[1] == 1 && order[2] == 2 && order[3] == 3;
}

/* Walks over the memory's order; at[] says how far apart PyTorch's elements are along each of its axes. */
struct walk {
	int64_t dim[4], step[4];
};

static struct walk walk_of(const struct cuda_plan *p, int index)
{
	const struct gp_shape *shape = &p->base.spec.graph->param[index].shape;
	int64_t plain_step[4] = {0, 0, 0, 1};
	struct walk w;
	for (int i = 2; i >= 0; i--)
		plain_step[i] = plain_step[i + 1] * shape->dim[i + 1];
	for (int i = 0; i < 4; i++) {
		w.dim[i] = shape->dim[p->param[index].order[i]];
		w.step[i] = plain_step[p->param[index].order[i]];
	}
	return w;
}

void gp_cuda_param_steps(const struct cuda_plan *p, int index, int64_t step[4])
{
	const struct gp_shape *shape = &p->base.spec.graph->param[index].shape;
	const int8_t *order = p->param[index].order;
	int64_t apart = 1;
	for (int i = 3; i >= 0; i--) {
		step[order[i]] = apart;
		apart *= shape->dim[order[i]];
	}
}

/* device[i] <-> plain[the same element] */
static void reorder(const struct cuda_plan *p, int index, float *device, float *plain, bool to_device)
{
	const struct walk w = walk_of(p, index);
	for (int64_t a = 0; a < w.dim[0]; a++)
		for (int64_t b = 0; b < w.dim[1]; b++)
			for (int64_t c = 0; c < w.dim[2]; c++) {
				float *at = plain + a * w.step[0] + b * w.step[1] + c * w.step[2];
				for (int64_t d = 0; d < w.dim[3]; d++, device++)
					if (to_device)
						*device = at[d * w.step[3]];
					else
						at[d * w.step[3]] = *device;
			}
}

/* --- one parameter ------------------------------------------------------------------------------------------------ */

static enum gp_status room_for(const struct cuda_plan *p, int index, float **out, struct gp_err *err)
{
	void *room;
	GP_TRY(gp_alloc_array(&room, p->base.spec.graph->param[index].count, sizeof **out, err));
	*out = room;
	return GP_OK;
}

static size_t bytes_of(const struct cuda_plan *p, int index)
{
	return p->base.spec.graph->param[index].count * sizeof(float);
}

static enum gp_status fetch(struct cuda_plan *p, int index, const float *device, float *out, struct gp_err *err)
{
	struct gp_rt_stream *s = gp_cuda_behind_all(p);
	float *room;
	if (gp_cuda_is_plain(p, index)) {
		gp_rt_copy_down(s, out, device, bytes_of(p, index));
		return gp_cuda_wait(p, err);
	}
	GP_TRY(room_for(p, index, &room, err));
	gp_rt_copy_down(s, room, device, bytes_of(p, index));
	const enum gp_status status = gp_cuda_wait(p, err);
	if (status == GP_OK)
		reorder(p, index, room, out, false);
	gp_free(room);
	return status;
}

static enum gp_status store(struct cuda_plan *p, int index, float *device, const float *in, struct gp_err *err)
{
	struct gp_rt_stream *s = gp_cuda_behind_all(p);
	float *room;
	if (gp_cuda_is_plain(p, index)) {
		gp_rt_copy_up(s, device, in, bytes_of(p, index));
		return gp_cuda_wait(p, err);
	}
	GP_TRY(room_for(p, index, &room, err));
	reorder(p, index, room, (float *)in, true); /* `in` is only read */
	gp_rt_copy_up(s, device, room, bytes_of(p, index));
	const enum gp_status status = gp_cuda_wait(p, err);
	gp_free(room);
	return status;
}

static enum gp_status check_param(const struct gp_plan *plan, int index, struct gp_err *err)
{
	if (index < 0 || index >= plan->spec.graph->params)
		GP_FAIL(err, GP_INTERNAL, "%s has no parameter %d", plan->spec.graph->name, index);
	return GP_OK;
}

enum gp_status gp_cuda_param_get(struct gp_plan *plan, int index, float *out, struct gp_err *err)
{
	struct cuda_plan *p = (struct cuda_plan *)plan;
	GP_TRY(check_param(plan, index, err));
	return fetch(p, index, p->values + p->param[index].offset, out, err);
}

enum gp_status gp_cuda_param_set(struct gp_plan *plan, int index, const float *in, struct gp_err *err)
{
	struct cuda_plan *p = (struct cuda_plan *)plan;
	GP_TRY(check_param(plan, index, err));
	p->packs_stale = p->narrow_stale = true;
	p->undo_saved = false;
	return store(p, index, p->values + p->param[index].offset, in, err);
}

enum gp_status gp_cuda_grad_get(struct gp_plan *plan, int index, float *out, struct gp_err *err)
{
	struct cuda_plan *p = (struct cuda_plan *)plan;
	GP_TRY(check_param(plan, index, err));
	if (!plan->spec.train || !plan->spec.graph->param[index].trained)
		GP_FAIL(err, GP_INTERNAL, "%s has no gradient", plan->spec.graph->param[index].name);
	return fetch(p, index, p->grads + p->param[index].offset, out, err);
}

static enum gp_status find_state(struct gp_plan *plan, int index, int which, float **out, struct gp_err *err)
{
	const struct cuda_plan *p = (const struct cuda_plan *)plan;
	const struct gp_graph *g = plan->spec.graph;
	if (index < 0 || index >= g->params || !g->param[index].trained || which < 0 ||
	    which >= gp_cuda_optim_states(plan))
		GP_FAIL(err, GP_INTERNAL, "%s has no optimizer state %d of parameter %d", g->name, which, index);
	*out = p->moment + (uint64_t)which * p->trained_floats + p->param[index].offset;
	return GP_OK;
}

enum gp_status gp_cuda_optim_get(struct gp_plan *plan, int index, int which, float *out, struct gp_err *err)
{
	float *state;
	if (((struct cuda_plan *)plan)->state)
		return gp_cuda_moments_get((struct cuda_plan *)plan, index, which, out, err);
	GP_TRY(find_state(plan, index, which, &state, err));
	return fetch((struct cuda_plan *)plan, index, state, out, err);
}

enum gp_status gp_cuda_optim_set(struct gp_plan *plan, int index, int which, const float *in, struct gp_err *err)
{
	float *state;
	if (((struct cuda_plan *)plan)->state)
		return gp_cuda_moments_set((struct cuda_plan *)plan, index, which, in, err);
	GP_TRY(find_state(plan, index, which, &state, err));
	return store((struct cuda_plan *)plan, index, state, in, err);
}

/* --- all at the start --------------------------------------------------------------------------------------------- */

static enum gp_status draw_param(const struct cuda_plan *p, int index, float *all, float *room, struct gp_err *err)
{
	float *to = all + p->param[index].offset;
	GP_TRY(gp_plan_draw_param(&p->base.spec, index, gp_cuda_is_plain(p, index) ? to : room, err));
	if (!gp_cuda_is_plain(p, index))
		reorder(p, index, to, room, true);
	return GP_OK;
}

static enum gp_status draw_params(const struct cuda_plan *p, float *all, struct gp_err *err)
{
	for (int i = 0; !p->base.spec.params_given && i < p->base.spec.graph->params; i++)
		GP_TRY(draw_param(p, i, all, all + p->value_floats, err));
	return GP_OK;
}

static uint64_t largest_param(const struct gp_graph *g)
{
	uint64_t most = 0;
	for (int i = 0; i < g->params; i++)
		if (g->param[i].count > most)
			most = g->param[i].count;
	return most;
}

/* One block goes up: what pads parameters is zero, and stays so. */
enum gp_status gp_cuda_params_start(struct cuda_plan *p, struct gp_err *err)
{
	const struct gp_graph *g = p->base.spec.graph;
	void *all;
	if (!p->value_floats)
		return GP_OK;
	GP_TRY(gp_alloc_array(&all, p->value_floats + largest_param(g), sizeof(float), err));
	enum gp_status status = draw_params(p, all, err);
	if (status == GP_OK) {
		gp_rt_copy_up(p->stream, p->values, all, p->value_floats * sizeof(float));
		p->packs_stale = p->narrow_stale = true;
		status = gp_cuda_wait(p, err);
	}
	gp_free(all);
	return status;
}
