/* SPDX-License-Identifier: Apache-2.0
 *
 * Worker threads and lanes. See worker.h. Test: tests/unit/test_worker.c
 */
#include "common/base/worker.h"

#include <pthread.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"

#define WORKER_THREADS_MAX 64

/* What a thread has begun and not finished, oldest first. */
struct gp_worker_thread {
	struct gp_task *task[GP_TASKS_BEGUN];
	int count;
	uint64_t end_ns; /* of the task that it finished last */
};

struct gp_worker {
	pthread_mutex_t lock;
	pthread_cond_t work;
	struct gp_lane_user *first, *last; /* users with tasks that wait */
	int lanes;
	struct gp_task *done, **done_end; /* finished, waiting for the loop */
	uint64_t floor_ns;                /* used_ns of the user served last: where a new one starts */
	bool stop;
	int threads;
	pthread_t thread[WORKER_THREADS_MAX];
	char name[16];
	uv_async_t wake;
};

static bool lane_waits(const struct gp_lane *lane)
{
	return lane->head[0] || lane->head[1];
}

static bool lane_ready(const struct gp_lane *lane, const struct gp_worker_thread *by)
{
	return lane_waits(lane) && (lane->begun == 0 || lane->thread == by);
}

/* Tasks under way count when they are finished; until then each counts as much as the user's last task. */
static uint64_t expected_ns(const struct gp_lane_user *user)
{
	return user->used_ns + (uint64_t)user->begun * user->last_ns;
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
	for (struct gp_lane_user *user = w->first; user; user = user->next)
		if (!best || expected_ns(user) < expected_ns(best->user)) {
			struct gp_lane *lane = ready_lane(user, by);
			best = lane ? lane : best;
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
	return lane->head[lane->head[0] ? 0 : 1];
}

/* The lane is the last of its user to have another turn. */
static struct gp_task *pop_task(struct gp_worker *w, struct gp_lane *lane)
{
	const int p = lane->head[0] ? 0 : 1;
	struct gp_task *t = next_task(lane);
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
	user->begun--;
	user->last_ns = t->end_ns - t->start_ns;
	user->used_ns += user->last_ns;
}

/* Called with the lock held, which is let go while the task's own part runs. */
static void begin_task(struct gp_worker *w, struct gp_worker_thread *me, struct gp_lane *lane)
{
	struct gp_task *t = pop_task(w, lane);
	lane->begun++;
	lane->user->begun++;
	lane->thread = me;
	w->floor_ns = lane->user->used_ns;
	me->task[me->count++] = t;
	pthread_mutex_unlock(&w->lock);
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

static void worker_destroy(uv_handle_t *wake)
{
	struct gp_worker *w = wake->data;
	pthread_cond_destroy(&w->work);
	pthread_mutex_destroy(&w->lock);
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
	pthread_cond_init(&w->work, NULL);
	int code = uv_async_init(loop, &w->wake, run_done);
	if (code != 0) {
		pthread_cond_destroy(&w->work);
		pthread_mutex_destroy(&w->lock);
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

void gp_worker_free(struct gp_worker *w)
{
	if (!w)
		return;
	join_threads(w);
	gp_require(w->lanes == 0);
	uv_close((uv_handle_t *)&w->wake, worker_destroy);
}

void gp_lane_init(struct gp_lane *lane, struct gp_worker *w, struct gp_lane_user *user)
{
	memset(lane, 0, sizeof *lane);
	lane->worker = w;
	lane->user = user ? user : &lane->own;
	gp_require(!lane->user->worker || lane->user->worker == w);
	pthread_mutex_lock(&w->lock);
	if (!lane->user->worker)
		*lane->user = (struct gp_lane_user){.worker = w, .used_ns = w->floor_ns};
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
	/* A user that was idle must not have saved up time against the busy ones. */
	if (!lane->user->begun && !lane->user->first && lane->user->used_ns < w->floor_ns)
		lane->user->used_ns = w->floor_ns;
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
