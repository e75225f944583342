/* SPDX-License-Identifier: Apache-2.0
 *
 * One connection of a client, from the accepted socket to its end. What outlives it is the session, in session.h.
 * Private to link.c, link_hello.c, link_open.c, opening.c, measure.c, session_status.c, tally.c, metrics_snapshot.c,
 * handover.c and rebalance.c.
 *
 * Threads: loop thread. Test: tests/unit/test_server.c
 */
#ifndef GP_SERVER_LINK_H
#define GP_SERVER_LINK_H

#include "common/wire/control_states.h"
#include "server/body.h"
#include "server/session.h"
#include "server/server.h"

struct gp_server_measure;

struct gp_server_link {
	struct gp_server *srv;
	struct gp_server_link *prev, *next;
	struct gp_server_link *older, *newer; /* in the list of strangers, while it is one */
	struct gp_channel *ch;
	struct gp_server_session *session;  /* from HELLO on, until the channel is gone */
	struct gp_server_session *claimed;  /* in GP_LINK_WELCOME: the session that is to come to rest and be rewound */
	uint64_t client_steps, client_hash; /* from a HELLO that resumes */
	struct gp_place client_place;
	bool has_place;               /* the step under way goes on */
	uint64_t stored;              /* step of the newest checkpoint that both sides have */
	struct gp_server_proof proof; /* from HELLO on */
	struct gp_visitor_key address;
	struct gp_client_tag client;       /* in the log: the address until HELLO has proved a name */
	struct gp_server_measure *measure; /* from MEASURE on: measure.h */
	struct gp_control_arena arena;
	uv_timer_t timer;
	enum gp_link_state state;
	uint64_t id, progress_ns, progress_bytes; /* of frames, when there was progress the last time */
	uint64_t waited_ns;                       /* since when the server waits for the HELLO of a stranger */
	uint64_t tick_ns;                         /* when the deadlines were last looked at */
	char peer[64];
	uint32_t retry_ms; /* after GP_BUSY, where it is known; 0: a while */
	bool channel_closed, timer_closed, ended;
	bool stranger;  /* until its HELLO is accepted */
	bool abandoned; /* its client has come back over another one */
	bool shaking;   /* its TLS handshake counts for its address */
};

/* The HELLO is accepted: the link is a stranger no longer. */
void gp_server_link_meet(struct gp_server_link *l);
/* Closes the link and parks its session, for a client that may come back. gp_server_link_stop ends both for good. */
void gp_server_link_park(struct gp_server_link *l, enum gp_status status, const char *text);
/* The link is of no use any more: parks the session where its client may come back, else ends both. */
void gp_server_link_lose(struct gp_server_link *l, enum gp_status status, const char *text);
/* A step is committed and the client was told: while the server drains that is the session's end, and a session that is one
 * too many goes to another server then. */
void gp_server_link_stepped(struct gp_server_link *l);
/* Takes what became of sending a message: GP_PEER loses the link, any other failure ends the session. */
void gp_server_link_sent(struct gp_server_link *l, enum gp_status status, const struct gp_err *err);

/* link_hello.c: takes HELLO, which says who the client is and which session it comes back for. WELCOME answers it,
 * by gp_server_link_take or gp_server_link_welcome, which may have to wait: for the session, or for the disk. GP_PROTO,
 * GP_DENIED, GP_BUSY: why the client is turned away. */
enum gp_status gp_server_link_hello(struct gp_server_link *l, const Gpsplit__Hello *hello, struct gp_err *err);
/* link_open.c: takes what OPEN asked for (opening.h), and the graph in any case. The session gets a device and a body,
 * which says READY. */
enum gp_status gp_server_link_open(struct gp_server_link *l, const struct gp_body_spec *asked, uint64_t restore_step,
				   struct gp_err *err);

#endif
