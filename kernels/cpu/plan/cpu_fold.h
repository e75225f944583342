/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norms folded into the convolutions before them, in plans for evaluation alone (spec.train and spec.calibrate false):
 * there a norm's scale is a constant of each channel, which the convolution's weights take when they are packed (Winograd's
 * outputs, as its filters are in no pack), and its shift and its activation are a bias and a range
 * (kernels/cpu/math/finish.h). The norm has no pass over memory then. Results differ from those of the two apart, as in
 * training's own evaluation, by rounding.
 *
 * Where a convolution and its norm belong to one block of the model, which no cut divides, they are folded in the plan of the
 * whole model and in those of its parts alike, so that it does not matter where the model is cut: all models have them so. A
 * cut between norm and activation changes nothing, since these do then by themselves what a range does. Nothing is folded
 * with another precision than fp32, nor where oneDNN or a plain loop convolves.
 *
 * Only for kernels/cpu.
 *
 * Threads: one at a time calls into a plan (common/graph/device.h). Test: tests/unit/test_fold.c
 */
#ifndef GP_CPU_FOLD_H
#define GP_CPU_FOLD_H

#include "kernels/cpu/math/finish.h"
#include "kernels/cpu/plan/cpu_plan.h"

/* Decides which norms; their nodes, and those of their activations, become views. When activations have been folded. */
void gp_cpu_fold_batch_norms(struct cpu_plan *p);
/*
 * The last of a convolution's `prepare`: room for the vectors of what is below, and with `scales` for weights that are scaled.
 * Nothing where no norm is folded into it.
 */
void gp_cpu_fold_reserve(struct cpu_plan *p, struct cpu_node *n, bool scales);
/* In its `repack`: fills the vectors. */
void gp_cpu_fold_fill(const struct cpu_plan *p, const struct cpu_node *n);
/*
 * The same, and the convolution's weight in PyTorch's layout, scaled: in the node's working room, where it stays until the node
 * is run. The weight as it is where no norm is folded.
 */
const float *gp_cpu_fold_weight(const struct cpu_plan *p, const struct cpu_node *n);
/* What a node does to its sums into which a norm is folded. */
struct gp_finish gp_cpu_fold_finish(const struct cpu_plan *p, const struct cpu_node *n);

#endif
