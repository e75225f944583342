/* SPDX-License-Identifier: Apache-2.0
 *
 * See plan_sim.h. Test: tests/unit/test_plan_schedule.c
 */
#include "client/plan/plan_sim.h"

#include <math.h>

#include "common/base/mem.h"

/* --- rings -------------------------------------------------------------------------------------------------------- */

static void push(struct gp_sim *s, struct gp_sim_queue *q, const struct gp_sim_job *job)
{
	if (q->count == s->room) {
		s->full = true;
		return;
	}
	q->job[(q->first + q->count++) % s->room] = *job;
}

static struct gp_sim_job *front(struct gp_sim_queue *q)
{
	return q->count > 0 ? &q->job[q->first] : NULL;
}

static void pop(const struct gp_sim *s, struct gp_sim_queue *q)
{
	q->first = (q->first + 1) % s->room;
	q->count--;
}

static enum gp_status make_queue(const struct gp_sim *s, struct gp_sim_queue *q, struct gp_err *err)
{
	return gp_alloc_array((void **)&q->job, s->room, sizeof *q->job, err);
}

static enum gp_status make_way(const struct gp_sim *s, struct gp_sim_way *w, struct gp_err *err)
{
	for (int k = 0; k < GP_SIM_CLASSES; k++)
		GP_TRY(make_queue(s, &w->queue[k], err));
	GP_TRY(gp_alloc_array((void **)&w->kernel, s->segments, sizeof *w->kernel, err));
	return gp_alloc_array((void **)&w->flight, s->segments, sizeof *w->flight, err);
}

enum gp_status gp_sim_init(struct gp_sim *s, struct gp_err *err)
{
	for (int w = 0; w < GP_SIM_WORKERS; w++)
		for (int l = 0; l < s->worker[w].lanes; l++)
			for (int p = 0; p < GP_SIM_PRIORITIES; p++)
				GP_TRY(make_queue(s, &s->worker[w].lane[l].queue[p], err));
	for (int w = 0; w < GP_SIM_WAYS; w++)
		GP_TRY(make_way(s, &s->way[w], err));
	return GP_OK;
}

void gp_sim_deinit(struct gp_sim *s)
{
	for (int w = 0; w < GP_SIM_WORKERS; w++)
		for (int l = 0; l < s->worker[w].lanes; l++)
			for (int p = 0; p < GP_SIM_PRIORITIES; p++)
				gp_free(s->worker[w].lane[l].queue[p].job);
	for (int w = 0; w < GP_SIM_WAYS; w++) {
		for (int k = 0; k < GP_SIM_CLASSES; k++)
			gp_free(s->way[w].queue[k].job);
		gp_free(s->way[w].kernel);
		gp_free(s->way[w].flight);
	}
}

/* --- workers ------------------------------------------------------------------------------------------------------ */

void gp_sim_submit(struct gp_sim *s, int worker, int lane, int priority, int what, uint64_t number, double work_s)
{
	const struct gp_sim_job job = {
		.what = what, .worker = worker, .lane = lane, .number = number, .left = work_s, .queued_s = s->now_s};
	push(s, &s->worker[worker].lane[lane].queue[priority], &job);
}

static struct gp_sim_queue *next_of(struct gp_sim_lane *l)
{
	int p = 0;
	while (p + 1 < GP_SIM_PRIORITIES && l->queue[p].count == 0)
		p++;
	return &l->queue[p];
}

/* The lane that has waited longest for its turn, of those with work. */
static struct gp_sim_lane *next_lane(struct gp_sim_worker *w)
{
	struct gp_sim_lane *next = NULL;
	for (int i = 0; i < w->lanes; i++) {
		struct gp_sim_lane *l = &w->lane[i];
		if (!l->busy && next_of(l)->count > 0 && (!next || l->turn < next->turn))
			next = l;
	}
	return next;
}

static void begin_tasks(struct gp_sim *s, struct gp_sim_worker *w)
{
	struct gp_sim_lane *l;
	while (w->running < w->most && s->count < GP_SIM_RUNNING && (l = next_lane(w))) {
		struct gp_sim_queue *q = next_of(l);
		struct gp_sim_job *job = &s->running[s->count++];
		*job = *front(q);
		job->begin_s = s->now_s;
		pop(s, q);
		l->busy = true;
		l->turn = ++s->turns;
		w->running++;
	}
}

static void end_task(struct gp_sim *s, int index)
{
	const struct gp_sim_job job = s->running[index];
	s->running[index] = s->running[--s->count];
	s->worker[job.worker].running--;
	s->worker[job.worker].lane[job.lane].busy = false;
	s->done(s->arg, &job);
}

/* --- the link ----------------------------------------------------------------------------------------------------- */

