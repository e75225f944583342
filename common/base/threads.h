/* SPDX-License-Identifier: Apache-2.0
 *
 * Process-wide thread settings that must stand before the OpenMP runtime (which
 * oneDNN computes with) reads its environment.
 *
 * Threads: the main thread, before there are others. Test: tests/unit/test_cpu_steps.c, which calls it like the commands
 */
#ifndef GP_THREADS_H
#define GP_THREADS_H

/*
 * First thing in main. OpenMP threads that wait spin by default, which starves
 * a client and a server (or two clients) on the same cores; unless the user has
 * set OMP_WAIT_POLICY, starts the program again with "passive". (A short spin, GOMP_SPINCOUNT=20000,
 * gains 10 to 20 % on idle cores and loses a factor of 8 to 30 on shared ones.) Closed standard streams are opened on
 * /dev/null first. Returns when
 * the environment is right.
 */
void gp_threads_prepare(char **argv);

#endif
