/* SPDX-License-Identifier: Apache-2.0
 *
 * Splitting work over compute threads, and elementwise addition. See parallel.h and simd.h. Test: tests/unit/test_cpu_ops.c
 */
#include "kernels/cpu/plan/parallel.h"

#include <string.h>

#include "kernels/loops/simd.h"

/* Below this many elements starting threads costs more than it saves. */
#define WORTH_SPLITTING 16384
/* Elements: a cache line's worth, so that no two parts write one line. */
#define GRAIN           16

void gp_cpu_parallel(int parts, gp_cpu_part_fn fn, void *arg)
{
	if (parts <= 1) {
		fn(arg, 0, 1);
		return;
	}
#pragma omp parallel for schedule(static, 1) num_threads(parts)
	for (int part = 0; part < parts; part++)
		fn(arg, part, parts);
}

struct gp_cpu_range gp_cpu_share(int64_t n, int64_t grain, int part, int parts)
{
	int64_t units = (n + grain - 1) / grain;
	int64_t from = units * part / parts * grain, to = units * (part + 1) / parts * grain;
	return (struct gp_cpu_range){from < n ? from : n, to < n ? to : n};
}

int gp_cpu_parts(int threads, int64_t work)
{
	return work < WORTH_SPLITTING ? 1 : threads;
}

struct binary {
	float *out;
	const float *a, *b;
	int64_t n;
};

/* out may be a or b: every element is read before it is written. */
GP_INLINE void add_range_body(float *out, const float *a, const float *b, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		out[i] = a[i] + b[i];
}
GP_CPU_CLONES(add_range, (float *out, const float *a, const float *b, int64_t n), (out, a, b, n))

static void add_part(void *arg, int part, int parts)
{
	const struct binary *op = arg;
	struct gp_cpu_range r = gp_cpu_share(op->n, GRAIN, part, parts);
	add_range(op->out + r.from, op->a + r.from, op->b + r.from, r.to - r.from);
}

void gp_cpu_add_row(float *acc, const float *x, int64_t n)
{
	add_range(acc, acc, x, n);
}

void gp_cpu_sum_row(float *out, const float *a, const float *b, int64_t n)
{
	add_range(out, a, b, n);
}

void gp_cpu_add(int threads, float *out, const float *a, const float *b, int64_t n)
{
	gp_cpu_parallel(gp_cpu_parts(threads, n), add_part, &(struct binary){out, a, b, n});
}

void gp_cpu_add_into(int threads, float *acc, const float *x, int64_t n)
{
	gp_cpu_add(threads, acc, acc, x, n);
}

static void copy_part(void *arg, int part, int parts)
{
	const struct binary *op = arg;
	struct gp_cpu_range r = gp_cpu_share(op->n, GRAIN, part, parts);
	memcpy(op->out + r.from, op->a + r.from, (size_t)(r.to - r.from) * sizeof(float));
}

void gp_cpu_copy(int threads, float *out, const float *in, int64_t n)
{
	gp_cpu_parallel(gp_cpu_parts(threads, n), copy_part, &(struct binary){out, in, NULL, n});
}
