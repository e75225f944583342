/* SPDX-License-Identifier: Apache-2.0
 *
 * What the file of --init says about its weights, and what that means for a job
 * (job.h), which calls both: the model and the preparation of pictures that the
 * user has not given; and a refusal, or a note on standard error, where what is
 * given differs. Loading the values is common/graph/weights.h.
 *
 * Threads: the main thread. Test: tests/e2e/saved_model.sh
 */
#ifndef GP_JOB_INIT_H
#define GP_JOB_INIT_H

#include "client/job/job.h"

/* Reads the file's metadata into j->saved, and fills in `set` what was left out. Nothing without --init. */
enum gp_status gp_job_read_init(struct gp_job *j, struct gp_job_settings *set, struct gp_err *err);
/* The model is built: GP_INVALID where it computes something else than the weights were trained for, unless
 * --init-anyway. */
enum gp_status gp_job_check_init(const struct gp_job *j, const struct gp_dataset *d, struct gp_err *err);

/* The insertions: of the flags, and of the file where no flag names one for that end; then its cut, too, without --cut. */
enum gp_status gp_job_init_insertion(struct gp_job *j, struct gp_job_settings *set, struct gp_err *err);
/* The cut, of the graph without insertions: GP_USAGE where those of the file stand elsewhere,
 * GP_INVALID where the file says a cut that there is not. */
enum gp_status gp_job_read_cut(struct gp_job *j, struct gp_err *err);
/* Puts the insertions into the graph: GP_INVALID where the file's text says what cannot stand there. */
enum gp_status gp_job_put_insertions(struct gp_job *j, struct gp_err *err);
/*
 * Behind that: loads the weights. The head is left out where the file's encoder and the model's have different ones,
 * insertions where only one of file and model has them; lines on standard error say so. GP_USAGE where the file's
 * insertion is another one than the model's. Notes in the job which insertions were loaded.
 */
enum gp_status gp_job_load_init(struct gp_job *j, struct gp_err *err);

#endif
