/* SPDX-License-Identifier: Apache-2.0
 *
 * Symbols of a group that are listed beside the words. For the AVX2 and AVX-512
 * loops of rans_loops.h.
 *
 * Threads: any; only memory that the caller hands over is touched. Test: tests/unit/test_codec_rans_loops.c
 */
#ifndef GP_RANS_LISTED_H
#define GP_RANS_LISTED_H

#include "kernels/loops/rans_loops.h"

/* Puts symbols[i] of every set bit i in front of what is listed. False: there is no room for all. */
static inline bool gp_rans_list_symbols(const uint8_t *symbols, uint64_t lanes, struct gp_rans_sink *sink)
{
	if (sink->listed - sink->listed_begin < __builtin_popcountll(lanes))
		return false;
	while (lanes) {
		const int top = 63 - __builtin_clzll(lanes);
		*--sink->listed = symbols[top];
		lanes &= ~(UINT64_C(1) << top);
	}
	return true;
}

#endif
