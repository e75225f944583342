/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions whose run goes to another server that shares --state-dir: because this server could not renew its leases in
 * time, or because the run's client is there. The first kind ends at once and writes nothing; the second is written as of
 * its last commit before it is given away.
 *
 * Threads: loop thread. Test: tests/unit/test_server_sharing.c, tests/e2e/shared_state.sh
 */
#ifndef GP_SERVER_HANDOVER_H
#define GP_SERVER_HANDOVER_H

#include "server/server.h"

struct gp_server_session;

/* From time to time, and in less than a quarter of --lease. */
void gp_server_handover_look(struct gp_server *srv);
/* Ends a session that has lost its run; false: it has not. */
bool gp_server_handover_lost(struct gp_server_session *s);

#endif
