/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to body.c, body_codec.c, body_figures.c, body_frame.c, body_life.c, body_params.c, body_link.c, body_precision.c,
 * body_rank.c, body_state.c, body_intervals.h and body_intervals.c.
 *
 * Threads: the loop's thread, but for what tasks run on the workers of devices and
 * codecs. Test: tests/unit/test_body.c
 */
#ifndef GP_BODY_IMPL_H
#define GP_BODY_IMPL_H

#include <stdatomic.h>

#include "common/wire/flows.h"
#include "common/wire/interval.h"
#include "server/body.h"

enum body_slot_state {
	SLOT_EMPTY,
	SLOT_ARRIVING, /* tensors of ACT_UP arriving, decoding */
	SLOT_AHEAD,    /* a chunk of the next step, decoded: waits for COMMIT */
	SLOT_FORWARD,  /* computing, encoding */
	SLOT_WAITING,  /* ACT_DOWN sent; the client's gradient comes next */
	SLOT_BACKWARD, /* tensors of GRAD_UP arriving, decoding, computing, encoding */
};

struct body_slot {
	struct gp_body *body;
	int index;
	enum body_slot_state state;
	uint64_t step, number; /* number: step * chunks + chunk */
	uint32_t chunk;
	uint8_t flags;
	uint32_t length;  /* positions of the chunk's sequences; 0: all of them */
	uint32_t *rows;   /* with lengths: of each sample, as ACT_UP says */
	uint64_t arrived; /* bit i: tensor i of the direction that comes has begun to arrive */
	int pending;      /* tensors that are still to be decoded, or encoded */
	struct gp_task compute;
	atomic_uint_least64_t computing_ns; /* since when; 0: not now. Of the compute thread, read by the loop's */
};

struct gp_body_part {
	struct gp_body *body;
	struct gp_flow *flow; /* NULL: the plan */
	struct gp_task task;
	struct gp_snapshot copy;
};

struct gp_body_checkpoint {
	bool asked;                            /* copies are made or written */
	bool refused;                          /* asked for, but it is not begun: */
	struct gp_err refusal;                 /* why */
	uint64_t step;                         /* the newest on disk that is known of */
	struct gp_err failure;                 /* of the last one that could not be written; no text: there was none */
	uint64_t written, failures, bytes, ns; /* of all: how many, what of them was written, and how long that took */
	int copying;
	int stay;  /* newest ones that stay on disk */
	int parts; /* every flow that exists, and the plan */
	struct gp_body_part *part;
	struct gp_st_item *items; /* of all parts */
	int item_count;
	struct gp_lane lane;
	struct gp_task write;
};

/* What has been noted since it was told last: body_intervals.h. */
struct gp_body_intervals {
	int count;
	struct gp_interval item[GP_INTERVALS_MAX];
};

/* With OPEN's choose_precision: what has been tried so far, and what is tried next. */
struct gp_body_choice {
	bool made; /* or under way */
	struct gp_precision_trial trial;
	struct gp_precision_probe probe;
	enum gp_precision at;
	int round;
	void (*then)(struct gp_body *b);
};

/* To where a client that came back goes on; the numbers are the loop's, but for `hash`, which the task finds. */
struct gp_body_rewind {
	bool undo;
	enum gp_status status;
	struct gp_err err;
	uint64_t hash;
};

