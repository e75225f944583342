/* SPDX-License-Identifier: Apache-2.0
 *
 * What a training run is, as names and texts: the flags that decide its result,
 * kept in its checkpoints and compared when it goes on (manifest.h: spec).
 *
 * Threads: any; nothing here is kept between calls. Test: tests/e2e/checkpoint.sh
 */
#ifndef GP_RUN_SPEC_H
#define GP_RUN_SPEC_H

#include "client/job/job.h"
#include "common/store/manifest.h"

/* Zeroed to begin with. Owns the texts of its pairs. */
struct gp_run_spec {
	struct gp_pairs pairs;
};

/* Another value for what was added, before the first checkpoint. */
enum gp_status gp_run_spec_set(struct gp_run_spec *s, const char *key, const char *value, struct gp_err *err);
enum gp_status gp_run_spec_add(struct gp_run_spec *s, const char *key, const char *value, struct gp_err *err);
/* The value of an option; `name` must stay. */
enum gp_status gp_run_spec_add_flag(struct gp_run_spec *s, const struct gp_opt_table *t, const void *settings,
				    const char *name, struct gp_err *err);
/* Cut, codecs, this side's precision, starting weights and graph of a built job. */
enum gp_status gp_run_spec_add_job(struct gp_run_spec *s, const struct gp_job *j, struct gp_err *err);
void gp_run_spec_deinit(struct gp_run_spec *s);

#endif
