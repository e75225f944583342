/* SPDX-License-Identifier: Apache-2.0
 *
 * What a client sends as its OPEN, read on a thread that makes plans: a graph
 * of 4096 nodes takes milliseconds to unpack, to check and to estimate, and the
 * loop thread has others to serve. Until that is done, what came behind it waits
 * in the channel. Its memory is the session's in every account, before any of it is
 * taken. What OPEN asks for is in open.h, what follows in link_open.c.
 *
 * Threads: loop thread. Test: tests/unit/test_server_time.c
 */
#ifndef GP_SERVER_OPENING_H
#define GP_SERVER_OPENING_H

#include "common/base/status.h"

struct gp_server_link;
struct gp_server_opening;
struct gp_span;

/* A control message of so many bytes begins to come in GP_LINK_OPEN: sets aside what reading it takes, until what the body
 * needs takes its place. GP_NOMEM, GP_BUSY: gp_usage_reserve_memory. */
enum gp_status gp_server_opening_expect(struct gp_server_link *l, uint32_t bytes, struct gp_err *err);
/* Takes a control message in GP_LINK_OPEN; `bytes` may go afterwards. gp_server_link_open follows, or the link's end, if it
 * still stands then. */
enum gp_status gp_server_opening_begin(struct gp_server_link *l, struct gp_span bytes, struct gp_err *err);
/* Nobody waits for it: what has not begun does nothing. The session is settled when it has come back. NULL is fine. */
void gp_server_opening_stop(struct gp_server_opening *o);

#endif
