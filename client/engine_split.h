/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to engine_split.c (chunks, steps, evaluation), engine_split_life.c
 * (making, freeing, weights, figures), engine_split_undo.c and
 * engine_split_state.c.
 *
 * Threads: the engine's thread, which runs the loop, but for what tasks run on workers.
 * Test: tests/unit/test_engine.c
 */
#ifndef GP_ENGINE_SPLIT_H
#define GP_ENGINE_SPLIT_H

#include "client/engine.h"
#include "client/client_session.h"
#include "client/batch_map.h"
#include "common/wire/transfer.h"

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
	uint32_t chunk;
	bool arrived; /* the whole ACT_DOWN */
	int32_t *labels;
	struct gp_loss_result loss;
	struct gp_task compute;
};

enum direction_index { ACT_UP, ACT_DOWN, GRAD_UP, GRAD_DOWN, DIRECTIONS };

struct split_engine {
	struct gp_engine base;
	uv_loop_t loop;
	struct gp_device *device;
	struct gp_graph *head, *body, *tail;
	struct gp_plan *head_plan, *tail_plan;
	const struct gp_plan_profile *head_profile, *tail_profile; /* NULL: not measured */
	struct gp_worker *compute_worker, *codec_worker, *data_worker;
	struct gp_lane compute, data;
	struct gp_direction dir[DIRECTIONS];
	struct split_slot *slot;
	struct gp_client_session session;
	struct gp_client_open open;
	bool loop_open, session_open;
	uint64_t step, compute_ns;
	/* the pass under way: a training step, an evaluation or a prediction */
	bool train;
	float *outputs; /* of a prediction: a row per sample of the batch */
	const struct gp_batch *batch;
	struct gp_batch_map map; /* of the batch at hand */
	uint32_t batch_base; /* number of the batch's first chunk */
	uint32_t total, next, forwarded, acts, grads, done;
	uint32_t again, again_end; /* chunks of an evaluation that are still to be sent again */
	struct gp_step_result result;
	bool forwards_idle, pass_idle;
	bool stepping, step_ready; /* a training step is under way; nothing is missing but its COMMIT */
	/* optimizer and data tasks */
	struct gp_task optim, fetch, write;
	float lr;
	bool optim_done, fetched, written;
	/* with clip_norm: sums of squares of the whole model's gradients, in the order of its parameters */
	struct gp_task measure;
	double *squares;
	int head_sums, body_sums, tail_sums;
	bool own_squares, body_squares; /* of this step, in place */
	struct gp_loader *loader;
	struct gp_batch *fetched_batch;
	uint64_t state_hash; /* of the codecs, when the link broke */
};

static inline int gp_split_chunk_samples(const struct split_engine *e)
{
	return e->base.spec.session.chunk_samples;
}

/*
 * engine_split_undo.c: takes back what was begun of step e->step, which is not committed, in head, tail, codecs and
 * slots. Its link is broken, no task is pending. A pass may then begin anew.
 */
void gp_split_undo(struct split_engine *e);

/* engine_split_life.c: again, after all of them were taken down. */
enum gp_status gp_split_make_directions(struct split_engine *e, struct gp_err *err);
void gp_split_account_directions(struct split_engine *e);

/* engine_split_state.c: checkpoints (run_state.h). */
/* Writes the state after `steps` steps, which is in place. *written: there is a checkpoint, and COMMIT is to say so. */
enum gp_status gp_split_write_checkpoint(struct split_engine *e, uint64_t steps, bool *written, struct gp_err *err);
/* For the session: `checkpointed` of gp_client_frames, `restart` of gp_client_open. */
enum gp_status gp_split_checkpointed(void *arg, uint64_t step, const char *why, struct gp_err *err);
enum gp_status gp_split_restart(void *arg, uint64_t step, struct gp_err *err);

/* engine_split.c: what struct gp_engine_ops and the session call. */
extern const struct gp_client_frames gp_split_frames;
enum gp_status gp_split_step(struct gp_engine *base, const struct gp_batch *batch, float lr, struct gp_step_result *out,
			     struct gp_err *err);
enum gp_status gp_split_next(struct gp_engine *base, struct gp_loader *loader, struct gp_batch **out,
			     struct gp_err *err);
enum gp_status gp_split_evaluate(struct gp_engine *base, struct gp_loader *loader, uint32_t batches,
				 struct gp_step_result *out, struct gp_err *err);
enum gp_status gp_split_predict(struct gp_engine *base, struct gp_loader *loader, float *out, struct gp_batch **batch,
				struct gp_err *err);

#endif
