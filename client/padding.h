/* SPDX-License-Identifier: Apache-2.0
 *
 * What --pad comes to: whether chunks are as long as their longest text. That
 * needs a model whose sequences may be shorter and which does not read padding,
 * data that says how long a text is, and codecs that can code shorter tensors.
 * Whether the devices of both ends can, the engines find out (engine.h).
 *
 * Threads: any. Test: tests/unit/test_sequences.c, tests/e2e/padding.sh
 */
#ifndef GP_PADDING_H
#define GP_PADDING_H

#include "client/job.h"

/*
 * Sets drop_padding of a job whose graph, cut and codecs are settled. GP_INVALID: --pad drop was asked for, and why it
 * cannot be. With --pad auto a line of the log says so instead, and every text is filled up.
 */
enum gp_status gp_padding_settle(struct gp_job *j, const struct gp_dataset *d, struct gp_err *err);

#endif
