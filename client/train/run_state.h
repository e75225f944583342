/* SPDX-License-Identifier: Apache-2.0
 *
 * What a training run keeps on disk on this side: --checkpoint DIR, when the
 * next one is due, which ones there are, and what happens when one cannot be
 * written. Engines write and load through this; the trainer asks where to go on.
 *
 * A checkpoint counts when the other side has it, too: an engine writes its own
 * first (gp_run_state_write), then has the server write, then confirms or takes
 * it back. A run without a server confirms at once.
 *
 * Threads: gp_run_state_write from any one thread while no other call is under
 * way; everything else from the engine's thread. Test: tests/unit/test_run_state.c
 */
#ifndef GP_RUN_STATE_H
#define GP_RUN_STATE_H

#include <signal.h>

#include "common/store/checkpoint.h"
#include "common/graph/snapshot.h"

/* --resume: not given, alone, =if-any. */
enum gp_resume {
	GP_RESUME_NO,     /* a new run, in a folder without checkpoints */
	GP_RESUME_MUST,   /* the run of the folder goes on, or that is an error */
	GP_RESUME_IF_ANY, /* the same, but where no checkpoint has ever been whole a run begins */
};

/* Whether a run evaluates, where that decides what it trains with. */
enum gp_run_eval { GP_RUN_EVAL_ANY, GP_RUN_EVAL_NO, GP_RUN_EVAL_YES };

struct gp_run_state_options {
	const char *dir;
	uint64_t every, total_steps;
	enum gp_resume resume;
	bool required;
	bool reads;                  /* only what is there is wanted: no step follows, and nothing is said on stderr */
	const struct gp_pairs *spec; /* by flag: what must be the same to go on; outlives the run state */
	/* Compared with those of a checkpoint that has them, as older ones do not: a run does not go on with others. */
	uint32_t samples; /* of the training data; 0: not known */
	enum gp_run_eval eval;
	const volatile sig_atomic_t *stop; /* (optional) set by a signal: the next step gets a checkpoint */
	const struct gp_st_pair *meta;     /* (optional) metadata of the state files; outlives the run state */
	int meta_count;
};

/* Sums over the epoch under way. */
struct gp_run_progress {
	double loss_sum;
	uint64_t correct, samples;
};

/* What became of the checkpoints in this process. */
struct gp_run_checkpoints {
	uint64_t written, failed;
	uint64_t newest; /* the step that the run could go on from now; 0: from its beginning */
};

struct gp_run_state;

/*
 * Locks the folder. Without `resume` it must hold no checkpoints. With it, those of the run are read and checked: damaged
 * ones are left out with a warning; GP_INVALID names a flag that differs, or says that there is nothing to go on from. So
 * does a folder with checkpoints of two runs or of another version, or with files that are none of ours.
 */
enum gp_status gp_run_state_open(const struct gp_run_state_options *o, struct gp_run_state **out, struct gp_err *err);
void gp_run_state_close(struct gp_run_state *r); /* NULL is fine */

/* The run may have begun in another process: its server is worth waiting for. */
bool gp_run_state_resumes(const struct gp_run_state *r);
const uint8_t *gp_run_state_id(const struct gp_run_state *r); /* GP_RUN_ID_BYTES */
const char *gp_run_state_dir(const struct gp_run_state *r);
/* Steps of the checkpoints that could be loaded, newest first. */
int gp_run_state_list(const struct gp_run_state *r, uint64_t step[GP_CHECKPOINTS_MAX]);
/* The step of the run's newest checkpoint on this side, without asking a server; 0: there is none. */
uint64_t gp_run_state_newest(const struct gp_run_state *r);
enum gp_status gp_run_state_load(struct gp_run_state *r, uint64_t step, struct gp_checkpoint **out, struct gp_err *err);
/*
 * The other side has none of this side's checkpoints. GP_OK: nothing is lost where the run begins again. GP_INVALID says
 * what either side has: it must not begin, because it was to be resumed, or because it has been further with a checkpoint
 * that both sides had. `theirs`: steps that the other side has checkpoints of; `why_none`: why it keeps none, or NULL.
 */
enum gp_status gp_run_state_check_start(const struct gp_run_state *r, const char *server, const uint64_t *theirs,
					size_t count, const char *why_none, struct gp_err *err);
/* The run goes on at this step: after a load, or at 0. */
void gp_run_state_begin(struct gp_run_state *r, const struct gp_checkpoint *c);
/* Says on stderr where the run begins, when it was to be resumed. */
void gp_run_state_tell(const struct gp_run_state *r, uint64_t step);

/* Progress before the step under way. */
struct gp_run_progress *gp_run_state_progress(struct gp_run_state *r);

/* What has become of the checkpoints. NULL: zeros. */
struct gp_run_checkpoints gp_run_state_checkpoints(const struct gp_run_state *r);

/* Whether the state after `steps` steps should be checkpointed. NULL: never. */
bool gp_run_state_due(const struct gp_run_state *r, uint64_t steps);
/* False when the state should be written but nobody has asked the server to, because the signal came too late. NULL:
 * always true. */
bool gp_run_state_settled(const struct gp_run_state *r, uint64_t steps);
/* `step`: what the last step added to the progress. Unconfirmed. Errors go to gp_run_state_failed. */
enum gp_status gp_run_state_write(struct gp_run_state *r, uint64_t steps, const struct gp_snapshot *s,
				  const struct gp_run_progress *step, struct gp_err *err);
/* Confirms the checkpoint of that step, which stays; older ones are removed. */
void gp_run_state_confirm(struct gp_run_state *r, uint64_t steps);
/* The other side has shown that it has the checkpoint of that step, too, as where the run goes on from it: nothing is written
 * anew. Nothing where this side has none of that step, as where the run goes on from memory, or only reads
 * the folder. */
void gp_run_state_found(struct gp_run_state *r, uint64_t steps);
/* Removes the checkpoint of that step again, because the other side does not have its own. */
void gp_run_state_take_back(struct gp_run_state *r, uint64_t steps);
/* Reports that there will be no checkpoint, because of err: one warning; or, with --checkpoint-required, the error that
 * ends training. */
enum gp_status gp_run_state_failed(struct gp_run_state *r, uint64_t steps, struct gp_err *err);
/* The same before any checkpoint was asked for: the other side will write none. */
enum gp_status gp_run_state_refused(struct gp_run_state *r, struct gp_err *err);

#endif
