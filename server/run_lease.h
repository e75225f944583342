/* SPDX-License-Identifier: Apache-2.0
 *
 * The lock of one run in a --state-dir that several servers may share: who may change the run's checkpoints now.
 *
 *   DIR/RUN/lease-000000000007-3f9a12cd01b2c3d4   an empty file; its name says all: generation and owner
 *   DIR/RUN/lease-000000000008-free               the same run when nobody has it
 *   DIR/RUN/work-000000000007-3f9a12cd01b2c3d4/   all changes of the run go through this folder (checkpoint.h)
 *
 * A run has one lease file from its beginning to its end. A server takes the lease by renaming the file, from the name that it
 * has seen to that of the next generation: of several that try, one finds the old name, on a local disk as over NFS. The file
 * is empty, so it is never half written.
 *
 * A server that takes a run from another owner first removes the other's work folder, before it reads or changes anything. From
 * then on nothing that the other one had begun reaches the run, at whatever point it was stopped, because the file system
 * refuses it; what the other one's clock says, or what it believes, does not matter. Dying between these steps does no harm:
 * the next server does the same.
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
/* Takes the run as it was seen, by renaming its lease; generation `seen->generation + 1` is `owner`'s then, who has to settle
 * before it changes anything. GP_CANCELED: another one was faster. */
enum gp_status gp_run_lease_take(const char *folder, const struct gp_lease_sight *seen, const char *owner,
				 struct gp_err *err);
/* Behind gp_run_lease_take: removes the work folders of earlier generations and makes the owner's; where that fails, the run is
 * given back, if it can be. A server may stand still before or within it for as long as it likes. GP_CANCELED: another server
 * has taken the run meanwhile; its work folder is as it was. */
enum gp_status gp_run_lease_settle(const char *folder, uint64_t generation, const char *owner, struct gp_err *err);
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
