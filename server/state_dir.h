/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the server keeps checkpoints: --state-dir DIR, with a folder per run,
 * named by 16 bytes in hex, each as in common/store/checkpoint.h. What a run is called
 * here says who its client is, too (session.c): nobody else comes upon it.
 *
 * Bounded: all together by --state-max and GP_STATE_RUNS_MAX, those of one owner
 * (the name that the client has proved) by the owner's share, the same for all or as
 * --limits says (limits.h). A write that passes a
 * bound removes runs that no session uses, the owner's first, the one with the oldest
 * checkpoint before others; then those of nobody (their owner is not known), or of an
 * owner that has more than its share. What an owner within its share has is never
 * removed for another.
 *
 * Servers may share the folder, on one machine or many: each run is locked by a lease while a session has it
 * (run_lease.h), and a thread keeps this server's leases (lease_keeper.h), gives back those of runs that no session
 * uses any more, looks from time to time what the others have changed, and what they have to do (fleet.h). Bounds hold for
 * what all have written, as far as it is known here.
 *
 * Threads: any; calls for the same run one at a time. gp_state_dir_use, _release, _set_shares and those of leases that say
 * so touch no file and wait for none, so the loop thread may call them; all others read
 * or write the disk. Tests: tests/unit/test_state_dir.c, tests/unit/test_state_sharing.c,
 * tests/unit/test_server_slow_disk.c, tests/e2e/shared_state.sh
 */
#ifndef GP_STATE_DIR_H
#define GP_STATE_DIR_H

#include "common/store/checkpoint.h"
#include "common/graph/snapshot.h"
#include "server/fleet.h"

#define GP_STATE_RUNS_MAX    1000
#define GP_STATE_OWNER_BYTES 256 /* of a name, its end included */
#define GP_STATE_LEASE_S     30.0

struct gp_state_limits {
	uint64_t bytes;                  /* of all checkpoints together */
	uint64_t client_bytes;           /* of one owner's */
	int client_runs;                 /* runs of one owner that have checkpoints */
	bool names;                      /* clients have names; else all of them are one, whoever they were before */
	struct gp_keeper_settings lease; /* lease_s 0: GP_STATE_LEASE_S. The name must live until the folder is open */
	bool keep_by_hand;               /* for tests: no thread keeps the leases, gp_state_dir_tick does */
};

struct gp_state_dir;
struct gp_limits_table;

/* Makes the folder, and removes what servers that are dead have left half-written. GP_INVALID, and nothing is touched: the
 * folder holds something else than checkpoints of a server, or such that another version wrote, or has in use. */
enum gp_status gp_state_dir_open(const char *path, const struct gp_state_limits *limits, struct gp_state_dir **out,
				 struct gp_err *err);
void gp_state_dir_close(struct gp_state_dir *d); /* NULL is fine */

/* Each owner's bytes and runs are as the table says from here on, in place of client_bytes and client_runs. It must live until
 * the next call, or until the folder is closed. */
void gp_state_dir_set_shares(struct gp_state_dir *d, const struct gp_limits_table *shares);

/* A session of `owner` ("": clients have no names here) has the run: it is not removed to make room. Counted: as many
 * releases as uses. What is written of the run counts as this owner's, also when the server has been started again. */
enum gp_status gp_state_dir_use(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], const char *owner,
				struct gp_err *err);
void gp_state_dir_release(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES]);

/* GP_NOMEM: the owner of the run that a session uses may not have so much. Touches no file. */
enum gp_status gp_state_dir_check_share(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t bytes,
					struct gp_err *err);

/* The newest of these steps that there is a checkpoint of, as far as its manifest tells; 0: none. Fails where the disk does: what
 * there is is not known then, and to begin at an older step, or anew, would remove newer ones. */
enum gp_status gp_state_dir_common(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], const uint64_t *step,
				   size_t count, uint64_t *newest, struct gp_err *err);
/* The steps of the run's checkpoints, newest first. Returns how many. */
int gp_state_dir_list(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t step[GP_CHECKPOINTS_MAX]);
/* Whether there is one of this step, and it is of such a run: GP_INVALID says what differs. */
enum gp_status gp_state_dir_check(const struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t step,
				  const struct gp_pairs *spec, struct gp_err *err);
/* Reads it and checks every byte. GP_CANCELED: it is damaged and was removed; an older one may serve. */
enum gp_status gp_state_dir_load(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t step,
				 struct gp_checkpoint **out, struct gp_err *err);
/* Removes one that is whole, but of no use to its run. err: why, for the log; `what`, for the client: "does not fit".
 * GP_CANCELED: it is gone, an older one may serve; else err's code. */
enum gp_status gp_state_dir_discard(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t step,
				    const char *what, struct gp_err *err);
/*
 * Writes a checkpoint of the run, leaves its newest `stay` (1 to GP_CHECKPOINTS_MAX), removes those of later steps (the
 * run was begun again), and makes room for it as said above: GP_NOMEM says which bound there is. On a full disk runs go
 * by the same rules, and it is tried once more. `lease`: that of gp_state_dir_hold; GP_CANCELED, and nothing is written: it is
 * lost. With 0 the run is locked now, if no other server has had it since that failed.
 */
enum gp_status gp_state_dir_write_leased(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t lease,
					 uint64_t step, const struct gp_pairs *spec, const struct gp_st_item *items,
					 int count, int stay, struct gp_err *err);
static inline enum gp_status gp_state_dir_write(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES],
						uint64_t step, const struct gp_pairs *spec,
						const struct gp_st_item *items, int count, int stay, struct gp_err *err)
{
	return gp_state_dir_write_leased(d, run, 0, step, spec, items, count, stay, err);
}

/* --- leases -------------------------------------------------------------------------------------------------------- */

/*
 * Locks a run that a session uses, before it reads anything of it, until the run is used no more. *lease (above 0) tells
 * this lease from any other of the run. GP_BUSY: another server has the run and was asked for it, or one had it whose death is
 * not certain yet; err says which. GP_INVALID: its folder is not as it should be. Any other error is the disk's: the session
 * may go on without.
 */
enum gp_status gp_state_dir_hold(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t *lease,
				 struct gp_err *err);
/* Touches no file: whether there is reason to ask the next two about each run that is in use. */
bool gp_state_dir_has_news(struct gp_state_dir *d);
/* Touches no file: this server could not renew its leases in time; whatever the session has reached since is nobody's. */
bool gp_state_dir_is_lost(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t lease);
/* Touches no file: how often other servers have asked for the run, because its client is there, since gp_state_dir_unwant. */
uint64_t gp_state_dir_wants(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES]);
void gp_state_dir_unwant(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES]);
/* Touches no file: what this server has to do, for the others that share the folder. */
void gp_state_dir_tell_load(struct gp_state_dir *d, const struct gp_beat_load *load);
/* Touches no file: what the others have to do, as was seen last. */
void gp_state_dir_fleet(struct gp_state_dir *d, struct gp_fleet_view *out);
/* What the thread does again and again; for tests. */
void gp_state_dir_tick(struct gp_state_dir *d);

struct gp_state_figures {
	char owner[GP_OWNER_TEXT]; /* as others see this server */
	uint64_t held;             /* runs */
	uint64_t losses;           /* how often this server could not renew its leases in time */
	uint64_t taken_over;       /* runs of servers that were dead */
	int servers;               /* that live, this one included, as far as it sees */
};
/* Touches no file. */
void gp_state_dir_figures(struct gp_state_dir *d, struct gp_state_figures *out);

#endif
