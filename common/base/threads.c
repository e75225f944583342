/* SPDX-License-Identifier: Apache-2.0
 *
 * What must stand before anything else runs. See threads.h.
 */
#include "common/base/threads.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

/* A socket or file that took the place of a closed standard stream would get what is printed there. */
static void fill_standard_streams(void)
{
	int fd;
	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

void gp_threads_prepare(char **argv)
{
	char self[PATH_MAX];
	fill_standard_streams();
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); /* with 8, streams of one session wait for another's kernels */
	if (getenv("OMP_WAIT_POLICY"))
		return;
	ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
	if (len <= 0 || setenv("OMP_WAIT_POLICY", "passive", 1) != 0)
		return;
	self[len] = '\0';
	execv(self, argv); /* on failure we only run with the default policy */
}
