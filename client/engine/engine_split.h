/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the files of the split engine:
 *
 *   engine_split.c       one chunk, in the order of the data: head forward, ACT_UP, ACT_DOWN, tail, GRAD_UP, GRAD_DOWN,
 *                        head backward
 *   engine_split_pass.c  which chunks there are: steps, commits, evaluation, prediction
 *   engine_split_link.c  what becomes of them when the link breaks; what the session calls
 *   engine_split_life.c  making, freeing, weights, figures
 *   engine_split_state.c checkpoints, and going back to one
 *   engine_split_rank.c  the parts with smaller ranks
 *   engine_split_codec.c codecs that change while training
 *   engine_split_window.c  how many chunks are in flight
 *   engine_split_privacy.c what the privacy meter sees of a step
 *   engine_split_notes.c   when each of these stages was, for the timeline
 *
 * Threads: the engine's own (loop) thread, but for run_* and finish_*, which run on the compute thread.
 * Tests: tests/unit/test_engine.c, tests/unit/test_resume.c, tests/e2e/parity.sh
 */
#ifndef GP_ENGINE_SPLIT_H
#define GP_ENGINE_SPLIT_H

#include "client/session/client_session.h"
#include "client/engine/engine.h"
#include "client/engine/batch_map.h"
#include "client/engine/crossing.h"
#include "client/trace/timeline.h"
#include "common/graph/tie.h"

enum slot_state {
	SLOT_FREE,
	SLOT_FORWARD,  /* head forward, encode */
	SLOT_WAIT_ACT, /* ACT_UP sent */
	SLOT_TAIL,     /* ACT_DOWN arriving, decode, tail, encode */
	SLOT_WAIT_GRAD,
	SLOT_BACKWARD, /* GRAD_DOWN arriving, decode, head backward */
};

struct split_slot {
	struct split_engine *e;
	int index, valid;
	enum slot_state state;
	uint64_t number; /* of the chunk: in training step * chunks + chunk, in an evaluation counted from 0 */
	uint64_t step;
	uint32_t chunk;
	const struct gp_batch *batch; /* until the head's forward is done; in training until the step is */
	size_t first;                 /* the chunk's first sample in it */
	uint64_t arrived;             /* bit i: tensor i of the direction that comes has begun to arrive */
	uint32_t length;              /* positions of its sequences; 0: all of them */
	uint32_t *rows;               /* of each sample */
	int pending;                  /* tensors still to be encoded, or decoded */
	void **data;                  /* by input of the body: copies of those that are data */
	int32_t *labels;              /* of its samples; not of a prediction */
	float scale;                  /* of its gradients */
	struct gp_loss_result loss;
	struct gp_task compute;
	uint64_t forwarded_ns,
		lost_ns; /* of the compute thread, until tail_done: the tail's forward, and the loss, were done */
};

struct gp_split_codecs;

struct split_engine {
	struct gp_engine base;
	uv_loop_t loop;
	struct gp_device *device;
	struct gp_crossing *cross; /* the parts, and which tensors cross between them */
	struct gp_crossing *first_cross,
		*next_cross; /* with the ranks of step 0, as OPEN says it; while they change: the next */
	struct gp_plan *head_plan, *tail_plan;
	const struct gp_plan_profile *head_profile, *tail_profile; /* NULL: not measured */
	struct gp_worker *compute_worker, *codec_worker, *data_worker;
	struct gp_lane compute, data;
	struct gp_flows flows;
	bool ahead;              /* the head's forwards of the next step may run, and be sent, during this one */
	struct gp_batch_map map; /* of the whole model's inputs, from the batch at hand */
	struct split_slot *slot;
	struct gp_client_session session;
	struct gp_client_open open;
	bool loop_open, session_open;
	uint64_t step, compute_ns;
	/* The pass under way: training, an evaluation or a prediction. Chunks by their number. */
	bool train;
	bool calibrates;          /* of an evaluation: it takes running statistics anew */
	bool calibrates_anew;     /* from the first chunk on: the server has lost what it had taken */
	uint64_t calibrated_most; /* chunks of the one pass that came furthest before that */
	int calibrations_lost;    /* passes since then that came no further */
	bool calibrated;          /* since the last commit: no checkpoint of this step has these statistics */
	float *outputs;           /* of a prediction: a row per sample of the batch */
	struct split_batch {
		const struct gp_batch *batch;
		float scale;                        /* of its gradients */
		uint64_t first, end;                /* numbers of its chunks */
	} batch[2];                                 /* the one under way, and the next step's */
	const struct gp_batch *current, *following; /* of the step under way; following: NULL where none may begin */
	uint64_t next, end; /* the chunk that begins next; the first one that there is no batch for */
	uint64_t forwarded, done;
	uint64_t next_act[GP_GRAPH_MAX_PORTS], next_grad[GP_GRAPH_MAX_PORTS]; /* by tensor: the chunk that is due */
	uint64_t again, again_end; /* chunks of an evaluation that are still to be sent again */
	struct gp_step_result result;
	bool forwards_idle, pass_idle;
	bool stepping, step_ready; /* a training step is under way; nothing is missing but its COMMIT */
	/* optimizer and data tasks */
	struct gp_task optim, fetch, write, replace;
	float lr;
	double grad_norm;  /* of the update under way */
	uint64_t updating; /* which step's that is */
	bool optim_done, fetched, written, replaced;
	/* with clip_norm: sums of squares of the whole model's gradients, in the order of its parameters */
	struct gp_task measure;
	double *squares;
	int head_sums, body_sums, tail_sums;
	bool own_squares, body_squares; /* of this step, in place */
	struct gp_tie tie;              /* between head and tail */
	struct gp_loader *loader;
	struct gp_batch *fetched_batch;
	uint64_t state_hash; /* of the codecs, when the link broke */
	struct {
		struct gp_task task;
		uint64_t done; /* steps before the one that is measured */
		const struct gp_batch *batch;
		struct gp_privacy_report *report;
		bool ended;
	} measured;                     /* by the privacy meter */
	bool in_place;                  /* the link broke within a step, and nothing of it was taken back */
	struct gp_split_codecs *codecs; /* NULL: they stay as they are */
	struct gp_rungs rungs;          /* what the commit under way changes codecs to */
};

