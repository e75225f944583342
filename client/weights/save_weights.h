/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing the weights that a training has made where they were asked for, or, when
 * that fails, anywhere else: they may have taken days.
 *
 * Threads: any. Test: tests/e2e/saved_model.sh
 */
#ifndef GP_SAVE_WEIGHTS_H
#define GP_SAVE_WEIGHTS_H

#include "common/graph/weights.h"

/*
 * GP_IO when `path` could not be written; err says why. A line on standard error has said by then where they are
 * instead: in the folder `checkpoints` (NULL:
 * none), in the current one, in $TMPDIR or in /tmp, the first of these that takes them.
 */
enum gp_status gp_save_somewhere(const struct gp_weights *w, const char *path, const char *checkpoints,
				 const struct gp_st_pair *meta, int count, struct gp_err *err);

#endif
