/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting on a libuv loop for what its callbacks bring.
 *
 * Threads: the loop's thread. Test: tests/unit/test_loop.c
 */
#ifndef GP_LOOP_H
#define GP_LOOP_H

#include <uv.h>

/*
 * Runs callbacks that are due, or waits for the first that will be: `while (!flag) gp_loop_turn(loop)` waits until a callback
 * sets the flag. uv_run(loop, UV_RUN_ONCE) is not for that: it runs the timers that are due first, and then waits all the same
 * for something else to happen, so that what a timer of 0 ms has brought is seen only when the next timer is due.
 */
void gp_loop_turn(uv_loop_t *loop);

#endif
