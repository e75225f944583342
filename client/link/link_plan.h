/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes wrong on an emulated link, and where: positions in the byte streams
 * of a connection, found from the user's settings, the seed and the number of
 * the connection alone, so that a run can be had again. Who makes it happen:
 * link_relay.c.
 *
 * Threads: any (pure functions). Test: tests/unit/test_link_plan.c
 */
#ifndef GP_LINK_PLAN_H
#define GP_LINK_PLAN_H

#include <stdbool.h>
#include <stdint.h>

enum gp_link_direction { GP_LINK_UP, GP_LINK_DOWN, GP_LINK_BOTH }; /* up: from who connected */

enum gp_link_drop_mode {
	GP_LINK_RESET, /* both ends see a reset */
	GP_LINK_FIN,   /* both ends see an orderly end */
	GP_LINK_HALF,  /* nobody sees anything: bytes are swallowed, ends are not passed on */
};

#define GP_LINK_NEVER INT64_C(-1)

/* Positions are bytes of one direction; GP_LINK_NEVER switches a fault off. */
struct gp_link_faults {
	enum gp_link_direction direction; /* with BOTH: whichever gets there first; a corrupt byte in each */
	int64_t stall_after, drop_after, corrupt_byte;
	double stall_s;     /* 0 = for ever */
	int64_t drop_every; /* mean distance of a drop from the start, drawn for every connection; 0 = off */
	enum gp_link_drop_mode drop_mode;
	bool trickle;
	int64_t times; /* only so many connections are disturbed, the first ones; 0 = all */
	uint64_t seed;
};

/* What happens to one connection, by direction (GP_LINK_UP, GP_LINK_DOWN); UINT64_MAX: never. */
struct gp_link_plan {
	uint64_t stall_at[2]; /* so many bytes pass, then the link is silent */
	uint64_t drop_at[2];
	uint64_t corrupt_at[2]; /* the byte with this number, from 0 */
	bool trickle[2];        /* one byte per write */
};

/* `connection` counts from 0. */
void gp_link_plan_draw(const struct gp_link_faults *f, uint64_t connection, struct gp_link_plan *out);

#endif
