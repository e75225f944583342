/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs: what of a client's session outlives its connection, which is the body
 * with its memory, and the secret that a client finds it by. PROTOCOL.md 5.6.
 *
 * Life: made at HELLO -> belongs to a session (a connection) -> the link
 * breaks: *parked*, for --resume-window -> claimed by a new connection with the
 * token: as soon as the old channel is gone and the lanes have run dry, it is
 * the new session's -> ended (BYE, an error, the window has passed): freed
 * when the lanes have run dry.
 *
 * Threads: loop thread. Test: tests/unit/test_resume_tokens.c, tests/unit/test_server_checkpoints.c
 */
#ifndef GP_SERVER_RUN_H
#define GP_SERVER_RUN_H

#include "common/net/token.h"
#include "server/body.h"
#include "server/server.h"

struct gp_server_run {
	struct gp_server *srv;
	struct gp_server_run *prev, *next;
	struct gp_server_session *session;   /* until its channel is gone; NULL: parked */
	struct gp_server_session *successor; /* waits until the run has come to rest */
	struct gp_body *body;                /* NULL before OPEN */
	uint64_t memory_bytes;               /* of the server's account */
	struct gp_server_device *device;     /* from OPEN on */
	uint64_t device_bytes;               /* of its account */
	uint32_t tried;                      /* devices, this one included: gp_server_device_bit */
	struct gp_err busy;                  /* GP_BUSY: one of them had no room now, and why */
	enum gp_precision precision;
	/* The newest, and the one that it replaced until the client has shown that it knows the newest. */
	uint8_t token[2][GP_TOKEN_BYTES];
	int tokens, presented;
	uint8_t id[GP_RUN_ID_BYTES], kept_as[GP_RUN_ID_BYTES]; /* as its client names it, and the state_dir */
	char who[GP_SERVER_WHO_BYTES]; /* the client has proved to be: only the same may resume */
	bool named;                    /* has an id */
	bool keeps;                    /* its client keeps checkpoints */
	bool using;                    /* the server's state_dir knows that it is in use */
	bool ready;                    /* READY was sent: can be resumed */
	bool ending, drained;
	uv_timer_t window;
};

/* A run without a body, for this session. `id`: of HELLO, empty or GP_RUN_ID_BYTES; other runs of that id end. GP_BUSY
 * when there are as many as the server takes. */
enum gp_status gp_server_run_new(struct gp_server *srv, struct gp_server_session *session, struct gp_span id,
				 const char *who, struct gp_server_run **out, struct gp_err *err);
/* To a device that it has not tried, see gp_server_devices_place; on failure it stays where it is. */
enum gp_status gp_server_run_place(struct gp_server_run *r, struct gp_err *err);
/* NULL: there is none with this token. */
struct gp_server_run *gp_server_run_find(struct gp_server *srv, struct gp_span token);
/* The session's channel is closing and the run is kept, for a while. */
void gp_server_run_park(struct gp_server_run *r);
/* The session's channel is gone. */
void gp_server_run_release(struct gp_server_run *r);
/* gp_server_session_take follows, when the run is at rest. One successor at a time. */
void gp_server_run_claim(struct gp_server_run *r, struct gp_server_session *successor);
/* The successor has gone, too. */
void gp_server_run_unclaim(struct gp_server_run *r);
/* The successor takes it: undoes what the client undoes, compares what both ends' codecs remember, makes a new token.
 * On failure the run is of no use to anybody. */
enum gp_status gp_server_run_resume(struct gp_server_run *r, uint64_t client_steps, uint64_t client_hash,
				    struct gp_err *err);
/* The client knows the newest token. */
static inline void gp_server_run_confirm(struct gp_server_run *r)
{
	r->tokens = 1;
}
/* Nobody will ask for it again: freed when it has come to rest. */
void gp_server_run_end(struct gp_server_run *r);
/* HELLO's list of checkpoints, with which the run keeps some. *stored: the newest of them that the server has, too; 0: none.
 * From here on to the end of the run they make room for nothing else. */
enum gp_status gp_server_run_stored(struct gp_server_run *r, const uint64_t *step, size_t count, uint64_t *stored,
				    struct gp_err *err);
/* OPEN of such a run: where the body finds and leaves its checkpoints. GP_INVALID: what is wrong with restore_step. */
enum gp_status gp_server_run_use_state(struct gp_server_run *r, uint64_t restore_step, struct gp_body_spec *spec,
				       struct gp_err *err);
/* A task of the body came back. */
void gp_server_run_settle(struct gp_server_run *r);

#endif
