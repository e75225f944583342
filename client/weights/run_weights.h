/* SPDX-License-Identifier: Apache-2.0
 *
 * The weights of a split run as of its newest checkpoint: head and tail from
 * the client's folder, the body from the server's checkpoint of the same step.
 * The session is opened as by a training that goes on (PROTOCOL.md section 5.7),
 * as the same client of the same run; no step is taken in it, and no data is
 * needed. While a training uses the folder, its lock keeps this one out.
 *
 * Threads: the main thread. Test: tests/e2e/export_server.sh
 */
#ifndef GP_RUN_WEIGHTS_H
#define GP_RUN_WEIGHTS_H

#include "client/job/job.h"
#include "client/weights/saved_model.h"
#include "common/store/manifest.h"

struct gp_run_weights_spec {
	const char *dir;                    /* of --checkpoint */
	const struct gp_manifest *manifest; /* of the newest one there: what the run is */
	const struct gp_saved_model *saved; /* what its state file says about the model */
	const struct gp_optim *optim;
};

/* Zeroed to begin with. */
struct gp_run_weights {
	struct gp_job job;
	struct gp_run_state *run;
	struct gp_weights *weights;
	uint64_t step; /* as of which they are */
};

/* `set`: the run's flags, and the server; it outlives `w`. */
enum gp_status gp_run_weights_fetch(struct gp_run_weights *w, struct gp_job_settings *set,
				    const struct gp_run_weights_spec *spec, struct gp_err *err);
void gp_run_weights_deinit(struct gp_run_weights *w);

#endif
