/* SPDX-License-Identifier: Apache-2.0
 *
 * What of a CUDA plan passes through codecs (spec.maps and spec.coded of
 * common/graph/device.h): which codecs, the table of parameters' pieces, rooms,
 * and when gradients and parameters are coded. As kernels/cpu/plan/cpu_code.h, with
 * the same blocks and values; maps are in cuda_plan_store.c, what the optimizer
 * remembers in cuda_moments.c. Only for kernels/cuda.
 *
 * Parameters are coded in PyTorch's order, whatever theirs (kernels/cuda/codec/piece.h). Gradients of parameters are replaced in
 * their place, once in a step, when whoever reads them all comes first: sums of squares, clipping, or the update.
 *
 * Threads: as a plan. All of this only queues. Tests: tests/unit/test_plan_store.c, tests/unit/test_plan_coded.c
 */
#ifndef GP_CUDA_CODE_H
#define GP_CUDA_CODE_H

#include "kernels/cuda/plan/cuda_plan.h"

/* NULL: such things pass through no codec in this plan. `which` may be CUDA_CODEC_MAPS. */
const struct gp_codec_spec *gp_cuda_codec(const struct cuda_plan *p, int which);
/* GP_UNSUPPORTED: a GPU has no code for one of them. */
enum gp_status gp_cuda_codecs_prepare(struct cuda_plan *p, struct gp_err *err);

/* After parameters were placed: how many pieces there are; then the table of them, in host_room. */
void gp_cuda_pieces_count(struct cuda_plan *p);
void gp_cuda_pieces_fill(struct cuda_plan *p);
/* The table in device memory, and on the host. */
const struct gpk_piece *gp_cuda_pieces(const struct cuda_plan *p);
const struct gpk_piece *gp_cuda_host_pieces(const struct cuda_plan *p);
/* After the walk was laid out: bytes of p->coding, and of the forwards' scratch memory that an update works in. */
uint64_t gp_cuda_coding_bytes(const struct cuda_plan *p);
uint64_t gp_cuda_update_room(const struct cuda_plan *p);

/* The rest does nothing where there is nothing to do. A gradient that a node's backward has computed. */
void gp_cuda_gradient_code(struct cuda_plan *p, const struct cuda_node *n, void *dx, int64_t count);
/* Gradients of parameters, if this step's have not been. */
void gp_cuda_grads_code(struct cuda_plan *p);
/* Parameters have changed; an update has ended. */
void gp_cuda_weights_decode(struct cuda_plan *p);
void gp_cuda_weights_updated(struct cuda_plan *p);
/* GP_STRUCT_WEIGHTS: whether decoded values lie beside the master values. */
bool gp_cuda_keeps_decoded(const struct cuda_plan *p);

/*
 * cuda_plan_store.c: encodes what has had its last reader when this node's forward has run, decodes what is read from this
 * node's backward on; *at counts how far that is, from 0 when the pass begins. What lies in IO buffers, when backward begins.
 */
void gp_cuda_store_after(struct cuda_plan *p, int slot, int node, int *at);
void gp_cuda_store_before(struct cuda_plan *p, int slot, int node, int *at);
void gp_cuda_store_edges(struct cuda_plan *p, int slot);

#endif
