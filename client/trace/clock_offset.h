/* SPDX-License-Identifier: Apache-2.0
 *
 * How far the server's clock is ahead of this side's, from heartbeats: this side sent a PING at t0 and had its PONG at t3, and
 * the server says (INTERVALS, PROTOCOL.md section 5.9) that the PING came at s by its own clock. Then s is what this side's
 * clock showed at some moment between t0 and t3: the offset is s - (t0 + t3) / 2, and wrong by at most (t3 - t0) / 2. Of the
 * newest samples the one that leaves least doubt is taken (as NTP does: RFC 5905, section 10); what a sample leaves grows with
 * its age, as two clocks may drift apart.
 *
 * Threads: one at a time. Test: tests/unit/test_clock_offset.c
 */
#ifndef GP_CLOCK_OFFSET_H
#define GP_CLOCK_OFFSET_H

#include <stdbool.h>
#include <stdint.h>

#define GP_CLOCK_SAMPLES   32
#define GP_CLOCK_DRIFT_PPM 100 /* of two quartz clocks, at worst */

struct gp_clock_sample {
	uint64_t at_ns;    /* t3, by this side's clock */
	int64_t offset_ns; /* the server's clock minus this side's */
	uint64_t round_trip_ns;
};

struct gp_clock_offset {
	struct gp_clock_sample sample[GP_CLOCK_SAMPLES]; /* a ring */
	unsigned count;                                  /* ever */
};

struct gp_clock_estimate {
	bool known;
	int64_t offset_ns;
	uint64_t uncertainty_ns;
};

/* Forgets all samples: there is a new link, and the server behind it may have another clock. */
void gp_clock_offset_reset(struct gp_clock_offset *c);
/* Numbers that cannot be are dropped: an answer before its question. Any server_ns is taken. */
void gp_clock_offset_add(struct gp_clock_offset *c, uint64_t sent_ns, uint64_t answered_ns, uint64_t server_ns);
struct gp_clock_estimate gp_clock_offset_at(const struct gp_clock_offset *c, uint64_t now_ns);
/* A time of the server's clock by this side's, at least 0. */
uint64_t gp_clock_here(const struct gp_clock_estimate *e, uint64_t server_ns);

#endif
