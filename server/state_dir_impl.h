/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to state_dir.c, state_room.c, state_lease.c and state_refresh.c.
 *
 * Threads: what stands behind `mutex` belongs to whoever has it, and it is never held while a file is touched. A run that is
 * `going` is one thread's, which works on its lease or removes it; others wait for `gone`. Test: tests/unit/test_state_dir.c
 */
#ifndef GP_STATE_DIR_IMPL_H
#define GP_STATE_DIR_IMPL_H

#include <dirent.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#include "common/base/log.h"
#include "server/fleet.h"
#include "server/state_dir.h"

#define GP_STATE_SHOWN_DIGITS 8 /* of a run's id, in messages */
#define GP_STATE_OWNER_ROOM   (3 * GP_STATE_OWNER_BYTES)

/* A run that a session uses, that has checkpoints, or whose lease this server has. */
struct gp_stored_run {
	uint8_t id[GP_RUN_ID_BYTES];
	char owner
		[GP_STATE_OWNER_ROOM]; /* in printable ASCII, so that manifests can have it; "": nobody in particular */
	uint64_t bytes;                /* of its checkpoints */
	uint64_t written;              /* order of the newest ones */
	int uses;
	bool going;     /* see above */
	bool removing;  /* `going`, and to make room */
	bool stuck;     /* cannot be removed */
	bool elsewhere; /* another server has it, as far as is known */
	/* The lease; epoch 0: not held. */
	uint64_t epoch, generation;
	char holder[GP_OWNER_TEXT];
	/* Where the lease could not be had because of the disk: the run as a session has seen it. It may be locked later only
	 * if nobody has had it since. Giving a run back leaves its generation, so that the owner counts, too. */
	bool seen;
	uint64_t seen_generation;
	char seen_owner[GP_OWNER_TEXT];
	bool unknown;    /* not even that could be read, so that it may not be locked later */
	bool of_session; /* the newest session of the run has the lease; one without must not write under it */
	uint64_t wants, want_nonce; /* others that would like to have it: state_dir.h */
	uint64_t changed_ns, pass;  /* state_refresh.c */
};

/* What is on the disk is known from the start on, so that no question about it waits for the disk. */
struct gp_state_dir {
	char *path;
	struct gp_state_limits limits;
	int lock;       /* shared with the other servers, against those of older versions */
	bool leaseless; /* there was a run without a lease when this server came */
	struct gp_keeper *keeper;
	struct gp_fleet *fleet;
	pthread_mutex_t mutex;
	pthread_cond_t gone;                  /* a run that was `going` is */
	const struct gp_limits_table *shares; /* of each owner; NULL: the same for all, as `limits` has them */
	struct gp_stored_run *run;
	int runs, room;
	uint64_t written; /* the highest of all */
	uint64_t taken_over, losses_told;
	bool wanted; /* some run, since somebody has looked */
	struct {
		pthread_t thread;
		bool runs, stopping;
		pthread_cond_t wake;
		bool asked; /* to give a run back */
	} keeping;          /* state_lease.c */
	struct {
		DIR *dir; /* of the pass under way */
		uint64_t pass, due_ns;
	} refresh; /* of the thread that keeps the leases; others read `pass`, so that it changes behind the mutex */
};

struct gp_state_path {
	char text[PATH_MAX];
};

/* A run that is held, for whoever changes it. */
struct gp_state_hold {
	uint8_t id[GP_RUN_ID_BYTES];
	uint64_t epoch, generation;
	char holder[GP_OWNER_TEXT];
	struct gp_state_path folder, work;
};

/* state_dir.c */
enum gp_status gp_state_run_path(const struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES],
				 struct gp_state_path *out, struct gp_err *err);
/* The id of a run opens its checkpoints: a message has as much of it as finds the folder. */
void gp_state_conceal(const uint8_t run[GP_RUN_ID_BYTES], struct gp_err *err);

