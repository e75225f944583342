/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear layer over the last dimension in bf16, on own products (kernels/cpu/math/gemm.h): where there is no oneDNN, for
 * processors that have such products. In fp32 cpu_plain_linear.c does it. The weight is packed for each direction, as oneDNN
 * keeps it, too, and its gradient is kept as PyTorch has it. Rows of what is computed are shared out over threads, of the
 * weight's gradient as well, so that nothing depends on their number.
 *
 * Test: tests/unit/test_bf16.c, as it is run with GP_ENGINE=own
 */
#include "common/base/mem.h"
#include "common/graph/ops/op_linear.h"
#include "kernels/cpu/math/gemm.h"
#include "kernels/cpu/ops/cpu_bias.h"
#include "kernels/cpu/plan/parallel.h"

#define ROW_GRAIN    24 /* a multiple of every tile's height */
#define WEIGHT_GRAIN 16

struct linear_state {
	int64_t in, out;
	uint64_t forward_pack, data_pack; /* offsets in the plan's packs */
	uint64_t room_words;              /* of one part: pairs */
};

/* c (rows, n) = a (rows, k) packed (k, n) */
struct product_job {
	const struct linear_state *s;
	float *c;
	const float *a;
	const void *packed;
	int64_t rows, k, n;
	uint32_t *room;
};

/* grad (out, in) = or += dout' x */
struct weigh_job {
	const struct linear_state *s;
	float *grad;
	const float *dout, *x;
	int64_t rows;
	bool fresh;
	uint32_t *room;
};

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Pairs of as many rows as are multiplied at once, in either direction, and of both operands of the weight's gradient. */
static int64_t room_words(const struct linear_state *s, bool want_dx, bool trains)
{
	int64_t most = gp_gemm_bf16_rows_at_once(s->in) * gp_gemm_bf16_pairs(s->in);
	if (want_dx)
		most = larger(most, gp_gemm_bf16_rows_at_once(s->out) * gp_gemm_bf16_pairs(s->out));
	if (trains)
		most = larger(most, gp_gemm_bf16_pairs(GEMM_BLOCK) * (s->in + s->out));
	return most;
}

static uint64_t reserve_pack(struct cpu_plan *p, int64_t k, int64_t n)
{
	const uint64_t offset = p->pack_bytes;
	p->pack_bytes += gp_cpu_align((uint64_t)gp_gemm_bf16_packed_count(k, n) * sizeof(uint32_t));
	return offset;
}

static enum gp_status linear_prepare(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	const struct gp_shape *w = &p->base.spec.graph->param[gp_cpu_param_index(p, n, GP_PARAM_WEIGHT)].shape;
	struct linear_state *s = gp_calloc(1, sizeof *s);
	if (!s)
		GP_FAIL(err, GP_NOMEM, "out of memory for linear layer %s", n->base.g->name);
	n->state = s;
	s->out = w->dim[0];
	s->in = w->dim[1];
	s->forward_pack = reserve_pack(p, s->in, s->out);
	if (n->base.want_dx)
		s->data_pack = reserve_pack(p, s->out, s->in);
	s->room_words = gp_cpu_align((uint64_t)room_words(s, n->base.want_dx, n->base.trains) * sizeof(uint32_t)) /
			sizeof(uint32_t);
	n->tmp_bytes = (uint64_t)p->threads * s->room_words * sizeof(uint32_t);
	if (!n->base.trains)
		n->base.saves_in = 0;
	return GP_OK;
}

static void linear_release(struct cpu_node *n)
{
	gp_free(n->state);
	n->state = NULL;
}

static enum gp_status linear_repack(struct cpu_plan *p, struct cpu_node *n, struct gp_err *err)
{
	(void)err;
	const struct linear_state *s = n->state;
	const float *weight = gp_cpu_param_value(p, n, GP_PARAM_WEIGHT); /* (out, in) */
	gp_gemm_bf16_pack((uint32_t *)(p->packs + s->forward_pack), weight, s->in, s->out, true);
	if (n->base.want_dx)
		gp_gemm_bf16_pack((uint32_t *)(p->packs + s->data_pack), weight, s->out, s->in, false);
	return GP_OK;
}

