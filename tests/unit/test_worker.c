/* SPDX-License-Identifier: Apache-2.0
 *
 * Workers and lanes (common/worker.h): order, exclusion, fairness.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/mem.h"
#include "common/worker.h"

#define TASKS 200

struct job {
	struct gp_task task;
	struct fixture *f;
	int lane;
	int number;
	bool waits; /* until the fixture's gate is open */
	useconds_t nap_us;
};

struct fixture {
	uv_loop_t loop;
	struct gp_worker *worker;
	struct gp_lane lane[3];
	struct job job[3][TASKS];
	atomic_int inside[3];
	atomic_int overlaps;
	atomic_bool gate;
	int order[3][TASKS], ran[3], finished;
	atomic_int started_total;
	int started_at[3][TASKS];
};

static void job_run(struct gp_task *t)
{
	struct job *j = t->arg;
	if (atomic_fetch_add(&j->f->inside[j->lane], 1) != 0)
		atomic_fetch_add(&j->f->overlaps, 1);
	j->f->started_at[j->lane][j->number] = atomic_fetch_add(&j->f->started_total, 1);
	while (j->waits && !atomic_load(&j->f->gate))
		usleep(100);
	if (j->nap_us)
		usleep(j->nap_us);
	atomic_fetch_sub(&j->f->inside[j->lane], 1);
}

static void job_done(struct gp_task *t)
{
	struct job *j = t->arg;
	j->f->order[j->lane][j->f->ran[j->lane]++] = j->number;
	j->f->finished++;
}

static void fixture_init(struct fixture *f, int threads)
{
	struct gp_err err;
	memset(f, 0, sizeof *f);
	assert_int_equal(uv_loop_init(&f->loop), 0);
	assert_int_equal(gp_worker_new(&f->loop, "test", threads, &f->worker, &err), GP_OK);
	for (int i = 0; i < 3; i++)
		gp_lane_init(&f->lane[i], f->worker);
}

static void fixture_deinit(struct fixture *f)
{
	for (int i = 0; i < 3; i++)
		gp_lane_deinit(&f->lane[i]);
	gp_worker_free(f->worker);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&f->loop), 0);
}

static void submit_job(struct fixture *f, int lane, int number, int priority, bool waits)
{
	struct job *j = &f->job[lane][number];
	const useconds_t nap_us = j->nap_us;
	*j = (struct job){.task = {.run = job_run, .done = job_done},
			  .f = f,
			  .lane = lane,
			  .number = number,
			  .waits = waits,
			  .nap_us = nap_us};
	j->task.arg = j;
	gp_worker_submit(&f->lane[lane], &j->task, priority);
}

static void submit(struct fixture *f, int lane, int number, int priority)
{
	submit_job(f, lane, number, priority, false);
}

/* Job 0 of lane 0 keeps the only thread busy until the gate opens, while others queue up. */
static void close_gate(struct fixture *f, int priority)
{
	submit_job(f, 0, 0, priority, true);
	while (atomic_load(&f->started_total) == 0)
		usleep(100);
}

static void a_lane_runs_in_order_and_never_twice_at_once(void **state)
{
	(void)state;
	struct fixture *f = gp_calloc(1, sizeof *f);
	fixture_init(f, 4);
	uint64_t before = gp_mem_calls();
	for (int n = 0; n < TASKS; n++)
		for (int l = 0; l < 3; l++)
			submit(f, l, n, 0);
	while (f->finished < 3 * TASKS)
		uv_run(&f->loop, UV_RUN_ONCE);
	assert_int_equal(gp_mem_calls(), before);
	assert_int_equal(atomic_load(&f->overlaps), 0);
	for (int l = 0; l < 3; l++) {
		assert_int_equal(f->lane[l].pending, 0);
		for (int n = 0; n < TASKS; n++)
			assert_int_equal(f->order[l][n], n);
	}
	fixture_deinit(f);
	gp_free(f);
}

static void urgent_tasks_overtake_waiting_ones(void **state)
{
	(void)state;
	struct fixture *f = gp_calloc(1, sizeof *f);
	fixture_init(f, 1);
	close_gate(f, 1);
	submit(f, 0, 1, 1);
	submit(f, 0, 2, 0);
	atomic_store(&f->gate, true);
	while (f->finished < 3)
		uv_run(&f->loop, UV_RUN_ONCE);
	assert_int_equal(f->order[0][1], 2);
	assert_int_equal(f->order[0][2], 1);
	fixture_deinit(f);
	gp_free(f);
}

