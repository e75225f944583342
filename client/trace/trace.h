/* SPDX-License-Identifier: Apache-2.0
 *
 * The file of --trace: when both ends did what, in the format of Chrome's trace viewer, which Perfetto (ui.perfetto.dev) opens: a
 * JSON array of events. A thread of its own writes it, from a queue of fixed size: a slow disk costs events, which are counted,
 * and never time. The array is ended when the trace is closed; viewers read one of a killed process, which has no end, as well.
 *
 * What is left out: steps outside of those asked for, and what comes behind the limit of bytes.
 *
 * Threads: gp_trace_put any one at a time. Test: tests/unit/test_trace.c, tests/e2e/trace.sh
 */
#ifndef GP_TRACE_H
#define GP_TRACE_H

#include "client/trace/clock_offset.h"
#include "common/wire/interval.h"

#define GP_TRACE_PATH 1024

struct gp_trace_spec {
	const char *path;
	bool resumed; /* a file that is there is left alone, and the next free one of FILE.2, FILE.3, ... taken */
	uint64_t first, last; /* steps, the first of the run is 1; last 0: to the end */
	uint64_t limit_bytes;
	bool split; /* with a server */
};

struct gp_trace;

/* GP_INVALID: the file cannot be made, or holds something already. */
enum gp_status gp_trace_open(const struct gp_trace_spec *spec, struct gp_trace **out, struct gp_err *err);
/* The file's name. */
const char *gp_trace_path(const struct gp_trace *t);
/* By this side's clock. */
void gp_trace_put(struct gp_trace *t, const struct gp_interval *i, uint32_t chunks);
/* From here on times of the server were moved by this. */
void gp_trace_put_clock(struct gp_trace *t, const struct gp_clock_estimate *clock, uint64_t now_ns, uint64_t step);
/* Writes what is queued and ends the array; a file that nothing was put to is removed. Fails when anything could not be written.
 * NULL is fine. */
enum gp_status gp_trace_close(struct gp_trace *t, struct gp_err *err);

/* "A:B", "A:", ":B" or "A": steps from the first to the last one. GP_USAGE. */
enum gp_status gp_trace_steps_read(const char *text, uint64_t *first, uint64_t *last, struct gp_err *err);

#endif
