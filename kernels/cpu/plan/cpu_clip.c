/* SPDX-License-Identifier: Apache-2.0
 *
 * What gradient clipping does to a plan's gradients: sums of squares, scaling,
 * clamping. Who decides on the factor is common/graph/clip.c.
 *
 * A sum of squares is taken of the gradient in PyTorch's layout. Squares of floats are exact in double; they are added in
 * LANES running sums, and a large parameter in PIECES pieces, whatever the number of threads and the processor.
 *
 * Gradients that pass through a codec (GP_STRUCT_WEIGHT_GRADS) do so in PyTorch's layout, each on its way to who reads it. What
 * chunks have added up stays as it is, and scaling and clamping are remembered until then.
 * Test: tests/unit/test_clip.c
 */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "kernels/cpu/plan/cpu_code.h"
#include "kernels/cpu/plan/parallel.h"
#include "kernels/loops/simd.h"

#define GRAIN       16
#define LANES       16
#define PIECES      64
#define WORTH_PIECE 65536 /* elements: a smaller parameter is one piece */

/* --- sums of squares -------------------------------------------------------------------------------------------- */

GP_INLINE void squares_range_body(const float *x, int64_t n, double *out)
{
	double lane[LANES] = {0}, sum = 0.0;
	int64_t whole = n - n % LANES;
	for (int64_t i = 0; i < whole; i += LANES) {
#pragma omp simd
		for (int k = 0; k < LANES; k++)
			lane[k] += (double)x[i + k] * (double)x[i + k];
	}
	for (int64_t i = whole; i < n; i++)
		lane[i - whole] += (double)x[i] * (double)x[i];
	for (int k = 0; k < LANES; k++)
		sum += lane[k];
	*out = sum;
}
GP_CPU_CLONES(squares_range, (const float *x, int64_t n, double *out), (x, n, out))

struct squares {
	const float *x;
	int64_t n;
	double piece[PIECES];
};

static void squares_part(void *arg, int part, int parts)
{
	struct squares *s = arg;
	struct gp_cpu_range mine = gp_cpu_share(PIECES, 1, part, parts);
	for (int64_t i = mine.from; i < mine.to; i++) {
		struct gp_cpu_range r = gp_cpu_share(s->n, GRAIN, (int)i, PIECES);
		squares_range(s->x + r.from, r.to - r.from, &s->piece[i]);
	}
}

static double sum_of_squares(int threads, const float *x, int64_t n)
{
	struct squares s = {.x = x, .n = n};
	double sum = 0.0;
	if (n < WORTH_PIECE) {
		squares_range(x, n, &sum);
		return sum;
	}
	gp_cpu_parallel(threads < PIECES ? threads : PIECES, squares_part, &s);
	for (int i = 0; i < PIECES; i++)
		sum += s.piece[i];
	return sum;
}

static enum gp_status check_training(const struct gp_plan *plan, struct gp_err *err)
{
	if (!plan->spec.train)
		GP_FAIL(err, GP_INTERNAL, "the plan of %s was made for evaluation only", plan->spec.graph->name);
	return GP_OK;
}

enum gp_status gp_cpu_grad_squares(struct gp_plan *plan, double *out, struct gp_err *err)
{
	struct cpu_plan *p = (struct cpu_plan *)plan;
	const struct gp_graph *g = plan->spec.graph;
	GP_TRY(check_training(plan, err));
	omp_set_num_threads(p->threads);
	for (int i = 0; i < g->params; i++) {
		const float *grad;
		if (!g->param[i].trained)
			continue;
		*out = 0.0;
		if (p->have_grads && !g->param[i].follows) {
			GP_TRY(gp_cpu_final_grad(p, i, &grad, err));
			*out = sum_of_squares(p->threads, grad, (int64_t)g->param[i].count);
		}
		out++;
	}
	return GP_OK;
}

/* --- scaling and clamping: all gradients at once, in the layouts their ops gave them, padding included ------------ */