static void a_greedy_lane_does_not_starve_another(void **state)
{
	(void)state;
	struct fixture *f = gp_calloc(1, sizeof *f);
	fixture_init(f, 1);
	close_gate(f, 0);
	for (int n = 1; n < 100; n++)
		submit(f, 0, n, 0);
	for (int n = 0; n < 5; n++)
		submit(f, 1, n, 0);
	atomic_store(&f->gate, true);
	while (f->finished < 105)
		uv_run(&f->loop, UV_RUN_ONCE);
	/* Five short tasks queued behind a hundred: done when about ten of all have started, not 105. */
	assert_true(f->started_at[1][4] < 15);
	fixture_deinit(f);
	gp_free(f);
}

static void submit_many(struct fixture *f, int lane, int first, int end, useconds_t nap_us)
{
	for (int n = first; n < end; n++) {
		f->job[lane][n].nap_us = nap_us;
		submit(f, lane, n, 0);
	}
}

static uint64_t took_ns(const struct fixture *f, int lane, int number)
{
	const struct gp_task *t = &f->job[lane][number].task;
	return t->end_ns - t->start_ns;
}

/* Of two lanes that always had something to do from job first[] on, the one that had used less went next, every time. */
static void expect_turns_by_time(const struct fixture *f, uint64_t used_ns[2], const int first[2], const int end[2])
{
	int next[2] = {first[0], first[1]};
	while (next[0] < end[0] && next[1] < end[1]) {
		const int lane = f->started_at[0][next[0]] < f->started_at[1][next[1]] ? 0 : 1;
		if (used_ns[lane] > used_ns[!lane])
			fail_msg("job %d of lane %d went first, with %llu ns used against %llu", next[lane], lane,
				 (unsigned long long)used_ns[lane], (unsigned long long)used_ns[!lane]);
		used_ns[lane] += took_ns(f, lane, next[lane]);
		next[lane]++;
	}
}

static void lanes_of_unequal_cost_take_turns_by_the_time_they_used(void **state)
{
	(void)state;
	struct fixture *f = gp_calloc(1, sizeof *f);
	fixture_init(f, 1);
	close_gate(f, 0);
	submit_many(f, 0, 1, 30, 2000);
	submit_many(f, 1, 0, 150, 200);
	atomic_store(&f->gate, true);
	while (f->finished < 180)
		uv_run(&f->loop, UV_RUN_ONCE);
	uint64_t used_ns[2] = {took_ns(f, 0, 0), 0};
	expect_turns_by_time(f, used_ns, (int[]){1, 0}, (int[]){30, 150});
	fixture_deinit(f);
	gp_free(f);
}

static void a_lane_that_was_idle_has_saved_nothing_up(void **state)
{
	(void)state;
	struct fixture *f = gp_calloc(1, sizeof *f);
	fixture_init(f, 1);
	uint64_t used_ns[2] = {0};
	submit_many(f, 0, 1, 20, 1000);
	while (f->finished < 19)
		uv_run(&f->loop, UV_RUN_ONCE);
	for (int n = 1; n < 20; n++)
		used_ns[0] += took_ns(f, 0, n);
	used_ns[1] = used_ns[0];
	atomic_store(&f->started_total, 0);
	close_gate(f, 0);
	submit_many(f, 0, 20, 40, 1000);
	submit_many(f, 1, 0, 20, 1000);
	atomic_store(&f->gate, true);
	while (f->finished < 60)
		uv_run(&f->loop, UV_RUN_ONCE);
	used_ns[0] += took_ns(f, 0, 0);
	expect_turns_by_time(f, used_ns, (int[]){20, 0}, (int[]){40, 20});
	fixture_deinit(f);
	gp_free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_lane_runs_in_order_and_never_twice_at_once),
		cmocka_unit_test(urgent_tasks_overtake_waiting_ones),
		cmocka_unit_test(a_greedy_lane_does_not_starve_another),
		cmocka_unit_test(lanes_of_unequal_cost_take_turns_by_the_time_they_used),
		cmocka_unit_test(a_lane_that_was_idle_has_saved_nothing_up),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
