/* SPDX-License-Identifier: Apache-2.0
 *
 * Worker threads and lanes. See worker.h. Test: tests/unit/test_worker.c
 */
#include "common/worker.h"

#include <pthread.h>
#include <string.h>

#include "common/account.h"
#include "common/mem.h"

#define WORKER_THREADS_MAX 64

struct gp_worker {
	pthread_mutex_t lock;
	pthread_cond_t work;
	struct gp_lane *lanes;            /* all of them, doubly linked */
	struct gp_task *done, **done_end; /* finished, waiting for the loop */
	uint64_t floor_ns;                /* used_ns of the lane served last: where a new lane starts */
	bool stop;
	int threads;
	pthread_t thread[WORKER_THREADS_MAX];
	char name[16];
	uv_async_t wake;
};

static bool lane_ready(const struct gp_lane *lane)
{
	return !lane->running && (lane->head[0] || lane->head[1]);
}

/* The ready lane that has used the least time, NULL if none is ready. */
static struct gp_lane *pick_lane(struct gp_worker *w)
{
	struct gp_lane *best = NULL;
	for (struct gp_lane *lane = w->lanes; lane; lane = lane->next)
		if (lane_ready(lane) && (!best || lane->used_ns < best->used_ns))
			best = lane;
	return best;
}

static struct gp_task *pop_task(struct gp_lane *lane)
{
	int p = lane->head[0] ? 0 : 1;
	struct gp_task *t = lane->head[p];
	lane->head[p] = t->next;
	if (!t->next)
		lane->tail[p] = NULL;
	t->next = NULL;
	return t;
}

static void finish_task(struct gp_worker *w, struct gp_lane *lane, struct gp_task *t)
{
	lane->running = false;
	lane->used_ns += t->end_ns - t->start_ns;
	*w->done_end = t;
	w->done_end = &t->next;
	if (lane_ready(lane))
		pthread_cond_signal(&w->work);
	uv_async_send(&w->wake);
}

static void *worker_main(void *arg)
{
	struct gp_worker *w = arg;
	pthread_setname_np(pthread_self(), w->name);
	pthread_mutex_lock(&w->lock);
	for (;;) {
		struct gp_lane *lane = pick_lane(w);
		if (!lane && w->stop)
			break;
		if (!lane) {
			pthread_cond_wait(&w->work, &w->lock);
			continue;
		}
		struct gp_task *t = pop_task(lane);
		lane->running = true;
		w->floor_ns = lane->used_ns;
		pthread_mutex_unlock(&w->lock);
		t->start_ns = gp_now_ns();
		t->run(t);
		t->end_ns = gp_now_ns();
		pthread_mutex_lock(&w->lock);
		finish_task(w, lane, t);
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
	gp_require(!w->lanes);
	uv_close((uv_handle_t *)&w->wake, worker_destroy);
}

void gp_lane_init(struct gp_lane *lane, struct gp_worker *w)
{
	memset(lane, 0, sizeof *lane);
	lane->worker = w;
	pthread_mutex_lock(&w->lock);
	lane->used_ns = w->floor_ns;
	lane->next = w->lanes;
	if (w->lanes)
		w->lanes->prev = lane;
	w->lanes = lane;
	pthread_mutex_unlock(&w->lock);
}

void gp_lane_deinit(struct gp_lane *lane)
{
	struct gp_worker *w = lane->worker;
	if (!w)
		return;
	gp_require(lane->pending == 0);
	pthread_mutex_lock(&w->lock);
	if (lane->prev)
		lane->prev->next = lane->next;
	else
		w->lanes = lane->next;
	if (lane->next)
		lane->next->prev = lane->prev;
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
	/* A lane that was idle must not have saved up time against the busy ones. */
	if (!lane->running && !lane->head[0] && !lane->head[1] && lane->used_ns < w->floor_ns)
		lane->used_ns = w->floor_ns;
	if (lane->tail[priority])
		lane->tail[priority]->next = t;
	else
		lane->head[priority] = t;
	lane->tail[priority] = t;
	pthread_cond_signal(&w->work);
	pthread_mutex_unlock(&w->lock);
}
