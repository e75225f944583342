/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to conn_tcp.c (the connection) and conn_open.c (listening and
 * connecting). Everybody else: conn.h.
 *
 * Threads: the loop's thread. Test: tests/unit/test_conn.c
 */
#ifndef GP_CONN_TCP_H
#define GP_CONN_TCP_H

#include "common/net/conn.h"

struct gp_tcp_conn {
	struct gp_conn base;
	uv_tcp_t tcp;
	uv_timer_t soon; /* reports writes that failed inside the call */
	uv_shutdown_t shutdown;
	struct gp_conn_write *failed; /* their list */
	struct gp_tcp_room *room;     /* where all connections of the loop read into */
	int open_handles;
	uint32_t rcvlowat;  /* as set on the socket; 0 = never */
	bool over, closing; /* over: `ended` ran */
	void (*closed_cb)(void *arg);
	void *closed_arg;
};

/* A connection object without a socket yet. NULL when memory is out. */
struct gp_tcp_conn *gp_tcp_conn_new(uv_loop_t *loop);
/* The socket is connected: options and the peer's name. */
void gp_tcp_conn_ready(struct gp_tcp_conn *c);
void gp_tcp_ignore_sigpipe(void);

#endif
