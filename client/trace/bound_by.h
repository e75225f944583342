/* SPDX-License-Identifier: Apache-2.0
 *
 * What bounded a step: its time, split by what the critical path spent it on (critical_path.h). Sums, names, and how people and
 * programs read them.
 *
 * Threads: any; pure functions. Test: tests/unit/test_critical_path.c
 */
#ifndef GP_BOUND_BY_H
#define GP_BOUND_BY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum gp_bound {
	GP_BOUND_UP_WIRE,
	GP_BOUND_DOWN_WIRE,
	GP_BOUND_HEAD, /* with all that this side does beside the tail and codecs: batches, updates, checkpoints */
	GP_BOUND_BODY, /* with its update */
	GP_BOUND_TAIL,
	GP_BOUND_CODEC,   /* of both ends */
	GP_BOUND_LATENCY, /* of the link: how long bytes travel that waited for no other bytes */
	GP_BOUND_OTHERS,  /* waiting for other sessions on the server */
	GP_BOUND_COUNT
};

struct gp_bound_by {
	uint64_t ns[GP_BOUND_COUNT];
	uint32_t steps; /* that it is the sum of; 0: none was measured */
};

const char *gp_bound_name(enum gp_bound b); /* "up_wire" */
void gp_bound_by_add(struct gp_bound_by *sum, const struct gp_bound_by *b);
uint64_t gp_bound_by_total_ns(const struct gp_bound_by *b);
enum gp_bound gp_bound_by_largest(const struct gp_bound_by *b);
/* {"up_wire":0.012,...}: seconds per step, a new reference; null where none was measured. Not `linked`: what belongs to a link is
 * null. */
json_t *gp_bound_by_json(const struct gp_bound_by *b, bool linked);
/* "up_wire 62 %, body 20 %, ...": the largest first, without those below 1 %. Returns text; "" where none was measured. */
#define GP_BOUND_BY_TEXT 192
const char *gp_bound_by_text(const struct gp_bound_by *b, char text[GP_BOUND_BY_TEXT]);

#endif
