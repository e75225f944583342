/* SPDX-License-Identifier: Apache-2.0
 *
 * Which activations keep a mask, on every device. Backward of a ReLU or ReLU6
 * reads one bit of each element: whether the gradient passes. A plan keeps these
 * bits in place of the activation's output where that saves memory; the gradients
 * are the same, bit for bit.
 *
 * Where maps lie encoded (spec.maps) every activation that stands alone keeps a mask: a codec may not give zeros back as
 * zeros (the smaq of a map around whose mean zero lies makes all of them positive, or all negative), so that a decoded map
 * does not say where the gradient passes. Elsewhere one does whose output nobody else keeps: before a pooling, a sum, a
 * dropout. In other places a mask would be kept besides the output, and saves nothing:
 *   - before a convolution or a linear layer that trains: its weights' gradient is made of the activation's output;
 *   - an output of the plan lies in an IO buffer, if it has the same type there, and a value that crosses a block is kept with
 *     --recompute;
 *   - where gradients of maps are coded and the model may be cut there, the output counts as kept.
 * What activations behind a batch norm keep is each device's own: kernels/cpu/plan/cpu_plan.h, "Masks", and
 * kernels/cuda/ops/cuda_batch_norm.c.
 *
 * Threads: one. Test: tests/unit/test_plan_masks.c
 */
#ifndef GP_PLAN_MASKS_H
#define GP_PLAN_MASKS_H

#include "kernels/plan/plan_walk.h"

/* Fills in w->kept when all nodes have been prepared. */
void gp_walk_find_kept(struct gp_walk *w);

/* After that: whether a node that is an activation standing alone keeps a mask in place of its output. */
bool gp_walk_wants_mask(const struct gp_walk *w, const struct gp_walk_node *n);

#endif
