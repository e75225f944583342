/* SPDX-License-Identifier: Apache-2.0
 *
 * What convolutions do to their sums where a batch norm and its activation are folded into them: a bias is added, with which
 * sums begin where they are one chain, and the result is limited to a range. The norm's scale is in the weights already, but
 * for Winograd's filters, of which there is no copy: there sums are multiplied with it. Only for kernels/cpu.
 *
 * Threads: any; constants. Test: tests/unit/test_fold.c
 */
#ifndef GP_CPU_FINISH_H
#define GP_CPU_FINISH_H

#include <stdint.h>

/* scale, bias: of every channel that is written, with zeros behind them to whole cache lines. low: at most 0, high: above 0;
 * both may be infinite. A sum that is not a number stays so. */
struct gp_finish {
	const float *scale, *bias;
	float low, high;
};

/* The same for the channels from `channel` on. */
static inline struct gp_finish gp_finish_from(const struct gp_finish *f, int64_t channel)
{
	return (struct gp_finish){f->scale + channel, f->bias + channel, f->low, f->high};
}

#endif
