/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax cross-entropy, or the squared error of one value, on the GPU: rows on the device, their sum on the host,
 * one after another, so that it does not depend on anything but the values.
 * Test: tests/unit/test_cuda_train.c
 */
#include <string.h>

#include "kernels/cuda/ops/k_loss.h"
#include "kernels/cuda/plan/cuda_plan_impl.h"
#include "kernels/cuda/plan/cuda_profile.h"
#include "kernels/plan/plan_check.h"

/* Rows of `samples` of them. */
static size_t rows_of(const struct cuda_plan *p, int samples)
{
	return (size_t)samples * (size_t)gp_plan_label_rows(&p->base);
}

static void queue_loss(struct cuda_plan *p, int slot, int valid, int64_t k, float scale, bool want_grad)
{
	const struct cuda_slot *s = &p->slot[slot];
	const size_t rows = rows_of(p, p->base.spec.batch), valid_rows = rows_of(p, valid);
	const int scores = gp_walk_port(&p->walk, GP_BUF_OUTPUT, 0);
	const int edge = gp_walk_port(&p->walk, GP_BUF_GRAD_OUTPUT, 0);
	float *grad = want_grad && edge >= 0 ? s->io[edge] : NULL;
	if (s->host)
		gp_rt_copy_up(p->stream, s->io[scores], s->host[scores], rows * (size_t)k * sizeof *grad);
	gp_rt_copy_up(p->stream, p->extra + p->at.labels, p->host_room + p->at.labels, rows * sizeof(int32_t));
	struct gpk_loss_row *const out = (struct gpk_loss_row *)(p->extra + p->at.rows);
	if (p->base.spec.loss == GP_LOSS_SQUARED_ERROR)
		gpk_squared_error(p->stream, s->io[scores], (const float *)(p->extra + p->at.labels), (int)rows,
				  (int)valid_rows, scale, grad, out);
	else
		gpk_cross_entropy(p->stream, s->io[scores], (const int32_t *)(p->extra + p->at.labels), (int)rows,
				  (int)valid_rows, k, scale, grad, out);
	gp_rt_copy_down(p->stream, p->host_room + p->at.rows, p->extra + p->at.rows,
			valid_rows * sizeof(struct gpk_loss_row));
	if (grad && s->host)
		gp_rt_copy_down(p->stream, s->host[edge], grad, rows * (size_t)k * sizeof *grad);
}

enum gp_status gp_cuda_loss(struct gp_plan *plan, int slot, const void *labels, int valid, bool want_grad,
			    float grad_scale, struct gp_loss_result *out, struct gp_err *err)
{
	struct cuda_plan *p = (struct cuda_plan *)plan;
	const struct gp_shape *scores = gp_graph_output_shape(plan->spec.graph);
	gp_require(slot >= 0 && slot < plan->spec.slots);
	GP_TRY(gp_plan_check_labels(plan, labels, valid, err));
	if (want_grad)
		GP_TRY(gp_cuda_check_training(plan, err));
	const uint64_t start = gp_cuda_profile_clock(p);
	const size_t rows = rows_of(p, valid);
	memcpy(p->host_room + p->at.labels, labels, rows * sizeof(int32_t));
	queue_loss(p, slot, valid, scores->dim[scores->ndim - 1], grad_scale, want_grad);
	GP_TRY(gp_cuda_wait(p, err));
	const struct gpk_loss_row *row = (const struct gpk_loss_row *)(p->host_room + p->at.rows);
	struct gp_loss_result result = {0};
	const int32_t *const class = plan->spec.loss == GP_LOSS_CROSS_ENTROPY ? labels : NULL;
	for (size_t i = 0; i < rows; i++) {
		if (class && class[i] == GP_NO_LABEL)
			continue;
		result.labelled++;
		result.loss_sum += row[i].loss;
		result.correct += class && row[i].best == class[i];
	}
	*out = result;
	gp_cuda_profile_other(p, CUDA_PROFILE_LOSS, start);
	return GP_OK;
}
