/* SPDX-License-Identifier: Apache-2.0
 *
 * The body of one session: its graph, plan, codecs and the chunks in flight.
 * Frames come in, tasks run on the compute and codec workers, frames go out.
 * PROTOCOL.md section 5. Not here: handshake and lifetime (link.c and its parts).
 *
 * One chunk: ACT_UP decoded -> forward -> ACT_DOWN encoded -> (client) ->
 * GRAD_UP decoded -> backward -> GRAD_DOWN encoded. Backwards run before
 * forwards where both wait: a backward frees memory and fills the down link.
 *
 * Threads: loop thread. Every frame header is checked here against the step and
 * its chunks before a buffer is given; that the session and the state take such a
 * frame was checked before (common/wire/control_states.h). Test: tests/unit/test_server.c, tests/unit/test_body.c, tests/e2e
 */
#ifndef GP_BODY_H
#define GP_BODY_H

#include "common/graph/device.h"
#include "common/graph/precision_trial.h"
#include "common/wire/session_spec.h"
#include "common/wire/control.h"
#include "common/wire/flows.h"
#include "common/wire/place.h"
#include "server/state_dir.h"

/* The reason given to a client that asks for checkpoints where there is no `state`. */
#define GP_BODY_NO_CHECKPOINTS "this server writes no checkpoints (--state-dir)"

struct gp_interval;

struct gp_body_spec {
	struct gp_graph *graph; /* taken over by gp_body_new */
	struct gp_session_spec session;
	uint64_t id; /* of the session: every frame names it */
	/* Checkpoints of the run: where they lie (NULL: nowhere), and of which step one is to be read before READY
	 * (0: none). */
	struct gp_state_dir *state;
	uint8_t run_id[GP_RUN_ID_BYTES];
	uint64_t lease;                    /* under which they may change: gp_state_dir_write_leased */
	uint64_t restore_step, state_hash; /* state_hash: of the client's codecs there; 0: not known */
	uint32_t weights;                  /* PARAM_UP frames to come: 0 or all parameters */
	/* Seconds that a pass over a chunk may take, as estimated, 0: as long as it likes; and what the longer of forward
	 * and backward is estimated to take (server/open.h). */
	double task_limit_s, task_s;
	bool intervals; /* the client wants to know when the body did what: PROTOCOL.md section 5.9 */
	double share; /* of the device and of the codecs' threads beside other sessions: gp_body_set_share; 0: 1, as most have */
};

/* Bytes that a session takes: of the host's memory, and of the device's where it has its own. */
struct gp_body_need {
	uint64_t host, device;
};

/* Where a body computes; the worker is the device's. */
struct gp_body_site {
	struct gp_device *dev;
	struct gp_worker *compute;
};

struct gp_body_cbs {
	/* Called with what the session needs in all, before any of it is taken. A failure ends the session. If the
	 * callback changes *at, the session goes to that site, and it is called again with what the session needs
	 * there. */
	enum gp_status (*estimated)(void *arg, const struct gp_body_need *need, struct gp_body_site *at,
				    struct gp_err *err);
	void (*ready)(void *arg);                                             /* plan made, weights in place */
	void (*failed)(void *arg, enum gp_status status, struct gp_err *err); /* the session has to end */
	/* With clip_norm, after the last chunk's backward pass: the sums of clip.h. `sum` lives until the next step. */
	void (*measured)(void *arg, uint64_t step, const double *sum, int n);
	/* In place of GRAD_DOWN, where no tensor of it comes: the chunk's gradients are complete, its slot is free. */
	void (*chunk_done)(void *arg, uint64_t step, uint32_t chunk);
	void (*committed)(void *arg, uint64_t step);
	/* Called instead, where COMMIT asked for a checkpoint: it is on disk, or `why` says why it is not. */
	void (*checkpointed)(void *arg, uint64_t step, const char *why);
	/* (optional) First, in any case: the checkpoint of the state after `step` steps could not be written. */
	void (*checkpoint_failed)(void *arg, uint64_t step, const char *why);
	/* With spec.intervals: when the body did what. `interval` is valid during the call. */
	void (*intervals)(void *arg, uint64_t step, uint32_t chunks, const struct gp_interval *interval, int count);
	void (*params_sent)(void *arg, uint32_t count);
	void (*idle)(void *arg); /* a task came back while stopping or without a channel: see gp_body_busy */
};

struct gp_body;

