/* SPDX-License-Identifier: Apache-2.0
 *
 * See critical_path.h. Test: tests/unit/test_critical_path.c
 */
#include "client/trace/critical_path.h"

#include <string.h>

#include "common/base/mem.h"

#define STEPS 2 /* in the table: chunks of the next step may begin during this one */

/* What can be busy with one chunk while another waits for it. */
enum resource { COMPUTE, CODEC, SERVER_COMPUTE, SERVER_CODEC, UP, DOWN, RESOURCES, NONE };

struct row {
	uint64_t number;
	uint32_t have; /* bit i: stage i */
	struct gp_moments at[GP_AT_CHUNK_STAGES];
};

struct event {
	uint64_t end_ns, queued_ns;
	uint32_t row;
	enum gp_interval_stage stage;
};

struct gp_critical_path {
	uint32_t chunks;
	struct row *row;     /* STEPS * chunks, by number modulo that */
	struct event *event; /* of all resources, each with room for all of its stages */
	int room[RESOURCES + 1], count[RESOURCES];
};

/* Where the walk stands. */
struct walk {
	const struct gp_critical_path *p;
	const struct gp_critical_step *step;
	struct gp_bound_by *out;
	uint64_t at_ns;        /* everything behind it is charged */
	const struct row *row; /* NULL: the server's update of the step before */
	enum gp_interval_stage stage;
};

static const enum resource resource_of[GP_AT_CHUNK_STAGES] = {
	[GP_AT_HEAD_FORWARD] = COMPUTE,
	[GP_AT_ACT_UP_ENCODE] = CODEC,
	[GP_AT_ACT_UP_SENT] = NONE,
	[GP_AT_ACT_UP_RECEIVED] = UP,
	[GP_AT_ACT_UP_DECODE] = SERVER_CODEC,
	[GP_AT_BODY_FORWARD] = SERVER_COMPUTE,
	[GP_AT_ACT_DOWN_ENCODE] = SERVER_CODEC,
	[GP_AT_ACT_DOWN_SENT] = NONE,
	[GP_AT_ACT_DOWN_RECEIVED] = DOWN,
	[GP_AT_ACT_DOWN_DECODE] = CODEC,
	[GP_AT_TAIL] = COMPUTE,
	[GP_AT_GRAD_UP_ENCODE] = CODEC,
	[GP_AT_GRAD_UP_SENT] = NONE,
	[GP_AT_GRAD_UP_RECEIVED] = UP,
	[GP_AT_GRAD_UP_DECODE] = SERVER_CODEC,
	[GP_AT_BODY_BACKWARD] = SERVER_COMPUTE,
	[GP_AT_GRAD_DOWN_ENCODE] = SERVER_CODEC,
	[GP_AT_GRAD_DOWN_SENT] = NONE,
	[GP_AT_GRAD_DOWN_RECEIVED] = DOWN,
	[GP_AT_GRAD_DOWN_DECODE] = CODEC,
	[GP_AT_HEAD_BACKWARD] = COMPUTE,
	[GP_AT_CHUNK_DONE] = NONE,
};

