/* SPDX-License-Identifier: Apache-2.0
 *
 * The link of a prediction, as `gpclient plan --link` says it:
 *
 *   RATE[,DELAY[,DOWN]]    100mbit,10ms: each way, and 10 ms each way; a third one is the rate from server to client
 *   rtt=TIME               in place of DELAY: there and back
 *   up=RATE, down=RATE     rates by their names
 *   unlimited              a rate: as fast as it goes
 *   queue-up=BYTES         wait on a way that is full, in a router or a relay, where nothing overtakes them;
 *                          queue-down=BYTES
 *
 * Rates are those of payload, as `gpclient link` measures and simulates them.
 *
 * Threads: any; pure. Test: tests/unit/test_plan_measure.c
 */
#ifndef GP_PLAN_LINK_H
#define GP_PLAN_LINK_H

#include "client/plan/plan_schedule.h"

struct gp_plan_link {
	struct gp_plan_way up, down;
	double byte_s; /* processor time of sending or receiving a byte, taken for the same at both ends; 0: not known */
};

struct gp_link_figures;

/*
 * A link as it was measured (link_figures.h). What waits on a full way comes from how much longer round trips were
 * then, less what gpsplit itself keeps at the sender. What moving a byte takes is the mean of sending and receiving
 * here. Where both ends are on this machine (`same_machine`), each gets half of what its processors took in all: there
 * the kernel moves bytes in interrupts, too, which no thread's time shows. GP_PEER: the measurement was over before the
 * rates were known.
 */
enum gp_status gp_plan_link_of(const struct gp_link_figures *f, bool same_machine, struct gp_plan_link *out,
			       struct gp_err *err);

/* GP_USAGE says what of the text cannot be. */
enum gp_status gp_plan_link_parse(const char *text, struct gp_plan_link *out, struct gp_err *err);
/* "100 Mbit/s, round trip 20 ms" for people; returns text. */
#define GP_PLAN_LINK_TEXT 128
const char *gp_plan_link_text(const struct gp_plan_link *l, char text[GP_PLAN_LINK_TEXT]);

#endif
