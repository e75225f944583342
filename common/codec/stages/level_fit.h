/* SPDX-License-Identifier: Apache-2.0
 *
 * Fits the levels of a quantizer to how normalized values are distributed: a
 * mixture of normal distributions truncated to [-1, 1]. Pure mathematics in
 * double precision: knows neither tensors nor payloads (alq.c does).
 *
 * Rounded at random to the levels l <= x <= u around it, x has the variance
 * (x - l)(u - x); both fits lower its expectation. Source: Faghri et al.,
 * "Adaptive gradient quantization for data-parallel SGD", NeurIPS 2020, sections
 * 3.1 (ALQ) and 3.3 (AMQ).
 *
 * Threads: any (pure functions). Test: tests/unit/test_level_fit.c
 */
#ifndef GP_LEVEL_FIT_H
#define GP_LEVEL_FIT_H

#include <stdint.h>

#include "common/base/stop.h"

#define GP_LEVEL_PARTS     8
#define GP_LEVEL_SIGMA_MIN 1e-6

struct gp_level_mix {
	int count; /* 1..GP_LEVEL_PARTS */
	struct gp_level_part {
		double mean, sigma; /* in [-1, 1]; >= GP_LEVEL_SIGMA_MIN */
		double weight;      /* all together 1 */
	} part[GP_LEVEL_PARTS];
};

/* Expected variance of rounding to `count` ascending levels: the sum over neighbours of int (x - l)(u - x) f(x) dx. */
double gp_level_variance(const struct gp_level_mix *m, const double *level, int count);

/* ALQ: coordinate descent, each inner level put where the variance between its neighbours is least (equation 8), up to
 * 30 sweeps from quantiles, even spaces and powers of 1/2; the best of the three. 2^bits levels from -1 to 1, which ascend also
 * where `stop` (NULL: never) cut the search short. */
void gp_level_fit_alq(const struct gp_level_mix *m, int bits, const struct gp_stop *stop, double *level);

/* AMQ: the multiplier p of levels +-p^j, j = 0..2^(bits - 1) - 1, by 50 steps of gradient descent (appendix, equation G.3) from
 * several starts; the one whose positive levels vary least. `previous`: what it gave last time, one more start; or 0. `stop`: as
 * above. */
double gp_level_fit_amq(const struct gp_level_mix *m, int bits, double previous, const struct gp_stop *stop);

/* Nanoseconds that a fit of 2^bits levels may take, by the bounds of its loops and by what their steps take of mixtures
 * that are hard to fit. */
uint64_t gp_level_fit_alq_work(int bits);
uint64_t gp_level_fit_amq_work(int bits);

#endif
