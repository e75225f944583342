/* SPDX-License-Identifier: Apache-2.0
 *
 * The training loop over an engine: batches in, schedule, metrics, evaluation
 * after each epoch, progress line, JSON log, and the closing report. Knows
 * neither models nor links.
 *
 * Threads: the thread that made the engine; gp_train blocks until the training is over.
 * Tests: tests/unit/test_trainer.c, test_trainer_rewind.c, tests/e2e
 */
#ifndef GP_TRAINER_H
#define GP_TRAINER_H

#include <signal.h>

#include "client/trace/bound_by.h"
#include "client/engine/engine.h"
#include "client/log/json_log.h"
#include "client/engine/eval_metrics.h"
#include "client/job/compress.h"
#include "client/job/norm_mode.h"
#include "client/privacy/privacy_meter.h"
#include "client/train/run_state.h"
#include "common/graph/optim.h"

struct gp_trainer_spec {
	struct gp_engine *engine;      /* one that has resumed a run is gone on with */
	struct gp_loader *train, *val; /* val NULL: no evaluation */
	struct gp_schedule schedule;
	uint64_t total_steps;
	uint32_t steps_per_epoch, val_batches;
	uint32_t recalibrate; /* batches from which running statistics are taken anew before an evaluation; 0: none */
	struct gp_metrics *metrics;     /* (optional) of `val`, for correlations */
	bool tells_matthews;            /* people are told that of classes, too; JSON has it in any case */
	struct gp_json_log *log;        /* NULL: none */
	uint64_t histograms_every;      /* steps, into the log; 0: none */
	struct gp_weights *weights;     /* gets the trained parameters */
	struct gp_run_state *run;       /* (optional) as the engine has it */
	struct gp_run_monitor *monitor; /* (optional) is told what is done */
	uint32_t left_out;              /* samples that --skip-bad left out: for the report */
	bool progress;
	const volatile sig_atomic_t *stop; /* set by a signal: finish the step, then report */
};

struct gp_train_report {
	uint64_t steps, samples;
	uint64_t steps_here; /* of them in this process: all, unless a run was resumed */
	uint32_t left_out;
	uint64_t clipped_steps;  /* in which --clip-norm scaled the gradients down */
	double seconds;          /* training and evaluation */
	double time_per_batch_s; /* median of the steps */
	double loss, train_acc;  /* over the last epoch, or what was run of it; accuracy in [0,1], NaN of values */
	struct gp_scores val;    /* all NaN without evaluation */
	struct gp_engine_figures figures;
	struct gp_account train_account; /* of the training steps alone */
	struct gp_bound_by bound_by;     /* of the same; the mean of a step, while time_per_batch_s is the median */
	char param_sha256[65];
	char batch_norm[GP_NORM_MODE_TEXT]; /* the mode, with all its values */
	bool recompute;                     /* --recompute */
	char compress[GP_COMPRESS_TEXT];    /* --compress; empty: none */
	struct gp_optim optim;
	const char *no_decay; /* --no-decay; NULL: not given */
	int without_decay;    /* trained parameters that it named */
	struct gp_run_checkpoints checkpoints;
	struct gp_privacy_report privacy; /* of the last step that was measured */
	uint64_t privacy_measured;        /* steps that were, in this process */
	double privacy_s;                 /* which took so long */
	bool stopped;                     /* by a signal */
};

enum gp_status gp_train(const struct gp_trainer_spec *spec, struct gp_train_report *out, struct gp_err *err);
/* The object that `train --json` prints: a new reference, NULL when memory is out. */
json_t *gp_train_report_json(const struct gp_train_report *r);

#endif
