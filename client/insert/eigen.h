/* SPDX-License-Identifier: Apache-2.0
 *
 * Eigenvectors of a symmetric matrix in double precision: Householder reflections
 * make it tridiagonal, then QL with implicit shifts finds them (Golub and Van Loan,
 * Matrix Computations, sections 8.3.1 and 8.3.3). On one thread, so that every run
 * gives the same. For a few thousand rows at most; 768 rows take seconds.
 *
 * Threads: any; pure functions. Test: tests/unit/test_eigen.c
 */
#ifndef GP_EIGEN_H
#define GP_EIGEN_H

#include <stdint.h>

#include "common/base/status.h"

/*
 * Reads the lower triangle of `a` (n,n), and writes the eigenvectors there, one in each row, in descending order of their
 * eigenvalues, which `value` (n) gets. The largest element of each vector is positive. GP_INVALID: an element is not finite.
 */
enum gp_status gp_eigen_symmetric(double *a, double *value, int64_t n, struct gp_err *err);

#endif
