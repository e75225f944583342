/* SPDX-License-Identifier: Apache-2.0
 *
 * What commands do about pictures that cannot be read and about input that is
 * suspicious: a check before the first step, --skip-bad, and warnings. What is
 * wrong is found by client/data/data_check.h.
 *
 * Threads: the main thread. Test: tests/e2e/bad_data.sh
 */
#ifndef GP_BAD_DATA_H
#define GP_BAD_DATA_H

#include "client/job/job.h"

/* Over all splits of a run; zeroed to begin with. */
struct gp_left_out {
	uint32_t samples, training;
	bool told;      /* that --skip-bad does nothing for this data */
	uint64_t names; /* a sum of the names of the training samples, for telling two such sets apart */
};

/*
 * Before a loader is made. Without --skip-bad: GP_INVALID when the header of a picture, its size or its end is wrong, with
 * the first one. With --skip-bad N every picture is decoded, and up to N of a run, told one by one, are left out of `d`;
 * GP_INVALID when there are more. Which they are depends on the files alone. With --skip-bad and data without pictures:
 * GP_USAGE; with pictures that lie in a few large files, which are good or bad as a whole: a warning.
 */
enum gp_status gp_leave_out_bad(const struct gp_job_settings *s, enum gp_split split, struct gp_dataset *d,
				struct gp_left_out *out, struct gp_err *err);
/* The training data as checkpoints compare it: `spec` alone, or "SPEC without 3 pictures (<16 hex digits>)". */
void gp_left_out_text(const struct gp_left_out *o, const char *spec, char *text, size_t size);

/* Warns, once each, of labels that are all the same and of mean= and std= on the wrong scale. `what`: "training". */
void gp_warn_of_data(const char *spec, const struct gp_dataset *d, const char *what);

#endif
