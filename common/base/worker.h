/* SPDX-License-Identifier: Apache-2.0
 *
 * Work off the loop thread. A worker is a set of threads that run tasks from
 * lanes. The tasks of a lane run one at a time, most urgent first and in order of
 * submission among equals, so whatever a lane touches needs no lock. A *user* (a
 * session) has one lane or many. Users with work take turns by the time that all
 * their lanes have used (the one that used least goes next), so that no session
 * starves another, however many lanes it has.
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

#include <uv.h>

#include "common/base/status.h"

#define GP_TASK_PRIORITIES 2 /* 0 = urgent */

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
	struct gp_lane *lane;
	struct gp_task *next;
};

/* The lanes of one user of one worker. Caller-owned; zeroed before its first lane. */
struct gp_lane_user {
	struct gp_worker *worker;  /* NULL: no lane yet */
	uint64_t used_ns, last_ns; /* time its tasks took, from start_ns to end_ns: all so far, and the last */
	int begun;                 /* tasks run, or running, and not finished */
	struct gp_lane *first, *last;     /* lanes with tasks that wait, in the order of their turns */
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
/* Every lane must be idle (pending == 0). Joins the threads; the loop must run once more to close the handle. */
void gp_worker_free(struct gp_worker *w);

/* `user` (optional, outlives the lane): whose time the lane's tasks take; every lane of a user is of one worker. NULL: the
 * lane is a user of its own. */
void gp_lane_init(struct gp_lane *lane, struct gp_worker *w, struct gp_lane_user *user);
/* Must be idle. */
void gp_lane_deinit(struct gp_lane *lane);

/* Loop thread. run, finish, done and arg are set by the caller. */
void gp_worker_submit(struct gp_lane *lane, struct gp_task *t, int priority);

#endif
