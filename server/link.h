/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to link.c, link_hello.c and link_open.c. Loop thread.
 */
#ifndef GP_SERVER_SESSION_IMPL_H
#define GP_SERVER_SESSION_IMPL_H

#include "common/wire/control.h"
#include "server/body.h"
#include "server/session.h"
#include "server/server.h"

/* RESUME: until the run that it asked for is at rest. */
enum session_state { STATE_PREFACE, STATE_HELLO, STATE_OPEN, STATE_BUILD, STATE_RESUME, STATE_RUN, STATE_CLOSING };

struct gp_server_session {
	struct gp_server *srv;
	struct gp_server_session *prev, *next;
	struct gp_server_session *older, *newer; /* while it is a stranger */
	struct gp_channel *ch;
	struct gp_server_run *run;          /* from HELLO on, until the channel is gone */
	struct gp_server_run *claimed;      /* while it is waited for */
	uint64_t client_steps, client_hash; /* of a HELLO that resumes */
	uint64_t stored;                    /* step of the newest checkpoint that both sides have */
	struct gp_control_arena arena;
	uv_timer_t timer;
	enum session_state state;
	uint64_t id, progress_ns, began_ns;
	uint64_t waited_ns; /* since then for the HELLO of a stranger */
	uint64_t tick_ns;   /* when the deadlines were last looked at */
	char peer[64];
	bool channel_closed, timer_closed, ended;
	bool stranger; /* until its HELLO is accepted */
};

/* Its HELLO is accepted: it is a stranger no longer. */
void gp_server_session_meet(struct gp_server_session *s);
/* The way out when the client may come back; for good: gp_server_session_stop. */
void gp_server_session_park(struct gp_server_session *s, enum gp_status status, const char *text);
/* What became of a message: one that could not be sent ends the session, or loses its link. */
void gp_server_session_sent(struct gp_server_session *s, enum gp_status status, const struct gp_err *err);

/* link_hello.c, HELLO: who it is, which run it comes back for; answered by WELCOME, at once or by
 * gp_server_session_take. GP_PROTO, GP_DENIED, GP_BUSY: why it is turned away. */
enum gp_status gp_server_session_hello(struct gp_server_session *s, const Gpsplit__Hello *hello, struct gp_err *err);
/* link_open.c, OPEN: the run gets a device and a body, which says READY. */
enum gp_status gp_server_session_open(struct gp_server_session *s, const Gpsplit__Open *m, struct gp_err *err);

#endif
