/* SPDX-License-Identifier: Apache-2.0
 *
 * A client's session: what outlives its links, which is the body with its
 * memory, and the token by which the client finds it again. PROTOCOL.md 5.6.
 *
 * Life: made at HELLO -> has a link -> the link breaks: *parked*, for
 * --resume-window -> claimed by a new link with the token: as soon as the old
 * channel is gone and the lanes have run dry the body is rewound, off the loop,
 * unless its step goes on in its place; then it has the new link -> ended (BYE, an error, the window has passed):
 * freed when the lanes have run dry.
 *
 * Threads: loop thread. Test: tests/unit/test_resume_tokens.c, tests/unit/test_server_checkpoints.c,
 * tests/unit/test_server_slow_resume.c
 */
#ifndef GP_SERVER_SESSION_H
#define GP_SERVER_SESSION_H

#include "common/base/rate.h"
#include "common/base/stop.h"
#include "common/net/token.h"
#include "server/body.h"
#include "server/server.h"

#define GP_RUN_DIGITS_SHOWN 8 /* of a run's folder, in the log: as many as find it; all of them would open it */

struct gp_server_opening;

struct gp_server_session {
	struct gp_server *srv;
	struct gp_server_session *prev, *next;
	struct gp_server_link *link;       /* until its channel is gone; NULL: parked */
	struct gp_server_link *successor;  /* waits until the session has come to rest, and its body is rewound */
	struct gp_server_opening *opening; /* OPEN is being read */
	struct gp_body *body;              /* NULL before OPEN */
	uint64_t memory_bytes;             /* of the server's account */
	struct gp_server_device *device;   /* from OPEN on */
	uint64_t device_bytes;             /* of its account */
	double device_share;               /* of its device's time, beside 1 of a session without --limits: usage.h */
	uint32_t tried;                    /* devices, this one included: gp_server_device_bit */
	struct gp_err busy;                /* GP_BUSY: one of them had no room now, and why */
	enum gp_precision precision;
	/* The newest, and the one that it replaced until the client has shown that it knows the newest. */
	uint8_t token[2][GP_TOKEN_BYTES];
	int tokens, presented;
	uint64_t id; /* which WELCOME says and every frame repeats */
	uint8_t run_id[GP_RUN_ID_BYTES],
		stored_as[GP_RUN_ID_BYTES]; /* as its client names the run, and the state_dir */
	char who[GP_SERVER_WHO_BYTES];      /* whom the client has proved to be: only the same may resume */
	struct gp_server_proof proof;       /* how its newest link has proved it */
	struct gp_client_tag client;        /* in the log */
	char address[64];                   /* of its newest link */
	/* What the log tells, see session_status.h: over all links, and what of it past links have carried. */
	uint64_t parked_ns;               /* since when, while it is parked */
	uint64_t began_ns, restored_step; /* restored_step: of the checkpoint that its body began from; 0: none */
	struct gp_tcp_figures past_tcp;
	double loss;             /* that its client told of the newest step; NaN: none, or nothing that a loss can be */
	struct gp_tally_sum sum; /* what it has done, without the link that it has now: tally.h */
	struct gp_tally_seat *seat; /* NULL before READY */
	enum gp_status end_reason;  /* for the count of sessions that have ended */
	bool told_end;
	uint64_t past_up_bytes, past_down_bytes;
	struct gp_rate rate;
	bool has_run_id;
	bool checkpoints; /* the client writes checkpoints of the run */
	bool using;       /* the server's state_dir knows that the run is in use */
	bool moves;       /* its client has said that it goes on elsewhere when it is sent away: HELLO */
	bool moved;       /* it was: rebalance.h */
	bool handed_over; /* another server that shares the state_dir goes on with the run: what is committed is written */
	bool ready;       /* READY was sent: the session can be resumed */
	bool superseded; /* its run has begun anew */
	bool ending, drained;
	bool left; /* it ended before the server began to stop: whoever stops it has no say about its run */
	/* The body is, or is being, rewound to where a client that has committed so many steps goes on. That stays true
	 * for the next link when the one that asked for it breaks, too. */
	bool rewound;
	uint64_t rewound_to, successor_steps;
	bool successor_rewinds; /* else its step goes on where it was */
	int damages; /* links that have damaged data, one after the other, while gp_body_gains stayed at this */
	uint64_t damaged_at;
	struct gp_lane disk; /* looks for the newest of the listed checkpoints that is stored, for WELCOME */
	struct gp_task find;
	struct gp_stop stop; /* the session is ending: what has not begun on the disk is not begun */
	uint64_t lease;      /* of the run: gp_state_dir_hold; 0: there is none */
	uint64_t listed[GP_CHECKPOINTS_MAX], stored;
	size_t listed_count;
	uint64_t theirs[GP_CHECKPOINTS_MAX]; /* where none of the listed is stored: what is */
	int theirs_count;
	uv_timer_t window;
};

