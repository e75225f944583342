/* SPDX-License-Identifier: Apache-2.0
 *
 * See inline_worker.h.
 */
#include "tests/fuzz/inline_worker.h"

#include <string.h>

#include "common/wire/account.h"
#include "common/base/mem.h"

enum gp_status __wrap_gp_worker_new(uv_loop_t *loop, const char *name, int threads, struct gp_worker **out,
				    struct gp_err *err);
void __wrap_gp_worker_free(struct gp_worker *w);
void __wrap_gp_worker_set_nice(struct gp_worker *w, int nice);
void __wrap_gp_lane_init(struct gp_lane *lane, struct gp_worker *w, struct gp_lane_user *user);
void __wrap_gp_lane_deinit(struct gp_lane *lane);
void __wrap_gp_worker_submit(struct gp_lane *lane, struct gp_task *t, int priority);
void __wrap_gp_share_init(struct gp_share *s, struct gp_worker *home, double weight);
void __wrap_gp_share_move(struct gp_share *s, struct gp_worker *home);
void __wrap_gp_share_set_weight(struct gp_share *s, double weight);
void __wrap_gp_share_follow(struct gp_share *s, uint64_t used_ns);

struct gp_worker {
	uv_idle_t idle;
	struct gp_task *head[GP_TASK_PRIORITIES], **tail[GP_TASK_PRIORITIES];
};

static int waiting; /* tasks of all workers */

bool inline_worker_idle(void)
{
	return waiting == 0;
}

/* The most urgent priority that a task waits with; GP_TASK_PRIORITIES: none waits. */
static int first_waiting(const struct gp_worker *w)
{
	int p = 0;
	while (p < GP_TASK_PRIORITIES && !w->head[p])
		p++;
	return p;
}

static struct gp_task *pop(struct gp_worker *w)
{
	const int p = first_waiting(w);
	struct gp_task *t = w->head[p];
	w->head[p] = t->next;
	if (!t->next)
		w->tail[p] = &w->head[p];
	t->next = NULL;
	return t;
}

static void run_one(uv_idle_t *idle)
{
	struct gp_worker *w = idle->data;
	struct gp_task *t = pop(w);
	if (first_waiting(w) == GP_TASK_PRIORITIES)
		uv_idle_stop(idle);
	t->start_ns = gp_now_ns();
	t->run(t);
	if (t->finish && t->status == GP_OK)
		t->finish(t);
	t->end_ns = gp_now_ns();
	waiting--;
	t->lane->pending--;
	t->done(t);
}

enum gp_status __wrap_gp_worker_new(uv_loop_t *loop, const char *name, int threads, struct gp_worker **out,
				    struct gp_err *err)
{
	(void)name;
	(void)threads;
	struct gp_worker *w;
	GP_TRY(gp_alloc_array((void **)&w, 1, sizeof *w, err));
	for (int p = 0; p < GP_TASK_PRIORITIES; p++)
		w->tail[p] = &w->head[p];
	uv_idle_init(loop, &w->idle);
	w->idle.data = w;
	*out = w;
	return GP_OK;
}

void __wrap_gp_worker_set_nice(struct gp_worker *w, int nice)
{
	(void)w;
	(void)nice;
}

static void on_closed(uv_handle_t *h)
{
	gp_free(h->data);
}

void __wrap_gp_worker_free(struct gp_worker *w)
{
	if (!w)
		return;
	gp_require(first_waiting(w) == GP_TASK_PRIORITIES);
	uv_close((uv_handle_t *)&w->idle, on_closed);
}

void __wrap_gp_lane_init(struct gp_lane *lane, struct gp_worker *w, struct gp_lane_user *user)
{
	(void)user; /* tasks run in the order in which they were submitted */
	memset(lane, 0, sizeof *lane);
	lane->worker = w;
}

void __wrap_gp_share_init(struct gp_share *s, struct gp_worker *home, double weight)
{
	*s = (struct gp_share){.home = home, .weight = weight};
}

void __wrap_gp_share_move(struct gp_share *s, struct gp_worker *home)
{
	s->home = home;
}

void __wrap_gp_share_set_weight(struct gp_share *s, double weight)
{
	s->weight = weight;
}

void __wrap_gp_share_follow(struct gp_share *s, uint64_t used_ns)
{
	(void)s;
	(void)used_ns;
}

void __wrap_gp_lane_deinit(struct gp_lane *lane)
{
	gp_require(!lane->worker || lane->pending == 0);
	lane->worker = NULL;
}

void __wrap_gp_worker_submit(struct gp_lane *lane, struct gp_task *t, int priority)
{
	struct gp_worker *w = lane->worker;
	t->lane = lane;
	t->next = NULL;
	t->status = GP_OK;
	t->queued_ns = gp_now_ns();
	lane->pending++;
	waiting++;
	*w->tail[priority] = t;
	w->tail[priority] = &t->next;
	uv_idle_start(&w->idle, run_one);
}
