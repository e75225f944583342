/* SPDX-License-Identifier: Apache-2.0
 *
 * The error for a pattern of --freeze or --no-decay that fits no parameter of the
 * model, with the name that was probably meant.
 *
 * Threads: any. Test: tests/unit/test_freeze.c
 */
#ifndef GP_PARAM_PATTERN_H
#define GP_PARAM_PATTERN_H

#include "common/graph/graph.h"

/* Always fails, with GP_USAGE or for want of memory. The error begins with `flag` and ends with `hint`, which says what
 * patterns may be. */
enum gp_status gp_param_pattern_refuse(const struct gp_graph *g, const char *flag, const char *pattern,
				       const char *hint, struct gp_err *err);

#endif
