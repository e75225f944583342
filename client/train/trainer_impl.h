/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to trainer.c, which trains, and trainer_tell.c, which tells of it.
 *
 * Threads: the trainer's. Test: tests/unit/test_trainer.c
 */
#ifndef GP_TRAINER_IMPL_H
#define GP_TRAINER_IMPL_H

#include "client/log/progress.h"
#include "client/train/trainer.h"
#include "client/trace/timeline_record.h"
#include "common/base/rate.h"

struct gp_training {
	const struct gp_trainer_spec *spec;
	struct gp_progress progress;
	struct gp_rate rate; /* of bytes: up, down */
	struct gp_train_report *report;
	struct gp_timeline_record *times; /* of a few steps, for the log; NULL without one */
	float *step_s;                    /* a ring of remembered_steps(total_steps) */
	uint64_t step, here;              /* done of the run; done in this process */
	struct gp_step_result epoch;      /* sums over the epoch under way */
	struct gp_step_result last;       /* the newest finished or unfinished epoch */
	struct gp_engine_figures first;   /* at the start of all */
	struct gp_engine_figures before;  /* at the start of the step under way */
	double first_loss;                /* of the first step in this process */
	struct gp_bound_by recent;        /* what bounded the steps, those of late counting most */
	uint64_t begin_ns, eval_ns;
	struct gp_batch *batch, *following; /* of the step to come, and of the one behind it; NULL: not taken yet */
	bool norm_warned;
	bool eval_cut; /* the last evaluation was ended by a signal */
};

/* NaN for none. */
double gp_training_mean(double sum, uint64_t n);
/* Whether labels are values to predict, which are neither right nor wrong: NaN is then the accuracy. */
bool gp_training_has_values(const struct gp_training *r);
double gp_training_accuracy(const struct gp_training *r, const struct gp_step_result *sum);
bool gp_training_clips_norm(const struct gp_training *r);

/* For the rates of the progress line. */
void gp_training_note_rate(struct gp_training *r, const struct gp_engine_figures *now, uint64_t now_ns);
/* Behind a step, an evaluation, the begin of a run that goes on, all of it. */
void gp_training_tell_step(struct gp_training *r, const struct gp_step_result *result, float lr, double seconds,
			   const struct gp_bound_by *bound, const struct gp_engine_figures *now);
void gp_training_tell_eval(struct gp_training *r, double seconds);
void gp_training_tell_resumed(struct gp_training *r);
void gp_training_tell_end(struct gp_training *r);

#endif
