/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer norm of single rows, vectorised: the same bits with every instruction
 * set, as sums are taken in a fixed number of lanes. No plans, no threads.
 * cpu_layer_norm.c says what is computed and when.
 *
 * Glossary: normal = a row with its mean taken off, divided by its deviation.
 *
 * Only for kernels/cpu. Threads: any; rows are the caller's. Test: tests/unit/test_layer_norm.c
 */
#ifndef GP_CPU_NORM_ROWS_H
#define GP_CPU_NORM_ROWS_H

#include <stdint.h>

/* normal = ((v - mean) - rest) scale: what rounding left of the mean is taken off apart. */
struct gp_norm_row {
	float mean, rest, scale;
};

/* How n > 0 values are normalized, by their population variance. */
struct gp_norm_row gp_norm_row_of(const float *v, int64_t n, float eps);
/* out = normal weight + bias; out may be v. The other keeps the normal besides, which may be v. */
void gp_norm_row_apply(const struct gp_norm_row *row, float *out, const float *v, const float *weight,
		       const float *bias, int64_t n);
void gp_norm_row_apply_and_keep(const struct gp_norm_row *row, float *out, float *normal, const float *v,
				const float *weight, const float *bias, int64_t n);

/* Means of dout weight, and of dout weight normal. */
struct gp_norm_slope {
	float mean, along;
};
struct gp_norm_slope gp_norm_row_slope(const float *dout, const float *normal, const float *weight, int64_t n);
/* grad_weight += dout normal, grad_bias += dout. */
void gp_norm_row_add_gradients(float *grad_weight, float *grad_bias, const float *dout, const float *normal, int64_t n);
/* d = (dout weight - slope.mean - normal slope.along) scale; d may be dout. */
void gp_norm_row_gradient(const struct gp_norm_slope *slope, float scale, float *d, const float *dout,
			  const float *normal, const float *weight, int64_t n);

#endif
