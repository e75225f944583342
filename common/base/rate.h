/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast counters have grown lately: over a window of the last seconds, from
 * samples that their owner notes when it comes by. A counter that went down
 * counts as one that stood still.
 *
 * Threads: one at a time. Test: tests/unit/test_rate.c
 */
#ifndef GP_RATE_H
#define GP_RATE_H

#include <stdint.h>

#define GP_RATE_SERIES  3
#define GP_RATE_SAMPLES 32

struct gp_rate_sample {
	uint64_t ns, value[GP_RATE_SERIES];
};

struct gp_rate {
	uint64_t window_ns;
	struct gp_rate_sample sample[GP_RATE_SAMPLES]; /* a ring */
	unsigned newest, count;
};

void gp_rate_init(struct gp_rate *r, double window_s);
/* `now_ns` is gp_now_ns. Notes that follow each other closer than the window has samples cost nothing but the newest place. */
void gp_rate_note(struct gp_rate *r, uint64_t now_ns, const uint64_t value[GP_RATE_SERIES]);
/* Growth of one series per second, up to the newest note; over a longer time where notes are rarer than the window. NaN
 * before there are two. */
double gp_rate_per_s(const struct gp_rate *r, int series);

#endif
