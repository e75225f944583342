/* SPDX-License-Identifier: Apache-2.0
 *
 * The labels of a table of texts as values to predict (regression).
 *
 * Threads: any. Test: tests/unit/test_data_texts.c
 */
#ifndef GP_TEXT_VALUES_H
#define GP_TEXT_VALUES_H

#include "client/data/text_table.h"

struct gp_value_range {
	double least, most;
};

/* A float for each row; free by gp_free. GP_INVALID names the line of `path` whose label is no number, or outside of
 * `range` (NULL: any finite number of a float). */
enum gp_status gp_text_values_read(const struct gp_table *table, const char *path, const struct gp_value_range *range,
				   float **out, struct gp_err *err);

#endif
