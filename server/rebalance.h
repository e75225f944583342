/* SPDX-License-Identifier: Apache-2.0
 *
 * --rebalance: servers that share a --state-dir even out their sessions. What this server has to do goes into its beats,
 * and when balance.h finds that it has too many, the first session that comes to the end of a step, and that may be sent
 * away, is: as when the server stops, its state is written as of that step, its client is told so, and of other servers
 * (--advertise), and goes on there.
 *
 * A session may be sent away if its client has said in HELLO that it goes on elsewhere, it has checkpoints here that
 * can be written, and it has been here for a while (GP_BALANCE_STAY_PAUSES).
 *
 * Threads: loop thread. Test: tests/unit/test_server_rebalance.c, tests/e2e/rebalance.sh
 */
#ifndef GP_REBALANCE_H
#define GP_REBALANCE_H

#include "server/server.h"

/* From time to time: tells the others what there is to do here, and sees whether that is too much. */
void gp_server_rebalance_look(struct gp_server *srv);
/* A step is committed, and the client was told: its session may be sent away now, with which the link ends. */
void gp_server_rebalance_stepped(struct gp_server_link *l);

#endif
