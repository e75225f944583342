/* SPDX-License-Identifier: Apache-2.0
 *
 * OpenMP's environment. See threads.h.
 */
#include "common/threads.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

/*
 * Of libgomp: turns before a waiting thread sleeps, some tens of microseconds: longer than the gap between two loops of
 * a step, shorter than anything another process on the same cores would miss. Measured in tests/bench/RESULTS.md.
 */
#define SPIN_COUNT "20000"

void gp_threads_prepare(char **argv)
{
	char self[PATH_MAX];
	if (getenv("OMP_WAIT_POLICY"))
		return;
	ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
	if (len <= 0 || setenv("OMP_WAIT_POLICY", "passive", 1) != 0)
		return;
	setenv("GOMP_SPINCOUNT", SPIN_COUNT, 0);
	self[len] = '\0';
	execv(self, argv); /* on failure we only run with the default policy */
}
