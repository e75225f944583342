/* SPDX-License-Identifier: Apache-2.0
 *
 * Workers and lanes (common/base/worker.h): order, exclusion, fairness, tasks of two
 * parts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <pthread.h>
#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/worker.h"

#define TASKS 200

struct job {
	struct gp_task task;
	struct fixture *f;
	int lane;
	int number;
	bool waits; /* until the fixture's gate is open */
	useconds_t nap_us;
	bool fails, finished; /* of two parts: run fails; finish has run */
	pthread_t thread;
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
	char said[128]; /* of two parts: "a0 " lane 0's job 0 has run, "A0 " has finished; by one thread */
	struct job *begun[3][GP_TASKS_BEGUN];
	int begun_count[3];
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
		gp_lane_init(&f->lane[i], f->worker, NULL);
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
	submit(f, 0, 1, 2);
	submit(f, 0, 2, 1);
	submit(f, 0, 3, 0);
	atomic_store(&f->gate, true);
	while (f->finished < 4)
		uv_run(&f->loop, UV_RUN_ONCE);
	assert_int_equal(f->order[0][1], 3);
	assert_int_equal(f->order[0][2], 2);
	assert_int_equal(f->order[0][3], 1);
	fixture_deinit(f);
	gp_free(f);
}

static uint64_t took_ns(const struct fixture *f, int lane, int number)
{
	const struct gp_task *t = &f->job[lane][number].task;
	return t->end_ns - t->start_ns;
}

/* Both lanes always had something to do from job first[] on; the one that had used less time went next, every time. */
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
	uint64_t used_ns[2] = {took_ns(f, 0, 0), 0};
	expect_turns_by_time(f, used_ns, (int[]){1, 0}, (int[]){100, 5});
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

static void nice_run(struct gp_task *t)
{
	struct job *j = t->arg;
	j->number = getpriority(PRIO_PROCESS, 0);
}

static void threads_are_as_nice_as_they_are_told(void **state)
{
	(void)state;
	struct fixture *f = gp_calloc(1, sizeof *f);
	struct job *j = &f->job[0][0];
	const int before = getpriority(PRIO_PROCESS, 0);
	fixture_init(f, 1);
	gp_worker_set_nice(f->worker, 10);
	*j = (struct job){.task = {.run = nice_run, .done = job_done, .arg = j}, .f = f};
	gp_worker_submit(&f->lane[0], &j->task, 0);
	while (f->finished < 1)
		uv_run(&f->loop, UV_RUN_ONCE);
	assert_true(j->number >= 10);
	assert_int_equal(getpriority(PRIO_PROCESS, 0), before); /* of this thread */
	fixture_deinit(f);
	gp_free(f);
}

/* Which job of lanes 0 to 2 started as number `at`. */
static struct job *job_started(struct fixture *f, int at, int jobs)
{
	for (int lane = 0; lane < 3; lane++)
		for (int n = 0; n < jobs; n++)
			if (f->job[lane][n].f && f->started_at[lane][n] == at)
				return &f->job[lane][n];
	return NULL;
}

static void a_user_of_several_lanes_has_no_more_turns_than_one_of_a_single_lane(void **state)
{
	(void)state;
	enum { JOBS = 20 };
	struct fixture *f = gp_calloc(1, sizeof *f);
	struct gp_lane_user user = {0};
	uint64_t used_ns[2] = {0};
	int left[2] = {JOBS, 2 * JOBS};
	fixture_init(f, 1);
	for (int lane = 1; lane < 3; lane++) {
		gp_lane_deinit(&f->lane[lane]);
		gp_lane_init(&f->lane[lane], f->worker, &user);
	}
	close_gate(f, 0);
	submit_many(f, 0, 1, JOBS, 1000);
	submit_many(f, 1, 0, JOBS, 1000);
	submit_many(f, 2, 0, JOBS, 1000);
	atomic_store(&f->gate, true);
	while (f->finished < 3 * JOBS)
		uv_run(&f->loop, UV_RUN_ONCE);
	for (int at = 0; left[0] > 0 && left[1] > 0; at++) {
		const struct job *j = job_started(f, at, JOBS);
		const int mine = j->lane > 0;
		if (at > 0 && used_ns[mine] > used_ns[!mine])
			fail_msg("start %d: user %d had used %llu ns against %llu", at, mine,
				 (unsigned long long)used_ns[mine], (unsigned long long)used_ns[!mine]);
		used_ns[mine] += took_ns(f, j->lane, j->number);
		left[mine]--;
	}
	fixture_deinit(f);
	gp_free(f);
}

