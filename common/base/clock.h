/* SPDX-License-Identifier: Apache-2.0
 *
 * The clock that durations are measured with: monotonic, never set back.
 *
 * Threads: any. Test: every test that waits, tests/unit/test_channel_life.c among them
 */
#ifndef GP_CLOCK_H
#define GP_CLOCK_H

#include <stdint.h>

/* Nanoseconds since some moment in the past. Any thread. */
uint64_t gp_now_ns(void);
/* The same, but it goes on while the machine sleeps: for what others wait for by clocks of their own. */
uint64_t gp_boot_ns(void);
/* Processor time that the calling thread has taken, by itself and in the kernel. */
uint64_t gp_thread_ns(void);

#endif
