/* SPDX-License-Identifier: Apache-2.0
 *
 * Embedding on the GPU: token ids to rows of a table, which is read in fp32 in
 * every precision. Ids come from data, and so from anywhere: one outside the
 * table gives zeros and gets no gradient. Test: tests/unit/test_cuda_ops.c
 */
#include "common/graph/ops/op_embedding.h"
#include "kernels/cuda/ops/k_embedding.h"
#include "kernels/cuda/plan/cuda_plan.h"

static void embedding_forward(const struct cuda_call *c)
{
	const struct gp_embedding_attr a = gp_embedding_attr(c->node->base.g);
	gpk_embedding_forward(c->stream, c->type, c->out[0], gp_cuda_param(c->plan, c->node, GP_PARAM_WEIGHT), c->in[0],
			      gp_cuda_in_elements(c->plan, c->node, 0), a.vocab, a.features);
}

static void embedding_backward(const struct cuda_call *c)
{
	const struct gp_embedding_attr a = gp_embedding_attr(c->node->base.g);
	gpk_embedding_backward(c->stream, c->type, gp_cuda_grad(c->plan, c->node, GP_PARAM_WEIGHT), c->dout[0],
			       c->in[0], gp_cuda_in_elements(c->plan, c->node, 0), a.vocab, a.features);
}

const struct cuda_op gp_cuda_op_embedding = {
	.name = "embedding",
	.saves_in = 1,
	.forward = embedding_forward,
	.backward = embedding_backward,
};
