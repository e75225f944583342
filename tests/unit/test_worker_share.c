/* SPDX-License-Identifier: Apache-2.0
 *
 * Shares of time (common/base/worker.h) with a clock that the test moves: what
 * each session gets of one worker, and of a device's and a codec's worker
 * together. Every task takes exactly as long as it says; nothing here depends on
 * how fast the machine is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <pthread.h>
#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/worker.h"

#define SESSIONS 8
#define WORKERS  3
#define UNIT_NS  UINT64_C(1000000)

uint64_t __wrap_gp_now_ns(void);

/* Workers of one thread each. A task waits until the clock has come to its end; the clock moves when every worker that has
 * something to do is in such a task, and only to the first of their ends. */
struct sim {
	uv_loop_t loop;
	struct gp_worker *worker[WORKERS];
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint64_t now_ns;
	bool inside[WORKERS];
	uint64_t end_ns[WORKERS];
	int submitted[WORKERS], done; /* submitted: and not done */
	struct session *session[SESSIONS];
	int sessions;
};

/* One chunk after the other, with `window` of them in flight: each has its turns on the workers in the order of `cost`. */
struct session {
	struct gp_share share;
	struct gp_lane_user user[WORKERS];
	struct gp_lane lane[WORKERS];
	uint64_t cost_ns[WORKERS]; /* 0: it has no turn there */
	struct chunk {
		struct gp_task task;
		struct session *s;
		int at; /* worker */
	} chunk[4];
	int window;
	int tasks;
	bool paused;
};

static struct sim *sim;

uint64_t __wrap_gp_now_ns(void)
{
	if (!sim)
		return 0;
	pthread_mutex_lock(&sim->lock);
	const uint64_t now = sim->now_ns;
	pthread_mutex_unlock(&sim->lock);
	return now;
}

static void chunk_run(struct gp_task *t)
{
	const struct chunk *c = t->arg;
	pthread_mutex_lock(&sim->lock);
	sim->end_ns[c->at] = sim->now_ns + c->s->cost_ns[c->at];
	sim->inside[c->at] = true;
	pthread_cond_broadcast(&sim->changed);
	while (sim->now_ns < sim->end_ns[c->at])
		pthread_cond_wait(&sim->changed, &sim->lock);
	sim->inside[c->at] = false;
	pthread_mutex_unlock(&sim->lock);
}

static void chunk_submit(struct chunk *c)
{
	sim->submitted[c->at]++;
	gp_worker_submit(&c->s->lane[c->at], &c->task, 0);
}

static void next_turn(struct chunk *c)
{
	do
		c->at = (c->at + 1) % WORKERS;
	while (c->s->cost_ns[c->at] == 0);
}

static void chunk_done(struct gp_task *t)
{
	struct chunk *c = t->arg;
	sim->submitted[c->at]--;
	sim->done++;
	c->s->tasks++;
	next_turn(c);
	if (!c->s->paused)
		chunk_submit(c);
}

static void sim_init(struct sim *m)
{
	struct gp_err err;
	memset(m, 0, sizeof *m);
	pthread_mutex_init(&m->lock, NULL);
	pthread_cond_init(&m->changed, NULL);
	sim = m;
	assert_int_equal(uv_loop_init(&m->loop), 0);
	for (int w = 0; w < WORKERS; w++)
		assert_int_equal(gp_worker_new(&m->loop, "test", 1, &m->worker[w], &err), GP_OK);
}

/* `cost`: on each worker, in units; worker 0 is the device's. */
static struct session *add(const int cost[WORKERS], int window, double weight)
{
	struct session *s = gp_calloc(1, sizeof *s);
	s->window = window;
	gp_share_init(&s->share, sim->worker[0], weight);
	for (int w = 0; w < WORKERS; w++) {
		s->cost_ns[w] = (uint64_t)cost[w] * UNIT_NS;
		s->user[w].share = &s->share;
		gp_lane_init(&s->lane[w], sim->worker[w], &s->user[w]);
	}
	for (int i = 0; i < window; i++) {
		s->chunk[i] =
			(struct chunk){.task = {.run = chunk_run, .done = chunk_done, .arg = &s->chunk[i]}, .s = s};
		s->chunk[i].at = WORKERS - 1;
		next_turn(&s->chunk[i]);
	}
	sim->session[sim->sessions++] = s;
	return s;
}

