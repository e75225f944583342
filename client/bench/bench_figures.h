/* SPDX-License-Identifier: Apache-2.0
 *
 * From the log of one training (--log-json) to the figures of a row of `gpclient bench`: medians over its steps,
 * without the first ones.
 *
 * Threads: any. Test: tests/unit/test_bench_table.c
 */
#ifndef GP_BENCH_FIGURES_H
#define GP_BENCH_FIGURES_H

#include "client/bench/bench_results.h"

/* Leaves out the first `skip` steps; fills in figures, steps and bound_by of `run`. GP_INVALID: the log says of no
 * step beyond those, or is no log. */
enum gp_status gp_bench_figures_read(const char *log, int skip, struct gp_bench_run *run, struct gp_err *err);

#endif
