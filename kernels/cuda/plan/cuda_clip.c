/* SPDX-License-Identifier: Apache-2.0
 *
 * What gradient clipping does to a plan's gradients on the GPU: sums of squares
 * in two launches, scaling, clamping. Who decides on the factor is
 * common/graph/clip.c. Test: tests/unit/test_cuda_train.c
 */
#include <string.h>

#include "kernels/cuda/ops/k_optim.h"
#include "kernels/cuda/plan/cuda_code.h"
#include "kernels/cuda/plan/cuda_plan_impl.h"

static uint64_t chunks_of(uint64_t count)
{
	return (count + GPK_SQUARES_CHUNK - 1) / GPK_SQUARES_CHUNK;
}

uint64_t gp_cuda_squares_chunks(const struct cuda_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	uint64_t n = 0;
	for (int i = 0; p->base.spec.train && i < g->params; i++)
		n += g->param[i].trained ? chunks_of(g->param[i].count) : 0;
	return n;
}

int gp_cuda_trained_params(const struct cuda_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	int n = 0;
	for (int i = 0; p->base.spec.train && i < g->params; i++)
		n += g->param[i].trained;
	return n;
}

static void cut_param(const struct cuda_plan *p, int index, struct gpk_squares_chunk **chunk)
{
	int64_t from = (int64_t)p->param[index].offset, left = (int64_t)p->base.spec.graph->param[index].count;
	while (left > 0) {
		const int64_t count = left < GPK_SQUARES_CHUNK ? left : GPK_SQUARES_CHUNK;
		*(*chunk)++ = (struct gpk_squares_chunk){from, count};
		from += count;
		left -= count;
	}
}

void gp_cuda_squares_table(struct cuda_plan *p)
{
	const struct gp_graph *g = p->base.spec.graph;
	struct gpk_squares_chunk *const table = (struct gpk_squares_chunk *)(p->host_room + p->at.chunks), *at = table;
	int32_t *first = (int32_t *)(p->host_room + p->at.firsts);
	for (int i = 0; p->base.spec.train && i < g->params; i++) {
		if (!g->param[i].trained)
			continue;
		*first++ = (int32_t)(at - table);
		cut_param(p, i, &at);
	}
	*first = (int32_t)(at - table);
}

static void clear_followers(const struct gp_graph *g, double *out)
{
	for (int i = 0; i < g->params; i++) {
		if (!g->param[i].trained)
			continue;
		if (g->param[i].follows)
			*out = 0.0;
		out++;
	}
}

enum gp_status gp_cuda_grad_squares(struct gp_plan *plan, double *out, struct gp_err *err)
{
	struct cuda_plan *p = (struct cuda_plan *)plan;
	GP_TRY(gp_cuda_check_training(plan, err));
	const int pieces = gp_cuda_trained_params(p);
	const size_t bytes = (size_t)pieces * sizeof(double);
	struct gp_rt_stream *s = gp_cuda_behind_all(p);
	gp_cuda_grads_code(p);
	gpk_squares_of_pieces(s, p->grads, (const struct gpk_squares_chunk *)(p->extra + p->at.chunks),
			      (int)gp_cuda_squares_chunks(p), (const int32_t *)(p->extra + p->at.firsts), pieces,
			      (double *)(p->extra + p->at.partials), (double *)(p->extra + p->at.sums));
	gp_rt_copy_down(s, p->host_room + p->at.sums, p->extra + p->at.sums, bytes);
	GP_TRY(gp_cuda_wait(p, err));
	memcpy(out, p->host_room + p->at.sums, bytes);
	clear_followers(plan->spec.graph, out);
	return GP_OK;
}

/* Padding is changed with the rest: nobody reads it. */
enum gp_status gp_cuda_grad_scale(struct gp_plan *plan, float factor, struct gp_err *err)
{
	struct cuda_plan *p = (struct cuda_plan *)plan;
	GP_TRY(gp_cuda_check_training(plan, err));
	struct gp_rt_stream *s = gp_cuda_behind_all(p);
	gp_cuda_grads_code(p);
	gpk_scale(s, p->grads, factor, (int64_t)p->trained_floats);
	return gp_cuda_wait(p, err);
}

enum gp_status gp_cuda_grad_clamp(struct gp_plan *plan, float limit, struct gp_err *err)
{
	struct cuda_plan *p = (struct cuda_plan *)plan;
	GP_TRY(gp_cuda_check_training(plan, err));
	struct gp_rt_stream *s = gp_cuda_behind_all(p);
	gp_cuda_grads_code(p);
	gpk_clamp(s, p->grads, limit, (int64_t)p->trained_floats);
	return gp_cuda_wait(p, err);
}
