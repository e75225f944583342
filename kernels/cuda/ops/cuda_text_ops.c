/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops of language models that the GPU does not have yet: a plan with one is
 * refused. Test: tests/unit/test_cuda_ops.c
 */
#include "kernels/cuda/plan/cuda_plan.h"

static enum gp_status refuse(struct cuda_plan *p, struct cuda_node *n, struct gp_err *err)
{
	(void)p;
	GP_FAIL(err, GP_UNSUPPORTED, "node %s: the GPU has no %s yet; use --device cpu", n->base.g->name,
		gp_op_name(n->base.g->op));
}

#define REFUSED(op) const struct cuda_op gp_cuda_op_##op = {.name = #op, .prepare = refuse};
REFUSED(attention)