/* Makes a session without a body, for this link. `run_id` is that of HELLO, empty or GP_RUN_ID_BYTES; other sessions of
 * the same run end. GP_BUSY when there are as many as the server takes, or as the name may have. Where all are taken, the
 * session that is parked for longest ends, of that client which has most of them parked: two at least, and more than `client`
 * has sessions. A client is a name, or without one an address. */
enum gp_status gp_server_session_new(struct gp_server *srv, struct gp_server_link *link, struct gp_span run_id,
				     const char *who, const struct gp_client_tag *client,
				     struct gp_server_session **out, struct gp_err *err);
/* Whether it counts among those that may be open: also one that is ending, as long as it takes memory and threads,
 * unless its own client has replaced it. */
static inline bool gp_server_session_counts(const struct gp_server_session *s)
{
	return !s->ending || ((s->body || s->opening) && !s->superseded);
}
/* The link that has the session, from this address, has proved this. */
void gp_server_session_prove(struct gp_server_session *s, const struct gp_server_proof *proof,
			     const struct gp_client_tag *client, const char *address);
#define GP_SERVER_REVOKED "the token of this session was taken out of the server's file"
/* Ends the sessions that have no link and whose token was revoked. */
void gp_server_sessions_revoke(struct gp_server *srv);
/* Moves the session to a device that it has not tried, see gp_server_devices_choose; on failure it stays where it is. */
enum gp_status gp_server_session_choose_device(struct gp_server_session *s, struct gp_err *err);
/* Returns NULL when no session has this token. */
struct gp_server_session *gp_server_session_find(struct gp_server *srv, struct gp_span token);
/* Whether a session whose link breaks waits for its client: one of a server that drains does so for a COMMIT alone. */
bool gp_server_session_may_park(const struct gp_server_session *s);
/* The link's channel is closing; the session waits for another link, for --resume-window. */
void gp_server_session_park(struct gp_server_session *s);
/* Its link has damaged data, and will be parked. */
void gp_server_session_note_damage(struct gp_server_session *s);
/* The link's channel is gone. */
void gp_server_session_release(struct gp_server_session *s);
/* When the session is at rest, gp_server_link_take follows; if `rewind`, after what a client that has committed
 * `client_steps` begins again was undone. One successor at a time. */
void gp_server_session_claim(struct gp_server_session *s, struct gp_server_link *successor, uint64_t client_steps,
			     bool rewind);
/* The successor has gone, too. */
void gp_server_session_unclaim(struct gp_server_session *s);
/* What came of the rewind, and whether both ends' codecs remember the same. */
enum gp_status gp_server_session_check_rewound(const struct gp_server_session *s, uint64_t client_hash,
					       struct gp_err *err);
/* The successor takes the session, unless its links only damage data (GP_DAMAGED): makes a new token. On failure, here or in
 * a check, the session is of no use to anybody. */
enum gp_status gp_server_session_resume(struct gp_server_session *s, struct gp_err *err);
/* The client knows the newest token. */
static inline void gp_server_session_confirm(struct gp_server_session *s)
{
	s->tokens = 1;
}
/* Ends a session that no step is under way in; others end with their step. For a server that is to stop. */
void gp_server_session_drain(struct gp_server_session *s);
/* Says in the log what its run goes on from if the server ended now. True: that is an older step than it is at. */
bool gp_server_session_tell_fallback(const struct gp_server_session *s);
/* Nobody will ask for it again: freed when it has come to rest. */
void gp_server_session_end(struct gp_server_session *s);
/* Takes HELLO's list of checkpoints, locks the run, looks for the newest of them that the server has, too, and calls
 * gp_server_link_welcome with it: at once, or, where the disk is to be read, later and only if the link still stands then.
 * Where another server has the run, or the checkpoints cannot be read at the moment, the link and the session end (GP_BUSY).
 * From here to the end of the session the run's checkpoints make room for nothing else. */
enum gp_status gp_server_session_find_stored(struct gp_server_session *s, const uint64_t *step, size_t count,
					     struct gp_err *err);
/* Tells the body of an OPEN where its run's checkpoints are. GP_INVALID: the session cannot have restore_step. The body
 * finds out whether that checkpoint is there and fits. */
enum gp_status gp_server_session_use_state(struct gp_server_session *s, uint64_t restore_step,
					   struct gp_body_spec *spec, struct gp_err *err);
/* A task of the body came back. */
void gp_server_session_settle(struct gp_server_session *s);

#endif