static void begin(struct session *s)
{
	s->paused = false;
	for (int i = 0; i < s->window; i++)
		chunk_submit(&s->chunk[i]);
}

/* Every worker with something to do is doing it. */
static void wait_until_all_work(void)
{
	pthread_mutex_lock(&sim->lock);
	for (int w = 0; w < WORKERS; w++)
		while (sim->submitted[w] > 0 && !sim->inside[w])
			pthread_cond_wait(&sim->changed, &sim->lock);
	pthread_mutex_unlock(&sim->lock);
}

/* To the end of the tasks that end first; returns how many do. */
static int move_clock(void)
{
	uint64_t first = UINT64_MAX;
	int ends = 0;
	pthread_mutex_lock(&sim->lock);
	for (int w = 0; w < WORKERS; w++)
		if (sim->inside[w] && sim->end_ns[w] < first)
			first = sim->end_ns[w];
	for (int w = 0; w < WORKERS; w++)
		if (sim->inside[w] && sim->end_ns[w] == first) {
			sim->inside[w] = false;
			ends++;
		}
	sim->now_ns = first;
	pthread_cond_broadcast(&sim->changed);
	pthread_mutex_unlock(&sim->lock);
	return ends;
}

/* A worker may begin what waits before the loop has heard of what ended, as it does outside of tests; the clock does not
 * move until it has. */
static void run_for(int units)
{
	const uint64_t until = sim->now_ns + (uint64_t)units * UNIT_NS;
	while (sim->now_ns < until) {
		wait_until_all_work();
		const int done = sim->done + move_clock();
		while (sim->done < done)
			uv_run(&sim->loop, UV_RUN_ONCE);
	}
}

static bool all_quiet(void)
{
	int waiting = 0;
	for (int w = 0; w < WORKERS; w++)
		waiting += sim->submitted[w];
	return waiting == 0;
}

static void sim_deinit(void)
{
	for (int i = 0; i < sim->sessions; i++)
		sim->session[i]->paused = true;
	while (!all_quiet())
		run_for(1);
	for (int i = 0; i < sim->sessions; i++) {
		for (int w = 0; w < WORKERS; w++)
			gp_lane_deinit(&sim->session[i]->lane[w]);
		gp_free(sim->session[i]);
	}
	for (int w = 0; w < WORKERS; w++)
		gp_worker_free(sim->worker[w]);
	uv_run(&sim->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&sim->loop), 0);
	pthread_cond_destroy(&sim->changed);
	pthread_mutex_destroy(&sim->lock);
	sim = NULL;
}

static double used_units(const struct session *s)
{
	uint64_t ns = 0;
	for (int w = 0; w < WORKERS; w++)
		ns += s->user[w].total_ns;
	return (double)ns / (double)UNIT_NS;
}

/* 1: all have the same; 1 / sessions: one has all. */
static double jain_index(void)
{
	double sum = 0.0, squares = 0.0;
	for (int i = 0; i < sim->sessions; i++) {
		const double used = used_units(sim->session[i]);
		print_message("session %d: %.0f units in %d tasks\n", i, used, sim->session[i]->tasks);
		sum += used;
		squares += used * used;
	}
	return sum * sum / (sim->sessions * squares);
}

static void expect_fair(void)
{
	const double jain = jain_index();
	print_message("Jain's index: %.4f\n", jain);
	assert_true(jain >= 0.95);
}

static void sessions_whose_tasks_take_longer_get_no_more_time(void **state)
{
	static const int cost[SESSIONS] = {1, 1, 1, 1, 1, 1, 10, 3};
	struct sim m;
	(void)state;
	sim_init(&m);
	for (int i = 0; i < SESSIONS; i++)
		begin(add((const int[]){cost[i], 0, 0}, 1 + i % 2, 1.0));
	const uint64_t before = gp_mem_calls();
	run_for(4000);
	assert_int_equal(gp_mem_calls(), before);
	expect_fair();
	sim_deinit();
}