struct change {
	float *x;
	int64_t n;
	float by;
};

GP_INLINE void scale_range_body(float *restrict x, float factor, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		x[i] *= factor;
}
GP_CPU_CLONES(scale_range, (float *x, float factor, int64_t n), (x, factor, n))

/* NaN fails both comparisons and stays, as in torch.clamp. */
GP_INLINE void clamp_range_body(float *restrict x, float limit, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		float v = x[i] > limit ? limit : x[i];
		x[i] = v < -limit ? -limit : v;
	}
}
GP_CPU_CLONES(clamp_range, (float *x, float limit, int64_t n), (x, limit, n))

static void scale_part(void *arg, int part, int parts)
{
	const struct change *c = arg;
	struct gp_cpu_range r = gp_cpu_share(c->n, GRAIN, part, parts);
	scale_range(c->x + r.from, c->by, r.to - r.from);
}

static void clamp_part(void *arg, int part, int parts)
{
	const struct change *c = arg;
	struct gp_cpu_range r = gp_cpu_share(c->n, GRAIN, part, parts);
	clamp_range(c->x + r.from, c->by, r.to - r.from);
}

static enum gp_status change_grads(const struct cpu_plan *p, gp_cpu_part_fn change, float by)
{
	struct change c = {.x = p->grads, .n = (int64_t)p->grad_floats, .by = by};
	if (p->have_grads)
		gp_cpu_parallel(gp_cpu_parts(p->threads, c.n), change, &c);
	return GP_OK;
}

enum gp_status gp_cpu_grad_scale(struct gp_plan *plan, float factor, struct gp_err *err)
{
	struct cpu_plan *p = (struct cpu_plan *)plan;
	GP_TRY(check_training(plan, err));
	if (!gp_cpu_codec(p, GP_STRUCT_WEIGHT_GRADS))
		return change_grads(p, scale_part, factor);
	p->grad_factor *= factor;
	p->grad_limit *= fabsf(factor);
	return GP_OK;
}

enum gp_status gp_cpu_grad_clamp(struct gp_plan *plan, float limit, struct gp_err *err)
{
	struct cpu_plan *p = (struct cpu_plan *)plan;
	GP_TRY(check_training(plan, err));
	if (!gp_cpu_codec(p, GP_STRUCT_WEIGHT_GRADS))
		return change_grads(p, clamp_part, limit);
	p->grad_limit = limit < p->grad_limit ? limit : p->grad_limit;
	return GP_OK;
}

/* --- gradients that pass through a codec -------------------------------------------------------------------------- */

void gp_cpu_forget_clipping(struct cpu_plan *p)
{
	p->grad_factor = 1.0f;
	p->grad_limit = INFINITY;
}

static void change_copy(const struct cpu_plan *p, gp_cpu_part_fn part, float *x, int64_t n, float by)
{
	struct change c = {x, n, by};
	gp_cpu_parallel(gp_cpu_parts(p->threads, n), part, &c);
}

enum gp_status gp_cpu_final_grad(struct cpu_plan *p, int index, const float **out, struct gp_err *err)
{
	const int64_t n = (int64_t)p->base.spec.graph->param[index].count;
	float *copy = (float *)(void *)p->scratch;
	GP_TRY(gp_cpu_dense_grad(p, index, out, err));
	if (!gp_cpu_codec(p, GP_STRUCT_WEIGHT_GRADS))
		return GP_OK;
	if (*out != copy)
		gp_cpu_copy(p->threads, copy, *out, n);
	gp_cpu_code(p, GP_STRUCT_WEIGHT_GRADS, CPU_ROUND_TRIP, copy, NULL, (uint64_t)n);
	if (p->grad_factor != 1.0f) /* NaN is, too */
		change_copy(p, scale_part, copy, n, p->grad_factor);
	if (p->grad_limit < INFINITY)
		change_copy(p, clamp_part, copy, n, p->grad_limit);
	*out = copy;
	return GP_OK;
}
