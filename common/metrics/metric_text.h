/* SPDX-License-Identifier: Apache-2.0
 *
 * Figures in Prometheus' text format, version 0.0.4: a family has one HELP and one TYPE line, then all of its samples.
 * Values of labels may be anybody's text: what the format cannot hold is escaped, and bytes that are not UTF-8 become "?".
 * Names of families and labels, and help, are this program's own.
 *
 * A text that grows beyond GP_METRIC_TEXT_MOST, or finds no memory, takes nothing more, and gp_metric_text_check says why.
 *
 * Threads: one at a time. Test: tests/unit/test_metric_text.c
 */
#ifndef GP_METRIC_TEXT_H
#define GP_METRIC_TEXT_H

#include "common/base/mem.h"

#define GP_METRIC_TEXT_MOST (64u << 20)
#define GP_METRIC_TEXT_TYPE "text/plain; version=0.0.4; charset=utf-8"

enum gp_metric_kind { GP_METRIC_COUNTER, GP_METRIC_GAUGE };

struct gp_metric_label {
	const char *name, *value;
};

struct gp_metric_text {
	char *text; /* no NUL stands behind it */
	size_t length, room;
	bool too_long, no_memory;
	const char *family; /* under way */
};

void gp_metric_text_deinit(struct gp_metric_text *t);
/* Begins a family; its samples follow. The name of a counter ends with "_total". */
void gp_metric_family(struct gp_metric_text *t, const char *name, enum gp_metric_kind kind, const char *help);
/* A sample of it. `count` labels; NaN and infinities are fine. */
void gp_metric_sample(struct gp_metric_text *t, const struct gp_metric_label *label, int count, double value);
/* The same for a whole number, with all of its digits. */
void gp_metric_count(struct gp_metric_text *t, const struct gp_metric_label *label, int count, uint64_t value);
/* Nanoseconds, written as seconds. */
void gp_metric_seconds(struct gp_metric_text *t, const struct gp_metric_label *label, int count, uint64_t ns);
enum gp_status gp_metric_text_check(const struct gp_metric_text *t, struct gp_err *err);

#endif
