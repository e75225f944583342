/* SPDX-License-Identifier: Apache-2.0
 *
 * Multi-head self-attention on the GPU, in blocks: of each row of a head the
 * logarithm of its sum is kept, no matrix of weights. Lengths come from data, and
 * so from anywhere. The masks of dropout are those of the CPU device, bit for bit.
 * Tests: tests/unit/test_cuda_attention.c, tests/unit/test_cuda_ops.c
 */
#include "common/graph/ops/op_attention.h"

#include "common/base/rng.h"
#include "kernels/cuda/ops/k_attention.h"
#include "kernels/cuda/plan/cuda_plan.h"

enum { Q, K, V, LENGTH };

static struct gpk_attention attention_of(const struct cuda_call *c)
{
	const struct gp_attention_attr attr = gp_attention_attr(c->node->base.g);
	const struct gp_shape *x = &gp_walk_type(&c->plan->walk, c->node->base.in[Q])->shape;
	struct gpk_attention a = {.q = c->in[Q], .k = c->in[K], .v = c->in[V], .length = c->in[LENGTH]};
	a.log = c->saved;
	a.samples = c->plan->base.spec.batch;
	a.positions = x->dim[0];
	a.most = c->node->base.g->shape.dim[0];
	a.heads = attr.heads;
	a.width = x->dim[1] / attr.heads;
	a.precision = c->plan->base.spec.precision;
	if (c->mode == GP_TRAIN)
		a.drop = (struct gpk_dropout){
			.seed = c->plan->base.spec.seed,
			.stream = gp_rng_stream(GP_RNG_DROPOUT, gp_rng_name_id(c->node->base.g->name)),
			.draw = c->draw,
			.threshold = (uint32_t)((double)attr.p * 0x1p32),
			.scale = (float)(1.0 / (1.0 - (double)attr.p)),
		};
	return a;
}

static void attention_forward(const struct cuda_call *c)
{
	const struct gpk_attention a = attention_of(c);
	gpk_attention_forward(c->stream, c->type, &a, c->out[0]);
}

static void attention_backward(const struct cuda_call *c)
{
	const struct gpk_attention a = attention_of(c);
	const struct gpk_attention_grads g = {
		.out = c->out[0],
		.dout = c->dout[0],
		.dq = c->dx[Q],
		.dk = c->dx[K],
		.dv = c->dx[V],
		.room = c->tmp,
	};
	gpk_attention_backward(c->stream, c->type, &a, &g);
}

static enum gp_status attention_prepare(struct cuda_plan *p, struct cuda_node *n, struct gp_err *err)
{
	(void)err;
	const struct gp_attention_attr attr = gp_attention_attr(n->base.g);
	const int64_t positions = gp_walk_type(&p->walk, n->base.in[Q])->shape.dim[0], samples = p->base.spec.batch;
	n->base.saved_bytes = (uint64_t)(samples * attr.heads * positions) * sizeof(float);
	n->base.tmp_bytes[1] = gpk_attention_room(samples, positions, attr.heads);
	n->base.plain_in =
		1 << Q | 1 << K | 1 << V; /* the logarithms that are kept are those of sums over these values */
	p->draws = p->draws || (p->base.spec.train && attr.p > 0.0f);
	return GP_OK;
}

const struct cuda_op gp_cuda_op_attention = {
	.name = "attention",
	.saves_in = 1 << Q | 1 << K | 1 << V | 1 << LENGTH,
	.saves_out = 1,
	.prepare = attention_prepare,
	.forward = attention_forward,
	.backward = attention_backward,
};
