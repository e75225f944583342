/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernel knows about a TCP connection (Linux TCP_INFO): the measure
 * that our own byte counts are held against. A file of its own because
 * <linux/tcp.h>, which has all fields, and <uv.h> cannot be included together.
 *
 * Threads: any. Test: tests/unit/test_conn.c
 */
#ifndef GP_TCP_INFO_H
#define GP_TCP_INFO_H

#include <stdbool.h>
#include <stdint.h>

/* Figures of the kernel about a TCP connection (TCP_INFO); all zero where there is none. */
struct gp_tcp_figures {
	bool valid;
	uint64_t bytes_acked, bytes_received, bytes_retransmitted;
	uint64_t delivery_rate_bytes_s;
	uint64_t busy_us; /* how long something was sent and not acknowledged */
	uint32_t rtt_us, rtt_min_us;
	uint32_t retransmits, notsent_bytes;
};

/* Figures of the connected socket `fd`; all zero when the kernel has none. */
void gp_tcp_info_read(int fd, struct gp_tcp_figures *out);
/* Figures over several connections, b being the newest: what is counted adds up, the rest is b's. */
void gp_tcp_figures_add(struct gp_tcp_figures *a, const struct gp_tcp_figures *b);

#endif
