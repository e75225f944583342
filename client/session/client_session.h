/* SPDX-License-Identifier: Apache-2.0
 *
 * The client's side of a session: connect, handshake, OPEN with the body's
 * graph, control messages, and the failure that ended it. Frames are passed on
 * to the engine. PROTOCOL.md section 5.
 *
 * When the link breaks the session reconnects inside of whatever waits for the
 * server (section 5.6), and the engine is told twice: `lost`, to come to rest
 * or to take back what it has begun, and `resumed`, to go on or to begin it
 * again. Not here: how (that is
 * client_session_link.c). Links that break one after the other before anything
 * is gained end the session, as a server that stays away does.
 *
 * Threads: the loop's thread. The functions that wait run the loop themselves.
 * Test: tests/unit/test_engine.c, tests/unit/test_resume.c
 */
#ifndef GP_CLIENT_SESSION_H
#define GP_CLIENT_SESSION_H

#include <signal.h>

#include "client/session/server_list.h"
#include "common/codec/codec.h"
#include "common/wire/control.h"
#include "common/wire/control_states.h"
#include "common/wire/place.h"
#include "common/wire/session_spec.h"
#include "common/graph/device.h"
#include "common/graph/precision_trial.h"
#include "common/graph/graph.h"
#include "common/net/token.h"
#include "common/graph/weights.h"
#include "common/store/checkpoint.h"

#define GP_WINDOW_FIRST                                                                                                \
	4 /* chunks in flight until a round trip is known, and where the server has no memory for more */

struct gp_client_session;
struct gp_client_security;
struct gp_run_monitor;
struct gp_run_state;
struct gp_timeline;

struct gp_client_frames { /* the engine's part of struct gp_channel_cbs, and of resuming */
	enum gp_status (*frame_begin)(void *arg, const struct gp_frame_head *head, struct gp_frame **out,
				      struct gp_err *err);
	enum gp_status (*frame)(void *arg, struct gp_frame *f, struct gp_err *err);
	void (*sent)(void *arg, struct gp_frame *f);
	/* GRAD_SQUARES, only with clip_norm. */
	enum gp_status (*grad_squares)(void *arg, uint64_t step, const double *sum, size_t n, struct gp_err *err);
	/* CHUNK_DONE. */
	enum gp_status (*chunk_done)(void *arg, uint64_t step, uint32_t chunk, struct gp_err *err);
	/* A frame had begun to arrive when its link ended. */
	void (*frame_lost)(void *arg, const struct gp_frame *f);
	/* The channel is gone, and with it what was under way. Comes to rest where it is, where the server keeps its
	 * place, too; else takes back what was begun of the step that is not yet committed. May run the loop. */
	void (*lost)(void *arg);
	/* After `lost`: gives what this end lacks, with so many tensors up and down. False: nothing of a step is
	 * under way. */
	bool (*place)(void *arg, struct gp_place *out, int *up, int *down);
	/* After `lost`, where there is no `restart`: an OPEN begins the session anew at the server. Takes back what `lost` has
	 * left in its place. */
	void (*renewed)(void *arg);
	/* There is a channel again: the step goes on where the server says that it lacks something, NULL: what was
	 * taken back may begin again. `renewed`: the server has begun the session anew since `lost`. */
	void (*resumed)(void *arg, const struct gp_place *server, bool renewed);
	/* COMMITTED of this step, in a session with a ladder: what it tells of codecs and of the link. Its numbers
	 * are the server's word. */
	void (*committed)(void *arg, uint64_t step, const struct gp_committed *c);
	/* The server has written the checkpoint that COMMIT of this step asked for; or `why` not. */
	enum gp_status (*checkpointed)(void *arg, uint64_t step, const char *why, struct gp_err *err);
	/* Hash of what the codecs of all directions remember alike at both ends. Called after `lost` and after
	 * `restart`. */
	uint64_t (*state_hash)(void *arg);
};

struct gp_client_open {
	const char *server; /* "HOST:PORT", or several with commas between */
	const struct gp_graph *body;
	const struct gp_weights *weights; /* of the whole model; NULL: the server draws them from seed */
	const struct gp_session_spec *spec;
	bool window_given; /* a server that allows less than spec->window is an error; else less is used */
	/*
	 * (optional) The first WELCOME has come, so long after HELLO, from a server that allows so many chunks in
	 * flight: sets the window, which is spec->window, and all that depends on it. With it a server that has no
	 * memory for a window over GP_WINDOW_FIRST is asked for half of it.
	 */
	enum gp_status (*choose_window)(void *arg, double round_trip_s, int most, struct gp_err *err);
	void *choose_window_arg;
	/* With spec->choose_precision, from READY: sets spec->precision to it, and choose_precision to false. */
	void (*chosen)(void *arg, enum gp_precision precision, const struct gp_precision_trial *trial);
	void *chosen_arg;
	double connect_timeout_s, idle_timeout_s;
	/* A broken link is given up after so long, and so are links that all break before anything is gained; 0: at
	 * once. */
	double reconnect_for_s;
	double patience_s; /* (optional) a server that answers may do nothing for so long at most, whatever it says */
	const volatile sig_atomic_t *stop;         /* (optional) set: reconnecting ends, soon, in GP_CANCELED */
	const struct gp_client_security *security; /* NULL: in the clear, without a token */
	struct gp_run_state *run;                  /* (optional) checkpoints that this side has; with it, `restart` */
	struct gp_run_monitor *monitor;            /* (optional) is told how the link is, also while it is away */
	/* (optional) Gets what the server tells of when it did what, which OPEN asks for. `traces`: for a --trace. */
	struct gp_timeline *timeline;
	bool traces;
	/*
	 * (optional) The server does not have the session, or not any more. Puts the engine to this step, which both
	 * ends have a checkpoint of (the step that this side is at: it has that in memory; 0: to the start), and says
	 * so by gp_client_session_rewind. May run the loop.
	 */
	enum gp_status (*restart)(void *arg, uint64_t checkpoint_step, struct gp_err *err);
	void *restart_arg;
};