void gp_sim_send(struct gp_sim *s, int way, int klass, int what, uint64_t number, double bytes)
{
	const struct gp_sim_job frame = {
		.what = what, .number = number, .left = bytes, .queued_s = s->now_s, .begin_s = -1};
	push(s, &s->way[way].queue[klass], &frame);
}

/* The next segments of the most urgent frames, as long as one may be written. */
static void begin_writes(struct gp_sim *s, struct gp_sim_way *w)
{
	while (w->writes < w->writes_most) {
		int k = 0;
		while (k < GP_SIM_CLASSES && w->queue[k].count == 0)
			k++;
		if (k == GP_SIM_CLASSES)
			return;
		struct gp_sim_job *f = front(&w->queue[k]);
		const double bytes = fmin(f->left, s->segment_bytes);
		if (f->begin_s < 0)
			f->begin_s = s->now_s;
		f->left -= bytes;
		w->write[w->writes++] = (struct gp_sim_segment){.frame = *f, .bytes = bytes, .last = f->left <= 0};
		if (f->left <= 0)
			pop(s, &w->queue[k]);
	}
}

/* Below this the kernel asks for more. */
static double low_mark(const struct gp_sim_way *w)
{
	return w->queue_bytes + w->kernel_bytes / 2;
}

/* Hands the kernel what it takes. */
static void hand_over(struct gp_sim *s, struct gp_sim_way *w)
{
	if (w->blocked && w->at_kernel > low_mark(w) + 0.5)
		return;
	w->blocked = false;
	for (begin_writes(s, w); w->writes > 0 && !w->blocked && w->kernel_count < s->segments; begin_writes(s, w)) {
		struct gp_sim_segment *from = &w->write[0], piece = *from;
		piece.bytes = fmin(from->bytes, w->queue_bytes + w->kernel_bytes - w->at_kernel);
		from->bytes -= piece.bytes;
		w->blocked = from->bytes > 0;
		piece.last = from->last && !w->blocked;
		piece.frame.handed_s = s->now_s;
		w->kernel[(w->kernel_first + w->kernel_count++) % s->segments] = piece;
		w->at_kernel += piece.bytes;
		if (!w->blocked)
			w->write[0] = w->write[--w->writes];
	}
}

/* Seconds until a kernel that takes no more asks for more. */
static double asks_in(const struct gp_sim_way *w)
{
	if (!w->blocked || w->now_bytes_per_s <= 0)
		return INFINITY;
	return fmax((w->at_kernel - low_mark(w)) / w->now_bytes_per_s, 0);
}

/* Seconds until the kernel's first segment has left. What is on its way then is its frame, if it was the last one of
 * that. */
static double leaves_in(const struct gp_sim_way *w)
{
	if (w->kernel_count == 0)
		return INFINITY;
	return w->now_bytes_per_s > 0 ? w->kernel[w->kernel_first].bytes / w->now_bytes_per_s : 0;
}

static void leave(struct gp_sim *s, struct gp_sim_way *w)
{
	struct gp_sim_segment *from = &w->kernel[w->kernel_first];
	if (from->last && w->flight_count == s->segments) {
		s->full = true;
		return;
	}
	from->due_s = s->now_s + w->delay_s;
	if (from->last)
		w->flight[(w->flight_first + w->flight_count++) % s->segments] = *from;
	w->kernel_first = (w->kernel_first + 1) % s->segments;
	w->kernel_count--;
}

static void arrive(struct gp_sim *s, int way)
{
	struct gp_sim_way *w = &s->way[way];
	const struct gp_sim_segment segment = w->flight[w->flight_first];
	w->flight_first = (w->flight_first + 1) % s->segments;
	w->flight_count--;
	s->arrived(s->arg, way, &segment.frame);
}

/* --- processors --------------------------------------------------------------------------------------------------- */

/* Without anything else on the processors: the link's rate, or what the slower mover reaches. 0: as fast as it goes. */
static double rate_alone(const struct gp_sim *s, const struct gp_sim_way *w)
{
	const double byte_s = fmax(s->mover[0].byte_s, s->mover[1].byte_s);
	if (w->bytes_per_s > 0 || byte_s <= 0)
		return w->bytes_per_s;
	return 1 / byte_s;
}

/* Processors that a mover would keep busy; a thread has one at most. */
static double wanted_by(const struct gp_sim *s, const struct gp_sim_mover *m)
{
	double bytes_per_s = 0;
	for (int w = 0; w < GP_SIM_WAYS; w++)
		if (s->way[w].kernel_count > 0)
			bytes_per_s += rate_alone(s, &s->way[w]);
	return bytes_per_s * m->byte_s;
}

