/* SPDX-License-Identifier: Apache-2.0
 *
 * What gradient clipping does to a plan's gradients: sums of squares, scaling,
 * clamping. Who decides on the factor is common/graph/clip.c.
 *
 * A sum of squares is taken of the gradient in PyTorch's layout. Squares of floats are exact in double; they are added in
 * LANES running sums, and a large parameter in PIECES pieces, whatever the number of threads and the processor.
 * Test: tests/unit/test_clip.c
 */
#include <omp.h>
#include <string.h>

#include "kernels/cpu/plan/parallel.h"
#include "kernels/cpu/plan/cpu_plan.h"
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
			GP_TRY(gp_cpu_dense_grad(p, i, &grad, err));
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

static enum gp_status change_grads(struct gp_plan *plan, gp_cpu_part_fn change, float by, struct gp_err *err)
{
	struct cpu_plan *p = (struct cpu_plan *)plan;
	struct change c = {.x = p->grads, .n = (int64_t)p->grad_floats, .by = by};
	GP_TRY(check_training(plan, err));
	if (p->have_grads)
		gp_cpu_parallel(gp_cpu_parts(p->threads, c.n), change, &c);
	return GP_OK;
}

enum gp_status gp_cpu_grad_scale(struct gp_plan *plan, float factor, struct gp_err *err)
{
	return change_grads(plan, scale_part, factor, err);
}

enum gp_status gp_cpu_grad_clamp(struct gp_plan *plan, float limit, struct gp_err *err)
{
	return change_grads(plan, clamp_part, limit, err);
}