struct gp_body_workers {
	struct gp_worker
		*build; /* estimates and plans: a graph made to take long holds up no step of another session */
	struct gp_worker *codec;
	struct gp_worker *slow_codec; /* gp_flow_options.slow; may be NULL */
	struct gp_worker *disk;       /* with spec.state */
};

/* Bytes that gp_body_new itself takes for the weights, which may follow OPEN at once. */
uint64_t gp_body_staging_bytes(const struct gp_body_spec *spec);
/* Takes spec->graph (also on failure). Estimate, memory and plan follow: `estimated`, then `ready`. */
enum gp_status gp_body_new(const struct gp_body_site *at, const struct gp_body_workers *workers, struct gp_channel *ch,
			   const struct gp_body_spec *spec, const struct gp_body_cbs *cbs, void *arg,
			   struct gp_body **out, struct gp_err *err);

/*
 * Gives the memory of a body back that has been stopped and is not busy, before gp_body_free; a device may take its
 * time for. True: it is busy with that now, and `idle` follows; false: that has been done, or there is nothing large.
 */
bool gp_body_release(struct gp_body *b);
/* Must not be busy. */
void gp_body_free(struct gp_body *b);

enum gp_status gp_body_frame_begin(struct gp_body *b, const struct gp_frame_head *head, struct gp_frame **out,
				   struct gp_err *err);
void gp_body_frame(struct gp_body *b, struct gp_frame *f);
void gp_body_frame_sent(struct gp_body *b, struct gp_frame *f);
/* It had begun to come when its link ended. */
void gp_body_frame_lost(struct gp_body *b, const struct gp_frame *f);
/* What COMMIT says, as it came. */
struct gp_body_commit {
	uint64_t step;
	float lr;
	double grad_norm; /* of the whole model, with clip_norm; else 0 */
	bool checkpoint;  /* write one of the state after the step, and call `checkpointed` in place of `committed` */
	const uint32_t *rank; /* where the step changes ranks, what they become */
	size_t ranks;
	const uint32_t *rung; /* where the step changes codecs, which rungs they become, by direction */
	size_t rungs;
};
enum gp_status gp_body_commit(struct gp_body *b, const struct gp_body_commit *c, struct gp_err *err);
/* For COMMITTED of the last commit: what it has changed ranks and codecs to, and what was surveyed in its step. */
const struct gp_committed *gp_body_committed(const struct gp_body *b);
/* From `ready` on. *trial: what it was chosen by, where OPEN has asked for that; else NULL. */
enum gp_precision gp_body_precision(const struct gp_body *b, const struct gp_precision_trial **trial);
/* Whether codecs may change. */
bool gp_body_has_ladder(const struct gp_body *b);
/*
 * Writes the state after the last commit of a body that has been stopped and is not busy. True: it is busy with that
 * now, and `idle` follows; false: there is nothing to checkpoint, or nowhere.
 */
bool gp_body_checkpoint_at_rest(struct gp_body *b);
enum gp_status gp_body_fetch_params(struct gp_body *b, struct gp_err *err);

/*
 * A link breaks and comes back, PROTOCOL.md 5.6. Of a body that is ready.
 *
 * detach: its channel is going. What has come is computed as far as it goes, and what follows for the client stays in the
 * slots; `idle` alone is called from here on. Frames still come back by gp_body_frame_sent until the channel is closed, and
 * by gp_body_frame_lost what had come in part. Then, and not busy, either a rewind, or a place (below), and
 * broken: what a task failed of in the meantime, such as an update; GP_OK: the body can go on.
 * attach: frames come and go on this channel.
 */
void gp_body_detach(struct gp_body *b);
enum gp_status gp_body_broken(const struct gp_body *b, struct gp_err *err);
void gp_body_attach(struct gp_body *b, struct gp_channel *ch);
/*
 * Before attach: to where a client that has committed `client_steps` goes on. Undoes what was begun of the step that the
 * client begins again, of evaluations and of fetched parameters (with session.undo), or nothing of the step where only
 * COMMIT was lost, which comes again; then hashes what codecs remember. Both may take long, so a thread that makes plans
 * does it: the body may be busy, `idle` follows. The same again, before anything else, changes nothing.
 */
void gp_body_rewind(struct gp_body *b, uint64_t client_steps);
/* What came of it, when the body is not busy: GP_PROTO for a number of steps that does not fit; what gp_body_broken says.
 * *hash: as of gp_body_state_hash. */
