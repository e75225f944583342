/* SPDX-License-Identifier: Apache-2.0
 *
 * See privacy_meter.h. Tests: tests/unit/test_privacy_meter.c, tests/e2e/privacy.sh
 */
#include "client/privacy/privacy_meter.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/log/figures.h"
#include "client/privacy/privacy_inputs.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/text.h"
#include "common/graph/graph.h"

/* One tensor of the step that a set holds. */
struct kept {
	float *x;     /* samples * room */
	size_t room;  /* numbers of a sample */
	int complete; /* samples, the first ones */
};

/* A step may put its first tensors while the one before is still measured. */
enum { SETS = 2 };

struct gp_privacy_meter {
	uint64_t every;
	int samples;
	struct set {
		uint64_t done; /* whose tensors it has */
		struct kept kept[GP_DIRECTIONS][GP_GRAPH_MAX_PORTS];
	} set[SETS];
	float *scratch;
	size_t scratch_count;
};

enum gp_status gp_privacy_meter_new(uint64_t every, struct gp_privacy_meter **out, struct gp_err *err)
{
	struct gp_privacy_meter *m = gp_calloc(1, sizeof *m);
	if (!m)
		GP_FAIL(err, GP_NOMEM, "out of memory for the privacy meter");
	m->every = every;
	*out = m;
	return GP_OK;
}

void gp_privacy_meter_free(struct gp_privacy_meter *m)
{
	if (!m)
		return;
	for (int s = 0; s < SETS; s++)
		for (int d = 0; d < GP_DIRECTIONS; d++)
			for (int i = 0; i < GP_GRAPH_MAX_PORTS; i++)
				gp_free(m->set[s].kept[d][i].x);
	gp_free_aligned(m->scratch);
	gp_free(m);
}

void gp_privacy_set_size(struct gp_privacy_meter *m, int64_t batch, uint64_t each)
{
	if (m->samples == 0)
		m->samples = gp_distance_samples(batch, each);
}

bool gp_privacy_due(const struct gp_privacy_meter *m, uint64_t done)
{
	return m && (done + 1) % m->every == 0;
}

float *gp_privacy_scratch(struct gp_privacy_meter *m, size_t count)
{
	if (count <= m->scratch_count)
		return m->scratch;
	gp_free_aligned(m->scratch);
	m->scratch = gp_alloc_aligned(count * sizeof *m->scratch);
	m->scratch_count = m->scratch ? count : 0;
	return m->scratch;
}

/* --- tensors ----------------------------------------------------------------------------------------------------- */

static struct set *set_of(struct gp_privacy_meter *m, uint64_t done)
{
	return &m->set[m->every == 1 ? done % SETS : 0];
}

static void begin_step(struct set *s, uint64_t done)
{
	s->done = done;
	for (int d = 0; d < GP_DIRECTIONS; d++)
		for (int i = 0; i < GP_GRAPH_MAX_PORTS; i++)
			s->kept[d][i].complete = 0;
}

static enum gp_status make_room(struct kept *k, int samples, size_t room, struct gp_err *err)
{
	void *x;
	if (k->x && k->room == room)
		return GP_OK;
	GP_TRY(gp_alloc_array(&x, (size_t)samples, room * sizeof *k->x, err));
	gp_free(k->x);
	*k = (struct kept){.x = x, .room = room};
	return GP_OK;
}

enum gp_status gp_privacy_put(struct gp_privacy_meter *m, const struct gp_privacy_tensor *t, struct gp_err *err)
{
	struct set *s = set_of(m, t->done);
	struct kept *k = &s->kept[t->direction][t->tensor];
	if (s->done != t->done)
		begin_step(s, t->done);
	GP_TRY(make_room(k, m->samples, t->room, err));
	if (t->first > k->complete) /* chunks come in their order; one that is missing makes the rest useless */
		return GP_OK;
	const int end = t->first + t->samples < m->samples ? t->first + t->samples : m->samples;
	for (int n = t->first; n < end; n++) {
		float *to = k->x + (size_t)n * t->room;
		memcpy(to, t->x + (size_t)(n - t->first) * t->each, t->each * sizeof *to);
		memset(to + t->each, 0, (t->room - t->each) * sizeof *to);
	}
	k->complete = end > t->first ? end : k->complete;
	return GP_OK;
}

/* --- figures ----------------------------------------------------------------------------------------------------- */

/* Distances of the samples: of inputs, of labels, of what crossed in one direction. */
struct distances {
	double *inputs, *labels, *crossed;
};

