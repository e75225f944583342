/* SPDX-License-Identifier: Apache-2.0
 *
 * The states of a connection, and which control messages and tensor frames may
 * come in which of them: PROTOCOL.md section 5.1 as a table, for client and
 * server. What only one of them knows (which step, which chunk) is checked by
 * whoever takes the message.
 *
 * To add a message:
 *   - proto/gpsplit.proto: the message, and a field of Control, whose name is the
 *     message's name in errors;
 *   - a line in the table of control_states.c, and one in section 5.1 of
 *     PROTOCOL.md; sections 5.2 to 5.7 say what it means;
 *   - control.{h,c}: gp_control_send_NAME;
 *   - where it is taken: `dispatch` of server/link.c, or of
 *     client/session/client_session.c, which hands what concerns a step on to the engine
 *     (struct gp_client_frames in client/session/client_session.h); what the body of the
 *     server has to say comes through the callbacks that server/link_open.c sets;
 *   - tests/fuzz/fuzz_client_session.c or fuzz_server_session.c: the receiver
 *     that meets it at any time.
 *
 * Threads: any; pure functions. Test: tests/unit/test_control_states.c, which
 * compares the table with section 5.1.
 */
#ifndef GP_CONTROL_STATES_H
#define GP_CONTROL_STATES_H

#include "common/wire/control.h"

/* A state is named by what both ends wait for next. An end that is the first to know moves on first. */
enum gp_link_state {
	GP_LINK_PREFACE, /* both prefaces */
	GP_LINK_HELLO,   /* the client's HELLO */
	GP_LINK_WELCOME, /* the server's WELCOME; a server may have to wait for a session to come to rest, or for the disk */
	GP_LINK_OPEN,    /* the client's OPEN or MEASURE */
	GP_LINK_LOAD,    /* the weights, then the server's READY */
	GP_LINK_RUN,     /* steps, evaluations, parameters, until BYE */
	GP_LINK_MEASURE, /* probes, until BYE */
	GP_LINK_CLOSED,  /* the link is over: nothing is taken any more */
	GP_LINK_STATES
};

enum gp_end { GP_END_CLIENT, GP_END_SERVER };

const char *gp_link_state_name(enum gp_link_state state); /* "LOAD" */

/* Whether an end in this state takes such a message, or such a frame, from `sender`. */
bool gp_control_allowed(enum gp_end sender, enum gp_link_state state, Gpsplit__Control__BodyCase message);
bool gp_frame_allowed(enum gp_end sender, enum gp_link_state state, uint8_t type);

/* The same as errors, GP_PROTO. */
enum gp_status gp_control_check(enum gp_end sender, enum gp_link_state state, const Gpsplit__Control *m,
				struct gp_err *err);
/* Checks that the frame names this session, too. */
enum gp_status gp_frame_check(enum gp_end sender, enum gp_link_state state, uint64_t session,
			      const struct gp_frame_head *head, struct gp_err *err);

#endif
