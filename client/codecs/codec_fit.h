/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether the codecs that a user chose fit the tensors that cross the cuts of
 * the model: asked before a server is, and answered in the words of the flags.
 *
 * Threads: any; pure functions. Test: tests/e2e/bad_input.sh
 */
#ifndef GP_CODEC_FIT_H
#define GP_CODEC_FIT_H

#include "client/job/job.h"

/* The job is built and has a server. GP_INVALID names the direction, its flag and the reason. */
enum gp_status gp_codecs_fit(const struct gp_job *j, struct gp_err *err);

#endif
