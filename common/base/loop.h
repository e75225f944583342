/* SPDX-License-Identifier: Apache-2.0
 *
 * Making a libuv loop, and waiting on it for what its callbacks bring.
 *
 * Threads: the loop's thread. Test: tests/unit/test_loop.c
 */
#ifndef GP_LOOP_H
#define GP_LOOP_H

#include <uv.h>

#include "common/base/status.h"

/*
 * uv_loop_init, which also makes the pipe of the loop's signals: with that no timer and no signal handle can fail to be made
 * or started. GP_IO where descriptors are wanting; nothing is to be closed then. (libuv ends a process that has none for the
 * two that all loops share, which it opens with the first loop.)
 */
enum gp_status gp_loop_init(uv_loop_t *loop, struct gp_err *err);

/*
 * Runs callbacks that are due, or waits for the first that will be: `while (!flag) gp_loop_turn(loop)` waits until a callback
 * sets the flag. uv_run(loop, UV_RUN_ONCE) is not for that: it runs the timers that are due first, and then waits all the same
 * for something else to happen, so that what a timer of 0 ms has brought is seen only when the next timer is due.
 */
void gp_loop_turn(uv_loop_t *loop);

#endif