/* False: nothing has crossed that way, or not all of it. */
static bool add_direction(const struct gp_privacy_meter *m, const struct set *s, int direction, double *d)
{
	bool any = false;
	memset(d, 0, (size_t)m->samples * (size_t)m->samples * sizeof *d);
	for (int i = 0; i < GP_GRAPH_MAX_PORTS; i++) {
		const struct kept *k = &s->kept[direction][i];
		if (k->complete == 0)
			continue;
		if (k->complete < m->samples)
			return false;
		any = true;
		gp_distance_add(k->x, m->samples, k->room, d);
	}
	gp_distance_roots(d, m->samples);
	return any;
}

static enum gp_status measure_all(const struct gp_privacy_meter *m, const struct set *s, const struct gp_batch *batch,
				  const struct distances *d, struct gp_privacy_report *r, struct gp_err *err)
{
	GP_TRY(gp_privacy_input_distances(batch, m->samples, d->inputs, err));
	r->labels = gp_privacy_label_distances(batch, m->samples, d->labels);
	for (int i = 0; i < GP_DIRECTIONS; i++) {
		struct gp_privacy_reading *of = &r->of[i];
		of->there = add_direction(m, s, i, d->crossed);
		if (!of->there)
			continue;
		GP_TRY(gp_distance_correlate(d->inputs, d->crossed, m->samples, &of->inputs, err));
		if (r->labels)
			GP_TRY(gp_distance_correlate(d->labels, d->crossed, m->samples, &of->labels, err));
	}
	return GP_OK;
}

enum gp_status gp_privacy_measure(struct gp_privacy_meter *m, uint64_t done, const struct gp_batch *batch,
				  struct gp_privacy_report *out, struct gp_err *err)
{
	const uint64_t begin = gp_now_ns();
	const size_t cells = (size_t)m->samples * (size_t)m->samples;
	struct set *s = set_of(m, done);
	struct gp_privacy_report r = {.step = done + 1, .samples = m->samples};
	double *const all = gp_calloc(3 * cells, sizeof *all);
	if (!all)
		GP_FAIL(err, GP_NOMEM, "out of memory for the distances of %d samples", m->samples);
	if (s->done != done)
		begin_step(s, done);
	const struct distances d = {all, all + cells, all + 2 * cells};
	const enum gp_status status = measure_all(m, s, batch, &d, &r, err);
	gp_free(all);
	r.seconds = (double)(gp_now_ns() - begin) * 1e-9;
	if (status == GP_OK)
		*out = r;
	return status;
}

/* --- words and JSON ---------------------------------------------------------------------------------------------- */

static json_t *label_number(const struct gp_privacy_report *r, double x)
{
	return r->labels ? gp_json_number(x) : json_null();
}

static json_t *reading_json(const struct gp_privacy_report *r, enum gp_direction d)
{
	const struct gp_privacy_reading *of = &r->of[d];
	return json_pack("{s:o, s:o, s:o, s:o}", "distance_correlation", gp_json_number(of->inputs.corrected),
			 "distance_correlation_plain", gp_json_number(of->inputs.plain), "label_correlation",
			 label_number(r, of->labels.corrected), "label_correlation_plain",
			 label_number(r, of->labels.plain));
}

json_t *gp_privacy_event_json(const struct gp_privacy_report *r, enum gp_direction d)
{
	if (!r->of[d].there)
		return NULL;
	json_t *o = json_pack("{s:I, s:s, s:i, s:f}", "step", (json_int_t)r->step, "direction",
			      gp_direction_info[d].name, "samples", r->samples, "seconds", r->seconds);
	json_t *reading = reading_json(r, d);
	json_object_update(o, reading);
	json_decref(reading);
	return o;
}

json_t *gp_privacy_json(const struct gp_privacy_report *last, uint64_t measured, double seconds)
{
	if (measured == 0)
		return json_null();
	json_t *o = json_pack("{s:I, s:I, s:i, s:f}", "measured", (json_int_t)measured, "step", (json_int_t)last->step,
			      "samples", last->samples, "seconds", seconds);
	for (int d = 0; o && d < GP_DIRECTIONS; d++)
		json_object_set_new(o, gp_direction_info[d].name,
				    last->of[d].there ? reading_json(last, (enum gp_direction)d) : json_null());
	return o;
}

const char *gp_privacy_text(const struct gp_privacy_report *r, bool labels, char text[GP_PRIVACY_TEXT])
{
	text[0] = '\0';
	for (int d = 0; d < GP_DIRECTIONS; d++) {
		const struct gp_privacy_reading *of = &r->of[d];
		if (of->there)
			gp_text_append(text, GP_PRIVACY_TEXT, "%s%s %.3f", text[0] ? ", " : "",
				       gp_direction_info[d].name, labels ? of->labels.corrected : of->inputs.corrected);
	}
	return text;
}
