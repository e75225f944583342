/* SPDX-License-Identifier: Apache-2.0
 *
 * The clock that durations are measured with.
 */
#include "common/base/clock.h"

#include <time.h>

static uint64_t read_clock(clockid_t clock)
{
	struct timespec ts;
	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t gp_now_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

uint64_t gp_boot_ns(void)
{
	return read_clock(CLOCK_BOOTTIME);
}

uint64_t gp_thread_ns(void)
{
	return read_clock(CLOCK_THREAD_CPUTIME_ID);
}
