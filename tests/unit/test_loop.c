/* SPDX-License-Identifier: Apache-2.0
 *
 * Loops (common/base/loop.h): what a timer brings ends the wait, whenever the timer was started; want of descriptors is told.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

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

static int lowest_free(void)
{
	const int fd = open("/dev/null", O_RDONLY);
	if (fd >= 0)
		close(fd);
	return fd;
}

static void want_of_descriptors_is_told(void **state)
{
	(void)state;
	enum gp_status status = GP_IO;
	struct rlimit given, less;
	struct gp_err err;
	uv_loop_t loop;
	int refused = 0;
	assert_int_equal(gp_loop_init(&loop, &err), GP_OK); /* opens what all loops share */
	assert_int_equal(uv_loop_close(&loop), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &given), 0);
	for (less = given; status != GP_OK; refused++) {
		less.rlim_cur = (rlim_t)(lowest_free() + refused); /* libuv leaves some open that were of no use */
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &less), 0);
		status = gp_loop_init(&loop, &err);
		if (status == GP_OK)
			break;
		assert_int_equal(status, GP_IO);
		assert_string_equal(err.text, "cannot make an event loop: too many open files");
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &given), 0);
	}
	assert_in_range(refused, 3, 16); /* epoll, a wake-up, two ends of a pipe */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &given), 0);
	assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_timer_that_is_due_at_once_ends_the_wait),
		cmocka_unit_test(a_timer_that_becomes_due_ends_the_wait),
		cmocka_unit_test(another_thread_ends_the_wait),
		cmocka_unit_test(want_of_descriptors_is_told),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
