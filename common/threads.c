/* SPDX-License-Identifier: Apache-2.0
 *
 * OpenMP's environment. See threads.h.
 */
#include "common/threads.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

void gp_threads_prepare(char **argv)
{
	char self[PATH_MAX];
	if (getenv("OMP_WAIT_POLICY"))
		return;
	ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
	if (len <= 0 || setenv("OMP_WAIT_POLICY", "passive", 1) != 0)
		return;
	self[len] = '\0';
	execv(self, argv); /* on failure we only run with the default policy */
}