static int threads_of(const struct gp_sim *s, int pool)
{
	int threads = 0;
	for (int i = 0; i < s->count; i++)
		if (s->worker[s->running[i].worker].pool == pool)
			threads += s->worker[s->running[i].worker].threads;
	return threads;
}

/* What each thread of a pool gets of a processor, unless it wants less: tasks want a whole one for each of their
 * threads. The share grows with every mover that leaves a part of it. */
static double share_of(const struct gp_sim *s, int pool)
{
	double share = 0, before = -1;
	if (s->processors[pool] <= 0)
		return 1;
	while (share > before) {
		double left = s->processors[pool];
		int sharing = threads_of(s, pool);
		for (int e = 0; e < GP_SIM_ENDS; e++) {
			const double wanted = s->mover[e].pool == pool ? fmin(wanted_by(s, &s->mover[e]), 1) : 0;
			if (wanted > share)
				sharing++;
			else
				left -= wanted;
		}
		before = share;
		share = sharing > 0 ? fmax(left / sharing, share) : 1;
	}
	return fmin(share, 1);
}

static void set_speeds(struct gp_sim *s, double share[GP_SIM_POOLS])
{
	double slower = 1;
	for (int p = 0; p < GP_SIM_POOLS; p++)
		share[p] = share_of(s, p);
	for (int e = 0; e < GP_SIM_ENDS; e++) {
		const double wanted = wanted_by(s, &s->mover[e]);
		if (wanted > share[s->mover[e].pool])
			slower = fmin(slower, share[s->mover[e].pool] / wanted);
	}
	for (int w = 0; w < GP_SIM_WAYS; w++)
		s->way[w].now_bytes_per_s = slower * rate_alone(s, &s->way[w]);
}

/* --- time --------------------------------------------------------------------------------------------------------- */

static void begin_all(struct gp_sim *s)
{
	for (int w = 0; w < GP_SIM_WORKERS; w++)
		begin_tasks(s, &s->worker[w]);
	for (int w = 0; w < GP_SIM_WAYS; w++)
		hand_over(s, &s->way[w]);
}

/* What happens next: a task ends, a segment leaves, or one arrives; or none of these: the kernel asks for more. */
struct next {
	double in_s;
	int task, leaves, arrives; /* -1: not this */
};

static void consider(struct next *n, double in_s, int task, int leaves, int arrives)
{
	if (in_s < n->in_s)
		*n = (struct next){in_s, task, leaves, arrives};
}

static struct next find_next(const struct gp_sim *s, const double speed[GP_SIM_POOLS])
{
	struct next n = {INFINITY, -1, -1, -1};
	for (int i = 0; i < s->count; i++)
		consider(&n, s->running[i].left / speed[s->worker[s->running[i].worker].pool], i, -1, -1);
	for (int w = 0; w < GP_SIM_WAYS; w++) {
		const struct gp_sim_way *way = &s->way[w];
		consider(&n, leaves_in(way), -1, w, -1);
		consider(&n, asks_in(way), -1, -1, -1);
		if (way->flight_count > 0)
			consider(&n, fmax(way->flight[way->flight_first].due_s - s->now_s, 0), -1, -1, w);
	}
	return n;
}

static void pass_time(struct gp_sim *s, const double speed[GP_SIM_POOLS], double by_s)
{
	for (int i = 0; i < s->count; i++)
		s->running[i].left = fmax(s->running[i].left - by_s * speed[s->worker[s->running[i].worker].pool], 0);
	for (int w = 0; w < GP_SIM_WAYS; w++) {
		struct gp_sim_way *way = &s->way[w];
		const double bytes = by_s * way->now_bytes_per_s;
		if (way->kernel_count == 0 || way->now_bytes_per_s <= 0)
			continue;
		way->kernel[way->kernel_first].bytes = fmax(way->kernel[way->kernel_first].bytes - bytes, 0);
		way->at_kernel = fmax(way->at_kernel - bytes, 0);
	}
	s->now_s += by_s;
}

bool gp_sim_next(struct gp_sim *s)
{
	double speed[GP_SIM_POOLS];
	begin_all(s);
	set_speeds(s, speed);
	const struct next n = find_next(s, speed);
	if (s->full || !(n.in_s < INFINITY))
		return false;
	pass_time(s, speed, n.in_s);
	if (n.task >= 0) {
		end_task(s, n.task);
	} else if (n.leaves >= 0) {
		struct gp_sim_way *w = &s->way[n.leaves];
		w->at_kernel = fmax(w->at_kernel - w->kernel[w->kernel_first].bytes, 0);
		leave(s, w);
	} else if (n.arrives >= 0) {
		arrive(s, n.arrives);
	}
	return !s->full;
}
