/* SPDX-License-Identifier: Apache-2.0
 *
 * A list of codec specs in one text, as a user writes it for --codecs: separated by white space, semicolons and commas. A comma
 * before KEY= belongs to the spec: uniform:bits=8,sortquant:bits=6,split=2 are two.
 *
 * Threads: any; pure. Test: tests/unit/test_cmd_codec.c
 */
#ifndef GP_CODEC_SPECS_H
#define GP_CODEC_SPECS_H

#include "common/base/status.h"

/* Calls fn with each spec of the list, in its order, until one fails. GP_USAGE, which names the flag: one is too long. */
enum gp_status gp_codec_specs_each(const char *list, const char *flag,
				   enum gp_status (*fn)(void *arg, const char *spec, struct gp_err *err), void *arg,
				   struct gp_err *err);

#endif
