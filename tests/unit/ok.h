/* SPDX-License-Identifier: Apache-2.0
 *
 * The error of a test program, calls that have to be well, and how far two
 * tensors are apart. Not a test by itself.
 */
#ifndef GP_TEST_OK_H
#define GP_TEST_OK_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/status.h"

static struct gp_err err;

/* Expects success of a call that fills in `err`. */
#define OK(call)                                                                                                       \
	do {                                                                                                           \
		if ((call) != GP_OK)                                                                                   \
			fail_msg("%s", err.text);                                                                      \
	} while (0)

/* L2 norm of the difference over that of `want`; where `want` is all zeros, the norm of `got`. */
static inline double relative_l2(const float *got, const float *want, uint64_t n)
{
	double diff = 0.0, norm = 0.0;
	for (uint64_t i = 0; i < n; i++) {
		const double d = (double)got[i] - (double)want[i];
		diff += d * d;
		norm += (double)want[i] * (double)want[i];
	}
	return norm > 0.0 ? sqrt(diff / norm) : sqrt(diff);
}

#endif