/* --- tasks of two parts ------------------------------------------------------------------------------------------ */

static void say(struct job *j, char first)
{
	char word[16];
	snprintf(word, sizeof word, "%c%d ", first + j->lane, j->number);
	assert_true(strlen(j->f->said) + strlen(word) < sizeof j->f->said);
	strcat(j->f->said, word);
}

static void say_run(struct gp_task *t)
{
	struct job *j = t->arg;
	say(j, 'a');
	if (j->fails) {
		gp_err_set(&t->err, GP_DEVICE, 0, __FILE__, __LINE__, "as told");
		t->status = GP_DEVICE;
	}
}

static void say_finish(struct gp_task *t)
{
	struct job *j = t->arg;
	usleep(j->nap_us);
	say(j, 'A');
}

static void submit_saying(struct fixture *f, int lane, int number, bool two_parts, bool fails)
{
	struct job *j = &f->job[lane][number];
	*j = (struct job){.task = {.run = say_run, .finish = two_parts ? say_finish : NULL, .done = job_done, .arg = j},
			  .f = f,
			  .lane = lane,
			  .number = number,
			  .fails = fails,
			  .nap_us = 3000};
	gp_worker_submit(&f->lane[lane], &j->task, 0);
}

static void open_gate_and_wait(struct fixture *f, int jobs)
{
	atomic_store(&f->gate, true);
	while (f->finished < jobs)
		uv_run(&f->loop, UV_RUN_ONCE);
}

static void the_next_task_begins_before_the_last_is_waited_for(void **state)
{
	(void)state;
	struct fixture *f = gp_calloc(1, sizeof *f);
	fixture_init(f, 1);
	close_gate(f, 0);
	for (int n = 1; n < 7; n++)
		submit_saying(f, 0, n, true, false);
	open_gate_and_wait(f, 7);
	assert_string_equal(f->said, "a1 a2 a3 a4 A1 a5 A2 a6 A3 A4 A5 A6 ");
	for (int n = 0; n < 7; n++)
		assert_int_equal(f->order[0][n], n);
	fixture_deinit(f);
	gp_free(f);
}

/* A lane with a task under way is behind one that used as much and has none. */
static void tasks_under_way_are_of_whichever_lanes_are_ready(void **state)
{
	(void)state;
	struct fixture *f = gp_calloc(1, sizeof *f);
	fixture_init(f, 1);
	submit_saying(f, 1, 0, true, false);
	submit_saying(f, 2, 0, true, false);
	while (f->finished < 2)
		uv_run(&f->loop, UV_RUN_ONCE);
	f->lane[1].own.alone.used_ns = f->lane[2].own.alone.used_ns =
		f->lane[0].own.alone.used_ns; /* nobody is at work */
	f->said[0] = '\0';
	close_gate(f, 0);
	submit_saying(f, 1, 1, true, false);
	submit_saying(f, 1, 2, true, false);
	submit_saying(f, 2, 1, true, false);
	submit_saying(f, 2, 2, true, false);
	open_gate_and_wait(f, 7);
	assert_memory_equal(f->said + 1, "1 ", 2);
	assert_memory_equal(f->said + 4, "1 ", 2);
	assert_int_not_equal(f->said[0], f->said[3]);
	assert_int_not_equal(f->said[6], f->said[9]);
	assert_int_equal(f->said[12], f->said[0] - 'a' + 'A');
	fixture_deinit(f);
	gp_free(f);
}

static void a_task_of_one_part_has_its_thread_for_itself(void **state)
{
	(void)state;
	struct fixture *f = gp_calloc(1, sizeof *f);
	fixture_init(f, 1);
	close_gate(f, 0);
	submit_saying(f, 0, 1, true, false);
	submit_saying(f, 0, 2, true, false);
	submit_saying(f, 0, 3, false, false);
	submit_saying(f, 0, 4, true, false);
	open_gate_and_wait(f, 5);
	assert_string_equal(f->said, "a1 a2 A1 A2 a3 a4 A4 ");
	fixture_deinit(f);
	gp_free(f);
}

