/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks from time to time whether a session's pass, on the device or of a codec,
 * has run for ten times what it was let in for: that session ends, whether it has
 * a link or is parked. Deadlines of the client's turns are the link's (link.c), and sessions whose run goes to another server
 * are handover.h's.
 *
 * Threads: loop thread. Test: tests/unit/test_server_time.c
 */
#ifndef GP_SERVER_WATCH_H
#define GP_SERVER_WATCH_H

#include "server/server.h"

void gp_server_watch_start(struct gp_server *srv);
/* Fine where it was not started. The loop has to run once more. */
void gp_server_watch_stop(struct gp_server *srv);

#endif
