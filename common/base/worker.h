/* SPDX-License-Identifier: Apache-2.0
 *
 * Work off the loop thread. A worker is a set of threads that run tasks from
 * lanes. The tasks of a lane run one at a time, most urgent first and in order of
 * submission among equals, so whatever a lane touches needs no lock. A *user* (a
 * session) has one lane or many. Users with work take turns by the time that all
 * their lanes have used (the one that used least goes next), so that no session
 * starves another, however many lanes it has and however long its tasks are.
 *
 * A session that has lanes on several workers (a device's, those of codecs) has a
 * user on each and one *share* for all of them: what its tasks took anywhere
 * counts when it asks for a turn anywhere. Time counts divided by the share's
 * weight, so that of two sessions that always have work one of weight 2 gets
 * twice the time of one of weight 1. A session that begins, or that had nothing to
 * do, stands where that one stands which has used least of those with work: it
 * has saved nothing up. That place moves on by at least 1 / GP_SHARE_NEWCOMERS of
 * the time that all sessions use, so that one which waits with more behind it has
 * its turn after a while, however many others begin, at once or one after the other.
 * A thread does not stay idle for the sake of fairness, so a
 * session may get ahead on a worker that nobody else wants; where others want the
 * same, they go first until they have caught up, with at most GP_SHARE_AHEAD_NS
 * or the session's last task, whichever is longer.
 *
 * Life of a task: gp_worker_submit (loop thread) -> run, and finish where it has
 * one (a worker thread) -> done (loop thread). A task's memory is the caller's
 * and is free for reuse when done begins. Nothing allocates after gp_worker_new.
 *
 * A task with `finish` only begins something in `run`, on a device that works by
 * itself, and waits for it in `finish`. Between the two its thread may run the
 * next such task, of the same lane or of another, so that the device finds it
 * queued when it is through with the first. What was begun first is finished
 * first; tasks of a lane keep their order and their thread. A task without
 * `finish` runs when its thread has nothing under way.
 *
 * Threads: the loop thread, but for `run` and `finish` of a task, which a worker's
 * thread calls. Test: tests/unit/test_worker.c
 */
#ifndef GP_WORKER_H
#define GP_WORKER_H

#include <stdatomic.h>

#include <uv.h>

#include "common/base/status.h"

#define GP_TASK_PRIORITIES 3 /* 0 = first */

#define GP_TASKS_BEGUN 4 /* with `finish`, per thread: two that a device works on side by side, and what comes next */

struct gp_lane;
struct gp_worker;
struct gp_worker_thread;

struct gp_task {
	void (*run)(struct gp_task *t);    /* worker thread; leaves its outcome in status and err */
	void (*finish)(struct gp_task *t); /* (optional) the same thread; not after a run that failed */
	void (*done)(struct gp_task *t);   /* loop thread */
	void *arg;
	enum gp_status status;
	struct gp_err err;
	/* Filled in by the worker. start_ns: when run began, or later, when its thread was through with the task before. */
	uint64_t queued_ns, start_ns, end_ns;
	/* private */
	uint64_t expected_ns; /* what it counts for while it is under way, by weight */
	struct gp_lane *lane;
	struct gp_task *next;
};

#define GP_SHARE_AHEAD_NS UINT64_C(10000000000)
#define GP_SHARE_NEWCOMERS                                                                                             \
	64 /* with fewer sessions at work than this, who begins has as much behind it as the least of them */

/* What one session has used on all workers together. Caller-owned, outlives its users. */
struct gp_share {
	struct gp_worker *home; /* whose clock it goes by, which outlives it; NULL: none yet */
	/* private */
	double weight;
	atomic_uint_least64_t used_ns, under_way_ns; /* by weight: of tasks that ended, and expected of those begun */
	int pending;                                 /* tasks that wait or are under way, on any worker */
	struct gp_share *prev, *next;                /* shares of that clock with any */
};

/* The lanes of one user of one worker. Caller-owned; zeroed before its first lane, but for `share`. */
struct gp_lane_user {
	struct gp_share *share;   /* (optional) with users on other workers; NULL: `alone` */
	struct gp_worker *worker; /* NULL: no lane yet */
	struct gp_share alone;
	atomic_uint_least64_t total_ns; /* time its tasks took here, from start_ns to end_ns. Any thread may read it */
	uint64_t last_ns;               /* of that the last task's */
	struct gp_lane *first, *last;   /* lanes with tasks that wait, in the order of their turns */
	struct gp_lane_user *prev, *next; /* users with such lanes */
};

/* Caller-owned; embed it. */
struct gp_lane {
	struct gp_worker *worker;
	struct gp_lane_user *user, own; /* own: the user of a lane that was given none */
	struct gp_task *head[GP_TASK_PRIORITIES], *tail[GP_TASK_PRIORITIES];
	int pending;                           /* submitted and not yet done (loop thread) */
	int begun;                             /* run, or running, and not finished */
	const struct gp_worker_thread *thread; /* with any begun: whose they are */
	struct gp_lane *prev, *next;           /* of the user's lanes with tasks that wait */
};

/* Threads begin at once. `loop` runs the done callbacks. */
enum gp_status gp_worker_new(uv_loop_t *loop, const char *name, int threads, struct gp_worker **out,
			     struct gp_err *err);
/* From its next task on, each of its threads leaves the processor to threads of this process and others that are less nice:
 * for work that somebody may send much of. 0 to 19, not less than before. */
void gp_worker_set_nice(struct gp_worker *w, int nice);
/* Every lane must be idle (pending == 0). Joins the threads; the loop must run once more to close the handle. */
void gp_worker_free(struct gp_worker *w);

/* Begins where the least of the sessions stands that have work and go by the clock of `home`, or a little behind: the worker
 * that sessions want most, as that of their device. weight > 0: 1 for most. */
void gp_share_init(struct gp_share *s, struct gp_worker *home, double weight);
/* As if it had used what somebody stood at (gp_share_used) who goes by the same clock, as far as a share may be ahead: a session
 * that follows on another one of the same client gains nothing by that. Where it has used more, nothing changes. */
void gp_share_follow(struct gp_share *s, uint64_t used_ns);
/* What counts when it asks for a turn; any number that is compared with others of its clock alone. */
uint64_t gp_share_used(const struct gp_share *s);
/* From the next task to end on. */
void gp_share_set_weight(struct gp_share *s, double weight);
/* It goes by another worker's clock from now on. Nothing may wait or be under way. */
void gp_share_move(struct gp_share *s, struct gp_worker *home);

/* `user` (optional, outlives the lane): whose time the lane's tasks take; every lane of a user is of one worker. NULL: the
 * lane is a user of its own. */
void gp_lane_init(struct gp_lane *lane, struct gp_worker *w, struct gp_lane_user *user);
/* Must be idle. */
void gp_lane_deinit(struct gp_lane *lane);

/* Loop thread. run, finish, done and arg are set by the caller. */
void gp_worker_submit(struct gp_lane *lane, struct gp_task *t, int priority);

#endif
