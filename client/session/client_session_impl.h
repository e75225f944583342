/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to client_session.c (life, waiting), client_session_messages.c (what is said) and client_session_link.c (the
 * links of a session, one after the other).
 *
 * Threads: the loop's thread. Test: tests/unit/test_engine.c, tests/unit/test_resume.c
 */
#ifndef GP_CLIENT_SESSION_IMPL_H
#define GP_CLIENT_SESSION_IMPL_H

#include "client/train/run_state.h"
#include "client/session/client_session.h"

/* client_session.c */
extern const struct gp_channel_cbs gp_client_session_channel_cbs;
/* How the link is, for --metrics: whenever that changes, and now and then. */
void gp_client_session_tell_monitor(const struct gp_client_session *s);
/* Runs the loop until *flag; a failure of the session or of the link comes back as an error. */
enum gp_status gp_client_session_await(struct gp_client_session *s, const bool *flag, struct gp_err *err);
/* After a WELCOME that resumes: sends again what may have been lost. */
enum gp_status gp_client_session_go_on(struct gp_client_session *s, struct gp_err *err);
/* Asks for the parameters once more, when somebody waits for them. */
enum gp_status gp_client_session_fetch_again(struct gp_client_session *s, struct gp_err *err);

/* client_session_messages.c */
bool gp_client_session_clips_norm(const struct gp_client_session *s);
/* The window waits for the first WELCOME, and has not been chosen yet. */
bool gp_client_session_chooses_window(const struct gp_client_session *s);
/* `status` of sending a message. GP_PEER: the connection is dead, and the link is lost. */
enum gp_status gp_client_session_check_sent(struct gp_client_session *s, enum gp_status status,
					    const struct gp_err *err);
enum gp_status gp_client_session_send_hello(struct gp_client_session *s, struct gp_err *err);
enum gp_status gp_client_session_send_open(struct gp_client_session *s, struct gp_err *err);
/* Whether the channel is through with the frames that have the weights. */
bool gp_client_session_weights_are_back(const struct gp_client_session *s);
/* Does what a message of the server says. */
enum gp_status gp_client_session_dispatch(struct gp_client_session *s, const Gpsplit__Control *m, struct gp_err *err);

/* client_session_link.c */
/* The link is of no use any more. Ends the session where nothing can be resumed. */
void gp_client_session_lose(struct gp_client_session *s, enum gp_status status, const char *text);
/* The server that is asked is of no use to this session, now or later: another is asked, or where there is none the session
 * is over. */
void gp_client_session_refuse(struct gp_client_session *s, enum gp_status status, const char *text);
/* Returns when the server is READY. */
enum gp_status gp_client_session_connect(struct gp_client_session *s, struct gp_err *err);
/* After gp_client_session_lose: comes to rest, reconnects, goes on. On failure the session is over. */
enum gp_status gp_client_session_recover(struct gp_client_session *s, struct gp_err *err);
/* Closes the channel, if there is one, and waits until it is gone. A session that has failed tells the server why;
 * `flush`: a last message is still to be sent. */
void gp_client_session_hang_up(struct gp_client_session *s, bool flush);

#endif
