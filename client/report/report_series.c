/* SPDX-License-Identifier: Apache-2.0
 *
 * See report_series.h. Test: tests/unit/test_report.c
 */
#include "client/report/report_series.h"

#include <math.h>
#include <string.h>

#include "common/base/mem.h"

enum gp_status gp_series_init(struct gp_series *s, int figures, struct gp_err *err)
{
	struct gp_series new = {.figures = figures, .each = 1};
	const size_t cells = (size_t)figures * GP_SERIES_POINTS;
	enum gp_status status = gp_alloc_array((void **)&new.point, GP_SERIES_POINTS, sizeof *new.point, err);
	if (status == GP_OK)
		status = gp_alloc_array((void **)&new.sum, cells, sizeof *new.sum, err);
	if (status == GP_OK)
		status = gp_alloc_array((void **)&new.known, cells, sizeof *new.known, err);
	if (status == GP_OK)
		*s = new;
	else
		gp_series_deinit(&new);
	return status;
}

void gp_series_deinit(struct gp_series *s)
{
	gp_free(s->point);
	gp_free(s->sum);
	gp_free(s->known);
	*s = (struct gp_series){0};
}

/* Point `from` is added to point `to`, which stands before it. */
static void merge(struct gp_series *s, int to, int from)
{
	struct gp_series_point *a = &s->point[to];
	const struct gp_series_point *b = &s->point[from];
	a->last = b->last;
	a->records += b->records;
	a->time_s = b->time_s;
	a->bytes = b->bytes;
	for (int i = 0; i < s->figures; i++) {
		s->sum[to * s->figures + i] += s->sum[from * s->figures + i];
		s->known[to * s->figures + i] += s->known[from * s->figures + i];
	}
}

static void move(struct gp_series *s, int to, int from)
{
	const size_t figures = (size_t)s->figures;
	if (to == from)
		return;
	s->point[to] = s->point[from];
	memcpy(s->sum + (size_t)to * figures, s->sum + (size_t)from * figures, figures * sizeof *s->sum);
	memcpy(s->known + (size_t)to * figures, s->known + (size_t)from * figures, figures * sizeof *s->known);
}

static void halve(struct gp_series *s)
{
	for (int i = 0; i < s->count / 2; i++) {
		move(s, i, 2 * i);
		merge(s, i, 2 * i + 1);
	}
	s->count /= 2;
	s->each *= 2;
}

static void begin_point(struct gp_series *s, uint64_t step)
{
	const size_t at = (size_t)s->count * (size_t)s->figures;
	memset(s->sum + at, 0, (size_t)s->figures * sizeof *s->sum);
	memset(s->known + at, 0, (size_t)s->figures * sizeof *s->known);
	s->point[s->count++] = (struct gp_series_point){.first = step};
}

void gp_series_add(struct gp_series *s, const struct gp_series_place *at, const double *figure)
{
	if (s->count == 0 || s->point[s->count - 1].records >= s->each) {
		if (s->count == GP_SERIES_POINTS)
			halve(s);
		begin_point(s, at->step);
	}
	const int n = s->count - 1;
	struct gp_series_point *p = &s->point[n];
	p->last = at->step;
	p->records++;
	p->time_s = at->time_s;
	p->bytes = at->bytes;
	for (int i = 0; i < s->figures; i++)
		if (isfinite(figure[i])) {
			s->sum[n * s->figures + i] += figure[i];
			s->known[n * s->figures + i]++;
		}
}

void gp_series_cut(struct gp_series *s, uint64_t step)
{
	while (s->count > 0 && s->point[s->count - 1].last > step)
		s->count--;
}

double gp_series_mean(const struct gp_series *s, int point, int figure)
{
	const int at = point * s->figures + figure;
	return s->known[at] ? s->sum[at] / s->known[at] : NAN;
}

double gp_series_mean_of_all(const struct gp_series *s, int figure)
{
	double sum = 0;
	uint64_t known = 0;
	for (int i = 0; i < s->count; i++) {
		sum += s->sum[i * s->figures + figure];
		known += s->known[i * s->figures + figure];
	}
	return known ? sum / (double)known : NAN;
}
