/* SPDX-License-Identifier: Apache-2.0
 *
 * Where pieces of memory lie that are in use for a while each, so that those
 * which are never in use together share room: the scratch memory of a plan, on
 * whatever device. Who needs a piece, and when, is for the plan to say.
 *
 * Largest first, each as low as it goes beside those that are placed. Not the
 * least room there could be, which nobody finds in reasonable time; on a
 * network's chain of layers it mostly is.
 *
 * Threads: any. Test: tests/unit/test_placement.c
 */
#ifndef GP_PLACEMENT_H
#define GP_PLACEMENT_H

#include "common/base/status.h"

struct gp_piece {
	uint64_t bytes;
	int first, last; /* moments from and to which it is in use, both included */
	uint64_t offset; /* out */
};

/* *total: the end of the last one. Equal pieces give equal offsets, always. Sums of bytes stay below 2^64. */
enum gp_status gp_place_pieces(struct gp_piece *piece, int count, uint64_t *total, struct gp_err *err);

#endif
