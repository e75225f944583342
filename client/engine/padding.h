/* SPDX-License-Identifier: Apache-2.0
 *
 * Decides, from --pad, whether chunks are only as long as their longest text. That
 * needs a model whose sequences may be shorter and which does not read padding,
 * data that says how long a text is, and codecs that can code shorter tensors. The
 * engines find out whether the devices of both ends can do it (engine.h).
 *
 * Threads: any. Test: tests/unit/test_padding.c, tests/e2e/padding.sh
 */
#ifndef GP_PADDING_H
#define GP_PADDING_H

#include "client/job/job.h"

/*
 * Sets drop_padding of a job whose graph, cut and codecs are settled. GP_INVALID: --pad drop was asked for and is not
 * possible; the error says why. With --pad auto a line of the log says why, and every text is padded to the model's length.
 */
enum gp_status gp_padding_settle(struct gp_job *j, const struct gp_dataset *d, struct gp_err *err);

#endif
