/* SPDX-License-Identifier: Apache-2.0
 *
 * See timeline_record.h. Test: tests/unit/test_timeline.c
 */
#include "client/trace/timeline_record.h"

#include "common/base/mem.h"

struct gp_timeline_record {
	uint32_t chunks;
	uint64_t began;            /* steps that had been done */
	uint64_t wanted;           /* the step that is noted; the first of a run is 1 */
	uint64_t begin_ns, end_ns; /* of it; end_ns 0: it has not ended */
	int count, left_out;
	struct gp_interval interval[GP_TIMELINE_RECORD_MOST];
};

enum gp_status gp_timeline_record_new(uint32_t chunks, struct gp_timeline_record **out, struct gp_err *err)
{
	struct gp_timeline_record *r;
	GP_TRY(gp_alloc_array((void **)&r, 1, sizeof *r, err));
	r->chunks = chunks;
	gp_timeline_record_begin(r, 0);
	*out = r;
	return GP_OK;
}

void gp_timeline_record_free(struct gp_timeline_record *r)
{
	gp_free(r);
}

static void want(struct gp_timeline_record *r, uint64_t step)
{
	r->wanted = step;
	r->count = r->left_out = 0;
	r->end_ns = 0;
}

void gp_timeline_record_begin(struct gp_timeline_record *r, uint64_t steps)
{
	if (!r)
		return;
	r->began = steps;
	want(r, steps + 2);
}

static bool is_of_step(const struct gp_timeline_record *r, const struct gp_interval *i)
{
	return r->chunks > 0 && i->number / r->chunks + 1 == r->wanted;
}

/* A step that a broken link has stopped is run again. */
static bool begins_anew(const struct gp_timeline_record *r, const struct gp_interval *i)
{
	if (i->stage != GP_AT_HEAD_FORWARD)
		return false;
	for (int n = 0; n < r->count; n++)
		if (r->interval[n].stage == i->stage && r->interval[n].number == i->number)
			return true;
	return false;
}

void gp_timeline_record_note(void *record, const struct gp_interval *i)
{
	struct gp_timeline_record *r = record;
	if (!r || !is_of_step(r, i))
		return;
	if (i->stage == GP_AT_STEP) {
		r->begin_ns = i->begin_ns;
		r->end_ns = i->end_ns;
	}
	if (begins_anew(r, i))
		want(r, r->wanted);
	if (r->count < GP_TIMELINE_RECORD_MOST)
		r->interval[r->count++] = *i;
	else
		r->left_out++;
}

/* What began before the step has a time below 0. */
static double since(const struct gp_timeline_record *r, uint64_t ns)
{
	return ns >= r->begin_ns ? (double)(ns - r->begin_ns) * 1e-9 : -(double)(r->begin_ns - ns) * 1e-9;
}

static json_t *interval_json(const struct gp_timeline_record *r, const struct gp_interval *i)
{
	const bool of_step = i->stage >= GP_AT_BODY_UPDATE && i->stage < GP_AT_MODEL_FORWARD &&
			     i->stage != GP_AT_TAIL_FORWARD && i->stage != GP_AT_LOSS &&
			     i->stage != GP_AT_TAIL_BACKWARD;
	return json_pack("{s:s, s:o, s:i, s:f, s:f, s:o}", "stage", gp_interval_stage_name(i->stage), "chunk",
			 of_step ? json_null() : json_integer((json_int_t)(i->number % r->chunks)), "tensor",
			 (int)i->tensor, "begin_s", since(r, i->begin_ns), "end_s", since(r, i->end_ns), "bytes",
			 i->bytes ? json_integer((json_int_t)i->bytes) : json_null());
}

static json_t *step_json(const struct gp_timeline_record *r)
{
	json_t *list = json_array();
	for (int n = 0; n < r->count; n++)
		if (r->interval[n].stage != GP_AT_STEP)
			json_array_append_new(list, interval_json(r, &r->interval[n]));
	return json_pack("{s:I, s:f, s:i, s:o}", "step", (json_int_t)r->wanted, "seconds", since(r, r->end_ns),
			 "left_out", r->left_out, "intervals", list);
}

json_t *gp_timeline_record_take(struct gp_timeline_record *r, uint64_t steps, bool ended)
{
	if (!r || steps < r->wanted || (steps == r->wanted && !ended))
		return NULL;
	json_t *json = r->end_ns > 0 ? step_json(r) : NULL;
	uint64_t next = r->began + 2;
	while (next <= steps)
		next = r->began + 2 * (next - r->began);
	want(r, next);
	return json;
}
