/* SPDX-License-Identifier: Apache-2.0
 *
 * See metric_row.h. Test: tests/unit/test_metric_text.c
 */
#include "common/metrics/metric_row.h"

#include <math.h>

struct gp_metric_row gp_row_with(const struct gp_metric_row *row, const char *name, const char *value)
{
	struct gp_metric_row more = *row;
	gp_require(more.labels < GP_METRIC_LABELS);
	more.label[more.labels++] = (struct gp_metric_label){name, value};
	return more;
}

void gp_row_count(const struct gp_metric_row *row, uint64_t value)
{
	gp_metric_count(row->text, row->label, row->labels, value);
}

void gp_row_real(const struct gp_metric_row *row, double value)
{
	if (isfinite(value))
		gp_metric_sample(row->text, row->label, row->labels, value);
}

void gp_row_seconds(const struct gp_metric_row *row, uint64_t ns)
{
	gp_metric_seconds(row->text, row->label, row->labels, ns);
}

void gp_row_count_of(const struct gp_metric_row *row, const char *name, const char *value, uint64_t count)
{
	const struct gp_metric_row more = gp_row_with(row, name, value);
	gp_row_count(&more, count);
}

void gp_row_real_of(const struct gp_metric_row *row, const char *name, const char *value, double real)
{
	const struct gp_metric_row more = gp_row_with(row, name, value);
	gp_row_real(&more, real);
}

void gp_metric_one(struct gp_metric_text *t, const char *name, enum gp_metric_kind kind, const char *help,
		   uint64_t value)
{
	gp_metric_family(t, name, kind, help);
	gp_metric_count(t, NULL, 0, value);
}
