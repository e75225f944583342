/* SPDX-License-Identifier: Apache-2.0
 *
 * The labels of a table of texts as values to predict (regression).
 *
 * Threads: any. Test: tests/unit/test_data_texts.c
 */
#ifndef GP_TEXT_VALUES_H
#define GP_TEXT_VALUES_H

#include "client/data/text_table.h"
#include "common/base/value.h"

struct gp_value_range {
	double least, most;
};

/* False: the label is no number, or outside of `range` (NULL: any finite number of a float); `why` says so. */
bool gp_text_value_parse(struct gp_text label, const struct gp_value_range *range, float *out, char why[GP_VALUE_WHY]);
/* A float for each row; free by gp_free. GP_INVALID names the line of `path` whose label cannot be
 * parsed. */
enum gp_status gp_text_values_read(const struct gp_table *table, const char *path, const struct gp_value_range *range,
				   float **out, struct gp_err *err);

#endif
