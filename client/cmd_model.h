/* SPDX-License-Identifier: Apache-2.0
 *
 * `gpclient model list` and `gpclient model show`. Test: tests/unit/test_model_view.c
 */
#ifndef GP_CMD_MODEL_H
#define GP_CMD_MODEL_H

/* argv[0] is the first word after "model". Returns the exit status. */
int gp_cmd_model(int argc, char **argv);

#endif