enum gp_status gp_body_rewound(const struct gp_body *b, uint64_t *hash, struct gp_err *err);
/*
 * A step under way goes on where it was, in place of a rewind. Before attach, check_place: whether everything that the
 * client says it lacks is still here; GP_PROTO, or what gp_body_broken says. `place`: what this end lacks, with so many
 * tensors `up` and `down`. After attach and WELCOME, go_on sends what the client lacks.
 */
enum gp_status gp_body_check_place(const struct gp_body *b, uint64_t client_steps, const struct gp_place *client,
				   struct gp_err *err);
void gp_body_place(const struct gp_body *b, struct gp_place *out);
void gp_body_tensors(const struct gp_body *b, int *up, int *down);
void gp_body_go_on(struct gp_body *b, uint64_t client_steps, const struct gp_place *client);
/* Bytes that the channel should set aside for control messages, so that those of a step allocate nothing. */
uint32_t gp_body_message_bytes(const struct gp_body *b);
/* Hash of what the codecs of both ends must remember alike (PROTOCOL.md 5.6). The body must not be busy. */
uint64_t gp_body_state_hash(const struct gp_body *b);

/* Begins no new work from here on; `idle` runs when a pending task has come back. Estimates, plans and passes that have not
 * begun do nothing, and those under way end at the next node where the device can (gp_plan_spec.stop). */
void gp_body_stop(struct gp_body *b);
/* A pass under way, forward, backward or of a codec, that has taken ten times what was estimated and longer than the
 * limit: for how many seconds, by `now_ns` and not before `since_ns`; 0: there is none. */
struct gp_body_overrun {
	double seconds;
	char what[48];
};
struct gp_body_overrun gp_body_overrun(const struct gp_body *b, uint64_t since_ns, uint64_t now_ns);
/* Any time: where others want the device or the codecs' threads, too, a session of share 2 gets twice the time of one of
 * share 1. More than 0. */
void gp_body_set_share(struct gp_body *b, double share);
/* What counts when it asks for a turn on its device, and to begin with no less than that, as of a session before it:
 * gp_share_used, gp_share_follow. */
uint64_t gp_body_share_used(const struct gp_body *b);
void gp_body_share_follow(struct gp_body *b, uint64_t used_ns);
/* Time used so far: passes, updates and the like on the device, and codecs. */
struct gp_body_time {
	uint64_t device_ns, codec_ns;
};
struct gp_body_time gp_body_time_used(const struct gp_body *b);
/* What it has done over all links, and what of it waits or is under way now. The figures of codecs are 0 once it gives its memory
 * back. */
struct gp_body_figures {
	uint64_t raw_fallbacks; /* tensors that a codec of this end left raw */
	uint64_t checkpoints, checkpoint_failures, checkpoint_bytes, checkpoint_ns; /* _ns: of writing them */
	int compute_queued, codec_queued, disk_queued;                              /* tasks */
};
void gp_body_figures(struct gp_body *b, struct gp_body_figures *out);
bool gp_body_busy(const struct gp_body *b);
/* Whether it takes chunks of their own sequence length: OPEN has asked for it, and the device can. Of one that is ready. */
bool gp_body_takes_lengths(const struct gp_body *b);
/* True while a step or an evaluation is under way (for the step deadline). */
bool gp_body_in_step(const struct gp_body *b);
/* True while it is the client's turn to send or to read something: in a step, or while answers are on their way. */
bool gp_body_awaits_client(const struct gp_body *b);
/* Chunks that are here and wait for a codec, for the device, or for the link; not those that wait for the client. */
int gp_body_chunks_queued(const struct gp_body *b);
/* No step, commit, evaluation or fetch of parameters is under way, and every answer has left. */
bool gp_body_between_steps(const struct gp_body *b);
/* Every chunk of the step under way is through: its client may have sent COMMIT, which may not have come. */
bool gp_body_awaits_commit(const struct gp_body *b);
uint64_t gp_body_steps(const struct gp_body *b); /* committed */
/* Steps committed and chunks of evaluations answered: it grows as long as links bring something. */
uint64_t gp_body_gains(const struct gp_body *b);
uint64_t gp_body_checkpoint_step(
	const struct gp_body *b); /* of the newest checkpoint that it has written or begun from; 0: none */
/* Whether its run has checkpoints here, and therefore a state to be kept when the server stops. */
bool gp_body_keeps_checkpoints(const struct gp_body *b);
/* Why the state after the last commit was not written, or "" where nothing failed. */
const char *gp_body_checkpoint_failure(const struct gp_body *b);

#endif
