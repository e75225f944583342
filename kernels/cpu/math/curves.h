/* SPDX-License-Identifier: Apache-2.0
 *
 * GELU (Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016), the form of
 * it that has a tanh, and tanh: values and gradients of arrays, vectorised, the
 * same bits with every instruction set. No plans, no threads. Own polynomials;
 * test_curves.c compares them with the C library in double precision and has
 * the bounds. Where the approximated GELU is nearly 0, its relative error grows
 * with the exponent, as that of other implementations does from much earlier on.
 *
 * A NaN gives a NaN; of infinities there are the limits, but of GELU's value at
 * minus infinity, a NaN as PyTorch has it.
 *
 * Only for kernels/cpu. Threads: any; arrays are the caller's. Test: tests/unit/test_curves.c
 */
#ifndef GP_CPU_CURVES_H
#define GP_CPU_CURVES_H

#include <stdint.h>

enum gp_curve {
	GP_CURVE_GELU,      /* x Phi(x) */
	GP_CURVE_GELU_TANH, /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
	GP_CURVE_TANH,
};

/* out = curve(x); out may be x. The other gives the slopes there besides, which cost little where the value is made. */
void gp_curve_values(enum gp_curve curve, float *out, const float *x, int64_t n);
void gp_curve_values_and_slopes(enum gp_curve curve, float *out, float *slope, const float *x, int64_t n);
/* dx = dout slope; dx may be dout. */
void gp_curve_gradient(float *dx, const float *dout, const float *slope, int64_t n);
/* The same of tanh, whose slope is 1 - out^2. */
void gp_curve_tanh_gradient(float *dx, const float *dout, const float *out, int64_t n);

#endif
