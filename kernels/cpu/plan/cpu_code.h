/* SPDX-License-Identifier: Apache-2.0
 *
 * What of a CPU plan passes through codecs (spec.maps and spec.coded of
 * common/graph/device.h): the coders, one for each codec and compute thread, and
 * coding an array with them. Arrays are coded in blocks (codec_store.h), which
 * threads share, so that the bits are the same for any number of threads. Only
 * for kernels/cpu.
 *
 * Who calls: cpu_plan_store.c for maps, cpu_plan_run.c for their gradients,
 * cpu_clip.c for gradients of parameters, cpu_moments.c for what the optimizer
 * remembers; parameters are here.
 *
 * Threads: as a plan. Tests: tests/unit/test_plan_store.c, tests/unit/test_plan_coded.c
 */
#ifndef GP_CPU_CODE_H
#define GP_CPU_CODE_H

#include "kernels/cpu/plan/cpu_plan.h"

enum cpu_way { CPU_ENCODE, CPU_DECODE, CPU_ROUND_TRIP };

/* What the coders take; makes them, frees them. */
uint64_t gp_cpu_coders_bytes(const struct cpu_plan *p);
enum gp_status gp_cpu_coders_new(struct cpu_plan *p, struct gp_err *err);
void gp_cpu_coders_free(struct cpu_plan *p);

/* NULL: such things pass through no codec in this plan. `which` may be CPU_CODER_MAPS. */
const struct gp_codec_spec *gp_cpu_codec(const struct cpu_plan *p, int which);
/* `coded`: NULL for a round trip. */
void gp_cpu_code(const struct cpu_plan *p, int which, enum cpu_way way, float *x, uint8_t *coded, uint64_t floats);

/* GP_STRUCT_WEIGHTS: whether decoded values lie beside the master values. */
bool gp_cpu_keeps_decoded(const struct cpu_plan *p);
/* Master values have changed; an update has ended. These do nothing where there is nothing to do. */
void gp_cpu_weights_decode(struct cpu_plan *p);
void gp_cpu_weights_updated(struct cpu_plan *p);

#endif
