/* SPDX-License-Identifier: Apache-2.0
 *
 * OpenMP's environment. See threads.h.
 */
#include "common/threads.h"

#include <stdlib.h>
#include <unistd.h>

void gp_threads_prepare(char **argv)
{
	if (getenv("OMP_WAIT_POLICY"))
		return;
	if (setenv("OMP_WAIT_POLICY", "passive", 1) == 0)
		execv("/proc/self/exe", argv); /* on failure we only run with the default policy */
}
