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
 * Threads: any; calls for the same run one at a time. gp_state_dir_use, _release
 * and _set_shares touch no file and wait for none, so the loop thread may call them; all others read
 * or write the disk. Tests: tests/unit/test_state_dir.c, tests/unit/test_server_slow_disk.c
 */
#ifndef GP_STATE_DIR_H
#define GP_STATE_DIR_H

#include "common/store/checkpoint.h"
#include "common/graph/snapshot.h"

#define GP_STATE_RUNS_MAX    1000
#define GP_STATE_OWNER_BYTES 256 /* of a name, its end included */

struct gp_state_limits {
	uint64_t bytes;        /* of all checkpoints together */
	uint64_t client_bytes; /* of one owner's */
	int client_runs;       /* runs of one owner that have checkpoints */
	bool names;            /* clients have names; else all of them are one, whoever they were before */
};

struct gp_state_dir;
struct gp_limits_table;

/* Makes and locks the folder, and removes what a killed server left half-written. GP_INVALID, and nothing is touched: the
 * folder holds something else than checkpoints of a server, or such that another version wrote. */
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

/* The newest of these steps that there is a checkpoint of, as far as its manifest tells; 0: none. */
uint64_t gp_state_dir_common(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], const uint64_t *step,
			     size_t count);
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
 * by the same rules, and it is tried once more.
 */
enum gp_status gp_state_dir_write(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES], uint64_t step,
				  const struct gp_pairs *spec, const struct gp_st_item *items, int count, int stay,
				  struct gp_err *err);

#endif
