/* SPDX-License-Identifier: Apache-2.0
 *
 * The times of all that is done in a training, as an engine and its trainer see it: every stage of every chunk is noted here,
 * and what the server tells of its own stages, by this side's clock. From these notes come what bounded each step
 * (critical_path.h) and, where one is asked for, the file of --trace (trace.h). Notes of a step are forgotten with it.
 *
 * A NULL timeline takes every note and drops it.
 *
 * Threads: the engine's own. Steady state allocates nothing. Test: tests/unit/test_timeline.c, tests/e2e/trace.sh
 */
#ifndef GP_TIMELINE_H
#define GP_TIMELINE_H

#include "client/trace/bound_by.h"
#include "client/trace/clock_offset.h"
#include "common/wire/interval.h"

struct gp_timeline;
struct gp_trace;

/* `trace` (optional) outlives it. `split`: with a link. */
enum gp_status gp_timeline_new(uint32_t chunks, bool split, struct gp_trace *trace, struct gp_timeline **out,
			       struct gp_err *err);
void gp_timeline_free(struct gp_timeline *t);

/* `seen` (optional) is shown every note from here on, also what the server tells of its stages, until another one or NULL is
 * set. One at a time: what keeps whole steps is gp_timeline_record_note (timeline_record.h). */
void gp_timeline_watch(struct gp_timeline *t, void (*seen)(void *arg, const struct gp_interval *i), void *arg);

void gp_timeline_note(struct gp_timeline *t, const struct gp_interval *i);
/* An interval without a time in a queue; a moment where both times are the same. */
void gp_timeline_note_times(struct gp_timeline *t, enum gp_interval_stage stage, uint64_t number, uint64_t begin_ns,
			    uint64_t end_ns);

/* There is a new link, perhaps to another server: forgets what is known of the server's clock. `tells`: the server tells when it
 * did what. `window`: chunks in flight, as agreed. */
void gp_timeline_linked(struct gp_timeline *t, bool tells, uint32_t window);
/* The newest PING that was answered (gp_channel_ping_answered): its round trip. */
void gp_timeline_answered(struct gp_timeline *t, const struct gp_ping_answered *ping);
/* What a server has told (gp_intervals_read). Its times are moved to this side's clock, and none of them is later than now. */
void gp_timeline_told(struct gp_timeline *t, const Gpsplit__Intervals *m, const struct gp_interval *interval,
		      int count);

/* In a local run: what of the step the layers behind the first cut took, and those behind the second. */
void gp_timeline_note_parts(struct gp_timeline *t, uint64_t body_ns, uint64_t tail_ns);

/* A step is over, whose first chunk has this number. *out: what bounded it; out->steps 0: it is not known. */
void gp_timeline_end_step(struct gp_timeline *t, uint64_t first, uint64_t begin_ns, uint64_t end_ns,
			  struct gp_bound_by *out);
/* How far the server's clock is ahead; not known without what the server tells. */
struct gp_clock_estimate gp_timeline_clock(const struct gp_timeline *t);

#endif
