/* SPDX-License-Identifier: Apache-2.0
 *
 * A series of records by step, for drawing, of any length in little memory. A
 * point stands for so many records, one at first, and holds the mean of each of
 * their figures; when there are GP_SERIES_POINTS of them, every two neighbours
 * become one. So a log of a million steps becomes at most that many points, and
 * no record is left out of the means.
 *
 * Figures that are not finite numbers are not known, and count nowhere.
 *
 * Threads: one at a time for a series. Test: tests/unit/test_report.c
 */
#ifndef GP_REPORT_SERIES_H
#define GP_REPORT_SERIES_H

#include "common/base/status.h"

#define GP_SERIES_POINTS 512 /* even */

struct gp_series_point {
	uint64_t first, last; /* steps */
	uint32_t records;
	double time_s, bytes; /* what had passed, at the last of them */
};

struct gp_series {
	int figures, count;
	uint32_t each; /* records that a full point stands for */
	struct gp_series_point *point;
	double *sum;     /* [point][figure] */
	uint32_t *known; /* [point][figure]: records of which the sum is */
};

/* Where a record stands. */
struct gp_series_place {
	uint64_t step;
	double time_s, bytes;
};

enum gp_status gp_series_init(struct gp_series *s, int figures, struct gp_err *err);
void gp_series_deinit(struct gp_series *s);
/* `figure`: as many as the series has. */
void gp_series_add(struct gp_series *s, const struct gp_series_place *at, const double *figure);
/* Forgets records behind a step, which are to be repeated. A point that has some of both goes as a whole. */
void gp_series_cut(struct gp_series *s, uint64_t step);
/* Mean of a figure at a point; NaN where no record knows it. */
double gp_series_mean(const struct gp_series *s, int point, int figure);
/* The same over all records. */
double gp_series_mean_of_all(const struct gp_series *s, int figure);

#endif
