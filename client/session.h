/* SPDX-License-Identifier: Apache-2.0
 *
 * The client's end of a session: connect, handshake, OPEN with the body's
 * graph, control messages, and the failure that ended it. Frames are passed on
 * to the engine. PROTOCOL.md section 5.
 *
 * Threads: the loop's thread. The functions that wait run the loop themselves.
 * Test: tests/unit/test_engine.c
 */
#ifndef GP_CLIENT_SESSION_H
#define GP_CLIENT_SESSION_H

#include "common/codec.h"
#include "common/control.h"
#include "common/device.h"
#include "common/graph.h"
#include "common/optim.h"
#include "common/weights.h"

struct gp_client_session;

struct gp_client_frames { /* the engine's part of struct gp_channel_cbs */
	enum gp_status (*frame_begin)(void *arg, const struct gp_frame_head *head, struct gp_frame **out,
				      struct gp_err *err);
	enum gp_status (*frame)(void *arg, struct gp_frame *f, struct gp_err *err);
	void (*sent)(void *arg, struct gp_frame *f);
	/* GRAD_SQUARES, only with clip_norm. */
	enum gp_status (*grad_squares)(void *arg, uint64_t step, const double *sum, size_t n, struct gp_err *err);
};

struct gp_client_open {
	const char *server; /* "HOST:PORT" */
	const struct gp_graph *body;
	const struct gp_weights *weights; /* of the whole model; NULL: the server draws them from seed */
	struct gp_optim optim;
	enum gp_precision precision;
	uint64_t seed;
	int chunk_samples, window, chunks;
	bool eval_only;
	const struct gp_codec_spec *codec; /* 4 */
	double connect_timeout_s, idle_timeout_s;
};

struct gp_client_session {
	uv_loop_t *loop;
	struct gp_channel *ch;
	uint64_t id;
	uint64_t server_memory_bytes;
	uint64_t commits_sent, committed;
	enum gp_status status; /* not GP_OK: the session is over, err says why */
	struct gp_err err;
	/* private */
	const struct gp_client_frames *frames;
	void *arg;
	const struct gp_client_open *open;
	struct gp_control_arena arena;
	int state, window_limit;
	bool connected, connecting, params_done, all_committed, waiting, closed, timer_open, peer_gave_up;
	uv_timer_t timer;
	uint64_t progress_ns;  /* when the server last did something, heartbeats aside */
	double patience_s;     /* so long may it do nothing while we wait */
	double step_timeout_s; /* from WELCOME */
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
 * Runs the loop until *flag or the session fails (its error comes back): when the server sends nothing but heartbeats for
 * the step timeout that it named, too.
 */
enum gp_status gp_client_session_wait(struct gp_client_session *s, const bool *flag, struct gp_err *err);
/* The same for something that this side does: the server may be idle for as long as it takes. */
enum gp_status gp_client_session_wait_here(struct gp_client_session *s, const bool *flag, struct gp_err *err);
/* Ends the session with this failure (also from callbacks); the first one is kept. */
void gp_client_session_fail(struct gp_client_session *s, enum gp_status status, const char *text);
/* grad_norm: 0 without clip_norm. */
enum gp_status gp_client_session_commit(struct gp_client_session *s, uint64_t step, float lr, double grad_norm,
					struct gp_err *err);
/* Waits for every COMMITTED, then fetches the body's parameters into w (whole model, matched by name). */
enum gp_status gp_client_session_fetch(struct gp_client_session *s, struct gp_weights *w, struct gp_err *err);
/* BYE when all is well, then waits until the connection is closed. */
void gp_client_session_close(struct gp_client_session *s);

#endif
