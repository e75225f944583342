/* SPDX-License-Identifier: Apache-2.0
 *
 * When bytes arrive at the far end of the emulated link: they leave one after
 * the other at the link's rate (a token bucket of GP_LINK_BURST_NS), travel for
 * the delay and some of the jitter, and keep their order. Computed when the bytes
 * come in; no clock and no timer here, so late timers do not make a link slower.
 *
 * Threads: the loop's thread. Test: tests/unit/test_link_pace.c
 */
#ifndef GP_LINK_PACE_H
#define GP_LINK_PACE_H

#include <stddef.h>
#include <stdint.h>

#define GP_LINK_BURST_NS 2000000u /* so much of the rate may be saved up while nothing is sent */

/* One direction of a link, as the user wants it. */
struct gp_link_shape {
	double rate_bps; /* 0 = as fast as it goes */
	double delay_s;
	double jitter_s; /* 0 to so much is added to the delay, drawn anew for every piece */
	double queue_s;  /* so much of the rate waits at its beginning before the sender is held back; 16 KiB at least */
};

struct gp_link_pace {
	struct gp_link_shape shape;
	uint64_t seed, stream; /* of the jitter */
	uint64_t free_ns;      /* the last byte has left by then */
	uint64_t due_ns;       /* and arrives then */
	uint64_t pieces;
};

void gp_link_pace_init(struct gp_link_pace *p, const struct gp_link_shape *shape, uint64_t seed, uint64_t stream);
/* Bytes that are worth a time of their own: about 1 ms of the rate. */
size_t gp_link_pace_piece_bytes(const struct gp_link_shape *shape);
/* When `bytes` that came in at now_ns arrive. */
uint64_t gp_link_pace_due(struct gp_link_pace *p, uint64_t now_ns, size_t bytes);
/* Bytes that wait for their turn before the sender is held back (queue_s of the rate), and those on the way. */
size_t gp_link_pace_queue_bytes(const struct gp_link_shape *shape);

#endif
