/* SPDX-License-Identifier: Apache-2.0
 *
 * What the log says about a session over all of its links: its title, the
 * figures of its end, and the status that SIGUSR1 asks for, a line for each
 * session and one for the totals.
 *
 * Threads: loop thread. Test: tests/e2e/server_log.sh
 */
#ifndef GP_SERVER_SESSION_STATUS_H
#define GP_SERVER_SESSION_STATUS_H

#include "server/session.h"

#define GP_SESSION_TITLE 352

/* "session 3 (token:alice, 127.0.0.1:5000)", with the address of its newest link; returns `out`. */
const char *gp_server_session_title(const struct gp_server_session *s, char out[GP_SESSION_TITLE]);
/* Takes a sample of its counters, for rates: now and then while it has a link. */
void gp_server_session_sample(struct gp_server_session *s);
/* Its client tells the loss of a step: anything that fits into a double. What no loss can be (GP_LOSS_MOST) is counted, and
 * not shown: it would make every mean over sessions worthless. */
#define GP_LOSS_MOST 1e9
void gp_server_session_told_loss(struct gp_server_session *s, double loss);
/* Its link's channel is about to go: what it has carried stays with the session. */
void gp_server_session_keep_figures(struct gp_server_session *s, const struct gp_channel *ch);
/* "12.3 s (4.56 s computing, 0.78 s in codecs)": since HELLO, and of that what its body used; returns `out`. */
#define GP_SESSION_SPENT 96
const char *gp_server_session_spent(const struct gp_server_session *s, char out[GP_SESSION_SPENT]);
/* Steps committed in this session, without those that a checkpoint from disk brought along. */
uint64_t gp_server_session_steps(const struct gp_server_session *s);
/* As PROTOCOL.md 5.1 calls the states of a link; "PARKED" without one, "ENDING" while its last work comes back. */
const char *gp_server_session_state(const struct gp_server_session *s);
/* Over the last 30 s; NaN where nothing is known yet. */
void gp_server_session_rates(const struct gp_server_session *s, double *steps_per_s, double *up_per_s,
			     double *down_per_s);
/* Writes the status to the log, whatever --log leaves out. */
void gp_server_tell_status(struct gp_server *srv);

#endif
