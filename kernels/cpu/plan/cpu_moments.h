/* SPDX-License-Identifier: Apache-2.0
 *
 * What a CPU plan's optimizer remembers of each trained parameter: floats, or
 * encoded (see cpu_moments.c for what is encoded of Adam's). Only for
 * kernels/cpu.
 *
 * Threads: as a plan; blocks of a parameter by several at once, each with a
 * `part` of its own below the number of compute threads.
 * Tests: tests/unit/test_plan_coded.c, tests/unit/test_cpu_undo.c
 */
#ifndef GP_CPU_MOMENTS_H
#define GP_CPU_MOMENTS_H

#include "kernels/cpu/plan/cpu_plan.h"

/* Whether it lies encoded; bytes of one array; scratch memory for blocks that are decoded, behind p->unpack_bytes. */
bool gp_cpu_moments_coded(const struct cpu_plan *p);
uint64_t gp_cpu_moment_bytes(const struct cpu_plan *p, int index);
uint64_t gp_cpu_moments_room(const struct cpu_plan *p);
/* Zeros, as before the first update. */
void gp_cpu_moments_clear(struct cpu_plan *p);

/* An array that lies as floats. */
float *gp_cpu_moment(const struct cpu_plan *p, int index, int which);
/* Else: decodes a block of GP_STORE_BLOCK elements of each array, and says where; encodes what is there then. */
void gp_cpu_moments_load(const struct cpu_plan *p, int index, int64_t block, int part, float *moment[2]);
void gp_cpu_moments_store(const struct cpu_plan *p, int index, int64_t block, int part);

/* For the device's table. */
int gp_cpu_optim_states(const struct gp_plan *plan);
enum gp_status gp_cpu_optim_get(struct gp_plan *plan, int index, int which, float *out, struct gp_err *err);
enum gp_status gp_cpu_optim_set(struct gp_plan *plan, int index, int which, const float *in, struct gp_err *err);
uint64_t gp_cpu_optim_code_bytes(const struct gp_plan *plan, int index);
enum gp_status gp_cpu_optim_code_get(struct gp_plan *plan, int index, int which, uint8_t *out, struct gp_err *err);
enum gp_status gp_cpu_optim_code_set(struct gp_plan *plan, int index, int which, const uint8_t *in, struct gp_err *err);
uint64_t gp_cpu_optim_count_get(const struct gp_plan *plan);
void gp_cpu_optim_count_set(struct gp_plan *plan, uint64_t updates);

#endif
