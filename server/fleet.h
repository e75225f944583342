/* SPDX-License-Identifier: Apache-2.0
 *
 * What the other servers of a shared --state-dir say that they have to do, in their beats (server_beat.h). One counts as long
 * as its beat has changed within half of its lease, by a clock of this server's own: whoever has just begun is there from
 * its second beat on, and one that was killed is soon gone from here, whoever buries it.
 *
 * Where there are more than GP_FLEET_SEEN others, those are looked at whose ids follow this server's own. Ids are drawn at
 * random, so that this is a sample, and it stays the same, as it must where a change from one look to the next is what counts.
 *
 * Not here: whose runs may be taken (lease_keeper.h), and what follows from the figures (balance.h).
 *
 * Threads: gp_fleet_look one at a time; it touches the disk. gp_fleet_view: any; it neither does nor waits for it.
 * Test: tests/unit/test_fleet.c
 */
#ifndef GP_FLEET_H
#define GP_FLEET_H

#include "server/lease_keeper.h"

#define GP_FLEET_SEEN 15 /* others, at most: tests/bench/fleet_paper.py has what it costs the folder */

struct gp_fleet_server {
	char owner[GP_OWNER_TEXT];
	struct gp_beat_load load; /* known */
};

struct gp_fleet_view {
	struct gp_fleet_server other[GP_FLEET_SEEN];
	int count;
	int listed;     /* other servers that have a folder, seen or not, alive or not */
	double lease_s; /* the longest of all servers': beats come every fifth of it */
};

struct gp_fleet;

/* `dir` is the caller's; of the settings the clock counts, and the lease. */
enum gp_status gp_fleet_new(const char *dir, const struct gp_keeper_settings *set, struct gp_fleet **out,
			    struct gp_err *err);
void gp_fleet_free(struct gp_fleet *f); /* NULL is fine */
/* Looks where it is time, as often as beats come. `own`: this server. */
void gp_fleet_look(struct gp_fleet *f, const char *own);
/* Those that live, as they were seen last. */
void gp_fleet_view(struct gp_fleet *f, struct gp_fleet_view *out);

#endif