static void a_run_that_failed_is_not_finished_and_keeps_its_place(void **state)
{
	(void)state;
	struct fixture *f = gp_calloc(1, sizeof *f);
	fixture_init(f, 1);
	close_gate(f, 0);
	submit_saying(f, 0, 1, true, false);
	submit_saying(f, 0, 2, true, true);
	submit_saying(f, 0, 3, true, false);
	open_gate_and_wait(f, 4);
	assert_string_equal(f->said, "a1 a2 a3 A1 A3 ");
	for (int n = 0; n < 4; n++) {
		assert_int_equal(f->order[0][n], n);
		assert_int_equal(f->job[0][n].task.status, n == 2 ? GP_DEVICE : GP_OK);
	}
	fixture_deinit(f);
	gp_free(f);
}

/* Each has slept on its own in `finish`; what is counted for it begins where the one before ended. */
static void time_under_way_together_is_counted_once(void **state)
{
	(void)state;
	struct fixture *f = gp_calloc(1, sizeof *f);
	uint64_t used_ns = 0, before_ns = 0;
	fixture_init(f, 1);
	close_gate(f, 0);
	for (int n = 1; n < 6; n++)
		submit_saying(f, 0, n, true, false);
	open_gate_and_wait(f, 6);
	for (int n = 0; n < 6; n++) {
		const struct gp_task *t = &f->job[0][n].task;
		assert_true(t->start_ns >= before_ns && t->end_ns >= t->start_ns);
		before_ns = t->end_ns;
		used_ns += took_ns(f, 0, n);
	}
	assert_int_equal(f->lane[0].own.alone.used_ns, used_ns);
	assert_int_equal(f->lane[0].own.total_ns, used_ns);
	assert_true(used_ns >= 5 * 3000000);
	fixture_deinit(f);
	gp_free(f);
}

/* No lock here: the worker promises that these never run at the same time for one lane. */
static void pair_run(struct gp_task *t)
{
	struct job *j = t->arg;
	struct fixture *f = j->f;
	const int begun = f->begun_count[j->lane]++;
	j->thread = pthread_self();
	if (begun >= GP_TASKS_BEGUN || (begun > 0 && !pthread_equal(f->begun[j->lane][0]->thread, j->thread)))
		atomic_fetch_add(&f->overlaps, 1);
	else
		f->begun[j->lane][begun] = j;
	if (!t->finish)
		f->begun_count[j->lane]--;
}

static void pair_finish(struct gp_task *t)
{
	struct job *j = t->arg;
	struct fixture *f = j->f;
	if (f->begun[j->lane][0] != j || !pthread_equal(j->thread, pthread_self()))
		atomic_fetch_add(&f->overlaps, 1);
	f->begun_count[j->lane]--;
	memmove(f->begun[j->lane], f->begun[j->lane] + 1, (size_t)f->begun_count[j->lane] * sizeof f->begun[0][0]);
	j->finished = true;
}

static void lanes_keep_their_thread_while_something_is_under_way(void **state)
{
	(void)state;
	struct fixture *f = gp_calloc(1, sizeof *f);
	fixture_init(f, 4);
	for (int n = 0; n < TASKS; n++)
		for (int l = 0; l < 3; l++) {
			struct job *j = &f->job[l][n];
			*j = (struct job){
				.task = {.run = pair_run, .done = job_done, .arg = j}, .f = f, .lane = l, .number = n};
			j->task.finish = n % 5 == 4 ? NULL : pair_finish;
			gp_worker_submit(&f->lane[l], &j->task, 0);
		}
	while (f->finished < 3 * TASKS)
		uv_run(&f->loop, UV_RUN_ONCE);
	assert_int_equal(atomic_load(&f->overlaps), 0);
	for (int l = 0; l < 3; l++)
		for (int n = 0; n < TASKS; n++) {
			assert_int_equal(f->order[l][n], n);
			assert_int_equal(f->job[l][n].finished, n % 5 != 4);
		}
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
		cmocka_unit_test(a_user_of_several_lanes_has_no_more_turns_than_one_of_a_single_lane),
		cmocka_unit_test(threads_are_as_nice_as_they_are_told),
		cmocka_unit_test(the_next_task_begins_before_the_last_is_waited_for),
		cmocka_unit_test(tasks_under_way_are_of_whichever_lanes_are_ready),
		cmocka_unit_test(a_task_of_one_part_has_its_thread_for_itself),
		cmocka_unit_test(a_run_that_failed_is_not_finished_and_keeps_its_place),
		cmocka_unit_test(time_under_way_together_is_counted_once),
		cmocka_unit_test(lanes_keep_their_thread_while_something_is_under_way),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
