/* SPDX-License-Identifier: Apache-2.0
 *
 * How many threads a program computes with, and process-wide settings that must
 * stand before the OpenMP runtime (which oneDNN computes with) reads its
 * environment.
 *
 * Threads: the main thread, before there are others. Test: tests/e2e/bad_input.sh; tests/unit/test_cpu_steps.c calls
 * gp_threads_prepare like the commands
 */
#ifndef GP_THREADS_H
#define GP_THREADS_H

#include "common/base/status.h"

/*
 * First thing in main. OpenMP threads that wait spin by default, which starves
 * a client and a server (or two clients) on the same cores; unless the user has
 * set OMP_WAIT_POLICY, starts the program again with "passive". (A short spin, GOMP_SPINCOUNT=20000,
 * gains 10 to 20 % on idle cores and loses a factor of 8 to 30 on shared ones.) Closed standard streams are opened on
 * /dev/null first. Returns when
 * the environment is right.
 */
void gp_threads_prepare(char **argv);

/* Compute threads that "--threads N" stands for; 0: one per processor. */
int gp_threads_count(int64_t asked);
/* Once in a program, before it computes: logs a warning when there are more threads than processors, which is slow. GP_USAGE
 * for more than 32 for each processor, which would take for ever. */
enum gp_status gp_threads_check(int64_t asked, struct gp_err *err);

#endif
