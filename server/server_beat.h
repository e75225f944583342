/* SPDX-License-Identifier: Apache-2.0
 *
 * A server's sign of life in a --state-dir that several servers may share:
 *
 *   DIR/servers/3f9a12cd01b2c3d4/beat    one page of text with a counter, written over and over in its place
 *                               /wants   runs that others would like to have from this server, and their nonces
 *                               /new-... a run that is being made
 *
 * The name of the folder is the owner in the leases of runs (run_lease.h); it is drawn anew whenever a server starts, and when
 * it has lost its leases. To find out whether a server lives, others watch whether the bytes of its beat change, for as long as
 * the beat itself says, by their own clocks: no two clocks are compared. A server without a folder is dead, for everybody and
 * for good.
 *
 * A process of the same machine that has ended is found to be dead at once.
 *
 * The page also says what the server has to do, so that the others know which of them has more than its share (fleet.h,
 * balance.h).
 *
 * Threads: any, one at a time for a gp_beat. Tests: tests/unit/test_lease_keeper.c, tests/fuzz/fuzz_server_beat.c
 */
#ifndef GP_SERVER_BEAT_H
#define GP_SERVER_BEAT_H

#include "common/base/text.h"
#include "common/net/token.h"
#include "server/run_lease.h"

#define GP_LEASE_S_MAX 600 /* most of --lease: also what a beat that cannot be read counts as */
#define GP_BEAT_BYTES  512
#define GP_BEAT_NAME   GP_SHOWN

/* What a server has to do. */
struct gp_beat_load {
	bool known;        /* else its version does not tell, or it has not yet */
	uint32_t sessions; /* with a client that is connected */
	uint32_t movable;  /* of these: their client would go on at another server, see rebalance.h */
	uint32_t room;     /* more sessions that it would take now */
	bool drains;       /* it was told to stop */
};

#define GP_BEAT_SESSIONS_MAX 1000000 /* more is no number of sessions */

/* This server's own. */
struct gp_beat {
	const char *dir; /* --state-dir; the caller's */
	char owner[GP_OWNER_TEXT];
	char name[GP_BEAT_NAME]; /* for people: where it listens */
	uint64_t lease_ms, counter;
	struct gp_beat_load load;
};

/* What another one's says. */
struct gp_beat_page {
	char bytes[GP_BEAT_BYTES];
};

struct gp_beat_facts {
	bool valid; /* else nothing can be read in it */
	uint64_t lease_ms;
	char name[GP_BEAT_NAME];
	struct gp_beat_load load;
	bool ended; /* its process was one of this machine and is not there any more */
};

/* Draws an owner and makes its folder. */
enum gp_status gp_beat_begin(struct gp_beat *b, const char *dir, const char *name, uint64_t lease_ms,
			     struct gp_err *err);
/* GP_CANCELED: the folder is gone, which means that others take this server for dead. */
enum gp_status gp_beat_renew(struct gp_beat *b, struct gp_err *err);
/* The owner has no run any more. */
void gp_beat_end(const struct gp_beat *b);
/* Where gp_run_lease_make may prepare a run. */
enum gp_status gp_beat_place(const struct gp_beat *b, const uint8_t run[GP_RUN_ID_BYTES], char out[PATH_MAX],
			     struct gp_err *err);

/* GP_CANCELED: there is none, the owner is dead. */
enum gp_status gp_beat_read(const char *dir, const char *owner, struct gp_beat_page *out, struct gp_err *err);
struct gp_beat_facts gp_beat_facts(const struct gp_beat_page *page);
/* Its owner is dead, for everybody from here on. */
enum gp_status gp_beat_bury(const char *dir, const char *owner, struct gp_err *err);
/* Calls `each` for every server that has a folder, and takes away what is left of those that were buried. */
enum gp_status gp_beat_each(const char *dir, void (*each)(const char *owner, void *arg), void *arg, struct gp_err *err);

/* --- asking for a run ---------------------------------------------------------------------------------------------- */

struct gp_want {
	uint8_t run[GP_RUN_ID_BYTES];
	uint64_t
		generation; /* of the lease that is asked for, so that the wish is not taken for one about a later lease */
	uint64_t nonce;     /* another one each time */
};

#define GP_WANTS_MAX                                                                                                   \
	48 /* in the file; of two wishes that fall on one place the later one counts, and who waits asks again */

#define GP_WANT_BYTES 80

/* Writes the wish into the owner's folder. */
enum gp_status gp_beat_want(const char *dir, const char *owner, const struct gp_want *want, struct gp_err *err);
/* What others want of this server, as far as it can be read. Returns how many. */
int gp_beat_wants(const struct gp_beat *b, struct gp_want out[GP_WANTS_MAX]);
/* One place of that file. */
bool gp_beat_parse_want(const char slot[GP_WANT_BYTES], struct gp_want *out);

#endif
