/* SPDX-License-Identifier: Apache-2.0
 *
 * Work split over the device's compute threads (OpenMP, the same pool oneDNN
 * uses), and the elementwise loops more than one op needs. What a part
 * computes depends on the number of parts only, never on which thread ran it.
 * Only for kernels/cpu.
 *
 * Threads: the one that calls into a plan (common/graph/device.h). Test: tests/unit/test_cpu_ops.c
 */
#ifndef GP_CPU_PARALLEL_H
#define GP_CPU_PARALLEL_H

#include <stddef.h>
#include <stdint.h>

typedef void (*gp_cpu_part_fn)(void *arg, int part, int parts);

/* Runs fn(arg, part, parts) for part = 0..parts-1 at once. */
void gp_cpu_parallel(int parts, gp_cpu_part_fn fn, void *arg);

struct gp_cpu_range {
	int64_t from, to;
};
/* The share of [0, n) of one part, with borders at multiples of `grain`. */
struct gp_cpu_range gp_cpu_share(int64_t n, int64_t grain, int part, int parts);
/* Parts worth starting for `work` elements: 1 for little work, else `threads`. */
int gp_cpu_parts(int threads, int64_t work);

/* acc += x, by the thread that calls. */
void gp_cpu_add_row(float *acc, const float *x, int64_t n);
/* out = a + b, by the thread that calls; out may be a or b. */
void gp_cpu_sum_row(float *out, const float *a, const float *b, int64_t n);
/* acc += x */
void gp_cpu_add_into(int threads, float *acc, const float *x, int64_t n);
/* out = a + b; out may be a or b. */
void gp_cpu_add(int threads, float *out, const float *a, const float *b, int64_t n);
void gp_cpu_copy(int threads, float *out, const float *in, int64_t n);

#endif
