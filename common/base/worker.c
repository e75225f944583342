/* SPDX-License-Identifier: Apache-2.0
 *
 * Worker threads and lanes. See worker.h. Test: tests/unit/test_worker.c
 */
#include "common/base/worker.h"

#include <pthread.h>
#include <string.h>
#include <sys/resource.h>

#include "common/base/clock.h"
#include "common/base/mem.h"

#define WORKER_THREADS_MAX 64

/* What a thread has begun and not finished, oldest first. */
struct gp_worker_thread {
	struct gp_task *task[GP_TASKS_BEGUN];
	int count;
	int nice;
	uint64_t end_ns; /* of the task that it finished last */
};

/* What the time used by shares is compared with. It never goes back, so that nobody gains by having been idle. */
struct clock {
	pthread_mutex_t lock; /* of everything here, and of the shares; the last to be taken */
	struct gp_share *active;
	atomic_uint_least64_t least_ns; /* where that one stood that had used least, when a task last began */
	atomic_uint_least64_t begin_ns; /* where a share begins: there, or further on */
};

struct gp_worker {
	pthread_mutex_t lock;
	struct clock clock;
	pthread_cond_t work;
	struct gp_lane_user *first, *last; /* users with tasks that wait */
	int lanes;
	struct gp_task *done, **done_end; /* finished, waiting for the loop */
	bool stop;
	int nice;
	int threads;
	pthread_t thread[WORKER_THREADS_MAX];
	char name[16];
	uv_async_t wake;
};

/* --- shares ------------------------------------------------------------------------------------------------------- */

/* Tasks under way count as much as the one before them did until they have ended. Shares of different clocks cannot be
 * compared but by how far each is ahead of its own. */
static int64_t ahead_ns(const struct gp_share *s)
{
	return (int64_t)(atomic_load(&s->used_ns) + atomic_load(&s->under_way_ns) -
			 atomic_load(&s->home->clock.least_ns));
}

static uint64_t by_weight(const struct gp_share *s, uint64_t ns)
{
	return (uint64_t)((double)ns / s->weight);
}

static void list_active(struct clock *c, struct gp_share *s)
{
	s->prev = NULL;
	s->next = c->active;
	if (c->active)
		c->active->prev = s;
	c->active = s;
}

static void unlist_active(struct clock *c, struct gp_share *s)
{
	*(s->prev ? &s->prev->next : &c->active) = s->next;
	if (s->next)
		s->next->prev = s->prev;
	s->prev = s->next = NULL;
}

/* A share that had nothing to do has not saved up time against the busy ones. */
static void share_submitted(struct gp_share *s)
{
	struct clock *c = &s->home->clock;
	pthread_mutex_lock(&c->lock);
	if (s->pending++ == 0) {
		if (s->used_ns < c->begin_ns)
			s->used_ns = c->begin_ns;
		list_active(c, s);
	}
	pthread_mutex_unlock(&c->lock);
}

static void advance(struct clock *c)
{
	uint64_t least = UINT64_MAX;
	for (const struct gp_share *s = c->active; s; s = s->next)
		least = s->used_ns < least ? s->used_ns : least;
	if (c->active && least > c->least_ns)
		c->least_ns = least;
	if (c->begin_ns < c->least_ns)
		c->begin_ns = c->least_ns;
}

/* As long as shares come that have used nothing, the least of them stays where it is. */
static void move_begin(struct clock *c, uint64_t took_ns)
{
	const uint64_t next = c->begin_ns + took_ns / GP_SHARE_NEWCOMERS, most = c->least_ns + GP_SHARE_AHEAD_NS;
	if (next <= most)
		c->begin_ns = next;
}

/* Returns what is to be told share_finished. */
static uint64_t share_began(struct gp_share *s, uint64_t expected_ns)
{
	struct clock *c = &s->home->clock;
	pthread_mutex_lock(&c->lock);
	const uint64_t expected = by_weight(s, expected_ns);
	s->under_way_ns += expected;
	advance(c);
	pthread_mutex_unlock(&c->lock);
	return expected;
}