struct gp_body {
	struct gp_body_site at;
	struct gp_device *dev; /* at.dev */
	struct gp_channel *ch; /* NULL while the link is broken */
	struct gp_body_spec spec;
	struct gp_body_cbs cbs;
	void *arg;
	struct gp_graph *graph; /* with the ranks of now: spec.graph, or one of its own */
	struct gp_plan *plan;
	struct gp_worker *codec, *slow_codec;
	bool asks_lengths;             /* OPEN does; spec.session has them where the device can, too */
	struct gp_share share;         /* of the device's time and of the codecs' */
	struct gp_lane_user computing; /* that share, on the device's worker */
	struct gp_lane build_lane, compute;
	struct gp_flows flows;
	struct body_slot *slot;
	uint64_t step; /* committed steps = number of the step under way */
	uint64_t
		begun; /* number of the chunk of training that may begin next; those of the next step may have begun, too */
	uint64_t next_act[GP_GRAPH_MAX_PORTS],
		next_grad[GP_GRAPH_MAX_PORTS]; /* by tensor: number of the chunk that is due */
	uint32_t done;                         /* chunks of the step under way that are through */
	uint32_t backwards;                    /* computed: the gradients are complete when all are */
	int eval_in_flight;
	uint64_t evaluated;        /* chunks of evaluations that were answered */
	uint32_t next_calibrating; /* chunk with CALIBRATE that has not come yet; any before it may come again */
	struct gp_task build, optim, measure;
	uint64_t grad_inputs;                /* of the plan: inputs whose gradient goes down */
	struct gp_body_need plan_need, need; /* as estimated: of the plan, of all */
	uint64_t estimated_step; /* the steps behind which there are the ranks whose needs are estimated now */
	bool built;              /* the plan's task has come back: `flows` is the loop's now */
	bool ahead;              /* chunks of the next step may come before COMMIT: see gp_flows_ahead */
	bool planning;           /* the plan's task is on its lane: those of weights may follow */
	float lr;
	double grad_norm;
	double *squares; /* with clip_norm: of each trained parameter */
	bool measured;   /* the squares of the step under way have been handed out */
	bool optim_pending, stopping, ready;
	/* Behind a COMMIT that changes ranks or codecs, until they have changed, which they do not where something fails or the
	 * body stops; and whether that COMMIT has asked for a checkpoint. */
	bool changing, checkpoint_follows;
	struct gp_committed committed; /* for COMMITTED of the last COMMIT */
	struct gp_stop stop;           /* `stopping`, for tasks that are queued or run */
	enum gp_status broken;         /* what a task without a channel failed of; GP_OK: nothing */
	struct gp_err broken_err;
	/* weights in: one frame per parameter, freed when all are set */
	struct gp_frame *param_in;
	struct gp_task *param_task;
	uint8_t *param_block;
	uint32_t params_begun, params_arrived, params_submitted, params_set;
	/* weights out: one frame, parameter after parameter */
	struct gp_frame param_out;
	struct gp_task param_get;
	uint32_t param_out_index;
	bool fetching;
	struct gp_body_checkpoint checkpoint;
	struct gp_body_rewind rewind;
	struct gp_body_choice choice;
	atomic_uint_least64_t trying_ns; /* of a trial, as computing_ns of a slot */
	struct gp_body_intervals intervals;
};

/* A task came back. False: the body is stopping, or the task failed (which was reported, or will be by gp_body_broken); do
 * nothing more. Else do what follows, and then gp_body_rest. */
bool gp_body_task_ok(struct gp_body *b, struct gp_task *t);
/* For tasks: GP_CANCELED once the body is stopping. */
enum gp_status gp_body_check_stop(const struct gp_body *b, struct gp_err *err);
/* After what follows from a task: without a link `idle` is called, which may hand the body to another one. */
void gp_body_rest(struct gp_body *b);
/* The session has to end; nobody is told when it does so anyway. */
void gp_body_fail(struct gp_body *b, enum gp_status status, struct gp_err *err);

/* body_life.c */
struct gp_plan_spec gp_body_plan_spec(const struct gp_body *b);
/* A plan that takes more than was estimated is refused: nobody has set that memory aside. */
enum gp_status gp_body_check_plan(struct gp_body *b, struct gp_err *err);
/* To the shapes of b->graph. */
enum gp_status gp_body_reshape_flows(struct gp_body *b, struct gp_err *err);

