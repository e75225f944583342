/* SPDX-License-Identifier: Apache-2.0
 *
 * --precision auto (common/graph/precision_trial.h): the choice is made while an
 * engine opens, by each side for its own part; from then on the job is one of that
 * precision, and so are its checkpoints. A run that goes on has the precision of its
 * checkpoints, and tries nothing.
 *
 * Threads: the caller's. Test: tests/e2e/precision.sh
 */
#ifndef GP_JOB_PRECISION_H
#define GP_JOB_PRECISION_H

#include "client/job/job.h"

/* Before gp_job_begin of a run that goes on: --precision auto becomes what the newest checkpoint in `dir` has, and so does
 * --client-precision auto. Nothing changes where there is none that can be read. */
enum gp_status gp_job_keep_precision(struct gp_job_settings *set, const char *dir, struct gp_err *err);
/* After gp_job_open_engine: the job has the precisions that were chosen, and a line on stderr says which. */
void gp_job_take_precision(struct gp_job *j);

#endif