static inline int gp_split_chunk_samples(const struct split_engine *e)
{
	return e->base.spec.session.chunk_samples;
}

/* What forwards of the pass under way are. */
static inline enum gp_mode gp_split_mode(const struct split_engine *e)
{
	return e->train ? GP_TRAIN : e->calibrates ? GP_CALIBRATE : GP_EVAL;
}

/* engine_split.c */
/* Starts as many chunks as there are and as the window allows. */
void gp_split_pump(struct split_engine *e);
/* Sends a chunk's ACT_UP again, which lies encoded in its slot. */
void gp_split_send_again(struct split_slot *s);
/* Without a link a step goes on as far as it gets where the server keeps its place, too, and an evaluation anyway. */
bool gp_split_goes_on(const struct split_engine *e);
/* False: the task failed, which ends the session, or only the link where that has damaged a frame; or its chunk goes no
 * further. */
bool gp_split_task_ok(struct split_engine *e, struct gp_task *t);
enum gp_status gp_split_frame_begin(void *arg, const struct gp_frame_head *head, struct gp_frame **out,
				    struct gp_err *err);
enum gp_status gp_split_frame(void *arg, struct gp_frame *f, struct gp_err *err);
void gp_split_frame_sent(void *arg, struct gp_frame *f);
void gp_split_frame_lost(void *arg, const struct gp_frame *f);
enum gp_status gp_split_server_done(void *arg, uint64_t step, uint32_t chunk, struct gp_err *err);

/* engine_split_pass.c: what struct gp_engine_ops calls. */
enum gp_status gp_split_step(struct gp_engine *base, const struct gp_batch *batch, const struct gp_batch *next,
			     float lr, struct gp_step_result *out, struct gp_err *err);
enum gp_status gp_split_next(struct gp_engine *base, struct gp_loader *loader, struct gp_batch **out,
			     struct gp_err *err);
enum gp_status gp_split_evaluate(struct gp_engine *base, struct gp_loader *loader, uint32_t batches,
				 struct gp_step_result *out, struct gp_err *err);
enum gp_status gp_split_calibrate(struct gp_engine *base, struct gp_loader *loader, uint32_t batches,
				  const struct gp_engine_watch *watch, struct gp_err *err);
enum gp_status gp_split_predict(struct gp_engine *base, struct gp_loader *loader, float *out, struct gp_batch **batch,
				struct gp_err *err);
/* A chunk is through; `s` is free. */
void gp_split_chunk_done(struct split_slot *s);
/* The number of the first chunk of step e->step. */
uint64_t gp_split_first_of_step(const struct split_engine *e);
/* No chunk is under way. The next one has number `first`. */
void gp_split_reset_chunks(struct split_engine *e, uint64_t first);
/* The batch whose chunks come next, or (`which` 1) those behind it. */
void gp_split_set_batch(struct split_engine *e, int which, const struct gp_batch *batch, uint64_t first);
/* The step under way from its first chunk on, when nothing of it is under way any more. */
void gp_split_begin_anew(struct split_engine *e);
/* GRAD_SQUARES. */
enum gp_status gp_split_squares_arrived(void *arg, uint64_t step, const double *sum, size_t n, struct gp_err *err);

/* engine_split_link.c: what the session calls. */
extern const struct gp_client_frames gp_split_frames;
/* Chunks of an evaluation that wait to be sent again, as the window allows; `answered`: chunks that have come back. */
void gp_split_resend(struct split_engine *e, uint64_t answered);
/*
 * Takes back what was begun of step e->step and of the next, which are not committed, in head, tail, codecs and slots. The
 * link is broken, no task is pending. A pass may then begin anew.
 */
