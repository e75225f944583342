/* SPDX-License-Identifier: Apache-2.0
 *
 * When something was done: the stages that a chunk passes through at both ends, each as an interval of time, and the message
 * INTERVALS by which a server tells a client of its own. PROTOCOL.md section 5.9. What is made of them is not here: the
 * critical path of a step (client/trace/critical_path.h) and the file of --trace (client/trace/trace.h).
 *
 * Times are nanoseconds of the clock of the end that measured them (gp_now_ns); client/trace/clock_offset.h says how far
 * the clocks of both ends are apart.
 *
 * Threads: any; pure functions, but for gp_control_send_intervals: the loop thread. Test: tests/unit/test_interval.c
 */
#ifndef GP_INTERVAL_H
#define GP_INTERVAL_H

#include "common/wire/control.h"

/* In the order in which a chunk passes through them. The numbers of those of the server are wire ids: pinned. */
enum gp_interval_stage {
	GP_AT_HEAD_FORWARD = 0,
	GP_AT_ACT_UP_ENCODE = 1,
	GP_AT_ACT_UP_SENT = 2,     /* begin: its first byte is handed to the kernel; end: its last one is */
	GP_AT_ACT_UP_RECEIVED = 3, /* begin: its header is there; end: its last byte is */
	GP_AT_ACT_UP_DECODE = 4,
	GP_AT_BODY_FORWARD = 5,
	GP_AT_ACT_DOWN_ENCODE = 6,
	GP_AT_ACT_DOWN_SENT = 7,
	GP_AT_ACT_DOWN_RECEIVED = 8,
	GP_AT_ACT_DOWN_DECODE = 9,
	GP_AT_TAIL = 10, /* forward, loss and backward */
	GP_AT_GRAD_UP_ENCODE = 11,
	GP_AT_GRAD_UP_SENT = 12,
	GP_AT_GRAD_UP_RECEIVED = 13,
	GP_AT_GRAD_UP_DECODE = 14,
	GP_AT_BODY_BACKWARD = 15,
	GP_AT_GRAD_DOWN_ENCODE = 16,
	GP_AT_GRAD_DOWN_SENT = 17,
	GP_AT_GRAD_DOWN_RECEIVED = 18, /* where there is none: CHUNK_DONE */
	GP_AT_GRAD_DOWN_DECODE = 19,
	GP_AT_HEAD_BACKWARD = 20,
	GP_AT_CHUNK_DONE = 21, /* a moment: the chunk is through */
	GP_AT_CHUNK_STAGES = 22,
	/* of a step */
	GP_AT_BODY_UPDATE = 22,
	GP_AT_BODY_CHECKPOINT = 23,
	/* what follows is of the client alone, and of its trace */
	GP_AT_TAIL_FORWARD = 24,
	GP_AT_LOSS,
	GP_AT_TAIL_BACKWARD,
	GP_AT_UPDATE,
	GP_AT_COMMIT,  /* from COMMIT to COMMITTED */
	GP_AT_SQUARES, /* a moment: GRAD_SQUARES has come */
	GP_AT_STEP,
	GP_AT_BATCH, /* waiting for the loader's next batch */
	GP_AT_CHECKPOINT,
	GP_AT_VALIDATION,
	GP_AT_STATISTICS,    /* --recalibrate */
	GP_AT_MODEL_FORWARD, /* of a local run */
	GP_AT_MODEL_LOSS,
	GP_AT_MODEL_BACKWARD,
	GP_AT_STAGES
};

struct gp_interval {
	enum gp_interval_stage stage;
	uint16_t tensor; /* of what is encoded, sent, received or decoded; else 0 */
	uint64_t
		number; /* of the chunk, counted over all steps; of what is not of a chunk: the first one of the step */
	uint64_t queued_ns, begin_ns, end_ns; /* queued: since when it could have begun */
	uint64_t bytes;                       /* of the payload; 0: not known. It does not travel */
};

#define GP_INTERVALS_MAX 64 /* of one message */

/* Names, as "act_up encode". */
const char *gp_interval_stage_name(enum gp_interval_stage stage);
/* Whether it is one that a server measures. */
bool gp_interval_of_server(enum gp_interval_stage stage);

/* Most bytes of INTERVALS. */
#define GP_CONTROL_INTERVALS_BYTES (64u + GP_INTERVALS_MAX * 6u * 10u)

/* At most GP_INTERVALS_MAX of them, of chunks of steps near `step`; and the last PING that has come (gp_channel_ping_taken). */
enum gp_status gp_control_send_intervals(struct gp_channel *ch, uint64_t step, uint32_t chunks,
					 const struct gp_interval *interval, int count, struct gp_err *err);
/*
 * Total: any message gives up to GP_INTERVALS_MAX intervals of stages of a server, with queued <= begin <= end by its clock, or
 * GP_PROTO. Numbers may be of any chunk.
 */
enum gp_status gp_intervals_read(const Gpsplit__Intervals *m, uint32_t chunks, struct gp_interval out[GP_INTERVALS_MAX],
				 int *count, struct gp_err *err);

#endif