static uint64_t max_ns(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* How far a share can get ahead is limited: so long may it have to wait for the others. */
static void share_finished(struct gp_share *s, uint64_t expected, uint64_t took_ns)
{
	struct clock *c = &s->home->clock;
	pthread_mutex_lock(&c->lock);
	const uint64_t took = by_weight(s, took_ns), most = c->least_ns + max_ns(took, GP_SHARE_AHEAD_NS);
	const uint64_t used = s->used_ns + took;
	s->under_way_ns -= expected;
	s->used_ns = used < most ? used : max_ns(s->used_ns, most);
	move_begin(c, took_ns);
	if (--s->pending == 0)
		unlist_active(c, s);
	pthread_mutex_unlock(&c->lock);
}

void gp_share_init(struct gp_share *s, struct gp_worker *home, double weight)
{
	gp_require(weight > 0.0);
	*s = (struct gp_share){.home = home, .weight = weight, .used_ns = atomic_load(&home->clock.begin_ns)};
}

void gp_share_follow(struct gp_share *s, uint64_t used_ns)
{
	struct clock *c = &s->home->clock;
	pthread_mutex_lock(&c->lock);
	const uint64_t most = c->least_ns + GP_SHARE_AHEAD_NS, used = used_ns < most ? used_ns : most;
	s->used_ns = max_ns(s->used_ns, used);
	pthread_mutex_unlock(&c->lock);
}

uint64_t gp_share_used(const struct gp_share *s)
{
	return atomic_load(&s->used_ns);
}

void gp_share_set_weight(struct gp_share *s, double weight)
{
	gp_require(weight > 0.0);
	pthread_mutex_lock(&s->home->clock.lock);
	s->weight = weight;
	pthread_mutex_unlock(&s->home->clock.lock);
}

void gp_share_move(struct gp_share *s, struct gp_worker *home)
{
	gp_require(s->pending == 0);
	gp_share_init(s, home, s->weight);
}

/* --- turns -------------------------------------------------------------------------------------------------------- */

/* The most urgent priority that a task waits with; GP_TASK_PRIORITIES: none waits. */
static int first_waiting(const struct gp_lane *lane)
{
	int p = 0;
	while (p < GP_TASK_PRIORITIES && !lane->head[p])
		p++;
	return p;
}

static bool lane_waits(const struct gp_lane *lane)
{
	return first_waiting(lane) < GP_TASK_PRIORITIES;
}

static bool lane_ready(const struct gp_lane *lane, const struct gp_worker_thread *by)
{
	return lane_waits(lane) && (lane->begun == 0 || lane->thread == by);
}

/* A user's next lane that this thread may serve. Those passed over are at work on other threads: few. */
static struct gp_lane *ready_lane(const struct gp_lane_user *user, const struct gp_worker_thread *by)
{
	struct gp_lane *lane = user->first;
	while (lane && !lane_ready(lane, by))
		lane = lane->next;
	return lane;
}

/* The next lane of the user that has used the least time, NULL if none is ready. */
static struct gp_lane *pick_lane(struct gp_worker *w, const struct gp_worker_thread *by)
{
	struct gp_lane *best = NULL;
	int64_t least = 0;
	for (struct gp_lane_user *user = w->first; user; user = user->next) {
		const int64_t ahead = ahead_ns(user->share);
		if (best && ahead >= least)
			continue;
		struct gp_lane *lane = ready_lane(user, by);
		best = lane ? lane : best;
		least = lane ? ahead : least;
	}
	return best;
}

/* --- lists of what waits ------------------------------------------------------------------------------------------ */

static void append_user(struct gp_worker *w, struct gp_lane_user *user)
{
	user->prev = w->last;
	user->next = NULL;
	*(w->last ? &w->last->next : &w->first) = user;
	w->last = user;
}

static void remove_user(struct gp_worker *w, struct gp_lane_user *user)
{
	*(user->prev ? &user->prev->next : &w->first) = user->next;
	*(user->next ? &user->next->prev : &w->last) = user->prev;
	user->prev = user->next = NULL;
}

static void append_lane(struct gp_worker *w, struct gp_lane *lane)
{
	struct gp_lane_user *user = lane->user;
	if (!user->first)
		append_user(w, user);
	lane->prev = user->last;
	lane->next = NULL;
	*(user->last ? &user->last->next : &user->first) = lane;
	user->last = lane;
}

static void remove_lane(struct gp_worker *w, struct gp_lane *lane)
{
	struct gp_lane_user *user = lane->user;
	*(lane->prev ? &lane->prev->next : &user->first) = lane->next;
	*(lane->next ? &lane->next->prev : &user->last) = lane->prev;
	lane->prev = lane->next = NULL;
	if (!user->first)
		remove_user(w, user);
}

/* --- tasks -------------------------------------------------------------------------------------------------------- */

static struct gp_task *next_task(const struct gp_lane *lane)
{
	const int p = first_waiting(lane);
	return p < GP_TASK_PRIORITIES ? lane->head[p] : NULL;
}

/* The lane is the last of its user to have another turn. */
static struct gp_task *pop_task(struct gp_worker *w, struct gp_lane *lane)
{
	const int p = first_waiting(lane);
	struct gp_task *t = lane->head[p];
	lane->head[p] = t->next;
	if (!t->next)
		lane->tail[p] = NULL;
	t->next = NULL;
	remove_lane(w, lane);
	if (lane_waits(lane))
		append_lane(w, lane);
	return t;
}

static void count_task(struct gp_lane *lane, const struct gp_task *t)
{
	struct gp_lane_user *user = lane->user;
	lane->begun--;
	user->last_ns = t->end_ns - t->start_ns;
	atomic_fetch_add(&user->total_ns, user->last_ns);
	share_finished(user->share, t->expected_ns, user->last_ns);
}

/* On Linux this is of the thread. Whoever cannot be told works as before. */
static void be_as_nice(struct gp_worker_thread *me, int nice)
{
	if (me->nice != nice)
		(void)setpriority(PRIO_PROCESS, 0, nice);
	me->nice = nice;
}

/* Called with the lock held, which is let go while the task's own part runs. */
static void begin_task(struct gp_worker *w, struct gp_worker_thread *me, struct gp_lane *lane)
{
	struct gp_task *t = pop_task(w, lane);
	lane->begun++;
	lane->thread = me;
	t->expected_ns = share_began(lane->user->share, lane->user->last_ns);
	me->task[me->count++] = t;
	const int nice = w->nice;
	pthread_mutex_unlock(&w->lock);
	be_as_nice(me, nice);
	t->start_ns = gp_now_ns();
	t->run(t);
	pthread_mutex_lock(&w->lock);
}

/* Called with the lock held, which is let go while the task's own part runs. Where two tasks overlap, the time
 * counts for the earlier one. */
static void finish_oldest(struct gp_worker *w, struct gp_worker_thread *me)
{
	struct gp_task *t = me->task[0];
	pthread_mutex_unlock(&w->lock);
	if (t->finish && t->status == GP_OK)
		t->finish(t);
	t->end_ns = gp_now_ns();
	pthread_mutex_lock(&w->lock);
	me->count--;
	memmove(me->task, me->task + 1, (size_t)me->count * sizeof me->task[0]);
	if (t->start_ns < me->end_ns)
		t->start_ns = me->end_ns;
	me->end_ns = t->end_ns;
	count_task(t->lane, t);
	*w->done_end = t;
	w->done_end = &t->next;
	if (lane_waits(t->lane))
		pthread_cond_signal(&w->work);
	uv_async_send(&w->wake);
}

/* The lane whose next task this thread may begin now. */
static struct gp_lane *next_lane(struct gp_worker *w, const struct gp_worker_thread *me)
{
	if (me->count == GP_TASKS_BEGUN || (me->count > 0 && !me->task[me->count - 1]->finish))
		return NULL;
	struct gp_lane *lane = pick_lane(w, me);
	return lane && (me->count == 0 || next_task(lane)->finish) ? lane : NULL;
}

static void *worker_main(void *arg)
{
	struct gp_worker *w = arg;
	struct gp_worker_thread me = {0};
	pthread_setname_np(pthread_self(), w->name);
	pthread_mutex_lock(&w->lock);
	for (;;) {
		struct gp_lane *lane = next_lane(w, &me);
		if (lane)
			begin_task(w, &me, lane);
		else if (me.count > 0)
			finish_oldest(w, &me);
		else if (w->stop)
			break;
		else
			pthread_cond_wait(&w->work, &w->lock);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

static void run_done(uv_async_t *wake)
{
	struct gp_worker *w = wake->data;
	pthread_mutex_lock(&w->lock);
	struct gp_task *t = w->done;
	w->done = NULL;
	w->done_end = &w->done;
	pthread_mutex_unlock(&w->lock);
	while (t) {
		struct gp_task *next = t->next;
		t->next = NULL;
		t->lane->pending--;
		t->done(t);
		t = next;
	}
}

static void join_threads(struct gp_worker *w)
{
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_broadcast(&w->work);
	pthread_mutex_unlock(&w->lock);
	for (int i = 0; i < w->threads; i++)
		pthread_join(w->thread[i], NULL);
}

static void destroy_locks(struct gp_worker *w)
{
	pthread_cond_destroy(&w->work);
	pthread_mutex_destroy(&w->lock);
	pthread_mutex_destroy(&w->clock.lock);
}

static void worker_destroy(uv_handle_t *wake)
{
	struct gp_worker *w = wake->data;
	destroy_locks(w);
	gp_free(w);
}

enum gp_status gp_worker_new(uv_loop_t *loop, const char *name, int threads, struct gp_worker **out, struct gp_err *err)
{
	gp_require(threads >= 1 && threads <= WORKER_THREADS_MAX);
	struct gp_worker *w = gp_calloc(1, sizeof *w);
	if (!w)
		GP_FAIL(err, GP_NOMEM, "out of memory for a worker");
	w->done_end = &w->done;
	snprintf(w->name, sizeof w->name, "%s", name);
	pthread_mutex_init(&w->lock, NULL);
	pthread_mutex_init(&w->clock.lock, NULL);
	pthread_cond_init(&w->work, NULL);
	int code = uv_async_init(loop, &w->wake, run_done);
	if (code != 0) {
		destroy_locks(w);
		gp_free(w);
		GP_FAIL(err, GP_IO, "cannot make a wake-up handle: %s", uv_strerror(code));
	}
	w->wake.data = w;
	for (; w->threads < threads; w->threads++) {
		code = pthread_create(&w->thread[w->threads], NULL, worker_main, w);
		if (code != 0) {
			gp_worker_free(w);
			GP_FAIL(err, GP_IO, "cannot start a worker thread: %s", strerror(code));
		}
	}
	*out = w;
	return GP_OK;
}

void gp_worker_set_nice(struct gp_worker *w, int nice)
{
	pthread_mutex_lock(&w->lock);
	w->nice = nice;
	pthread_mutex_unlock(&w->lock);
}

void gp_worker_free(struct gp_worker *w)
{
	if (!w)
		return;
	join_threads(w);
	gp_require(w->lanes == 0);
	uv_close((uv_handle_t *)&w->wake, worker_destroy);
}

static void init_user(struct gp_lane_user *user, struct gp_worker *w)
{
	struct gp_share *share = user->share;
	*user = (struct gp_lane_user){.worker = w, .share = share ? share : &user->alone};
	if (!share)
		gp_share_init(&user->alone, w, 1.0);
}

void gp_lane_init(struct gp_lane *lane, struct gp_worker *w, struct gp_lane_user *user)
{
	memset(lane, 0, sizeof *lane);
	lane->worker = w;
	lane->user = user ? user : &lane->own;
	gp_require(!lane->user->worker || lane->user->worker == w);
	if (!lane->user->worker)
		init_user(lane->user, w);
	pthread_mutex_lock(&w->lock);
	w->lanes++;
	pthread_mutex_unlock(&w->lock);
}

void gp_lane_deinit(struct gp_lane *lane)
{
	struct gp_worker *w = lane->worker;
	if (!w)
		return;
	gp_require(lane->pending == 0);
	pthread_mutex_lock(&w->lock);
	w->lanes--;
	pthread_mutex_unlock(&w->lock);
	lane->worker = NULL;
}

void gp_worker_submit(struct gp_lane *lane, struct gp_task *t, int priority)
{
	gp_require(priority >= 0 && priority < GP_TASK_PRIORITIES);
	struct gp_worker *w = lane->worker;
	t->lane = lane;
	t->next = NULL;
	t->status = GP_OK;
	t->queued_ns = gp_now_ns();
	lane->pending++;
	pthread_mutex_lock(&w->lock);
	share_submitted(lane->user->share);
	if (!lane_waits(lane))
		append_lane(w, lane);
	if (lane->tail[priority])
		lane->tail[priority]->next = t;
	else
		lane->head[priority] = t;
	lane->tail[priority] = t;
	pthread_cond_signal(&w->work);
	pthread_mutex_unlock(&w->lock);
}