/* body_precision.c: sets spec.session.precision where OPEN has left that to this side; `then` follows in any case. */
void gp_body_choose_precision(struct gp_body *b, void (*then)(struct gp_body *));

/* body_rank.c */
/* The graph with the ranks of the step that the body begins at. */
enum gp_status gp_body_first_graph(struct gp_body *b, struct gp_err *err);
void gp_body_free_graphs(struct gp_body *b);
/* What changes of rank take besides. */
uint64_t gp_body_rank_bytes(const struct gp_body_spec *spec);
/* Calls `estimate` with the ranks behind b->estimated_step steps. */
enum gp_status gp_body_estimate_ranks(struct gp_body *b,
				      enum gp_status (*estimate)(struct gp_body *b, struct gp_err *err),
				      struct gp_err *err);
/* To the ranks that come next, which are a task of their own: other sessions have their turns between. False: none come. */
bool gp_body_next_ranks(struct gp_body *b);
/* Whether COMMIT of this step names the ranks that it changes to, and none where it changes none. */
enum gp_status gp_body_check_ranks(const struct gp_body *b, uint64_t step, const uint32_t *rank, size_t count,
				   struct gp_err *err);
/* Behind the update, ranks, codecs or both: COMMITTED follows, and before it the checkpoint that COMMIT has asked for. */
void gp_body_change(struct gp_body *b);

/* body_codec.c */
/* Whether COMMIT names rungs that there are, of all directions or of none. */
enum gp_status gp_body_check_rungs(const struct gp_body *b, const struct gp_body_commit *c, struct gp_err *err);
/* The codecs that the flows will have behind gp_body_change. */
void gp_body_take_rungs(struct gp_body *b, const struct gp_body_commit *c);
/* What COMMITTED will tell; before the next step's chunks are coded. */
void gp_body_note_committed(struct gp_body *b, const struct gp_body_commit *c);

/* body.c */
void gp_body_reset_chunks(struct gp_body *b);
/* The number of a chunk of training, counted over all steps; that of the first one of the step under way. */
uint64_t gp_body_chunk_number(const struct gp_body *b, const struct gp_frame_head *head);
uint64_t gp_body_first_of_step(const struct gp_body *b);
/* Where the tensors of a chunk go on when they have been decoded. */
void gp_body_act_decoded(struct gp_transfer *t);
void gp_body_grad_decoded(struct gp_transfer *t);
/* body_link.c: the flows count on the channel's account. */
void gp_body_account_flows(struct gp_body *b);
/* For a task, while the body is at rest: in plan and codecs, nothing of the step under way has been. */
void gp_body_undo(struct gp_body *b);
/* What of gp_body_rewind may take long. */
void gp_body_submit_rewind(struct gp_body *b);

/* body_state.c */
/* Reads the manifest of restore_step, off the loop thread; `done` follows. */
void gp_body_check_restore(struct gp_body *b, void (*done)(struct gp_task *));
enum gp_status gp_body_restore(struct gp_body *b, struct gp_err *err);
enum gp_status gp_body_list_parts(struct gp_body *b, struct gp_err *err);
uint64_t gp_body_checkpoint_bytes(const struct gp_body_spec *spec);
/* With COMMIT, behind the update and ahead of all that is computed next: writes a checkpoint of the state after it. */
void gp_body_checkpoint(struct gp_body *b);
void gp_body_checkpoint_refuse(struct gp_body *b);

enum gp_status gp_body_params_init(struct gp_body *b, struct gp_err *err);
void gp_body_params_deinit(struct gp_body *b);
enum gp_status gp_body_param_begin(struct gp_body *b, const struct gp_frame_head *head, struct gp_frame **out,
				   struct gp_err *err);
void gp_body_param_arrived(struct gp_body *b);
/* Those that came before the plan was begun. */
void gp_body_params_submit(struct gp_body *b);
void gp_body_param_sent(struct gp_body *b);

#endif
