/* SPDX-License-Identifier: Apache-2.0
 *
 * See timeline.h. Test: tests/unit/test_timeline.c, tests/e2e/trace.sh
 */
#include "client/trace/timeline.h"

#include "client/trace/critical_path.h"
#include "client/trace/trace.h"
#include "common/base/clock.h"
#include "common/base/mem.h"

struct gp_timeline {
	struct gp_critical_path *path; /* NULL: more chunks than are measured */
	struct gp_trace *trace;        /* NULL: none */
	uint32_t chunks, window;
	bool split, tells;
	struct gp_clock_offset clock;
	struct gp_ping_answered ping;    /* the newest one */
	uint64_t sampled;                /* the PING of the newest sample of the clock */
	uint64_t round_trip_ns;          /* the shortest one of this link; 0: none yet */
	struct gp_clock_estimate traced; /* as the trace has been told */
	struct gp_moments update, body_update;
	uint64_t squares_ns, committed_ns;
	bool has_parts; /* of a local step */
	uint64_t body_ns, tail_ns;
	void (*seen)(void *arg, const struct gp_interval *i); /* NULL: nobody watches */
	void *seen_arg;
};

enum gp_status gp_timeline_new(uint32_t chunks, bool split, struct gp_trace *trace, struct gp_timeline **out,
			       struct gp_err *err)
{
	struct gp_timeline *t;
	GP_TRY(gp_alloc_array((void **)&t, 1, sizeof *t, err));
	*t = (struct gp_timeline){.trace = trace, .chunks = chunks, .split = split};
	if (split && chunks <= GP_CRITICAL_CHUNKS_MAX) {
		const enum gp_status status = gp_critical_path_new(chunks, &t->path, err);
		if (status != GP_OK) {
			gp_free(t);
			return status;
		}
	}
	*out = t;
	return GP_OK;
}

void gp_timeline_free(struct gp_timeline *t)
{
	if (!t)
		return;
	gp_critical_path_free(t->path);
	gp_free(t);
}

static struct gp_moments moments_of(const struct gp_interval *i)
{
	return (struct gp_moments){i->queued_ns, i->begin_ns, i->end_ns};
}

/* What is not of a chunk. */
static void note_of_step(struct gp_timeline *t, const struct gp_interval *i)
{
	switch (i->stage) {
	case GP_AT_UPDATE:
		t->update = moments_of(i);
		break;
	case GP_AT_BODY_UPDATE:
		t->body_update = moments_of(i);
		break;
	case GP_AT_SQUARES:
		t->squares_ns = i->end_ns;
		break;
	case GP_AT_COMMIT:
		t->committed_ns = i->end_ns;
		break;
	default:
		break;
	}
}

void gp_timeline_note(struct gp_timeline *t, const struct gp_interval *i)
{
	if (!t)
		return;
	if (t->path)
		gp_critical_path_note(t->path, i);
	note_of_step(t, i);
	if (t->trace)
		gp_trace_put(t->trace, i, t->chunks);
	if (t->seen)
		t->seen(t->seen_arg, i);
}

void gp_timeline_watch(struct gp_timeline *t, void (*seen)(void *arg, const struct gp_interval *i), void *arg)
{
	if (!t)
		return;
	t->seen = seen;
	t->seen_arg = arg;
}

void gp_timeline_note_times(struct gp_timeline *t, enum gp_interval_stage stage, uint64_t number, uint64_t begin_ns,
			    uint64_t end_ns)
{
	const struct gp_interval i = {
		.stage = stage, .number = number, .queued_ns = begin_ns, .begin_ns = begin_ns, .end_ns = end_ns};
	gp_timeline_note(t, &i);
}

/* --- clocks --------------------------------------------------------------------------------------------------------- */

void gp_timeline_linked(struct gp_timeline *t, bool tells, uint32_t window)
{
	if (!t)
		return;
	t->tells = tells;
	t->window = window;
	t->round_trip_ns = t->sampled = 0;
	t->ping = (struct gp_ping_answered){0};
	t->body_update = (struct gp_moments){0};
	gp_clock_offset_reset(&t->clock);
}

void gp_timeline_answered(struct gp_timeline *t, const struct gp_ping_answered *ping)
{
	if (!t || ping->answered_ns == 0 || ping->answered_ns == t->ping.answered_ns)
		return;
	const uint64_t took = ping->answered_ns - ping->sent_ns;
	t->ping = *ping;
	if (t->round_trip_ns == 0 || took < t->round_trip_ns)
		t->round_trip_ns = took;
}

