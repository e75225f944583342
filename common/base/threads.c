/* SPDX-License-Identifier: Apache-2.0
 *
 * What must stand before anything else runs. See threads.h.
 */
#include "common/base/threads.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>
#include <uv.h>

#include "common/base/log.h"

enum { MOST_PER_PROCESSOR = 32 };

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

int gp_threads_count(int64_t asked)
{
	return asked > 0 ? (int)asked : (int)uv_available_parallelism();
}

enum gp_status gp_threads_check(int64_t asked, struct gp_err *err)
{
	const int processors = (int)uv_available_parallelism();
	if (asked > (int64_t)MOST_PER_PROCESSOR * processors)
		GP_FAIL(err, GP_USAGE,
			"--threads %lld: this machine has %d processors; at most %d threads for each are taken",
			(long long)asked, processors, MOST_PER_PROCESSOR);
	if (asked > processors)
		gp_log(main, GP_LOG_WARN,
		       "--threads %lld: this machine has %d processors, and more threads than processors are slower, "
		       "often "
		       "many times; --threads 0 takes one per processor",
		       (long long)asked, processors);
	return GP_OK;
}
