/* SPDX-License-Identifier: Apache-2.0
 *
 * Arithmetic of batch normalization over rows of a (rows, channels) matrix,
 * with the ReLU or ReLU6 behind it folded in: no plans, no threads, no memory
 * of its own. cpu_batch_norm.c says what is computed and who calls it when.
 *
 * Sums are taken over blocks of `block` rows (the last may be shorter), in
 * float inside a block; whoever adds blocks up does so in double and in their
 * order, so that no result depends on who summed which block.
 *
 * Few channels are folded: `fold` rows side by side are treated as one wide
 * row, so that vectors are full; per-channel vectors are repeated `fold` times.
 *
 * Only for kernels/cpu.
 *
 * Threads: any; rows and sums are the caller's. Test: tests/unit/test_bn_rows.c
 */
#ifndef GP_CPU_BN_ROWS_H
#define GP_CPU_BN_ROWS_H

#include <stdbool.h>
#include <stdint.h>

/* Activation folded into the op before it. */
enum cpu_act { CPU_ACT_NONE, CPU_ACT_RELU, CPU_ACT_RELU6 };

struct gp_bn {
	int64_t rows, channels;
	int64_t fold, width;   /* width = fold * channels: floats of a vector */
	int64_t block, blocks; /* rows that are summed up together */
	bool fixed;            /* mean and variance are constants: grad_mean and k are 0 */
};

/* Vectors: out = act(a x + b); dx = (g - grad_mean - (x - mean) k) scale, g = dout behind the activation. */
enum { BN_A, BN_B, BN_MEAN, BN_GRAD_MEAN, BN_K, BN_SCALE, BN_VECTORS };

/* `images` images of `pixels` rows: whole blocks make whole images, or the other way round, wherever sizes allow. */
struct gp_bn gp_bn_shape(int64_t images, int64_t pixels, int64_t channels);
/* Only the block of gp_bn_shape. */
int64_t gp_bn_block(int64_t pixels);

/* Repeats the first `channels` entries of a vector over its whole width. */
void gp_bn_fold_out(const struct gp_bn *s, float *vec);

/* In all of these x, out, dout and dx are `rows` whole rows; vec[] as above, BN_VECTORS pointers. */

/* out = act(a x + b); out may be x. */
void gp_bn_apply(const struct gp_bn *s, enum cpu_act act, const float *x, float *out, int64_t rows, float *const *vec);
/* dx as above; dx may be dout. */
void gp_bn_gradient(const struct gp_bn *s, enum cpu_act act, const float *dout, const float *x, float *dx, int64_t rows,
		    float *const *vec);
/* One block's mean and sum of squared differences from it: sums[0..channels), sums[channels..2 channels). */
void gp_bn_sum_values(const struct gp_bn *s, const float *x, int64_t rows, float *sums);
/* One block's sums of g and of g (x - mean). */
void gp_bn_sum_gradients(const struct gp_bn *s, enum cpu_act act, const float *dout, const float *x, int64_t rows,
			 float *const *vec, float *sums);

/* From all blocks' sums: mean and population variance, `channels` doubles each. */
void gp_bn_total_values(const struct gp_bn *s, const float *sums, double *mean, double *var);
/*
 * Adds `rows` rows of that mean and population variance to *merged: rows so far, then `channels` doubles each of their
 * mean and sum of squared differences from it. Chan, Golub and LeVeque's merge of two groups.
 */
struct gp_bn_merged {
	int64_t rows;
	double *mean, *squares;
};
void gp_bn_merge(int64_t channels, struct gp_bn_merged *merged, int64_t rows, const double *mean, const double *var);
/* From all blocks' sums: their totals. */
void gp_bn_total_gradients(const struct gp_bn *s, const float *sums, double *sum, double *dot);

#endif
