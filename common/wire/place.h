/* SPDX-License-Identifier: Apache-2.0
 *
 * Where an end is within the steps under way, as HELLO and WELCOME say it when a link has broken: the first chunk of each
 * tensor that has not come whole. PROTOCOL.md section 5.6, which says why no hash of what codecs remember is compared
 * then: between the ends lie the frames that have not come, and nothing was taken back.
 *
 * Threads: any; pure functions. Test: tests/unit/test_resume_places.c
 */
#ifndef GP_PLACE_H
#define GP_PLACE_H

#include "common/wire/control.h"
#include "common/graph/graph.h"

struct gp_place {
	uint64_t act[GP_GRAPH_MAX_PORTS], grad[GP_GRAPH_MAX_PORTS]; /* by tensor; chunks counted over all steps */
	bool squares;                                               /* of the client: GRAD_SQUARES has come */
};

/* Borrows `from`. */
void gp_place_write(const struct gp_place *from, int acts, int grads, Gpsplit__Place *out);
/* GP_PROTO where it has not so many numbers. */
enum gp_status gp_place_read(const Gpsplit__Place *m, int acts, int grads, struct gp_place *out, struct gp_err *err);

/* A frame of a tensor with this number is lost: it is due again, and so is what came behind it. */
static inline void gp_place_lose(uint64_t *due, uint64_t number)
{
	if (number < *due)
		*due = number;
}

#endif
