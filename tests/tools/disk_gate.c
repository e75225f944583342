/* SPDX-License-Identifier: Apache-2.0
 *
 * LD_PRELOAD library that stands for a disk that takes its time: while the
 * file named by DISK_GATE exists, fsync does not return, and the file
 * DISK_GATE.waiting says that one waits. Without DISK_GATE it does nothing.
 *
 * Threads: any. Used by tests/e2e/drain.sh and tests/e2e/shared_state.sh
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAUSE_US = 10000, NAME_MAX_BYTES = 4096 };

int fsync(int fd);

static void say_waiting(const char *gate)
{
	char name[NAME_MAX_BYTES];
	if (snprintf(name, sizeof name, "%s.waiting", gate) >= (int)sizeof name)
		return;
	int fd = open(name, O_CREAT | O_WRONLY, 0600);
	if (fd >= 0)
		close(fd);
}

int fsync(int fd)
{
	const char *gate = getenv("DISK_GATE");
	while (gate && access(gate, F_OK) == 0) {
		say_waiting(gate);
		usleep(PAUSE_US);
	}
	return (int)syscall(SYS_fsync, fd);
}
