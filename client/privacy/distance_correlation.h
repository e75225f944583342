/* SPDX-License-Identifier: Apache-2.0
 *
 * Distance correlation (Szekely, Rizzo, Bakirov, "Measuring and testing
 * dependence by correlation of distances", Annals of Statistics 35, 2007):
 * how far two sets of vectors, measured on the same samples, depend on each
 * other. It is 0 where they are independent and 1 where one is the other, turned,
 * moved or scaled; unlike Pearson's coefficient it sees any kind of dependence. NoPeek
 * (Vepakomma et al., 2020) uses it for what activations tell about inputs.
 *
 * Two estimates are made from n samples:
 *   plain      the paper's: distances centred by their row, column and grand means (section 2.2). It is
 *              biased: of independent vectors it is far above 0 where there are few samples of many
 *              dimensions, and near 1 where dimensions are more than samples
 *   corrected  the bias-corrected one: U-centred distances (Szekely, Rizzo, "Partial distance correlation with
 *              methods for dissimilarities", Annals of Statistics 42, 2014, sections 3 and 4). Its square is
 *              estimated, which scatters about 0 for independent vectors: below 0 it is reported as 0
 *
 * Cost: n^2/2 distances of as many dimensions as a sample has, and n^2 for each pair of sets.
 *
 * Threads: any; no state. Test: tests/unit/test_distance_correlation.c
 */
#ifndef GP_DISTANCE_CORRELATION_H
#define GP_DISTANCE_CORRELATION_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

#define GP_DISTANCE_LEAST   4   /* samples that the corrected estimate needs */
#define GP_DISTANCE_SAMPLES 256 /* that its callers take at most */

struct gp_distance_correlation {
	double corrected; /* in [0,1]; NaN where values are not finite */
	double plain;     /* in [0,1] */
	double squared;   /* what `corrected` is the root of, where it is above 0 */
};

/* How many of `samples` samples of `each` numbers are taken: GP_DISTANCE_SAMPLES at most, and so few that they take
 * 256 MiB at most, but GP_DISTANCE_LEAST in any case. */
int gp_distance_samples(int64_t samples, uint64_t each);
/*
 * Adds the squared Euclidean distances of n samples of `each` numbers to squared[n * n]: after several such calls they are
 * those of samples that have all of these numbers.
 */
void gp_distance_add(const float *x, int n, size_t each, double *squared);
/* Squared distances become distances. */
void gp_distance_roots(double *squared, int n);
/* Takes the distances a[n * n] and b[n * n]; n >= GP_DISTANCE_LEAST. 0 where all distances of one are 0. */
enum gp_status gp_distance_correlate(const double *a, const double *b, int n, struct gp_distance_correlation *out,
				     struct gp_err *err);
/* All of it: the correlation of x, of `x_each` numbers for each of n samples, and y. */
enum gp_status gp_distance_correlation(const float *x, size_t x_each, const float *y, size_t y_each, int n,
				       struct gp_distance_correlation *out, struct gp_err *err);

#endif
