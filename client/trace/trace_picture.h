/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of the file of --trace (trace.h): which row of the picture a stage is drawn in, and its event as JSON. Text is
 * gathered, and written to `fd` in large pieces; what cannot be written is noted in `failed`.
 *
 * Threads: one. Test: tests/unit/test_trace.c
 */
#ifndef GP_TRACE_PICTURE_H
#define GP_TRACE_PICTURE_H

#include "client/trace/clock_offset.h"
#include "common/wire/interval.h"

#define GP_TRACE_ROWS 2000

struct gp_trace_picture {
	/* the caller's, set before anything is drawn */
	int fd;
	const char *path; /* for messages */
	uint64_t begin_ns, limit_bytes;
	/* the picture's */
	char *text;
	size_t length;
	uint64_t written;
	int failed;                      /* errno of the first write that failed; 0: none has */
	bool full, begun;                /* full: the limit is reached */
	bool named[2][GP_TRACE_ROWS];    /* rows */
	uint64_t ends_ns[GP_TRACE_ROWS]; /* of the server's newest event of each */
};

/* On a struct of zeros. */
enum gp_status gp_trace_picture_init(struct gp_trace_picture *p, struct gp_err *err);
void gp_trace_picture_deinit(struct gp_trace_picture *p);

/* What stands before all events; `split`: there is a server. */
void gp_trace_picture_head(struct gp_trace_picture *p, bool split);
void gp_trace_picture_interval(struct gp_trace_picture *p, const struct gp_interval *i, uint32_t chunks);
void gp_trace_picture_clock(struct gp_trace_picture *p, const struct gp_clock_estimate *clock, uint64_t now_ns);
/* Writes what was gathered. */
void gp_trace_picture_flush(struct gp_trace_picture *p);
/* Ends the array; `dropped` events are not in it. */
void gp_trace_picture_end(struct gp_trace_picture *p, uint64_t dropped);

#endif
