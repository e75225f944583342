/* SPDX-License-Identifier: Apache-2.0
 *
 * `gpclient codec list` and `gpclient codec roundtrip`. Test: tests/unit/test_cmd_codec.c
 */
#ifndef GP_CMD_CODEC_H
#define GP_CMD_CODEC_H

/* argv[0] is the first word after "codec". Returns the exit status. */
int gp_cmd_codec(int argc, char **argv);

#endif