static void multiply_part(void *arg, int part, int parts)
{
	const struct product_job *job = arg;
	const struct gp_cpu_range r = gp_cpu_share(job->rows, ROW_GRAIN, part, parts);
	const int64_t block = gp_gemm_bf16_rows_at_once(job->k);
	uint32_t *pairs = job->room + (uint64_t)part * job->s->room_words;
	for (int64_t row = r.from; row < r.to; row += block) {
		const int64_t here = r.to - row < block ? r.to - row : block;
		gp_gemm_bf16_pair_columns(pairs, job->a + row * job->k, here, job->k);
		gp_gemm_bf16(job->c + row * job->n, pairs, job->packed, here, job->k, job->n, NULL);
	}
}

static void weigh_part(void *arg, int part, int parts)
{
	const struct weigh_job *job = arg;
	const struct linear_state *s = job->s;
	const struct gp_cpu_range r = gp_cpu_share(s->out, WEIGHT_GRAIN, part, parts);
	const int64_t width = r.to - r.from;
	uint32_t *left = job->room + (uint64_t)part * s->room_words;
	uint32_t *right = left + gp_gemm_bf16_pairs(GEMM_BLOCK) * width;
	for (int64_t row = 0; row == 0 || row < job->rows; row += GEMM_BLOCK) {
		const int64_t here = job->rows - row < GEMM_BLOCK ? job->rows - row : GEMM_BLOCK;
		gp_gemm_bf16_pair_some(left, job->dout + row * s->out + r.from, s->out, here, width);
		gp_gemm_bf16_pair_rows(right, job->x + row * s->in, here, s->in);
		gp_gemm_bf16_transposed(job->grad + r.from * s->in, left, right, here, width, s->in,
					job->fresh && row == 0, NULL);
	}
}

static int parts_of(const struct cpu_call *c, int64_t rows)
{
	const struct linear_state *s = c->node->state;
	return gp_cpu_parts(c->plan->threads, rows * (s->in + s->out) + s->in * s->out);
}

static int64_t rows_now(const struct cpu_call *c)
{
	return gp_cpu_elements(c->plan, c->node) / ((const struct linear_state *)c->node->state)->out;
}

static enum gp_status linear_forward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	const struct linear_state *s = c->node->state;
	struct product_job job = {.s = s,
				  .c = c->out[0],
				  .a = c->in[0],
				  .packed = c->plan->packs + s->forward_pack,
				  .rows = rows_now(c),
				  .k = s->in,
				  .n = s->out,
				  .room = c->tmp};
	gp_cpu_parallel(parts_of(c, job.rows), multiply_part, &job);
	gp_cpu_bias_add(c, c->out[0], job.rows, s->out);
	return GP_OK;
}

static void weigh(const struct cpu_call *c, int64_t rows)
{
	struct weigh_job job = {.s = c->node->state,
				.grad = gp_cpu_param_grad(c->plan, c->node, GP_PARAM_WEIGHT),
				.dout = c->dout[0],
				.x = c->in[0],
				.rows = rows,
				.fresh = !c->accumulate,
				.room = c->tmp};
	if (job.grad)
		gp_cpu_parallel(parts_of(c, rows), weigh_part, &job);
}

static enum gp_status linear_backward(const struct cpu_call *c, struct gp_err *err)
{
	(void)err;
	const struct linear_state *s = c->node->state;
	const int64_t rows = rows_now(c);
	gp_cpu_bias_gradient(c, c->dout[0], rows, s->out);
	weigh(c, rows);
	if (!c->dx[0])
		return GP_OK;
	struct product_job job = {.s = s,
				  .c = c->dx[0],
				  .a = c->dout[0],
				  .packed = c->plan->packs + s->data_pack,
				  .rows = rows,
				  .k = s->out,
				  .n = s->in,
				  .room = c->tmp};
	gp_cpu_parallel(parts_of(c, rows), multiply_part, &job);
	return GP_OK;
}

const struct cpu_op gp_cpu_bf16_linear = {
	.name = "linear",
	.saves_in = 1,
	.prepare = linear_prepare,
	.release = linear_release,
	.repack = linear_repack,
	.forward = linear_forward,
	.backward = linear_backward,
};
