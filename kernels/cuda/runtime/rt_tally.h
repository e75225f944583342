/* SPDX-License-Identifier: Apache-2.0
 *
 * Telling somebody of every piece of work that is queued on any stream: how
 * many kernels, matrix products and copies a step takes is what bounds small
 * chunks (tests/bench/GPU.md). On the emulated device kernels and products are
 * then counted instead of run, so that full sizes take no time. For benches and
 * tests, not for a server.
 *
 * Threads: any that queues; set it while nothing is queued. Test:
 * tests/unit/test_cuda_launches.c, test_cuda_plan.c
 */
#ifndef GP_RT_TALLY_H
#define GP_RT_TALLY_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * `what`: a kernel as its launch is written, "(normalize<T, V, true>)", or "product", "copy", "fill", "graph", which have
 * no blocks; what a graph does was told as it was captured. It lives for ever. On the queueing thread.
 */
typedef void (*gp_rt_tally_fn)(void *arg, const char *what, uint64_t blocks);

/* From now on, until fn is NULL. Nobody may be queueing meanwhile. */
void gp_rt_tally(gp_rt_tally_fn fn, void *arg);
/* Whether somebody wants to know. */
bool gp_rt_tallied(void);
void gp_rt_tally_note(const char *what, uint64_t blocks);

#ifdef __cplusplus
}
#endif
#endif
