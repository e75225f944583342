/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading TCP_INFO, whose length tells which fields this kernel fills in.
 * Test: tests/unit/test_conn.c
 */
#include "common/net/tcp_info.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

void gp_tcp_info_read(int fd, struct gp_tcp_figures *out)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof info;
	memset(out, 0, sizeof *out);
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len))
		return;
	/* Byte counts came with Linux 4.1; what a kernel does not know stays 0. */
	out->valid = len >= offsetof(struct tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received;
	out->bytes_acked = info.tcpi_bytes_acked;
	out->bytes_received = info.tcpi_bytes_received;
	out->bytes_retransmitted = info.tcpi_bytes_retrans;
	out->delivery_rate_bytes_s = info.tcpi_delivery_rate;
	out->busy_us = info.tcpi_busy_time;
	out->rtt_us = info.tcpi_rtt;
	out->rtt_min_us = info.tcpi_min_rtt;
	out->retransmits = info.tcpi_total_retrans;
	out->notsent_bytes = info.tcpi_notsent_bytes;
}

void gp_tcp_figures_add(struct gp_tcp_figures *a, const struct gp_tcp_figures *b)
{
	const struct gp_tcp_figures past = *a;
	if (!b->valid)
		return;
	*a = *b;
	a->bytes_acked += past.bytes_acked;
	a->bytes_received += past.bytes_received;
	a->bytes_retransmitted += past.bytes_retransmitted;
	a->busy_us += past.busy_us;
	a->retransmits += past.retransmits;
}
