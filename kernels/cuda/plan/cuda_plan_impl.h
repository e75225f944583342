/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files that make up a CUDA plan know of each other; ops see cuda_plan.h
 * alone.
 *
 * Threads: one at a time calls into a plan (common/graph/device.h). Test: tests/unit/test_cuda_plan.c
 */
#ifndef GP_CUDA_PLAN_IMPL_H
#define GP_CUDA_PLAN_IMPL_H

#include "kernels/cuda/plan/cuda_plan.h"

/* Bytes of the pieces of a plan's block, in this order; then the slots: for each its arena and its IO buffers. */
struct cuda_parts {
	uint64_t values, decoded, narrow, packs, undo, merged, grads, moment, coding, scratch[CUDA_TRACKS], extra;
};
struct cuda_parts gp_cuda_parts(const struct cuda_plan *p);
static inline int gp_cuda_tracks(const struct cuda_plan *p)
{
	return p->base.spec.train ? CUDA_TRACKS : 1;
}
/* Bytes that the tracks' matrix libraries take, apart from the block. */
static inline uint64_t gp_cuda_blas_bytes(const struct cuda_plan *p)
{
	return (uint64_t)gp_cuda_tracks(p) * gp_blas_bytes();
}
/* Where the small things lie: fills p->at. */
void gp_cuda_extra_plan(struct cuda_plan *p);
/* Pinned host memory: the small things, and without device_io a copy of every IO buffer. */
uint64_t gp_cuda_host_bytes(const struct cuda_plan *p);
/* cuda_plan.c: frees a plan in whatever state. */
void gp_cuda_plan_release(struct cuda_plan *p);

/* The forwards' stream; what is queued there from here on begins when everything queued so far is done. */
struct gp_rt_stream *gp_cuda_behind_all(struct cuda_plan *p);
/* Waits for what has been queued on the forwards' stream. */
enum gp_status gp_cuda_wait(struct cuda_plan *p, struct gp_err *err);
enum gp_status gp_cuda_check_training(const struct gp_plan *plan, struct gp_err *err);

/* cuda_plan_run.c */
enum gp_status gp_cuda_forward(struct gp_plan *plan, int slot, enum gp_mode mode, uint64_t draw, struct gp_err *err);
enum gp_status gp_cuda_backward(struct gp_plan *plan, int slot, struct gp_err *err);
enum gp_status gp_cuda_queue_forward(struct gp_plan *plan, int slot, enum gp_mode mode, uint64_t draw,
				     struct gp_err *err);
enum gp_status gp_cuda_queue_backward(struct gp_plan *plan, int slot, struct gp_err *err);
void gp_cuda_set_length(struct gp_plan *plan, int slot, int64_t length);
/* A slot, or GP_SLOT_UPDATE. */
enum gp_status gp_cuda_wait_for(struct gp_plan *plan, int slot, struct gp_err *err);
enum gp_status gp_cuda_node_get(struct gp_plan *plan, int slot, int index, float *out, struct gp_err *err);
/* What is decoded of the parameters, copies in bf16 and packs are as they again. Queues only. */
void gp_cuda_repack(struct cuda_plan *p);
/* Where a piece of the walk lies; NULL: GP_WALK_NONE. */
void *gp_cuda_buf(const struct cuda_plan *p, int slot, int buf);

/* cuda_params.c: parameters, gradients and optimizer state to and from the host, in PyTorch's layouts. How far apart elements
 * along each of PyTorch's axes lie in device memory. */
void gp_cuda_param_steps(const struct cuda_plan *p, int index, int64_t step[4]);
enum gp_status gp_cuda_params_start(struct cuda_plan *p, struct gp_err *err);
enum gp_status gp_cuda_param_get(struct gp_plan *plan, int index, float *out, struct gp_err *err);
enum gp_status gp_cuda_param_set(struct gp_plan *plan, int index, const float *in, struct gp_err *err);
enum gp_status gp_cuda_grad_get(struct gp_plan *plan, int index, float *out, struct gp_err *err);
enum gp_status gp_cuda_optim_get(struct gp_plan *plan, int index, int which, float *out, struct gp_err *err);
enum gp_status gp_cuda_optim_set(struct gp_plan *plan, int index, int which, const float *in, struct gp_err *err);

/* cuda_loss.c */
enum gp_status gp_cuda_loss(struct gp_plan *plan, int slot, const void *labels, int valid, bool want_grad,
			    float grad_scale, struct gp_loss_result *out, struct gp_err *err);
/* cuda_optim.c */
enum gp_status gp_cuda_optim_step(struct gp_plan *plan, float lr, struct gp_err *err);
enum gp_status gp_cuda_queue_optim_step(struct gp_plan *plan, float lr, struct gp_err *err);
int gp_cuda_optim_states(const struct gp_plan *plan);
uint64_t gp_cuda_optim_count_get(const struct gp_plan *plan);
void gp_cuda_optim_count_set(struct gp_plan *plan, uint64_t updates);
/* cuda_undo.c: keeps what a training forward changes for good, once in a step; goes back to it. */
uint64_t gp_cuda_undo_bytes(const struct cuda_plan *p);
void gp_cuda_undo_save(struct cuda_plan *p);
void gp_cuda_step_undo(struct gp_plan *plan);
/* Statistics that were merged are forgotten. Queues on the forwards' stream. */
void gp_cuda_bn_forget(struct cuda_plan *p);
/* cuda_clip.c */
uint64_t gp_cuda_squares_chunks(const struct cuda_plan *p);
int gp_cuda_trained_params(const struct cuda_plan *p);
/* Fills the table of chunks in host_room. */
void gp_cuda_squares_table(struct cuda_plan *p);
enum gp_status gp_cuda_grad_squares(struct gp_plan *plan, double *out, struct gp_err *err);
enum gp_status gp_cuda_tie_grads(struct gp_plan *plan, int lead, struct gp_plan *other, int follower,
				 struct gp_err *err);
enum gp_status gp_cuda_tie_values(struct gp_plan *plan, int lead, struct gp_plan *other, int follower,
				  struct gp_err *err);
/* Whether a parameter lies in the device's memory as PyTorch has it. */
bool gp_cuda_is_plain(const struct cuda_plan *p, int index);
enum gp_status gp_cuda_grad_scale(struct gp_plan *plan, float factor, struct gp_err *err);
enum gp_status gp_cuda_grad_clamp(struct gp_plan *plan, float limit, struct gp_err *err);
/* cuda_profile.c */
enum gp_status gp_cuda_profile(struct gp_plan *plan, const struct gp_plan_profile **out, struct gp_err *err);
void gp_cuda_profile_free(struct cuda_plan *p);

#endif
