/* SPDX-License-Identifier: Apache-2.0
 *
 * A file of weights from checkpoints: the client's, which has the whole model of
 * a local run, and head and tail of a split one; and the server's of the same
 * step, which has the body. No model is built: a checkpoint has its parameters
 * under their names, and what it says about the model goes along
 * (saved_model.h).
 *
 * Threads: any. Test: tests/e2e/saved_model.sh
 */
#ifndef GP_MODEL_EXPORT_H
#define GP_MODEL_EXPORT_H

#include "common/base/status.h"

struct gp_model_export {
	const char *checkpoint; /* a client's folder, or one checkpoint in it: DIR/step-000000000300 */
	const char *state_dir;  /* of the server, on this machine; NULL: not given */
	const char *out;
	/* What was written. */
	uint64_t step;
	int tensors;
	bool knows_model; /* the file says which model it is of */
};

enum gp_status gp_model_export(struct gp_model_export *x, struct gp_err *err);

#endif