/* The one of slow codecs would have their worker for itself. */
static void time_in_codecs_counts_like_time_on_the_device(void **state)
{
	struct sim m;
	(void)state;
	sim_init(&m);
	for (int i = 0; i < 6; i++)
		begin(add((const int[]){4, 1, 0}, 2, 1.0));
	begin(add((const int[]){40, 8, 0}, 1, 1.0));
	begin(add((const int[]){4, 0, 60}, 4, 1.0));
	run_for(20000);
	expect_fair();
	sim_deinit();
}

/* Two of slow codecs share their worker, and what they get there is not taken from the others. */
static void slow_codecs_take_turns_by_time_too(void **state)
{
	struct sim m;
	(void)state;
	sim_init(&m);
	struct session *const a = add((const int[]){1, 0, 200}, 2, 1.0), *const b =
										 add((const int[]){1, 0, 20}, 2, 1.0);
	begin(a);
	begin(b);
	run_for(20000);
	assert_true(jain_index() >= 0.99);
	assert_true(a->tasks < b->tasks);
	sim_deinit();
}

static void a_share_of_two_gets_twice_the_time(void **state)
{
	struct sim m;
	(void)state;
	sim_init(&m);
	struct session *const two = add((const int[]){5, 1, 0}, 2, 2.0), *const one =
										 add((const int[]){3, 1, 0}, 2, 1.0);
	begin(two);
	begin(one);
	run_for(9000);
	assert_true(used_units(two) > 1.9 * used_units(one) && used_units(two) < 2.1 * used_units(one));
	const double before[2] = {used_units(two), used_units(one)};
	gp_share_set_weight(&one->share, 4.0);
	run_for(9000);
	const double got[2] = {used_units(two) - before[0], used_units(one) - before[1]};
	assert_true(got[1] > 1.9 * got[0] && got[1] < 2.1 * got[0]);
	sim_deinit();
}

/* Neither who was idle for long, nor who comes new, has more of the next hundred units than the one that was at work. */
static void who_was_idle_has_saved_nothing_up(void **state)
{
	struct sim m;
	(void)state;
	sim_init(&m);
	struct session *const busy = add((const int[]){2, 0, 0}, 2, 1.0), *const idle =
										  add((const int[]){2, 0, 0}, 2, 1.0);
	begin(idle);
	idle->paused = true;
	begin(busy);
	run_for(5000);
	struct session *const fresh = add((const int[]){2, 0, 0}, 2, 1.0);
	const double before[2] = {used_units(busy), used_units(idle)};
	begin(idle);
	begin(fresh);
	run_for(300);
	const double got[3] = {used_units(busy) - before[0], used_units(idle) - before[1], used_units(fresh)};
	for (int i = 0; i < 3; i++)
		assert_true(got[i] > 90 && got[i] < 110);
	sim_deinit();
}

/* What it used while nobody else wanted that worker delays it by GP_SHARE_AHEAD_NS of each of the others at most. */
static void being_ahead_is_limited(void **state)
{
	enum { AHEAD = GP_SHARE_AHEAD_NS / UNIT_NS, OTHERS = 2 };
	struct sim m;
	(void)state;
	sim_init(&m);
	struct session *const ahead = add((const int[]){0, 0, 100}, 2, 1.0);
	for (int i = 0; i < OTHERS; i++)
		begin(add((const int[]){100, 0, 0}, 2, 1.0));
	begin(ahead);
	run_for(6 * AHEAD);   /* twice as much as each of them */
	ahead->paused = true; /* its costs change when none of its tasks waits */
	run_for(400);
	ahead->cost_ns[0] = ahead->cost_ns[2];
	ahead->cost_ns[2] = 0;
	for (int i = 0; i < ahead->window; i++)
		next_turn(&ahead->chunk[i]);
	begin(ahead);
	const double before = used_units(ahead);
	run_for((OTHERS - 1) * AHEAD);
	assert_true(used_units(ahead) == before);
	run_for(AHEAD + 1000);
	assert_true(used_units(ahead) > before);
	sim_deinit();
}

