/* SPDX-License-Identifier: Apache-2.0
 *
 * The events of --log-json that are not the trainer's: the header, which says
 * what is run, and the error that ended it. client/JSON.md has all keys.
 *
 * Threads: the main thread. Test: tests/unit/test_run_log.c, tests/e2e/json_keys.sh
 */
#ifndef GP_RUN_LOG_H
#define GP_RUN_LOG_H

#include "client/job/job.h"
#include "client/log/json_log.h"
#include "client/train/run_state.h"

struct gp_run_log_head {
	const struct gp_job *job;
	const struct gp_run_state *run; /* NULL: without checkpoints */
	uint64_t total_steps, steps_per_epoch;
	int argc; /* the command line, without the program and the command */
	char **argv;
};

/* The line {"event":"header",...}. */
enum gp_status gp_run_log_head(struct gp_json_log *l, const struct gp_run_log_head *head, struct gp_err *err);
/* The line {"event":"error",...}, after `steps` completed steps; `exit_status` is that of the process. A log that cannot be
 * written says so when it is closed. */
void gp_run_log_error(struct gp_json_log *l, int exit_status, const struct gp_err *why, uint64_t steps);
/* The command line as a list: what follows --token-file, --tls-key, --metrics-key and --metrics-tokens is left out, as somebody
 * may have put the secret itself there. */
json_t *gp_run_log_command(int argc, char **argv);

#endif
