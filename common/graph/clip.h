/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradient clipping: by the norm of all gradients together, as
 * torch.nn.utils.clip_grad_norm_ does (norm_type 2, error_if_nonfinite False),
 * or each element by itself, as clip_grad_value_ does (PyTorch 1.13). What is
 * configured is in struct gp_optim; the loops over elements are the device's.
 *
 * The norm spans all parts of a cut model. A part gives one sum of squares per
 * trained parameter (device.h, grad_squares); whoever has the sums of all
 * parts adds them in the order of the whole model's parameters. No sum depends
 * on where the cuts are, so neither does the norm, to the last bit.
 *
 * Threads: any (pure functions). Test: tests/unit/test_clip.c
 */
#ifndef GP_CLIP_H
#define GP_CLIP_H

#include "common/graph/device.h"

/* How many sums grad_squares gives for this graph: one per trained parameter. */
int gp_clip_sums(const struct gp_graph *g);
/* The squared norm so far and one part's sums, added from first to last. */
double gp_clip_add(double total, const double *squares, int n);
/*
 * What every gradient is multiplied by: max_norm / (norm + 1e-6), at most 1.
 * As in PyTorch a norm of infinity gives 0 and NaN gives NaN.
 */
float gp_clip_scale(double max_norm, double norm);
/* Clips the accumulated gradients as the plan's optimizer says, then updates. `norm` is read with clip_norm alone. */
enum gp_status gp_clip_update(struct gp_plan *plan, float lr, double norm, struct gp_err *err);
/* The same, queued: where the device has `wait`, for GP_SLOT_UPDATE. */
enum gp_status gp_clip_queue_update(struct gp_plan *plan, float lr, double norm, struct gp_err *err);

#endif
