/* SPDX-License-Identifier: Apache-2.0
 *
 * SIGINT, SIGTERM and SIGHUP for commands that come to an orderly end: they look at gp_stop_signal, or hand it to what
 * they run. A second signal ends the process at once.
 *
 * Threads: set by a signal, in whichever thread; read anywhere. Test: tests/e2e/resume.sh, tests/e2e/bench.sh
 */
#ifndef GP_STOP_SIGNAL_H
#define GP_STOP_SIGNAL_H

#include <signal.h>

#include "common/base/status.h"

/* The signal that came; 0: none. */
extern volatile sig_atomic_t gp_stop_signal;

/* From here on. SIGHUP, of a terminal that closes, stays ignored where it is: under nohup. */
void gp_stop_watch(void);
/* The exit status of a command: one that a signal has ended exits as a shell reports a program that it has killed. */
int gp_stop_exit(enum gp_status status);

#endif
