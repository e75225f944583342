/* SPDX-License-Identifier: Apache-2.0
 *
 * A file of weights from checkpoints: the client's, which has the whole model of
 * a local run, and head and tail of a split one; and the server's of the same
 * step, which has the body. From folders no model is built: a checkpoint has its
 * parameters under their names. From a server the body is fetched
 * (run_weights.h). What the checkpoint says about the model goes along
 * (saved_model.h).
 *
 * Threads: the main thread. Tests: tests/e2e/saved_model.sh, tests/e2e/export_server.sh
 */
#ifndef GP_MODEL_EXPORT_H
#define GP_MODEL_EXPORT_H

#include "client/job/job.h"
#include "common/store/manifest.h"

struct gp_model_export {
	const char *checkpoint;               /* a client's folder, or one checkpoint in it: DIR/step-000000000300 */
	const char *state_dir;                /* of the server, on this machine; NULL: not given */
	const struct gp_job_settings *server; /* --server and its credential, in place of that; NULL: not given */
	/* With `server`: the flags of the run, from its checkpoint's spec; `r` keeps the texts. */
	enum gp_status (*read_run)(const struct gp_pairs *spec, struct gp_job_settings *job, struct gp_optim *optim,
				   struct gp_options_result *r, struct gp_err *err);
	const char *out;
	/* What was written. */
	uint64_t step;
	int tensors;
	bool knows_model; /* the file says which model it is of */
	long recalibrated; /* batches of the run's --recalibrate, whose last pass comes behind its last checkpoint; 0: none */
};

enum gp_status gp_model_export(struct gp_model_export *x, struct gp_err *err);

#endif