#define GP_CLIENT_MOVES_MOST   (1 << 14) /* broken links */
#define GP_CLIENT_REWINDS_MOST 8         /* to a checkpoint, without a step that was never committed before */

/* Links that broke one after the other, while no step was committed, no chunk of an evaluation answered, and no
 * tensor came whole of which the server keeps the place. */
struct gp_client_standstill {
	uint64_t begin_ns; /* when the first of them broke, which may have brought something; 0: none */
	uint64_t sent_bytes, received_bytes; /* on the wire, until then */
	uint32_t links;                      /* that broke since then */
};

struct gp_client_session {
	uv_loop_t *loop;
	struct gp_channel *ch;        /* NULL between two links */
	uint64_t id;                  /* from WELCOME; every frame names it */
	uint64_t device_failed_after; /* number of steps after which another failure of its device is survived */
	uint64_t server_memory_bytes, server_device_bytes; /* of the host, of its device's own memory */
	uint64_t server_limit_bytes;                       /* that a session may take, by WELCOME; 0: not said */
	bool tells;                                        /* the server, when it did what: READY says so */
	uint64_t committed_ns;                             /* when COMMIT was sent, or sent again */
	uint64_t body_ns;                                  /* that the server told of passes and updates */
	uint32_t pings;                                    /* steps of this link that could have compared clocks */
	bool takes_lengths;                  /* of chunks' own sequences: READY says so, as OPEN has asked */
	char server_device[GP_DEVICE_TITLE]; /* on which the body runs; "" from an old server */
	uint64_t steps,
		committed; /* steps whose COMMIT this side has decided on; steps the server has committed, as far as we know */
	uint32_t reconnects;
	bool linked;           /* frames may be sent */
	bool evaluating;       /* the engine says: chunks of an evaluation are under way, not those of a step */
	enum gp_status status; /* not GP_OK: the session is over, err says why */
	struct gp_err err;
	/* Sums over the links that are over; the engine adds the times of its stages. */
	struct gp_account account;
	/* private */
	struct gp_tcp_figures past_tcp;
	const struct gp_client_frames *frames;
	void *arg;
	const struct gp_client_open *open;
	struct gp_server_list servers; /* of open->server, and which of them is or was asked last */
	struct gp_control_arena arena;
	enum gp_link_state state; /* of the newest link */
	int window_limit;
	int window;      /* chunks in flight, as agreed */
	int window_most; /* what the server's memory has room for; 0: as far as we know, for all */
	bool window_chosen;
	uint64_t hello_ns, welcome_ns;   /* of the newest link: when HELLO went, when WELCOME came */
	struct gp_connector *connecting; /* NULL: not */
	struct gp_srv_lookup *looking;   /* for SRV records; NULL: not */
	bool met, returning, welcomed, resumed, opened, lost;
	bool answered, ready; /* READY has come; and every frame with weights is back from the channel, too */
	bool rewound;         /* what is waited for will not come: the engine has gone back to an earlier step */
	bool renewed;         /* since the last link on which steps went on, an OPEN has begun the session anew */
	bool params_done, all_committed, waiting, peer_gave_up, pausing;
	bool stays;     /* the same server is asked again */
	bool sent_away; /* the server said so itself, where there was a session to end */
	bool declines;  /* this side does not take what the server has opened for it, which has to be told */
	bool reached;   /* somebody accepted the last connection */
	bool near;      /* at a loopback address */
	int damages;    /* links that have damaged data, since the last gain */
	int strange;    /* connections accepted by a peer that has never said who it is */
	int timers_open;
	struct gp_err lost_err;
	struct gp_client_standstill standstill;
	uint32_t retry_ms; /* the server's wish */
	uint32_t rtt_us;   /* of the last link */
	uint8_t token[GP_TOKEN_BYTES], run_id[GP_RUN_ID_BYTES];
	bool has_token;
	bool confirmed; /* READY has come for the session of the token: another link may go on with it */
	/* From WELCOME: of the session that the server would have begun. It is this one when OPEN goes. */
	struct {
		uint64_t id;
		uint8_t token[GP_TOKEN_BYTES];
		bool has_token, keeps_place;
	} offer;
	uint64_t server_steps, server_checkpoint; /* from WELCOME */
	uint64_t stored[GP_CHECKPOINTS_MAX]; /* from WELCOME: where none is common, what the server has of the run */
	size_t stored_count;
	bool keeps_place; /* the server, when a link breaks within a step */
	bool has_place;   /* this link goes on where both ends were */
	struct gp_place server_place;
	uint64_t server_has; /* by all numbers of its last place: chunks that came whole */
	uint32_t moves;      /* that ended a standstill, since the last gain */
	uint64_t furthest; /* number of steps that a server has committed, also where a later one has begun before it */
	uint32_t rewinds;  /* to a checkpoint, since a server came further */
	struct gp_commit last_commit;
	uv_timer_t timer, pause;
	uint64_t progress_ns;    /* when the server last did something, heartbeats aside */
	uint64_t progress_bytes; /* of frames, then */
	uint64_t tick_ns;        /* when deadlines were last looked at */
	double patience_s;       /* the server may do nothing for so long while we wait */
	struct gp_frame *param_up;
	struct gp_weights *fetch_into;
	struct gp_frame param_down;
	const struct gp_graph *body;
	int params_sent, param_down_next, params_arrived;
};

