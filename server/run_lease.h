/* SPDX-License-Identifier: Apache-2.0
 *
 * The lock of one run in a --state-dir that several servers may share: whose the run's checkpoints are to change, now.
 *
 *   DIR/RUN/lease-000000000007-3f9a12cd01b2c3d4   an empty file; its name says all: generation and owner
 *   DIR/RUN/lease-000000000008-free               the same run when nobody has it
 *   DIR/RUN/work-000000000007-3f9a12cd01b2c3d4/   all changes of the run go through this folder (checkpoint.h)
 *
 * A run has one lease file from its beginning to its end. It is taken by renaming it, from the name that was seen to that of
 * the next generation: of several that try, one finds the old name, on a local disk as over NFS. There is nothing in the
 * file, so nothing of it is ever half written.
 *
 * Who takes a run from another owner removes that one's work folder before it reads or changes anything. From then on
 * nothing reaches the run that the other one had begun, at whatever point it was stopped: the file system refuses it, whose
 * own clock or belief does not matter. Dying between these steps does no harm: the next one does the same.
 *
 * Not here: whether an owner is still alive (server_beat.h, lease_keeper.h).
 *
 * Threads: any. Paths are of the run's folder. Test: tests/unit/test_run_lease.c
 */
#ifndef GP_RUN_LEASE_H
#define GP_RUN_LEASE_H

#include <limits.h>

#include "common/base/status.h"

#define GP_OWNER_TEXT 17 /* of a server: 16 hex digits, and the end */

/* What there is of a run. */
struct gp_lease_sight {
	bool there;                /* else there is no such run, and the rest means nothing */
	uint64_t generation;       /* from 1; 0: an older version has left the run */
	char owner[GP_OWNER_TEXT]; /* "": nobody has it */
	bool bare;                 /* it has nothing but its lease */
};

/* GP_INVALID: the folder has no lease, or several: somebody has changed it by hand, or an older version has written it. */
enum gp_status gp_run_lease_look(const char *folder, struct gp_lease_sight *out, struct gp_err *err);
/* A run that is not there: made in the folder `prepared`, which must be on the same file system, and put into place.
 * GP_CANCELED: another one has made it meanwhile. Generation 1 is `owner`'s then. */
enum gp_status gp_run_lease_make(const char *folder, const char *prepared, const char *owner, struct gp_err *err);
/* Takes the run as it was seen; generation `seen->generation + 1` is `owner`'s then. GP_CANCELED: another one was faster. */
enum gp_status gp_run_lease_take(const char *folder, const struct gp_lease_sight *seen, const char *owner,
				 struct gp_err *err);
/* Whether the run still is the owner's. GP_CANCELED: it is not. */
enum gp_status gp_run_lease_check(const char *folder, uint64_t generation, const char *owner, struct gp_err *err);
/* Nobody has the run any more; one without a checkpoint goes. GP_CANCELED: it was not the owner's any more. */
enum gp_status gp_run_lease_give(const char *folder, uint64_t generation, const char *owner, struct gp_err *err);
/* A run that an older version has left gets its lease; one that has a lease stays as it is. The caller has made sure that
 * nobody else does the same now. */
enum gp_status gp_run_lease_introduce(const char *folder, struct gp_err *err);
/* The folder that changes go through, of one whose run it is. */
enum gp_status gp_run_lease_work(const char *folder, uint64_t generation, const char *owner, char out[PATH_MAX],
				 struct gp_err *err);
/* 16 hex digits, not all of them zero. */
bool gp_owner_parse(const char *text, char out[GP_OWNER_TEXT]);

#endif