struct gp_state_measure {
	uint64_t bytes;
	uint64_t newest_ns;  /* when its newest checkpoint was written */
	uint64_t changed_ns; /* when its folder was changed: a checkpoint or a lease came or went */
};
/* When something in a folder has come, gone or been renamed; 0: there is no such folder. */
uint64_t gp_state_changed_ns(const char *folder);
struct gp_state_measure gp_state_measure_run(const struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES]);
/* What is on the disk of a run may have changed. */
void gp_state_measure_again(struct gp_state_dir *d, const uint8_t run[GP_RUN_ID_BYTES]);
/* The owner of a run that this server has not known, as the newest checkpoint says that can be read. */
void gp_state_read_owner(const char *folder, char owner[GP_STATE_OWNER_ROOM]);

/* With the mutex. */
struct gp_stored_run *gp_state_find_run(const struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES]);
/* The one that is there, or a new one of nobody. */
enum gp_status gp_state_enter_run(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES], struct gp_stored_run **out,
				  struct gp_err *err);
void gp_state_forget_unless_needed(struct gp_state_dir *d, struct gp_stored_run *r);

/* state_room.c: makes the owner's checkpoints, and all, fit into their bounds. GP_NOMEM: nothing may go. */
enum gp_status gp_state_make_room(struct gp_state_dir *d, const char *owner, struct gp_err *err);
/* The disk is full, whatever the limits say: removes by the same rules what has as many bytes. True: something went. */
bool gp_state_free_disk(struct gp_state_dir *d, const char *owner, uint64_t bytes);
/* What can never fit. */
enum gp_status gp_state_check_share(struct gp_state_dir *d, const char *owner, uint64_t bytes, struct gp_err *err);

/* state_lease.c: the run, which the caller uses, is this server's. GP_BUSY, GP_CANCELED: as gp_state_dir_hold. */
enum gp_status gp_state_lock_run(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES], struct gp_state_hold *out,
				 struct gp_err *err);
/* The same for a session that has no lease, because of the disk: GP_CANCELED where somebody else has had the run since it began,
 * also after a first such lock. */
enum gp_status gp_state_lock_late(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES], struct gp_state_hold *out,
				  struct gp_err *err);
/* The same for a run that the caller has made `going`. */
enum gp_status gp_state_lock_going(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES], struct gp_state_hold *out,
				   struct gp_err *err);
/* The run is `going`: nobody has it from here on, and one without a checkpoint is gone. */
void gp_state_give_going(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES]);
/* Before each change. GP_CANCELED: the lease is lost. */
enum gp_status gp_state_check_hold(const struct gp_state_dir *d, const struct gp_state_hold *hold, struct gp_err *err);
/* That of this lease, if it is held still. */
enum gp_status gp_state_find_hold(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES], uint64_t lease,
				  struct gp_state_hold *out, struct gp_err *err);
/* Waits until no other thread works on the run, and makes it `going` where it is known. */
bool gp_state_claim_run(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES]);
void gp_state_unclaim_run(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES]);
/* The thread that keeps the leases, unless they are kept by hand. */
enum gp_status gp_state_start_keeping(struct gp_state_dir *d, struct gp_err *err);
/* Ends it, and gives back what this server still has. */
void gp_state_stop_keeping(struct gp_state_dir *d);
/* A run is not used any more. With the mutex. */
void gp_state_wake_keeping(struct gp_state_dir *d);

/* state_refresh.c: what other servers have changed. A part of it at each call, on the thread that keeps the leases. */
void gp_state_refresh(struct gp_state_dir *d);
/* The next pass is due a while from now. */
void gp_state_plan_refresh(struct gp_state_dir *d);
void gp_state_stop_refresh(struct gp_state_dir *d);
/* A run whose server is dead, or that has nothing but a lease which nobody has, is cleaned, and free. True: another server has
 * the run. */
bool gp_state_reclaim(struct gp_state_dir *d, const uint8_t id[GP_RUN_ID_BYTES]);

#endif
