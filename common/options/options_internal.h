/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the option parser share: options.c (arguments and config
 * files), options_value.c (text to typed fields), options_help.c and
 * options_rows.c. Not for anybody else; the interface is options.h.
 *
 * Threads: the main thread. Test: tests/unit/test_options.c
 */
#ifndef GP_OPTIONS_INTERNAL_H
#define GP_OPTIONS_INTERNAL_H

#include "common/options/options.h"

/* Where a value came from; decides how errors name it and their code. */
struct gp_opt_source {
	const char *file; /* NULL: the command line */
	int line;
};

#define GP_OPT_PLACE 128

/* "--batch", or "FILE:12: batch", into text[GP_OPT_PLACE]; returns text. */
const char *gp_opt_place(const struct gp_opt_source *from, const char *name, char *text);
/* GP_USAGE for the command line, GP_INVALID for a file. */
enum gp_status gp_opt_code(const struct gp_opt_source *from);
/* Keeps a copy of `text` until gp_options_free. */
enum gp_status gp_opt_copy(struct gp_options_result *r, const char *text, const char **out, struct gp_err *err);
/* Parses `text` into the field of `o`; the field is untouched on failure. TEXT is kept by `r`. */
enum gp_status gp_opt_store(const struct gp_opt *o, const char *text, const struct gp_opt_source *from, void *settings,
			    struct gp_options_result *r, struct gp_err *err);
#define GP_OPT_FLAG_TEXT 128
#define GP_OPT_HELP_TEXT 1024

/* "--batch N", "--[no-]color", "--resume[=if-any]", as --help shows it, into text[GP_OPT_FLAG_TEXT]; returns text. */
const char *gp_opt_flag_text(const struct gp_opt *o, char *text);
/* The line of help with choices, range and default in brackets, into text[GP_OPT_HELP_TEXT]; returns text. */
const char *gp_opt_help_text(const struct gp_opt *o, char *text);
/* "1..64" in the option's own unit, "" when it has no range. Returns `text`. */
const char *gp_opt_range_text(const struct gp_opt *o, char text[GP_VALUE_WHY]);

#endif
