/* SPDX-License-Identifier: Apache-2.0
 *
 * Which servers of a shared --state-dir live: keeps this one's sign of life (server_beat.h) fresh, and watches those of
 * others that have runs which somebody wants here.
 *
 * Time, with L = --lease: the beat is renewed every L/5. A server whose last renewal began 3/4 L ago or earlier holds nothing
 * any more, for good. It finds this by its own clock, before it does anything with a run, whatever has kept it from renewing: a
 * disk that hangs, or SIGSTOP. Others take a server for dead when they have seen the same beat, by their own clocks, for the L
 * that the beat names. The quarter of L between is for clocks of different rates and for writes that were begun. Safety does
 * not rest on that quarter alone: run_lease.h says what stops a late writer.
 *
 * After losing its leases the server draws another owner and goes on with new leases; the number of the *epoch* tells them
 * apart.
 *
 * Threads: gp_keeper_tick one at a time; it and gp_keeper_ask touch the disk, all others neither touch it nor wait for it.
 * Test: tests/unit/test_lease_keeper.c
 */
#ifndef GP_LEASE_KEEPER_H
#define GP_LEASE_KEEPER_H

#include "server/server_beat.h"

#define GP_KEEPER_WATCHED                                                                                              \
	64 /* servers at once; for one more, that one is forgotten which nobody has asked for longest */

struct gp_keeper_settings {
	double lease_s;
	const char *name;              /* for people: where this server listens */
	uint64_t (*now_ns)(void *arg); /* NULL: gp_boot_ns */
	void *arg;
};

struct gp_keeper;

/* Draws an owner, and begins to watch what servers there are. `dir` is the caller's. */
enum gp_status gp_keeper_new(const char *dir, const struct gp_keeper_settings *set, struct gp_keeper **out,
			     struct gp_err *err);
/* Every run was given back; NULL is fine. */
void gp_keeper_free(struct gp_keeper *k);

/* Renews what is due, looks at the others, and draws another owner where this one has lost its leases. */
void gp_keeper_tick(struct gp_keeper *k);
/* How long the next tick may wait, as a part of a lease. */
double gp_keeper_pause_s(const struct gp_keeper *k);

/* The number of the epoch in which runs can be taken now, and its owner; 0: there is none, the disk has failed. */
uint64_t gp_keeper_epoch(struct gp_keeper *k, char owner[GP_OWNER_TEXT]);
/* Whether what was taken in that epoch is held still. */
bool gp_keeper_holds(struct gp_keeper *k, uint64_t epoch);
/* How often this server has lost its leases. */
uint64_t gp_keeper_losses(struct gp_keeper *k);
/* Where a run may be made: gp_run_lease_make. */
enum gp_status gp_keeper_place(struct gp_keeper *k, const uint8_t run[GP_RUN_ID_BYTES], char out[PATH_MAX],
			       struct gp_err *err);
/* What this server has to do, for its beats from the next one on. */
void gp_keeper_set_load(struct gp_keeper *k, const struct gp_beat_load *load);
/* What others want of this server. Returns how many. */
int gp_keeper_wants(struct gp_keeper *k, struct gp_want out[GP_WANTS_MAX]);

/* GP_OK: the owner is dead, or this server itself in another epoch, so that its runs may be taken. GP_BUSY: it lives, or it
 * may; err says which. From here on it is watched. */
enum gp_status gp_keeper_ask(struct gp_keeper *k, const char *owner, struct gp_err *err);

#endif
