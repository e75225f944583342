/* SPDX-License-Identifier: Apache-2.0
 *
 * The commands of gpclient. argv[0] is the first word after the command's
 * name; the return value is the exit status (design section 8). Each prints its
 * own errors, one line on stderr.
 */
#ifndef GP_COMMANDS_H
#define GP_COMMANDS_H

int gp_cmd_train(int argc, char **argv);
int gp_cmd_eval(int argc, char **argv);
int gp_cmd_infer(int argc, char **argv);
int gp_cmd_model(int argc, char **argv);
int gp_cmd_capture(int argc, char **argv);
int gp_cmd_codec(int argc, char **argv);
int gp_cmd_link(int argc, char **argv);

/* One line on stderr: `word` is no command of `program`, these are. Returns the exit status. */
int gp_cmd_unknown(const char *program, const char *word, const char *const *names, int count);

#endif
