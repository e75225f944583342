/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast this processor is, with the device's threads: a matrix product that
 * stays in the caches, and a sum of two arrays that do not. Some ten
 * milliseconds, of which the best run counts, so that others on the machine
 * disturb little. See common/graph/graph_work.h. Test: tests/unit/test_graph_work.c
 */
#include <omp.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "kernels/cpu/math/product.h"
#include "kernels/cpu/onednn/dnn_device.h"
#include "kernels/cpu/plan/parallel.h"

#define SIDE      256                /* of the matrices */
#define ELEMENTS  ((int64_t)1 << 21) /* of each array: 8 MiB */
#define RUNS      5
#define SUSTAINED 0.5 /* of what the matrix product shows: layers have other shapes */

struct product {
	const float *a, *b;
	float *c;
};

/* Own loops: rows of the product are shared out. */
static void multiply_part(void *arg, int part, int parts)
{
	const struct product *p = arg;
	const struct gp_cpu_range r = gp_cpu_share(SIDE, 1, part, parts);
	gp_product(&(struct gp_product){.c = p->c + r.from * SIDE,
					.ldc = SIDE,
					.a = p->a + r.from * SIDE,
					.lda = SIDE,
					.b = p->b,
					.ldb = SIDE,
					.rows = r.to - r.from,
					.inner = SIDE,
					.columns = SIDE});
}

/* One run; the room has three matrices, or two arrays. */
static enum gp_status multiply(struct gp_device *dev, float *room, struct gp_err *err)
{
	(void)err;
	const float *a = room, *b = room + SIDE * SIDE;
	float *c = room + 2 * SIDE * SIDE;
	if (!gp_dnn_multiply((struct cpu_device *)dev, c, a, b, SIDE))
		gp_cpu_parallel(dev->threads, multiply_part, &(struct product){a, b, c});
	return GP_OK;
}

static enum gp_status add_up(struct gp_device *dev, float *room, struct gp_err *err)
{
	(void)err;
	gp_cpu_add_into(dev->threads, room, room + ELEMENTS, ELEMENTS);
	return GP_OK;
}

static enum gp_status best_of(enum gp_status (*run)(struct gp_device *, float *, struct gp_err *),
			      struct gp_device *dev, float *room, double *seconds, struct gp_err *err)
{
	uint64_t best = UINT64_MAX;
	for (int i = 0; i < RUNS; i++) {
		const uint64_t begin = gp_now_ns();
		GP_TRY(run(dev, room, err));
		const uint64_t took = gp_now_ns() - begin;
		best = took < best ? took : best;
	}
	*seconds = (double)(best > 0 ? best : 1) * 1e-9;
	return GP_OK;
}

enum gp_status gp_cpu_measure(struct gp_device *dev, struct gp_speed *out, struct gp_err *err)
{
	double product, sum;
	float *room = gp_alloc_aligned(2 * (uint64_t)ELEMENTS * sizeof *room);
	if (!room)
		GP_FAIL(err, GP_NOMEM, "out of memory to measure the processor");
	for (int64_t i = 0; i < 2 * ELEMENTS; i++)
		room[i] = 0.5f;
	omp_set_num_threads(dev->threads);
	enum gp_status status = best_of(multiply, dev, room, &product, err);
	if (status == GP_OK)
		status = best_of(add_up, dev, room, &sum, err);
	gp_free_aligned(room);
	if (status != GP_OK)
		return status;
	out->macs_per_s = SUSTAINED * SIDE * SIDE * SIDE / product;
	out->elements_per_s = 3.0 * (double)ELEMENTS / sum;
	return GP_OK;
}
