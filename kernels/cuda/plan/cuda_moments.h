/* SPDX-License-Identifier: Apache-2.0
 *
 * What an optimizer remembers on a GPU where it lies encoded (GP_STRUCT_STATE,
 * common/codec/moment_store.h): in the layout of the host's, in PyTorch's order, so
 * that what was written down on one device continues on another. What is encoded of
 * Adam's, and why: kernels/cpu/plan/cpu_moments.c. Only for kernels/cuda.
 *
 * An update decodes as many pieces as a room takes, computes, and encodes them.
 *
 * Threads: as a plan. Tests: tests/unit/test_plan_coded.c, tests/unit/test_cpu_undo.c
 */
#ifndef GP_CUDA_MOMENTS_H
#define GP_CUDA_MOMENTS_H

#include "kernels/cuda/plan/cuda_plan.h"

struct gpk_update;

/* NULL: it lies as floats, or there is none. */
const struct gp_codec_spec *gp_cuda_moments_codec(const struct cuda_plan *p);
/* Finds where each parameter's array lies; where each piece of the table is decoded; bytes of the rooms. */
void gp_cuda_moments_place(struct cuda_plan *p);
void gp_cuda_moments_rooms(const struct cuda_plan *p, struct gpk_piece *table);
uint64_t gp_cuda_moments_room(const struct cuda_plan *p);

/* Zeros, as before the first update; an update. They queue on the forwards' stream. */
void gp_cuda_moments_clear(struct cuda_plan *p);
void gp_cuda_moments_update(struct cuda_plan *p, const struct gpk_update *update);

/* For the device's table, where state lies encoded. */
enum gp_status gp_cuda_moments_get(struct cuda_plan *p, int index, int which, float *out, struct gp_err *err);
enum gp_status gp_cuda_moments_set(struct cuda_plan *p, int index, int which, const float *in, struct gp_err *err);
uint64_t gp_cuda_optim_code_bytes(const struct gp_plan *plan, int index);
enum gp_status gp_cuda_optim_code_get(struct gp_plan *plan, int index, int which, uint8_t *out, struct gp_err *err);
enum gp_status gp_cuda_optim_code_set(struct gp_plan *plan, int index, int which, const uint8_t *in,
				      struct gp_err *err);

#endif
