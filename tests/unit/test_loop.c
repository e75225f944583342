/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting on a loop (common/base/loop.h): what a timer brings ends the wait, whenever the timer was started.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/base/loop.h"

#define LATE_MS (10 * 60 * 1000) /* far beyond the limit of a test */

static void note(uv_timer_t *timer)
{
	*(bool *)timer->data = true;
}

static void start(uv_loop_t *loop, uv_timer_t *timer, bool *flag, uint64_t ms)
{
	*flag = false;
	timer->data = flag;
	assert_int_equal(uv_timer_init(loop, timer), 0);
	assert_int_equal(uv_timer_start(timer, note, ms, 0), 0);
}

/* Waits for a timer of so many milliseconds beside one that is due much later. */
static void wait_for(uint64_t ms)
{
	uv_loop_t loop;
	uv_timer_t timer, other;
	bool flag, late;
	assert_int_equal(uv_loop_init(&loop), 0);
	start(&loop, &timer, &flag, ms);
	start(&loop, &other, &late, LATE_MS);
	while (!flag)
		gp_loop_turn(&loop);
	assert_false(late);
	uv_close((uv_handle_t *)&timer, NULL);
	uv_close((uv_handle_t *)&other, NULL);
	while (uv_loop_alive(&loop))
		gp_loop_turn(&loop);
	assert_int_equal(uv_loop_close(&loop), 0);
}

static void a_timer_that_is_due_at_once_ends_the_wait(void **state)
{
	(void)state;
	wait_for(0);
}

static void a_timer_that_becomes_due_ends_the_wait(void **state)
{
	(void)state;
	wait_for(30);
}

/* The loop waits for what happens elsewhere, and its turn does not come before that. */
static void wake(uv_async_t *async)
{
	uv_close((uv_handle_t *)async, NULL);
}

static void send_later(void *arg)
{
	uv_sleep(20);
	uv_async_send(arg);
}

static void another_thread_ends_the_wait(void **state)
{
	(void)state;
	uv_loop_t loop;
	uv_async_t async;
	uv_thread_t thread;
	int turns = 0;
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(uv_async_init(&loop, &async, wake), 0);
	assert_int_equal(uv_thread_create(&thread, send_later, &async), 0);
	for (; uv_loop_alive(&loop); turns++)
		gp_loop_turn(&loop);
	assert_in_range(turns, 1, 4);
	uv_thread_join(&thread);
	assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_timer_that_is_due_at_once_ends_the_wait),
		cmocka_unit_test(a_timer_that_becomes_due_ends_the_wait),
		cmocka_unit_test(another_thread_ends_the_wait),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
