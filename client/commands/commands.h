/* SPDX-License-Identifier: Apache-2.0
 *
 * The commands of gpclient. argv[0] is the first word after the command's
 * name; the return value is the exit status (gp_status_exit). Each prints its
 * own errors, one line on stderr.
 *
 * Threads: the main thread; a command runs until it is done. Test: tests/e2e,
 * tests/unit/test_cmd_codec.c
 */
#ifndef GP_COMMANDS_H
#define GP_COMMANDS_H

#include "client/job/job.h"
#include "common/options/options.h"
#include "common/store/manifest.h"

int gp_cmd_train(int argc, char **argv);
/* The flags of `train` that decided a run, from what its checkpoints say of it (run_spec.h): all but data, starting weights
 * and where it ran. GP_INVALID where they cannot be. `r` keeps the texts. */
enum gp_status gp_cmd_train_read_run(const struct gp_pairs *spec, struct gp_job_settings *job, struct gp_optim *optim,
				     struct gp_options_result *r, struct gp_err *err);
int gp_cmd_pretrain(int argc, char **argv);
int gp_cmd_eval(int argc, char **argv);
int gp_cmd_infer(int argc, char **argv);
int gp_cmd_data(int argc, char **argv);
int gp_cmd_model(int argc, char **argv);
int gp_cmd_tokens(int argc, char **argv);
int gp_cmd_capture(int argc, char **argv);
int gp_cmd_insert_fit(int argc, char **argv);
int gp_cmd_codec(int argc, char **argv);
int gp_cmd_plan(int argc, char **argv);
int gp_cmd_bench(int argc, char **argv);
int gp_cmd_link(int argc, char **argv);
int gp_cmd_report(int argc, char **argv);
int gp_cmd_attack(int argc, char **argv);

/* Says in one line on stderr that `word` is no command of `program`, and which words are. Returns the exit status. */
int gp_cmd_unknown(const char *program, const char *word, const char *const *names, int count);

/* A command within a command: "list" of "gpclient codec". `r`: of its gp_options_parse; the caller frees it. */
struct gp_subcommand {
	const char *name;
	enum gp_status (*run)(int argc, char **argv, struct gp_options_result *r, struct gp_err *err);
};

#define GP_SUBCOMMANDS_MAX 8

/* Runs what argv[0] names; --help prints `usage`. Returns the exit status. */
int gp_cmd_dispatch(const char *program, const char *usage, const struct gp_subcommand *list, int count, int argc,
		    char **argv);

#endif