static void sample_clock(struct gp_timeline *t, const Gpsplit__Intervals *m)
{
	if (m->ping_ns == 0 || t->ping.answered_ns == 0 || m->ping != t->ping.value || m->ping == t->sampled)
		return;
	t->sampled = m->ping;
	gp_clock_offset_add(&t->clock, t->ping.sent_ns, t->ping.answered_ns, m->ping_ns);
}

struct gp_clock_estimate gp_timeline_clock(const struct gp_timeline *t)
{
	return gp_clock_offset_at(&t->clock, gp_now_ns());
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Whatever the server says its clock shows, nothing that it tells of has been later than now. */
static void move_here(struct gp_interval *i, const struct gp_clock_estimate *clock, uint64_t now_ns)
{
	i->queued_ns = least(gp_clock_here(clock, i->queued_ns), now_ns);
	i->begin_ns = least(gp_clock_here(clock, i->begin_ns), now_ns);
	i->end_ns = least(gp_clock_here(clock, i->end_ns), now_ns);
	if (i->begin_ns < i->queued_ns)
		i->begin_ns = i->queued_ns;
	if (i->end_ns < i->begin_ns)
		i->end_ns = i->begin_ns;
}

/* Until the clocks have been compared, times of the server mean nothing here. */
void gp_timeline_told(struct gp_timeline *t, const Gpsplit__Intervals *m, const struct gp_interval *interval, int count)
{
	if (!t)
		return;
	sample_clock(t, m);
	const uint64_t now_ns = gp_now_ns();
	const struct gp_clock_estimate clock = gp_clock_offset_at(&t->clock, now_ns);
	if (!clock.known)
		return;
	if (t->trace && (!t->traced.known || t->traced.offset_ns != clock.offset_ns))
		gp_trace_put_clock(t->trace, &clock, now_ns, m->step);
	t->traced = clock;
	for (int n = 0; n < count; n++) {
		struct gp_interval i = interval[n];
		move_here(&i, &clock, now_ns);
		gp_timeline_note(t, &i);
	}
}

/* --- steps ---------------------------------------------------------------------------------------------------------- */

void gp_timeline_note_parts(struct gp_timeline *t, uint64_t body_ns, uint64_t tail_ns)
{
	if (!t)
		return;
	t->has_parts = true;
	t->body_ns = body_ns;
	t->tail_ns = tail_ns;
}

/* A step of one process is its computing, all of it the body's where nothing is known of its parts. */
static void bound_local(const struct gp_timeline *t, uint64_t begin_ns, uint64_t end_ns, struct gp_bound_by *out)
{
	const uint64_t all = end_ns - begin_ns, body = t->has_parts ? least(t->body_ns, all) : all;
	const uint64_t tail = t->has_parts ? least(t->tail_ns, all - body) : 0;
	*out = (struct gp_bound_by){.steps = 1};
	out->ns[GP_BOUND_BODY] = body;
	out->ns[GP_BOUND_TAIL] = tail;
	out->ns[GP_BOUND_HEAD] = all - body - tail;
}

static void bound_split(struct gp_timeline *t, uint64_t first, uint64_t begin_ns, uint64_t end_ns,
			struct gp_bound_by *out)
{
	const struct gp_critical_step step = {.begin_ns = begin_ns,
					      .end_ns = end_ns,
					      .first = first,
					      .window = t->window,
					      .delay_ns = t->round_trip_ns / 2,
					      .told = t->tells && gp_clock_offset_at(&t->clock, end_ns).known,
					      .update = t->update,
					      .squares_ns = t->squares_ns,
					      .committed_ns = t->committed_ns,
					      .body_update = t->body_update};
	gp_critical_path_walk(t->path, &step, out);
}

void gp_timeline_end_step(struct gp_timeline *t, uint64_t first, uint64_t begin_ns, uint64_t end_ns,
			  struct gp_bound_by *out)
{
	*out = (struct gp_bound_by){.steps = 0};
	if (!t)
		return;
	gp_timeline_note_times(t, GP_AT_STEP, first, begin_ns, end_ns);
	if (!t->split)
		bound_local(t, begin_ns, end_ns, out);
	else if (t->path)
		bound_split(t, first, begin_ns, end_ns, out);
	t->has_parts = false;
	t->update = (struct gp_moments){0};
	t->squares_ns = t->committed_ns = 0;
}
