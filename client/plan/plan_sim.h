/* SPDX-License-Identifier: Apache-2.0
 *
 * A small simulated world for predictions: workers whose tasks share processors, and a link with two ways. It knows
 * no chunk and no step; plan_schedule.h puts these in, and has the rules.
 *
 *   worker   so many tasks at once, from lanes that take turns. A lane's tasks run one after another, those with
 *            priority 0 first
 *   pool     processors. Each running task wants its worker's threads; while all of a pool want more than there are,
 *            all of them go slower by the same factor
 *   way      one direction of the link: frames leave in segments, the most urgent class first at each. One or two
 *            (`writes_most`) are being written at a time; the kernel takes bytes until it holds `kernel_bytes`, and more
 *            when it holds less than half of its own again. It sends in order, at the way's rate, and every byte arrives a
 *            delay later. What waits further on the way (`queue_bytes`) is as if the kernel held it
 *   mover    the thread of an end that sends and receives, kernel included: bytes take it processor time, at both ends
 *            of a way, out of its end's pool. A full pool is shared fairly: whoever wants less than an equal share has
 *            what it wants, the others have equal shares of the rest. A way is as fast as the slower one of its movers
 *
 * Life: gp_sim_init, then gp_sim_submit and gp_sim_send at will, also from within callbacks; gp_sim_next goes on to
 * the next event and calls back. Times are seconds since the beginning.
 *
 * Threads: one at a time; pure. Test: tests/unit/test_plan_schedule.c
 */
#ifndef GP_PLAN_SIM_H
#define GP_PLAN_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

enum {
	GP_SIM_WRITES = 2,
	GP_SIM_WORKERS = 5,
	GP_SIM_LANES = 4,
	GP_SIM_POOLS = 2,
	GP_SIM_WAYS = 2,
	GP_SIM_ENDS = 2,
	GP_SIM_CLASSES = 3,
	GP_SIM_PRIORITIES = 3,
	GP_SIM_RUNNING = 64
};

/* A task of a worker, or a frame on its way. `what` and `number` are those of the caller. */
struct gp_sim_job {
	int what, worker, lane;
	uint64_t number;
	double left;              /* seconds of work, or bytes */
	double queued_s, begin_s; /* begin: it runs, or its first byte is with the kernel */
	double handed_s;          /* of a frame: its last byte is with the kernel */
};

struct gp_sim_queue {
	struct gp_sim_job *job; /* a ring */
	uint32_t first, count;
};

struct gp_sim_worker {
	int pool, threads, most; /* threads of a task; tasks at once */
	int lanes, running;
	struct gp_sim_lane {
		struct gp_sim_queue queue[GP_SIM_PRIORITIES];
		bool busy;
		uint64_t turn;
	} lane[GP_SIM_LANES];
};

struct gp_sim_segment {
	struct gp_sim_job frame;
	double bytes, due_s;
	bool last;
};

struct gp_sim_way {
	double bytes_per_s, delay_s, queue_bytes; /* bytes_per_s 0: as fast as it goes */
	double kernel_bytes;
	int writes_most; /* 1..GP_SIM_WRITES */
	struct gp_sim_queue queue[GP_SIM_CLASSES];
	struct gp_sim_segment *kernel, *flight; /* rings of `segments` */
	uint32_t kernel_first, kernel_count, flight_first, flight_count;
	struct gp_sim_segment write[GP_SIM_WRITES];
	int writes;
	bool blocked;           /* the kernel took a part of a segment and no more */
	double at_kernel;       /* bytes */
	double now_bytes_per_s; /* until the next event: with what processors there are */
};

struct gp_sim_mover {
	int pool;
	double byte_s; /* of one byte, sent or received; 0: none */
};

struct gp_sim {
	double now_s;
	uint32_t room, segments; /* of each queue; of each ring of segments */
	double segment_bytes;
	double processors[GP_SIM_POOLS]; /* 0: as many as wanted */
	struct gp_sim_worker worker[GP_SIM_WORKERS];
	struct gp_sim_way way[GP_SIM_WAYS];
	struct gp_sim_mover mover[GP_SIM_ENDS]; /* each has both ways */
	struct gp_sim_job running[GP_SIM_RUNNING];
	int count; /* of these */
	uint64_t turns;
	bool full;                                             /* a queue had no room: a mistake of the caller */
	void (*done)(void *arg, const struct gp_sim_job *job); /* a task has ended, now */
	void (*arrived)(void *arg, int way,
			const struct gp_sim_job *frame); /* the last byte of a frame has come, now */
	void *arg;
};

/* Rates, processors, workers (pool, threads, most, lanes), movers, callbacks and sizes are filled in, the rest is zero. Each
 * queue gets room
 * for `room` jobs. */
enum gp_status gp_sim_init(struct gp_sim *s, struct gp_err *err);
/* Safe on a zeroed struct. */
void gp_sim_deinit(struct gp_sim *s);
void gp_sim_submit(struct gp_sim *s, int worker, int lane, int priority, int what, uint64_t number, double work_s);
/* The lower class is the more urgent one. */
void gp_sim_send(struct gp_sim *s, int way, int klass, int what, uint64_t number, double bytes);
/* False: nothing is left to happen, or the caller made a mistake. */
bool gp_sim_next(struct gp_sim *s);

#endif
