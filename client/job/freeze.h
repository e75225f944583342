/* SPDX-License-Identifier: Apache-2.0
 *
 * --freeze: which parameters of a model stay as they are.
 *
 * Threads: the main thread. Test: tests/unit/test_freeze.c
 */
#ifndef GP_FREEZE_H
#define GP_FREEZE_H

#include "common/graph/graph_part.h"

/*
 * `list`: parameter names with shell wildcards ("features.0.*"), or "head", "body", "tail" for all of that part of the
 * cut, separated by commas. *frozen gets how many parameters are frozen now. GP_USAGE names a pattern that fits no
 * parameter, and what was probably meant; or nothing would be left to train.
 */
enum gp_status gp_freeze(struct gp_graph *g, const struct gp_cut *cut, const char *list, int *frozen,
			 struct gp_err *err);

#endif
