/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers that walk over all trained parameters at once: the optimizers'
 * updates, and what clipping does to gradients. Device memory, fp32.
 *
 * Threads: launchers queue on a stream and return; one thread at a time for a stream
 * (kernels/cuda/runtime/rt.h). Tests: tests/unit/test_cuda_train.c
 */
#ifndef GP_K_OPTIM_H
#define GP_K_OPTIM_H

#include "kernels/cuda/codec/piece.h"
#include "kernels/cuda/runtime/rt.h"

#ifdef __cplusplus
extern "C" {
#endif

enum gpk_optim { GPK_SGD, GPK_MOMENTUM, GPK_ADAM };

/* One update of n elements, a multiple of 4, all aligned to 16 bytes; the first `decayed`, also a multiple of 4, with
 * weight decay. Gradients are zero afterwards. Formulas: cpu_optim.c. */
struct gpk_update {
	enum gpk_optim kind;
	float *value, *grad, *first, *second; /* first, second: moments, NULL where not kept */
	void *narrow;                         /* the values in bf16, or NULL */
	int64_t n, decayed;
	float lr;
	float decay;    /* into the gradient */
	float shrink;   /* of decayed values before the update: AdamW's decay; 1 */
	float momentum; /* GPK_MOMENTUM */
	bool nesterov;
	float b1, b2, c1, c2, eps;   /* GPK_ADAM: c = 1 - beta */
	float step_size, root_scale; /* GPK_ADAM: lr / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
};
void gpk_optim_step(struct gp_rt_stream *s, const struct gpk_update *u);
/*
 * The same of `pieces` pieces of parameters, in device memory, with moments that have been decoded and will be encoded: each
 * piece's at its `room` in the rooms u->first and u->second, in PyTorch's order. Of Adam what comes and goes is the root of
 * the second moment, and the first one is kept within `most` times that (kernels/cpu/plan/cpu_moments.c). u->n: those of all.
 */
void gpk_optim_step_pieces(struct gp_rt_stream *s, const struct gpk_update *u, const struct gpk_piece *piece,
			   int pieces, float most);

/* grad (rows, columns) becomes -l1 * sign(grad), from first_row and first_column on. */
struct gpk_signs {
	float *grad;
	int64_t rows, columns, first_row, first_column;
	float l1;
};
void gpk_replace_by_signs(struct gp_rt_stream *s, const struct gpk_signs *r);

/* x *= factor; |x| limited, NaN stays. */
void gpk_scale(struct gp_rt_stream *s, float *x, float factor, int64_t n);
void gpk_clamp(struct gp_rt_stream *s, float *x, float limit, int64_t n);

/*
 * Sums of squares of many pieces of x in double. A piece is cut into chunks of at most GPK_SQUARES_CHUNK elements, so
 * that its sum depends on its length alone: chunk[first[i]] .. chunk[first[i+1]-1] are piece i's. All device memory.
 */
#define GPK_SQUARES_CHUNK 32768
struct gpk_squares_chunk {
	int64_t from, count;
};
void gpk_squares_of_pieces(struct gp_rt_stream *s, const float *x, const struct gpk_squares_chunk *chunk, int chunks,
			   const int32_t *first, int pieces, double *partials, double *sums);

#ifdef __cplusplus
}
#endif
#endif
