/* SPDX-License-Identifier: Apache-2.0
 *
 * What the rows of a bench have come to, and the file that keeps it, so that a bench goes on where it was stopped
 * (--results): JSON lines, each written and synced by itself. client/JSON.md has their keys.
 *
 *   sweep        the first line: the settings that all rows share. A file with others is refused, and stays as it is
 *   prediction   of a row
 *   run          a row that ran, in a round
 *   failure      a row that did not: it is run again the next time
 *
 * A line that a crash has cut short is taken off; any other line that cannot be read is an error, as it may be
 * somebody's.
 *
 * Threads: the main thread. Test: tests/unit/test_bench_results.c
 */
#ifndef GP_BENCH_RESULTS_H
#define GP_BENCH_RESULTS_H

#include <jansson.h>

#include "client/bench/bench_rows.h"
#include "client/trace/bound_by.h"

/* Medians over the steps of a run that count, of a step, unless they say otherwise. NAN: was not measured. */
enum gp_bench_figure {
	GP_BENCH_TIME,
	GP_BENCH_LOWEST,        /* time of the fastest step */
	GP_BENCH_RATE,          /* payload bytes by uncompressed bytes, over all steps that count */
	GP_BENCH_UP_BYTES_S,    /* received by the server's kernel, over the step */
	GP_BENCH_DOWN_BYTES_S,  /* received here */
	GP_BENCH_WIRE_UP_BYTES, /* of a step, on the wire */
	GP_BENCH_WIRE_DOWN_BYTES,
	GP_BENCH_COMPUTE, /* this side's compute thread was busy */
	GP_BENCH_BODY,    /* the server's computing, as far as it bounded the step */
	GP_BENCH_ENCODE,  /* here; so are the others */
	GP_BENCH_WIRE,    /* from a frame's first byte to its last, written or read, summed over frames */
	GP_BENCH_WAIT,    /* from arrived to the begin of work on it, summed over frames */
	GP_BENCH_DECODE,
	GP_BENCH_ACCURACY, /* of the last evaluation */
	GP_BENCH_LOSS,     /* of the last evaluation */
	GP_BENCH_FIGURES
};

struct gp_bench_run {
	struct gp_bench_key key;
	int round; /* from 1 */
	int steps; /* that counted */
	double figure[GP_BENCH_FIGURES];
	char bound_by[16];     /* the largest part of the steps' time, as in JSON; "": not known */
	char why[GP_ERR_TEXT]; /* it failed; "": it did not */
};

struct gp_bench_prediction {
	struct gp_bench_key key;
	double time_s;
	char bound_by[16];
	char why[GP_ERR_TEXT]; /* there is none; "": there is */
};

struct gp_bench_results {
	struct gp_bench_run *run;
	struct gp_bench_prediction *prediction;
	int runs, predictions;
	/* private */
	char *path; /* NULL: kept in memory alone */
	int fd, line;
};

/* The key of a figure in JSON. */
const char *gp_bench_figure_name(enum gp_bench_figure f);

/*
 * Reads `path`, or makes it; NULL: nothing is kept. `settings`: an object of texts, by the names of their flags; stays
 * the caller's. GP_INVALID: the file is of another sweep, of something else, or damaged, or another bench writes to it. A
 * file of another sweep that has no row yet, as one that was refused its data, begins anew.
 */
enum gp_status gp_bench_results_open(struct gp_bench_results *r, const char *path, json_t *settings,
				     struct gp_err *err);
/* Safe on a zeroed struct. */
void gp_bench_results_close(struct gp_bench_results *r);
/* Keeps it, in the file first. */
enum gp_status gp_bench_results_add_run(struct gp_bench_results *r, const struct gp_bench_run *run, struct gp_err *err);
enum gp_status gp_bench_results_add_prediction(struct gp_bench_results *r, const struct gp_bench_prediction *p,
					       struct gp_err *err);
/* The run of that round that did not fail, and the newest that did; NULL: there is none. */
const struct gp_bench_run *gp_bench_results_done(const struct gp_bench_results *r, const struct gp_bench_key *key,
						 int round);
const struct gp_bench_run *gp_bench_results_failed(const struct gp_bench_results *r, const struct gp_bench_key *key,
						   int round);
const struct gp_bench_prediction *gp_bench_results_predicted(const struct gp_bench_results *r,
							     const struct gp_bench_key *key);

#endif
