/* SPDX-License-Identifier: Apache-2.0
 *
 * --no-decay: which parameters of a model are trained without weight decay. The
 * usual choice are biases and the weights of norms. What the body has of them
 * travels in OPEN with the graph (Init.no_decay of proto/gpsplit.proto).
 *
 * Threads: the main thread. Test: tests/unit/test_freeze.c
 */
#ifndef GP_NO_DECAY_H
#define GP_NO_DECAY_H

#include "common/graph/graph.h"

/*
 * `list`: parameter names with shell wildcards ("*.bias"), separated by commas. *without gets how many trained parameters
 * have no decay now. GP_USAGE names a pattern that fits no parameter, and what was probably meant.
 */
enum gp_status gp_no_decay(struct gp_graph *g, const char *list, int *without, struct gp_err *err);

#endif
