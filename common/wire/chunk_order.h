/* SPDX-License-Identifier: Apache-2.0
 *
 * In which order an end computes the passes that wait for its one lane of computing: priorities of gp_worker_submit,
 * lower first. It changes when a pass runs, never what it computes: forwards stay in the order of their chunks, and so
 * do backwards.
 *
 *   tail               first: gradients go up from it, and the server waits for them
 *   forward            of head and body, next: most of the chunk's way is still ahead, over the link and back
 *   backward           of head and body, last, because little or nothing follows it; but first where its end lets
 *                      another chunk begin, since `window` of them are in flight at most
 *
 * Both ends follow it, and so does the model of a step (client/plan/plan_schedule.h).
 *
 * Threads: any; pure. Test: tests/unit/test_plan_schedule.c
 */
#ifndef GP_CHUNK_ORDER_H
#define GP_CHUNK_ORDER_H

#include <stdbool.h>
#include <stdint.h>

enum { GP_ORDER_FIRST, GP_ORDER_FORWARD, GP_ORDER_LAST };

/* The priority of the backward of chunk `chunk`, counted from 0, where a step has `chunks`; `ahead`: chunks of the next step
 * may begin before the end of this one. */
static inline int gp_order_backward(uint64_t chunk, uint64_t chunks, uint64_t window, bool ahead)
{
	return ahead || chunk + window < chunks ? GP_ORDER_FIRST : GP_ORDER_LAST;
}

#endif
