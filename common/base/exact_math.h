/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions whose results are the same bits on every processor and with every C library: made of additions, products,
 * quotients and powers of two, which IEEE 754 rounds in one way, and compiled without fused products. What mathematics
 * libraries give differs in the last bit between processors, so that the levels of a codec fitted by them would, too.
 * Results are within 8 units in the last place of the true value; NaN gives NaN.
 *
 * Pure. Threads: any. Test: tests/unit/test_exact_math.c
 */
#ifndef GP_EXACT_MATH_H
#define GP_EXACT_MATH_H

double gp_exact_exp(double x);
/* |x| < 2^20. Slow: for tables. Decoders take it, because both ends of a delta remember what they gave. */
double gp_exact_exp2(double x);
/* Subnormal numbers included; -infinity of 0. */
double gp_exact_log2(double x);
/* x >= 0 and finite. */
double gp_exact_cbrt(double x);
/*
 * By the rational approximations of W. J. Cody, "Rational Chebyshev approximations for the error function",
 * Mathematics of Computation 23 (1969).
 */
double gp_exact_erf(double x);
double gp_exact_erfc(double x);

#endif
