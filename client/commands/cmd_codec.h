/* SPDX-License-Identifier: Apache-2.0
 *
 * What cmd_codec.c and cmd_codec_compare.c share.
 *
 * Threads: the main thread. Test: tests/unit/test_cmd_codec.c
 */
#ifndef GP_CMD_CODEC_H
#define GP_CMD_CODEC_H

#include <jansson.h>

#include "client/codecs/codec_trip.h"
#include "common/options/options.h"

/* As of struct gp_subcommand. */
enum gp_status gp_codec_compare(int argc, char **argv, struct gp_options_result *r, struct gp_err *err);

/* What both tell programs about one codec on one tensor. */
json_t *gp_codec_trip_json(const struct gp_codec_spec *spec, const struct gp_trip *t);
/* " (zstd skipped)", or nothing; returns text. */
const char *gp_codec_skipped_text(const struct gp_codec_spec *spec, const struct gp_trip *t, char *text, size_t size);
/* "34.1 Gbit/s"; returns text. */
const char *gp_codec_rate_text(double bps, char *text, size_t size);

#endif
