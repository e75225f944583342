/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether the kernel that a test runs on counts a connection's bytes. One that
 * qemu stands in for does not: it gives four bytes of TCP_INFO.
 */
#ifndef GP_TESTS_TCP_COUNTS_H
#define GP_TESTS_TCP_COUNTS_H

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

/* How long the kernel's struct tcp_info is that ends with tcpi_bytes_received, which the C library's does not have. */
enum { TCP_INFO_WITH_COUNTS_BYTES = 136 };

/* Asks the kernel itself, so that a fault of gp_tcp_info_read is not taken for a kernel that does not count. */
static inline bool kernel_counts_bytes(void)
{
	uint8_t info[512];
	socklen_t len = sizeof info;
	const int fd = socket(AF_INET, SOCK_STREAM, 0);
	const bool counts = getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &len) == 0 && len >= TCP_INFO_WITH_COUNTS_BYTES;
	close(fd);
	return counts;
}

#endif
