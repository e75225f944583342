/* SPDX-License-Identifier: Apache-2.0
 *
 * See plan_rank.h. Test: tests/e2e/plan.sh
 */
#include "client/plan/plan_rank.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/engine/crossing.h"
#include "common/base/mem.h"

void gp_plan_ranking_deinit(struct gp_plan_ranking *r)
{
	gp_free(r->row);
	*r = (struct gp_plan_ranking){0};
}

static int by_time(const void *x, const void *y)
{
	const struct gp_plan_row *a = x, *b = y;
	const double s = a->prediction.time.time_per_batch_s, t = b->prediction.time.time_per_batch_s;
	return (s > t) - (s < t);
}

/* One choice; those with a codec that is no candidate are counted alone. */
static enum gp_status add_choice(const struct gp_plan_study *s, const struct gp_plan_limits *limits,
				 const struct gp_plan_pick *pick, const struct gp_crossing *cross,
				 struct gp_plan_ranking *r, struct gp_err *err)
{
	struct gp_plan_row *row = &r->row[r->rows];
	*row = (struct gp_plan_row){.pick = *pick};
	const enum gp_status status = gp_plan_study_predict(s, pick, cross, &row->prediction, err);
	r->choices++;
	if (status == GP_INVALID)
		r->misfits++;
	else if (status != GP_OK)
		return status;
	else if (row->prediction.rel_err > limits->max_error)
		r->lossy++;
	else
		r->rows++;
	return GP_OK;
}

static enum gp_status add_cut(const struct gp_plan_study *s, const struct gp_plan_limits *limits, int cut,
			      struct gp_plan_ranking *r, struct gp_err *err)
{
	struct gp_crossing *cross;
	GP_TRY(gp_plan_cross(&s->world, &s->cut[cut], &cross, err));
	enum gp_status status = GP_OK;
	for (int c = 0; c < s->codecs; c++)
		for (int n = 0; n < s->chunkings && status == GP_OK; n++) {
			const struct gp_plan_pick pick = {.cut = cut, .codec = c, .chunking = n};
			status = add_choice(s, limits, &pick, cross, r, err);
		}
	gp_crossing_free(cross);
	return status;
}

static void strike(struct gp_plan_row *row, const char *whose, uint64_t bytes, uint64_t limit)
{
	if (limit > 0 && bytes > limit && !row->struck[0])
		snprintf(row->struck, sizeof row->struck, "needs %.4g MiB %s, where %.4g MiB are allowed",
			 (double)bytes / 0x1p20, whose, (double)limit / 0x1p20);
}

/* Memory takes longer to find than time: from the fastest on, until enough are possible. */
static enum gp_status look_at_memory(const struct gp_plan_study *s, const struct gp_plan_limits *limits,
				     struct gp_plan_ranking *r, struct gp_err *err)
{
	int looked = 0;
	for (; looked < r->rows && r->possible < limits->most; looked++) {
		struct gp_plan_row *row = &r->row[looked];
		GP_TRY(gp_plan_study_memory(s, &row->pick, &row->prediction, err));
		strike(row, "here", row->prediction.client_memory_bytes, limits->client_bytes);
		strike(row, "on the server", row->prediction.server_memory_bytes, limits->server_bytes);
		r->possible += !row->struck[0];
	}
	r->rows = looked;
	return GP_OK;
}

static enum gp_status rank(const struct gp_plan_study *s, const struct gp_plan_limits *limits,
			   struct gp_plan_ranking *r, struct gp_err *err)
{
	GP_TRY(gp_alloc_array((void **)&r->row, (size_t)s->cuts * (size_t)s->codecs * (size_t)s->chunkings,
			      sizeof *r->row, err));
	for (int cut = 0; cut < s->cuts; cut++)
		GP_TRY(add_cut(s, limits, cut, r, err));
	qsort(r->row, (size_t)r->rows, sizeof *r->row, by_time);
	return look_at_memory(s, limits, r, err);
}

enum gp_status gp_plan_rank(const struct gp_plan_study *s, const struct gp_plan_limits *limits,
			    struct gp_plan_ranking *out, struct gp_err *err)
{
	struct gp_plan_ranking r = {0};
	const enum gp_status status = rank(s, limits, &r, err);
	if (status == GP_OK)
		*out = r;
	else
		gp_plan_ranking_deinit(&r);
	return status;
}
