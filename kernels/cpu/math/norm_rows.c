/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer norm of single rows. See norm_rows.h. Test: tests/unit/test_layer_norm.c
 */
#include "kernels/cpu/math/norm_rows.h"

#include <math.h>

#include "kernels/loops/simd.h"

/* Sums are taken in so many lanes, of which each has every LANES-th value: four vectors of the widest kind. */
enum { LANES = 64 };

/* Always in the same order. */
GP_INLINE float add_lanes(float *lane)
{
	for (int width = LANES / 2; width > 0; width /= 2)
#pragma omp simd
		for (int i = 0; i < width; i++)
			lane[i] += lane[i + width];
	return lane[0];
}

/* --- forward ----------------------------------------------------------------------------------------------------- */

GP_INLINE void sum_lanes(float *restrict lane, const float *restrict v, int64_t width)
{
#pragma omp simd
	for (int64_t i = 0; i < width; i++)
		lane[i] += v[i];
}

GP_INLINE void sum_body(float *out, const float *v, int64_t n)
{
	float lane[LANES] = {0};
	int64_t at = 0;
	for (; at + LANES <= n; at += LANES)
		sum_lanes(lane, v + at, LANES);
	sum_lanes(lane, v + at, n - at);
	*out = add_lanes(lane);
}
GP_CPU_CLONES(sum, (float *out, const float *v, int64_t n), (out, v, n))

GP_INLINE void differences_lanes(float *restrict first, float *restrict second, const float *restrict v, float mean,
				 int64_t width)
{
#pragma omp simd
	for (int64_t i = 0; i < width; i++) {
		const float d = v[i] - mean;
		first[i] += d;
		second[i] += d * d;
	}
}

/* Sums of the differences from `mean`, and of their squares. */
GP_INLINE void differences_body(float out[2], const float *v, float mean, int64_t n)
{
	float first[LANES] = {0}, second[LANES] = {0};
	int64_t at = 0;
	for (; at + LANES <= n; at += LANES)
		differences_lanes(first, second, v + at, mean, LANES);
	differences_lanes(first, second, v + at, mean, n - at);
	out[0] = add_lanes(first);
	out[1] = add_lanes(second);
}
GP_CPU_CLONES(differences, (float out[2], const float *v, float mean, int64_t n), (out, v, mean, n))

struct gp_norm_row gp_norm_row_of(const float *v, int64_t n, float eps)
{
	float total = 0.0f, difference[2] = {0};
	sum(&total, v, n);
	struct gp_norm_row row = {.mean = total / (float)n};
	differences(difference, v, row.mean, n);
	row.rest = difference[0] / (float)n;
	const double square = (double)row.rest * (double)row.rest;
	const double variance = (double)difference[1] / (double)n - square;
	row.scale = (float)(1.0 / sqrt((variance < 0.0 ? 0.0 : variance) + (double)eps));
	return row;
}

GP_INLINE void apply_body(const struct gp_norm_row *row, float *out, const float *v, const float *restrict weight,
			  const float *restrict bias, int64_t n)
{
	const float mean = row->mean, rest = row->rest, scale = row->scale;
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		out[i] = (((v[i] - mean) - rest) * scale) * weight[i] + bias[i];
}
GP_CPU_CLONES(apply,
	      (const struct gp_norm_row *row, float *out, const float *v, const float *weight, const float *bias,
	       int64_t n),
	      (row, out, v, weight, bias, n))

GP_INLINE void apply_and_keep_body(const struct gp_norm_row *row, float *restrict out, float *normal, const float *v,
				   const float *restrict weight, const float *restrict bias, int64_t n)
{
	const float mean = row->mean, rest = row->rest, scale = row->scale;
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		const float x = ((v[i] - mean) - rest) * scale;
		normal[i] = x;
		out[i] = x * weight[i] + bias[i];
	}
}
GP_CPU_CLONES(apply_and_keep,
	      (const struct gp_norm_row *row, float *out, float *normal, const float *v, const float *weight,
	       const float *bias, int64_t n),
	      (row, out, normal, v, weight, bias, n))

void gp_norm_row_apply(const struct gp_norm_row *row, float *out, const float *v, const float *weight,
		       const float *bias, int64_t n)
{
	apply(row, out, v, weight, bias, n);
}

void gp_norm_row_apply_and_keep(const struct gp_norm_row *row, float *out, float *normal, const float *v,
				const float *weight, const float *bias, int64_t n)
{
	apply_and_keep(row, out, normal, v, weight, bias, n);
}

/* --- backward ---------------------------------------------------------------------------------------------------- */

GP_INLINE void slope_lanes(float *restrict first, float *restrict second, const float *restrict dout,
			   const float *restrict normal, const float *restrict weight, int64_t width)
{
#pragma omp simd
	for (int64_t i = 0; i < width; i++) {
		const float g = dout[i] * weight[i];
		first[i] += g;
		second[i] += g * normal[i];
	}
}

GP_INLINE void slope_body(float out[2], const float *dout, const float *normal, const float *weight, int64_t n)
{
	float first[LANES] = {0}, second[LANES] = {0};
	int64_t at = 0;
	for (; at + LANES <= n; at += LANES)
		slope_lanes(first, second, dout + at, normal + at, weight + at, LANES);
	slope_lanes(first, second, dout + at, normal + at, weight + at, n - at);
	out[0] = add_lanes(first);
	out[1] = add_lanes(second);
}
GP_CPU_CLONES(slope, (float out[2], const float *dout, const float *normal, const float *weight, int64_t n),
	      (out, dout, normal, weight, n))

struct gp_norm_slope gp_norm_row_slope(const float *dout, const float *normal, const float *weight, int64_t n)
{
	float sums[2] = {0};
	slope(sums, dout, normal, weight, n);
	return (struct gp_norm_slope){.mean = sums[0] / (float)n, .along = sums[1] / (float)n};
}

GP_INLINE void add_gradients_body(float *restrict grad_weight, float *restrict grad_bias, const float *restrict dout,
				  const float *restrict normal, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		grad_weight[i] += dout[i] * normal[i];
		grad_bias[i] += dout[i];
	}
}
GP_CPU_CLONES(add_gradients, (float *grad_weight, float *grad_bias, const float *dout, const float *normal, int64_t n),
	      (grad_weight, grad_bias, dout, normal, n))

void gp_norm_row_add_gradients(float *grad_weight, float *grad_bias, const float *dout, const float *normal, int64_t n)
{
	add_gradients(grad_weight, grad_bias, dout, normal, n);
}

GP_INLINE void gradient_body(const struct gp_norm_slope *s, float scale, float *d, const float *dout,
			     const float *restrict normal, const float *restrict weight, int64_t n)
{
	const float mean = s->mean, along = s->along;
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		d[i] = ((dout[i] * weight[i] - mean) - normal[i] * along) * scale;
}
GP_CPU_CLONES(gradient,
	      (const struct gp_norm_slope *s, float scale, float *d, const float *dout, const float *normal,
	       const float *weight, int64_t n),
	      (s, scale, d, dout, normal, weight, n))

void gp_norm_row_gradient(const struct gp_norm_slope *s, float scale, float *d, const float *dout, const float *normal,
			  const float *weight, int64_t n)
{
	gradient(s, scale, d, dout, normal, weight, n);
}
