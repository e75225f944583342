/* SPDX-License-Identifier: Apache-2.0
 *
 * Eigenvectors of a symmetric matrix in double precision: to a tridiagonal matrix
 * by Householder's reflections, then QL with implicit shifts (Golub and Van Loan,
 * Matrix Computations, sections 8.3.1 and 8.3.3). On one thread: the same on every
 * run. For some thousand rows at most; 768 take seconds.
 *
 * Threads: any; pure functions. Test: tests/unit/test_eigen.c
 */
#ifndef GP_EIGEN_H
#define GP_EIGEN_H

#include <stdint.h>

#include "common/base/status.h"

/*
 * a (n,n), whose lower triangle counts, becomes its eigenvectors, one a row, by falling eigenvalue, which `value` (n) gets.
 * The largest element of each vector is positive. GP_INVALID: an element is not finite.
 */
enum gp_status gp_eigen_symmetric(double *a, double *value, int64_t n, struct gp_err *err);

#endif
