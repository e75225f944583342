/* SPDX-License-Identifier: Apache-2.0
 *
 * Predicts the rows of a bench before they run, as `gpclient plan` would: for each cut, what blocks, codecs and the
 * server take is measured (plan_study.h); then every row of that cut is predicted. Also where everything that is wrong
 * with model, data and cuts is found before the first row.
 *
 * Threads: the main thread. Test: tests/e2e/bench.sh
 */
#ifndef GP_BENCH_PREDICT_H
#define GP_BENCH_PREDICT_H

#include "client/bench/bench_results.h"
#include "client/job/job.h"
#include "client/log/progress.h"
#include "common/graph/optim.h"

struct gp_bench_predict_spec {
	const struct gp_job_settings *job; /* without cut, chunks and codec */
	struct gp_optim optim;
	const struct gp_bench_sweep *sweep;
	double seconds;               /* to compute for each number of chunks */
	int same_machine;             /* enum gp_plan_same_machine */
	bool measure;                 /* false: nothing but a look whether all fits together */
	struct gp_progress *progress; /* hears what is measured */
	const volatile sig_atomic_t *stop;
};

/*
 * Adds predictions of those rows of cut number `cut` that have none, also of rows that cannot be predicted, with the
 * reason. GP_USAGE, GP_INVALID: model, data or the cut cannot be. GP_PEER and the like: the server cannot be reached,
 * or refuses.
 */
enum gp_status gp_bench_predict_cut(const struct gp_bench_predict_spec *spec, int cut, struct gp_bench_results *results,
				    struct gp_err *err);

#endif
