/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples with labels that several of them share: a row is a place in a text (metric_text.h) and the labels of all that is
 * written through it. Rows are values; one with a label more is another row.
 *
 * Threads: one at a time. Test: tests/unit/test_metric_text.c
 */
#ifndef GP_METRIC_ROW_H
#define GP_METRIC_ROW_H

#include "common/metrics/metric_text.h"

#define GP_METRIC_LABELS 6

struct gp_metric_row {
	struct gp_metric_text *text;
	struct gp_metric_label label[GP_METRIC_LABELS];
	int labels;
};

/* The same with a label more; `name` and `value` must live as long as it. */
struct gp_metric_row gp_row_with(const struct gp_metric_row *row, const char *name, const char *value);

/* A sample of the family under way. */
void gp_row_count(const struct gp_metric_row *row, uint64_t value);
void gp_row_real(const struct gp_metric_row *row, double value); /* nothing where the value is not finite: not known */
void gp_row_seconds(const struct gp_metric_row *row, uint64_t ns);
/* The same with a label more. */
void gp_row_count_of(const struct gp_metric_row *row, const char *name, const char *value, uint64_t count);
void gp_row_real_of(const struct gp_metric_row *row, const char *name, const char *value, double real);

/* A family of one sample without labels. */
void gp_metric_one(struct gp_metric_text *t, const char *name, enum gp_metric_kind kind, const char *help,
		   uint64_t value);

#endif
