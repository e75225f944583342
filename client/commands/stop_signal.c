/* SPDX-License-Identifier: Apache-2.0
 *
 * See stop_signal.h. Test: tests/e2e/resume.sh, tests/e2e/bench.sh
 */
#include "client/commands/stop_signal.h"

#include <stddef.h>
#include <unistd.h>

volatile sig_atomic_t gp_stop_signal;

static void on_signal(int number)
{
	if (gp_stop_signal)
		_exit(128 + number); /* asked twice */
	gp_stop_signal = number;
}

void gp_stop_watch(void)
{
	struct sigaction action = {.sa_handler = on_signal}, before;
	sigemptyset(&action.sa_mask);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
		sigaction(SIGHUP, &action, NULL);
}

int gp_stop_exit(enum gp_status status)
{
	return status == GP_CANCELED && gp_stop_signal ? 128 + gp_stop_signal : gp_status_exit(status);
}
