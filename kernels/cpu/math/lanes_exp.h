/* SPDX-License-Identifier: Apache-2.0
 *
 * e^x of sixteen floats at once: a relative error below 1e-7 and, like all of
 * lanes.h, the same bits for every instruction set. x = n log 2 + r with |r|
 * at most log(2) / 2; e^r is a polynomial that Remez' algorithm has fitted to
 * it (its own relative error: 3.7e-9).
 *
 * Only for kernels/cpu/math.
 *
 * Threads: any; a pure function. Test: tests/unit/test_lanes.c
 */
#ifndef GP_CPU_LANES_EXP_H
#define GP_CPU_LANES_EXP_H

#include "kernels/cpu/math/lanes.h"

#define LANES_EXP_LOWEST  (-87.33654f) /* below it e^x is no normal float any more: 0 */
#define LANES_EXP_HIGHEST 88.0f        /* above it the result stays what it is there: 1.65e38 */

/* NaN stays NaN. */
GP_INLINE struct lanes lanes_exp(struct lanes x)
{
	const struct lanes whole = lanes_all(12582912.0f); /* 1.5 * 2^23: a sum with it has no bits behind the point */
	const struct lanes one = lanes_all(1.0f);
	x = lanes_smaller(lanes_all(LANES_EXP_HIGHEST), x);
	const struct lanes t = lanes_fma(x, lanes_all(1.442695022f), whole), n = lanes_subtract(t, whole);
	struct lanes r = lanes_fma(n, lanes_all(-6.931471825e-01f), x); /* log 2 in two parts */
	r = lanes_fma(n, lanes_all(1.904654212e-09f), r);
	struct lanes y = lanes_fma(lanes_all(1.381454058e-03f), r, lanes_all(8.368745446e-03f));
	y = lanes_fma(y, r, lanes_all(4.166838899e-02f));
	y = lanes_fma(y, r, lanes_all(1.666652113e-01f));
	y = lanes_fma(y, r, lanes_all(4.999999404e-01f));
	y = lanes_fma(lanes_fma(y, r, one), r, one);
	return lanes_unless_below(x, LANES_EXP_LOWEST, lanes_multiply(y, lanes_power(t)));
}

#endif
