/* SPDX-License-Identifier: Apache-2.0
 *
 * Process-wide thread settings that must stand before the OpenMP runtime (which
 * oneDNN computes with) reads its environment.
 */
#ifndef GP_THREADS_H
#define GP_THREADS_H

/*
 * First thing in main. OpenMP threads that wait spin by default, which starves
 * a client and a server (or two clients) on the same cores; unless the user has
 * set OMP_WAIT_POLICY, starts the program again with "passive" after a short spin. Returns when
 * the environment is right.
 */
void gp_threads_prepare(char **argv);

#endif
