/* SPDX-License-Identifier: Apache-2.0
 *
 * A job's insertions before the first step: sets the weights of those with start=pca,
 * and tells `insert-fit` where the values at a cut come from.
 *
 * Threads: the main thread. Test: tests/e2e/insert.sh
 */
#ifndef GP_JOB_INSERT_H
#define GP_JOB_INSERT_H

#include "client/insert/insert_values.h"
#include "client/job/job.h"

/* The model of a built job without its insertions. */
enum gp_status gp_job_plain_graph(const struct gp_job *j, const struct gp_dataset *d, struct gp_graph **out,
				  struct gp_err *err);
/* Makes the weights that a built job starts with, j->init: drawn from the seed where there is no --init. */
enum gp_status gp_job_draw_weights(struct gp_job *j, struct gp_err *err);
/* The source of values for a built job with weights. `plain` and `loader` outlive it. */
struct gp_insert_source gp_job_insert_source(const struct gp_job *j, const struct gp_graph *plain,
					     struct gp_loader *loader);
/*
 * For a job that begins to train: finds the weights of insertions with start=pca that the file of --init does not have, from
 * the samples of `d`. Does nothing where there are no such insertions.
 */
enum gp_status gp_job_start_insertions(struct gp_job *j, struct gp_dataset *d, struct gp_err *err);
/* For a built job that does not train, of `command`: GP_USAGE where such weights are still to be found. */
enum gp_status gp_job_check_started(const struct gp_job *j, const char *command, struct gp_err *err);
/* Says where a training of `steps` steps ends before all changes of rank that --insert decay asks for. */
void gp_job_warn_of_ranks(const struct gp_job *j, uint64_t steps);

#endif