static enum gp_bound bound_of(enum gp_interval_stage stage)
{
	switch (resource_of[stage]) {
	case CODEC:
	case SERVER_CODEC:
		return GP_BOUND_CODEC;
	case SERVER_COMPUTE:
		return GP_BOUND_BODY;
	case UP:
		return GP_BOUND_UP_WIRE;
	case DOWN:
		return GP_BOUND_DOWN_WIRE;
	case COMPUTE:
		return stage == GP_AT_TAIL ? GP_BOUND_TAIL : GP_BOUND_HEAD;
	default:
		break;
	}
	switch (stage) {
	case GP_AT_ACT_UP_SENT:
	case GP_AT_GRAD_UP_SENT:
		return GP_BOUND_UP_WIRE;
	case GP_AT_ACT_DOWN_SENT:
	case GP_AT_GRAD_DOWN_SENT:
		return GP_BOUND_DOWN_WIRE;
	default:
		return GP_BOUND_HEAD;
	}
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

enum gp_status gp_critical_path_new(uint32_t chunks, struct gp_critical_path **out, struct gp_err *err)
{
	struct gp_critical_path *p;
	int stages[RESOURCES] = {0};
	if (chunks == 0 || chunks > GP_CRITICAL_CHUNKS_MAX)
		GP_FAIL(err, GP_INVALID, "the critical path of %u chunks is not measured", chunks);
	GP_TRY(gp_alloc_array((void **)&p, 1, sizeof *p, err));
	p->chunks = chunks;
	for (int i = 0; i < GP_AT_CHUNK_STAGES; i++)
		if (resource_of[i] < RESOURCES)
			stages[resource_of[i]]++;
	for (int i = 0; i < RESOURCES; i++)
		p->room[i + 1] = p->room[i] + stages[i] * STEPS * (int)chunks;
	enum gp_status status = gp_alloc_array((void **)&p->row, (size_t)STEPS * chunks, sizeof *p->row, err);
	if (status == GP_OK)
		status = gp_alloc_array((void **)&p->event, (size_t)p->room[RESOURCES], sizeof *p->event, err);
	if (status != GP_OK) {
		gp_critical_path_free(p);
		return status;
	}
	for (uint32_t i = 0; i < STEPS * chunks; i++)
		p->row[i].number = UINT64_MAX;
	*out = p;
	return GP_OK;
}

void gp_critical_path_free(struct gp_critical_path *p)
{
	if (!p)
		return;
	gp_free(p->row);
	gp_free(p->event);
	gp_free(p);
}

static struct row *row_of(const struct gp_critical_path *p, uint64_t number)
{
	return &p->row[number % ((uint64_t)STEPS * p->chunks)];
}

static bool has(const struct row *r, enum gp_interval_stage stage)
{
	return r->have >> stage & 1;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static void put(struct row *r, enum gp_interval_stage stage, struct gp_moments m)
{
	struct gp_moments *at = &r->at[stage];
	if (has(r, stage)) {
		m.queued_ns = least(m.queued_ns, at->queued_ns);
		m.begin_ns = least(m.begin_ns, at->begin_ns);
		m.end_ns = most(m.end_ns, at->end_ns);
	}
	*at = m;
	r->have |= UINT32_C(1) << stage;
}

/* What a server says of a chunk that this side has not begun makes no row. */
void gp_critical_path_note(struct gp_critical_path *p, const struct gp_interval *i)
{
	if (i->stage >= GP_AT_CHUNK_STAGES)
		return;
	struct row *r = row_of(p, i->number);
	if (i->stage == GP_AT_HEAD_FORWARD)
		*r = (struct row){.number = i->number};
	if (r->number == i->number)
		put(r, i->stage, (struct gp_moments){i->queued_ns, i->begin_ns, i->end_ns});
}

/* --- a server that does not tell ---------------------------------------------------------------------------------- */

static uint64_t back(uint64_t ns, uint64_t by)
{
	return ns > by ? ns - by : 0;
}

/* A tensor must have arrived a delay after it was sent, and its answer must have left a delay before it came. The body is
 * taken to have computed all the time between, but for the part in which it had the chunk before: that was until *busy_ns. */
static void guess(struct row *r, const struct gp_critical_step *s, enum gp_interval_stage sent, uint64_t *busy_ns)
{
	const enum gp_interval_stage arrives = sent + 1, computes = sent + 3, encodes = sent + 4, answer = sent + 6;
	if (!has(r, sent) || has(r, arrives))
		return;
	const uint64_t arrived = r->at[sent].end_ns + s->delay_ns;
	put(r, arrives, (struct gp_moments){r->at[sent].queued_ns, r->at[sent].begin_ns, arrived});
	if (!has(r, answer))
		return;
	const uint64_t left = most(arrived, back(r->at[answer].begin_ns, s->delay_ns));
	put(r, computes, (struct gp_moments){arrived, least(most(arrived, *busy_ns), left), left});
	put(r, encodes, (struct gp_moments){left, left, left});
	*busy_ns = left;
}

static void guess_all(struct gp_critical_path *p, const struct gp_critical_step *s)
{
	uint64_t forwards_ns = 0, backwards_ns = 0;
	for (uint64_t n = s->first; n < s->first + p->chunks; n++) {
		struct row *r = row_of(p, n);
		if (r->number != n)
			continue;
		guess(r, s, GP_AT_ACT_UP_SENT, &forwards_ns);
		guess(r, s, GP_AT_GRAD_UP_SENT, &backwards_ns);
	}
}

/* --- what had a resource before ------------------------------------------------------------------------------------ */

/* Sorts by end_ns. Shell's sort, as qsort may allocate. Events are nearly in order, unless a server has made up its times. */
static void sort_events(struct event *e, int n)
{
	for (int gap = n / 2; gap > 0; gap /= 2)
		for (int i = gap; i < n; i++) {
			const struct event moved = e[i];
			int k = i;
			for (; k >= gap && e[k - gap].end_ns > moved.end_ns; k -= gap)
				e[k] = e[k - gap];
			e[k] = moved;
		}
}

/* The stage of the same chunk that this one waits for; GP_AT_CHUNK_STAGES: none. For a tensor that was received this is its
 * encoding: sending it is a part of the time on the wire. */
static enum gp_interval_stage stage_before(const struct row *r, enum gp_interval_stage stage)
{
	const bool comes = resource_of[stage] == UP || resource_of[stage] == DOWN;
	for (int i = (int)stage - 1; i >= 0; i--) {
		const bool sent = resource_of[i] == NONE;
		if (has(r, (enum gp_interval_stage)i) && !(comes && sent))
			return (enum gp_interval_stage)i;
	}
	return GP_AT_CHUNK_STAGES;
}

/* When the stage could have begun; a tensor could cross the link from when it was encoded. */
static uint64_t ready_ns(const struct row *r, enum gp_interval_stage stage)
{
	const struct gp_moments *at = &r->at[stage];
	if (resource_of[stage] != UP && resource_of[stage] != DOWN)
		return least(at->queued_ns, at->begin_ns);
	const enum gp_interval_stage before = stage_before(r, stage);
	return least(before < GP_AT_CHUNK_STAGES ? r->at[before].end_ns : at->begin_ns, at->end_ns);
}

/* Lists what was done during the step, with chunks of other steps, too: they use the same threads and wires. */
static void list_events(struct gp_critical_path *p, const struct gp_critical_step *s)
{
	memset(p->count, 0, sizeof p->count);
	for (uint32_t i = 0; i < STEPS * p->chunks; i++) {
		const struct row *r = &p->row[i];
		for (int k = 0; k < GP_AT_CHUNK_STAGES && r->number != UINT64_MAX; k++) {
			const enum resource of = resource_of[k];
			if (of >= RESOURCES || !has(r, (enum gp_interval_stage)k) || r->at[k].end_ns <= s->begin_ns ||
			    r->at[k].begin_ns >= s->end_ns)
				continue;
			p->event[p->room[of] + p->count[of]++] =
				(struct event){.end_ns = r->at[k].end_ns,
					       .queued_ns = ready_ns(r, (enum gp_interval_stage)k),
					       .row = i,
					       .stage = (enum gp_interval_stage)k};
		}
	}
	for (int of = 0; of < RESOURCES; of++)
		sort_events(&p->event[p->room[of]], p->count[of]);
}

/* How many events of a resource end at `ns` or before. */
static int ended_by(const struct gp_critical_path *p, enum resource of, uint64_t ns)
{
	const struct event *e = &p->event[p->room[of]];
	int low = 0, high = p->count[of];
	while (low < high) {
		const int middle = low + (high - low) / 2;
		if (e[middle].end_ns <= ns)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The last event of the resource that ended between `after` and `until`, without the one where the walk stands. On a wire only a
 * tensor counts that was encoded before this one. */
static const struct event *last_before(const struct walk *w, enum resource of, uint64_t after, uint64_t until)
{
	const struct gp_critical_path *p = w->p;
	const bool wire = of == UP || of == DOWN;
	const uint64_t ready = ready_ns(w->row, w->stage);
	for (int i = ended_by(p, of, until) - 1; i >= 0; i--) {
		const struct event *e = &p->event[p->room[of] + i];
		const bool own = &p->row[e->row] == w->row && e->stage == w->stage;
		if (e->end_ns <= after)
			return NULL;
		if (!own && (!wire || e->queued_ns < ready))
			return e;
	}
	return NULL;
}

/* --- the walk ------------------------------------------------------------------------------------------------------- */

/* Charges to `bound` the time from `ns` to where the walk stands, as far as it lies within the step, and moves the walk there. */
static void charge(struct walk *w, enum gp_bound bound, uint64_t ns)
{
	const uint64_t from = most(least(ns, w->at_ns), w->step->begin_ns);
	w->out->ns[bound] += w->at_ns - from;
	w->at_ns = from;
}

static void go_to(struct walk *w, const struct row *row, enum gp_interval_stage stage)
{
	w->row = row;
	w->stage = stage;
}

static void finish(struct walk *w, enum gp_bound bound)
{
	charge(w, bound, w->step->begin_ns);
}

static void go_to_event(struct walk *w, const struct event *e)
{
	go_to(w, &w->p->row[e->row], e->stage);
}

/* The walk has come to the server's update of the step before. What came before that is charged to this side. */
static void pass_body_update(struct walk *w)
{
	const struct gp_moments *u = &w->step->body_update;
	charge(w, GP_BOUND_BODY, u->begin_ns);
	charge(w, GP_BOUND_OTHERS, u->queued_ns);
	charge(w, GP_BOUND_LATENCY, back(w->at_ns, w->step->delay_ns));
	finish(w, GP_BOUND_HEAD);
}

/* The walk has come to a chunk's first stage, which could begin when the chunk `window` before it was through. */
static void pass_begin(struct walk *w)
{
	const struct gp_critical_path *p = w->p;
	const uint64_t number = w->row->number, window = w->step->window;
	const struct row *before = number >= window ? row_of(p, number - window) : NULL;
	const bool there = before && before->number == number - window && has(before, GP_AT_CHUNK_DONE);
	if (!there || before->at[GP_AT_CHUNK_DONE].end_ns > w->at_ns ||
	    before->at[GP_AT_CHUNK_DONE].end_ns <= w->step->begin_ns) {
		finish(w, GP_BOUND_HEAD);
		return;
	}
	charge(w, GP_BOUND_HEAD, before->at[GP_AT_CHUNK_DONE].end_ns);
	go_to(w, before, GP_AT_CHUNK_DONE);
}

static void pass_to_stage_before(struct walk *w, enum gp_bound bound)
{
	const enum gp_interval_stage before = stage_before(w->row, w->stage);
	if (before == GP_AT_CHUNK_STAGES) {
		pass_begin(w);
		return;
	}
	charge(w, bound, w->row->at[before].end_ns);
	go_to(w, w->row, before);
}

/* Whether the server was busy with the update of the step before while this waited. */
static bool waited_for_update(const struct walk *w, const struct gp_moments *at, const struct event *other)
{
	const uint64_t end = w->step->body_update.end_ns;
	return resource_of[w->stage] == SERVER_COMPUTE && end > at->queued_ns && end <= at->begin_ns &&
	       (!other || other->end_ns < end);
}

static void pass_work(struct walk *w)
{
	const struct gp_moments at = w->row->at[w->stage];
	const enum resource of = resource_of[w->stage];
	const enum gp_bound own = bound_of(w->stage);
	const enum gp_bound waits = of == SERVER_COMPUTE || of == SERVER_CODEC ? GP_BOUND_OTHERS : own;
	charge(w, own, at.begin_ns);
	const struct event *e = at.begin_ns > at.queued_ns ? last_before(w, of, at.queued_ns, at.begin_ns) : NULL;
	if (waited_for_update(w, &at, e)) {
		charge(w, waits, w->step->body_update.end_ns);
		pass_body_update(w);
	} else if (e) {
		charge(w, waits, e->end_ns);
		go_to_event(w, e);
	} else {
		charge(w, waits, at.queued_ns);
		pass_to_stage_before(w, own);
	}
}

static void pass_wire(struct walk *w)
{
	const enum gp_bound wire = bound_of(w->stage);
	const uint64_t ready = ready_ns(w->row, w->stage), delay = w->step->delay_ns, end = w->row->at[w->stage].end_ns;
	const struct event *e = end > 0 ? last_before(w, resource_of[w->stage], ready + delay, end - 1) : NULL;
	if (e) {
		charge(w, wire, e->end_ns);
		go_to_event(w, e);
		return;
	}
	charge(w, wire, least(ready + delay, w->at_ns));
	charge(w, GP_BOUND_LATENCY, ready);
	pass_to_stage_before(w, wire);
}

static void pass(struct walk *w)
{
	const enum resource of = resource_of[w->stage];
	charge(w, bound_of(w->stage), w->row->at[w->stage].end_ns);
	if (of == UP || of == DOWN)
		pass_wire(w);
	else if (of < RESOURCES)
		pass_work(w);
	else
		pass_to_stage_before(w, bound_of(w->stage));
}

/* The chunk that was through last. */
static const struct row *last_chunk(const struct walk *w)
{
	const struct row *last = NULL;
	for (uint64_t n = w->step->first; n < w->step->first + w->p->chunks; n++) {
		const struct row *r = row_of(w->p, n);
		if (r->number == n && has(r, GP_AT_CHUNK_DONE) &&
		    (!last || r->at[GP_AT_CHUNK_DONE].end_ns >= last->at[GP_AT_CHUNK_DONE].end_ns))
			last = r;
	}
	return last;
}

/* The last backward pass of the body. */
static const struct event *last_backward(const struct walk *w)
{
	for (int i = ended_by(w->p, SERVER_COMPUTE, w->at_ns) - 1; i >= 0; i--) {
		const struct event *e = &w->p->event[w->p->room[SERVER_COMPUTE] + i];
		if (e->stage == GP_AT_BODY_BACKWARD)
			return e;
	}
	return NULL;
}

/* From the end of the step to what its update waited for. */
static void pass_end(struct walk *w)
{
	const struct gp_critical_step *s = w->step;
	if (s->update.end_ns > 0)
		charge(w, GP_BOUND_HEAD, s->update.queued_ns);
	const struct row *last = last_chunk(w);
	const uint64_t done = last ? last->at[GP_AT_CHUNK_DONE].end_ns : 0;
	if (s->squares_ns > most(done, s->committed_ns) && s->squares_ns <= w->at_ns) {
		charge(w, GP_BOUND_HEAD, s->squares_ns);
		charge(w, GP_BOUND_LATENCY, back(s->squares_ns, s->delay_ns));
		const struct event *e = last_backward(w);
		if (e) {
			charge(w, GP_BOUND_BODY, e->end_ns);
			go_to_event(w, e);
		} else {
			finish(w, GP_BOUND_BODY);
		}
	} else if (s->committed_ns > done && s->committed_ns <= w->at_ns) {
		charge(w, GP_BOUND_HEAD, s->committed_ns);
		charge(w, GP_BOUND_LATENCY, back(s->committed_ns, s->delay_ns));
		pass_body_update(w);
	} else if (last) {
		charge(w, GP_BOUND_HEAD, done);
		go_to(w, last, GP_AT_CHUNK_DONE);
	} else {
		finish(w, GP_BOUND_HEAD);
	}
}

void gp_critical_path_walk(struct gp_critical_path *p, const struct gp_critical_step *s, struct gp_bound_by *out)
{
	struct walk w = {.p = p, .step = s, .out = out, .at_ns = most(s->end_ns, s->begin_ns)};
	*out = (struct gp_bound_by){.steps = 1};
	if (!s->told)
		guess_all(p, s);
	list_events(p, s);
	pass_end(&w);
	/* Each stage of each chunk is passed once at most, but for made-up times that lead back to where the walk was. */
	for (int left = p->room[RESOURCES] + STEPS * (int)p->chunks * GP_AT_CHUNK_STAGES; left > 0 && w.row; left--) {
		if (w.at_ns <= s->begin_ns)
			break;
		pass(&w);
	}
	finish(&w, GP_BOUND_HEAD);
}
