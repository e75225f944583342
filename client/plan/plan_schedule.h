/* SPDX-License-Identifier: Apache-2.0
 *
 * A model of a training step, split over a link: how long a batch takes in the steady state, and what bounds it,
 * from how long each stage of a chunk takes by itself. A small simulation by events of what engine_split.c and
 * server/body.c do. For predictions; what stages take is measured elsewhere (plan_blocks.h, plan_codecs.h,
 * plan_server.h).
 *
 * Rules of the simulation, which are those of the engine:
 *
 *   chunks         one forward, one backward, in the order of their numbers, `window` of them in flight at most
 *   computing      one chunk at a time at each end, in the order of common/wire/chunk_order.h
 *   codecs         one thread here, some on the server; tensors of one direction one after another, directions take
 *                  turns
 *   wire           each way by itself, at its rate; frames in segments, GRAD_UP and ACT_DOWN before ACT_UP and
 *                  GRAD_DOWN at each segment, but not before what the sender's kernel holds and the segments that
 *                  are being written; every byte arrives a delay after it left
 *   step           COMMIT goes up when all chunks are through and the step before is COMMITTED; the update here ends
 *                  the step. Where the head is frozen the next step's chunks begin before (`ahead`)
 *   processors     a task computes with so many threads. While more threads want to run than an end has processors,
 *                  all of that end are slowed down alike. Two ends on one machine share its processors
 *   moving bytes   the thread of each end that sends and receives takes processor time for every byte, the kernel's
 *                  included (`byte_s`). It gets what it wants up to a thread's fair share; a way is slowed down where
 *                  that is too little, and tasks where it is much
 *
 * A queue on the way is tried empty, full and between, and the mean counts.
 *
 * Not modelled: TCP's slow start and lost packets, other sessions on the server, checkpoints, memory bandwidth that
 * tasks share, and, with an end on each machine, what the kernel does for the link in the time of nobody (a qdisc that
 * sends later, interrupts): with both ends on one, `byte_s` has it (plan_link.h).
 *
 * Threads: any; pure. Test: tests/unit/test_plan_schedule.c
 */
#ifndef GP_PLAN_SCHEDULE_H
#define GP_PLAN_SCHEDULE_H

#include "client/trace/bound_by.h"
#include "common/base/status.h"
#include "common/wire/direction.h"

enum gp_plan_end { GP_PLAN_CLIENT, GP_PLAN_SERVER, GP_PLAN_ENDS };

/* The tensors of one direction, of a chunk. */
struct gp_plan_flow {
	bool crosses;
	double wire_bytes; /* payload with all headers */
	double encode_s, decode_s;
};

struct gp_plan_way {
	double bytes_per_s; /* 0: as fast as it goes */
	double delay_s;     /* of an empty message, one way */
	double queue_bytes; /* that wait on a full way, at most, behind the sender's kernel, and that nothing overtakes */
};

struct gp_plan_side {
	double processors; /* 0: as many as wanted */
	int threads;       /* that a computing task takes */
	int codec_threads; /* tasks of codecs at once, one thread each */
	double byte_s;     /* processor time of a byte that is sent or received; 0: none counts */
};

struct gp_plan_schedule {
	int chunks, window;
	bool ahead; /* the head is frozen, so that the next step's chunks need not wait for the end of this one */
	bool clips; /* the update waits for the norm of the server's gradients */
	/* Seconds of a chunk; 0: there is no such pass. */
	double head_forward_s, tail_s, head_backward_s, body_forward_s, body_backward_s;
	double update_s, body_update_s; /* of a step */
	double load_s;                  /* one thread of this side makes the next batch, some batches ahead */
	struct gp_plan_flow flow[GP_DIRECTIONS];
	struct gp_plan_way up, down;
	struct gp_plan_side end[GP_PLAN_ENDS];
	bool same_machine;    /* both ends have the processors of end[GP_PLAN_CLIENT] */
	double segment_bytes; /* 0: as both ends agree on by themselves */
	double kernel_bytes;  /* that a sender's kernel takes before it holds the sender back; 0: as gpsplit tells it */
};

struct gp_plan_time {
	double time_per_batch_s;
	struct gp_bound_by bound; /* its parts add up to the time; steps 0: more chunks than critical_path.h measures */
};

/* GP_INVALID: numbers that are not finite, below 0, or more chunks than can be simulated. */
enum gp_status gp_plan_schedule_find(const struct gp_plan_schedule *s, struct gp_plan_time *out, struct gp_err *err);

#endif
