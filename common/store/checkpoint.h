/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints on disk: the state of one side of a run after a number of steps.
 * A folder holds those of one side of one run:
 *
 *   DIR/lock                                whoever writes there holds it
 *   DIR/step-000000000300/state.safetensors parameters, optimizer state, codec state
 *                         manifest.json     manifest.h: what the state is of, its size and hash
 *                         confirmed         empty: the other side has its own of this step, too
 *
 * A checkpoint is there whole or not at all: it is written under a temporary
 * name, synced, renamed, and the folder synced. A failed write leaves the older
 * ones as they were. Files have mode 0600, folders 0700.
 *
 * Threads: any, one at a time for a folder. Tests: tests/unit/test_checkpoint.c,
 * tests/fuzz/fuzz_checkpoint.c; what is in the state file: snapshot.h
 */
#ifndef GP_CHECKPOINT_H
#define GP_CHECKPOINT_H

#include "common/store/manifest.h"

#include "common/base/durable.h"

#define GP_CHECKPOINTS_STAY 3  /* the newest */
#define GP_CHECKPOINTS_MAX  16 /* most that are listed, and that HELLO can name */

struct gp_checkpoint {
	struct gp_manifest manifest;
	struct gp_st_file *state;
};

/*
 * Refuses a folder that holds something else than checkpoints of this side, before anything is written there: GP_INVALID
 * says what. A client's holds one run's checkpoints, a server's a folder for each run. Files of others are tolerated
 * where the lock shows that the folder was ours before, and so are dot files and lost+found. No folder is fine.
 */
enum gp_status gp_checkpoint_check_folder(const char *dir, enum gp_manifest_role role, struct gp_err *err);
/*
 * Makes the folder, takes its lock (GP_INVALID: another process has it) and removes what a killed writer left. *lock: for
 * gp_checkpoint_unlock.
 */
enum gp_status gp_checkpoint_lock(const char *dir, int *lock, struct gp_err *err);
void gp_checkpoint_unlock(int lock);
/* Removes what a killed writer left. */
enum gp_status gp_checkpoint_clean(const char *dir, struct gp_err *err);

/*
 * Every change of DIR goes through a folder WORK on the same file system: a checkpoint is written there and renamed out of
 * it, one that goes is renamed into it and removed there. So whoever removes WORK has made sure that a writer which still
 * believes that DIR is its own changes nothing any more, at whatever point it stands; WORK is never made here. Those
 * without _via have DIR itself for it.
 */
/* Writes DIR/step-.../ with these tensors. state_bytes and state_hash of the manifest are filled in here. A checkpoint of
 * that step that was there is replaced. *bytes (optional): what it takes on disk. */
enum gp_status gp_checkpoint_write_via(const char *dir, const char *work, const struct gp_manifest *m,
				       const struct gp_st_item *items, int count, uint64_t *bytes, struct gp_err *err);
/* Removes all but the newest `stay`. */
enum gp_status gp_checkpoint_prune_via(const char *dir, const char *work, int stay, struct gp_err *err);
/* Removes those of later steps. */
enum gp_status gp_checkpoint_drop_after_via(const char *dir, const char *work, uint64_t step, struct gp_err *err);
enum gp_status gp_checkpoint_remove_via(const char *dir, const char *work, uint64_t step, struct gp_err *err);

/* Makes DIR where it is not there. */
static inline enum gp_status gp_checkpoint_write(const char *dir, const struct gp_manifest *m,
						 const struct gp_st_item *items, int count, uint64_t *bytes,
						 struct gp_err *err)
{
	const enum gp_status status = gp_make_folder(dir, err);
	return status == GP_OK ? gp_checkpoint_write_via(dir, dir, m, items, count, bytes, err) : status;
}
static inline enum gp_status gp_checkpoint_prune(const char *dir, int stay, struct gp_err *err)
{
	return gp_checkpoint_prune_via(dir, dir, stay, err);
}
static inline enum gp_status gp_checkpoint_drop_after(const char *dir, uint64_t step, struct gp_err *err)
{
	return gp_checkpoint_drop_after_via(dir, dir, step, err);
}
static inline enum gp_status gp_checkpoint_remove(const char *dir, uint64_t step, struct gp_err *err)
{
	return gp_checkpoint_remove_via(dir, dir, step, err);
}
/* Notes that the other side has a checkpoint of that step, too. Not synced: after a power failure it may read as unconfirmed. */
enum gp_status gp_checkpoint_confirm(const char *dir, uint64_t step, struct gp_err *err);
bool gp_checkpoint_is_confirmed(const char *dir, uint64_t step);

/* The steps of the checkpoints whose folders are there, newest first, at most GP_CHECKPOINTS_MAX; none where DIR is
 * not there. */
enum gp_status gp_checkpoint_list(const char *dir, uint64_t step[GP_CHECKPOINTS_MAX], int *count, struct gp_err *err);
/* Reads and checks the manifest alone, and that the state has its size. */
enum gp_status gp_checkpoint_peek(const char *dir, uint64_t step, struct gp_manifest *out, struct gp_err *err);
/* Reads and checks everything. */
enum gp_status gp_checkpoint_open(const char *dir, uint64_t step, struct gp_checkpoint **out, struct gp_err *err);
void gp_checkpoint_close(struct gp_checkpoint *c); /* NULL is fine */

#endif