/* As a client does that opens one session after the other. Its last task has ended. */
static void begin_anew(struct session *s)
{
	for (int w = 0; w < WORKERS; w++)
		gp_lane_deinit(&s->lane[w]);
	gp_share_init(&s->share, sim->worker[0], 1.0);
	for (int w = 0; w < WORKERS; w++) {
		s->user[w] = (struct gp_lane_user){.share = &s->share};
		gp_lane_init(&s->lane[w], sim->worker[w], &s->user[w]);
	}
	s->chunk[0].at = WORKERS - 1;
	next_turn(&s->chunk[0]);
	s->tasks = 0;
	begin(s);
	s->paused = true; /* after this one */
}

/* For so many units, with new sessions of one task each that come as soon as others end. */
static void run_with_newcomers(struct session *const newcomer[], int count, int units)
{
	for (int i = 0; i < units; i++) {
		for (int n = 0; n < count; n++)
			if (newcomer[n]->tasks > 0)
				begin_anew(newcomer[n]);
		run_for(1);
	}
}

/* What has been used is `BEHIND` units more than by each of them. */
static void who_waits_has_its_turn_however_many_others_begin(void **state)
{
	enum { NEWCOMERS = 5, BEHIND = 50 };
	struct session *newcomer[NEWCOMERS];
	struct sim m;
	(void)state;
	sim_init(&m);
	struct session *const waits = add((const int[]){0, BEHIND, 0}, 1, 1.0);
	for (int i = 0; i < NEWCOMERS; i++) {
		newcomer[i] = add((const int[]){1, 0, 0}, 1, 1.0);
		begin_anew(newcomer[i]);
	}
	begin(waits);
	waits->paused = true; /* after this one; then its turns are where those of the others are */
	run_with_newcomers(newcomer, NEWCOMERS, BEHIND + 1);
	assert_int_equal(waits->tasks, 1);
	waits->cost_ns[0] = UNIT_NS;
	waits->cost_ns[1] = 0;
	next_turn(&waits->chunk[0]);
	begin(waits);
	waits->paused = true;
	run_with_newcomers(newcomer, NEWCOMERS, 10);
	assert_int_equal(waits->tasks, 1); /* they have used less */
	run_with_newcomers(newcomer, NEWCOMERS, GP_SHARE_NEWCOMERS * BEHIND + NEWCOMERS);
	assert_int_equal(waits->tasks, 2);
	sim_deinit();
}

/* Each with one long task, and the next when it has ended. */
static void sessions_that_follow_on_each_other_get_as_much_as_one(void **state)
{
	struct sim m;
	(void)state;
	sim_init(&m);
	struct session *const busy = add((const int[]){1, 0, 0}, 2, 1.0), *const chain =
										  add((const int[]){10, 0, 0}, 1, 1.0);
	uint64_t used_ns = 0;
	double got = 0.0;
	begin_anew(chain);
	begin(busy);
	while (sim->now_ns < 2000 * UNIT_NS) {
		run_for(1);
		if (chain->tasks == 0)
			continue;
		got += used_units(chain);
		used_ns = gp_share_used(&chain->share);
		begin_anew(chain);
		gp_share_follow(&chain->share, used_ns);
	}
	print_message("%.0f and %.0f units\n", used_units(busy), got);
	assert_true(got > 900 && got < 1100);
	sim_deinit();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sessions_whose_tasks_take_longer_get_no_more_time),
		cmocka_unit_test(time_in_codecs_counts_like_time_on_the_device),
		cmocka_unit_test(slow_codecs_take_turns_by_time_too),
		cmocka_unit_test(a_share_of_two_gets_twice_the_time),
		cmocka_unit_test(who_was_idle_has_saved_nothing_up),
		cmocka_unit_test(being_ahead_is_limited),
		cmocka_unit_test(sessions_that_follow_on_each_other_get_as_much_as_one),
		cmocka_unit_test(who_waits_has_its_turn_however_many_others_begin),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
