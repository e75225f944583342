/* SPDX-License-Identifier: Apache-2.0
 *
 * For fuzz targets whose subject opens files by name: bytes as a file that
 * lives in memory only.
 */
#ifndef MEMORY_FILE_H
#define MEMORY_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Its name in path[32]; returns the descriptor to close when done. */
static int memory_file(const uint8_t *data, size_t size, char path[32])
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	if (fd < 0)
		abort();
	while (size) {
		ssize_t n = write(fd, data, size);
		if (n <= 0)
			abort();
		data += n;
		size -= (size_t)n;
	}
	snprintf(path, 32, "/proc/self/fd/%d", fd);
	return fd;
}

#endif
