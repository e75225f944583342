/* SPDX-License-Identifier: Apache-2.0
 *
 * What the command lines of `train` and `pretrain` say: their options, how those belong together, and the same flags as
 * they stand in a run's checkpoints. Not here: what is done with them (cmd_train.c), and the options that other commands
 * have as well (job.h).
 *
 * Threads: the main thread. Test: tests/e2e/bad_input.sh, tests/e2e/resume.sh
 */
#ifndef GP_TRAIN_OPTIONS_H
#define GP_TRAIN_OPTIONS_H

#include <stddef.h>

#include "client/commands/train_command.h"
#include "client/job/job.h"
#include "client/job/run_spec.h"
#include "client/train/run_state.h"
#include "common/http/metrics_site.h"

struct gp_train_settings {
	struct gp_job_settings job; /* first: the shared rows know its offsets */
	int64_t epochs, steps;
	int optimizer, schedule;
	double lr, final_lr, momentum, weight_decay, warmup, step_every, step_gamma, poly_power;
	double clip_norm, clip_value, adam_eps;
	const char *adam_betas;
	double beta[2]; /* what that says */
	bool nesterov, eval, augment;
	bool augment_given; /* --augment or --no-augment, not the default */
	bool share_loss;
	struct gp_metrics_site_settings metrics; /* --metrics and its files; without an address there is none */
	const char *save, *log_json, *trace, *trace_steps;
	int64_t log_histograms, trace_limit, privacy_every;
	const char *checkpoint;
	int64_t checkpoint_every;
	bool checkpoint_required;
	int resume; /* enum gp_resume */
};

/* For rows of other commands that are `like` one of these (struct gp_opt): such a row has an offset of its own. */
extern const struct gp_opt_rows gp_train_rows;     /* --epochs --steps --optimizer --lr, ..., schedules */
extern const struct gp_opt_rows gp_train_log_rows; /* --log-json --trace --privacy-every, ... */

/* GP_USAGE also for options that do not belong together. */
enum gp_status gp_train_options_parse(const struct gp_train_command *c, int argc, char **argv,
				      struct gp_train_settings *set, struct gp_options_result *r, struct gp_err *err);
struct gp_optim gp_train_optim_of(const struct gp_train_settings *set);
/* Adds the values of these options to what the run is. */
enum gp_status gp_train_options_add(const struct gp_train_settings *set, const char *const *flag, int count,
				    struct gp_run_spec *spec, struct gp_err *err);

#endif
