/* SPDX-License-Identifier: Apache-2.0
 *
 * The labels of a table of texts as classes: sorted, whole numbers by value, before
 * words, which are sorted by their bytes; so every file of a data set gives them
 * the same numbers.
 *
 * Threads: any, one at a time for a list. Test: tests/unit/test_data_texts.c
 */
#ifndef GP_TEXT_LABELS_H
#define GP_TEXT_LABELS_H

#include "client/data/text_table.h"

#define GP_TEXT_LABELS_MOST 10000

struct gp_text_labels {                           /* start with {0} */
	struct gp_text name[GP_TEXT_LABELS_MOST]; /* in the table's memory */
	int count;
};

/* Below, at or above 0, as `a` comes before, is, or comes behind `b`. */
int gp_text_labels_compare(struct gp_text a, struct gp_text b);
/* The number of the class of that name; where *there is false, the place where it belongs. */
int gp_text_labels_find(const struct gp_text_labels *l, struct gp_text name, bool *there);
/* Adds a name, if it is new. False: there is no room for it. */
bool gp_text_labels_add(struct gp_text_labels *l, struct gp_text name);
/* Adds the labels of all rows. GP_INVALID names the line of `path`: a label that is not UTF-8, or one too many. */
enum gp_status gp_text_labels_collect(struct gp_text_labels *l, const struct gp_table *table, const char *path,
				      struct gp_err *err);

#endif
