/* SPDX-License-Identifier: Apache-2.0
 *
 * Means over windows of an image, and back: every element gets its window's
 * mean. Not the network's pooling (cpu_pool.c): windows at the edge are smaller
 * instead of padded. Same bits with every instruction set: elements are added
 * in memory order.
 *
 * Threads: any; the functions touch only memory that the caller hands them. Test:
 * tests/unit/test_codec_downsample.c
 */
#ifndef GP_DOWNSAMPLE_LOOPS_H
#define GP_DOWNSAMPLE_LOOPS_H

#include <stdint.h>

/* (n,h,w,c) in windows of fh * fw: (n, ceil(h / fh), ceil(w / fw), c). */
struct gp_windows {
	int64_t n, h, w, c, fh, fw;
};

static inline int64_t gp_windows_high(const struct gp_windows *p)
{
	return (p->h + p->fh - 1) / p->fh;
}

static inline int64_t gp_windows_wide(const struct gp_windows *p)
{
	return (p->w + p->fw - 1) / p->fw;
}

void gp_windows_mean(const struct gp_windows *p, const float *x, float *y);
void gp_windows_spread(const struct gp_windows *p, const float *y, float *x);

#endif