void gp_split_undo(struct split_engine *e);
/* After that, and whatever step e->step is now: its first chunk comes next. */
void gp_split_begin_at_step(struct split_engine *e);

/* engine_split_notes.c: for the timeline, when a task or a transfer has come back. */
void gp_split_note_task(struct split_slot *s, enum gp_interval_stage stage);
void gp_split_note_tail(struct split_slot *s);
/* A tensor was sent, or received. */
void gp_split_note_crossed(struct split_engine *e, const struct gp_transfer *t);
/* It was encoded, or decoded. */
void gp_split_note_coded(struct split_engine *e, const struct gp_transfer *t);
/* Something of a step, not of a chunk. */
void gp_split_note_step(struct split_engine *e, enum gp_interval_stage stage, uint64_t step, const struct gp_task *t);

/* engine_split_privacy.c: nothing without a privacy meter, and in steps that are not due. */
/* When flows are known. */
void gp_split_privacy_begin(struct split_engine *e);
/* A tensor was encoded, and the channel does not have its frame yet; or was decoded. */
void gp_split_privacy_encoded(struct split_engine *e, struct gp_transfer *t);
void gp_split_privacy_decoded(struct split_engine *e, struct gp_transfer *t);
/* `measure` of gp_engine_ops. */
enum gp_status gp_split_privacy_measure(struct gp_engine *base, const struct gp_batch *batch,
					struct gp_privacy_report *out, struct gp_err *err);

/* engine_split_life.c */
struct gp_plan_spec gp_split_head_spec(const struct split_engine *e, const struct gp_crossing *c);
struct gp_plan_spec gp_split_tail_spec(const struct split_engine *e, const struct gp_crossing *c);
struct gp_flow_options gp_split_flow_options(const struct split_engine *e);
/* After plans were made. */
enum gp_status gp_split_begin_profiles(struct split_engine *e, struct gp_err *err);
/* Takes all flows down and makes them: codecs have no other way back to the start. */
enum gp_status gp_split_renew_flows(struct split_engine *e, struct gp_err *err);

/* Bytes of plans, frames and codecs. */
uint64_t gp_split_memory_bytes(struct split_engine *e);
/* Makes plans, slots and flows anew, for so many chunks in flight, before anything is under way. After a failure none of them is
 * of use but for another such call. */
enum gp_status gp_split_set_window(struct split_engine *e, int window, struct gp_err *err);

/* engine_split_window.c */
/* `choose_window` of gp_client_open. */
enum gp_status gp_split_choose_window(void *arg, double round_trip_s, int most, struct gp_err *err);

/* engine_split_rank.c */
/* Behind the update that makes `steps` steps, and before COMMIT, where it changes a rank. */
enum gp_status gp_split_change_ranks(struct split_engine *e, uint64_t steps, struct gp_err *err);
/* To the ranks behind `steps` steps, with plans and codecs as they begin: a checkpoint is loaded next. Nothing of a step is
 * under way. */
enum gp_status gp_split_renew_ranks(struct split_engine *e, uint64_t steps, struct gp_err *err);

/* engine_split_codec.c. Without --codec auto each does nothing. */
/* The codecs that a run begins with, before there are flows. */
enum gp_status gp_split_codecs_init(struct split_engine *e, struct gp_err *err);
void gp_split_codecs_deinit(struct split_engine *e);
const struct gp_codec_use *gp_split_codecs_use(const struct split_engine *e);
/* To the codecs behind `steps` steps, as they begin: a checkpoint is loaded next. Nothing of a step is under way. */
enum gp_status gp_split_codecs_renew(struct split_engine *e, uint64_t steps, struct gp_err *err);
void gp_split_codecs_begin_step(struct split_engine *e);
/* `committed` of gp_client_frames. */
void gp_split_codecs_committed(void *arg, uint64_t step, const struct gp_committed *m);
/* When all chunks of a step are through: the codecs of the next one, where any changes; they are written down by then. */
struct gp_rungs gp_split_decide_codecs(struct split_engine *e);
/* Behind that, the update and before COMMIT: the session has them, and then the flows, unless ranks change, too. */
void gp_split_take_codecs(struct split_engine *e);
enum gp_status gp_split_change_codecs(struct split_engine *e, struct gp_err *err);

/* engine_split_state.c: checkpoints (run_state.h). */
/* Writes one of the state after `steps` steps, which is in place. *written: whether there is one, which the server is to
 * hear of. */
enum gp_status gp_split_write_checkpoint(struct split_engine *e, uint64_t steps, bool *written, struct gp_err *err);
/* For the session: `checkpointed` of gp_client_frames, `restart` of gp_client_open. */
enum gp_status gp_split_checkpointed(void *arg, uint64_t step, const char *why, struct gp_err *err);
enum gp_status gp_split_restart(void *arg, uint64_t step, struct gp_err *err);

#endif
