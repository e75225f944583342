/* SPDX-License-Identifier: Apache-2.0
 *
 * What `gpclient bench` says at its end: a line for each row with its figures, taken together over the rounds, its
 * speed-up against `raw` of the same cut, chunks and link, and the prediction beside it; what more chunks have gained;
 * the same as JSON (client/JSON.md).
 *
 * Threads: any. Test: tests/unit/test_bench_table.c, tests/e2e/bench.sh
 */
#ifndef GP_BENCH_TABLE_H
#define GP_BENCH_TABLE_H

#include "client/bench/bench_results.h"

struct gp_bench_row {
	struct gp_bench_key key;
	int rounds; /* that ran; 0: figures are NAN */
	int steps;  /* in all of them */
	/* The middle one of the rounds; of GP_BENCH_LOWEST the least. */
	double figure[GP_BENCH_FIGURES];
	const char *bound_by;                         /* of the newest round; "": not known */
	const char *why;                              /* no round ran: why; "": not tried */
	const struct gp_bench_prediction *prediction; /* NULL: none was made */
	double speed_up;                              /* time of raw by that of this row; NAN: raw did not run */
	double off; /* predicted by measured time, less 1; NAN: one of them is missing */
};

struct gp_bench_table {
	struct gp_bench_row *row;
	int rows;
};

/* Points into `results` until gp_bench_table_deinit. */
enum gp_status gp_bench_table_make(const struct gp_bench_sweep *s, const struct gp_bench_results *results, int rounds,
				   struct gp_bench_table *out, struct gp_err *err);
void gp_bench_table_deinit(struct gp_bench_table *t);

void gp_bench_table_print(const struct gp_bench_table *t, FILE *to);
/* What the most chunks of the sweep have gained against the fewest, a line for each link: how much less time a batch
 * took, with each cut and codec. Prints nothing where there is one number of chunks alone. */
void gp_bench_chunks_print(const struct gp_bench_sweep *s, const struct gp_bench_table *t, FILE *to);
/* {"rows":[...],"pipelining":[...]}; a new reference, NULL: out of memory. */
json_t *gp_bench_table_json(const struct gp_bench_sweep *s, const struct gp_bench_table *t);

#endif