/* Returns when the server is READY. On failure nothing is left open. `s` and what `open` points to must stay. */
enum gp_status gp_client_session_open(struct gp_client_session *s, uv_loop_t *loop, const struct gp_client_open *open,
				      const struct gp_client_frames *frames, void *arg, struct gp_err *err);
/*
 * Runs the loop until *flag or the session fails (its error comes back): when the server sends nothing but heartbeats
 * for the step timeout that it named, too. Reconnects when the link breaks, or is broken already. GP_CANCELED with
 * the session in good order: the engine was put back to an earlier step, and the caller has to go on from there.
 */
enum gp_status gp_client_session_wait(struct gp_client_session *s, const bool *flag, struct gp_err *err);
/* The same for something that this side does: the server may be idle for as long as it takes. */
enum gp_status gp_client_session_wait_here(struct gp_client_session *s, const bool *flag, struct gp_err *err);
/* A chunk of an evaluation was answered, and is not asked for again if the link breaks. (Of COMMITTED the session
 * knows.) */
void gp_client_session_gain(struct gp_client_session *s);
/* At the begin of a step: compares clocks with the server, where there is a link and the last time was a while ago. */
void gp_client_session_ping(struct gp_client_session *s);
/* A tensor of a step came whole, here or there: where the server keeps its place it need not come again either. It
 * ends a standstill, but no more than GP_CLIENT_MOVES_MOST times without a gain: a server could say for ever that something
 * has come. */
void gp_client_session_move(struct gp_client_session *s);
/* Ends the session with this failure (also from callbacks); the first one is kept. */
void gp_client_session_fail(struct gp_client_session *s, enum gp_status status, const char *text);
/* The same for something that came over the link: bytes that were damaged (GP_DAMAGED) cost the link alone, and come
 * again over the next; unless that goes on and on, or there may be no other. */
void gp_client_session_take_failure(struct gp_client_session *s, enum gp_status status, const char *text);
/* Sends COMMIT. From here on the step is done: the caller makes its own update whatever becomes of the link. The
 * server must have committed every earlier step (gp_client_session_settle). grad_norm: 0 without clip_norm.
 * `checkpoint`: this side has a checkpoint of the state after the step, and the server is to write its own. */
enum gp_status gp_client_session_commit(struct gp_client_session *s, const struct gp_commit *c, struct gp_err *err);
/* The body as it is from here on, where ranks have changed: its parameters' shapes are those that will be fetched. */
void gp_client_session_set_body(struct gp_client_session *s, const struct gp_graph *body);
/* Waits for every COMMITTED. */
enum gp_status gp_client_session_settle(struct gp_client_session *s, struct gp_err *err);
/* The engine went back to this step (restart, above); `again`: even where it is the one that it was at, something
 * that came behind it has to be done again. */
void gp_client_session_rewind(struct gp_client_session *s, uint64_t step, bool again);
/* The server that the session is at, or asked last, as the user or another server wrote it. */
const char *gp_client_session_server(const struct gp_client_session *s);
/* Gives our counts and, where there is TCP, the kernel's, summed over all links. */
void gp_client_session_figures(const struct gp_client_session *s, struct gp_account *account,
			       struct gp_tcp_figures *tcp, uint32_t *rtt_us);
/* Waits for every COMMITTED, then fetches the body's parameters into w (whole model, matched by name). */
enum gp_status gp_client_session_fetch(struct gp_client_session *s, struct gp_weights *w, struct gp_err *err);
/* Says BYE when all is well, then waits until the link is closed. */
void gp_client_session_close(struct gp_client_session *s);

#endif
