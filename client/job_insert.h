/* SPDX-License-Identifier: Apache-2.0
 *
 * What of a job's insertions starts from data: start=pca. And where the values
 * that an insertion works on come from, for `insert-fit`.
 *
 * Threads: the main thread. Test: tests/e2e/insert.sh
 */
#ifndef GP_JOB_INSERT_H
#define GP_JOB_INSERT_H

#include "client/insert_values.h"
#include "client/job.h"

/* The model of a built job without its insertions. */
enum gp_status gp_job_plain_graph(const struct gp_job *j, const struct gp_dataset *d, struct gp_graph **out,
				  struct gp_err *err);
/* The weights that a built job starts with, in j->init: drawn where there is no --init. */
enum gp_status gp_job_draw_weights(struct gp_job *j, struct gp_err *err);
/* The source of values for a built job with weights. `plain` and `loader` outlive it. */
struct gp_insert_source gp_job_insert_source(const struct gp_job *j, const struct gp_graph *plain,
					     struct gp_loader *loader);
/*
 * For a job that begins to train: the weights of insertions that start by PCA and are not in the file of --init, from the
 * samples of `d`. Does nothing where there are none.
 */
enum gp_status gp_job_start_insertions(struct gp_job *j, struct gp_dataset *d, struct gp_err *err);

#endif
