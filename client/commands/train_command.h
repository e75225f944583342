/* SPDX-License-Identifier: Apache-2.0
 *
 * A command that trains: cmd_train.c runs `train` and `pretrain`, and this struct
 * says in what they differ.
 *
 * Threads: the main thread. Test: tests/e2e
 */
#ifndef GP_TRAIN_COMMAND_H
#define GP_TRAIN_COMMAND_H

#include "common/options/options.h"

struct gp_train_command {
	struct gp_opt_table about;   /* its name, synopsis, text and examples; no rows */
	const char *const *left_out; /* options of `train` that it does not have; the list ends with NULL */
	/* Options of `train` with another default; the list ends with a NULL name. `help` NULL: that of `train`. */
	const struct gp_train_default {
		const char *name, *initial, *help;
	} * initial;
	bool masked_words; /* the model is a masked language model: struct gp_job_settings */
};

/* As the commands of commands.h. */
int gp_train_command(const struct gp_train_command *c, int argc, char **argv);

#endif
