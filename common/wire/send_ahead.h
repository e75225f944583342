/* SPDX-License-Identifier: Apache-2.0
 *
 * How many bytes a sender hands to the kernel ahead of the link.
 *
 * What the kernel holds cannot be overtaken: an urgent tensor waits behind it. On a slow link that is what delays a chunk
 * most, twice in its life, because ACT_DOWN and GRAD_UP each wait behind bulk of another chunk: 288 KiB are 23 ms at 100
 * Mbit/s. On a fast link it is a fraction of a millisecond, and a kernel with too little runs dry before the loop comes
 * round. So it is a time: what the link takes in AHEAD_S at the rate that the kernel has seen acknowledged.
 *
 * Threads: the loop's. Test: tests/unit/test_send_ahead.c
 */
#ifndef GP_SEND_AHEAD_H
#define GP_SEND_AHEAD_H

#include "common/net/tcp_info.h"

#define GP_SEND_AHEAD_MIN (24u << 10)
#define GP_SEND_AHEAD_MAX (128u << 10)
#define GP_SEND_AHEAD_WRITES 2 /* segments that wait for the kernel, at most */

struct gp_send_ahead {
	uint32_t bytes;                    /* what to hand over */
	uint64_t looked_ns, acked, busy_us; /* of the last look that told something */
};

/* For a link whose rate is known; 0: it is not, or the link is as fast as it goes. Within MIN..MAX. */
uint32_t gp_send_ahead_at(double bytes_per_s);
/* How many segments may wait for the kernel beside what it holds: one, or two where they are no more than twice that. */
int gp_send_ahead_writes(uint32_t ahead, uint32_t segment_bytes);
/* Until something is known: MAX. */
void gp_send_ahead_init(struct gp_send_ahead *a);
/* Whether it is time for a look: reading the kernel's figures costs a system call. */
bool gp_send_ahead_due(const struct gp_send_ahead *a, uint64_t now_ns);
/* True when a->bytes has changed. Figures without enough of sending in them since the last look change nothing. */
bool gp_send_ahead_look(struct gp_send_ahead *a, uint64_t now_ns, const struct gp_tcp_figures *f);

#endif
