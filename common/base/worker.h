/* SPDX-License-Identifier: Apache-2.0
 *
 * Work off the loop thread. A worker is a set of threads that run tasks from
 * lanes. A lane belongs to one user (a session); its tasks run one at a time,
 * most urgent first and in order of submission among equals, so whatever a lane
 * touches needs no lock. Lanes with work take turns by the time they have used
 * (the one that used least goes next), so no session starves another.
 *
 * Life of a task: gp_worker_submit (loop thread) -> run, and finish where it has
 * one (a worker thread) -> done (loop thread). A task's memory is the caller's
 * and is free for reuse when done begins. Nothing allocates after gp_worker_new
 * and gp_lane_init.
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

/* Caller-owned; embed it. */
struct gp_lane {
	struct gp_worker *worker;
	struct gp_task *head[GP_TASK_PRIORITIES], *tail[GP_TASK_PRIORITIES];
	uint64_t used_ns, last_ns; /* time its tasks took, from start_ns to end_ns: all so far, and the last */
	int pending;               /* submitted and not yet done (loop thread) */
	int begun;                 /* run, or running, and not finished */
	const struct gp_worker_thread *thread; /* with any begun: whose they are */
	struct gp_lane *prev, *next;
};

/* Threads begin at once. `loop` runs the done callbacks. */
enum gp_status gp_worker_new(uv_loop_t *loop, const char *name, int threads, struct gp_worker **out,
			     struct gp_err *err);
/* Every lane must be idle (pending == 0). Joins the threads; the loop must run once more to close the handle. */
void gp_worker_free(struct gp_worker *w);

void gp_lane_init(struct gp_lane *lane, struct gp_worker *w);
/* Must be idle. */
void gp_lane_deinit(struct gp_lane *lane);

/* Loop thread. run, finish, done and arg are set by the caller. */
void gp_worker_submit(struct gp_lane *lane, struct gp_task *t, int priority);

#endif
