/* SPDX-License-Identifier: Apache-2.0
 *
 * What `poweriter` computes with on the device, sample by sample: T'T, steps
 * of the subspace iteration, products of factors. Every number is the same
 * chain of operations as on the host (kernels/loops/factor_loops.h,
 * common/codec/stages/poweriter.c), so factors and tensors are the host's bit for bit;
 * cuBLAS would add in another order, and gains little on matrices this small.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Test: tests/unit/test_cuda_codec_poweriter.c
 */
#ifndef GP_K_CODEC_FACTOR_H
#define GP_K_CODEC_FACTOR_H

#include "kernels/cuda/runtime/rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Answers in device memory, 0 before: a sample is not finite or too large; a product is not finite. */
struct gpk_factor_told {
	uint32_t bad;
};

/* What was decided about a sample. */
struct gpk_factor_sample {
	uint32_t exact; /* T'T has to be computed again, in fp64 */
};

/* batch matrices T (tall, small) of which r directions are wanted. Pointers: device. */
struct gpk_factor {
	int64_t batch, tall, small, r;
	bool transposed;       /* what lies there is (small, tall) */
	uint64_t seed, stream; /* of draws: gp_rng_stream with id 0 */
	/* common/codec/stages/poweriter.h, the first and the last of traces: */
	double least_trace, exact_share, nothing_left, most_trace;
	float *partial;                   /* gpk_factor_partials floats */
	double *gram;                     /* (batch, small, small) */
	double *v, *w;                    /* (batch, r, small) each */
	struct gpk_factor_sample *sample; /* batch */
	struct gpk_factor_told *told;
};

/* Floats that T'T takes to work with. */
uint64_t gpk_factor_partials(int64_t batch, int64_t tall, int64_t small);

/* V' = start, (batch, r, small) or with `transposed` (batch, small, r); all 0 with NULL. */
void gpk_factor_start(struct gp_rt_stream *s, const struct gpk_factor *f, const float *start);
/* V' of every sample of x, from there, by so many steps; told.bad. */
void gpk_factor_iterate(struct gp_rt_stream *s, const struct gpk_factor *f, const float *x, int steps);
/* V' as the small factor, laid out as a start is. */
void gpk_factor_basis(struct gp_rt_stream *s, const struct gpk_factor *f, float *small_factor);
/* T V as the tall factor: (batch, tall, r), or with `transposed` (batch, r, tall). */
void gpk_factor_project(struct gp_rt_stream *s, const struct gpk_factor *f, const float *x, const float *small_factor,
			float *tall_factor);
/* x (batch, rows, cols) = left (batch, rows, r) right (batch, r, cols); told->bad when an element is not finite. */
void gpk_factor_join(struct gp_rt_stream *s, int64_t batch, int64_t rows, int64_t cols, int64_t r, const float *left,
		     const float *right, float *x, struct gpk_factor_told *told);

#ifdef __cplusplus
}
#endif
#endif
