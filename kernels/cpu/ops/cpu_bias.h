/* SPDX-License-Identifier: Apache-2.0
 *
 * Bias of rows of channels, for operations that add it themselves: one is added to every row, and its gradient is the sum
 * of rows, in single precision over a block and in double precision beyond. Only for kernels/cpu.
 *
 * Threads: the one that calls into a plan (common/graph/device.h). Test: tests/unit/test_cpu_ops.c
 */
#ifndef GP_CPU_BIAS_H
#define GP_CPU_BIAS_H

#include "kernels/cpu/plan/cpu_plan.h"

/* The node's bias to `rows` rows of `channels` floats; nothing where it has none. */
void gp_cpu_bias_add(const struct cpu_call *c, float *y, int64_t rows, int64_t channels);
/* Its gradient of rows of dout, by c->accumulate; nothing where it has none or is not trained. */
void gp_cpu_bias_gradient(const struct cpu_call *c, const float *dout, int64_t rows, int64_t channels);

#endif
